use super::error::{POOL, RecordedError};
use headgate_devices::ModelSpec;
use headgate_placement::{
    Affinity, Datastore, DeviceModel, Mobility, Name, Outstanding, Permille, PoolDisk,
    Provisioning, Rules, State, WorkloadProfile,
};
use headgate_units::{Bytes, Iops};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// `pool.toml`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolFile {
    #[serde(default, rename = "datastore")]
    pub datastores: Vec<DatastoreEntry>,
    #[serde(default, rename = "disk")]
    pub disks: Vec<DiskEntry>,
    #[serde(default)]
    pub rules: Rules,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatastoreEntry {
    pub name: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spindles: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    volume: Option<Name>,
    #[serde(deserialize_with = "bytes")]
    capacity: Bytes,
    #[serde(default, deserialize_with = "bytes")]
    foreign: Bytes,
    #[serde(default)]
    provisioning: Provisioning,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reservable: Option<u64>,
    #[serde(default, deserialize_with = "some_bytes", skip_serializing_if = "Option::is_none")]
    promisable: Option<Bytes>,
    #[serde(default)]
    state: State,
    /// A file of points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    points: Option<PathBuf>,
    /// A device model that the disks' traces are replayed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    /// A model that was learnt before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<DeviceModel>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskEntry {
    pub name: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vm: Option<Name>,
    pub datastore: Name,
    #[serde(deserialize_with = "bytes")]
    size: Bytes,
    /// All of its size unless given.
    #[serde(default, deserialize_with = "some_bytes", skip_serializing_if = "Option::is_none")]
    used: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reservation: Option<Iops>,
    #[serde(default)]
    mobility: Mobility,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<Name>,
    #[serde(default, alias = "company")]
    affinity: Affinity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workload: Option<Workload>,
    /// A block trace, `FILE` or `FILE#DISK`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

/// The workload of a disk in its busier hours.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Workload {
    outstanding: f64,
    #[serde(deserialize_with = "bytes")]
    size: Bytes,
    read: f64,
    random: f64,
}

/// A number, or a text such as `10G`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(u64),
    Text(String),
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    match Amount::deserialize(deserializer)? {
        Amount::Number(n) => Ok(Bytes(n)),
        Amount::Text(text) => text.parse().map_err(|e| D::Error::custom(format!("{e}"))),
    }
}

fn some_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
    bytes(deserializer).map(Some)
}

/// The source of a datastore's model.
pub(super) enum DatastoreSource {
    Unknown,
    Model(DeviceModel),
    Points(PathBuf),
    Device(ModelSpec),
}

/// A datastore's model in the file.
pub(super) enum Known {
    /// A file of points.
    Points(String),
    Model(DeviceModel),
}

/// The source of a disk's workload.
pub(super) enum WorkloadSource {
    Unknown,
    Profile(WorkloadProfile),
    Trace,
}

impl PoolFile {
    pub fn read(directory: &Path) -> Result<PoolFile, RecordedError> {
        let path = directory.join(POOL);
        let text = fs::read_to_string(&path).map_err(|source| RecordedError::Io {
            doing: "read",
            path: path.clone(),
            source,
        })?;
        let wrong = |error: String| RecordedError::File { path: path.clone(), error };
        let file: PoolFile = toml::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        for disk in &file.disks {
            if disk.workload.is_some() && disk.trace.is_some() {
                return Err(wrong(format!(
                    "disk '{}' has one of workload and trace, not both",
                    disk.name
                )));
            }
            if let Some(workload) = disk.workload {
                workload
                    .check()
                    .map_err(|error| wrong(format!("disk '{}': {error}", disk.name)))?;
            }
            let on = file.datastores.iter().find(|datastore| datastore.name == disk.datastore);
            if disk.trace.is_some() && on.is_some_and(|datastore| datastore.device.is_none()) {
                return Err(wrong(format!(
                    "disk '{}' has a trace, and its datastore '{}' no device to replay it on: give the datastore a device, such as \\
                     \"array=6\", or the disk a workload",
                    disk.name, disk.datastore
                )));
            }
        }
        Ok(file)
    }

    pub fn write(&self, directory: &Path) -> Result<(), RecordedError> {
        let path = directory.join(POOL);
        let text = toml::to_string(self)
            .map_err(|e| RecordedError::File { path: path.clone(), error: e.to_string() })?;
        fs::write(&path, text).map_err(|source| RecordedError::Io { doing: "write", path, source })
    }

