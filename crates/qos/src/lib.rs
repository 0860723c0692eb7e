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
//! | [`MClockTree`] | the same, of each node of a tree | tenants and machines that share what they are promised |
//! | [`Sfq`] | shares only | the baseline SFQ(D); D is the caller's window |
//! | [`Fifo`] | nothing, arrival order | the baseline of a host without control |
//!
//! [`AnyScheduler`] is one of the three, chosen at run time. A disk that is spread over several
//! servers keeps its guarantees over all of them by [`dmclock`]. How many requests may be in flight
//! at storage that hosts share is decided by [`window`]. A [`Gate`] is a scheduler and a window in
//! one: what a datastore has in front of it. A copy of Headgate's own asks [`Background`] before
//! each of its steps, so that it gets its shares beside clients that leave the queue empty, too.
//!
//! # Time
//! `now` is the caller's monotonic clock. A clock that stands still, steps back or leaps forward
//! does not stop or flood the scheduler: only forward steps count, one step counts for at most
//! three days, and a backward step counts for nothing.
//!
//! # Order
//! Requests of a disk that count for the same priority are a *stream*: first come, first served,
//! reads and writes alike, unless the disk has a limit of one of them: then each of both by itself,
//! and both in turn (`docs/decisions/0054-read-and-write-limits.md`). A disk without priorities is
//! one stream. Streams pass each other, also where their requests touch the same bytes: no device
//! owes an order to requests that are outstanding together (`docs/decisions/0011-streams.md`).
//!
//! # Theorems
//! What users may rely on, on storage that gives T reference IOs per second behind a window of W,
//! with requests of cost c at most. Conditions, proofs and how near the worst adversary comes that
//! a search has found are in `docs/theorems.md`; the tests are `tests/theorems`.
//!
//! 1. *Fairness.* Two disks without reservation and limit that have requests queued all the time
//!    are sent the same per share, in any interval, but for `c_i/w_i + c_j/w_j` and the larger of
//!    their burst credits per share.
//! 2. *Delay.* Where reservations fit, a request of a disk that asks for no more than its
//!    reservation r and a burst β is done within `(β - c)/r`, the time that the storage takes for W
//!    requests and one more of each disk, and what others may ask late: `debt_bound/2 · Σr/T`.
//! 3. *Limits.* In any time a disk gets its limit but for 250 ms of it and one request: no more,
//!    and no less while it has requests queued and the window has room. The same holds for the
//!    limits of its reads and of its writes.
//! 4. *Work conservation.* No slot of the window is empty while a request is queued whose disk has
//!    no strict limit, or has not had its limit, but where large requests fill it with work.
//! 5. *Recovery.* From when reservations fit again after a shortage, each is met but for the
//!    latency of 2. and a wait for what is owed to others: of [`Config::debt_bound`], or of the
//!    shortage where that was brief. When that is paid off disks without a reservation have all the
//!    rest. In the shortage they have the [floor](Config::floor).
//!
//! # Source
//! Gulati, Merchant, Varman: *mClock: Handling Throughput Variability for Hypervisor IO
//! Scheduling*, OSDI 2010. Where the published Algorithm 1 breaks a promise, the module [`mclock`]
//! says what replaces it and derives why.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod any;
mod background;
mod batch;
mod blame;
mod config;
mod cost;
mod direction;
pub mod dmclock;
mod fifo;
mod gate;
mod inheritance;
pub mod ioprio;
mod learned_cost;
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
pub use background::Background;
pub use batch::{Batch, WrongBatch};
pub use blame::{NEIGHBOURS, Neighbour, WaitTimes};
pub use config::{Adjustment, Config, ConfigError, Floor};
pub use cost::{Cost, CostModel, Io, IoKind, UnknownCostModel};
pub use direction::{Direction, DirectionLimits};
pub use dmclock::{ServedElsewhere, ServedElsewhereError};
pub use fifo::Fifo;
pub use gate::{Gate, Took};
pub use learned_cost::{IoClass, LearnedClass, LearnedCosts};
pub use mclock::MClock;
pub use mclock::grouped::{GROUP_DEPTH, Group, GroupId, Grouped, Groups, GroupsError};
pub use mclock::tree::{
    MClockTree, NodeCounters, NodeId, NotQueued, TreeConfigError, TreeDecision, TreeDispatched,
    TreeError,
};
pub use narrow::{Narrow, UnknownNarrow};
pub use narrowing::{LatencyStanding, LatencyVerdict, Narrowed, Promise};
pub use policy::{Burst, LimitMode, PeakTime, Policy, PolicyError};
pub use priority::{PriorityPolicy, PriorityScope, SHARES_PER_PRIORITY};
pub use scheduler::{
    Decision, DiskCounters, DiskId, Dispatched, Phase, Rejected, ReservationDebt, Scheduler,
    UnknownDisk,
};
pub use sfq::Sfq;
pub use water::water_fill;
