//! What the statistics of a disk promise.

use headgate_stats::{
    COST_OF_ONE_IO, DiskStats, Interval, Latency, NEAR, Op, Outcome, Phase, Rates,
};
use headgate_units::{Bytes, Iops, Nanos};
use proptest::prelude::*;

const START: Nanos = Nanos::from_secs(500);
const FOUR_K: Bytes = Bytes::from_kib(4);

/// One request from arrival to completion.
fn serve(
    stats: &mut DiskStats,
    arrived: Nanos,
    op: Op,
    offset: u64,
    bytes: Bytes,
    queue: Nanos,
    device: Nanos,
) {
    stats.on_arrival(arrived, op, offset, bytes);
    stats.on_dispatch(arrived + queue, op, queue, Phase::Weight, COST_OF_ONE_IO);
    let latency = Latency { device, total: queue + device };
    stats.on_complete(arrived + queue + device, op, bytes, latency, Outcome::Done);
}

#[test]
fn an_interval_has_the_rates_and_latencies_of_what_happened_in_it() {
    let mut stats = DiskStats::new(START);
    let mut run = |from: u64, device: u64| {
        for i in 0..1_000 {
            let arrived = START + Nanos::from_secs(from) + Nanos::from_millis(10 * i);
            let op = if i % 4 == 0 { Op::Write } else { Op::Read };
            let (queue, device) = (Nanos::from_micros(500), Nanos::from_micros(device));
            serve(&mut stats, arrived, op, i << 30, FOUR_K, queue, device);
        }
        stats.snapshot(START + Nanos::from_secs(from + 10))
    };
    let first = run(0, 1_500);
    let second = run(10, 4_500);

    let interval = second.since(&first);
    assert_eq!(interval.length, Nanos::from_secs(10));
    assert_eq!((interval.iops, interval.reads.iops, interval.writes.iops), (100.0, 75.0, 25.0));
    assert_eq!(interval.bytes_per_sec, 409_600.0);
    assert_eq!((interval.read_fraction, interval.errors), (Some(0.75), 0));
    assert!((interval.outstanding - 0.5).abs() < 1e-9, "100 IOPS of 5 ms each");
    assert!((interval.reads.at_device - 75.0 * 0.0045).abs() < 1e-9);
    assert_eq!((interval.reads.mean_size, interval.reads.size_p90), (FOUR_K, Some(FOUR_K)));
    let (queue, device, total) = (
        interval.reads.queue.unwrap(),
        interval.reads.device.unwrap(),
        interval.reads.total.unwrap(),
    );
    for (stage, micros) in [(queue, 500), (device, 4_500), (total, 5_000)] {
        assert_eq!(stage.mean, Nanos::from_micros(micros));
        for percentile in [stage.p50, stage.p90, stage.p99, stage.p999] {
            let high = percentile.since(Nanos::from_micros(micros));
            assert!(
                percentile >= stage.mean && high.0 <= micros * 32,
                "{percentile} for {micros} us"
            );
        }
    }
    assert_eq!(first.since_start(START).reads.device.unwrap().mean, Nanos::from_micros(1_500));
}

#[test]
fn outstanding_is_weighted_by_time_and_survives_a_stepping_clock() {
    let mut stats = DiskStats::new(START);
    let before = stats.snapshot(START);
    let second = |n| START + Nanos::from_secs(n);
    (0..4).for_each(|_| stats.on_arrival(second(1), Op::Read, 0, FOUR_K));
    assert_eq!(
        stats.snapshot(second(3)).since(&before).outstanding,
        8.0 / 3.0,
        "the running ones count"
    );
    assert_eq!(stats.snapshot(second(0)).at, second(1), "no snapshot is older than what it counts");
    stats.on_arrival(second(0), Op::Read, 0, FOUR_K);
    let latency = Latency { device: Nanos(1), total: Nanos(1) };
    (0..5).for_each(|_| stats.on_complete(second(3), Op::Read, FOUR_K, latency, Outcome::Done));
    assert_eq!(stats.outstanding(), 0);
    assert_eq!(stats.snapshot(second(10)).since(&before).outstanding, 1.0);
    stats.on_complete(second(10), Op::Read, FOUR_K, latency, Outcome::Done);
    assert_eq!(stats.outstanding(), 0, "one completion too many is no reason to die");
}

