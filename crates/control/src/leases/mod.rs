//! The leases of this daemon: it may serve a disk only while it holds the disk's lease
//! (`docs/decisions/0022-leases.md`).
//!
//! The lease of a disk in a directory is a file beside its image, that of a block device a key in
//! etcd, if the daemon uses etcd. Emulated storage needs no lease: only this daemon reaches it. A
//! block device is reserved for this host besides, where it can be.

mod bell;
mod beside;
mod fences;
mod keeper;
mod lock;
mod ticker;

pub use bell::{Bell, Next};
pub(crate) use fences::{DeviceOf, DiskFence, FenceState, Fences, Look, Probed};
pub use keeper::{Keeper, KeeperError};
pub use ticker::Ticker;

use headgate_cluster::Identity;
use headgate_cluster::lease::{FileLease, Grant, Holder, LeaseError, Standing, Token};
use headgate_model::Name;
use headgate_units::{AtomicNanos, Nanos};
use lock::locked;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often leases in files are checked.
pub const LOOK: Duration = Duration::from_secs(1);

/// How often terms and refusals are checked.
pub const TERMS: Duration = Duration::from_millis(200);

/// Two checks: the longest that a host takes to notice that it lost a lease.
const GRACE: Nanos = Nanos::from_secs(2);

/// For how long a lock that this run has given back may still be held by processes that it starts.
const INHERITED: Duration = Duration::from_secs(1);

/// Where the lease of a disk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseLocation {
    /// In a file beside its image.
    File(PathBuf),
    /// In etcd, under this name.
    Etcd(String),
}

/// The state of a disk before its lease is acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// The disk is being created.
    New,
    /// Its image exists. A host without a lease may serve it: one of a version before leases, or
    /// one whose lease file was removed.
    Existing,
}

/// Whether to take a disk from its present holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    Never,
    /// In etcd, and the reservation of its device.
    IfHeld,
}

/// Whether a copy may be used, or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// It is this host's.
    Own,
    /// Another host served what has its name, and did not give it back.
    Foreign(Holder),
}

#[derive(Debug)]
struct Held {
    token: Token,
    /// Which run of a daemon held it just before.
    after: Option<String>,
    directory: PathBuf,
    /// Locked while its file is looked at or written, which may take as long as the file system
    /// does. `None` once it is given back.
    lease: Arc<Mutex<Option<FileLease>>>,
    /// The disk is not served before this.
    from: Instant,
    /// The last check failed.
    unseen: bool,
}

/// Whose turn it is to look at a directory.
#[derive(Debug)]
pub(crate) struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The holders of a disk's lease, as `disk show` reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseState {
    /// This daemon's number among the disk's holders, if it holds the disk.
    pub own: Option<Token>,
    /// Another holder, if one is known.
    pub other: Option<Holder>,
}

/// By disk: its lease in a file.
type Files = Mutex<BTreeMap<Name, Held>>;

/// By disk: its lease in etcd.
type Keys = Mutex<BTreeMap<Name, Key>>;

/// A name in etcd, the number of its holder, and from when its disk may be served.
type Key = (String, Token, Instant);

/// The leases of one daemon. No lock but that of one lease is held while a file system works.
pub struct Leases {
    own: Identity,
    files: Files,
    /// Of disks with two copies: the lease of the one that does not count. Locked after `files`.
    beside: Files,
    /// Directories that are looked at now.
    looking: Mutex<BTreeMap<PathBuf, Arc<AtomicBool>>>,
    keeper: Option<Keeper>,
    in_etcd: Keys,
    /// Of disks with two copies, as `beside`. Locked after `in_etcd`.
    beside_in_etcd: Keys,
    /// Disks that this daemon serves again as soon as it may.
    wanted: Mutex<BTreeSet<Name>>,
    /// The last other holder of disks that could not be acquired.
    others: Mutex<BTreeMap<Name, Holder>>,
    lost: AtomicU64,
    fences: Arc<Fences>,
    /// Rung when there is more to look after.
    bell: Bell,
}

