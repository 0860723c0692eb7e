//! Copies as of one instant, as the engine makes them.

use crate::engine_moves::{CLOSE, PATIENCE, not_begun};
use crate::engine_parts::{Copying, failed};
use crate::engine_plane::EnginePlane;
use headgate_engine::{CopyGauge, CopyListener, CopySpec, CopyTerms, DiskId, Listening, Sharing};
use headgate_mirror::changes::Changes;
use headgate_mirror::instant::{Limits, Progress};
use headgate_model::{
    Blocks, ChangesSince, CopyEvent, CopyOrder, DiskCopies, MovePace, Name, OpenDisk, PlaneError,
    Reflink,
};
use headgate_units::Bytes;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a copy in order reads at once: clients of the same storage wait for no more.
const STEP: Bytes = Bytes::from_kib(256);

/// Requests of clients that a copy may have under way: as many as a front-end has, as a rule.
const REQUESTS: usize = 128;

/// How often is looked whether a copy that is given up has ended.
const LOOK: Duration = Duration::from_millis(5);

fn listener(events: Sender<CopyEvent>) -> CopyListener {
    Box::new(move |event| {
        let event = match event {
            headgate_engine::CopyEvent::Blocks(blocks) => CopyEvent::Blocks(match blocks {
                headgate_engine::Blocks::Shared => Blocks::Shared,
                headgate_engine::Blocks::Copied => Blocks::Copied,
            }),
            headgate_engine::CopyEvent::Instant => CopyEvent::Instant,
            headgate_engine::CopyEvent::Ended(outcome) => CopyEvent::Ended(outcome),
            headgate_engine::CopyEvent::Released => CopyEvent::Released,
        };
        match events.send(event) {
            Ok(()) => Listening::Yes,
            Err(_) => Listening::Gone,
        }
    })
}

impl EnginePlane {
    fn copying(&self, copy: &Name) -> Result<Copying, PlaneError> {
        let copying = self.copies.get(copy);
        copying.ok_or_else(|| failed(format!("no disk is being copied to '{copy}'")))
    }

    /// The storage of a disk that is a complete copy. It is not opened anew: in memory it would be
    /// gone.
    pub(crate) fn adopt_copy(&self, disk: &OpenDisk) -> Result<Option<DiskId>, PlaneError> {
        let mut copies = self.copies.lock();
        let Some(copying) = copies.get(&disk.name) else { return Ok(None) };
        if self.engine.copy_progress(copying.id).is_ok() {
            return Err(failed(format!("a disk is being copied to '{}' still", disk.name)));
        }
        let id = copying.target;
        self.put_in_force(id, disk)?;
        copies.remove(&disk.name);
        Ok(Some(id))
    }

    /// Ends the copy that is being made of a disk which is to be closed.
    pub(crate) fn end_copy_of(&self, source: DiskId) {
        let Some((copy, copying)) = self.copies.of(source) else { return };
        if self.engine.cancel_copy(copying.id).is_err() {
            // It has ended, and who began it decides what becomes of it.
            return;
        }
        let deadline = Instant::now() + CLOSE;
        while self.engine.copy_progress(copying.id).is_ok() && Instant::now() < deadline {
            sleep(LOOK);
        }
        if self.close_side(copying.target, CLOSE).is_ok() {
            self.copies.lock().remove(&copy);
        }
    }
}

impl DiskCopies for EnginePlane {
    fn begin_copy(&self, order: CopyOrder, events: Sender<CopyEvent>) -> Result<(), PlaneError> {
        let CopyOrder { source, copy: mut opened, content, pace, reflink } = order;
        let pace = pace.policy().for_scheduler().map_err(failed)?;
        let copy = opened.name.clone();
        let mut copies = self.copies.lock();
        if copies.contains_key(&copy) {
            return Err(failed(format!("a disk is being copied to '{copy}' already")));
        }
        let source = self.disk(&source)?;
        let target = self.open_storage(&copy.to_string(), &mut opened)?;
        let gauge = CopyGauge::default();
        let terms = CopyTerms {
            sharing: match reflink {
                Reflink::Auto => Sharing::WherePossible,
                Reflink::Never => Sharing::Never,
            },
            content,
            pace,
            limits: Limits { requests: REQUESTS, step: STEP, ..Limits::default() },
            patience: PATIENCE,
            gauge: gauge.clone(),
            listener: listener(events),
        };
        match self.engine.begin_copy(CopySpec { source, target, terms }) {
            Ok(id) => {
                copies.insert(copy, Copying { id, gauge, source, target });
                Ok(())
            }
            Err(e) => {
                self.engine.close_disk(target, Duration::ZERO).map_err(failed)?;
                Err(not_begun(&e))
            }
        }
    }

    fn set_copy_pace(&self, copy: &Name, pace: MovePace) -> Result<(), PlaneError> {
        let pace = pace.policy().for_scheduler().map_err(failed)?;
        self.engine.set_copy_pace(self.copying(copy)?.id, pace).map_err(failed)
    }

    fn cancel_copy(&self, copy: &Name) -> Result<(), PlaneError> {
        self.engine.cancel_copy(self.copying(copy)?.id).map_err(failed)
    }

    fn copy_progress(&self, copy: &Name) -> Option<Progress> {
        self.copies.get(copy)?.gauge.get()
    }

    fn end_copy(&self, copy: &Name) -> Result<(), PlaneError> {
        // Its disk was closed, and the copy with it.
        let Some(copying) = self.copies.get(copy) else { return Ok(()) };
        if self.engine.copy_progress(copying.id).is_ok() {
            return Err(failed(format!("a disk is being copied to '{copy}' still")));
        }
        self.close_side(copying.target, CLOSE)?;
        self.copies.lock().remove(copy);
        Ok(())
    }

    fn track_changes(&self, disk: &Name, changes: Arc<Changes>) -> Result<(), PlaneError> {
        self.engine.track_changes(self.disk(disk)?, changes).map_err(failed)
    }

    fn tracked_changes(&self, disk: &Name) -> Result<Option<Arc<Changes>>, PlaneError> {
        self.engine.tracked_changes(self.disk(disk)?).map_err(failed)
    }

    fn set_changes_since(&self, snapshot: &Name, changes: Vec<ChangesSince>) {
        self.exports.set_changes_since(snapshot, changes);
    }
}
