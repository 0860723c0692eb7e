//! What every disk is promised, at the ends of every range.

use crate::common::*;
use headgate_qos::{
    Adjustment, Batch, Config, CostModel, Decision, DiskId, Io, MClock, Phase, Policy, Scheduler,
    SchedulerKind,
};
use headgate_units::{Bytes, BytesPerSec, Nanos};

#[test]
fn seven_iops_are_exactly_seven_iops() {
    let mut bench = Bench::mclock(1_000);
    let slow = bench.busy(policy(1, 0, 7));
    bench.busy(policy(3, 0, 0));
    bench.run(secs(100));
    assert_eq!(bench.run(secs(300))[slow], 7 * 300);
    // The same with a reservation at the limit.
    bench.set(slow, policy(1, 7, 7));
    bench.run(secs(100));
    assert_eq!(bench.run(secs(300))[slow], 7 * 300);
}

#[test]
fn one_io_per_second_for_a_day_after_a_year_of_uptime() {
    let mut scheduler = MClock::new(unit()).unwrap();
    let mut now = secs(365 * 86_400);
    let disk = scheduler.register(now, policy(1, 1, 1));
    let start = now;
    let mut served = 0;
    scheduler.enqueue(now, disk, Io::default(), ()).unwrap();
    while now < start + secs(86_400) {
        match scheduler.dispatch(now) {
            Decision::Dispatch(d) => {
                served += 1;
                scheduler.complete(now, d.disk);
                scheduler.enqueue(now, disk, Io::default(), ()).unwrap();
            }
            Decision::WaitUntil(at) => now = at,
            Decision::Idle => panic!("a request is queued"),
        }
    }
    assert_eq!(served, 86_400);
}

/// 10,000 reference IOs in one request.
fn dear() -> (Config, u64) {
    let cost_model = CostModel::Affine { reference: Bytes(512) };
    (Config { cost_model, ..Config::default() }, 512 * 9_999)
}

#[test]
fn a_request_that_costs_ten_thousand_keeps_its_limit_and_its_share() {
    let (config, bytes) = dear();
    let mut bench = Bench::new(SchedulerKind::MClock, config, 1_000);
    let large = bench.deep(policy(1, 0, 100), 2);
    bench.size(large, bytes);
    bench.busy(policy(1, 0, 0));
    bench.run(secs(150));
    // 100 seconds of limit each.
    assert_eq!(bench.run(secs(1_000))[large], 10);

    let mut bench = Bench::new(SchedulerKind::MClock, config, 1_000);
    let large = bench.add(policy(3, 0, 0), Client::Closed { outstanding: 2 });
    bench.size(large, bytes);
    let small = bench.busy(policy(1, 0, 0));
    bench.start(large);
    bench.run(secs(10));
    let got = bench.run(secs(100));
    // Three times the cost: 29,998 small requests for every nine large ones.
    let (large, small) = (got[large] * 10_000, got[small]);
    assert!(large.abs_diff(3 * small) <= 3 * 10_000, "{got:?}");
}

#[test]
fn a_megabyte_on_a_disk_of_ten_iops() {
    let config = Config::default();
    for (reservation, limit) in [(0, 10), (10, 10)] {
        let mut bench = Bench::new(SchedulerKind::MClock, config, 100);
        let large = bench.deep(policy(1, reservation, limit), 4);
        bench.size(large, 1 << 20);
        bench.busy(policy(1, 0, 0));
        bench.run(secs(10));
        let got = bench.run(secs(1_000))[large];
        // 10 / 4.4133 per second.
        assert!(got.abs_diff(2_266) <= 2, "reservation {reservation}: {got}");
    }
}

