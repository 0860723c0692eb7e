//! What goes along where a disk's requests go from one scheduler of a datastore to another.

use super::MClock;
use super::delivered::Delivered;
use super::disk::{DiskTags, MANY, NEVER_SERVED, Peak, State, bandwidths, rates};
use super::pair;
use crate::cost::Cost;
use crate::policy::Policy;
use crate::queue::{Chain, Queued};
use crate::scheduler::DiskId;
use crate::steady::Steady;
use alloc::vec;
use alloc::vec::Vec;

/// A disk's, or a group's, on the way from one order to another. What its limits and its
/// reservation are owed, and what they owe, is kept. Its place by shares is not: it begins beside
/// the others.
#[derive(Clone)]
pub(super) struct Carried<R> {
    pub(super) requests: Vec<(Queued, R)>,
    pub(super) tags: CarriedTags,
    pub(super) in_flight: u32,
}

/// Of limits and reservations, in inner nanoseconds of a clock that both sides have.
#[derive(Clone)]
pub(super) struct CarriedTags {
    pub(super) limit: pair::Slot,
    pub(super) bandwidth: pair::Slot,
    /// When the reservation is due; `None` without one.
    pub(super) due: Option<u64>,
    pub(super) peak: Peak,
}

impl<R> MClock<R> {
    /// All disks, and their policies.
    pub(super) fn all(&self) -> impl Iterator<Item = (DiskId, Policy)> + '_ {
        let known = self.disks.iter().enumerate().filter(|(_, disk)| disk.state != State::Free);
        known.map(|(slot, disk)| {
            (DiskId { slot: slot as u32, generation: disk.generation }, disk.policy())
        })
    }

    pub(crate) fn ids(&self) -> Vec<DiskId> {
        self.all().map(|(disk, _)| disk).collect()
    }

    /// Its clock, and how much was forgiven.
    pub(super) fn reading(&self) -> (Steady, u64) {
        (self.time, self.forgiven)
    }

    /// Takes all that a disk has queued and in flight out of here. It stays registered, and is as
    /// one that never asked.
    pub(super) fn carry_away(&mut self, slot: usize, now: u64) -> Carried<R> {
        self.disks[slot].settle(now);
        self.batch = None;
        let mut requests = Vec::new();
        for mut chain in self.chains_of(slot) {
            requests.append(&mut self.requests.drain(&mut chain));
        }
        self.retire(slot);
        self.await_no_more(slot);
        let disk = &mut self.disks[slot];
        let in_flight = core::mem::take(&mut disk.in_flight);
        self.in_flight -= in_flight as usize;
        self.calm_down(slot);
        self.forget_mix(slot);
        let disk = &self.disks[slot];
        let tags = CarriedTags {
            limit: disk.limit.clone(),
            bandwidth: disk.bandwidth.clone(),
            due: disk.reservation.as_ref().map(|tag| tag.at),
            peak: disk.peak,
        };
        Carried { requests, tags, in_flight }
    }

    /// The queues of all streams of a disk, which has none of them any more.
    fn chains_of(&mut self, slot: usize) -> Vec<Chain> {
        let disk = &mut self.disks[slot];
        if disk.label != MANY {
            return vec![core::mem::replace(&mut disk.queue, Chain::EMPTY)];
        }
        let known = &self.priorities[slot];
        let streams = &mut self.blocks[known.block as usize];
        streams.put_front_back(disk, known.policy.scope);
        let taken = |queue: &mut Chain| core::mem::replace(queue, Chain::EMPTY);
        let chains = streams.list.iter_mut().map(|stream| taken(&mut stream.queue)).collect();
        streams.bring_forward(disk, known.policy.scope);
        chains
    }

    /// The disks come back: by that clock, and with so much forgiven.
    pub(super) fn resume(&mut self, (time, forgiven): (Steady, u64)) {
        self.time = time;
        self.forgiven = forgiven;
        self.delivered = Delivered::new(self.config.debt_horizon.0, self.config.debt_bound.0);
        self.late = (0, 0);
        self.floor_debt = 0;
    }

    /// Brings back what was carried away.
    pub(super) fn carry_back(&mut self, slot: usize, now: u64, carried: Carried<R>) {
        let policy = self.disks[slot].policy();
        let (v, slack) = (self.virtual_time, self.config.limit_slack.0);
        let Carried { requests, tags, in_flight } = carried;
        let disk: &mut DiskTags = &mut self.disks[slot];
        (disk.limit, disk.bandwidth) = (tags.limit, tags.bandwidth);
        pair::change(&mut disk.limit, rates(policy), now, slack);
        pair::change(&mut disk.bandwidth, bandwidths(policy), now, slack);
        if let Some(tag) = &mut disk.reservation {
            tag.set(tags.due.unwrap_or(NEVER_SERVED));
        }
        disk.peak = tags.peak;
        disk.share.set(v.at());
        disk.turn = v.turn();
        disk.in_flight = in_flight;
        disk.begins_idling(now);
        self.in_flight += in_flight as usize;
        self.largest = self.largest.max(tags.peak.cost()).max(Cost::ONE);
        self.begin_to_await(slot);
        for (queued, request) in requests {
            self.queue(slot, queued, request, now);
        }
    }
}
