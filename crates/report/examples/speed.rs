//! Where the time of the experiments goes: `cargo run --release -p headgate-report --example speed`.
//!
//! One line for each experiment whose name begins with one of the arguments (all of them without
//! any): its runs, millions of events, seconds of a processor, millions of events in such a second,
//! and a digest of all outcomes. Equal digests are equal outcomes, to the byte, so two builds are
//! compared by their lines. All runs are one after the other, on one thread.
//!
//! - `--runs`: a line for each run instead.
//! - `--seeds N`: the first N seeds of each experiment.
//! - `--traces DIR`: where traces are; experiments whose traces are not there are left out.
//! - `--together`: all at once on all processors, as `headgate reproduce --all`, without lines:
//!   prints the seconds of real time until the first experiment and the last ended.

use headgate_report::{FileTraces, Job, experiments, run_each};
use headgate_sim::{Outcome, Quiet, Scenario, run_with};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

struct Wanted {
    names: Vec<String>,
    by_run: bool,
    together: bool,
    seeds: usize,
    traces: FileTraces,
}

impl Wanted {
    fn from_arguments() -> Result<Wanted, String> {
        let mut wanted = Wanted {
            names: Vec::new(),
            by_run: false,
            together: false,
            seeds: usize::MAX,
            traces: FileTraces::within(Path::new("traces")),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--runs" => wanted.by_run = true,
                "--together" => wanted.together = true,
                "--seeds" => wanted.seeds = value()?.parse().map_err(|e| format!("--seeds: {e}"))?,
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
        serde_json::to_writer(&mut self.digest, outcome).map_err(|e| e.to_string())
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
fn on_processor() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), String> {
    let wanted = Wanted::from_arguments()?;
    let known = experiments().map_err(|e| e.to_string())?;
    let chosen: Vec<&Scenario> = known.iter().filter(|scenario| wanted.has(scenario)).collect();
    if wanted.together {
        return together(&wanted, &chosen);
    }
    println!(
        "{:<44} {:>5} {:>9} {:>8} {:>7}  digest",
        "experiment", "runs", "M events", "seconds", "M/s"
    );
    let mut all = Sum::default();
    for scenario in chosen {
        let mut sum = Sum::default();
        for variant in &scenario.variants {
            for &seed in wanted.seeds(scenario) {
                let before = on_processor();
                let outcome =
                    run_with(scenario, &variant.name, seed, &mut Quiet, &wanted.traces)
                        .map_err(|e| format!("{}: {e}", scenario.name))?;
                let nanos = on_processor() - before;
                sum.add(&outcome, nanos)?;
                all.add(&outcome, nanos)?;
                if wanted.by_run {
                    let mut one = Sum::default();
                    one.add(&outcome, nanos)?;
                    println!("{}", one.line(&format!("{} {} {seed}", scenario.name, variant.name)));
                }
            }
        }
        if !wanted.by_run {
            println!("{}", sum.line(&scenario.name));
        }
    }
    println!("{}", all.line("all"));
    Ok(())
}

#[allow(clippy::disallowed_methods)] // It measures real time.
fn together(wanted: &Wanted, chosen: &[&Scenario]) -> Result<(), String> {
    let began = std::time::Instant::now();
    let mut jobs = Vec::new();
    for &scenario in chosen {
        for variant in &scenario.variants {
            let traces = &wanted.traces;
            let job = |&seed| Job { scenario, variant: &variant.name, seed, traces };
            jobs.extend(wanted.seeds(scenario).iter().map(job));
        }
    }
    let of_first = jobs.iter().take_while(|job| job.scenario.name == jobs[0].scenario.name).count();
    let mut sum = Sum::default();
    let mut failed = None;
    run_each(&jobs, &mut |_| ControlFlow::Continue(()), &mut |outcome| {
        failed = failed.take().or(sum.add(&outcome, 0).err());
        if sum.runs == of_first {
            println!("first experiment after {:.2} s", began.elapsed().as_secs_f64());
        }
        ControlFlow::Continue(())
    })
    .map_err(|e| e.to_string())?;
    println!("{} runs in {:.2} s, {:016x}", sum.runs, began.elapsed().as_secs_f64(), sum.digest.0);
    failed.map_or(Ok(()), Err)
}
