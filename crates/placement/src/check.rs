//! What is wrong with a pool, and which disks belong together.

use crate::{Affinity, Name, Pool};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use thiserror::Error;

/// A pool that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Two datastores of one name.
    #[error("the pool has two datastores '{0}'; names must be unique")]
    TwoDatastores(Name),
    /// Two disks of one name.
    #[error("the pool has two disks '{0}'; names must be unique")]
    TwoDisks(Name),
    /// A disk on a datastore that is none of the pool's.
    #[error(
        "disk '{disk}' is on datastore '{datastore}', which is not in the pool; add it, or leave the disk out"
    )]
    NoSuchDatastore {
        /// The disk.
        disk: Name,
        /// Where it is said to be.
        datastore: Name,
    },
    /// Two disks must be together and must not.
    #[error(
        "disks '{first}' and '{second}' must be on one datastore, but rule '{rule}' keeps them apart; change one of the rules"
    )]
    AffinityConflict {
        /// The rule that keeps them apart.
        rule: Name,
        /// One.
        first: Name,
        /// The other.
        second: Name,
    },
    /// Two disks must be together and on different storage.
    #[error(
        "disks '{first}' and '{second}' must be on one datastore, but of classes '{one}' and '{other}'; change one of the classes"
    )]
    TwoClasses {
        /// One.
        first: Name,
        /// Its class.
        one: Name,
        /// The other.
        second: Name,
        /// Its class.
        other: Name,
    },
}

/// Indices of names, and families: disks that must be on one datastore.
pub(crate) struct Index<'a> {
    pub(crate) stores: BTreeMap<&'a str, usize>,
    pub(crate) disks: BTreeMap<&'a str, usize>,
    /// For each disk the first of its family.
    pub(crate) family: Vec<usize>,
    /// For each rule that keeps apart, the disks there are.
    pub(crate) apart: Vec<Vec<usize>>,
    /// For each disk the rules that keep it apart.
    pub(crate) apart_of: Vec<Vec<usize>>,
}

impl<'a> Index<'a> {
    /// O(n log n) in disks, datastores and members of rules.
    pub(crate) fn of(pool: &'a Pool) -> Result<Index<'a>, PoolError> {
        let mut stores = BTreeMap::new();
        for (index, store) in pool.datastores.iter().enumerate() {
            if stores.insert(store.name.as_str(), index).is_some() {
                return Err(PoolError::TwoDatastores(store.name.clone()));
            }
        }
        let mut disks = BTreeMap::new();
        for (index, disk) in pool.disks.iter().enumerate() {
            if disks.insert(disk.name.as_str(), index).is_some() {
                return Err(PoolError::TwoDisks(disk.name.clone()));
            }
            if !stores.contains_key(disk.datastore.as_str()) {
                let (disk, datastore) = (disk.name.clone(), disk.datastore.clone());
                return Err(PoolError::NoSuchDatastore { disk, datastore });
            }
        }
        let family = families(pool, &disks);
        check_classes(pool, &family)?;

        let mut apart_of = vec![Vec::new(); pool.disks.len()];
        let mut apart = Vec::with_capacity(pool.rules.anti_affinity.len());
        for (rule, group) in pool.rules.anti_affinity.iter().enumerate() {
            let mut members: Vec<usize> =
                group.disks.iter().filter_map(|name| disks.get(name.as_str()).copied()).collect();
            members.sort_unstable();
            members.dedup();
            let mut of_family = BTreeMap::new();
            for &member in &members {
                if let Some(other) = of_family.insert(family[member], member) {
                    return Err(PoolError::AffinityConflict {
                        rule: group.name.clone(),
                        first: pool.disks[other].name.clone(),
                        second: pool.disks[member].name.clone(),
                    });
                }
                apart_of[member].push(rule);
            }
            apart.push(members);
        }
        Ok(Index { stores, disks, family, apart, apart_of })
    }
}

fn families(pool: &Pool, disks: &BTreeMap<&str, usize>) -> Vec<usize> {
    let mut parent: Vec<usize> = (0..pool.disks.len()).collect();
    let mut vms: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, disk) in pool.disks.iter().enumerate() {
        if let (Affinity::Vm, Some(vm)) = (disk.affinity, &disk.vm) {
            let first = *vms.entry(vm.as_str()).or_insert(index);
            join(&mut parent, first, index);
        }
    }
    for group in &pool.rules.affinity {
        let mut members = group.disks.iter().filter_map(|name| disks.get(name.as_str()));
        if let Some(&first) = members.next() {
            members.for_each(|&other| join(&mut parent, first, other));
        }
    }
    (0..parent.len()).map(|disk| root(&mut parent, disk)).collect()
}

fn root(parent: &mut [usize], mut at: usize) -> usize {
    while parent[at] != at {
        parent[at] = parent[parent[at]];
        at = parent[at];
    }
    at
}

fn join(parent: &mut [usize], one: usize, other: usize) {
    let (one, other) = (root(parent, one), root(parent, other));
    // The smaller index stays the root: the same pool has the same families in the same order.
    parent[one.max(other)] = one.min(other);
}

fn check_classes(pool: &Pool, family: &[usize]) -> Result<(), PoolError> {
    let mut wanted: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, disk) in pool.disks.iter().enumerate() {
        let Some(class) = &disk.class else { continue };
        let first = &pool.disks[*wanted.entry(family[index]).or_insert(index)];
        if let Some(other) = first.class.as_ref().filter(|&other| other != class) {
            return Err(PoolError::TwoClasses {
                first: first.name.clone(),
                one: other.clone(),
                second: disk.name.clone(),
                other: class.clone(),
            });
        }
    }
    Ok(())
}
