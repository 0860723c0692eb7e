//! What a limit promises (`mclock`, "The limit clock"): in n seconds at most `l·(n + λ + (n -
//! 1)·ε)` requests and one, in any time W at most `l·(W + H)` and one; and what is due, to a disk
//! that waits for others.

use crate::common::*;
use headgate_qos::{Config, SchedulerKind};
use headgate_units::{BytesPerSec, Nanos};
use proptest::prelude::*;

/// The most dispatches of one IO each within `window`.
fn promised(limit: u64, slack: Nanos, window: Nanos) -> u64 {
    let fade = slack.0 * 3 / 8;
    let own = (1_000_000_000 / limit).saturating_sub(1).min(50_000_000);
    let lateness = own.saturating_sub(4 * fade).max(slack.0);
    let seconds = window.0.div_ceil(1_000_000_000);
    let by_second = seconds * 1_000_000_000 + lateness + (seconds - 1) * fade;
    // The last one needs only that those before it are paid for. A nanosecond for each that is
    // rounded down.
    let paid = u128::from(limit) * u128::from(by_second.min(window.0 + 250_000_000));
    (paid / 1_000_000_000) as u64 + 1
}

/// Beside a busy disk, on a device of 1,000 IOPS that holds 32: the scheduler keeps the promise to
/// the request. Completions may be counted up to those in flight when counting starts, and while
/// requests take up to 32 ms, as if the window were longer by that.
#[test]
fn a_limit_of_60_beside_an_unlimited_disk() {
    for (slack, jitter) in [(1, false), (20, false), (20, true), (100, true)] {
        let config = Config { limit_slack: millis(slack), ..unit() };
        let mut bench = Bench::new(SchedulerKind::MClock, config, 1_000);
        if jitter {
            bench = bench.jitter();
        }
        let limited = bench.busy(policy(1, 0, 60));
        bench.busy(policy(1, 0, 0));
        bench.run(secs(60));
        let (sent, done) = (bench.take_dispatches(limited), bench.take_completions(limited));
        for seconds in [1, 2, 5] {
            let window = secs(seconds);
            let most = promised(60, millis(slack), window);
            let got = most_within(&sent, window);
            assert!(got <= most, "{got} in {seconds} s with {slack} ms of slack");
            let got = most_within(&done, window);
            let longest = if jitter { millis(64) } else { millis(32) };
            assert!(
                got <= promised(60, millis(slack), window + longest),
                "{got} completed in {seconds} s"
            );
        }
        // Nothing is lost either.
        assert!(sent.len() as u64 >= 60 * 60 - 1, "{} in a minute", sent.len());
    }
}

/// What was dispatched before the limit was set completes after it: counters of completions see it,
/// the scheduler cannot take it back.
#[test]
fn a_limit_set_on_a_busy_disk_counts_from_the_next_dispatch() {
    let config = Config { limit_slack: millis(20), ..unit() };
    let mut bench = Bench::new(SchedulerKind::MClock, config, 1_000);
    let limited = bench.busy(policy(1, 0, 0));
    bench.busy(policy(1, 0, 0));
    bench.run(secs(5));
    bench.set(limited, policy(1, 0, 60));
    bench.take_dispatches(limited);
    let completed = bench.run(secs(2))[limited];
    let dispatched = bench.take_dispatches(limited).len() as u64;
    assert!(dispatched <= 122, "{dispatched}");
    // Half the window was its own.
    assert!(
        (dispatched + 14..=dispatched + 17).contains(&completed),
        "{completed} of {dispatched}"
    );
}

/// A disk that slept is not late: one request a second at a limit of one, and not another after
/// 0.9 s.
#[test]
fn idleness_earns_nothing() {
    for limit in [1, 2, 10, 100, 1_000] {
        let mut bench = Bench::mclock(10_000);
        let disk = bench.busy(policy(1, 0, limit));
        let sent = bench.dispatches_after_idling(disk);
        for (n, at) in sent.iter().enumerate() {
            let due = sent[0] + Nanos(n as u64 * 1_000_000_000 / limit);
            assert_eq!(*at, due, "{n} at {limit}");
        }
        assert_eq!(sent.len() as u64, 2 * limit + 1, "at {limit}");
    }
}

