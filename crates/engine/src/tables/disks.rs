//! The disks of a shard, and which of them anything has happened to since they were last read.

use crate::tables::disk::ShardDisk;
use slab::Slab;
use std::ops::{Index, IndexMut};

/// Open disks by number. Whoever gets one to change it is taken to have changed it.
pub(crate) struct Disks {
    disks: Slab<ShardDisk>,
    /// By number: the pass in which a disk may have been changed last; 0 where there is none. Apart
    /// from the disks, so that those that stand still are passed over without a look at them.
    changed: Vec<u64>,
    /// The pass that has begun: disks are read in passes.
    pass: u64,
}

impl Disks {
    pub(crate) fn new() -> Disks {
        Disks { disks: Slab::new(), changed: Vec::new(), pass: 1 }
    }

    pub(crate) fn get(&self, key: usize) -> Option<&ShardDisk> {
        self.disks.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: usize) -> Option<&mut ShardDisk> {
        let disk = self.disks.get_mut(key)?;
        self.changed[key] = self.pass;
        Some(disk)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &ShardDisk)> {
        self.disks.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.disks.is_empty()
    }

    /// The number that the next disk gets.
    pub(crate) fn vacant_key(&self) -> usize {
        self.disks.vacant_key()
    }

    pub(crate) fn insert(&mut self, disk: ShardDisk) -> usize {
        let key = self.disks.insert(disk);
        if key >= self.changed.len() {
            self.changed.resize(key + 1, 0);
        }
        self.changed[key] = self.pass;
        key
    }

    /// # Panics
    /// When there is no such disk.
    pub(crate) fn remove(&mut self, key: usize) -> ShardDisk {
        self.changed[key] = 0;
        self.disks.remove(key)
    }

    /// Begins a pass, and answers its number, which is above that of any before.
    pub(crate) fn begin_pass(&mut self) -> u64 {
        self.pass += 1;
        self.pass
    }

    /// Disks from number `from` on, each with whether it stood still since what was read of it in
    /// pass `since`; 0: nothing was read. O(1) each.
    ///
    /// One that was changed is told of once more in the pass after: what is judged by the half
    /// second, such as the depth that it would need, may come after its last request.
    pub(crate) fn seen_from(&self, from: usize, since: u64) -> impl Iterator<Item = (usize, bool)> {
        let changed = self.changed.iter().enumerate().skip(from).filter(|(_, at)| **at > 0);
        changed.map(move |(key, at)| (key, *at + 1 < since))
    }

    /// The disk will not stand still, though nobody changes it here.
    pub(crate) fn keep_moving(&mut self, key: usize) {
        self.changed[key] = self.pass;
    }
}

impl Index<usize> for Disks {
    type Output = ShardDisk;

    #[inline]
    fn index(&self, key: usize) -> &ShardDisk {
        &self.disks[key]
    }
}

impl IndexMut<usize> for Disks {
    #[inline]
    fn index_mut(&mut self, key: usize) -> &mut ShardDisk {
        self.changed[key] = self.pass;
        &mut self.disks[key]
    }
}
