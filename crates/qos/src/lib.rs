//! Which request of which disk goes to the storage next.
//!
//! A [`Scheduler`] holds the queues of all disks of one datastore. The caller says what happened
//! and when ([`enqueue`](Scheduler::enqueue), [`complete`](Scheduler::complete), policy changes)
//! and asks for a decision ([`dispatch`](Scheduler::dispatch)) as long as its window has room.
//! Nothing here reads a clock: the same code runs in the daemon and in the simulator.
//!
//! | scheduler | divides by | use |
//! |---|---|---|
//! | [`MClock`] | reservation, limit, shares | the product |
//! | [`Sfq`] | shares only | the baseline SFQ(D); D is the caller's window |
//! | [`Fifo`] | nothing, arrival order | the baseline of a host without control |
//!
//! [`AnyScheduler`] is one of the three, chosen at run time. A disk that is spread over several
//! servers keeps its guarantees over all of them by [`dmclock`]. How many requests may be in flight
//! at storage that hosts share is decided by [`window`]. A [`Gate`] is a scheduler and a window in
//! one: what a datastore has in front of it.
//!
//! # Time
//! `now` is the caller's monotonic clock. A clock that stands still, steps back or leaps forward
//! does not stop or flood the scheduler: only forward steps count, one step counts for at most
//! three days, and a backward step counts for nothing.
//!
//! # Order
//! Requests of a disk that count for the same priority are a *stream*: first come, first served,
//! reads and writes alike. A disk without priorities is one stream. Streams pass each other, also
//! where their requests touch the same bytes: no device owes an order to requests that are
//! outstanding together (`docs/decisions/0011-streams.md`).
//!
//! # Source
//! Gulati, Merchant, Varman: *mClock: Handling Throughput Variability for Hypervisor IO
//! Scheduling*, OSDI 2010. Where the published Algorithm 1 breaks a promise, the module [`mclock`]
//! says what replaces it and derives why.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod any;
mod config;
mod cost;
pub mod dmclock;
mod fifo;
mod gate;
mod inheritance;
pub mod ioprio;
pub mod mclock;
mod narrow;
mod narrowing;
mod policy;
mod priority;
mod queue;
mod rate;
mod scheduler;
mod sfq;
mod steady;
mod tournament;
mod water;
pub mod window;

pub use any::{AnyScheduler, SchedulerKind, UnknownScheduler};
pub use config::{Batch, Config, ConfigError, Floor};
pub use cost::{Cost, CostModel, Io, IoKind, UnknownCostModel};
pub use dmclock::{ServedElsewhere, ServedElsewhereError};
pub use fifo::Fifo;
pub use gate::Gate;
pub use mclock::MClock;
pub use narrow::{Narrow, UnknownNarrow};
pub use narrowing::Narrowed;
pub use policy::{Burst, LimitMode, PeakTime, Policy, PolicyError};
pub use priority::{PriorityPolicy, PriorityScope, SHARES_PER_PRIORITY};
pub use scheduler::{
    Decision, DiskCounters, DiskId, Dispatched, Phase, Rejected, ReservationDebt, Scheduler,
    UnknownDisk,
};
pub use sfq::Sfq;
pub use water::water_fill;
