//! The second lease of a disk that has two copies, while it moves: that of the copy that does not
//! count.

use super::lock::locked;
use super::{Before, Beside, Held, Leases};
use headgate_cluster::lease::{FileLease, Holder, LeaseError, Standing};
use headgate_model::Name;
use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

impl Leases {
    /// Becomes the holder of the copy of a disk whose lease is in this file.
    pub(crate) fn acquire_beside(
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
                Ok(Beside::Own)
            }
        }
    }

    /// Returns when the copy that is held may be used.
    pub(crate) fn wait_beside(&self, disk: &Name) {
        let from = locked(&self.beside).get(disk).map(|held| held.from);
        let wait =
            from.map_or(Duration::ZERO, |from| from.saturating_duration_since(Instant::now()));
        sleep(wait);
    }

    /// Whether the lease of a disk's copy is held, as far as is known.
    pub(crate) fn holds_beside(&self, disk: &Name) -> bool {
        locked(&self.beside).contains_key(disk)
    }

    /// The copy counts from now on, and what was the disk is the copy.
    pub(crate) fn swap_beside(&self, disk: &Name) {
        let (mut files, mut beside) = (locked(&self.files), locked(&self.beside));
        let (counted, copy) = (files.remove(disk), beside.remove(disk));
        files.extend(copy.map(|held| (disk.clone(), held)));
        beside.extend(counted.map(|held| (disk.clone(), held)));
    }

    /// Gives back the copy, which is no more, and removes its lease's file.
    pub(crate) fn remove_beside(&self, disk: &Name, path: &Path) -> io::Result<()> {
        let Some(held) = locked(&self.beside).remove(disk) else { return Ok(()) };
        // While the lock is held: who waits for it looks whether the file is still there.
        let removed = fs::remove_file(path).or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        });
        drop(locked(&held.lease).take());
        removed
    }

    /// Gives back the copy, and leaves it there.
    pub(crate) fn release_beside(&self, disk: &Name) {
        let held = locked(&self.beside).remove(disk);
        let lease = held.and_then(|held| locked(&held.lease).take());
        if let Some(lease) = lease
            && let Err(e) = lease.release()
        {
            tracing::warn!(%disk, error = %e, "given back, but that could not be written down");
        }
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
