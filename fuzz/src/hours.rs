//! Feeds targets for a given time, led by coverage, and adds what they were fed to the ledger.
//!
//! The time is divided among the targets, and those with the fewest executions so far come first.
//! What a process ran is in the ledger when it ends, at the latest after [`SLICE`]: so a session
//! that somebody stops has lost nothing, and one that is killed a quarter of an hour.

use crate::ledger::{Fed, Ledger, Row, date};
use crate::libfuzzer::{self, Ended, How, Places};
use crate::{Target, all, corpus};
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// No process runs longer.
pub const SLICE: Duration = Duration::from_secs(15 * 60);
/// A target that broke so many promises is left alone: most are one.
pub const FOUND_MAX: u64 = 10;

/// How targets are fed.
#[derive(Clone, Debug)]
pub struct Session {
    /// The program with libFuzzer.
    pub fuzzer: PathBuf,
    /// What the ledger calls it.
    pub build: String,
    /// The time in all.
    pub time: Duration,
    /// How many targets are fed at once.
    pub jobs: usize,
    /// The ledger.
    pub ledger: PathBuf,
    /// Where corpora grow, and what processes say.
    pub work: PathBuf,
    /// Where inputs go that break a promise.
    pub found: PathBuf,
    /// How long a process may take to end once it is asked to.
    pub patience: Duration,
}

/// What a target was fed in this session.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its name.
    pub target: &'static str,
    /// What it was fed.
    pub fed: Fed,
    /// Edges of the program that were reached at last, if that was said.
    pub edges: Option<u64>,
    /// Why it was fed no more before its time was up.
    pub failure: Option<String>,
}

/// The targets in the order in which they are fed, and how long each is.
pub fn plan<'t>(
    ledger: &Ledger,
    targets: &[&'t Target],
    time: Duration,
    jobs: usize,
) -> (Vec<&'t Target>, Duration) {
    let mut order = targets.to_vec();
    order.sort_by_key(|target| ledger.sum(target.name).executions);
    let turns = order.len().div_ceil(jobs.max(1)).max(1);
    (order, time / turns as u32)
}

/// Feeds these targets until their time is up or `stop` is set. `told` hears of each as it ends.
///
/// # Errors
/// When a file or the program cannot be used. That a target broke a promise is in its outcome.
pub fn feed(
    session: &Session,
    targets: &[&'static Target],
    stop: &AtomicBool,
    told: impl Fn(&Outcome) + Sync,
) -> Result<Vec<Outcome>> {
    let (order, each) = plan(&read(&session.ledger)?, targets, session.time, session.jobs);
    let queue = Mutex::new(VecDeque::from(order));
    let done = Mutex::new(Vec::new());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || -> Result<()> {
        while !stop.load(Relaxed)
            && let Some(target) = next()
        {
            let outcome = feed_one(session, target, each, stop)?;
            told(&outcome);
            done.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..session.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        // A panic of a worker is this thread's.
        let joined = workers.into_iter().map(|worker| match worker.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // All are waited for, whatever the first says.
        joined.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn feed_one(
    session: &Session,
    target: &'static Target,
    time: Duration,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let dir = |name: &str| -> Result<PathBuf> {
        let dir = session.work.join(name);
        fs::create_dir_all(&dir).with_context(|| format!("{}", dir.display()))?;
        Ok(dir)
    };
    let grown = dir("corpus")?.join(target.name);
    corpus::unpack(&corpus::load(target.name)?, &grown)?;
    corpus::unpack(&target.seeds(), &grown)?;
    let log = dir("logs")?.join(target.name);
    fs::create_dir_all(&session.found).with_context(|| format!("{}", session.found.display()))?;
    let places = Places::new(&session.fuzzer, &grown, &log);
    let mut outcome =
        Outcome { target: target.name, fed: Fed::default(), edges: None, failure: None };
    let started = Instant::now();
    // What is less than a second in one process is a second in many.
    let mut processor = Duration::ZERO;
    while !stop.load(Relaxed) && outcome.failure.is_none() {
        let left = time.saturating_sub(started.elapsed());
        if left < Duration::from_secs(1) && outcome.fed.executions > 0 {
            break;
        }
        let before = count(&session.found, target.name)?;
        let Ended { executions, edges, processor: took, how } = libfuzzer::run(
            target,
            places,
            &session.found,
            left.min(SLICE),
            session.patience,
            stop,
        )?;
        let found = count(&session.found, target.name)?.saturating_sub(before);
        let seconds = (processor + took).as_secs() - processor.as_secs();
        processor += took;
        let fed = Fed { seconds, executions, found };
        if fed != Fed::default() {
            let lock = session.work.join("ledger.lock");
            enter(&session.ledger, &lock, &session.build, target, fed)?;
        }
        outcome.fed.seconds += fed.seconds;
        outcome.fed.executions += fed.executions;
        outcome.fed.found += fed.found;
        outcome.edges = edges.or(outcome.edges);
        outcome.failure = match how {
            // A sanitiser ends it with a status of its own.
            How::Found | How::Failed(_) if found > 0 => (outcome.fed.found >= FOUND_MAX)
                .then(|| format!("it broke {} promises", outcome.fed.found)),
            How::Found => Some(format!("what broke was known: {}", log.display())),
            How::Failed(status) => Some(format!("{status}: {} says why", log.display())),
            How::Stopped => None,
        };
    }
    Ok(outcome)
}

/// Inputs of this target that broke a promise.
fn count(found: &Path, target: &str) -> Result<u64> {
    let entries = fs::read_dir(found).with_context(|| format!("{}", found.display()))?;
    let mut count = 0;
    for entry in entries {
        let name = entry?.file_name();
        count += u64::from(name.to_string_lossy().starts_with(&format!("{target}-")));
    }
    Ok(count)
}

fn read(path: &Path) -> Result<Ledger> {
    let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    Ledger::parse(&text).with_context(|| format!("{}", path.display()))
}

/// Adds to the ledger what a target was fed. Others may do so at the same time with this lock.
///
/// # Errors
/// When the ledger or the lock cannot be read or written.
pub fn enter(ledger: &Path, lock: &Path, build: &str, target: &Target, fed: Fed) -> Result<()> {
    let lock = File::create(lock).with_context(|| format!("{}", lock.display()))?;
    lock.lock()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut after = read(ledger)?;
    after.add(Row::of(date(now.as_secs()), build, target.name, fed));
    write(ledger, &after)
}

/// Writes the ledger, whole or not at all.
///
/// # Errors
/// When it cannot be written.
fn write(path: &Path, ledger: &Ledger) -> Result<()> {
    let names: Vec<&str> = all().iter().map(|target| target.name).collect();
    let beside = path.with_extension("new");
    fs::write(&beside, ledger.render(&names)).with_context(|| format!("{}", beside.display()))?;
    fs::rename(&beside, path).with_context(|| format!("{}", path.display()))
}

/// What was fed in all and what is missing, as it stands in the ledger; its rows may have been
/// changed by hand, so the sums are written anew.
///
/// # Errors
/// When the ledger cannot be read or written.
pub fn sums(path: &Path) -> Result<String> {
    let ledger = read(path)?;
    write(path, &ledger)?;
    let names: Vec<&str> = all().iter().map(|target| target.name).collect();
    Ok(ledger.sums(&names))
}
