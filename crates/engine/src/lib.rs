//! Shards: one thread with one io_uring that owns datastores whole, and with them their disks' queues, scheduler,
//! window, statistics and ports.
//!
//! A request's way: a frontend's [`port::Port`] checks it and submits it; it waits in its disk's queue in the
//! [scheduler](headgate_qos); the scheduler picks it when the datastore's window has room; the backend does it; its completion
//! feeds the [statistics](headgate_stats) and goes back to the port.
//!
//! The control side ([`engine::Engine`]) talks to shards by messages and never shares their state.

pub mod clock;
pub mod company;
pub mod engine;
pub mod image;
mod lock;
mod mapping;
pub mod port;
mod priorities;
pub mod remote;
pub mod request;
mod shard;
pub mod snapshot;

pub use engine::{
    BackendSpec, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig, EngineError, Pin,
    PortGone, PortRef,
};
pub use image::{Caching, Image, ImageError};
pub use priorities::Priorities;
pub use shard::ShardGone;
