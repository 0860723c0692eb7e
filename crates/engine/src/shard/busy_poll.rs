//! Busy polling: whether a shard waits for the next event awake or asleep.
//!
//! Sleeping and being woken costs both sides: on a virtual host about 15 us of processor time and
//! 25 us of latency, more than a whole request. Where the next event comes sooner than that, busy
//! polling is cheaper. Where it does not, busy polling burns a core. The gaps between events show
//! which of the two it is.

use headgate_units::Nanos;

/// The longest busy poll. A client on another processor that answers at once needs its own wake-up
/// first.
const LONGEST: Nanos = Nanos::from_micros(50);
/// Mean gap while sleeping below which busy polling is tried, in nanoseconds. It includes the
/// wake-up that busy polling saves.
const ENTER: u64 = 60_000;
/// Mean gap while busy polling above which it does not pay, in nanoseconds.
const LEAVE: u64 = 25_000;

const _: () = assert!(LEAVE < ENTER && ENTER < GAP_MAX, "or it flips at every request");

/// How long it is not tried again after it did not pay: a wrong try costs a few gaps in ten
/// milliseconds.
const PAUSE: Nanos = Nanos::from_millis(10);
/// The longest gap that counts, in nanoseconds, so that a few dozen short gaps outweigh one long
/// idle period.
const GAP_MAX: u64 = 1_000_000;

/// How the shard waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// In the kernel. Busy polling is not tried before this time.
    Asleep { until: Nanos },
    /// Busy polling first.
    Awake,
}

/// Decides from the gaps between the end of one turn and the first event of the next. O(1).
#[derive(Debug)]
pub(crate) struct BusyPoll {
    mode: Mode,
    /// Mean gap in nanoseconds, the last eight or so.
    mean: u64,
}

impl BusyPoll {
    pub(crate) fn new() -> BusyPoll {
        BusyPoll { mode: Mode::Asleep { until: Nanos::ZERO }, mean: GAP_MAX }
    }

    /// How long to busy-poll before sleeping. `None`: not at all.
    pub(crate) fn patience(&self) -> Option<Nanos> {
        (self.mode == Mode::Awake).then_some(LONGEST)
    }

    /// The shard had nothing to do for this long, until `now`.
    pub(crate) fn idle(&mut self, now: Nanos, gap: Nanos) {
        self.mean = (self.mean * 7 + gap.0.min(GAP_MAX)) / 8;
        match self.mode {
            Mode::Asleep { until } if now >= until && self.mean < ENTER => {
                self.mode = Mode::Awake;
                // Gaps awake are shorter; those asleep say nothing about them.
                self.mean = LEAVE / 2;
            }
            Mode::Awake if self.mean > LEAVE => {
                self.mode = Mode::Asleep { until: now + PAUSE };
                self.mean = ENTER;
            }
            Mode::Asleep { .. } | Mode::Awake => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds gaps of `asleep` or `awake` microseconds, as the mode is, for `millis`; returns the
    /// time spent awake without an event, in per cent of all.
    fn run(busy_poll: &mut BusyPoll, now: &mut Nanos, millis: u64, asleep: u64, awake: u64) -> u64 {
        let (start, mut burnt) = (*now, 0);
        while (*now - start).0 < millis * 1_000_000 {
            let gap = match busy_poll.patience() {
                Some(patience) => {
                    let gap = Nanos::from_micros(awake);
                    burnt += gap.0.min(patience.0);
                    gap
                }
                None => Nanos::from_micros(asleep),
            };
            *now += gap + Nanos::from_micros(5);
            busy_poll.idle(*now, gap);
        }
        burnt * 100 / (*now - start).0
    }

    #[test]
    fn short_gaps_are_busy_polled() {
        let (mut busy_poll, mut now) = (BusyPoll::new(), Nanos::ZERO);
        run(&mut busy_poll, &mut now, 10, 40, 15);
        assert!(busy_poll.patience().is_some());
    }

    #[test]
    fn long_gaps_cost_next_to_nothing() {
        for (asleep, awake) in [(600, 600), (100, 80), (55, 45)] {
            let (mut busy_poll, mut now) = (BusyPoll::new(), Nanos::ZERO);
            let burnt = run(&mut busy_poll, &mut now, 1000, asleep, awake);
            assert!(
                burnt <= 5,
                "gaps of {asleep}/{awake} us: {burnt} % of the time awake for nothing"
            );
        }
    }

    #[test]
    fn an_idle_stretch_ends_it_and_work_brings_it_back() {
        let (mut busy_poll, mut now) = (BusyPoll::new(), Nanos::ZERO);
        run(&mut busy_poll, &mut now, 20, 40, 15);
        now += Nanos::from_secs(5);
        busy_poll.idle(now, Nanos::from_secs(5));
        assert!(busy_poll.patience().is_none());
        run(&mut busy_poll, &mut now, 20, 40, 15);
        assert!(busy_poll.patience().is_some());
    }
}
