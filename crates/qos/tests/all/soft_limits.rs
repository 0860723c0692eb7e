//! What a soft limit promises (`mclock`, "Soft limits"), judged by lists of what was dispatched:
//! while another disk may be served it is the limit that it would be if it were strict, from the
//! next dispatch on; while none may, nothing waits for it.

use crate::common::*;
use headgate_qos::{Config, CostModel, LimitMode, Policy, SchedulerKind};
use headgate_units::{BytesPerSec, Nanos};
use proptest::prelude::*;

/// Shares, reservation and limit, the limit soft.
fn soft(shares: u64, reservation: u64, limit: u64) -> Policy {
    policy(shares, reservation, limit).with_limit_mode(LimitMode::Soft)
}

/// The most dispatches of one IO each within so many seconds under a strict limit (decision 45).
fn promised(limit: u64, slack: Nanos, seconds: u64) -> u64 {
    let fade = slack.0 * 3 / 8;
    let own = (1_000_000_000 / limit).saturating_sub(1).min(70_000_000);
    let lateness = own.saturating_sub(4 * fade).max(slack.0);
    let time = seconds * 1_000_000_000 + lateness + (seconds - 1) * fade;
    (u128::from(limit) * u128::from(time) / 1_000_000_000) as u64 + 1
}

/// A disk that is alone has all of the storage. When another comes it has its limit, no more and
/// no less, and the other has the rest from the first second on. And so on in turns.
#[test]
fn alone_there_is_no_limit_and_beside_others_there_is() {
    let mut bench = Bench::mclock(1_000);
    let limited = bench.busy(soft(1, 100, 100));
    let other = bench.add(policy(1, 0, 0), Client::Closed { outstanding: 64 });
    for _ in 0..4 {
        // What is queued of the other goes first.
        bench.run(millis(100));
        let alone = bench.run(secs(3));
        assert!(alone[limited] >= 2_990, "{} of 3,000", alone[limited]);
        bench.start(other);
        bench.take_dispatches(limited);
        bench.take_dispatches(other);
        bench.run(secs(1));
        let first = bench.take_dispatches(limited).len() as u64;
        assert!((100..=promised(100, millis(20), 1)).contains(&first), "{first} in a second");
        // The window was full of the limited disk's.
        let others = bench.take_dispatches(other).len();
        assert!(others >= 1_000 - 103, "{others}");
        bench.run(secs(9));
        let sent = bench.take_dispatches(limited);
        assert!(sent.len() >= 899, "{} of 900: it owes nothing", sent.len());
        assert!(most_within(&sent, secs(1)) <= promised(100, millis(20), 1));
        bench.stop(other);
    }
}

/// What strict limits and a reservation leave is divided by shares among the soft ones, whatever
/// their limits. The reserved disk and the strict one have what they are promised.
#[test]
fn what_is_left_over_is_divided_by_shares() {
    let mut bench = Bench::mclock(1_000);
    bench.busy(soft(1, 0, 300));
    bench.busy(soft(3, 0, 50));
    bench.busy(policy(9, 0, 150));
    bench.busy(policy(1, 50, 50));
    bench.run(secs(2));
    // Their own limits count first, and what is left goes by shares.
    let got = bench.rates(20);
    assert_rates(&got, &[300, 500, 150, 50], 1);
}

/// With limits that do not matter: by shares.
#[test]
fn shares_divide_what_small_limits_leave() {
    let mut bench = Bench::mclock(1_000);
    for shares in [1, 2, 5] {
        bench.busy(soft(shares, 0, 1));
    }
    bench.run(secs(2));
    assert_rates(&bench.rates(20), &[125, 250, 625], 2);
}

/// Who was alone for a minute is not behind others for that, and not ahead: beside one with the
/// same shares, on storage that both limits leave free.
#[test]
fn time_over_the_limit_is_neither_debt_nor_credit() {
    for alone in [0, 1, 60] {
        let mut bench = Bench::mclock(1_000);
        let limited = bench.busy(soft(1, 0, 800));
        let other = bench.add(policy(1, 0, 0), Client::Closed { outstanding: 32 });
        bench.run(secs(alone));
        bench.start(other);
        bench.take_dispatches(limited);
        bench.take_dispatches(other);
        bench.run(secs(2));
        let [a, b] = [limited, other].map(|disk| bench.take_dispatches(disk).len() as u64);
        assert!(a.abs_diff(b) <= 34, "{a} and {b} after {alone} s alone");
    }
}

