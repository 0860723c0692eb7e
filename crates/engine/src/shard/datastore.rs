//! A datastore: enqueue, dispatch and complete of its requests, around the [`Gate`].
//!
//! [`enqueue`](Datastore::enqueue), [`next`](Datastore::next) and
//! [`complete`](Datastore::complete) work on [`Tables`] alone and take the time as an argument, so
//! that tests drive them without a ring or a clock. Between `next` and `complete` a request is at
//! the layers and the backend ([`start`](Datastore::start)).

use crate::backend::Backend;
use crate::backend::context::Context;
use crate::backend::execute::Execute;
use crate::groups::DiskGroups;
use crate::probes;
use crate::request::{Charge, Completion, DiskInfo, IoError, Op, Request};
use crate::shard::copies::{Copies, Sent};
use crate::shard::holding::HoldingDisks;
use crate::tables::Tables;
use crate::tables::disk::Learnt;
use crate::tables::lane::Lane;
use crate::tables::range_queue::Place;
use crate::tables::slots::{Depth, Slot, Stage};
use headgate_devices::Readiness;
use headgate_devices::layer::{Fault, Layers, Passage, Released};
use headgate_devices::layer::{TracePart, TracedRequest};
use headgate_qos::{Decision, Gate, ServedElsewhere, Took};
use headgate_stats::{DiskSnapshot, DiskStats};
use headgate_units::{Bytes, Nanos};

pub(crate) struct Datastore {
    pub name: String,
    pub backend: Backend,
    /// What stands between the gate and the backend.
    pub layers: Option<Box<Layers>>,
    /// The requests' order and window. Their keys are those of the shard's slots.
    pub gate: Gate<u32>,
    /// What disks had counted when they were closed.
    pub closed: DiskSnapshot,
    /// How many disks were closed.
    pub closures: u64,
    /// The disks that hold requests.
    pub holding: HoldingDisks,
    /// Copies of its disks, and to them.
    pub copies: Copies,
    /// As they were set.
    pub groups: DiskGroups,
}

/// Whether a request got into its disk's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enqueued {
    /// It did.
    Queued,
    /// It has failed; it is in the list of completed ones.
    Refused,
}

impl Datastore {
    /// Keeps what a disk that is closed has counted.
    pub(crate) fn keep_counts(&mut self, now: Nanos, stats: &DiskStats) {
        let counted = stats.snapshot(now);
        self.closed.merge(&DiskSnapshot { outstanding: 0, ..counted });
        self.closures += 1;
    }

