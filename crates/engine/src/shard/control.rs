//! What the engine's control side has done on the shard's thread.

use super::Shard;
use super::core::Core;
use super::datastore::Datastore;
use super::place::{Hosted, PortPlace};
use crate::backend::execute::{Execute, Opening, Refused};
use crate::backend::nbd::line::ServerLines;
use crate::backend::nbd::loss::LossEpoch;
use crate::backend::storage::Storage;
use crate::backend::{Backend, Image};
use crate::error::{EngineError, MoveError};
use crate::ids::DiskId;
use crate::kernel::ring::PORTS_MAX;
use crate::port::{Detach, Port, PortCommand};
use crate::priorities::Priorities;
use crate::request::{DiskInfo, Writes};
use crate::snapshot::DiskUsage;
use crate::tables::disk::{ShardDisk, Successor};
use crate::tables::lane::Queues;
use crate::tables::port::{PortState, Sender};
use crate::tables::queue_slots::QueueSlots;
use crate::tables::streams::Streams;
use crate::trouble::TroublePolicy;
use headgate_devices::Layers;
use headgate_devices::layer::TracePart;
use headgate_qos::window::{LatencyMeter, Observation, Slots};
use headgate_qos::{Adjustment, Gate, Narrow, Policy};
use headgate_stats::DiskStats;
use std::sync::Arc;

/// Builds a port on its shard's thread.
pub(crate) type NewPort = Box<dyn FnOnce(&DiskInfo) -> Box<dyn Port> + Send>;

/// What became of a port that is to hang into a disk.
pub(crate) enum Attached {
    Here(Arc<PortPlace>),
    /// The disk has moved to another shard.
    Elsewhere(DiskId, NewPort),
}

impl Shard {
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    pub(crate) fn add_datastore(
        &mut self,
        name: String,
        backend: Backend,
        layers: Option<Box<Layers>>,
        scheduler: headgate_qos::AnyScheduler<u32>,
        window: u32,
    ) -> usize {
        let key = self.core.datastores.insert(Datastore {
            name,
            backend,
            layers,
            gate: Gate::new(self.core.ctx.now, scheduler, Slots::whole(window)),
            closed: headgate_stats::DiskSnapshot { at: self.core.ctx.now, ..Default::default() },
            closures: 0,
            holding: Default::default(),
            copies: Default::default(),
            groups: Default::default(),
        });
        self.count_windows();
        key
    }

    /// Tells the ring how many requests may be under way.
    pub(super) fn count_windows(&mut self) {
        let windows = self.core.datastores.iter().map(|(_, store)| store.gate.window().ceil());
        let requests = windows.fold(0, u32::saturating_add);
        if std::mem::replace(&mut self.core.windows, requests) != requests {
            self.core.ctx.ring.set_windows(requests);
        }
    }

    pub(crate) fn set_layers(
        &mut self,
        datastore: usize,
        layers: Option<Box<Layers>>,
    ) -> Result<(), EngineError> {
        let Core { ctx, datastores, .. } = &mut self.core;
        let store = datastores.get_mut(datastore).ok_or(EngineError::NoDatastore)?;
        store.set_layers(ctx, layers);
        Ok(())
    }

    pub(crate) fn trace(
        &self,
        datastore: usize,
        from: u64,
        most: usize,
    ) -> Result<Option<TracePart>, EngineError> {
        let store = self.core.datastores.get(datastore).ok_or(EngineError::NoDatastore)?;
        Ok(store.trace(&self.core.ctx.tables, from, most))
    }

    pub(crate) fn set_window(
        &mut self,
        datastore: usize,
        window: Slots,
    ) -> Result<(), EngineError> {
        let now = self.core.ctx.now;
        let store = self.core.datastores.get_mut(datastore).ok_or(EngineError::NoDatastore)?;
        store.gate.set_window(now, window);
        self.count_windows();
        Ok(())
    }

