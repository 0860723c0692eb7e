//! The engine and the frontends as the control side's data path.

use crate::catalog::{
    Backend, DatastoreRecord, ExportRecord, PolicyRecord, PriorityRecord, PriorityScope, Scheduler,
};
use crate::control::{
    DataPlane, DatastoreSample, DiskSample, OpenDisk, PlaneError, Probe, RemoteDisk, StreamSample,
    scheduler_policy,
};
use crate::name::Name;
use headgate_devices::{DEFAULT_CAPACITY, ModelSpec};
use headgate_engine::port::Port;
use headgate_engine::remote::Connection;
use headgate_engine::request::DiskInfo;
use headgate_engine::snapshot::Period;
use headgate_engine::{
    BackendSpec, Caching, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig, Image, PortRef,
    Priorities,
};
use headgate_frontends::nbd::Tag;
use headgate_frontends::nbd::proto::negotiation::{Catalog as ExportCatalog, ExportName, OpenError, Opened};
use headgate_frontends::nbd::server::{Attach, NbdServer, ServerConfig, attach_to};
use headgate_frontends::vhost::server::VhostServer;
use headgate_nbd::uri::Uri;
use headgate_qos::window::{LatencyMeter, Slots};
use headgate_qos::{Policy, PriorityPolicy, SchedulerKind};
use headgate_units::{Bytes, Nanos};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// How long an image may stay locked by a daemon that was just killed.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// How long a server may take to answer who creates a disk.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

fn failed(e: impl std::fmt::Display) -> PlaneError {
    PlaneError::new(e)
}

struct Store {
    id: DatastoreId,
    model: Option<ModelSpec>,
}

/// One more name of a disk.
struct Alias {
    disk: Name,
    tag: Tag,
}

/// Disks by export name, for the NBD server's threads.
struct Exports {
    engine: Engine,
    disks: RwLock<BTreeMap<Name, DiskId>>,
    aliases: RwLock<BTreeMap<Name, Alias>>,
}

