//! Charges disks for the service at other servers that dmClock reports.

use super::MClock;
use super::amount::time_amount;
use super::disk::{Patience, State, cost_of_share, share_amount};
use super::parts::{Expected, Parts};
use super::virtual_time::LEAD_IN_OWN_COSTS;
use crate::cost::Cost;
use crate::dmclock::ServedElsewhere;
use crate::scheduler::Phase;

/// How long, in nanoseconds, a disk waits at most for service that it received elsewhere: by its
/// share, at the pace of the last so many busy nanoseconds, and for its reservation.
pub(super) const REMEMBERED: u64 = 2_000_000_000;

/// The same for its limits.
pub(super) const LIMIT_REMEMBERED: u64 = 30_000_000_000;

/// How late, in nanoseconds, the reservation of a disk may be whose requests were all elsewhere.
pub(super) const AWAY: u64 = 30_000_000;

impl<R> MClock<R> {
    /// Advances the tags from where they were left, and puts the disk where they belong.
    #[inline(never)]
    pub(super) fn charge_elsewhere(&mut self, slot: usize, now: u64, elsewhere: ServedElsewhere) {
        if slot >= self.parts.len() {
            self.parts.resize(self.disks.len(), Parts::default());
        }
        self.disks[slot].settle(now);
        let before = self.tags_of(slot);
        let chance = self.in_time(slot, REMEMBERED);
        let reported = self.parts[slot].report(elsewhere, chance);
        self.charge_share(slot, reported.share);
        self.charge_reservation(slot, now, reported);
        self.receive(slot, now, reported.share);
        self.hold_to_received(slot, now);
        self.charge_limits(slot, now, elsewhere);
        if matches!(self.disks[slot].state, State::Blocked | State::Pending) {
            self.stand_down(slot);
        }
        self.put(slot, now, before);
    }

    /// The tags by which a ready disk is in the tournaments.
    fn tags_of(&self, slot: usize) -> (u64, Option<u64>) {
        let disk = &self.disks[slot];
        (disk.share.at, disk.reservation.as_ref().map(|tag| tag.at))
    }

    /// Replays what a ready disk's tags have moved since they were `before`.
    fn follow_tags(&mut self, slot: usize, before: (u64, Option<u64>)) {
        let disk = &self.disks[slot];
        if disk.share.at != before.0 {
            let tag = self.virtual_time.full(disk.share.at);
            self.shares.enter(disk.class(), disk.seat, tag, slot as u32);
        }
        if let Some(reservation) = &disk.reservation
            && Some(reservation.at) != before.1
        {
            self.reservations.enter(disk.seat, u128::from(reservation.at), slot as u32);
        }
    }

    /// Charges a request that was just dispatched for what the disk receives elsewhere meanwhile.
    #[inline(never)]
    pub(super) fn charge_in_advance(&mut self, slot: usize, now: u64, phase: Phase, cost: Cost) {
        if self.competes_across(slot) {
            return;
        }
        let in_flight = self.disks[slot].in_flight;
        let expected = self.parts[slot].expect(phase, cost, in_flight);
        let ahead = share_amount(self.lead_of(slot));
        let v = self.virtual_time.at();
        let origin = now - self.forgiven;
        let lead = self.lead_in_time(slot);
        let disk = &mut self.disks[slot];
        let bound = v.wrapping_add(disk.share.spacing(ahead));
        disk.share.advance_within(u128::from(share_amount(expected.share)), bound);
        if let Some(reservation) = &mut disk.reservation {
            let bound = origin + lead.max(REMEMBERED);
            reservation.advance_within(u128::from(time_amount(expected.due)), bound);
        }
        let all = cost.as_millionths() + expected.share.as_millionths();
        self.receive(slot, now, Cost::from_millionths(all));
        if phase == Phase::Reservation {
            self.hold_to_received(slot, now);
        }
    }

    /// Counts service, here or elsewhere.
    fn receive(&mut self, slot: usize, now: u64, cost: Cost) {
        let Some(reservation) = &self.disks[slot].reservation else { return };
        let time = reservation.spacing(time_amount(cost));
        let lead = self.lead_in_time(slot);
        let heard_late = reservation.spacing(time_amount(self.parts[slot].heard_late()));
        let most = now + lead.max(REMEMBERED).min(lead + heard_late);
        self.parts[slot].receive(now, self.config.debt_bound.0 / 2, time, most);
    }

    /// A disk that has not received its reservation in all is due, whatever its requests were
    /// expected to stand for. In a shortage nobody receives it, and tags divide what there is.
    fn hold_to_received(&mut self, slot: usize, now: u64) {
        let (late, at) = self.late;
        let most = self.config.debt_bound.0 / 2;
        if late >= most && now - at <= most || !self.is_spread(slot) {
            return;
        }
        let disk = &mut self.disks[slot];
        let shifted = matches!(disk.state, State::Ready | State::Pending);
        let by = if shifted { self.forgiven } else { 0 };
        if let Some(reservation) = &mut disk.reservation {
            reservation.lower_to(self.parts[slot].received(now, most) - by);
        }
    }

    /// Whether the disk ever said what it received elsewhere.
    #[inline]
    pub(super) fn is_spread(&self, slot: usize) -> bool {
        self.parts.get(slot).is_some_and(|parts| parts.reported)
    }

