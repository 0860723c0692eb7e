//! Which wrong policy each check of an experiment notices.

use crate::{FileTraces, Job};
use headgate_sim::{Finding, Judgement, Mutation, Outcome, Scenario, Summary, judge};
use serde::Serialize;

/// A check, and the wrong policy under which it does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Checked {
    /// The experiment.
    pub experiment: String,
    /// The variant.
    pub variant: String,
    /// The number.
    pub what: String,
    /// What is expected of it.
    pub expected: String,
    /// The first of the wrong policies that it notices; none where it notices none.
    pub broken_by: Option<Mutation>,
}

impl Checked {
    /// The check as one line, as the list of what nothing breaks has it.
    pub fn line(&self) -> String {
        let Checked { experiment, variant, what, expected, .. } = self;
        format!("{experiment} | {variant} | {what} | {expected}")
    }
}

/// Checks that are known to notice no wrong policy, a line each.
const KNOWN: &str = include_str!("../../../experiments/unbroken.txt");

/// The lines of `experiments/unbroken.txt` that name a check.
pub fn known_unbroken() -> impl Iterator<Item = &'static str> {
    KNOWN.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The seeds with which checks are tried: one is enough to break a check of every seed, and a check
/// of all seeds together needs them all.
pub fn seeds_for_mutants(scenario: &Scenario, findings: &[Finding]) -> Vec<u64> {
    match findings.iter().all(|finding| finding.summary == Summary::Each) {
        true => scenario.seeds.iter().take(1).copied().collect(),
        false => scenario.seeds.clone(),
    }
}

/// Runs jobs, and gives their outcomes in the same order.
pub type RunJobs<'a, E> = dyn FnMut(&[Job<'_>]) -> Result<Vec<Outcome>, E> + 'a;

/// Tries all wrong policies that an experiment can have on those of its checks that hold, until
/// each has noticed one. `run` runs the jobs, in their order.
///
/// A wrong policy under which nothing is measured counts for nothing: anything would notice it.
///
/// # Errors
/// Those of `run`.
pub fn try_mutants<E>(
    scenario: &Scenario,
    seeds: Option<&[u64]>,
    traces: &FileTraces,
    run: &mut RunJobs<'_, E>,
) -> Result<Vec<Checked>, E> {
    let seeds = match seeds {
        Some(seeds) => seeds.to_vec(),
        None => seeds_for_mutants(scenario, &judge(scenario, &[])),
    };
    let all: Vec<&str> = scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
    let right = run(&jobs(scenario, &all, &seeds, traces))?;
    let holding = judge(scenario, &right);
    let mut checks: Vec<Checked> = holding.iter().map(|one| checked(scenario, one)).collect();
    let open = |checks: &[Checked]| {
        let mut each = checks.iter().zip(&holding);
        each.any(|(check, right)| right.judgement == Judgement::Holds && check.broken_by.is_none())
    };
    for mutation in Mutation::ALL {
        if !open(&checks) {
            break;
        }
        let Some(mutant) = scenario.mutated(mutation) else { continue };
        let changed: Vec<&str> = mutant.changed.iter().map(String::as_str).collect();
        let mut outcomes = run(&jobs(&mutant.scenario, &changed, &seeds, traces))?;
        outcomes.extend(right.iter().filter(|one| !mutant.changed.contains(&one.variant)).cloned());
        // By the scenario as it was: what is expected does not become wrong with the policy.
        let wrong = judge(scenario, &outcomes);
        for ((check, right), wrong) in checks.iter_mut().zip(&holding).zip(&wrong) {
            let notices = wrong.judgement == Judgement::Fails && wrong.ours().is_some();
            if right.judgement == Judgement::Holds && check.broken_by.is_none() && notices {
                check.broken_by = Some(mutation);
            }
        }
    }
    let held = checks.into_iter().zip(&holding);
    Ok(held.filter(|(_, right)| right.judgement == Judgement::Holds).map(|(one, _)| one).collect())
}

fn checked(scenario: &Scenario, finding: &Finding) -> Checked {
    Checked {
        experiment: scenario.name.clone(),
        variant: finding.variant.clone(),
        what: finding.what.clone(),
        expected: finding.expected.clone(),
        broken_by: None,
    }
}

fn jobs<'a>(
    scenario: &'a Scenario,
    variants: &[&'a str],
    seeds: &[u64],
    traces: &'a FileTraces,
) -> Vec<Job<'a>> {
    let one = |&variant: &&'a str| {
        seeds.iter().map(move |&seed| Job { scenario, variant, seed, traces }).collect::<Vec<_>>()
    };
    variants.iter().flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_all;
    use std::ops::ControlFlow;
    use std::path::Path;

    fn tried(expectations: &str) -> Vec<Checked> {
        let text = format!(
            r#"
            name = "x"
            title = "Two"
            duration = "20s"
            windows = {{ steady = "5s..20s" }}
            datastore = [{{ name = "lun", device = "rate=1000,latency=1ms", queue-depth = 4 }}]
            vm = [
                {{ name = "a", disk = [{{ shares = 1000 }}], workload = [{{ kind = "closed" }}] }},
                {{ name = "b", disk = [{{ shares = 3000 }}], workload = [{{ kind = "closed" }}] }},
            ]
            {expectations}
            "#
        );
        let scenario = Scenario::parse("x.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let traces = FileTraces::within(Path::new("."));
        let mut run = |jobs: &[Job<'_>]| run_all(jobs, &mut |_| ControlFlow::Continue(()));
        try_mutants(&scenario, None, &traces, &mut run).unwrap()
    }

    #[test]
    fn a_check_notices_what_it_is_about() {
        let checks = tried(
            r#"
            [[expect]]
            measure = "iops"
            of = "b"
            window = "steady"
            per = { of = "a" }
            equals = 3
            within = "5%"
            [[expect]]
            measure = "iops"
            of = "lun"
            window = "steady"
            equals = 1000
            within = "5%"
            [[expect]]
            measure = "iops"
            of = "a"
            window = "steady"
            at-least = 900
            differs = "it has a quarter"
            "#,
        );
        let broken: Vec<Option<Mutation>> = checks.iter().map(|check| check.broken_by).collect();
        assert_eq!(broken, [Some(Mutation::Fifo), None], "what does not hold is not tried");
    }

    #[test]
    fn the_list_of_what_nothing_breaks_has_no_line_twice() {
        let mut lines: Vec<&str> = known_unbroken().collect();
        let all = lines.len();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), all);
    }
}
