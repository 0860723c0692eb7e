//! What the engine refuses or fails to do.

use crate::pulse::Stall;
use headgate_qos::window::Slots;
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
    /// A thread or ring could not be made.
    #[error(
        "cannot start a shard: {0} (io_uring with DEFER_TASKRUN needs Linux 6.1 or newer, and kernel.io_uring_disabled=0)"
    )]
    Start(#[source] io::Error),
    /// A shard does not take its turns. What was asked for is not done later either.
    #[error("{0}")]
    Stalled(Stall),
    /// The engine is no more.
    #[error(transparent)]
    Gone(#[from] ShardGone),
}

/// The largest queue depth of a datastore.
pub const WINDOW_MAX: u32 = 4096;

/// The shard's thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the engine has been shut down")]
pub struct ShardGone;
