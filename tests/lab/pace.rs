//! The pace of measured tests: how much slower than on a quick machine everything emulated is.
//!
//! What a machine can do differs by an order of magnitude. How much of its CPUs it gives is found
//! at the start, and sets the pace at which tests begin. A test whose premises are not met begins
//! anew at half the pace: everything emulated takes twice as long, everything that clients and
//! guests do takes what it takes.

use crate::first::First;
use crate::premise::Unmet;
use crate::process::run;
use crate::turn::{ENOUGH, MACHINE, Manner, Turns};
use crate::{Lab, with_lab_in};
use anyhow::Context;
use rustix::thread::sched_getaffinity;
use rustix::time::{ClockId, clock_gettime};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// For how long the machine is asked for all of its CPUs: some periods of a quota.
const ASKED: Duration = Duration::from_millis(500);

/// How much slower than on a quick machine everything emulated is. Relations between rates, and the
/// number of requests that are measured, stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace(u32);

impl Pace {
    const SLOWEST: u32 = 8;

    /// On a quick machine.
    pub const FULL: Pace = Pace(1);

    /// Twice as long.
    pub const HALF: Pace = Pace(2);

    /// The pace for a machine that gives this part of its CPUs to who asks for all.
    fn on(given: f64) -> Pace {
        let within = |pace: &u32| given * f64::from(*pace) >= 0.75;
        Pace([1, 2, 4].into_iter().find(within).unwrap_or(Pace::SLOWEST))
    }

    /// A rate on this machine.
    pub fn rate(self, nominal: u32) -> u32 {
        nominal / self.0
    }

    /// A time on this machine.
    pub fn time(self, nominal: Duration) -> Duration {
        nominal * self.0
    }

    /// By how much everything is slower.
    pub fn factor(self) -> u32 {
        self.0
    }

    fn slower(self) -> Option<Pace> {
        (self.0 < Pace::SLOWEST).then_some(Pace(self.0 * 2))
    }
}

/// The part of the machine's CPUs that a process is given that asks for all of them.
fn given() -> f64 {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let spin = || {
        let (began, before) = (Instant::now(), used());
        while began.elapsed() < ASKED {
            std::hint::spin_loop();
        }
        (used() - before).as_secs_f64() / began.elapsed().as_secs_f64()
    };
    // Not `available_parallelism`: it takes a quota for a number of CPUs. Threads that may run on
    // two of them for half of the time each are held up like no thread of one whole CPU.
    let cpus = sched_getaffinity(None).map_or(1, |set| set.count() as usize);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cpus).map(|_| scope.spawn(spin)).collect();
        let parts =
            threads.into_iter().map(|thread| thread.join().expect("spinning does not panic"));
        parts.sum::<f64>() / cpus as f64
    })
}

#[derive(Debug)]
struct State {
    /// Unknown until the first test begins.
    pace: Option<Pace>,
    /// Tests for which that was too fast.
    hurried: u32,
}

/// The pace at which tests of a process begin.
#[derive(Debug)]
struct Paces {
    state: Mutex<State>,
}

static PACES: Paces = Paces::new(None);

impl Paces {
    const fn new(pace: Option<Pace>) -> Paces {
        Paces { state: Mutex::new(State { pace, hurried: 0 }) }
    }

    /// The pace at which a test begins. The first asks the machine.
    fn now(&self) -> Pace {
        *self.lock().pace.get_or_insert_with(|| {
            let given = given();
            let pace = Pace::on(given);
            eprintln!(
                "  the machine gives {:.0} % of its CPUs: 1/{} of the full pace",
                given * 100.0,
                pace.0
            );
            pace
        })
    }

