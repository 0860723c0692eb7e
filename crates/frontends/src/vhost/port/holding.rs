//! Keeping some answers back from a driver that is being woken.
//!
//! A driver that was called takes as long to wake up as its requests took to serve. If it then
//! finds all of its answers it offers as many requests again, at once, and sleeps until they are
//! served: it and the device work in turns. If it finds half of them, the others can be given the
//! moment that it shows itself, and it goes on with them while its new requests are served.
//!
//! The driver shows itself by offering, which is what this is for, or by asking to be called again.
//! Those that do the latter first (an interrupt handler that ends before the application runs)
//! would only be called twice; they are left alone, for longer every time.

/// With fewer requests in flight there is nothing to divide.
const FEWEST: usize = 4;
/// Calls for which nothing is kept back from a driver that asked to be called before it offered,
/// the first time and at most.
const PAUSE_MIN: u32 = 256;
const PAUSE_MAX: u32 = 65_536;

/// What a driver that was called did first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// It offered requests.
    Offers,
    /// It asked to be called for the answers that were kept back.
    Waits,
}

/// Whether the driver is to be called for the next answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// It is; it sleeps, or is about to.
    Armed,
    /// It looks itself.
    Awake,
}

/// Decides how many answers of one ring are given back. O(1).
#[derive(Debug)]
pub(super) struct Holding {
    /// It has been called and has not shown itself since; so many answers more may be given.
    called: Option<usize>,
    /// Calls left for which nothing is kept back.
    paused: u32,
    next_pause: u32,
}

impl Holding {
    pub(super) fn new() -> Holding {
        Holding { called: None, paused: 0, next_pause: PAUSE_MIN }
    }

    /// How many of `finished` answers to give back now, while `in_flight` requests, those included,
    /// are not given back.
    pub(super) fn due(&mut self, finished: usize, in_flight: usize, driver: Driver) -> usize {
        match &mut self.called {
            Some(quota) => {
                let now = finished.min(*quota);
                *quota -= now;
                now
            }
            None if driver == Driver::Awake || in_flight < FEWEST || finished == 0 => finished,
            None if self.paused > 0 => {
                self.paused -= 1;
                finished
            }
            None => {
                let half = in_flight.div_ceil(2);
                let now = finished.min(half);
                self.called = Some(half - now);
                now
            }
        }
    }

    /// Is something kept back, or will be?
    pub(super) fn is_on(&self) -> bool {
        self.called.is_some()
    }

    /// The driver showed itself while `kept` answers were kept back.
    pub(super) fn shown(&mut self, how: Shown, kept: usize) {
        self.called = None;
        match how {
            Shown::Offers => self.next_pause = PAUSE_MIN,
            Shown::Waits if kept == 0 => {}
            Shown::Waits => {
                self.paused = self.next_pause;
                self.next_pause = (self.next_pause * 2).min(PAUSE_MAX);
            }
        }
    }

    /// Nothing is kept back any more.
    pub(super) fn stop(&mut self) {
        self.called = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_given_with_the_call_and_the_rest_is_kept() {
        let mut holding = Holding::new();
        assert_eq!(holding.due(8, 32, Driver::Armed), 8);
        assert!(holding.is_on());
        // The driver is still waking up, whatever its last wish was.
        assert_eq!(holding.due(8, 24, Driver::Armed), 8);
        assert_eq!(holding.due(8, 16, Driver::Awake), 0);
        holding.shown(Shown::Offers, 16);
        assert!(!holding.is_on());
        assert_eq!(holding.due(16, 16, Driver::Awake), 16);
    }

    #[test]
    fn few_requests_and_drivers_that_are_awake_get_all() {
        let mut holding = Holding::new();
        assert_eq!(holding.due(3, 3, Driver::Armed), 3);
        assert_eq!(holding.due(32, 32, Driver::Awake), 32);
        assert_eq!(holding.due(0, 32, Driver::Armed), 0);
        assert!(!holding.is_on());
    }

    #[test]
    fn a_driver_that_waits_first_is_left_alone_for_longer_every_time() {
        let mut holding = Holding::new();
        let mut free = || {
            let mut calls = 0;
            while holding.due(32, 32, Driver::Armed) == 32 {
                calls += 1;
            }
            holding.shown(Shown::Waits, 16);
            calls
        };
        assert_eq!((free(), free(), free(), free()), (0, 256, 512, 1024));
        (0..10).for_each(|_| _ = free());
        assert_eq!(free(), PAUSE_MAX);
    }

    #[test]
    fn one_that_had_all_and_waits_is_not_blamed() {
        let mut holding = Holding::new();
        assert_eq!(holding.due(16, 32, Driver::Armed), 16);
        holding.shown(Shown::Waits, 0);
        assert_eq!(holding.due(32, 32, Driver::Armed), 16);
        holding.stop();
        assert!(!holding.is_on());
    }
}
