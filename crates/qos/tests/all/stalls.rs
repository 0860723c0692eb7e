//! Storage that stands still now and then keeps what it can give on the whole.

use crate::common::*;
use headgate_qos::{Config, Scheduler as _, SchedulerKind};
use headgate_units::Nanos;

/// Requests per second over ten periods of 5 s with one stall each, once settled.
fn with_stalls(mut bench: Bench, stall: Nanos) -> Vec<u64> {
    let mut all = [0; 2];
    for period in 0..16 {
        bench.stall(stall);
        let got = bench.run(secs(5));
        if period >= 6 {
            all.iter_mut().zip(got).for_each(|(all, got)| *all += got);
        }
    }
    all.map(|all| all / 50).to_vec()
}

#[test]
fn a_reservation_survives_stalls_while_the_storage_gives_it_on_the_whole() {
    for ms in [200, 300, 500, 1_000, 2_000] {
        for jitter in [false, true] {
            let mut bench = Bench::mclock(1_000);
            if jitter {
                bench = bench.jitter();
            }
            bench.deep(policy(1, 400, 0), 64);
            bench.deep(policy(10, 0, 0), 64);
            let got = with_stalls(bench, millis(ms));
            let given = got.iter().sum::<u64>();
            let shares = given / 11;
            let due = shares.max(400);
            assert!(got[0] + due / 100 >= due, "{ms} ms, due {due}: {got:?}");
            assert!(got[0] <= due + due / 100 + 1, "{ms} ms, due {due}: {got:?}");
        }
    }
}

/// 1,100 are reserved of 1,000 that the storage gives without the stalls: all are late alike, and
/// the disk without a reservation keeps the floor.
#[test]
fn stalls_in_a_shortage_are_shared_like_the_shortage() {
    let mut bench = Bench::mclock(1_000);
    let [one, two] = [700, 400].map(|r| bench.deep(policy(1, r, 0), 64));
    let other = bench.deep(policy(1, 0, 0), 64);
    bench.run(secs(20));
    for _ in 0..20 {
        bench.stall(secs(1));
        let got = bench.run(secs(5));
        assert!((got[one] * 4).abs_diff(got[two] * 7) <= 40, "{got:?}");
        assert!(got[other].abs_diff(39) <= 2, "{got:?}");
    }
}

/// What a stall costs is made good for within the horizon or not at all: in 5 s, and in somewhat
/// more where reservations leave so little that the floor takes a part of it.
#[test]
fn others_wait_no_longer_than_the_horizon_for_what_a_stall_cost() {
    for reserved in [400, 700, 900, 950] {
        let mut bench = Bench::mclock(1_000);
        bench.deep(policy(1, reserved, 0), 64);
        let other = bench.deep(policy(1, 0, 0), 64);
        bench.run(secs(20));
        bench.stall(secs(3));
        bench.run(secs(3) + secs(7));
        let second = bench.run(secs(1));
        let due = (1_000 - reserved).min(500);
        assert!(second[other] + due / 20 + 1 >= due, "{reserved}: {second:?}");
    }
}

/// The rule by itself: without the horizon a stall of a second costs three quarters of it.
#[test]
fn without_a_horizon_no_more_than_the_bound_is_made_good() {
    let config = Config { debt_horizon: Nanos::ZERO, ..unit() };
    let mut bench = Bench::new(SchedulerKind::MClock, config, 1_000);
    bench.deep(policy(1, 400, 0), 64);
    bench.deep(policy(10, 0, 0), 64);
    let got = with_stalls(bench, secs(1));
    assert!(got[0].abs_diff(340) <= 2, "{got:?}");
}

/// Ten times slower for good: in two horizons the debt is what it is in any shortage.
#[test]
fn a_storage_that_stays_slow_is_a_shortage() {
    let mut bench = Bench::mclock(1_000);
    bench.deep(policy(1, 400, 0), 64);
    bench.deep(policy(1, 0, 0), 64);
    bench.run(secs(20));
    bench.set_rate(100);
    bench.run(secs(10));
    let debt = bench.scheduler.reservation_debt();
    assert!(debt.behind <= millis(260), "{debt:?}");
}

/// A disk that keeps as many requests outstanding as the window holds has none queued now and
/// then, and a stall finds them all in flight. It is owed the stall like others.
#[test]
fn a_disk_whose_requests_are_all_in_flight_is_not_idle() {
    for ms in [50, 100, 200, 500, 1_000, 2_000] {
        // Half of the window brings half of what there is: 300 of 600 beside the longest.
        let depths = if ms == 2_000 { &[32, 31][..] } else { &[32, 31, 16] };
        for &depth in depths {
            let mut bench = Bench::mclock(1_000);
            bench.deep(policy(1, 400, 0), depth);
            bench.deep(policy(10, 0, 0), 64);
            let got = with_stalls(bench, millis(ms));
            // Five seconds later not all of the longest stall is made good for.
            let due = if ms == 2_000 { 396 } else { 400 };
            assert!(got[0] >= due, "{ms} ms, {depth} outstanding: {got:?}");
            assert!(got[0] <= 404, "{ms} ms, {depth} outstanding: {got:?}");
        }
    }
}

/// One request at a time cannot have 300 per second behind a window of 61 at 2,000. It is late for
/// ever, and that costs its neighbours nothing that they were promised. How late it may be changes
/// with every disk that its limit holds back and lets go.
#[test]
fn a_disk_too_shallow_for_its_reservation_costs_others_nothing() {
    for stall in [0, 500] {
        let mut bench = Bench::mclock(2_000).window(61);
        for _ in 0..2 {
            bench.deep(policy(1, 300, 0), 1);
        }
        let deep = bench.deep(policy(1, 300, 0), 216);
        for _ in 0..4 {
            bench.deep(policy(1, 100, 100), 64);
        }
        bench.deep(policy(100, 0, 0), 64);
        bench.run(secs(10));
        for _ in 0..4 {
            bench.stall(millis(stall));
            let got = bench.run(secs(5));
            assert!(got[deep] >= 1_500 - 15, "stalls of {stall} ms: {got:?}");
        }
    }
}

/// One request at a time in a window of its own: each waits for those of the other disk, for
/// random times. A short wait makes good for a long one.
#[test]
fn one_request_at_a_time_gets_its_reservation_though_service_varies() {
    let mut bench = Bench::mclock(200).jitter().window(6);
    bench.deep(policy(1, 30, 0), 1);
    bench.deep(policy(100, 0, 0), 64);
    bench.run(secs(10));
    let got = bench.rates(120);
    assert!(got[0] >= 30, "{got:?}");
}
