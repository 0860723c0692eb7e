//! A part of a policy: what a class says of its disks' policies, and a disk of its own.

use crate::{Change, LimitMode, Policy, ReadErrors, WriteErrors};
use headgate_units::{BytesPerSec, Iops, LatencyTarget, Shares};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What is said of a policy. A field that is absent says nothing; `null` says that there is none,
/// whatever a class says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PolicyPart {
    /// Least rate while it has requests, in normalised IOPS.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub reservation: Change<Iops>,
    /// Highest rate, in normalised IOPS.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Change<Iops>,
    /// Highest bandwidth, reads and writes together, in bytes per second.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_bandwidth: Change<BytesPerSec>,
    /// Highest rate of reads alone, in normalised IOPS.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_read: Change<Iops>,
    /// Highest rate of writes alone, discards and flushes among them, in normalised IOPS.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_write: Change<Iops>,
    /// Highest bandwidth of reads alone, in bytes per second.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_read_bandwidth: Change<BytesPerSec>,
    /// Highest bandwidth of writes alone, in bytes per second.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_write_bandwidth: Change<BytesPerSec>,
    /// When the limits bind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_mode: Option<LimitMode>,
    /// Rate up to which the disk may pass its limit for a time, in normalised IOPS.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_peak: Change<Iops>,
    /// The same in bytes per second.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_peak_bandwidth: Change<BytesPerSec>,
    /// For how long, in seconds, 1 to 3,600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_peak_time: Option<u16>,
    /// Weight, 1 to 1,000,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub shares: Option<Shares>,
    /// IOs of credit, 0 to 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u16>,
    /// The latency that most requests are to stay within, such as `p99=5ms`.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub latency_target: Change<LatencyTarget>,
    /// What becomes of writes that the storage fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub werror: Option<WriteErrors>,
    /// What becomes of reads that the storage fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerror: Option<ReadErrors>,
}

/// Calls a macro with all fields: those that may be none, and those that always have a value.
macro_rules! with_fields {
    ($do:ident) => {
        $do! {
            [reservation limit limit_bandwidth limit_read limit_write limit_read_bandwidth
             limit_write_bandwidth limit_peak limit_peak_bandwidth latency_target]
            [limit_mode limit_peak_time shares burst werror rerror]
        }
    };
}

macro_rules! names {
    ([$($may:ident)*] [$($has:ident)*]) => {
        [$(stringify!($may),)* $(stringify!($has),)*]
    };
}

/// The names of all fields.
const NAMES: [&str; 16] = with_fields!(names);

/// A field of a policy, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyField(&'static str);

/// A text that names no field of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a policy has no field '{0}': it has {all}", all = NAMES.join(", "))]
pub struct UnknownField(String);

impl PolicyField {
    /// All of them.
    pub fn all() -> impl Iterator<Item = PolicyField> {
        NAMES.into_iter().map(PolicyField)
    }

    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for PolicyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl FromStr for PolicyField {
    type Err = UnknownField;

    /// With `-` for `_`, as options are written, too.
    fn from_str(text: &str) -> Result<PolicyField, UnknownField> {
        let wanted = text.replace('-', "_");
        let known = NAMES.into_iter().find(|name| *name == wanted);
        known.map(PolicyField).ok_or_else(|| UnknownField(text.to_owned()))
    }
}

impl Serialize for PolicyField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for PolicyField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PolicyField, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn of_value<T: PartialEq>(value: T, usual: T) -> Option<T> {
    (value != usual).then_some(value)
}

fn of_option<T: PartialEq>(value: Option<T>) -> Change<T> {
    value.map_or(Change::Keep, Change::Set)
}

fn first<T>(above: Change<T>, below: Change<T>) -> Change<T> {
    if above.is_keep() { below } else { above }
}

fn values_only<T>(change: Change<T>) -> Change<T> {
    if let Change::Remove = change { Change::Keep } else { change }
}

impl PolicyPart {
    /// What a policy has that the default has not.
    pub fn of(policy: &Policy) -> PolicyPart {
        let usual = Policy::default();
        macro_rules! part {
            ([$($may:ident)*] [$($has:ident)*]) => {
                PolicyPart {
                    $($may: of_option(policy.$may),)*
                    $($has: of_value(policy.$has, usual.$has),)*
                }
            };
        }
        with_fields!(part)
    }

    /// The policy where this is said, and `below` of the rest.
    pub fn apply(&self, below: Policy) -> Policy {
        macro_rules! policy {
            ([$($may:ident)*] [$($has:ident)*]) => {
                Policy {
                    $($may: self.$may.apply(below.$may),)*
                    $($has: self.$has.unwrap_or(below.$has),)*
                }
            };
        }
        with_fields!(policy)
    }

    /// What is said here, and what is said below of which nothing is said here.
    #[must_use]
    pub fn over(&self, below: &PolicyPart) -> PolicyPart {
        macro_rules! part {
            ([$($may:ident)*] [$($has:ident)*]) => {
                PolicyPart {
                    $($may: first(self.$may, below.$may),)*
                    $($has: self.$has.or(below.$has),)*
                }
            };
        }
        with_fields!(part)
    }

