//! The places of disks in samples. Samples name datastores and disks in the same order, so what is
//! noted of a disk at its place is found without a look at its name.

use headgate_model::{DatastoreSample, DiskSample};

/// Whether two samples have the same datastores and disks at the same places. O(disks), and
/// without a look at those that stood still.
pub(crate) fn are_same(last: &[DatastoreSample], now: &[DatastoreSample]) -> bool {
    let same_disk =
        |(old, new): (&DiskSample, &DiskSample)| new.stood_still_since(old) || new.name == old.name;
    let same_store = |(old, new): (&DatastoreSample, &DatastoreSample)| {
        old.name == new.name
            && old.disks.len() == new.disks.len()
            && old.disks.iter().zip(&new.disks).all(same_disk)
    };
    last.len() == now.len() && last.iter().zip(now).all(same_store)
}

/// A value for each place of a sample.
pub(crate) fn all<T: Clone>(sample: &[DatastoreSample], value: &T) -> Vec<Vec<T>> {
    sample.iter().map(|store| vec![value.clone(); store.disks.len()]).collect()
}
