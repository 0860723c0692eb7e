//! Runs fuzz targets, keeps their corpora, and counts what they were fed.

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use headgate_fuzz::hours::{self, Outcome, Session};
use headgate_fuzz::ledger::Fed;
use headgate_fuzz::libfuzzer::{self, Places};
use headgate_fuzz::{Target, all, corpus, drive, find};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "Runs fuzz targets, keeps their corpora, and counts what they were fed")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The targets, and what each is fed with
    List,
    /// Feeds targets with what is kept, and with mutations of it
    Run {
        /// Targets; all if none is named
        targets: Vec<String>,
        /// Mutations per target
        #[arg(long, default_value_t = 2_000, conflicts_with = "seconds")]
        mutations: u64,
        /// Seconds per target instead
        #[arg(long)]
        seconds: Option<u64>,
        /// Seed of the mutations
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where inputs go that break a promise
        #[arg(long, default_value = "target/fuzz/found")]
        found: PathBuf,
        /// A ledger to add to what was fed
        #[arg(long)]
        ledger: Option<PathBuf>,
    },
    /// Feeds targets for a time in all, led by coverage, and adds what they were fed to the ledger
    Hours(Hours),
    /// Prints what was fed in all, and writes the sums of the ledger anew
    Ledger {
        /// The ledger
        #[arg(long, default_value = LEDGER)]
        ledger: PathBuf,
    },
    /// Keeps a smallest part of the grown corpora that reaches as much
    Keep {
        /// Targets; all if none is named
        targets: Vec<String>,
        /// The program with libFuzzer
        #[arg(long)]
        fuzzer: PathBuf,
        /// Where corpora grow
        #[arg(long, default_value = WORK)]
        work: PathBuf,
    },
    /// Feeds a target with one file
    Replay {
        /// The target
        target: String,
        /// The file
        input: PathBuf,
    },
    /// Writes the kept inputs and seeds of a target to a directory, one file each
    Unpack {
        /// The target
        target: String,
        /// The directory
        dir: PathBuf,
    },
    /// Keeps the files of a directory as a target's inputs, in place of those that are kept
    Pack {
        /// The target
        target: String,
        /// The directory
        dir: PathBuf,
    },
}

const LEDGER: &str = "docs/fuzzing.md";
const WORK: &str = "target/fuzz";

#[derive(clap::Args)]
struct Hours {
    /// Targets; all if none is named
    targets: Vec<String>,
    /// The program with libFuzzer
    #[arg(long)]
    fuzzer: PathBuf,
    /// What the ledger calls it
    #[arg(long)]
    build: String,
    /// The time in all, in seconds; it is divided among the targets
    #[arg(long)]
    seconds: u64,
    /// How many targets are fed at once
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// The ledger
    #[arg(long, default_value = LEDGER)]
    ledger: PathBuf,
    /// Where corpora grow
    #[arg(long, default_value = WORK)]
    work: PathBuf,
    /// Where inputs go that break a promise
    #[arg(long, default_value = "fuzz/found")]
    found: PathBuf,
    /// Seconds that a process may take to end once it is asked to
    #[arg(long, default_value_t = 20)]
    patience: u64,
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::List => {
            for target in all() {
                println!("{:16} {}", target.name, target.about);
            }
            Ok(())
        }
        Command::Run { targets, mutations, seconds, seed, found, ledger } => {
            let until = match seconds {
                Some(seconds) => drive::Until::Time(Duration::from_secs(seconds)),
                None => drive::Until::Mutations(mutations),
            };
            run_all(&chosen(&targets)?, until, seed, &found, ledger.as_deref())
        }
        Command::Hours(options) => feed_hours(options),
        Command::Ledger { ledger } => {
            print!("{}", hours::sums(&ledger)?);
            Ok(())
        }
        Command::Keep { targets, fuzzer, work } => {
            chosen(&targets)?.into_iter().try_for_each(|target| keep(target, &fuzzer, &work))
        }
        Command::Replay { target, input } => {
            let bytes = std::fs::read(&input).with_context(|| format!("{}", input.display()))?;
            drive::replay(find(&target)?, &bytes, Path::new("target/fuzz/found"))
        }
        Command::Unpack { target, dir } => {
            let target = find(&target)?;
            corpus::unpack(&corpus::load(target.name)?, &dir)?;
            corpus::unpack(&target.seeds(), &dir)
        }
        Command::Pack { target, dir } => {
            let target = find(&target)?;
            corpus::store(target.name, &corpus::pack(&dir)?)
        }
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Target>> {
    Ok(match names {
        [] => all().iter().collect(),
        names => names.iter().map(|name| find(name)).collect::<Result<_, _>>()?,
    })
}

/// Is set when somebody stops the process.
fn stopped_by_signals() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("a signal")?;
    }
    Ok(stop)
}