    /// Without what says that there is none: what is below says no other.
    #[must_use]
    pub fn with_values_only(&self) -> PolicyPart {
        macro_rules! part {
            ([$($may:ident)*] [$($has:ident)*]) => {
                PolicyPart { $($may: values_only(self.$may),)* $($has: self.$has,)* }
            };
        }
        with_fields!(part)
    }

    /// Without what is said of this field.
    #[must_use]
    pub fn without(mut self, field: PolicyField) -> PolicyPart {
        macro_rules! forget {
            ([$($may:ident)*] [$($has:ident)*]) => {
                match field.0 {
                    $(stringify!($may) => self.$may = Change::Keep,)*
                    $(stringify!($has) => self.$has = None,)*
                    _ => {}
                }
            };
        }
        with_fields!(forget);
        self
    }

    /// Whether something is said of this field.
    pub fn says(&self, field: PolicyField) -> bool {
        self.without(field) != *self
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == PolicyPart::default()
    }
}

impl From<Policy> for PolicyPart {
    fn from(policy: Policy) -> PolicyPart {
        PolicyPart::of(&policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value, json};

    /// A value of each field that is not the default.
    fn unusual() -> Value {
        json!({
            "reservation": 250, "limit": 1000, "limit_bandwidth": 52_428_800, "limit_read": 900,
            "limit_write": 300, "limit_read_bandwidth": 41_943_040,
            "limit_write_bandwidth": 20_971_520, "limit_mode": "soft", "limit_peak": 5000,
            "limit_peak_bandwidth": 62_914_560, "limit_peak_time": 60, "shares": 200, "burst": 8,
            "latency_target": "p99.9=20ms", "werror": "stop", "rerror": "stop",
        })
    }

    fn map(value: impl Serialize) -> Map<String, Value> {
        serde_json::to_value(value).unwrap().as_object().unwrap().clone()
    }

    fn part(map: Map<String, Value>) -> PolicyPart {
        serde_json::from_value(Value::Object(map)).unwrap()
    }

    /// By the definition: of each field what is said first counts. JSON knows no fields by heart.
    fn merged(above: &Map<String, Value>, below: &Map<String, Value>) -> Map<String, Value> {
        below.clone().into_iter().chain(above.clone()).collect()
    }

    #[test]
    fn each_field_is_said_or_left_to_what_is_below() {
        let all = map(unusual());
        assert_eq!(all.len(), PolicyField::all().count());
        let usual = map(Policy::default());
        for field in PolicyField::all() {
            let name = field.as_str();
            let one: Map<_, _> = [(name.to_owned(), all[name].clone())].into_iter().collect();
            let said = part(one.clone());
            assert_eq!(map(said), one);
            assert_eq!(map(said.apply(Policy::default())), merged(&one, &usual), "{name}");
            let whole: Policy = serde_json::from_value(unusual()).unwrap();
            let (none, nothing) = (json!({name: null}), PolicyPart::default());
            if let Ok(none) = serde_json::from_value::<PolicyPart>(none)
                && none != nothing
            {
                assert_eq!(map(none.apply(whole))[name], Value::Null);
                assert_eq!(none.over(&said), none);
                assert_eq!(none.with_values_only(), nothing);
            }
            assert_eq!(nothing.apply(whole), whole);
            // Over the rest, under the rest, and taken away again.
            let rest = part(all.clone()).without(field);
            assert!(!rest.says(field) && said.says(field));
            assert_eq!(map(rest).len(), all.len() - 1);
            assert_eq!([map(said.over(&rest)), map(rest.over(&said))], [all.clone(), all.clone()]);
            assert_eq!(said.without(field), nothing);
        }
    }

    #[test]
    fn what_is_said_above_counts() {
        let [low, high] = [json!({"limit": 5, "shares": 7}), json!({"limit": null, "burst": 2})];
        let [low, high] = [low, high].map(|one| one.as_object().unwrap().clone());
        let both = part(high.clone()).over(&part(low.clone()));
        assert_eq!(map(both), merged(&high, &low));
    }

    #[test]
    fn what_a_policy_is_made_of_makes_it_again() {
        for policy in [json!({}), unusual(), json!({"shares": 5, "latency_target": "p99=5ms"})] {
            let policy: Policy = serde_json::from_value(policy).unwrap();
            assert_eq!(PolicyPart::of(&policy).apply(Policy::default()), policy);
        }
        assert!(PolicyPart::of(&Policy::default()).is_empty());
    }

    #[test]
    fn fields_are_named_as_in_json_or_as_options() {
        assert_eq!("limit-read".parse::<PolicyField>().unwrap().as_str(), "limit_read");
        let error = "limitt".parse::<PolicyField>().unwrap_err().to_string();
        assert!(error.contains("'limitt'") && error.contains("limit_write"), "{error}");
    }
}
