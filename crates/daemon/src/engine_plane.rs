//! The data plane of the control plane: engine and frontends behind its trait.

use crate::announced::AnnouncedPolicies;
use crate::engine_parts::{Copies, LOCK_PATIENCE, Moves, Store, StoreKind, failed, image_failed};
use crate::exports::Exports;
use crate::machines::Machines;
use crate::told::Told;
use crate::translate;
use headgate_access::Access;
use headgate_control::attach::{NbdTcp, Security};
use headgate_devices::layer::TracePart;
use headgate_devices::{DEFAULT_CAPACITY, LayerSpec, ModelSpec};
use headgate_engine::backend::nbd::Connection;
use headgate_engine::port::Port;
use headgate_engine::request::DiskInfo;
use headgate_engine::{
    BackendSpec, Caching, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig,
    EngineError, Image, PortRef,
};
use headgate_frontends::nbd::policies::Policies;
use headgate_frontends::nbd::server::{NbdServer, ServerConfig};
use headgate_frontends::vhost::GuestMemorySource;
use headgate_frontends::vhost::reactor::Reactor;
use headgate_frontends::vhost::server::{ServerError, VhostServer};
use headgate_model::{Backend, DatastoreRecord, ExportRecord, Name, Policy, PriorityRecord};
use headgate_model::{
    CutOff, DataPlane, DatastoreSample, DiskGroups, DiskSample, Ended, Machine, MemberProbe,
    NbdSample, NotResized, OpenDisk, Period, PlaneError, Probe, Session, Stall, Writes,
};
use headgate_model::{PolicyAnswers, ServerPolicy, ShardWaits};
use headgate_nbd::uri::Uri;
use headgate_nbd_io::ClientTls;
use headgate_qos::window::{LatencyMeter, Slots};
use headgate_qos::{Adjustment, Narrow};
use headgate_stripe::Label;
use headgate_units::Bytes;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

// Neither of the two knows the other.
const _: () = assert!(headgate_control::limits::QUEUE_DEPTH_MAX == headgate_engine::WINDOW_MAX);
const _: () = assert!(headgate_control::limits::SIZE_STEP == headgate_engine::backend::SIZE_STEP);
const _: () = assert!(headgate_control::limits::SIZE_MAX == headgate_engine::backend::SIZE_MAX);

/// The longest that the creation of a disk waits for an NBD server's answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Lets in those that `access` names; if that fails, nobody, rather than whoever was before.
fn grant_or_nobody(server: &VhostServer, access: &Access) -> Result<(), PlaneError> {
    server.grant(access).map_err(|e| {
        // The first error is the one to tell.
        let _ = server.grant(&Access::default());
        failed(format!("cannot set who may connect to {}: {e}", server.path().display()))
    })
}

/// A disk of the daemon's own.
#[derive(Debug)]
pub struct Internal(DiskId);

/// Datastores and disks in the engine, each disk as an NBD export and on a vhost-user socket.
pub struct EnginePlane {
    pub(crate) engine: Engine,
    pub(crate) exports: Arc<Exports>,
    nbd: Mutex<Option<NbdServer>>,
    vhost: Mutex<HashMap<Name, VhostServer>>,
    reactor: Reactor,
    machines: Machines,
    memory: GuestMemorySource,
    stores: Mutex<HashMap<Name, Store>>,
    pub(crate) moves: Moves,
    pub(crate) copies: Copies,
    /// What servers over TLS need.
    pub(crate) tls: Arc<ClientTls>,
    /// What the servers of striped disks are told.
    pub(crate) announced: AnnouncedPolicies,
    /// What was last told of disks.
    pub(crate) told: Mutex<Told>,
}

impl EnginePlane {
    /// Starts the shards. Front-ends may bring `memory`.
    ///
    /// # Errors
    /// When the kernel refuses a ring.
    pub fn start(
        config: EngineConfig,
        memory: GuestMemorySource,
    ) -> Result<EnginePlane, PlaneError> {
        let engine = Engine::start(config).map_err(failed)?;
        let exports = Arc::new(Exports::new(engine.clone()));
        Ok(EnginePlane {
            engine,
            machines: Machines::new(exports.clone()),
            exports,
            nbd: Mutex::default(),
            vhost: Mutex::default(),
            reactor: Reactor::start().map_err(failed)?,
            memory,
            stores: Mutex::default(),
            moves: Moves::default(),
            copies: Copies::default(),
            tls: Arc::new(ClientTls::by_uri()),
            announced: AnnouncedPolicies::default(),
            told: Mutex::default(),
        })
    }

