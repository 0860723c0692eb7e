//! The beginning of a move or a copy, and its end in the shard's tables.

use super::far::Way;
use crate::backend::Backend;
use crate::backend::file::shared::SharedImage;
use crate::backend::file::tenure::Fencing;
use crate::backend::moving::Moving as ToMachine;
use crate::backend::nbd::loss::LossEpoch;
use crate::backend::storage::{OpenFile, Storage};
use crate::copying::{Blocks, CopyTerms};
use crate::error::{EngineError, MoveError};
use crate::moving::MoveTerms;
use crate::request::DiskInfo;
use crate::shard::Shard;
use crate::shard::core::Core;
use crate::shard::datastore::Datastore;
use crate::tables::crossing::Wanted;
use crate::tables::disk::{ShardDisk, SharesWith, Successor};
use crate::tables::lane::Queues;
use crate::tables::lateness::Lateness;
use crate::tables::machine::{Copy, Machine, Move};
use crate::tables::moving::{Elders, Held, Moving, Permit, Reach, Senders, Stage};
use crate::tables::port::{MovePart, PortState, Sender};
use crate::tables::queue_slots::QueueSlots;
use crate::tables::streams::Streams;
use headgate_mirror::instant::{self, Keeps, PointInTime};
use headgate_mirror::{Mirror, Setup};
use headgate_qos::window::{Admission, Slots};
use headgate_qos::{AnyScheduler, Config, Gate, Policy, SchedulerKind};
use headgate_stats::{DiskSnapshot, DiskStats};
use headgate_units::{Bytes, Nanos};
use slab::Slab;
use std::collections::VecDeque;

/// Where a move's target is.
pub(crate) enum Target {
    Here(usize),
    /// On another shard, where the disk looks so.
    Elsewhere(Way, DiskInfo),
}

/// What a move begins with, on its shard.
pub(crate) struct Beginning<T> {
    pub source: usize,
    pub target: Target,
    pub terms: T,
}

/// What may be under way of a move or a copy, and what its copying is held to.
#[derive(Clone, Copy, Debug)]
struct Amounts {
    pace: Policy,
    requests: usize,
    steps: u32,
    patience: Nanos,
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
    pub(crate) fn begin_move(
        &mut self,
        new: Beginning<MoveTerms>,
    ) -> Result<(u32, u64), EngineError> {
        let Beginning { source, target, terms } = new;
        let size = self.check_sides(source, &target)?;
        let MoveTerms { content, pace, limits, patience, gauge, listener } = terms;
        let mut out = Vec::new();
        let setup = Setup { size, target: content, limits };
        let mirror = Mirror::new(setup, &mut out).map_err(MoveError::Setup)?;
        let machine = Machine::Move(Move::new(mirror, out, gauge, listener));
        let amounts = Amounts { pace, requests: limits.requests, steps: limits.steps, patience };
        self.begin(source, target, machine, amounts)
    }

    /// Begins a copy as of one instant. Returns its index and its serial number.
    pub(crate) fn begin_copy(
        &mut self,
        new: Beginning<CopyTerms>,
        blocks: Blocks,
    ) -> Result<(u32, u64), EngineError> {
        let Beginning { source, target, terms } = new;
        let size = self.check_sides(source, &target)?;
        let CopyTerms { sharing: _, content, pace, limits, patience, gauge, listener } = terms;
        let takes_blocks = match (&target, blocks) {
            (Target::Here(target), Blocks::Shared) => Some(*target as u32),
            _ => None,
        };
        let keeps = takes_blocks.map_or(Keeps::Buffers, |_| Keeps::Target);
        let setup = instant::Setup { size, target: content, keeps, limits };
        let copy = PointInTime::new(setup).map_err(MoveError::CopySetup)?;
        let chunk = copy.chunk();
        let mut machine = Machine::Copy(Copy::new(copy, gauge, listener));
        let amounts = Amounts { pace, requests: limits.requests, steps: limits.steps, patience };
        if takes_blocks.is_some() {
            // Without a listener it ends with the next word.
            let _ = machine.tell_of_blocks(Blocks::Shared);
        }
        let begun = self.begin(source, target, machine, amounts)?;
        let shares = takes_blocks.map(|disk| SharesWith { disk, chunk });
        self.core.ctx.tables.disks[source].shares_with = shares;
        Ok(begun)
    }

    /// Handles on the images of a disk and of its copy, and the disk's size; `None` where they are
    /// no files that could share blocks, or one may be taken from this host.
    pub(crate) fn images_of_copy(
        &self,
        source: usize,
        target: usize,
    ) -> Result<Option<(SharedImage, SharedImage, u64)>, EngineError> {
        let of = |key: usize| {
            let disk = self.core.ctx.tables.disks.get(key).ok_or(EngineError::NoDisk)?;
            let is_file = matches!(self.core.datastores[disk.datastore].backend, Backend::File(_));
            let keeps = |file: &&OpenFile| file.image.tenure().fencing() == Fencing::Never;
            let file = disk.storage.file().filter(keeps).filter(|_| is_file);
            Ok::<_, EngineError>(file.and_then(|file| file.image.share().ok()))
        };
        let size = self.core.ctx.tables.disks.get(source).map_or(0, |disk| disk.info.size);
        Ok(of(source)?.zip(of(target)?).map(|(source, target)| (source, target, size)))
    }

