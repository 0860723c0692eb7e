//! Copies as a test plays them.

use super::{MemoryPlane, State as PlaneState};
use headgate_mirror::changes::{ChangedBlocks, Changes, Difference, GRAIN};
use headgate_mirror::instant::{Outcome, Progress, State};
use headgate_mirror::stamp::Stamp;
use headgate_model::{
    ChangesSince, CopyEvent, CopyOrder, DiskCopies, MovePace, Name, Noted, OpenDisk, PlaneError,
    Policy, Settled,
};
use headgate_units::{Bytes, Nanos};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// A copy under way.
pub(super) struct FakeCopy {
    source: Name,
    size: Bytes,
    policy: Policy,
    pace: MovePace,
    state: State,
    events: Sender<CopyEvent>,
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

impl MemoryPlane {
    /// The data path has something to say of a copy. Nobody may hear it any more.
    pub(crate) fn play_copy(&self, copy: &str, event: CopyEvent) {
        let mut state = self.0.lock().unwrap();
        let one = state.copies.get_mut(&name(copy)).unwrap();
        one.state = match event {
            CopyEvent::Instant => State::Copying,
            CopyEvent::Ended(Outcome::Complete) => State::Complete,
            CopyEvent::Ended(_) => State::GivenUp,
            CopyEvent::Blocks(_) | CopyEvent::Released => one.state,
        };
        let _ = one.events.send(event);
    }

    /// What is copied because clients change it goes by this policy.
    pub(crate) fn policy_of_copy(&self, copy: &str) -> Policy {
        self.0.lock().unwrap().copies[&name(copy)].policy
    }

    /// What is copied in order goes by this.
    pub(crate) fn pace_of_copy(&self, copy: &str) -> MovePace {
        self.0.lock().unwrap().copies[&name(copy)].pace
    }

    /// Copies have their instant when the test says so.
    pub(crate) fn hold_instants(&self) {
        self.0.lock().unwrap().late_instants = true;
    }

    /// The data path loses a copy, and what it had to say.
    pub(crate) fn lose_copy(&self, copy: &str) {
        self.0.lock().unwrap().copies.remove(&name(copy));
    }
}

impl MemoryPlane {
    /// A client changes a part of a disk.
    pub(crate) fn change(&self, disk: &str, offset: u64) {
        if let Some(changes) = self.0.lock().unwrap().noted.get(&name(disk)) {
            changes.mark(offset, 1);
        }
    }

    /// A disk is opened anew.
    pub(crate) fn forget_changes(&self, disk: &str) {
        self.0.lock().unwrap().noted.remove(&name(disk));
    }

    /// Since which snapshots clients learn what changed, and where it begins.
    pub(crate) fn changes_since(&self, snapshot: &str) -> Vec<(String, Vec<u64>)> {
        let state = self.0.lock().unwrap();
        let all = state.since.get(&name(snapshot)).map_or(&[][..], Vec::as_slice);
        let grains = |blocks: &ChangedBlocks| {
            let all = (0..blocks.size().0).step_by(GRAIN.0 as usize);
            let is = |at: &u64| blocks.run_at(*at).unwrap().1 == Difference::Possible;
            all.filter(is).map(|at| at / GRAIN.0).collect()
        };
        all.iter().map(|since| (since.base.to_string(), grains(&since.blocks))).collect()
    }
}

fn stamp(image: &Path) -> Option<Stamp> {
    let meta = image.metadata().ok()?;
    let time = |seconds: i64, nanos: i64| Nanos((seconds * 1_000_000_000 + nanos) as u64);
    Some(Stamp {
        device: meta.dev(),
        inode: meta.ino(),
        length: Bytes(meta.len()),
        modified: time(meta.mtime(), meta.mtime_nsec()),
        changed: time(meta.ctime(), meta.ctime_nsec()),
    })
}

impl PlaneState {
    /// A disk is opened: its changes are noted on if its image is what it was.
    pub(super) fn note_on(&mut self, disk: &OpenDisk) {
        let noted = disk.noted.as_ref().filter(|noted| stamp(&disk.image) == Some(noted.stamp));
        match noted {
            Some(noted) => self.noted.insert(disk.name.clone(), Arc::clone(&noted.changes)),
            None => self.noted.remove(&disk.name),
        };
    }

    /// All disks end well, whose changes are noted.
    pub(super) fn settled(&self) -> Vec<Settled> {
        let one = |(disk, changes): (&Name, &Arc<Changes>)| {
            let stamp = stamp(&self.images.get(disk)?.0)?;
            let noted = Noted { changes: Arc::clone(changes), stamp };
            Some(Settled { disk: disk.clone(), noted })
        };
        self.noted.iter().filter_map(one).collect()
    }
}

impl DiskCopies for MemoryPlane {
    fn begin_copy(&self, order: CopyOrder, events: Sender<CopyEvent>) -> Result<(), PlaneError> {
        let CopyOrder { source, copy, pace, .. } = order;
        if !copy.image.as_os_str().is_empty() && !copy.image.exists() {
            return Err(PlaneError::new(format!("{} does not exist", copy.image.display())));
        }
        self.run("begin_copy", |s| {
            assert!(s.disks.contains_key(&source));
            assert!(!s.copies.values().any(|other| other.source == source), "it is copied already");
            let (size, policy, state) = (copy.size, copy.policy, State::Draining);
            if !s.late_instants {
                events.send(CopyEvent::Instant).unwrap();
            }
            let one = FakeCopy { source, size, policy, pace, state, events };
            assert!(s.copies.insert(copy.name, one).is_none());
        })
    }

    fn set_copy_pace(&self, copy: &Name, pace: MovePace) -> Result<(), PlaneError> {
        self.run("set_copy_pace", |s| s.copies.get_mut(copy).unwrap().pace = pace)
    }

    fn cancel_copy(&self, copy: &Name) -> Result<(), PlaneError> {
        self.run("cancel_copy", |s| {
            let one = s.copies.get_mut(copy).unwrap();
            one.state = State::GivenUp;
            one.events.send(CopyEvent::Ended(Outcome::Cancelled)).unwrap();
            one.events.send(CopyEvent::Released).unwrap();
        })
    }

    fn copy_progress(&self, copy: &Name) -> Option<Progress> {
        let state = self.0.lock().unwrap();
        let one = state.copies.get(copy)?;
        let (copied, size) = (Bytes(one.size.0 / 2), one.size);
        Some(Progress { copied, size, buffers: Bytes(0), waiting: 3, state: one.state })
    }

    fn end_copy(&self, copy: &Name) -> Result<(), PlaneError> {
        self.run("end_copy", |s| _ = s.copies.remove(copy))
    }

    fn track_changes(&self, disk: &Name, changes: Arc<Changes>) -> Result<(), PlaneError> {
        self.run("track_changes", |s| {
            assert!(s.disks.contains_key(disk));
            s.noted.insert(disk.clone(), changes);
        })
    }

    fn tracked_changes(&self, disk: &Name) -> Result<Option<Arc<Changes>>, PlaneError> {
        self.run("tracked_changes", |s| s.noted.get(disk).cloned())
    }

    fn set_changes_since(&self, snapshot: &Name, changes: Vec<ChangesSince>) {
        self.0.lock().unwrap().since.insert(snapshot.clone(), changes);
    }
}
