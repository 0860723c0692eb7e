//! The beginning of a move, and its end in the shard's tables.

use crate::backend::Backend;
use crate::backend::moving::Moving as Machine;
use crate::backend::nbd::loss::LossEpoch;
use crate::backend::storage::Storage;
use crate::error::{EngineError, MoveError};
use crate::moving::{MoveEvent, MoveGauge, MoveListener};
use crate::request::DiskInfo;
use crate::shard::Shard;
use crate::shard::core::Core;
use crate::shard::datastore::Datastore;
use crate::tables::disk::ShardDisk;
use crate::tables::lane::Queues;
use crate::tables::moving::{Elders, Moving, Senders, Stage};
use crate::tables::port::{MovePart, PortState, Sender};
use crate::tables::queue_slots::QueueSlots;
use crate::tables::streams::Streams;
use headgate_mirror::{Limits, Mirror, Outcome, Setup, TargetContent};
use headgate_qos::window::Slots;
use headgate_qos::{AnyScheduler, Config, Gate, Policy, SchedulerKind};
use headgate_stats::{DiskSnapshot, DiskStats};
use headgate_units::{Bytes, Nanos};
use slab::Slab;
use std::collections::VecDeque;

/// What a move begins with, on its shard.
pub(crate) struct Beginning {
    pub source: usize,
    pub target: usize,
    pub content: TargetContent,
    pub pace: Policy,
    pub limits: Limits,
    pub patience: Nanos,
    pub gauge: MoveGauge,
    pub listener: MoveListener,
}

/// Whether two disks can be the two sides of a move.
fn check_sides(source: &ShardDisk, target: &ShardDisk) -> Result<(), EngineError> {
    if source.moving.is_some() || target.moving.is_some() || source.successor.is_some() {
        return Err(MoveError::Moving.into());
    }
    if !target.ports.is_empty() {
        return Err(EngineError::DiskBusy { ports: target.ports.len() });
    }
    if source.trouble.hold.is_some() {
        return Err(MoveError::Holding.into());
    }
    let (from, to) = (&source.info, &target.info);
    if to.size < from.size {
        return Err(MoveError::Small { size: Bytes(from.size), target: Bytes(to.size) }.into());
    }
    if to.block_size > from.block_size {
        let (block, target) = (from.block_size, to.block_size);
        return Err(MoveError::BlockSize { block, target }.into());
    }
    Ok(())
}

impl Shard {
    /// Begins a move. Returns its index and its serial number.
    pub(crate) fn begin_move(&mut self, new: Beginning) -> Result<(u32, u64), EngineError> {
        let disks = &self.core.ctx.tables.disks;
        let source = disks.get(new.source).ok_or(EngineError::NoDisk)?;
        let target = disks.get(new.target).ok_or(EngineError::NoDisk)?;
        check_sides(source, target)?;
        let setup =
            Setup { size: Bytes(source.info.size), target: new.content, limits: new.limits };
        let mut out = Vec::new();
        let mirror = Mirror::new(setup, &mut out).map_err(MoveError::Setup)?;
        let scheduler = AnyScheduler::new(SchedulerKind::Fifo, Config::default())?;
        let info = source.info.clone();
        let index = self.core.moves.vacant_key();
        let window = u32::try_from(new.limits.requests).unwrap_or(u32::MAX);
        let (front, front_store) = self.core.open_front(index as u32, &info, scheduler, window);
        let (source, target) = (new.source as u32, new.target as u32);
        // A larger target is as large as the disk, as its clients know it.
        self.core.ctx.tables.disks[new.target].info.size = info.size;
        for disk in [source, target] {
            self.core.add_copy_queue(disk, new.pace);
        }
        let mut add = |disk, part| self.core.add_sender(disk, index as u32, part);
        let senders = Senders {
            source: add(source, MovePart::Source),
            source_copy: add(source, MovePart::SourceCopy),
            target: add(target, MovePart::Target),
            target_copy: add(target, MovePart::TargetCopy),
        };
        for disk in [front, source, target] {
            self.core.ctx.tables.disks[disk as usize].moving = Some(index as u32);
        }
        self.core.next_move += 1;
        let serial = self.core.next_move;
        let steps = (0..new.limits.steps).map(|_| None).collect();
        self.core.moves.insert(Some(Box::new(Moving {
            serial,
            mirror,
            front,
            front_store,
            source,
            target,
            senders,
            stage: Stage::Preparing,
            elders: Elders::Perhaps,
            clients: Slab::new(),
            steps,
            waiting: VecDeque::new(),
            writes: 0,
            ended: VecDeque::new(),
            reclaim: None,
            outcome: None,
            patience: new.patience,
            gauge: new.gauge,
            listener: new.listener,
            out,
        })));
        self.count_windows();
        Ok((index as u32, serial))
    }
}

impl Core {
    /// Opens a disk like this one, whose requests go to the machine of a move.
    fn open_front(
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
            successor: None,
        });
        (front as u32, store)
    }

    fn add_copy_queue(&mut self, disk: u32, pace: Policy) {
        let disk = &mut self.ctx.tables.disks[disk as usize];
        let store = &mut self.datastores[disk.datastore];
        disk.queues.copy = Some(store.gate.register(self.ctx.now, pace));
    }

    /// A port without a client behind it, by which a move sends.
    fn add_sender(&mut self, disk: u32, index: u32, part: MovePart) -> u32 {
        self.next_generation = self.next_generation.wrapping_add(1);
        let link = self.ctx.tables.disks[disk as usize].storage.link();
        let epoch = link.map_or_else(LossEpoch::default, |link| self.ctx.links.on_client(link));
        let port = self.ctx.tables.ports.insert(PortState::new(
            disk,
            self.next_generation,
            Sender::Move(index, part),
            epoch,
        ));
        port as u32
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

    /// Takes a move out of the tables that has nothing under way, and tells that one side can be
    /// reclaimed.
    pub(super) fn forget_move(&mut self, moving: &mut Moving) {
        let now = self.ctx.now;
        for port in moving.senders.all() {
            let state = self.ctx.tables.ports.remove(port as usize);
            self.ctx.client_gone(state.disk, state.epoch);
        }
        for disk in [moving.source, moving.target] {
            let disk = &mut self.ctx.tables.disks[disk as usize];
            disk.moving = None;
            if let Some(queue) = disk.queues.copy.take() {
                // Nothing is queued.
                drop(self.datastores[disk.datastore].gate.unregister(now, queue));
            }
        }
        self.ctx.tables.disks.remove(moving.front as usize);
        self.datastores.remove(moving.front_store);
        let switched = moving.outcome == Some(Outcome::Switched);
        self.ctx.tables.disks[moving.source as usize].successor = switched.then_some(moving.target);
        moving.gauge.set(None);
        if let Some(side) = moving.reclaim {
            moving.tell(MoveEvent::Reclaim(side));
        }
    }
}
