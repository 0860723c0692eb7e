//! Hosts' windows, as a file says them.

use super::values::{At, Percent, SlotsFile, Time};
use schemars::JsonSchema;
use serde::Deserialize;

/// How many requests each host may have outstanding at a datastore.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct IssueWindowFile {
    /// The control law: product unless given.
    pub(super) law: Option<LawFile>,
    /// The latency that shall be, 10us to 10s; 30ms unless given.
    pub(super) threshold: Option<At<Time>>,
    /// How often windows change, 10ms to 60s; 4s unless given, 2s with law = 'published'.
    pub(super) period: Option<At<Time>>,
    /// What part of the way a window goes in one period: gamma, above 0%; 80% unless given.
    pub(super) step: Option<At<Percent>>,
    /// law = 'published': so many shares are one slot per period, 1000 unless given.
    pub(super) shares_per_slot: Option<At<u32>>,
    /// law = 'product': the part of all slots in use that is divided by shares, 1% to 50%; 20% unless given.
    pub(super) excess: Option<At<Percent>>,
    /// What the mean latency is over; the period unless given.
    pub(super) smoothing: Option<SmoothingFile>,
    /// The least window; 4 unless given, 1 with law = 'published'.
    pub(super) min: Option<At<SlotsFile>>,
    /// The largest window; 64 unless given.
    pub(super) max: Option<At<SlotsFile>>,
    /// The window at the beginning; 32 unless given.
    pub(super) initial: Option<At<SlotsFile>>,
    /// Whose latency hosts go by; the cluster's unless given.
    pub(super) latency: Option<LatencyFile>,
    /// Time from a host's report until others can read it, besides that they look once a period; none unless given.
    pub(super) report_delay: Option<At<Time>>,
}

/// How a window follows latency.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LawFile {
    /// As the daemon does it.
    Product,
    /// As printed in the PARDA paper.
    Published,
    /// Not at all: it is the queue-depth, and all else that is said here does not count.
    Fixed,
}

/// What the mean latency is over.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SmoothingFile {
    /// The IOs of a period, with 0.2% of the mean before.
    PerPeriod,
    /// Some 500 IOs.
    PerIo,
}

/// Whose latency hosts go by.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LatencyFile {
    /// The mean over all IOs of all hosts.
    Cluster,
    /// Each by its own, knowing nothing of the others.
    Local,
}
