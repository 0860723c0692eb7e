//! Runs simulations in parallel on all processors.

use headgate_sim::{Outcome, Progress, RunError, Scenario, Traces, run_branches};
use headgate_units::Nanos;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
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

/// What decides something of a job, but for the names of scenario and variant: which traces, the
/// number of a text, the seed.
type Same<'a> = (*const (dyn Traces + Sync + 'a), usize, u64);

/// Of the text that decides the outcome, and of the one that decides how it begins.
type Numbers = (usize, Option<usize>);

/// The texts of variants, each written once: they are long, and there are many seeds.
#[derive(Default)]
struct Texts<'a> {
    /// By scenario and variant; `None` where there is no such variant.
    of: BTreeMap<(*const Scenario, &'a str), Option<Numbers>>,
    numbers: BTreeMap<String, usize>,
}

impl<'a> Texts<'a> {
    /// The stretches of time and the setup; `None` where there is no such variant.
    fn numbers_of(&mut self, job: &Job<'a>) -> Option<Numbers> {
        let key = (&raw const *job.scenario, job.variant);
        if let Some(known) = self.of.get(&key) {
            return *known;
        }
        let spans = &job.scenario.spans;
        let numbers = job.scenario.variant(job.variant).map(|variant| {
            let whole = self.number(format!("{spans:?} {:?}", variant.setup));
            let trunk = variant.setup.trunk().map(|trunk| format!("trunk {spans:?} {trunk}"));
            (whole, trunk.map(|trunk| self.number(trunk)))
        });
        self.of.insert(key, numbers);
        numbers
    }

    fn number(&mut self, text: String) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(text).or_insert(next)
    }
}

impl<'a> Job<'a> {
    fn with(&self, number: usize) -> Same<'a> {
        (&raw const *self.traces, number, self.seed)
    }

    /// An outcome of the same under this job's names.
    fn named(&self, mut outcome: Outcome) -> Outcome {
        self.scenario.name.clone_into(&mut outcome.scenario);
        self.variant.clone_into(&mut outcome.variant);
        outcome
    }

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
    /// Of the first job of those that are run together: it is as far as any of them.
    position: &'a AtomicU64,
    cancelled: &'a AtomicBool,
}

impl Progress for Watch<'_> {
    fn step(&mut self, at: Nanos, _: Nanos, _: u64) -> ControlFlow<()> {
        self.position.fetch_max(at.0, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// For each job, the first that is the same: itself, or an earlier one whose outcome it shares.
fn first_of_each<'a>(jobs: &[Job<'a>], texts: &mut Texts<'a>) -> Vec<usize> {
    let mut known: BTreeMap<Same<'a>, usize> = BTreeMap::new();
    let mut first = Vec::with_capacity(jobs.len());
    for (index, job) in jobs.iter().enumerate() {
        let same = texts.numbers_of(job).map(|(whole, _)| job.with(whole));
        first.push(same.map_or(index, |same| *known.entry(same).or_insert(index)));
    }
    first
}

/// Jobs that begin alike and are run together, in the order of their firsts. Each by itself where
/// there would be too few groups for all processors to have something to do.
fn groups<'a>(
    jobs: &[Job<'a>],
    first: &[usize],
    texts: &mut Texts<'a>,
    threads: usize,
) -> Vec<Vec<usize>> {
    let own = |index: &usize| first[*index] == *index;
    let mut known: BTreeMap<Same<'a>, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for index in (0..jobs.len()).filter(own) {
        let trunk = texts.numbers_of(&jobs[index]).and_then(|(_, trunk)| trunk);
        let number = trunk.map_or(groups.len(), |trunk| {
            *known.entry(jobs[index].with(trunk)).or_insert(groups.len())
        });
        match groups.get_mut(number) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    match groups.len() < GROUPS_PER_THREAD * threads {
        true => (0..jobs.len()).filter(own).map(|index| vec![index]).collect(),
        false => groups,
    }
}

/// A group is run by one thread. With so many for each, a thread waits for another at the end for
/// about as long as sharing saves, at most.
const GROUPS_PER_THREAD: usize = 4;

