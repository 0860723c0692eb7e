//! Intervals of disks that stand still.

use crate::places;
use crate::recorder::DiskInterval;
use headgate_model::{DatastoreSample, Name};
use std::collections::BTreeMap;

/// Intervals of disks by name, each disk's in the order of time.
type Gathered = BTreeMap<Name, Vec<DiskInterval>>;

/// How many intervals each disk has stood still that are not gathered yet. They are counted by
/// place and gathered when the disk does something, another sample has other disks, or somebody
/// wants them: each interval by itself would be sought by the disk's name.
///
/// Counts are by the places of the sample that was last passed to [`StillIntervals::begin`] or
/// [`StillIntervals::follow`].
#[derive(Debug, Default)]
pub(crate) struct StillIntervals(Vec<Vec<u32>>);

impl StillIntervals {
    /// Counts at the places of this sample; what was counted before must have been gathered.
    pub fn begin(&mut self, sample: &[DatastoreSample]) {
        self.0 = places::all(sample, &0);
    }

    /// Goes on from the sample before to this one. O(disks).
    pub fn follow(
        &mut self,
        last: &[DatastoreSample],
        sample: &[DatastoreSample],
        gathered: &mut Gathered,
    ) {
        if !places::are_same(last, sample) {
            self.gather_all(last, gathered);
            self.begin(sample);
        }
    }

    /// The disk at a place stood still for one interval more.
    pub fn count(&mut self, store: usize, disk: usize) {
        if let Some(count) = self.0.get_mut(store).and_then(|counts| counts.get_mut(disk)) {
            *count = count.saturating_add(1);
        }
    }

    /// Gathers what was counted of the disk at a place.
    pub fn gather(&mut self, store: usize, disk: usize, name: &Name, gathered: &mut Gathered) {
        let count = self.0.get_mut(store).and_then(|counts| counts.get_mut(disk));
        if let Some(count) = count.filter(|count| **count > 0) {
            add_still(name, std::mem::take(count), gathered);
        }
    }

    /// Gathers all that was counted; `last` has the places. O(disks).
    pub fn gather_all(&mut self, last: &[DatastoreSample], gathered: &mut Gathered) {
        for (store, counts) in last.iter().zip(&mut self.0) {
            for (disk, count) in store.disks.iter().zip(counts) {
                if *count > 0 {
                    add_still(&disk.name, std::mem::take(count), gathered);
                }
            }
        }
    }
}

fn add_still(name: &Name, count: u32, gathered: &mut Gathered) {
    let still = std::iter::repeat_n(DiskInterval::STILL, count as usize);
    match gathered.get_mut(name) {
        Some(all) => all.extend(still),
        None => _ = gathered.insert(name.clone(), still.collect()),
    }
}