    /// Reaches servers over TLS with this.
    #[must_use]
    pub fn with_tls(self, tls: ClientTls) -> EnginePlane {
        EnginePlane { tls: Arc::new(tls), ..self }
    }

    /// Lets NBD clients in. To be called once the disks are in service: a client that reconnects
    /// after a restart shall wait for its export, not be told that there is none. What gateways
    /// announce of their disks' policies goes to `policies`.
    ///
    /// # Errors
    /// When an address is taken.
    pub fn listen(
        &self,
        config: ServerConfig,
        policies: Option<Arc<dyn Policies>>,
    ) -> Result<(), PlaneError> {
        let server = NbdServer::start_with(config, self.exports.clone(), policies);
        let server = server.map_err(failed)?;
        let mut nbd = self.nbd_server();
        self.machines.listen(nbd.insert(server));
        Ok(())
    }

    /// Where NBD is served over TCP.
    pub fn nbd_tcp(&self) -> Option<NbdTcp> {
        let server = self.nbd_server();
        let server = server.as_ref()?;
        let security = if server.has_tls() { Security::Tls } else { Security::Plain };
        server.tcp_address().map(|address| NbdTcp { address, security })
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

    /// Opens a disk for the daemon's own use, which clients cannot reach, and returns its size.
    ///
    /// # Errors
    /// When the image cannot be opened.
    pub fn open_internal(
        &self,
        datastore: &Name,
        image: &Path,
    ) -> Result<(Internal, Bytes), PlaneError> {
        let store = self.store(datastore)?;
        let image = match self.kind(datastore) {
            Some(StoreKind::Device) => {
                Image::open_device(image, Caching::PreferDirect, LOCK_PATIENCE)
            }
            _ => Image::open(image, Caching::PreferDirect, LOCK_PATIENCE),
        };
        let image = image.map_err(failed)?;
        let size = image.size();
        // Not a name that a disk of an operator's can have.
        let spec = DiskSpec {
            name: format!(".{datastore}"),
            image,
            policy: headgate_qos::Policy::default(),
        };
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

    fn nbd_server(&self) -> MutexGuard<'_, Option<NbdServer>> {
        self.nbd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn vhost(&self) -> MutexGuard<'_, HashMap<Name, VhostServer>> {
        self.vhost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stores(&self) -> MutexGuard<'_, HashMap<Name, Store>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn store(&self, datastore: &Name) -> Result<DatastoreId, PlaneError> {
        let stores = self.stores();
        let store = stores.get(datastore);
        store
            .map(|s| s.id)
            .ok_or_else(|| failed(format!("datastore '{datastore}' is not in service")))
    }

    pub(crate) fn kind(&self, datastore: &Name) -> Option<StoreKind> {
        self.stores().get(datastore).map(|store| store.kind.clone())
    }

    pub(crate) fn disk(&self, disk: &Name) -> Result<DiskId, PlaneError> {
        let disk_id = self.exports.disks().get(disk).copied();
        disk_id.ok_or_else(|| failed(format!("disk '{disk}' is not in service")))
    }

    fn serve_at(
        &self,
        path: &Path,
        access: &Access,
        id: DiskId,
    ) -> Result<VhostServer, ServerError> {
        VhostServer::start(path, access, self.engine.clone(), id, self.memory, &self.reactor)
    }

    /// Makes a disk's vhost-user socket, also in its machine's directory.
    fn listen_for(&self, disk: &OpenDisk, id: DiskId) -> Result<VhostServer, PlaneError> {
        let (path, access) = (&disk.vhost_socket, &disk.access);
        let server = self.serve_at(path, access, id).map_err(failed)?;
        if let Some(machine) = &disk.machine {
            let nbd = self.nbd_server();
            self.machines.enter(machine, access, &disk.name, path, nbd.as_ref()).map_err(failed)?;
        }
        Ok(server)
    }

    /// Rights have changed: NBD clients that have none any more are disconnected.
    fn review_nbd(&self) {
        if let Some(nbd) = &*self.nbd_server() {
            nbd.review();
        }
    }

    /// A disk is its machine's no more.
    fn depart(&self, disk: &Name) {
        if let Some(machine) = self.exports.machine(disk) {
            self.machines.leave(&machine, disk, self.nbd_server().as_ref());
        }
        self.exports.set_machine(disk, None);
    }

    /// Brings back the socket of a disk that stays in service.
    fn listen_again(&self, disk: &Name, id: DiskId, before: &VhostServer) {
        let (path, access) = (before.path(), before.access());
        match self.serve_at(path, &access, id) {
            Ok(server) => drop(self.vhost().insert(disk.clone(), server)),
            Err(error) => {
                return tracing::error!(%disk, %error, "the vhost-user socket is gone until a restart");
            }
        }
        let machine = self.exports.machine(disk);
        if let Some(Err(error)) = machine.map(|machine| self.machines.link(&machine, disk, path)) {
            tracing::error!(%disk, %error, "the socket is not in its machine's directory until a restart");
        }
    }
}

impl DataPlane for EnginePlane {
    fn stalls(&self) -> Vec<Stall> {
        let stalls = self.engine.stalls();
        if stalls.is_empty() {
            return Vec::new();
        }
        let stores: Vec<(Name, usize)> = self
            .stores()
            .iter()
            .map(|(name, store)| (name.clone(), Engine::shard_of(store.id)))
            .collect();
        stalls.iter().map(|stall| translate::stall(stall, &stores)).collect()
    }

