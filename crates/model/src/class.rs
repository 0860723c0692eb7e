//! Classes of disks: a policy with a name, which many disks have. What a disk has of its own goes
//! before that (`docs/decisions/0111-classes.md`).

use crate::{DiskSettings, Name, Policy, PolicyField, PolicyPart};
use headgate_units::{Bytes, Iops};
use serde::{Deserialize, Serialize};

/// The size that rates per GB are for.
const GB: u64 = 1 << 30;

/// A class of disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassRecord {
    /// Its name.
    pub name: Name,
    /// What it says of its disks' policies.
    #[serde(default)]
    pub policy: PolicyPart,
    /// Of a disk's reservation, for each GiB of its size, where nothing else is said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_per_gb: Option<Iops>,
    /// Of a disk's limit, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_per_gb: Option<Iops>,
    /// The class of datastores that its disks must be on, unless one is set at the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastore_class: Option<Name>,
    /// The set of documents that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_by: Option<Name>,
}

/// A disk that is to be made: its promises count, and it has no content yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRecord {
    /// Its name.
    pub name: Name,
    /// Where it will be.
    pub datastore: Name,
    /// Its size.
    pub size: Bytes,
    /// The virtual machine that it will belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<Name>,
    /// Its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Name>,
    /// What it has in place of what its class says.
    #[serde(default)]
    pub policy: PolicyPart,
    /// The set of documents that it is in.
    pub applied_by: Name,
}

impl PlannedRecord {
    /// What it is to be promised with its class.
    pub fn policy_with(&self, class: Option<&ClassRecord>) -> Policy {
        self.policy.apply(match class {
            Some(class) => class.base(self.size),
            None => Policy::default(),
        })
    }

    /// What the disk will have been set.
    pub fn settings(&self) -> DiskSettings {
        DiskSettings {
            class: self.class.clone(),
            policy: self.policy,
            applied_by: Some(self.applied_by.clone()),
        }
    }
}

/// Where a field of a disk's policy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FieldSource {
    /// It was set at the disk.
    Disk,
    /// Its class says it.
    Class,
    /// Its class says it for each GiB of its size.
    Size,
    /// A gateway whose disk it is a member of has set it.
    Gateway,
    /// Nobody says anything.
    Default,
}

/// So much for each GiB, rounded up; at least 1 and at most the highest rate there is.
fn of_size(per_gb: Iops, size: Bytes) -> Option<Iops> {
    let whole = (u128::from(per_gb.get()) * u128::from(size.0)).div_ceil(u128::from(GB));
    let most = u128::from(Iops::MAX.get());
    Iops::new(u64::try_from(whole.clamp(1, most)).ok()?).ok()
}

impl ClassRecord {
    /// A class that says nothing.
    pub fn new(name: Name) -> ClassRecord {
        ClassRecord {
            name,
            policy: PolicyPart::default(),
            reservation_per_gb: None,
            limit_per_gb: None,
            datastore_class: None,
            applied_by: None,
        }
    }

    /// The policy of a disk of this class and size with nothing of its own.
    fn base(&self, size: Bytes) -> Policy {
        let fixed = self.policy.apply(Policy::default());
        let [reservation, limit] = [self.reservation_per_gb, self.limit_per_gb]
            .map(|rate| rate.and_then(|rate| of_size(rate, size)));
        Policy {
            reservation: fixed.reservation.or(reservation),
            limit: fixed.limit.or(limit),
            ..fixed
        }
    }

    /// The rate per GB that a field comes from, where the class says nothing else of it.
    fn per_gb(&self, field: PolicyField) -> Option<Iops> {
        match field.as_str() {
            "reservation" => self.reservation_per_gb,
            "limit" => self.limit_per_gb,
            _ => None,
        }
    }
}

impl DiskSettings {
    /// The policy of a disk of this size: what was set at the disk, what its class says of the
    /// rest, and the default of what is left.
    pub fn policy(&self, class: Option<&ClassRecord>, size: Bytes) -> Policy {
        let below = class.map_or_else(Policy::default, |class| class.base(size));
        self.policy.apply(below)
    }
}

