//! What a frontend asks of a disk, and what it gets back.

use crate::topology::Topology;
use headgate_devices::{DeviceIo, IoKind};
use headgate_qos::{Cost, Phase};
use headgate_units::Bytes;
use std::fmt;
use thiserror::Error;

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// In the device's volatile cache; a later [`Op::Flush`] makes it durable.
    Cached,
    /// On stable storage before completion (force unit access).
    Fua,
}

/// Whether [`Op::WriteZeroes`] may deallocate the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmap {
    /// The range may become a hole that reads as zeroes.
    May,
    /// The range must stay allocated.
    MustNot,
}

/// What [`Op::WriteZeroes`] does where the backend has no quick way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroSpeed {
    /// Writes zeroes, however long that takes.
    Any,
    /// Fails with [`IoError::Unsupported`] at once.
    FastOnly,
}

/// An operation on a range of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffers from the disk.
    Read,
    /// Read without buffers: on completion the port may move the data out with
    /// [`PortIo::splice_out`](crate::port::PortIo::splice_out). Only where
    /// [`PortIo::can_splice`](crate::port::PortIo::can_splice) says so.
    Splice,
    /// Write the buffers to the disk.
    Write(Durability),
    /// Write without buffers: on completion the port has the data received to where
    /// [`PortIo::map_for_recv`](crate::port::PortIo::map_for_recv) says. Only where
    /// [`PortIo::can_place`](crate::port::PortIo::can_place) says so.
    PlacedWrite,
    /// Make every write that completed before this request durable. No range.
    Flush,
    /// The range's content is no longer needed; it may read as anything the backend chooses (here:
    /// zeroes).
    Discard,
    /// The range reads as zeroes afterwards.
    WriteZeroes {
        /// May the range become a hole.
        unmap: Unmap,
        /// May the request take as long as a write.
        speed: ZeroSpeed,
        /// When it counts as done.
        durability: Durability,
    },
    /// Report which parts of the range are data and which are holes ([`Completion::extents`]).
    BlockStatus,
    /// The client will soon read the range. Advice: a backend that bypasses the page cache ignores
    /// it.
    Cache,
    /// The disk that this one is being copied to takes the range's blocks: both use the same
    /// storage until either changes it. Only a copy asks for that.
    Share,
}

impl Op {
    /// Does the request carry data to or from its buffers.
    pub fn moves_data(self) -> bool {
        matches!(self, Op::Read | Op::Write(_))
    }

    /// Whether it succeeds only when something is durable.
    pub(crate) fn makes_durable(self) -> bool {
        matches!(
            self,
            Op::Flush
                | Op::Write(Durability::Fua)
                | Op::WriteZeroes { durability: Durability::Fua, .. }
        )
    }

    /// Whether the disk may have other content afterwards.
    pub(crate) fn is_change(self) -> bool {
        match self {
            Op::Write(_) | Op::PlacedWrite | Op::Discard | Op::WriteZeroes { .. } => true,
            Op::Read | Op::Splice | Op::Flush | Op::BlockStatus | Op::Cache | Op::Share => false,
        }
    }

    /// Is the request charged by its length.
    pub(crate) fn is_transfer(self) -> bool {
        matches!(self, Op::Read | Op::Splice | Op::Write(_) | Op::PlacedWrite)
    }
}

/// A request past the border: the frontend has checked it against [`DiskInfo`].
///
/// For [`Op::Read`] and [`Op::Write`], `len` is the sum of the buffers' lengths. `offset` and `len`
/// are multiples of [`DiskInfo::block_size`] and the range lies inside the disk; the shard checks
/// this again and fails the request with [`IoError::Invalid`] when it does not hold.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub len: u64,
    /// The port's name for the request; comes back in [`Completion::cookie`].
    pub cookie: u64,
    /// The guest's IO priority as it came (Linux `ioprio` encoding); 0 when none was given.
    pub ioprio: u16,
}

/// Why a request failed. The failure is this request's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IoError {
    /// The range or the alignment is not the disk's.
    #[error("the request is outside the disk or not aligned to its block size")]
    Invalid,
    /// The storage under the disk is full, or the disk's quota is.
    #[error("no space left on the storage under the disk")]
    NoSpace,
    /// The backend cannot do this operation (or not fast).
    #[error("the storage under the disk does not support this operation")]
    Unsupported,
    /// The client went away before the request was served.
    #[error("the client went away")]
    Cancelled,
    /// The backend failed with this `errno`.
    #[error("the storage under the disk failed: {}", std::io::Error::from_raw_os_error(*.0))]
    Backend(i32),
}

