//! What the machine of a move asks for, done; what became of it, told to the machine.

use super::copies::{DiskCopy, Meets, Stage, Told};
use super::state::Pool;
use crate::world::event::Event;
use crate::world::request::{Course, Request, Role};
use crate::world::route::request_io;
use crate::world::state::World;
use headgate_devices::IoKind;
use headgate_mirror::{
    Action, Completion, Durability, Extent, Found, Job, NotTaken, Op, Outcome, RequestId, Side,
    StepId, Word,
};
use headgate_qos::DiskId;
use headgate_units::{Bytes, Nanos, Priority};

/// What became of a request that reached its host.
pub(in crate::world) enum Arrival {
    /// It goes where its disk is.
    Straight,
    /// Its disk is moved: the machine has it.
    Taken,
}

/// What a storage is asked for.
struct Asked {
    kind: IoKind,
    /// From the disk's beginning.
    position: u64,
    bytes: Bytes,
}

impl Asked {
    fn of(op: Op) -> Asked {
        let (kind, extent) = match op {
            // That is answered from what is known.
            Op::Examine(extent) => {
                return Asked { kind: IoKind::Read, position: extent.start().0, bytes: Bytes(0) };
            }
            Op::Read(extent) => (IoKind::Read, extent),
            Op::Write(extent, _) => (IoKind::Write, extent),
            // Zeroes that are holes.
            Op::Discard(extent) | Op::Zero(extent, ..) => (IoKind::Discard, extent),
            Op::Flush => return Asked { kind: IoKind::Flush, position: 0, bytes: Bytes(0) },
        };
        Asked { kind, position: extent.start().0, bytes: extent.len() }
    }
}

/// Whose something is that a move sends.
struct Sender {
    role: Role,
    tag: u32,
    /// The queue, where it is not the disk's own.
    seat: Option<usize>,
    priority: Option<Priority>,
}

/// Where a side of a move is.
struct Place {
    disk: u32,
    store: u32,
    gate: u32,
    id: DiskId,
    node: u32,
    base: u64,
}

impl Pool<'_> {
    /// Where a side of a move is: the disk there, or the queue of a copy.
    fn place(&mut self, number: usize, side: Side, seat: Option<usize>) -> Option<Place> {
        let copy = self.copies.find(number)?;
        let (member, store) = (copy.order.member, copy.store(side));
        let member = &self.members[member];
        let placement = member.placements.get(store)?.as_ref()?;
        let (gate, node, base) = (placement.gate, placement.node, placement.base);
        let id = match seat {
            Some(seat) => *self.copies.queues.get(&gate)?.get(seat)?,
            None => placement.id,
        };
        Some(Place { disk: member.disk, store: store as u32, gate, id, node, base })
    }

    /// Where a request that no move has sent yet lies on its disk.
    fn position(&self, member: Option<u32>, request: &Request) -> u64 {
        let member = member.and_then(|member| self.members.get(member as usize));
        let placement = member.and_then(|m| m.placements.get(request.store as usize)?.as_ref());
        request.offset.wrapping_sub(placement.map_or(0, |placement| placement.base))
    }
}

