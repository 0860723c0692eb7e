//! Layers: delay, errors, stragglers, stalls, rate and trace on top of any backend or device model.
//!
//! A stack of layers stands between a scheduler and its storage. A request goes down through the
//! layers in their order, is executed, and comes up in the opposite order. On each way a layer may
//! pass it on, hold it until a later time, or fail it. The idea is nbdkit's filters and SPDK's
//! virtual bdevs.
//!
//! [`Layers`] is a state machine without a clock. The simulator and the daemon drive it alike:
//! [`Layered`] puts it on a device model, and the engine on a datastore of any kind.

mod fault;
mod layered;
mod spec;
mod stack;
mod stall;
mod trace;

pub use fault::Fault;
pub use layered::Layered;
pub(crate) use spec::parse_stragglers;
pub use spec::{LayerSpec, LayerSpecError, Percentage, Stragglers, Which};
pub use stack::{Layers, Passage, Released, TraceEntry};
pub use stall::Stall;
pub use trace::{TracePart, TracedRequest};
