//! The mClock paper's evaluation (OSDI 2010, section 5) in simulated time, against its published
//! allocations.

use crate::common::*;
use headgate_qos::{Burst, Config, CostModel, SchedulerKind, water_fill};
use headgate_units::Iops;

/// Section 2.2, figure 3: RD, OLTP and DM on storage of every speed.
#[test]
fn the_rd_oltp_dm_example_at_every_capacity() {
    for (capacity, expected) in [
        // The floor: one IO in 100 goes by shares.
        (250, [124, 124, 2]),
        (500, [248, 248, 5]),
        (700, [250, 250, 200]),
        (875, [250, 250, 375]),
        (1200, [250, 380, 570]),
        (1500, [250, 500, 750]),
        (2000, [333, 667, 1000]),
        (2500, [500, 1000, 1000]),
        (3000, [667, 1333, 1000]),
    ] {
        let mut bench = Bench::mclock(capacity);
        let disks = [policy(100, 250, 0), policy(200, 250, 0), policy(300, 0, 1000)];
        for disk in disks {
            bench.busy(disk);
        }
        bench.run(secs(2));
        let got = bench.rates(20);
        assert_rates(&got, &expected, 1);
        if capacity > 500 {
            let ideal: Vec<u64> = water_fill(&disks, Iops::new(capacity).unwrap())
                .into_iter()
                .map(|c| (c.as_millionths() + 500_000) / 1_000_000)
                .collect();
            assert_rates(&got, &ideal, 1);
        }
    }
}

/// Figure 4: a limit on a batch job gives interactive disks their latency back.
#[test]
fn a_limit_on_one_disk_helps_the_latency_of_others() {
    let mut bench = Bench::mclock(1_300);
    let oltp = bench.deep(policy(200, 0, 0), 16);
    let mining = bench.deep(policy(100, 0, 0), 32);
    bench.run(secs(5));
    bench.take_latency(oltp, 1);
    let before = bench.run(secs(20));
    let slow = bench.take_latency(oltp, before[oltp]);
    bench.set(mining, policy(100, 0, 300));
    bench.run(secs(2));
    bench.take_latency(oltp, 1);
    bench.take_latency(mining, 1);
    let after = bench.run(secs(20));
    let fast = bench.take_latency(oltp, after[oltp]);
    assert_rates(&[after[mining] / 20], &[300], 1);
    assert!(after[oltp] >= before[oltp], "{before:?} {after:?}");
    assert!(fast.0 * 10 <= slow.0 * 9, "{slow} {fast}");
    let little = millis(32_000 / 300);
    let latency = bench.take_latency(mining, after[mining]);
    assert!(latency.0.abs_diff(little.0) < little.0 / 20, "{latency} instead of {little}");
}

/// Figure 5: limits bind as disks join, the rest goes by shares.
#[test]
fn figure_5_limits_hold_while_disks_join() {
    let mut bench = Bench::mclock(1_600);
    bench.busy(policy(1, 0, 0));
    assert_rates(&bench.rates(10), &[1600], 0);
    bench.busy(policy(1, 0, 400));
    bench.run(secs(1));
    assert_rates(&bench.rates(10), &[1200, 400], 1);
    let third = bench.busy(policy(2, 0, 500));
    bench.run(secs(1));
    bench.take_dispatches(third);
    assert_rates(&bench.rates(10), &[700, 400, 500], 1);
    let times = bench.take_dispatches(third);
    for (i, start) in times.iter().enumerate() {
        let in_window = times[i..].iter().take_while(|t| **t < *start + SECOND).count();
        assert!(in_window <= 501, "{in_window} within a second");
    }
}

/// Figure 6: five disks join one by one, two have reservations, and the storage slows as they do.
#[test]
fn figure_6_reservations_hold_under_mclock_and_break_under_sfq() {
    let disks =
        [policy(1, 300, 0), policy(1, 250, 0), policy(2, 0, 0), policy(2, 0, 0), policy(2, 0, 0)];
    let speeds = [1680, 1590, 1490, 1430, 1320];
    for (kind, expected) in [
        (
            SchedulerKind::MClock,
            [
                vec![1680],
                vec![795, 795],
                vec![372, 372, 745],
                vec![300, 250, 440, 440],
                vec![300, 250, 257, 257, 257],
            ],
        ),
        (
            SchedulerKind::Sfq,
            [
                vec![1680],
                vec![795, 795],
                vec![372, 372, 745],
                vec![238, 238, 477, 477],
                vec![165, 165, 330, 330, 330],
            ],
        ),
    ] {
        let mut bench = Bench::new(kind, unit(), speeds[0]);
        for (disk, (speed, expected)) in disks.iter().zip(speeds.iter().zip(expected)) {
            bench.set_rate(*speed);
            bench.busy(*disk);
            bench.run(secs(1));
            let got = bench.rates(20);
            assert_rates(&got, &expected, 1);
        }
        if kind == SchedulerKind::MClock {
            for _ in 0..4 {
                let five = bench.run(secs(5));
                assert!(
                    five[0] >= 5 * 300 - 2 && five[1] >= 5 * 250 - 2,
                    "{five:?} in five seconds"
                );
            }
        }
    }
}