/// Runs all jobs on as many threads as there are processors. The outcomes are in the order of the
/// jobs, whichever ended first. What two jobs share is simulated once.
///
/// `tell` is called every 100 ms or so; `Break` ends all runs.
///
/// # Errors
/// See [`run_each`].
pub fn run_all(
    jobs: &[Job<'_>],
    tell: &mut dyn FnMut(Far) -> ControlFlow<()>,
) -> Result<Vec<Outcome>, RunError> {
    let mut outcomes = Vec::with_capacity(jobs.len());
    run_each(jobs, tell, &mut |outcome| {
        outcomes.push(outcome);
        ControlFlow::Continue(())
    })?;
    Ok(outcomes)
}

/// The same, and `ended` gets each outcome as soon as it and all of earlier jobs are there, in
/// their order. Later jobs run meanwhile: no processor waits for the last of a group. `Break` ends
/// all runs.
///
/// # Errors
/// That of the first job, in their order, that failed by itself; [`RunError::Cancelled`] when
/// `tell` or `ended` ended them.
pub fn run_each(
    jobs: &[Job<'_>],
    tell: &mut dyn FnMut(Far) -> ControlFlow<()>,
    ended: &mut dyn FnMut(Outcome) -> ControlFlow<()>,
) -> Result<(), RunError> {
    let mut texts = Texts::default();
    let first = first_of_each(jobs, &mut texts);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let groups = groups(jobs, &first, &mut texts, threads);
    drop(texts);
    let mut sharing: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, &first) in first.iter().enumerate().filter(|&(index, &first)| index != first) {
        sharing.entry(first).or_default().push(index);
    }
    let all: u128 = jobs.iter().map(|job| u128::from(job.length())).sum();
    let positions: Vec<AtomicU64> = jobs.iter().map(|_| AtomicU64::new(0)).collect();
    let mut results: Vec<Option<Result<Outcome, RunError>>> = jobs.iter().map(|_| None).collect();
    let (next, cancelled) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (send, done) = mpsc::channel();
    let mut taken = 0;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let send = send.clone();
            let (next, cancelled, positions, groups) = (&next, &cancelled, &positions, &groups);
            scope.spawn(move || {
                loop {
                    let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        return;
                    };
                    let first = &jobs[group[0]];
                    let mut watch = Watch { position: &positions[group[0]], cancelled };
                    let branches: Vec<_> =
                        group.iter().map(|&job| (jobs[job].scenario, jobs[job].variant)).collect();
                    let mut ended = |number: usize, result: Result<Outcome, RunError>| {
                        let index = group[number];
                        if result.is_err() {
                            cancelled.store(true, Ordering::Relaxed);
                        }
                        positions[index].store(jobs[index].length(), Ordering::Relaxed);
                        // The receiver is gone when the caller unwinds.
                        let _ = send.send((index, result));
                    };
                    run_branches(&branches, first.seed, &mut watch, first.traces, &mut ended);
                }
            });
        }
        drop(send);
        let mut count = 0;
        loop {
            match done.recv_timeout(TELL) {
                Ok((index, result)) => {
                    count += 1;
                    for &same in sharing.get(&index).into_iter().flatten() {
                        count += 1;
                        positions[same].store(jobs[same].length(), Ordering::Relaxed);
                        let shared = result.clone().map(|outcome| jobs[same].named(outcome));
                        results[same] = Some(shared);
                    }
                    results[index] = Some(result);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while let Some(outcome) = results.get_mut(taken).and_then(take_outcome) {
                taken += 1;
                if ended(outcome).is_break() {
                    cancelled.store(true, Ordering::Relaxed);
                }
            }
            let sum: u128 = positions.iter().map(|at| u128::from(at.load(Ordering::Relaxed))).sum();
            let permille = u64::try_from(sum * 1_000 / all.max(1)).unwrap_or(1_000);
            if tell(Far { permille, done: count }).is_break() {
                cancelled.store(true, Ordering::Relaxed);
            }
        }
    });
    if taken == jobs.len() { Ok(()) } else { Err(first_failure(results)) }
}

