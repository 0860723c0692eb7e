//! Runs fuzz targets on stable Rust, and keeps their corpora.

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use headgate_fuzz::{Target, all, corpus, drive, find};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "Runs fuzz targets on stable Rust, and keeps their corpora")]
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
        Command::Run { targets, mutations, seconds, seed, found } => {
            let until = match seconds {
                Some(seconds) => drive::Until::Time(Duration::from_secs(seconds)),
                None => drive::Until::Mutations(mutations),
            };
            run_all(&targets, until, seed, &found)
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

/// Goes on after a failure, so that one run tells of all.
fn run_all(names: &[String], until: drive::Until, seed: u64, found: &Path) -> Result<()> {
    let chosen: Vec<&Target> = match names {
        [] => all().iter().collect(),
        names => names.iter().map(|name| find(name)).collect::<Result<_, _>>()?,
    };
    let mut failed = Vec::new();
    for target in chosen {
        let started = Instant::now();
        match drive::drive(target, until, seed, found) {
            Ok(count) => println!(
                "{:16} {:8} kept inputs and seeds, {:9} mutations, {:6.1} s",
                target.name,
                count.kept,
                count.mutations,
                started.elapsed().as_secs_f64()
            ),
            Err(e) => {
                eprintln!("error: {e:#}");
                failed.push(target.name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}
