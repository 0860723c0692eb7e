//! The pool as advice sees it, the placement of new disks, and the check of rules.

use super::learn::pool_time;
use super::state::{Member, Pool};
use crate::scenario::{Chooser, Setup};
use headgate_placement::{
    Affinity, Datastore, Mobility, Name, NewDisk, Outlook, PoolDisk, Provisioning, State, advise,
    place,
};
use headgate_units::{Bytes, Nanos};
use std::collections::{BTreeMap, BTreeSet};

impl Pool<'_> {
    /// The books: disks that are somewhere, and what is known of all.
    pub(super) fn books(&self, setup: &Setup, now: Nanos) -> headgate_placement::Pool {
        let datastores = self.stores.iter().map(|store| {
            let spec = &setup.datastores[store.datastore];
            Datastore {
                name: spec.name.as_str().into(),
                class: spec.class.clone(),
                spindles: spec.spindles.clone(),
                capacity: spec.capacity,
                foreign: Bytes(0),
                volume: None,
                provisioning: Provisioning::Thin,
                // Nobody says what they can promise.
                reservable: None,
                promisable: None,
                state: State::Active,
                model: store.model,
            }
        });
        let datastores: Vec<Datastore> = datastores.collect();
        let mut disks = Vec::new();
        for member in self.members.iter().filter(|member| self.listed(setup, member)) {
            let Some(at) = member.at else { continue };
            let vm = &setup.vms[member.vm];
            let disk = &vm.disks[member.index];
            disks.push(PoolDisk {
                name: member.name.clone(),
                vm: Some(vm.name.as_str().into()),
                datastore: datastores[at].name.clone(),
                size: disk.size,
                used: disk.membership.used,
                reservation: None,
                workload: member.profile(),
                // A disk that is being copied is not moved anew.
                mobility: if self.copies.of(member.disk) {
                    Mobility::Pinned
                } else {
                    disk.membership.mobility
                },
                class: disk.membership.class.clone(),
                affinity: disk.membership.affinity,
            });
        }
        headgate_placement::Pool {
            now: pool_time(now),
            datastores,
            disks,
            history: self.history.clone(),
            rules: self.spec.rules.clone(),
        }
    }

    /// Normalised loads and predicted latencies as they are; `None` where the rules contradict each
    /// other.
    pub(super) fn outlook(&self, setup: &Setup, now: Nanos) -> Option<Outlook> {
        let mut books = self.books(setup, now);
        // All that is asked for is how things are.
        books.rules.balance.start.0 = u32::MAX;
        advise(&books).ok().map(|advice| advice.before)
    }

    /// Bytes taken of each datastore, and how many disks are there.
    pub(super) fn taken(&self, setup: &Setup) -> Vec<(u64, usize)> {
        let mut taken = vec![(0u64, 0usize); self.stores.len()];
        for member in self.members.iter().filter(|member| self.listed(setup, member)) {
            if let Some(at) = member.at {
                taken[at].0 += self.used(setup, member);
                taken[at].1 += 1;
            }
        }
        taken
    }

    pub(super) fn used(&self, setup: &Setup, member: &Member) -> u64 {
        setup.vms[member.vm].disks[member.index].membership.used.0
    }

    pub(super) fn capacity(&self, setup: &Setup, store: usize) -> u64 {
        setup.datastores[self.stores[store].datastore].capacity.0
    }

    /// Whether a datastore has room for so much more.
    pub(super) fn has_room(&self, setup: &Setup, taken: u64, more: u64, store: usize) -> bool {
        let capacity = Bytes(self.capacity(setup, store));
        taken.saturating_add(more) <= self.spec.rules.space.most(capacity).0
    }

    /// Where a disk goes that is nowhere yet.
    pub(super) fn choose(
        &mut self,
        setup: &Setup,
        now: Nanos,
        member: usize,
        chooser: Chooser,
    ) -> Result<usize, String> {
        if chooser == Chooser::Load {
            return self.choose_by_load(setup, now, member);
        }
        let (taken, more) = (self.taken(setup), self.used(setup, &self.members[member]));
        let fits = |&store: &usize| self.has_room(setup, taken[store].0, more, store);
        let open: Vec<usize> = (0..self.stores.len()).filter(fits).collect();
        let free = |store: usize| self.capacity(setup, store).saturating_sub(taken[store].0);
        let chosen = match chooser {
            Chooser::Random => self.members[member].place.one_of(&open).copied(),
            Chooser::Count => open.into_iter().min_by_key(|&store| (taken[store].1, store)),
            Chooser::Space | Chooser::Load => {
                open.into_iter().min_by_key(|&store| (std::cmp::Reverse(free(store)), store))
            }
        };
        let name = &self.members[member].name;
        chosen.ok_or_else(|| {
            format!("no datastore of the pool has room for '{name}'; give them more capacity")
        })
    }

    fn choose_by_load(
        &mut self,
        setup: &Setup,
        now: Nanos,
        member: usize,
    ) -> Result<usize, String> {
        self.learn();
        let books = self.books(setup, now);
        let member = &self.members[member];
        let vm = &setup.vms[member.vm];
        let disk = &vm.disks[member.index];
        let new = NewDisk {
            name: member.name.clone(),
            vm: Some(vm.name.as_str().into()),
            size: disk.size,
            expected: Some(disk.membership.used),
            reservation: None,
            // Nobody knows what a new disk will do.
            workload: None,
            class: disk.membership.class.clone(),
            affinity: disk.membership.affinity,
        };
        let placed =
            place(&books, &new).map_err(|why| format!("'{}' has no place: {why}", member.name))?;
        let position = books.datastores.iter().position(|store| store.name == placed.datastore);
        position.ok_or_else(|| format!("'{}' was placed nowhere", member.name))
    }

    /// Rules that do not hold as disks are: pinned disks elsewhere, other classes, groups divided
    /// or on one device, datastores too full. Looked at without the code that keeps them.
    pub(super) fn broken(&self, setup: &Setup) -> u64 {
        let mut at: BTreeMap<&str, usize> = BTreeMap::new();
        let mut of_vms: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let mut broken = 0;
        for member in self.members.iter().filter(|member| self.listed(setup, member)) {
            let Some(store) = member.at else { continue };
            let known = &setup.vms[member.vm].disks[member.index].membership;
            at.insert(member.name.as_str(), store);
            if known.mobility == Mobility::Pinned && member.first != Some(store) {
                broken += 1;
            }
            let class = &setup.datastores[self.stores[store].datastore].class;
            if known.class.is_some() && known.class != *class {
                broken += 1;
            }
            if known.affinity == Affinity::Vm {
                of_vms.entry(member.vm).or_default().insert(store);
            }
        }
        broken += of_vms.values().filter(|stores| stores.len() > 1).count() as u64;
        let places = |disks: &[Name]| -> Vec<usize> {
            disks.iter().filter_map(|disk| at.get(disk.as_str()).copied()).collect()
        };
        for group in &self.spec.rules.affinity {
            let places = places(&group.disks);
            if places.windows(2).any(|pair| pair[0] != pair[1]) {
                broken += 1;
            }
        }
        let device = |store: usize| {
            let spec = &setup.datastores[self.stores[store].datastore];
            spec.spindles.as_ref().map_or(spec.name.as_str(), |name| name.as_str())
        };
        for group in &self.spec.rules.anti_affinity {
            let places = places(&group.disks);
            let devices: BTreeSet<&str> = places.iter().map(|&store| device(store)).collect();
            if devices.len() < places.len() {
                broken += 1;
            }
        }
        for (store, (taken, _)) in self.taken(setup).into_iter().enumerate() {
            if !self.has_room(setup, taken, 0, store) {
                broken += 1;
            }
        }
        broken
    }
}