    pub(crate) fn set_narrow(
        &mut self,
        datastore: usize,
        narrow: Narrow,
    ) -> Result<(), EngineError> {
        let now = self.core.ctx.now;
        let store = self.core.datastores.get_mut(datastore).ok_or(EngineError::NoDatastore)?;
        store.gate.set_narrow(now, narrow);
        Ok(())
    }

    pub(crate) fn set_meter(
        &mut self,
        datastore: usize,
        meter: Option<LatencyMeter>,
    ) -> Result<(), EngineError> {
        let now = self.core.ctx.now;
        let store = self.core.datastores.get_mut(datastore).ok_or(EngineError::NoDatastore)?;
        store.gate.set_meter(now, meter);
        Ok(())
    }

    /// Ends a period of a datastore's latency.
    pub(crate) fn take_latency(
        &mut self,
        datastore: usize,
    ) -> Result<Option<Observation>, EngineError> {
        let store = self.core.datastores.get_mut(datastore).ok_or(EngineError::NoDatastore)?;
        Ok(store.gate.take_latency())
    }

    /// What up to `most` disks of a datastore have done so far, from disk number `from` on, and
    /// where to go on.
    pub(crate) fn disk_usage(
        &self,
        datastore: usize,
        from: usize,
        most: usize,
    ) -> (Vec<DiskUsage>, Option<usize>) {
        let now = crate::clock::now();
        let mut found = Vec::new();
        for (key, disk) in self.core.ctx.tables.disks.iter().skip_while(|(key, _)| *key < from) {
            if disk.datastore != datastore {
                continue;
            }
            if found.len() == most {
                return (found, Some(key));
            }
            let transfers = disk.stats.transfers();
            found.push(DiskUsage {
                key,
                policy: disk.policy,
                at: now,
                outstanding_time: disk.stats.outstanding_time(now),
                ios: transfers.done,
                bytes: transfers.bytes,
            });
        }
        (found, None)
    }

    pub(crate) fn adjust(
        &mut self,
        datastore: usize,
        adjustment: Adjustment,
    ) -> Result<(), EngineError> {
        let store = self.core.datastores.get_mut(datastore).ok_or(EngineError::NoDatastore)?;
        store.gate.adjust(adjustment);
        Ok(())
    }

    pub(crate) fn remove_datastore(&mut self, datastore: usize) -> Result<(), EngineError> {
        if !self.core.datastores.contains(datastore) {
            return Err(EngineError::NoDatastore);
        }
        let disks =
            self.core.ctx.tables.disks.iter().filter(|(_, d)| d.datastore == datastore).count();
        if disks > 0 {
            return Err(EngineError::DatastoreInUse { disks });
        }
        self.core.datastores.remove(datastore);
        self.count_windows();
        Ok(())
    }

    /// On failure the image's storage comes back, to be closed where that may block.
    pub(crate) fn open_disk(
        &mut self,
        datastore: usize,
        name: String,
        image: Image,
        policy: Policy,
        lines: Vec<ServerLines>,
    ) -> Result<usize, Refused> {
        let Core { ctx, datastores, .. } = &mut self.core;
        let (access, size, block_size) = (image.access(), image.size(), image.block_size());
        let told = image.topology();
        let source = image.into_source();
        let Some(store) = datastores.get_mut(datastore) else {
            return Err((EngineError::NoDatastore, Box::new(source)));
        };
        if let Err(e) = store.check_policy(policy) {
            return Err((e, Box::new(source)));
        }
        let topology = store.backend.topology(block_size, told);
        let writes = Writes::Allowed;
        let info = DiskInfo { name, size: size.0, block_size, topology, writes };
        let key = ctx.tables.disks.vacant_key() as u32;
        let opening = Opening { key, source, size, shares: policy.shares(), lines };
        let storage = store.backend.open(ctx, opening)?;
        let queue = store.gate.register(ctx.now, policy);
        let ranges = storage.range_queue();
        let stats = DiskStats::new(ctx.now);
        let opened = ctx.tables.disks.insert(ShardDisk {
            info,
            datastore,
            storage,
            access,
            queues: Queues::new(queue),
            policy,
            priorities: Priorities::default(),
            zeroing: Default::default(),
            streams: Streams::new(),
            queue_slots: QueueSlots::default(),
            ranges,
            locks: Default::default(),
            in_flight: 0,
            undurable: 0,
            changes: None,
            ports: Vec::new(),
            stats,
            trouble: Default::default(),
            moving: None,
            landing: None,
            resizing: Default::default(),
            successor: None,
            shares_with: None,
        });
        if !store.groups.groups.is_empty() {
            let grouped = store.regroup(ctx.now, &ctx.tables, datastore);
            debug_assert_eq!(grouped, Ok(()), "the policies of all disks were looked at");
        }
        Ok(opened)
    }

