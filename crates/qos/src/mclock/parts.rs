//! What a request here stands for elsewhere, as measured.

use crate::cost::Cost;
use crate::dmclock::ServedElsewhere;
use crate::scheduler::Phase;

/// Nanoseconds after which what was measured becomes the past. What is used is measured over one
/// to two of them.
const PERIOD: u64 = 1_000_000_000;

/// Requests here that a period holds at least. What a few stand for varies by chance. Where it is
/// too little the disk is served again at once, and where it is too much the promise corrects it.
/// So chance adds to the reservation: of 94 on thirteen servers came 105 with eight requests, and
/// 98 with 32 or 64.
const LEAST_REQUESTS: u32 = 32;

/// A report counts for no more than so many times what was expected.
const SURPRISE: u64 = 8;

/// One in so many parts of what a request stands for is charged to the share tag in advance. All of
/// it would make servers so exact that queues of a client that are shorter by chance stay so, until
/// they are empty: with 64 requests outstanding, shares of 1:3 on four servers are 5 % off then,
/// and 2 % with half of it.
const IN_ADVANCE: u64 = 2;

/// Requests whose service elsewhere may come all at once.
const LATE_REQUESTS: u64 = 24;

/// Requests that came here in some time, and service in millionths of IOs: what they cost, and what
/// they reported.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    requests: u32,
    here: u64,
    elsewhere: u64,
}

/// What is to be charged with a request here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// To the share tag.
    pub(super) share: Cost,
    /// To the reservation tag.
    pub(super) due: Cost,
}

/// What a disk's requests here stand for, and what of it is charged in advance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    /// When `recent` began.
    since: u64,
    recent: Measured,
    past: Measured,
    /// Millionths of IOs elsewhere that are charged to the share tag and not reported yet.
    advance: u64,
    /// Millionths of IOs that were served by reservation elsewhere, beyond what requests served by
    /// reservation here stood for.
    surplus: u64,
    /// Until when, in inner nanoseconds, the disk has received its reservation, here and
    /// elsewhere, in either phase.
    received: u64,
    /// Whether the disk ever said what it got elsewhere.
    pub(super) reported: bool,
}

impl Parts {
    /// A request of this cost has come here. Arrivals are counted and not dispatches, because a
    /// server that serves the disk slowly for a while would take each of its few dispatches for
    /// much more than its part of the routing, and hold the disk back for that.
    pub(super) fn ask(&mut self, now: u64, cost: Cost) {
        if now.saturating_sub(self.since) >= PERIOD && self.recent.requests >= LEAST_REQUESTS {
            (self.past, self.recent, self.since) = (self.recent, Measured::default(), now);
        }
        self.recent.requests += 1;
        self.recent.here = self.recent.here.saturating_add(cost.as_millionths());
    }

    /// A request of this cost is dispatched here; with it so many are in flight.
    pub(super) fn expect(&mut self, phase: Phase, cost: Cost, in_flight: u32) -> Expected {
        let each = self.elsewhere_with(cost);
        let part = each / IN_ADVANCE;
        let most = part.saturating_mul(u64::from(in_flight));
        let more = part.min(most.saturating_sub(self.advance));
        self.advance += more;
        let due = match phase {
            Phase::Reservation => each,
            Phase::Weight => 0,
        };
        self.surplus = self.surplus.saturating_sub(due);
        Expected { share: Cost::from_millionths(more), due: Cost::from_millionths(due) }
    }

    /// A report of service elsewhere since the last one. A surplus by reservation up to so much is
    /// taken for chance.
    pub(super) fn report(&mut self, elsewhere: ServedElsewhere, chance: Cost) -> Expected {
        self.reported = true;
        let delta = elsewhere.delta().as_millionths();
        let usual = SURPRISE * (self.elsewhere_with(Cost::ONE) + Cost::ONE.as_millionths());
        self.recent.elsewhere = self.recent.elsewhere.saturating_add(delta.min(usual));
        let settled = self.advance.min(delta);
        self.advance -= settled;
        self.surplus = self.surplus.saturating_add(elsewhere.rho().as_millionths());
        let due = self.surplus.saturating_sub(chance.as_millionths());
        self.surplus -= due;
        Expected { share: Cost::from_millionths(delta - settled), due: Cost::from_millionths(due) }
    }

    /// By how much what was received differs from what is known of it here.
    pub(super) fn heard_late(&self) -> Cost {
        Cost::from_millionths(LATE_REQUESTS * self.elsewhere_with(Cost::ONE))
    }

    /// What the disk receives elsewhere per so much here, in millionths of IOs.
    fn elsewhere_with(&self, cost: Cost) -> u64 {
        let here = self.past.here.saturating_add(self.recent.here);
        let elsewhere = self.past.elsewhere.saturating_add(self.recent.elsewhere);
        let here = u128::from(here.max(Cost::ONE.as_millionths()));
        let each = u128::from(elsewhere) * u128::from(cost.as_millionths()) / here;
        each.min(u128::from(ServedElsewhere::MAX.as_millionths())) as u64
    }

    /// The share tag was raised over what was charged to it in advance.
    pub(super) fn forget_advance(&mut self) {
        self.advance = 0;
    }

    /// Counts service, as the time that the reservation takes for it. No more than `late` is owed,
    /// and nothing beyond `most` is remembered.
    pub(super) fn receive(&mut self, now: u64, late: u64, time: u64, most: u64) {
        self.received = self.received(now, late).saturating_add(time).min(most);
    }

    /// Until when the disk has received its reservation.
    pub(super) fn received(&self, now: u64, late: u64) -> u64 {
        self.received.max(now.saturating_sub(late))
    }
}