#[test]
fn shares_are_exact_beside_reservations_at_every_cost() {
    for bytes in [0u64, 64 << 10, 1 << 20, 16 << 20] {
        let mut bench = Bench::new(SchedulerKind::MClock, Config::default(), 1_000);
        // A third of its share is reserved: it must not get that on top.
        for disk in [policy(1, 300, 0), policy(2, 0, 0), policy(1, 100, 0)] {
            let client = bench.busy(disk);
            bench.size(client, bytes);
        }
        bench.run(secs(100));
        let got = bench.run(secs(200));
        let total: u64 = got.iter().sum();
        let cost = 1.0 + bytes as f64 / 307_200.0;
        // Reservations of 300 and 100 reference IOs are more requests' worth than the storage gives
        // for large requests.
        if cost < 2.0 {
            let reserved = ((300.0 / cost * 200.0) as u64).max(total / 4);
            let rest = total - reserved;
            assert_rates(&got, &[reserved, rest * 2 / 3, rest / 3], 1);
        } else {
            assert_rates(&got, &[total / 4, total / 2, total / 4], 1);
        }
    }
}

#[test]
fn large_and_small_requests_of_one_disk_are_charged_alike_in_both_phases() {
    // One request of 100 IOs in ten: the lead follows what the disk itself sends.
    let config =
        Config { cost_model: CostModel::Chunks { reference: Bytes(4_096) }, ..Config::default() };
    let mut scheduler = MClock::new(config).unwrap();
    let mixed = scheduler.register(Nanos(0), policy(1, 200, 0));
    let plain = scheduler.register(Nanos(0), policy(2, 0, 0));
    let mut sent = 0u64;
    let mut now = secs(1);
    let mut ask = |scheduler: &mut MClock<()>, now, disk| {
        sent += 1;
        let bytes =
            Bytes(if disk == mixed && sent.is_multiple_of(20) { 100 * 4_096 } else { 4_096 });
        scheduler.enqueue(now, disk, Io { bytes, ..Io::default() }, ()).unwrap();
    };
    for _ in 0..8 {
        ask(&mut scheduler, now, mixed);
        ask(&mut scheduler, now, plain);
    }
    // 1,200 reference IOs per second: a third is twice the reservation.
    let mut costs = [0u64; 2];
    while now < secs(200) {
        let Decision::Dispatch(d) = scheduler.dispatch(now) else { panic!("requests are queued") };
        costs[usize::from(d.disk == plain)] += d.cost.as_millionths();
        now += Nanos(d.cost.as_millionths() * 1_000 / 1_200);
        ask(&mut scheduler, now, d.disk);
    }
    let part = costs[0] * 1_000 / (costs[0] + costs[1]);
    assert!((330..=337).contains(&part), "{part} in a thousand of the cost, not a third");
}

#[test]
fn iops_and_bandwidth_limits_bind_together() {
    let bandwidth = |mib: u64| BytesPerSec::new(mib << 20).ok();
    let mut bench = Bench::mclock(10_000);
    let a = bench.busy(policy(1, 0, 1_000).with_limit_bandwidth(bandwidth(10)));
    let b = bench.busy(policy(1, 0, 1_000).with_limit_bandwidth(bandwidth(10)));
    bench.size(a, 64 << 10);
    bench.size(b, 4 << 10);
    bench.run(secs(1));
    // 10 MiB/s are 160 of 64 KiB; of 4 KiB they would be 2,560.
    let got = bench.run(secs(100));
    assert!(got[a].abs_diff(16_000) <= 1 && got[b].abs_diff(100_000) <= 1, "{got:?}");
    // A bandwidth limit binds reservations too, and the others do not pay for the reservation it
    // keeps from being met.
    let mut bench = Bench::mclock(1_000);
    let held = bench.busy(policy(1, 600, 0).with_limit_bandwidth(bandwidth(1)));
    bench.size(held, 64 << 10);
    let other = bench.busy(policy(1, 700, 0));
    bench.busy(policy(9, 0, 0));
    bench.run(secs(2));
    let got = bench.run(secs(20));
    assert!(got[held].abs_diff(320) <= 1, "{got:?}");
    assert!(got[other] >= 14_000 - 2, "{got:?}");
}

/// Dispatches of `disks` disks with `queued` requests each, 64 KiB apart, as disk numbers.
fn batched(batch: Option<Batch>, policies: &[Policy], queued: u64, apart: u64) -> Vec<usize> {
    let mut scheduler = MClock::new(Config { batch, ..unit() }).unwrap();
    let disks: Vec<DiskId> = policies.iter().map(|p| scheduler.register(Nanos(0), *p)).collect();
    for i in 0..queued {
        for disk in &disks {
            let io = Io { bytes: Bytes(65_536), position: (1 << 30) + i * apart, ..Io::default() };
            scheduler.enqueue(Nanos(0), *disk, io, ()).unwrap();
        }
    }
    std::iter::from_fn(|| match scheduler.dispatch(Nanos(0)) {
        Decision::Dispatch(d) => disks.iter().position(|disk| *disk == d.disk),
        _ => None,
    })
    .collect()
}

