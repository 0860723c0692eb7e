//! The experiments inside the program.

mod course;
mod mutate;
mod order;
mod print;
mod seeds;
mod sensitivity;
mod traces;

use super::common::Print;
use super::error::CliError;
use super::sim::{Interrupts, run_jobs_each};
use super::write_file::replace_file;
use clap::Args;
use course::Course;
use headgate_daemon::serve::signals::EndSignal;
use headgate_report::{Experiment, FileTraces, Job, experiments, report};
use headgate_sim::{Finding, Outcome, Scenario, judge};
use mutate::mutate;
use order::Order;
use print::{list, print_experiment, print_json, print_summary};
use seeds::SeedChoice;
use sensitivity::{Shown, sensitivity};
use std::io::Write;
use std::path::PathBuf;
use traces::{Sources, TraceChoice};

/// Arguments of `reproduce`.
#[derive(Debug, Args)]
pub(super) struct Reproduce {
    /// Experiments by name, which may be shortened while it is unambiguous, such as mc-04; mc, pa,
    /// tg, ba and op stand for all experiments of a paper
    names: Vec<String>,
    /// Run all experiments
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// List experiments instead of running them; so does naming none
    #[arg(long)]
    list: bool,
    /// Write a report with figures to this file, as self-contained HTML; it has what has ended
    /// after each experiment
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    seeds: SeedChoice,
    /// Instead of comparing with the papers, run under wrong policies too, such as arrival order,
    /// and print which of them each check notices; with one seed, where a check is not of many
    #[arg(long, conflicts_with_all = ["report", "full"])]
    mutate: bool,
    /// Instead of comparing with the papers, run at other values of the parameters that the files
    /// chose freely ([[sensitivity]]), and print at which of them each claim holds
    #[arg(long, conflicts_with_all = ["mutate", "full"])]
    sensitivity: bool,
    #[command(flatten)]
    traces: TraceChoice,
    #[command(flatten)]
    pub(super) print: Print,
}

impl Reproduce {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<(), CliError> {
        let known = experiments()?;
        if self.list || (self.names.is_empty() && !self.all) {
            return list(out, &known, self.print);
        }
        let chosen: Vec<&Scenario> = match self.all {
            true => known.iter().collect(),
            false => {
                let found: Vec<_> =
                    self.names.iter().map(|name| find(&known, name)).collect::<Result<_, _>>()?;
                found.concat()
            }
        };
        let sources = self.traces.sources(&known, &chosen)?;
        let (chosen, skipped) = sources.divide(chosen)?;
        // Aloud, and before anything that takes long.
        for (scenario, why) in &skipped {
            eprintln!("{}: skipped: {why}", scenario.name);
        }
        if self.mutate {
            return mutate(out, &chosen, &self.seeds, &sources.files, self.print);
        }
        if self.sensitivity {
            let (print, report) = (self.print, self.report.as_deref());
            let shown = Shown { print, report, command: self.command() };
            return sensitivity(out, &chosen, &self.seeds, &sources, &shown);
        }
        let each = chosen.into_iter().map(|scenario| Ok((scenario, self.seeds.of(scenario)?)));
        let mut each: Vec<(&Scenario, Vec<u64>)> = each.collect::<Result<_, CliError>>()?;
        let order = Order::least_first(&mut each);
        let (chosen, seeds): (Vec<&Scenario>, Vec<Vec<u64>>) = each.into_iter().unzip();
        let (runs, cut) = self.run_chosen(out, (&chosen, &seeds, order), &sources)?;
        let done = order.as_given(experiments_done(&chosen, &seeds, &runs, &sources));
        match self.print.json {
            true => print_json(out, &done, &skipped)?,
            false => print_summary(out, &done, &skipped)?,
        }
        if let Some(signal) = cut {
            let left = chosen.iter().skip(done.len()).map(|scenario| scenario.name.as_str());
            return Err(CliError::Cut {
                signal,
                done: done.len(),
                all: chosen.len(),
                rest: self.command_for(left),
            });
        }
        match done.iter().map(Experiment::failed).sum() {
            0 => Ok(()),
            failed => {
                let all = done.iter().map(|experiment| experiment.findings.len()).sum();
                Err(CliError::Expectations { failed, all })
            }
        }
    }

