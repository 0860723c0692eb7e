//! What changes of a disk since its last snapshot.

use crate::Control;
use crate::snapshots::{Known, Snapshot, Tracked};
use headgate_mirror::changes::{ChangedBlocks, Changes};
use headgate_model::{Name, PlaneError};
use headgate_units::Bytes;
use std::sync::Arc;
use tracing::warn;

/// What a snapshot under way will know.
#[derive(Debug)]
pub(crate) struct Opened {
    source: Name,
    tracked: Tracked,
    /// What changed since the base until the instant.
    changed: Option<ChangedBlocks>,
}

impl Opened {
    /// The instant has passed.
    pub(crate) fn instant(&mut self, size: Bytes) {
        self.changed = Some(self.tracked.changes.since_base(size));
    }
}

impl Control {
    /// A snapshot of a disk is about to begin: from now on changes are noted for the next one, too.
    /// `None` where they cannot be: the snapshot is as good without.
    pub(crate) fn open_changes(&self, source: &Name, size: Bytes) -> Option<Opened> {
        match self.tracked(source, size) {
            Ok(tracked) => {
                tracked.changes.open();
                Some(Opened { source: source.clone(), tracked, changed: None })
            }
            Err(error) => {
                warn!(disk = %source, %error, "what changes of the disk is not noted");
                None
            }
        }
    }

    /// Where changes of a disk of this size are noted, from now on at the latest.
    fn tracked(&self, source: &Name, size: Bytes) -> Result<Tracked, PlaneError> {
        let noted = self.plane.tracked_changes(source)?;
        let known = self.model().tracked.get(source).cloned();
        // A disk that was opened anew may have been changed by somebody else before.
        let known = known
            .filter(|known| noted.as_ref().is_some_and(|noted| Arc::ptr_eq(noted, &known.changes)));
        if let Some(known) = &known
            && known.changes.size() == size
        {
            return Ok(known.clone());
        }
        // It has another size than its base.
        let changes = Arc::new(Changes::new(size));
        self.plane.track_changes(source, Arc::clone(&changes))?;
        let base = known.and_then(|known| {
            changes.absorb(&known.changes.since_base(size));
            known.base
        });
        let tracked = Tracked { changes, base, before: None };
        self.model_mut().tracked.insert(source.clone(), tracked.clone());
        Ok(tracked)
    }

    /// A snapshot is complete, but for being a disk: what it knows is kept.
    pub(crate) fn keep_opened(&self, snapshot: &Snapshot, opened: &mut Opened) {
        // It may be none any more.
        let tracked = self.model().tracked.get(&opened.source).cloned();
        let tracked = tracked.filter(|now| Arc::ptr_eq(&now.changes, &opened.tracked.changes));
        let base = tracked.and_then(|tracked| tracked.base);
        let (Some(base), Some(blocks)) = (base, opened.changed.take()) else { return };
        self.keep_known_changes(Known { of: snapshot.clone(), base, blocks: Arc::new(blocks) });
    }

    /// A snapshot is a disk: the next one is compared with it.
    pub(crate) fn advance_changes(&self, snapshot: Snapshot, opened: Opened) {
        let Opened { source, tracked, .. } = opened;
        let mut model = self.model_mut();
        let Some(known) = model.tracked.get_mut(&source) else { return };
        if Arc::ptr_eq(&known.changes, &tracked.changes) {
            known.changes.advance();
            known.base = Some(snapshot);
        }
    }
}
