//! What `reproduce` prints.

use crate::cli::common::Print;
use crate::cli::error::CliError;
use crate::cli::output::{Align, Table, json};
use crate::cli::sim::{print_comparison, print_notes};
use headgate_report::{Experiment, Tally, by_paper, notes};
use headgate_sim::{Finding, Scenario, Standing};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// What `reproduce --list --json` prints of each.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    title: &'a str,
    source: &'a str,
    variants: Vec<&'a str>,
    seeds: &'a [u64],
    traces: &'a [String],
    expectations: usize,
}

/// What `reproduce --json` prints of each.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Reproduced<'a> {
    name: &'a str,
    title: &'a str,
    source: &'a str,
    seeds: &'a [u64],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    own_traces: BTreeMap<&'a str, &'a str>,
    failed: usize,
    tally: Tally,
    #[serde(rename = "verdicts")]
    findings: Vec<Judged<'a>>,
}

/// A finding, and both verdicts on it as one.
#[derive(Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    finding: &'a Finding,
    standing: Standing,
}

/// One that cannot be run here, in the list of `reproduce --json`.
#[derive(Serialize)]
struct Skipped<'a> {
    name: &'a str,
    skipped: &'a str,
}

/// What `reproduce --json` prints a list of.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Reproduced(Reproduced<'a>),
    Skipped(Skipped<'a>),
}

pub(super) fn list(out: &mut dyn Write, known: &[Scenario], print: Print) -> Result<(), CliError> {
    let listed: Vec<Listed<'_>> = known
        .iter()
        .map(|scenario| Listed {
            name: &scenario.name,
            title: &scenario.title,
            source: &scenario.source,
            variants: scenario.variants.iter().map(|variant| variant.name.as_str()).collect(),
            seeds: &scenario.seeds,
            traces: &scenario.traces,
            expectations: scenario.expectations.len(),
        })
        .collect();
    if print.json {
        return Ok(json(out, &listed)?);
    }
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("VARIANTS", Align::Right),
        ("SEEDS", Align::Right),
        ("WHAT", Align::Left),
        ("PUBLISHED IN", Align::Left),
    ]);
    for one in &listed {
        table.row(vec![
            one.name.into(),
            one.variants.len().to_string(),
            one.seeds.len().to_string(),
            one.title.into(),
            one.source.into(),
        ]);
    }
    Ok(out.write_all(table.render().as_bytes())?)
}