#[test]
fn what_is_taken_back_was_outstanding_and_counts_for_nothing_else() {
    let mut stats = DiskStats::new(START);
    let before = stats.snapshot(START);
    for op in [Op::Read, Op::Write, Op::Flush] {
        stats.on_arrival(START, op, 0, FOUR_K);
        stats.on_withdraw(START + Nanos::from_secs(1), op, FOUR_K);
    }
    let snapshot = stats.snapshot(START + Nanos::from_secs(1));
    assert_eq!(snapshot.outstanding, 0);
    assert_eq!(snapshot.since(&before).outstanding, 1.0);
    assert_eq!((snapshot.reads.sizes, snapshot.reads.counts), Default::default());
    assert_eq!((snapshot.writes.sizes, snapshot.writes.counts), Default::default());
    stats.on_withdraw(START + Nanos::from_secs(2), Op::Read, FOUR_K);
    assert_eq!(stats.outstanding(), 0, "one too many is no reason to die");
}

#[test]
fn failures_count_as_errors_and_nowhere_else() {
    let mut stats = DiskStats::new(START);
    let latency = Latency { device: Nanos::ZERO, total: Nanos::ZERO };
    for op in [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes, Op::Other] {
        stats.on_arrival(START, op, 0, FOUR_K);
        stats.on_complete(START, op, FOUR_K, latency, Outcome::Failed);
    }
    let snapshot = stats.snapshot(START + Nanos::from_secs(1));
    let interval = snapshot.since_start(START);
    assert_eq!((interval.errors, interval.iops, interval.bytes_per_sec), (6, 0.0, 0.0));
    assert_eq!((interval.reads.total, interval.read_fraction), (None, None));
}

#[test]
fn a_time_without_requests_is_still() {
    let mut stats = DiskStats::new(START);
    serve(&mut stats, START, Op::Read, 0, FOUR_K, Nanos(1), Nanos(1));
    let second = Nanos::from_secs(1);
    let before = stats.snapshot(START + second);
    let after = stats.snapshot(START + second + second);
    assert_eq!(after.since(&before), Interval::still(second));
    assert_eq!(after.rates_since(&before), Rates::still(second));
    // Its reading from before serves as well, with the time beside it.
    assert_eq!(before.since_over(&before, second), Interval::still(second));
    assert_eq!(before.rates_over(&before, second), Rates::still(second));
}

#[test]
fn only_reads_and_writes_move_bytes_and_heads() {
    let mut stats = DiskStats::new(START);
    for op in [Op::Flush, Op::Discard, Op::WriteZeroes, Op::Other] {
        serve(&mut stats, START, op, 1 << 40, Bytes::from_gib(1), Nanos(1), Nanos(1));
    }
    let snapshot = stats.snapshot(START + Nanos::from_millis(900));
    let interval = snapshot.since_start(START);
    assert_eq!((interval.bytes_per_sec, interval.sequential_fraction), (0.0, None));
    assert_eq!((snapshot.discards.bytes, snapshot.write_zeroes.bytes), (1 << 30, 1 << 30));
    assert!((interval.iops - 4.0 / 0.9).abs() < 1e-9, "{}", interval.iops);
}

#[test]
fn sequential_streams_show_and_random_ones_do_not() {
    let share = |offset: fn(u64) -> u64| {
        let mut stats = DiskStats::new(START);
        (0..1_000).for_each(|i| {
            serve(&mut stats, START, Op::Read, offset(i), FOUR_K, Nanos(1), Nanos(1))
        });
        stats.snapshot(START).since_start(START).sequential_fraction.unwrap()
    };
    assert_eq!(share(|i| i * 4_096), 1.0);
    assert_eq!(share(|i| i * (4_096 + NEAR)), 1.0);
    assert_eq!(share(|i| i * (4_096 + NEAR + 1)), 0.0);
    assert!(share(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) < 0.01);
}

