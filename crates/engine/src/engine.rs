//! The engine's control side: shards as a whole, called from any thread but a shard's own.

use crate::backend::{self, Backend, BackendSpec, Image};
use crate::calls::Member;
use crate::error::{EngineError, ShardGone, WINDOW_MAX};
use crate::groups::DiskGroups;
use crate::ids::{DatastoreId, DiskId};
use crate::kernel::mailbox::Mailbox;
use crate::port::{Detach, Port};
use crate::port_ref::PortRef;
use crate::priorities::Priorities;
use crate::pulse::Pulse;
use crate::request::{DiskInfo, Writes};
use crate::shard::Shard;
use crate::shard::control::{Attached, NewPort};
use crate::shard::waiting::Waiter;
use crate::snapshot::Period;
use crate::trouble::TroublePolicy;
use crate::waits::{Waiting, Waits};
use headgate_devices::layer::TracePart;
use headgate_devices::{LayerSpec, Layers};
use headgate_qos::Narrow;
use headgate_qos::window::{LatencyMeter, Slots};
use headgate_qos::{Adjustment, AnyScheduler, Policy, SchedulerKind};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Whether shard threads stay on one CPU each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// Shard n stays on the n-th CPU the process may use, counted from the last, wrapping.
    Yes,
    /// The kernel moves them as it likes.
    No,
}

/// Datastores that have a shard to themselves, such as those of one tenant: no other datastore is
/// ever on it, so clients of others share no thread with theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardGroup {
    /// Its name, which its thread has, too.
    pub name: String,
    /// The names of its datastores, whether they are there or not yet.
    pub datastores: Vec<String>,
}

/// How the engine is built.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Shard threads, at least 1. Datastores are spread over them, but for those of a group.
    pub shards: usize,
    /// Each has one shard more, to itself.
    pub groups: Vec<ShardGroup>,
    /// Whether they are pinned.
    pub pin: Pin,
    /// How they wait for work.
    pub waiting: Waiting,
}

impl Default for EngineConfig {
    /// One shard for every two CPUs, at least one and at most eight, not pinned: the CPUs belong to
    /// the guests first.
    fn default() -> EngineConfig {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        EngineConfig {
            shards: (cpus / 2).clamp(1, 8),
            groups: Vec::new(),
            pin: Pin::No,
            waiting: Waiting::default(),
        }
    }
}

/// Disks of which what a window is set by is read in one turn of a shard. That is little.
const USAGES_PER_CALL: usize = 512;

/// Requests of a trace that are, likewise.
const TRACED_PER_CALL: usize = 1024;

/// A datastore to add.
#[derive(Clone, Debug)]
pub struct DatastoreSpec {
    /// Its name, for statistics and logs.
    pub name: String,
    /// What lies under it.
    pub backend: BackendSpec,
    /// What stands above it, outermost first.
    pub layers: Vec<LayerSpec>,
    /// Who decides the order.
    pub scheduler: SchedulerKind,
    /// The window: requests that may be at the backend at once, 1 to [`WINDOW_MAX`].
    pub queue_depth: u32,
    /// The scheduler's parameters.
    pub qos: headgate_qos::Config,
}

/// A disk to open.
#[derive(Debug)]
pub struct DiskSpec {
    /// Its name, unique in the daemon.
    pub name: String,
    /// Its storage.
    pub image: Image,
    /// What it is promised.
    pub policy: Policy,
}

/// All shards. Clones share them.
///
/// Calls wait for the shard's answer: when one returns, what it did is in force. A turn of a shard
/// lasts microseconds to a few milliseconds. A call of a shard that stands still fails with
/// [`EngineError::Stalled`], and is not carried out later.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) members: Arc<Vec<Member>>,
}