/// The error of the first run that failed by itself, or one that says that all were ended.
fn first_failure(results: Vec<Option<Result<Outcome, RunError>>>) -> RunError {
    let mut cut = None;
    for error in results.into_iter().flatten().filter_map(Result::err) {
        match error {
            RunError::Cancelled { .. } => cut = cut.or(Some(error)),
            error => return error,
        }
    }
    cut.unwrap_or(RunError::Cancelled { at: Nanos::ZERO })
}

/// The outcome of a run that ended well.
fn take_outcome(result: &mut Option<Result<Outcome, RunError>>) -> Option<Outcome> {
    match result.take() {
        Some(Ok(outcome)) => Some(outcome),
        other => {
            *result = other;
            None
        }
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
    fn what_jobs_share_is_simulated_once_and_has_their_names() {
        let text = |name: &str, rate: u32| {
            format!(
                r#"
                name = "{name}"
                title = "One VM"
                duration = "5s"
                datastore = [{{ name = "lun", device = "rate={rate},latency=1ms" }}]
                vm = [{{ name = "a", disk = [{{ shares = 100 }}], workload = [{{ kind = "closed" }}] }}]
                [[variant]]
                name = "one"
                [[variant]]
                name = "two"
                "#
            )
        };
        let [x, y, z] = [("x", 500), ("y", 500), ("z", 600)].map(|(name, rate)| {
            Scenario::parse("one.toml", &text(name, rate)).unwrap_or_else(|e| panic!("{e}"))
        });
        let job = |scenario, variant, seed| Job { scenario, variant, seed, traces: &NoTraces };
        let jobs = [
            job(&x, "one", 1),
            job(&x, "two", 1),
            job(&x, "two", 2),
            job(&y, "one", 1),
            job(&z, "one", 1),
            job(&z, "none", 1),
        ];
        assert_eq!(first_of_each(&jobs, &mut Texts::default()), [0, 0, 2, 0, 4, 5]);
        let jobs = &jobs[..5];
        let outcomes = run_all(jobs, &mut |_| ControlFlow::Continue(())).unwrap();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            assert_eq!(run(job.scenario, job.variant, job.seed, &mut Quiet), Ok(outcome));
        }
    }

    #[test]
    fn outcomes_come_in_order_while_later_jobs_run() {
        let scenario = scenario();
        let job = |seed| Job { scenario: &scenario, variant: "default", seed, traces: &NoTraces };
        let jobs: Vec<Job<'_>> = (0..9).map(job).collect();
        let mut seeds = Vec::new();
        let ended = run_each(&jobs, &mut |_| ControlFlow::Continue(()), &mut |outcome| {
            seeds.push(outcome.seed);
            ControlFlow::Continue(())
        });
        assert_eq!((ended, seeds), (Ok(()), (0..9).collect::<Vec<u64>>()));

        let mut count = 0;
        let ended = run_each(&jobs, &mut |_| ControlFlow::Continue(()), &mut |_| {
            count += 1;
            if count == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(count >= 2, "what had ended is told of");
        assert!(count == 9 || matches!(ended, Err(RunError::Cancelled { .. })), "{ended:?}");
    }

    #[test]
    fn runs_end_when_somebody_wants_it_and_when_one_fails() {
        let scenario = scenario();
        let of_seed =
            |seed| Job { scenario: &scenario, variant: "default", seed, traces: &NoTraces };
        let many: Vec<Job<'_>> = (0..50).map(of_seed).collect();
        let stopped = run_all(&many, &mut |_| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(RunError::Cancelled { .. })));
        let failed = run_all(&[of_seed(1), Job { variant: "nosuch", ..of_seed(1) }], &mut |_| {
            ControlFlow::Continue(())
        });
        assert!(matches!(failed, Err(RunError::UnknownVariant { .. })), "{failed:?}");
        assert_eq!(run_all(&[], &mut |_| ControlFlow::Continue(())).map(|all| all.len()), Ok(0));
    }
}