    /// Runs experiments, and prints and keeps each once it has ended; also the signal that ended
    /// them all, if one did. They run in the order in which they stand, and the report has them in
    /// that in which they were given.
    fn run_chosen(
        &self,
        out: &mut dyn Write,
        (chosen, seeds, order): (&[&Scenario], &[Vec<u64>], Order),
        sources: &Sources,
    ) -> Result<(Vec<Ran>, Option<EndSignal>), CliError> {
        let interrupts = Interrupts::catch()?;
        if chosen.is_empty() {
            self.write_report(&[])?;
        }
        let mut course = Course::new(chosen, seeds);
        if let Some(scenario) = chosen.first() {
            course.tell(0, scenario);
        }
        let each = chosen.iter().zip(seeds);
        let jobs: Vec<Job<'_>> =
            each.flat_map(|(scenario, seeds)| jobs(scenario, seeds, &sources.files)).collect();
        let (mut runs, mut present): (Vec<Ran>, Vec<Outcome>) = (Vec::new(), Vec::new());
        let result = run_jobs_each(&jobs, &interrupts, &mut |outcome| {
            let (index, scenario) = (runs.len(), chosen[runs.len()]);
            present.push(outcome);
            if present.len() < scenario.variants.len() * seeds[index].len() {
                return Ok(());
            }
            let outcomes = std::mem::take(&mut present);
            let findings = judge(scenario, &outcomes);
            runs.push((outcomes, findings));
            course.ended(index);
            // What has ended is kept, whatever becomes of the others.
            let done = experiments_done(chosen, seeds, &runs, sources);
            if let (false, Some(last)) = (self.print.json, done.last()) {
                print_experiment(out, index, last)?;
                out.flush()?;
            }
            self.write_report(&order.as_given(done))?;
            if let Some(next) = chosen.get(index + 1) {
                course.tell(index + 1, next);
            }
            Ok(())
        });
        match result {
            Ok(()) => Ok((runs, None)),
            Err(CliError::Interrupted(signal)) => Ok((runs, Some(signal))),
            Err(e) => Err(e),
        }
    }

    /// Writes the report of what has ended, if one is wanted: whole, or as it was.
    fn write_report(&self, done: &[Experiment<'_>]) -> Result<(), CliError> {
        let Some(file) = &self.report else { return Ok(()) };
        let page = report(&self.command(), done).map_err(|e| CliError::Stopped(e.to_string()))?;
        replace_file(file, page.as_bytes())
    }

    /// The command that runs these experiments as this one would have.
    fn command_for<'a>(&self, names: impl Iterator<Item = &'a str>) -> String {
        let mut command = String::from("headgate reproduce");
        names.for_each(|name| command.extend([" ", name]));
        command.push_str(&self.options());
        command
    }

    fn options(&self) -> String {
        let sensitivity = if self.sensitivity { " --sensitivity" } else { "" };
        format!("{sensitivity}{}{}", self.seeds, self.traces)
    }

    /// What gives the same numbers again.
    fn command(&self) -> String {
        let mut command = String::from("headgate reproduce");
        let names = self.names.iter().map(String::as_str).chain(self.all.then_some("--all"));
        names.for_each(|name| command.extend([" ", name]));
        command.push_str(&self.options());
        command
    }
}

/// What became of one experiment.
type Ran = (Vec<Outcome>, Vec<Finding>);

/// The runs of one experiment.
fn jobs<'a>(scenario: &'a Scenario, seeds: &'a [u64], traces: &'a FileTraces) -> Vec<Job<'a>> {
    let variants = scenario.variants.iter().map(|variant| variant.name.as_str());
    let one = move |variant| seeds.iter().map(move |&seed| Job { scenario, variant, seed, traces });
    variants.flat_map(one).collect()
}

/// Those of the chosen experiments that have ended.
fn experiments_done<'a>(
    chosen: &[&'a Scenario],
    seeds: &'a [Vec<u64>],
    runs: &'a [Ran],
    sources: &'a Sources,
) -> Vec<Experiment<'a>> {
    let each = chosen.iter().zip(seeds).zip(runs);
    each.map(|((scenario, seeds), (outcomes, findings))| Experiment {
        scenario,
        seeds,
        outcomes,
        findings,
        own_traces: sources.own_of(scenario),
    })
    .collect()
}

/// An experiment by its name, or by the beginning of it where no other begins so; or all whose
/// names begin with this word.
fn find<'a>(known: &'a [Scenario], name: &str) -> Result<Vec<&'a Scenario>, CliError> {
    if let Some(exact) = known.iter().find(|scenario| scenario.name == name) {
        return Ok(vec![exact]);
    }
    let word = |scenario: &&Scenario| {
        scenario.name.split_once('-').is_some_and(|(first, _)| first == name)
    };
    let series: Vec<&Scenario> = known.iter().filter(word).collect();
    if !series.is_empty() {
        return Ok(series);
    }
    let begins: Vec<&Scenario> =
        known.iter().filter(|scenario| scenario.name.starts_with(name)).collect();
    let names =
        |all: &[&Scenario]| all.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ");
    match begins.as_slice() {
        [one] => Ok(vec![*one]),
        [] => Err(CliError::Usage(format!(
            "there is no experiment '{name}', expected one of {}",
            names(&known.iter().collect::<Vec<_>>())
        ))),
        several => Err(CliError::Usage(format!("'{name}' may be any of {}", names(several)))),
    }
}