    /// How much service the share tag of a disk may be ahead of V.
    pub(super) fn lead_of(&self, slot: usize) -> Cost {
        let own = self.furthest_ahead(slot, self.config.lead, LEAD_IN_OWN_COSTS);
        let lead = own.max(self.largest);
        if !self.is_spread(slot) {
            return lead;
        }
        let risen = self.pace.risen(self.virtual_time.0);
        let rate = u128::from(self.disks[slot].share.rate().get());
        lead.max(cost_of_share(risen.saturating_mul(rate)))
    }

    /// What a reservation gives in so much time, the lead at least.
    fn in_time(&self, slot: usize, time: u64) -> Cost {
        let lead = Cost::from_ios(u64::from(self.config.lead));
        let Some(tag) = &self.disks[slot].reservation else { return lead };
        let millionths = u128::from(tag.rate().get()) * u128::from(time) / 1_000;
        lead.max(Cost::from_millionths(millionths.min(1 << 60) as u64))
    }

    /// The time that a reservation takes for the lead.
    fn lead_in_time(&self, slot: usize) -> u64 {
        let lead = time_amount(Cost::from_ios(u64::from(self.config.lead)));
        self.disks[slot].reservation.as_ref().map_or(0, |tag| tag.spacing(lead))
    }

    /// Holds the next disk in turn to the lead, which shrinks when V slows down.
    #[inline(never)]
    pub(super) fn forget_in_turn(&mut self, now: u64) {
        self.visited = if self.visited + 1 < self.parts.len() { self.visited + 1 } else { 0 };
        let slot = self.visited;
        if self.disks[slot].state != State::Ready || !self.is_spread(slot) {
            return;
        }
        let before = self.tags_of(slot);
        self.forget_service(slot, self.lead_of(slot));
        self.hold_to_received(slot, now);
        self.follow_tags(slot, before);
    }

    fn charge_share(&mut self, slot: usize, elsewhere: Cost) {
        let across = self.competes_across(slot);
        let ahead = self.lead_of(slot);
        let v = self.virtual_time;
        let amount = share_amount(elsewhere);
        let disk = &mut self.disks[slot];
        // Left behind for so long, the tag is behind with any report.
        let comparable = disk.state == State::Ready || !v.has_left(disk.turn);
        if comparable && !across {
            let bound = v.at().wrapping_add(disk.share.spacing(share_amount(ahead)));
            disk.share.advance_within(u128::from(amount), bound);
        } else if comparable && !disk.queue.is_empty() {
            // Without a waiting stream the report does not show which stream was served.
            self.charge_streams(slot, amount, ahead);
        }
        let disk = &mut self.disks[slot];
        match disk.state {
            State::Ready => {}
            State::Free => {}
            State::Empty | State::ServedElsewhere => {
                disk.state = State::ServedElsewhere;
                self.forget_credit(slot, Patience::BusyElsewhere);
            }
            State::Blocked | State::Pending => self.forget_credit(slot, Patience::HeldBack),
        }
    }

    fn charge_reservation(&mut self, slot: usize, now: u64, reported: Expected) {
        let lead = self.lead_in_time(slot);
        let disk = &mut self.disks[slot];
        let shifted = matches!(disk.state, State::Ready | State::Pending);
        let origin = if shifted { now - self.forgiven } else { now };
        let Some(reservation) = &mut disk.reservation else { return };
        let amount = u128::from(time_amount(reported.due));
        reservation.advance_within(amount, origin + lead.max(REMEMBERED));
    }

    fn charge_limits(&mut self, slot: usize, now: u64, elsewhere: ServedElsewhere) {
        let bound = now + LIMIT_REMEMBERED;
        let disk = &mut self.disks[slot];
        if let Some(limit) = &mut disk.limit {
            limit.charge_elsewhere(u128::from(time_amount(elsewhere.delta())), bound, now);
        }
        if let Some(bandwidth) = &mut disk.bandwidth {
            let amount = u128::from(elsewhere.bytes().0) * 1_000_000_000;
            bandwidth.charge_elsewhere(amount, bound, now);
        }
    }

    fn put(&mut self, slot: usize, now: u64, before: (u64, Option<u64>)) {
        let disk = &mut self.disks[slot];
        let until = disk.blocked_until();
        match disk.state {
            State::Free | State::Empty | State::ServedElsewhere => {}
            State::Ready if until > now => self.block(slot, until, Phase::Reservation, now),
            State::Ready => self.follow_tags(slot, before),
            State::Blocked => {
                disk.begin_to_wait(now);
                self.blocked.enter(disk.seat, u128::from(until), slot as u32);
            }
            State::Pending => {
                disk.begin_to_wait(now);
                self.blocked.enter(disk.seat, u128::from(until), slot as u32);
                match &mut disk.reservation {
                    Some(reservation) if reservation.at + self.forgiven >= until => {
                        self.reservations.enter(disk.seat, u128::from(reservation.at), slot as u32);
                    }
                    // The limit lets it go later than it is due.
                    reservation => {
                        self.reservations.leave(disk.seat);
                        if let Some(reservation) = reservation {
                            reservation.at += self.forgiven;
                        }
                        disk.state = State::Blocked;
                    }
                }
            }
        }
    }
}