impl Leases {
    /// Nothing is held yet. Leases in etcd need a keeper.
    pub fn new(own: Identity, keeper: Option<Keeper>) -> Leases {
        let bell = Bell::default();
        Leases {
            fences: Arc::new(Fences::new(own.clone(), bell.clone())),
            own,
            keeper,
            files: Mutex::default(),
            beside: Mutex::default(),
            looking: Mutex::default(),
            in_etcd: Mutex::default(),
            beside_in_etcd: Mutex::default(),
            wanted: Mutex::default(),
            others: Mutex::default(),
            lost: AtomicU64::new(0),
            bell,
        }
    }

    /// This host.
    pub(crate) fn own(&self) -> &Identity {
        &self.own
    }

    /// Rung when a lease is held or wanted that was not, and by those who share the bell.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn has_etcd(&self) -> bool {
        self.keeper.is_some()
    }

    /// The block devices that are reserved for this host.
    pub(crate) fn fences(&self) -> &Arc<Fences> {
        &self.fences
    }

    /// Becomes the holder of a disk, if it is not yet; it may be served once [`Leases::wait`]
    /// returns.
    pub(crate) fn acquire(
        &self,
        disk: &Name,
        location: &LeaseLocation,
        before: Before,
        eviction: Eviction,
    ) -> Result<(), LeaseError> {
        let outcome = match location {
            LeaseLocation::File(path) => self.acquire_file(disk, path, before),
            LeaseLocation::Etcd(name) => match &self.keeper {
                Some(keeper) => acquire_key(keeper, &self.in_etcd, disk, name, eviction),
                None => Ok(()),
            },
        };
        match &outcome {
            Ok(()) => {
                locked(&self.others).remove(disk);
            }
            Err(LeaseError::Held { holder, .. }) => {
                locked(&self.others).insert(disk.clone(), holder.clone());
            }
            Err(LeaseError::Etcd(_)) => {
                locked(&self.wanted).insert(disk.clone());
                self.bell.ring();
            }
            Err(_) => {}
        }
        outcome
    }

    fn acquire_file(&self, disk: &Name, path: &Path, before: Before) -> Result<(), LeaseError> {
        if locked(&self.files).contains_key(disk) {
            return Ok(());
        }
        let (held, former) = self.grant(disk, path, before)?;
        if let Some(former) = former
            && former.host != self.own.host.to_string()
        {
            warn!(%disk, %former, "taken over from a host that did not give it back");
        }
        locked(&self.files).insert(disk.clone(), held);
        self.bell.ring();
        Ok(())
    }

    /// Acquires a lease in a file, and answers who had it before and did not give it back.
    fn grant(
        &self,
        disk: &Name,
        path: &Path,
        before: Before,
    ) -> Result<(Held, Option<Holder>), LeaseError> {
        let Grant { lease, before: last, former, wait } = self.acquire_lock(disk, path)?;
        let is_first = lease.token() == Token(1);
        let wait = if before == Before::Existing && is_first { GRACE } else { wait };
        let from = Instant::now() + Duration::from_nanos(wait.0);
        let directory = path.parent().map(PathBuf::from).unwrap_or_default();
        let (token, lease) = (lease.token(), Arc::new(Mutex::new(Some(lease))));
        let after = last.map(|last| last.instance);
        Ok((Held { token, after, directory, lease, from, unseen: false }, former))
    }

    /// A process that is being started has this one's descriptors until it runs its program, and
    /// with them a lock that was given back: this run's own name in the file says so.
    fn acquire_lock(&self, disk: &Name, path: &Path) -> Result<Grant, LeaseError> {
        let until = Instant::now() + INHERITED;
        loop {
            match FileLease::acquire(path, disk.as_str(), &self.own, GRACE) {
                Err(LeaseError::Held { holder, .. })
                    if holder.instance == self.own.instance.to_string()
                        && Instant::now() < until =>
                {
                    sleep(INHERITED / 100);
                }
                other => return other,
            }
        }
    }

    /// Returns when a disk that is held may be served.
    pub(crate) fn wait(&self, disk: &Name) {
        let wait = time_left(&self.files, &self.in_etcd, disk);
        if wait > Duration::ZERO {
            info!(%disk, ?wait, "waiting until its former holder has certainly stopped");
            sleep(wait);
        }
    }

    /// Gives a disk back: nothing of it is in flight any more.
    pub(crate) fn release(&self, disk: &Name) {
        locked(&self.wanted).remove(disk);
        self.release_beside(disk);
        // Before its lease: its next holder finds the device free.
        self.fences.release(disk);
        let held = locked(&self.files).remove(disk);
        let lease = held.and_then(|held| locked(&held.lease).take());
        if let Some(lease) = lease
            && let Err(e) = lease.release()
        {
            warn!(%disk, error = %e, "given back, but that could not be written down");
        }
        let key = locked(&self.in_etcd).remove(disk);
        if let (Some((name, ..)), Some(keeper)) = (key, &self.keeper) {
            keeper.release(&name);
        }
    }

    /// Gives back a disk that is no more, and removes the lease's file.
    pub(crate) fn remove(&self, disk: &Name, location: Option<&LeaseLocation>) -> io::Result<()> {
        let mut removed = Ok(());
        if let Some(LeaseLocation::File(path)) = location
            && locked(&self.files).contains_key(disk)
        {
            // While the lock is held: nobody else has it, and who waits for it looks whether the
            // file is still there.
            removed = fs::remove_file(path).or_else(|e| match e.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(e),
            });
            let held = locked(&self.files).remove(disk);
            drop(held.and_then(|held| locked(&held.lease).take()));
        }
        self.release(disk);
        removed
    }

    /// Disks that are held.
    pub(crate) fn held(&self) -> BTreeSet<Name> {
        let mut held: BTreeSet<Name> = locked(&self.files).keys().cloned().collect();
        held.extend(locked(&self.in_etcd).keys().cloned());
        held.extend(self.fences.disks());
        held
    }

    /// This run of the daemon, if it holds a disk's lease in a file.
    pub(crate) fn holder(&self, disk: &Name) -> Option<String> {
        locked(&self.files).contains_key(disk).then(|| self.own.instance.to_string())
    }

    /// Whether no other daemon held a disk's lease in a file between this run and that one. `None`:
    /// there was no lease then.
    pub(crate) fn follows(&self, disk: &Name, run: Option<&str>) -> bool {
        match (locked(&self.files).get(disk), run) {
            (None, None) => true,
            (Some(held), Some(run)) => held.after.as_deref() == Some(run),
            _ => false,
        }
    }

    /// Directories with leases that are held.
    pub(crate) fn directories(&self) -> BTreeSet<PathBuf> {
        let mut directories: BTreeSet<PathBuf> =
            locked(&self.files).values().map(|held| held.directory.clone()).collect();
        directories.extend(locked(&self.beside).values().map(|held| held.directory.clone()));
        directories
    }

    /// The turn to look at a directory, unless somebody has it.
    pub(crate) fn turn(&self, directory: &Path) -> Option<Turn> {
        let mut looking = locked(&self.looking);
        let busy = looking.entry(directory.to_owned()).or_default();
        (!busy.swap(true, Ordering::Acquire)).then(|| Turn(busy.clone()))
    }

    /// Looks at all leases in the files of a directory, and returns the disks that were lost with
    /// their new holders: these must stop at once. What is left of a lease is to be kept until
    /// then: it may still be in the new holder's way.
    pub(crate) fn look(&self, directory: &Path) -> Vec<(Name, Option<Holder>, FileLease)> {
        let here = |(disk, held): (&Name, &Held)| {
            (held.directory == directory).then(|| (disk.clone(), held.lease.clone()))
        };
        let held: Vec<_> = locked(&self.files).iter().filter_map(here).collect();
        let mut taken = Vec::new();
        for (disk, lease) in held {
            let mut locked_lease = locked(&lease);
            let Some(found) = &mut *locked_lease else { continue };
            match found.standing() {
                Ok(Standing::Held) => {
                    self.note(&disk, false);
                }
                Ok(Standing::Lost { to }) => {
                    self.count_loss(&disk, to.as_ref());
                    locked(&self.files).remove(&disk);
                    taken.extend(locked_lease.take().map(|lease| (disk, to, lease)));
                }
                Err(e) => {
                    if !self.note(&disk, true) {
                        warn!(%disk, error = %e, "the lease cannot be looked at");
                    }
                }
            };
        }
        taken
    }

    /// Keeps whether a lease could not be looked at; answers what was known.
    fn note(&self, disk: &Name, unseen: bool) -> bool {
        let mut files = locked(&self.files);
        files.get_mut(disk).is_some_and(|held| std::mem::replace(&mut held.unseen, unseen))
    }

    /// A disk is lost whose device another has reserved.
    pub(crate) fn count_eviction(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    fn count_loss(&self, disk: &Name, to: Option<&Holder>) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        if let Some(to) = to {
            locked(&self.others).insert(disk.clone(), to.clone());
        }
    }

    /// Disks that must not be served now, although they may be held: all in etcd while its term is
    /// in doubt, and those lost there. They are [wanted](Leases::wanted) from now on.
    pub(crate) fn in_doubt(&self) -> Vec<Name> {
        let Some(keeper) = &self.keeper else { return Vec::new() };
        let mut in_etcd = locked(&self.in_etcd);
        let stop = doubtful(keeper, &in_etcd);
        for disk in &stop {
            if in_etcd.get(disk).is_some_and(|(name, token, _)| !keeper.holds(name, *token)) {
                in_etcd.remove(disk);
                self.count_loss(disk, None);
            }
        }
        if !stop.is_empty() {
            locked(&self.wanted).extend(stop.iter().cloned());
            self.bell.ring();
        }
        stop
    }

    /// Whether a disk whose lease was acquired may be served now.
    pub(crate) fn may_serve(&self, disk: &Name, location: &LeaseLocation) -> bool {
        self.has(&self.files, &self.in_etcd, disk, location)
    }

    /// Whether a lease is among these, and its term is not over if it has one.
    fn has(&self, files: &Files, keys: &Keys, disk: &Name, location: &LeaseLocation) -> bool {
        match (location, &self.keeper) {
            (LeaseLocation::File(_), _) => locked(files).contains_key(disk),
            (LeaseLocation::Etcd(_), None) => true,
            (LeaseLocation::Etcd(_), Some(keeper)) => locked(keys)
                .get(disk)
                .is_some_and(|(name, token, _)| keeper.may_serve(name, *token, keeper::now())),
        }
    }

    /// The end of the term of a disk whose lease has one: it moves on with each renewal, and is
    /// over for ever once the lease is lost.
    pub(crate) fn term(&self, disk: &Name) -> Option<Arc<AtomicNanos>> {
        self.term_of(&self.in_etcd, disk)
    }

    fn term_of(&self, keys: &Keys, disk: &Name) -> Option<Arc<AtomicNanos>> {
        let keys = locked(keys);
        let (name, token, _) = keys.get(disk)?;
        // A lease that was lost a moment ago: its disk is stopped soon, and serves nothing before.
        Some(self.keeper.as_ref()?.term(name, *token).unwrap_or_default())
    }

    /// When to check for disks [in doubt](Leases::in_doubt), and for devices that refused requests,
    /// again. Where there are neither leases with terms nor reserved devices, none can be.
    pub(crate) fn next_doubt(&self) -> Next {
        if self.keeper.is_none() && !self.fences.has_holds() {
            return Next::WhenRung;
        }
        let until = self.keeper.as_ref().and_then(Keeper::serves_until);
        let left = until.map(|until| Duration::from_nanos(until.since(keeper::now()).0));
        let after = left.map_or(TERMS, |left| left.clamp(Duration::from_millis(20), TERMS));
        Next::After(after)
    }

    /// Whether files or devices are to be looked at every now and then.
    pub(crate) fn next_look(&self) -> Next {
        let has_files = !locked(&self.files).is_empty() || !locked(&self.beside).is_empty();
        match has_files || self.fences.has_holds() {
            true => Next::After(LOOK),
            false => Next::WhenRung,
        }
    }

    /// Whether a disk is to be served again as soon as its lease lets it.
    pub(crate) fn wants_any(&self) -> bool {
        !locked(&self.wanted).is_empty()
    }

    /// Disks that stopped because their leases were in doubt, and may be tried again: the lease is
    /// good again, or is to be acquired anew.
    pub(crate) fn wanted(&self) -> Vec<Name> {
        let wanted: Vec<Name> = locked(&self.wanted).iter().cloned().collect();
        let (in_etcd, now) = (locked(&self.in_etcd), keeper::now());
        let may = |disk: &Name| match (in_etcd.get(disk), &self.keeper) {
            (Some((name, token, _)), Some(keeper)) => keeper.may_serve(name, *token, now),
            _ => true,
        };
        wanted.into_iter().filter(may).collect()
    }

    pub(crate) fn no_longer_wanted(&self, disk: &Name) {
        locked(&self.wanted).remove(disk);
    }

    /// The state of a disk's lease.
    pub(crate) fn state(&self, disk: &Name, location: &LeaseLocation) -> LeaseState {
        let own = match location {
            LeaseLocation::File(_) => locked(&self.files).get(disk).map(|held| held.token),
            LeaseLocation::Etcd(_) => locked(&self.in_etcd).get(disk).map(|(_, token, _)| *token),
        };
        let other = if own.is_none() { locked(&self.others).get(disk).cloned() } else { None };
        LeaseState { own, other }
    }

    /// Leases lost since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether etcd answers; `None` without it.
    pub fn etcd_answers(&self) -> Option<bool> {
        self.keeper.as_ref().map(Keeper::answers)
    }
}