#[test]
fn near_requests_go_back_to_back_up_to_eight() {
    let two = [policy(1, 0, 0), policy(1, 0, 0)];
    let near = batched(Some(Batch::default()), &two, 20, 65_536);
    assert_eq!(near[..32], [[0; 8], [1; 8], [0; 8], [1; 8]].concat());
    // Far requests alternate, with or without.
    let far = batched(Some(Batch::default()), &two, 20, 4 << 20);
    assert_eq!(far[..4], [0, 1, 0, 1]);
    assert_eq!(batched(None, &two, 20, 65_536)[..4], [0, 1, 0, 1]);
    // Four within the span, then it is the other's turn.
    let span = batched(Some(Batch::default()), &two, 20, 1 << 20);
    assert_eq!(span[..8], [0, 0, 0, 0, 1, 1, 1, 1]);
}

/// Who is served next, `n` times, at one instant.
fn next(scheduler: &mut MClock<()>, disks: &[DiskId], n: usize) -> Vec<usize> {
    let served = |_| match scheduler.dispatch(Nanos(0)) {
        Decision::Dispatch(choice) => disks.iter().position(|disk| *disk == choice.disk).unwrap(),
        other => panic!("{other:?}"),
    };
    (0..n).map(served).collect()
}

#[test]
fn batches_begin_and_end_while_disks_are_served() {
    let mut scheduler = MClock::new(unit()).unwrap();
    let register = |_| scheduler.register(Nanos(0), policy(1, 0, 0));
    let disks: Vec<DiskId> = (0..2).map(register).collect();
    for i in 0..64 {
        for disk in &disks {
            let io = Io { bytes: Bytes(4_096), position: i * 4_096, ..Io::default() };
            scheduler.enqueue(Nanos(0), *disk, io, ()).unwrap();
        }
    }
    assert_eq!(next(&mut scheduler, &disks, 4), [0, 1, 0, 1]);
    let batch = |batch| Adjustment { plug: Nanos::ZERO, batch };
    scheduler.adjust(batch(Some(Batch { requests: 4, ..Batch::default() })));
    assert_eq!(next(&mut scheduler, &disks, 10), [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]);
    // The batch that is under way ends, too, and what it had beyond its share is made up for.
    scheduler.adjust(batch(None));
    assert_eq!(next(&mut scheduler, &disks, 6), [1, 1, 0, 1, 0, 1]);
    // Out of range is no batch.
    scheduler.adjust(batch(Some(Batch { requests: 200, ..Batch::default() })));
    assert_eq!(next(&mut scheduler, &disks, 4), [0, 1, 0, 1]);
}

#[test]
fn a_batch_stops_at_the_limit_and_pays_for_every_request() {
    let got = batched(Some(Batch::default()), &[policy(1, 0, 1), policy(1, 0, 0)], 20, 65_536);
    assert_eq!(got.iter().filter(|disk| **disk == 0).count(), 1);
    // Shares hold over batches.
    let got = batched(Some(Batch::default()), &[policy(1, 0, 0), policy(3, 0, 0)], 400, 65_536);
    let first = got[..320].iter().filter(|disk| **disk == 0).count();
    assert!((72..=88).contains(&first), "{first} of 320 instead of 80");
}

