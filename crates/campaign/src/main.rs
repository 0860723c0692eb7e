//! The campaign's command line.

use anyhow::Result;
use clap::{Parser, ValueEnum};
use headgate_campaign::bars::{RATCHET_SEEDS, entries};
use headgate_campaign::class::Class;
use headgate_campaign::draw::draw;
use headgate_campaign::judge::Score;
use headgate_campaign::latency::grid::{self, Cell, Terms};
use headgate_campaign::latency::table;
use headgate_campaign::setup::{Suspect, Withheld};
use headgate_campaign::{campaign, experiments, report};
use headgate_qos::SchedulerKind;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Judges the scheduler from outside: random set-ups, and an oracle of their own
#[derive(Debug, Parser)]
#[command(name = "campaign")]
struct Args {
    /// Set-ups of each class
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// The first of their seeds
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only this class; may be given several times
    #[arg(long)]
    class: Vec<Class>,
    /// Runs one seed of each class and prints a table of its disks; with --latency, its seed
    #[arg(long)]
    seed: Option<u64>,
    /// The scheduler: mclock, sfq or fifo
    #[arg(long, default_value = "mclock")]
    scheduler: SchedulerKind,
    /// What the scheduler is not told, to see a check fail
    #[arg(long, value_enum)]
    withhold: Option<Withhold>,
    /// Runs the experiments instead: findings of a review
    #[arg(long)]
    experiments: bool,
    /// Measures what requests of reserved disks take beside a neighbour instead, and alone
    #[arg(long)]
    latency: bool,
    /// Virtual time of each run of --latency
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    seconds: u64,
    /// Prints the known misses as code instead
    #[arg(long)]
    ratchet: bool,
    /// Threads; both cores of a small machine unless given
    #[arg(long)]
    jobs: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Withhold {
    Limits,
    Shares,
    Reservations,
    Floor,
    HalfOfLimits,
    Directions,
    SwappedDirections,
    Targets,
    Window,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let withheld = match args.withhold {
        None => Withheld::Nothing,
        Some(Withhold::Limits) => Withheld::Limits,
        Some(Withhold::Shares) => Withheld::Shares,
        Some(Withhold::Reservations) => Withheld::Reservations,
        Some(Withhold::Floor) => Withheld::Floor,
        Some(Withhold::HalfOfLimits) => Withheld::HalfOfLimits,
        Some(Withhold::Directions) => Withheld::Directions,
        Some(Withhold::SwappedDirections) => Withheld::SwappedDirections,
        Some(Withhold::Targets) => Withheld::Targets,
        Some(Withhold::Window) => Withheld::Window,
    };
    let suspect = Suspect { kind: args.scheduler, withheld };
    if args.experiments {
        print(&experiments::table(suspect)?)?;
        return Ok(());
    }
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))?;
    let jobs = args.jobs.unwrap_or_else(campaign::cores);
    let watched = std::io::stderr().is_terminal();
    let progress = |done: usize, of: usize| {
        if watched {
            eprint!("\r{done} of {of} set-ups{}", if done == of { "\n" } else { "" });
        }
    };
    if args.latency {
        let terms = Terms { seconds: args.seconds, seed: args.seed.unwrap_or(0), withheld };
        let rows = grid::rows(&Cell::all(), terms, jobs, &stop, &progress)?;
        print(&table::rows(&rows))?;
        return Ok(());
    }
    let classes = if args.class.is_empty() { Class::ALL.to_vec() } else { args.class };
    if let Some(seed) = args.seed {
        return classes.iter().try_for_each(|&class| replay(class, seed, suspect));
    }
    let seeds = match args.ratchet {
        true => 0..RATCHET_SEEDS,
        false => args.first..args.first.saturating_add(args.seeds),
    };
    let scores = campaign::campaign(&classes, seeds, suspect, jobs, &stop, &progress)?;
    if stop.load(Ordering::Relaxed) {
        print("interrupted: figures of the set-ups that were done\n\n")?;
    }
    if args.ratchet {
        for (&class, score) in &scores {
            let lines: String =
                entries(class, score).iter().map(|entry| format!("{entry}\n")).collect();
            print(&lines)?;
        }
        return Ok(());
    }
    let tables = [report::classes(&scores), report::special(&scores), report::verdicts(&scores)];
    print(&tables.join("\n"))
}

fn replay(class: Class, seed: u64, suspect: Suspect) -> Result<()> {
    let setup = draw(class, seed);
    let (record, samples) = campaign::judged(&setup, suspect)?;
    let mut score = Score::default();
    samples.iter().for_each(|sample| score.add(seed, sample));
    let scores = [(class, score)].into();
    let tables = [report::classes(&scores), report::special(&scores)];
    print(&format!("{}\n{}", report::disks(&setup, &record, &samples), tables.join("\n")))
}

/// To standard output, whose reader may have gone.
fn print(text: &str) -> Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
