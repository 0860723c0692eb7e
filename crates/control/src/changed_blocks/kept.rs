//! What an orderly end keeps of disks whose changes are noted, and the next start believes.
//!
//! A file says: while its image has this stamp, this is what a disk's clients changed since this
//! snapshot. That stays true, whoever comes. A start removes the files before it opens a disk, so
//! after a crash there are none; what it read is believed of a disk that has the stamp when it is
//! opened and locked, before any client has it.

use super::{files_in, tracked_file};
use crate::snapshots::{Before, Kept, Tracked};
use crate::{Control, Model, boot};
use headgate_mirror::changes::Changes;
use headgate_model::{DiskState, Name, Noted, Settled};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long the end may take to write all files. What is not written then is not kept.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the log says where a file is not believed.
const NOT_BELIEVED: &str = "what changed since a disk's last snapshot is not known any more";

impl Model {
    /// Whether it moves or is copied: of such a disk nothing is kept.
    fn is_disturbed(&self, disk: &Name) -> bool {
        self.moves.contains_key(disk)
            || self.copies.iter().any(|(copy, of)| copy == disk || of.source == *disk)
    }

    /// What is to be kept of a disk that had this holder. `None`: nothing is known of it that would
    /// be of use.
    fn kept(&self, settled: &Settled, holder: Option<String>, boot: &str) -> Option<Kept> {
        let Settled { disk, noted } = settled;
        let tracked = self.tracked.get(disk)?;
        let base = tracked.base.clone()?;
        let record = &self.disks.get(disk)?.record;
        let is_it = Arc::ptr_eq(&tracked.changes, &noted.changes);
        let has_its_size = record.size == noted.stamp.length;
        (is_it && has_its_size && !self.is_disturbed(disk)).then(|| Kept {
            disk: disk.clone(),
            base,
            boot: boot.to_owned(),
            before: Before { stamp: noted.stamp, holder },
            blocks: noted.changes.since_base(record.size),
        })
    }

    /// Why a file is not to be believed, whatever the image is like.
    fn check_kept(&self, kept: &Kept, boot: &str) -> Result<(), String> {
        let Some(disk) = self.disks.get(&kept.disk) else {
            return Err("there is no such disk".into());
        };
        let record = &disk.record;
        let size = kept.blocks.size();
        if record.size != size || kept.before.stamp.length != size {
            return Err(format!("the disk had {} bytes, and has {}", size.0, record.size.0));
        }
        if record.state != DiskState::Ready || self.moves.contains_key(&kept.disk) {
            return Err("the disk moves, or is given another size".into());
        }
        // What others wrote may be on its storage, and the time of it may have been lost with the
        // host.
        if kept.boot != boot {
            return Err("the host was started anew".into());
        }
        let origin = self.disks.get(&kept.base.name).and_then(|base| base.record.origin.as_ref());
        let is_of_it = origin.is_some_and(|origin| origin.disk == kept.disk);
        if !is_of_it || !self.is_snapshot(&kept.base) {
            let base = &kept.base.name;
            return Err(format!("'{base}' is no more, or is not that snapshot of the disk"));
        }
        Ok(())
    }
}

/// Reads a file and removes it.
fn take(path: &Path) -> Result<Kept, String> {
    let kept = tracked_file::read(path);
    fs::remove_file(path).map_err(|e| format!("it cannot be removed: {e}"))?;
    kept
}

impl Control {
    /// Takes what the last daemon kept. Nothing of it is there any more when this returns, or it is
    /// not believed.
    pub(crate) fn load_kept(&self) {
        let dir = self.dir.changes();
        let mut paths = match files_in(&dir) {
            Ok(paths) => paths,
            Err(error) => return warn!(dir = %dir.display(), %error, "{NOT_BELIEVED}"),
        };
        paths.retain(|path| tracked_file::is_one(path));
        if paths.is_empty() {
            return;
        }
        let taken: Vec<_> = paths.iter().map(|path| take(path)).collect();
        // A file that a crash brings back would be believed by the next start.
        let removed = File::open(&dir).and_then(|dir| dir.sync_all());
        let boot = boot::current();
        for (path, taken) in paths.iter().zip(taken) {
            let believed = taken.and_then(|kept| {
                removed.as_ref().map_err(|e| format!("it may not be removed for good: {e}"))?;
                let boot = boot.as_deref().ok_or("the kernel does not tell which boot it is")?;
                self.model().check_kept(&kept, boot)?;
                Ok(kept)
            });
            match believed {
                Ok(kept) => self.expect(kept),
                Err(reason) => warn!(path = %path.display(), %reason, "{NOT_BELIEVED}"),
            }
        }
    }

