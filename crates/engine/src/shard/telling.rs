//! What a shard tells of its datastores and disks.

use super::Shard;
use super::datastore::Datastore;
use crate::backend::Backend;
use crate::backend::execute::Execute;
use crate::snapshot::{DatastoreSnapshot, DiskSnapshot, NarrowedWindow};
use crate::tables::disk::ShardDisk;
use headgate_qos::LatencyStanding;
use headgate_units::{Bytes, Nanos};
use std::sync::Arc;

/// Disks of a shard as one turn of it read them.
pub(crate) struct Scan {
    /// When.
    pub(crate) at: Nanos,
    /// The number of the pass.
    pub(crate) pass: u64,
    /// The first number that was looked at.
    pub(crate) from: usize,
    /// Where to go on; `None`: there are no more.
    pub(crate) next: Option<usize>,
    /// Those that may have changed, each with its datastore, by number.
    pub(crate) changed: Vec<(usize, DiskSnapshot)>,
    /// The numbers of those that stood still, in their order.
    pub(crate) still: Vec<usize>,
    /// How many disks were closed so far: what was read of the others in between does not go
    /// together if it changes.
    pub(crate) closures: u64,
}

impl Shard {
    /// Begins a pass over all disks: the datastores, without their disks, and the first of these,
    /// of which `since` is known: see [`Shard::scan_disks`].
    pub(crate) fn begin_scan(
        &mut self,
        since: u64,
        most: usize,
    ) -> (Vec<(usize, DatastoreSnapshot)>, Scan) {
        let pass = self.core.ctx.tables.disks.begin_pass();
        (self.snapshot_datastores(), self.scan_disks(pass, 0, since, most))
    }

    fn snapshot_datastores(&self) -> Vec<(usize, DatastoreSnapshot)> {
        let now = crate::clock::now();
        let snapshot = |store: &Datastore| DatastoreSnapshot {
            name: store.name.clone(),
            window: store.gate.window(),
            narrowed: self.narrowed(store),
            in_flight: store.gate.in_flight(),
            queued: store.gate.queued(),
            at: now,
            stats: headgate_stats::DiskSnapshot { at: now, ..store.closed.clone() },
            disks: Vec::new(),
            flash: store.backend.flash_drive(),
            costs: store.gate.learned_costs(),
        };
        let stores = self.core.datastores.iter();
        let told = stores.filter(|(_, store)| !matches!(store.backend, Backend::Moving(_)));
        told.map(|(key, store)| (key, snapshot(store))).collect()
    }

    /// How a datastore's window is narrowed, while it is.
    fn narrowed(&self, store: &Datastore) -> Option<NarrowedWindow> {
        let narrowed = store.gate.narrowed()?;
        let mut disks = self.core.ctx.tables.disks.iter();
        let (_, disk) = disks.find(|(_, disk)| disk.queues.clients == narrowed.disk)?;
        Some(NarrowedWindow {
            disk: disk.info.name.clone(),
            promise: narrowed.promise,
            before: narrowed.before,
            now: narrowed.now,
        })
    }

    fn needed_depth(&self, disk: &ShardDisk) -> Option<u32> {
        let store = self.core.datastores.get(disk.datastore)?;
        store.gate.needed_depth(self.core.ctx.now, disk.queues.clients)
    }

    fn latency(&self, disk: &ShardDisk) -> Option<LatencyStanding> {
        self.core.datastores.get(disk.datastore)?.gate.latency(disk.queues.clients)
    }

    /// Disks from number `from` on: up to `most` of those that may have changed since they were
    /// read in pass `since`, and the numbers of the others among them.
    pub(crate) fn scan_disks(&mut self, pass: u64, from: usize, since: u64, most: usize) -> Scan {
        let at = crate::clock::now();
        let closures = self.core.datastores.iter().map(|(_, store)| store.closures).sum();
        let (changed, still) = (Vec::new(), Vec::new());
        let mut scan = Scan { at, pass, from, next: None, changed, still, closures };
        let mut moving = Vec::new();
        for (key, stands_still) in self.core.ctx.tables.disks.seen_from(from, since) {
            if stands_still {
                scan.still.push(key);
                continue;
            }
            let Some(disk) = self.core.ctx.tables.disks.get(key) else { continue };
            if disk.storage.is_front() {
                moving.push(key);
                continue;
            }
            if scan.changed.len() == most {
                scan.next = Some(key);
                break;
            }
            let snapshot = self.snapshot_disk(key, disk, at);
            if !stays(disk, &snapshot) {
                moving.push(key);
            }
            scan.changed.push((disk.datastore, snapshot));
        }
        moving.into_iter().for_each(|key| self.core.ctx.tables.disks.keep_moving(key));
        for (store, disk) in &mut scan.changed {
            let store = self.core.datastores.get_mut(*store);
            disk.waits = disk.queues[0].zip(store).and_then(|(q, s)| s.gate.wait_times(at, q));
        }
        scan
    }

    /// All but what it waited for.
    fn snapshot_disk(&self, key: usize, disk: &ShardDisk, now: Nanos) -> DiskSnapshot {
        let home = self.core.ctx.tables.disks.get(self.core.home_of(key)).unwrap_or(disk);
        let clients = if disk.moving.is_some() { home } else { disk };
        let queued = disk.queue_slots.queued().saturating_sub(disk.trouble.waiting());
        let at_front = if home.storage.is_front() { home.queue_slots.queued() } else { 0 };
        let links = &self.core.ctx.links;
        let store = self.core.datastores.get(disk.datastore);
        DiskSnapshot {
            key,
            name: disk.info.name.clone(),
            size: Bytes(disk.info.size),
            block_size: disk.info.block_size,
            topology: disk.info.topology,
            access: disk.access,
            policy: disk.policy,
            priorities: disk.priorities,
            streams: disk.streams.snapshot(),
            queued: queued + at_front,
            in_flight: disk.in_flight,
            needed_depth: self.needed_depth(disk),
            latency: self.latency(disk),
            ports: clients.ports.len(),
            remote: disk.storage.remote().and_then(|remote| links.snapshot(remote)),
            stats: Arc::new(disk.stats.snapshot(now)),
            queues: [Some(disk.queues.clients), disk.queues.copy],
            waits: None,
            neighbours: Vec::new(),
            trouble: disk.trouble.snapshot(),
            flash: store.and_then(|store| store.backend.flash(key as u32)),
        }
    }
}

/// Whether a disk stays as it was read until somebody changes it: it has nothing under way, and
/// nothing is told of it that others change.
fn stays(disk: &ShardDisk, told: &DiskSnapshot) -> bool {
    disk.stats.is_still()
        && told.queued == 0
        && told.in_flight == 0
        && told.trouble.hold.is_none()
        && told.needed_depth.is_none()
        && told.policy.latency_target().is_none()
        && told.remote.is_none()
        && told.flash.is_none()
        && !disk.is_moving()
        && disk.successor.is_none()
}
