//! The latencies of one disk against its target.

use super::bounds::{GROWTH, WHOLE, part};
use super::fit::Fit;
use super::judgement::{Judgement, Permission};
use super::standing::{LatencyStanding, LatencyVerdict};
use super::trial::{Flight, Flown, Hope, Outcome, Trial};
use crate::window::WorkWindow;
use headgate_units::{LatencyTarget, Nanos};

/// Latencies are counted by bins: eight for each power of two, up to 1,024 times the target.
const BINS: usize = 112;

/// The latency of the target in the scale of [`bin`].
const AT_TARGET: u64 = 64;

/// The longest latency on that scale.
const SCALE_MAX: u64 = 65_535;

/// A disk is judged after as many requests as let so many be late,
const ENOUGH_LATE: u64 = 4;

/// but after so many at least,
const ENOUGH: u64 = 32;

/// or after so long, with what there is,
const LONGEST: Nanos = Nanos::from_secs(10);

/// or when clearly more are late than may be: this many times as many, and [`ENOUGH_LATE`].
const CLEARLY: u64 = 3;

/// The window is aimed at so many thousandths of the target, as latencies vary.
const AIM: u64 = 850;

/// Below so many thousandths of the target the window may grow,
const ROOM: u64 = 850;

/// and below so many it may grow fast.
const ROOMY: u64 = 700;

/// Windows that differ by no more than so many thousandths count as one.
const ALIKE: u64 = 100;

/// A disk that misses its target so often in a row behind a window of less than half is given up.
const MISSES: u32 = 8;

/// What the requests of a disk took since its times were last taken.
#[derive(Clone)]
pub(super) struct Latencies {
    target: LatencyTarget,
    /// What came of narrowing the window for it.
    trial: Trial,
    /// How often in a row it was missed behind a narrow window.
    missed: u32,
    since: Nanos,
    /// What its requests did in the window since then, up to when the disk's other times were last
    /// taken.
    flown: Flown,
    /// The window when that was, and as it is now.
    began_in: WorkWindow,
    window: WorkWindow,
    fit: Fit,
    bins: [u32; BINS],
    requests: u64,
    /// Those that took longer than the target, and what they waited in the queue and took in all,
    /// in nanoseconds.
    late: u64,
    late_waited: u64,
    late_took: u64,
    /// What it says until there is enough to judge it by again.
    last: Judgement,
    standing: Option<LatencyStanding>,
}

impl Latencies {
    /// In a window of this size.
    pub(super) fn new(now: Nanos, target: LatencyTarget, window: WorkWindow) -> Latencies {
        Latencies {
            target,
            trial: Trial::new(),
            missed: 0,
            since: now,
            flown: Flown::default(),
            began_in: window,
            window,
            fit: Fit::default(),
            bins: [0; BINS],
            requests: 0,
            late: 0,
            late_waited: 0,
            late_took: 0,
            last: Judgement::None,
            standing: None,
        }
    }

    /// Another policy for the same disk.
    pub(super) fn adopt(&mut self, old: &Latencies) {
        if old.target == self.target {
            self.standing = old.standing;
        }
    }

    /// A read or write waited in the queue, and then took so long.
    #[inline]
    pub(super) fn measured(&mut self, now: Nanos, waited: Nanos, device: Nanos) {
        // It went out into another window.
        if now - device < self.since {
            return;
        }
        let took = waited.0.saturating_add(device.0);
        self.requests += 1;
        let bin = &mut self.bins[bin(took, self.target)];
        *bin = bin.saturating_add(1);
        if took > self.target.latency().0 {
            self.late += 1;
            self.late_waited = self.late_waited.saturating_add(waited.0);
            self.late_took = self.late_took.saturating_add(took);
        }
    }

    /// What the disk's requests did until its other times are taken anew.
    pub(super) fn note(&mut self, flown: Flown) {
        self.flown = self.flown.and(flown);
    }

    /// The window is another one. Times in a window that was much wider or narrower say nothing of
    /// this one. A reservation may have it grow a little each period, and the target is judged all
    /// the same.
    pub(super) fn window_is(&mut self, now: Nanos, window: WorkWindow) {
        self.window = window;
        let before = self.began_in;
        let requests = part(window.requests.as_millionths(), before.requests.as_millionths());
        let work = part(window.work.as_millionths(), before.work.as_millionths());
        if requests.abs_diff(WHOLE) > ALIKE || work.abs_diff(WHOLE) > ALIKE {
            self.restart(now);
        }
    }

    /// Takes the times anew.
    fn restart(&mut self, now: Nanos) {
        (self.since, self.flown, self.began_in) = (now, Flown::default(), self.window);
        self.bins = [0; BINS];
        (self.requests, self.late) = (0, 0);
        (self.late_waited, self.late_took) = (0, 0);
    }

