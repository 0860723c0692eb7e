//! Between the protocol's types and the engine's.
//!
//! `headgate-nbd` is pure and knows no engine. Every request and reply passes through here once.

use headgate_engine::request::{self as engine, DiskInfo, IoError, MAX_REQUEST};
use headgate_nbd::server::command::{self as nbd, ExtentCount};
use headgate_nbd::server::{Export, MAX_PAYLOAD, Writes, reply};
use headgate_nbd::wire::NbdError;

// The protocol's limit is also the engine's: a checked request is one that a shard accepts.
const _: () = assert!(MAX_PAYLOAD as u64 == MAX_REQUEST);

/// The least that is worth asking for at a time, in bytes: a page.
const PREFERRED_BLOCK: u32 = 4096;

/// A checked request, with the engine's operation.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Identifies the request in its reply.
    pub cookie: u64,
    /// The operation.
    pub op: engine::Op,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub len: u32,
    /// How many extents the reply may have, for [`engine::Op::BlockStatus`].
    pub extents: ExtentCount,
    /// How far into the range begins what was asked for, for [`engine::Op::BlockStatus`].
    pub skip: u32,
    /// The length that was asked for in bytes.
    pub asked: u32,
    /// Its own priority, in Linux's encoding; 0: that of its export.
    pub ioprio: u16,
}

impl Command {
    /// Whether its range is one of whole blocks.
    pub fn is_aligned(&self, block: u32) -> bool {
        (self.offset | u64::from(self.len)).is_multiple_of(u64::from(block))
    }
}

impl From<nbd::Command> for Command {
    fn from(command: nbd::Command) -> Command {
        let nbd::Command { cookie, op, offset, len, extents } = command;
        Command { cookie, op: operation(op), offset, len, extents, skip: 0, asked: len, ioprio: 0 }
    }
}

fn operation(op: nbd::Op) -> engine::Op {
    match op {
        nbd::Op::Read => engine::Op::Read,
        nbd::Op::Write(durability) => engine::Op::Write(self::durability(durability)),
        nbd::Op::Flush => engine::Op::Flush,
        nbd::Op::Trim => engine::Op::Discard,
        nbd::Op::Cache => engine::Op::Cache,
        nbd::Op::WriteZeroes { unmap, speed, durability } => engine::Op::WriteZeroes {
            unmap: match unmap {
                nbd::Unmap::May => engine::Unmap::May,
                nbd::Unmap::MustNot => engine::Unmap::MustNot,
            },
            speed: match speed {
                nbd::ZeroSpeed::Any => engine::ZeroSpeed::Any,
                nbd::ZeroSpeed::FastOnly => engine::ZeroSpeed::FastOnly,
            },
            durability: self::durability(durability),
        },
        nbd::Op::BlockStatus => engine::Op::BlockStatus,
    }
}

fn durability(durability: nbd::Durability) -> engine::Durability {
    match durability {
        nbd::Durability::Cached => engine::Durability::Cached,
        nbd::Durability::Fua => engine::Durability::Fua,
    }
}

/// A disk as requests are checked against it, by an export that takes writes or does not.
pub fn export(disk: &DiskInfo, writes: Writes) -> Export {
    let writes = match disk.writes {
        engine::Writes::Allowed => writes,
        engine::Writes::Refused => Writes::Refused,
    };
    // What is not whole blocks is served too, and costs more. The protocol wants a power of two.
    let physical = disk.topology.physical_block;
    let min_io = Some(disk.topology.min_io).filter(|size| size.is_power_of_two());
    let preferred = min_io.unwrap_or(physical).max(disk.block_size).max(PREFERRED_BLOCK);
    Export { size: disk.size, block_size: 1, preferred, writes }
}

/// Extents from `skip` bytes behind the first one's begin on.
pub fn extents_behind(
    extents: &[engine::Extent],
    skip: u32,
) -> impl Iterator<Item = reply::Extent> {
    let mut skip = u64::from(skip);
    extents.iter().map(extent).map(move |extent| {
        let cut = extent.len.min(skip);
        skip -= cut;
        reply::Extent { len: extent.len - cut, ..extent }
    })
}

/// An extent as the reply to a block status request takes it.
pub fn extent(extent: &engine::Extent) -> reply::Extent {
    let kind = match extent.kind {
        engine::ExtentKind::Data => reply::ExtentKind::Data,
        engine::ExtentKind::Hole => reply::ExtentKind::Hole,
    };
    reply::Extent { len: extent.len, kind }
}

