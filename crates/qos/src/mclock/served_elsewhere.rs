//! Charges disks for the service at other servers that dmClock reports.

use super::MClock;
use super::disk::{Patience, State, share_amount, time_amount};
use super::parts::Parts;
use super::virtual_time::LEAD_IN_OWN_COSTS;
use crate::cost::Cost;
use crate::dmclock::ServedElsewhere;
use crate::rate::Tag;
use crate::scheduler::Phase;

/// What a server does not know yet counts for no more than this in the disk's largest step, from
/// which its lead follows.
pub(super) const STEP: Cost = Cost::from_ios(512);

/// How far ahead of time service elsewhere may bring reservation and limit, if the bound on debt
/// and the disk's own requests allow less.
pub(super) const FAR: Cost = Cost::from_ios(1_024);

/// The same for a limit in bytes per second.
pub(super) const FAR_BYTES: u64 = 256 << 20;

impl<R> MClock<R> {
    /// Advances the tags from where they were left, and puts the disk where they belong.
    #[inline(never)]
    pub(super) fn charge_elsewhere(&mut self, slot: usize, now: u64, elsewhere: ServedElsewhere) {
        let disk = &mut self.disks[slot];
        // Per request that is in flight here about as much is in flight elsewhere as was served
        // there.
        let unknown = elsewhere.delta().times(u64::from(disk.in_flight).max(1));
        disk.peak.raise_to(unknown.min(STEP));
        let (by_reservation, by_weight) = (disk.by_reservation, disk.by_weight);
        if slot >= self.parts.len() {
            self.parts.resize(self.disks.len(), Parts::default());
        }
        let missing = self.parts[slot].missing_elsewhere(by_reservation, by_weight, elsewhere);
        self.charge_share(slot, elsewhere);
        self.charge_times(slot, now, elsewhere, missing);
        self.put(slot, now);
    }

    fn charge_share(&mut self, slot: usize, elsewhere: ServedElsewhere) {
        let across = self.competes_across(slot);
        let ahead = self.furthest_ahead(slot, self.config.lead, LEAD_IN_OWN_COSTS);
        let v = self.virtual_time;
        let amount = share_amount(elsewhere.delta());
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

    fn charge_times(&mut self, slot: usize, now: u64, elsewhere: ServedElsewhere, missing: Cost) {
        let disk = &mut self.disks[slot];
        let far = time_amount(FAR.max(disk.peak.cost().times(LEAD_IN_OWN_COSTS)));
        let least = self.config.debt_bound.0;
        let charge = |tag: &mut Tag, amount: u128, far: u64, origin: u64| {
            tag.advance_within(amount, origin + tag.spacing(far).max(least));
        };
        if let Some(reservation) = &mut disk.reservation {
            let shifted = matches!(disk.state, State::Ready | State::Pending);
            let origin = if shifted { now - self.forgiven } else { now };
            charge(reservation, u128::from(time_amount(elsewhere.rho())), far, origin);
            let near =
                reservation.spacing(time_amount(Cost::from_ios(u64::from(self.config.lead))));
            reservation.advance_within(u128::from(time_amount(missing)), origin + near);
        }
        if let Some(limit) = &mut disk.limit {
            charge(limit, u128::from(time_amount(elsewhere.delta())), far, now);
        }
        if let Some(bandwidth) = &mut disk.bandwidth {
            let amount = u128::from(elsewhere.bytes().0) * 1_000_000_000;
            charge(bandwidth, amount, FAR_BYTES * 1_000_000_000, now);
        }
    }

    fn put(&mut self, slot: usize, now: u64) {
        let disk = &mut self.disks[slot];
        let until = disk.blocked_until();
        match disk.state {
            State::Free | State::Empty | State::ServedElsewhere => {}
            State::Ready if until > now => self.block(slot, until, Phase::Reservation),
            State::Ready => {
                self.shares.enter(
                    disk.class(),
                    disk.seat,
                    self.virtual_time.full(disk.share.at),
                    slot as u32,
                );
                if let Some(reservation) = &disk.reservation {
                    self.reservations.enter(disk.seat, u128::from(reservation.at), slot as u32);
                }
            }
            State::Blocked => self.blocked.enter(disk.seat, u128::from(until), slot as u32),
            State::Pending => {
                self.blocked.enter(disk.seat, u128::from(until), slot as u32);
                match &mut disk.reservation {
                    Some(reservation) if reservation.at + self.forgiven >= until => {
                        self.reservations.enter(disk.seat, u128::from(reservation.at), slot as u32);
                    }
                    // The limit lets it go later than it is due.
                    reservation => {
                        self.reservations.leave(disk.seat);
                        if let Some(reservation) = reservation {
                            self.claimed -= reservation.rate().get();
                            reservation.at += self.forgiven;
                        }
                        disk.state = State::Blocked;
                    }
                }
            }
        }
    }
}
