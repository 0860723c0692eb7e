//! Adds datastores.

use super::datastores::{
    QUEUE_DEPTH_FILES, check_batch, check_depth, check_layers, check_plug, metadata,
    unknown_capacity, volatile, with_reservations,
};
use super::limits::QUEUE_DEPTH_MAX;
use super::state::Ground;
use super::window_views::patched_window;
use super::workers::Ticket;
use super::{
    Control, ControlError, DatastoreEntry, Model, Service, block_device, capacity, meaningless,
    remote, size, stripes,
};
use headgate_api::types::{BackendSpec, Changed, Datastore, DatastoreCreate};
use headgate_devices::{ModelSpec, ModelSpecError, SizeCost};
use headgate_model::{Backend, Capacity, CapacitySource, DatastoreRecord, Name, WindowRecord};
use headgate_qos::{CostModel, UnknownCostModel};
use headgate_units::Bytes;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default queue depth of host adapters for an array.
const QUEUE_DEPTH_EMULATED: u32 = 32;

/// How long an addition may take once it has begun.
const PATIENCE: Duration = Duration::from_secs(30);

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

impl Control {
    fn backend(&self, name: &Name, spec: BackendSpec) -> Result<Backend, ControlError> {
        use std::os::unix::fs::FileTypeExt;
        let BackendSpec { dir, block, emulated, nbd, stripe, stripe_unit, connections, memory } =
            spec;
        let kinds = [
            dir.is_some(),
            block.is_some(),
            emulated.is_some(),
            nbd.is_some(),
            stripe.is_some(),
            memory.is_some(),
        ];
        if kinds.into_iter().filter(|is_it| *is_it).count() != 1 {
            return Err(ControlError::invalid(
                "a datastore has exactly one kind of storage",
                "one of dir, block, emulated, nbd, stripe and memory",
            ));
        }
        if stripe_unit.is_some() && stripe.is_none() {
            return Err(ControlError::invalid(
                "only a datastore of striped disks has a stripe unit",
                "servers to stripe disks over, or no stripe unit",
            ));
        }
        if connections.is_some() && stripe.is_none() && nbd.is_none() {
            return Err(remote::no_connections());
        }
        let connections = connections.map(remote::connections).transpose()?.unwrap_or_default();
        if let Some(path) = dir {
            let path = absolute(path, "a directory")?;
            if !metadata(&path, "a directory")?.is_dir() {
                let error = format!("{} is not a directory", path.display());
                return Err(ControlError::invalid(error, "a directory"));
            }
            return Ok(Backend::Dir { path });
        }
        if let Some(path) = block {
            let device = absolute(path, "a block device")?;
            if !metadata(&device, "a block device")?.file_type().is_block_device() {
                let error = format!("{} is not a block device", device.display());
                let expected = "a block device, or --dir for a directory";
                return Err(ControlError::invalid(error, expected));
            }
            return Ok(Backend::Block { device, persistent_reservations: Default::default() });
        }
        if let Some(model) = emulated {
            let spec: ModelSpec =
                model.parse().map_err(ControlError::malformed::<ModelSpecError>)?;
            let path = Path::new("emulated").join(name.as_str());
            return Ok(Backend::Emulated { model: spec.to_string(), path });
        }
        if let Some(texts) = stripe {
            let servers = stripes::servers(&texts)?;
            let unit = stripes::check_unit(stripe_unit.unwrap_or(stripes::UNIT_DEFAULT))?;
            return Ok(Backend::Stripe { servers, unit, connections });
        }
        match (nbd, memory) {
            (Some(uri), _) => Ok(Backend::Nbd { server: remote::server(&uri)?, connections }),
            (None, size) => memory_of(size.unwrap_or_default()),
        }
    }

