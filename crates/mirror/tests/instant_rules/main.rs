//! The copy as of one instant: who waits for what and for how long, who is spared what, how much
//! there may be, how it ends.

mod bounds;
mod changes;
mod ends;
mod order;
mod pieces;

use headgate_mirror::instant::*;
use headgate_mirror::{
    Completion, Durability, Extent, Found, Job, Op, Request, RequestId, Side, StepId,
    TargetContent, Turn, Unmap,
};
use headgate_units::Bytes;

/// Chunks of 4 bytes; a step reads two, and the buffers hold four.
const LIMITS: Limits = Limits {
    requests: 8,
    steps: 6,
    ahead: 2,
    step: Bytes(8),
    look: Bytes(32),
    buffers: Bytes(16),
    chunk: Bytes(4),
    bitmap: Bytes(1024),
};

fn extent(start: u64, len: u64) -> Extent {
    Extent::new(Bytes(start), Bytes(len)).unwrap()
}

fn write(start: u64, len: u64) -> Request {
    Request::Write(extent(start, len), Durability::Cached)
}

fn through(start: u64, len: u64) -> Request {
    Request::Write(extent(start, len), Durability::Fua)
}

fn zero(start: u64, len: u64) -> Request {
    Request::Zero(extent(start, len), Unmap::May, Durability::Cached)
}

/// What it says to an input.
fn said<T>(
    copy: &mut PointInTime,
    input: impl FnOnce(&mut PointInTime, &mut Vec<Action>) -> T,
) -> Vec<Action> {
    let mut out = Vec::new();
    input(copy, &mut out);
    out
}

fn new(size: u64, target: TargetContent, limits: Limits) -> PointInTime {
    let keeps = Keeps::Buffers;
    PointInTime::new(Setup { size: Bytes(size), target, keeps, limits }).unwrap()
}

/// A machine of so many bytes, with nothing under way from before.
fn copying(size: u64, limits: Limits) -> PointInTime {
    let mut copy = new(size, TargetContent::Zeroes, limits);
    assert_eq!(said(&mut copy, |c, out| c.drained(Completion::Done, out).unwrap()), []);
    copy
}

fn asked(copy: &mut PointInTime, id: u64, request: Request) -> Vec<Action> {
    said(copy, |c, out| c.request(RequestId(id), request, out).unwrap())
}

fn done(copy: &mut PointInTime, side: Side, job: Job) -> Vec<Action> {
    said(copy, |c, out| c.done(side, job, Completion::Done, out).unwrap())
}

fn failed(copy: &mut PointInTime, side: Side, job: Job) -> Vec<Action> {
    said(copy, |c, out| c.done(side, job, Completion::Failed, out).unwrap())
}

fn found(copy: &mut PointInTime, id: u32, found: Found, len: u64) -> Vec<Action> {
    said(copy, |c, out| c.found(StepId(id), found, Bytes(len), out).unwrap())
}

fn invite(copy: &mut PointInTime, turn: Turn) -> Vec<Action> {
    said(copy, |c, out| assert_eq!(c.copy(out), turn))
}

fn request(id: u64) -> Job {
    Job::Request(RequestId(id))
}

fn step(id: u32) -> Job {
    Job::Copy(StepId(id))
}

fn at_source(job: Job, op: Op) -> Action {
    Action::Send { side: Side::Source, job, op }
}

fn at_target(job: Job, op: Op) -> Action {
    Action::Send { side: Side::Target, job, op }
}

fn read(id: u32, start: u64, len: u64) -> Action {
    at_source(step(id), Op::Read(extent(start, len)))
}

fn examine(id: u32, start: u64, len: u64) -> Action {
    at_source(step(id), Op::Examine(extent(start, len)))
}

fn written(id: u32, start: u64, len: u64) -> Action {
    at_target(step(id), Op::Write(extent(start, len), Durability::Cached))
}

fn wrote(id: u64, start: u64, len: u64) -> Action {
    at_source(request(id), Op::Write(extent(start, len), Durability::Cached))
}

fn zeroed(id: u64, start: u64, len: u64) -> Action {
    at_source(request(id), Op::Zero(extent(start, len), Unmap::May, Durability::Cached))
}

fn answered(id: u64) -> Action {
    Action::Answer(RequestId(id), Completion::Done)
}

const FLUSHED: Action = Action::Send { side: Side::Target, job: Job::LastFlush, op: Op::Flush };

const COMPLETE: [Action; 2] = [Action::Ended(Outcome::Complete), Action::Release];

/// Copies all of it as a hole.
fn copy_all(copy: &mut PointInTime, size: u64) -> Vec<Action> {
    assert_eq!(invite(copy, Turn::Began), [examine(0, 0, size)]);
    found(copy, 0, Found::Hole, size)
}
