//! What the engine refuses or fails to do.

use crate::pulse::Stall;
use headgate_qos::window::Slots;
use headgate_units::Bytes;
use std::io;
use thiserror::Error;

/// What the engine refuses or fails to do.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The id names no datastore (any more).
    #[error("the engine has no such datastore")]
    NoDatastore,
    /// The id names no disk (any more).
    #[error("the engine has no such disk")]
    NoDisk,
    /// A datastore with disks cannot be removed.
    #[error("the datastore still has {disks} open disks: close them first")]
    DatastoreInUse {
        /// How many.
        disks: usize,
    },
    /// A disk with clients cannot be taken out.
    #[error("the disk still has {ports} clients attached: detach them first")]
    DiskBusy {
        /// How many.
        ports: usize,
    },
    /// The shard is full.
    #[error("the shard serves as many clients as it can: add shards")]
    TooManyPorts,
    /// The kernel refused the image.
    #[error("cannot register the image with the ring: {0}")]
    Register(#[source] io::Error),
    /// An image without storage needs a null datastore.
    #[error("a disk without storage belongs on a null datastore only")]
    NullImage,
    /// An export of a server belongs on a remote datastore, and nothing else does.
    #[error("the disk's storage is not of its datastore's kind")]
    OtherStorage,
    /// The emulated device does not take the disk.
    #[error(transparent)]
    Place(#[from] headgate_devices::PlaceError),
    /// No thread for a remote disk.
    #[error("cannot start a thread for the connection to the server: {0}")]
    Dialer(#[source] io::Error),
    /// The window must let something through.
    #[error("the window must be above 0 and at most {max} requests, not {given}", max = WINDOW_MAX)]
    Window {
        /// What was asked.
        given: Slots,
    },
    /// The scheduler's parameters contradict each other.
    #[error("scheduler: {0}")]
    Qos(#[from] headgate_qos::ConfigError),
    /// The disks cannot be in such groups.
    #[error(transparent)]
    Groups(#[from] headgate_qos::GroupsError),
    /// A disk of a datastore with groups cannot have that.
    #[error("disks of a datastore with groups have no {what}: leave it out")]
    BesideGroups {
        /// What it is.
        what: &'static str,
    },
    /// A thread or ring could not be made.
    #[error(
        "cannot start a shard: {0} (io_uring with DEFER_TASKRUN needs Linux 6.1 or newer, and kernel.io_uring_disabled=0)"
    )]
    Start(#[source] io::Error),
    /// A live move cannot begin, or is not there.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// A disk cannot have another size, or not that one.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// A shard does not take its turns. What was asked for is not done later either.
    #[error("{0}")]
    Stalled(Stall),
    /// The engine is no more.
    #[error(transparent)]
    Gone(#[from] ShardGone),
}

/// Why a disk cannot have another size, or not that one.
#[derive(Debug, Error)]
pub enum ResizeError {
    /// No disk can have it.
    #[error("a size of {size} bytes is not whole blocks of {block}, or more than 16 TiB")]
    Size {
        /// What was asked, in bytes.
        size: u64,
        /// What it must be a multiple of, in bytes.
        block: u64,
    },
    /// It is a side of a move.
    #[error("the disk is being moved")]
    Moving,
    /// Clients would use what is cut off.
    #[error("the disk has {ports} clients, and is made smaller only while it has none")]
    Clients {
        /// How many.
        ports: usize,
    },
    /// It lies on a server.
    #[error("the disk is an export of a server, which decides over its size")]
    Export,
    /// The device is smaller.
    #[error("the device has {found}, and the disk is to have {size}")]
    Device {
        /// What it has.
        found: Bytes,
        /// What was asked.
        size: Bytes,
    },
    /// There is data in what is to be cut off.
    #[error("there is data behind {size}, the first of it at {at}")]
    Data {
        /// What was asked.
        size: Bytes,
        /// Where the data is.
        at: Bytes,
    },
    /// The storage refuses.
    #[error("the storage refuses the size: {0}")]
    Io(#[from] io::Error),
}

/// Why a disk cannot be moved or copied so, or not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MoveError {
    /// One of the two is a side of a move or of a copy already.
    #[error("the disk is being moved or copied already")]
    Moving,
    /// Its storage is being given another size.
    #[error("the disk is getting another size: it can be moved and copied when it has it")]
    Resizing,
    /// Requests wait for the end of the storage's trouble.
    #[error(
        "the disk holds requests because its storage is in trouble: it can be moved and copied when \
         that is over"
    )]
    Holding,
    /// The target is too small.
    #[error("the target has {target}, and the disk {size}")]
    Small {
        /// The disk's size.
        size: Bytes,
        /// The target's.
        target: Bytes,
    },
    /// The target cannot do the smallest requests that the disk's clients may send.
    #[error(
        "the target's blocks have {target} bytes, and the disk's {block}: clients may send requests \
         that the target cannot do"
    )]
    BlockSize {
        /// The disk's block size in bytes.
        block: u32,
        /// The target's.
        target: u32,
    },
    /// The move's limits contradict each other.
    #[error(transparent)]
    Setup(headgate_mirror::SetupError),
    /// The copy's limits contradict each other, or there is no memory for it.
    #[error(transparent)]
    CopySetup(headgate_mirror::instant::SetupError),
    /// It has ended.
    #[error("there is no such move or copy (any more)")]
    Over,
    /// No record was asked for.
    #[error(transparent)]
    Record(headgate_mirror::Unexpected),
    /// The target may count already, or it has ended.
    #[error(transparent)]
    NotCancelled(headgate_mirror::NotCancelled),
}

/// The largest queue depth of a datastore.
pub const WINDOW_MAX: u32 = 4096;

/// The shard's thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the engine has been shut down")]
pub struct ShardGone;
