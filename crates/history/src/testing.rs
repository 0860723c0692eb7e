//! Samples of an imaginary datastore, for tests.

use headgate_model::Name;
use headgate_model::{DatastoreSample, DiskSample, Policy};
use headgate_placement::WorkloadProfile;
use headgate_qos::window::Slots;
use headgate_stats::{COST_OF_ONE_IO, DiskStats, Latency, Op, Outcome, Phase};
use headgate_units::{Bytes, Nanos};
use std::sync::Arc;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// The sample of a datastore with these disks after `second` seconds: each has read `iops` times
/// per second, 2 ms each.
pub fn sample(second: u64, iops: &[(&str, u64)]) -> Arc<Vec<DatastoreSample>> {
    waiting(second, iops, Nanos::ZERO, Slots::whole(32))
}

/// The same; each request waited for a window before.
pub fn waiting(
    second: u64,
    iops: &[(&str, u64)],
    wait: Nanos,
    window: Slots,
) -> Arc<Vec<DatastoreSample>> {
    let mut whole = DiskStats::new(Nanos::ZERO).snapshot(Nanos::from_secs(second));
    let disks: Vec<DiskSample> = iops
        .iter()
        .map(|&(disk, iops)| {
            let mut stats = DiskStats::new(Nanos::ZERO);
            let took = Nanos::from_millis(2);
            for n in 0..second * iops {
                let at = Nanos(n * 1_000_000_000 / iops);
                stats.on_arrival(at, Op::Read, n * 7919 % 1_000 * (1 << 20), Bytes(4096));
                stats.on_dispatch(at, Op::Read, wait, Phase::Weight, COST_OF_ONE_IO);
                let latency = Latency { device: took, total: wait + took };
                stats.on_complete(at + took, Op::Read, Bytes(4096), latency, Outcome::Done);
            }
            let stats = stats.snapshot(Nanos::from_secs(second));
            whole.merge(&stats);
            DiskSample::new(name(disk), Policy::default(), stats)
        })
        .collect();
    let fresh = DatastoreSample::fresh(name("array"), disks);
    let store = DatastoreSample { window, stats: whole, ..fresh };
    Arc::new(vec![store])
}

/// Samples of a datastore with one disk, `a`, five seconds apart. In each interval it keeps so many
/// requests outstanding, in whole ones and anywhere on the disk, and each takes so long.
pub fn alone(intervals: &[(WorkloadProfile, Nanos)]) -> Vec<Arc<Vec<DatastoreSample>>> {
    let mut stats = DiskStats::new(Nanos::ZERO);
    let sample = |stats: &DiskStats, at: Nanos| {
        let stats = stats.snapshot(at);
        let disk = DiskSample::new(name("a"), Policy::default(), stats.clone());
        let fresh = DatastoreSample::fresh(name("array"), vec![disk]);
        Arc::new(vec![DatastoreSample { window: Slots::whole(256), stats, ..fresh }])
    };
    let mut now = Nanos::from_secs(1);
    let mut samples = vec![sample(&stats, now)];
    for &(WorkloadProfile { outstanding, size, read, .. }, took) in intervals {
        let end = now + Nanos::from_secs(5);
        let count = u64::from(outstanding.as_thousandths() / 1_000);
        let reads = count * u64::from(read.0) / 1_000;
        let op = |n| if n < reads { Op::Read } else { Op::Write };
        let ops: Vec<(Op, u64)> = (0..count).map(|n| (op(n), n)).collect();
        let latency = Latency { device: took, total: took };
        while now + took <= end {
            for &(op, n) in &ops {
                let anywhere = (now.0 / 1_000 + n * 7_919) * 7_907 % 100_000 * (1 << 20);
                stats.on_arrival(now, op, anywhere, size);
                stats.on_dispatch(now, op, Nanos::ZERO, Phase::Weight, COST_OF_ONE_IO);
            }
            now += took;
            for &(op, _) in &ops {
                stats.on_complete(now, op, size, latency, Outcome::Done);
            }
        }
        now = end;
        samples.push(sample(&stats, now));
    }
    samples
}