/// Ends well when somebody stops it: what was fed until then is in the ledger.
fn feed_hours(options: Hours) -> Result<()> {
    let targets = chosen(&options.targets)?;
    let stop = stopped_by_signals()?;
    let session = Session {
        fuzzer: options.fuzzer,
        build: options.build,
        time: Duration::from_secs(options.seconds),
        jobs: options.jobs,
        ledger: options.ledger,
        work: options.work,
        found: options.found,
        patience: Duration::from_secs(options.patience),
    };
    let told = |outcome: &Outcome| {
        let Outcome { target, fed, edges, failure } = outcome;
        let edges = edges.map_or("?".to_owned(), |edges| edges.to_string());
        println!(
            "{target:16} {:12} executions in {:6} s of processor time, {edges:>6} edges, {} found",
            fed.executions, fed.seconds, fed.found
        );
        if let Some(failure) = failure {
            eprintln!("error: {target}: {failure}");
        }
    };
    let outcomes = hours::feed(&session, &targets, &stop, told)?;
    let broken = |outcome: &&Outcome| outcome.fed.found > 0 || outcome.failure.is_some();
    let failed: Vec<&str> = outcomes.iter().filter(broken).map(|one| one.target).collect();
    if !failed.is_empty() {
        bail!("failed: {}; inputs are in {}", failed.join(", "), session.found.display());
    }
    Ok(())
}

fn keep(target: &Target, fuzzer: &Path, work: &Path) -> Result<()> {
    let [grown, small, logs] = ["corpus", "small", "logs"].map(|dir| work.join(dir));
    let (grown, small) = (grown.join(target.name), small.join(target.name));
    if small.exists() {
        std::fs::remove_dir_all(&small).with_context(|| format!("{}", small.display()))?;
    }
    for dir in [&small, &logs] {
        std::fs::create_dir_all(dir).with_context(|| format!("{}", dir.display()))?;
    }
    corpus::unpack(&corpus::load(target.name)?, &grown)?;
    let log = logs.join(format!("{}.merge", target.name));
    libfuzzer::merge(target, Places::new(fuzzer, &grown, &log), &small)?;
    let kept = corpus::pack(&small)?;
    corpus::store(target.name, &kept)?;
    println!("{:16} {:6} inputs kept", target.name, kept.len());
    Ok(())
}

/// What the ledger calls this driver.
const BUILD: &str =
    if cfg!(debug_assertions) { "stable driver, debug" } else { "stable driver, release" };

/// Processor time of this process.
fn processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Goes on after a failure, so that one run tells of all.
fn run_all(
    targets: &[&'static Target],
    until: drive::Until,
    seed: u64,
    found: &Path,
    ledger: Option<&Path>,
) -> Result<()> {
    let stop = stopped_by_signals()?;
    let mut failed = Vec::new();
    for target in targets {
        let (started, before) = (Instant::now(), processor());
        let mut count = drive::Count::default();
        let done = drive::drive(target, until, seed, found, &stop, &mut count);
        println!(
            "{:16} {:8} kept inputs and seeds, {:9} mutations, {:6.1} s",
            target.name,
            count.kept,
            count.mutations,
            started.elapsed().as_secs_f64()
        );
        if let Some(ledger) = ledger {
            let seconds = (processor() - before).as_secs();
            let fed = Fed { seconds, executions: count.executions(), found: done.is_err().into() };
            hours::enter(ledger, &found.join("ledger.lock"), BUILD, target, fed)?;
        }
        if let Err(e) = done {
            eprintln!("error: {e:#}");
            failed.push(target.name);
        }
        if stop.load(Relaxed) {
            break;
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}