    /// The disks of a datastore that have traces, with them.
    pub(super) fn traces_on(&self, datastore: &str) -> Vec<super::replay::Traced> {
        let here = self.disks.iter().filter(|disk| disk.datastore.as_str() == datastore);
        here.filter_map(|disk| {
            let trace = disk.trace.clone()?;
            Some(super::replay::Traced {
                disk: disk.name.as_str().to_owned(),
                size: disk.size,
                trace,
            })
        })
        .collect()
    }
}

impl DatastoreEntry {
    pub(super) fn of(datastore: &Datastore, known: Known) -> DatastoreEntry {
        let Datastore {
            name,
            class,
            spindles,
            volume,
            capacity,
            foreign,
            provisioning,
            reservable,
            promisable,
            state,
            model: _,
        } = datastore.clone();
        let (points, model) = match known {
            Known::Points(file) => (Some(PathBuf::from(file)), None),
            Known::Model(model) => (None, Some(model)),
        };
        DatastoreEntry {
            name,
            class,
            spindles,
            volume,
            capacity,
            foreign,
            provisioning,
            reservable,
            promisable,
            state,
            points,
            device: None,
            model,
        }
    }

    pub(super) fn source(&self, directory: &Path) -> Result<DatastoreSource, RecordedError> {
        let wrong = |error: String| RecordedError::File { path: directory.join(POOL), error };
        match (&self.points, &self.device, self.model) {
            (None, None, None) => Ok(DatastoreSource::Unknown),
            (Some(points), None, None) => Ok(DatastoreSource::Points(directory.join(points))),
            (None, Some(device), None) => {
                let spec =
                    device.parse().map_err(|e| wrong(format!("datastore '{}': {e}", self.name)))?;
                Ok(DatastoreSource::Device(spec))
            }
            (None, None, Some(model)) => Ok(DatastoreSource::Model(model)),
            _ => Err(wrong(format!(
                "datastore '{}' has more than one of points, device and model",
                self.name
            ))),
        }
    }

    pub(super) fn datastore(&self, model: Option<DeviceModel>) -> Datastore {
        let DatastoreEntry {
            name,
            class,
            spindles,
            volume,
            capacity,
            foreign,
            provisioning,
            reservable,
            promisable,
            state,
            points: _,
            device: _,
            model: _,
        } = self.clone();
        Datastore {
            name,
            class,
            spindles,
            volume,
            capacity,
            foreign,
            provisioning,
            reservable,
            promisable,
            state,
            model,
        }
    }
}

impl Workload {
    fn check(&self) -> Result<(), String> {
        if !(self.outstanding >= 0.0 && self.outstanding <= 4e6) {
            return Err(format!("{} requests outstanding are not 0 to 4000000", self.outstanding));
        }
        for (what, part) in [("read", self.read), ("random", self.random)] {
            if !(0.0..=1.0).contains(&part) {
                return Err(format!("{what} = {part} is not a part of the requests, 0 to 1"));
            }
        }
        Ok(())
    }

    fn profile(&self) -> WorkloadProfile {
        WorkloadProfile {
            outstanding: Outstanding::of(self.outstanding),
            size: self.size,
            read: Permille::of_ratio(self.read),
            random: Permille::of_ratio(self.random),
        }
    }
}

impl DiskEntry {
    pub(super) fn of(disk: &PoolDisk) -> DiskEntry {
        let PoolDisk {
            name,
            vm,
            datastore,
            size,
            used,
            reservation,
            workload,
            mobility,
            class,
            affinity,
        } = disk.clone();
        let workload = workload.map(|profile| Workload {
            outstanding: profile.outstanding.as_f64(),
            size: profile.size,
            read: profile.read.as_f64(),
            random: profile.random.as_f64(),
        });
        let (used, trace) = (Some(used), None);
        DiskEntry {
            name,
            vm,
            datastore,
            size,
            used,
            reservation,
            mobility,
            class,
            affinity,
            workload,
            trace,
        }
    }

    pub(super) fn workload_source(&self) -> WorkloadSource {
        match (&self.workload, &self.trace) {
            (Some(workload), _) => WorkloadSource::Profile(workload.profile()),
            (None, Some(_)) => WorkloadSource::Trace,
            (None, None) => WorkloadSource::Unknown,
        }
    }

    pub(super) fn disk(&self, workload: Option<WorkloadProfile>) -> PoolDisk {
        let DiskEntry {
            name,
            vm,
            datastore,
            size,
            used,
            reservation,
            mobility,
            class,
            affinity,
            ..
        } = self.clone();
        let used = used.unwrap_or(size);
        PoolDisk {
            name,
            vm,
            datastore,
            size,
            used,
            reservation,
            workload,
            mobility,
            class,
            affinity,
        }
    }
}
