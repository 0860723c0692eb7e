//! What is told of purges that fail: each reason once.

use headgate_model::RemovedId;
use std::collections::BTreeMap;

/// Why removed disks could not be purged, as it was told.
#[derive(Debug, Default)]
pub(super) struct PurgeFailures(BTreeMap<RemovedId, String>);

/// What is to be told of a purge.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    Done,
    Failed(String),
    /// It fails as it did before.
    Already,
}

impl PurgeFailures {
    pub(super) fn tell(&mut self, id: &RemovedId, failed: Option<String>) -> Told {
        match failed {
            None => {
                self.0.remove(id);
                Told::Done
            }
            Some(reason) if self.0.get(id) == Some(&reason) => Told::Already,
            Some(reason) => {
                self.0.insert(id.clone(), reason.clone());
                Told::Failed(reason)
            }
        }
    }
}
