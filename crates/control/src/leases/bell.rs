use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// When something is to be done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// After so long, or earlier if the bell is rung.
    After(Duration),
    /// There is nothing to do until the bell is rung.
    WhenRung,
}

/// What was heard of a bell since a turn began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Nothing,
    Rung,
}

/// How long the last turn ago was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    pub began: Duration,
    pub ended: Duration,
}

/// How long to wait for the next turn; `None`: until the bell is rung. However often that happens,
/// turns begin at least `pause` apart for it.
pub(super) fn time_left(
    next: Next,
    heard: Heard,
    since: Since,
    pause: Duration,
) -> Option<Duration> {
    let by_time = match next {
        Next::After(time) => Some(time.saturating_sub(since.ended)),
        Next::WhenRung => None,
    };
    let by_bell = match heard {
        Heard::Rung => Some(pause.saturating_sub(since.began)),
        Heard::Nothing => None,
    };
    by_time.into_iter().chain(by_bell).min()
}

/// Rung by whoever changes what threads look at, so that they need not look for it by the clock.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How often it was rung.
    rung: u64,
    /// Threads that have heard nothing since their last turns. Others have their next turn anyway:
    /// many rings after one another wake each thread once.
    listeners: usize,
}

impl Bell {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has changed. To be called after the change, and without a lock that a thread takes
    /// in its turn: it may begin at once. O(threads that wait), and O(1) where no thread waits or
    /// those that do were rung already.
    pub fn ring(&self) {
        let mut state = self.state();
        state.rung = state.rung.wrapping_add(1);
        if std::mem::take(&mut state.listeners) > 0 {
            drop(state);
            self.0.changed.notify_all();
        }
    }

    /// How often it was rung.
    pub(crate) fn rung(&self) -> u64 {
        self.state().rung
    }

    /// Wakes all who wait, so that they ask `is_over`.
    pub(super) fn end(&self, end: impl FnOnce()) {
        let state = self.state();
        end();
        drop(state);
        self.0.changed.notify_all();
    }

    /// Waits as long as `left` says, which hears whether the bell was rung since `before`. `None`
    /// when it is over, else how often it was rung by then.
    pub(super) fn wait(
        &self,
        before: u64,
        left: impl Fn(Heard) -> Option<Duration>,
        is_over: impl Fn() -> bool,
    ) -> Option<u64> {
        let mut state = self.state();
        loop {
            if is_over() {
                return None;
            }
            let heard = if state.rung == before { Heard::Nothing } else { Heard::Rung };
            if heard == Heard::Nothing {
                // Who listens already is counted again, which costs a wake-up at most.
                state.listeners += 1;
            }
            state = match left(heard) {
                Some(Duration::ZERO) => return Some(state.rung),
                Some(time) => {
                    let waited = self.0.changed.wait_timeout(state, time);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn duration() -> impl Strategy<Value = Duration> {
        (0u64..5_000).prop_map(Duration::from_millis)
    }

    proptest! {
        /// Against a plain clock that looks at each millisecond.
        #[test]
        fn a_turn_begins_when_it_is_due_or_when_the_bell_was_rung_and_not_too_often(
            length in duration(),
            after in prop::option::of(duration()),
            rung_at in prop::option::of(duration()),
            pause in duration(),
        ) {
            let next = after.map_or(Next::WhenRung, Next::After);
            let due = |now: Duration| {
                let is_rung = rung_at.is_some_and(|at| at <= now);
                after.is_some_and(|after| now >= length + after) || is_rung && now >= pause
            };
            let begins = (0..20_000).map(Duration::from_millis);
            let plain = begins.filter(|now| *now >= length).find(|now| due(*now));
            // As the thread waits: it asks anew when the bell is rung.
            let left = |now: Duration, heard| {
                let since = Since { began: now, ended: now - length };
                time_left(next, heard, since, pause)
            };
            let silent = left(length, Heard::Nothing).map(|left| length + left);
            let begins = match rung_at.map(|at| at.max(length)) {
                Some(at) if silent.is_none_or(|silent| at < silent) => {
                    left(at, Heard::Rung).map(|left| at + left)
                }
                _ => silent,
            };
            prop_assert_eq!(begins, plain);
        }
    }

    #[test]
    fn many_rings_are_one_and_none_is_lost() {
        let bell = Bell::default();
        let before = bell.rung();
        (0..1_000).for_each(|_| bell.ring());
        let left = |heard| match heard {
            Heard::Rung => Some(Duration::ZERO),
            Heard::Nothing => None,
        };
        // It was rung before anybody waited.
        let after = bell.wait(before, left, || false);
        assert_eq!(after, Some(1_000));
        let over = std::cell::Cell::new(false);
        bell.end(|| over.set(true));
        assert_eq!(bell.wait(1_000, left, || over.get()), None);
    }

    #[test]
    fn who_waits_is_woken() {
        let bell = Bell::default();
        let (before, ringer) = (bell.rung(), bell.clone());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let left = |heard| (heard == Heard::Rung).then_some(Duration::ZERO);
                bell.wait(before, left, || false)
            });
            ringer.ring();
            assert!(waits.join().unwrap().is_some());
        });
    }
}
