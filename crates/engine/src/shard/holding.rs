//! Disks that hold requests because their storage is in trouble.
//!
//! A held request is in no scheduler, no window and no layer, so the others of the datastore go on
//! as if its disk were idle. It is its client's still: what is held ends when the storage takes it,
//! when its policy no longer holds it, or when its port gives it up, takes it back or closes. See
//! `docs/decisions/0063-trouble.md`.

use super::datastore::{Datastore, stats_op};
use crate::error::EngineError;
use crate::request::{Access, IoError, Step};
use crate::tables::Tables;
use crate::tables::disk::ShardDisk;
use crate::tables::lane::Lane;
use crate::tables::port::Sender;
use crate::tables::slots::{Depth, Stage};
use crate::tables::trouble::{Failure, Hold, last_error};
use crate::trouble::TroublePolicy;
use headgate_stats::ErrorOp;
use headgate_units::Nanos;

/// What becomes of a request that has ended at the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its port is told.
    Answered,
    /// The disk holds it.
    Held,
}

/// The disks of a datastore that hold requests.
#[derive(Debug, Default)]
pub(crate) struct HoldingDisks {
    disks: Vec<u32>,
    /// The earliest of their next tries.
    next_try: Option<Nanos>,
}

impl HoldingDisks {
    /// When to try the next request of one of them.
    #[inline]
    pub(crate) fn next_try(&self) -> Option<Nanos> {
        self.next_try
    }

    fn look(&mut self, tables: &Tables) {
        let next =
            |&disk: &u32| tables.disks.get(disk as usize)?.trouble.hold.as_ref()?.next_event();
        self.next_try = self.disks.iter().filter_map(next).min();
    }
}

/// Whether anything between us and the storage may keep writes that were acknowledged.
fn cached(disk: &ShardDisk) -> Access {
    // Nobody knows what a server does.
    if disk.storage.remote().is_some() { Access::Cached } else { disk.access }
}

impl Datastore {
    /// A request has ended at the storage: its disk answers it, or holds it.
    #[inline]
    pub(crate) fn judge(&mut self, now: Nanos, tables: &mut Tables, key: u32) -> Verdict {
        let slot = &tables.slots[key];
        let disk = &tables.disks[slot.disk as usize];
        match slot.result {
            Ok(()) if disk.trouble.hold.is_none() => Verdict::Answered,
            Ok(()) => {
                let number = slot.disk;
                if is_tried(disk, key) {
                    self.go_on(now, tables, number);
                }
                Verdict::Answered
            }
            Err(error) => self.judge_failure(now, tables, key, error),
        }
    }

    fn judge_failure(
        &mut self,
        now: Nanos,
        tables: &mut Tables,
        key: u32,
        error: IoError,
    ) -> Verdict {
        let Tables { slots, disks, ports, .. } = tables;
        let slot = &slots[key];
        let (number, request) = (slot.disk, slot.request);
        let disk = &mut disks[number as usize];
        if slot.stage != Stage::Dispatched {
            return Verdict::Answered;
        }
        let op = ErrorOp::from(stats_op(request.op));
        if let Some(kind) = error.kind() {
            let last = last_error(op, error, request.offset, request.len);
            disk.trouble.note(now, op, kind, last);
        }
        let failure = Failure { op: request.op, step: slot.step, error, access: cached(disk) };
        let port = &ports[slot.port as usize];
        // What another shard's move has sent is held there.
        let is_held = slot.lane == Lane::Client
            && !matches!(port.sender, Sender::Landing(_))
            && disk.trouble.holds(failure)
            && !port.closing;
        if !is_held && error.kind().is_some() {
            disk.trouble.reported = Some(now);
        }
        let was_tried = is_tried(disk, key);
        if is_held {
            self.keep(now, tables, key, error);
            return Verdict::Held;
        }
        if was_tried && let Some(hold) = &mut tables.disks[number as usize].trouble.hold {
            // It is answered, and says nothing of those that are held.
            hold.try_withdrawn();
            self.end_empty_hold(now, tables, number);
        }
        Verdict::Answered
    }

    /// Takes a request that the storage failed out of the window, and what its disk has queued
    /// out of the scheduler.
    fn keep(&mut self, now: Nanos, tables: &mut Tables, key: u32, error: IoError) {
        let Tables { slots, disks, .. } = tables;
        let number = slots[key].disk;
        let disk = &mut disks[number as usize];
        disk.in_flight -= 1;
        disk.stats.on_hold(now);
        self.gate.complete(now, disk.queues.clients, slots[key].cost);
        slots[key].stage = Stage::Held;
        if disk.trouble.hold.is_none() {
            let queue = disk.queues.clients;
            let mut queued = self.gate.extract(now, queue, &mut |_| true).unwrap_or_default();
            // Streams come one after the other.
            queued.sort_unstable_by_key(|&key| slots[key].serial);
            queued.iter().for_each(|_| disk.stats.on_hold(now));
            disk.trouble.begin(now, error).waiting.extend(queued);
            self.holding.disks.push(number);
        }
        let Some(hold) = &mut disk.trouble.hold else { return };
        if hold.trying == Some(key) {
            hold.try_failed(now);
        }
        let serial = slots[key].serial;
        let at = hold.failed.partition_point(|&other| slots[other].serial < serial);
        hold.failed.insert(at, key);
        self.holding.look(tables);
    }