/// Becomes the holder of a disk whose lease is in etcd under this name.
fn acquire_key(
    keeper: &Keeper,
    keys: &Keys,
    disk: &Name,
    name: &str,
    eviction: Eviction,
) -> Result<(), LeaseError> {
    // What was held may be another's by now: then only etcd knows.
    if locked(keys)
        .get(disk)
        .is_some_and(|(name, token, _)| keeper.may_serve(name, *token, keeper::now()))
    {
        return Ok(());
    }
    let (token, wait) = keeper.acquire(name, eviction).map_err(|e| match e {
        LeaseError::Held { holder, token, .. } => {
            LeaseError::Held { disk: disk.to_string(), holder, token }
        }
        other => other,
    })?;
    let mut keys = locked(keys);
    let same = keys.get(disk).filter(|(_, held, _)| *held == token);
    // Who was evicted from it is waited for still.
    let from = same.map_or(Instant::now(), |(_, _, from)| *from).max(Instant::now() + wait);
    keys.insert(disk.clone(), (name.to_owned(), token, from));
    Ok(())
}

/// Disks whose terms in etcd are over, or in doubt.
fn doubtful(keeper: &Keeper, keys: &BTreeMap<Name, Key>) -> Vec<Name> {
    let now = keeper::now();
    let over = keys.iter().filter(|(_, (name, token, _))| !keeper.may_serve(name, *token, now));
    over.map(|(disk, _)| disk.clone()).collect()
}

/// How long until what is held of a disk may be used.
fn time_left(files: &Files, keys: &Keys, disk: &Name) -> Duration {
    let file = locked(files).get(disk).map(|held| held.from);
    let from = file.or_else(|| locked(keys).get(disk).map(|(_, _, from)| *from));
    from.map_or(Duration::ZERO, |from| from.saturating_duration_since(Instant::now()))
}
