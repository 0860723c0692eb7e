use super::capacity;
use super::moving::Moving;
use super::workers::Workers;
use super::{Control, ControlError, DatastoreEntry, DiskEntry, Model, Options, Parts, Service};
use super::{StateDir, hangs};
use headgate_catalog::{Catalog, Contents};
use headgate_cluster::Identity;
use headgate_model::{
    Backend, DatastorePlacement, DatastoreRecord, MoveRecord, MoveStep, Scheduler, WindowRecord,
};
use headgate_qos::CostModel;
use std::mem::take;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};
use std::thread::sleep;
use std::time::Duration;
use tracing::{info, warn};

/// How often the start looks whether everything serves.
const LOOK: Duration = Duration::from_millis(5);

/// How long leases may take to be given back at the end.
const RELEASE: Duration = Duration::from_secs(3);

impl Model {
    /// What many disks are promised, and whose they are.
    fn take_promises(&mut self, of: &mut Contents) {
        let (vms, classes) = (take(&mut of.vms), take(&mut of.classes));
        self.vms = vms.into_iter().map(|vm| (vm.name.clone(), vm)).collect();
        self.classes = classes.into_iter().map(|one| (one.name.clone(), one)).collect();
        let (tenants, planned) = (take(&mut of.tenants), take(&mut of.planned));
        self.tenants = tenants.into_iter().map(|one| (one.name.clone(), one)).collect();
        self.planned = planned.into_iter().map(|one| (one.name.clone(), one)).collect();
    }
}

impl Control {
    /// Reads the catalog, finishes or undoes what a crash cut, and brings everything into service.
    ///
    /// A datastore or disk that cannot be opened is kept with the reason and [tried
    /// again](Control::tend), and the others serve. A datastore whose storage hangs is waited for
    /// no longer than for some seconds.
    ///
    /// # Errors
    /// When the catalog fails. Storage that fails is not an error here.
    pub fn start(
        dir: StateDir,
        identity: Identity,
        options: Options,
        parts: Parts,
    ) -> Result<Arc<Control>, ControlError> {
        let Parts { plane, windows, leases, samples, mut catalog, records, events } = parts;
        let mut contents = catalog.load()?;
        if contents.datastores.is_empty()
            && let Some(record) = first_datastore(&dir)
        {
            catalog.insert_datastore(&record)?;
            contents.datastores.push(record);
        }
        let mut model = Model { rules: take(&mut contents.rules), ..Model::default() };
        model.take_promises(&mut contents);
        for mut record in contents.datastores {
            record.capacity = capacity::current(&record);
            let entry = DatastoreEntry::new(record, Service::Starting);
            model.datastores.insert(entry.record.name.clone(), entry);
        }
        model.removed = contents.removed.into_iter().map(|one| (one.id.clone(), one)).collect();
        for record in contents.disks {
            let entry = DiskEntry { record, service: Service::Starting };
            model.disks.insert(entry.record.name.clone(), entry);
        }
        find_moves(catalog.as_mut(), &mut model, contents.moves)?;
        let control = Arc::new_cyclic(|me| Control {
            me: me.clone(),
            workers: Workers::default(),
            placing: Mutex::default(),
            hangs: Mutex::new(hangs::Hangs::default()),
            purge_failures: Mutex::default(),
            moved: Mutex::default(),
            copied: Mutex::default(),
            importing: Mutex::default(),
            balancer: Mutex::default(),
            announced_pace: Mutex::default(),
            emptied: Mutex::default(),
            dir,
            identity,
            options,
            plane,
            windows,
            leases,
            samples,
            service: Default::default(),
            shown: crate::terms::Shown::default(),
            volumes: Default::default(),
            foreign: Default::default(),
            records,
            events,
            catalog: Mutex::new(catalog),
            model: RwLock::new(model),
            groups_given: Mutex::default(),
            changes: Default::default(),
            wrong: Default::default(),
            to_tend: Default::default(),
        });
        // Before any disk is opened.
        control.load_kept();
        control.load_known_changes();
        control.serve_exports(contents.exports);
        control.revive();
        control.wait_for_workers();
        // A copy is removed when the other one serves.
        control.settle_moves();
        control.wait_for_workers();
        let model = control.model();
        info!(datastores = model.datastores.len(), disks = model.disks.len(), "catalog loaded");
        drop(model);
        Ok(control)
    }

