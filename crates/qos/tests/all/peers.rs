//! Cases in which the published algorithm, taken literally, or its best-known implementation break
//! a promise.

use crate::common::*;
use headgate_qos::{Config, Decision, Floor, Io, MClock, Scheduler, SchedulerKind};
use headgate_units::Nanos;

#[test]
fn shares_do_not_depend_on_the_scale_of_weights_or_the_queue_depth() {
    for depth in [1, 2, 4, 32] {
        for (a, b) in [(1, 2), (100, 200), (500, 1_000), (50_000, 100_000), (500_000, 1_000_000)] {
            let window = if depth == 1 { 1 } else { depth };
            let mut bench = Bench::mclock(300).window(window);
            bench.deep(policy(a, 0, 0), depth);
            bench.deep(policy(b, 0, 0), depth);
            bench.run(secs(1));
            assert_rates(&bench.rates(20), &[100, 200], 1);
        }
    }
}

#[test]
fn a_disk_that_was_idle_starves_nobody_and_is_not_starved() {
    for idle in [secs(1), secs(60), secs(299), secs(86_400)] {
        let mut bench = Bench::mclock(300);
        bench.busy(policy(1, 0, 0));
        let quiet = bench.busy(policy(1, 0, 0));
        bench.run(secs(5));
        bench.stop(quiet);
        if idle > secs(300) {
            // All quiet for a day: nothing happens, so nothing is computed.
            bench.stop(0);
            bench.run(secs(1));
            bench.now += idle;
            bench.start(0);
        } else {
            bench.run(idle);
        }
        bench.run(millis(500));
        bench.start(quiet);
        // Requests of the other that are in the window already come first.
        bench.run(millis(110));
        let got = bench.run(secs(1));
        assert!(got[0].abs_diff(150) <= 2 && got[1].abs_diff(150) <= 2, "after {idle}: {got:?}");
    }
}

#[test]
fn a_limit_binds_in_the_reservation_phase() {
    let mut bench = Bench::mclock(1_000);
    bench.busy(policy(1, 100, 100));
    bench.busy(policy(1, 200, 0));
    bench.run(secs(1));
    assert_rates(&bench.rates(10), &[100, 900], 0);
}

#[test]
fn shortage_divides_in_proportion_to_reservations() {
    let mut bench = Bench::mclock(200);
    bench.busy(policy(1, 200, 0));
    bench.busy(policy(1, 100, 0));
    bench.run(secs(5));
    assert_rates(&bench.run(secs(30)), &[4_000, 2_000], 0);
    // Weights do not matter then.
    bench.set(1, policy(1_000_000, 100, 0));
    bench.run(secs(1));
    assert_rates(&bench.run(secs(30)), &[4_000, 2_000], 0);
}

#[test]
fn disks_without_reservation_keep_the_floor_in_shortage() {
    for (floor, expected) in [
        (Floor::Nothing, [1_333, 667, 0, 0]),
        (Floor::OneIn(100), [1_320, 660, 13, 6]),
        (Floor::OneIn(9), [1_200, 600, 133, 67]),
    ] {
        let mut bench = Bench::new(SchedulerKind::MClock, Config { floor, ..unit() }, 200);
        for disk in [policy(1, 200, 0), policy(1, 100, 0), policy(2, 0, 0), policy(1, 0, 0)] {
            bench.busy(disk);
        }
        bench.run(secs(5));
        assert_rates(&bench.run(secs(10)), &expected, 1);
    }
}

#[test]
fn after_a_shortage_everybody_is_served_again_at_once() {
    let mut bench = Bench::mclock(1_000);
    let reserved = bench.busy(policy(1, 300, 0));
    let other = bench.busy(policy(1, 0, 0));
    bench.run(secs(5));
    assert_rates(&bench.rates(5), &[500, 500], 1);
    bench.set_rate(100);
    bench.run(secs(20));
    let debt = bench.scheduler.reservation_debt();
    assert!(debt.behind <= millis(260), "{debt:?}");
    bench.set_rate(1_000);
    bench.run(millis(400));
    let second = bench.run(secs(1));
    assert!(second[reserved] <= 510 && second[other] >= 490, "{second:?}");
    assert_rates(&bench.rates(5), &[500, 500], 1);
    assert!(bench.scheduler.reservation_debt().behind < millis(5));
}

#[test]
fn a_newcomer_in_shortage_takes_its_part_at_once() {
    let mut bench = Bench::mclock(100);
    bench.busy(policy(1, 500, 0));
    bench.run(secs(20));
    bench.busy(policy(1, 500, 0));
    bench.run(millis(330));
    let second = bench.run(secs(2));
    assert_rates(&second, &[100, 100], 2);
}

#[test]
fn service_by_reservation_is_forgotten_when_it_no_longer_matters() {
    let mut bench = Bench::mclock(1_320);
    bench.busy(policy(1, 300, 0));
    let others = [2; 4].map(|shares| bench.busy(policy(shares, 0, 0)));
    bench.run(secs(60));
    assert_rates(&bench.rates(10), &[300, 255, 255, 255, 255], 1);
    for gone in &others[..3] {
        bench.stop(*gone);
    }
    // What an eighth of a second of the reservation gives is remembered, and 140 more are due.
    bench.run(millis(300));
    let second = bench.run(secs(1));
    assert_rates(&[second[0], second[4]], &[440, 880], 2);
}

