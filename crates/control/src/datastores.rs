use super::limits::QUEUE_DEPTH_MAX;
use super::window_views::patched_window;
use super::workers::NotDone;
use super::{
    Control, ControlError, DatastoreEntry, Service, capacity, images, meaningless, remote, stripes,
};
use crate::configuration::Thing;
use crate::preconditions::in_earnest;
use crate::tenants::groups::WhatIf;
use headgate_api::placement::DatastorePlacementPatch;
use headgate_api::terms::DryRun;
use headgate_api::trace::TracePart;
use headgate_api::types::{Change, Changed, Datastore, DatastorePatch};
use headgate_api::windows::WindowPatch;
use headgate_catalog::PolicyChange;
use headgate_devices::layer::LayerSpecError;
use headgate_devices::{LayerSpec, ModelSpec};
use headgate_events::Entry;
use headgate_model::Name;
use headgate_model::PlaneError;
use headgate_model::{
    Backend, Capacity, CapacitySource, DatastoreRecord, FoundThreshold, PersistentReservations,
    Scheduler,
};
use headgate_qos::{Adjustment, Batch, Config, WrongBatch};
use headgate_units::Nanos;
use serde_json::json;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Deep enough for a solid-state drive, shallow enough that a spindle array does not hoard requests
/// for long.
pub(super) const QUEUE_DEPTH_FILES: u32 = 128;

/// How long records are waited for, and how often one looks.
const EMPTYING: Duration = Duration::from_millis(500);
const EMPTYING_STEP: Duration = Duration::from_millis(5);

pub(super) fn check_depth(depth: u32) -> Result<u32, ControlError> {
    if (1..=QUEUE_DEPTH_MAX).contains(&depth) {
        return Ok(depth);
    }
    Err(ControlError::invalid(
        format!("a queue depth of {depth} is out of range"),
        format!("1 to {QUEUE_DEPTH_MAX}"),
    ))
}

pub(super) fn check_plug(nanos: u64) -> Result<Nanos, ControlError> {
    let plug = Nanos(nanos);
    if plug <= Config::PLUG_MAX {
        return Ok(plug);
    }
    Err(ControlError::invalid(
        format!("a plug of {plug} is too long"),
        format!("0 to {}", Config::PLUG_MAX),
    ))
}

pub(super) fn check_batch(text: &str, scheduler: Scheduler) -> Result<Batch, ControlError> {
    if scheduler != Scheduler::Mclock {
        return Err(ControlError::invalid(
            format!("scheduler {} sends no batches", scheduler.as_str()),
            "mclock: it knows where requests lie",
        ));
    }
    text.parse().map_err(ControlError::malformed::<WrongBatch>)
}

/// Changes of a datastore; `None` keeps a setting.
#[derive(Debug, Default)]
pub(super) struct Update {
    queue_depth: Option<u32>,
    capacity: Option<Option<Capacity>>,
    plug: Option<Nanos>,
    batch: Change<String>,
    window: WindowPatch,
    placement: DatastorePlacementPatch,
    found: Option<FoundThreshold>,
    layers: Option<Vec<LayerSpec>>,
    persistent_reservations: Option<PersistentReservations>,
    add_servers: Vec<String>,
    connections: Option<u8>,
}

impl Update {
    /// What a patch says.
    ///
    /// # Errors
    /// When a value is out of range.
    pub(super) fn of(patch: DatastorePatch) -> Result<Update, ControlError> {
        let capacity = match patch.capacity {
            Change::Keep => None,
            Change::Remove => Some(None),
            Change::Set(iops) => Some(Some(Capacity { iops, source: CapacitySource::Set })),
        };
        Ok(Update {
            queue_depth: patch.queue_depth,
            capacity,
            plug: patch.plug_ns.map(check_plug).transpose()?,
            batch: patch.batch,
            window: patch.window,
            placement: patch.placement,
            found: None,
            layers: patch.layers.as_deref().map(check_layers).transpose()?,
            persistent_reservations: patch.persistent_reservations,
            add_servers: patch.add_servers,
            connections: patch.connections,
        })
    }
}

