//! What was last read of a shard's disks, so that those that stand still need not be read again.

use crate::shard::telling::Scan;
use crate::snapshot::{DatastoreSnapshot, DiskReading, DiskSnapshot, NeighbourSnapshot, Sender};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Disks whose sum is kept: where one of them changes, that of these alone is made anew.
const BLOCK: usize = 32;

/// What is known of the disks of one shard.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The pass since which a disk has to be read again; 0: all of them have to be.
    since: u64,
    /// By number, each with its datastore.
    disks: BTreeMap<usize, (usize, DiskReading)>,
    /// What the disks of a block counted together, by block and datastore.
    sums: BTreeMap<usize, BTreeMap<usize, headgate_stats::DiskSnapshot>>,
    /// Those that this pass read anew.
    read: BTreeSet<usize>,
}

impl Known {
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// Takes in a part of a pass. O(disks in it).
    pub(crate) fn take(&mut self, scan: Scan) {
        let until = scan.next.unwrap_or(usize::MAX);
        let mut still = scan.still.into_iter().peekable();
        let mut gone = Vec::new();
        for (&key, (_, reading)) in self.disks.range_mut(scan.from..until) {
            match still.next_if_eq(&key) {
                Some(_) => reading.at = scan.at,
                None => gone.push(key),
            }
        }
        debug_assert_eq!(
            still.next(),
            None,
            "only a disk that was read can be known to stand still"
        );
        for key in gone {
            self.disks.remove(&key);
            self.sums.remove(&(key / BLOCK));
        }
        for (store, told) in scan.changed {
            let key = told.key;
            self.disks.insert(key, (store, DiskReading { at: scan.at, told: Arc::new(told) }));
            self.sums.remove(&(key / BLOCK));
            self.read.insert(key);
        }
    }

    /// The pass is over, and what it read goes together: completes the datastores by their disks.
    /// O(disks), and O(histogram buckets) of those in whose block one changed.
    pub(crate) fn complete(&mut self, pass: u64, stores: &mut [(usize, DatastoreSnapshot)]) {
        self.since = pass;
        self.name_neighbours();
        self.sum_up();
        let places: HashMap<usize, usize> =
            stores.iter().enumerate().map(|(place, (key, _))| (*key, place)).collect();
        for (store, sum) in self.sums.values().flatten() {
            if let Some(place) = places.get(store) {
                stores[*place].1.stats.merge(sum);
            }
        }
        for (store, reading) in self.disks.values() {
            if let Some(place) = places.get(store) {
                let snapshot = &mut stores[*place].1;
                snapshot.stats.at = snapshot.stats.at.max(reading.at);
                snapshot.disks.push(reading.clone());
            }
        }
    }

    fn sum_up(&mut self) {
        self.read.clear();
        let mut last = None;
        let all = self.disks.keys().map(|key| key / BLOCK);
        let all = all.filter(|block| last.replace(*block) != Some(*block));
        // Those that lost a disk have no sum either.
        let missing: Vec<usize> = all.filter(|block| !self.sums.contains_key(block)).collect();
        for block in missing {
            let sums = self.sums.entry(block).or_default();
            for (_, (store, reading)) in self.disks.range(block * BLOCK..(block + 1) * BLOCK) {
                sums.entry(*store).or_default().merge(&reading.stats);
            }
        }
    }

    /// Gives neighbours of disks that were read their names. Those that are gone have none.
    fn name_neighbours(&mut self) {
        let has_named =
            |told: &DiskSnapshot| told.waits.as_ref().is_some_and(|times| !times.named.is_empty());
        let waited = self.read.iter().filter_map(|key| {
            let (store, reading) = self.disks.get(key)?;
            has_named(reading).then_some((*key, *store))
        });
        let waited: Vec<(usize, usize)> = waited.collect();
        if waited.is_empty() {
            return;
        }
        let senders = [Sender::Clients, Sender::Copy];
        let queues = self.disks.iter().flat_map(|(key, (store, disk))| {
            let of_disk = disk.queues.iter().zip(senders);
            of_disk.filter_map(move |(queue, sender)| Some(((*store, (*queue)?), (*key, sender))))
        });
        let queues: HashMap<_, _> = queues.collect();
        for (key, store) in waited {
            let times = self.disks.get(&key).and_then(|(_, disk)| disk.waits.as_ref());
            let named = times.into_iter().flat_map(|times| &times.named).filter_map(|one| {
                let (whose, sender) = *queues.get(&(store, one.disk))?;
                let name = self.disks.get(&whose)?.1.name.clone();
                let (entered, waited) = (one.entered, one.waited);
                Some(NeighbourSnapshot { name, sender, entered, waited })
            });
            let named = named.collect();
            if let Some((_, disk)) = self.disks.get_mut(&key) {
                Arc::make_mut(&mut disk.told).neighbours = named;
            }
        }
    }
}