    /// A disk is what it was, if its image is.
    fn expect(&self, kept: Kept) {
        let changes = Arc::new(Changes::new(kept.blocks.size()));
        changes.absorb(&kept.blocks);
        let tracked = Tracked { changes, base: Some(kept.base), before: Some(kept.before) };
        self.model_mut().tracked.insert(kept.disk, tracked);
    }

    /// What is known of a disk that is about to be opened, if no other daemon had it meanwhile: the
    /// time of what that one wrote may have been lost with its host.
    pub(crate) fn noted_before(&self, disk: &Name) -> Option<Noted> {
        let tracked = self.model().tracked.get(disk).cloned()?;
        let before = tracked.before.filter(|_| tracked.base.is_some())?;
        let is_next = self.leases.follows(disk, before.holder.as_deref());
        is_next.then_some(Noted { changes: tracked.changes, stamp: before.stamp })
    }

    /// A disk could not be opened, and is about to be given back: whoever has it next comes after
    /// this daemon.
    pub(crate) fn expect_on(&self, disk: &Name) {
        let mut model = self.model_mut();
        let before = model.tracked.get_mut(disk).and_then(|tracked| tracked.before.as_mut());
        if let Some(before) = before
            && self.leases.follows(disk, before.holder.as_deref())
        {
            before.holder = self.leases.holder(disk);
        }
    }

    /// A disk is open: it was what was expected, or was not.
    pub(crate) fn go_on_noting(&self, disk: &Name) {
        let expected = self.model().tracked.get(disk).cloned();
        let Some(expected) = expected.filter(|tracked| tracked.before.is_some()) else { return };
        let now = self.plane.tracked_changes(disk);
        let goes_on = matches!(&now, Ok(Some(now)) if Arc::ptr_eq(now, &expected.changes));
        let mut model = self.model_mut();
        if goes_on {
            info!(%disk, "its changes since its last snapshot are known from the last daemon");
            if let Some(tracked) = model.tracked.get_mut(disk) {
                tracked.before = None;
            }
        } else {
            let reason = "its image was changed, or is another one, or another daemon had the \
                          disk, since the last daemon's end; or the snapshot is none any more";
            warn!(%disk, reason, "{NOT_BELIEVED}");
            model.tracked.remove(disk);
        }
    }

    /// Disks of which nothing is to be kept, whatever becomes of them while the daemon ends.
    pub(crate) fn disturbed_disks(&self) -> BTreeSet<Name> {
        let model = self.model();
        model.disks.keys().filter(|disk| model.is_disturbed(disk)).cloned().collect()
    }

    /// Writes down what is noted of disks that are closed. That a backup has to read everything is
    /// no reason not to end.
    pub(crate) fn keep_settled(&self, settled: Vec<Settled>, disturbed: &BTreeSet<Name>) {
        let Some(boot) = boot::current() else {
            let reason = "the kernel does not tell which boot it is";
            return warn!(reason, "what changed since the last snapshots is not kept");
        };
        let deadline = Instant::now() + PATIENCE;
        for one in settled.iter().filter(|one| !disturbed.contains(&one.disk)) {
            let holder = self.leases.holder(&one.disk);
            let Some(kept) = self.model().kept(one, holder, &boot) else { continue };
            let written = if Instant::now() >= deadline {
                Err(io::ErrorKind::TimedOut.into())
            } else {
                self.changes_dir().and_then(|dir| tracked_file::write(&dir, &kept))
            };
            if let Err(error) = written {
                warn!(disk = %one.disk, %error, "what changed since its last snapshot is not kept");
            }
        }
    }
}
