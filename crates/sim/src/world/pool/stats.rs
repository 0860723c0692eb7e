//! What the statistics of a pool's disks see of a request.

use super::state::{Member, Pool};
use crate::scenario;
use crate::workload::Issue;
use crate::world::request::Request;
use headgate_devices::IoKind;
use headgate_qos::{DiskId, Phase};
use headgate_stats::{Latency, Op};
use headgate_units::Nanos;

fn op(kind: IoKind) -> Op {
    match kind {
        IoKind::Read => Op::Read,
        IoKind::Write => Op::Write,
        IoKind::Flush => Op::Flush,
        IoKind::Discard => Op::Discard,
    }
}

impl Pool<'_> {
    /// Counts an arrival in the statistics, as the daemon does.
    #[inline]
    pub(in crate::world) fn on_arrival(
        &mut self,
        now: Nanos,
        member: u32,
        store: u32,
        issue: &Issue,
    ) {
        self.stores[store as usize].recorder.on_arrival(now);
        if let Some(Some(placement)) =
            self.members[member as usize].placements.get_mut(store as usize)
        {
            placement.stats.on_arrival(now, op(issue.kind), issue.offset, issue.bytes);
        }
    }

    #[inline]
    pub(in crate::world) fn on_dispatch(
        &mut self,
        now: Nanos,
        member: u32,
        request: &Request,
        cost: u64,
    ) {
        let queue = now - request.arrived;
        self.stores[request.store as usize].recorder.on_dispatch(queue, request.phase, cost);
        if let Some(Some(placement)) =
            self.members[member as usize].placements.get_mut(request.store as usize)
        {
            let phase = match request.phase {
                Phase::Reservation => headgate_stats::Phase::Reservation,
                Phase::Weight => headgate_stats::Phase::Weight,
            };
            placement.stats.on_dispatch(now, op(request.kind), queue, phase, cost);
        }
    }

    #[inline]
    pub(in crate::world) fn on_complete(&mut self, now: Nanos, member: u32, request: &Request) {
        let (queue, device) = (request.dispatched - request.arrived, now - request.dispatched);
        self.stores[request.store as usize].recorder.on_complete(now, request.bytes, queue, device);
        if let Some(Some(placement)) =
            self.members[member as usize].placements.get_mut(request.store as usize)
        {
            let latency = Latency { device, total: queue + device };
            let done = headgate_stats::Outcome::Done;
            placement.stats.on_complete(now, op(request.kind), request.bytes, latency, done);
        }
    }

    /// Another policy holds wherever the disk may go.
    pub(in crate::world) fn gates_of(
        &self,
        member: u32,
    ) -> impl Iterator<Item = (u32, DiskId)> + '_ {
        self.members[member as usize]
            .placements
            .iter()
            .flatten()
            .map(|placement| (placement.gate, placement.id))
    }

    /// Whether a disk is in the pool's books.
    pub(super) fn listed(&self, setup: &scenario::Setup, member: &Member) -> bool {
        setup.vms[member.vm].disks[member.index].membership.listed
    }
}