impl Engine {
    /// Starts the shards' threads.
    ///
    /// # Errors
    /// [`EngineError::Start`] when the kernel refuses a ring or a thread.
    pub fn start(config: EngineConfig) -> Result<Engine, EngineError> {
        let mut members = Vec::new();
        let common = (0..config.shards.max(1)).map(|n| (format!("shard-{n}"), None));
        let own = config.groups.iter().map(|group| (format!("shard-{}", group.name), Some(group)));
        for (n, (name, group)) in common.chain(own).enumerate() {
            let (mailbox, inbox) = Mailbox::new().map_err(EngineError::Start)?;
            let (ready, started) = sync_channel(1);
            let (pulse, waits) = (Arc::new(Pulse::default()), Arc::new(Waits::default()));
            let waiter = Waiter::new(config.waiting, n as u64, waits.clone());
            let thread = {
                let (mailbox, name, pulse) = (mailbox.clone(), name.clone(), pulse.clone());
                // The ring belongs to the thread that made it (single issuer), so the thread makes
                // it.
                move || {
                    prepare_thread(n, config.pin);
                    match Shard::new(&name, mailbox, inbox, pulse, waiter) {
                        Ok(shard) => {
                            let _ = ready.send(Ok(()));
                            shard.run().inspect_err(
                                |e| tracing::error!(shard = name, error = %e, "the ring failed"),
                            )
                        }
                        Err(e) => {
                            let _ = ready.send(Err(e));
                            Ok(())
                        }
                    }
                }
            };
            let thread =
                std::thread::Builder::new().name(name).spawn(thread).map_err(EngineError::Start)?;
            started.recv().map_err(|_| ShardGone)?.map_err(EngineError::Start)?;
            members.push(Member::new(mailbox, (pulse, waits), thread, group.cloned()));
        }
        Ok(Engine { members: Arc::new(members) })
    }

    /// Adds a datastore: on the shard of its group, else on the shard without a group that has the
    /// fewest.
    ///
    /// # Errors
    /// [`EngineError::Window`], [`EngineError::Qos`].
    pub fn add_datastore(&self, spec: DatastoreSpec) -> Result<DatastoreId, EngineError> {
        check_window(Slots::whole(spec.queue_depth))?;
        let (shard, member) = self.place_of(&spec.name).ok_or(ShardGone)?;
        let backend = Backend::new(spec.backend, spec.scheduler);
        let layers = stack(&spec.layers);
        let scheduler = AnyScheduler::new(spec.scheduler, spec.qos)?;
        let key = self.call(shard, move |s| {
            s.add_datastore(spec.name, backend, layers, scheduler, spec.queue_depth)
        })?;
        member.datastores.fetch_add(1, Ordering::Relaxed);
        Ok(DatastoreId { shard, key })
    }

    fn place_of(&self, datastore: &str) -> Option<(usize, &Member)> {
        let all = || self.members.iter().enumerate();
        let least = || {
            let common = all().filter(|(_, member)| member.group.is_none());
            common.min_by_key(|(_, member)| member.datastores.load(Ordering::Relaxed))
        };
        let has = |group: &ShardGroup| group.datastores.iter().any(|name| name == datastore);
        all().find(|(_, member)| member.group.as_ref().is_some_and(has)).or_else(least)
    }

    /// Changes a datastore's window from the next dispatch on. It need not be whole: see
    /// [`headgate_qos::window::Pacer`].
    ///
    /// # Errors
    /// [`EngineError::Window`], [`EngineError::NoDatastore`].
    pub fn set_window(&self, datastore: DatastoreId, window: Slots) -> Result<(), EngineError> {
        check_window(window)?;
        self.call(datastore.shard, move |s| s.set_window(datastore.key, window))?
    }

    /// Whether a datastore's window gives way to reservations from now on.
    ///
    /// # Errors
    /// [`EngineError::NoDatastore`].
    pub fn set_narrow(&self, datastore: DatastoreId, narrow: Narrow) -> Result<(), EngineError> {
        self.call(datastore.shard, move |s| s.set_narrow(datastore.key, narrow))?
    }

    /// Puts layers, outermost first, in the place of those that a datastore has. Requests that the
    /// old ones hold go on at once.
    ///
    /// # Errors
    /// [`EngineError::NoDatastore`].
    pub fn set_layers(
        &self,
        datastore: DatastoreId,
        layers: &[LayerSpec],
    ) -> Result<(), EngineError> {
        let layers = stack(layers);
        self.call(datastore.shard, move |s| s.set_layers(datastore.key, layers))?
    }

    /// Some of what a datastore's first trace layer has kept, from this serial number on: at most a
    /// thousand requests, which takes the shard about 100 us. `None`: there is no trace layer.
    ///
    /// # Errors
    /// [`EngineError::NoDatastore`].
    pub fn trace(
        &self,
        datastore: DatastoreId,
        from: u64,
    ) -> Result<Option<TracePart>, EngineError> {
        self.call(datastore.shard, move |s| s.trace(datastore.key, from, TRACED_PER_CALL))?
    }

    /// Has the latency of a datastore's backend measured from now on, or no more. What was measured
    /// so far is forgotten.
    ///
    /// # Errors
    /// [`EngineError::NoDatastore`].
    pub fn set_meter(
        &self,
        datastore: DatastoreId,
        meter: Option<LatencyMeter>,
    ) -> Result<(), EngineError> {
        self.call(datastore.shard, move |s| s.set_meter(datastore.key, meter))?
    }

