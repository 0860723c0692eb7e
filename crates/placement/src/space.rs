//! Space: what datastores have of it, alone or together, and what disks take.

use crate::plan_state::{Mark, PlanState};
use crate::{Permille, Pool, Provisioning};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use headgate_units::Bytes;

/// The space of a datastore, or of several that share it.
pub(crate) struct Volume {
    pub(crate) stores: Vec<usize>,
    pub(crate) capacity: u64,
    /// What other things than the pool's disks take of it.
    pub(crate) foreign: u64,
    /// Allocated, with what is to come and without what is to leave: space is only free when a disk
    /// is gone.
    pub(crate) occupied: u64,
    /// Of it, what is to leave.
    pub(crate) leaving: u64,
    /// Sizes of the disks, likewise, and what is foreign.
    pub(crate) promised: u64,
    /// Whether anything on it grows.
    pub(crate) provisioning: Provisioning,
}

/// What of a datastore's space is taken by something of a size, of which so much is allocated.
pub(crate) fn taken(provisioning: Provisioning, used: u64, size: u64) -> u64 {
    match provisioning {
        Provisioning::Thin => used,
        Provisioning::Thick => size,
    }
}

/// What space there is, and of which each datastore has its own.
pub(crate) fn volumes(pool: &Pool) -> (Vec<Volume>, Vec<usize>) {
    let mut shared: BTreeMap<&str, usize> = BTreeMap::new();
    let mut volumes: Vec<Volume> = Vec::new();
    let mut of_stores = Vec::with_capacity(pool.datastores.len());
    for (index, store) in pool.datastores.iter().enumerate() {
        let new = volumes.len();
        let at =
            store.volume.as_ref().map_or(new, |name| *shared.entry(name.as_str()).or_insert(new));
        if at == new {
            volumes.push(Volume {
                stores: Vec::new(),
                capacity: store.capacity.0,
                foreign: 0,
                occupied: 0,
                leaving: 0,
                promised: 0,
                provisioning: store.provisioning,
            });
        }
        let volume = &mut volumes[at];
        volume.stores.push(index);
        volume.capacity = volume.capacity.min(store.capacity.0);
        volume.occupied = volume.occupied.max(store.foreign.0);
        volume.foreign = volume.occupied;
        volume.promised = volume.occupied;
        if store.provisioning == Provisioning::Thin {
            volume.provisioning = Provisioning::Thin;
        }
        of_stores.push(at);
    }
    (volumes, of_stores)
}

impl PlanState<'_> {
    /// The space that a datastore has, maybe with others.
    pub(crate) fn volume(&self, store: usize) -> &Volume {
        &self.volumes[self.stores[store].volume]
    }

    pub(crate) fn volume_mut(&mut self, store: usize) -> &mut Volume {
        &mut self.volumes[self.stores[store].volume]
    }

    /// The space that a unit takes where it is on a datastore.
    pub(crate) fn takes(&self, unit: usize, store: usize) -> u64 {
        let unit = &self.units[unit];
        taken(self.pool.datastores[store].provisioning, unit.used, unit.size)
    }

    /// Bytes free below a mark; all that are free where nothing grows.
    pub(crate) fn free(&self, store: usize, mark: Mark) -> u64 {
        let (space, volume) = (&self.pool.rules.space, self.volume(store));
        let part = |part: Permille| part.min(Permille::WHOLE).of(volume.capacity);
        let most = match (volume.provisioning, mark) {
            (Provisioning::Thick, _) => volume.capacity,
            (Provisioning::Thin, Mark::Last) => space.most(Bytes(volume.capacity)).0,
            (Provisioning::Thin, Mark::Full) => part(space.full),
            (Provisioning::Thin, Mark::Relieve) => part(space.full.min(space.relieve)),
        };
        most.saturating_sub(volume.occupied)
    }

    /// The marks that so much more would exceed: of two datastores, the one with fewer is better.
    pub(crate) fn overfull(&self, store: usize, takes: u64) -> usize {
        let marks = [Mark::Relieve, Mark::Full];
        marks.into_iter().filter(|&mark| self.free(store, mark) < takes).count()
    }
}

/// How full a datastore will be, in thousandths.
pub(crate) fn fullness(state: &PlanState, store: usize) -> Permille {
    let volume = state.volume(store);
    let then = u128::from(volume.occupied.saturating_sub(volume.leaving)) * 1_000;
    let part = then / u128::from(volume.capacity.max(1));
    Permille(u32::try_from(part).unwrap_or(u32::MAX))
}

/// Bytes above the mark, where there is more to come.
pub(crate) fn excess(state: &PlanState, store: usize) -> Option<u64> {
    let volume = state.volume(store);
    if volume.provisioning == Provisioning::Thick {
        return None;
    }
    let mark = state.pool.rules.space.relieve.of(volume.capacity);
    let then = volume.occupied.saturating_sub(volume.leaving);
    (then > mark).then(|| then - mark)
}
