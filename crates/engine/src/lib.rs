//! Shards: one thread with one io_uring that owns datastores whole, and with them their disks'
//! queues, scheduler, window, statistics and ports.
//!
//! A request's way: a frontend's [`port::Port`] checks it and submits it; it waits in its disk's
//! queue in the [scheduler](headgate_qos); the scheduler picks it when the datastore's window has
//! room; the backend does it; its completion feeds the [statistics](headgate_stats) and goes back
//! to the port.
//!
//! The control side ([`engine::Engine`]) talks to shards by messages and never shares their state.

pub mod backend;
mod calls;
mod changes;
pub mod clock;
mod copies;
mod copying;
mod counters;
pub mod engine;
mod error;
mod groups;
mod ids;
mod kernel;
mod known;
mod moves;
mod moving;
pub mod port;
mod port_ref;
mod priorities;
mod probes;
pub mod pulse;
pub mod request;
mod resize;
mod settled;
mod shard;
mod shutdown;
pub mod snapshot;
pub mod sole_client;
mod tables;
pub mod topology;
mod trouble;
mod waits;

pub use backend::file::{Caching, ImageError};
pub use backend::{BackendSpec, Image, StripeMember};
pub use copies::CopySpec;
pub use copying::{Blocks, CopyEvent, CopyGauge, CopyId, CopyListener, CopyTerms, Sharing};
pub use engine::{DatastoreSpec, DiskSpec, Engine, EngineConfig, Pin, ShardGroup};
pub use error::{EngineError, MoveError, ResizeError, ShardGone, WINDOW_MAX};
pub use groups::DiskGroups;
pub use headgate_mirror::changes::{ChangedBlocks, Difference};
pub use headgate_polling::Mode;
pub use ids::{DatastoreId, DiskId};
pub use moves::MoveSpec;
pub use moving::{Gauge, Listening, MoveEvent, MoveGauge, MoveId, MoveListener, MoveTerms};
pub use port_ref::{PortGone, PortRef};
pub use priorities::Priorities;
pub use request::Access;
pub use resize::CutOff;
pub use settled::{Ended, Settled};
pub use trouble::{HoldReads, HoldWrites, TroublePolicy};
pub use waits::{ShardWaits, Waiting};
