//! What a disk does, and what is done to it: online statistics, cheap enough to be always on.
//!
//! The owner of a disk (or of a datastore: the same type serves both) tells a [`DiskStats`] of each
//! request three times, with the time on its clock: [`DiskStats::on_arrival`],
//! [`DiskStats::on_dispatch`], [`DiskStats::on_complete`]; or that its client took it back,
//! [`DiskStats::on_withdraw`]. Whoever wants to know takes a
//! [`DiskSnapshot`] and leaves; two snapshots make an [`Interval`] with rates, percentiles and what
//! the disk got of what it was promised.
//!
//! | statistic | kept as | for |
//! |---|---|---|
//! | requests, bytes, errors of each [`Op`] | counters | everybody |
//! | queue, device and total latency of reads and of writes | [`LatencyHistogram`]s | operators; BASIL's device model (read latency) |
//! | outstanding requests | now, and integrated over time | BASIL's workload model (`OIO`) |
//! | request size, seek distance, read and sequential share | log₂ histograms, counters | BASIL's workload model |
//! | requests and cost served by reservation and by weight | counters | promises kept |
//!
//! BASIL is A. Gulati, C. Kumar, I. Ahmad, K. Kumar: "BASIL: Automated IO Load Balancing Across
//! Storage Devices", FAST 2010.
//!
//! # Why not hdrhistogram
//! A disk has six latency histograms. With counters that do not run over, 2 significant digits and
//! a range up to 100 s, hdrhistogram takes 21.5 KB for each, 129 KB for a disk, 1.3 GB for 10,000
//! disks, and each snapshot of a disk copies all of it. [`LatencyHistogram`] takes 7 KB at 3.2 %
//! resolution, and a snapshot keeps only what is occupied. `cargo bench -p headgate-stats` prints
//! both in bytes and in nanoseconds per request; the tests hold the one to the percentiles of the
//! other.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod buckets;
mod disk;
mod errors;
mod histogram;
mod interval;
mod seek;
mod snapshot;
mod sparse;

pub use disk::{DiskStats, Latency, Op, Outcome, Phase};
pub use errors::{ErrorCounts, ErrorKind, ErrorOp};
pub use histogram::{HistogramSnapshot, LatencyHistogram};
pub use interval::{Flow, Interval, Percentiles, Rates};
pub use seek::{NEAR, STREAMS};
pub use snapshot::{COST_OF_ONE_IO, Counts, DirectionSnapshot, DiskSnapshot, Served};
pub use sparse::Sparse;
