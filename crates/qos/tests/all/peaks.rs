//! What a limit with a peak promises, judged by lists of what was dispatched. For a limit l, a peak
//! p and a time T: in any time W at most `l·W + max((p - l)·T, l·H)` requests and one, and what a
//! limit of p allows. And what is due: a disk that has earned it goes at p for T, and at l after.

use crate::common::*;
use headgate_qos::{Config, LimitMode, PeakTime, Policy, SchedulerKind};
use headgate_units::{BytesPerSec, Iops, Nanos};
use proptest::prelude::*;

const H: u64 = 250_000_000;

#[derive(Clone, Copy, Debug)]
struct Peaked {
    limit: u64,
    peak: u64,
    seconds: u64,
}

impl Peaked {
    fn policy(self, shares: u64, reservation: u64) -> Policy {
        let time = PeakTime::from_secs(self.seconds).unwrap();
        let peak = Iops::new(self.peak).ok();
        policy(shares, reservation, self.limit).with_peaks(peak, None, time).unwrap()
    }

    /// The most requests of one IO in any time so long.
    fn promised(self, slack: Nanos, window: Nanos) -> u64 {
        let second = 1_000_000_000u128;
        let (limit, peak) = (u128::from(self.limit), u128::from(self.peak));
        let beyond = (peak - limit) * u128::from(self.seconds) * second;
        let long = limit * u128::from(window.0) + beyond.max(limit * u128::from(H));
        // What a limit of p allows (decision 45).
        let fade = slack.0 * 3 / 8;
        let own = (1_000_000_000 / self.peak).saturating_sub(1).min(50_000_000);
        let lateness = own.saturating_sub(4 * fade).max(slack.0);
        let n = window.0.div_ceil(1_000_000_000);
        let by_second = n * 1_000_000_000 + lateness + (n - 1) * fade;
        let short = peak * u128::from(by_second.min(window.0 + H));
        (long.min(short) / second) as u64 + 1
    }

    /// The most excess over the promise of any stretch that begins and ends with a dispatch.
    fn excess(self, sent: &[Nanos], slack: Nanos) -> Option<(Nanos, Nanos, usize)> {
        let step = (sent.len() / 400).max(1);
        for (n, &from) in sent.iter().enumerate().step_by(step) {
            for (count, &to) in sent[n..].iter().enumerate() {
                // The shortest time that holds both.
                let most = self.promised(slack, to - from + Nanos(1));
                if count as u64 + 1 > most {
                    return Some((from, to, count + 1));
                }
            }
        }
        None
    }
}

/// Alone on fast storage: from its start at the peak for the time, and at the limit after.
#[test]
fn a_disk_goes_at_its_peak_for_its_time() {
    for (limit, peak, seconds) in [(100, 200, 1), (100, 2_000, 60), (7, 50, 10), (900, 1_000, 30)] {
        let peaked = Peaked { limit, peak, seconds };
        let mut bench = Bench::mclock(10_000);
        let disk = bench.busy(peaked.policy(1, 0));
        bench.run(secs(seconds));
        let burst = bench.take_dispatches(disk);
        let due = peak * seconds;
        assert!((due - 1..=due + 2).contains(&(burst.len() as u64)), "{} of {due}", burst.len());
        bench.run(secs(20));
        let after = bench.take_dispatches(disk).len() as u64;
        assert!((limit * 20 - 1..=limit * 20 + 2).contains(&after), "{after} at {limit}");
    }
}

/// What was used up comes back at the limit while the disk sleeps: `(p - l)·T` in `(p/l - 1)·T`.
#[test]
fn a_burst_is_earned_by_staying_below_the_limit() {
    let peaked = Peaked { limit: 100, peak: 300, seconds: 5 };
    let mut bench = Bench::mclock(10_000);
    let disk = bench.busy(peaked.policy(1, 0));
    bench.run(secs(30));
    // Each second earns 100 of 1,000. What was queued goes first: 32 by then.
    for (slept, due) in [(1, 2_100), (5, 2_500), (10, 3_000), (100, 3_032)] {
        bench.take_dispatches(disk);
        bench.stop(disk);
        bench.run(secs(slept));
        bench.start(disk);
        bench.run(secs(20));
        let got = bench.take_dispatches(disk).len() as u64;
        assert!((due - 2..=due + 2).contains(&got), "{got} of {due} after {slept} s");
    }
}

/// The same in bytes per second, with a bucket of its own.
#[test]
fn bandwidth_has_its_own_peak() {
    let mib = |n: u64| BytesPerSec::new(n << 20).ok();
    let time = PeakTime::from_secs(4).unwrap();
    let policy = policy(1, 0, 0).with_limit_bandwidth(mib(10));
    let policy = policy.with_peaks(None, mib(40), time).unwrap();
    let mut bench = Bench::mclock(10_000);
    let disk = bench.busy(policy);
    bench.size(disk, 1 << 20);
    bench.stop(disk);
    bench.run(secs(10));
    bench.take_dispatches(disk);
    bench.start(disk);
    bench.run(secs(4));
    let burst = bench.take_dispatches(disk).len();
    // What was queued before it had a size took a part of it.
    assert!((158..=162).contains(&burst), "{burst} of 160 MiB");
    bench.run(secs(10));
    let after = bench.take_dispatches(disk).len();
    assert!((99..=102).contains(&after), "{after} of 100 MiB");
}