impl World<'_> {
    /// A guest's request reaches its host. If its disk is moved, the machine decides what becomes
    /// of it.
    #[inline]
    pub(in crate::world) fn offer_to_move(&mut self, key: u32) -> Arrival {
        match &self.pool {
            Some(pool) if !pool.copies.active.is_empty() => {}
            _ => return Arrival::Straight,
        }
        self.take_to_machine(key)
    }

    fn take_to_machine(&mut self, key: u32) -> Arrival {
        let disk = self.requests[key as usize].disk;
        let relays = |copy: &&DiskCopy| copy.order.disk == disk && copy.stage == Stage::Relaying;
        let Some(pool) = &self.pool else { return Arrival::Straight };
        let Some(number) = pool.copies.active.iter().find(relays).map(|copy| copy.order.number)
        else {
            return Arrival::Straight;
        };
        self.requests[key as usize].course = Course::Waiting;
        self.tell(number, key);
        Arrival::Taken
    }

    /// Tells the machine of a request, or keeps it until there is room.
    fn tell(&mut self, number: usize, key: u32) {
        let Some(pool) = &mut self.pool else { return };
        let request = &self.requests[key as usize];
        let disk = &self.disks[request.disk as usize];
        let (size, position) = (disk.size, pool.position(disk.member, request));
        // Traces may know of a larger disk.
        let len = Bytes(request.bytes.0.clamp(1, size.saturating_sub(position).max(1)));
        let Some(extent) = Extent::new(Bytes(position), len) else { return };
        let known = match request.kind {
            IoKind::Read => headgate_mirror::Request::Read(extent),
            IoKind::Write => headgate_mirror::Request::Write(extent, Durability::Cached),
            IoKind::Discard => headgate_mirror::Request::Discard(extent),
            IoKind::Flush => headgate_mirror::Request::Flush,
        };
        let Some(copy) = pool.copies.find(number) else { return };
        let mut out = Vec::new();
        match copy.machine.request(RequestId(u64::from(key)), known, &mut out) {
            Ok(()) => {
                let met = copy.told.values().any(|one| one.excludes(known));
                let meets = if met { Meets::Another } else { Meets::Nothing };
                copy.told.insert(key, Told { since: self.now, request: known, meets });
                self.carry_out(number, out);
            }
            Err(NotTaken::Full) => copy.held.push_back(key),
            Err(why) => {
                self.failure = Some(format!("the move of a disk does not take a request: {why}"));
            }
        }
    }

    /// Does what the machine has asked for.
    pub(super) fn carry_out(&mut self, number: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send { side, job: Job::Request(RequestId(id)), op } => {
                    self.send_for_guest(number, id as u32, side, op);
                }
                Action::Send { side, job: Job::Copy(step), op } => {
                    let sender = self.copy_of(number, Role::Step(side, step));
                    self.send_by_move(number, side, sender, Asked::of(op));
                }
                Action::Send { side, job: Job::LastFlush, op } => {
                    let sender = self.copy_of(number, Role::LastFlush);
                    self.send_by_move(number, side, sender, Asked::of(op));
                }
                Action::Answer(RequestId(id), _) => {
                    if let Some(copy) = self.copy(number) {
                        copy.told.remove(&(id as u32));
                    }
                    self.answer(id as u32);
                    self.tell_of_held(number);
                }
                Action::Record(_) => {
                    self.ask_machine(number, |copy, out| copy.machine.recorded(Word::Made, out));
                }
                Action::Ended(outcome) => self.end_copy(number, outcome),
                Action::Reclaim(_) => {
                    if let Some(copy) = self.copy(number) {
                        copy.stage = Stage::Reclaimed;
                    }
                }
            }
        }
        self.forget_copy(number);
    }

    fn copy(&mut self, number: usize) -> Option<&mut DiskCopy> {
        self.pool.as_mut().and_then(|pool| pool.copies.find(number))
    }

    /// Tells the machine something, and does what it asks for then.
    fn ask_machine<E: std::fmt::Display>(
        &mut self,
        number: usize,
        tell: impl FnOnce(&mut DiskCopy, &mut Vec<Action>) -> Result<(), E>,
    ) {
        let Some(copy) = self.copy(number) else { return };
        let mut out = Vec::new();
        if let Err(why) = tell(copy, &mut out) {
            self.failure = Some(format!("the move of a disk went wrong: {why}"));
        }
        self.carry_out(number, out);
    }

    /// There is room at the machine for one that was kept.
    fn tell_of_held(&mut self, number: usize) {
        if let Some(key) = self.copy(number).and_then(|copy| copy.held.pop_front()) {
            self.tell(number, key);
        }
    }

    fn end_copy(&mut self, number: usize, outcome: Outcome) {
        let Some(copy) = self.copy(number) else { return };
        copy.stage = Stage::Leaving;
        let (member, to) = (copy.order.member, copy.order.to);
        if outcome != Outcome::Switched {
            self.failure = Some(format!("a move ended with {outcome:?}, and nothing had failed"));
        }
        if let Some(mut pool) = self.pool.take() {
            self.arrive_there(&mut pool, member, to, number);
            self.pool = Some(pool);
        }
    }

    /// Sends a guest's request to one side, for the first time or the second.
    fn send_for_guest(&mut self, number: usize, key: u32, side: Side, op: Op) {
        let request = &mut self.requests[key as usize];
        let priority = self.workloads[request.workload as usize].priority;
        if request.course == Course::Waiting {
            request.course = Course::At(side);
            self.note_wait(number, key);
            let request = &mut self.requests[key as usize];
            let position = Asked::of(op).position;
            let Some(pool) = &mut self.pool else { return };
            let Some(place) = pool.place(number, side, None) else { return };
            (request.gate, request.id, request.node) = (place.gate, place.id, place.node);
            request.offset = place.base.wrapping_add(position);
            return self.enqueue(key, position);
        }
        let sender = Sender { role: Role::Twin, tag: key, seat: None, priority };
        self.send_by_move(number, side, sender, Asked::of(op));
    }

    /// A guest's request is sent that the machine had.
    fn note_wait(&mut self, number: usize, key: u32) {
        let now = self.now;
        let Some(pool) = &mut self.pool else { return };
        let told = pool.copies.find(number).and_then(|copy| copy.told.get(&key));
        let told = told.filter(|told| told.meets == Meets::Nothing);
        let waited = told.map_or(Nanos::ZERO, |told| now.since(told.since));
        pool.copies.longest_wait = pool.copies.longest_wait.max(waited);
    }

    fn copy_of(&mut self, number: usize, role: Role) -> Sender {
        let seat = self.copy(number).map(|copy| copy.seat);
        Sender { role, tag: number as u32, seat, priority: None }
    }

    /// Sends something that no guest has sent.
    fn send_by_move(&mut self, number: usize, side: Side, sender: Sender, asked: Asked) {
        self.events += 1;
        let Some(pool) = &mut self.pool else { return };
        let Some(place) = pool.place(number, side, sender.seat) else { return };
        let request = Request {
            disk: place.disk,
            tag: sender.tag,
            node: place.node,
            kind: asked.kind,
            offset: place.base.wrapping_add(asked.position),
            bytes: asked.bytes,
            store: place.store,
            role: sender.role,
            ..Request::unsent(self.now, place.gate, place.id)
        };
        let io = request_io(request.kind, request.bytes, asked.position, sender.priority);
        let key = self.requests.insert(request) as u32;
        self.gates[place.gate as usize].enqueue(self.now, place.id, io, key);
        self.ask(place.gate);
    }

    /// A host let something go that no guest has sent.
    pub(in crate::world) fn send_of_move(&mut self, key: u32) {
        let request = &self.requests[key as usize];
        match (request.role, request.kind, request.bytes) {
            // What is there is known without the device.
            (Role::Step(..), IoKind::Read, Bytes(0)) => {
                self.queue.push(self.now, Event::Back { request: key });
            }
            _ => self.at_node(key),
        }
    }

    /// A guest's request is back from one side of a move.
    pub(in crate::world) fn back_from_side(&mut self, key: u32, side: Side) {
        let request = Request { ticket: None, ..self.requests[key as usize] };
        self.requests[key as usize].course = Course::Back;
        self.leave_host(key, &request);
        self.guest_ended(request.disk, key, side);
    }

    /// A guest's request is answered while it is at a side that does not count any more.
    pub(in crate::world) fn leave_behind(&mut self, key: u32, side: Side) -> Request {
        let left = &mut self.requests[key as usize];
        let ticket = left.ticket.take();
        left.role = Role::Left(side);
        Request { ticket, ..*left }
    }

    fn guest_ended(&mut self, disk: u32, key: u32, side: Side) {
        let Some(pool) = &self.pool else { return };
        let of_disk = |copy: &&DiskCopy| copy.order.disk == disk;
        let Some(copy) = pool.copies.active.iter().find(of_disk) else { return };
        let job = Job::Request(RequestId(u64::from(key)));
        self.ask_machine(copy.order.number, |copy, out| {
            copy.machine.done(side, job, Completion::Done, out)
        });
    }

    /// Something is back that no guest has sent.
    pub(in crate::world) fn back_of_move(&mut self, key: u32) {
        let request = self.requests.remove(key as usize);
        self.leave_host(key, &request);
        let number = request.tag as usize;
        match request.role {
            Role::Guest => {}
            Role::Left(side) => self.guest_ended(request.disk, key, side),
            Role::Twin => self.guest_ended(request.disk, request.tag, Side::Target),
            Role::LastFlush => self.ask_machine(number, |copy, out| {
                copy.machine.done(Side::Target, Job::LastFlush, Completion::Done, out)
            }),
            Role::Step(_, step) if request.kind == IoKind::Read && request.bytes.0 == 0 => {
                self.step_found(number, step, &request);
            }
            Role::Step(side, step) => {
                if let (IoKind::Write, Some(pool)) = (request.kind, &mut self.pool) {
                    pool.copies.copied.0 += request.bytes.0;
                }
                self.ask_machine(number, |copy, out| {
                    copy.machine.done(side, Job::Copy(step), Completion::Done, out)
                });
            }
        }
    }

    /// What a step has found.
    fn step_found(&mut self, number: usize, step: StepId, request: &Request) {
        let longest = self.longest_step(number);
        let Some(pool) = &self.pool else { return };
        let disk = &self.disks[request.disk as usize];
        let (size, position) = (disk.size, pool.position(disk.member, request));
        self.ask_machine(number, |copy, out| {
            let (found, len) = match copy.used.0.saturating_sub(position) {
                0 => (Found::Hole, size.saturating_sub(position)),
                data => (Found::Data, data.min(longest.0)),
            };
            copy.machine.found(step, found, Bytes(len), out)
        });
    }
}