/// A datastore after these changes, as far as its record alone says whether they make sense.
pub(super) fn updated(
    mut record: DatastoreRecord,
    update: Update,
) -> Result<DatastoreRecord, ControlError> {
    let overcommit = update.placement.overcommit;
    meaningless::check_settings(update.plug, record.scheduler, overcommit, &record.backend)?;
    if let Some(depth) = update.queue_depth {
        record.queue_depth = check_depth(depth)?;
    }
    if let Some(plug) = update.plug {
        record.plug = plug;
    }
    record.batch = match update.batch {
        Change::Keep => record.batch,
        Change::Remove => None,
        Change::Set(text) => Some(check_batch(&text, record.scheduler)?),
    };
    if let Some(layers) = update.layers {
        record.layers = layers;
    }
    if let Some(mode) = update.persistent_reservations {
        record.backend = with_reservations(record.backend, mode)?;
    }
    if !update.add_servers.is_empty() {
        record.backend = stripes::with_servers(record.backend, &update.add_servers)?;
    }
    if let Some(number) = update.connections {
        record.backend = remote::with_connections(record.backend, number)?;
    }
    record.placement = update.placement.apply(record.placement);
    record.window = patched_window(update.window, record.window)?;
    if update.found.is_some() {
        (record.window.found, record.window.followed) = (update.found, None);
    }
    record.capacity = match update.capacity {
        Some(capacity) => capacity.or_else(|| capacity::from_model(&record)),
        None => capacity::current(&record),
    };
    Ok(record)
}

pub(super) fn metadata(path: &Path, what: &str) -> Result<fs::Metadata, ControlError> {
    fs::metadata(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ControlError::invalid(
            format!("{} does not exist", path.display()),
            format!("{what} that exists"),
        ),
        _ => ControlError::Io { doing: format!("look at {}", path.display()), source },
    })
}