impl IoError {
    /// Reads a kernel result: the positive `errno`.
    pub fn from_errno(errno: i32) -> IoError {
        match errno {
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => IoError::NoSpace,
            libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS => IoError::Unsupported,
            other => IoError::Backend(other),
        }
    }

    /// The `errno` nearest to it, positive.
    pub(crate) fn errno(self) -> i32 {
        match self {
            IoError::Invalid => libc::EINVAL,
            IoError::NoSpace => libc::ENOSPC,
            IoError::Unsupported => libc::EOPNOTSUPP,
            IoError::Cancelled => libc::ECANCELED,
            IoError::Backend(errno) => errno,
        }
    }
}

impl Request {
    /// The request as a device model or a layer sees it, of a disk that begins at `base`.
    pub(crate) fn device_io(&self, base: u64) -> DeviceIo {
        let (kind, bytes) = match self.op {
            Op::Read | Op::Splice => (IoKind::Read, self.len),
            Op::BlockStatus | Op::Cache | Op::Share => (IoKind::Read, 0),
            Op::Write(_) | Op::PlacedWrite | Op::WriteZeroes { unmap: Unmap::MustNot, .. } => {
                (IoKind::Write, self.len)
            }
            Op::Flush => (IoKind::Flush, 0),
            Op::Discard | Op::WriteZeroes { unmap: Unmap::May, .. } => (IoKind::Discard, self.len),
        };
        DeviceIo { kind, offset: base + self.offset, bytes: Bytes(bytes) }
    }
}

/// How far a request is that takes several steps at its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The operation itself.
    Main,
    /// Writing zeroes by hand, because the storage cannot zero a range.
    ZeroFill,
    /// Making durable what was written.
    Sync,
}

/// What a part of a disk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Allocated; may hold anything.
    Data,
    /// Not allocated; reads as zeroes.
    Hole,
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, never zero.
    pub len: u64,
    /// What it holds.
    pub kind: ExtentKind,
}

/// The end of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's [`Request::cookie`].
    pub cookie: u64,
    /// Success, or this request's own failure.
    pub result: Result<(), IoError>,
    /// The answer to [`Op::BlockStatus`]: consecutive extents from the request's offset, covering
    /// its length or (when there are very many) a prefix of it; empty for every other operation.
    pub extents: Vec<Extent>,
    /// What its disk was charged for it.
    pub charge: Charge,
}

/// What a disk was charged for a request, when the scheduler let it through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// In reference IOs; nothing for a request that was not let through.
    pub cost: Cost,
    /// By which right it was.
    pub phase: Phase,
}

impl Charge {
    /// Of a request that was not let through.
    pub const NONE: Charge = Charge { cost: Cost::from_ios(0), phase: Phase::Weight };
}

/// What a frontend needs to know of a disk to check requests and to describe it to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// The disk's name, unique in the daemon.
    pub name: String,
    /// Size in bytes, a multiple of `block_size`.
    pub size: u64,
    /// Smallest unit of a request: 512 to 4096, a power of two.
    pub block_size: u32,
    /// The sizes of requests that its storage serves best.
    pub topology: Topology,
    /// Whether clients may change its data. Frontends tell them, and refuse what they ask for all
    /// the same.
    pub writes: Writes,
}

/// Whether a disk takes what changes its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// It does.
    #[default]
    Allowed,
    /// It does not: it is read-only.
    Refused,
}

impl DiskInfo {
    /// A disk on storage that says nothing of the requests that it likes. Sizes are in bytes.
    pub fn plain(name: &str, size: u64, block_size: u32) -> DiskInfo {
        DiskInfo {
            name: name.into(),
            size,
            block_size,
            topology: Topology::plain(block_size),
            writes: Writes::Allowed,
        }
    }
}

impl fmt::Display for DiskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes, blocks of {})", self.name, self.size, self.block_size)
    }
}

/// The longest request that a frontend may pass down, in bytes: what QEMU and the NBD protocol's
/// customary limit agree on.
pub const MAX_REQUEST: u64 = 32 << 20;

/// Whether requests go around the host's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They do.
    Direct,
    /// They do not, or there is no cache.
    Cached,
}
