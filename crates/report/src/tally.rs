//! Both verdicts of many experiments, counted.

use crate::Experiment;
use headgate_sim::{Closeness, Finding, Judgement};
use serde::Serialize;

/// Verdicts, counted: how many checks are as expected, and how many published numbers are as
/// published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Tally {
    /// Experiments.
    pub experiments: usize,
    /// Of them, those with every check as expected.
    pub experiments_as_expected: usize,
    /// Those with a published number at all.
    pub experiments_with_numbers: usize,
    /// Of these, those with all of them as published, and no claim that is known not to hold.
    pub experiments_as_published: usize,
    /// Checks.
    pub checks: usize,
    /// Those that are as expected.
    pub as_expected: usize,
    /// Those that are known not to be.
    pub known: usize,
    /// Those that are not.
    pub failed: usize,
    /// Checks with a published number.
    pub numbers: usize,
    /// Of them, those within 5 % of it.
    pub within_5: usize,
    /// Within 10 %, and so on: they contain the nearer ones.
    pub within_10: usize,
    /// Within 20 %.
    pub within_20: usize,
    /// More than 20 % off.
    pub differ: usize,
    /// Within 20 %, by an expectation that the published number itself does not fulfil.
    pub outside_bound: usize,
}

impl Tally {
    /// What [`counts`](Tally::counts) are called in tables.
    pub const COLUMNS: [&'static str; 10] = [
        "experiments",
        "checks",
        "as expected",
        "known not to be",
        "published",
        "within 5 %",
        "10 %",
        "20 %",
        "differ",
        "our bound only",
    ];

    /// The numbers of a row, by [`COLUMNS`](Tally::COLUMNS).
    pub fn counts(&self) -> [usize; 10] {
        [
            self.experiments,
            self.checks,
            self.as_expected,
            self.known,
            self.numbers,
            self.within_5,
            self.within_10,
            self.within_20,
            self.differ,
            self.outside_bound,
        ]
    }

    /// Counts one experiment's findings.
    pub fn of(findings: &[Finding]) -> Tally {
        let mut tally = Tally { experiments: 1, checks: findings.len(), ..Tally::default() };
        for finding in findings {
            *match finding.judgement {
                Judgement::Holds => &mut tally.as_expected,
                Judgement::Differs | Judgement::AtOnePoint => &mut tally.known,
                Judgement::Fails | Judgement::NotRun => &mut tally.failed,
            } += 1;
            let Some(published) = &finding.published else { continue };
            tally.numbers += 1;
            let nearest = published.closeness;
            tally.within_5 += usize::from(nearest <= Closeness::Within5);
            tally.within_10 += usize::from(nearest <= Closeness::Within10);
            tally.within_20 += usize::from(nearest <= Closeness::Within20);
            let near = nearest <= Closeness::Within20;
            tally.differ += usize::from(!near);
            tally.outside_bound += usize::from(near && !published.as_published());
        }
        tally.experiments_as_expected = usize::from(tally.as_expected == tally.checks);
        tally.experiments_with_numbers = usize::from(tally.numbers > 0);
        let off = tally.differ + tally.outside_bound + tally.known;
        let published = tally.numbers > 0 && off == 0;
        tally.experiments_as_published = usize::from(published);
        tally
    }

    fn plus(self, other: Tally) -> Tally {
        Tally {
            experiments: self.experiments + other.experiments,
            experiments_as_expected: self.experiments_as_expected + other.experiments_as_expected,
            experiments_with_numbers: self.experiments_with_numbers
                + other.experiments_with_numbers,
            experiments_as_published: self.experiments_as_published
                + other.experiments_as_published,
            checks: self.checks + other.checks,
            as_expected: self.as_expected + other.as_expected,
            known: self.known + other.known,
            failed: self.failed + other.failed,
            numbers: self.numbers + other.numbers,
            within_5: self.within_5 + other.within_5,
            within_10: self.within_10 + other.within_10,
            within_20: self.within_20 + other.within_20,
            differ: self.differ + other.differ,
            outside_bound: self.outside_bound + other.outside_bound,
        }
    }

