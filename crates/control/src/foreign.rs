//! What other hosts have and do, as placement counts it here.

use headgate_model::Name;
use headgate_placement as placement;
use headgate_units::{Bytes, Iops};
use std::collections::BTreeMap;

/// A disk of another host, on storage that this host has, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignDisk {
    /// Its host and its name, as `HOST/DISK`: no disk of this host is called so.
    pub name: String,
    /// What is reserved for it.
    pub reservation: Option<Iops>,
    /// What it usually does, if that is known.
    pub workload: Option<placement::WorkloadProfile>,
}

/// A datastore of another host, on storage that this host does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Its host and its name, as `HOST/DATASTORE`.
    pub name: String,
    /// Its storage, where several datastores may be on one.
    pub storage: Option<String>,
    /// All of its space.
    pub size: Bytes,
    /// What is left of it.
    pub free: Bytes,
    /// What can be reserved on it, if that is known.
    pub reservable: Option<u64>,
    /// What its storage can do, if that is known.
    pub model: Option<placement::DeviceModel>,
    /// What hosts do there.
    pub disks: Vec<ForeignDisk>,
}

/// A disk of another host, as placement counts it: it can do nothing with it.
pub(super) fn pinned(disk: &ForeignDisk, datastore: &placement::Name) -> placement::PoolDisk {
    placement::PoolDisk {
        name: disk.name.as_str().into(),
        vm: None,
        datastore: datastore.clone(),
        size: Bytes(0),
        used: Bytes(0),
        reservation: disk.reservation,
        workload: disk.workload,
        mobility: placement::Mobility::Pinned,
        class: None,
        affinity: placement::Affinity::None,
    }
}

/// What other hosts do on the storage of this host's datastores, by datastore.
pub type Foreign = BTreeMap<Name, Vec<ForeignDisk>>;