    /// Notes that this pace was too fast for a test. After [`ENOUGH`] of them, those that follow
    /// begin at half of it: one alone may have had bad luck.
    fn was_too_fast(&self, pace: Pace) {
        let mut state = self.lock();
        if state.pace == Some(pace) {
            state.hurried += 1;
            if state.hurried == ENOUGH {
                *state = State { pace: pace.slower().or(Some(pace)), hurried: 0 };
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file system in memory with room for emulated disks, and where there is none the usual place:
/// what is measured shall not wait for the machine's own disk.
fn memory_or_disk() -> PathBuf {
    const ROOM_KIB: u64 = 4 << 20;
    let memory = PathBuf::from("/dev/shm");
    let has_room = || -> anyhow::Result<bool> {
        let mut command = Command::new("df");
        command.args(["--output=avail", "-k"]).arg(&memory);
        let room: u64 = run(command, MINUTE)?.lines().last().unwrap_or_default().trim().parse()?;
        let text = std::fs::read_to_string("/proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let free: u64 = line.context("no MemAvailable")?.trim().trim_end_matches(" kB").parse()?;
        Ok(room.min(free / 2) >= ROOM_KIB)
    };
    if has_room().unwrap_or(false) { memory } else { std::env::temp_dir() }
}

/// Runs a test as [`with_lab`](crate::with_lab) does, beside one other that measures. Whenever its
/// premises are not met on this machine it runs in a new lab: alone, if another was measured
/// meanwhile, and then at half the pace. At the slowest pace that is a failure.
pub fn with_paced_lab(programs: &[&str], test: impl Fn(&Lab, Pace) -> anyhow::Result<()>) {
    let _first = First::new();
    paced(&MACHINE, MACHINE.manner(), &PACES, programs, test);
}

/// The same for a test that takes all of a small machine by itself, and begins alone.
pub fn with_paced_lab_alone(programs: &[&str], test: impl Fn(&Lab, Pace) -> anyhow::Result<()>) {
    let _first = First::new();
    paced(&MACHINE, Manner::Alone, &PACES, programs, test);
}

/// The same in these turns, at a pace that is kept here.
fn paced(
    turns: &Turns,
    mut manner: Manner,
    paces: &Paces,
    programs: &[&str],
    test: impl Fn(&Lab, Pace) -> anyhow::Result<()>,
) {
    let mut pace = None;
    let mut again = true;
    while again {
        again = false;
        let turn = turns.take(manner);
        let at = pace.unwrap_or_else(|| paces.now());
        with_lab_in(&memory_or_disk(), programs, |lab| match test(lab, at) {
            Err(error) if error.is::<Unmet>() && turn.was_shared() => {
                eprintln!("beside another test: {error:#}");
                turn.was_unfit();
                manner = Manner::Alone;
                again = true;
                Ok(())
            }
            Err(error) if error.is::<Unmet>() && at.slower().is_some() => {
                eprintln!("at 1/{} of the full pace: {error:#}", at.0);
                paces.was_too_fast(at);
                pace = at.slower();
                again = true;
                Ok(())
            }
            outcome => outcome,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{bail, ensure};
    use std::panic::AssertUnwindSafe;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn unmet() -> anyhow::Error {
        Unmet("the storage was idle".to_owned()).into()
    }

    #[test]
    fn half_of_the_cpus_is_half_of_the_pace() {
        let parts = [1.0, 0.76, 0.74, 0.5, 0.37, 0.25, 0.1, 0.0];
        assert_eq!(parts.map(|part| Pace::on(part).factor()), [1, 1, 2, 2, 4, 4, 8, 8]);
    }

    #[test]
    fn what_the_machine_gives_is_a_part_of_it() {
        let given = given();
        assert!(given > 0.0 && given < 1.01, "{given}");
    }

    #[test]
    fn the_bad_luck_of_one_test_slows_no_other() {
        let paces = Paces::new(Some(Pace::FULL));
        let begin_after = |fast_enough: Pace| {
            let turns = Turns::new();
            paced(&turns, turns.manner(), &paces, &[], |_, pace| {
                ensure!(pace.factor() >= fast_enough.factor(), unmet());
                Ok(())
            });
            paces.now()
        };
        assert_eq!(begin_after(Pace::HALF), Pace::FULL, "one of them");
        assert_eq!(begin_after(Pace::FULL), Pace::FULL);
        assert_eq!(begin_after(Pace::HALF), Pace::HALF, "the second");
        assert_eq!(begin_after(Pace(4)), Pace::HALF, "one at this pace");
        assert_eq!(begin_after(Pace(8)), Pace(4), "and another");
    }

    #[test]
    fn a_test_without_its_premises_runs_slower_and_slower_and_then_fails() {
        let (turns, paces, tries) =
            (Turns::new(), Paces::new(Some(Pace::FULL)), Mutex::new(Vec::new()));
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            paced(&turns, turns.manner(), &paces, &[], |_, pace| {
                tries.lock().unwrap().push(pace.factor());
                Err(unmet())
            });
        }));
        let said = outcome.expect_err("it passed without its premise");
        let said = said.downcast_ref::<String>().expect("a message");
        assert!(said.contains("the storage was idle"), "{said}");
        assert_eq!(*tries.lock().unwrap(), [1, 2, 4, 8]);
    }

    #[test]
    fn a_test_without_its_premises_beside_another_runs_alone_before_it_runs_slower() {
        let (turns, paces, tries) =
            (Turns::new(), Paces::new(Some(Pace::FULL)), Mutex::new(Vec::new()));
        let other = Mutex::new(Some(turns.take(Manner::Together)));
        paced(&turns, turns.manner(), &paces, &[], |_, pace| {
            // The other ends meanwhile. That it was there is what counts.
            let was_there = other.lock().unwrap().take().is_some();
            let mut tries = tries.lock().unwrap();
            tries.push((was_there, pace.factor()));
            ensure!(tries.len() == 3, unmet());
            Ok(())
        });
        assert_eq!(*tries.lock().unwrap(), [(true, 1), (false, 1), (false, 2)]);
    }

    #[test]
    fn what_fails_with_its_premises_met_is_not_tried_again() {
        let (turns, paces, tries) = (Turns::new(), Paces::new(Some(Pace::FULL)), AtomicU32::new(0));
        let _other = turns.take(Manner::Together);
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            paced(&turns, turns.manner(), &paces, &[], |_, _| {
                tries.fetch_add(1, Ordering::Relaxed);
                bail!("the disk got half of what is due")
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(tries.into_inner(), 1);
    }
}
