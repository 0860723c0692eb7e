//! Places for connections in transmission: so many in all, for each machine and for each disk.
//!
//! A disk's first connection always has a place, whatever others hold. So one client of one disk,
//! and all clients of one machine, keep nobody else out; there may be as many connections above the
//! limits as there are disks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// The most connections in transmission, each at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// To all disks together.
    pub total: usize,
    /// To the disks of one virtual machine.
    pub per_machine: usize,
    /// To one disk.
    pub per_disk: usize,
}

impl Default for ConnectionLimits {
    /// A client opens up to 16 connections to a disk (nbdcopy, QEMU with several IO threads). Every
    /// disk may have four such clients, and a thousand disks more than one connection.
    fn default() -> ConnectionLimits {
        ConnectionLimits { total: 4096, per_machine: 256, per_disk: 64 }
    }
}

/// Why a client gets no place. Its text goes to the client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoPlace {
    /// All places are taken.
    #[error(
        "all {0} NBD connections are taken: close some, or raise --nbd-connections; a disk without a connection is still let in"
    )]
    Total(usize),
    /// The disk's machine has as many as it may.
    #[error(
        "machine '{0}' has its {1} NBD connections: close some, or raise --nbd-connections-per-vm"
    )]
    Machine(String, usize),
    /// The disk has as many as it may.
    #[error(
        "disk '{0}' has its {1} NBD connections: close some, or raise --nbd-connections-per-disk"
    )]
    Disk(String, usize),
}

/// The places of one server. Locked for moments only, when a connection starts or ends.
#[derive(Debug)]
pub(super) struct Places {
    limits: ConnectionLimits,
    taken: Mutex<Taken>,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_machine: HashMap<String, usize>,
    by_disk: HashMap<String, usize>,
}

/// A connection's place, as long as it lives.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    disk: String,
    machine: Option<String>,
}

impl Places {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Places> {
        Arc::new(Places { limits, taken: Mutex::default(), refused: AtomicU64::new(0) })
    }

    /// Takes a place for a connection to a disk, of a machine if it belongs to one.
    pub(super) fn take(
        self: &Arc<Self>,
        disk: &str,
        machine: Option<&str>,
    ) -> Result<Place, NoPlace> {
        let mut taken = self.lock();
        if let Err(refusal) = self.limits.admit(&taken, disk, machine) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(refusal);
        }
        taken.total += 1;
        *taken.by_disk.entry(disk.to_owned()).or_default() += 1;
        if let Some(machine) = machine {
            *taken.by_machine.entry(machine.to_owned()).or_default() += 1;
        }
        Ok(Place {
            places: self.clone(),
            disk: disk.to_owned(),
            machine: machine.map(str::to_owned),
        })
    }

    pub(super) fn limits(&self) -> ConnectionLimits {
        self.limits
    }

    /// Places taken now.
    pub(super) fn taken(&self) -> usize {
        self.lock().total
    }

    /// Clients that got none so far.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionLimits {
    fn admit(&self, taken: &Taken, disk: &str, machine: Option<&str>) -> Result<(), NoPlace> {
        let of_disk = taken.by_disk.get(disk).copied().unwrap_or(0);
        if of_disk == 0 {
            return Ok(());
        }
        if of_disk >= self.per_disk {
            return Err(NoPlace::Disk(disk.to_owned(), self.per_disk));
        }
        if let Some(machine) = machine
            && taken.by_machine.get(machine).is_some_and(|held| *held >= self.per_machine)
        {
            return Err(NoPlace::Machine(machine.to_owned(), self.per_machine));
        }
        if taken.total >= self.total { Err(NoPlace::Total(self.total)) } else { Ok(()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.total = taken.total.saturating_sub(1);
        give_back(&mut taken.by_disk, &self.disk);
        if let Some(machine) = &self.machine {
            give_back(&mut taken.by_machine, machine);
        }
    }
}

fn give_back(counts: &mut HashMap<String, usize>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(total: usize, per_machine: usize, per_disk: usize) -> Arc<Places> {
        Places::new(ConnectionLimits { total, per_machine, per_disk })
    }

    #[test]
    fn whatever_others_hold_a_disks_first_connection_has_a_place() {
        let places = places(3, 8, 8);
        let held: Vec<_> = (0..3).map(|_| places.take("a", None).unwrap()).collect();
        assert_eq!(places.take("a", None).unwrap_err(), NoPlace::Total(3));
        let first = places.take("b", None).unwrap();
        assert_eq!(places.take("b", None).unwrap_err(), NoPlace::Total(3));
        assert_eq!((places.taken(), places.refused()), (4, 2));
        drop((held, first));
        assert_eq!(places.taken(), 0);
        assert!(places.lock().by_disk.is_empty());
    }

    #[test]
    fn a_machine_cannot_take_all_with_many_disks() {
        let places = places(100, 2, 8);
        let _held = [places.take("a", Some("vm")).unwrap(), places.take("b", Some("vm")).unwrap()];
        assert_eq!(places.take("a", Some("vm")).unwrap_err(), NoPlace::Machine("vm".into(), 2));
        places.take("c", Some("vm")).unwrap();
        let _other = places.take("d", Some("other")).unwrap();
        places.take("d", Some("other")).unwrap();
    }

    #[test]
    fn a_refusal_says_what_is_full_and_what_to_do() {
        let places = places(9, 9, 1);
        let _held = places.take("db0", None).unwrap();
        assert_eq!(
            places.take("db0", None).unwrap_err().to_string(),
            "disk 'db0' has its 1 NBD connections: close some, or raise --nbd-connections-per-disk"
        );
    }

    proptest! {
        /// Against counts made anew each time.
        #[test]
        fn counts_are_those_of_the_places_held(
            steps in prop::collection::vec((0..4usize, any::<prop::sample::Index>(), 0..3u8), 1..80),
        ) {
            let places = places(6, 4, 3);
            let mut held: Vec<Place> = Vec::new();
            for (disk, which, step) in steps {
                let (name, machine) = (["a", "b", "c", "d"][disk], ["x", "x", "y", "y"][disk]);
                if step == 0 && !held.is_empty() {
                    held.swap_remove(which.index(held.len()));
                    continue;
                }
                let of_disk = held.iter().filter(|p| p.disk == name).count();
                let of_machine =
                    held.iter().filter(|p| p.machine.as_deref() == Some(machine)).count();
                let fits = of_disk < 3 && of_machine < 4 && held.len() < 6;
                let place = places.take(name, Some(machine));
                prop_assert_eq!(place.is_ok(), of_disk == 0 || fits);
                held.extend(place);
                prop_assert_eq!(places.taken(), held.len());
                prop_assert!(held.len() < 6 + 4);
            }
        }
    }
}