    pub(crate) fn set_policy(&mut self, disk: usize, policy: Policy) -> Result<(), EngineError> {
        let Core { ctx, datastores, .. } = &mut self.core;
        let (now, key) = (ctx.now, disk as u32);
        let disk = ctx.tables.disks.get_mut(disk).ok_or(EngineError::NoDisk)?;
        let store = &mut datastores[disk.datastore];
        store.check_policy(policy)?;
        store.gate.set_policy(now, disk.queues.clients, policy).map_err(|_| EngineError::NoDisk)?;
        store.backend.set_shares(now, key, policy.shares());
        disk.policy = policy;
        Ok(())
    }

    pub(crate) fn set_trouble(
        &mut self,
        disk: usize,
        policy: TroublePolicy,
    ) -> Result<(), EngineError> {
        let Core { ctx, datastores, .. } = &mut self.core;
        let found = ctx.tables.disks.get(disk).ok_or(EngineError::NoDisk)?;
        let store = &mut datastores[found.datastore];
        store.set_trouble(ctx.now, &mut ctx.tables, disk as u32, policy)
    }

    /// Clients that are there have been told already.
    pub(crate) fn set_writes(&mut self, disk: usize, writes: Writes) -> Result<(), EngineError> {
        let found = self.core.ctx.tables.disks.get_mut(disk).ok_or(EngineError::NoDisk)?;
        if found.is_moving() {
            return Err(MoveError::Moving.into());
        }
        if found.info.writes != writes && !found.ports.is_empty() {
            return Err(EngineError::DiskBusy { ports: found.ports.len() });
        }
        found.info.writes = writes;
        Ok(())
    }

    /// Has a held request of a disk tried now. `false`: it holds none.
    pub(crate) fn try_held(&mut self, disk: usize) -> Result<bool, EngineError> {
        let Core { ctx, datastores, .. } = &mut self.core;
        let found = ctx.tables.disks.get(disk).ok_or(EngineError::NoDisk)?;
        Ok(datastores[found.datastore].hurry(ctx.now, &mut ctx.tables, disk as u32))
    }

    pub(crate) fn set_priorities(
        &mut self,
        disk: usize,
        priorities: Priorities,
    ) -> Result<(), EngineError> {
        let core = &mut self.core;
        let disk = core.ctx.tables.disks.get_mut(disk).ok_or(EngineError::NoDisk)?;
        let store = &mut core.datastores[disk.datastore];
        let set = store.gate.set_priorities(core.ctx.now, disk.queues.clients, priorities.policy);
        set.map_err(|_| EngineError::NoDisk)?;
        disk.priorities = priorities;
        Ok(())
    }

    pub(crate) fn disk_info(&self, disk: usize) -> Result<DiskInfo, EngineError> {
        self.core.ctx.tables.disks.get(disk).map(|d| d.info.clone()).ok_or(EngineError::NoDisk)
    }

    pub(crate) fn ports_of(&self, disk: usize) -> Result<Vec<Arc<PortPlace>>, EngineError> {
        let disks = &self.core.ctx.tables.disks;
        let found = disks.get(disk).ok_or(EngineError::NoDisk)?;
        // The clients of a disk that has moved are the target's.
        let home = if found.moving.is_some() { self.core.home_of(disk) } else { disk };
        let disk = disks.get(home).ok_or(EngineError::NoDisk)?;
        let hosted = |&slot: &u32| self.ports.get(slot as usize)?.as_ref();
        Ok(disk.ports.iter().filter_map(hosted).map(|hosted| hosted.place.clone()).collect())
    }

