//! Samples: the counters of datastores and disks at one instant, as the shards report them.

use crate::connection::Connection;
use crate::waits::Waits;
use crate::{BlockSizes, Name, Policy, PriorityRecord, TroubleSample};
use headgate_devices::{FlashCounters, FlashDrive, FlashStanding};
use headgate_qos::LearnedCosts;
use headgate_qos::window::Slots;
use headgate_qos::{LatencyStanding, Promise};
use headgate_stats::{DiskSnapshot, Interval, Rates};
use headgate_units::{Bytes, Nanos, Priority};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A datastore and its disks at one instant, as the shard reports them.
#[derive(Clone, Debug)]
pub struct DatastoreSample {
    /// Its name.
    pub name: Name,
    /// Requests that may be at the device at once.
    pub window: Slots,
    /// Why that is less than was set, where a promise narrows it.
    pub narrowed: Option<NarrowedSample>,
    /// Requests at the device.
    pub in_flight: u32,
    /// Requests waiting in the scheduler.
    pub queued: u64,
    /// Counters since it was added.
    pub stats: DiskSnapshot,
    /// Its disks.
    pub disks: Vec<DiskSample>,
    /// Of an emulated flash drive: what it is and did for all its disks.
    pub flash: Option<FlashDrive>,
    /// What requests cost, where that is learned.
    pub costs: Option<LearnedCosts>,
}

impl DatastoreSample {
    /// A datastore with these disks that has had no requests yet, and a window of one.
    pub fn fresh(name: Name, disks: Vec<DiskSample>) -> DatastoreSample {
        DatastoreSample {
            name,
            window: Slots::ONE,
            narrowed: None,
            in_flight: 0,
            queued: 0,
            stats: DiskSnapshot::default(),
            disks,
            flash: None,
            costs: None,
        }
    }

    /// A disk that is at `place` in another sample: samples name disks in the same order, so it is
    /// there or, when others have come or gone, close by. O(1) then, else O(disks).
    pub fn disk_near(&self, name: &Name, place: usize) -> Option<&DiskSample> {
        let (before, from) = self.disks.split_at(place.min(self.disks.len()));
        let (mut before, mut from) = (before.iter().rev(), from.iter());
        loop {
            let near = [from.next(), before.next()];
            if near.iter().all(Option::is_none) {
                return None;
            }
            if let Some(found) = near.into_iter().flatten().find(|disk| disk.name == *name) {
                return Some(found);
            }
        }
    }

    /// The earlier sample of the disk at `place`, in an earlier sample of the datastore. As
    /// [`DatastoreSample::disk_near`], and without a look at a disk that stood still.
    pub fn earlier<'a>(
        &self,
        place: usize,
        earlier: &'a DatastoreSample,
    ) -> Option<&'a DiskSample> {
        let disk = self.disks.get(place)?;
        let there = earlier.disks.get(place).filter(|old| disk.stood_still_since(old));
        there.or_else(|| earlier.disk_near(&disk.name, place))
    }
}

/// A window that is narrowed for a reservation or a latency target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarrowedSample {
    /// The disk that it was last narrowed for.
    pub disk: Name,
    /// And which of its promises.
    pub promise: Promise,
    /// What all disks together got before, in normalised IOPS.
    pub before: u64,
    /// And in the last half second.
    pub now: u64,
}

/// A disk at one instant, as the shard reports it. Samples of a disk to which nothing happens share
/// what is told of it, so that a host may have thousands of idle disks.
#[derive(Clone, Debug)]
pub struct DiskSample {
    at: Nanos,
    told: Arc<DiskTold>,
}

/// What is told of a disk.
#[derive(Clone, Debug)]
pub struct DiskTold {
    /// Its name.
    pub name: Name,
    /// The policy in force.
    pub policy: Policy,
    /// The priorities in force.
    pub priorities: PriorityRecord,
    /// The sizes of requests that its storage serves best; `None`: nobody asked it.
    pub block_sizes: Option<BlockSizes>,
    /// Service of each effective priority since the disk was opened, lowest first.
    pub streams: Vec<StreamSample>,
    /// Requests at the device.
    pub in_flight: u32,
    /// Requests waiting in the scheduler.
    pub queued: u32,
    /// How many requests its clients would have to keep outstanding for the reservation, where a
    /// narrow window did not help.
    pub needed_depth: Option<u32>,
    /// How it stands to its latency target, where it has one and was judged.
    pub latency: Option<LatencyStanding>,
    /// Clients connected.
    pub clients: usize,
    /// Of a remote disk: its connection to the server.
    pub remote: Option<Connection>,
    /// Counters since it was opened. Their time is when they were read, which is before the
    /// sample's where the disk stands still: [`DiskSample::at`] is the sample's.
    pub counted: Arc<DiskSnapshot>,
    /// What its requests waited for since it was opened.
    pub waits: Waits,
    /// What it has seen of its storage's trouble.
    pub trouble: TroubleSample,
    /// On an emulated flash drive: what that did for it.
    pub flash: Option<FlashSample>,
}

impl DiskSample {
    /// A disk that did so much for its one client, with nothing under way now: no streams, no
    /// server, no flash drive. It is of the time of its counters.
    pub fn new(name: Name, policy: Policy, counted: DiskSnapshot) -> DiskSample {
        DiskSample::told(counted.at, Arc::new(DiskTold::new(name, policy, Arc::new(counted))))
    }

