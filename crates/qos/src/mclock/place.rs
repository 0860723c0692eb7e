//! Moves disks between the tournaments, and bounds their tags when they enter.

use super::MClock;
use super::claims::Claims;
use super::delivered::Room;
use super::disk::{NEVER_SERVED, Patience, State, share_amount};
use super::served_elsewhere::AWAY;
use super::share_order::Class;
use super::stream::Tagging;
use crate::cost::Cost;
use crate::queue::Queued;
use crate::rate::before;
use crate::scheduler::Phase;

/// For so many times [`Config::limit_slack`](crate::Config::limit_slack) a reservation may be late
/// beside any limit. With three, one beside heavy competition loses 2 % of five seconds to who has
/// just caught up; with six, others lose as much to it (decision 117).
const SLACKS: u64 = 4;

impl<R> MClock<R> {
    /// Queues a request of a disk behind the others of its stream.
    #[inline(always)]
    pub(super) fn queue(&mut self, slot: usize, queued: Queued, request: R, now: u64) {
        let disk = &mut self.disks[slot];
        if queued.given.bits() == disk.label || self.tagging == Tagging::Ignored {
            self.requests.push(&mut disk.queue, queued, request);
        } else {
            self.queue_apart(slot, queued, request, now);
        }
        let patience = match self.disks[slot].state {
            State::Empty if self.was_in_flight(slot, now) => Patience::InFlight,
            State::Empty => Patience::Asked,
            State::ServedElsewhere => Patience::BusyElsewhere,
            _ => return,
        };
        self.await_no_more(slot);
        let disk = &mut self.disks[slot];
        disk.seat = self.seats.take();
        disk.ask_limits(now);
        self.place(slot, now, patience);
    }

    /// Puts a disk whose queue is no longer empty, or whose policy changed, where it belongs.
    pub(super) fn place(&mut self, slot: usize, now: u64, patience: Patience) {
        self.claims.add(Claims::of(&self.disks[slot]));
        let until = self.disks[slot].blocked_until();
        if until > now {
            if self.has_lanes(slot) {
                self.look_at_lanes(slot, now);
            }
            self.forget_credit(slot, patience);
            let disk = &mut self.disks[slot];
            disk.state = State::Blocked;
            disk.begin_to_wait(now);
            self.blocked.enter(disk.seat, u128::from(until), slot as u32);
            self.stand_by(slot, now);
        } else {
            self.make_ready(slot, now, patience);
        }
    }

    pub(super) fn make_ready(&mut self, slot: usize, now: u64, patience: Patience) {
        if self.has_lanes(slot) {
            self.disks[slot].settle(now);
            self.look_at_lanes(slot, now);
            self.await_lanes(slot, now);
        }
        self.forget_credit(slot, patience);
        self.delivered.begin(now);
        if self.disks[slot].state != State::Pending {
            self.take_due_place(slot, now, patience);
        }
        let disk = &mut self.disks[slot];
        disk.state = State::Ready;
        self.shares.enter(
            disk.class(),
            disk.seat,
            self.virtual_time.full(disk.share.at),
            slot as u32,
        );
    }

    /// Puts a disk into the order of reservations, if it has one: as late as it may be.
    #[inline]
    fn take_due_place(&mut self, slot: usize, now: u64, patience: Patience) {
        if self.disks[slot].reservation.is_none() {
            return;
        }
        let bound = match patience {
            _ if self.has_new_reservation(slot) => self.newcomers_lateness(now),
            Patience::Asked => self.newcomers_lateness(now).max(self.config.anticipation.0),
            Patience::BusyElsewhere => self.config.anticipation.0.max(AWAY),
            Patience::InFlight => self.lateness_kept(slot, now),
            Patience::HeldBack => self.lateness_beside_limit(slot, now),
            Patience::Unbroken => self.debt_bound_of(slot, now),
        };
        let latest = now - bound;
        let due = self.reservations.first().map_or(latest, |(tag, _)| tag as u64 + self.forgiven);
        let disk = &mut self.disks[slot];
        if let Some(reservation) = &mut disk.reservation {
            reservation.raise_to(due.min(latest));
            reservation.at -= self.forgiven;
            self.reservations.enter(disk.seat, u128::from(reservation.at), slot as u32);
        }
    }

