//! The counters of datastores and disks, read from shards.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::ids::{DatastoreId, DiskId};
use crate::known::Known;
use crate::snapshot::{DatastoreSnapshot, DiskSnapshot};
use std::sync::TryLockError;

/// Disks whose counters are read in one turn of a shard: 100 to 200 us of its time, for what is
/// read once a second is in no cache.
const DISKS_PER_CALL: usize = 16;

impl Engine {
    /// Counters of everything, datastores in the order in which they were added to their shards.
    /// Disks are read a few at a time, each with its own instant, so that a host with thousands of
    /// disks does not hold up their requests; those that stand still are not read again. Shards
    /// that [stand still](Engine::stalls) are left out.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn snapshot(&self) -> Result<Vec<(DatastoreId, DatastoreSnapshot)>, EngineError> {
        let mut all = Vec::new();
        for shard in 0..self.members.len() {
            let stores = match self.snapshot_of(shard) {
                Err(EngineError::Stalled(_)) => continue,
                stores => stores?,
            };
            all.extend(
                stores.into_iter().map(|(key, snapshot)| (DatastoreId { shard, key }, snapshot)),
            );
        }
        Ok(all)
    }

    /// One disk of it, without what its neighbours are called. `None`: it has another identity in
    /// its shard while it moves, or is not there, or its shard stands still.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn snapshot_disk(&self, disk: DiskId) -> Result<Option<DiskSnapshot>, EngineError> {
        // Nothing that is in force comes of it, so no pass has to begin.
        let scan = match self.call(disk.shard, move |s| s.scan_disks(0, disk.key, 0, 1)) {
            Err(EngineError::Stalled(_)) => return Ok(None),
            scan => scan?,
        };
        Ok(scan.changed.into_iter().map(|(_, one)| one).find(|one| one.key == disk.key))
    }

    fn snapshot_of(&self, shard: usize) -> Result<Vec<(usize, DatastoreSnapshot)>, EngineError> {
        match self.member(shard)?.known.try_lock() {
            Ok(mut known) => self.read_again(shard, &mut known),
            // Somebody reads it: who waits for them would wait twice for a shard that is slow.
            Err(TryLockError::WouldBlock) => self.read_again(shard, &mut Known::default()),
            // What is half read is not trusted.
            Err(TryLockError::Poisoned(known)) => {
                let mut known = known.into_inner();
                *known = Known::default();
                self.read_again(shard, &mut known)
            }
        }
    }

    fn read_again(
        &self,
        shard: usize,
        known: &mut Known,
    ) -> Result<Vec<(usize, DatastoreSnapshot)>, EngineError> {
        let since = known.since();
        loop {
            let (mut stores, scan) =
                self.call(shard, move |s| s.begin_scan(since, DISKS_PER_CALL))?;
            let (pass, before) = (scan.pass, scan.closures);
            let (mut next, mut closures) = (scan.next, before);
            known.take(scan);
            while let Some(from) = next {
                let scan =
                    self.call(shard, move |s| s.scan_disks(pass, from, since, DISKS_PER_CALL))?;
                (next, closures) = (scan.next, scan.closures);
                known.take(scan);
            }
            // A disk closed meanwhile would be counted twice or not at all.
            if closures == before {
                known.complete(pass, &mut stores);
                return Ok(stores);
            }
        }
    }
}