    /// Counts several experiments.
    pub fn of_all(experiments: &[Experiment<'_>]) -> Tally {
        experiments
            .iter()
            .map(|experiment| Tally::of(experiment.findings))
            .fold(Tally::default(), Tally::plus)
    }

    /// What is not both as expected and as published, in words; empty where nothing is.
    pub fn short(&self) -> String {
        let mut parts = Vec::new();
        let mut part = |count: usize, what: &str| {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        };
        part(self.failed, "not as expected");
        part(self.known, "known to differ");
        part(self.differ, "off the published number");
        part(self.outside_bound, "by a bound that the published number misses");
        parts.join(", ")
    }
}

/// The papers, as experiments' names begin, and what each is about.
pub const PAPERS: [(&str, &str); 5] = [
    ("mc", "mClock, dmClock"),
    ("pa", "PARDA"),
    ("tg", "application tags"),
    ("ba", "BASIL"),
    ("op", "OPS isolation"),
];

/// A count for each paper of which something was run, in the order of [`PAPERS`].
pub fn by_paper(experiments: &[Experiment<'_>]) -> Vec<(&'static str, Tally)> {
    let of = |prefix: &str| {
        experiments
            .iter()
            .filter(|one| one.scenario.name.split_once('-').is_some_and(|(word, _)| word == prefix))
            .map(|one| Tally::of(one.findings))
            .fold(Tally::default(), Tally::plus)
    };
    let each = PAPERS.iter().map(|&(prefix, title)| (title, of(prefix)));
    each.filter(|(_, tally)| tally.experiments > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{expect, on_500_iops};
    use headgate_sim::{Quiet, Standing, judge, run};

    /// What a number counts as.
    fn tally(expectations: &str) -> (Tally, Vec<Standing>) {
        let scenario = on_500_iops("mc-x", expectations);
        let outcomes = [run(&scenario, "default", 7, &mut Quiet).unwrap()];
        let findings = judge(&scenario, &outcomes);
        let experiment = Experiment {
            scenario: &scenario,
            seeds: &[7],
            outcomes: &outcomes,
            findings: &findings,
            own_traces: Vec::new(),
        };
        let by_paper = by_paper(std::slice::from_ref(&experiment));
        assert_eq!(by_paper, [("mClock, dmClock", Tally::of(&findings))]);
        assert_eq!(Tally::of_all(&[experiment]), Tally::of(&findings));
        (Tally::of(&findings), findings.iter().map(Finding::standing).collect())
    }

    #[test]
    fn a_one_sided_bound_says_nothing_of_the_published_number() {
        let (tally, standing) = tally(&expect("at-least = 100\npaper = 900"));
        assert_eq!(standing, [Standing::OffPaper]);
        assert_eq!((tally.as_expected, tally.numbers, tally.differ), (1, 1, 1));
        assert_eq!((tally.experiments_as_expected, tally.experiments_as_published), (1, 0));
    }

    #[test]
    fn a_near_number_outside_of_its_own_bound_is_not_as_published() {
        let (tally, standing) = tally(&expect("equals = 500\nwithin = \"1%\"\npaper = 540"));
        assert_eq!(standing, [Standing::OffPaper]);
        assert_eq!((tally.within_5, tally.within_10, tally.within_20), (0, 1, 1));
        assert_eq!((tally.differ, tally.outside_bound), (0, 1));
        assert_eq!(tally.experiments_as_published, 0);
        assert_eq!(tally.short(), "1 by a bound that the published number misses");
    }

    #[test]
    fn both_verdicts_are_counted() {
        let (tally, standing) = tally(
            &[
                expect("equals = 500\nwithin = \"1%\"\npaper = 500"),
                expect("at-least = 400"),
                expect("at-least = 800\npaper = 800\ndiffers = \"it is too slow\""),
                expect("at-least = 900"),
            ]
            .concat(),
        );
        let expected = [Standing::Holds, Standing::Holds, Standing::Differs, Standing::Fails];
        assert_eq!(standing, expected);
        assert_eq!((tally.as_expected, tally.known, tally.failed), (2, 1, 1));
        assert_eq!((tally.numbers, tally.within_5, tally.differ), (2, 1, 1));
        assert_eq!((tally.experiments_as_expected, tally.experiments_with_numbers), (0, 1));
        assert_eq!(
            tally.short(),
            "1 not as expected, 1 known to differ, 1 off the published number"
        );
    }

    #[test]
    fn an_experiment_without_numbers_is_not_as_published() {
        let (tally, standing) = tally(&expect("at-least = 400"));
        assert_eq!(standing, [Standing::Holds]);
        assert_eq!((tally.experiments_with_numbers, tally.experiments_as_published), (0, 0));
        assert_eq!(tally.short(), "");
    }
}
