//! A run that goes on in several ways.

use super::state::World;
use crate::scenario::Variant;
use crate::workload::Orders;

impl<'a> World<'a> {
    /// The same run, as it is between two instants, with what this variant says of all that comes.
    ///
    /// `None` where something in it cannot be doubled: a trace, a device that is neither an array
    /// nor of a fixed rate, what hosts tell nodes, controlled windows, sweeps, copies of disks.
    /// O(state): some hundred microseconds.
    pub(crate) fn fork(&self, variant: &'a Variant) -> Option<World<'a>> {
        if !self.windows.is_empty() || !self.sweeps.is_empty() || self.failure.is_some() {
            return None;
        }
        let setup = &variant.setup;
        let pool = match (&self.pool, &setup.pool) {
            (Some(pool), Some(spec)) => Some(Box::new(pool.fork(spec)?)),
            (None, None) => None,
            _ => return None,
        };
        // Before requests, whose tickets are those of disks with trackers.
        let disks = self.disks.iter().map(|disk| disk.fork()).collect::<Option<_>>()?;
        Some(World {
            setup,
            plan: self.plan.clone(),
            now: self.now,
            queue: self.queue.clone(),
            events: self.events,
            requests: self.requests.clone(),
            gates: self.gates.clone(),
            nodes: self.nodes.iter().map(|node| node.fork()).collect::<Option<_>>()?,
            disks,
            vms: self.vms.clone(),
            workloads: self.workloads.iter().map(|one| one.fork()).collect::<Option<_>>()?,
            windows: Vec::new(),
            boards: self.boards.clone(),
            running: self.running.clone(),
            dirty: self.dirty.clone(),
            touched: self.touched.clone(),
            orders: Orders::default(),
            failure: None,
            seed: self.seed,
            pool,
            tide: self.tide.clone(),
            sweeps: Vec::new(),
        })
    }
}