#[test]
fn a_clock_that_steps_back_or_stands_still_stops_nobody() {
    let mut scheduler = MClock::new(unit()).unwrap();
    let now = secs(1_000);
    let limited = scheduler.register(now, policy(1, 0, 100));
    let reserved = scheduler.register(now, policy(1, 100, 0));
    let plain = scheduler.register(now, policy(1, 0, 0));
    for disk in [limited, reserved, plain] {
        for _ in 0..100 {
            scheduler.enqueue(now, disk, Io::default(), ()).unwrap();
        }
    }
    let mut run = |from: Nanos, time: Nanos| {
        let mut got = [0u64; 3];
        let mut now = from;
        let end = from + time;
        while now <= end {
            if let Decision::Dispatch(d) = scheduler.dispatch(now) {
                scheduler.enqueue(now, d.disk, Io::default(), ()).unwrap();
                got[[limited, reserved, plain].iter().position(|disk| *disk == d.disk).unwrap()] +=
                    1;
            }
            now += Nanos(500_000);
        }
        got
    };
    run(now, secs(1));
    // Steps back: an hour, then to the origin. A second is a second, whatever the clock shows. A
    // step ahead looks like a stall, of which ten seconds of the reservation are owed at most: half
    // a second's work here. The limited disk then makes good for a quarter of a second at once, and
    // pauses for as long a second later, of which an eighth is forgotten: three requests.
    for from in [now - secs(900), Nanos(0), secs(1_000_000_000), Nanos(1)] {
        let got = run(from, secs(1));
        assert!(got[0] <= 102 && got[1] <= 1_000 + 1_000, "from {from}: {got:?}");
        let got = run(from + secs(1), secs(1));
        assert!(got[0] >= 96 && got[0] <= 102, "from {from}: {got:?}");
        assert!(got[1].abs_diff(got[2]) <= 300, "from {from}: {got:?}");
    }
    // Stands still: nobody with a limit beyond its slack, all the others.
    let got: u64 = (0..1_000)
        .map(|_| match scheduler.dispatch(Nanos(7)) {
            Decision::Dispatch(d) => {
                scheduler.enqueue(Nanos(7), d.disk, Io::default(), ()).unwrap();
                u64::from(d.disk == limited)
            }
            other => panic!("{other:?}"),
        })
        .sum();
    assert!(got <= 2, "{got}");
}

#[test]
fn ids_do_not_come_back_and_queued_requests_do() {
    for kind in [SchedulerKind::MClock, SchedulerKind::Sfq, SchedulerKind::Fifo] {
        let mut scheduler = headgate_qos::AnyScheduler::new(kind, Config::default()).unwrap();
        let now = secs(1);
        let gone = scheduler.register(now, policy(1, 5, 10));
        let other = scheduler.register(now, policy(1, 0, 0));
        for n in 0..10 {
            scheduler.enqueue(now, gone, Io::default(), n).unwrap();
            scheduler.enqueue(now, other, Io::default(), 100 + n).unwrap();
        }
        assert_eq!(scheduler.policy(gone), Ok(policy(1, 5, 10)), "{kind}");
        assert_eq!(scheduler.queued_of(gone), 10);
        assert_eq!(
            scheduler.extract(now, gone, &mut |n| n % 2 == 1),
            Ok(vec![1, 3, 5, 7, 9]),
            "{kind}"
        );
        assert_eq!(scheduler.unregister(now, gone), Ok(vec![0, 2, 4, 6, 8]), "{kind}");
        let new = scheduler.register(now, policy(1, 0, 0));
        assert_ne!(new, gone, "{kind}");
        let rejected = scheduler.enqueue(now, gone, Io::default(), 77).unwrap_err();
        assert_eq!(rejected.request, 77);
        assert!(scheduler.set_policy(now, gone, policy(1, 0, 0)).is_err());
        assert!(scheduler.counters(gone).is_err() && scheduler.policy(gone).is_err());
        assert!(scheduler.unregister(now, gone).is_err());
        scheduler.complete(now, gone);
        let mut order = Vec::new();
        while let Decision::Dispatch(d) = scheduler.dispatch(now) {
            assert_eq!((d.disk, d.phase), (other, Phase::Weight));
            order.push(d.request);
        }
        assert_eq!(order, (100..110).collect::<Vec<_>>(), "{kind}");
        let counters = scheduler.counters(other).unwrap();
        assert_eq!(
            (counters.by_weight, counters.queued, counters.in_flight),
            (10, 0, 10),
            "{kind}"
        );
        assert_eq!(scheduler.dispatch(now), Decision::Idle);
    }
}