/// Whatever a disk waited for under its old limit, it gets nothing for it under a new one.
#[test]
fn another_limit_remembers_no_lateness() {
    for (before, after) in [(100, 400), (100, 110), (400, 100)] {
        let mut bench = Bench::mclock(1_000);
        let limited = bench.busy(policy(10, 0, before));
        bench.deep(policy(1, 0, 0), 64);
        bench.run(secs(5));
        bench.stall(millis(140));
        bench.run(millis(139));
        bench.set(limited, policy(10, 0, after));
        bench.take_dispatches(limited);
        bench.run(secs(3));
        let most = most_within(&bench.take_dispatches(limited), millis(100));
        // The storage works off the window for 32 ms more before the stall begins to count.
        assert!(most <= after * 134 / 1_000 + 2, "{most} in a tenth of a second, {before} {after}");
    }
}

/// What a disk waits for its bandwidth is no service that another limit in IOPS would have to wait
/// for.
#[test]
fn waiting_for_bandwidth_owes_no_requests() {
    let bandwidth =
        |limit| policy(1, 0, limit).with_limit_bandwidth(BytesPerSec::new(1 << 20).ok());
    let mut bench = Bench::mclock(10_000);
    let disk = bench.add(bandwidth(1_000), Client::Closed { outstanding: 4 });
    bench.size(disk, 1 << 20);
    bench.start(disk);
    bench.run(millis(3_100));
    bench.set(disk, bandwidth(10));
    bench.take_dispatches(disk);
    bench.run(secs(10));
    let got = bench.take_dispatches(disk).len();
    assert!((9..=11).contains(&got), "{got} of 10 in 10 s");
}

/// What is due, where the storage gives it: the others are reserved most of it, and a disk that
/// wins by shares gets its limit of the rest.
#[test]
fn a_disk_that_waits_for_others_gets_its_limit() {
    for (reserved, limit, part) in [(1_400, 300, 98), (1_600, 50, 98), (1_600, 200, 97)] {
        let config = Config { limit_slack: millis(20), ..unit() };
        let mut bench = Bench::new(SchedulerKind::MClock, config, 2_000).exponential();
        let limited = bench.busy(policy(100, 0, limit));
        for _ in 0..4 {
            bench.busy(policy(1, reserved / 4, 0));
        }
        bench.busy(policy(1, 0, 0));
        bench.run(secs(5));
        bench.take_dispatches(limited);
        bench.run(secs(60));
        let sent = bench.take_dispatches(limited);
        let got = sent.len() as u64;
        assert!(got * 100 >= part * limit * 60, "{got} of {} beside {reserved}", limit * 60);
        for window in [1, 2, 5] {
            assert!(
                most_within(&sent, secs(window)) <= promised(limit, millis(20), secs(window)),
                "{limit} in {window} s"
            );
        }
    }
}

/// A stall of a tenth of a second in each is made good for.
#[test]
fn short_stalls_cost_a_limited_disk_nothing() {
    let config = Config { limit_slack: millis(20), ..unit() };
    let mut bench = Bench::new(SchedulerKind::MClock, config, 1_000);
    let limited = bench.deep(policy(10, 0, 300), 128);
    bench.deep(policy(1, 0, 0), 64);
    bench.run(secs(5));
    bench.take_dispatches(limited);
    for period in 0..60 {
        bench.stall(millis(100));
        bench.run(millis(900 + period % 7 * 30));
    }
    let sent = bench.take_dispatches(limited);
    let due: u64 = (0..60).map(|period| (900 + period % 7 * 30) * 300 / 1_000).sum();
    assert!(sent.len() as u64 * 100 >= due * 98, "{} of {due}", sent.len());
    assert!(most_within(&sent, secs(1)) <= promised(300, millis(20), secs(1)));
}

