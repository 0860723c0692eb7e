//! What becomes of a request: checked against its disk before it goes down, and told to the guest
//! when it is back.

use super::super::config::{MAX_DISCARD, MAX_WRITE_ZEROES};
use headgate_engine::request::{
    self as engine, DiskInfo, Durability, IoError, Op, Writes, ZeroSpeed,
};
use headgate_units::Bytes;
use headgate_vring::blk::Status;
use headgate_vring::{Operation, Request, Unmap};

/// What to do with a request.
pub(super) enum Judgement {
    Answer(Status, u32),
    Submit { op: Op, offset: Bytes, len: Bytes, writes: u32 },
}

/// Checks a request against its disk and says what to ask of the engine.
pub(super) fn judge(request: &Request<'_>, disk: &DiskInfo, durability: Durability) -> Judgement {
    let ranged = |op, offset: Bytes, len: Bytes, longest: u64| {
        // `offset + len` does not overflow: the queue checked that.
        if len.0 > longest || offset.0 + len.0 > disk.size {
            return Judgement::Answer(Status::IoError, 0);
        }
        if op != Op::Read && disk.writes == Writes::Refused {
            return Judgement::Answer(Status::IoError, 0);
        }
        let writes = if op == Op::Read { len.0 as u32 } else { 0 };
        Judgement::Submit { op, offset, len, writes }
    };
    match request.operation {
        Operation::Read { offset, len } => ranged(Op::Read, offset, len, engine::MAX_REQUEST),
        Operation::Write { offset, len } => {
            ranged(Op::Write(durability), offset, len, engine::MAX_REQUEST)
        }
        Operation::Flush => {
            Judgement::Submit { op: Op::Flush, offset: Bytes(0), len: Bytes(0), writes: 0 }
        }
        Operation::Discard { offset, len } => ranged(Op::Discard, offset, len, MAX_DISCARD),
        Operation::WriteZeroes { offset, len, unmap } => {
            let unmap = match unmap {
                Unmap::May => engine::Unmap::May,
                Unmap::MustNot => engine::Unmap::MustNot,
            };
            let op = Op::WriteZeroes { unmap, speed: ZeroSpeed::Any, durability };
            ranged(op, offset, len, MAX_WRITE_ZEROES)
        }
        Operation::GetId => Judgement::Answer(Status::Ok, request.write_id(&disk.name)),
    }
}

/// What the guest is told; nothing of a request that was not served, so that it is replayed later.
pub(super) fn status_of(result: Result<(), IoError>) -> Option<Status> {
    match result {
        Ok(()) => Some(Status::Ok),
        Err(IoError::Cancelled) => None,
        Err(IoError::Unsupported) => Some(Status::Unsupported),
        Err(IoError::Invalid | IoError::NoSpace | IoError::Backend(_)) => Some(Status::IoError),
    }
}
