//! Whether the outcomes are what a scenario expects.

mod course;
mod describe;
mod measure;
mod over;
mod pool;
mod published;
mod rank;
mod shares;
mod sweep;

use crate::outcome::Outcome;
use crate::scenario::{
    Against, Expectation, Measure, Per, Quantity, Scenario, Span, Summary, Target, Unit,
};
use course::Course;
use measure::measure;
pub use published::{Closeness, PaperInBound, Published, Standing};
use rank::correlation;
use serde::Serialize;
use shares::allocation;
use std::collections::BTreeSet;
use std::fmt;

/// How an expectation came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// With every seed.
    Holds,
    /// Not with every seed.
    Fails,
    /// Not with every seed either, but the file expects that and says why.
    Differs,
    /// With every seed, and it is known that it does so at the file's own value of a parameter
    /// alone.
    AtOnePoint,
    /// There is no outcome to judge.
    NotRun,
}

/// One expectation, in one variant, for one group of subjects.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Finding {
    /// The line of the expectation in the file.
    pub line: usize,
    /// Why it is expected, in the file's words; may be empty.
    pub about: String,
    /// The variant.
    pub variant: String,
    /// What is measured, as files name it: `iops`.
    pub measure: String,
    /// The quantity, such as `iops of VM1 + VM2 in steady`.
    pub what: String,
    /// The expected range, such as `1600/s ± 5 %`.
    pub expected: String,
    /// The published value, in the finding's unit.
    pub paper: Option<f64>,
    /// How near ours is to it; none where nothing was published, or nothing was run.
    pub published: Option<Published>,
    /// The unit of all values here; of the published one and ours [`Finding::summary`] may make a
    /// part of a whole.
    pub unit: Unit,
    /// The summary over seeds that is compared.
    pub summary: Summary,
    /// One for each outcome of the variant.
    pub readings: Vec<Reading>,
    /// Why it is known not to hold, or to hold at one point only, if it is.
    pub differs: Option<String>,
    /// How it came out.
    pub judgement: Judgement,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ours = self.ours().map_or("nothing".to_owned(), |ours| self.shown_unit().show(ours));
        let word = self.standing().name();
        write!(f, "{word}: [{}] {}: {ours}, expected {}", self.variant, self.what, self.expected)?;
        let Some(paper) = self.paper.map(|paper| self.shown_unit().show(paper)) else {
            return Ok(());
        };
        match &self.published {
            Some(published) => write!(f, " (paper: {paper}, {})", published.show()),
            None => write!(f, " (paper: {paper})"),
        }
    }
}

/// The value of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Reading {
    /// The run's seed.
    pub seed: u64,
    /// What was measured; `None` when nothing was, such as a latency where nothing completed.
    pub value: Option<f64>,
    /// The value that it is compared with, if there is one.
    pub target: Option<f64>,
    /// Whether this run is as expected.
    pub holds: bool,
}

/// Values that differ by less than this part have the same rank: chance alone differs by as much.
const ALIKE: f64 = 0.01;

/// Judges all expectations, in the order of the file. Outcomes may come from any variants and
/// seeds, in any order; those of other scenarios are left out.
pub fn judge(scenario: &Scenario, outcomes: &[Outcome]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for expectation in &scenario.expectations {
        let case = Case { scenario, expectation, outcomes };
        // Counted together, or each for itself.
        let together = expectation.members.is_some() || expectation.rank_with.is_some();
        let parts: Vec<&[Vec<String>]> = match together {
            true => vec![&expectation.groups[..]],
            false => expectation.groups.iter().map(std::slice::from_ref).collect(),
        };
        for variant in &expectation.variants {
            findings.extend(parts.iter().map(|groups| case.finding(variant, groups)));
        }
    }
    findings
}