/// The same on storage whose every request takes another time, and whose speed wanders by a third
/// from second to second.
#[test]
fn figure_6_holds_on_storage_that_fluctuates() {
    let mut bench = Bench::mclock(1_320).jitter();
    for disk in
        [policy(1, 300, 0), policy(1, 250, 0), policy(2, 0, 0), policy(2, 0, 0), policy(2, 0, 0)]
    {
        bench.busy(disk);
    }
    bench.run(secs(2));
    let speeds = [1_320, 1_000, 1_700, 1_100, 1_500, 900, 1_600];
    for round in 0..12 {
        let mut five = vec![0; 5];
        for second in 0..5 {
            bench.set_rate(speeds[(round * 5 + second) % speeds.len()]);
            for (total, n) in five.iter_mut().zip(bench.run(secs(1))) {
                *total += n;
            }
        }
        assert!(
            five[0] * 100 >= 1_500 * 98 && five[1] * 100 >= 1_250 * 98,
            "{five:?} in five seconds"
        );
        let rest = (five[2] + five[3] + five[4]) / 3;
        assert_rates(&five[2..], &[rest; 3], 1);
    }
}

/// Table 4: by Little's law a reservation is a bound on latency.
#[test]
fn table_4_reservations_bound_latency() {
    let mut bench = Bench::mclock(2_045);
    for shares in [1, 1, 2, 2] {
        bench.busy(policy(shares, 1, 0));
    }
    bench.run(secs(2));
    assert_rates(&bench.rates(20), &[341, 341, 682, 682], 1);
    // 32 outstanding at 65 ms are 492 IOPS; 512 asks for a little more than there is.
    let mut bench = Bench::mclock(2_030);
    for shares in [1, 1, 2, 2] {
        bench.busy(policy(shares, 512, 0));
    }
    bench.run(secs(2));
    for client in 0..4 {
        bench.take_latency(client, 1);
    }
    let served = bench.run(secs(20));
    for (client, served) in served.into_iter().enumerate() {
        assert_rates(&[served / 20], &[507], 1);
        let latency = bench.take_latency(client, served);
        assert!((millis(60)..millis(66)).contains(&latency), "{latency}");
    }
}

/// Table 5: credit earned by idling shortens bursts and leaves the others' throughput alone.
#[test]
fn table_5_burst_credit_cuts_the_latency_of_bursts() {
    let mut latencies = Vec::new();
    for credit in [0, 1, 16, 64, 128, 256] {
        let mut bench = Bench::mclock(2_730).window(8);
        let burst = Burst::new(credit).unwrap();
        let bursty = bench.add(
            policy(1, 0, 0).with_burst(burst),
            Client::Bursts { requests: 128, every: millis(400) },
        );
        let steady = bench.busy(policy(1, 0, 0));
        let reserved = bench.busy(policy(1, 100, 100));
        bench.run(secs(2));
        bench.start(bursty);
        bench.run(secs(2));
        bench.take_latency(bursty, 1);
        let served = bench.run(secs(40));
        assert_rates(&[served[bursty] / 40], &[320], 2);
        assert_rates(&[served[steady] / 40], &[2730 - 320 - 100], 2);
        assert_rates(&[served[reserved] / 40], &[100], 1);
        latencies.push(bench.take_latency(bursty, served[bursty]));
    }
    // The published 49 ms at one IO of credit and 30.8 ms at 64; 46.5, 29.3 and 23.4 (at 128) by
    // the formula.
    assert!((millis(43)..millis(53)).contains(&latencies[1]), "{latencies:?}");
    assert!((millis(27)..millis(34)).contains(&latencies[3]), "{latencies:?}");
    assert!((millis(22)..millis(28)).contains(&latencies[4]), "{latencies:?}");
    assert!(latencies.is_sorted_by(|a, b| a >= b), "{latencies:?}");
}

/// Figure 8, the storage side: two databases keep their minimum when a third machine joins.
#[test]
fn figure_8_databases_keep_their_minimum() {
    let disks = [policy(2, 500, 0), policy(1, 500, 0), policy(1, 1, 0)];
    let mut bench = Bench::mclock(1_150);
    disks.iter().for_each(|disk| _ = bench.busy(*disk));
    bench.run(secs(2));
    assert_rates(&bench.rates(20), &[500, 500, 150], 1);
    let mut bench = Bench::new(SchedulerKind::Sfq, unit(), 1_150);
    disks.iter().for_each(|disk| _ = bench.busy(*disk));
    bench.run(secs(2));
    assert_rates(&bench.rates(20), &[575, 287, 287], 1);
}

/// Section 3.2.2: a disk of large requests pays for them.
#[test]
fn large_requests_are_charged_by_size() {
    let config = Config { cost_model: CostModel::default(), ..Config::default() };
    let mut bench = Bench::new(SchedulerKind::MClock, config, 1_000);
    let small = bench.busy(policy(1, 0, 0));
    let large = bench.busy(policy(1, 0, 0));
    bench.size(small, 4 << 10);
    bench.size(large, 1 << 20);
    bench.run(secs(1));
    let got = bench.run(secs(50));
    // 4.413 to 1.0133.
    assert_rates(&[got[small] * 1_000 / got[large]], &[4_355], 1);
}
