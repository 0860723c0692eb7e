//! What an fsync of a high-priority application takes beside lower ones
//! (`docs/decisions/0012-fsync.md`).

use crate::common::secs;
use headgate_qos::{
    Config, CostModel, Decision, DiskId, Io, IoKind, MClock, Policy, PriorityPolicy, PriorityScope,
    Scheduler,
};
use headgate_units::{Nanos, Priority};

const SERVICE: Nanos = Nanos(1_000_000);
const HOGS: [u64; 4] = [180, 120, 100, 10];
const HIGH: u64 = 254;
const JOURNAL: u64 = 120;

/// What a guest does with the priorities of a request that is not data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Inherited,
    /// As if they were reads: the priority each was given is all it has.
    Own,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Fsync,
    Hog(usize),
    Others,
}

/// Mean time of one fsync of ext4: data, journal, flush, commit record, flush, each waited for; one
/// device that serves one request per millisecond, one after another.
fn fsync_takes(rule: Rule, scope: PriorityScope, interleaved: bool) -> Nanos {
    let config = Config { cost_model: CostModel::Unit, ..Config::default() };
    let mut scheduler: MClock<From> = MClock::new(config).unwrap();
    let mut now = secs(1);
    let disk = scheduler.register(now, Policy::default());
    let policy = PriorityPolicy { scope, ..PriorityPolicy::default() };
    scheduler.set_priorities(now, disk, policy).unwrap();
    let ask = |scheduler: &mut MClock<From>, now, priority, kind, from| {
        let kind = if rule == Rule::Own { IoKind::Read } else { kind };
        let io = Io { priority: Priority::new(priority).ok(), kind, ..Io::default() };
        scheduler.enqueue(now, disk, io, from).unwrap();
    };
    for _ in 0..32 {
        for (hog, priority) in HOGS.into_iter().enumerate() {
            ask(&mut scheduler, now, priority, IoKind::Write, From::Hog(hog));
        }
    }
    let steps = [
        (HIGH, IoKind::Write),
        (JOURNAL, IoKind::Journal),
        (0, IoKind::Flush),
        (JOURNAL, IoKind::Journal),
        (0, IoKind::Flush),
    ];
    const FSYNCS: u64 = 200;
    let start = now;
    for _ in 0..FSYNCS {
        for (step, (priority, kind)) in steps.into_iter().enumerate() {
            if interleaved && step == 1 {
                // The end of somebody else's transaction.
                ask(&mut scheduler, now, JOURNAL, IoKind::Journal, From::Others);
                ask(&mut scheduler, now, 0, IoKind::Flush, From::Others);
                ask(&mut scheduler, now, 0, IoKind::Flush, From::Others);
            }
            ask(&mut scheduler, now, priority, kind, From::Fsync);
            loop {
                let Decision::Dispatch(d) = scheduler.dispatch(now) else {
                    panic!("requests wait")
                };
                now += SERVICE;
                scheduler.complete(now, disk);
                match d.request {
                    From::Fsync => break,
                    From::Others => {}
                    From::Hog(hog) => {
                        ask(&mut scheduler, now, HOGS[hog], IoKind::Write, From::Hog(hog))
                    }
                }
            }
        }
    }
    Nanos((now - start).0 / FSYNCS)
}

#[test]
fn an_fsync_is_as_fast_as_its_priority_says() {
    for scope in [PriorityScope::WithinVm, PriorityScope::AcrossVms] {
        for interleaved in [false, true] {
            let with = fsync_takes(Rule::Inherited, scope, interleaved);
            let without = fsync_takes(Rule::Own, scope, interleaved);
            println!(
                "{scope:?}, others' transactions: {interleaved}: {with} with the rule, {without} without"
            );
            assert!(with.0 * 10 <= without.0 * 9, "{with} with the rule, {without} without");
        }
    }
}

fn priority_of(scheduler: &mut MClock<u64>, disk: DiskId, kind: IoKind, given: u64) -> u64 {
    let io = Io { kind, priority: Priority::new(given).ok(), ..Io::default() };
    scheduler.enqueue(secs(1), disk, io, 0).unwrap();
    let Decision::Dispatch(d) = scheduler.dispatch(secs(1)) else { panic!("a request waits") };
    scheduler.complete(secs(1), disk);
    u64::from(d.priority)
}

#[test]
fn nobody_inherits_from_another_disk_or_beyond_the_cap() {
    let mut scheduler = MClock::new(Config::default()).unwrap();
    let [one, other] = [(); 2].map(|()| scheduler.register(secs(1), Policy::default()));
    let cap = PriorityPolicy { max: Priority::new(150).unwrap(), ..PriorityPolicy::default() };
    scheduler.set_priorities(secs(1), one, cap).unwrap();
    assert_eq!(priority_of(&mut scheduler, one, IoKind::Write, 254), 150);
    assert_eq!(priority_of(&mut scheduler, one, IoKind::Flush, 0), 150);
    assert_eq!(priority_of(&mut scheduler, other, IoKind::Flush, 0), 100);
    assert_eq!(priority_of(&mut scheduler, other, IoKind::Journal, 120), 120);
}