    /// Whether a disk with nothing queued had requests in flight until just now. Disks that are
    /// spread over several servers never count so: they claim at each what others did not give.
    pub(super) fn was_in_flight(&self, slot: usize, now: u64) -> bool {
        !self.is_spread(slot)
            && !self.disks[slot].idles_longer_than(self.config.anticipation.0, now)
    }

    /// Whether the disk's reservation has not taken its place yet. Whatever the disk did before,
    /// nothing was owed by it.
    fn has_new_reservation(&self, slot: usize) -> bool {
        self.disks[slot].reservation.as_ref().is_some_and(|tag| tag.at == NEVER_SERVED)
    }

    /// How late the reservation of a disk may be that was just set. In a shortage all requests of
    /// the others may be in flight, so that none of them is there to take a place beside. They come
    /// back as late as they were, and up to half of the bound.
    fn newcomers_lateness(&self, now: u64) -> u64 {
        let (most, (late, at)) = (self.config.debt_bound.0 / 2, self.late);
        if now - at <= most { late.min(most) } else { 0 }
    }

    /// How late the reservation of a disk may be whose requests were all in flight, or that a limit
    /// held back: half of the bound, and a stall of the storage where it makes good for that. What
    /// such a disk lost otherwise, it lost because it keeps few requests outstanding, or to its
    /// limit. Were that owed, it would be late for ever.
    ///
    /// What the next stall adds to that may be beyond the bound. A disk with a limit loses it alone
    /// (`forgive_limited`); without one it would be lost to all, so there must be room for it.
    fn lateness_kept(&self, slot: usize, now: u64) -> u64 {
        let room = match self.disks[slot].is_limited() {
            true => Room::OneStall,
            false => Room::TwoStalls,
        };
        self.delivered.lateness_kept(now, self.claims, room)
    }

    /// How late the reservation of a disk may be that its limit held back: as late as others, and
    /// no more than the limit l makes good for within a horizon H beside the reservation r, which
    /// is H·(l/r - 1). Where that is less than four slacks, it is these. Of a stall it is what
    /// goes beyond b, for the limit itself keeps so much of it.
    ///
    /// A disk whose limit is its reservation is late for ever by what a long service cost it. It
    /// waits for room a second later, and has it all at once. Were that due by its reservation, all
    /// others would wait for it, each second anew.
    #[inline]
    fn lateness_beside_limit(&self, slot: usize, now: u64) -> u64 {
        let late = self.lateness_kept(slot, now);
        let disk = &self.disks[slot];
        let (Some(reservation), Some(limit)) = (&disk.reservation, &disk.limit) else {
            return late;
        };
        let (r, l) = (reservation.rate().get(), limit.rates().limit.get());
        let spare = u128::from(self.config.debt_horizon.0) * u128::from(l.saturating_sub(r));
        if spare >= u128::from(late) * u128::from(r) {
            return late;
        }
        let beyond = self.delivered.longest_stall(now).saturating_sub(self.config.debt_bound.0);
        let least = self.config.anticipation.0.max(SLACKS * self.config.limit_slack.0).max(beyond);
        late.min(least.max((spare / u128::from(r)) as u64))
    }

    /// How late the reservation of a disk may be that enters again.
    fn debt_bound_of(&self, slot: usize, now: u64) -> u64 {
        let least = self.config.debt_bound.0 / 2;
        match &self.disks[slot].reservation {
            Some(reservation) if reservation.at < now - least => self.debt_bound(),
            _ => least,
        }
    }

