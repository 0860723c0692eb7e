//! What each disk got in each variant, in one table.

use crate::cli::error::CliError;
use crate::cli::output::{Align, Table};
use headgate_report::Note;
use headgate_sim::{Counters, Outcome, Scenario, Stretch, Subject, SubjectKind};
use headgate_units::Nanos;
use std::io::Write;

/// More variants than this get a table of their own: a line has its limits.
const MOST_COLUMNS: usize = 16;

/// Prints a table for each window, or for the whole run if there is none: a row for each VM, and
/// for each of its disks if it has several, at most so many VMs, busiest first kept; a column for
/// each variant that was run. Nothing if that is one.
pub(in crate::cli) fn print_comparison(
    out: &mut dyn Write,
    scenario: &Scenario,
    outcomes: &[Outcome],
    most: usize,
) -> Result<(), CliError> {
    let by_variant: Vec<(&str, Vec<&Outcome>)> = scenario
        .variants
        .iter()
        .map(|variant| (variant.name.as_str(), runs_of(&variant.name, outcomes)))
        .filter(|(_, runs)| !runs.is_empty())
        .collect();
    if by_variant.len() < 2 {
        return Ok(());
    }
    let mut spans: Vec<Option<usize>> = (0..scenario.spans.len()).map(Some).collect();
    spans.sort_by_key(|index| index.map(|at| (scenario.spans[at].from, scenario.spans[at].to)));
    if spans.is_empty() {
        spans.push(None);
    }
    let names = names(&by_variant, most);
    for span in spans {
        let when = match span {
            Some(at) => format!("in {}", scenario.spans[at].name),
            None => "in the whole run".to_owned(),
        };
        writeln!(out, "\nIOPS and mean latency by variant {when}")?;
        for some in by_variant.chunks(MOST_COLUMNS) {
            let columns = some.iter().map(|(name, _)| (*name, Align::Right));
            let columns: Vec<_> = std::iter::once(("NAME", Align::Left)).chain(columns).collect();
            let mut table = Table::new(&columns);
            for name in &names {
                let cells = some.iter().map(|(_, runs)| cell(name, runs, span));
                table.row(std::iter::once((*name).to_owned()).chain(cells).collect());
            }
            out.write_all(table.render().as_bytes())?;
        }
    }
    Ok(())
}

/// What is to be known of results, if there is anything.
pub(in crate::cli) fn print_notes(out: &mut dyn Write, notes: &[Note]) -> Result<(), CliError> {
    if !notes.is_empty() {
        writeln!(out)?;
    }
    for note in notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn runs_of<'a>(variant: &str, outcomes: &'a [Outcome]) -> Vec<&'a Outcome> {
    outcomes.iter().filter(|outcome| outcome.variant == variant).collect()
}

/// The VMs that did most in all variants together, and the disks of those that have several.
fn names<'a>(by_variant: &[(&str, Vec<&'a Outcome>)], most: usize) -> Vec<&'a str> {
    let all = || by_variant.iter().flat_map(|(_, runs)| runs.iter().copied());
    let did = |name: &str| -> u64 {
        let all = all().filter_map(|run| run.subject(name));
        all.map(|subject| subject.whole.counters.completed).sum()
    };
    // Variants have the same VMs.
    let Some(first) = all().next() else { return Vec::new() };
    let is_vm = |subject: &&Subject| subject.kind == SubjectKind::Vm;
    let mut busiest: Vec<(u64, &str)> =
        first.subjects.iter().filter(is_vm).map(|vm| (did(&vm.name), vm.name.as_str())).collect();
    busiest.sort_by_key(|&(did, _)| std::cmp::Reverse(did));
    let kept: Vec<&str> = busiest.into_iter().take(most).map(|(_, name)| name).collect();
    let is_shown = |subject: &&Subject| match subject.kind {
        SubjectKind::Vm => kept.contains(&subject.name.as_str()),
        SubjectKind::Disk => subject.name.split_once('/').is_some_and(|(vm, _)| kept.contains(&vm)),
        _ => false,
    };
    first.subjects.iter().filter(is_shown).map(|subject| subject.name.as_str()).collect()
}

fn cell(name: &str, runs: &[&Outcome], span: Option<usize>) -> String {
    let pick = |subject: &'_ Subject| -> Option<(Counters, Nanos)> {
        let stretch: &Stretch = match span {
            Some(at) => subject.spans.get(at)?,
            None => &subject.whole,
        };
        Some((stretch.counters, stretch.length()))
    };
    let all: Vec<(Counters, Nanos)> =
        runs.iter().filter_map(|run| run.subject(name).and_then(pick)).collect();
    let sum = all.iter().fold(Counters::default(), |sum, (counters, _)| sum.plus(counters));
    let Some(latency) = sum.mean_latency() else { return "-".to_owned() };
    let iops: f64 = all.iter().map(|(counters, length)| counters.iops(*length)).sum();
    format!("{:.1} / {latency}", iops / all.len() as f64)
}
