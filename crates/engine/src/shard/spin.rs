//! Whether to wait for the next event awake.
//!
//! Giving up the processor and being woken costs both sides: on a virtual host some 15 us of processor time and 25 us of latency,
//! more than the whole of a request. Where the next event comes sooner than that, waiting awake is cheaper; where it
//! does not, it only burns a core. Which of the two it is shows in the gaps themselves.

use headgate_units::Nanos;

/// Longest wait awake. A client that answers at once, on another processor, needs its own wake-up first.
const SPIN: Nanos = Nanos::from_micros(50);
/// Mean gap, asleep, under which waiting awake is tried. It includes the wake-up that would be saved.
const ENTER: u64 = 60_000;
/// Mean gap, awake, over which it does not pay.
const LEAVE: u64 = 25_000;
/// After it did not pay it is not tried again for so long: a wrong try costs a few gaps in ten milliseconds.
const PAUSE: Nanos = Nanos::from_millis(10);
/// Gaps count as at most this long, so that one long idle period is forgotten after a few dozen short gaps.
const GAP_MAX: u64 = 1_000_000;

/// How the shard waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// In the kernel; awake not before this time.
    Asleep { until: Nanos },
    /// Awake first.
    Awake,
}

/// Decides from the gaps between the end of one turn and the first event of the next. O(1).
#[derive(Debug)]
pub(super) struct Spin {
    mode: Mode,
    /// Mean gap in nanoseconds, the last eight or so.
    mean: u64,
}

impl Spin {
    pub(super) fn new() -> Spin {
        Spin { mode: Mode::Asleep { until: Nanos::ZERO }, mean: GAP_MAX }
    }

    /// How long to wait awake before sleeping.
    pub(super) fn patience(&self) -> Option<Nanos> {
        (self.mode == Mode::Awake).then_some(SPIN)
    }

    /// The shard had nothing to do for this long, until `now`.
    pub(super) fn idle(&mut self, now: Nanos, gap: Nanos) {
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

    /// Feeds gaps of `asleep` or `awake` microseconds, as the mode is, for `millis`; returns the time spent awake without
    /// an event, in per cent of all.
    fn run(spin: &mut Spin, now: &mut Nanos, millis: u64, asleep: u64, awake: u64) -> u64 {
        let (start, mut burnt) = (*now, 0);
        while (*now - start).0 < millis * 1_000_000 {
            let gap = match spin.patience() {
                Some(patience) => {
                    let gap = Nanos::from_micros(awake);
                    burnt += gap.0.min(patience.0);
                    gap
                }
                None => Nanos::from_micros(asleep),
            };
            *now += gap + Nanos::from_micros(5);
            spin.idle(*now, gap);
        }
        burnt * 100 / (*now - start).0
    }

    #[test]
    fn short_gaps_are_waited_for_awake() {
        let (mut spin, mut now) = (Spin::new(), Nanos::ZERO);
        run(&mut spin, &mut now, 10, 40, 15);
        assert!(spin.patience().is_some());
    }

    #[test]
    fn long_gaps_cost_next_to_nothing() {
        for (asleep, awake) in [(600, 600), (100, 80), (55, 45)] {
            let (mut spin, mut now) = (Spin::new(), Nanos::ZERO);
            let burnt = run(&mut spin, &mut now, 1000, asleep, awake);
            assert!(burnt <= 5, "gaps of {asleep}/{awake} us: {burnt} % of the time awake for nothing");
        }
    }

    #[test]
    fn an_idle_stretch_ends_it_and_work_brings_it_back() {
        let (mut spin, mut now) = (Spin::new(), Nanos::ZERO);
        run(&mut spin, &mut now, 20, 40, 15);
        now += Nanos::from_secs(5);
        spin.idle(now, Nanos::from_secs(5));
        assert!(spin.patience().is_none());
        run(&mut spin, &mut now, 20, 40, 15);
        assert!(spin.patience().is_some());
    }
}
