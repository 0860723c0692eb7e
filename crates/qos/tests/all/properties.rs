//! What every disk is promised, under random policies and loads.

use crate::common::*;
use headgate_qos::{
    Burst, Config, Decision, DiskId, Io, MClock, Policy, Scheduler, SchedulerKind, water_fill,
};
use headgate_units::{Iops, Nanos};
use proptest::prelude::*;

fn sharing() -> impl Strategy<Value = (u64, u64, u64)> {
    // Shares, reservation, limit.
    (
        1u64..=8,
        prop_oneof![2 => Just(0u64), 1 => 1u64..300],
        prop_oneof![2 => Just(0u64), 1 => 1u64..600],
    )
        .prop_map(|(shares, reservation, limit)| {
            (shares, if limit > 0 { reservation.min(limit) } else { reservation }, limit)
        })
}

/// A disk whose share is just below its limit gets all of it only if the limit makes good for waits
/// among others.
fn patient() -> Config {
    Config { limit_slack: millis(20), ..unit() }
}

proptest! {
    #![proptest_config(cases(24))]

    /// The published allocation, for any disks on storage of any speed that carries the
    /// reservations.
    #[test]
    fn every_disk_gets_what_water_filling_gives_it(disks in prop::collection::vec(sharing(), 1..7), spare in 100u64..2_000) {
        let disks: Vec<Policy> = disks.into_iter().map(|(w, r, l)| policy(w, r, l)).collect();
        let reserved: u64 = disks.iter().filter_map(Policy::reservation).map(Iops::get).sum();
        let rate = reserved + reserved / 50 + spare;
        let mut bench = Bench::new(SchedulerKind::MClock, patient(), rate);
        for disk in &disks {
            bench.busy(*disk);
        }
        bench.run(secs(2));
        let got = bench.run(secs(10));
        for (i, ideal) in water_fill(&disks, Iops::new(rate).unwrap()).into_iter().enumerate() {
            let ideal = ideal.as_millionths() / 100_000;
            prop_assert!(got[i].abs_diff(ideal) <= ideal / 50 + 4, "disk {} of {:?} at {}: {} not {}", i, disks, rate, got[i], ideal);
        }
        // Work conservation: the storage idles only when all are at their limits.
        let limits: Option<u64> = disks.iter().map(|d| d.limit().map(Iops::get)).sum();
        let possible = limits.unwrap_or(u64::MAX).min(rate);
        let total: u64 = got.iter().sum();
        prop_assert!(total + 10 + disks.len() as u64 >= possible * 10, "{} of {}", total, possible * 10);
    }

    /// Whatever went before: disks that came and went, other policies, storage too slow for its
    /// reservations.
    #[test]
    fn no_history_is_remembered_for_longer_than_two_seconds(
        last in prop::collection::vec(sharing(), 2..6),
        history in prop::collection::vec((prop::collection::vec((sharing(), any::<bool>()), 5), 20u64..2_000), 1..4),
        spare in 300u64..2_000,
    ) {
        let mut bench = Bench::new(SchedulerKind::MClock, patient(), 1_000);
        let clients: Vec<usize> =
            last.iter().map(|_| bench.add(policy(1, 0, 0), Client::Closed { outstanding: 32 })).collect();
        for (disks, rate) in history {
            bench.set_rate(rate);
            for (client, ((w, r, l), runs)) in clients.iter().zip(disks) {
                bench.set(*client, policy(w, r, l));
                if runs { bench.start(*client) } else { bench.stop(*client) }
            }
            bench.run(secs(5));
        }
        let disks: Vec<Policy> = last.into_iter().map(|(w, r, l)| policy(w, r, l)).collect();
        let reserved: u64 = disks.iter().filter_map(Policy::reservation).map(Iops::get).sum();
        let rate = reserved + reserved / 4 + spare;
        bench.set_rate(rate);
        for (client, disk) in clients.iter().zip(&disks) {
            bench.set(*client, *disk);
            bench.start(*client);
        }
        bench.run(secs(2));
        let got = bench.run(secs(5));
        for (i, ideal) in water_fill(&disks, Iops::new(rate).unwrap()).into_iter().enumerate() {
            let ideal = ideal.as_millionths() / 200_000;
            // A disk whose share is hardly more than its reservation pays back what the reservation
            // once gave it beyond its share, at most the lead, at the speed of the difference: that
            // may take longer, and is never more.
            let lead = disks[i].reservation().map_or(0, |_| u64::from(patient().lead));
            prop_assert!(
                got[i].abs_diff(ideal) <= ideal / 33 + 4 + lead,
                "disk {} of {:?} at {}: {} not {}", i, disks, rate, got[i], ideal
            );
        }
    }

    #[test]
    fn no_window_of_a_second_or_more_holds_more_than_the_limit_and_one_request(
        disks in prop::collection::vec(sharing(), 1..6),
        rate in 50u64..3_000,
        depth in 1usize..40,
    ) {
        let mut bench = Bench::mclock(rate);
        let limits: Vec<u64> = disks.iter().map(|d| d.2).collect();
        for (w, r, l) in disks {
            bench.deep(policy(w, r, l), depth);
        }
        bench.run(secs(8));
        for (client, limit) in limits.into_iter().enumerate().filter(|(_, l)| *l > 0) {
            let times = bench.take_dispatches(client);
            for window in [1, 2, 5] {
                let mut from = 0;
                for (to, end) in times.iter().enumerate() {
                    while times[from] + secs(window) <= *end {
                        from += 1;
                    }
                    let held = (to - from + 1) as u64;
                    prop_assert!(held <= limit * window + 1, "{} in {} s at {}", held, window, limit);
                }
            }
        }
    }

    #[test]
    fn reservations_are_met_in_every_window_while_the_storage_carries_them(
        disks in prop::collection::vec((1u64..=8, 0u64..300), 1..8),
        spare in 0u64..500,
    ) {
        let reserved: u64 = disks.iter().map(|d| d.1).sum();
        let rate = (reserved + reserved / 50 + spare).max(10);
        let mut bench = Bench::mclock(rate);
        for (w, r) in &disks {
            bench.busy(policy(*w, *r, 0));
        }
        bench.run(secs(1));
        let mut got = vec![0; disks.len()];
        for second in 1..=5 {
            for (total, n) in got.iter_mut().zip(bench.run(secs(1))) {
                *total += n;
            }
            for (n, (_, r)) in got.iter().zip(&disks) {
                prop_assert!(n + 2 >= r * second, "{} of {} in {} s", n, r * second, second);
            }
        }
    }

    #[test]
    fn scaling_all_weights_changes_no_decision(
        weights in prop::collection::vec(1u64..=100, 2..8),
        scale in 1u64..=10_000,
        depth in 1usize..6,
    ) {
        let order = |scale: u64| {
            let mut scheduler = MClock::new(unit()).unwrap();
            let disks: Vec<DiskId> =
                weights.iter().map(|w| scheduler.register(Nanos(0), policy(w * scale, 0, 0))).collect();
            for disk in disks.iter().flat_map(|d| std::iter::repeat_n(d, depth)) {
                scheduler.enqueue(Nanos(0), *disk, Io::default(), ()).unwrap();
            }
            (0..2_000)
                .map(|_| match scheduler.dispatch(Nanos(0)) {
                    Decision::Dispatch(d) => {
                        scheduler.complete(Nanos(0), d.disk);
                        scheduler.enqueue(Nanos(0), d.disk, Io::default(), ()).unwrap();
                        d.disk
                    }
                    other => panic!("{other:?}"),
                })
                .collect::<Vec<_>>()
        };
        prop_assert!(order(1) == order(scale));
    }

    #[test]
    fn a_newcomer_is_served_within_one_round(weights in prop::collection::vec(1u64..=50, 1..20), own in 1u64..=50) {
        let mut scheduler = MClock::new(unit()).unwrap();
        let add = |scheduler: &mut MClock<()>, w: u64| {
            let disk = scheduler.register(Nanos(0), policy(w, 0, 0));
            scheduler.enqueue(Nanos(0), disk, Io::default(), ()).unwrap();
            disk
        };
        let next = |scheduler: &mut MClock<()>| match scheduler.dispatch(Nanos(0)) {
            Decision::Dispatch(d) => {
                scheduler.enqueue(Nanos(0), d.disk, Io::default(), ()).unwrap();
                d.disk
            }
            other => panic!("{other:?}"),
        };
        for w in &weights {
            add(&mut scheduler, *w);
        }
        for _ in 0..5_000 {
            next(&mut scheduler);
        }
        let newcomer = add(&mut scheduler, own);
        // While the newcomer is served once, each other is served for as long as that takes at its
        // weight, plus the one under way.
        let round: u64 = weights.iter().map(|w| w.div_ceil(own) + 1).sum();
        let waited = (0..=round).position(|_| next(&mut scheduler) == newcomer);
        prop_assert!(waited.is_some(), "not within {}", round);
    }

    /// A disk that was away for any time, with any credit, is served within one round and then by
    /// its share.
    #[test]
    fn a_returning_disk_is_neither_starved_nor_alone(
        weights in prop::collection::vec(1u64..=50, 1..12),
        own in 1u64..=50,
        credit in prop::sample::select(vec![0u64, 1, 64, 256]),
        away in 0u64..100_000,
    ) {
        let mut bench = Bench::mclock(1_000);
        let back = bench.busy(policy(own, 0, 0).with_burst(Burst::new(credit).unwrap()));
        for w in &weights {
            bench.busy(policy(*w, 0, 0));
        }
        bench.run(secs(2));
        bench.stop(back);
        bench.run(millis(200 + away));
        bench.start(back);
        bench.take_dispatches(back);
        let before = bench.now;
        bench.run(secs(2));
        let sent = bench.take_dispatches(back);
        let round: u64 = weights.iter().map(|w| w.div_ceil(own) + 1).sum();
        // The window in front of the device empties first.
        let waited = sent.first().map_or(Nanos::MAX, |first| *first - before);
        prop_assert!(waited <= millis(round + 2), "{} for a round of {}", waited, round);
        let share = 2_000 * own / (own + weights.iter().sum::<u64>());
        let got = sent.len() as u64;
        let credit = credit.min(2_000 - share);
        prop_assert!(got <= share + credit + 32, "{} of a share of {}", got, share);
        prop_assert!(got + 3 + share / 20 >= share, "{} of a share of {}", got, share);
    }

    /// Storage that delivers less than all reservations is divided in proportion to them, whatever
    /// the weights.
    #[test]
    fn shortage_is_divided_in_proportion_to_reservations(
        disks in prop::collection::vec((1u64..=1_000, 50u64..1_000), 2..8),
        percent in 10u64..=95,
        jitter: bool,
    ) {
        let reserved: u64 = disks.iter().map(|d| d.1).sum();
        let rate = reserved * percent / 100;
        let mut bench = Bench::mclock(rate);
        if jitter {
            bench = bench.jitter();
        }
        for (w, r) in &disks {
            bench.busy(policy(*w, *r, 0));
        }
        bench.run(secs(5));
        let got = bench.run(secs(10));
        let total: u64 = got.iter().sum();
        for (n, (_, r)) in got.iter().zip(&disks) {
            let ideal = total * r / reserved;
            prop_assert!(n.abs_diff(ideal) <= 3 + ideal / 100, "{} instead of {}: {:?}", n, ideal, disks);
        }
    }

    /// Any window, while the storage fluctuates above what is reserved and the others come, go and
    /// change.
    #[test]
    fn reservations_are_met_in_any_window_while_others_come_and_go(
        reservation in 1u64..400,
        weight in 1u64..=8,
        others in prop::collection::vec(sharing(), 1..6),
        events in prop::collection::vec((0u64..1_500, any::<prop::sample::Index>(), 0u8..4, sharing(), 0u64..2_000), 0..16),
        // Deeper than the window, so that it always waits.
        depth in 33usize..64,
        jitter: bool,
    ) {
        let most = reservation + 300 * others.len() as u64;
        let least = most * 11 / 10 + 50;
        let mut bench = Bench::mclock(least);
        if jitter {
            bench = bench.jitter();
        }
        let reserved = bench.deep(policy(weight, reservation, 0), depth);
        for (w, r, l) in &others {
            bench.busy(policy(*w, *r, *l));
        }
        for (after, disk, what, (w, r, l), spare) in events {
            bench.run(millis(after));
            let disk = 1 + disk.index(others.len());
            match what {
                0 => bench.set_rate(least + spare),
                1 => bench.start(disk),
                2 => bench.stop(disk),
                _ => bench.set(disk, policy(w, r, l)),
            }
        }
        bench.run(secs(6));
        let times = bench.take_dispatches(reserved);
        let slack = 8 * (others.len() as u64 + 1) + 32;
        for window in [1, 2, 5] {
            let got = least_within(&times, secs(window), bench.now);
            prop_assert!(got + slack >= reservation * window, "{} of {} in {} s", got, reservation * window, window);
        }
    }
}

/// The least that any window of so long holds, up to `end`.
fn least_within(times: &[Nanos], window: Nanos, end: Nanos) -> u64 {
    let mut to = 0;
    let mut least = times.len();
    for (from, start) in times.iter().enumerate() {
        if *start + window > end {
            break;
        }
        while to < times.len() && times[to] < *start + window {
            to += 1;
        }
        // From just after this one.
        least = least.min(to - from - 1);
    }
    least as u64
}
