//! What the engine's control side has done on the shard's thread.

use super::Shard;
use super::disk::{Backend, Datastore, Disk};
use super::ports::{Gone, PortState};
use super::ring::PORTS_MAX;
use super::room::Room;
use super::streams::Streams;
use crate::engine::EngineError;
use crate::image::Image;
use crate::port::{Detach, Port, PortCommand};
use crate::priorities::Priorities;
use crate::remote::dialer::Line;
use crate::remote::loss::Told;
use crate::request::DiskInfo;
use crate::snapshot::{DatastoreSnapshot, DiskSnapshot, DiskUsage, FlashSnapshot};
use headgate_devices::DiskPlace;
use headgate_qos::window::{LatencyMeter, Observation, Pacer, Slots};
use headgate_qos::{Policy, Scheduler};
use headgate_stats::DiskStats;
use std::sync::Arc;

/// Builds a port on its shard's thread.
pub(crate) type NewPort = Box<dyn FnOnce(&DiskInfo) -> Box<dyn Port> + Send>;

/// Where a port hangs.
#[derive(Clone, Debug)]
pub(crate) struct AttachedPort {
    pub slot: u32,
    pub generation: u32,
    pub gone: Arc<Gone>,
}

/// The first gap of `len` bytes between the places `taken` on a device, 0 when there is none.
fn place(mut taken: Vec<(u64, u64)>, len: u64, capacity: u64) -> u64 {
    taken.sort_unstable();
    let mut at = 0u64;
    for (base, size) in taken {
        if base.saturating_sub(at) >= len {
            return at;
        }
        at = at.max(base.saturating_add(size));
    }
    if capacity.saturating_sub(at) >= len { at } else { 0 }
}

/// What a flash drive did for the disk at a place.
fn flash(store: &Datastore, base: u64) -> Option<FlashSnapshot> {
    let Backend::Emulated { model, .. } = &store.backend else { return None };
    Some(FlashSnapshot { counters: model.flash(base)?, standing: model.flash_standing(base)? })
}

impl Shard {
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    pub(crate) fn add_datastore(
        &mut self,
        name: String,
        backend: Backend,
        scheduler: headgate_qos::AnyScheduler<u32>,
        window: u32,
    ) -> usize {
        self.core.datastores.insert(Datastore {
            name,
            backend,
            scheduler,
            pacer: Pacer::new(self.core.now, Slots::whole(window)),
            meter: None,
            wake: None,
            dirty: false,
            closed: headgate_stats::DiskSnapshot { at: self.core.now, ..Default::default() },
            closures: 0,
        })
    }

    pub(crate) fn set_window(&mut self, datastore: usize, window: Slots) -> Result<(), EngineError> {
        let now = self.core.now;
        let store = self.core.datastores.get_mut(datastore).ok_or(EngineError::NoDatastore)?;
        store.pacer.set_window(now, window);
        store.dirty = true;
        Ok(())
    }

    pub(crate) fn set_meter(
        &mut self,
        datastore: usize,
        meter: Option<LatencyMeter>,
    ) -> Result<(), EngineError> {
        self.core.datastores.get_mut(datastore).ok_or(EngineError::NoDatastore)?.meter = meter;
        Ok(())
    }

    /// Ends a period of a datastore's latency.
    pub(crate) fn take_latency(&mut self, datastore: usize) -> Result<Option<Observation>, EngineError> {
        let store = self.core.datastores.get_mut(datastore).ok_or(EngineError::NoDatastore)?;
        Ok(store.meter.as_mut().and_then(LatencyMeter::take))
    }

