use super::compare::{print_comparison, print_notes};
use super::jobs::{Interrupts, run_jobs};
use super::load::{load, variant};
use super::pool::print_pool;
use crate::cli::common::Print;
use crate::cli::error::CliError;
use crate::cli::output::{Align, Table, json};
use crate::cli::picture::Picture;
use crate::cli::write_file::write_file;
use clap::Args;
use headgate_report::{FileTraces, Job, Note, distributions, figures, notes};
use headgate_sim::{
    Application, Counters, Finding, Judgement, Outcome, Scenario, Stretch, Subject, SubjectKind,
    TransactionStretch, WindowCounters, WindowStretch, judge,
};
use headgate_stats::HistogramSnapshot;
use headgate_units::Nanos;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `sim run`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Run {
    /// Scenario file
    scenario: PathBuf,
    /// Run with the seeds 1 to N [default: those of the scenario]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: Option<u64>,
    /// Run this variant only; may be given more than once
    #[arg(long, value_name = "VARIANT")]
    variant: Vec<String>,
    /// Draw throughput and latency over time of each variant, with its first seed, as .svg or .png
    #[arg(long, value_name = "FILE", value_parser = Picture::parse)]
    plot: Option<Picture>,
    /// Most VMs to list, busiest first
    #[arg(long, value_name = "N", default_value_t = 40)]
    vms: usize,
    #[command(flatten)]
    pub(super) print: Print,
}

/// What `sim run --json` prints.
#[derive(Serialize)]
struct Results<'a> {
    scenario: &'a str,
    title: &'a str,
    seeds: &'a [u64],
    outcomes: &'a [Outcome],
    #[serde(rename = "verdicts")]
    findings: &'a [Finding],
    notes: &'a [Note],
}

impl Run {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<(), CliError> {
        let scenario = load(&self.scenario)?;
        let variants: Vec<&str> = match self.variant.is_empty() {
            true => scenario.variants.iter().map(|variant| variant.name.as_str()).collect(),
            false => {
                let named = self
                    .variant
                    .iter()
                    .map(|name| variant(&scenario, name).map(|v| v.name.as_str()));
                named.collect::<Result<_, _>>()?
            }
        };
        let seeds: Vec<u64> =
            self.seeds.map_or_else(|| scenario.seeds.clone(), |most| (1..=most).collect());
        let traces = FileTraces::beside(&self.scenario);
        let jobs: Vec<Job<'_>> = variants
            .iter()
            .flat_map(|&variant| seeds.iter().map(move |&seed| (variant, seed)))
            .map(|(variant, seed)| Job { scenario: &scenario, variant, seed, traces: &traces })
            .collect();
        let interrupts = Interrupts::catch()?;
        let outcomes = run_jobs(&jobs, &interrupts)?;
        let findings = judge(&scenario, &outcomes);
        let notes = notes(&scenario, &outcomes);
        let drawn = self
            .plot
            .as_ref()
            .map(|picture| draw(&scenario, &outcomes, &findings, seeds[0], picture));
        let drawn = drawn.transpose()?;
        interrupts.check()?;
        if let (Some(picture), Some(bytes)) = (&self.plot, drawn) {
            write_file(&picture.file, &bytes)?;
        }
        if self.print.json {
            let (name, title) = (&scenario.name, &scenario.title);
            json(
                out,
                &Results {
                    scenario: name,
                    title,
                    seeds: &seeds,
                    outcomes: &outcomes,
                    findings: &findings,
                    notes: &notes,
                },
            )?;
        } else {
            writeln!(out, "{}: {}", scenario.name, scenario.title)?;
            for variant in &variants {
                print_variant(out, &scenario, variant, &outcomes, self.vms)?;
            }
            print_comparison(out, &scenario, &outcomes, self.vms)?;
            print_notes(out, &notes)?;
            print_findings(out, &findings)?;
        }
        match findings.iter().filter(|finding| finding.judgement == Judgement::Fails).count() {
            0 => Ok(()),
            failed => Err(CliError::Expectations { failed, all: findings.len() }),
        }
    }
}

fn draw(
    scenario: &Scenario,
    outcomes: &[Outcome],
    findings: &[Finding],
    seed: u64,
    picture: &Picture,
) -> Result<Vec<u8>, CliError> {
    let shown: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.seed == seed).collect();
    let mut drawn = distributions(scenario, findings);
    drawn.extend(figures(scenario, &shown));
    picture.draw(&drawn)
}

/// The results of all seeds for one subject over one stretch of time.
struct Row<'a> {
    name: &'a str,
    stretches: Vec<&'a Stretch>,
}