    /// Ends a period of a datastore's window: what was measured since the last call, and what its
    /// disks did. Disks are read a few hundred at a time, which takes microseconds.
    ///
    /// # Errors
    /// [`EngineError::NoDatastore`].
    pub fn end_period(&self, datastore: DatastoreId) -> Result<Period, EngineError> {
        let latency = self.call(datastore.shard, move |s| s.take_latency(datastore.key))??;
        let (mut disks, mut from) = (Vec::new(), Some(0));
        while let Some(start) = from {
            let part = self.call(datastore.shard, move |s| {
                s.disk_usage(datastore.key, start, USAGES_PER_CALL)
            })?;
            disks.extend(part.0);
            from = part.1;
        }
        Ok(Period { latency, disks })
    }

    /// Changes what of a datastore's scheduler can be changed while disks are served.
    ///
    /// # Errors
    /// [`EngineError::NoDatastore`].
    pub fn adjust(
        &self,
        datastore: DatastoreId,
        adjustment: Adjustment,
    ) -> Result<(), EngineError> {
        self.call(datastore.shard, move |s| s.adjust(datastore.key, adjustment))?
    }

    /// Puts groups of disks in the place of those that a datastore has: its requests go by them
    /// from the next dispatch on, queued ones too.
    ///
    /// # Errors
    /// [`EngineError::NoDatastore`], [`EngineError::Groups`]; all is as it was then.
    pub fn set_groups(
        &self,
        datastore: DatastoreId,
        groups: DiskGroups,
    ) -> Result<(), EngineError> {
        self.call(datastore.shard, move |s| s.set_groups(datastore.key, groups))?
    }

