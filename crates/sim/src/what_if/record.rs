//! What history has of a datastore's disks, as numbers.

use super::device::DeviceRecord;
use headgate_qos::window::Slots;
use headgate_qos::{Config, Group, GroupId, Policy, SchedulerKind};
use headgate_units::{Bytes, Nanos};

/// What requests waited for, in request-microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// At the device.
    pub device: u64,
    /// For limits.
    pub limit: u64,
    /// In the queue for anything else: other requests at the device, or the window.
    pub queue: u64,
}

impl Waited {
    /// All of it.
    pub(super) fn total(&self) -> f64 {
        self.device as f64 + self.limit as f64 + self.queue as f64
    }
}

/// A disk's minute, or its hour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeriodRecord {
    /// Reads that completed.
    pub reads: u64,
    /// Writes that completed.
    pub writes: u64,
    /// Bytes of both.
    pub bytes: Bytes,
    /// What they waited for.
    pub waited: Waited,
    /// The mean number outstanding in each of its intervals, which are equally long. None: the mean
    /// over the whole period is all that is known.
    pub outstanding: Vec<f32>,
}

impl PeriodRecord {
    pub(super) fn requests(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    /// The mean number outstanding over a time of `length`.
    pub(super) fn mean_outstanding(&self, length: Nanos) -> f64 {
        self.waited.total() * 1e3 / (length.0.max(1) as f64)
    }

    /// Requests per second over a time of `length`.
    pub(super) fn rate(&self, length: Nanos) -> f64 {
        self.requests() as f64 / length.as_secs_f64().max(1e-9)
    }
}

/// A disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskRecord {
    /// Its name, which its random numbers depend on.
    pub name: String,
    /// Its policy in the run that is held against the record.
    pub before: Policy,
    /// Its policy in the other.
    pub after: Policy,
    /// One for each period of the record.
    pub periods: Vec<PeriodRecord>,
    /// Median and 99th percentile of the recorded times from arrival to completion.
    pub latency: Option<(Nanos, Nanos)>,
}

impl DiskRecord {
    pub(super) fn requests(&self) -> u64 {
        self.periods.iter().map(PeriodRecord::requests).sum()
    }

    pub(super) fn waited(&self) -> Waited {
        let mut sum = Waited::default();
        for Waited { device, limit, queue } in self.periods.iter().map(|period| period.waited) {
            sum.device = sum.device.saturating_add(device);
            sum.limit = sum.limit.saturating_add(limit);
            sum.queue = sum.queue.saturating_add(queue);
        }
        sum
    }

    /// The mean size of its requests, 512 bytes at least.
    pub(super) fn size(&self) -> Bytes {
        let bytes = self.periods.iter().map(|period| period.bytes.0 as f64).sum::<f64>();
        Bytes(((bytes / self.requests().max(1) as f64) as u64).max(512))
    }

    /// Mean time at the device, in nanoseconds; `None` where nothing completed.
    pub(super) fn device_time(&self) -> Option<f64> {
        let requests = self.requests();
        (requests > 0).then(|| self.waited().device as f64 * 1e3 / requests as f64)
    }
}

/// A datastore's load over some time, and what it was divided by.
#[derive(Clone, Debug)]
pub struct LoadRecord {
    /// How much was seen of each period, in the order of time.
    pub periods: Vec<Nanos>,
    /// Its disks.
    pub disks: Vec<DiskRecord>,
    /// What is known of the storage.
    pub device: DeviceRecord,
    /// Its scheduler.
    pub scheduler: SchedulerKind,
    /// As the scheduler was configured.
    pub config: Config,
    /// Requests that may be at the device at once.
    pub window: Slots,
    /// Groups of disks, each after the one that it is in.
    pub groups: Vec<Group>,
    /// Which disk, by its place in the record, is in which group.
    pub members: Vec<(usize, GroupId)>,
}

impl LoadRecord {
    /// Requests below which nothing is said.
    pub const LEAST_REQUESTS: u64 = 200;

    /// All disks' requests.
    pub fn requests(&self) -> u64 {
        self.disks.iter().map(DiskRecord::requests).sum()
    }

    /// How much of the time was seen.
    pub fn seen(&self) -> Nanos {
        self.periods.iter().fold(Nanos::ZERO, |sum, length| sum + *length)
    }

    /// Requests at the device in a period, on average, and the mean time that they were there, in
    /// nanoseconds; `None` where next to nothing completed.
    pub(super) fn at_device(&self, period: usize) -> Option<(f64, f64)> {
        let records = self.disks.iter().filter_map(|disk| disk.periods.get(period));
        let (mut waited, mut requests) = (0.0, 0);
        for record in records {
            waited += record.waited.device as f64 * 1e3;
            requests += record.requests();
        }
        let length = self.periods.get(period)?.0.max(1) as f64;
        (requests >= 20).then(|| (waited / length, waited / requests as f64))
    }

    /// The same of all periods, which are weighed by their requests.
    pub(super) fn at_device_all(&self) -> Option<(f64, f64)> {
        let known = (0..self.periods.len()).filter_map(|period| {
            let records = self.disks.iter().filter_map(|disk| disk.periods.get(period));
            let requests: u64 = records.map(PeriodRecord::requests).sum();
            Some((self.at_device(period)?, requests as f64))
        });
        let (mut load, mut time, mut weight) = (0.0, 0.0, 0.0);
        for ((at_device, took), requests) in known {
            load += at_device * requests;
            time += took * requests;
            weight += requests;
        }
        (weight > 0.0).then(|| (load / weight, time / weight))
    }

    /// The part of all waiting that was in the queue, for other requests or for the window.
    pub(super) fn queued_part(&self) -> f64 {
        let (mut queue, mut total) = (0.0, 0.0);
        for waited in self.disks.iter().map(DiskRecord::waited) {
            queue += waited.queue as f64;
            total += waited.total();
        }
        if total > 0.0 { queue / total } else { 0.0 }
    }
}
