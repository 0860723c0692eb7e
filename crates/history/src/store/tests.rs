use super::row::*;
use super::schema::{FIRST, FirstInterval, FirstModel};
use super::*;
use crate::Span;
use crate::account::Account;
use crate::learnt::{Before, Source};
use crate::recorder::{Chunk, DiskInterval, StoreInterval, hour_of};
use crate::totals::{Done, StoreHour};
use headgate_model::Name;
use headgate_placement::{
    DeviceInterval, DeviceModel, DevicePoint, Evidence, LeftOut, Outstanding, PastMove, Permille,
    Totals, WorkloadMeter, WorkloadProfile,
};
use headgate_units::Bytes;
use headgate_units::Nanos;
use rusqlite::params;
use std::collections::BTreeMap;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn at(second: u64) -> Nanos {
    // The beginning of an hour.
    Nanos::from_secs(500_000 * HOUR + second)
}

fn busy(outstanding: u32) -> DiskInterval {
    let (size, read, random) = (Bytes::from_kib(8), Permille(700), Permille::WHOLE);
    DiskInterval(Some(WorkloadProfile {
        outstanding: Outstanding::whole(outstanding),
        size,
        read,
        random,
    }))
}

fn point(outstanding: u32) -> StoreInterval {
    let latency = Nanos::from_micros(5_000 + 1_000 * u64::from(outstanding));
    let (size, random) = (Bytes::from_kib(8), Permille::WHOLE);
    StoreInterval(DeviceInterval::Point(DevicePoint {
        outstanding: Outstanding::whole(outstanding),
        latency,
        size,
        random,
    }))
}

/// Five minutes that end then.
fn chunk(ended: Nanos, outstanding: u32) -> Chunk {
    Chunk {
        ended,
        period: Nanos::from_secs(5),
        disks: BTreeMap::from([
            (name("a"), vec![busy(outstanding); 60]),
            (name("b"), vec![DiskInterval(None); 60]),
        ]),
        stores: BTreeMap::from([(name("array"), (0..60).map(|n| point(n % 8 + 1)).collect())]),
        hours: BTreeMap::from([(
            name("array"),
            BTreeMap::from([(hour_of(ended), five_minutes())]),
        )]),
        accounts: BTreeMap::new(),
        measured: BTreeMap::new(),
    }
}

/// What a datastore did in them.
fn five_minutes() -> StoreHour {
    StoreHour {
        seen: Nanos::from_secs(300),
        reads: Done { count: 3_000, bytes: Bytes::from_kib(24_000) },
        totals: Totals { taken: 60, ..Totals::default() },
        ..StoreHour::default()
    }
}

/// A chunk of a datastore with these intervals.
fn with_points(ended: Nanos, points: impl Iterator<Item = StoreInterval>) -> Chunk {
    Chunk { stores: BTreeMap::from([(name("array"), points.collect())]), ..chunk(ended, 4) }
}

fn day_model(file: &mut SamplesFile) -> Option<DeviceModel> {
    file.before(&name("array")).unwrap().day.map(|(_, model)| model)
}

fn file() -> (tempfile::TempDir, SamplesFile) {
    let dir = tempfile::tempdir().unwrap();
    let file = SamplesFile::open(&dir.path().join("samples.sqlite")).unwrap();
    (dir, file)
}

fn outstanding(meter: &WorkloadMeter) -> f64 {
    meter.profile().unwrap().outstanding.as_f64()
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let (dir, mut file) = file();
    file.write(&chunk(at(300), 4)).unwrap();
    file.write(&chunk(at(600), 4)).unwrap();
    drop(file);
    let mut file = SamplesFile::open(&dir.path().join("samples.sqlite")).unwrap();
    for fine in [false, true] {
        let meters = file.workloads(at(0), fine).unwrap();
        assert_eq!(meters[&name("a")].intervals(), 120);
        assert!((outstanding(&meters[&name("a")]) - 4.0).abs() < 0.3);
        assert_eq!(outstanding(&meters[&name("b")]), 0.0);
    }
    let intervals = file.store_intervals(&name("array"), at(0)).unwrap();
    assert_eq!((intervals.len(), intervals[0].0, intervals[119].0), (120, at(5), at(600)));
    let model = day_model(&mut file).unwrap();
    let before = file.all_before().unwrap();
    assert_eq!(before[&name("array")].day, Some((at(600), model)));
    assert!((model.slope.as_millis_f64() - 1.0).abs() < 0.01, "{model}");
}

