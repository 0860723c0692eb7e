use super::slots::{MILLION, Slots};
use headgate_units::Nanos;

/// Excess in flight is remembered for so long: after a request that hung, pacing goes on at once.
const MEMORY: i64 = 1_000_000_000 * MILLION as i64;

/// Keeps requests in flight within a window that need not be whole.
///
/// A window of 2.25 lets two requests out at any time, and a third a quarter of the time: while
/// three are in flight a debt grows by 0.75 slots per nanosecond, while two are it falls by 0.25,
/// and the third goes when there is none. A window of 0.5 lets one request out and then nothing for
/// as long as that one took. So the mean number in flight is the window, as long as there are
/// requests enough; what is not used is not saved up.
///
/// Integers throughout, O(1) per call. The debt is at most one slot for a second.
#[derive(Clone, Debug)]
pub struct Pacer {
    window: Slots,
    /// Whole slots of the window.
    whole: u32,
    in_flight: u32,
    /// In millionths of a slot, times nanoseconds; never negative.
    debt: i64,
    /// Up to when `debt` is true. Older while nothing is owed and no more than the whole slots of
    /// the window are in flight: nothing becomes due then, and the pacer is no more than a counter.
    seen: Nanos,
}

/// Whether another request may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Now.
    Now,
    /// Then, or when a request completes.
    At(Nanos),
    /// When a request completes.
    None,
}

impl Pacer {
    /// Nothing is in flight.
    pub fn new(now: Nanos, window: Slots) -> Pacer {
        Pacer { window, whole: window.floor(), in_flight: 0, debt: 0, seen: now }
    }