impl Row<'_> {
    fn mean(&self, value: impl Fn(&Stretch) -> f64) -> f64 {
        self.stretches.iter().map(|stretch| value(stretch)).sum::<f64>()
            / self.stretches.len().max(1) as f64
    }

    /// Something waited or was done.
    fn was_active(&self) -> bool {
        self.stretches
            .iter()
            .any(|stretch| stretch.counters.completed > 0 || stretch.counters.outstanding > 0)
    }

    fn completed(&self) -> u64 {
        self.stretches.iter().map(|stretch| stretch.counters.completed).sum()
    }

    fn cells(&self) -> Vec<String> {
        let iops = |stretch: &Stretch| stretch.iops();
        let least = self.stretches.iter().map(|s| iops(s)).fold(f64::INFINITY, f64::min);
        let most = self.stretches.iter().map(|s| iops(s)).fold(0.0, f64::max);
        let mut latency = HistogramSnapshot::default();
        self.stretches.iter().for_each(|stretch| latency.merge(&stretch.latency));
        let sum = self
            .stretches
            .iter()
            .fold(Counters::default(), |sum, stretch| sum.plus(&stretch.counters));
        let time = |time: Option<Nanos>| time.map_or_else(|| "-".into(), |time| time.to_string());
        let mut cells = vec![self.name.to_owned(), format!("{:.1}", self.mean(iops))];
        if self.stretches.len() > 1 {
            cells.push(format!("{least:.1}-{most:.1}"));
        }
        cells.extend([
            format!(
                "{:.2}",
                self.mean(|s| s.counters.bytes_per_sec(s.length())) / f64::from(1 << 20)
            ),
            time(sum.mean_latency()),
            time(latency.at_permille(990)),
            format!("{:.1}", self.mean(|s| s.counters.reservation_iops(s.length()))),
            format!("{:.1}", self.mean(|s| s.counters.weight_iops(s.length()))),
            format!("{:.1}", self.mean(|s| s.counters.mean_outstanding(s.length()))),
        ]);
        cells
    }
}

fn print_variant(
    out: &mut dyn Write,
    scenario: &Scenario,
    variant: &str,
    outcomes: &[Outcome],
    most: usize,
) -> Result<(), CliError> {
    let runs: Vec<&Outcome> =
        outcomes.iter().filter(|outcome| outcome.variant == variant).collect();
    let Some(first) = runs.first() else { return Ok(()) };
    let seeds: Vec<String> = runs.iter().map(|run| run.seed.to_string()).collect();
    // The windows where there are any, in their order in time: the whole run would mix them.
    let mut order: Vec<usize> = (0..scenario.spans.len().max(1)).collect();
    order.sort_by_key(|&index| scenario.spans.get(index).map(|span| (span.from, span.to)));
    for index in order {
        let pick = |subject: &'_ Subject| -> Option<Stretch> {
            if scenario.spans.is_empty() {
                Some(subject.whole.clone())
            } else {
                subject.spans.get(index).cloned()
            }
        };
        let (name, from, to) = match scenario.spans.get(index) {
            Some(span) => (format!("window {}", span.name), span.from, span.to),
            None => ("the whole run".to_owned(), Nanos::ZERO, first.duration),
        };
        let label = if scenario.variants.len() > 1 {
            format!("variant {variant}, ")
        } else {
            String::new()
        };
        writeln!(
            out,
            "\n{label}{name} ({} s to {} s), {} {}",
            from.as_secs_f64(),
            to.as_secs_f64(),
            if seeds.len() == 1 { "seed" } else { "seeds" },
            seeds.join(", ")
        )?;
        let all: Vec<Vec<Option<Stretch>>> = first
            .subjects
            .iter()
            .enumerate()
            .map(|(s, _)| runs.iter().map(|run| run.subjects.get(s).and_then(pick)).collect())
            .collect();
        let rows: Vec<(SubjectKind, Row<'_>)> = first
            .subjects
            .iter()
            .zip(&all)
            .map(|(subject, all)| {
                (
                    subject.kind,
                    Row { name: &subject.name, stretches: all.iter().flatten().collect() },
                )
            })
            .filter(|(_, row)| row.was_active())
            .collect();
        let left_out = print_rows(out, &rows, runs.len(), most)?;
        if left_out > 0 {
            writeln!(out, "and {left_out} VMs that did less: --vms N, or all of them with --json")?;
        }
        let span = (!scenario.spans.is_empty()).then_some(index);
        print_issue_windows(out, &runs, span)?;
        print_applications(out, &runs, span)?;
    }
    print_pool(out, &runs)
}