#[test]
fn a_window_begins_where_it_says() {
    let (_dir, mut file) = file();
    file.write(&chunk(at(300), 4)).unwrap();
    file.write(&chunk(at(600), 8)).unwrap();
    assert_eq!(file.workloads(at(301), true).unwrap()[&name("a")].intervals(), 60);
    assert_eq!(file.workloads(at(600), true).unwrap()[&name("a")].intervals(), 1);
    assert_eq!(file.store_intervals(&name("array"), at(596)).unwrap().len(), 1);
    // An hour is counted whole.
    assert_eq!(file.workloads(at(1_000), false).unwrap()[&name("a")].intervals(), 120);
    assert!(file.workloads(at(HOUR), false).unwrap().is_empty());
}

#[test]
fn intervals_are_kept_for_a_day_and_hours_for_thirty() {
    let (_dir, mut file) = file();
    file.write(&chunk(at(300), 4)).unwrap();
    file.write(&chunk(at(DAY + 299), 4)).unwrap();
    assert_eq!(file.workloads(at(0), true).unwrap()[&name("a")].intervals(), 120);
    file.write(&chunk(at(DAY + 301), 4)).unwrap();
    assert_eq!(
        file.workloads(at(0), true).unwrap()[&name("a")].intervals(),
        120,
        "the first is gone"
    );
    assert_eq!(file.workloads(at(0), false).unwrap()[&name("a")].intervals(), 180);
    file.write(&chunk(at(31 * DAY), 4)).unwrap();
    // The chunk of the second day began a minute before its hour.
    assert_eq!(file.workloads(at(0), false).unwrap()[&name("a")].intervals(), 60 + 60 + 60);
}

#[test]
fn what_is_forgotten_is_gone() {
    let (_dir, mut file) = file();
    file.write(&chunk(at(300), 4)).unwrap();
    file.depart(&name("a"), &name("array"), at(300)).unwrap();
    file.forget_datastore(&name("array")).unwrap();
    for fine in [false, true] {
        assert_eq!(file.workloads(at(0), fine).unwrap().keys().collect::<Vec<_>>(), [&name("b")]);
    }
    assert!(file.store_intervals(&name("array"), at(0)).unwrap().is_empty());
    assert!(file.store_hours(&name("array"), at(0)).unwrap().is_empty());
    assert_eq!(file.before(&name("array")).unwrap(), Before::default());
}

#[test]
fn a_model_stays_while_there_is_no_better() {
    let (_dir, mut file) = file();
    file.write(&chunk(at(300), 4)).unwrap();
    let before = day_model(&mut file);
    // Two days later the datastore is idle.
    let idle = (0..60).map(|_| StoreInterval(DeviceInterval::Nothing(LeftOut::FewReads)));
    let learnt =
        file.write(&with_points(at(2 * DAY), idle)).unwrap().remove(&name("array")).unwrap();
    assert!(before.is_some());
    assert_eq!((learnt.model, learnt.source), (before, Source::Earlier(at(300))));
    assert_eq!(day_model(&mut file), before);
}

#[test]
fn a_damaged_file_is_put_aside_and_one_of_a_later_version_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("samples.sqlite");
    std::fs::write(&path, "no database at all, but long enough to be looked at").unwrap();
    SamplesFile::open(&path).unwrap().write(&chunk(at(300), 4)).unwrap();
    let kept = std::fs::read_dir(dir.path()).unwrap().any(|entry| {
        entry.unwrap().file_name().to_string_lossy().starts_with("samples.sqlite.damaged-")
    });
    assert!(kept);
    Connection::open(&path).unwrap().pragma_update(None, "user_version", VERSION + 1).unwrap();
    assert!(matches!(SamplesFile::open(&path), Err(SamplesError::TooNew { .. })));
}

#[test]
fn rows_that_nobody_wrote_count_as_not_there() {
    let (_dir, mut file) = file();
    file.write(&chunk(at(300), 4)).unwrap();
    for (table, column) in [
        ("disk_intervals", "intervals"),
        ("datastore_intervals", "intervals"),
        ("disk_hours", "meter"),
        ("datastore_hours", "tally"),
        ("coarse_models", "model"),
    ] {
        file.connection
            .execute(&format!("UPDATE {table} SET {column} = x'FFFFFFFFFFFFFFFFFF'"), [])
            .unwrap();
    }
    file.connection.execute("UPDATE models SET model = x'00'", []).unwrap();
    for fine in [false, true] {
        assert!(file.workloads(at(0), fine).unwrap().values().all(|meter| meter.intervals() == 0));
    }
    assert!(file.store_hours(&name("array"), at(0)).unwrap().is_empty());
    assert!(file.store_intervals(&name("array"), at(0)).unwrap().is_empty());
    assert_eq!(file.before(&name("array")).unwrap(), Before::default());
    // They are in nobody's way.
    file.write(&chunk(at(600), 4)).unwrap();
    assert_eq!(
        file.store_hours(&name("array"), at(0)).unwrap()[&hour_of(at(600))].reads.count,
        3_000
    );
}