    /// The window.
    pub fn window(&self) -> Slots {
        self.window
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Changes the window. What is in flight stays so.
    pub fn set_window(&mut self, now: Nanos, window: Slots) {
        self.advance(now);
        self.window = window;
        self.whole = window.floor();
    }

    /// By how much what is in flight exceeds the window, in millionths, between one slot less and
    /// one slot more.
    fn excess(&self) -> i64 {
        let in_flight = i64::from(self.in_flight) * MILLION as i64;
        let window = i64::try_from(self.window.as_millionths()).unwrap_or(i64::MAX);
        in_flight.saturating_sub(window).clamp(-(MILLION as i64), MILLION as i64)
    }

    fn advance(&mut self, now: Nanos) {
        let passed = now.since(self.seen).0.min(4_000_000_000_000) as i64;
        self.seen = self.seen.max(now);
        // Below 2^20 and 2^42.
        self.debt = (self.debt + self.excess() * passed).clamp(0, MEMORY);
    }

    /// A request went out.
    #[inline]
    pub fn dispatched(&mut self, now: Nanos) {
        if self.debt != 0 || self.in_flight >= self.whole {
            self.advance(now);
        }
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// A request came back.
    #[inline]
    pub fn completed(&mut self, now: Nanos) {
        if self.debt != 0 || self.in_flight > self.whole {
            self.advance(now);
        }
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Whether another request may go out. Holds until the next call of any other method, or until
    /// the instant it names.
    #[inline]
    pub fn admit(&mut self, now: Nanos) -> Admission {
        if self.in_flight < self.whole {
            return Admission::Now;
        }
        if self.in_flight > self.whole || self.window == Slots::whole(self.whole) {
            return Admission::None;
        }
        if self.debt == 0 {
            return Admission::Now;
        }
        self.advance(now);
        if self.debt == 0 {
            return Admission::Now;
        }
        let repays = self.excess().unsigned_abs();
        Admission::At(now + Nanos(self.debt.unsigned_abs().div_ceil(repays)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: a debt that grows and falls with every nanosecond, whatever is in flight.
    struct Definition {
        window: i64,
        in_flight: i64,
        debt: i64,
    }

    impl Definition {
        fn excess(&self) -> i64 {
            let million = MILLION as i64;
            (self.in_flight * million - self.window).clamp(-million, million)
        }

        fn pass(&mut self, nanos: u64) {
            for _ in 0..nanos {
                self.debt = (self.debt + self.excess()).max(0);
            }
        }

        fn admission(&self, now: Nanos) -> Admission {
            match (self.excess(), self.debt) {
                (0.., _) => Admission::None,
                (excess, _) if excess <= -(MILLION as i64) => Admission::Now,
                (_, 0) => Admission::Now,
                (excess, debt) => {
                    Admission::At(now + Nanos((debt as u64).div_ceil(excess.unsigned_abs())))
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_owed_is_the_definition(
            steps in prop::collection::vec(
                (0u64..300, 0u32..4, prop::sample::select(vec![
                    0u64, 250_000, 999_999, 1_000_000, 1_000_001, 1_500_000, 2_000_000, 3_700_000,
                ])),
                1..100,
            )
        ) {
            let mut now = Nanos::ZERO;
            let mut pacer = Pacer::new(now, Slots::ONE);
            let mut definition = Definition { window: MILLION as i64, in_flight: 0, debt: 0 };
            for (passed, event, window) in steps {
                now += Nanos(passed);
                definition.pass(passed);
                match event {
                    0 if definition.in_flight > 0 => {
                        pacer.completed(now);
                        definition.in_flight -= 1;
                    }
                    1 => {
                        pacer.set_window(now, Slots::from_millionths(window));
                        definition.window = window as i64;
                    }
                    2 => {
                        pacer.dispatched(now);
                        definition.in_flight += 1;
                    }
                    _ => prop_assert_eq!(pacer.admit(now), definition.admission(now)),
                }
            }
        }
    }

    #[test]
    fn a_whole_window_needs_no_clock() {
        let mut pacer = Pacer::new(Nanos(5), Slots::whole(2));
        for _ in 0..2 {
            assert_eq!(pacer.admit(Nanos(5)), Admission::Now);
            pacer.dispatched(Nanos(5));
        }
        assert_eq!(pacer.admit(Nanos(5)), Admission::None);
        pacer.completed(Nanos(1_000));
        assert_eq!(pacer.admit(Nanos(1_000)), Admission::Now);
        pacer.set_window(Nanos(1_000), Slots::ONE);
        assert_eq!(pacer.admit(Nanos(1_000)), Admission::None);
    }

    #[test]
    fn half_a_window_is_a_request_half_of_the_time() {
        let mut pacer = Pacer::new(Nanos::ZERO, Slots::from_millionths(500_000));
        assert_eq!(pacer.admit(Nanos(0)), Admission::Now);
        pacer.dispatched(Nanos(0));
        assert_eq!(pacer.admit(Nanos(10)), Admission::None);
        pacer.completed(Nanos(300));
        assert_eq!(pacer.admit(Nanos(300)), Admission::At(Nanos(600)));
        assert_eq!(pacer.admit(Nanos(600)), Admission::Now);
    }

    #[test]
    fn what_hung_is_forgotten_after_a_slot_for_a_second() {
        let mut pacer = Pacer::new(Nanos::ZERO, Slots::from_millionths(100_000));
        pacer.dispatched(Nanos::ZERO);
        pacer.completed(Nanos::from_secs(3_600));
        let Admission::At(at) = pacer.admit(Nanos::from_secs(3_600)) else { panic!("no debt") };
        assert_eq!(at - Nanos::from_secs(3_600), Nanos::from_secs(10));
    }

    #[test]
    fn a_clock_that_steps_back_changes_nothing() {
        let mut pacer = Pacer::new(Nanos::from_secs(10), Slots::from_millionths(1_500_000));
        for _ in 0..2 {
            pacer.dispatched(Nanos::from_secs(10));
        }
        pacer.completed(Nanos::from_secs(11));
        let Admission::At(at) = pacer.admit(Nanos::from_secs(5)) else { panic!("no debt") };
        assert!(at > Nanos::from_secs(5));
        assert_eq!(pacer.admit(Nanos::from_secs(12)), Admission::Now);
    }
}