/// Prints the busiest VMs with their disks, and all storage and hosts; answers how many VMs were
/// left out.
fn print_rows(
    out: &mut dyn Write,
    rows: &[(SubjectKind, Row<'_>)],
    seeds: usize,
    most: usize,
) -> Result<usize, CliError> {
    let mut busiest: Vec<u64> = rows
        .iter()
        .filter(|(kind, _)| *kind == SubjectKind::Vm)
        .map(|(_, row)| row.completed())
        .collect();
    busiest.sort_unstable_by_key(|&completed| std::cmp::Reverse(completed));
    let vms = busiest.len();
    let least =
        if vms > most { most.checked_sub(1).map_or(u64::MAX, |last| busiest[last]) } else { 0 };
    let mut columns = vec![("NAME", Align::Left), ("IOPS", Align::Right)];
    if seeds > 1 {
        columns.push(("BY SEED", Align::Right));
    }
    columns.extend([
        ("MIB/S", Align::Right),
        ("LATENCY", Align::Right),
        ("P99", Align::Right),
        ("BY RESERVATION", Align::Right),
        ("BY SHARES", Align::Right),
        ("OUTSTANDING", Align::Right),
    ]);
    let mut table = Table::new(&columns);
    let (mut shown, mut with_disks) = (0, false);
    for (kind, row) in rows {
        match kind {
            SubjectKind::Vm => {
                with_disks = row.completed() >= least && shown < most;
                if !with_disks {
                    continue;
                }
                shown += 1;
            }
            SubjectKind::Disk if !with_disks => continue,
            _ => {}
        }
        table.row(row.cells());
    }
    out.write_all(table.render().as_bytes())?;
    Ok(vms - shown)
}

fn print_applications(
    out: &mut dyn Write,
    runs: &[&Outcome],
    span: Option<usize>,
) -> Result<(), CliError> {
    let Some(first) = runs.first().filter(|run| !run.applications.is_empty()) else {
        return Ok(());
    };
    let mut table = Table::new(&[
        ("APPLICATION", Align::Left),
        ("TRANSACTIONS/S", Align::Right),
        ("RESPONSE", Align::Right),
        ("P90", Align::Right),
    ]);
    for (index, application) in first.applications.iter().enumerate() {
        let pick = |application: &Application| -> Option<TransactionStretch> {
            match span {
                Some(span) => application.spans.get(span).cloned(),
                None => Some(application.whole.clone()),
            }
        };
        let all: Vec<TransactionStretch> =
            runs.iter().filter_map(|run| run.applications.get(index).and_then(pick)).collect();
        let rate = |stretch: &TransactionStretch| {
            stretch.counters.completed as f64 / (stretch.to - stretch.from).as_secs_f64().max(1e-9)
        };
        let mut response = HistogramSnapshot::default();
        all.iter().for_each(|stretch| response.merge(&stretch.response));
        let time = |time: Option<Nanos>| time.map_or_else(|| "-".into(), |time| time.to_string());
        table.row(vec![
            application.name.clone(),
            format!("{:.1}", all.iter().map(rate).sum::<f64>() / all.len().max(1) as f64),
            time(response.mean()),
            time(response.at_permille(900)),
        ]);
    }
    Ok(write!(out, "\n{}", table.render())?)
}

fn print_issue_windows(
    out: &mut dyn Write,
    runs: &[&Outcome],
    span: Option<usize>,
) -> Result<(), CliError> {
    let Some(first) = runs.first().filter(|run| !run.issue_windows.is_empty()) else {
        return Ok(());
    };
    let mut table = Table::new(&[
        ("HOST", Align::Left),
        ("WINDOW", Align::Right),
        ("BETA", Align::Right),
        ("CLUSTER LATENCY", Align::Right),
        ("UNMANAGED LOAD", Align::Right),
    ]);
    for (index, host) in first.issue_windows.iter().enumerate() {
        let recorded = runs.iter().filter_map(|run| run.issue_windows.get(index));
        let all: Vec<&WindowStretch> = match span {
            Some(span) => recorded.filter_map(|host| host.spans.get(span)).collect(),
            None => recorded.map(|host| &host.whole).collect(),
        };
        let mean = |value: &dyn Fn(&WindowStretch) -> f64| {
            all.iter().map(|stretch| value(stretch)).sum::<f64>() / all.len().max(1) as f64
        };
        let sum =
            all.iter().fold(WindowCounters::default(), |sum, stretch| sum.plus(&stretch.counters));
        table.row(vec![
            host.name.clone(),
            format!("{:.2}", mean(&|s| s.counters.mean_window(s.to - s.from))),
            // Nothing that is controlled has a beta of zero all the time.
            sum.mean_latency().map_or_else(
                || "-".into(),
                |_| format!("{:.2}", mean(&|s| s.counters.mean_beta(s.to - s.from))),
            ),
            sum.mean_latency().map_or_else(|| "-".into(), |latency| latency.to_string()),
            match mean(&|s| s.counters.unmanaged_part(s.to - s.from)) {
                part if part > 0.0 => format!("{:.0} %", part * 100.0),
                _ => "-".into(),
            },
        ]);
    }
    Ok(write!(out, "\n{}", table.render())?)
}

fn print_findings(out: &mut dyn Write, findings: &[Finding]) -> Result<(), CliError> {
    if findings.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nexpected:")?;
    for finding in findings {
        writeln!(out, "{finding}")?;
    }
    Ok(())
}
