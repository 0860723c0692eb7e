//! Whether requests of an interval waited for something of ours: the rule by which the daemon and
//! the simulator sort what they measured.
//!
//! A request waits for its disk's limit, or for the window of its datastore. What waited for a
//! limit is no demand of the disk. What waited for either shows the device at one load only.

use core::fmt;
use headgate_stats::{Flow, Interval};
use headgate_units::{BytesPerSec, Iops};
use serde::{Deserialize, Serialize};

/// Requests were held back when more than this part of what was outstanding waited in our queue,
const WAITED: f64 = 0.05;
/// and each for longer than this on average: less is the time that a request takes to pass.
const PASSING: f64 = 20e-6;
/// A disk that did this part of its limit is held by it.
const AT_LIMIT: f64 = 0.95;

/// Whether requests of an interval waited for something of ours instead of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// No: what was outstanding was at the device.
    No,
    /// By the limit of a disk.
    ByLimit,
    /// By the window of the datastore, its queue depth.
    ByWindow,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Held::No => "not held back",
            Held::ByLimit => "held back by a limit",
            Held::ByWindow => "held back by the queue depth",
        })
    }
}

/// The limits of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// In normalised IOs per second.
    pub iops: Option<Iops>,
    /// In bytes per second.
    pub bandwidth: Option<BytesPerSec>,
}

impl Limits {
    fn were_reached(&self, interval: &Interval) -> bool {
        let reached = |done: f64, limit: Option<u64>| {
            limit.is_some_and(|limit| done >= AT_LIMIT * limit as f64)
        };
        reached(interval.normalised_iops, self.iops.map(Iops::get))
            || reached(interval.bytes_per_sec, self.bandwidth.map(BytesPerSec::get))
    }
}

/// Requests of an interval that waited for us and those at the device, on average.
struct Waiting {
    queued: f64,
    at_device: f64,
    /// How long one waited, in seconds.
    each: f64,
}

impl Waiting {
    fn of(interval: &Interval) -> Waiting {
        // By Little's law.
        let queued =
            |flow: &Flow| flow.iops * flow.queue.map_or(0.0, |queue| queue.mean.as_secs_f64());
        let queued = queued(&interval.reads) + queued(&interval.writes);
        let rate = interval.reads.iops + interval.writes.iops;
        Waiting {
            queued,
            at_device: interval.reads.at_device + interval.writes.at_device,
            each: if rate > 0.0 { queued / rate } else { 0.0 },
        }
    }

    fn was_held(&self) -> bool {
        self.queued > WAITED * (self.queued + self.at_device) && self.each > PASSING
    }
}

impl Held {
    /// By what a disk's requests were held back. Whoever waits and is not at its limit waits for
    /// the window: nothing else of ours makes requests wait.
    pub fn of_disk(interval: &Interval, limits: &Limits) -> Held {
        match Waiting::of(interval) {
            waiting if !waiting.was_held() => Held::No,
            _ if limits.were_reached(interval) => Held::ByLimit,
            _ => Held::ByWindow,
        }
    }

    /// The same of a datastore: by limits if most of what waited was of disks at their limits.
    /// O(disks).
    pub fn of_datastore<'a>(
        interval: &Interval,
        disks: impl IntoIterator<Item = (&'a Interval, Limits)>,
    ) -> Held {
        let waiting = Waiting::of(interval);
        if !waiting.was_held() {
            return Held::No;
        }
        let limited: f64 = disks
            .into_iter()
            .filter(|(interval, limits)| limits.were_reached(interval))
            .map(|(interval, _)| Waiting::of(interval).queued)
            .sum();
        if limited * 2.0 > waiting.queued { Held::ByLimit } else { Held::ByWindow }
    }
}
