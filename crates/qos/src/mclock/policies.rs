//! Disks come in, with their policies. Changes of those, and of what priorities are worth.

use super::MClock;
use super::amount::rate;
use super::disk::{DiskTags, NEVER_SERVED, Patience, bandwidths, rates};
use super::pair;
use super::parts::Parts;
use super::stream::Tagging;
use crate::learned_cost::Charging;
use crate::policy::Policy;
use crate::priority::PriorityPolicy;
use crate::rate::Tag;
use crate::scheduler::DiskId;
use headgate_units::LatencyTarget;

impl<R> MClock<R> {
    /// How it charges.
    pub(crate) fn charging(&mut self) -> &mut Charging {
        &mut self.charging
    }

    /// A new disk, in the slot of one that is gone if there is any.
    pub(super) fn take_in(&mut self, now: u64, policy: Policy) -> DiskId {
        let (slack, v) = (self.config.limit_slack.0, self.virtual_time);
        let slot = self.free.pop().map_or(self.disks.len(), |slot| slot as usize);
        let generation = self.disks.get(slot).map_or(0, |gone| gone.generation);
        if let Some(parts) = self.parts.get_mut(slot) {
            *parts = Parts::default();
        }
        self.keep_latency_target(slot, policy.latency_target());
        self.charging.register(slot);
        let tags = DiskTags::new(generation, policy, now, v.at(), v.turn(), slack);
        match self.disks.get_mut(slot) {
            Some(gone) => *gone = tags,
            None => self.disks.push(tags),
        }
        self.change_lanes(slot, now, &policy);
        DiskId { slot: slot as u32, generation }
    }

    /// What a tag is ahead is kept as service, so a new rate is in force at the next dispatch.
    pub(super) fn change_policy(&mut self, slot: usize, now: u64, policy: Policy) {
        self.keep_latency_target(slot, policy.latency_target());
        self.disks[slot].settle(now);
        self.displace(slot);
        self.await_no_more(slot);
        self.change_lanes(slot, now, &policy);
        let waits =
            if self.disks[slot].queue.is_empty() { Patience::Asked } else { Patience::Unbroken };
        self.forget_credit(slot, waits);
        let across = self.competes_across(slot);
        let v = self.virtual_time.at();
        let disk = &mut self.disks[slot];
        let old = disk.policy();
        let mut patience = Patience::Unbroken;
        let slack = self.config.limit_slack.0;
        pair::change(&mut disk.limit, rates(policy), now, slack);
        pair::change(&mut disk.bandwidth, bandwidths(policy), now, slack);
        if let Some(lanes) = &mut disk.lanes
            && (rates(policy), bandwidths(policy)) != (rates(old), bandwidths(old))
        {
            lanes.forget_lateness(now);
        }
        disk.peak_time = policy.peak_time();
        if across {
            self.priorities[slot].shares = policy.shares();
        } else {
            disk.share.change_rate(rate(policy.shares().get()), v);
        }
        disk.burst = policy.burst();
        disk.limit_mode = policy.limit_mode();
        disk.reservation = policy.reservation().map(|reservation| match disk.reservation {
            Some(mut tag) => {
                tag.change_rate(rate(reservation.get()), now);
                tag
            }
            None => {
                patience = Patience::Asked;
                Tag::new(NEVER_SERVED, rate(reservation.get()))
            }
        });
        let remembers = !across || !disk.queue.is_empty();
        if policy.reservation() < old.reservation() && remembers {
            self.forget_service(slot, self.furthest_ahead(slot, 1, 1));
        }
        if self.disks[slot].queue.is_empty() {
            self.begin_to_await(slot);
        } else {
            self.place(slot, now, patience);
        }
    }

    /// Keeps what a disk's policy says of latency, to report it.
    pub(super) fn keep_latency_target(&mut self, slot: usize, target: Option<LatencyTarget>) {
        if slot >= self.latency_targets.len() {
            if target.is_none() {
                return;
            }
            self.latency_targets.resize(slot + 1, None);
        }
        self.latency_targets[slot] = target;
    }

    /// Sorts queued requests into streams anew, unless the policy is the one in force.
    pub(super) fn change_priorities(&mut self, slot: usize, now: u64, policy: PriorityPolicy) {
        if policy == self.priorities_of(slot) {
            return;
        }
        if self.tagging == Tagging::Ignored {
            self.priorities_mut(slot).policy = policy;
            return;
        }
        self.disks[slot].settle(now);
        self.displace(slot);
        self.resort(slot, policy);
        if !self.disks[slot].queue.is_empty() {
            self.place(slot, now, Patience::Unbroken);
        }
    }
}
