use crate::{
    Automatic, Constants, DeviceModel, Interference, Load, Name, Permille, WorkloadProfile,
};
use alloc::vec::Vec;
use headgate_units::{Bytes, BytesPerSec, Iops, Nanos};
use serde::{Deserialize, Serialize};

/// Datastores among which disks may be moved, and the disks on them: all that advice is given by.
///
/// Names are unique, and who is named exists, or [`advise`](crate::advise) and
/// [`place`](crate::place) say what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// When this was true, on a clock that outlives the daemon.
    pub now: Nanos,
    /// Where disks can be.
    pub datastores: Vec<Datastore>,
    /// The disks.
    pub disks: Vec<PoolDisk>,
    /// Moves made lately, in any order: at least those of the last [`Calm::no_return`]. Those of
    /// disks and datastores that are gone do no harm.
    pub history: Vec<PastMove>,
    /// What must be, and what is worth while.
    pub rules: Rules,
}

/// A place for disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datastore {
    /// Its name.
    pub name: Name,
    /// What kind of storage it is: disks may ask for one.
    pub class: Option<Name>,
    /// The device under it, for datastores that share one. They count as one in all but space:
    /// moving a disk between them changes nothing for anybody.
    pub spindles: Option<Name>,
    /// What its bytes lie on, for datastores that share one: a file system. Its space is there
    /// once: capacity and foreign bytes are the volume's, the same for all of them. Should they
    /// differ, the least capacity and the most foreign bytes count.
    #[serde(default)]
    pub volume: Option<Name>,
    /// Bytes it holds.
    pub capacity: Bytes,
    /// Bytes of it that are taken by other things than the pool's disks.
    pub foreign: Bytes,
    /// When disks take their space.
    #[serde(default)]
    pub provisioning: Provisioning,
    /// IOPS that may be reserved on it; `None` while nobody knows, and nothing is checked.
    #[serde(default)]
    pub reservable: Option<u64>,
    /// What the sizes of all disks on its volume may come to with a disk that comes to it; `None`:
    /// no more is asked than [`Space::overcommit`].
    #[serde(default)]
    pub promisable: Option<Bytes>,
    /// Whether it takes part.
    pub state: State,
    /// What is known of it.
    pub model: Option<DeviceModel>,
}

/// When a disk takes its space of a datastore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provisioning {
    /// As its guest writes: what is there grows, up to the disks' sizes, and may run out.
    #[default]
    Thin,
    /// All of its size from the beginning: nothing grows. Such a datastore may be filled to its
    /// last byte, and being full is no reason to move anything; [`Space::full`] and
    /// [`Space::relieve`] are room to grow, and not asked for.
    Thick,
}

/// Whether a datastore takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// In full.
    #[default]
    Active,
    /// What is there may stay or go; nothing comes.
    Closed,
    /// It is to be emptied.
    Maintenance,
}

/// A virtual disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDisk {
    /// Its name.
    pub name: Name,
    /// The machine it belongs to.
    pub vm: Option<Name>,
    /// Where it is.
    pub datastore: Name,
    /// What the guest sees.
    pub size: Bytes,
    /// What is allocated: what a move copies and the datastore loses.
    pub used: Bytes,
    /// What it was promised.
    #[serde(default)]
    pub reservation: Option<Iops>,
    /// What it does, in its busier hours; `None` until that is known.
    pub workload: Option<WorkloadProfile>,
    /// Whether it may move.
    pub mobility: Mobility,
    /// The class of datastore it must be on.
    pub class: Option<Name>,
    /// Which disks it shares a datastore with.
    #[serde(alias = "company")]
    pub affinity: Affinity,
}

/// Whether a disk may move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mobility {
    /// It may.
    #[default]
    Free,
    /// It stays where it is, come what may.
    Pinned,
}

/// Which disks a disk shares a datastore with, apart from what [`Rules::affinity`] says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Affinity {
    /// None in particular.
    #[default]
    #[serde(alias = "alone")]
    None,
    /// The other disks of its machine with this affinity: all on one datastore.
    #[serde(alias = "with-vm")]
    Vm,
}

/// A disk that is to be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewDisk {
    /// Its name; unused in the pool.
    pub name: Name,
    /// The machine it belongs to.
    pub vm: Option<Name>,
    /// What the guest will see.
    pub size: Bytes,
    /// What it is expected to take; `None` for all of its size, without hope.
    pub expected: Option<Bytes>,
    /// What it is to be promised.
    #[serde(default)]
    pub reservation: Option<Iops>,
    /// What it is expected to do; `None` for what disks of this pool usually do.
    pub workload: Option<WorkloadProfile>,
    /// The class of datastore it must be on.
    pub class: Option<Name>,
    /// Which disks it shares a datastore with.
    #[serde(alias = "company")]
    pub affinity: Affinity,
}

/// A move that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastMove {
    /// Which disk.
    pub disk: Name,
    /// Where it was.
    pub from: Name,
    /// When it had moved, on the clock of [`Pool::now`].
    pub at: Nanos,
}

/// What must be, and what is worth while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// How disks on one device change each other.
    pub interference: Interference,
    /// K1 to K4 for this pool.
    pub constants: Constants,
    /// Disks that must be on one datastore.
    #[serde(alias = "together")]
    pub affinity: Vec<Group>,
    /// Disks of which no two may be on one device.
    #[serde(rename = "anti-affinity", alias = "anti_affinity", alias = "apart")]
    pub anti_affinity: Vec<Group>,
    /// When to balance.
    pub balance: Balance,
    /// How full datastores may be.
    pub space: Space,
    /// What a move costs.
    pub copy: Copying,
    /// How often disks may move.
    pub calm: Calm,
    /// Moves without an operator.
    pub automatic: Automatic,
}