#[derive(Clone, Debug)]
enum Event {
    Rate(u64),
    Start(prop::sample::Index),
    Stop(prop::sample::Index),
    /// Shares, reservation and limit of any disk but the first.
    Set(prop::sample::Index, (u64, u64, u64)),
    /// The limit of the first.
    Limit(u64),
    /// The storage stands still for so many milliseconds.
    Stall(u64),
}

fn sharing() -> impl Strategy<Value = (u64, u64, u64)> {
    let rate = |most: u64| prop_oneof![1 => Just(0u64), 1 => 1..most];
    (1u64..=100, rate(400), rate(2_000))
        .prop_map(|(w, r, l)| (w, if l > 0 { r.min(l) } else { r }, l))
}

fn limits() -> impl Strategy<Value = u64> {
    prop_oneof![2 => 1u64..20, 3 => 20u64..500, 1 => 500u64..3_000]
}

fn events() -> impl Strategy<Value = Event> {
    let disk = any::<prop::sample::Index>;
    prop_oneof![
        2 => (20u64..4_000).prop_map(Event::Rate),
        2 => disk().prop_map(Event::Start),
        2 => disk().prop_map(Event::Stop),
        2 => (disk(), sharing()).prop_map(|(d, s)| Event::Set(d, s)),
        1 => limits().prop_map(Event::Limit),
        2 => (1u64..1_500).prop_map(Event::Stall),
    ]
}

proptest! {
    #![proptest_config(cases(48))]

    /// Whatever the storage and the others do, however late the timers are, and whether or not it
    /// is reserved.
    #[test]
    fn no_window_holds_more_than_promised(
        limit in limits(),
        reserved in 0u64..=4,
        slack in prop::sample::select(vec![0u64, 1, 20, 100]),
        others in prop::collection::vec(sharing(), 0..5),
        depth in 1usize..64,
        rate in 20u64..4_000,
        late in prop::sample::select(vec![0u64, 1, 50]),
        service in 0u8..4,
        events in prop::collection::vec((0u64..2_000, events()), 0..12),
    ) {
        let slack = millis(slack);
        let config = Config { limit_slack: slack, ..unit() };
        let mut bench = Bench::new(SchedulerKind::MClock, config, rate).late(millis(late));
        bench = bench.varying(service);
        bench.deep(policy(3, limit * reserved / 4, limit), depth);
        for (w, r, l) in &others {
            bench.busy(policy(*w, *r, *l));
        }
        // Periods under one limit.
        let mut limit = limit;
        let check = |times: Vec<Nanos>, limit: u64| {
            for window in [1, 2, 3, 5, 8] {
                let most = promised(limit, slack, secs(window));
                let got = most_within(&times, secs(window));
                prop_assert!(got <= most, "{} instead of {} in {} s at {}", got, most, window, limit);
            }
            Ok(())
        };
        for (after, event) in events {
            bench.run(millis(after));
            match event {
                Event::Rate(rate) => bench.set_rate(rate),
                Event::Stall(time) => bench.stall(millis(time)),
                Event::Start(disk) => bench.start(disk.index(others.len() + 1)),
                Event::Stop(disk) => bench.stop(disk.index(others.len() + 1)),
                Event::Set(disk, (w, r, l)) if !others.is_empty() => {
                    bench.set(1 + disk.index(others.len()), policy(w, r, l));
                }
                Event::Set(..) => {}
                Event::Limit(new) => {
                    check(bench.take_dispatches(0), limit)?;
                    bench.set(0, policy(3, new * reserved / 4, new));
                    limit = new;
                }
            }
        }
        bench.run(secs(9));
        check(bench.take_dispatches(0), limit)?;
    }
}
