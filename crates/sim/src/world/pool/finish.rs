//! What a pool leaves behind.

use super::learn;
use super::state::Pool;
use crate::outcome::pool::{PoolOutcome, PooledDisk};
use crate::record::Recorder;
use crate::world::state::World;
use std::collections::BTreeMap;

impl World<'_> {
    /// What the pool leaves behind; the recorders of its datastores apart.
    pub(in crate::world) fn finish_pool(
        &mut self,
    ) -> Option<(PoolOutcome, BTreeMap<usize, Recorder>)> {
        let mut pool = self.pool.take()?;
        pool.learn();
        let last = pool.outlook(self.setup, self.now);
        let name = |store: usize| self.setup.datastores[pool.stores[store].datastore].name.clone();
        let disks = pool
            .members
            .iter()
            .filter(|member| pool.listed(self.setup, member))
            .map(|member| PooledDisk {
                name: member.name.to_string(),
                first: member.first.map(name),
                last: member.at.map(name),
                traits: member.meter.profile(),
            })
            .collect();
        let on = |store: usize| {
            pool.members
                .iter()
                .filter(|member| member.at == Some(store) && pool.listed(self.setup, member))
                .count()
        };
        let disks_on: Vec<usize> = (0..pool.stores.len()).map(on).collect();
        let names: Vec<String> = (0..pool.stores.len()).map(name).collect();
        let Pool { stores, rounds, moves, violations, copies, .. } = *pool;
        let mut recorders = BTreeMap::new();
        let mut datastores = Vec::new();
        for ((store, name), disks) in stores.into_iter().zip(names).zip(disks_on) {
            let index = store.datastore;
            let (datastore, recorder) = learn::outcome(name, disks as u32, store);
            recorders.insert(index, recorder);
            datastores.push(datastore);
        }
        let (copied, longest_wait) = (copies.copied, copies.longest_wait);
        Some((
            PoolOutcome {
                rounds,
                moves,
                last,
                datastores,
                disks,
                copied,
                longest_wait,
                violations,
            },
            recorders,
        ))
    }
}
