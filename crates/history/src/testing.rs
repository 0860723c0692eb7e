//! Samples of an imaginary datastore, for tests.

use headgate_model::Name;
use headgate_model::{DatastoreSample, DiskSample, Policy};
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