    fn waits(&self) -> Vec<ShardWaits> {
        self.engine.waits().into_iter().map(translate::waits).collect()
    }

    fn add_datastore(
        &self,
        record: &DatastoreRecord,
        _directory: Option<&Path>,
    ) -> Result<(), PlaneError> {
        let (kind, backend) = match &record.backend {
            Backend::Dir { .. } => (StoreKind::Storage, BackendSpec::Files),
            Backend::Block { .. } => (StoreKind::Device, BackendSpec::Files),
            Backend::Nbd { .. } | Backend::Stripe { .. } => {
                (StoreKind::Storage, BackendSpec::Remote)
            }
            Backend::Memory { .. } => (StoreKind::Memory, BackendSpec::Memory),
            Backend::Emulated { model, .. } => {
                let model: ModelSpec = model.parse().map_err(failed)?;
                let backend = match &model {
                    ModelSpec::Null => BackendSpec::Null,
                    model => {
                        let capacity = model.capacity().unwrap_or(DEFAULT_CAPACITY);
                        BackendSpec::Emulated(model.clone(), capacity)
                    }
                };
                (StoreKind::Model(model), backend)
            }
        };
        let (scheduler, qos) = record.scheduler_setup();
        let spec = DatastoreSpec {
            name: record.name.to_string(),
            backend,
            layers: record.layers.clone(),
            scheduler,
            queue_depth: record.queue_depth,
            qos,
        };
        let id = self.engine.add_datastore(spec).map_err(failed)?;
        self.stores().insert(record.name.clone(), Store { id, kind });
        Ok(())
    }

    fn set_window(&self, datastore: &Name, window: Slots) -> Result<(), PlaneError> {
        self.engine.set_window(self.store(datastore)?, window).map_err(failed)
    }

    fn set_narrow(&self, datastore: &Name, narrow: Narrow) -> Result<(), PlaneError> {
        self.engine.set_narrow(self.store(datastore)?, narrow).map_err(failed)
    }

    fn measure_latency(
        &self,
        datastore: &Name,
        meter: Option<LatencyMeter>,
    ) -> Result<(), PlaneError> {
        self.engine.set_meter(self.store(datastore)?, meter).map_err(failed)
    }

    fn end_period(&self, datastore: &Name) -> Result<Period, PlaneError> {
        let period = self.engine.end_period(self.store(datastore)?).map_err(failed)?;
        let disks = period.disks.iter().map(translate::usage).collect();
        Ok(Period { latency: period.latency, disks })
    }

    fn adjust(&self, datastore: &Name, adjustment: Adjustment) -> Result<(), PlaneError> {
        self.engine.adjust(self.store(datastore)?, adjustment).map_err(failed)
    }