    /// Removes a datastore that has no disks open.
    ///
    /// # Errors
    /// [`EngineError::DatastoreInUse`], [`EngineError::NoDatastore`].
    pub fn remove_datastore(&self, datastore: DatastoreId) -> Result<(), EngineError> {
        self.call(datastore.shard, move |s| s.remove_datastore(datastore.key))??;
        self.member(datastore.shard)?.datastores.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Opens a disk on a datastore, with the default priorities.
    ///
    /// # Errors
    /// [`EngineError::NoDatastore`], [`EngineError::Register`], [`EngineError::NullImage`],
    /// [`EngineError::OtherStorage`], [`EngineError::Dialer`], [`EngineError::Place`]; the image is
    /// closed then.
    pub fn open_disk(
        &self,
        datastore: DatastoreId,
        mut disk: DiskSpec,
    ) -> Result<DiskId, EngineError> {
        let member = self.member(datastore.shard)?;
        let mailbox = &member.mailbox;
        let name = disk.name.clone();
        let source = disk.image.source_mut();
        let outlet = mailbox.outlet(Shard::context);
        let lines = backend::dial(source, &disk.name, &outlet).map_err(EngineError::Dialer)?;
        let opened = self.call(datastore.shard, move |s| {
            s.open_disk(datastore.key, disk.name, disk.image, disk.policy, lines)
        })?;
        let key = opened.map_err(|(e, _storage)| e)?;
        member.disks().insert(key, name);
        Ok(DiskId { shard: datastore.shard, key })
    }

    /// Puts a policy in force: at the next dispatch after this returns it binds, also for requests
    /// already queued.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`].
    pub fn set_policy(&self, disk: DiskId, policy: Policy) -> Result<(), EngineError> {
        self.call(disk.shard, move |s| s.set_policy(disk.key, policy))?
    }

    /// Puts in force what a disk's requests may ask for: at the next dispatch after this returns
    /// the policy binds, also for requests already queued; the map reads those that arrive from
    /// then on.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`].
    pub fn set_priorities(&self, disk: DiskId, priorities: Priorities) -> Result<(), EngineError> {
        self.call(disk.shard, move |s| s.set_priorities(disk.key, priorities))?
    }

    /// Puts in force what a disk does about errors of its storage. Requests that it holds and would
    /// hold no longer fail.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`].
    pub fn set_trouble(&self, disk: DiskId, policy: TroublePolicy) -> Result<(), EngineError> {
        self.call(disk.shard, move |s| s.set_trouble(disk.key, policy))?
    }

    /// Whether clients that attach to a disk from now on may change its data.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`], [`EngineError::DiskBusy`] where clients have been told otherwise,
    /// [`EngineError::Move`] when it is a side of a live move.
    pub fn set_writes(&self, disk: DiskId, writes: Writes) -> Result<(), EngineError> {
        self.call(disk.shard, move |s| s.set_writes(disk.key, writes))?
    }

    /// Has a disk that holds requests try the oldest that its storage failed. If the storage takes
    /// it, all others go on. Does not wait for that. `false`: it holds none.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`].
    pub fn try_held(&self, disk: DiskId) -> Result<bool, EngineError> {
        self.call(disk.shard, move |s| s.try_held(disk.key))?
    }

    /// Describes a disk as frontends see it.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`].
    pub fn disk_info(&self, disk: DiskId) -> Result<DiskInfo, EngineError> {
        self.call(disk.shard, move |s| s.disk_info(disk.key))?
    }

    /// Ends a disk: its ports take nothing new and get `patience` to finish what they took, then
    /// they are closed; the image is closed last.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`], [`EngineError::Move`] when it is a side of a live move: it has its
    /// clients still then.
    pub fn close_disk(&self, disk: DiskId, patience: Duration) -> Result<(), EngineError> {
        self.call(disk.shard, move |s| s.check_unmoved(disk.key))??;
        let deadline = Instant::now() + patience;
        loop {
            let ports = self.ports_of(disk)?;
            for (how, until) in
                [(Detach::Drain, deadline), (Detach::Now, deadline + Duration::from_secs(5))]
            {
                ports.iter().for_each(|p| p.detach(how));
                if how == Detach::Now && !ports.iter().all(PortRef::is_gone) {
                    // What a server owes is not waited for, nor answered: clients repeat it to a
                    // successor.
                    self.call(disk.shard, move |s| s.context().abandon(disk.key))?;
                }
                for port in &ports {
                    port.wait_gone(until.saturating_duration_since(Instant::now()));
                }
            }
            // The storage is dropped here, where closing it may block.
            match self.call(disk.shard, move |s| s.take_disk(disk.key))? {
                // A client came in between, or the backend has not returned a request yet.
                Err(EngineError::DiskBusy { .. })
                    if Instant::now() < deadline + Duration::from_secs(30) => {}
                taken => {
                    if taken.is_ok() {
                        self.member(disk.shard)?.disks().remove(&disk.key);
                    }
                    return taken.map(drop);
                }
            }
        }
    }

    pub(crate) fn ports_of(&self, disk: DiskId) -> Result<Vec<PortRef>, EngineError> {
        let ports = self.call(disk.shard, move |s| s.ports_of(disk.key))??;
        Ok(ports.into_iter().map(PortRef).collect())
    }

    /// Hangs a port into a disk's shard; `new` runs there.
    ///
    /// # Errors
    /// [`EngineError::NoDisk`], [`EngineError::TooManyPorts`].
    pub fn attach<F>(&self, disk: DiskId, new: F) -> Result<PortRef, EngineError>
    where
        F: FnOnce(&DiskInfo) -> Box<dyn Port> + Send + 'static,
    {
        let (mut disk, mut new): (DiskId, NewPort) = (disk, Box::new(new));
        loop {
            match self.call(disk.shard, move |s| s.attach(disk.key, new))?? {
                Attached::Here(place) => return Ok(PortRef(place)),
                Attached::Elsewhere(moved, back) => (disk, new) = (moved, back),
            }
        }
    }

    /// The shard of a datastore, for [`Stall::shard`](crate::pulse::Stall::shard).
    pub fn shard_of(datastore: DatastoreId) -> usize {
        datastore.shard
    }

    /// The disk that a snapshot taken of this datastore speaks of.
    pub fn disk_of(datastore: DatastoreId, disk: &crate::snapshot::DiskSnapshot) -> DiskId {
        DiskId { shard: datastore.shard, key: disk.key }
    }
}

impl crate::snapshot::DiskSnapshot {
    /// Whether this is the disk with this identity, in the datastore's shard.
    pub fn is(&self, disk: DiskId) -> bool {
        disk.key == self.key
    }
}

/// A stack of layers; none where there are none.
fn stack(layers: &[LayerSpec]) -> Option<Box<Layers>> {
    (!layers.is_empty()).then(|| Box::new(Layers::new(layers)))
}

fn check_window(given: Slots) -> Result<(), EngineError> {
    if given > Slots::ZERO && given <= Slots::whole(WINDOW_MAX) {
        return Ok(());
    }
    Err(EngineError::Window { given })
}

/// Timers of a shard are due to the microsecond: the default slack of 50 us would be lost IO on an
/// emulated array.
fn prepare_thread(n: usize, pin: Pin) {
    // Where a sandbox forbids either, a shard is later or moves between CPUs, and works.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    if pin == Pin::No {
        return;
    }
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    if cpus.is_empty() {
        return;
    }
    let mut only = CpuSet::new();
    only.set(cpus[cpus.len() - 1 - n % cpus.len()]);
    let _ = sched_setaffinity(None, &only);
}
