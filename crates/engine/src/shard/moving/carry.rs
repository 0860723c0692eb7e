//! What the machine asks for, done; what became of it, told to the machine.

use crate::copying::Blocks;
use crate::request::{
    Charge, Completion as Done, Durability, Extent, ExtentKind, IoError, Op, Request, Unmap,
    ZeroSpeed,
};
use crate::shard::core::Core;
use crate::tables::lane::Lane;
use crate::tables::machine::{Action, Content, First, Machine};
use crate::tables::moving::{Elders, Ended, Held, Moving, Permit, Reach, Route, Stage};
use crate::tables::port::{MovePart, Sender};
use headgate_mirror::{Completion, Found, Job, RequestId, Side, StepId, Turn};
use headgate_qos::window::Admission;
use headgate_units::{Bytes, Nanos};

/// The cookie of the last flush; those of steps are their numbers.
const LAST_FLUSH: u64 = u64::MAX;

/// What a client asked for, at one side. That a range is zeroed fast or not at all is for the side
/// that has the disk: the other does what it can.
fn at_side(side: Side, asked: Op) -> Op {
    match (side, asked) {
        (Side::Target, Op::WriteZeroes { unmap, durability, .. }) => {
            Op::WriteZeroes { unmap, speed: ZeroSpeed::Any, durability }
        }
        _ => asked,
    }
}

/// What a step of the copy asks of a side, and where.
fn of_step(asked: headgate_mirror::Op) -> (Op, Option<headgate_mirror::Extent>) {
    use headgate_mirror::Op as Asked;
    let op = match asked {
        Asked::Examine(_) => Op::BlockStatus,
        Asked::Read(_) => Op::Read,
        Asked::Write(..) => Op::Write(Durability::Cached),
        Asked::Discard(_) => Op::Discard,
        Asked::Zero(_, unmap, _) => {
            let unmap = match unmap {
                headgate_mirror::Unmap::May => Unmap::May,
                headgate_mirror::Unmap::MustNot => Unmap::MustNot,
            };
            let (speed, durability) = (ZeroSpeed::Any, Durability::Cached);
            Op::WriteZeroes { unmap, speed, durability }
        }
        Asked::Flush => Op::Flush,
    };
    (op, extent_of(asked))
}

/// Where something is asked for.
fn extent_of(op: headgate_mirror::Op) -> Option<headgate_mirror::Extent> {
    use headgate_mirror::Op as Asked;
    match op {
        Asked::Examine(extent)
        | Asked::Read(extent)
        | Asked::Write(extent, _)
        | Asked::Discard(extent)
        | Asked::Zero(extent, ..) => Some(extent),
        Asked::Flush => None,
    }
}

/// Holes before, between and behind data that are shorter are copied as data: a disk that was
/// written at random would be copied block by block.
const SHORT_HOLE: u64 = 64 << 10;

/// What an examined extent begins with, in whole blocks. What nobody knows is data.
fn found(result: Result<(), IoError>, extents: &[Extent], asked: u64, block: u64) -> (Found, u64) {
    let known = if result.is_ok() { extents } else { &[] };
    let is_hole = |extent: &&Extent| extent.kind == ExtentKind::Hole;
    let (kind, len) = match known.first() {
        None => return (Found::Data, asked),
        Some(first) if is_hole(&first) && (first.len >= SHORT_HOLE || known.len() == 1) => {
            (Found::Hole, first.len)
        }
        Some(_) => {
            let run = known.iter().take_while(|extent| !is_hole(extent) || extent.len < SHORT_HOLE);
            let (all, behind) = run.fold((0, 0), |(all, behind), extent| match extent.kind {
                ExtentKind::Hole => (all + extent.len, behind + extent.len),
                ExtentKind::Data => (all + extent.len, 0),
            });
            // A hole behind the last data may be the beginning of a long one.
            (Found::Data, all - behind)
        }
    };
    match len.min(asked) / block * block {
        0 => (Found::Data, block.min(asked)),
        len => (kind, len),
    }
}

impl Moving {
    /// Invites the machine to copy, once it knows everything that is under way.
    pub(super) fn invite(&mut self, core: &mut Core) {
        self.wake = None;
        if self.stage != Stage::Relaying || core.has_elders(self) {
            return;
        }
        self.take_instant(core);
        while self.may_begin(core) && self.machine.copy(&mut self.out) == Turn::Began {
            self.permit = Permit::None;
            self.carry_out(core);
        }
    }