    /// Lets a disk go that waited for a limit.
    pub(super) fn unblock(&mut self, slot: usize, now: u64) {
        if self.disks[slot].state == State::Ready {
            self.open_lanes(slot, now);
            return;
        }
        self.blocked.leave(self.disks[slot].seat);
        self.stand_down(slot);
        self.make_ready(slot, now, Patience::HeldBack);
    }

    /// Takes a ready disk that was just served out until its limit lets it go.
    #[inline(always)]
    pub(super) fn block(&mut self, slot: usize, until: u64, phase: Phase, now: u64) {
        let disk = &mut self.disks[slot];
        self.shares.leave(disk.class(), disk.seat);
        disk.turn = self.virtual_time.turn();
        disk.state = State::Blocked;
        disk.begin_to_wait(now);
        match &mut disk.reservation {
            None => {}
            Some(reservation) if reservation.at + self.forgiven >= until => {
                disk.state = State::Pending;
                if phase == Phase::Reservation {
                    self.reservations.enter(disk.seat, u128::from(reservation.at), slot as u32);
                }
            }
            Some(reservation) => {
                self.reservations.leave(disk.seat);
                reservation.at += self.forgiven;
            }
        }
        self.blocked.enter(disk.seat, u128::from(until), slot as u32);
        self.stand_by(slot, now);
    }

    /// Takes a disk out of the tournaments it is in. It keeps its seat.
    pub(super) fn displace(&mut self, slot: usize) {
        if matches!(self.disks[slot].state, State::Blocked | State::Pending) {
            self.stand_down(slot);
        }
        let disk = &mut self.disks[slot];
        match disk.state {
            State::Free | State::Empty | State::ServedElsewhere => return,
            State::Blocked | State::Pending => self.blocked.leave(disk.seat),
            State::Ready => {
                self.shares.leave(disk.class(), disk.seat);
                disk.turn = self.virtual_time.turn();
                if disk.lanes.is_some() {
                    self.blocked.leave(disk.seat);
                }
            }
        }
        if matches!(disk.state, State::Ready | State::Pending)
            && let Some(reservation) = &mut disk.reservation
        {
            self.reservations.leave(disk.seat);
            reservation.at += self.forgiven;
        }
        disk.state = State::Blocked;
        self.claims.subtract(Claims::of(disk));
    }

    /// Removes a disk whose queue became empty from the tournaments.
    pub(super) fn retire(&mut self, slot: usize) {
        if matches!(self.disks[slot].state, State::Empty | State::ServedElsewhere) {
            return;
        }
        self.displace(slot);
        self.disks[slot].state = State::Empty;
        self.disks[slot].wait_no_more();
        self.begin_to_await(slot);
        let disk = &self.disks[slot];
        if self.seats.vacate(disk.seat) {
            self.shares.reset();
            self.reservations.reset();
            self.blocked.reset();
            self.left_over.reset();
        }
    }

    /// Counts what a disk with nothing queued claims, if it has requests in flight: it comes back
    /// with the next.
    pub(super) fn begin_to_await(&mut self, slot: usize) {
        if self.is_awaited(slot) {
            self.claims.add(Claims::of(&self.disks[slot]));
        }
    }

    /// Takes that back, before its next request or when its last one has completed.
    #[inline]
    pub(super) fn await_no_more(&mut self, slot: usize) {
        if self.is_awaited(slot) {
            self.claims.subtract(Claims::of(&self.disks[slot]));
        }
    }

    fn is_awaited(&self, slot: usize) -> bool {
        let disk = &self.disks[slot];
        disk.in_flight > 0 && matches!(disk.state, State::Empty | State::ServedElsewhere)
    }

    /// In IOs per second.
    fn reserved_by(&self, slot: usize) -> u64 {
        self.disks[slot].reservation.as_ref().map_or(0, |tag| tag.rate().get())
    }

