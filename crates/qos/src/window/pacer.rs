use super::in_flight::InFlight;
use super::slots::{MILLION, Slots};
use super::work::WorkWindow;
use crate::cost::Cost;
use headgate_units::Nanos;

/// Excess in flight is remembered for so long: after a request that hung, pacing goes on at once.
const MEMORY: i64 = 1_000_000_000 * MILLION as i64;

/// Keeps requests in flight, and their work, within a window that need not be whole.
///
/// A request may go while less work is in flight than the window holds, whatever it costs itself.
/// One in flight counts for no more than [`WorkWindow::most`], about half of the window: two large
/// ones fill it, and beside one there is room for others. Nobody asks what comes next: the order is
/// the scheduler's.
///
/// A window of 2.25 lets two requests out at any time, and a third a quarter of the time: while
/// three are in flight a debt grows by 0.75 slots per nanosecond, while two are it falls by 0.25,
/// and the third goes when there is none. A window of 0.5 lets one request out and then nothing for
/// as long as that one took. So the mean number in flight is the window, as long as there are
/// requests enough; what is not used is not saved up.
///
/// What is in flight counts for what it was charged when it went out. With nothing in flight the
/// work is zero, whatever the caller said that ended.
///
/// Integers throughout, O(1) per call but for changes of the window. The debt is at most one slot
/// for a second.
#[derive(Clone, Debug)]
pub struct Pacer {
    window: WorkWindow,
    /// Whole slots of the window.
    whole: u32,
    in_flight: InFlight,
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
    pub fn new(now: Nanos, window: WorkWindow) -> Pacer {
        let whole = window.requests.floor();
        Pacer { window, whole, in_flight: InFlight::new(window.most), debt: 0, seen: now }
    }

    /// The window.
    pub fn window(&self) -> WorkWindow {
        self.window
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.requests()
    }

    /// What the requests in flight cost together, where none counts for more than
    /// [`WorkWindow::most`].
    pub fn work(&self) -> Cost {
        self.in_flight.counted()
    }

    /// What a request of this cost counts for.
    #[inline]
    pub fn counts(&self, cost: Cost) -> Cost {
        self.in_flight.counts(cost)
    }

    /// Changes the window. What is in flight stays so.
    pub fn set_window(&mut self, now: Nanos, window: WorkWindow) {
        self.advance(now);
        self.window = window;
        self.whole = window.requests.floor();
        self.in_flight.set_most(window.most);
    }

    /// By how much what is in flight exceeds the window, in millionths, between one slot less and
    /// one slot more.
    fn excess(&self) -> i64 {
        let in_flight = i64::from(self.in_flight.requests()) * MILLION as i64;
        let window = i64::try_from(self.window.requests.as_millionths()).unwrap_or(i64::MAX);
        in_flight.saturating_sub(window).clamp(-(MILLION as i64), MILLION as i64)
    }

    fn advance(&mut self, now: Nanos) {
        let passed = now.since(self.seen).0.min(4_000_000_000_000) as i64;
        self.seen = self.seen.max(now);
        // Below 2^20 and 2^42.
        self.debt = (self.debt + self.excess() * passed).clamp(0, MEMORY);
    }

    /// A request of this cost went out.
    #[inline]
    pub fn dispatched(&mut self, now: Nanos, cost: Cost) {
        if self.debt != 0 || self.in_flight.requests() >= self.whole {
            self.advance(now);
        }
        self.in_flight.add(cost);
    }

    /// A request came back that went out at this cost.
    #[inline]
    pub fn completed(&mut self, now: Nanos, cost: Cost) {
        if self.debt != 0 || self.in_flight.requests() > self.whole {
            self.advance(now);
        }
        self.in_flight.remove(cost);
    }