/// A request's result as the client gets it.
pub fn outcome(op: engine::Op, result: Result<(), IoError>) -> Result<(), NbdError> {
    use engine::{Op, ZeroSpeed};
    match (op, result) {
        (_, Ok(())) => Ok(()),
        // Advice may be ignored, and "data" is always a true answer to block status.
        (Op::Discard | Op::Cache | Op::BlockStatus, Err(IoError::Unsupported)) => Ok(()),
        // The specification allows this error for fast zeroing alone.
        (Op::WriteZeroes { speed: ZeroSpeed::FastOnly, .. }, Err(IoError::Unsupported)) => {
            Err(NbdError::NotSupported)
        }
        (_, Err(IoError::Invalid)) => Err(NbdError::Invalid),
        (_, Err(IoError::NoSpace)) => Err(NbdError::NoSpace),
        (_, Err(IoError::Unsupported | IoError::Cancelled | IoError::Backend(_))) => {
            Err(NbdError::Io)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_engine::request::{Durability, Op, Unmap, ZeroSpeed};
    use headgate_engine::topology::Topology;

    #[test]
    fn every_operation_keeps_its_meaning() {
        let (nbd_fua, fua) = (nbd::Durability::Fua, Durability::Fua);
        let zeroes = |unmap, speed, durability| nbd::Op::WriteZeroes { unmap, speed, durability };
        for (from, to) in [
            (nbd::Op::Read, Op::Read),
            (nbd::Op::Write(nbd::Durability::Cached), Op::Write(Durability::Cached)),
            (nbd::Op::Write(nbd_fua), Op::Write(fua)),
            (nbd::Op::Flush, Op::Flush),
            (nbd::Op::Trim, Op::Discard),
            (nbd::Op::Cache, Op::Cache),
            (nbd::Op::BlockStatus, Op::BlockStatus),
            (
                zeroes(nbd::Unmap::MustNot, nbd::ZeroSpeed::Any, nbd_fua),
                Op::WriteZeroes { unmap: Unmap::MustNot, speed: ZeroSpeed::Any, durability: fua },
            ),
            (
                zeroes(nbd::Unmap::May, nbd::ZeroSpeed::FastOnly, nbd::Durability::Cached),
                Op::WriteZeroes {
                    unmap: Unmap::May,
                    speed: ZeroSpeed::FastOnly,
                    durability: Durability::Cached,
                },
            ),
        ] {
            assert_eq!(operation(from), to);
        }
    }

    #[test]
    fn clients_are_told_the_smallest_request_that_is_not_slow() {
        let preferred = |physical_block, min_io| {
            let topology = Topology { physical_block, alignment_offset: 0, min_io, opt_io: 0 };
            export(&DiskInfo { topology, ..DiskInfo::plain("d", 1 << 30, 512) }, Writes::Allowed)
                .preferred
        };
        assert_eq!(export(&DiskInfo::plain("d", 1 << 30, 512), Writes::Allowed).preferred, 4096);
        assert_eq!(preferred(16 << 10, 16 << 10), 16 << 10);
        assert_eq!(preferred(4096, 64 << 10), 64 << 10);
        // Stripes of three disks: the protocol has powers of two only.
        assert_eq!(preferred(8192, 24 << 10), 8192);
    }

    #[test]
    fn only_fast_zeroing_is_reported_as_unsupported_and_advice_never_fails() {
        let unsupported = Err(IoError::Unsupported);
        let zeroes =
            |speed| Op::WriteZeroes { unmap: Unmap::May, speed, durability: Durability::Cached };
        for op in [Op::Discard, Op::Cache, Op::BlockStatus] {
            assert_eq!(outcome(op, unsupported), Ok(()));
            assert_eq!(outcome(op, Err(IoError::Backend(5))), Err(NbdError::Io));
        }
        let fast = outcome(zeroes(ZeroSpeed::FastOnly), unsupported);
        assert_eq!(fast, Err(NbdError::NotSupported));
        for op in [zeroes(ZeroSpeed::Any), Op::Read, Op::Flush] {
            assert_eq!(outcome(op, unsupported), Err(NbdError::Io));
        }
        assert_eq!(outcome(Op::Read, Err(IoError::Invalid)), Err(NbdError::Invalid));
        assert_eq!(outcome(zeroes(ZeroSpeed::Any), Err(IoError::NoSpace)), Err(NbdError::NoSpace));
    }
}
