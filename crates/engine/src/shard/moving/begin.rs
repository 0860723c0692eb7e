//! The beginning of a move, and its end in the shard's tables.

use super::far::Way;
use crate::backend::Backend;
use crate::backend::moving::Moving as Machine;
use crate::backend::nbd::loss::LossEpoch;
use crate::backend::storage::Storage;
use crate::error::{EngineError, MoveError};
use crate::moving::{MoveEvent, MoveTerms};
use crate::request::DiskInfo;
use crate::shard::Shard;
use crate::shard::core::Core;
use crate::shard::datastore::Datastore;
use crate::tables::disk::{ShardDisk, Successor};
use crate::tables::lane::Queues;
use crate::tables::lateness::Lateness;
use crate::tables::moving::{Elders, Moving, Permit, Reach, Senders, Stage};
use crate::tables::port::{MovePart, PortState, Sender};
use crate::tables::queue_slots::QueueSlots;
use crate::tables::streams::Streams;
use headgate_mirror::{Mirror, Outcome, Setup};
use headgate_qos::window::{Admission, Slots};
use headgate_qos::{AnyScheduler, Config, Gate, Policy, SchedulerKind};
use headgate_stats::{DiskSnapshot, DiskStats};
use headgate_units::Bytes;
use slab::Slab;
use std::collections::VecDeque;

/// Where a move's target is.
pub(crate) enum Target {
    Here(usize),
    /// On another shard, where the disk looks so.
    Elsewhere(Way, DiskInfo),
}

/// What a move begins with, on its shard.
pub(crate) struct Beginning {
    pub source: usize,
    pub target: Target,
    pub terms: MoveTerms,
}

/// Whether a disk can be the source of a move.
fn check_source(source: &ShardDisk) -> Result<(), EngineError> {
    if source.is_moving() || source.successor.is_some() {
        return Err(MoveError::Moving.into());
    }
    source.check_size_stays()?;
    if source.trouble.hold.is_some() {
        return Err(MoveError::Holding.into());
    }
    Ok(())
}

/// Whether a disk can become one that looks so.
fn check_fit(from: &DiskInfo, to: &DiskInfo) -> Result<(), MoveError> {
    if to.size < from.size {
        return Err(MoveError::Small { size: Bytes(from.size), target: Bytes(to.size) });
    }
    if to.block_size > from.block_size {
        let (block, target) = (from.block_size, to.block_size);
        return Err(MoveError::BlockSize { block, target });
    }
    Ok(())
}

impl Shard {
    /// Begins a move. Returns its index and its serial number.
    pub(crate) fn begin_move(&mut self, new: Beginning) -> Result<(u32, u64), EngineError> {
        let Beginning { source, target, terms } = new;
        let disks = &self.core.ctx.tables.disks;
        let found = disks.get(source).ok_or(EngineError::NoDisk)?;
        check_source(found)?;
        let info = found.info.clone();
        match &target {
            Target::Here(target) => {
                let target = disks.get(*target).ok_or(EngineError::NoDisk)?;
                target.check_as_target()?;
                check_fit(&info, &target.info)?;
            }
            Target::Elsewhere(_, target) => check_fit(&info, target)?,
        }
        let size = Bytes(info.size);
        let setup = Setup { size, target: terms.content, limits: terms.limits };
        let mut out = Vec::new();
        let mirror = Mirror::new(setup, &mut out).map_err(MoveError::Setup)?;
        let scheduler = || AnyScheduler::new(SchedulerKind::Fifo, Config::default());
        let schedulers = [scheduler()?, scheduler()?];
        self.core.next_move += 1;
        let (index, serial) = (self.core.moves.vacant_key() as u32, self.core.next_move);
        if let Target::Elsewhere(way, _) = &target {
            self.target_shards.insert(index, way.shard.clone());
        }
        let begun = self.core.open_sides(index, source as u32, target, &terms, schedulers);
        let steps = (0..terms.limits.steps).map(|_| None).collect();
        self.tell_target(index, move |shard, landing| {
            shard.landing_begins(landing, (index, serial), size);
        });
        self.core.moves.insert(Some(Box::new(Moving {
            serial,
            mirror,
            front: begun.front,
            stores: begun.stores,
            source: source as u32,
            target: begun.target,
            reach: begun.reach,
            permit: Permit::None,
            wake: None,
            senders: begun.senders,
            stage: Stage::Preparing,
            elders: Elders::Perhaps,
            clients: Slab::new(),
            steps,
            waiting: VecDeque::new(),
            writes: 0,
            ended: VecDeque::new(),
            reclaim: None,
            outcome: None,
            lateness: Lateness::new(self.core.ctx.now, terms.patience),
            gauge: terms.gauge,
            listener: terms.listener,
            out,
        })));
        self.count_windows();
        Ok((index, serial))
    }

