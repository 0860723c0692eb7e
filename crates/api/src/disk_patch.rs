//! What to change about a disk.

use super::change::{Change, Force};
use super::placement::DiskPlacementPatch;
use headgate_model::{
    DiskSettings, LimitMode, Name, PolicyField, PolicyPart, ReadErrors, WriteErrors,
};
use headgate_units::{BytesPerSec, Iops, LatencyTarget, Shares};
use serde::{Deserialize, Serialize};

/// What to change about a disk. A field that is absent stays as it is; `null` takes a value away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DiskPatch {
    /// Least rate, in normalised IOPS.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub reservation: Change<Iops>,
    /// Highest rate, in normalised IOPS.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Change<Iops>,
    /// Highest bandwidth, in bytes per second.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_bandwidth: Change<BytesPerSec>,
    /// Highest rate of reads alone, in normalised IOPS.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_read: Change<Iops>,
    /// Highest rate of writes alone, discards and flushes among them, in normalised IOPS.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_write: Change<Iops>,
    /// Highest bandwidth of reads alone, in bytes per second.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_read_bandwidth: Change<BytesPerSec>,
    /// Highest bandwidth of writes alone, in bytes per second.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_write_bandwidth: Change<BytesPerSec>,
    /// When the limits bind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_mode: Option<LimitMode>,
    /// Rate up to which the disk may pass its limit for a time, in normalised IOPS.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_peak: Change<Iops>,
    /// The same in bytes per second.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_peak_bandwidth: Change<BytesPerSec>,
    /// For how long, in seconds, 1 to 3,600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_peak_time: Option<u16>,
    /// Weight, 1 to 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub shares: Option<Shares>,
    /// IOs of credit, 0 to 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u16>,
    /// The latency that most requests are to stay within, such as `p99=5ms`.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub latency_target: Change<LatencyTarget>,
    /// What becomes of writes that the storage fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub werror: Option<WriteErrors>,
    /// What becomes of reads that the storage fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerror: Option<ReadErrors>,
    /// The class that it has the rest of its policy from.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub class: Change<Name>,
    /// Fields of its policy that are its own no more, by their names: its class says them from now
    /// on, or the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub inherit: Vec<PolicyField>,
    /// The virtual machine it belongs to.
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub vm: Change<Name>,
    /// What placement is to know of it.
    #[serde(default, skip_serializing_if = "DiskPlacementPatch::is_empty")]
    pub placement: DiskPlacementPatch,
    /// Overbook the datastore if need be.
    #[serde(default)]
    pub force: Force,
    /// Whether its clients may only read. Nobody may be connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

impl DiskPatch {
    /// What it says of the policy.
    pub fn policy(&self) -> PolicyPart {
        PolicyPart {
            reservation: self.reservation,
            limit: self.limit,
            limit_bandwidth: self.limit_bandwidth,
            limit_read: self.limit_read,
            limit_write: self.limit_write,
            limit_read_bandwidth: self.limit_read_bandwidth,
            limit_write_bandwidth: self.limit_write_bandwidth,
            limit_mode: self.limit_mode,
            limit_peak: self.limit_peak,
            limit_peak_bandwidth: self.limit_peak_bandwidth,
            limit_peak_time: self.limit_peak_time,
            shares: self.shares,
            burst: self.burst,
            latency_target: self.latency_target,
            werror: self.werror,
            rerror: self.rerror,
        }
    }

    /// What is set at the disk after the change. A disk without a class has none of what is not
    /// set, so that it need not say so.
    pub fn settings(&self, before: DiskSettings) -> DiskSettings {
        let class = self.class.clone().apply(before.class);
        let kept = self.inherit.iter().fold(before.policy, |part, field| part.without(*field));
        let policy = self.policy().over(&kept);
        let policy = if class.is_some() { policy } else { policy.with_values_only() };
        DiskSettings { class, policy, applied_by: before.applied_by }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// From the definition: class and what is set at the disk, the change, and what is set then.
    #[test]
    fn what_is_set_at_a_disk_changes_by_what_is_given() {
        let gold = Some("gold");
        for (before, change, after) in [
            ((None, json!({})), json!({"limit": 5}), (None, json!({"limit": 5}))),
            ((None, json!({"limit": 5})), json!({"limit": null}), (None, json!({}))),
            ((gold, json!({"limit": 5})), json!({"limit": null}), (gold, json!({"limit": null}))),
            (
                (gold, json!({"limit": 5, "burst": 2})),
                json!({"inherit": ["limit"]}),
                (gold, json!({"burst": 2})),
            ),
            (
                (gold, json!({"limit": 5})),
                json!({"inherit": ["limit"], "limit": 6}),
                (gold, json!({"limit": 6})),
            ),
            (
                (gold, json!({"limit": null, "shares": 7})),
                json!({"class": null}),
                (None, json!({"shares": 7})),
            ),
            ((None, json!({"shares": 7})), json!({"class": "gold"}), (gold, json!({"shares": 7}))),
            (
                (gold, json!({})),
                json!({"class": "iron", "limit": null}),
                (Some("iron"), json!({"limit": null})),
            ),
            ((gold, json!({})), json!({"vm": "web"}), (gold, json!({}))),
        ] {
            let set = |(class, policy): (Option<&str>, Value)| DiskSettings {
                class: class.map(|name| name.parse().unwrap()),
                policy: serde_json::from_value(policy).unwrap(),
                applied_by: None,
            };
            let patch: DiskPatch = serde_json::from_value(change.clone()).unwrap();
            assert_eq!(patch.settings(set(before.clone())), set(after), "{before:?} {change}");
        }
    }

    #[test]
    fn a_field_that_is_none_cannot_be_inherited() {
        let error =
            serde_json::from_value::<DiskPatch>(json!({"inherit": ["limitt"]})).unwrap_err();
        assert!(error.to_string().contains("no field 'limitt'"), "{error}");
    }
}
