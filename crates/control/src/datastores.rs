use super::limits::QUEUE_DEPTH_MAX;
use super::window_views::patched_window;
use super::{
    Control, ControlError, DatastoreEntry, Model, Service, block_device, capacity, images, remote,
    size,
};
use headgate_api::placement::DatastorePlacementPatch;
use headgate_api::trace::TracePart;
use headgate_api::types::{
    BackendSpec, Change, Changed, Datastore, DatastoreCreate, DatastorePatch,
};
use headgate_api::windows::WindowPatch;
use headgate_devices::layer::LayerSpecError;
use headgate_devices::{LayerSpec, ModelSpec, ModelSpecError, SizeCost};
use headgate_model::Name;
use headgate_model::PlaneError;
use headgate_model::{
    Backend, Capacity, CapacitySource, DatastoreRecord, FoundThreshold, WindowRecord,
};
use headgate_qos::{Config, CostModel, UnknownCostModel};
use headgate_units::{Bytes, Nanos};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Deep enough for a solid-state drive, shallow enough that a spindle array does not hoard requests
/// for long.
pub(super) const QUEUE_DEPTH_FILES: u32 = 128;

/// Default queue depth of host adapters for an array.
const QUEUE_DEPTH_EMULATED: u32 = 32;

fn check_depth(depth: u32) -> Result<u32, ControlError> {
    if (1..=QUEUE_DEPTH_MAX).contains(&depth) {
        return Ok(depth);
    }
    Err(ControlError::invalid(
        format!("a queue depth of {depth} is out of range"),
        format!("1 to {QUEUE_DEPTH_MAX}"),
    ))
}

fn check_plug(nanos: u64) -> Result<Nanos, ControlError> {
    let plug = Nanos(nanos);
    if plug <= Config::PLUG_MAX {
        return Ok(plug);
    }
    Err(ControlError::invalid(
        format!("a plug of {plug} is too long"),
        format!("0 to {}", Config::PLUG_MAX),
    ))
}

/// Changes of a datastore; `None` keeps a setting.
#[derive(Debug, Default)]
struct Update {
    queue_depth: Option<u32>,
    capacity: Option<Option<Capacity>>,
    plug: Option<Nanos>,
    window: WindowPatch,
    placement: DatastorePlacementPatch,
    found: Option<FoundThreshold>,
    layers: Option<Vec<LayerSpec>>,
}

fn absolute(path: String, what: &str) -> Result<PathBuf, ControlError> {
    let path = PathBuf::from(path);
    if path.is_absolute() {
        return Ok(path);
    }
    Err(ControlError::invalid(
        format!("'{}' is not an absolute path", path.display()),
        format!("the absolute path of {what}"),
    ))
}

fn metadata(path: &Path, what: &str) -> Result<fs::Metadata, ControlError> {
    fs::metadata(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ControlError::invalid(
            format!("{} does not exist", path.display()),
            format!("{what} that exists"),
        ),
        _ => ControlError::Io { doing: format!("look at {}", path.display()), source },
    })
}

/// The device that a backend's IO goes to, to find two datastores on one.
fn device_of(control: &Control, backend: &Backend) -> Option<u64> {
    match backend {
        Backend::Dir { path } => {
            fs::metadata(control.dir.resolve(path)).ok().map(|meta| meta.dev())
        }
        Backend::Block { device } => fs::metadata(device).ok().map(|meta| meta.rdev()),
        Backend::Emulated { .. } | Backend::Nbd { .. } | Backend::Memory { .. } => None,
    }
}

