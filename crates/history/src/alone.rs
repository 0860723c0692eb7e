//! Intervals in which one disk alone was busy on its datastore: what a workload does to a device by
//! itself, which equation 1 tells.

use headgate_placement::{Held, Limits, Measurement};
use headgate_stats::Interval;

/// The others together may have this part of requests, bytes and outstanding requests: guests that
/// do nothing write a little now and then.
const OTHERS: f64 = 0.02;

/// What the intervals of a datastore's disks, each with its limits, tell of a workload that was
/// alone there. `None` where several were busy, and where [`Measurement::of`] says so. O(disks).
pub(crate) fn alone<'a>(
    disks: impl Iterator<Item = (&'a Interval, Limits)> + Clone,
) -> Option<Measurement> {
    let busier = |a: &(&Interval, Limits), b: &(&Interval, Limits)| a.0.iops.total_cmp(&b.0.iops);
    let (busiest, limits) = disks.clone().max_by(busier)?;
    let is_alone = [
        |interval: &Interval| interval.iops,
        |interval: &Interval| interval.bytes_per_sec,
        |interval: &Interval| interval.outstanding,
    ]
    .iter()
    .all(|of| {
        let all: f64 = disks.clone().map(|(interval, _)| of(interval)).sum();
        all - of(busiest) <= OTHERS * all
    });
    let held = Held::of_disk(busiest, &limits);
    if is_alone { Measurement::of(busiest, held) } else { None }
}
