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
    /// By number: shards give the lowest that is free.
    disks: Vec<Option<OfDisk>>,
    /// What the disks of a block counted together, by block and datastore.
    sums: BTreeMap<usize, BTreeMap<usize, headgate_stats::DiskSnapshot>>,
    /// Those that this pass read anew.
    read: BTreeSet<usize>,
}

/// What is known of one disk.
#[derive(Debug)]
struct OfDisk {
    /// The number of its datastore.
    store: usize,
    reading: DiskReading,
}

impl Known {
    fn get(&self, key: usize) -> Option<&OfDisk> {
        self.disks.get(key)?.as_ref()
    }

    /// All disks, each with its number.
    fn all(&self) -> impl Iterator<Item = (usize, &OfDisk)> {
        let disks = self.disks.iter().enumerate();
        disks.filter_map(|(key, disk)| Some((key, disk.as_ref()?)))
    }

    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// Takes in a part of a pass. O(disks in it).
    pub(crate) fn take(&mut self, scan: Scan) {
        let until = scan.next.unwrap_or(usize::MAX).min(self.disks.len());
        let mut still = scan.still.into_iter().peekable();
        let part = self.disks.get_mut(scan.from.min(until)..until).unwrap_or_default();
        for (place, slot) in part.iter_mut().enumerate() {
            let (key, Some(disk)) = (scan.from + place, slot.as_mut()) else { continue };
            match still.next_if_eq(&key) {
                Some(_) => disk.reading.at = scan.at,
                None => {
                    *slot = None;
                    self.sums.remove(&(key / BLOCK));
                }
            }
        }
        debug_assert_eq!(
            still.next(),
            None,
            "only a disk that was read can be known to stand still"
        );
        for (store, told) in scan.changed {
            let key = told.key;
            if self.disks.len() <= key {
                self.disks.resize_with(key + 1, || None);
            }
            let reading = DiskReading { at: scan.at, told: Arc::new(told) };
            self.disks[key] = Some(OfDisk { store, reading });
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
        // Disks of one datastore come after one another, mostly.
        let mut last = None;
        for (_, OfDisk { store, reading }) in self.all() {
            let place = match last {
                Some((known, place)) if known == *store => place,
                _ => places.get(store).copied(),
            };
            last = Some((*store, place));
            if let Some(place) = place {
                let snapshot = &mut stores[place].1;
                snapshot.stats.at = snapshot.stats.at.max(reading.at);
                snapshot.disks.push(reading.clone());
            }
        }
    }

    fn sum_up(&mut self) {
        self.read.clear();
        let mut last = None;
        let all = self.all().map(|(key, _)| key / BLOCK);
        let all = all.filter(|block| last.replace(*block) != Some(*block));
        // Those that lost a disk have no sum either.
        let missing: Vec<usize> = all.filter(|block| !self.sums.contains_key(block)).collect();
        for block in missing {
            let until = ((block + 1) * BLOCK).min(self.disks.len());
            let its = self.disks.get(block * BLOCK..until).unwrap_or_default();
            let sums = self.sums.entry(block).or_default();
            for OfDisk { store, reading } in its.iter().flatten() {
                sums.entry(*store).or_default().merge(&reading.stats);
            }
        }
    }

    /// Gives neighbours of disks that were read their names. Those that are gone have none.
    fn name_neighbours(&mut self) {
        let has_named =
            |told: &DiskSnapshot| told.waits.as_ref().is_some_and(|times| !times.named.is_empty());
        let waited = self.read.iter().filter_map(|key| {
            let OfDisk { store, reading } = self.get(*key)?;
            has_named(reading).then_some((*key, *store))
        });
        let waited: Vec<(usize, usize)> = waited.collect();
        if waited.is_empty() {
            return;
        }
        let senders = [Sender::Clients, Sender::Copy];
        let queues = self.all().flat_map(|(key, OfDisk { store, reading })| {
            let of_disk = reading.queues.iter().zip(senders);
            of_disk.filter_map(move |(queue, sender)| Some(((*store, (*queue)?), (key, sender))))
        });
        let queues: HashMap<_, _> = queues.collect();
        for (key, store) in waited {
            let times = self.get(key).and_then(|disk| disk.reading.waits.as_ref());
            let named = times.into_iter().flat_map(|times| &times.named).filter_map(|one| {
                let (whose, sender) = *queues.get(&(store, one.disk))?;
                let name = self.get(whose)?.reading.name.clone();
                let (entered, waited) = (one.entered, one.waited);
                Some(NeighbourSnapshot { name, sender, entered, waited })
            });
            let named = named.collect();
            if let Some(disk) = self.disks.get_mut(key).and_then(Option::as_mut) {
                Arc::make_mut(&mut disk.reading.told).neighbours = named;
            }
        }
    }
}
