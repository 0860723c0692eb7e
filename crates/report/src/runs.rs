//! Runs simulations in parallel on all processors.

use headgate_sim::{Outcome, Progress, RunError, Scenario, Traces, run_with};
use headgate_units::Nanos;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// One run.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The scenario to run.
    pub scenario: &'a Scenario,
    /// Which variant of it.
    pub variant: &'a str,
    /// The seed of its randomness.
    pub seed: u64,
    /// Where it finds traces.
    pub traces: &'a (dyn Traces + Sync),
}

impl Job<'_> {
    fn length(&self) -> u64 {
        self.scenario.variant(self.variant).map_or(0, |variant| variant.setup.duration.0)
    }
}

/// How far all runs are.
#[derive(Clone, Copy, Debug)]
pub struct Far {
    /// 0 to 1,000.
    pub permille: u64,
    /// Runs that ended.
    pub done: usize,
}

/// The time between two reports of progress.
const TELL: Duration = Duration::from_millis(100);

struct Watch<'a> {
    position: &'a AtomicU64,
    cancelled: &'a AtomicBool,
}

impl Progress for Watch<'_> {
    fn step(&mut self, at: Nanos, _: Nanos, _: u64) -> ControlFlow<()> {
        self.position.store(at.0, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Runs all jobs on as many threads as there are processors. The outcomes are in the order of the
/// jobs, whichever ended first.
///
/// `tell` is called every 100 ms or so; `Break` ends all runs.
///
/// # Errors
/// That of the first job, in their order, that failed by itself; [`RunError::Cancelled`] when
/// `tell` ended them.
pub fn run_all(
    jobs: &[Job<'_>],
    tell: &mut dyn FnMut(Far) -> ControlFlow<()>,
) -> Result<Vec<Outcome>, RunError> {
    let all: u128 = jobs.iter().map(|job| u128::from(job.length())).sum();
    let positions: Vec<AtomicU64> = jobs.iter().map(|_| AtomicU64::new(0)).collect();
    let results: Vec<Mutex<Option<Result<Outcome, RunError>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    let (next, cancelled) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (send, done) = mpsc::channel();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let send = send.clone();
            let (next, cancelled, positions, results) = (&next, &cancelled, &positions, &results);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { return };
                    let mut watch = Watch { position: &positions[index], cancelled };
                    let result =
                        run_with(job.scenario, job.variant, job.seed, &mut watch, job.traces);
                    if result.is_err() {
                        cancelled.store(true, Ordering::Relaxed);
                    }
                    positions[index].store(job.length(), Ordering::Relaxed);
                    if let Ok(mut place) = results[index].lock() {
                        *place = Some(result);
                    }
                    // The receiver is gone when the caller unwinds.
                    let _ = send.send(());
                }
            });
        }
        drop(send);
        let mut ended = 0;
        loop {
            match done.recv_timeout(TELL) {
                Ok(()) => ended += 1,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let sum: u128 = positions.iter().map(|at| u128::from(at.load(Ordering::Relaxed))).sum();
            let permille = u64::try_from(sum * 1_000 / all.max(1)).unwrap_or(1_000);
            if tell(Far { permille, done: ended }).is_break() {
                cancelled.store(true, Ordering::Relaxed);
            }
        }
    });
    let mut outcomes = Vec::with_capacity(jobs.len());
    let mut cut = None;
    for result in results {
        match result.into_inner().ok().flatten() {
            Some(Ok(outcome)) => outcomes.push(outcome),
            Some(Err(error @ RunError::Cancelled { .. })) => cut = cut.or(Some(error)),
            Some(Err(error)) => return Err(error),
            None => cut = cut.or(Some(RunError::Cancelled { at: Nanos::ZERO })),
        }
    }
    match cut {
        Some(error) => Err(error),
        None => Ok(outcomes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_sim::{NoTraces, Quiet, run};

    fn scenario() -> Scenario {
        Scenario::parse(
            "two.toml",
            r#"
            name = "two"
            title = "Two VMs"
            duration = "5s"
            datastore = [{ name = "lun", device = "rate=500,latency=1ms" }]
            vm = [
                { name = "a", disk = [{ shares = 100 }], workload = [{ kind = "closed", outstanding = 4 }] },
                { name = "b", disk = [{ shares = 300 }], workload = [{ kind = "open", rate = 100 }] },
            ]
            "#,
        )
        .unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn outcomes_are_those_of_single_runs_in_the_order_of_the_jobs() {
        let scenario = scenario();
        let jobs: Vec<Job<'_>> = (0..7)
            .map(|seed| Job { scenario: &scenario, variant: "default", seed, traces: &NoTraces })
            .collect();
        let mut last = 0;
        let outcomes = run_all(&jobs, &mut |far| {
            last = far.done;
            ControlFlow::Continue(())
        });
        let outcomes = outcomes.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(last, 7);
        for (seed, outcome) in outcomes.iter().enumerate() {
            assert_eq!(
                Some(outcome),
                run(&scenario, "default", seed as u64, &mut Quiet).ok().as_ref()
            );
        }
    }

    #[test]
    fn runs_end_when_somebody_wants_it_and_when_one_fails() {
        let scenario = scenario();
        let job = |variant| Job { scenario: &scenario, variant, seed: 1, traces: &NoTraces };
        let stopped = run_all(&[job("default"); 50], &mut |_| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(RunError::Cancelled { .. })));
        let failed = run_all(&[job("default"), job("nosuch")], &mut |_| ControlFlow::Continue(()));
        assert!(matches!(failed, Err(RunError::UnknownVariant { .. })), "{failed:?}");
        assert_eq!(run_all(&[], &mut |_| ControlFlow::Continue(())).map(|all| all.len()), Ok(0));
    }
}
