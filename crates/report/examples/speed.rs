//! Where the time of the experiments goes:
//! `cargo run --release -p headgate-report --example speed`.
//!
//! One line for each experiment whose name begins with one of the arguments (all of them without
//! any), which runs as `headgate reproduce` has it: its runs, millions of events, seconds of a
//! processor, millions of events in such a second, and a digest of all outcomes but for the number
//! of events. Equal digests are equal outcomes, to the byte, so two builds are compared by their
//! lines.
//!
//! - `--alone`: a line for each run instead. None shares anything with another.
//! - `--together`: all experiments at once, as `headgate reproduce --all`: a line for each run,
//!   without seconds, then how long the first experiment and all took.
//! - `--seeds N`: the first N seeds of each experiment.
//! - `--traces DIR`: where traces are; experiments whose traces are not there are left out.

use headgate_report::{FileTraces, Job, experiments, run_each};
use headgate_sim::{Outcome, Quiet, Scenario, run_with};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

/// What runs beside what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One experiment after the other.
    Each,
    /// One run after the other.
    Alone,
    /// All at once.
    Together,
}

struct Wanted {
    names: Vec<String>,
    way: Way,
    seeds: usize,
    traces: FileTraces,
}

impl Wanted {
    fn from_arguments() -> Result<Wanted, String> {
        let mut wanted = Wanted {
            names: Vec::new(),
            way: Way::Each,
            seeds: usize::MAX,
            traces: FileTraces::within(Path::new("traces")),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--alone" => wanted.way = Way::Alone,
                "--together" => wanted.way = Way::Together,
                "--seeds" => {
                    wanted.seeds = value()?.parse().map_err(|e| format!("--seeds: {e}"))?
                }
                "--traces" => wanted.traces = FileTraces::within(Path::new(&value()?)),
                name if name.starts_with('-') => return Err(format!("unknown option {name}")),
                name => wanted.names.push(name.to_owned()),
            }
        }
        Ok(wanted)
    }

    fn has(&self, scenario: &Scenario) -> bool {
        let named = self.names.is_empty()
            || self.names.iter().any(|name| scenario.name.starts_with(name.as_str()));
        named && self.traces.missing(&scenario.traces).is_empty()
    }

    fn seeds<'a>(&self, scenario: &'a Scenario) -> &'a [u64] {
        &scenario.seeds[..self.seeds.min(scenario.seeds.len())]
    }
}

/// What some runs took and gave.
#[derive(Default)]
struct Sum {
    runs: usize,
    events: u64,
    nanos: u64,
    digest: Digest,
}

impl Sum {
    fn line(&self, name: &str) -> String {
        let (events, seconds) = (self.events as f64 / 1e6, self.nanos as f64 / 1e9);
        format!(
            "{name:<44} {:>5} {events:>9.2} {seconds:>8.3} {:>7.2}  {:016x}",
            self.runs,
            events / seconds.max(1e-9),
            self.digest.0
        )
    }

    fn add(&mut self, outcome: &Outcome, nanos: u64) -> Result<(), String> {
        self.runs += 1;
        self.events += outcome.events;
        self.nanos += nanos;
        // How many events it took to find out is no part of what came out.
        let mut outcome = outcome.clone();
        outcome.events = 0;
        serde_json::to_writer(&mut self.digest, &outcome).map_err(|e| e.to_string())
    }
}

/// FNV-1a.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Nanoseconds that this thread had a processor, from the kernel; 0 where it does not say.
fn of_thread() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// The same of all threads, also of those that ended, in steps of 10 ms.
fn of_process() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let times = stat.rsplit(')').next().unwrap_or_default().split(' ').skip(12).take(2);
    times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * 10_000_000
}