    /// The requests from before it have ended: that is the instant of a copy.
    fn take_instant(&mut self, core: &mut Core) {
        let source = &core.ctx.tables.disks[self.source as usize];
        let durable = match source.undurable == self.undurable {
            true => Completion::Done,
            false => Completion::Failed,
        };
        if self.machine.drained(durable, &mut self.out) == First::Yes {
            let heard = self.machine.tell_of_instant();
            self.heard(heard);
        }
        self.carry_out(core);
    }

    /// Whether the two datastores have a step to spare for the copy.
    fn may_begin(&mut self, core: &Core) -> bool {
        let under_way = self.machine.steps();
        let sides = match self.reach {
            Reach::Here => [self.source, self.target],
            Reach::Elsewhere => [self.source; 2],
        };
        for side in sides {
            match core.admit_step(side, under_way) {
                Admission::Now => {}
                Admission::At(at) => {
                    self.wake = Some(at);
                    return false;
                }
                Admission::None => return false,
            }
        }
        if self.reach == Reach::Elsewhere {
            match self.permit {
                Permit::None => self.permit = Permit::Wanted,
                Permit::Asked(beside) if beside != under_way => self.permit = Permit::Wanted,
                Permit::Wanted | Permit::Asked(_) | Permit::Given => {}
            }
        }
        self.reach == Reach::Here || self.permit == Permit::Given
    }

    /// Does what the machine has asked for.
    pub(super) fn carry_out(&mut self, core: &mut Core) {
        while !self.out.is_empty() {
            let actions = std::mem::take(&mut self.out);
            for (n, action) in actions.iter().enumerate() {
                match *action {
                    Action::Send { side, job: job @ Job::Request(RequestId(id)), op } => {
                        let next = actions.get(n + 1);
                        if matches!(next, Some(Action::Send { job: other, .. }) if *other == job) {
                            self.keep(core, id as usize);
                        }
                        self.send_request(core, id as usize, side, op);
                    }
                    Action::Send { side, job: Job::Copy(step), op } => {
                        self.send_step(core, step, side, op);
                    }
                    Action::Send { job: Job::LastFlush, .. } => {
                        let asked = (Op::Flush, None);
                        self.send_copy(
                            core,
                            MovePart::TargetCopy,
                            LAST_FLUSH,
                            asked,
                            Lane::Copy,
                            &[],
                        );
                    }
                    Action::Answer(RequestId(id), answer) => {
                        self.answer(core, id as usize, answer);
                    }
                    Action::Record(record) => self.ask_for_record(record),
                    Action::Ended(ending) => {
                        self.ending = Some(ending);
                        let heard = self.machine.tell_of_end(ending);
                        self.heard(heard);
                    }
                    Action::Reclaim(side) => self.reclaim = Some(side),
                }
            }
        }
    }

    fn send_request(&mut self, core: &mut Core, id: usize, side: Side, op: headgate_mirror::Op) {
        let front = self.clients.get(id).and_then(|client| client.front);
        let Some(front) = front else { return };
        let asked = core.ctx.tables.slots[front].request;
        // Zeroes and discards may be asked for in parts.
        let (offset, len) = match extent_of(op) {
            Some(extent) => (extent.start().0, extent.len().0),
            None => (asked.offset, asked.len),
        };
        let part = Request { op: at_side(side, asked.op), offset, len, ..asked };
        self.send_for_client(core, id, side, part);
    }

    fn send_step(&mut self, core: &mut Core, id: StepId, side: Side, op: headgate_mirror::Op) {
        let StepId(number) = id;
        let mut asked = of_step(op);
        let part = match side {
            Side::Source => MovePart::SourceCopy,
            Side::Target => MovePart::TargetCopy,
        };
        let is_awaited = self.machine.is_awaited(id);
        let lane = if is_awaited { Lane::CopyBeforeWrite } else { Lane::Copy };
        let shares = core.ctx.tables.disks[self.source as usize].shares_with.is_some();
        let Some(held) = self.steps.get_mut(number as usize) else { return };
        match (&asked.0, &held) {
            (Op::Write(_), Held::Blocks) => return self.has_blocks(number, asked),
            (Op::Read, _) if shares => (*held, asked.0) = (Held::Blocks, Op::Share),
            _ => {}
        }
        let (start, len) = asked.1.map_or((0, 0), |e| (e.start().0, e.len().0 as usize));
        let buffer = match asked.0 {
            Op::Write(_) => vec![held.part(start, len)],
            op if op.moves_data() => vec![held.room(start, len)],
            _ => Vec::new(),
        };
        self.send_copy(core, part, u64::from(number), asked, lane, &buffer);
    }