#[test]
fn fifo_sends_in_order_of_arrival() {
    let mut bench = Bench::new(SchedulerKind::Fifo, unit(), 900);
    bench.deep(policy(1, 0, 10), 20);
    bench.deep(policy(8, 500, 0), 10);
    bench.run(secs(1));
    assert_rates(&bench.rates(10), &[600, 300], 1);
}

#[test]
fn wake_ups_are_told_in_the_callers_time() {
    let mut scheduler = MClock::new(unit()).unwrap();
    let disk = scheduler.register(secs(5), policy(1, 0, 4));
    for _ in 0..3 {
        scheduler.enqueue(secs(5), disk, Io::default(), ()).unwrap();
    }
    assert!(matches!(scheduler.dispatch(secs(5)), Decision::Dispatch(_)));
    assert_eq!(scheduler.dispatch(secs(5)), Decision::WaitUntil(millis(5_250)));
    assert_eq!(scheduler.dispatch(millis(5_100)), Decision::WaitUntil(millis(5_250)));
    scheduler.set_policy(millis(5_100), disk, policy(1, 0, 8)).unwrap();
    assert_eq!(scheduler.dispatch(millis(5_100)), Decision::WaitUntil(millis(5_175)));
    assert!(matches!(scheduler.dispatch(millis(5_175)), Decision::Dispatch(_)));
}

#[test]
fn a_late_timer_costs_no_throughput_below_a_limit() {
    for (limit, time) in [(1, 3_000), (7, 3_000), (1_000, 3_000), (50_000, 1_000), (1_000_000, 100)]
    {
        let mut scheduler = MClock::new(unit()).unwrap();
        let start = secs(1);
        let disk = scheduler.register(start, policy(1, 0, limit));
        let (mut now, mut served, mut late) = (start, 0u64, 0u64);
        for _ in 0..32 {
            scheduler.enqueue(now, disk, Io::default(), ()).unwrap();
        }
        while now < start + millis(time) {
            match scheduler.dispatch(now) {
                Decision::Dispatch(d) => {
                    served += 1;
                    scheduler.enqueue(now, d.disk, Io::default(), ()).unwrap();
                }
                // Up to 950 us late.
                Decision::WaitUntil(at) => {
                    late = (late + 377) % 950;
                    now = at + Nanos::from_micros(late);
                }
                Decision::Idle => panic!("requests are queued"),
            }
        }
        let slack = limit / 1_000 + 1;
        assert!(served.abs_diff(limit * time / 1_000) <= slack, "{served} in {time} ms at {limit}");
    }
}

#[test]
fn very_many_disks_let_go_at_once_are_all_served() {
    let mut scheduler = MClock::new(unit()).unwrap();
    let start = secs(1);
    for _ in 0..10_000 {
        let disk = scheduler.register(start, policy(1, 1, 1));
        for _ in 0..2 {
            scheduler.enqueue(start, disk, Io::default(), ()).unwrap();
        }
    }
    let drain = |scheduler: &mut MClock<()>, now| {
        std::iter::from_fn(|| {
            matches!(scheduler.dispatch(now), Decision::Dispatch(_)).then_some(())
        })
        .count()
    };
    assert_eq!(drain(&mut scheduler, start), 10_000);
    assert_eq!(scheduler.dispatch(start), Decision::WaitUntil(secs(2)));
    assert_eq!(drain(&mut scheduler, secs(2)), 10_000);
    assert_eq!(scheduler.dispatch(secs(2)), Decision::Idle);
}

#[test]
fn disks_with_few_requests_outstanding_get_their_reservation() {
    // A request takes 20 ms: 32 in the window at 1,600 per second. A depth of one can have 50 per
    // second at most.
    for (depth, reservation) in [(1, 30), (1, 45), (2, 90), (4, 150), (8, 330)] {
        let mut bench = Bench::mclock(1_600);
        let shallow = bench.deep(policy(1, reservation, 0), depth);
        for _ in 0..4 {
            bench.busy(policy(100, 0, 0));
        }
        bench.run(secs(2));
        let got = bench.run(secs(10));
        assert!(got[shallow] + 10 >= reservation * 10, "{reservation} at depth {depth}: {got:?}");
        assert!(got[1..].iter().all(|n| n.abs_diff(got[1]) <= 2), "{got:?}");
    }
}
