use crate::testing::Bench;
use crate::{ControlError, ErrorKind};
use headgate_api::types::DiskCreate;
use headgate_api::what_if::{Trust, WhatIf, WhatIfAnswer, WhatIfDisk};
use headgate_history::testing::sample;
use headgate_history::wall_clock;
use headgate_model::DiskSample;
use headgate_units::{Iops, Nanos};
use serde_json::{Value, json};
use std::sync::Arc;

const DAY: u64 = 24 * 3_600;

/// Two disks on datastore 'array'.
fn bench() -> Bench {
    let bench = Bench::new();
    for disk in ["a", "b"] {
        let body = json!({"name": disk, "size": 1 << 20, "datastore": "array"});
        let body = serde_json::from_value::<DiskCreate>(body).unwrap();
        bench.control.create_disk(body).unwrap();
    }
    bench
}

/// Two minutes until so long ago, in which disk 'a' read 100 times a second and 'b' 50 times, 2 ms
/// each; and as `of` has it of each at each second.
fn observe(bench: &Bench, ago: u64, of: impl Fn(&mut DiskSample, u64)) {
    let now = wall_clock();
    for second in (1..=121).step_by(5) {
        let mut stores = sample(second, &[("a", 100), ("b", 50)]).to_vec();
        for disk in &mut stores[0].disks {
            let requests = if disk.name.as_str() == "a" { 100 } else { 50 };
            disk.waits.device = u128::from(second * requests) * 2_000_000;
            of(disk, second);
        }
        let at = Nanos(now.0 - Nanos::from_secs(ago + 121 - second).0);
        bench.control.samples().record_at(at, &Arc::new(stores));
    }
    bench.control.samples().flush();
}

fn asked(body: Value) -> WhatIf {
    serde_json::from_value(body).unwrap()
}

fn ask(bench: &Bench, body: Value) -> Result<WhatIfAnswer, ControlError> {
    bench.control.what_if(&asked(body))?.answer(&mut || false)
}

fn disk<'a>(answer: &'a WhatIfAnswer, name: &str) -> &'a WhatIfDisk {
    answer.disks.iter().find(|disk| disk.disk.as_str() == name).unwrap()
}

fn near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= 0.06 * wanted
}

fn has_note(answer: &WhatIfAnswer, words: &str) -> bool {
    answer.notes.iter().any(|note| note.contains(words))
}

#[test]
fn what_was_recorded_is_simulated_as_it_was_and_with_the_change() {
    let bench = bench();
    observe(&bench, 0, |_, _| {});
    let answer = ask(&bench, json!({"disk": "b", "change": {"limit": 20}})).unwrap();
    assert_eq!((answer.datastore.as_str(), answer.disks[0].disk.as_str()), ("array", "b"));
    let [a, b] = ["a", "b"].map(|name| disk(&answer, name));
    for (one, rate) in [(a, 100.0), (b, 50.0)] {
        assert!(near(one.recorded.iops, rate) && near(one.before.iops, rate), "{one:?}");
        let latency = one.recorded.total_micros.unwrap();
        assert!((2_000..2_300).contains(&latency.p50), "{latency:?}");
    }
    assert!(near(b.after.iops, 20.0) && near(a.after.iops, 100.0), "{a:?} {b:?}");
    assert!(b.after.total_micros.unwrap().p50 > 10_000, "it waits for its limit: {b:?}");
    assert_eq!(b.policy_after.limit, Iops::new(20).ok());
    assert_eq!((b.policy_before.limit, a.policy_after), (None, a.policy_before));
    assert_eq!(answer.deviation.trust, Trust::Good, "{:?}", answer.deviation);
    assert!((115.0..=125.0).contains(&answer.recorded_seconds), "{}", answer.recorded_seconds);
    assert!(has_note(&answer, "limits, shares, queue depth and groups are those of now"));
    assert!(!has_note(&answer, "had another reservation"));
    // Nothing was changed by asking, and the answer stays the same.
    assert_eq!(bench.control.disk(&"b".parse().unwrap()).unwrap().policy.limit, None);
    let (since, until) = (Some(answer.since), Some(answer.until));
    let again = WhatIf { since, until, ..asked(json!({"disk": "b", "change": {"limit": 20}})) };
    assert_eq!(bench.control.what_if(&again).unwrap().answer(&mut || false).unwrap(), answer);
}

#[test]
fn what_the_record_does_not_tell_is_said() {
    let bench = bench();
    // Both are at their limit, and another is reserved than now.
    observe(&bench, 0, |disk, second| {
        disk.policy.reservation = Iops::new(70).ok();
        disk.waits.limit = u128::from(second) * 1_000_000_000;
        disk.waits.held = u128::from(second) * 500_000_000;
    });
    let answer = ask(&bench, json!({"disk": "a", "change": {"reservation": 90}})).unwrap();
    let a = disk(&answer, "a");
    assert_eq!(a.policy_before.reservation, Iops::new(70).ok(), "as it was then");
    assert_eq!(a.policy_after.reservation, Iops::new(90).ok());
    assert_eq!(disk(&answer, "b").policy_after.reservation, None, "as it is now");
    for words in [
        "had another reservation then: 'a', 'b'",
        "waited for a limit of their own: 'a', 'b'",
        "held requests for their storage's trouble: 'a', 'b'",
    ] {
        assert!(has_note(&answer, words), "{words}: {:?}", answer.notes);
    }
}

#[test]
fn an_older_time_is_answered_by_the_hour_and_one_that_is_too_old_not_at_all() {
    let bench = bench();
    observe(&bench, 3 * DAY, |_, _| {});
    let now = (wall_clock().0 / 1_000_000_000).cast_signed();
    let at = |days: i64| now - days * DAY.cast_signed();
    let body = |since: i64, until: i64| json!({"disk": "b", "change": {"limit": 20}, "since": since, "until": until});
    let answer = ask(&bench, body(at(3) - 300, at(3) + 1)).unwrap();
    assert!(has_note(&answer, "sums of whole hours are kept"), "{:?}", answer.notes);
    assert!(near(disk(&answer, "b").after.iops, 20.0), "{answer:?}");
    let conflict = |body| {
        let error = ask(&bench, body).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        error.to_string()
    };
    assert!(conflict(body(at(5) - 300, at(5))).contains("0 requests are recorded"));
    assert!(conflict(body(at(31) - 300, at(31))).contains("too long ago"));
    let long = ask(&bench, body(at(3), at(1))).unwrap_err();
    assert!(long.kind() == ErrorKind::Invalid && long.to_string().contains("s long"), "{long}");
}

#[test]
fn a_change_that_would_be_refused_is_answered_and_says_so() {
    let bench = bench();
    observe(&bench, 0, |_, _| {});
    let capacity: headgate_api::types::DatastorePatch =
        serde_json::from_value(json!({"capacity": 200})).unwrap();
    bench.control.set_datastore(&"array".parse().unwrap(), capacity).unwrap();
    let answer = ask(&bench, json!({"disk": "a", "change": {"reservation": 500}})).unwrap();
    assert!(has_note(&answer, "would refuse this without --force"), "{:?}", answer.notes);
    let known = bench.control.what_if(&asked(json!({"disk": "a", "change": {"limit": 90}})));
    let cut = known.unwrap().answer(&mut || true);
    assert!(cut.unwrap_err().to_string().contains("was cut"));
}
