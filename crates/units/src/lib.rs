//! Newtypes for the quantities that every Headgate crate speaks of.
//!
//! | type | unit | range |
//! |---|---|---|
//! | [`Nanos`] | nanoseconds: an instant on one monotonic clock, or the distance of two | 0 to 584 years |
//! | [`AtomicNanos`] | an instant that one thread moves and others read | as [`Nanos`] |
//! | [`Bytes`] | bytes | 0 to 16 EiB |
//! | [`Iops`] | normalised IOs per second | 1 to 10⁹ |
//! | [`BytesPerSec`] | bytes per second | 1 to 2⁶³ |
//! | [`Shares`] | relative weight, no unit | 1 to 1,000,000 |
//! | [`LatencyTarget`] | a part of all requests in thousandths, and microseconds | 500 to 999, 10 us to 60 s |
//! | [`Priority`] | an application's IO priority, no unit | 1 to 254 |
//!
//! All are integers: a scheduler that adds rounded fractions for a year drifts.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod atomic;
mod latency_target;
mod parse;
mod priority;
mod rate;
mod size;
mod time;

pub use atomic::AtomicNanos;
pub use latency_target::{LatencyTarget, LatencyTargetError};
pub use parse::ParseUnitError;
pub use priority::Priority;
pub use rate::{BytesPerSec, Iops, OutOfRange, Shares};
pub use size::Bytes;
pub use time::Nanos;
