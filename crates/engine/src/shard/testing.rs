//! A datastore with its tables, as a shard has them, without a ring or a clock.

use super::datastore::{Datastore, Enqueued};
use crate::backend::storage::Storage;
use crate::backend::{Backend, BackendSpec};
use crate::priorities::Priorities;
use crate::request::{Access, DiskInfo, Request};
use crate::tables::Tables;
use crate::tables::disk::ShardDisk;
use crate::tables::disks::Disks;
use crate::tables::lane::Queues;
use crate::tables::port::{PortState, Sender};
use crate::tables::queue_slots::QueueSlots;
use crate::tables::range_queue::RangeQueue;
use crate::tables::slots::Slots;
use crate::tables::streams::Streams;
use headgate_qos::ioprio::IoprioMap;
use headgate_qos::window::{LatencyMeter, Slots as Window};
use headgate_qos::{AnyScheduler, Config, Gate, Policy, PriorityPolicy, SchedulerKind};
use headgate_stats::{DiskSnapshot, DiskStats};
use headgate_units::Nanos;
use slab::Slab;

/// The datastore and its tables.
pub(super) struct Rig {
    pub store: Datastore,
    pub tables: Tables,
}

impl Rig {
    pub(super) fn new(
        scheduler: SchedulerKind,
        config: Config,
        window: Window,
        meter: Option<LatencyMeter>,
    ) -> Rig {
        let mut gate =
            Gate::new(Nanos::ZERO, AnyScheduler::new(scheduler, config).unwrap(), window);
        gate.set_meter(Nanos::ZERO, meter);
        Rig {
            store: Datastore {
                name: "lun".into(),
                backend: Backend::new(BackendSpec::Null, scheduler),
                layers: None,
                gate,
                closed: DiskSnapshot::default(),
                closures: 0,
                holding: Default::default(),
                copies: Default::default(),
                groups: Default::default(),
            },
            tables: Tables {
                slots: Slots::default(),
                disks: Disks::new(),
                ports: Slab::new(),
                completed: Vec::new(),
                granted: Vec::new(),
            },
        }
    }

    /// A disk without ports.
    pub(super) fn add_disk(
        &mut self,
        now: Nanos,
        policy: Policy,
        priorities: PriorityPolicy,
    ) -> u32 {
        let queue = self.store.gate.register(now, policy);
        self.store.gate.set_priorities(now, queue, priorities).unwrap();
        let key = self.tables.disks.insert(ShardDisk {
            info: DiskInfo::plain("disk", 1 << 50, 512),
            datastore: 0,
            storage: Storage::Null,
            access: Access::Cached,
            queues: Queues::new(queue),
            policy,
            priorities: Priorities { policy: priorities, map: IoprioMap::default() },
            zeroing: Default::default(),
            streams: Streams::new(),
            queue_slots: QueueSlots::default(),
            ranges: RangeQueue::default(),
            locks: Default::default(),
            in_flight: 0,
            undurable: 0,
            changes: None,
            ports: Vec::new(),
            stats: DiskStats::new(now),
            trouble: Default::default(),
            moving: None,
            landing: None,
            resizing: Default::default(),
            successor: None,
            shares_with: None,
        });
        key as u32
    }

    /// A port of a disk.
    pub(super) fn add_port(&mut self, disk: u32) -> u32 {
        let port =
            self.tables.ports.insert(PortState::new(disk, 0, Sender::Client, Default::default()));
        port as u32
    }

    /// A port's request comes in. Nothing is moved between dispatch and completion, so no buffer is
    /// ever touched. Returns its slot, and whether it is queued.
    pub(super) fn arrive(&mut self, now: Nanos, port: u32, request: Request) -> (u32, Enqueued) {
        let buffer =
            libc::iovec { iov_base: std::ptr::null_mut(), iov_len: request.len as libc::size_t };
        let buffers = if request.op.moves_data() { &[buffer][..] } else { &[] };
        let Tables { slots, disks, ports, .. } = &mut self.tables;
        let state = &mut ports[port as usize];
        let key = slots.take(request, state.disk, port, buffers, now);
        state.requests += 1;
        disks[state.disk as usize].queue_slots.add(&mut state.queued);
        (key, self.store.enqueue(now, &mut self.tables, key))
    }

    /// The storage is done with a request.
    pub(super) fn complete(&mut self, now: Nanos, key: u32) {
        self.store.complete(now, &mut self.tables, key);
        self.tables.ports[self.tables.slots[key].port as usize].requests -= 1;
        self.tables.slots.free(key);
    }
}
