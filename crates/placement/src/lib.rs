//! Where virtual disks should be: models of workloads and of datastores, initial placement, and
//! advice which disks to move.
//!
//! Whoever shares a device shares its speed. A scheduler can divide what one datastore gives; it
//! cannot help when the wrong disks are on it. This crate says where a new disk fits ([`place`]),
//! and which disks of a [`Pool`] to move ([`advise`]), from statistics that are there anyway.
//!
//! | step | by |
//! |---|---|
//! | what a workload asks for, whatever it is on | [`WorkloadMeter`] → [`WorkloadProfile`] → [`Constants::load`], equation 1 |
//! | constants of equation 1 for a pool | [`Measurement::of`] → [`fit_pool`]; of one device [`fit_by_pairs`], [`fit_by_least_squares`] |
//! | whether something of ours held an interval's requests back | [`Held::of_disk`], [`DatastoreJudge::judge`] |
//! | what a datastore can do | [`DevicePoint::of`] → [`DeviceModel::learn`] |
//! | the same where there are few good intervals, or only those of long ago | [`DeviceInterval::of`] → [`DeviceModel::learn_from`], [`Coarse`] → [`DeviceModel::learn_coarsely`] |
//! | where a new disk goes | [`place`] |
//! | which disks move, which stay, and why | [`advise`] |
//! | whether a latency target can be promised, and why not | [`latency_bound::judge`] |
//! | which moves did harm, and are to be taken back | [`review()`] |
//! | which move begins next, and whether it still stands | [`Sequence`], [`check_moves`] |
//! | when moves are made without an operator | [`Automatic`] |
//!
//! # The models
//! A workload has four traits: requests outstanding, their size, reads, randomness. Latency is
//! nearly linear in each, and so L = (K1 + OIO)·(K2 + size)·(K3 + read)·(K4 + random)/K5, where K5
//! is the device's. The numerator is the workload's [`Load`] 𝓛. A device has one number, its
//! ability P: the inverse of the slope of read latency over outstanding reads. N = Σ𝓛/P is a
//! device's normalised load; equal N everywhere is balance, and f = σ(N)/mean(N) the imbalance.
//!
//! # Advice, step by step
//! 1. What rules and maintenance demand ([`Why`] but for load and space): whatever it costs,
//!    however lately a disk has moved.
//! 2. Space: datastores above [`Space::relieve`] give disks to emptier ones, unless that unbalances
//!    load.
//! 3. Throughput, under [`Interference::Streams`]: disks that break sequential streams where they
//!    are, or whose requests are of another size than those around, move where source and target do
//!    more together then. That is [`Balance::start`] at least: with many disks on a datastore no
//!    single one is worth so much.
//! 4. Load: from the device with the most to that with the least, the disks whose load comes near
//!    the ideal ΔL (which makes one of the two what it should be) and that cost least to copy;
//!    where that does not help, one disk, or two in exchange; where that does not, the next pair.
//!    Each move must lower the imbalance, moves must come as near to ΔL as [`Balance::gain`] says,
//!    they must help also if the models are off by half of what they leave open, and each must pay
//!    within [`Copying::payback`]. Under [`Interference::Streams`] each must also save more waiting
//!    than it causes, whatever the payback, and the two devices must not do more than 3 % less
//!    together, unless requests took six times as long on the source as they do on the target then.
//!    Σ n/√L (n requests outstanding, latency L) grows with each move of these two steps, so they
//!    do not undo each other.
//! 5. For each disk that stays, why ([`Stay`]).
//!
//! Nobody moves while f is below [`Balance::start`]. A disk that moved is left in peace for
//! [`Calm::hold`], does not go back for [`Calm::no_return`], and [`Calm::most`] disks move within
//! [`Calm::window`].
//!
//! Advice is given for moves in any order and any number at once: space counts as free only when
//! the disk in it is gone.
//!
//! # Predictions
//! Requests of all kinds are counted in requests of the kind that the device's model was learnt
//! from, by the last three factors of equation 1, with what neighbours do to streams; the model's
//! line gives the latency. It is one for all disks of a device, and as of the 90th percentile of
//! what they do.
//!
//! # Arithmetic
//! Profiles, loads, slopes and thus normalised loads are integers: sums over a datastore are exact
//! in any order, and a disk that goes and comes back leaves no trace. Fits, and the ratios that
//! decisions compare (imbalance, payback), are in floating point, because they are quotients over
//! ten decades; they are computed anew from the integers each time, in a fixed order, with basic
//! operations only, which are the same on every machine, and compared by total order. What is not a
//! number counts as no reason to move.
//!
//! # Complexity
//! [`place`] takes O(n log n) for n disks and datastores. [`advise`] takes O(n log n + m·D²) for m
//! rounds of the two loops, D devices, plus O(u·log u + u·s) for each pair of devices that is
//! tried, u being the units on the busier one and s the datastores on the other. A pair tried in
//! vain is not tried again until one of the two has changed. `cargo bench -p headgate-placement`
//! prints the time.
//!
//! # Source
//! A. Gulati, C. Kumar, I. Ahmad, K. Kumar: *BASIL: Automated IO Load Balancing Across Storage
//! Devices*, FAST 2010. What the paper leaves open, and what is done otherwise, is in
//! `docs/decisions/0030-placement.md`; on interference, which it names as future work, in
//! `docs/decisions/0036-interference.md`.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod advice;
mod automatic;
mod balance;
mod carry;
mod check;
mod cost;
mod device;
mod evacuation;
mod held;
mod interference;
pub mod latency_bound;
mod place;
mod plan_state;
mod pool;
mod quantity;
mod rejected;
mod review;
mod rollback;
mod space;
mod streams;
mod subset;
mod why;
mod workload;

pub use advice::{Advice, Change, DatastoreOutlook, LoadOutcome, Move, Outlook, Staying, advise};
pub use automatic::{Automatic, Harm, Hours, Mode, Stopped, Turn, UnknownHours};
pub use carry::{Fate, Leg, MoveLimits, Sequence, Skip};
pub use check::PoolError;
pub use device::{
    Coarse, DatastoreJudge, DeviceInterval, DeviceModel, DevicePoint, Doubts, Evidence, Filters,
    LEAST_POINTS, LeftOut, Refusal, Slope, Totals,
};
pub use held::{Held, Limits};
pub use interference::Interference;
pub use place::{Basis, Candidate, NoPlace, Placement, place};
pub use pool::{
    Affinity, Balance, Calm, Copying, Datastore, Group, Mobility, NewDisk, PastMove, Pool,
    PoolDisk, Provisioning, Rules, Space, State,
};
pub use quantity::{Name, Permille};
pub use review::{Course, Done, Finding, LEAST_INTERVALS, Made, Review, review};
pub use rollback::{Barred, check_moves, check_rollback};
pub use why::{NotThere, Stay, Why};
pub use workload::{
    Constants, Fit, FitError, Load, Measurement, NoGain, Outstanding, PoolFit, PredictionError,
    Trait, Untold, WorkloadMeter, WorkloadProfile, fit_by_least_squares, fit_by_pairs, fit_pool,
};