    /// Applies the lower bound of the share tag: a disk that was idle keeps at most its burst
    /// credit, one that was held back at most the lead.
    pub(super) fn forget_credit(&mut self, slot: usize, patience: Patience) {
        if self.competes_across(slot) {
            if matches!(self.disks[slot].state, State::Empty | State::ServedElsewhere) {
                // Streams earn no credit while none of them waits.
                self.begin_to_ask(slot);
                self.disks[slot].share.raise_to(self.virtual_time.at());
            } else {
                self.forget_credit_of_streams(slot);
            }
            return;
        }
        let burst = self.disks[slot].burst.get();
        let ios = match patience {
            Patience::Asked | Patience::InFlight => burst,
            Patience::BusyElsewhere | Patience::HeldBack | Patience::Unbroken => {
                burst.max(u64::from(self.config.lead))
            }
        };
        let v = self.virtual_time;
        let disk = &mut self.disks[slot];
        let bound = v.at().wrapping_sub(disk.share.spacing(share_amount(Cost::from_ios(ios))));
        let before = disk.share.at;
        if v.has_left(disk.turn) {
            disk.share.set(bound);
        } else {
            disk.share.raise_to(bound);
        }
        disk.turn = v.turn();
        if disk.share.at != before
            && let Some(parts) = self.parts.get_mut(slot)
        {
            parts.forget_advance();
        }
    }

    /// The lower bound of the share tag of a ready disk with a reservation: the floor raises V
    /// beyond it.
    #[inline]
    pub(super) fn forget_lag(&mut self, slot: usize) {
        let v = self.virtual_time;
        let disk = &self.disks[slot];
        if disk.class() == Class::Unreserved || !before(disk.share.at, v.at()) {
            return;
        }
        if self.competes_across(slot) {
            self.forget_lag_of_streams(slot);
            return;
        }
        let ios = disk.burst.get().max(u64::from(self.config.lead));
        let share = &mut self.disks[slot].share;
        share.raise_to(v.at().wrapping_sub(share.spacing(share_amount(Cost::from_ios(ios)))));
    }

    /// The upper bound of the share tag: `ios` ahead of V, or `costs` of the disk's own requests if
    /// those are larger.
    pub(super) fn forget_service(&mut self, slot: usize, ahead: Cost) {
        if self.competes_across(slot) {
            self.forget_service_of_streams(slot, ahead);
            return;
        }
        let v = self.virtual_time.at();
        let tag = &mut self.disks[slot].share;
        tag.lower_to(v.wrapping_add(tag.spacing(share_amount(ahead))));
    }

    /// The same for a disk that is served by its reservation. Most are not even the lead ahead:
    /// then nobody asks what pauses add to it.
    #[inline]
    pub(super) fn forget_service_in_pauses(&mut self, slot: usize, now: u64) {
        if !self.competes_across(slot) {
            let tag = &self.disks[slot].share;
            let lead = tag.spacing(share_amount(self.lead_of(slot)));
            if !before(self.virtual_time.at().wrapping_add(lead), tag.at) {
                return;
            }
        }
        self.forget_service(slot, self.lead_in_pauses(slot, now));
    }

    /// The upper bound of the share tag of a disk that is served by its reservation: the lead, or
    /// what the reservation is owed for pauses and stalls of the storage if that is more. It comes
    /// at once, and is of the disk's share as far as that is larger.
    #[inline]
    pub(super) fn lead_in_pauses(&self, slot: usize, now: u64) -> Cost {
        let time = self.config.debt_bound.0 / 2 + 2 * self.delivered.longest_stall(now);
        // Nanoseconds at IOs per second are thousandths of millionths of an IO. No cost is larger
        // than what fits.
        let owed = time.saturating_mul(self.reserved_by(slot)) / 1_000;
        self.lead_of(slot).max(Cost::from_millionths(owed.min(Cost::MAX.as_millionths())))
    }

    /// How much service that is.
    #[inline]
    pub(super) fn furthest_ahead(&self, slot: usize, ios: u16, costs: u64) -> Cost {
        Cost::from_ios(u64::from(ios)).max(self.disks[slot].peak.cost().times(costs))
    }
}
