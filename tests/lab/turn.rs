//! Whose turn it is to measure.
//!
//! A measured test sleeps most of its time, so two of them fit on a machine that is quick enough.
//! Whether it is, is what their premises say: a test whose premises were not met beside another
//! begins again with the machine to itself. When that has happened to [`ENOUGH`] tests, the next
//! ones begin alone; then two are tried at once again, more and more rarely if that fails.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Tests that measure beside each other at most.
const TOGETHER: u32 = 2;
/// After so many tests that had to be alone the machine is not quick enough for two at once, and
/// after so many that had to be slower not for their pace.
pub(crate) const ENOUGH: u32 = 2;
/// So many tests begin alone then. It is twice as many each time.
const ALONE: u32 = 4;

/// With whom a test measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Beside another test, if there is one.
    Together,
    /// Nothing else is measured meanwhile.
    Alone,
}

#[derive(Debug)]
struct State {
    measuring: u32,
    /// Tests that wait to be alone. No other starts before them, or they might wait for ever.
    waiting: u32,
    /// A test has the machine to itself.
    taken: bool,
    /// Turns taken so far.
    started: u64,
    /// How many more tests have to be alone until the next ones begin so.
    patience: u32,
    /// So many tests begin alone, whatever they are.
    alone: u32,
    /// How many will when that is found necessary again.
    next_alone: u32,
}

/// The turns of one machine.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

/// The machine that this process runs on.
pub(crate) static MACHINE: Turns = Turns::new();

impl Turns {
    pub(crate) const fn new() -> Turns {
        let state = State {
            measuring: 0,
            waiting: 0,
            taken: false,
            started: 0,
            patience: ENOUGH,
            alone: 0,
            next_alone: ALONE,
        };
        Turns { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// How the next test begins on this machine, as far as is known.
    pub(crate) fn manner(&self) -> Manner {
        let mut state = self.lock();
        if state.alone == 0 {
            return Manner::Together;
        }
        state.alone -= 1;
        Manner::Alone
    }

    /// Waits until a test may measure in this manner.
    pub(crate) fn take(&self, manner: Manner) -> Turn<'_> {
        let mut state = self.lock();
        if manner == Manner::Alone {
            state.waiting += 1;
        }
        loop {
            let free = match manner {
                Manner::Together => {
                    !state.taken && state.waiting == 0 && state.measuring < TOGETHER
                }
                Manner::Alone => state.measuring == 0,
            };
            if free {
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if manner == Manner::Alone {
            state.waiting -= 1;
            state.taken = true;
        }
        state.measuring += 1;
        state.started += 1;
        Turn { turns: self, beside: state.measuring > 1, began: state.started }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panics leaves counters that are right: its turn is dropped.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A test's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    /// Another was measuring when it began.
    beside: bool,
    began: u64,
}

impl Turn<'_> {
    /// Whether another test measured at some time of this turn.
    pub(crate) fn was_shared(&self) -> bool {
        self.beside || self.turns.lock().started > self.began
    }

    /// Notes that the test could not measure beside another.
    pub(crate) fn was_unfit(&self) {
        let mut state = self.turns.lock();
        state.patience -= 1;
        if state.patience == 0 {
            // From now on one is enough.
            state.patience = 1;
            state.alone = state.next_alone;
            state.next_alone *= 2;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.measuring -= 1;
        // Whoever is alone is the only one whose turn can end.
        state.taken = false;
        drop(state);
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    #[test]
    fn two_measure_together_and_one_alone_at_most() {
        let turns = Turns::new();
        let (together, alone, most) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for number in 0..24 {
                let (turns, together, alone, most) = (&turns, &together, &alone, &most);
                scope.spawn(move || {
                    let (manner, own) = match number % 3 {
                        0 => (Manner::Alone, alone),
                        _ => (Manner::Together, together),
                    };
                    for _ in 0..500 {
                        let turn = turns.take(manner);
                        own.fetch_add(1, Ordering::SeqCst);
                        let (t, a) =
                            (together.load(Ordering::SeqCst), alone.load(Ordering::SeqCst));
                        assert!(t <= 2 && a <= 1 && (a == 0 || t == 0), "{t} together, {a} alone");
                        most.fetch_max(t, Ordering::SeqCst);
                        thread::yield_now();
                        own.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 2, "no two were ever together");
    }

    #[test]
    fn a_turn_knows_whether_it_was_shared() {
        let turns = Turns::new();
        let first = turns.take(Manner::Together);
        assert!(!first.was_shared());
        let second = turns.take(Manner::Together);
        assert!(first.was_shared() && second.was_shared());
        drop(second);
        assert!(first.was_shared(), "it was, for a time");
        drop(first);
        assert!(!turns.take(Manner::Alone).was_shared());
    }

    #[test]
    fn after_two_that_had_to_be_alone_the_next_begin_alone_until_it_is_tried_again() {
        let turns = Turns::new();
        let together = || {
            assert_eq!(turns.manner(), Manner::Together);
            turns.take(Manner::Together)
        };
        let alone = |times| (0..times).for_each(|_| assert_eq!(turns.manner(), Manner::Alone));
        together().was_unfit();
        together().was_unfit();
        alone(4);
        drop(together());
        together().was_unfit();
        alone(8);
        together().was_unfit();
        alone(16);
        together();
    }
}
