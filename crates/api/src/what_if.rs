//! Wire types of what a change of policy would have done, on the load that was recorded.

use crate::top::LatencyMicros;
use crate::types::DiskPatch;
use headgate_model::{Name, Policy};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The question: what would a datastore's disks have received if one of them had had another
/// policy?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WhatIf {
    /// The disk that would be another.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// What would be changed about it, as `PATCH /v1/disks/{name}` takes it: fields of its policy,
    /// and `class`.
    pub change: DiskPatch,
    /// The first second of the time that is asked about, since 1970; 10 minutes before `until` when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// The first second after it; now when absent. At most 24 h after `since`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// What would have been. Every disk of the datastore that asked for something in that time has
/// three results: as recorded, as simulated with the policies of then, and as simulated with the
/// change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhatIfAnswer {
    /// The disk that would be another.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// Where it is.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// The first second of the time, since 1970.
    pub since: i64,
    /// The first second after it.
    pub until: i64,
    /// Seconds of it that were recorded.
    pub recorded_seconds: f64,
    /// Seconds that were simulated, once with each policy.
    pub simulated_seconds: f64,
    /// How far the simulation with the policies of then is from the record.
    pub deviation: Deviation,
    /// The disks, the one that would be another first.
    pub disks: Vec<WhatIfDisk>,
    /// What the answer rests on, and what the record does not tell.
    pub notes: Vec<String>,
}

/// How far the simulation with the policies of then is from the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Deviation {
    /// How much it is to be believed.
    pub trust: Trust,
    /// Of rates, all disks together: the sum of differences over the sum of rates, in per cent.
    pub iops_percent: f64,
    /// Of 99th percentiles of latency, weighed by requests, in per cent; `null` where none is
    /// known.
    pub p99_percent: Option<f64>,
}

/// How much a simulation is to be believed, by how far its rates are from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// By up to 5 %.
    Good,
    /// By up to 15 %.
    Fair,
    /// By more: it says in which direction things go, if that.
    Poor,
}

impl Trust {
    /// By the deviation of rates, in per cent.
    pub fn of(percent: f64) -> Trust {
        match percent {
            ..=5.0 => Trust::Good,
            ..=15.0 => Trust::Fair,
            _ => Trust::Poor,
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trust::Good => "good",
            Trust::Fair => "fair",
            Trust::Poor => "poor",
        })
    }
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhatIfDisk {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// What its clients were taken to do.
    pub load: String,
    /// The policy of the simulation that is held against the record.
    pub policy_before: Policy,
    /// The policy of the simulation with the change.
    pub policy_after: Policy,
    /// As it was.
    pub recorded: Received,
    /// As simulated with the policies of then.
    pub before: Received,
    /// As simulated with the change.
    pub after: Received,
}

/// What a disk received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Received {
    /// Reads and writes per second.
    pub iops: f64,
    /// What it was charged, in normalised IOs per second: what reservations and limits count.
    pub normalised_iops: f64,
    /// From arrival to completion; `null` where nothing was done.
    pub total_micros: Option<LatencyMicros>,
    /// Seconds in which its reservation was demanded; of a simulation, in proportion to the time
    /// that was recorded.
    pub demanded_seconds: f64,
    /// Of these, seconds in which it fell short.
    pub short_seconds: f64,
}

impl Received {
    /// Whether its reservation was missed: in more than one of a hundred seconds in which it was
    /// demanded.
    pub fn is_missed(&self) -> bool {
        self.short_seconds > 0.01 * self.demanded_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_a_disk_and_a_patch_and_nothing_else() {
        let asked: WhatIf =
            serde_json::from_str(r#"{"disk":"db0","change":{"reservation":800}}"#).unwrap();
        assert_eq!((asked.since, asked.until), (None, None));
        assert!(serde_json::from_str::<WhatIf>(r#"{"disk":"db0","change":{"limmit":1}}"#).is_err());
        assert!(serde_json::from_str::<WhatIf>(r#"{"disk":"db0"}"#).is_err());
    }

    #[test]
    fn trust_goes_by_the_deviation_and_a_reservation_is_missed_beyond_one_second_in_a_hundred() {
        let words: Vec<String> =
            [0.0, 5.0, 5.1, 15.0, 16.0, f64::NAN].map(|p| Trust::of(p).to_string()).into();
        assert_eq!(words, ["good", "good", "fair", "fair", "poor", "poor"]);
        let missed = |demanded_seconds, short_seconds| {
            Received { demanded_seconds, short_seconds, ..Received::default() }.is_missed()
        };
        assert!(!missed(0.0, 0.0) && !missed(600.0, 6.0) && missed(600.0, 7.0) && missed(1.0, 1.0));
    }
}