    /// The window is as wide as it was given: what it was like narrowed is of no use.
    pub(super) fn forget_before(&mut self) {
        self.trial.forget_before();
    }

    /// Whether the target was last judged to be missed, and the disk is not left alone.
    pub(super) fn is_tried(&self, now: Nanos) -> bool {
        let misses = self.standing.is_some_and(|standing| standing.verdict != LatencyVerdict::Met);
        misses && !self.trial.rests(now)
    }

    /// Whether it is missed by what the requests took since the window is what it is.
    pub(super) fn misses_now(&self) -> bool {
        self.late > self.may_be_late(self.requests)
    }

    /// The window that suits the target.
    pub(super) fn fit(&self) -> &Fit {
        &self.fit
    }

    /// It costs others too much to go on trying.
    pub(super) fn give_up(&mut self, now: Nanos) {
        self.missed = 0;
        self.trial.give_up(now);
        self.fit.forget();
        self.last = Judgement::None;
        if let Some(standing) = &mut self.standing {
            standing.verdict = LatencyVerdict::Storage;
        }
    }

    /// How the disk stood when it was last judged.
    pub(super) fn standing(&self) -> Option<LatencyStanding> {
        self.standing
    }

    /// Of so many requests, how many may be late.
    fn may_be_late(&self, requests: u64) -> u64 {
        (requests * u64::from(1_000 - self.target.quantile())).div_ceil(1_000)
    }

    fn is_enough(&self, now: Nanos) -> bool {
        let allowed = u64::from(1_000 - self.target.quantile());
        let enough = (ENOUGH_LATE * 1_000 / allowed).max(ENOUGH);
        self.requests >= enough
            || (self.requests > 0 && now.since(self.since) >= LONGEST)
            || (self.requests >= ENOUGH
                && self.late >= ENOUGH_LATE + CLEARLY * self.may_be_late(self.requests))
    }

    /// Ends the disk's period if there is enough to judge it by. What its requests did in the
    /// window is up to now.
    pub(super) fn judge(&mut self, now: Nanos, flown: Flown, permission: Permission) -> Judgement {
        if !self.is_enough(now) {
            if self.requests == 0 && now.since(self.since) >= LONGEST {
                // It asks for nothing.
                (self.last, self.standing) = (Judgement::None, None);
                self.restart(now);
            }
            return self.last;
        }
        let latency = self.latency_at_quantile();
        let flown = self.flown.and(flown);
        let (verdict, judgement) = self.judged(now, latency, flown, permission);
        let standing = LatencyStanding {
            target: self.target,
            requests: self.requests,
            late: self.late,
            latency: Nanos(latency),
            verdict,
        };
        self.standing = Some(standing);
        match (verdict, judgement) {
            (LatencyVerdict::Met, _) => self.fit.is_kept(self.began_in),
            (_, Judgement::Short(wanted)) => self.fit.is_short(wanted),
            (_, Judgement::None | Judgement::Useless | Judgement::GivenUp) => self.fit.forget(),
            // Among them a burst, which says nothing of the window.
            _ => self.fit.is_pending(),
        }
        self.restart(now);
        self.last = match judgement {
            Judgement::Pending | Judgement::Kept | Judgement::Short(_) | Judgement::Roomy(_) => {
                Judgement::Pending
            }
            _ => Judgement::None,
        };
        judgement
    }

