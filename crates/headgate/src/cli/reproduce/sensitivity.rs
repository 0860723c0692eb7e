//! `reproduce --sensitivity`: at which values of chosen parameters each claim holds.

use super::course::Course;
use super::seeds::SeedChoice;
use super::traces::Sources;
use crate::cli::common::Print;
use crate::cli::error::CliError;
use crate::cli::output::{Align, Table, json};
use crate::cli::sim::{Interrupts, run_jobs};
use crate::cli::write_file::replace_file;
use headgate_report::{Job, Reach, Tried, mismarked, sensitivity_report, try_values};
use headgate_sim::{Origin, Scenario};
use std::io::Write;
use std::path::Path;

/// How it is printed.
pub(super) struct Shown<'a> {
    pub(super) print: Print,
    /// Also as HTML into this file, which has what has ended after each experiment.
    pub(super) report: Option<&'a Path>,
    /// What was typed.
    pub(super) command: String,
}

/// Tries all sensitivities of these experiments.
///
/// # Errors
/// [`CliError::Usage`] if none has any, or there are no such seeds, before anything runs;
/// [`CliError::Mismarked`] if a file does not say what comes out.
pub(super) fn sensitivity(
    out: &mut dyn Write,
    chosen: &[&Scenario],
    choice: &SeedChoice,
    sources: &Sources,
    shown: &Shown<'_>,
) -> Result<(), CliError> {
    let some: Vec<&Scenario> =
        chosen.iter().copied().filter(|one| !one.sensitivities.is_empty()).collect();
    if some.is_empty() {
        return Err(CliError::Usage(
            "none of these experiments has a [[sensitivity]]; \
             'headgate reproduce --all --sensitivity' runs all that have one"
                .into(),
        ));
    }
    let seeds = some.iter().flat_map(|one| &one.sensitivities).map(|one| choice.or(&one.seeds));
    let mut seeds = seeds.collect::<Result<Vec<_>, _>>()?.into_iter();
    let interrupts = Interrupts::catch()?;
    let mut course = Course::of_points(&some);
    let mut all: Vec<(&Scenario, Vec<Tried>)> = Vec::new();
    for (index, scenario) in some.iter().copied().enumerate() {
        course.tell(index, scenario);
        let mut run = |jobs: &[Job<'_>]| run_jobs(jobs, &interrupts);
        let mut tried = Vec::new();
        for (one, seeds) in scenario.sensitivities.iter().zip(&mut seeds) {
            tried.push(try_values(scenario, one, Some(&seeds), &sources.files, &mut run)?);
        }
        course.ended(index);
        if !shown.print.json {
            let gap = if index > 0 { "\n" } else { "" };
            writeln!(out, "{gap}{}: {}", scenario.name, scenario.title)?;
            tried.iter().try_for_each(|one| print_tried(out, one))?;
            out.flush()?;
        }
        all.push((scenario, tried));
        if let Some(file) = shown.report {
            replace_file(file, sensitivity_report(&shown.command, &all).as_bytes())?;
        }
    }
    let tried: Vec<&Tried> = all.iter().flat_map(|(_, tried)| tried).collect();
    match shown.print.json {
        true => json(out, &tried)?,
        false => print_sums(out, &tried)?,
    }
    // With fewer seeds a claim may hold at more values, and with others at fewer.
    let marked = all.iter().filter(|_| choice.is_of_files());
    let wrong: Vec<String> =
        marked.flat_map(|(scenario, tried)| mismarked(scenario, tried)).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(CliError::Mismarked(wrong.join("\n"))),
    }
}

fn print_tried(out: &mut dyn Write, one: &Tried) -> Result<(), CliError> {
    let seeds: Vec<String> = one.seeds.iter().map(u64::to_string).collect();
    let word = if seeds.len() == 1 { "seed" } else { "seeds" };
    writeln!(out, "{}, {word} {}; its own value in brackets", one.name, seeds.join(", "))?;
    if !one.about.is_empty() {
        writeln!(out, "{}", one.about)?;
    }
    let values: Vec<String> = one
        .values
        .iter()
        .map(|value| match value.origin {
            Origin::File => format!("[{}]", value.value),
            Origin::Other => value.value.clone(),
        })
        .collect();
    let mut columns =
        vec![("VARIANT", Align::Left), ("NUMBER", Align::Left), ("EXPECTED", Align::Left)];
    columns.push(("PAPER", Align::Right));
    columns.extend(values.iter().map(|value| (value.as_str(), Align::Left)));
    columns.push(("HOLDS", Align::Left));
    let mut table = Table::new(&columns);
    for claim in &one.claims {
        let mut row = vec![claim.variant.clone(), claim.what.clone(), claim.expected.clone()];
        row.push(claim.paper.map_or_else(|| "-".into(), |paper| claim.unit.show(paper)));
        row.extend(claim.at.iter().map(|at| claim.show(at)));
        row.push(claim.reach.name().into());
        table.row(row);
    }
    out.write_all(table.render().as_bytes())?;
    if let Some(together) = one.together {
        writeln!(out, "all of it is one claim, which holds: {}", together.name())?;
    }
    Ok(())
}

/// How many claims reach how far.
fn print_sums(out: &mut dyn Write, tried: &[&Tried]) -> Result<(), CliError> {
    let part = |reach: Reach| match tried.iter().map(|one| one.count(reach)).sum::<usize>() {
        0 => None,
        many => Some(format!("{many} {}", reach.name())),
    };
    let parts: Vec<String> = Reach::ALL.into_iter().filter_map(part).collect();
    let count = |one: &&Tried| Reach::ALL.into_iter().map(|reach| one.count(reach)).sum::<usize>();
    let claims: usize = tried.iter().map(count).sum();
    writeln!(
        out,
        "\n! does not hold there with every seed; {claims} claims: {}",
        parts.join(", ")
    )?;
    Ok(())
}
