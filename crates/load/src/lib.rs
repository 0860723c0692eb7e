//! A load generator for block devices served from userspace: NBD and vhost-user-blk, any server.
//!
//! It measures (closed loop, open loop without coordinated omission, bursts; latency histograms),
//! verifies ([`ledger`] has the rules of what a disk may hold after a crash, [`pattern`] what is
//! written), and reports. `headgate load` is a thin wrapper around [`LoadArgs`] and [`run`].
//!
//! | layer | modules | |
//! |---|---|---|
//! | pure | [`workload`], [`pace`], [`mod@replay`], [`pattern`], [`ledger`], [`target`] | what to ask, when, what may come back |
//! | links | [`link`], `nbd`, `vhost` | protocols, in the client's role |
//! | runtime | `start`, `run`, `worker`, [`hostile`] | one thread per target |
//! | result | `measure`, [`report`] | histograms, table, JSON |

mod args;
mod control;
mod cpu;
mod demand;
mod error;
pub mod hostile;
pub mod journal;
pub mod ledger;
pub mod link;
mod measure;
mod nbd;
pub mod pace;
pub mod pattern;
mod priority;
mod reaction;
pub mod replay;
pub mod report;
mod run;
mod start;
pub mod target;
mod verify;
mod vhost;
mod worker;
pub mod workload;

pub use args::{ByteRange, LoadArgs, ReplayArgs, Seconds};
pub use control::Control;
pub use error::LoadError;
pub use measure::{Latency, Second};
pub use report::{Report, Summary, TargetReport, Verification};
pub use run::replay_with;
pub use start::{replay, run, run_with};