impl Scenario {
    /// The variants whose runs a finding is made of: its own, and those that it is compared with.
    pub fn variants_read(&self, finding: &Finding) -> BTreeSet<String> {
        let mut read = BTreeSet::from([finding.variant.clone()]);
        let at_line = |one: &&Expectation| one.line == finding.line;
        for expectation in self.expectations.iter().filter(at_line) {
            read.extend(expectation.rank_among.iter().cloned());
            let rival = expectation.rank_with.as_ref().and_then(|rival| rival.per.as_ref());
            for per in expectation.per.iter().chain(rival) {
                let Some(variant) = &per.variant else { continue };
                read.extend(expectation.groups.iter().map(|group| Per::of_group(variant, group)));
            }
        }
        read
    }
}

/// An expectation and the outcomes by which it is judged.
#[derive(Clone, Copy)]
struct Case<'a> {
    scenario: &'a Scenario,
    expectation: &'a Expectation,
    outcomes: &'a [Outcome],
}

impl<'a> Case<'a> {
    fn finding(self, variant: &str, groups: &[Vec<String>]) -> Finding {
        let expectation = self.expectation;
        let readings: Vec<Reading> =
            self.of_variant(variant).filter_map(|outcome| self.read(groups, outcome)).collect();
        let holds = expectation.summary.holds(&readings, &expectation.test);
        let judgement = match (readings.is_empty(), holds) {
            (true, _) => Judgement::NotRun,
            (false, true) if expectation.at_one_point.is_some() => Judgement::AtOnePoint,
            (false, true) => Judgement::Holds,
            (false, false) if expectation.differs.is_some() => Judgement::Differs,
            (false, false) => Judgement::Fails,
        };
        let names: Vec<String> = groups.iter().flatten().cloned().collect();
        let mut finding = Finding {
            line: expectation.line,
            about: expectation.about.clone(),
            variant: variant.to_owned(),
            measure: expectation.measure.name(),
            what: expectation.describe(&names),
            expected: expectation.expected(),
            paper: expectation.paper,
            published: None,
            unit: expectation.unit(),
            summary: expectation.summary,
            readings,
            differs: expectation.differs.as_ref().or(expectation.at_one_point.as_ref()).cloned(),
            judgement,
        };
        finding.published = finding.compare(expectation);
        finding
    }

