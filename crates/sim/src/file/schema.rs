//! The keys of a scenario file.

use super::event::EventFile;
use super::expect::ExpectFile;
use super::pool::{PoolFile, SweepFile, TideFile};
use super::sensitivity::SensitivityFile;
use super::storage::DatastoreFile;
use super::variants::VariantFile;
use super::vm::{HostFile, VmFile};
use super::workload::TypeFile;
use crate::values::{At, SeedCount, Seeds, Stretch, Time};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A simulated experiment: storage, hosts, virtual machines, events, and expectations.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", schemars(title = "Headgate scenario"))]
pub(crate) struct ScenarioFile {
    /// The scenario's name: letters, digits, - and _.
    pub(super) name: At<String>,
    /// What it is, in one line.
    pub(super) title: String,
    /// What it shows and how it was set up.
    #[serde(default)]
    pub(super) about: String,
    /// Where it was published.
    #[serde(default)]
    pub(super) source: String,
    /// The simulated time.
    pub(super) duration: At<Time>,
    /// The length of one point of the recorded series; 1s by default.
    pub(super) interval: Option<At<Time>>,
    /// The seeds to run it with, or their number: 60 for 1 to 60. 1, 2 and 3 by default.
    pub(super) seeds: Option<Seeds>,
    /// The number of seeds of the whole experiment, where 'seeds' are some of them: for 'headgate
    /// reproduce --full'.
    pub(super) full_seeds: Option<At<SeedCount>>,
    /// Traces without which it is skipped.
    #[serde(default)]
    pub(super) traces: Vec<String>,
    /// Whether latencies have distributions; true by default. Without them a run takes a
    /// thousandth of the memory.
    pub(super) histograms: Option<bool>,
    /// Named stretches of time, for expectations: steady = "60s..120s".
    #[serde(default)]
    pub(super) windows: BTreeMap<String, At<Stretch>>,
    /// Storage.
    #[serde(default)]
    pub(super) datastore: Vec<DatastoreFile>,
    /// Hosts; one called 'host' by default.
    #[serde(default)]
    pub(super) host: Vec<HostFile>,
    /// Virtual machines.
    #[serde(default)]
    pub(super) vm: Vec<VmFile>,
    /// Types of workloads, for VMs that draw theirs.
    #[serde(default, rename = "type")]
    pub(super) types: Vec<TypeFile>,
    /// Datastores among which disks are placed and moved.
    pub(super) pool: Option<At<PoolFile>>,
    /// Hours in which closed loops keep fewer requests outstanding.
    pub(super) tide: Option<TideFile>,
    /// VMs that go through many workloads.
    #[serde(default)]
    pub(super) sweep: Vec<SweepFile>,
    /// Events.
    #[serde(default)]
    pub(super) event: Vec<At<EventFile>>,
    /// Several ways to run it; one called 'default' by default.
    #[serde(default)]
    #[expect(dead_code, reason = "read from the tree; here for the schema and for unknown keys")]
    pub(super) variant: Vec<VariantFile>,
    /// Expectations.
    #[serde(default)]
    pub(super) expect: Vec<At<ExpectFile>>,
    /// Parameters that were chosen freely, at several values: for 'headgate reproduce
    /// --sensitivity'.
    #[serde(default)]
    #[expect(dead_code, reason = "read from the tree; here for the schema and for unknown keys")]
    pub(super) sensitivity: Vec<SensitivityFile>,
}

/// The JSON schema of scenario files, made from the types that read them.
#[cfg(feature = "schema")]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(ScenarioFile)
}