/// A disk that ran without a limit, or with another, has no tokens when it gets one with a peak.
#[test]
fn a_limit_that_is_set_begins_empty() {
    let peaked = Peaked { limit: 100, peak: 1_000, seconds: 10 };
    for before in [policy(1, 0, 0), policy(1, 0, 100), policy(1, 0, 50)] {
        let mut bench = Bench::mclock(10_000);
        let disk = bench.busy(before);
        bench.run(secs(3));
        bench.set(disk, peaked.policy(1, 0));
        bench.take_dispatches(disk);
        bench.run(secs(3));
        let got = bench.take_dispatches(disk).len();
        assert!((299..=302).contains(&got), "{got} of 300");
        // And the same policy again changes nothing.
        bench.set(disk, peaked.policy(1, 0));
        bench.run(secs(3));
        let got = bench.take_dispatches(disk).len();
        assert!((299..=301).contains(&got), "{got} of 300");
    }
}

/// A disk that has used its tokens up owes its last request at the limit, with or without a peak.
#[test]
fn a_peak_that_is_taken_away_leaves_what_is_owed() {
    let peaked = Peaked { limit: 1, peak: 400, seconds: 1 };
    let mut bench = Bench::mclock(10_000);
    let disk = bench.busy(peaked.policy(1, 0));
    bench.run(millis(5_500));
    let last = *bench.take_dispatches(disk).last().unwrap();
    bench.set(disk, policy(1, 0, 1));
    bench.run(secs(3));
    assert_eq!(bench.take_dispatches(disk)[0], last + SECOND);
}

/// A peak is of use to nobody but its disk: others keep their reservations and shares in a burst.
#[test]
fn a_burst_takes_nothing_that_others_are_promised() {
    let mut bench = Bench::mclock(1_000);
    let peaked = Peaked { limit: 100, peak: 2_000, seconds: 10 };
    bench.busy(peaked.policy(1, 0));
    bench.busy(policy(1, 0, 0));
    bench.busy(policy(1, 400, 0));
    assert_rates(&bench.rates(5), &[300, 300, 400], 3);
}

/// Beside others a soft limit holds to its peak and its bucket; alone to neither.
#[test]
fn a_soft_limit_lets_a_peak_be_passed_too() {
    let peaked = Peaked { limit: 100, peak: 200, seconds: 5 };
    let mut bench = Bench::mclock(1_000);
    let disk = bench.busy(peaked.policy(1, 0).with_limit_mode(LimitMode::Soft));
    let alone = bench.run(secs(20))[disk];
    assert!(alone >= 19_900, "{alone}");
    bench.deep(policy(1, 0, 0), 64);
    bench.take_dispatches(disk);
    bench.take_contested(disk);
    bench.run(secs(30));
    let sent = bench.take_contested(disk);
    assert_eq!(peaked.excess(&sent, millis(20)), None);
    assert!((2_999..=3_502).contains(&sent.len()), "{}", sent.len());
}

fn peaked() -> impl Strategy<Value = Peaked> {
    let limit = prop_oneof![2 => 1u64..20, 3 => 20u64..500];
    (limit, 11u64..100, 1u64..8).prop_map(|(limit, tenths, seconds)| Peaked {
        limit,
        peak: (limit * tenths / 10).max(limit + 1),
        seconds,
    })
}

proptest! {
    #![proptest_config(cases(48))]

    /// Whatever the storage and the others do, however late the timers are.
    #[test]
    fn no_time_holds_more_than_promised(
        peaked in peaked(),
        reserved in 0u64..=4,
        slack in prop::sample::select(vec![0u64, 1, 20, 100]),
        others in prop::collection::vec((1u64..100, 0u64..400), 0..4),
        depth in 1usize..64,
        rate in 50u64..2_000,
        late in prop::sample::select(vec![0u64, 1, 50]),
        service in 0u8..4,
        stalls in prop::collection::vec((0u64..3_000, 0u64..4_000, any::<bool>()), 0..8),
    ) {
        let slack = millis(slack);
        let config = Config { limit_slack: slack, ..unit() };
        let mut bench = Bench::new(SchedulerKind::MClock, config, rate).late(millis(late));
        bench = bench.varying(service);
        let disk = bench.deep(peaked.policy(3, peaked.limit * reserved / 4), depth);
        for (shares, reservation) in &others {
            bench.busy(policy(*shares, *reservation, 0));
        }
        for (stall, run, sleeps) in stalls {
            bench.stall(millis(stall));
            if sleeps {
                bench.stop(disk);
            }
            bench.run(millis(run));
            bench.start(disk);
        }
        bench.run(secs(6));
        let sent = bench.take_dispatches(disk);
        prop_assert_eq!(peaked.excess(&sent, slack), None);
    }
}
