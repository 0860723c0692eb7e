//! Whose turn it is to measure.
//!
//! A measured test sleeps most of its time, so two of them fit on a machine that is quick enough.
//! Whether it is, is what their premises say: a test whose premises were not met beside another
//! begins again with the machine to itself. When that has happened to [`ENOUGH`] tests, the next
//! ones begin alone; then two are tried at once again, more and more rarely if that fails.
//!
//! Tests that only compute have what is left of the CPUs meanwhile (`tests/run`). They stand still
//! while a measured test is alone, and count as another beside those that are not.

use rustix::process::{Pid, Signal, getpgrp, kill_process_group, test_kill_process_group};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

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
    computing: Option<Computing>,
}

/// The machine that this process runs on.
pub(crate) static MACHINE: LazyLock<Turns> = LazyLock::new(|| Turns {
    computing: std::env::var("HEADGATE_COMPUTED").ok().map(|group| Computing::of(&group)),
    ..Turns::new()
});

/// A group of processes that take what is left of the CPUs.
#[derive(Debug)]
struct Computing(Pid);

impl Computing {
    fn of(group: &str) -> Computing {
        let pid = group.parse().ok().and_then(Pid::from_raw).filter(|&pid| pid != getpgrp());
        Computing(pid.unwrap_or_else(|| {
            panic!("HEADGATE_COMPUTED={group}: expected another group of processes")
        }))
    }

    fn is_there(&self) -> bool {
        test_kill_process_group(self.0).is_ok()
    }

    fn tell(&self, signal: Signal) {
        // It has ended, then.
        let _ = kill_process_group(self.0, signal);
    }
}

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
        Turns { state: Mutex::new(state), changed: Condvar::new(), computing: None }
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
        let computing = self.computing.as_ref().filter(|computing| computing.is_there());
        if manner == Manner::Alone {
            state.waiting -= 1;
            state.taken = true;
            computing.inspect(|computing| computing.tell(Signal::STOP));
        }
        state.measuring += 1;
        state.started += 1;
        let beside = state.measuring > 1 || manner == Manner::Together && computing.is_some();
        Turn { turns: self, beside, began: state.started }
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
    /// Another was measuring, or something computed, when it began.
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
        if std::mem::take(&mut state.taken) {
            self.turns.computing.as_ref().inspect(|computing| computing.tell(Signal::CONT));
        }
        drop(state);
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

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
    fn what_computes_stands_still_while_a_test_is_alone_and_counts_as_another_else() {
        let mut process = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let group = Computing::of(&process.id().to_string());
        let turns = Turns { computing: Some(group), ..Turns::new() };
        // The third word, behind the name in brackets: T when it is stopped.
        let stat = format!("/proc/{}/stat", process.id());
        let stopped = || {
            let text = std::fs::read_to_string(&stat).unwrap();
            text.rsplit(')').next().unwrap().split_whitespace().next().unwrap() == "T"
        };
        // A signal arrives when the kernel comes to it.
        let becomes = |wanted| {
            (0..1000).any(|_| {
                thread::sleep(Duration::from_millis(10));
                stopped() == wanted
            })
        };
        assert!(turns.take(Manner::Together).was_shared());
        let alone = turns.take(Manner::Alone);
        assert!(!alone.was_shared() && becomes(true));
        drop(alone);
        assert!(becomes(false));
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(!turns.take(Manner::Together).was_shared(), "it is over");
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