    /// Two schedulers on one device would each divide what the other takes away. `ground` is where
    /// the storage of the new one is; that of others is as it was found when they came into
    /// service.
    fn check_alone(
        &self,
        model: &Model,
        backend: &Backend,
        ground: Option<&Ground>,
    ) -> Result<Vec<String>, ControlError> {
        let mut warnings = Vec::new();
        for other in model.datastores.values() {
            let taken = match (backend, &other.record.backend) {
                (Backend::Dir { .. }, Backend::Dir { path: b })
                | (Backend::Block { .. }, Backend::Block { device: b, .. }) => {
                    let b = other
                        .ground
                        .as_ref()
                        .map_or_else(|| self.dir.resolve(b), |g| g.path.clone());
                    ground.is_some_and(|ground| ground.path == b)
                }
                _ => false,
            };
            if taken {
                let error = format!("datastore '{}' is on that storage already", other.record.name);
                return Err(ControlError::Busy {
                    error,
                    hint: "create disks on that datastore instead".into(),
                });
            }
            let shared =
                |server: &String| remote::servers_of(&other.record.backend).contains(server);
            if remote::servers_of(backend).iter().any(shared) {
                warnings.push(format!(
                    "datastore '{}' is the same server: if their exports share storage, two schedulers divide it without \
                     knowing of each other, and neither can keep reservations while both are busy",
                    other.record.name
                ));
            }
            let of = |ground: Option<&Ground>| ground.and_then(|ground| ground.device);
            let device = of(ground);
            if device.is_some() && device == of(other.ground.as_ref()) {
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
    /// [`ControlError::Hung`] when it does not answer; nothing is left behind then.
    pub fn add_datastore(
        &self,
        request: DatastoreCreate,
    ) -> Result<Changed<Datastore>, ControlError> {
        if self.model().datastores.contains_key(&request.name) {
            return Err(ControlError::Exists { kind: "datastore", name: request.name });
        }
        let name = request.name.clone();
        self.on_storage(&name, "adding the datastore", PATIENCE, move |control, ticket| {
            control.add(request, ticket)
        })
    }

    fn add(
        &self,
        request: DatastoreCreate,
        ticket: &Ticket,
    ) -> Result<Changed<Datastore>, ControlError> {
        let force = request.force;
        let record = self.planned(request)?;
        if let Backend::Block { device, .. } = &record.backend {
            self.check_device_allowed(device)?;
            block_device::check_new(device, force)?;
        }
        self.check_window(&record)?;
        self.check_board(&record)?;
        let ground = super::revival::ground(self, &record.backend);
        let name = record.name.clone();
        let mut warnings = {
            // From here on it is another's neighbour.
            let _one_at_a_time = self.catalog();
            let mut model = self.model_mut();
            if model.datastores.contains_key(&name) {
                return Err(ControlError::Exists { kind: "datastore", name });
            }
            let warnings = self.check_alone(&model, &record.backend, ground.as_ref())?;
            let mut entry = DatastoreEntry::new(record.clone(), Service::Starting);
            entry.ground = ground;
            model.datastores.insert(name.clone(), entry);
            warnings
        };
        if record.capacity.is_none() {
            warnings.push(unknown_capacity(&record));
        }
        warnings.extend(capacity::warning(&record));
        warnings.extend(volatile(&record));
        warnings.extend(self.window_warnings(&record));
        let added = self.serve_datastore(&record).and_then(|()| {
            let mut catalog = self.catalog();
            let written = if ticket.commit() {
                catalog.insert_datastore(&record).map_err(ControlError::from)
            } else {
                let reason = "its storage did not answer in time".into();
                Err(ControlError::Cut { name: name.clone(), reason })
            };
            if let Err(e) = written {
                self.windows.forget(&name);
                self.plane.remove_datastore(&name)?;
                return Err(e);
            }
            Ok(())
        });
        let mut model = self.model_mut();
        if let Err(e) = added {
            model.datastores.remove(&name);
            return Err(e);
        }
        let Some(entry) = model.datastores.get_mut(&name) else {
            return Err(ControlError::stopping());
        };
        entry.service = Service::Serving;
        let entry = entry.clone();
        drop(model);
        warnings.extend(self.reservation_warning(&name, &record.backend));
        let now = self.view_datastore(&self.model(), &entry);
        Ok(Changed { now, warnings })
    }

    /// The record of a new datastore.
    fn planned(&self, request: DatastoreCreate) -> Result<DatastoreRecord, ControlError> {
        let mut backend = self.backend(&request.name, request.backend)?;
        if let Some(mode) = request.persistent_reservations {
            backend = with_reservations(backend, mode)?;
        }
        meaningless::check_add(request.force, &request.name, &backend)?;
        let plug = check_plug(request.plug_ns.unwrap_or(0))?;
        let overcommit = request.placement.overcommit;
        meaningless::check_settings(Some(plug), request.scheduler, overcommit, &backend)?;
        let default_depth = match &backend {
            Backend::Emulated { .. } => QUEUE_DEPTH_EMULATED,
            // Each server has a scheduler and a window of its own, which see what is sent.
            Backend::Stripe { servers, .. } => {
                (QUEUE_DEPTH_FILES * servers.len() as u32).min(QUEUE_DEPTH_MAX)
            }
            Backend::Dir { .. }
            | Backend::Block { .. }
            | Backend::Nbd { .. }
            | Backend::Memory { .. } => QUEUE_DEPTH_FILES,
        };
        let cost_model = match request.cost_model {
            Some(text) => text.parse().map_err(ControlError::malformed::<UnknownCostModel>)?,
            None => default_cost_model(&backend),
        };
        let batch = request.batch.map(|text| check_batch(&text, request.scheduler));
        let mut record = DatastoreRecord {
            name: request.name,
            scheduler: request.scheduler,
            queue_depth: check_depth(request.queue_depth.unwrap_or(default_depth))?,
            capacity: request.capacity.map(|iops| Capacity { iops, source: CapacitySource::Set }),
            backend,
            cost_model,
            plug,
            batch: batch.transpose()?,
            window: patched_window(request.window, WindowRecord::unset())?,
            placement: request.placement.apply(Default::default()),
            layers: check_layers(&request.layers)?,
        };
        if record.capacity.is_none() {
            record.capacity = capacity::from_model(&record);
        }
        Ok(record)
    }
}

fn memory_of(size: Bytes) -> Result<Backend, ControlError> {
    size::check(size)?;
    Ok(Backend::Memory { size })
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
        | Backend::Stripe { .. }
        | Backend::Memory { .. } => None,
    };
    match size_cost {
        Some(SizeCost::Nothing) => CostModel::Unit,
        Some(SizeCost::Time) | None => CostModel::default(),
    }
}
