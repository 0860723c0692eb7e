//! The simulation itself: everything that exists in a run, and what happens to it.
//!
//! ```text
//! workload ── issue ──> host gate ── dispatch ──> (network) ──> node ── (node gate) ──> device
//!    ^                                                                                    │
//!    └───────────── completion <── host gate: window <── (network) <──────────────────────┘
//! ```
//!
//! A *gate* is a scheduler with a window: at a host, one for each datastore that its VMs use; at a
//! storage node, if the scenario puts one there. A host's window may be controlled, as the daemon
//! does it: once a period, by what it and the others saw. What happens at one instant is handled
//! event by event; after each, gates that may have something to send are asked, as the daemon asks
//! once in each turn of its loop.

mod build;
mod event;
mod finish;
mod flash;
mod flow;
mod fork;
mod gate;
mod gate_record;
mod guest;
mod host_window;
mod pool;
mod recording;
mod request;
mod route;
mod state;
mod sweep;
mod tide;
mod timeline;
mod tracker_audit;
mod turn;
mod windows;

pub use gate_record::{GateRecord, GateStep};
pub(crate) use pool::Mind;
pub(crate) use state::World;
