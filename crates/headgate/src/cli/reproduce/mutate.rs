//! `reproduce --mutate`: which wrong policy each check notices.

use super::course::Course;
use super::seeds::SeedChoice;
use crate::cli::common::Print;
use crate::cli::error::CliError;
use crate::cli::output::{Align, Table, json};
use crate::cli::sim::{Interrupts, run_jobs};
use headgate_report::{Checked, FileTraces, Job, known_unbroken, try_mutants};
use headgate_sim::Scenario;
use std::io::Write;

/// Tries all wrong policies on all checks of these experiments.
///
/// # Errors
/// [`CliError::Usage`] if there are no such seeds, before anything runs; [`CliError::Unbroken`] if
/// a check notices none and is not known for it.
pub(super) fn mutate(
    out: &mut dyn Write,
    chosen: &[&Scenario],
    choice: &SeedChoice,
    traces: &FileTraces,
    print: Print,
) -> Result<(), CliError> {
    let seeds = chosen.iter().map(|scenario| choice.for_mutants(scenario));
    let seeds: Vec<Vec<u64>> = seeds.collect::<Result<_, _>>()?;
    let interrupts = Interrupts::catch()?;
    let lengths: Vec<Vec<u64>> = chosen.iter().map(|_| vec![0]).collect();
    let mut course = Course::new(chosen, &lengths);
    let mut all: Vec<Checked> = Vec::new();
    for (index, scenario) in chosen.iter().enumerate() {
        course.tell(index, scenario);
        let mut run = |jobs: &[Job<'_>]| run_jobs(jobs, &interrupts);
        let checks = try_mutants(scenario, Some(&seeds[index]), traces, &mut run)?;
        course.ended(index);
        if !print.json {
            print_checks(out, index, &checks)?;
            out.flush()?;
        }
        all.extend(checks);
    }
    let known: Vec<&str> = known_unbroken().collect();
    let unbroken = all.iter().filter(|check| check.broken_by.is_none());
    let new = unbroken.clone().filter(|check| !known.contains(&check.line().as_str())).count();
    let counted = unbroken.count();
    match print.json {
        true => json(out, &all)?,
        false => {
            let noticing = all.len() - counted;
            writeln!(
                out,
                "\n{noticing} of {} checks notice a wrong policy; {counted} notice none, {} of them known",
                all.len(),
                counted - new
            )?;
        }
    }
    match new {
        0 => Ok(()),
        unbroken => Err(CliError::Unbroken { unbroken, all: all.len() }),
    }
}

fn print_checks(out: &mut dyn Write, index: usize, checks: &[Checked]) -> Result<(), CliError> {
    let Some(first) = checks.first() else { return Ok(()) };
    let gap = if index > 0 { "\n" } else { "" };
    writeln!(out, "{gap}{}", first.experiment)?;
    let mut table = Table::new(&[
        ("VARIANT", Align::Left),
        ("NUMBER", Align::Left),
        ("EXPECTED", Align::Left),
        ("NOTICES", Align::Left),
    ]);
    for check in checks {
        table.row(vec![
            check.variant.clone(),
            check.what.clone(),
            check.expected.clone(),
            check.broken_by.map_or_else(|| "NOTHING".into(), |by| by.to_string()),
        ]);
    }
    Ok(out.write_all(table.render().as_bytes())?)
}