#[test]
fn hours_of_datastores_add_up_and_have_the_points_of_the_whole_hour() {
    let (_dir, mut file) = file();
    for minutes in 1..=12 {
        file.write(&chunk(at(minutes * 300 - 1), 4)).unwrap();
    }
    let hours = file.store_hours(&name("array"), at(HOUR - 1)).unwrap();
    assert_eq!(hours.keys().copied().collect::<Vec<i64>>(), [hour_of(at(0))]);
    let hour = &hours[&hour_of(at(0))];
    assert_eq!(
        (hour.seen, hour.reads.count, hour.totals.taken),
        (Nanos::from_secs(HOUR), 36_000, 720)
    );
    assert!((hour.per_second(hour.reads.count) - 10.0).abs() < 1e-9);
    let loads: Vec<u32> = hour
        .points
        .points()
        .iter()
        .map(|interval| interval.any_point().unwrap().outstanding.as_thousandths() / 1_000)
        .collect();
    assert_eq!(loads.len(), 12);
    assert!(loads.is_sorted() && loads[0] == 1 && loads[11] == 8, "{loads:?}");
}

#[test]
fn an_interval_is_of_the_hour_in_which_it_ends() {
    let (_dir, mut file) = file();
    // Intervals end at 3,425, ..., 3,595 s: 35 before the hour is over; 3,600, ..., 3,720: 25
    // after.
    let mut both = chunk(at(HOUR + 120), 4);
    let hours = both.hours.get_mut(&name("array")).unwrap();
    hours.insert(hour_of(at(0)), five_minutes());
    file.write(&both).unwrap();
    let hours = file.store_hours(&name("array"), at(0)).unwrap();
    assert_eq!(hours.keys().copied().collect::<Vec<i64>>(), [hour_of(at(0)), hour_of(at(HOUR))]);
    assert!(hours.values().all(|hour| hour.points.points().len() == 12));
}

#[test]
fn hours_of_datastores_are_kept_for_thirty_days() {
    let (_dir, mut file) = file();
    file.write(&chunk(at(300), 4)).unwrap();
    let month = 30 * DAY;
    file.write(&chunk(at(month), 4)).unwrap();
    assert_eq!(
        file.store_hours(&name("array"), at(0)).unwrap().len(),
        2,
        "thirty days to the second"
    );
    assert_eq!(
        file.store_intervals(&name("array"), at(0)).unwrap().len(),
        60,
        "single intervals are gone"
    );
    file.write(&chunk(at(month + 1), 4)).unwrap();
    assert_eq!(
        file.store_hours(&name("array"), at(0)).unwrap().keys().copied().collect::<Vec<i64>>(),
        [hour_of(at(month))]
    );
}

/// Every other day has its own load, which never varies; then the datastore is idle for a week.
#[test]
fn a_slope_that_no_day_shows_is_learnt_from_the_month_and_outlasts_a_quiet_week() {
    let (_dir, mut file) = file();
    let mut last = None;
    for day in 0..12u64 {
        for part in 1..=3u64 {
            let load = 2 + (day * 7 % 12) as u32;
            let steady = with_points(at(2 * day * DAY + part * HOUR), (0..60).map(|_| point(load)));
            last = file.write(&steady).unwrap().remove(&name("array"));
        }
    }
    let learnt = last.unwrap();
    assert_eq!(
        (learnt.source, learnt.model.unwrap().evidence),
        (Source::Month, Evidence::Rise),
        "{learnt:?}"
    );
    let model = learnt.model.unwrap();
    assert!(
        (model.slope.as_millis_f64() - 1.0).abs() < 0.05 && model.doubts.coarse > 20,
        "{model}"
    );
    assert!(
        model.low as f64 <= 0.8e9 && model.high as f64 >= 1.2e9,
        "not as sure as of a day: {model}"
    );
    // Nothing fine is left, and what single days said is lost: the hours suffice.
    file.connection.execute("DELETE FROM models", []).unwrap();
    file.connection.execute("DELETE FROM coarse_models", []).unwrap();
    let idle = (0..60).map(|_| StoreInterval(DeviceInterval::Nothing(LeftOut::FewReads)));
    let learnt =
        file.write(&with_points(at(29 * DAY), idle)).unwrap().remove(&name("array")).unwrap();
    assert_eq!(
        (learnt.model.map(|model| model.slope), learnt.source),
        (Some(model.slope), Source::Month)
    );
    assert!(learnt.refusal.is_some(), "of the last 24 hours");
    // When those are forgotten, what was learnt from them goes too.
    let idle = (0..60).map(|_| StoreInterval(DeviceInterval::Nothing(LeftOut::FewReads)));
    file.write(&with_points(at(53 * DAY), idle)).unwrap();
    let idle = (0..60).map(|_| StoreInterval(DeviceInterval::Nothing(LeftOut::FewReads)));
    let learnt = file
        .write(&with_points(at(53 * DAY + HOUR), idle))
        .unwrap()
        .remove(&name("array"))
        .unwrap();
    assert_eq!(learnt.model, None);
}

