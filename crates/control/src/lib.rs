//! The operations on datastores and disks: catalog, images and data path changed together.
//!
//! Readers look at a model in memory and never wait for the catalog or for a change under way.
//! Catalog and model are changed by one at a time, who waits for no storage meanwhile. What may
//! wait for storage is done by its datastore's worker, one thing after the other. A change is
//! acknowledged when it is durable in the catalog and in force in the shard.

mod additions;
pub mod admission;
mod allowed;
pub mod announced;
mod announced_pace;
mod apply;
pub mod attach;
mod balance;
mod block_device;
mod boot;
mod capacity;
mod changed_blocks;
mod classes;
mod clock;
mod conditions;
pub mod configuration;
mod constants;
#[cfg(test)]
mod constants_tests;
mod copies;
mod copying;
mod crash;
mod creation;
mod datastores;
mod derived;
mod disk_conditions;
mod disks;
mod emptied;
mod error;
pub mod event_log;
mod exports;
mod fencing;
mod flash;
mod foreign;
mod group_shares;
mod hangs;
mod history_views;
mod images;
mod imports;
mod latency_admission;
pub mod leases;
pub mod limits;
mod maintenance;
#[cfg(test)]
mod maintenance_tests;
mod meaningless;
pub mod mend;
#[cfg(test)]
mod moved_tests;
mod moves;
mod moving;
mod new_disk;
mod nodes;
mod placing;
mod pools;
mod preconditions;
mod promises;
mod purge_failures;
pub mod records;
mod remote;
mod removal;
mod removed;
#[cfg(test)]
mod removed_tests;
mod reports;
mod resize;
#[cfg(test)]
mod resize_tests;
#[cfg(test)]
mod rest_tests;
mod reviews;
mod revival;
mod roots;
mod server_policy;
mod shared_storage;
mod signature;
mod size;
mod snapshots;
mod sockets;
#[cfg(test)]
mod space_tests;
mod speed;
mod start;
mod state;
mod state_dir;
mod stripe_leases;
mod stripes;
mod takeover;
#[cfg(test)]
mod takeover_tests;
mod targets;
mod tenants;
pub mod terms;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod thing;
mod to_tend;
mod trouble;
mod views;
mod vms;
mod volume_watch;
pub mod volumes;
pub mod what_if;
mod window_setup;
mod window_views;
pub mod windows;
mod workers;
#[cfg(test)]
mod writes_tests;

pub use balance::CARRY;
pub use disk_conditions::DiskConditions;
pub use error::{ControlError, ErrorKind};
pub use foreign::{Elsewhere, Foreign, ForeignDisk};
pub use group_shares::{GroupShares, GroupsOfMachines};
pub use history_views::datastore_model;
pub use images::{free_space, scratch_path};
pub use roots::Roots;
use state::{DatastoreEntry, DiskEntry, Model, Service};
pub use state_dir::{SOCKET_PATH_MAX, StateDir, StateDirError, StateDirLock};
pub use workers::Hang;
use workers::{Ticket, Workers};

use crate::derived::{Changing, Derived};
use crate::event_log::EventLog;
use crate::leases::{Bell, Leases};
use crate::windows::Windows;
use headgate_access::Access;
use headgate_catalog::Catalog;
use headgate_cluster::Identity;
use headgate_events::Condition;
use headgate_history::Samples;
use headgate_model::{Backend, DataPlane, Name};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

/// Knobs of the control side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How much of a datastore's capacity may be reserved, in per cent: 1 to 100, default 100.
    pub reservable_percent: u32,
    /// How long a disk that is closed may take to finish its requests; default 10 s.
    pub patience: Duration,
    /// Who may connect to the sockets of disks whose machine has no setting of its own; default
    /// this process's group.
    pub socket_access: Access,
    /// Where datastores may be; default anywhere.
    pub roots: Roots,
    /// How long the content of removed disks is kept; zero: not at all; default a day.
    pub keep_removed: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            reservable_percent: 100,
            patience: Duration::from_secs(10),
            socket_access: Access::of_groups([headgate_access::own_group()]),
            roots: Roots::Anywhere,
            keep_removed: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// The parts that the control plane works with.
pub struct Parts {
    /// The data path.
    pub plane: Arc<dyn DataPlane>,
    /// The windows that follow their storage's latency.
    pub windows: Windows,
    /// The leases on disks.
    pub leases: Leases,
    /// The history of disks and datastores.
    pub samples: Arc<Samples>,
    /// The durable catalog.
    pub catalog: Box<dyn Catalog>,
    /// The records beside images, if the catalog leaves some.
    pub records: Option<records::Records>,
    /// The log of events.
    pub events: EventLog,
}

