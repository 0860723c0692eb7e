//! What one reserved disk did since its times were last taken.

use super::Beside;
use super::bounds::{AIM, GROWTH, HOPELESS, MILLIONTHS, PERIOD, ROOMY, SHORT, WHOLE, part};
use super::fit::Fit;
use super::judgement::{Judgement, Permission};
use super::latencies::Latencies;
use super::standing::LatencyStanding;
use super::trial::{Flown, Hope, Outcome, Trial};
use crate::cost::Cost;
use crate::policy::Policy;
use crate::scheduler::DiskCounters;
use crate::window::{Slots, WorkWindow};
use alloc::boxed::Box;
use headgate_units::Nanos;

/// A disk is judged after so many requests,
const ENOUGH: u32 = 32;

/// or after so long.
const LONGEST: Nanos = Nanos::from_secs(4);

/// One event counts for at most so long, whatever the clock says.
const STEP_MAX: u64 = 60_000_000_000;

/// A disk that keeps on the average at least this part of the most that it had outstanding sends
/// its next request when one completes. In per cent.
const STEADY: u64 = 80;

/// The counts and times of a disk with a reservation.
#[derive(Clone)]
pub(super) struct Tally {
    pub(super) generation: u32,
    /// Of the reservation, in IOPS.
    rate: u64,
    outstanding: u32,
    in_flight: u32,
    peak: u32,
    dispatched: u32,
    /// When it last had nothing outstanding any more.
    emptied: Nanos,
    /// Up to when the times are true, and since when they are taken.
    seen: Nanos,
    since: Nanos,
    /// Integrals over time, in request-nanoseconds.
    outstanding_time: u64,
    flight_time: u64,
    /// Millionths of a reference IO, and what the window counted of that.
    cost: u64,
    counted: u64,
    /// The work of all disks that was in flight at this disk's dispatches, added up, in thousandths
    /// of a reference IO, and the requests.
    company: u64,
    crowd: u64,
    /// What it says until there is enough to judge it by again.
    last: Judgement,
    window: WorkWindow,
    fit: Fit,
    /// What came of narrowing the window for it.
    trial: Trial,
    /// The depth that it would have needed when it was given up.
    needed: u32,
    /// It gets no more than a part of its reservation here.
    spread: Spread,
    /// Of a disk with a latency target.
    latencies: Option<Box<Latencies>>,
}

/// Where a disk is served.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spread {
    Here,
    Elsewhere,
}

impl Tally {
    /// Of a disk that has so much outstanding, in a window of this size; `None` without a
    /// reservation.
    pub(super) fn new(
        now: Nanos,
        generation: u32,
        policy: &Policy,
        counters: DiskCounters,
        window: WorkWindow,
    ) -> Option<Tally> {
        let rate = policy.reservation()?.get();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let outstanding = count(counters.queued.saturating_add(counters.in_flight));
        Some(Tally {
            generation,
            rate,
            outstanding,
            in_flight: count(counters.in_flight),
            peak: outstanding,
            dispatched: 0,
            emptied: now,
            seen: now,
            since: now,
            outstanding_time: 0,
            flight_time: 0,
            cost: 0,
            counted: 0,
            company: 0,
            crowd: 0,
            last: Judgement::None,
            window,
            fit: Fit::default(),
            trial: Trial::new(),
            needed: 0,
            spread: Spread::Here,
            latencies: policy.latency_target().map(|t| Box::new(Latencies::new(now, t, window))),
        })
    }

    /// Another policy for the same disk: where it is served stays, and how it last stood to a
    /// latency target that is still the same. All else begins anew.
    pub(super) fn adopt(&mut self, old: &Tally) {
        self.spread = old.spread;
        if let (Some(new), Some(old)) = (&mut self.latencies, &old.latencies) {
            new.adopt(old);
        }
    }

    fn advance(&mut self, now: Nanos) {
        let passed = now.since(self.seen).0.min(STEP_MAX);
        self.seen = self.seen.max(now);
        let grown = |time: u64, n: u32| time.saturating_add(passed.saturating_mul(n.into()));
        self.outstanding_time = grown(self.outstanding_time, self.outstanding);
        self.flight_time = grown(self.flight_time, self.in_flight);
    }

    #[inline]
    pub(super) fn queued(&mut self, now: Nanos) {
        self.advance(now);
        self.outstanding = self.outstanding.saturating_add(1);
        self.peak = self.peak.max(self.outstanding);
    }

    #[inline]
    pub(super) fn served_elsewhere(&mut self) {
        self.spread = Spread::Elsewhere;
    }