#[test]
fn a_file_of_the_first_version_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("samples.sqlite");
    let first = Connection::open(&path).unwrap();
    first.execute_batch(FIRST).unwrap();
    let fine = |n: u32| -> FirstInterval {
        if n % 10 == 9 {
            Err(LeftOut::Windowed)
        } else {
            Ok(point(n % 8 + 1).0.any_point().unwrap())
        }
    };
    let intervals: Vec<FirstInterval> = (0..60).map(fine).collect();
    let rows = encode(&Row { ended: at(300), period: Nanos::from_secs(5), intervals });
    first
        .execute(
            "INSERT INTO datastore_intervals VALUES ('array', ?1, ?2)",
            params![seconds(at(300)), rows],
        )
        .unwrap();
    first
        .execute("INSERT INTO datastore_intervals VALUES ('array', ?1, x'00')", [seconds(at(600))])
        .unwrap();
    let busy =
        encode(&Row { ended: at(300), period: Nanos::from_secs(5), intervals: vec![busy(4); 60] });
    first
        .execute("INSERT INTO disk_intervals VALUES ('a', ?1, ?2)", params![seconds(at(300)), busy])
        .unwrap();
    let model = FirstModel {
        slope: headgate_placement::Slope::from_picos(1_000),
        low: 900,
        high: 1_100,
        base: -5,
        floor: Nanos(7),
        explained: Permille(990),
        points: 321,
        evidence: Evidence::Rise,
        size: Bytes::from_kib(8),
        random: Permille::WHOLE,
    };
    first
        .execute(
            "INSERT INTO models VALUES ('array', ?1, ?2)",
            params![seconds(at(300)), encode(&model)],
        )
        .unwrap();
    first.execute("INSERT INTO models VALUES ('lost', 0, x'00')", []).unwrap();
    first.pragma_update(None, "user_version", 1).unwrap();
    drop(first);
    let mut file = SamplesFile::open(&path).unwrap();
    assert_eq!(file.workloads(at(0), true).unwrap()[&name("a")].intervals(), 60);
    let intervals = file.store_intervals(&name("array"), at(0)).unwrap();
    assert_eq!(
        (intervals.len(), intervals[0].1, intervals[9].1),
        (60, point(1), StoreInterval(DeviceInterval::Nothing(LeftOut::Windowed)))
    );
    let (when, model) = file.before(&name("array")).unwrap().day.unwrap();
    assert_eq!((when, model.points, model.doubts.is_empty()), (at(300), 321, true));
    assert_eq!(file.all_before().unwrap().len(), 1);
    let hours = file.store_hours(&name("array"), at(0)).unwrap();
    assert_eq!((hours.len(), hours[&hour_of(at(0))].points.points().len()), (1, 12));
    // And nothing is left to be done to it.
    drop(file);
    SamplesFile::open(&path).unwrap().write(&chunk(at(600), 4)).unwrap();
}

#[test]
fn a_disk_that_was_removed_is_continued_by_another() {
    let (_dir, mut file) = file();
    file.write(&chunk(at(300), 4)).unwrap();
    file.inherit(&name("a"), "~x", Some(&name("first")), at(310)).unwrap();
    file.depart(&name("a"), &name("array"), at(400)).unwrap();
    assert_eq!(file.departed().unwrap(), [Departed { disk: name("a"), datastore: name("array") }]);
    assert_eq!((file.moves().unwrap(), file.workloads(at(0), true).unwrap().len()), (vec![], 1));
    assert_eq!(file.hours_of("~a", at(0)).unwrap().intervals(), 60);
    file.inherit(&name("c"), "~a", Some(&name("array")), at(500)).unwrap();
    for fine in [false, true] {
        let meters = file.workloads(at(0), fine).unwrap();
        assert_eq!((meters.len(), meters[&name("c")].intervals()), (2, 60));
    }
    let moved = |from: &str, at| PastMove { disk: "c".into(), from: from.into(), at };
    assert_eq!(file.moves().unwrap(), [moved("first", at(310)), moved("array", at(500))]);
    assert_eq!(
        (file.departed().unwrap(), file.hours_of("~a", at(0)).unwrap()),
        (vec![], WorkloadMeter::new())
    );
}

