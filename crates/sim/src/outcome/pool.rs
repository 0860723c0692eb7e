//! The outcome of a pool.

use headgate_placement::{DeviceModel, Outlook, Outstanding, Refusal, Totals, WorkloadProfile};
use headgate_units::{Bytes, Nanos};
use serde::Serialize;

/// A pool's models, advice and moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct PoolOutcome {
    /// Each time advice was taken.
    pub rounds: Vec<Round>,
    /// Moves that were advised, in order.
    pub moves: Vec<PoolMove>,
    /// The pool at the end, as the models see it.
    pub last: Option<Outlook>,
    /// Its datastores, in the order of the scenario.
    pub datastores: Vec<PooledDatastore>,
    /// Its disks.
    pub disks: Vec<PooledDisk>,
    /// Bytes that copies wrote.
    pub copied: Bytes,
    /// The longest that a guest's request waited for a copy before it was sent to a datastore,
    /// those aside that had to wait for another of the guest's.
    pub longest_wait: Nanos,
    /// Rules found broken, looked at after every move and placement; one that stays broken counts
    /// each time.
    pub violations: u64,
}

/// Advice at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Round {
    /// When.
    pub at: Nanos,
    /// What it came to; none where a rule of thumb was followed.
    pub verdict: Option<String>,
    /// The pool before, as the models see it.
    pub before: Option<Outlook>,
    /// After the moves that were made at once.
    pub after: Option<Outlook>,
}

/// A disk that moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct PoolMove {
    /// Which.
    pub disk: String,
    /// Where it was.
    pub from: String,
    /// Where it goes.
    pub to: String,
    /// Why.
    pub why: String,
    /// Whether it rolls an earlier move back, after which requests took longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub taken_back: bool,
    /// Its allocated bytes.
    pub size: Bytes,
    /// When that was advised.
    pub advised: Nanos,
    /// When it was there; none where the run ended before.
    pub done: Option<Nanos>,
}

/// A datastore of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct PooledDatastore {
    /// Its name.
    pub name: String,
    /// The pool's disks there at the end.
    pub disks: u32,
    /// The model learnt of it.
    pub model: Option<DeviceModel>,
    /// Why the last attempt to learn a model failed.
    pub refused: Option<Refusal>,
    /// Intervals that became points of the model, and why others did not.
    #[serde(rename = "tally")]
    pub totals: Totals,
    /// Least squares of the latency of all requests over all that are outstanding, in picoseconds
    /// for each: without the filters.
    pub raw_slope: Option<i64>,
    /// Reads outstanding, and the mean latency of reads, in each interval that counted.
    pub points: Vec<(Outstanding, Nanos)>,
    /// What reads took there, interval by interval, where there were any.
    pub reads: Vec<ReadsOfInterval>,
}

/// Reads of the pool's disks at a datastore in an interval of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct ReadsOfInterval {
    /// When it ended.
    pub until: Nanos,
    /// Reads that completed.
    pub count: u64,
    /// Their mean latency at the device.
    pub latency: Nanos,
}

/// A disk of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct PooledDisk {
    /// Its name.
    pub name: String,
    /// Where it was first; none where its VM never started.
    pub first: Option<String>,
    /// Where it was at the end.
    pub last: Option<String>,
    /// Its workload, as its meter measured it.
    pub traits: Option<WorkloadProfile>,
}