/// Where each field of a disk's policy comes from.
pub fn sources(
    set: &DiskSettings,
    class: Option<&ClassRecord>,
) -> impl Iterator<Item = (PolicyField, FieldSource)> {
    PolicyField::all().map(move |field| {
        let source = match class {
            _ if set.policy.says(field) => FieldSource::Disk,
            Some(class) if class.policy.says(field) => FieldSource::Class,
            Some(class) if class.per_gb(field).is_some() => FieldSource::Size,
            _ => FieldSource::Default,
        };
        (field, source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use FieldSource::{Class, Default as Usual, Disk, Size};
    use serde_json::{Value, json};

    const GIB: u64 = 1 << 30;

    fn class(fields: Value) -> ClassRecord {
        let mut document = json!({"name": "gold"});
        document.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(document).unwrap()
    }

    fn set(policy: Value) -> DiskSettings {
        let policy = serde_json::from_value(policy).unwrap();
        DiskSettings { policy, ..DiskSettings::default() }
    }

    /// From the definition: the class, the disk's own, its size in bytes; its reservation, its
    /// limit and its shares, each with its source.
    #[test]
    fn a_disk_has_its_own_then_its_class_then_the_default() {
        let fixed = json!({"policy": {"reservation": 100, "limit": 500, "shares": 7}});
        let by_size = json!({"reservation_per_gb": 3, "limit_per_gb": 10});
        let mixed =
            json!({"policy": {"reservation": 50}, "reservation_per_gb": 3, "limit_per_gb": 9});
        let none = json!({});
        let huge = json!({"limit_per_gb": 1_000_000_000});
        for (of, own, size, reservation, limit, shares) in [
            (&none, json!({}), GIB, (None, Usual), (None, Usual), (1000, Usual)),
            (&none, json!({"limit": 5}), GIB, (None, Usual), (Some(5), Disk), (1000, Usual)),
            (&fixed, json!({}), GIB, (Some(100), Class), (Some(500), Class), (7, Class)),
            (&fixed, json!({"limit": null}), GIB, (Some(100), Class), (None, Disk), (7, Class)),
            (
                &fixed,
                json!({"shares": 1000}),
                1,
                (Some(100), Class),
                (Some(500), Class),
                (1000, Disk),
            ),
            (&by_size, json!({}), 10 * GIB, (Some(30), Size), (Some(100), Size), (1000, Usual)),
            (&by_size, json!({}), GIB / 2, (Some(2), Size), (Some(5), Size), (1000, Usual)),
            (&by_size, json!({}), 4096, (Some(1), Size), (Some(1), Size), (1000, Usual)),
            (
                &by_size,
                json!({"reservation": 9}),
                GIB,
                (Some(9), Disk),
                (Some(10), Size),
                (1000, Usual),
            ),
            (&by_size, json!({"limit": null}), GIB, (Some(3), Size), (None, Disk), (1000, Usual)),
            (&mixed, json!({}), 10 * GIB, (Some(50), Class), (Some(90), Size), (1000, Usual)),
            (&huge, json!({}), 1 << 50, (None, Usual), (Some(1_000_000_000), Size), (1000, Usual)),
        ] {
            let (class, set) = (class(of.clone()), set(own.clone()));
            let policy = set.policy(Some(&class), Bytes(size));
            let now = |rate: Option<Iops>| rate.map(Iops::get);
            let told = (now(policy.reservation), now(policy.limit), policy.shares.get());
            assert_eq!(told, (reservation.0, limit.0, shares.0), "{of} {own} {size}");
            let source = |name: &str| {
                sources(&set, Some(&class)).find(|(field, _)| field.as_str() == name).unwrap().1
            };
            let told = (source("reservation"), source("limit"), source("shares"));
            assert_eq!(told, (reservation.1, limit.1, shares.1), "{of} {own} {size}");
        }
    }

    #[test]
    fn a_disk_without_a_class_has_what_was_set() {
        let set = set(json!({"reservation": 5, "limit": null}));
        let policy = set.policy(None, Bytes(GIB));
        assert_eq!((policy.reservation, policy.limit), (Iops::new(5).ok(), None));
        assert_eq!(DiskSettings::of(&policy).policy(None, Bytes(1)), policy);
        assert_eq!(sources(&set, None).filter(|(_, source)| *source == Usual).count(), 14);
    }
}
