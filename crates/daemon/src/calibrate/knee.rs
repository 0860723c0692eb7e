//! Finds a datastore's latency threshold, which `--latency-threshold auto` uses.

use super::{BLOCK, Calibrator, End, Job, PATIENCE, Scratch, seconds_now};
use crate::inproc::{Order, Pattern};
use headgate_engine::port::Detach;
use headgate_model::PlaneError;
use headgate_model::{DatastoreRecord, FoundThreshold};
use headgate_qos::window::threshold::{End as SearchEnd, SHARE_OF_PEAK, Sample, Search, Step};
use headgate_qos::window::{LatencyMeter, Smoothing};
use std::time::{Duration, Instant};

/// How long a depth is left alone before it is looked at: queues fill, caches settle.
const SETTLE: Duration = Duration::from_millis(500);

/// How long it is looked at.
const LOOK: Duration = Duration::from_millis(1_500);

/// Doublings to the queue depth, more or less: for the progress bar.
const STEPS: u64 = 8;

/// Random reads, at more and more depth, until more depth brings no more.
pub(super) fn find(
    calibrator: &Calibrator,
    record: &DatastoreRecord,
    scratch: &Scratch<'_>,
    job: &Job,
) -> Result<FoundThreshold, End> {
    job.update(|state| "finding the threshold".clone_into(&mut state.phase));
    let mut search = Search::new(SHARE_OF_PEAK, record.queue_depth).map_err(PlaneError::new)?;
    loop {
        let done = (search.samples().len() as u64).min(STEPS);
        job.update(|state| state.permille = 700 + 300 * done / (STEPS + 1));
        match search.next() {
            Step::Found(found) => {
                return Ok(FoundThreshold {
                    threshold: found.threshold,
                    peak: found.peak,
                    unloaded: found.unloaded,
                    saturated: found.end == SearchEnd::Saturated,
                    at: seconds_now(),
                });
            }
            Step::Measure(depth) => {
                let sample = measure(calibrator, record, scratch, depth, job)?;
                search.record(sample).map_err(PlaneError::new)?;
            }
        }
    }
}

fn measure(
    calibrator: &Calibrator,
    record: &DatastoreRecord,
    scratch: &Scratch<'_>,
    depth: u32,
    job: &Job,
) -> Result<Sample, End> {
    let pattern = Pattern { depth, read_percent: 100, order: Order::Random };
    let (counts, port) = scratch.load(calibrator, pattern, BLOCK)?;
    // The control law goes by the same latency: that of an IO of 8 KiB.
    let meter =
        LatencyMeter::new(record.cost_model, Smoothing::PUBLISHED).map_err(PlaneError::new)?;
    let plane: &dyn headgate_model::DataPlane = &*calibrator.plane;
    std::thread::sleep(SETTLE);
    plane.measure_latency(&record.name, Some(meter))?;
    let start = Instant::now();
    std::thread::sleep(LOOK);
    let seen = plane.end_period(&record.name);
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
    port.detach(Detach::Drain);
    port.wait_gone(PATIENCE);
    if job.is_cancelled() {
        return Err(End::Cancelled);
    }
    if counts.errors() > 0 {
        return Err(
            PlaneError::new("the storage failed under the load: see the kernel's log").into()
        );
    }
    let seen = seen?.latency;
    let iops = seen.map_or(0, |seen| seen.ios.saturating_mul(1_000_000) / micros);
    job.update(|state| state.iops = Some(iops));
    Ok(Sample {
        outstanding: depth,
        iops,
        latency: seen.map(|seen| seen.latency).unwrap_or_default(),
    })
}
