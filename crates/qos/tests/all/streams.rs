//! What applications get by their priorities, and what nobody loses by them.

use crate::common::*;
use headgate_qos::{
    Burst, Config, Decision, DiskId, Io, MClock, Policy, PriorityPolicy, PriorityScope, Scheduler,
};
use headgate_units::{Bytes, Nanos, Priority};
use proptest::prelude::*;

/// Within one request of the ideal division of what they got in all.
fn divided(got: &[u64], by: &[u64]) {
    let (total, sum): (u64, u64) = (got.iter().sum(), by.iter().sum());
    for (i, (got, priority)) in got.iter().zip(by).enumerate() {
        let ideal = total * priority / sum;
        assert!(got.abs_diff(ideal) <= 2, "application {i}: {got} of {total}, not {ideal}");
    }
}

#[test]
fn priorities_divide_what_a_disk_gets() {
    let mut bench = Bench::mclock(1_000).window(8);
    let disk = bench.deep(policy(1_000, 0, 0), 0);
    bench.busy(policy(3_000, 0, 0));
    let priorities = [12, 10, 8, 6, 4, 2];
    for priority in priorities {
        bench.application(disk, priority, 32);
    }
    bench.run(secs(1));
    let got = bench.run(secs(100));
    divided(&got[2..], &priorities);
    assert_eq!(got[1], 75_000, "the other disk's share is what it was");
}

#[test]
fn priorities_divide_what_a_reservation_and_a_limit_give() {
    let mut bench = Bench::mclock(1_000).window(8);
    let disk = bench.deep(policy(1, 300, 300), 0);
    bench.busy(policy(1_000_000, 0, 0));
    for priority in [200, 100] {
        bench.application(disk, priority, 8);
    }
    bench.run(secs(1));
    let got = bench.run(secs(100));
    divided(&got[2..], &[200, 100]);
    assert!(got[1].abs_diff(70_000) < 100, "{got:?}");
}

#[test]
fn across_vms_applications_compete_by_priority_alone() {
    // TG-2: six applications of three VMs, whose shares say something else.
    let mut bench = Bench::mclock(1_000).window(8);
    let priorities = [12, 10, 8, 6, 4, 2];
    for (vm, pair) in priorities.chunks(2).enumerate() {
        let disk = bench.across(policy([1, 10, 1_000][vm], 0, 0), 254);
        for priority in pair {
            bench.application(disk, *priority, 8);
        }
    }
    bench.run(secs(1));
    let got = bench.run(secs(100));
    let got: Vec<u64> = [1, 2, 4, 5, 7, 8].iter().map(|i| got[*i]).collect();
    divided(&got, &priorities);
}

#[test]
fn across_vms_reservations_and_limits_bind() {
    let mut bench = Bench::mclock(1_000).window(8);
    let reserved = bench.across(policy(1, 400, 0), 254);
    let limited = bench.across(policy(1, 0, 100), 254);
    let free = bench.across(Policy::default(), 254);
    let within = bench.busy(policy(1_000, 0, 0));
    let low = bench.application(reserved, 10, 8);
    let lowest = bench.application(reserved, 5, 8);
    let high = bench.application(limited, 200, 8);
    let same = bench.application(free, 100, 8);
    bench.run(secs(2));
    let got = bench.run(secs(100));
    divided(&[got[low], got[lowest]], &[2, 1]);
    assert!((got[low] + got[lowest]).abs_diff(40_000) < 200, "{got:?}");
    assert!(got[high].abs_diff(10_000) < 10, "{got:?}");
    assert!(got[same].abs_diff(25_000) < 200, "{got:?}");
    assert!(
        got[within].abs_diff(25_000) < 200,
        "1,000 shares weigh as much as priority 100: {got:?}"
    );
}

fn priority(n: u64) -> Option<Priority> {
    Priority::new(n).ok()
}

fn scoped(scope: PriorityScope) -> PriorityPolicy {
    PriorityPolicy { scope, ..PriorityPolicy::default() }
}

const SCOPES: [PriorityScope; 2] = [PriorityScope::WithinVm, PriorityScope::AcrossVms];

/// A scheduler driven by hand: every dispatch is completed at once.
struct Hand {
    scheduler: MClock<u64>,
    now: Nanos,
}

impl Hand {
    fn new() -> Hand {
        Hand { scheduler: MClock::new(unit()).unwrap(), now: secs(1) }
    }