fn main() -> Result<(), String> {
    let wanted = Wanted::from_arguments()?;
    let known = experiments().map_err(|e| e.to_string())?;
    let chosen: Vec<&Scenario> = known.iter().filter(|scenario| wanted.has(scenario)).collect();
    println!(
        "{:<44} {:>5} {:>9} {:>8} {:>7}  digest",
        "experiment", "runs", "M events", "seconds", "M/s"
    );
    match wanted.way {
        Way::Each => each(&wanted, &chosen),
        Way::Alone => alone(&wanted, &chosen),
        Way::Together => together(&wanted, &chosen),
    }
}

fn jobs<'a>(wanted: &'a Wanted, scenario: &'a Scenario) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for variant in &scenario.variants {
        let traces = &wanted.traces;
        let job = |&seed| Job { scenario, variant: &variant.name, seed, traces };
        jobs.extend(wanted.seeds(scenario).iter().map(job));
    }
    jobs
}

/// Runs them as `headgate reproduce` does.
fn run_jobs(
    jobs: &[Job<'_>],
    ended: &mut dyn FnMut(Outcome) -> Result<(), String>,
) -> Result<(), String> {
    let mut failed = None;
    let ran = run_each(jobs, &mut |_| ControlFlow::Continue(()), &mut |outcome| {
        failed = failed.take().or(ended(outcome).err());
        ControlFlow::Continue(())
    });
    ran.map_err(|e| e.to_string())?;
    failed.map_or(Ok(()), Err)
}

fn each(wanted: &Wanted, chosen: &[&Scenario]) -> Result<(), String> {
    let mut all = Sum::default();
    for scenario in chosen {
        let mut outcomes = Vec::new();
        let before = of_process();
        run_jobs(&jobs(wanted, scenario), &mut |outcome| {
            outcomes.push(outcome);
            Ok(())
        })?;
        let mut sum = Sum { nanos: of_process() - before, ..Sum::default() };
        all.nanos += sum.nanos;
        for outcome in &outcomes {
            sum.add(outcome, 0)?;
            all.add(outcome, 0)?;
        }
        println!("{}", sum.line(&scenario.name));
    }
    println!("{}", all.line("all"));
    Ok(())
}

fn alone(wanted: &Wanted, chosen: &[&Scenario]) -> Result<(), String> {
    let mut all = Sum::default();
    for job in chosen.iter().flat_map(|scenario| jobs(wanted, scenario)) {
        let before = of_thread();
        let outcome = run_with(job.scenario, job.variant, job.seed, &mut Quiet, &wanted.traces)
            .map_err(|e| format!("{}: {e}", job.scenario.name))?;
        let mut sum = Sum::default();
        sum.add(&outcome, of_thread() - before)?;
        all.add(&outcome, sum.nanos)?;
        println!("{}", sum.line(&name_of(&outcome)));
    }
    println!("{}", all.line("all"));
    Ok(())
}

fn name_of(outcome: &Outcome) -> String {
    format!("{} {} {}", outcome.scenario, outcome.variant, outcome.seed)
}

#[allow(clippy::disallowed_methods)] // It measures real time.
fn together(wanted: &Wanted, chosen: &[&Scenario]) -> Result<(), String> {
    let began = std::time::Instant::now();
    let of_first = chosen.first().map_or(0, |scenario| jobs(wanted, scenario).len());
    let jobs: Vec<Job<'_>> = chosen.iter().flat_map(|scenario| jobs(wanted, scenario)).collect();
    let (mut all, mut first) = (Sum::default(), 0.0);
    run_jobs(&jobs, &mut |outcome| {
        let mut sum = Sum::default();
        sum.add(&outcome, 0)?;
        all.add(&outcome, 0)?;
        println!("{}", sum.line(&name_of(&outcome)));
        if all.runs == of_first {
            first = began.elapsed().as_secs_f64();
        }
        Ok(())
    })?;
    all.nanos = of_process();
    println!("{}", all.line("all"));
    let took = began.elapsed().as_secs_f64();
    println!("first experiment after {first:.2} s, all after {took:.2} s");
    Ok(())
}