    /// Takes a move out of the tables that has nothing under way, and tells that one side can be
    /// reclaimed.
    pub(super) fn forget_move(&mut self, moving: &mut Moving, index: u32) {
        for port in moving.senders.all() {
            self.core.remove_sender(port);
        }
        for disk in [moving.source, moving.target] {
            self.core.remove_copy(disk);
            self.core.ctx.tables.disks[disk as usize].moving = None;
        }
        for (disk, store) in moving.stores.drain(..) {
            self.core.ctx.tables.disks.remove(disk as usize);
            self.core.datastores.remove(store);
        }
        let switched = moving.outcome == Some(Outcome::Switched);
        let successor = switched.then(|| self.core.successor_of(moving, index));
        self.core.ctx.tables.disks[moving.source as usize].successor = successor;
        self.tell_target(index, |shard, landing| shard.close_landing(landing));
        self.target_shards.remove(&index);
        self.core.fars.remove(&index);
        moving.gauge.set(None);
        if let Some(side) = moving.reclaim {
            moving.tell(MoveEvent::Reclaim(side));
        }
    }
}

/// The disks and ports of a move.
struct Begun {
    front: u32,
    target: u32,
    reach: Reach,
    senders: Senders,
    stores: Vec<(u32, usize)>,
}

impl Core {
    /// Opens the move's own disks, and its ways to the two sides.
    fn open_sides(
        &mut self,
        index: u32,
        source: u32,
        target: Target,
        terms: &MoveTerms,
        [front, far]: [AnyScheduler<u32>; 2],
    ) -> Begun {
        let info = self.ctx.tables.disks[source as usize].info.clone();
        // All that the machine has under way.
        let requests = u32::try_from(terms.limits.requests).unwrap_or(u32::MAX);
        let window = requests.saturating_add(terms.limits.steps).saturating_add(1);
        let (front, front_store) = self.open_relay(index, &info, front, window);
        let mut stores = vec![(front, front_store)];
        let (target, reach) = match target {
            Target::Here(target) => {
                // A larger target is as large as the disk, as its clients know it.
                self.ctx.tables.disks[target].info.size = info.size;
                (target as u32, Reach::Here)
            }
            Target::Elsewhere(way, there) => {
                let there = DiskInfo { size: info.size, ..there };
                let (far, store) = self.open_relay(index, &there, far, window);
                // Who is told of what it holds.
                self.ctx.tables.disks[far as usize].successor = Some(Successor::Here(front));
                stores.push((far, store));
                self.fars.insert(index, way.far);
                (far, Reach::Elsewhere)
            }
        };
        self.add_copy(source, terms.pace, terms.limits.steps);
        // Of a target elsewhere its own shard decides.
        self.add_copy(target, terms.pace, terms.limits.steps);
        let mut add = |disk, part| self.add_sender(disk, Sender::Move(index, part));
        let senders = Senders {
            source: add(source, MovePart::Source),
            source_copy: add(source, MovePart::SourceCopy),
            target: add(target, MovePart::Target),
            target_copy: add(target, MovePart::TargetCopy),
        };
        for disk in [front, source, target] {
            self.ctx.tables.disks[disk as usize].moving = Some(index);
        }
        Begun { front, target, reach, senders, stores }
    }