    /// What a step would write is there.
    fn has_blocks(&mut self, step: u32, (op, extent): (Op, Option<headgate_mirror::Extent>)) {
        let (offset, len) = extent.map_or((0, 0), |e| (e.start().0, e.len().0));
        let request = Request { op, offset, len, cookie: u64::from(step), ioprio: 0 };
        let (cookie, result) = (request.cookie, Ok(()));
        let completion = Done { cookie, result, extents: Vec::new(), charge: Charge::NONE };
        self.ended.push_back(Ended { part: MovePart::TargetCopy, request, completion });
    }

    /// The file system would not share these blocks: they are copied, as all others from now on.
    fn share_no_more(&mut self, core: &mut Core, step: StepId) {
        let source = &mut core.ctx.tables.disks[self.source as usize];
        // Of several steps that were under way, the first tells.
        if source.shares_with.take().is_some() && self.ending.is_none() {
            let heard = self.machine.tell_of_blocks(Blocks::Copied);
            self.heard(heard);
        }
        self.machine.refused(step, &mut self.out);
    }

    fn send_copy(
        &mut self,
        core: &mut Core,
        part: MovePart,
        cookie: u64,
        (op, extent): (Op, Option<headgate_mirror::Extent>),
        lane: Lane,
        buffers: &[libc::iovec],
    ) {
        let offset = extent.map_or(0, |extent| extent.start().0);
        let len = extent.map_or(0, |extent| extent.len().0);
        let request = Request { op, offset, len, cookie, ioprio: 0 };
        // SAFETY: the buffer is the step's, which lives until the step is over
        // (`Moving::step_ended`) or as long as the move, and that is kept until nothing that it has
        // sent is under way (`Core::is_drained`).
        unsafe { core.submit(self.senders.of(part), request, buffers, lane) };
    }

    /// Tells the machine what has ended at the two sides.
    pub(super) fn take_ended(&mut self, core: &mut Core) {
        while let Some(Ended { part, request, completion }) = self.ended.pop_front() {
            match part {
                MovePart::Source => self.client_ended(core, Side::Source, request.op, completion),
                MovePart::Target => self.client_ended(core, Side::Target, request.op, completion),
                MovePart::SourceCopy => self.step_ended(core, Side::Source, &request, &completion),
                MovePart::TargetCopy => self.step_ended(core, Side::Target, &request, &completion),
            }
            self.carry_out(core);
        }
    }

    fn client_ended(&mut self, core: &mut Core, side: Side, op: Op, completion: Done) {
        let id = completion.cookie as usize;
        let Some(client) = self.clients.get_mut(id) else { return };
        let half = client.half(side);
        (half.slot, half.error) = (None, completion.result.err());
        match client.route {
            Route::Past => {
                if let Some(front) = client.front.take() {
                    core.ctx.tables.slots[front].extents = completion.extents;
                    core.ctx.end_party(front, completion.result);
                }
            }
            Route::Machine => {
                let job = Job::Request(RequestId(id as u64));
                self.machine.done(side, job, how(side, op, completion.result), &mut self.out);
            }
        }
        self.carry_out(core);
        self.forget_ended(id);
    }

    fn step_ended(&mut self, core: &mut Core, side: Side, request: &Request, completion: &Done) {
        let op = request.op;
        let how = how(side, op, completion.result);
        if completion.cookie == LAST_FLUSH {
            return self.machine.done(side, Job::LastFlush, how, &mut self.out);
        }
        let number = completion.cookie as u32;
        let step = StepId(number);
        match (op, how) {
            (Op::BlockStatus, _) => self.examined(core, step, request.len, completion),
            (Op::Share, Completion::Failed) => self.share_no_more(core, step),
            (Op::Share, Completion::Done) => {
                let shared = completion.extents.iter().map(|extent| extent.len).sum();
                self.machine.shared(step, Bytes(request.len), Bytes(shared), &mut self.out);
            }
            (Op::Read, Completion::Done) => {
                let content = self.content_of(number, request.len);
                self.machine.read(step, content, &mut self.out);
            }
            _ => self.machine.done(side, Job::Copy(step), how, &mut self.out),
        }
        let goes_on = |action: &Action| matches!(action, Action::Send { job: Job::Copy(other), .. } if *other == step);
        if !self.out.iter().any(goes_on) {
            self.give_buffer_back(number);
        }
    }

    fn examined(&mut self, core: &Core, step: StepId, asked: u64, completion: &Done) {
        let source = &core.ctx.tables.disks[self.source as usize].info;
        let block = u64::from(source.block_size);
        let (result, extents) = (completion.result, &completion.extents);
        let (found, len) = found(result, extents, asked, block);
        let len = match found {
            Found::Data => len.min(self.longest_step(core) / block * block).max(block),
            Found::Hole | Found::Zeroes => len,
        };
        self.machine.found(step, found, Bytes(len), &mut self.out);
    }