    fn judged(
        &mut self,
        now: Nanos,
        latency: u64,
        flown: Flown,
        permission: Permission,
    ) -> (LatencyVerdict, Judgement) {
        let target = self.target.latency().0;
        if self.late <= self.may_be_late(self.requests) {
            self.trial.succeed();
            self.missed = 0;
            let reached = part(latency, target).max(1);
            let judgement = match reached {
                ..ROOMY => Judgement::Roomy((WHOLE * WHOLE / reached).min(GROWTH)),
                ROOMY..ROOM => Judgement::Kept,
                _ => Judgement::Pending,
            };
            return (LatencyVerdict::Met, judgement);
        }
        // Its own requests go first wherever they wait, so no depth of its own bounds the window.
        let flight = Flight { own: WHOLE, ..flown.flight() };
        if self.trial.is_halved(flight.company) {
            self.missed += 1;
            if self.missed >= MISSES {
                self.missed = 0;
                self.trial.give_up(now);
                return (LatencyVerdict::Storage, Judgement::GivenUp);
            }
        }
        if self.late_waited > self.late_took / 2 {
            // A wider window does no harm then, but a burst is no reason to open it at once.
            return (LatencyVerdict::Queue, Judgement::Roomy(GROWTH));
        }
        let others = flight.company.saturating_sub(flown.in_flight());
        if others < WHOLE / 2 {
            return (LatencyVerdict::Alone, Judgement::Kept);
        }
        if permission == Permission::LeaveAlone {
            return (LatencyVerdict::Window, Judgement::None);
        }
        if self.trial.rests(now) {
            return (LatencyVerdict::Storage, Judgement::None);
        }
        // What becomes shorter has to be what the target is for. Stalls are as long as before, when
        // the mean has become a tenth.
        let waited = self.late_waited / self.late.max(1);
        let in_window = latency.saturating_sub(waited);
        let time = in_window.saturating_mul(flight.requests.into());
        match self.trial.tried(now, Flight { time, ..flight }, Hope::Some) {
            Outcome::Open => {}
            Outcome::Wait | Outcome::Prove => return (LatencyVerdict::Window, Judgement::Pending),
            Outcome::Useless => return (LatencyVerdict::Storage, Judgement::Useless),
            Outcome::GivenUp => return (LatencyVerdict::Storage, Judgement::GivenUp),
        }
        // The time in the window is proportional to what is in it, and the wait before it is not.
        let aim = (target / WHOLE * AIM).saturating_sub(waited);
        let kept = part(aim, latency.saturating_sub(waited)).min(WHOLE);
        (LatencyVerdict::Window, Judgement::Short(flight.kept(kept).max(WorkWindow::ONE)))
    }

    /// The latency that as many requests as the target says do not exceed, in nanoseconds: exact to
    /// an eighth, rounded up.
    fn latency_at_quantile(&self) -> u64 {
        let within = self.requests - self.may_be_late(self.requests).min(self.requests);
        let mut counted = 0;
        let found = self.bins.iter().position(|&bin| {
            counted += u64::from(bin);
            counted >= within.max(1)
        });
        let end = u128::from(end(found.unwrap_or(BINS - 1)));
        let latency = u128::from(self.target.latency().0) * end / u128::from(AT_TARGET);
        u64::try_from(latency).unwrap_or(u64::MAX)
    }
}

/// The bin of a latency: one each for up to 7/64 of the target, then eight for each power of two.
#[inline]
fn bin(latency: u64, target: LatencyTarget) -> usize {
    let scaled = u128::from(latency) * u128::from(AT_TARGET) / u128::from(target.latency().0);
    let scaled = u64::try_from(scaled).unwrap_or(u64::MAX).min(SCALE_MAX);
    match scaled {
        0..8 => scaled as usize,
        _ => {
            let exponent = scaled.ilog2();
            let eighths = (scaled >> (exponent - 3)) & 7;
            (exponent as usize - 2) * 8 + eighths as usize
        }
    }
}