    /// What up to `most` disks of a datastore have done so far, from disk number `from` on, and where to go on.
    pub(crate) fn disk_usage(
        &self,
        datastore: usize,
        from: usize,
        most: usize,
    ) -> (Vec<DiskUsage>, Option<usize>) {
        let now = crate::clock::now();
        let mut found = Vec::new();
        for (key, disk) in self.core.disks.iter().skip_while(|(key, _)| *key < from) {
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

    pub(crate) fn set_plug(
        &mut self,
        datastore: usize,
        plug: headgate_units::Nanos,
    ) -> Result<(), EngineError> {
        let store = self.core.datastores.get_mut(datastore).ok_or(EngineError::NoDatastore)?;
        store.scheduler.set_plug(plug);
        store.dirty = true;
        Ok(())
    }

    pub(crate) fn remove_datastore(&mut self, datastore: usize) -> Result<(), EngineError> {
        if !self.core.datastores.contains(datastore) {
            return Err(EngineError::NoDatastore);
        }
        let disks = self.core.disks.iter().filter(|(_, d)| d.datastore == datastore).count();
        if disks > 0 {
            return Err(EngineError::DatastoreInUse { disks });
        }
        self.core.datastores.remove(datastore);
        Ok(())
    }

    /// On failure the image comes back, to be closed where that may block.
    pub(crate) fn open_disk(
        &mut self,
        datastore: usize,
        name: String,
        image: Image,
        policy: Policy,
        line: Option<Line>,
    ) -> Result<usize, (EngineError, Image)> {
        let core = &mut self.core;
        let Some(store) = core.datastores.get_mut(datastore) else {
            return Err((EngineError::NoDatastore, image));
        };
        let file = match (image.fd(), &store.backend) {
            (Some(_), Backend::Remote) => return Err((EngineError::OtherStorage, image)),
            (None, Backend::Remote) if line.is_some() => None,
            (None, _) if image.is_remote() => return Err((EngineError::OtherStorage, image)),
            (Some(fd), _) => match core.ring.register_file(fd) {
                Ok(file) => Some(file),
                Err(e) => return Err((EngineError::Register(e), image)),
            },
            (None, Backend::Null) => None,
            (None, _) => return Err((EngineError::NullImage, image)),
        };
        let base = match store.backend {
            Backend::Emulated { capacity, .. } => {
                let taken = core.disks.iter().filter(|(_, d)| d.datastore == datastore);
                place(taken.map(|(_, d)| (d.base, d.info.size)).collect(), image.size().0, capacity)
            }
            Backend::Files | Backend::Null | Backend::Remote => 0,
        };
        if let Backend::Emulated { model, .. } = &mut store.backend {
            let place = DiskPlace { offset: base, size: image.size(), shares: policy.shares() };
            if let Err(refusal) = model.add_disk(core.now, place) {
                if let Some(file) = file {
                    core.ring.unregister_file(file);
                }
                return Err((refusal.into(), image));
            }
            store.dirty = true;
        }
        let info = DiskInfo { name, size: image.size().0, block_size: image.block_size() };
        let queue = store.scheduler.register(core.now, policy);
        let stats = DiskStats::new(core.now);
        let link = line.map(|line| core.add_link(core.disks.vacant_key() as u32, line));
        Ok(core.disks.insert(Disk {
            info,
            datastore,
            image,
            file,
            link,
            queue,
            policy,
            priorities: Priorities::default(),
            streams: Streams::new(),
            room: Room::default(),
            in_flight: 0,
            ports: Vec::new(),
            stats,
            base,
        }))
    }

    pub(crate) fn set_policy(&mut self, disk: usize, policy: Policy) -> Result<(), EngineError> {
        let core = &mut self.core;
        let disk = core.disks.get_mut(disk).ok_or(EngineError::NoDisk)?;
        let store = &mut core.datastores[disk.datastore];
        store.scheduler.set_policy(core.now, disk.queue, policy).map_err(|_| EngineError::NoDisk)?;
        if let Backend::Emulated { model, .. } = &mut store.backend {
            model.set_shares(core.now, disk.base, policy.shares());
        }
        store.dirty = true;
        disk.policy = policy;
        Ok(())
    }

    pub(crate) fn set_priorities(&mut self, disk: usize, priorities: Priorities) -> Result<(), EngineError> {
        let core = &mut self.core;
        let disk = core.disks.get_mut(disk).ok_or(EngineError::NoDisk)?;
        let store = &mut core.datastores[disk.datastore];
        let set = store.scheduler.set_priorities(core.now, disk.queue, priorities.policy);
        set.map_err(|_| EngineError::NoDisk)?;
        store.dirty = true;
        disk.priorities = priorities;
        Ok(())
    }

    pub(crate) fn disk_info(&self, disk: usize) -> Result<DiskInfo, EngineError> {
        self.core.disks.get(disk).map(|d| d.info.clone()).ok_or(EngineError::NoDisk)
    }

    pub(crate) fn ports_of(&self, disk: usize) -> Result<Vec<AttachedPort>, EngineError> {
        let disk = self.core.disks.get(disk).ok_or(EngineError::NoDisk)?;
        let port = |&slot: &u32| {
            let state = &self.core.port_states[slot as usize];
            AttachedPort { slot, generation: state.generation, gone: state.gone.clone() }
        };
        Ok(disk.ports.iter().map(port).collect())
    }

    /// Takes out a disk without ports; its image comes back, to be closed where that may block.
    pub(crate) fn take_disk(&mut self, disk: usize) -> Result<Image, EngineError> {
        let core = &mut self.core;
        let found = core.disks.get(disk).ok_or(EngineError::NoDisk)?;
        if !found.ports.is_empty() {
            return Err(EngineError::DiskBusy { ports: found.ports.len() });
        }
        let disk = core.disks.remove(disk);
        if let Some(store) = core.datastores.get_mut(disk.datastore) {
            // No ports, so nothing is queued.
            drop(store.scheduler.unregister(core.now, disk.queue));
            if let Backend::Emulated { model, .. } = &mut store.backend {
                model.remove_disk(core.now, disk.base);
            }
            store.dirty = true;
            store.keep_counts(core.now, &disk.stats);
        }
        if let Some(link) = disk.link {
            core.close_link(link);
        }
        if let Some(file) = disk.file {
            core.ring.unregister_file(file);
        }
        Ok(disk.image)
    }

    pub(crate) fn attach(&mut self, disk: usize, new: NewPort) -> Result<AttachedPort, EngineError> {
        let core = &mut self.core;
        let found = core.disks.get_mut(disk).ok_or(EngineError::NoDisk)?;
        if core.port_states.vacant_key() as u32 >= PORTS_MAX {
            return Err(EngineError::TooManyPorts);
        }
        core.next_generation = core.next_generation.wrapping_add(1);
        let attached = AttachedPort {
            slot: core.port_states.vacant_key() as u32,
            generation: core.next_generation,
            gone: Arc::new(Gone::default()),
        };
        let told = found.link.map_or_else(Told::default, |link| core.links.on_client(link));
        core.port_states.insert(PortState {
            disk: disk as u32,
            generation: attached.generation,
            active: Vec::new(),
            requests: 0,
            queued: 0,
            touched: false,
            starved: false,
            closing: false,
            unsent: None,
            gone: attached.gone.clone(),
            told,
        });
        found.ports.push(attached.slot);
        let port = new(&found.info);
        core.divide_room(disk as u32);
        let slot = attached.slot as usize;
        if self.ports.len() <= slot {
            self.ports.resize_with(slot + 1, || None);
        }
        self.ports[slot] = Some(port);
        self.with_port(attached.slot, |p, io| p.on_start(io));
        Ok(attached)
    }

    fn is_live(&self, slot: u32, generation: u32) -> bool {
        self.core.port_states.get(slot as usize).is_some_and(|s| s.generation == generation && !s.closing)
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

    /// The datastores, without their disks.
    pub(crate) fn snapshot_datastores(&self) -> Vec<(usize, DatastoreSnapshot)> {
        let now = crate::clock::now();
        let snapshot = |store: &Datastore| DatastoreSnapshot {
            name: store.name.clone(),
            window: store.pacer.window(),
            in_flight: store.pacer.in_flight(),
            queued: store.scheduler.queued(),
            at: now,
            stats: headgate_stats::DiskSnapshot { at: now, ..store.closed.clone() },
            disks: Vec::new(),
            flash: match &store.backend {
                Backend::Emulated { model, .. } => model.flash_drive(),
                Backend::Files | Backend::Null | Backend::Remote => None,
            },
        };
        self.core.datastores.iter().map(|(key, store)| (key, snapshot(store))).collect()
    }

    /// How many disks were closed so far: what was read of the others in between does not go together if it changes.
    pub(crate) fn closures(&self) -> u64 {
        self.core.datastores.iter().map(|(_, store)| store.closures).sum()
    }

    /// Up to `most` disks from number `from` on, each with its datastore, and where to go on.
    pub(crate) fn snapshot_disks(
        &self,
        from: usize,
        most: usize,
    ) -> (Vec<(usize, DiskSnapshot)>, Option<usize>) {
        let now = crate::clock::now();
        let mut found = Vec::new();
        for (key, disk) in self.core.disks.iter().skip_while(|(key, _)| *key < from) {
            if found.len() == most {
                return (found, Some(key));
            }
            let snapshot = DiskSnapshot {
                key,
                name: disk.info.name.clone(),
                size: headgate_units::Bytes(disk.info.size),
                block_size: disk.info.block_size,
                direct: disk.image.is_direct(),
                policy: disk.policy,
                priorities: disk.priorities,
                streams: disk.streams.snapshot(),
                queued: disk.room.queued(),
                in_flight: disk.in_flight,
                ports: disk.ports.len(),
                remote: disk.link.and_then(|link| self.core.links.snapshot(link)),
                stats: disk.stats.snapshot(now),
                flash: self.core.datastores.get(disk.datastore).and_then(|store| flash(store, disk.base)),
            };
            found.push((disk.datastore, snapshot));
        }
        (found, None)
    }
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn disks_lie_side_by_side_and_fill_gaps() {
        assert_eq!(place(vec![], 10, 100), 0);
        assert_eq!(place(vec![(0, 10), (10, 20)], 10, 100), 30);
        assert_eq!(place(vec![(30, 10), (0, 10)], 20, 100), 10);
        assert_eq!(place(vec![(30, 10), (0, 10)], 21, 100), 40);
        assert_eq!(place(vec![(0, 95)], 10, 100), 0, "a full device is shared from its beginning");
    }
}
