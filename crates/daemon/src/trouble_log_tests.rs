use super::*;
use headgate_model::{FAILING, Policy};
use headgate_stats::DiskSnapshot;
use headgate_units::Bytes;
use proptest::prelude::*;

fn trouble(errors: u64, hold: Option<u64>) -> TroubleSample {
    let mut trouble = TroubleSample::default();
    (0..errors).for_each(|_| trouble.counts.add(ErrorOp::Write, ErrorKind::NoSpace));
    trouble.last = Some(ErrorSample {
        at: Nanos::ZERO,
        op: ErrorOp::Write,
        kind: ErrorKind::NoSpace,
        error: "full".into(),
        offset: Bytes(0),
        len: Bytes(512),
    });
    let held = |since| HoldSample {
        since: Nanos::from_secs(since),
        error: "full".into(),
        requests: 3,
        tries: 2,
    };
    trouble.hold = hold.map(held);
    trouble.holds = u64::from(hold.is_some());
    trouble
}

fn failing(errors: u64) -> Line {
    let (op, kind, last) = (ErrorOp::Write, ErrorKind::NoSpace, trouble(0, None).last);
    Line::Failing { op, kind, errors, last }
}

#[test]
fn a_thousand_errors_are_a_line_a_minute() {
    let mut known = Known::default();
    let mut lines = Vec::new();
    for second in 1..=130 {
        lines.extend(known.see(Nanos::from_secs(second), &trouble(second * 10, None)));
    }
    assert_eq!(lines, [failing(10), failing(600), failing(600)]);
    for second in 131..=150 {
        lines.extend(known.see(Nanos::from_secs(second), &trouble(1_300, None)));
    }
    let (op, kind) = (ErrorOp::Write, ErrorKind::NoSpace);
    assert_eq!(lines[3..], [Line::NoMore { op, kind, errors: 1_300 }]);
    assert_eq!(known.see(Nanos::from_secs(160), &trouble(1_301, None)), [failing(1)]);
}

#[test]
fn a_hold_is_told_when_it_begins_and_when_it_ends() {
    let mut known = Known::default();
    let now = Nanos::from_secs;
    let begin = known.see(now(10), &trouble(1, Some(9)));
    assert!(matches!(&begin[..], [Line::Failing { .. }, Line::Held(_)]), "{begin:?}");
    assert_eq!(known.see(now(40), &trouble(1, Some(9))), [], "nothing is new");
    let mut over = trouble(1, None);
    over.holds = 1;
    let end = known.see(now(50), &over);
    let goes_on = Line::GoesOn { held_for: now(41), tries: 2 };
    assert!(end.contains(&goes_on) && end.len() == 2, "{end:?}");
    over.holds = 4;
    assert_eq!(known.see(now(51), &over), [Line::WasHeld { times: 3 }]);
}

#[test]
fn a_disk_that_is_opened_anew_counts_anew() {
    let mut known = Known::default();
    known.see(Nanos::from_secs(1), &trouble(50, None));
    assert_eq!(known.see(Nanos::from_secs(2), &trouble(2, None)), [failing(2)]);
}

/// What happens to a disk in a second.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Nothing,
    Work,
    Fails,
    Holds,
    GoesOn,
    IsOpenedAnew,
    /// It goes, and comes again later.
    IsAway,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        9 => Just(Happens::Nothing),
        1 => Just(Happens::Work),
        1 => Just(Happens::Fails),
        1 => Just(Happens::Holds),
        1 => Just(Happens::GoesOn),
        1 => Just(Happens::IsOpenedAnew),
        1 => Just(Happens::IsAway),
    ]
}

fn happen(disk: &mut DiskSample, now: Nanos, what: Happens) {
    disk.set_at(now);
    match what {
        Happens::Nothing | Happens::IsAway => {}
        Happens::Work => disk.clients += 1,
        Happens::Fails => disk.trouble.counts.add(ErrorOp::Write, ErrorKind::NoSpace),
        Happens::Holds => {
            disk.trouble.holds += u64::from(disk.trouble.hold.is_none());
            disk.trouble.hold = trouble(0, Some(1)).hold;
        }
        Happens::GoesOn => disk.trouble.hold = None,
        Happens::IsOpenedAnew => disk.trouble = TroubleSample::default(),
    }
}

/// Lines of one sample, by disk.
fn news(log: &mut TroubleLog, sample: &Arc<Vec<DatastoreSample>>) -> BTreeMap<Name, Vec<Line>> {
    let mut news: BTreeMap<Name, Vec<Line>> = BTreeMap::new();
    log.look(sample, |_, disk, line| news.entry(disk.name.clone()).or_default().push(line));
    news
}

proptest! {
    /// Against a log that looks at each disk of each sample, whatever happens to them; the first
    /// datastore may go, so that the second takes its place.
    #[test]
    fn a_disk_that_stands_still_has_the_lines_of_one_that_is_looked_at(
        seconds in prop::collection::vec(
            (prop::collection::vec(happens(), 4), prop::bool::weighted(0.9)),
            1..60,
        ),
        step in prop_oneof![Just(Nanos::from_secs(1)), Just(FAILING), Just(AGAIN)],
    ) {
        let disk = |name: &str| {
            DiskSample::new(name.parse().unwrap(), Policy::default(), DiskSnapshot::default())
        };
        let mut disks = ["a", "b", "c", "d"].map(disk);
        let (mut log, mut plain) = (TroubleLog::default(), BTreeMap::<Name, Known>::new());
        let mut now = Nanos::ZERO;
        for (does, both) in seconds {
            now += step;
            disks.iter_mut().zip(&does).for_each(|(disk, what)| happen(disk, now, *what));
            let there: Vec<&DiskSample> = disks
                .iter()
                .zip(&does)
                .skip(if both { 0 } else { 2 })
                .filter(|(_, what)| !matches!(what, Happens::IsAway))
                .map(|(disk, _)| disk)
                .collect();
            let on = |store: &str, names: [&str; 2]| {
                let its = there.iter().filter(|disk| names.contains(&disk.name.as_str()));
                let its = its.map(|disk| (*disk).clone()).collect();
                DatastoreSample::fresh(store.parse().unwrap(), its)
            };
            let mut stores = vec![on("one", ["a", "b"]), on("two", ["c", "d"])];
            if !both {
                stores.remove(0);
            }
            let mut due = BTreeMap::new();
            plain.retain(|name, _| there.iter().any(|disk| disk.name == *name));
            for disk in there {
                let known = plain.entry(disk.name.clone()).or_default();
                let lines = known.see(now, &disk.trouble);
                if !lines.is_empty() {
                    due.insert(disk.name.clone(), lines);
                }
            }
            prop_assert_eq!(news(&mut log, &Arc::new(stores)), due);
            let seen = |known: &&Known| **known != Known::default();
            prop_assert_eq!(log.known.len(), plain.values().filter(seen).count());
        }
    }
}

#[test]
fn nothing_is_known_of_a_disk_without_trouble() {
    let mut known = Known::default();
    assert_eq!(known.see(Nanos::from_secs(1), &TroubleSample::default()), []);
    assert_eq!(known, Known::default());
}
