//! Static probes (USDT), for `bpftrace`, `perf` and SystemTap.
//!
//! Three instructions that do nothing, with notes in the binary that say where they are and where
//! their arguments lie. A tracer that attaches puts a breakpoint there; without one a request pays
//! for the arguments alone. The provider is `headgate`. `docs/operator.md` has examples.
//!
//! | probe | arguments from the fourth on |
//! |---|---|
//! | `enqueue` | [operation](op), offset, bytes |
//! | `dispatch` | time queued, right (0 reservation, 1 shares), cost in millionths of an IO |
//! | `complete` | time at the device, time in all, `errno` or 0 |
//!
//! The first three are the disk's name, the name's length, and the request.
//!
//! Times are in nanoseconds. A request's number is free for another after its completion, and is of
//! its shard: two threads use the same ones. The name is not terminated by a zero.

use crate::request::{IoError, Op};
use headgate_qos::Phase;
use headgate_units::Nanos;

/// A read is 0, a write 1, a flush 2, a discard 3, a write of zeroes 4, a query of extents 5,
/// advice to read ahead 6, the sharing of blocks with a copy 7.
fn op(op: Op) -> u32 {
    match op {
        Op::Read | Op::Splice => 0,
        Op::Write(_) | Op::PlacedWrite => 1,
        Op::Flush => 2,
        Op::Discard => 3,
        Op::WriteZeroes { .. } => 4,
        Op::BlockStatus => 5,
        Op::Cache => 6,
        Op::Share => 7,
    }
}

/// A request came to its datastore's gate.
#[inline]
pub(crate) fn enqueue(disk: &str, request: u32, kind: Op, offset: u64, bytes: u64) {
    probe::probe!(headgate, enqueue, disk.as_ptr(), disk.len(), request, op(kind), offset, bytes);
}

/// The gate let a request go to the storage.
#[inline]
pub(crate) fn dispatch(disk: &str, request: u32, queued: Nanos, right: Phase, cost: u64) {
    let right = match right {
        Phase::Reservation => 0u32,
        Phase::Weight => 1,
    };
    probe::probe!(headgate, dispatch, disk.as_ptr(), disk.len(), request, queued.0, right, cost);
}

/// A request left its datastore.
#[inline]
pub(crate) fn complete(
    disk: &str,
    request: u32,
    device: Nanos,
    total: Nanos,
    result: &Result<(), IoError>,
) {
    let errno = result.as_ref().err().map_or(0, |error| error.errno());
    probe::probe!(headgate, complete, disk.as_ptr(), disk.len(), request, device.0, total.0, errno);
}