#[test]
fn promises_are_measured_in_normalised_ios_of_both_phases() {
    let mut stats = [DiskStats::new(START), DiskStats::new(START)];
    for i in 0..300u64 {
        let at = START + Nanos::from_millis(i * 10);
        stats[0].on_dispatch(at, Op::Read, Nanos(1), Phase::Reservation, 2 * COST_OF_ONE_IO);
        stats[1].on_dispatch(at, Op::Write, Nanos(1), Phase::Weight, COST_OF_ONE_IO);
    }
    let end = START + Nanos::from_secs(3);
    let [first, second] = stats.map(|disk| disk.snapshot(end));
    let mut all = first.clone();
    all.merge(&second);
    let began = DiskStats::new(START).snapshot(START);
    let rates = [&first, &all].map(|one| one.rates_since(&began));
    let (first, all) = (first.since_start(START), all.since_start(START));
    assert_eq!(
        (first.reservation_iops, first.weight_iops, first.normalised_iops),
        (100.0, 0.0, 200.0)
    );
    assert_eq!(rates[0].achieved_reservation(Iops::new(250).unwrap()), 0.8);
    assert_eq!((all.reservation_iops, all.weight_iops, all.normalised_iops), (100.0, 100.0, 300.0));
    let share = rates[0].achieved_share(1.0 / 3.0, &rates[1]).unwrap();
    assert!((share - 2.0).abs() < 1e-9, "two thirds where one third was promised");
    let nobody = DiskStats::new(START).snapshot(end).rates_since(&began);
    let nothing = rates[1].achieved_share(1.0, &nobody);
    assert_eq!(nothing, None);
}

#[test]
fn memory_stays_within_its_bound() {
    let mut stats = DiskStats::new(START);
    assert!(stats.memory() < 3 << 10, "{} bytes idle", stats.memory());
    for op in [Op::Read, Op::Write] {
        for exponent in 0..60 {
            serve(
                &mut stats,
                START,
                op,
                1 << exponent,
                Bytes(1 << exponent),
                Nanos(1 << exponent),
                Nanos::MAX,
            );
        }
    }
    assert!(stats.memory() < 48 << 10, "{} bytes busy", stats.memory());
}

#[test]
fn a_snapshot_serialises_and_an_interval_comes_back() {
    let mut stats = DiskStats::new(START);
    serve(&mut stats, START, Op::Read, 0, FOUR_K, Nanos::from_micros(10), Nanos::from_micros(90));
    let snapshot = stats.snapshot(START + Nanos::from_secs(1));
    let json = serde_json::to_value(&snapshot).unwrap();
    assert_eq!(json["reads"]["done"], 1);
    assert_eq!(json["reads"]["total"][0][1], 1);
    let interval = snapshot.since_start(START);
    let text = serde_json::to_string(&interval).unwrap();
    assert_eq!(serde_json::from_str::<headgate_stats::Interval>(&text).unwrap(), interval);
}

#[derive(Clone, Debug)]
struct Request {
    gap: u64,
    op: Op,
    offset: u64,
    bytes: u64,
    queue: u64,
    device: u64,
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let op = prop::sample::select(vec![Op::Read, Op::Write, Op::Flush, Op::Discard]);
    let request = (0..1_000_000_000u64, op, any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    let request = request.prop_map(|(gap, op, offset, bytes, queue, device)| Request {
        gap,
        op,
        offset,
        bytes,
        queue: queue >> 20,
        device: device >> 20,
    });
    prop::collection::vec(request, 0..60)
}

fn feed(stats: &mut DiskStats, now: &mut Nanos, requests: &[Request]) {
    for r in requests {
        *now += Nanos(r.gap);
        serve(stats, *now, r.op, r.offset, Bytes(r.bytes), Nanos(r.queue), Nanos(r.device));
    }
}

proptest! {
    /// Whatever the values: nothing panics, and the difference of two snapshots is what a fresh
    /// disk would have counted.
    #[test]
    fn later_less_earlier_is_what_happened_between(before in requests(), between in requests()) {
        let (mut stats, mut fresh) = (DiskStats::new(START), DiskStats::new(START));
        let mut now = START;
        feed(&mut stats, &mut now, &before);
        let earlier = stats.snapshot(now);
        let mut fresh_now = now;
        feed(&mut stats, &mut now, &between);
        feed(&mut fresh, &mut fresh_now, &between);
        let difference = stats.snapshot(now).difference(&earlier);
        let alone = fresh.snapshot(fresh_now);
        for (ours, theirs) in [(&difference.reads, &alone.reads), (&difference.writes, &alone.writes)] {
            prop_assert_eq!(&ours.sizes, &theirs.sizes);
            prop_assert_eq!(&ours.queue, &theirs.queue);
            prop_assert_eq!(&ours.total, &theirs.total);
            prop_assert_eq!(ours.counts.done, theirs.counts.done);
        }
        prop_assert_eq!(difference.flushes.done, alone.flushes.done);
        prop_assert_eq!(difference.served, alone.served);

        let mut merged = earlier.clone();
        merged.merge(&alone);
        prop_assert_eq!(merged.reads.total, stats.snapshot(now).reads.total);
    }
}