    /// Takes out a disk without ports. Its storage comes back, to be closed where that may block.
    pub(crate) fn take_disk(&mut self, disk: usize) -> Result<Storage, EngineError> {
        let Core { ctx, datastores, .. } = &mut self.core;
        let found = ctx.tables.disks.get(disk).ok_or(EngineError::NoDisk)?;
        if found.is_moving() {
            return Err(MoveError::Moving.into());
        }
        if !found.ports.is_empty() {
            return Err(EngineError::DiskBusy { ports: found.ports.len() });
        }
        let (key, disk) = (disk as u32, ctx.tables.disks.remove(disk));
        if let Some(store) = datastores.get_mut(disk.datastore) {
            // No ports, so nothing is queued.
            drop(store.gate.unregister(ctx.now, disk.queues.clients));
            store.backend.close(ctx, key, &disk.storage);
            store.forget_disk(key as usize);
            store.keep_counts(ctx.now, &disk.stats);
        }
        Ok(disk.storage)
    }

    pub(crate) fn attach(&mut self, disk: usize, new: NewPort) -> Result<Attached, EngineError> {
        let asked = self.core.ctx.tables.disks.get(disk);
        if let Some(Successor::Elsewhere(moved)) = asked.and_then(|disk| disk.successor) {
            return Ok(Attached::Elsewhere(moved, new));
        }
        let disk = self.core.home_of(disk);
        let found = self.core.ctx.tables.disks.get(disk).ok_or(EngineError::NoDisk)?;
        let info = found.info.clone();
        let (slot, generation) = self.next_port()?;
        let epoch = self.core.epoch_of_client(disk as u32);
        let port = new(&info);
        let place = Arc::new(PortPlace::new(self.mailbox.clone(), slot, generation));
        self.host(disk as u32, Hosted { port, place: place.clone() }, epoch);
        self.with_port(slot, |p, io| p.on_start(io));
        Ok(Attached::Here(place))
    }

    /// The slot of the port that comes next, and its generation.
    pub(super) fn next_port(&mut self) -> Result<(u32, u32), EngineError> {
        let core = &mut self.core;
        let slot = core.ctx.tables.ports.vacant_key() as u32;
        if slot >= PORTS_MAX {
            return Err(EngineError::TooManyPorts);
        }
        core.next_generation = core.next_generation.wrapping_add(1);
        Ok((slot, core.next_generation))
    }

    /// Hangs a port into a disk, in the slot of [`next_port`](Shard::next_port).
    pub(super) fn host(&mut self, disk: u32, hosted: Hosted, epoch: LossEpoch) {
        let tables = &mut self.core.ctx.tables;
        let generation = hosted.place.slot().1;
        let state = PortState::new(disk, generation, Sender::Client, epoch);
        let slot = tables.ports.insert(state);
        tables.disks[disk as usize].ports.push(slot as u32);
        self.core.divide_slots(disk);
        if self.ports.len() <= slot {
            self.ports.resize_with(slot + 1, || None);
        }
        self.ports[slot] = Some(hosted);
    }

    fn is_live(&self, slot: u32, generation: u32) -> bool {
        self.core
            .ctx
            .tables
            .ports
            .get(slot as usize)
            .is_some_and(|s| s.generation == generation && !s.closing)
    }

    pub(crate) fn command_port(&mut self, slot: u32, generation: u32, command: PortCommand) {
        if self.is_live(slot, generation) {
            self.with_port(slot, |p, io| p.on_command(io, command));
        }
    }

    pub(crate) fn detach_port(&mut self, slot: u32, generation: u32, how: Detach) {
        if self.is_live(slot, generation) {
            self.with_port(slot, |p, io| p.on_detach(io, how));
            if how == Detach::Now {
                self.core.close_port(slot);
            }
        }
    }

    /// Whether disks are open.
    pub(crate) fn has_disks(&self) -> bool {
        !self.core.ctx.tables.disks.is_empty()
    }
}