    /// Whether another request may go out. Holds until the next call of any other method, or until
    /// the instant it names.
    #[inline]
    pub fn admit(&mut self, now: Nanos) -> Admission {
        let requests = self.in_flight.requests();
        if self.in_flight.counted() >= self.window.work && requests > 0 {
            return Admission::None;
        }
        if requests < self.whole {
            return Admission::Now;
        }
        if requests > self.whole || self.window.requests == Slots::whole(self.whole) {
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
    use super::super::in_flight::bound;
    use super::*;
    use proptest::prelude::*;

    /// Windows in which every request costs one.
    fn window(requests: u64) -> WorkWindow {
        WorkWindow::new(Slots::from_millionths(requests), Cost::ONE)
    }

    /// The definition: a list of what is in flight, and a debt that grows and falls with every
    /// nanosecond, whatever that is.
    struct Definition {
        window: WorkWindow,
        in_flight: Vec<Cost>,
        debt: i64,
    }

    impl Definition {
        fn excess(&self) -> i64 {
            let million = MILLION as i64;
            let requests = self.in_flight.len() as i64 * million;
            (requests - self.window.requests.as_millionths() as i64).clamp(-million, million)
        }

        fn pass(&mut self, nanos: u64) {
            for _ in 0..nanos {
                self.debt = (self.debt + self.excess()).max(0);
            }
        }

        fn work(&self) -> u128 {
            let most = bound(self.window.most);
            self.in_flight.iter().map(|&cost| u128::from(cost.min(most).as_millionths())).sum()
        }

        fn admission(&self, now: Nanos) -> Admission {
            let work = self.work();
            if !self.in_flight.is_empty() && work >= u128::from(self.window.work.as_millionths()) {
                return Admission::None;
            }
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

    /// Nothing, what is usual, the dearest, and more than there is.
    fn cost() -> impl Strategy<Value = Cost> {
        prop_oneof![
            1 => Just(0),
            8 => 62_500u64..5_000_000,
            4 => 5_000_000u64..300_000_000,
            2 => Just(Cost::MAX.as_millionths()),
            1 => Just(u64::MAX / 128),
        ]
        .prop_map(Cost::from_millionths)
    }

    fn size() -> impl Strategy<Value = WorkWindow> {
        let requests = prop::sample::select(vec![
            0u64, 250_000, 999_999, 1_000_000, 1_000_001, 1_500_000, 2_000_000, 3_700_000,
            9_000_000,
        ]);
        let each = prop::sample::select(vec![0u64, 500_000, 1_000_000, 4_413_333, 219_000_000]);
        (requests, each).prop_map(|(requests, each)| {
            WorkWindow::new(Slots::from_millionths(requests), Cost::from_millionths(each))
        })
    }

    proptest! {
        /// Whoever sends whatever, in whatever window, and ends it in whatever order: also where
        /// more goes out than is admitted.
        #[test]
        fn what_may_go_is_the_definition(
            steps in prop::collection::vec((0u64..300, 0u32..6, size(), cost(), any::<usize>()), 1..100)
        ) {
            let mut now = Nanos::ZERO;
            let mut pacer = Pacer::new(now, window(MILLION));
            let mut definition =
                Definition { window: window(MILLION), in_flight: Vec::new(), debt: 0 };
            for (passed, event, size, cost, which) in steps {
                now += Nanos(passed);
                definition.pass(passed);
                match event {
                    0 if !definition.in_flight.is_empty() => {
                        let which = which % definition.in_flight.len();
                        pacer.completed(now, definition.in_flight.swap_remove(which));
                    }
                    1 => {
                        pacer.set_window(now, size);
                        definition.window = size;
                    }
                    2 => {
                        pacer.dispatched(now, cost);
                        definition.in_flight.push(cost);
                    }
                    _ => {
                        let admission = definition.admission(now);
                        prop_assert_eq!(pacer.admit(now), admission);
                        if admission == Admission::Now {
                            pacer.dispatched(now, cost);
                            definition.in_flight.push(cost);
                        }
                    }
                }
                prop_assert_eq!(u128::from(pacer.work().as_millionths()), definition.work());
                prop_assert_eq!(pacer.in_flight() as usize, definition.in_flight.len());
            }
            for cost in definition.in_flight {
                pacer.completed(now, cost);
            }
            prop_assert_eq!((pacer.in_flight(), pacer.work()), (0, Cost::default()));
        }
    }

    /// So many requests that go one after another until no more may.
    fn fills(window: WorkWindow, costs: impl Iterator<Item = Cost>) -> u32 {
        let mut pacer = Pacer::new(Nanos(5), window);
        for cost in costs.take(100) {
            if pacer.admit(Nanos(5)) != Admission::Now {
                break;
            }
            pacer.dispatched(Nanos(5), cost);
        }
        pacer.in_flight()
    }

    /// Of 32 requests, each of which may be 1 MiB large.
    #[test]
    fn two_large_requests_fill_a_window_and_one_leaves_room_for_many_small_ones() {
        let kib = |kib: u64| Cost::from_millionths(1_000_000 + kib * 1_000_000 / 300);
        let window = WorkWindow::new(Slots::whole(32), kib(1_024));
        let all = |size| fills(window, core::iter::repeat(kib(size)));
        assert_eq!(
            [4, 256, 1_024, 4_096, 16_384, 65_536, 1 << 22].map(all),
            [32, 32, 32, 10, 3, 2, 2]
        );
        let one = [kib(65_536)].into_iter().chain(core::iter::repeat(kib(4)));
        assert_eq!(fills(window, one), 32);
        let two = [kib(65_536); 2].into_iter().chain(core::iter::repeat(kib(4)));
        assert_eq!(fills(window, two), 2);
        // The smallest windows hold one, whatever it costs.
        assert_eq!(fills(WorkWindow::ONE, core::iter::repeat(kib(65_536))), 1);
    }

    /// What was saturated on the way is not missing afterwards.
    #[test]
    #[cfg_attr(
        debug_assertions,
        should_panic = "what comes back costs what it did when it went out"
    )]
    fn nothing_in_flight_is_no_work_whatever_came_back() {
        let mut pacer = Pacer::new(Nanos(5), window(MILLION));
        pacer.dispatched(Nanos(5), Cost::ONE);
        pacer.completed(Nanos(6), Cost::from_millionths(62_500));
        assert_eq!((pacer.work(), pacer.admit(Nanos(6))), (Cost::default(), Admission::Now));
    }

    #[test]
    fn a_whole_window_needs_no_clock() {
        let mut pacer = Pacer::new(Nanos(5), window(2 * MILLION));
        for _ in 0..2 {
            assert_eq!(pacer.admit(Nanos(5)), Admission::Now);
            pacer.dispatched(Nanos(5), Cost::ONE);
        }
        assert_eq!(pacer.admit(Nanos(5)), Admission::None);
        pacer.completed(Nanos(1_000), Cost::ONE);
        assert_eq!(pacer.admit(Nanos(1_000)), Admission::Now);
        pacer.set_window(Nanos(1_000), window(MILLION));
        assert_eq!(pacer.admit(Nanos(1_000)), Admission::None);
    }

    #[test]
    fn half_a_window_is_a_request_half_of_the_time() {
        let mut pacer = Pacer::new(Nanos::ZERO, window(500_000));
        assert_eq!(pacer.admit(Nanos(0)), Admission::Now);
        pacer.dispatched(Nanos(0), Cost::ONE);
        assert_eq!(pacer.admit(Nanos(10)), Admission::None);
        pacer.completed(Nanos(300), Cost::ONE);
        assert_eq!(pacer.admit(Nanos(300)), Admission::At(Nanos(600)));
        assert_eq!(pacer.admit(Nanos(600)), Admission::Now);
    }

    #[test]
    fn what_hung_is_forgotten_after_a_slot_for_a_second() {
        let mut pacer = Pacer::new(Nanos::ZERO, window(100_000));
        pacer.dispatched(Nanos::ZERO, Cost::ONE);
        pacer.completed(Nanos::from_secs(3_600), Cost::ONE);
        let Admission::At(at) = pacer.admit(Nanos::from_secs(3_600)) else { panic!("no debt") };
        assert_eq!(at - Nanos::from_secs(3_600), Nanos::from_secs(10));
    }

    #[test]
    fn a_clock_that_steps_back_changes_nothing() {
        let mut pacer = Pacer::new(Nanos::from_secs(10), window(1_500_000));
        for _ in 0..2 {
            pacer.dispatched(Nanos::from_secs(10), Cost::ONE);
        }
        pacer.completed(Nanos::from_secs(11), Cost::ONE);
        let Admission::At(at) = pacer.admit(Nanos::from_secs(5)) else { panic!("no debt") };
        assert!(at > Nanos::from_secs(5));
        assert_eq!(pacer.admit(Nanos::from_secs(12)), Admission::Now);
    }
}
