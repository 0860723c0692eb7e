//! The second lease of a disk that has two copies, while it moves: that of the copy that does not
//! count.

use super::lock::locked;
use super::{
    Before, Beside, Eviction, Held, LeaseLocation, Leases, acquire_key, doubtful, time_left,
};
use headgate_cluster::lease::{FileLease, Holder, LeaseError, Standing};
use headgate_model::Name;
use headgate_units::AtomicNanos;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;

impl Leases {
    /// Becomes the holder of the copy of a disk whose lease is there.
    pub(crate) fn acquire_beside(
        &self,
        disk: &Name,
        location: &LeaseLocation,
        before: Before,
    ) -> Result<Beside, LeaseError> {
        match (location, &self.keeper) {
            (LeaseLocation::File(path), _) => self.acquire_file_beside(disk, path, before),
            (LeaseLocation::Etcd(_), None) => Ok(Beside::Own),
            (LeaseLocation::Etcd(key), Some(keeper)) => {
                acquire_key(keeper, &self.beside_in_etcd, disk, key, Eviction::Never)?;
                Ok(Beside::Own)
            }
        }
    }

    fn acquire_file_beside(
        &self,
        disk: &Name,
        path: &Path,
        before: Before,
    ) -> Result<Beside, LeaseError> {
        if locked(&self.beside).contains_key(disk) {
            return Ok(Beside::Own);
        }
        let (held, former) = self.grant(disk, path, before)?;
        let former = former.filter(|former| former.host != self.own.host.to_string());
        match former {
            Some(former) => Ok(Beside::Foreign(former)),
            None => {
                locked(&self.beside).insert(disk.clone(), held);
                self.bell.ring();
                Ok(Beside::Own)
            }
        }
    }

    /// Returns when the copy that is held may be used.
    pub(crate) fn wait_beside(&self, disk: &Name) {
        sleep(time_left(&self.beside, &self.beside_in_etcd, disk));
    }

    /// Whether a disk's copy is this host's, as far as is known: that in a file may have been lost
    /// since it was looked at, and that in etcd is held until its term ends.
    pub(crate) fn holds_beside(&self, disk: &Name, location: &LeaseLocation) -> bool {
        self.has(&self.beside, &self.beside_in_etcd, disk, location)
    }

    /// Whether the leases of a disk and of its copy are this host's, by what stands in their files
    /// now. One that cannot be read is not known to be. Blocks.
    pub(crate) fn stand(&self, disk: &Name) -> bool {
        let held = [&self.files, &self.beside]
            .map(|map| locked(map).get(disk).map(|held| held.lease.clone()));
        held.into_iter().flatten().all(|lease| {
            let mut lease = locked(&lease);
            matches!(lease.as_mut().map(FileLease::standing), Some(Ok(Standing::Held)))
        })
    }

    /// The end of the term of a disk's copy, as [`Leases::term`] of the disk.
    pub(crate) fn term_beside(&self, disk: &Name) -> Option<Arc<AtomicNanos>> {
        self.term_of(&self.beside_in_etcd, disk)
    }

    /// The copy counts from now on, and what was the disk is the copy.
    pub(crate) fn swap_beside(&self, disk: &Name) {
        swap(&mut locked(&self.files), &mut locked(&self.beside), disk);
        swap(&mut locked(&self.in_etcd), &mut locked(&self.beside_in_etcd), disk);
        self.fences.swap(disk);
    }

    /// Gives back the copy, which is no more, and removes its lease's file if it has one.
    pub(crate) fn remove_beside(&self, disk: &Name, location: &LeaseLocation) -> io::Result<()> {
        let LeaseLocation::File(path) = location else {
            self.release_key_beside(disk);
            return Ok(());
        };
        let Some(held) = locked(&self.beside).remove(disk) else { return Ok(()) };
        // While the lock is held: who waits for it looks whether the file is still there.
        let removed = fs::remove_file(path).or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        });
        drop(locked(&held.lease).take());
        removed
    }

    fn release_key_beside(&self, disk: &Name) {
        let key = locked(&self.beside_in_etcd).remove(disk);
        if let (Some((key, ..)), Some(keeper)) = (key, &self.keeper) {
            keeper.release(&key);
        }
    }

    /// Gives back the copy, and leaves it there.
    pub(crate) fn release_beside(&self, disk: &Name) {
        // Before its lease: its next holder finds the device free.
        self.fences.release_copy(disk);
        self.release_key_beside(disk);
        let held = locked(&self.beside).remove(disk);
        let lease = held.and_then(|held| locked(&held.lease).take());
        if let Some(lease) = lease
            && let Err(e) = lease.release()
        {
            tracing::warn!(%disk, error = %e, "given back, but that could not be written down");
        }
    }

    /// Disks whose copies must not be used now: their terms in etcd are over, or in doubt. Nobody
    /// holds them from now on, as far as is known here.
    pub(crate) fn copies_in_doubt(&self) -> Vec<Name> {
        let Some(keeper) = &self.keeper else { return Vec::new() };
        let mut beside = locked(&self.beside_in_etcd);
        let doubtful = doubtful(keeper, &beside);
        for disk in &doubtful {
            beside.remove(disk);
        }
        doubtful
    }

    /// Looks at the leases of copies in a directory, and returns the disks whose copies were lost.
    pub(crate) fn look_beside(&self, directory: &Path) -> Vec<(Name, Option<Holder>)> {
        let here = |(disk, held): (&Name, &Held)| {
            (held.directory == directory).then(|| (disk.clone(), held.lease.clone()))
        };
        let held: Vec<_> = locked(&self.beside).iter().filter_map(here).collect();
        let mut lost = Vec::new();
        for (disk, lease) in held {
            let mut lease = locked(&lease);
            // One that cannot be looked at is looked at again.
            if let Some(Ok(Standing::Lost { to })) = lease.as_mut().map(FileLease::standing) {
                locked(&self.beside).remove(&disk);
                lost.push((disk, to));
            }
        }
        lost
    }
}

fn swap<T>(counted: &mut BTreeMap<Name, T>, copies: &mut BTreeMap<Name, T>, disk: &Name) {
    let (was, is) = (counted.remove(disk), copies.remove(disk));
    counted.extend(is.map(|held| (disk.clone(), held)));
    copies.extend(was.map(|held| (disk.clone(), held)));
}