    fn of_variant(self, name: &str) -> impl Iterator<Item = &'a Outcome> {
        let Case { scenario, outcomes, .. } = self;
        outcomes.iter().filter(move |o| o.scenario == scenario.name && o.variant == name)
    }

    fn with_seed(self, variant: &str, seed: u64) -> Option<&'a Outcome> {
        self.of_variant(variant).find(|outcome| outcome.seed == seed)
    }

    /// What one run gave; `None` where a run that it is compared with is missing.
    fn read(self, groups: &[Vec<String>], outcome: &'a Outcome) -> Option<Reading> {
        let Expectation { members, rank_with, .. } = self.expectation;
        match (members, rank_with) {
            (None, Some(rival)) => Some(self.read_order(groups, rival, outcome)),
            (None, None) => self.read_rank(groups.first()?, outcome),
            (Some(least), _) => {
                let each = groups.iter().map(|group| self.read_rank(group, outcome));
                let each: Vec<Reading> = each.collect::<Option<_>>()?;
                let holding = each.iter().filter(|reading| reading.holds).count();
                let (value, holds) = (Some(holding as f64), holding >= *least as usize);
                Some(Reading { seed: outcome.seed, value, target: None, holds })
            }
        }
    }

    /// A group's value, or its rank among other variants.
    fn read_rank(self, group: &[String], outcome: &'a Outcome) -> Option<Reading> {
        let Expectation { rank_among, test, .. } = self.expectation;
        let own = self.read_group(group, outcome)?;
        if rank_among.is_empty() {
            return Some(own);
        }
        let mut rank = own.value.map(|_| 1.0);
        for name in rank_among {
            let rival = self.read_group(group, self.with_seed(name, outcome.seed)?)?;
            match own.value.zip(rival.value) {
                Some((own, rival)) if rival < own * (1.0 - ALIKE) => {
                    rank = rank.map(|rank| rank + 1.0)
                }
                Some(_) => {}
                None => rank = None,
            }
        }
        let holds = rank.is_some_and(|rank| test.holds(rank, test.value()));
        Some(Reading { value: rank, holds, ..own })
    }

    /// The correlation of the order of the groups by the measure, and by a rival.
    fn read_order(self, groups: &[Vec<String>], rival: &Quantity, outcome: &'a Outcome) -> Reading {
        let values = |quantity: &Quantity| -> Option<Vec<f64>> {
            groups.iter().map(|group| self.value(quantity, group, outcome)).collect()
        };
        let test = &self.expectation.test;
        let value = values(&self.quantity())
            .zip(values(rival))
            .and_then(|(own, rival)| correlation(&own, &rival));
        let holds = value.is_some_and(|value| test.holds(value, test.value()));
        Reading { seed: outcome.seed, value, target: test.value(), holds }
    }

    /// A group's value. `None` where the run that it is compared with is missing.
    fn read_group(self, group: &[String], outcome: &'a Outcome) -> Option<Reading> {
        let Expectation { every, settles_within, reversal, test, .. } = self.expectation;
        let span = find_span(self.scenario, self.expectation.span.as_deref());
        let course = Course { expectation: self.expectation, group, outcome, span };
        let (value, target) = match (every, settles_within, reversal) {
            (Some(length), ..) => (course.extreme(*length), None),
            (None, Some(within), _) => (course.settling(*within), test.value()),
            (None, None, Some(length)) => (course.reversal(*length), test.value()),
            (None, None, None) => {
                self.other_run(self.expectation.per.as_ref(), group, outcome)?;
                let target = match test.target {
                    Some(Target::WaterFill { capacity }) => {
                        let expectation = self.expectation;
                        allocation(self.scenario, expectation, group, outcome, span, capacity)
                    }
                    _ => test.value(),
                };
                (self.value(&self.quantity(), group, outcome), target)
            }
        };
        let holds = value.is_some_and(|value| test.holds(value, target));
        Some(Reading { seed: outcome.seed, value, target, holds })
    }

    /// The quantity that the expectation measures.
    fn quantity(self) -> Quantity {
        let Expectation { measure, span, per, .. } = self.expectation;
        Quantity { measure: *measure, span: span.clone(), per: per.clone() }
    }

    /// A quantity of a group, compared with what it is compared with.
    fn value(self, quantity: &Quantity, group: &[String], outcome: &'a Outcome) -> Option<f64> {
        let of = |outcome: &Outcome, what: Measure, group: &[String], span: &Option<String>| {
            let span = find_span(self.scenario, span.as_deref());
            measure(self.scenario, outcome, what, group, span, &self.expectation.selection)
        };
        let own = of(outcome, quantity.measure, group, &quantity.span);
        let Some(per) = &quantity.per else { return own };
        let other = self.other_run(Some(per), group, outcome)?;
        let base = of(other, per.measure, per.of.as_deref().unwrap_or(group), &per.span);
        let value = own.zip(base).map(|(own, base)| match per.against {
            Against::Quotient => own / base,
            Against::Difference => own - base,
        });
        value.filter(|value| value.is_finite())
    }

    /// The run that a measure is compared with: that of another variant with the same seed, or the
    /// same.
    fn other_run(
        self,
        per: Option<&Per>,
        group: &[String],
        outcome: &'a Outcome,
    ) -> Option<&'a Outcome> {
        match per.and_then(|per| per.variant.as_deref()) {
            Some(variant) => self.with_seed(&Per::of_group(variant, group), outcome.seed),
            None => Some(outcome),
        }
    }
}

fn find_span<'a>(scenario: &'a Scenario, name: Option<&str>) -> Option<&'a Span> {
    name.and_then(|name| scenario.spans.iter().find(|span| span.name == name))
}