    fn disk(&mut self, scope: PriorityScope) -> DiskId {
        let disk = self.scheduler.register(self.now, policy(1_000, 0, 0).with_burst(Burst::NONE));
        self.scheduler.set_priorities(self.now, disk, scoped(scope)).unwrap();
        disk
    }

    fn ask(&mut self, disk: DiskId, priority: Option<Priority>, request: u64) {
        let io = Io { priority, ..Io::default() };
        self.scheduler.enqueue(self.now, disk, io, request).unwrap();
    }

    fn next(&mut self) -> Option<(DiskId, u64)> {
        match self.scheduler.dispatch(self.now) {
            Decision::Dispatch(d) => {
                self.scheduler.complete(self.now, d.disk);
                Some((d.disk, d.request))
            }
            _ => None,
        }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    /// At any moment, whatever the priorities: `(n - 1)/P` of one is at most `m/Q` of any other.
    #[test]
    fn backlogged_streams_are_never_more_than_a_request_above_their_share(
        priorities in prop::collection::btree_set(1u64..=254, 2..12),
        scope in prop::sample::select(SCOPES.to_vec()),
        apart in any::<bool>(),
    ) {
        let mut hand = Hand::new();
        let one = hand.disk(scope);
        let priorities: Vec<u64> = priorities.into_iter().collect();
        let sum: u64 = priorities.iter().sum();
        let mut disks = Vec::new();
        for (i, p) in priorities.iter().enumerate() {
            // Across VMs it makes no difference whose streams they are.
            disks.push(if apart && scope == PriorityScope::AcrossVms { hand.disk(scope) } else { one });
            for _ in 0..2 {
                hand.ask(disks[i], priority(*p), i as u64);
            }
        }
        let mut got = vec![0u64; priorities.len()];
        for total in 1..=2_000u64 {
            let (disk, i) = hand.next().unwrap();
            hand.ask(disk, priority(priorities[i as usize]), i);
            got[i as usize] += 1;
            for (got, p) in got.iter().zip(&priorities) {
                prop_assert!(got * sum <= total * p + sum, "{} of {} at {} of {}", got, total, p, sum);
            }
        }
        for (got, p) in got.iter().zip(&priorities) {
            let few = 1 + priorities.len() as u64 * p / sum;
            prop_assert!((got + few) * sum >= 2_000 * p, "{} of 2,000 at {} of {}", got, p, sum);
        }
    }

    /// TG-8.
    #[test]
    fn a_stream_that_comes_back_gets_its_share_and_a_request_of_any_hundred(
        others in prop::collection::btree_set(1u64..=254, 1..8),
        sleeper in 1u64..=254,
        sleeps in 1u64..3_000,
        scope in prop::sample::select(SCOPES.to_vec()),
        apart in any::<bool>(),
    ) {
        prop_assume!(!others.contains(&sleeper));
        let mut hand = Hand::new();
        let one = hand.disk(scope);
        let home = if apart && scope == PriorityScope::AcrossVms { hand.disk(scope) } else { one };
        let sum: u64 = others.iter().sum::<u64>() + sleeper;
        // Two each, so that the disk never rests: then what streams have had is forgotten.
        for p in &others {
            for _ in 0..2 {
                hand.ask(one, priority(*p), *p);
            }
        }
        let mut mine = Vec::new();
        for turn in 0..3 {
            for _ in 0..20 {
                hand.ask(home, priority(sleeper), sleeper);
            }
            let mut left = 20;
            for _ in 0..sleeps + 300 {
                let (disk, p) = hand.next().unwrap();
                mine.push(p == sleeper);
                if p != sleeper {
                    hand.ask(disk, priority(p), p);
                } else if left < 100 * turn {
                    left += 1;
                    hand.ask(disk, priority(p), p);
                }
            }
        }
        for window in mine.windows(100) {
            let got = window.iter().filter(|mine| **mine).count() as u64;
            // Theorem 1 of docs/theorems.md with each of the others, summed up: at a request each,
            // `got/P - m/Q <= 1/P + 1/Q`.
            let most = (100 + others.len() as u64) * sleeper + sum - sleeper;
            prop_assert!(got * sum <= most, "{} of 100 at {} of {}", got, sleeper, sum);
        }
    }

    /// Within its VM a guest can do what it likes with priorities: the order in which disks are
    /// served is the same.
    #[test]
    fn no_other_disk_can_tell_what_priorities_a_guest_gives(
        disks in prop::collection::vec((1u64..8, 0u64..3, 0u64..3), 2..5),
        steps in prop::collection::vec((0usize..5, 0u64..=254, 0u64..400_000), 1..400),
        config in prop::sample::select(vec![unit(), Config::default()]),
    ) {
        let [mut plain, mut tagged] = [(); 2].map(|()| MClock::<u64>::new(config).unwrap());
        let mut now = secs(1);
        let ids: Vec<DiskId> = disks
            .iter()
            .map(|(shares, reservation, limit)| {
                let policy = policy(*shares, reservation * 300, limit * 700);
                let id = tagged.register(now, policy);
                assert_eq!(plain.register(now, policy), id);
                id
            })
            .collect();
        for (request, (which, given, wait)) in steps.into_iter().enumerate() {
            now += Nanos(wait);
            if let Some(disk) = ids.get(which) {
                let io = Io { bytes: Bytes(4_096), ..Io::default() };
                plain.enqueue(now, *disk, io, request as u64).unwrap();
                tagged.enqueue(now, *disk, Io { priority: priority(given), ..io }, request as u64).unwrap();
            } else {
                match (plain.dispatch(now), tagged.dispatch(now)) {
                    (Decision::Dispatch(a), Decision::Dispatch(b)) => {
                        prop_assert_eq!((a.disk, a.phase, a.cost), (b.disk, b.phase, b.cost));
                        plain.complete(now, a.disk);
                        tagged.complete(now, b.disk);
                    }
                    (Decision::WaitUntil(a), Decision::WaitUntil(b)) => prop_assert_eq!(a, b),
                    (Decision::Idle, Decision::Idle) => {}
                    _ => prop_assert!(false, "one dispatches, the other does not"),
                }
            }
        }
    }
}

#[test]
fn streams_pass_each_other_even_on_the_same_bytes_and_each_request_goes_once() {
    let mut hand = Hand::new();
    let disk = hand.disk(PriorityScope::WithinVm);
    let write = |given| Io {
        bytes: Bytes(4_096),
        position: 8_192,
        priority: priority(given),
        kind: headgate_qos::IoKind::Write,
    };
    for (request, given) in [10, 10, 250, 10, 250, 250].into_iter().enumerate() {
        hand.scheduler.enqueue(hand.now, disk, write(given), request as u64).unwrap();
    }
    let order: Vec<u64> = std::iter::from_fn(|| hand.next()).map(|(_, request)| request).collect();
    assert_eq!(order, [2, 0, 4, 5, 1, 3], "by start tags 0 0 1/250 2/250 1/10 2/10");
}

#[test]
fn what_a_stream_has_used_is_remembered_while_its_disk_has_nothing_to_do() {
    let mut hand = Hand::new();
    let [mine, other] = [(); 2].map(|()| hand.disk(PriorityScope::AcrossVms));
    for _ in 0..50 {
        hand.ask(other, priority(100), 0);
    }
    for _ in 0..2 {
        hand.ask(mine, priority(200), 1);
        hand.ask(mine, priority(10), 2);
        while hand.scheduler.queued_of(mine) > 0 {
            hand.next().unwrap();
        }
    }
    // It was served by the lower just now: ten requests of the other are its turn.
    hand.ask(mine, priority(10), 2);
    let waits = std::iter::from_fn(|| hand.next()).take_while(|(disk, _)| *disk == other).count();
    assert!((8..=11).contains(&waits), "{waits}");
}

#[test]
fn a_returning_stream_of_a_limited_disk_takes_its_place_beside_its_sisters() {
    for scope in SCOPES {
        let mut bench = Bench::mclock(1_000).window(4);
        let disk = bench.across(policy(1_000, 0, 200), 254);
        let own = bench.disk(disk);
        bench.scheduler.set_priorities(bench.now, own, scoped(scope)).unwrap();
        let low = bench.application(disk, 50, 16);
        let high = bench.application(disk, 150, 2);
        let other = bench.across(policy(1_000, 0, 0), 254);
        bench.application(other, 100, 16);
        bench.run(secs(2));
        let got = bench.run(secs(50));
        assert_eq!(got[low] + got[high], 10_000);
        assert!(got[high].abs_diff(7_500) <= 150, "{scope:?}: {got:?}");
    }
}