    fn set_groups(&self, datastore: &Name, groups: &DiskGroups) -> Result<(), PlaneError> {
        let groups = self.engine_groups(groups);
        self.engine.set_groups(self.store(datastore)?, groups).map_err(failed)
    }

    fn set_layers(&self, datastore: &Name, layers: &[LayerSpec]) -> Result<(), PlaneError> {
        self.engine.set_layers(self.store(datastore)?, layers).map_err(failed)
    }

    fn trace(&self, datastore: &Name, from: u64) -> Result<Option<TracePart>, PlaneError> {
        self.engine.trace(self.store(datastore)?, from).map_err(failed)
    }

    fn remove_datastore(&self, datastore: &Name) -> Result<(), PlaneError> {
        self.engine.remove_datastore(self.store(datastore)?).map_err(failed)?;
        self.stores().remove(datastore);
        Ok(())
    }

    fn create_image(&self, path: &Path, size: Bytes) -> Result<(), PlaneError> {
        Image::create(path, size).map_err(image_failed)
    }

    fn device_size(&self, path: &Path) -> Result<Bytes, PlaneError> {
        let device = Image::open_device(path, Caching::PreferDirect, LOCK_PATIENCE);
        Ok(device.map_err(image_failed)?.size())
    }

    fn connect(&self, uri: &Uri) -> Result<Probe, PlaneError> {
        let connection = Connection::open(uri, CONNECT_PATIENCE, &self.tls);
        let connection = connection.map_err(failed)?;
        let (size, block_size) = (connection.size(), connection.block_size());
        Ok(Probe { size, block_size, session: Some(Session::new(connection)) })
    }

    fn look_at_member(&self, uri: &Uri) -> Result<MemberProbe, PlaneError> {
        self.look_at(uri)
    }

    fn label_member(&self, uri: &Uri, label: &Label) -> Result<(), PlaneError> {
        self.label(uri, label)
    }

    fn announce(&self, disk: &Name, policy: ServerPolicy) -> Result<PolicyAnswers, PlaneError> {
        self.announce_to_all(disk, policy)
    }

    fn open_disk(&self, mut disk: OpenDisk) -> Result<Bytes, PlaneError> {
        let id = match self.adopt_copy(&disk)? {
            Some(id) => id,
            None => self.open_storage(&disk.name.to_string(), &mut disk)?,
        };
        let size = Bytes(self.engine.disk_info(id).map_err(failed)?.size);
        self.engine.set_trouble(id, translate::trouble_policy(&disk.policy)).map_err(failed)?;
        match self.listen_for(&disk, id) {
            Ok(server) => self.vhost().insert(disk.name.clone(), server),
            Err(e) => {
                self.engine.close_disk(id, Duration::ZERO).map_err(failed)?;
                return Err(e);
            }
        };
        self.exports.set_machine(&disk.name, disk.machine.map(|machine| machine.name));
        self.exports.disks_mut().insert(disk.name.clone(), id);
        Ok(size)
    }

    fn resize_disk(&self, disk: &Name, size: Bytes, cut_off: CutOff) -> Result<(), NotResized> {
        let cut_off = match cut_off {
            CutOff::Keep => headgate_engine::CutOff::Keep,
            CutOff::Discard => headgate_engine::CutOff::Discard,
        };
        let resized = self.engine.resize_disk(self.disk(disk)?, size, cut_off);
        resized.map_err(translate::not_resized)
    }

    fn set_writes(&self, disk: &Name, writes: Writes) -> Result<Option<usize>, PlaneError> {
        match self.engine.set_writes(self.counting(disk)?, translate::writes(writes)) {
            Ok(()) => Ok(None),
            Err(EngineError::DiskBusy { ports }) => Ok(Some(ports)),
            Err(error) => Err(failed(error)),
        }
    }

    fn set_policy(&self, disk: &Name, policy: &Policy) -> Result<(), PlaneError> {
        let trouble = translate::trouble_policy(policy);
        let policy = policy.for_scheduler().map_err(failed)?;
        for side in self.sides(disk)? {
            self.engine.set_policy(side, policy).map_err(failed)?;
        }
        self.engine.set_trouble(self.counting(disk)?, trouble).map_err(failed)
    }