    /// Whether a disk can be copied to a target now. Returns its size.
    fn check_sides(&self, source: usize, target: &Target) -> Result<Bytes, EngineError> {
        let disks = &self.core.ctx.tables.disks;
        let found = disks.get(source).ok_or(EngineError::NoDisk)?;
        check_source(found)?;
        match target {
            Target::Here(target) => {
                let target = disks.get(*target).ok_or(EngineError::NoDisk)?;
                target.check_as_target()?;
                check_fit(&found.info, &target.info)?;
            }
            Target::Elsewhere(_, target) => check_fit(&found.info, target)?,
        }
        Ok(Bytes(found.info.size))
    }

    fn begin(
        &mut self,
        source: usize,
        target: Target,
        mut machine: Machine,
        amounts: Amounts,
    ) -> Result<(u32, u64), EngineError> {
        let scheduler = || AnyScheduler::new(SchedulerKind::Fifo, Config::default());
        let schedulers = [scheduler()?, scheduler()?];
        self.core.next_move += 1;
        let (index, serial) = (self.core.moves.vacant_key() as u32, self.core.next_move);
        if let Target::Elsewhere(way, _) = &target {
            self.target_shards.insert(index, way.shard.clone());
        }
        let size = Bytes(self.core.ctx.tables.disks[source].info.size);
        let begun = self.core.open_sides(index, source as u32, target, amounts, schedulers);
        self.tell_target(index, move |shard, landing| {
            shard.landing_begins(landing, (index, serial), size);
        });
        let out = machine.first();
        self.core.moves.insert(Some(Box::new(Moving {
            serial,
            machine,
            front: begun.front,
            stores: begun.stores,
            source: source as u32,
            target: begun.target,
            reach: begun.reach,
            permit: Permit::None,
            wanted: Wanted::Yes,
            wake: None,
            senders: begun.senders,
            stage: Stage::Preparing,
            elders: Elders::Perhaps,
            clients: Slab::new(),
            steps: (0..amounts.steps).map(|_| Held::Nothing).collect(),
            waiting: VecDeque::new(),
            writes: 0,
            ended: VecDeque::new(),
            reclaim: None,
            ending: None,
            lateness: Lateness::new(self.core.ctx.now, amounts.patience),
            undurable: 0,
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
            self.core.ctx.tables.disks[disk as usize].shares_with = None;
        }
        for (disk, store) in moving.stores.drain(..) {
            self.core.ctx.tables.disks.remove(disk as usize);
            self.core.datastores.remove(store);
        }
        let successor = moving.has_switched().then(|| self.core.successor_of(moving, index));
        self.core.ctx.tables.disks[moving.source as usize].successor = successor;
        self.tell_target(index, |shard, landing| shard.close_landing(landing));
        self.target_shards.remove(&index);
        self.core.fars.remove(&index);
        moving.machine.show_nothing();
        if let Some(side) = moving.reclaim {
            moving.machine.tell_of_release(side);
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
        amounts: Amounts,
        [front, far]: [AnyScheduler<u32>; 2],
    ) -> Begun {
        let info = self.ctx.tables.disks[source as usize].info.clone();
        // All that the machine has under way.
        let requests = u32::try_from(amounts.requests).unwrap_or(u32::MAX);
        let window = requests.saturating_add(amounts.steps).saturating_add(1);
        let (front, front_store) = self.open_relay(index, &info, front, window);
        let changes = self.ctx.tables.disks[source as usize].changes.clone();
        self.ctx.tables.disks[front as usize].changes = changes;
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
        self.add_copy(source, amounts.pace, amounts.steps);
        // Of a target elsewhere its own shard decides.
        self.add_copy(target, amounts.pace, amounts.steps);
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
            backend: Backend::Moving(ToMachine),
            layers: None,
            gate,
            closed: DiskSnapshot::default(),
            closures: 0,
            holding: Default::default(),
            copies: Default::default(),
            groups: Default::default(),
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
            undurable: 0,
            changes: None,
            ports: Vec::new(),
            stats: DiskStats::new(now),
            trouble: Default::default(),
            moving: Some(index),
            landing: None,
            resizing: Default::default(),
            successor: None,
            shares_with: None,
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
        let remote = self.ctx.tables.disks[disk as usize].storage.remote();
        remote.map_or_else(LossEpoch::default, |remote| self.ctx.links.on_client(remote))
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
