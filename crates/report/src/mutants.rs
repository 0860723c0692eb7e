//! Which wrong policy each check of an experiment notices.

use crate::FileTraces;
use crate::known::{Known, RunJobs};
use headgate_sim::{Finding, Judgement, Mutation, Scenario, Summary, judge};
use serde::Serialize;
use std::collections::BTreeMap;

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

/// Tries all wrong policies that an experiment can have on those of its checks that hold, until
/// each has noticed one. `run` runs the jobs, in their order.
///
/// Only what a check reads runs that has noticed none yet, with one seed where that suffices, and
/// nothing twice: often a wrong policy makes one variant what another is.
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
    let all: Vec<(&str, u64)> = scenario
        .variants
        .iter()
        .flat_map(|variant| seeds.iter().map(move |&seed| (variant.name.as_str(), seed)))
        .collect();
    let mut known = Known::default();
    let right = known.outcomes(scenario, &all, traces, run)?;
    let mut tried: Vec<(Finding, Checked)> = judge(scenario, &right)
        .into_iter()
        .filter(|finding| finding.judgement == Judgement::Holds)
        .map(|finding| {
            let check = checked(scenario, &finding);
            (finding, check)
        })
        .collect();
    for mutation in Mutation::ALL {
        let Some(mut mutant) = scenario.mutated(mutation) else { continue };
        let needed = seeds_needed(scenario, &tried, &seeds);
        mutant.changed.retain(|variant| needed.contains_key(variant));
        let wanted: Vec<(&str, u64)> = mutant
            .changed
            .iter()
            .flat_map(|name| needed[name].iter().map(move |&seed| (name.as_str(), seed)))
            .collect();
        let mut outcomes = known.outcomes(&mutant.scenario, &wanted, traces, run)?;
        outcomes.extend(right.iter().filter(|one| !mutant.changed.contains(&one.variant)).cloned());
        // By the scenario as it was: what is expected does not become wrong with the policy.
        let wrong = judge(scenario, &outcomes);
        for (right, check) in tried.iter_mut().filter(|(_, check)| check.broken_by.is_none()) {
            let same = |wrong: &&Finding| is_of(right, wrong);
            // With other seeds it may be known not to hold: here it did.
            let fails = |one: &Finding| {
                matches!(one.judgement, Judgement::Fails | Judgement::Differs)
                    && one.ours().is_some()
            };
            let notices = wrong.iter().find(same).is_some_and(fails);
            check.broken_by = notices.then_some(mutation);
        }
    }
    Ok(tried.into_iter().map(|(_, check)| check).collect())
}

/// The variants that open checks read, and with which seeds: a check of every seed is broken by
/// one, a check of all seeds together needs them all.
fn seeds_needed<'a>(
    scenario: &Scenario,
    tried: &[(Finding, Checked)],
    seeds: &'a [u64],
) -> BTreeMap<String, &'a [u64]> {
    let mut needed: BTreeMap<String, &[u64]> = BTreeMap::new();
    for (finding, _) in tried.iter().filter(|(_, check)| check.broken_by.is_none()) {
        let own = match finding.summary {
            Summary::Each => &seeds[..seeds.len().min(1)],
            _ => seeds,
        };
        for variant in scenario.variants_read(finding) {
            let known = needed.entry(variant).or_default();
            if own.len() > known.len() {
                *known = own;
            }
        }
    }
    needed
}

/// Whether two findings are of one check.
fn is_of(one: &Finding, other: &Finding) -> bool {
    (one.line, &one.variant, &one.what) == (other.line, &other.variant, &other.what)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, run_all};
    use std::ops::ControlFlow;
    use std::path::Path;

    /// Two VMs on a busy device, with more text of the scenario.
    fn two(more: &str) -> Scenario {
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
            {more}
            "#
        );
        Scenario::parse("x.toml", &text).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The checks, and the variants and seeds that ran, in their order.
    fn tried(scenario: &Scenario) -> (Vec<Checked>, Vec<(String, u64)>) {
        let traces = FileTraces::within(Path::new("."));
        let mut ran = Vec::new();
        let mut run = |jobs: &[Job<'_>]| {
            ran.extend(jobs.iter().map(|job| (job.variant.to_owned(), job.seed)));
            run_all(jobs, &mut |_| ControlFlow::Continue(()))
        };
        let checks = try_mutants(scenario, None, &traces, &mut run).unwrap();
        (checks, ran)
    }

    #[test]
    fn a_check_notices_what_it_is_about() {
        let (checks, _) = tried(&two(r#"
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
            "#));
        let broken: Vec<Option<Mutation>> = checks.iter().map(|check| check.broken_by).collect();
        assert_eq!(broken, [Some(Mutation::Fifo), None], "what does not hold is not tried");
    }

    #[test]
    fn what_differs_with_other_seeds_notices_a_wrong_policy_with_one() {
        let (checks, _) = tried(&two(r#"
            [[expect]]
            measure = "iops"
            of = "b"
            window = "steady"
            per = { of = "a" }
            at-least = 2.8
            differs = "with other seeds"
            "#));
        let broken: Vec<Option<Mutation>> = checks.iter().map(|check| check.broken_by).collect();
        assert_eq!(broken, [Some(Mutation::Fifo)]);
    }

    #[test]
    fn nothing_runs_twice_and_nothing_that_no_open_check_reads() {
        let (checks, ran) = tried(&two(r#"
            seeds = 2
            [[variant]]
            name = "right"
            [[variant]]
            name = "by-arrival"
            set = { "datastore.lun.scheduler" = "fifo" }
            [[variant]]
            name = "narrow"
            set = { "datastore.lun.queue-depth" = 3 }
            [[expect]]
            variant = "right"
            measure = "iops"
            of = "b"
            window = "steady"
            per = { of = "a" }
            at-least = 2.8
            [[expect]]
            variant = "narrow"
            measure = "iops"
            of = "b"
            window = "steady"
            per = { of = "a" }
            in-seeds = "100%"
            at-least = 2.8
            "#));
        assert!(checks.iter().all(|check| check.broken_by == Some(Mutation::Fifo)), "{checks:?}");
        let run = |name: &str, seed| (name.to_owned(), seed);
        let expected: Vec<(String, u64)> = ["right", "by-arrival", "narrow"]
            .iter()
            .flat_map(|name| [run(name, 1), run(name, 2)])
            // By arrival the first is as the second, which has run, and the check of all seeds
            // needs both.
            .chain([run("narrow", 1), run("narrow", 2)])
            .collect();
        assert_eq!(ran, expected);
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
