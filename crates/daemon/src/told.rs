//! What was last told of disks, in the words of the model.

use headgate_engine::DatastoreId;
use headgate_engine::snapshot::{DiskReading, DiskSnapshot};
use headgate_model::DiskTold;
use std::collections::HashMap;
use std::sync::Arc;

/// What was last told of the disks of each datastore: of one that stands still it is told again.
#[derive(Default)]
pub(crate) struct Told(pub(crate) HashMap<DatastoreId, Vec<OneTold>>);

/// As the engine told of a disk, and the same for the model. None: it is one of the daemon's own,
/// which have names that no operator can give.
pub(crate) type OneTold = (Arc<DiskSnapshot>, Option<Arc<DiskTold>>);

/// The translations of before, by what they are of.
pub(crate) struct Before(Vec<OneTold>, HashMap<*const DiskSnapshot, usize>);

impl Before {
    /// Of a datastore that has so many disks now.
    pub(crate) fn new(told: Vec<OneTold>, disks: usize) -> Before {
        // With as many disks as before each is where it was, but for a rare exception, which costs
        // a translation.
        let mut places = HashMap::new();
        if told.len() != disks {
            places.extend(told.iter().enumerate().map(|(n, (of, _))| (Arc::as_ptr(of), n)));
        }
        Before(told, places)
    }

    pub(crate) fn find(&self, place: usize, reading: &DiskReading) -> Option<&OneTold> {
        let there = self.0.get(place).filter(|(of, _)| Arc::ptr_eq(of, &reading.told));
        there.or_else(|| self.0.get(*self.1.get(&Arc::as_ptr(&reading.told))?))
    }
}