pub(super) fn print_json(
    out: &mut dyn Write,
    done: &[Experiment<'_>],
    skipped: &[(&Scenario, String)],
) -> Result<(), CliError> {
    let left = skipped
        .iter()
        .map(|(scenario, why)| Entry::Skipped(Skipped { name: &scenario.name, skipped: why }));
    let judged = |finding| Judged { finding, standing: finding.standing() };
    let all: Vec<Entry<'_>> = done
        .iter()
        .map(|experiment| Reproduced {
            name: &experiment.scenario.name,
            title: &experiment.scenario.title,
            source: &experiment.scenario.source,
            seeds: experiment.seeds,
            own_traces: experiment.own_traces.iter().copied().collect(),
            failed: experiment.failed(),
            tally: Tally::of(experiment.findings),
            findings: experiment.findings.iter().map(judged).collect(),
        })
        .map(Entry::Reproduced)
        .chain(left)
        .collect();
    Ok(json(out, &all)?)
}

pub(super) fn print_experiment(
    out: &mut dyn Write,
    index: usize,
    experiment: &Experiment<'_>,
) -> Result<(), CliError> {
    let Scenario { name, title, source, .. } = experiment.scenario;
    let source = if source.is_empty() { String::new() } else { format!(" ({source})") };
    let gap = if index > 0 { "\n" } else { "" };
    writeln!(out, "{gap}{name}: {title}{source}")?;
    for (name, file) in &experiment.own_traces {
        writeln!(out, "{file} in the place of {name}: what is expected was not set with it")?;
    }
    let mut table = Table::new(&[
        ("VARIANT", Align::Left),
        ("NUMBER", Align::Left),
        ("PAPER", Align::Right),
        ("OURS", Align::Right),
        ("EXPECTED", Align::Left),
        ("VERDICT", Align::Left),
        ("AS PUBLISHED", Align::Left),
    ]);
    for finding in experiment.findings {
        let show = |value: Option<f64>| {
            value.map_or_else(|| "-".into(), |value| finding.shown_unit().show(value))
        };
        table.row(vec![
            finding.variant.clone(),
            finding.what.clone(),
            show(finding.paper),
            show(finding.ours()),
            finding.expected.clone(),
            finding.standing().name().into(),
            finding.published.as_ref().map_or_else(|| "-".into(), |published| published.show()),
        ]);
    }
    out.write_all(table.render().as_bytes())?;
    for (word, reason) in reasons(experiment.findings) {
        writeln!(out, "{word}: {reason}")?;
    }
    if experiment.own_traces.is_empty() {
        return Ok(());
    }
    // What is expected says little of a workload that it was not made for.
    let Experiment { scenario, outcomes, .. } = experiment;
    print_comparison(out, scenario, outcomes, usize::MAX)?;
    print_notes(out, &notes(scenario, outcomes))
}

/// Why numbers are not as published, or not as expected, each reason once.
fn reasons(findings: &[Finding]) -> Vec<(&'static str, &str)> {
    let mut reasons: Vec<(&str, &str)> = Vec::new();
    for finding in findings {
        let standing = finding.standing();
        let reason = match standing {
            Standing::Differs => finding.differs.as_deref(),
            Standing::OffPaper => {
                finding.published.as_ref().and_then(|published| published.reason.as_deref())
            }
            Standing::Holds | Standing::Fails | Standing::NotRun => None,
        };
        let Some(reason) = reason.map(|reason| (standing.name(), reason)) else { continue };
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

/// A line for each paper: both verdicts, counted.
fn print_papers(out: &mut dyn Write, done: &[Experiment<'_>]) -> Result<(), CliError> {
    let papers = by_paper(done);
    let columns = Tally::COLUMNS.map(str::to_uppercase);
    let counts = columns.iter().map(|column| (column.as_str(), Align::Right));
    let mut table =
        Table::new(&std::iter::once(("PAPER", Align::Left)).chain(counts).collect::<Vec<_>>());
    let total = (papers.len() > 1).then(|| ("all", Tally::of_all(done)));
    for (paper, tally) in papers.into_iter().chain(total) {
        let counts = tally.counts();
        let cells = std::iter::once(paper.to_owned()).chain(counts.map(|n| n.to_string()));
        table.row(cells.collect());
    }
    Ok(write!(out, "\n{}", table.render())?)
}

pub(super) fn print_summary(
    out: &mut dyn Write,
    done: &[Experiment<'_>],
    skipped: &[(&Scenario, String)],
) -> Result<(), CliError> {
    for (scenario, why) in skipped {
        writeln!(out, "\n{}: {}\nskipped: {why}", scenario.name, scenario.title)?;
    }
    let all = Tally::of_all(done);
    if !done.is_empty() {
        print_papers(out, done)?;
    }
    let what = if done.len() == 1 { "experiment" } else { "experiments" };
    let left =
        if skipped.is_empty() { String::new() } else { format!(", {} skipped", skipped.len()) };
    let differ = match all.known {
        0 => String::new(),
        many => format!(", {many} differ for reasons that are given"),
    };
    writeln!(
        out,
        "\n{} {what}: {} of {} numbers as expected{differ}{left}",
        done.len(),
        all.as_expected,
        all.checks
    )?;
    if all.numbers == 0 {
        return Ok(());
    }
    let with = match all.experiments_with_numbers {
        1 => "1 experiment that has any".to_owned(),
        many => format!("{many} experiments that have any"),
    };
    Ok(writeln!(
        out,
        "{} of {} published numbers within 20 % and in our bound; all of them in {} of {with}",
        all.within_20 - all.outside_bound,
        all.numbers,
        all.experiments_as_published,
    )?)
}
