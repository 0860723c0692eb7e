//! What the statistics cost: `cargo bench -p headgate-stats`.

use headgate_stats::{COST_OF_ONE_IO, DiskStats, Latency, LatencyHistogram, Op, Outcome, Phase};
use headgate_units::{Bytes, Nanos};
use std::hint::black_box;
use std::time::Instant;

const REQUESTS: u64 = 1_000_000;
const ROUNDS: usize = 15;

/// Median, least and greatest nanoseconds per turn.
fn measure(turns: u64, mut work: impl FnMut()) -> (f64, f64, f64) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            #[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
            let start = Instant::now();
            work();
            start.elapsed().as_nanos() as f64 / turns as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    (rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1])
}

fn print(what: &str, (median, least, greatest): (f64, f64, f64)) {
    println!("{what:<58} {median:>9.1} ns  ({least:.1} to {greatest:.1})");
}

/// Latencies over three decades.
fn latency(i: u64) -> Nanos {
    let scattered = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Nanos(20_000 + (scattered >> 40 >> (scattered % 10)))
}

fn one_request(stats: &mut DiskStats, i: u64) {
    let now = Nanos(i * 2_000);
    let op = if i.is_multiple_of(4) { Op::Write } else { Op::Read };
    let (queue, device) = (latency(i), latency(i + 1));
    stats.on_arrival(now, op, i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24, Bytes::from_kib(4));
    stats.on_dispatch(now, op, queue, Phase::Weight, COST_OF_ONE_IO);
    stats.on_complete(
        now,
        op,
        Bytes::from_kib(4),
        Latency { device, total: queue + device },
        Outcome::Done,
    );
}

fn main() {
    let mut stats = DiskStats::new(Nanos::ZERO);
    print(
        "a request: arrival, dispatch, completion (one disk)",
        measure(REQUESTS, || (0..REQUESTS).for_each(|i| one_request(&mut stats, black_box(i)))),
    );
    let mut many = vec![DiskStats::new(Nanos::ZERO); 100];
    print(
        "the same over 100 disks in turn",
        measure(REQUESTS, || {
            (0..REQUESTS).for_each(|i| one_request(&mut many[(i % 100) as usize], black_box(i)))
        }),
    );
    print(
        "a snapshot of a busy disk",
        measure(1_000, || (0..1_000).for_each(|_| _ = black_box(stats.snapshot(Nanos(0))))),
    );
    let (earlier, later) = (many[0].snapshot(Nanos(0)), stats.snapshot(Nanos(1 << 40)));
    print(
        "an interval of two snapshots",
        measure(1_000, || (0..1_000).for_each(|_| _ = black_box(later.since(&earlier)))),
    );

    let mut ours = LatencyHistogram::new();
    print(
        "one latency, LatencyHistogram",
        measure(REQUESTS, || (0..REQUESTS).for_each(|i| ours.record(latency(black_box(i))))),
    );
    #[expect(clippy::unwrap_used, reason = "constant bounds")]
    let mut theirs = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 100_000_000, 2).unwrap();
    print(
        "one latency in us, hdrhistogram, 2 digits",
        measure(REQUESTS, || {
            (0..REQUESTS).for_each(|i| theirs.saturating_record(latency(black_box(i)).0 / 1_000))
        }),
    );
    print(
        "a snapshot, LatencyHistogram",
        measure(1_000, || (0..1_000).for_each(|_| _ = black_box(ours.snapshot()))),
    );
    print(
        "a snapshot (clone), hdrhistogram",
        measure(1_000, || (0..1_000).for_each(|_| _ = black_box(theirs.clone()))),
    );

    println!();
    println!("bytes, an idle disk: {}", DiskStats::new(Nanos::ZERO).memory());
    println!("bytes, a disk that reads and writes: {}", stats.memory());
    println!("bytes, LatencyHistogram: {}", size_of::<LatencyHistogram>());
    println!("bytes, hdrhistogram: {}", theirs.distinct_values() * 8 + size_of_val(&theirs));
}
