//! When which mode is tried again.

use crate::mode::Mode;
use headgate_units::Nanos;

/// Between two trials of one challenger, at first.
const PAUSE_MIN: Nanos = Nanos::from_millis(500);
/// Between two trials of one challenger, at most.
pub const PAUSE_MAX: Nanos = Nanos::from_secs(16);
/// After a mode won on the short scale and lost on the long one, at first: the short scale does not
/// see why.
const REFUTED_MIN: Nanos = Nanos::from_secs(30);
const REFUTED_MAX: Nanos = Nanos::from_secs(600);
/// Until a polling mode is compared with sleeping again on the long scale, at first.
const CONFIRM_MIN: Nanos = Nanos::from_secs(10);
/// The same, at most.
pub const CONFIRM_MAX: Nanos = Nanos::from_secs(120);
/// Until a load that changes may call for trials again, at first and at most.
const RECALL_MIN: Nanos = Nanos::from_secs(2);
const RECALL_MAX: Nanos = Nanos::from_secs(64);

/// When something is done next, and how long after that once more.
#[derive(Clone, Copy, Debug)]
struct Date {
    at: Nanos,
    pause: Nanos,
}

impl Date {
    const fn first(pause: Nanos) -> Date {
        Date { at: Nanos::ZERO, pause }
    }

    /// After the pause, which doubles.
    fn postpone(&mut self, now: Nanos, longest: Nanos) {
        self.at = now + self.pause;
        self.pause = (self.pause + self.pause).min(longest);
    }
}

/// Trials to come.
#[derive(Debug)]
pub(crate) struct Agenda {
    trials: [Date; Mode::ALL.len()],
    refuted: [Date; Mode::ALL.len()],
    confirmation: Date,
    recall: Date,
}

impl Agenda {
    /// Everything is tried once, as soon as there is a load.
    pub(crate) fn new() -> Agenda {
        Agenda {
            trials: [Date::first(PAUSE_MIN); Mode::ALL.len()],
            refuted: [Date::first(REFUTED_MIN); Mode::ALL.len()],
            confirmation: Date::first(CONFIRM_MIN),
            recall: Date::first(RECALL_MIN),
        }
    }

    /// The challenger whose time has come first, if any has.
    pub(crate) fn challenger(&self, now: Nanos, incumbent: Mode) -> Option<Mode> {
        let due = |mode: Mode| self.trials[mode as usize].at.max(self.refuted[mode as usize].at);
        let others = Mode::ALL.into_iter().filter(|&mode| mode != incumbent);
        others.filter(|&mode| due(mode) <= now).min_by_key(|&mode| due(mode))
    }

    /// Whether a polling mode is to be compared with sleeping on the long scale.
    pub(crate) fn is_confirmation_due(&self, now: Nanos) -> bool {
        self.confirmation.at <= now
    }

    /// The challenger has lost.
    pub(crate) fn lost(&mut self, now: Nanos, challenger: Mode) {
        self.trials[challenger as usize].postpone(now, PAUSE_MAX);
    }

    /// The incumbent changes from `old` to `new`.
    pub(crate) fn won(&mut self, now: Nanos, old: Mode, new: Mode) {
        // What lost to `old` loses to what is better than `old`.
        self.lost(now, old);
        self.recall.pause = RECALL_MIN;
        if old == Mode::Sleep && new != Mode::Sleep {
            self.confirmation = Date { at: now, pause: CONFIRM_MIN };
        }
    }

    /// Polling is better than sleeping on the long scale, too.
    pub(crate) fn confirmed(&mut self, now: Nanos) {
        self.confirmation.postpone(now, CONFIRM_MAX);
    }

    /// Sleeping is better than these on the long scale.
    pub(crate) fn refuted(&mut self, now: Nanos) {
        for mode in Mode::ALL.into_iter().filter(|&mode| mode != Mode::Sleep) {
            self.refuted[mode as usize].postpone(now, REFUTED_MAX);
        }
    }

    /// The load has changed: all may be tried at once, unless that has just been done.
    pub(crate) fn recall(&mut self, now: Nanos) {
        if now < self.recall.at {
            return;
        }
        self.recall.postpone(now, RECALL_MAX);
        for date in &mut self.trials {
            *date = Date { at: now, pause: PAUSE_MIN };
        }
        self.confirmation.at = self.confirmation.at.min(now + PAUSE_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Nanos = Nanos::from_secs(3600);

    #[test]
    fn losers_wait_twice_as_long_each_time_up_to_a_bound() {
        let mut agenda = Agenda::new();
        let mut now = Nanos::from_secs(1);
        let mut waits = Vec::new();
        for _ in 0..7 {
            for mode in Mode::ALL {
                agenda.lost(now, mode);
            }
            let begun = now;
            while agenda.challenger(now, Mode::Sleep).is_none() {
                now += Nanos::from_millis(100);
            }
            waits.push((now - begun).0 / 100_000_000);
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 160]);
    }

    #[test]
    fn the_incumbent_is_no_challenger() {
        let agenda = Agenda::new();
        for incumbent in Mode::ALL {
            assert_ne!(agenda.challenger(LATER, incumbent), Some(incumbent));
            assert!(agenda.challenger(LATER, incumbent).is_some());
        }
    }

    #[test]
    fn what_was_refuted_waits_whatever_the_load_does() {
        let mut agenda = Agenda::new();
        let now = Nanos::from_secs(100);
        agenda.refuted(now);
        agenda.recall(now);
        assert_eq!(agenda.challenger(now + Nanos::from_secs(29), Mode::Sleep), None);
        assert!(agenda.challenger(now + REFUTED_MIN, Mode::Sleep).is_some());
        assert_eq!(agenda.challenger(now, Mode::PollEvents), Some(Mode::Sleep));
    }

    #[test]
    fn a_load_that_changes_all_the_time_recalls_seldom() {
        let mut agenda = Agenda::new();
        let mut recalls = 0;
        for millis in 0..600_000 {
            let now = Nanos::from_millis(millis);
            for mode in Mode::ALL {
                agenda.trials[mode as usize].at = Nanos::MAX;
            }
            agenda.recall(now);
            recalls += usize::from(agenda.challenger(now, Mode::Sleep).is_some());
        }
        assert!((10..=15).contains(&recalls), "{recalls} in ten minutes");
    }
}
