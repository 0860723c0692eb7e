//! Which blocks differ between snapshots of a disk: what an incremental backup reads.
//!
//! A disk is tracked from its first snapshot on ([`headgate_mirror::changes`]). Each further
//! snapshot knows what changed since the one before it, its *base*, and so since those before, as
//! long as the snapshots in between are there. That is kept in a file each, beside the catalog.
//! What is not known is not told: then a backup reads everything. An orderly end of the daemon
//! keeps what is noted of disks for the next start ([`kept`]).

mod file;
mod kept;
mod sealed;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_ends;
mod tracked_file;
mod tracking;

pub(crate) use tracking::Opened;

use crate::snapshots::{Known, Snapshot};
use crate::{Control, Model};
use headgate_model::{ChangesSince, Name, Writes};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::warn;

/// Since so many earlier snapshots a snapshot tells what changed.
const BASES_MAX: usize = 8;

impl Model {
    /// Whether a disk is this snapshot, and nobody can have changed it.
    fn is_snapshot(&self, snapshot: &Snapshot) -> bool {
        self.disks.get(&snapshot.name).is_some_and(|disk| {
            let at = disk.record.origin.as_ref().map(|origin| origin.at);
            disk.record.writes == Writes::Refused && at == Some(snapshot.at)
        })
    }

    /// What is known from a snapshot to each of those before it, the latest first.
    fn chain(&self, snapshot: &Name) -> Vec<&Known> {
        let mut chain = Vec::new();
        let mut next = self.known_changes.get(snapshot);
        while let Some(known) = next.filter(|_| chain.len() < BASES_MAX) {
            let base = &known.base;
            // A disk that has the name of a snapshot which is gone is not what clients mean by it.
            if self.disks.contains_key(&base.name) && !self.is_snapshot(base) {
                break;
            }
            chain.push(known);
            next = self.known_changes.get(&base.name).filter(|earlier| earlier.of == *base);
        }
        chain
    }

    /// The earlier snapshots since which a snapshot tells what changed, the latest first.
    pub(crate) fn bases_of(&self, snapshot: &Name) -> Vec<Name> {
        self.chain(snapshot).into_iter().map(|known| known.base.name.clone()).collect()
    }

    /// What changed since earlier snapshots, the latest first.
    fn changes_of(&self, snapshot: &Name) -> Vec<ChangesSince> {
        let mut all: Vec<ChangesSince> = Vec::new();
        for known in self.chain(snapshot) {
            let blocks = match all.last() {
                None => Arc::clone(&known.blocks),
                Some(later) => {
                    let (later, size) = (&later.blocks, later.blocks.size());
                    Arc::new(later.union(&known.blocks, size))
                }
            };
            all.push(ChangesSince { base: known.base.name.clone(), blocks });
        }
        all
    }
}

/// The files in a directory, if there is one.
fn files_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

impl Control {
    /// Reads what snapshots know of those before them. What cannot be used is removed.
    pub(crate) fn load_known_changes(&self) {
        let dir = self.dir.changes();
        let paths = match files_in(&dir) {
            Ok(paths) => paths,
            Err(error) => {
                let dir = dir.display();
                return warn!(%dir, %error, "what snapshots know of earlier ones cannot be read");
            }
        };
        for path in paths.iter().filter(|path| !tracked_file::is_one(path)) {
            let known = file::read(path).and_then(|known| {
                let is_there = self.model().is_snapshot(&known.of);
                is_there.then_some(known).ok_or_else(|| "its snapshot is not there".to_owned())
            });
            match known {
                Ok(known) => {
                    self.model_mut().known_changes.insert(known.of.name.clone(), known);
                }
                Err(reason) => {
                    let shown = path.display();
                    warn!(path = %shown, %reason, "what changed since an earlier snapshot is not known");
                    let _ = fs::remove_file(path);
                }
            }
        }
        self.tell_all_changes();
    }

    /// Has clients of a snapshot learn what is known now.
    fn tell_changes_of(&self, snapshot: &Name) {
        let changes = self.model().changes_of(snapshot);
        self.plane.set_changes_since(snapshot, changes);
    }

    /// Writes down what a snapshot knows, and tells it. That a backup has to read everything is no
    /// reason to have no snapshot.
    fn keep_known_changes(&self, known: Known) {
        let snapshot = known.of.name.clone();
        match self.changes_dir().and_then(|dir| file::write(&dir, &known)) {
            Ok(()) => {
                self.model_mut().known_changes.insert(snapshot.clone(), known);
                self.tell_changes_of(&snapshot);
            }
            Err(error) => {
                warn!(%snapshot, %error, "what changed since the snapshot before is not kept");
            }
        }
    }

    /// A disk is made. What has the name of a snapshot that is gone is not that snapshot.
    pub(crate) fn review_known_changes(&self, disk: &Name) {
        let is_base = self.model().known_changes.values().any(|known| known.base.name == *disk);
        if is_base {
            self.tell_all_changes();
        }
    }

    fn tell_all_changes(&self) {
        let snapshots: Vec<Name> = self.model().known_changes.keys().cloned().collect();
        snapshots.iter().for_each(|snapshot| self.tell_changes_of(snapshot));
    }

    /// A disk can be written from now on: it is no snapshot any more, and nothing is said of it or
    /// in comparison with it.
    pub(crate) fn forget_snapshot(&self, disk: &Name) {
        let mut model = self.model_mut();
        for tracked in model.tracked.values_mut() {
            tracked.forget(disk);
        }
        let later = model.known_changes.values().filter(|known| known.base.name == *disk);
        let later: Vec<Name> = later.map(|known| known.of.name.clone()).collect();
        drop(model);
        later.iter().for_each(|snapshot| self.forget_known_changes(snapshot));
        self.forget_known_changes(disk);
    }

    /// A disk is gone: nothing is said of it, or by way of it.
    pub(crate) fn forget_known_changes(&self, disk: &Name) {
        let mut model = self.model_mut();
        model.tracked.remove(disk);
        let was_known = model.known_changes.remove(disk).is_some();
        drop(model);
        if was_known {
            let path = self.changes_path(disk);
            if let Err(error) = fs::remove_file(&path) {
                let path = path.display();
                warn!(%path, %error, "cannot be removed: the next start does it");
            }
            self.plane.set_changes_since(disk, Vec::new());
            self.tell_all_changes();
        }
    }

    /// Where what is known is kept. It is made where it is not there yet.
    fn changes_dir(&self) -> io::Result<File> {
        let dir = self.dir.changes();
        fs::create_dir_all(&dir)?;
        File::open(&dir)
    }

    fn changes_path(&self, snapshot: &Name) -> PathBuf {
        self.dir.changes().join(file::name_of(snapshot))
    }
}