/// The control side of one daemon.
///
/// No lock of it is held while storage is waited for: that is what the workers do.
pub struct Control {
    /// Itself, for the workers.
    me: Weak<Control>,
    workers: Workers,
    /// One disk without a datastore is placed at a time: the next one counts with it.
    placing: Mutex<()>,
    /// What is known of the storage of datastores, and how old that is.
    hangs: Mutex<hangs::Hangs>,
    purge_failures: Mutex<purge_failures::PurgeFailures>,
    /// Moves that are over, and how fast the others are.
    moved: Mutex<moves::Moved>,
    /// Copies that are over.
    copied: Mutex<copies::Copied>,
    /// Imports that commands tell of.
    importing: Mutex<imports::Imports>,
    /// Advice that is carried out.
    balancer: Mutex<balance::Balancer>,
    /// What peers that announce policies may change.
    announced_pace: Mutex<announced_pace::Pace>,
    /// Datastores that are emptied.
    emptied: Mutex<emptied::Emptied>,
    dir: StateDir,
    identity: Identity,
    options: Options,
    plane: Arc<dyn DataPlane>,
    windows: Windows,
    leases: Leases,
    samples: Arc<Samples>,
    service: latency_admission::ServiceRecords,
    volumes: volume_watch::Volumes,
    /// Configurations that somebody has looked at.
    shown: terms::Shown,
    /// What other hosts do on the storage of datastores.
    foreign: RwLock<Foreign>,
    records: Option<records::Records>,
    events: EventLog,
    catalog: Mutex<Box<dyn Catalog>>,
    model: RwLock<Model>,
    /// The groups of disks that shards have.
    groups_given: Mutex<tenants::given::Given>,
    /// How often the model was changed: who waits for a change looks here.
    changes: AtomicU64,
    /// What is wrong by the model.
    wrong: Mutex<Derived<Vec<Condition>>>,
    /// What is to be looked after by the model.
    to_tend: Mutex<Derived<to_tend::ToTend>>,
}

impl Control {
    fn catalog(&self) -> MutexGuard<'_, Box<dyn Catalog>> {
        // A panic leaves the catalog itself consistent: it is transactional.
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn placing(&self) -> MutexGuard<'_, ()> {
        self.placing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hangs(&self) -> MutexGuard<'_, hangs::Hangs> {
        self.hangs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moved(&self) -> MutexGuard<'_, moves::Moved> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copied(&self) -> MutexGuard<'_, copies::Copied> {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn importing(&self) -> MutexGuard<'_, imports::Imports> {
        self.importing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn balancer(&self) -> MutexGuard<'_, balance::Balancer> {
        self.balancer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn emptied(&self) -> MutexGuard<'_, emptied::Emptied> {
        self.emptied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn purge_failures(&self) -> MutexGuard<'_, purge_failures::PurgeFailures> {
        self.purge_failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a datastore's worker do something, and waits for it, until its storage hangs or for
    /// `patience`.
    fn on_storage<T: Send + 'static>(
        &self,
        datastore: &Name,
        doing: impl Into<String>,
        patience: Duration,
        work: impl FnOnce(&Control, &Ticket) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let (me, terms) = (self.me.clone(), terms::current());
        let outcome = self.workers.run(datastore, doing, patience, move |ticket| {
            let me = me.upgrade().ok_or_else(ControlError::stopping)?;
            terms::under(terms, || work(&me, ticket))
        });
        outcome.unwrap_or_else(|e| Err(ControlError::not_done(datastore, e)))
    }

    fn model(&self) -> RwLockReadGuard<'_, Model> {
        self.model.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn model_mut(&self) -> Changing<'_> {
        let model = self.model.write().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: what somebody derives of the model is of this count.
        self.changes.fetch_add(1, Ordering::Relaxed);
        Changing::new(model, self.bell())
    }

    /// Rung when the model was changed, or what is looked after besides.
    pub fn bell(&self) -> &Bell {
        self.leases.bell()
    }

    /// How often the model was changed. Who holds it knows how often it was when he read it.
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// The directory that everything is in.
    pub fn state_dir(&self) -> &StateDir {
        &self.dir
    }

    /// This host's identity among the hosts that share its storage.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where other hosts may find a datastore's images too.
    pub fn shared_directory(&self, backend: &Backend) -> Option<PathBuf> {
        match backend {
            Backend::Dir { path } => Some(self.dir.resolve(path)),
            Backend::Emulated { .. }
            | Backend::Block { .. }
            | Backend::Nbd { .. }
            | Backend::Stripe { .. }
            | Backend::Memory { .. } => None,
        }
    }

    /// The history of disks and datastores.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// The windows that follow their storage's latency.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Where a datastore keeps its images, if it keeps files.
    pub fn directory(&self, backend: &Backend) -> Option<PathBuf> {
        match backend {
            Backend::Dir { path } | Backend::Emulated { path, .. } => Some(self.dir.resolve(path)),
            Backend::Block { .. }
            | Backend::Nbd { .. }
            | Backend::Stripe { .. }
            | Backend::Memory { .. } => None,
        }
    }
}