/// Requests of 16 MiB, dear beside a small limit: over the limit they owe nothing either.
#[test]
fn huge_requests_over_the_limit_owe_nothing() {
    let config = Config { cost_model: CostModel::default(), ..Config::default() };
    let mut bench = Bench::new(SchedulerKind::MClock, config, 1_000);
    let bandwidth = BytesPerSec::new(64 << 20).ok();
    let limited = bench.deep(soft(1, 0, 0).with_limit_bandwidth(bandwidth), 4);
    bench.size(limited, 16 << 20);
    bench.run(secs(10));
    let alone = bench.take_dispatches(limited).len();
    assert!(alone >= 9_900, "{alone}: the device of the test serves any size alike");
    let other = bench.busy(policy(1, 0, 0));
    bench.run(secs(20));
    let sent = bench.take_dispatches(limited);
    // 4 a second; the other has requests queued at all times.
    assert!((79..=82).contains(&sent.len()), "{}", sent.len());
    assert!(bench.take_dispatches(other).len() >= 19_900);
}

#[derive(Clone, Debug)]
enum Event {
    Rate(u64),
    Start(prop::sample::Index),
    Stop(prop::sample::Index),
    /// Shares, reservation, limit and mode of any disk but the first.
    Set(prop::sample::Index, Sharing),
    Stall(u64),
}

#[derive(Clone, Copy, Debug)]
struct Sharing(u64, u64, u64, LimitMode);

impl Sharing {
    fn policy(self) -> Policy {
        policy(self.0, self.1, self.2).with_limit_mode(self.3)
    }
}

fn sharing() -> impl Strategy<Value = Sharing> {
    let rate = |most: u64| prop_oneof![1 => Just(0u64), 1 => 1..most];
    let mode = prop::sample::select(vec![LimitMode::Strict, LimitMode::Soft]);
    (1u64..=100, rate(400), rate(2_000), mode)
        .prop_map(|(w, r, l, mode)| Sharing(w, if l > 0 { r.min(l) } else { r }, l, mode))
}

fn events() -> impl Strategy<Value = Event> {
    let disk = any::<prop::sample::Index>;
    prop_oneof![
        2 => (20u64..4_000).prop_map(Event::Rate),
        3 => disk().prop_map(Event::Start),
        3 => disk().prop_map(Event::Stop),
        2 => (disk(), sharing()).prop_map(|(d, s)| Event::Set(d, s)),
        1 => (1u64..1_500).prop_map(Event::Stall),
    ]
}

proptest! {
    #![proptest_config(cases(48))]

    /// Whatever the storage and the others do: what goes while a disk without a limit waits is
    /// within the limit in every window. And nothing waits where it need not: the bench fails
    /// where the scheduler waits for a timer although a soft limit's disk has requests queued.
    #[test]
    fn nothing_over_the_limit_goes_while_another_may_be_served(
        limit in prop_oneof![2 => 1u64..20, 3 => 20u64..500, 1 => 500u64..3_000],
        reserved in 0u64..=4,
        slack in prop::sample::select(vec![0u64, 1, 20, 100]),
        others in prop::collection::vec(sharing(), 1..5),
        depth in 1usize..64,
        rate in 20u64..4_000,
        service in 0u8..4,
        events in prop::collection::vec((0u64..2_000, events()), 0..12),
    ) {
        let slack = millis(slack);
        let config = Config { limit_slack: slack, ..unit() };
        let mut bench = Bench::new(SchedulerKind::MClock, config, rate);
        bench = bench.varying(service);
        bench.deep(soft(3, limit * reserved / 4, limit), depth);
        for other in &others {
            bench.busy(other.policy());
        }
        for (after, event) in events {
            bench.run(millis(after));
            match event {
                Event::Rate(rate) => bench.set_rate(rate),
                Event::Stall(time) => bench.stall(millis(time)),
                Event::Start(disk) => bench.start(disk.index(others.len() + 1)),
                Event::Stop(disk) => bench.stop(disk.index(others.len() + 1)),
                Event::Set(disk, new) => bench.set(1 + disk.index(others.len()), new.policy()),
            }
        }
        bench.run(secs(5));
        let contested = bench.take_contested(0);
        for seconds in [1, 2, 3, 5, 8] {
            let most = promised(limit, slack, seconds);
            let got = most_within(&contested, secs(seconds));
            prop_assert!(got <= most, "{} instead of {} in {} s at {}", got, most, seconds, limit);
        }
    }
}