    /// Whether there is something to do now: the gate is to be asked, or the backend or a layer has
    /// finished something.
    #[inline]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.gate.is_due(now) || self.next_wake().is_some_and(|at| at <= now)
    }

    /// The next instant at which this datastore has work without any event.
    #[inline]
    pub(crate) fn next_wake(&self) -> Option<Nanos> {
        let layers = self.layers.as_ref().and_then(|layers| layers.next_event());
        let storage = earlier(self.backend.next_event(), layers);
        earlier(earlier(self.gate.next_wake(), self.holding.next_try()), storage)
    }

    /// A disk's clients received service at other servers.
    pub(crate) fn served_elsewhere(
        &mut self,
        now: Nanos,
        tables: &Tables,
        disk: u32,
        elsewhere: ServedElsewhere,
    ) {
        let queue = tables.disks[disk as usize].queues.clients;
        let known = self.gate.served_elsewhere(now, queue, elsewhere);
        debug_assert!(known.is_ok(), "the disk is open");
    }

    /// Queues a request, or refuses one that is not the disk's.
    pub(crate) fn enqueue(&mut self, now: Nanos, tables: &mut Tables, key: u32) -> Enqueued {
        let slot = &mut tables.slots[key];
        let request = slot.request;
        let lane = slot.lane;
        let disk = &mut tables.disks[slot.disk as usize];
        if lane == Lane::Client {
            disk.stats.on_arrival(now, stats_op(request.op), request.offset, Bytes(request.len));
        }
        probes::enqueue(&disk.info.name, key, request.op, request.offset, request.len);
        if fits(&request, &disk.info, &slot.buffers) {
            let io = disk.io(&request);
            slot.priority = disk.priorities.policy.resolve(io.priority);
            if !disk.locks.is_unused() && disk.locks.stops(slot.port, &request) {
                disk.locks.hold(key);
                return Enqueued::Queued;
            }
            if disk.is_range(request.op) && disk.ranges.push(key) == Place::Behind {
                return Enqueued::Queued;
            }
            if lane == Lane::Client
                && let Some(hold) = &mut disk.trouble.hold
            {
                disk.stats.on_hold(now);
                hold.waiting.push_back(key);
                return Enqueued::Queued;
            }
            // The disk's queue exists as long as the disk does. Were it gone, the request must
            // still end.
            if self.gate.enqueue(now, disk.queues.of(lane), io, key).is_ok() {
                return Enqueued::Queued;
            }
        }
        slot.result = Err(IoError::Invalid);
        slot.stage = Stage::Withdrawn;
        slot.dispatched = now;
        disk.queue_slots.remove(&mut tables.ports[slot.port as usize].queued);
        tables.completed.push(key);
        Enqueued::Refused
    }

    /// Takes the next request that the scheduler and the window let through. `None`: none before
    /// the next event, or before [`next_wake`](Datastore::next_wake).
    #[inline]
    pub(crate) fn next(&mut self, now: Nanos, tables: &mut Tables) -> Option<u32> {
        let Decision::Dispatch(choice) = self.gate.next(now) else { return None };
        let key = choice.request;
        let slot = &mut tables.slots[key];
        let queued_for = now - slot.arrived;
        let disk = &mut tables.disks[slot.disk as usize];
        disk.queue_slots.remove(&mut tables.ports[slot.port as usize].queued);
        let (op, phase) = (stats_op(slot.request.op), stats_phase(choice.phase));
        let cost = choice.cost.as_millionths();
        probes::dispatch(&disk.info.name, key, queued_for, choice.phase, cost);
        if slot.lane == Lane::Client {
            disk.stats.on_dispatch(now, op, queued_for, phase, cost);
            disk.streams.on_dispatch(choice.priority, cost);
        }
        slot.priority = choice.priority;
        slot.cost = choice.cost;
        slot.phase = choice.phase;
        slot.stage = Stage::Dispatched;
        slot.dispatched = now;
        disk.in_flight += 1;
        if !self.copies.is_empty() {
            let (lane, shares) = (slot.lane, disk.policy.shares());
            let moved = if slot.request.op.moves_data() { slot.request.len } else { 0 };
            let (disk, bytes, cost) = (slot.disk, Bytes(moved), choice.cost);
            let sent = Sent { disk, lane, shares, cost, bytes };
            self.copies.dispatched(now, &sent, self.gate.in_flight());
        }
        Some(key)
    }

    /// Takes those requests of a port that `wanted` picks out of the disk's queue, uncharged: they
    /// never were, for storage and statistics. Returns how many. O(queued of the disk).
    pub(crate) fn withdraw(
        &mut self,
        now: Nanos,
        tables: &mut Tables,
        port: u32,
        wanted: &mut dyn FnMut(&Slot) -> bool,
    ) -> usize {
        let Tables { slots, disks, ports, .. } = tables;
        let state = &mut ports[port as usize];
        let disk = &mut disks[state.disk as usize];
        let mut is_wanted = |&key: &u32| slots[key].port == port && wanted(&slots[key]);
        // The disk is registered as long as it is open, so there is nothing to take only if it is
        // not.
        let mut taken =
            self.gate.extract(now, disk.queues.clients, &mut is_wanted).unwrap_or_default();
        taken.extend(disk.ranges.extract(&mut is_wanted));
        taken.extend(disk.locks.extract(&mut is_wanted));
        let (held, failed) = Datastore::withdraw_held(disk, &mut is_wanted);
        self.forget_tried(disk, &taken);
        for &key in &taken {
            let request = slots[key].request;
            disk.stats.on_withdraw(now, stats_op(request.op), Bytes(request.len));
            disk.queue_slots.remove(&mut state.queued);
            state.requests -= 1;
            slots.free(key);
        }
        for (n, &key) in held.iter().enumerate() {
            disk.stats.on_held_withdraw(now);
            if n >= failed {
                disk.queue_slots.remove(&mut state.queued);
            }
            state.requests -= 1;
            slots.free(key);
        }
        let number = state.disk;
        taken.extend(held);
        for &key in &taken {
            self.end_range(now, tables, number, key);
        }
        if !taken.is_empty() {
            self.end_empty_hold(now, tables, number);
        }
        tables.grant_locks(number, None);
        taken.len()
    }

    /// Takes those of a port's requests back that lead `newest_first`, as long as they are queued:
    /// see [`PortIo::take_back`](crate::port::PortIo::take_back).
    pub(crate) fn take_back(
        &mut self,
        now: Nanos,
        tables: &mut Tables,
        port: u32,
        newest_first: &[u64],
    ) -> usize {
        let mut queued = Vec::new();
        // Nothing is wanted: this only looks.
        self.withdraw(now, tables, port, &mut |slot| {
            queued.push(slot.request.cookie);
            false
        });
        queued.sort_unstable();
        let is_queued = |cookie: &&u64| queued.binary_search(cookie).is_ok();
        let count = newest_first.iter().take_while(is_queued).count();
        let mut wanted = newest_first[..count].to_vec();
        wanted.sort_unstable();
        self.withdraw(now, tables, port, &mut |slot| {
            wanted.binary_search(&slot.request.cookie).is_ok()
        })
    }

    /// Takes a request out of the window and the counters.
    pub(crate) fn complete(&mut self, now: Nanos, tables: &mut Tables, key: u32) -> Completion {
        let slot = &mut tables.slots[key];
        let disk = &mut tables.disks[slot.disk as usize];
        let (request, queue) = (slot.request, disk.queues.of(slot.lane));
        let mut charge = Charge::NONE;
        match slot.stage {
            Stage::Queued | Stage::Free | Stage::Withdrawn | Stage::Held | Stage::Part => {}
            Stage::Dispatched => {
                charge = Charge { cost: slot.cost, phase: slot.phase };
                disk.in_flight -= 1;
                let device = now - slot.dispatched;
                let tells = request.op.is_transfer() && slot.result.is_ok() && !slot.outage;
                if tells {
                    let took = Took { queued: slot.dispatched - slot.arrived, device };
                    self.gate.measure(now, queue, took, Bytes(request.len));
                }
                self.gate.complete(now, queue, slot.cost);
                if !self.copies.is_empty() {
                    let (device, in_flight) = (tells.then_some(device), self.gate.in_flight());
                    self.copies.completed(now, slot.lane, slot.disk, device, in_flight);
                }
            }
        }
        let latency =
            headgate_stats::Latency { device: now - slot.dispatched, total: now - slot.arrived };
        probes::complete(&disk.info.name, key, latency.device, latency.total, &slot.result);
        let outcome = stats_outcome(&slot.result);
        if slot.result.is_err() && request.op.makes_durable() {
            disk.undurable += 1;
            disk.note_loss();
        }
        if slot.lane == Lane::Client {
            let bytes = Bytes(request.len);
            disk.stats.on_complete(now, stats_op(request.op), bytes, latency, outcome);
        }
        let number = slot.disk;
        let (cookie, result) = (request.cookie, slot.result);
        let extents = std::mem::take(&mut slot.extents);
        let completion = Completion { cookie, result, extents, charge };
        if let Op::WriteZeroes { unmap, .. } = request.op
            && disk.learn_zeroing(unmap, slot.zeroing) == Learnt::Cost
        {
            self.enqueue_zeroes_again(now, tables, number);
        }
        self.end_range(now, tables, number, key);
        let home = tables.ports[tables.slots[key].port as usize].disk;
        tables.grant_locks(home, Some(key));
        completion
    }

    /// Queues a request that waited for a block; it may have to wait for another.
    pub(super) fn enqueue_held(&mut self, now: Nanos, tables: &mut Tables, key: u32) {
        let slot = &tables.slots[key];
        let (request, port) = (slot.request, slot.port);
        let disk = &mut tables.disks[slot.disk as usize];
        if disk.locks.stops(port, &request) {
            return disk.locks.hold(key);
        }
        if disk.is_range(request.op) && disk.ranges.push(key) == Place::Behind {
            return;
        }
        let queued = self.queue(now, tables, key);
        debug_assert!(queued, "the disk is open");
    }

    /// A request has left a disk: one that waited for it to free or zero its range may go on.
    #[inline]
    fn end_range(&mut self, now: Nanos, tables: &mut Tables, disk: u32, key: u32) {
        let Some(next) = tables.disks[disk as usize].ranges.end(key) else { return };
        let queued = self.queue(now, tables, next);
        debug_assert!(queued, "the disk is open");
    }

    /// Has queued write-zeroes charged as writes from now on. They keep their order among
    /// themselves, and go behind what else is queued.
    fn enqueue_zeroes_again(&mut self, now: Nanos, tables: &mut Tables, disk: u32) {
        let (disk, slots) = (&tables.disks[disk as usize], &tables.slots);
        let mut zeroes = |&key: &u32| matches!(slots[key].request.op, Op::WriteZeroes { .. });
        for queue in [Some(disk.queues.clients), disk.queues.copy].into_iter().flatten() {
            let queued = self.gate.extract(now, queue, &mut zeroes).unwrap_or_default();
            for key in queued {
                let io = disk.io(&slots[key].request);
                let again = self.gate.enqueue(now, queue, io, key);
                debug_assert!(again.is_ok(), "the disk was there a moment ago");
            }
        }
    }

    /// Collects what has finished by now, and starts what may start.
    pub(crate) fn pump(&mut self, ctx: &mut Context) {
        self.backend.poll(ctx);
        self.release(ctx);
        self.try_held(ctx.now, &mut ctx.tables);
        if !self.gate.is_due(ctx.now) {
            return;
        }
        if self.gate.queued() > 0 && self.backend.prepare(ctx.now) == Readiness::Busy {
            // The gate stays due. Other datastores of this shard go on meanwhile.
            return;
        }
        // When the turn has moved its bytes, those whose transfers are done need not wait for the
        // others'. The gate stays due.
        while ctx.turn_bytes > 0
            && let Some(key) = self.next(ctx.now, &mut ctx.tables)
        {
            self.start(ctx, key);
        }
    }

    /// Hands a request to the layers and the backend.
    #[inline]
    fn start(&mut self, ctx: &mut Context, key: u32) {
        let Some(layers) = &mut self.layers else { return self.backend.start(ctx, key) };
        // A turn may have begun before the request was made: its time would count as delayed.
        ctx.now = ctx.now.max(crate::clock::now());
        let slot = &mut ctx.tables.slots[key];
        match layers.submit(ctx.now, layer_id(slot.disk, key), slot.request.device_io(0)) {
            Passage::Start => {
                slot.depth = Depth::Below;
                self.backend.start(ctx, key);
            }
            Passage::End(result) => end(ctx, key, result),
            Passage::Held => {}
        }
    }

    /// The backend has executed a request: whether it has ended, or a layer holds it.
    #[inline]
    pub(crate) fn ended(&mut self, ctx: &mut Context, key: u32) -> Ended {
        let slot = &mut ctx.tables.slots[key];
        let Some(layers) = &mut self.layers else { return Ended::Yes };
        if std::mem::replace(&mut slot.depth, Depth::Above) == Depth::Above {
            return Ended::Yes;
        }
        let io = slot.request.device_io(0);
        let id = layer_id(slot.disk, key);
        match layers.complete(ctx.now, id, io, slot.result.map_err(|_| Fault::Io)) {
            Passage::Held => Ended::NotYet,
            Passage::End(_) | Passage::Start => Ended::Yes,
        }
    }

    /// Lets go what layers have held until now.
    fn release(&mut self, ctx: &mut Context) {
        let Some(layers) = &mut self.layers else { return };
        while let Some(released) = layers.poll(ctx.now) {
            go_on(&mut self.backend, ctx, released);
        }
    }

    /// Puts layers in the place of those that there are. Requests that the old ones hold go on at
    /// once; those at the backend come up through the new ones.
    pub(crate) fn set_layers(&mut self, ctx: &mut Context, layers: Option<Box<Layers>>) {
        let Some(mut old) = std::mem::replace(&mut self.layers, layers) else { return };
        while let Some(released) = old.evict(ctx.now) {
            go_on(&mut self.backend, ctx, released);
        }
    }

    /// Up to `most` requests that the trace layer has kept, from this serial number on. `None`:
    /// there is no trace layer.
    pub(crate) fn trace(&self, tables: &Tables, from: u64, most: usize) -> Option<TracePart> {
        let layers = self.layers.as_ref()?;
        let recorded = layers.traced()?;
        let mut part = TracePart { requests: Vec::new(), next: recorded, recorded };
        for entry in layers.trace(from) {
            if part.requests.len() == most {
                part.next = entry.serial;
                break;
            }
            let disk = tables.disks.get(disk_of(entry.id));
            part.requests.push(TracedRequest {
                serial: entry.serial,
                disk: disk.map_or_else(String::new, |disk| disk.info.name.clone()),
                submitted: entry.submitted,
                completed: entry.completed,
                io: entry.io,
                result: entry.result,
            });
        }
        Some(part)
    }

    /// A disk is closed: its number may be another's soon.
    pub(crate) fn forget_disk(&mut self, disk: usize) {
        self.forget_holding(disk as u32);
        if let Some(layers) = &mut self.layers {
            layers.forget_traced(|id| disk_of(id) == disk);
        }
    }
}