fn same_place(a: &Path, b: &Path) -> bool {
    match (fs::canonicalize(a), fs::canonicalize(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

impl Control {
    fn backend(&self, name: &Name, spec: BackendSpec) -> Result<Backend, ControlError> {
        use std::os::unix::fs::FileTypeExt;
        match spec {
            BackendSpec {
                dir: Some(path),
                block: None,
                emulated: None,
                nbd: None,
                memory: None,
            } => {
                let path = absolute(path, "a directory")?;
                if !metadata(&path, "a directory")?.is_dir() {
                    let error = format!("{} is not a directory", path.display());
                    return Err(ControlError::invalid(error, "a directory"));
                }
                Ok(Backend::Dir { path })
            }
            BackendSpec {
                dir: None,
                block: Some(path),
                emulated: None,
                nbd: None,
                memory: None,
            } => {
                let device = absolute(path, "a block device")?;
                if !metadata(&device, "a block device")?.file_type().is_block_device() {
                    let error = format!("{} is not a block device", device.display());
                    return Err(ControlError::invalid(
                        error,
                        "a block device, or --dir for a directory",
                    ));
                }
                Ok(Backend::Block { device })
            }
            BackendSpec {
                dir: None,
                block: None,
                emulated: Some(model),
                nbd: None,
                memory: None,
            } => {
                let spec: ModelSpec =
                    model.parse().map_err(ControlError::malformed::<ModelSpecError>)?;
                let path = Path::new("emulated").join(name.as_str());
                Ok(Backend::Emulated { model: spec.to_string(), path })
            }
            BackendSpec {
                dir: None,
                block: None,
                emulated: None,
                nbd: Some(uri),
                memory: None,
            } => Ok(Backend::Nbd { server: remote::server(&uri)? }),
            BackendSpec {
                dir: None,
                block: None,
                emulated: None,
                nbd: None,
                memory: Some(size),
            } => memory(size),
            _ => Err(ControlError::invalid(
                "a datastore has exactly one kind of storage",
                "one of dir, block, emulated, nbd and memory",
            )),
        }
    }

    /// Two schedulers on one device would each divide what the other takes away.
    fn check_alone(&self, model: &Model, backend: &Backend) -> Result<Vec<String>, ControlError> {
        let mut warnings = Vec::new();
        for other in model.datastores.values() {
            let taken = match (backend, &other.record.backend) {
                (Backend::Dir { path: a }, Backend::Dir { path: b }) => {
                    same_place(a, &self.dir.resolve(b))
                }
                (Backend::Block { device: a }, Backend::Block { device: b }) => same_place(a, b),
                _ => false,
            };
            if taken {
                let error = format!("datastore '{}' is on that storage already", other.record.name);
                return Err(ControlError::Busy {
                    error,
                    hint: "create disks on that datastore instead".into(),
                });
            }
            if let (Backend::Nbd { server: a }, Backend::Nbd { server: b }) =
                (backend, &other.record.backend)
                && a == b
            {
                warnings.push(format!(
                    "datastore '{}' is the same server: if their exports share storage, two schedulers divide it without \
                     knowing of each other, and neither can keep reservations while both are busy",
                    other.record.name
                ));
            }
            let device = device_of(self, backend);
            if device.is_some() && device == device_of(self, &other.record.backend) {
                warnings.push(format!(
                    "datastore '{}' is on the same device: two schedulers divide it without knowing of each other, so \
                     neither can keep reservations while both are busy",
                    other.record.name
                ));
            }
        }
        Ok(warnings)
    }

    /// Adds a datastore and brings it into service.
    ///
    /// # Errors
    /// When the name is taken, or the storage does not exist, cannot be used, or is used by others.
    pub fn add_datastore(
        &self,
        request: DatastoreCreate,
    ) -> Result<Changed<Datastore>, ControlError> {
        let mut catalog = self.catalog();
        if self.model().datastores.contains_key(&request.name) {
            return Err(ControlError::Exists { kind: "datastore", name: request.name });
        }
        let backend = self.backend(&request.name, request.backend)?;
        let mut warnings = self.check_alone(&self.model(), &backend)?;
        if let Backend::Block { device } = &backend {
            block_device::check_new(device, request.force)?;
        }
        let default_depth = match backend {
            Backend::Emulated { .. } => QUEUE_DEPTH_EMULATED,
            Backend::Dir { .. }
            | Backend::Block { .. }
            | Backend::Nbd { .. }
            | Backend::Memory { .. } => QUEUE_DEPTH_FILES,
        };
        let cost_model = match request.cost_model {
            Some(text) => text.parse().map_err(ControlError::malformed::<UnknownCostModel>)?,
            None => default_cost_model(&backend),
        };
        let mut record = DatastoreRecord {
            name: request.name,
            scheduler: request.scheduler,
            queue_depth: check_depth(request.queue_depth.unwrap_or(default_depth))?,
            capacity: request.capacity.map(|iops| Capacity { iops, source: CapacitySource::Set }),
            backend,
            cost_model,
            plug: check_plug(request.plug_ns.unwrap_or(0))?,
            window: patched_window(request.window, WindowRecord::unset())?,
            placement: request.placement.apply(Default::default()),
            layers: check_layers(&request.layers)?,
        };
        if record.capacity.is_none() {
            record.capacity = capacity::from_model(&record);
        }
        self.check_window(&record)?;
        if record.capacity.is_none() {
            warnings.push(unknown_capacity(&record));
        }
        warnings.extend(capacity::warning(&record));
        warnings.extend(volatile(&record));
        warnings.extend(self.window_warnings(&record));
        self.serve_datastore(&record)?;
        if let Err(e) = catalog.insert_datastore(&record) {
            self.windows.forget(&record.name);
            self.plane.remove_datastore(&record.name)?;
            return Err(e.into());
        }
        let entry = DatastoreEntry::new(record, Service::Serving);
        let mut model = self.model_mut();
        let now = self.view_datastore(&model, &entry);
        model.datastores.insert(entry.record.name.clone(), entry);
        Ok(Changed { now, warnings })
    }

    /// Makes the datastore's own directory if it has one, and hands it to the data path.
    pub(super) fn serve_datastore(&self, record: &DatastoreRecord) -> Result<(), ControlError> {
        let directory = self.directory(&record.backend);
        // A directory of the operator's is not made here: it may be a file system that is not
        // mounted yet.
        let own = match &record.backend {
            Backend::Dir { path } | Backend::Emulated { path, .. } if path.is_relative() => {
                directory.as_ref()
            }
            _ => None,
        };
        if let Some(own) = own {
            fs::create_dir_all(own).map_err(|source| ControlError::Io {
                doing: format!("create {}", own.display()),
                source,
            })?;
        }
        if let Some(directory) = &directory
            && !metadata(directory, "a directory")?.is_dir()
        {
            return Err(ControlError::invalid(
                format!("{} is not a directory", directory.display()),
                "a directory",
            ));
        }
        if let Some(directory) = &directory {
            images::discard_scratch(directory)?;
        }
        self.plane.add_datastore(record, directory.as_deref())?;
        if let Err(e) = self.set_window(record) {
            self.plane.remove_datastore(&record.name)?;
            return Err(e.into());
        }
        Ok(())
    }

    /// Changes a datastore.
    ///
    /// # Errors
    /// When there is none of this name, or a value is out of range.
    pub fn set_datastore(
        &self,
        name: &Name,
        patch: DatastorePatch,
    ) -> Result<Changed<Datastore>, ControlError> {
        let capacity = match patch.capacity {
            Change::Keep => None,
            Change::Remove => Some(None),
            Change::Set(iops) => Some(Some(Capacity { iops, source: CapacitySource::Set })),
        };
        let plug = patch.plug_ns.map(check_plug).transpose()?;
        let layers = patch.layers.as_deref().map(check_layers).transpose()?;
        let DatastorePatch { queue_depth, window, placement, .. } = patch;
        self.update_datastore(
            name,
            Update { queue_depth, capacity, plug, window, placement, found: None, layers },
        )
    }

    /// Stores what calibration measured.
    pub fn set_measured(
        &self,
        name: &Name,
        capacity: Capacity,
        found: Option<FoundThreshold>,
    ) -> Result<Changed<Datastore>, ControlError> {
        self.update_datastore(
            name,
            Update { capacity: Some(Some(capacity)), found, ..Update::default() },
        )
    }

    /// The datastore as it is set now.
    ///
    /// # Errors
    /// [`ControlError::Missing`].
    pub fn datastore_record(&self, name: &Name) -> Result<DatastoreRecord, ControlError> {
        Ok(self.model().datastore(name)?.record.clone())
    }

    /// The datastore, if calibration can measure it.
    pub fn measurable(&self, name: &Name) -> Result<DatastoreRecord, ControlError> {
        let model = self.model();
        let entry = model.datastore(name)?;
        if let Some(reason) = entry.service.reason() {
            return Err(ControlError::DatastoreFailed {
                name: name.clone(),
                reason: reason.to_owned(),
            });
        }
        let set_by_hand =
            format!("set the capacity with 'headgate datastore set {name} --capacity IOPS'");
        match &entry.record.backend {
            Backend::Emulated { model, .. } if model.parse() == Ok(ModelSpec::Null) => {
                Err(ControlError::Busy {
                    error: format!("datastore '{name}' has no storage to measure"),
                    hint: set_by_hand,
                })
            }
            Backend::Memory { .. } => Err(ControlError::Busy {
                error: format!("datastore '{name}' is memory, as fast as the processor"),
                hint: set_by_hand,
            }),
            Backend::Nbd { .. } => Err(ControlError::Busy {
                error: format!(
                    "datastore '{name}' is a server: its exports hold data, and there is none to measure on"
                ),
                hint: set_by_hand,
            }),
            Backend::Block { .. } if model.disks_on(name).next().is_some() => {
                Err(ControlError::Busy {
                    error: format!("datastore '{name}' is a block device that is a disk already"),
                    hint: set_by_hand,
                })
            }
            _ => Ok(entry.record.clone()),
        }
    }

    fn update_datastore(
        &self,
        name: &Name,
        update: Update,
    ) -> Result<Changed<Datastore>, ControlError> {
        let mut catalog = self.catalog();
        let before = self.model().datastore(name)?.clone();
        let mut record = before.record.clone();
        if let Some(depth) = update.queue_depth {
            record.queue_depth = check_depth(depth)?;
        }
        if let Some(plug) = update.plug {
            record.plug = plug;
        }
        if let Some(layers) = update.layers {
            record.layers = layers;
        }
        record.placement = update.placement.apply(record.placement);
        record.window = patched_window(update.window, record.window)?;
        record.window.found = update.found.or(record.window.found);
        self.check_window(&record)?;
        record.capacity = match update.capacity {
            Some(capacity) => capacity.or_else(|| capacity::from_model(&record)),
            None => capacity::current(&record),
        };
        catalog.update_datastore(&record)?;
        if before.service == Service::Serving
            && let Err(e) = self.bring_into_force(&before.record, &record)
        {
            catalog.update_datastore(&before.record)?;
            return Err(e.into());
        }
        let mut model = self.model_mut();
        let entry = DatastoreEntry { record, ..before };
        model.datastores.insert(name.clone(), entry.clone());
        let now = self.view_datastore(&model, &entry);
        let mut warnings = self.window_warnings(&entry.record);
        if now.capacity.is_none() {
            warnings.push(unknown_capacity(&entry.record));
        }
        warnings.extend(capacity::warning(&entry.record));
        if now.overbooked_iops > 0 {
            warnings.push(format!(
                "datastore '{name}' is overbooked by {} IOPS: when all its disks are busy, reservations are missed in \
                 proportion",
                now.overbooked_iops
            ));
        }
        Ok(Changed { now, warnings })
    }

    fn bring_into_force(
        &self,
        before: &DatastoreRecord,
        now: &DatastoreRecord,
    ) -> Result<(), PlaneError> {
        if now.queue_depth != before.queue_depth || now.window != before.window {
            self.set_window(now)?;
        }
        if now.window.narrow != before.window.narrow {
            self.plane.set_narrow(&now.name, now.window.narrow)?;
        }
        if now.plug != before.plug {
            self.plane.set_plug(&now.name, now.plug)?;
        }
        if now.layers != before.layers {
            self.plane.set_layers(&now.name, &now.layers)?;
        }
        Ok(())
    }

    /// Some of what a datastore's first trace layer has kept, from this serial number on.
    ///
    /// # Errors
    /// When there is no datastore of this name, or it has no trace layer.
    pub fn trace(&self, name: &Name, from: u64) -> Result<TracePart, ControlError> {
        self.model().datastore(name)?;
        let part = self.plane.trace(name, from)?;
        part.map(TracePart::from).ok_or_else(|| ControlError::Busy {
            error: format!("datastore '{name}' has no trace layer"),
            hint: format!("set one with 'headgate datastore set {name} --layer trace=10000'"),
        })
    }

    /// Forgets a datastore that has no disks. Its directory or device is left as it is.
    ///
    /// # Errors
    /// [`ControlError::HasDisks`].
    pub fn remove_datastore(&self, name: &Name) -> Result<(), ControlError> {
        let mut catalog = self.catalog();
        let entry = {
            let model = self.model();
            let entry = model.datastore(name)?.clone();
            let disks: Vec<&str> =
                model.disks_on(name).map(|disk| disk.record.name.as_str()).collect();
            if !disks.is_empty() {
                let first = disks.iter().take(5).copied().collect::<Vec<_>>().join(", ");
                return Err(ControlError::HasDisks {
                    name: name.clone(),
                    count: disks.len(),
                    disks: first,
                });
            }
            entry
        };
        catalog.delete_datastore(name)?;
        if entry.service == Service::Serving {
            self.windows.forget(name);
            self.plane.remove_datastore(name)?;
        }
        self.model_mut().datastores.remove(name);
        self.samples.forget_datastore(name);
        if let (Backend::Emulated { .. }, Some(own)) =
            (&entry.record.backend, self.directory(&entry.record.backend))
        {
            // Empty by now; if it is not, what is in it is not ours to remove.
            let _ = fs::remove_dir(own);
        }
        Ok(())
    }
}

/// What an operator must know who keeps data on this datastore.
pub(super) fn volatile(record: &DatastoreRecord) -> Option<String> {
    let Backend::Memory { .. } = record.backend else { return None };
    Some(format!(
        "datastore '{}' is memory: nothing on it survives the daemon. After a restart its disks \
         are there, full of zeroes",
        record.name
    ))
}

fn memory(size: Bytes) -> Result<Backend, ControlError> {
    size::check(size)?;
    Ok(Backend::Memory { size })
}

/// The most layers of a datastore: each is work on every request.
const LAYERS_MAX: usize = 16;

fn check_layers(texts: &[String]) -> Result<Vec<LayerSpec>, ControlError> {
    if texts.len() > LAYERS_MAX {
        return Err(ControlError::invalid(
            format!("{} layers are too many", texts.len()),
            format!("at most {LAYERS_MAX}"),
        ));
    }
    texts
        .iter()
        .map(|text| text.parse().map_err(ControlError::malformed::<LayerSpecError>))
        .collect()
}

fn unknown_capacity(record: &DatastoreRecord) -> String {
    let name = &record.name;
    let measure = match record.backend {
        Backend::Nbd { .. } | Backend::Memory { .. } => String::new(),
        _ => format!("measure it with 'headgate datastore calibrate {name}' or "),
    };
    format!(
        "the capacity of datastore '{name}' is unknown, so reservations on it are not checked: \
         {measure}set it with 'headgate datastore set {name} --capacity IOPS'"
    )
}

/// By size, as in the paper; one IO each where the device takes as long for every size.
fn default_cost_model(backend: &Backend) -> CostModel {
    let size_cost = match backend {
        Backend::Emulated { model, .. } => {
            model.parse::<ModelSpec>().ok().map(|model| model.size_cost())
        }
        Backend::Dir { .. }
        | Backend::Block { .. }
        | Backend::Nbd { .. }
        | Backend::Memory { .. } => None,
    };
    match size_cost {
        Some(SizeCost::Nothing) => CostModel::Unit,
        Some(SizeCost::Time) | None => CostModel::default(),
    }
}