    /// Tries what is due to be tried.
    pub(super) fn try_held(&mut self, now: Nanos, tables: &mut Tables) {
        if self.holding.next_try.is_none_or(|at| at > now) {
            return;
        }
        for number in self.holding.disks.clone() {
            let hold = tables.disks[number as usize].trouble.hold.as_mut();
            if let Some(hold) = hold.filter(|hold| hold.next_event().is_some_and(|at| at <= now))
                && let Some(key) = hold.begin_try()
            {
                self.send_again(now, tables, key);
            }
        }
        self.holding.look(tables);
    }

    /// Has the oldest request that a disk holds tried now. `false`: it holds none.
    pub(crate) fn hurry(&mut self, now: Nanos, tables: &mut Tables, disk: u32) -> bool {
        let Some(hold) = &mut tables.disks[disk as usize].trouble.hold else { return false };
        hold.hurry(now);
        self.holding.look(tables);
        self.try_held(now, tables);
        true
    }

    /// Puts another policy in force. What is held and is no longer to be held fails, and then there
    /// may be nothing left to hold for.
    pub(crate) fn set_trouble(
        &mut self,
        now: Nanos,
        tables: &mut Tables,
        number: u32,
        policy: TroublePolicy,
    ) -> Result<(), EngineError> {
        let Tables { slots, disks, .. } = &mut *tables;
        let disk = disks.get_mut(number as usize).ok_or(EngineError::NoDisk)?;
        disk.trouble.policy = policy;
        let access = cached(disk);
        let Some(hold) = &disk.trouble.hold else { return Ok(()) };
        let fails = |&&key: &&u32| {
            let slot = &slots[key];
            let failure = |error| Failure { op: slot.request.op, step: slot.step, error, access };
            slot.result.is_err_and(|error| !disk.trouble.holds(failure(error)))
        };
        let failed: Vec<u32> = hold.failed.iter().filter(fails).copied().collect();
        self.fail(now, tables, number, &failed);
        self.end_empty_hold(now, tables, number);
        Ok(())
    }

    /// Ends those of a port's requests that are held, with the errors that the storage gave.
    pub(crate) fn give_up(&mut self, now: Nanos, tables: &mut Tables, port: u32, cookies: &[u64]) {
        let number = tables.ports[port as usize].disk;
        let mut cookies = cookies.to_vec();
        cookies.sort_unstable();
        let is_wanted = |key: &u32| {
            let slot = &tables.slots[*key];
            slot.port == port && cookies.binary_search(&slot.request.cookie).is_ok()
        };
        let wanted: Vec<u32> = self.held_requests(tables, number).filter(is_wanted).collect();
        self.fail_held(now, tables, number, &wanted);
    }

    /// How many of a port's requests wait for the storage's trouble to end.
    pub(crate) fn held_of(&self, tables: &Tables, port: u32) -> usize {
        let held = self.held_requests(tables, tables.ports[port as usize].disk);
        held.filter(|&key| tables.slots[key].port == port).count()
    }

    /// Ends [requests that a disk holds](Datastore::held_requests) with the errors that the storage
    /// gave.
    pub(crate) fn fail_held(&mut self, now: Nanos, tables: &mut Tables, disk: u32, keys: &[u32]) {
        let state = &mut tables.disks[disk as usize];
        if state.trouble.hold.is_none() {
            return;
        }
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        let mut is_wanted = |key: &u32| sorted.binary_search(key).is_ok();
        let mut behind = state.ranges.extract(&mut is_wanted);
        behind.extend(state.locks.extract(&mut is_wanted));
        behind.iter().for_each(|_| state.stats.on_hold(now));
        self.fail(now, tables, disk, keys);
        self.end_empty_hold(now, tables, disk);
    }