impl Exports {
    fn disks(&self) -> RwLockReadGuard<'_, BTreeMap<Name, DiskId>> {
        self.disks.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn disks_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<Name, DiskId>> {
        self.disks.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn aliases(&self) -> RwLockReadGuard<'_, BTreeMap<Name, Alias>> {
        self.aliases.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn aliases_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<Name, Alias>> {
        self.aliases.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk behind a name that clients may ask for, and what its requests are given.
    fn find(&self, name: &Name) -> Option<(DiskId, Tag)> {
        if let Some(disk) = self.disks().get(name) {
            return Some((*disk, Tag::none()));
        }
        let (disk, tag) = self.aliases().get(name).map(|alias| (alias.disk.clone(), alias.tag.clone()))?;
        self.disks().get(&disk).map(|disk| (*disk, tag))
    }
}

impl ExportCatalog for Exports {
    type Handle = Attach;

    fn list(&self) -> Vec<ExportName> {
        let plain = |name: &Name| ExportName { name: name.to_string(), description: String::new() };
        let mut names: Vec<ExportName> = self.disks().keys().map(plain).collect();
        for (name, alias) in self.aliases().iter() {
            if self.disks().contains_key(&alias.disk) {
                names.push(ExportName {
                    name: name.to_string(),
                    description: format!("disk {} with a priority of its own", alias.disk),
                });
            }
        }
        names
    }

    fn open(&self, name: &str) -> Result<Opened<Attach>, OpenError> {
        let name: Name = name.parse().map_err(|_| OpenError::Unknown)?;
        let (disk, tag) = self.find(&name).ok_or(OpenError::Unknown)?;
        let info = self.engine.disk_info(disk).map_err(|_| OpenError::Unknown)?;
        Ok(Opened { disk: info, description: String::new(), handle: attach_to(&self.engine, disk, tag) })
    }
}

/// A disk of the daemon's own.
#[derive(Debug)]
pub struct Internal(DiskId);

/// Datastores and disks in the engine, each disk as an NBD export and on a vhost-user socket.
pub struct EnginePlane {
    engine: Engine,
    exports: Arc<Exports>,
    nbd: Mutex<Option<NbdServer>>,
    vhost: Mutex<HashMap<Name, VhostServer>>,
    stores: Mutex<HashMap<Name, Store>>,
}

impl EnginePlane {
    /// Starts the shards.
    ///
    /// # Errors
    /// When the kernel refuses a ring.
    pub fn start(config: EngineConfig) -> Result<EnginePlane, PlaneError> {
        let engine = Engine::start(config).map_err(failed)?;
        let exports = Arc::new(Exports {
            engine: engine.clone(),
            disks: RwLock::default(),
            aliases: RwLock::default(),
        });
        Ok(EnginePlane {
            engine,
            exports,
            nbd: Mutex::default(),
            vhost: Mutex::default(),
            stores: Mutex::default(),
        })
    }

    /// Lets NBD clients in. To be called once the disks are in service: a client that reconnects after a restart shall
    /// wait for its export, not be told that there is none.
    ///
    /// # Errors
    /// When an address is taken.
    pub fn listen(&self, unix: PathBuf, tcp: Option<SocketAddr>) -> Result<(), PlaneError> {
        let config = ServerConfig { unix: Some(unix), tcp, ..ServerConfig::default() };
        let server = NbdServer::start(config, self.exports.clone()).map_err(failed)?;
        *self.nbd.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        Ok(())
    }

    /// Where NBD is served over TCP.
    pub fn nbd_tcp(&self) -> Option<SocketAddr> {
        self.nbd.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(NbdServer::tcp_address)
    }

    /// Hangs a client of the daemon's own into a disk.
    ///
    /// # Errors
    /// When the disk is not in service.
    pub fn attach<F>(&self, disk: &Name, new: F) -> Result<PortRef, PlaneError>
    where
        F: FnOnce(&DiskInfo) -> Box<dyn Port> + Send + 'static,
    {
        self.engine.attach(self.disk(disk)?, new).map_err(failed)
    }

    /// Opens a disk of the daemon's own, which no client can reach, and tells its size.
    ///
    /// # Errors
    /// When the image cannot be opened.
    pub fn open_internal(&self, datastore: &Name, image: &Path) -> Result<(Internal, Bytes), PlaneError> {
        let store = self.store(datastore)?;
        let image = Image::open(image, Caching::PreferDirect, LOCK_PATIENCE).map_err(failed)?;
        let size = image.size();
        // Not a name that a disk of an operator's can have.
        let spec = DiskSpec { name: format!(".{datastore}"), image, policy: Policy::default() };
        Ok((Internal(self.engine.open_disk(store, spec).map_err(failed)?), size))
    }

    /// Hangs a client of the daemon's own into a disk of its own.
    ///
    /// # Errors
    /// When the engine is gone.
    pub fn attach_internal<F>(&self, disk: &Internal, new: F) -> Result<PortRef, PlaneError>
    where
        F: FnOnce(&DiskInfo) -> Box<dyn Port> + Send + 'static,
    {
        self.engine.attach(disk.0, new).map_err(failed)
    }

    /// Closes a disk of the daemon's own.
    pub fn close_internal(&self, disk: Internal, patience: Duration) {
        if let Err(e) = self.engine.close_disk(disk.0, patience) {
            tracing::warn!(error = %e, "a scratch disk did not close");
        }
    }

    fn vhost(&self) -> MutexGuard<'_, HashMap<Name, VhostServer>> {
        self.vhost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stores(&self) -> MutexGuard<'_, HashMap<Name, Store>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, datastore: &Name) -> Result<DatastoreId, PlaneError> {
        let stores = self.stores();
        let store = stores.get(datastore);
        store.map(|s| s.id).ok_or_else(|| failed(format!("datastore '{datastore}' is not in service")))
    }

    fn disk(&self, disk: &Name) -> Result<DiskId, PlaneError> {
        let disk_id = self.exports.disks().get(disk).copied();
        disk_id.ok_or_else(|| failed(format!("disk '{disk}' is not in service")))
    }

    fn image(&self, disk: &OpenDisk) -> Result<Image, PlaneError> {
        let model = self.stores().get(&disk.datastore).and_then(|store| store.model.clone());
        if model == Some(ModelSpec::Null) {
            return Image::null(disk.size).map_err(failed);
        }
        // The speed of an emulated device is its model's: the file under it should be faster, so it is cached.
        let caching = if model.is_some() { Caching::Buffered } else { Caching::PreferDirect };
        let image = Image::open(&disk.image, caching, LOCK_PATIENCE).map_err(failed)?;
        if image.size() != disk.size {
            return Err(PlaneError {
                error: format!(
                    "{} has {} bytes, and the disk {}",
                    disk.image.display(),
                    image.size().0,
                    disk.size.0
                ),
                hint: Some("restore the image, or remove the disk".into()),
            });
        }
        Ok(image)
    }
}

fn scheduler_kind(scheduler: Scheduler) -> SchedulerKind {
    match scheduler {
        Scheduler::Mclock => SchedulerKind::MClock,
        Scheduler::Sfq => SchedulerKind::Sfq,
        Scheduler::Fifo => SchedulerKind::Fifo,
    }
}

fn record(policy: &Policy) -> PolicyRecord {
    PolicyRecord {
        reservation: policy.reservation(),
        limit: policy.limit(),
        limit_bandwidth: policy.limit_bandwidth(),
        shares: policy.shares(),
        burst: u16::try_from(policy.burst().get()).unwrap_or(u16::MAX),
    }
}

/// A virtual machine's priorities as the engine takes them.
fn engine_priorities(record: &PriorityRecord) -> Priorities {
    let scope = match record.scope {
        PriorityScope::Within => headgate_qos::PriorityScope::WithinVm,
        PriorityScope::Across => headgate_qos::PriorityScope::AcrossVms,
    };
    Priorities { policy: PriorityPolicy { max: record.max, default: record.default, scope }, map: record.map }
}

fn priority_record(in_force: &Priorities) -> PriorityRecord {
    let scope = match in_force.policy.scope {
        headgate_qos::PriorityScope::WithinVm => PriorityScope::Within,
        headgate_qos::PriorityScope::AcrossVms => PriorityScope::Across,
    };
    let PriorityPolicy { max, default, .. } = in_force.policy;
    PriorityRecord { max, default, scope, map: in_force.map }
}

fn stream(stream: &headgate_engine::snapshot::StreamSnapshot) -> StreamSample {
    let &headgate_engine::snapshot::StreamSnapshot { priority, ios, cost } = stream;
    StreamSample { priority, ios, cost }
}

impl DataPlane for EnginePlane {
    fn add_datastore(&self, record: &DatastoreRecord, _directory: Option<&Path>) -> Result<(), PlaneError> {
        let model = match &record.backend {
            Backend::Emulated { model, .. } => Some(model.parse::<ModelSpec>().map_err(failed)?),
            Backend::Dir { .. } | Backend::Block { .. } | Backend::Nbd { .. } => None,
        };
        let backend = match &model {
            None if matches!(record.backend, Backend::Nbd { .. }) => BackendSpec::Remote,
            None => BackendSpec::Files,
            Some(ModelSpec::Null) => BackendSpec::Null,
            Some(model) => BackendSpec::Emulated(model.clone(), model.capacity().unwrap_or(DEFAULT_CAPACITY)),
        };
        let spec = DatastoreSpec {
            name: record.name.to_string(),
            backend,
            scheduler: scheduler_kind(record.scheduler),
            queue_depth: record.queue_depth,
            qos: headgate_qos::Config {
                plug: record.plug,
                ..headgate_qos::Config::for_hosts(record.cost_model)
            },
        };
        let id = self.engine.add_datastore(spec).map_err(failed)?;
        self.stores().insert(record.name.clone(), Store { id, model });
        Ok(())
    }