    /// Waits until every worker has done what it has, but for no storage that hangs.
    pub(super) fn wait_for_workers(&self) {
        let names: Vec<_> = self.model().datastores.keys().cloned().collect();
        for name in &names {
            while !self.workers.is_idle(name) {
                if let Some(hang) = self.workers.hang(name) {
                    warn!(datastore = %name, %hang, "it hangs: the others serve without it");
                    break;
                }
                sleep(LOOK);
            }
        }
    }

    /// Takes everything out of service, waiting for requests under way, but for no storage that
    /// hangs: what it has is left to the kernel, as when the daemon is killed. Changes that come
    /// later are not made. Answers how many disks were left so.
    pub fn shutdown(&self) -> usize {
        // Never to be had again: what a datastore's worker finishes late is for the next start.
        std::mem::forget(self.catalog());
        self.windows.stop();
        let disturbed = self.disturbed_disks();
        let ended = self.plane.shutdown(self.options.patience);
        let left = ended.left;
        self.keep_settled(ended.settled, &disturbed);
        // A lease is given back when nothing of its disk is in flight.
        let held: Vec<_> = self.leases.held().into_iter().filter(|d| !left.contains(d)).collect();
        let (done, ended) = std::sync::mpsc::channel();
        let model = self.model();
        let mut by_datastore = std::collections::BTreeMap::<_, Vec<_>>::new();
        for disk in held {
            let of = model.disks.get(&disk).map(|entry| entry.record.datastore.clone());
            by_datastore.entry(of).or_default().push(disk);
        }
        drop(model);
        let threads = by_datastore.len();
        for (_, disks) in by_datastore {
            let (me, done) = (self.me.clone(), done.clone());
            let release = move || {
                if let Some(control) = me.upgrade() {
                    disks.iter().for_each(|disk| control.leases.release(disk));
                }
                let _ = done.send(());
            };
            if let Err(e) = std::thread::Builder::new().spawn(release) {
                warn!(error = %e, "leases are not given back: no thread");
            }
        }
        drop(done);
        let deadline = std::time::Instant::now() + RELEASE;
        let in_time = |_: &usize| {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            ended.recv_timeout(left).is_ok()
        };
        if (0..threads).take_while(in_time).count() < threads {
            warn!("some leases could not be given back in time: they end with this process");
        }
        left.len()
    }
}

/// Moves that were not over when the daemon before this one ended.
fn find_moves(
    catalog: &mut dyn Catalog,
    model: &mut Model,
    moves: Vec<MoveRecord>,
) -> Result<(), ControlError> {
    for mut moved in moves {
        let disk = model.disks.get(&moved.disk).map(|entry| &entry.record);
        // A change of the disk came while nobody knew of the switch, and before it was told.
        if let Some(disk) = disk.filter(|disk| disk.datastore == moved.source)
            && moved.step == MoveStep::Switched
        {
            moved.step = MoveStep::Started;
            catalog.put_move(&moved, Some(disk))?;
        }
        model.moves.extend([Moving::found(moved)]);
    }
    Ok(())
}

/// The datastore that a new state directory gets. An existing directory for it means that there was
/// one before and that the operator removed it, so it is not created again.
fn first_datastore(dir: &StateDir) -> Option<DatastoreRecord> {
    let path = PathBuf::from(super::disks::DEFAULT_DATASTORE);
    if dir.resolve(&path).exists() {
        return None;
    }
    default_datastore()
}

/// The datastore in the state directory, as it is made.
pub(super) fn default_datastore() -> Option<DatastoreRecord> {
    let path = PathBuf::from(super::disks::DEFAULT_DATASTORE);
    Some(DatastoreRecord {
        name: super::disks::DEFAULT_DATASTORE.parse().ok()?,
        backend: Backend::Dir { path },
        scheduler: Scheduler::Mclock,
        queue_depth: super::datastores::QUEUE_DEPTH_FILES,
        capacity: None,
        cost_model: CostModel::default(),
        plug: headgate_units::Nanos::ZERO,
        batch: None,
        window: WindowRecord::unset(),
        placement: DatastorePlacement::default(),
        layers: Vec::new(),
    })
}