impl Control {
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
        self.check_allowed(record)?;
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
        self.probe_device(&record.name, &record.backend)?;
        self.forget_groups(&record.name);
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
        self.update_datastore(name, Update::of(patch)?)
    }

    /// Stores what calibration measured.
    pub fn set_measured(
        &self,
        name: &Name,
        capacity: Capacity,
        found: Option<FoundThreshold>,
    ) -> Result<Changed<Datastore>, ControlError> {
        let measured = json!({"capacity": capacity, "window.found": found});
        let changed = self.update_datastore(
            name,
            Update { capacity: Some(Some(capacity)), found, ..Update::default() },
        )?;
        let calibrated = Entry::done("datastore calibrated").of_datastore(name);
        self.note(calibrated.with_new(measured));
        Ok(changed)
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
            Backend::Nbd { .. } | Backend::Stripe { .. } => Err(ControlError::Busy {
                error: format!(
                    "the disks of datastore '{name}' are exports of servers: they hold data, and \
                     there is none to measure on"
                ),
                hint: set_by_hand,
            }),
            Backend::Block { .. } if model.copies_on(name).next().is_some() => {
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
        self.check_new_board(name, update.window.clone())?;
        let mut catalog = self.catalog_for(&Thing::Datastore(name.clone()))?;
        let before = self.model().datastore(name)?.clone();
        let record = updated(before.record.clone(), update)?;
        self.check_window(&record)?;
        self.model().check_groups(&record, WhatIf::default())?;
        in_earnest(|| self.would_update(&record))?;
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
        let warnings = self.warnings_of_datastore(&entry.record, &now);
        Ok(Changed { now, warnings })
    }

    /// What an operator may not have intended of a datastore as it is set.
    fn warnings_of_datastore(&self, record: &DatastoreRecord, now: &Datastore) -> Vec<String> {
        let mut warnings = self.window_warnings(record);
        if now.capacity.is_none() {
            warnings.push(unknown_capacity(record));
        }
        warnings.extend(capacity::warning(record));
        if now.overbooked_iops > 0 {
            warnings.push(format!(
                "datastore '{}' is overbooked by {} IOPS: when all its disks are busy, reservations are missed in \
                 proportion",
                record.name, now.overbooked_iops
            ));
        }
        warnings
    }

    /// What would be of a datastore with this record.
    fn would_update(&self, record: &DatastoreRecord) -> DryRun {
        let model = self.model();
        let change = PolicyChange { datastores: vec![record.clone()], ..PolicyChange::default() };
        let after = model.after(&change);
        let then = after.datastores.get(&record.name);
        let then = then.map(|entry| self.view_datastore(&after, entry));
        let warnings = then.map(|then| self.warnings_of_datastore(record, &then));
        let changes = model.told(&change);
        DryRun { changes, warnings: warnings.unwrap_or_default(), ..DryRun::default() }
    }

    pub(super) fn bring_into_force(
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
        let adjustment =
            |record: &DatastoreRecord| Adjustment { plug: record.plug, batch: record.batch };
        if adjustment(now) != adjustment(before) {
            self.plane.adjust(&now.name, adjustment(now))?;
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
    /// [`ControlError::HasDisks`], [`ControlError::HasRemoved`].
    pub fn remove_datastore(&self, name: &Name) -> Result<(), ControlError> {
        let thing = Thing::Datastore(name.clone());
        let mut catalog = self.catalog_for(&thing)?;
        let entry = {
            let model = self.model();
            let entry = model.datastore(name)?.clone();
            if entry.service == Service::Starting {
                return Err(match self.workers.hang(name) {
                    Some(hang) => ControlError::Hung { name: name.clone(), hang },
                    None => ControlError::Busy {
                        error: format!("datastore '{name}' is being opened"),
                        hint: "ask again in a moment".into(),
                    },
                });
            }
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
            model.check_no_move_on(name)?;
            let count = model.removed_on(name).count();
            if count > 0 {
                return Err(ControlError::HasRemoved { name: name.clone(), count });
            }
            entry
        };
        in_earnest(|| self.would_go(&thing))?;
        catalog.delete_datastore(name)?;
        if entry.service == Service::Serving {
            self.windows.forget(name);
            self.plane.remove_datastore(name)?;
        }
        self.model_mut().datastores.remove(name);
        self.hangs().forget(name);
        self.volumes.forget(name);
        self.leases.fences().forget(name);
        self.samples.forget_datastore(name);
        let own = match &entry.record.backend {
            Backend::Emulated { .. } => self.directory(&entry.record.backend),
            _ => None,
        };
        let Some(own) = own else {
            self.workers.forget(name);
            return Ok(());
        };
        // Its own directory may be on storage that hangs, which is nobody else's matter.
        drop(catalog);
        let doing = format!("removing {}", own.display());
        let removed = self.workers.run_last(name, doing, 2 * EMPTYING, move |_| {
            let _ = fs::remove_dir(images::removed_directory(&own));
            remove_emptied(&own);
        });
        if let Err(NotDone::Hung(hang)) = removed {
            tracing::warn!(datastore = %name, %hang, "its directory is not removed yet");
        }
        Ok(())
    }
}

/// Removes a directory whose images are gone, once the records beside them are too: their writer
/// may be at it still, on the catalog's own file system. If anything else is in it, that is not
/// ours to remove.
fn remove_emptied(directory: &Path) {
    for _ in 0..EMPTYING.as_millis() / EMPTYING_STEP.as_millis() {
        match fs::remove_dir(directory) {
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty && has_records_only(directory) => {
                thread::sleep(EMPTYING_STEP);
            }
            _ => return,
        }
    }
}

fn has_records_only(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    entries.flatten().all(|entry| entry.file_name().to_string_lossy().contains(".record"))
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

/// The most layers of a datastore: each is work on every request.
const LAYERS_MAX: usize = 16;

pub(super) fn check_layers(texts: &[String]) -> Result<Vec<LayerSpec>, ControlError> {
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

/// A backend whose device is reserved in this way.
pub(super) fn with_reservations(
    backend: Backend,
    persistent_reservations: PersistentReservations,
) -> Result<Backend, ControlError> {
    match backend {
        Backend::Block { device, .. } => Ok(Backend::Block { device, persistent_reservations }),
        Backend::Dir { .. }
        | Backend::Emulated { .. }
        | Backend::Nbd { .. }
        | Backend::Stripe { .. }
        | Backend::Memory { .. } => Err(ControlError::invalid(
            "only block devices have persistent reservations",
            "none of them for this datastore, or one on a block device",
        )),
    }
}

pub(super) fn unknown_capacity(record: &DatastoreRecord) -> String {
    let name = &record.name;
    let measure = match record.backend {
        Backend::Nbd { .. } | Backend::Stripe { .. } | Backend::Memory { .. } => String::new(),
        _ => format!("measure it with 'headgate datastore calibrate {name}' or "),
    };
    format!(
        "the capacity of datastore '{name}' is unknown, so reservations on it are not checked: \
         {measure}set it with 'headgate datastore set {name} --capacity IOPS'"
    )
}