    fn set_window(&self, datastore: &Name, window: Slots) -> Result<(), PlaneError> {
        self.engine.set_window(self.store(datastore)?, window).map_err(failed)
    }

    fn measure_latency(&self, datastore: &Name, meter: Option<LatencyMeter>) -> Result<(), PlaneError> {
        self.engine.set_meter(self.store(datastore)?, meter).map_err(failed)
    }

    fn end_period(&self, datastore: &Name) -> Result<Period, PlaneError> {
        self.engine.end_period(self.store(datastore)?).map_err(failed)
    }

    fn set_plug(&self, datastore: &Name, plug: Nanos) -> Result<(), PlaneError> {
        self.engine.set_plug(self.store(datastore)?, plug).map_err(failed)
    }

    fn remove_datastore(&self, datastore: &Name) -> Result<(), PlaneError> {
        self.engine.remove_datastore(self.store(datastore)?).map_err(failed)?;
        self.stores().remove(datastore);
        Ok(())
    }

    fn create_image(&self, path: &Path, size: Bytes) -> Result<(), PlaneError> {
        Image::create(path, size).map_err(failed)
    }

    fn device_size(&self, path: &Path) -> Result<Bytes, PlaneError> {
        Ok(Image::open(path, Caching::PreferDirect, LOCK_PATIENCE).map_err(failed)?.size())
    }

    fn connect(&self, uri: &Uri) -> Result<Probe, PlaneError> {
        let connection = Connection::open(uri, CONNECT_PATIENCE).map_err(failed)?;
        let (size, block_size) = (connection.size(), connection.block_size());
        Ok(Probe { size, block_size, connection: Some(connection) })
    }