    /// What a step has read.
    fn content_of(&self, step: u32, len: u64) -> Content {
        match self.steps.get(step as usize) {
            Some(Held::Content(held, _)) if held.is_zero(len as usize) => Content::Zeroes,
            _ => Content::Data,
        }
    }

    /// The buffer of a step that is over. A copy has many steps, few of them at a time.
    fn give_buffer_back(&mut self, step: u32) {
        if let Machine::Copy(_) = self.machine
            && let Some(held) = self.steps.get_mut(step as usize)
        {
            *held = Held::Nothing;
        }
    }

    /// How many bytes a step that holds data may be long. Of a target elsewhere nothing is known
    /// here.
    fn longest_step(&self, core: &Core) -> u64 {
        if let Machine::Copy(_) = self.machine {
            // It keeps what was found, and goes by the limits that it was given.
            return u64::MAX;
        }
        let target = (self.reach == Reach::Here).then_some(self.target);
        let sides = [Some(self.source), target].into_iter().flatten();
        sides.filter_map(|side| core.longest_step(side)).min().map_or(u64::MAX, |most| most.0)
    }

    /// Gives a target up at whose storage a request has been for too long.
    pub(super) fn give_up_slow_target(&mut self, core: &Core, index: u32) {
        let is_late = self.can_be_late() && self.lateness.look(core, self.target);
        if is_late || self.is_target_stuck(core, index) {
            self.lose_target();
        }
    }

    /// When the target is looked at again. One on another shard is watched there.
    pub(super) fn next_look_at_target(&self) -> Option<Nanos> {
        self.can_be_late().then(|| self.lateness.next())
    }

    fn can_be_late(&self) -> bool {
        self.reach == Reach::Here && self.can_lose_target()
    }
}

/// What became of a request, for the machine. A target that cannot discard keeps what it has, as it
/// may.
fn how(side: Side, op: Op, result: Result<(), IoError>) -> Completion {
    match (side, op, result) {
        (_, _, Ok(())) | (Side::Target, Op::Discard, Err(IoError::Unsupported)) => Completion::Done,
        (_, _, Err(_)) => Completion::Failed,
    }
}

impl Core {
    /// Whether requests are under way at the source that came before the machine.
    fn has_elders(&self, moving: &mut Moving) -> bool {
        if moving.elders == Elders::None {
            return false;
        }
        let tables = &self.ctx.tables;
        let is_elder = |slot: &crate::tables::slots::Slot| {
            slot.disk == moving.source
                && slot.lane == Lane::Client
                && tables.ports[slot.port as usize].sender == Sender::Client
        };
        if tables.slots.under_way().any(|(_, slot)| is_elder(slot)) {
            return true;
        }
        moving.elders = Elders::None;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: u64 = 1 << 20;

    fn extents(lens: &[(u64, ExtentKind)]) -> Vec<Extent> {
        lens.iter().map(|&(len, kind)| Extent { len, kind }).collect()
    }

    fn of(lens: &[(u64, ExtentKind)]) -> (Found, u64) {
        found(Ok(()), &extents(lens), ASKED, 4096)
    }

    const HOLE: ExtentKind = ExtentKind::Hole;
    const DATA: ExtentKind = ExtentKind::Data;

    #[test]
    fn what_is_found_is_whole_blocks_and_data_where_nobody_knows() {
        assert_eq!(of(&[(ASKED, HOLE)]), (Found::Hole, ASKED));
        assert_eq!(of(&[(2 * ASKED, DATA)]), (Found::Data, ASKED));
        assert_eq!(of(&[(8000, HOLE)]), (Found::Hole, 4096));
        assert_eq!(of(&[(100, HOLE)]), (Found::Data, 4096));
        assert_eq!(of(&[]), (Found::Data, ASKED));
        let hole = extents(&[(ASKED, HOLE)]);
        assert_eq!(found(Err(IoError::Unsupported), &hole, ASKED, 4096), (Found::Data, ASKED));
    }

    #[test]
    fn short_holes_among_data_are_data_and_long_ones_are_not() {
        let (short, long) = (SHORT_HOLE - 4096, SHORT_HOLE);
        assert_eq!(of(&[(short, HOLE), (4096, DATA), (long, HOLE)]), (Found::Data, SHORT_HOLE));
        assert_eq!(of(&[(long, HOLE), (4096, DATA)]), (Found::Hole, long));
        let many: Vec<_> = (0..64).map(|n| (4096, if n % 2 == 0 { DATA } else { HOLE })).collect();
        assert_eq!(of(&many), (Found::Data, 63 * 4096), "and no hole behind the last data");
        assert_eq!(of(&[(4096, DATA), (short, HOLE)]), (Found::Data, 4096));
    }
}