    /// What was told of a disk holds at this instant, on `CLOCK_MONOTONIC`.
    pub fn told(at: Nanos, told: Arc<DiskTold>) -> DiskSample {
        DiskSample { at, told }
    }

    /// The same is told at another instant.
    pub fn set_at(&mut self, at: Nanos) {
        self.at = at;
    }

    /// When it was so, on `CLOCK_MONOTONIC`.
    pub fn at(&self) -> Nanos {
        self.at
    }

    /// Whether nothing has happened to the disk since an earlier sample of it. O(1). `false` also
    /// where nobody knows.
    pub fn stood_still_since(&self, earlier: &DiskSample) -> bool {
        Arc::ptr_eq(&self.told, &earlier.told)
    }

    /// What happened since an earlier sample of it. O(buckets), and O(1) for a disk that stood
    /// still.
    pub fn since(&self, earlier: &DiskSample) -> Interval {
        let length = self.at.since(earlier.at);
        if self.stood_still_since(earlier) {
            return Interval::still(length);
        }
        self.counted.since_over(&earlier.counted, length)
    }

    /// The same without what needs histograms. O(1).
    pub fn rates_since(&self, earlier: &DiskSample) -> Rates {
        let length = self.at.since(earlier.at);
        if self.stood_still_since(earlier) {
            return Rates::still(length);
        }
        self.counted.rates_over(&earlier.counted, length)
    }
}

impl Deref for DiskSample {
    type Target = DiskTold;

    fn deref(&self) -> &DiskTold {
        &self.told
    }
}

/// What is changed is no longer shared with other samples.
impl DerefMut for DiskSample {
    fn deref_mut(&mut self) -> &mut DiskTold {
        Arc::make_mut(&mut self.told)
    }
}

impl DiskTold {
    /// See [`DiskSample::new`].
    pub fn new(name: Name, policy: Policy, counted: Arc<DiskSnapshot>) -> DiskTold {
        DiskTold {
            name,
            policy,
            priorities: PriorityRecord::unset(),
            block_sizes: None,
            streams: Vec::new(),
            in_flight: 0,
            queued: 0,
            needed_depth: None,
            latency: None,
            clients: 1,
            remote: None,
            counted,
            waits: Waits::default(),
            trouble: TroubleSample::default(),
            flash: None,
        }
    }
}

/// Service of a disk's requests of one effective priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSample {
    /// The priority, after the virtual machine's cap.
    pub priority: Priority,
    /// Requests dispatched.
    pub ios: u64,
    /// The same by size, in millionths of a normalised IO.
    pub cost: u64,
}

/// The state of a disk on an emulated flash drive, and the drive's counters for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashSample {
    /// The drive's counters for it since it was opened.
    pub counters: FlashCounters,
    /// Its space on the drive, and the target.
    pub standing: FlashStanding,
}

/// What NBD clients hold, and may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdSample {
    /// Connections in transmission.
    pub connections: usize,
    /// The most of them in all; a disk's first one comes in above it.
    pub connections_max: usize,
    /// The most of them to the disks of one machine.
    pub connections_per_vm_max: usize,
    /// The most of them to one disk.
    pub connections_per_disk_max: usize,
    /// Clients that were refused for these limits so far.
    pub refused: u64,
    /// Memory in buffers, besides 64 KiB for each connection.
    pub memory: Bytes,
    /// The most of it.
    pub memory_max: Bytes,
    /// How often a connection got less than it asked for.
    pub memory_denied: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(disks: &[&Name]) -> DatastoreSample {
        let disk = |name: &&Name| {
            DiskSample::new((*name).clone(), Policy::default(), DiskSnapshot::default())
        };
        DatastoreSample::fresh("ds".parse().unwrap(), disks.iter().map(disk).collect())
    }

    /// Whoever came or went, and wherever one looks first: a disk is found where it is, and no
    /// other is taken for it.
    #[test]
    fn a_disk_is_found_by_its_name_and_no_other_for_it() {
        let names = ["a", "b", "c", "d", "e"].map(|name| name.parse::<Name>().unwrap());
        for present in 0..1_u32 << names.len() {
            let is_there = |at: &usize| present & 1 << at != 0;
            let there: Vec<&Name> =
                (0..names.len()).filter(is_there).map(|at| &names[at]).collect();
            let store = store(&there);
            for (at, name) in names.iter().enumerate() {
                for place in 0..names.len() + 2 {
                    let found = store.disk_near(name, place).map(|disk| &disk.name);
                    assert_eq!(found, is_there(&at).then_some(name), "{there:?} from {place}");
                }
            }
        }
    }

    /// Counters of a disk that went are not those of the one that took its place.
    #[test]
    fn what_a_disk_was_before_is_its_own() {
        let [a, b, c] = ["a", "b", "c"].map(|name| name.parse::<Name>().unwrap());
        let (before, mut now) = (store(&[&a, &b]), store(&[&b, &c]));
        let earlier = |now: &DatastoreSample, place| {
            now.earlier(place, &before).map(|disk| disk.name.clone())
        };
        assert_eq!([earlier(&now, 0), earlier(&now, 1)], [Some(b.clone()), None]);
        // One that stood still is the same without a look at its name.
        now.disks.insert(0, before.disks[0].clone());
        assert_eq!(earlier(&now, 0), Some(a));
        assert_eq!([earlier(&now, 1), earlier(&now, 2), earlier(&now, 3)], [Some(b), None, None]);
    }
}