/// Where a bin ends, on the scale of [`bin`].
fn end(bin: usize) -> u64 {
    let next = bin as u64 + 1;
    match next {
        0..8 => next,
        _ => (8 + next % 8) << (next / 8 - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use crate::window::Slots;
    use proptest::prelude::*;

    fn window(requests: u32) -> WorkWindow {
        WorkWindow::new(Slots::whole(requests), Cost::ONE)
    }

    fn nine() -> WorkWindow {
        window(9)
    }

    fn target() -> LatencyTarget {
        LatencyTarget::new(990, Nanos::from_millis(5)).unwrap()
    }

    proptest! {
        /// A bin holds what lies between the end of the one before and its own.
        #[test]
        fn bins_are_in_order_and_an_eighth_wide(micros in 1u64..79_000) {
            let at = bin(micros * 1_000, target());
            let scaled = micros * AT_TARGET / 5_000;
            prop_assert!(scaled < end(at));
            prop_assert!(at == 0 || scaled >= end(at - 1));
            prop_assert!(scaled < 8 || (end(at) - end(at - 1)) * 8 <= end(at - 1));
        }

        /// Never below the true quantile, and no more than an eighth and a sixty-fourth of the
        /// target above it.
        #[test]
        fn the_quantile_is_that_of_the_list(
            mut micros in prop::collection::vec(1u64..70_000, 1..600),
            quantile in 500u16..=999,
        ) {
            let target = LatencyTarget::new(quantile, Nanos::from_millis(5)).unwrap();
            let mut latencies = Latencies::new(Nanos::ZERO, target, nine());
            let now = Nanos::from_secs(5);
            for &took in &micros {
                latencies.measured(now, Nanos::from_micros(took / 3), Nanos::from_micros(took - took / 3));
            }
            micros.sort_unstable();
            // The least that leaves no more late than may be.
            let may = (micros.len() * usize::from(1_000 - quantile)).div_ceil(1_000);
            let exact = 1_000 * micros[(micros.len() - may).max(1) - 1];
            let found = latencies.latency_at_quantile();
            prop_assert!(found >= exact, "{found} of {exact}");
            prop_assert!(found <= exact + exact / 8 + 5_000_000 / 64 + 1, "{found} of {exact}");
            let late = micros.iter().filter(|&&took| took > 5_000).count();
            prop_assert_eq!(latencies.late, late as u64);
        }
    }

    #[test]
    fn a_request_of_another_window_does_not_count() {
        let mut latencies = Latencies::new(Nanos::ZERO, target(), nine());
        latencies.window_is(Nanos::from_millis(100), window(8));
        let (now, wait) = (Nanos::from_millis(110), Nanos::from_millis(50));
        latencies.measured(now, wait, Nanos::from_millis(11));
        assert_eq!(latencies.requests, 0);
        latencies.measured(now, wait, Nanos::from_millis(10));
        assert_eq!((latencies.requests, latencies.late), (1, 1));
    }

    /// Beside others' requests, so many of the window.
    fn beside(in_flight: u64) -> Flown {
        Flown {
            elapsed: 1_000,
            time: 1_000,
            company: in_flight * 400 * WHOLE,
            crowd: in_flight * 400,
            counted: 400 * Cost::ONE.as_millionths(),
            requests: 400,
            peak: 1,
        }
    }

    /// 400 requests, so many of which are late: they waited so long, the others did not.
    fn judged(
        latencies: &mut Latencies,
        late: usize,
        waited: Nanos,
        flown: Flown,
        permission: Permission,
    ) -> (LatencyVerdict, Judgement) {
        let now = latencies.since + Nanos::from_secs(1);
        for n in 0..400 {
            let took = Nanos::from_millis(if n < late { 6 } else { 5 });
            let waited = if n < late { waited } else { Nanos::ZERO };
            latencies.measured(now, waited, took - waited);
        }
        let judgement = latencies.judge(now, flown, permission);
        let standing = latencies.standing().unwrap();
        assert_eq!((standing.requests, standing.late), (400, late as u64));
        (standing.verdict, judgement)
    }

    /// 1 % of 400 is four: as many may be late, and not one more.
    #[test]
    fn as_many_are_late_as_the_target_allows() {
        for (late, verdict) in [(4, LatencyVerdict::Met), (5, LatencyVerdict::Window)] {
            let mut latencies = Latencies::new(Nanos::ZERO, target(), nine());
            let (found, _) =
                judged(&mut latencies, late, Nanos::ZERO, beside(9), Permission::Narrow);
            assert_eq!(found, verdict, "{late} late");
        }
    }

    #[test]
    fn who_waits_in_the_queue_has_the_window_grow() {
        let mut latencies = Latencies::new(Nanos::ZERO, target(), nine());
        let waited = Nanos::from_millis(4);
        let judgement = judged(&mut latencies, 50, waited, beside(9), Permission::Narrow);
        assert_eq!(judgement, (LatencyVerdict::Queue, Judgement::Roomy(GROWTH)));
    }

    /// 9 requests, 2 ms of queue and 6.25 ms in all, which is where the bin of 6 ms ends, of 5 ms:
    /// 9·(4.25 - 2)/(6.25 - 2).
    #[test]
    fn what_is_waited_in_the_queue_is_no_time_of_the_window() {
        let mut latencies = Latencies::new(Nanos::ZERO, target(), nine());
        let waited = Nanos::from_millis(2);
        let (verdict, judgement) =
            judged(&mut latencies, 50, waited, beside(9), Permission::Narrow);
        assert_eq!(verdict, LatencyVerdict::Window);
        let Judgement::Short(wanted) = judgement else { panic!("{judgement:?}") };
        assert!((4.74..4.77).contains(&wanted.requests.as_f64()), "{wanted:?}");
        assert_eq!(wanted.work.as_millionths(), wanted.requests.as_millionths());
    }

    /// A window that nobody narrowed, and that holds less by the time, has not been tried.
    #[test]
    fn a_window_that_is_left_alone_is_no_trial() {
        let mut latencies = Latencies::new(Nanos::ZERO, target(), nine());
        for in_flight in [32, 16, 8, 4, 3, 2, 2, 2, 2, 2, 2, 2] {
            let (verdict, judgement) =
                judged(&mut latencies, 300, Nanos::ZERO, beside(in_flight), Permission::LeaveAlone);
            assert_eq!((verdict, judgement), (LatencyVerdict::Window, Judgement::None));
        }
    }
}