    /// `n` queued requests were taken back.
    pub(super) fn taken_back(&mut self, now: Nanos, n: u32) {
        self.advance(now);
        self.outstanding = self.outstanding.saturating_sub(n);
    }

    /// A request went out at this cost.
    #[inline]
    pub(super) fn dispatched(&mut self, now: Nanos, cost: u64, beside: Beside) {
        self.advance(now);
        self.in_flight = self.in_flight.saturating_add(1);
        self.dispatched = self.dispatched.saturating_add(1);
        self.cost = self.cost.saturating_add(cost);
        self.counted = self.counted.saturating_add(beside.own.as_millionths());
        self.company = self.company.saturating_add(beside.work.as_millionths() / MILLIONTHS);
        self.crowd = self.crowd.saturating_add(beside.requests.into());
    }

    #[inline]
    pub(super) fn completed(&mut self, now: Nanos) {
        self.advance(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.outstanding = self.outstanding.saturating_sub(1);
        self.emptied = now;
    }

    /// The window is another one, of which the times until now say nothing.
    pub(super) fn window_is(&mut self, now: Nanos, window: WorkWindow) {
        self.begin(now);
        self.window = window;
        if let Some(latencies) = &mut self.latencies {
            latencies.window_is(now, window);
        }
    }

    /// Takes the times anew that the reservation is judged by.
    fn begin(&mut self, now: Nanos) {
        self.advance(now);
        let flown = self.flown();
        if let Some(latencies) = &mut self.latencies {
            latencies.note(flown);
        }
        self.since = self.seen;
        (self.outstanding_time, self.flight_time) = (0, 0);
        (self.cost, self.counted, self.company, self.crowd) = (0, 0, 0, 0);
        self.dispatched = 0;
        self.peak = self.outstanding;
    }

    /// What its requests did in the window since then.
    fn flown(&self) -> Flown {
        Flown {
            elapsed: self.seen.since(self.since).0,
            time: self.flight_time,
            company: self.company,
            crowd: self.crowd,
            counted: self.counted,
            requests: self.dispatched,
            peak: self.peak,
        }
    }

    /// A read or write completed that waited in the queue and then took so long.
    #[inline]
    pub(super) fn measured(&mut self, now: Nanos, waited: Nanos, device: Nanos) {
        if let Some(latencies) = &mut self.latencies {
            latencies.measured(now, waited, device);
        }
    }

    /// Whether the disk has a latency target.
    pub(super) fn has_target(&self) -> bool {
        self.latencies.is_some()
    }

    /// How it stands to its latency target.
    pub(super) fn standing(&self) -> Option<LatencyStanding> {
        self.latencies.as_ref()?.standing()
    }

    /// The window is as wide as it was given: what it was like narrowed is of no use.
    pub(super) fn forget_before(&mut self) {
        self.trial.forget_before();
        if let Some(latencies) = &mut self.latencies {
            latencies.forget_before();
        }
    }

    /// The depth that the disk would have needed when it was given up, while it is left alone.
    pub(super) fn needed(&self, now: Nanos) -> Option<u32> {
        self.trial.rests(now).then_some(self.needed)
    }

    /// Whether it misses its latency target, and is not left alone.
    pub(super) fn is_tried(&self, now: Nanos) -> bool {
        self.latencies.as_ref().is_some_and(|latencies| latencies.is_tried(now))
    }

    /// Whether it met its latency target only once since it last missed it.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.latencies.as_ref().is_some_and(|latencies| latencies.fit().is_in_doubt())
    }

    /// Whether it misses it in the window as it is now.
    pub(super) fn misses_target_now(&self) -> bool {
        self.latencies.as_ref().is_some_and(|latencies| latencies.misses_now())
    }

    /// The window that both its promises need; `None` where neither needs one.
    pub(super) fn fitting(&self) -> Option<WorkWindow> {
        let target = self.latencies.as_ref().and_then(|latencies| latencies.fit().window());
        [self.fit.window(), target].into_iter().flatten().reduce(WorkWindow::min)
    }

    /// Leaves its latency target alone for a while.
    pub(super) fn give_up_target(&mut self, now: Nanos) {
        if let Some(latencies) = &mut self.latencies {
            latencies.give_up(now);
        }
    }

    /// Whether its requests wait in the queue rather than in the window.
    fn is_deep(&self) -> bool {
        let waited = self.outstanding_time - self.flight_time.min(self.outstanding_time);
        waited / 2 > self.flight_time
    }