#[test]
fn a_disk_that_is_there_yet_lends_its_samples() {
    let (_dir, mut file) = file();
    file.write(&chunk(at(300), 4)).unwrap();
    // On the datastore where the old one is, it has not moved.
    file.inherit(&name("c"), "a", None, at(310)).unwrap();
    let meters = file.workloads(at(0), false).unwrap();
    assert_eq!(meters[&name("a")], meters[&name("c")]);
    assert_eq!(file.moves().unwrap(), []);
}

#[test]
fn what_is_left_of_removed_disks_goes_after_a_week_and_moves_after_a_year() {
    let (_dir, mut file) = file();
    file.write(&chunk(at(300), 4)).unwrap();
    file.depart(&name("a"), &name("array"), at(300)).unwrap();
    file.inherit(&name("b"), "b", Some(&name("first")), at(300)).unwrap();
    file.write(&chunk(at(300 + 7 * DAY), 4)).unwrap();
    assert_eq!(file.departed().unwrap().len(), 1, "a week to the second");
    file.write(&chunk(at(301 + 7 * DAY), 4)).unwrap();
    assert_eq!(file.departed().unwrap(), []);
    assert_eq!(file.hours_of("~a", at(0)).unwrap().intervals(), 0);
    file.write(&chunk(at(300 + 366 * DAY), 4)).unwrap();
    assert_eq!(file.moves().unwrap().len(), 1);
    file.write(&chunk(at(301 + 366 * DAY), 4)).unwrap();
    assert_eq!(file.moves().unwrap(), []);
}

#[test]
fn of_two_removed_disks_of_one_name_the_later_counts() {
    let (_dir, mut file) = file();
    for (second, datastore) in [(300, "first"), (900, "second")] {
        file.write(&chunk(at(second), 4)).unwrap();
        file.depart(&name("a"), &name(datastore), at(second)).unwrap();
    }
    assert_eq!(file.departed().unwrap(), [Departed { disk: name("a"), datastore: name("second") }]);
    assert_eq!(file.hours_of("~a", at(0)).unwrap().intervals(), 60);
}

#[test]
fn accounts_are_added_to_their_hours_and_kept_as_long_as_they_are_needed() {
    let (_dir, mut file) = file();
    let now = 1_790_000_000 / 3_600 * 3_600;
    let minute = |reserved| Account { reserved, ..Account::default() };
    let write = |file: &mut SamplesFile, now: i64, minutes: &[(i64, u64)]| {
        let accounts = minutes.iter().map(|&(at, reserved)| (at, minute(reserved))).collect();
        let chunk = Chunk {
            accounts: BTreeMap::from([(name("a"), accounts)]),
            ..chunk(Nanos::from_secs(now.cast_unsigned()), 4)
        };
        file.write(&chunk).unwrap();
    };
    let read = |file: &mut SamplesFile, span| -> Vec<(i64, u64)> {
        let found = file.accounts(Some(&name("a")), &(0..i64::MAX), span).unwrap();
        let of_disk = found.get(&name("a")).into_iter().flatten();
        of_disk.map(|(at, account)| (*at, account.reserved)).collect()
    };
    write(&mut file, now, &[(now - 60, 1), (now, 2)]);
    write(&mut file, now + 90, &[(now, 4), (now + 60, 8)]);
    assert_eq!(read(&mut file, Span::Minute), [(now - 60, 1), (now, 6), (now + 60, 8)]);
    assert_eq!(read(&mut file, Span::Hour), [(now - 3_600, 1), (now, 14)]);
    assert!(file.accounts(Some(&name("b")), &(0..i64::MAX), Span::Hour).unwrap().is_empty());
    let days = 24 * 3_600;
    file.depart(&name("a"), &name("array"), Nanos::ZERO).unwrap();
    write(&mut file, now + 2 * days, &[]);
    assert_eq!(read(&mut file, Span::Minute), []);
    assert_eq!(read(&mut file, Span::Hour).len(), 2, "of a disk that is gone, too");
    write(&mut file, now + 63 * days, &[]);
    assert_eq!(read(&mut file, Span::Hour), []);
}