/// A rule over some disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What the rule is called.
    pub name: Name,
    /// The disks it is about. A disk that is to be placed may be named, too.
    pub disks: Vec<Name>,
}

/// When to balance load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Balance {
    /// Nothing moves for load while the imbalance, the standard deviation of normalised loads over
    /// their mean, is not above this. Two datastores must differ by twice this part of the mean
    /// before a disk moves between them. 10 %.
    pub start: Permille,
    /// Once started, disks move until the imbalance is not above this. 5 %.
    pub goal: Permille,
    /// What moves between two datastores may miss the ideal load by all but this part of it. 30 %.
    pub gain: Permille,
    /// A datastore is not relieved while its predicted latency is below this. 1 ms.
    pub latency: Nanos,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance {
            start: Permille(100),
            goal: Permille(50),
            gain: Permille(300),
            latency: Nanos::from_millis(1),
        }
    }
}

/// How full datastores may be, where disks grow ([`Provisioning::Thin`]). Parts are of the
/// capacity, and all is of what is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Space {
    /// Nothing is placed or moved where it would make a datastore fuller than this and leave less
    /// free than `keep`. 90 %.
    pub full: Permille,
    /// Free space that is enough however full a datastore is: a tenth of a large one is more than
    /// anybody keeps for growth. 8 GiB.
    pub keep: Bytes,
    /// A datastore fuller than this is relieved. 80 %.
    pub relieve: Permille,
    /// But only towards one that is less full by this. 5 %.
    pub difference: Permille,
    /// The sizes of all disks together may be this part of the capacity; `None` for no bound.
    pub overcommit: Option<Permille>,
}

impl Default for Space {
    fn default() -> Space {
        Space {
            full: Permille(900),
            keep: Bytes::from_gib(8),
            relieve: Permille(800),
            difference: Permille(50),
            overcommit: None,
        }
    }
}

impl Space {
    /// Bytes that may be allocated on a thin datastore: what `full` and `keep` allow, whichever is
    /// more.
    pub fn most(&self, capacity: Bytes) -> Bytes {
        let part = self.full.min(Permille::WHOLE).of(capacity.0);
        Bytes(part.max(capacity.0.saturating_sub(self.keep.0)))
    }
}

/// What a move costs, and how soon it must pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Copying {
    /// How fast it copies. 50 MiB/s.
    pub rate: BytesPerSec,
    /// What the copy has outstanding at either end, as a workload: two sequential requests of 256
    /// KiB.
    #[serde(alias = "traits")]
    pub workload: WorkloadProfile,
    /// What a move costs besides its bytes, in bytes, when moves are compared. 1 GiB.
    pub overhead: Bytes,
    /// From its start on, a move must have saved as much waiting as it caused within this. 24 h,
    /// the time from which workloads are usually known.
    pub payback: Nanos,
}

impl Default for Copying {
    fn default() -> Copying {
        Copying {
            rate: BytesPerSec::new(50 << 20).unwrap_or(BytesPerSec::MAX),
            workload: WorkloadProfile {
                outstanding: crate::Outstanding::whole(2),
                size: Bytes::from_kib(256),
                read: Permille::WHOLE,
                random: Permille(0),
            },
            overhead: Bytes::from_gib(1),
            payback: Nanos::from_secs(24 * 3_600),
        }
    }
}

impl Copying {
    /// How long so many bytes take.
    pub(crate) fn time(&self, bytes: u64) -> Nanos {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.get());
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// How often disks may move for load or space. What rules and maintenance demand is not held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Calm {
    /// A disk that has moved stays for so long. 24 h.
    pub hold: Nanos,
    /// And does not go back to where it was for so long. 7 days. One that is back there all the
    /// same, moved in vain, stays for so long.
    pub no_return: Nanos,
    /// At most so many disks move within [`Calm::window`]; `None` for no bound. 10.
    pub most: Option<u32>,
    /// See [`Calm::most`]. 8 h.
    pub window: Nanos,
}

impl Default for Calm {
    fn default() -> Calm {
        Calm {
            hold: Nanos::from_secs(24 * 3_600),
            no_return: Nanos::from_secs(7 * 24 * 3_600),
            most: Some(10),
            window: Nanos::from_secs(8 * 3_600),
        }
    }
}

impl PoolDisk {
    /// How much it asks for, by the pool's constants; `None` until its workload is known.
    pub fn load(&self, rules: &Rules) -> Option<Load> {
        self.workload.map(|profile| rules.constants.load(&profile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules and disks that a former version wrote say `together`, `apart`, `company`, `with-vm`.
    #[test]
    fn former_words_are_still_read() {
        let group = Group { name: "r".into(), disks: vec!["a".into(), "b".into()] };
        let text = r#"{
            "together": [{"name": "r", "disks": ["a", "b"]}],
            "apart": [{"name": "r", "disks": ["a", "b"]}]
        }"#;
        let rules: Rules = serde_json::from_str(text).unwrap();
        assert_eq!((&rules.affinity, &rules.anti_affinity), (&vec![group.clone()], &vec![group]));
        let now = serde_json::to_value(&rules).unwrap();
        assert!(now["affinity"].is_array() && now["anti-affinity"].is_array(), "{now}");
        assert_eq!(serde_json::from_value::<Rules>(now).unwrap(), rules);

        for (old, new, affinity) in
            [("with-vm", "vm", Affinity::Vm), ("alone", "none", Affinity::None)]
        {
            let word = serde_json::Value::from(old);
            assert_eq!(serde_json::from_value::<Affinity>(word).unwrap(), affinity);
            assert_eq!(serde_json::to_value(affinity).unwrap(), new);
        }
    }
}