    /// What the disk needs of the storage per second for its reservation: all that is reserved
    /// where it waits in the queue, and else what it got and a tenth more.
    pub(super) fn claim(&mut self, now: Nanos) -> Cost {
        self.advance(now);
        let elapsed = self.seen.since(self.since);
        if self.outstanding == 0 && self.dispatched == 0 || self.spread == Spread::Elsewhere {
            return Cost::default();
        }
        let reserved = Cost::from_ios(self.rate);
        if self.is_deep() || elapsed < PERIOD {
            return reserved;
        }
        let got = u128::from(self.cost) * 1_100_000_000 / u128::from(elapsed.0.max(1));
        reserved.min(Cost::from_millionths(u64::try_from(got).unwrap_or(u64::MAX)))
    }

    /// Ends the period of its latencies if there is enough to judge them by.
    pub(super) fn judge_latency(&mut self, now: Nanos, permission: Permission) -> Judgement {
        self.advance(now);
        let flown = self.flown();
        let Some(latencies) = &mut self.latencies else { return Judgement::None };
        latencies.judge(now, flown, permission)
    }

    /// Ends the period of its reservation if there is enough to judge it by.
    pub(super) fn judge(&mut self, now: Nanos) -> Judgement {
        self.advance(now);
        if self.outstanding == 0 && now.since(self.emptied) >= PERIOD {
            self.last = Judgement::None;
            return self.last;
        }
        let elapsed = self.seen.since(self.since);
        if self.dispatched < ENOUGH && elapsed < LONGEST {
            return self.last;
        }
        let judgement = self.judged(now, elapsed.0.max(1));
        self.begin(now);
        match judgement {
            Judgement::Kept | Judgement::Roomy(_) => self.fit.is_kept(self.window),
            Judgement::Short(wanted) => self.fit.is_short(wanted),
            Judgement::None | Judgement::Useless | Judgement::GivenUp => self.fit.forget(),
            Judgement::Pending | Judgement::Starved => self.fit.is_pending(),
        }
        self.last = match judgement {
            Judgement::Kept | Judgement::Short(_) | Judgement::Roomy(_) => Judgement::Pending,
            _ => Judgement::None,
        };
        judgement
    }

    fn judged(&mut self, now: Nanos, elapsed: u64) -> Judgement {
        if self.trial.rests(now) || self.spread == Spread::Elsewhere {
            return Judgement::None;
        }
        let peak = u64::from(self.peak).saturating_mul(elapsed).max(1);
        if self.dispatched == 0 || part(self.outstanding_time, peak) < STEADY * WHOLE / 100 {
            return Judgement::None;
        }
        // Thousandths of the reservation.
        let got = u128::from(self.cost) * 1_000_000_000 * u128::from(WHOLE)
            / (u128::from(elapsed) * u128::from(self.rate) * 1_000_000);
        let got = u64::try_from(got).unwrap_or(u64::MAX);
        // How long it waits in the window is not what its rate depends on.
        let is_deep = self.is_deep();
        if got >= SHORT {
            self.trial.succeed();
            return if is_deep {
                Judgement::None
            } else if got < ROOMY {
                Judgement::Kept
            } else {
                Judgement::Roomy(got.min(GROWTH))
            };
        }
        if is_deep {
            // A period holds whole requests, and one of them may be its neighbour's.
            let with_one_more = got.saturating_add(got / u64::from(self.dispatched));
            return if with_one_more < SHORT { Judgement::Starved } else { Judgement::None };
        }
        let missing = WHOLE - part(got, AIM).min(WHOLE);
        let flight = self.flown().flight();
        let hope = if got < HOPELESS { Hope::Little } else { Hope::Some };
        match self.trial.tried(now, flight, hope) {
            Outcome::Open => {}
            Outcome::Wait => return Judgement::Kept,
            Outcome::Prove => return Judgement::Pending,
            Outcome::Useless => return Judgement::Useless,
            Outcome::GivenUp => {
                let needed = u64::from(self.peak).saturating_mul(WHOLE).div_ceil(got.max(1));
                self.needed = u32::try_from(needed).unwrap_or(u32::MAX);
                return Judgement::GivenUp;
            }
        }
        // Its own requests are not what it waits for.
        let others = flight.company.saturating_sub(self.flown().in_flight());
        if others < WHOLE / 2 || flight.company <= flight.own {
            return Judgement::Kept;
        }
        let cut = u128::from(missing) * u128::from(peak) / u128::from(self.flight_time.max(1));
        let rest = WHOLE.saturating_sub(u64::try_from(cut).unwrap_or(u64::MAX));
        let own = Cost::from_millionths(flight.own.saturating_mul(MILLIONTHS));
        let least = WorkWindow { requests: Slots::whole(self.peak), work: own, most: own };
        Judgement::Short(flight.kept(rest).max(least))
    }
}