    /// The requests that wait for the trouble of a disk's storage to end.
    pub(crate) fn held_requests<'a>(
        &self,
        tables: &'a Tables,
        number: u32,
    ) -> impl Iterator<Item = u32> + 'a {
        let disk = &tables.disks[number as usize];
        disk.trouble.hold.iter().flat_map(|hold| {
            let held = hold.failed.iter().chain(&hold.waiting).chain(disk.ranges.waiting());
            held.chain(disk.locks.waiting()).copied()
        })
    }

    /// Takes those out that a port no longer wants. They are in no statistics. Returns their slots,
    /// of which those in the disk's queue come last, and the number of the others.
    pub(super) fn withdraw_held(
        disk: &mut ShardDisk,
        is_wanted: &mut dyn FnMut(&u32) -> bool,
    ) -> (Vec<u32>, usize) {
        let Some(hold) = &mut disk.trouble.hold else { return (Vec::new(), 0) };
        let mut taken = Vec::new();
        let mut keep = |key: &u32| {
            let takes = is_wanted(key);
            taken.extend(takes.then_some(*key));
            !takes
        };
        hold.failed.retain(&mut keep);
        let before = hold.waiting.len();
        hold.waiting.retain(&mut keep);
        let queued = before - hold.waiting.len();
        let failed = taken.len() - queued;
        (taken, failed)
    }

    /// The one that is tried was taken back from the scheduler.
    pub(super) fn forget_tried(&mut self, disk: &mut ShardDisk, taken: &[u32]) {
        if let Some(hold) = &mut disk.trouble.hold
            && hold.trying.is_some_and(|key| taken.contains(&key))
        {
            hold.try_withdrawn();
        }
    }

    /// Answers held requests with their errors: those of others that only waited with the error
    /// that began it.
    fn fail(&mut self, now: Nanos, tables: &mut Tables, number: u32, keys: &[u32]) {
        let Tables { slots, disks, ports, completed, .. } = tables;
        let disk = &mut disks[number as usize];
        let Some(hold) = &mut disk.trouble.hold else { return };
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        let stays = |key: &u32| sorted.binary_search(key).is_err();
        hold.failed.retain(stays);
        hold.waiting.retain(stays);
        for &key in keys {
            let slot = &mut slots[key];
            if slot.stage == Stage::Queued {
                slot.result = Err(hold.error);
                slot.dispatched = now;
                disk.queue_slots.remove(&mut ports[slot.port as usize].queued);
            }
            slot.stage = Stage::Withdrawn;
            disk.trouble.reported = Some(now);
            disk.stats.on_resume(now);
            completed.push(key);
        }
    }

    /// Ends a hold that nothing is left to try of.
    pub(super) fn end_empty_hold(&mut self, now: Nanos, tables: &mut Tables, disk: u32) {
        let hold = tables.disks[disk as usize].trouble.hold.as_deref();
        if hold.is_some_and(Hold::is_over) {
            self.go_on(now, tables, disk);
        }
        self.holding.look(tables);
    }

    /// The trouble of a disk is over, as far as anybody knows: all that it holds is sent, in order.
    fn go_on(&mut self, now: Nanos, tables: &mut Tables, number: u32) {
        self.holding.disks.retain(|&disk| disk != number);
        let Some(hold) = tables.disks[number as usize].trouble.hold.take() else { return };
        for &key in &hold.failed {
            self.send_again(now, tables, key);
        }
        for key in hold.waiting {
            tables.disks[number as usize].stats.on_resume(now);
            tables.slots[key].outage = true;
            self.queue(now, tables, key);
        }
        self.holding.look(tables);
    }

    /// Queues a request that was at the storage, from its beginning.
    fn send_again(&mut self, now: Nanos, tables: &mut Tables, key: u32) {
        let Tables { slots, disks, ports, .. } = tables;
        let slot = &mut slots[key];
        let disk = &mut disks[slot.disk as usize];
        (slot.step, slot.done, slot.result) = (Step::Main, 0, Ok(()));
        (slot.stage, slot.depth, slot.parties) = (Stage::Queued, Depth::Above, 0);
        slot.zeroing = Default::default();
        slot.extents.clear();
        // What it takes from its arrival on says nothing of the storage.
        slot.outage = true;
        disk.stats.on_resume(now);
        disk.queue_slots.add(&mut ports[slot.port as usize].queued);
        let io = disk.io(&slot.request);
        let queued = self.gate.enqueue(now, disk.queues.clients, io, key);
        debug_assert!(queued.is_ok(), "the disk is open");
    }

    /// Gives a request to the scheduler, or to what its disk holds.
    #[inline]
    pub(super) fn queue(&mut self, now: Nanos, tables: &mut Tables, key: u32) -> bool {
        let disk = &mut tables.disks[tables.slots[key].disk as usize];
        let lane = tables.slots[key].lane;
        if lane == Lane::Client
            && let Some(hold) = &mut disk.trouble.hold
        {
            disk.stats.on_hold(now);
            hold.waiting.push_back(key);
            return true;
        }
        let io = disk.io(&tables.slots[key].request);
        // The disk's queue exists as long as the disk does.
        self.gate.enqueue(now, disk.queues.of(lane), io, key).is_ok()
    }

    /// A disk is closed.
    pub(super) fn forget_holding(&mut self, disk: u32) {
        self.holding.disks.retain(|&holding| holding != disk);
    }

    /// The disks that hold requests.
    #[cfg(test)]
    pub(crate) fn holding_disks(&self) -> &[u32] {
        &self.holding.disks
    }
}

fn is_tried(disk: &ShardDisk, key: u32) -> bool {
    disk.trouble.hold.as_ref().is_some_and(|hold| hold.trying == Some(key))
}