/// What layers call a request: its disk, then its slot.
fn layer_id(disk: u32, key: u32) -> u64 {
    u64::from(disk) << 32 | u64::from(key)
}

/// The disk of a request that layers call so.
fn disk_of(id: u64) -> usize {
    (id >> 32) as usize
}

/// A layer lets a request go: to the backend, or to its port.
fn go_on(backend: &mut Backend, ctx: &mut Context, released: Released) {
    // The lower half of the name is the slot.
    let key = released.id as u32;
    match released.ended {
        None => {
            ctx.tables.slots[key].depth = Depth::Below;
            backend.start(ctx, key);
        }
        Some(result) => end(ctx, key, result),
    }
}

/// What became of a request that the backend has executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its port may know.
    Yes,
    /// A layer holds it.
    NotYet,
}

/// A request has left the layers. One that they failed fails; any other keeps the result that it
/// has.
fn end(ctx: &mut Context, key: u32, result: Result<(), Fault>) {
    let slot = &mut ctx.tables.slots[key];
    slot.result = slot.result.and(result.map_err(|fault| match fault {
        Fault::Io => IoError::Backend(libc::EIO),
        Fault::NoSpace => IoError::NoSpace,
    }));
    ctx.tables.completed.push(key);
}

fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The last check before the kernel: range, alignment, and that the buffers hold what the request
/// moves.
fn fits(request: &Request, disk: &DiskInfo, buffers: &[libc::iovec]) -> bool {
    let block = u64::from(disk.block_size);
    let in_range = request.offset.checked_add(request.len).is_some_and(|end| end <= disk.size);
    let aligned = request.offset.is_multiple_of(block) && request.len.is_multiple_of(block);
    let held = if request.op.is_transfer() && request.len == 0 {
        false
    } else if request.op.moves_data() {
        buffers.iter().try_fold(0u64, |sum, b| sum.checked_add(b.iov_len as u64))
            == Some(request.len)
    } else {
        buffers.is_empty()
    };
    in_range && aligned && held
}

pub(super) fn stats_op(op: Op) -> headgate_stats::Op {
    match op {
        Op::Read | Op::Splice => headgate_stats::Op::Read,
        Op::Write(_) | Op::PlacedWrite => headgate_stats::Op::Write,
        Op::Flush => headgate_stats::Op::Flush,
        Op::Discard => headgate_stats::Op::Discard,
        Op::WriteZeroes { .. } => headgate_stats::Op::WriteZeroes,
        Op::BlockStatus | Op::Cache | Op::Share => headgate_stats::Op::Other,
    }
}

fn stats_phase(phase: headgate_qos::Phase) -> headgate_stats::Phase {
    match phase {
        headgate_qos::Phase::Reservation => headgate_stats::Phase::Reservation,
        headgate_qos::Phase::Weight => headgate_stats::Phase::Weight,
    }
}

fn stats_outcome(result: &Result<(), IoError>) -> headgate_stats::Outcome {
    match result {
        Ok(()) => headgate_stats::Outcome::Done,
        Err(_) => headgate_stats::Outcome::Failed,
    }
}