    fn open_disk(&self, mut disk: OpenDisk) -> Result<(), PlaneError> {
        let store = self.store(&disk.datastore)?;
        let image = match disk.remote.take() {
            Some(RemoteDisk { uri, block_size, connection }) => {
                Image::remote(uri, disk.size, block_size, connection).map_err(failed)?
            }
            None => self.image(&disk)?,
        };
        let emulated = self.stores().get(&disk.datastore).is_some_and(|store| store.model.is_some());
        if !image.is_direct() && !emulated {
            tracing::warn!(disk = %disk.name, image = %image.path().display(),
                "the file system has no direct IO: requests go through the host's page cache");
        }
        let policy = scheduler_policy(&disk.policy).map_err(failed)?;
        let spec = DiskSpec { name: disk.name.to_string(), image, policy };
        let id = self.engine.open_disk(store, spec).map_err(failed)?;
        self.engine.set_priorities(id, engine_priorities(&disk.priorities)).map_err(failed)?;
        match VhostServer::start(&disk.vhost_socket, self.engine.clone(), id) {
            Ok(server) => self.vhost().insert(disk.name.clone(), server),
            Err(e) => {
                self.engine.close_disk(id, Duration::ZERO).map_err(failed)?;
                return Err(failed(e));
            }
        };
        self.exports.disks_mut().insert(disk.name.clone(), id);
        Ok(())
    }

    fn set_policy(&self, disk: &Name, policy: &PolicyRecord) -> Result<(), PlaneError> {
        let policy = scheduler_policy(policy).map_err(failed)?;
        self.engine.set_policy(self.disk(disk)?, policy).map_err(failed)
    }

    fn set_priorities(&self, disk: &Name, priorities: &PriorityRecord) -> Result<(), PlaneError> {
        self.engine.set_priorities(self.disk(disk)?, engine_priorities(priorities)).map_err(failed)
    }

    fn put_export(&self, export: &ExportRecord) {
        match self.exports.aliases_mut().entry(export.name.clone()) {
            // Those who came by it hold its tag.
            Entry::Occupied(known) => known.get().tag.set(export.priority),
            Entry::Vacant(new) => {
                new.insert(Alias { disk: export.disk.clone(), tag: Tag::of(export.priority) });
            }
        }
    }

    fn remove_export(&self, name: &Name) {
        self.exports.aliases_mut().remove(name);
    }

    fn close_disk(&self, disk: &Name, patience: Duration) -> Result<(), PlaneError> {
        let id = self.disk(disk)?;
        // Not to be had any more before its clients are sent away, so that none comes back in between.
        self.exports.disks_mut().remove(disk);
        let vhost = self.vhost().remove(disk).map(|mut server| {
            server.stop_listening();
            server
        });
        self.engine.close_disk(id, patience).map_err(|e| {
            self.exports.disks_mut().insert(disk.clone(), id);
            if let Some(path) = vhost.as_ref().map(VhostServer::path) {
                match VhostServer::start(path, self.engine.clone(), id) {
                    Ok(server) => drop(self.vhost().insert(disk.clone(), server)),
                    Err(e) => {
                        tracing::error!(%disk, error = %e, "the vhost-user socket is gone until a restart")
                    }
                }
            }
            failed(e)
        })
    }

    fn abandon_disk(&self, disk: &Name) -> Result<(), PlaneError> {
        let id = self.disk(disk)?;
        self.exports.disks_mut().remove(disk);
        let mut vhost = self.vhost().remove(disk);
        vhost.iter_mut().for_each(VhostServer::stop_listening);
        self.engine.close_disk(id, Duration::ZERO).map_err(failed)
    }

    fn sample(&self) -> Result<Vec<DatastoreSample>, PlaneError> {
        let snapshot = self.engine.snapshot().map_err(failed)?;
        snapshot
            .into_iter()
            .map(|(_, store)| {
                // Disks of the daemon's own have names that are none.
                let named =
                    |disk: headgate_engine::snapshot::DiskSnapshot| Some((disk.name.parse().ok()?, disk));
                let disks =
                    store.disks.into_iter().filter_map(named).map(|(name, disk): (Name, _)| DiskSample {
                        name,
                        policy: record(&disk.policy),
                        priorities: priority_record(&disk.priorities),
                        streams: disk.streams.iter().map(stream).collect(),
                        in_flight: disk.in_flight,
                        queued: disk.queued,
                        clients: disk.ports,
                        remote: disk.remote,
                        stats: disk.stats,
                        flash: disk.flash,
                    });
                Ok(DatastoreSample {
                    name: store.name.parse().map_err(failed)?,
                    window: store.window,
                    in_flight: store.in_flight,
                    queued: store.queued as u64,
                    stats: store.stats,
                    disks: disks.collect(),
                    flash: store.flash,
                })
            })
            .collect()
    }

    fn shutdown(&self, patience: Duration) {
        // No new clients first; those connected are drained with their disks.
        drop(self.nbd.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.exports.disks_mut().clear();
        let mut vhost = std::mem::take(&mut *self.vhost());
        vhost.values_mut().for_each(VhostServer::stop_listening);
        if let Err(e) = self.engine.clone().shutdown(patience) {
            tracing::warn!(error = %e, "the engine did not shut down");
        }
    }
}