    fn resume_disk(&self, disk: &Name) -> Result<bool, PlaneError> {
        self.engine.try_held(self.counting(disk)?).map_err(failed)
    }

    fn set_priorities(&self, disk: &Name, priorities: &PriorityRecord) -> Result<(), PlaneError> {
        for side in self.sides(disk)? {
            let priorities = translate::engine_priorities(priorities);
            self.engine.set_priorities(side, priorities).map_err(failed)?;
        }
        Ok(())
    }

    fn put_export(&self, export: &ExportRecord) {
        self.exports.put(export);
    }

    fn remove_export(&self, name: &Name) {
        self.exports.remove(name);
    }

    fn close_disk(&self, disk: &Name, patience: Duration) -> Result<(), PlaneError> {
        let id = self.disk(disk)?;
        // Not to be had any more before its clients are sent away, so that none comes back in
        // between.
        self.exports.disks_mut().remove(disk);
        let vhost = self.vhost().remove(disk).map(|mut server| {
            server.stop_listening();
            server
        });
        if let Err(e) = self.close_with_move(disk, id, patience) {
            self.exports.disks_mut().insert(disk.clone(), id);
            if let Some(before) = &vhost {
                self.listen_again(disk, id, before);
            }
            return Err(e);
        }
        self.depart(disk);
        Ok(())
    }

    fn abandon_disk(&self, disk: &Name) -> Result<(), PlaneError> {
        let id = self.disk(disk)?;
        self.exports.disks_mut().remove(disk);
        let mut vhost = self.vhost().remove(disk);
        vhost.iter_mut().for_each(VhostServer::stop_listening);
        self.depart(disk);
        self.close_with_move(disk, id, Duration::ZERO)
    }

    fn set_machine(
        &self,
        disk: &Name,
        machine: Option<&Machine>,
        access: &Access,
    ) -> Result<(), PlaneError> {
        let socket = match self.vhost().get(disk) {
            Some(server) => {
                grant_or_nobody(server, access)?;
                server.path().to_owned()
            }
            None => return Err(failed(format!("disk '{disk}' is not in service"))),
        };
        self.depart(disk);
        self.review_nbd();
        let Some(machine) = machine else { return Ok(()) };
        let nbd = self.nbd_server();
        self.machines.enter(machine, access, disk, &socket, nbd.as_ref()).map_err(failed)?;
        self.exports.set_machine(disk, Some(machine.name.clone()));
        Ok(())
    }

    fn set_access(&self, machine: &Name, access: &Access) -> Result<(), PlaneError> {
        let vhost = self.vhost();
        let disks = self.exports.disks_of(machine);
        let servers = disks.iter().filter_map(|disk| vhost.get(disk));
        let granted: Vec<_> = servers.map(|server| grant_or_nobody(server, access)).collect();
        let of_machine = self.machines.grant(machine, access);
        self.review_nbd();
        of_machine.map_err(failed)?;
        granted.into_iter().collect()
    }

    fn nbd(&self) -> Option<NbdSample> {
        let nbd = self.nbd_server();
        let usage = nbd.as_ref()?.usage();
        Some(NbdSample {
            connections: usage.connections,
            connections_max: usage.limits.total,
            connections_per_vm_max: usage.limits.per_machine,
            connections_per_disk_max: usage.limits.per_disk,
            refused: usage.refused,
            memory: usage.memory,
            memory_max: usage.memory_limit,
            memory_denied: usage.memory_denied,
        })
    }

    fn sample(&self) -> Result<Vec<DatastoreSample>, PlaneError> {
        self.sample_all()
    }

    fn sample_disk(&self, disk: &Name) -> Result<Option<DiskSample>, PlaneError> {
        self.sample_one(disk)
    }

    fn shutdown(&self, patience: Duration) -> Ended {
        // No new clients first; those connected are drained with their disks.
        drop(self.nbd_server().take());
        self.exports.disks_mut().clear();
        let mut vhost = std::mem::take(&mut *self.vhost());
        vhost.values_mut().for_each(VhostServer::stop_listening);
        self.machines.close();
        match self.engine.clone().shutdown(patience) {
            Ok(ended) => translate::ended(ended),
            Err(e) => {
                tracing::warn!(error = %e, "the engine did not shut down");
                Ended::default()
            }
        }
    }
}