    /// Opens a disk like this one, whose requests go to the machine of a move, or to another
    /// shard.
    fn open_relay(
        &mut self,
        index: u32,
        info: &DiskInfo,
        scheduler: AnyScheduler<u32>,
        window: u32,
    ) -> (u32, usize) {
        let now = self.ctx.now;
        let mut gate = Gate::new(now, scheduler, Slots::whole(window));
        let queue = gate.register(now, Policy::default());
        let store = self.datastores.insert(Datastore {
            name: format!("move of {}", info.name),
            backend: Backend::Moving(Machine),
            layers: None,
            gate,
            closed: DiskSnapshot::default(),
            closures: 0,
            holding: Default::default(),
            copies: Default::default(),
        });
        let front = self.ctx.tables.disks.insert(ShardDisk {
            info: info.clone(),
            datastore: store,
            storage: Storage::Moving,
            access: crate::request::Access::Direct,
            queues: Queues::new(queue),
            policy: Policy::default(),
            priorities: Default::default(),
            zeroing: Default::default(),
            streams: Streams::new(),
            queue_slots: QueueSlots::default(),
            ranges: Default::default(),
            locks: Default::default(),
            in_flight: 0,
            ports: Vec::new(),
            stats: DiskStats::new(now),
            trouble: Default::default(),
            moving: Some(index),
            landing: None,
            resizing: Default::default(),
            successor: None,
        });
        (front as u32, store)
    }

    /// A copy has a queue of its own, and may have so many steps under way.
    pub(super) fn add_copy(&mut self, number: u32, pace: Policy, steps: u32) {
        let disk = &mut self.ctx.tables.disks[number as usize];
        let store = &mut self.datastores[disk.datastore];
        let policy = store.copies.add(self.ctx.now, number, pace, steps);
        disk.queues.copy = Some(store.gate.register(self.ctx.now, policy));
    }

    /// Removes a copy that has nothing queued.
    pub(super) fn remove_copy(&mut self, number: u32) {
        let disk = &mut self.ctx.tables.disks[number as usize];
        let store = &mut self.datastores[disk.datastore];
        store.copies.remove(number);
        if let Some(queue) = disk.queues.copy.take() {
            drop(store.gate.unregister(self.ctx.now, queue));
        }
    }

    pub(super) fn set_copy_pace(&mut self, number: u32, pace: Policy) {
        let disk = &self.ctx.tables.disks[number as usize];
        let store = &mut self.datastores[disk.datastore];
        if let Some(queue) = disk.queues.copy
            && let Some(policy) = store.copies.set_pace(self.ctx.now, number, pace)
        {
            // It is registered.
            let _ = store.gate.set_policy(self.ctx.now, queue, policy);
        }
    }

    /// Whether a copy may begin a step beside so many that are under way.
    pub(super) fn admit_step(&self, disk: u32, under_way: u32) -> Admission {
        let store = &self.datastores[self.ctx.tables.disks[disk as usize].datastore];
        store.copies.admit(self.ctx.now, disk, under_way, store.gate.in_flight())
    }

    /// How long a step of a disk's copy may be now; `None`: as long as it likes.
    pub(super) fn longest_step(&self, disk: u32) -> Option<Bytes> {
        let store = &self.datastores[self.ctx.tables.disks[disk as usize].datastore];
        store.copies.longest_step(self.ctx.now, disk, store.gate.in_flight())
    }

    /// A port without a client behind it, by which a move sends.
    pub(super) fn add_sender(&mut self, disk: u32, sender: Sender) -> u32 {
        self.next_generation = self.next_generation.wrapping_add(1);
        let epoch = self.epoch_of_client(disk);
        let state = PortState::new(disk, self.next_generation, sender, epoch);
        self.ctx.tables.ports.insert(state) as u32
    }

    pub(super) fn remove_sender(&mut self, port: u32) {
        let state = self.ctx.tables.ports.remove(port as usize);
        self.ctx.client_gone(state.disk, state.epoch);
    }

    /// What a client that comes to a disk knows of what its server may have lost.
    pub(in crate::shard) fn epoch_of_client(&mut self, disk: u32) -> LossEpoch {
        let link = self.ctx.tables.disks[disk as usize].storage.link();
        link.map_or_else(LossEpoch::default, |link| self.ctx.links.on_client(link))
    }

    /// Whether nothing of a move is under way any more.
    pub(super) fn is_drained(&self, moving: &Moving) -> bool {
        let tables = &self.ctx.tables;
        let front = &tables.disks[moving.front as usize];
        front.in_flight == 0
            && front.queue_slots.queued() == 0
            && moving.clients.is_empty()
            && moving.waiting.is_empty()
            && moving.reclaim.is_some()
            && moving.senders.all().iter().all(|&port| tables.ports[port as usize].requests == 0)
    }

    /// The target, as the disk that has become it.
    pub(super) fn successor_of(&self, moving: &Moving, index: u32) -> Successor {
        match self.fars.get(&index) {
            Some(far) => Successor::Elsewhere(far.disk),
            None => Successor::Here(moving.target),
        }
    }
}