#[test]
fn time_at_a_limit_earns_nothing() {
    let mut bench = Bench::mclock(1_000);
    let limited = bench.busy(policy(1, 0, 100));
    bench.busy(policy(1, 0, 0));
    bench.run(secs(60));
    assert_rates(&bench.rates(5), &[100, 900], 1);
    bench.set(limited, policy(1, 0, 0));
    bench.run(millis(50));
    assert_rates(&bench.run(secs(1)), &[500, 500], 2);
}

#[test]
fn a_reservation_taken_away_leaves_no_debt() {
    let mut bench = Bench::mclock(1_000);
    let reserved = bench.busy(policy(1, 900, 0));
    bench.busy(policy(1, 0, 0));
    bench.run(secs(60));
    assert_rates(&bench.rates(5), &[900, 100], 1);
    bench.set(reserved, policy(1, 0, 0));
    bench.run(millis(50));
    assert_rates(&bench.run(secs(1)), &[500, 500], 2);
}

#[test]
fn a_reservation_given_to_a_backlogged_disk_is_honoured() {
    let mut bench = Bench::mclock(1_000);
    let poor = bench.busy(policy(1, 0, 0));
    bench.busy(policy(99, 0, 0));
    bench.run(secs(10));
    assert_rates(&bench.rates(5), &[10, 990], 1);
    for (reservation, expected) in
        [(400, [400, 600]), (100, [100, 900]), (800, [800, 200]), (0, [10, 990])]
    {
        bench.set(poor, policy(1, reservation, 0));
        bench.run(millis(300));
        assert_rates(&bench.rates(2), &expected, 2);
    }
}

#[test]
fn a_limit_raised_lowered_lifted_or_set_counts_from_the_next_dispatch() {
    let mut bench = Bench::mclock(1_000);
    let disk = bench.busy(policy(1, 0, 1));
    bench.run(secs(3));
    // What the disk waits for under the old limit of one IO per second is not waited for under the
    // new one.
    for (limit, expected) in
        [(500, 500), (1, 1), (1_000, 1_000), (0, 1_000), (50, 50), (7, 7), (999, 999), (0, 1_000)]
    {
        bench.set(disk, policy(1, 0, limit));
        bench.run(millis(40));
        let second = bench.run(secs(1));
        assert!(second[0].abs_diff(expected) <= 1, "limit {limit}: {second:?}");
    }
}

#[test]
fn a_hundred_changes_of_policy_in_a_row_all_count() {
    let mut bench = Bench::mclock(1_000);
    let disk = bench.busy(policy(1, 0, 100));
    bench.busy(policy(1, 0, 0));
    bench.run(secs(1));
    for i in 0..100u64 {
        let (reservation, limit, shares, expected) = match i % 4 {
            0 => (0, 200, 1, 200),
            1 => (700, 700, 1, 700),
            2 => (0, 0, 3, 750),
            _ => (100, 300, 1, 300),
        };
        bench.set(disk, policy(shares, reservation, limit));
        bench.run(millis(50));
        let got = bench.run(millis(500))[0] * 2;
        assert!(got.abs_diff(expected) <= 20, "change {i}: {got} instead of {expected}");
    }
}

#[test]
fn the_same_policy_set_again_and_again_changes_nothing() {
    let mut bench = Bench::mclock(1_000);
    let limited = bench.busy(policy(1, 30, 70));
    bench.busy(policy(1, 400, 0));
    bench.busy(policy(4, 0, 0));
    bench.run(secs(1));
    let mut got = vec![0; 3];
    for _ in 0..1_000 {
        for (client, policy) in
            [(limited, policy(1, 30, 70)), (1, policy(1, 400, 0)), (2, policy(4, 0, 0))]
        {
            bench.set(client, policy);
        }
        for (total, n) in got.iter_mut().zip(bench.run(millis(10))) {
            *total += n;
        }
    }
    assert_rates(&got, &[700, 4_000, 5_300], 1);
}

#[test]
fn the_first_request_of_a_slow_limit_does_not_wait() {
    let mut bench = Bench::mclock(1_000);
    let start = bench.now;
    let disk = bench.busy(policy(1, 0, 1));
    bench.run(secs(5));
    let seconds: Vec<Nanos> = bench.take_dispatches(disk).into_iter().map(|t| t - start).collect();
    assert_eq!(seconds, [0, 1, 2, 3, 4, 5].map(secs));
}

#[test]
fn taking_a_queued_request_away_lets_no_other_past_the_limit() {
    let mut scheduler = MClock::new(unit()).unwrap();
    let now = secs(1);
    let disk = scheduler.register(now, policy(1, 0, 1));
    for n in 0..4 {
        scheduler.enqueue(now, disk, Io::default(), n).unwrap();
    }
    assert!(matches!(scheduler.dispatch(now), Decision::Dispatch(d) if d.request == 0));
    assert_eq!(scheduler.extract(now, disk, &mut |n| *n == 1), Ok(vec![1]));
    assert_eq!(scheduler.dispatch(now), Decision::WaitUntil(secs(2)));
    // Nor does taking all of them, and asking again.
    assert_eq!(scheduler.extract(now, disk, &mut |_| true), Ok(vec![2, 3]));
    assert_eq!(scheduler.dispatch(now), Decision::Idle);
    scheduler.enqueue(now, disk, Io::default(), 9).unwrap();
    assert_eq!(scheduler.dispatch(now), Decision::WaitUntil(secs(2)));
}
