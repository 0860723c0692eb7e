//! Whether the outcomes are what a scenario expects.

mod course;
mod measure;
mod over;
mod pool;
mod rank;
mod shares;
mod sweep;

use crate::file::Measure;
use crate::outcome::Outcome;
use crate::scenario::{Scenario, Setup, Window};
use course::{extreme, reversal, settling};
use headgate_qos::{Policy, water_fill};
use headgate_units::{Iops, Nanos};
use measure::measure;
pub use over::Summary;
pub(crate) use pool::POOL;
use rank::correlation;
use serde::Serialize;
use shares::policies_at;
use std::fmt;
pub(crate) use sweep::Selection;

/// Something that a scenario expects, as its file says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Expectation {
    /// Where it stands in the file.
    pub line: usize,
    /// Why, in the file's words.
    pub about: String,
    /// The variants for which it holds.
    pub variants: Vec<String>,
    /// What is measured, each group for itself, its members together.
    pub(crate) groups: Vec<Vec<String>>,
    pub(crate) measure: Measure,
    pub(crate) window: Option<String>,
    pub(crate) every: Option<Nanos>,
    /// Not the measure, but how long it takes to stay so near to where it ends.
    pub(crate) settles_within: Option<f64>,
    /// Not the measure, but by how much it goes back on its way through the window, in means over this.
    pub(crate) reversal: Option<Nanos>,
    pub(crate) per: Option<Per>,
    /// Not the values of the groups, but whether they have the order of this.
    pub(crate) rank_with: Option<Quantity>,
    /// Of a sweep: which of its points.
    pub(crate) selection: Selection,
    /// Not the value, but its place among those of these variants.
    pub(crate) rank_among: Vec<String>,
    /// How many of the groups must be as expected; all by themselves when none.
    pub(crate) members: Option<u32>,
    /// How the seeds count.
    pub(crate) summary: Summary,
    pub(crate) test: Test,
    pub(crate) paper: Option<f64>,
    pub(crate) differs: Option<String>,
}

/// What is measured of a group, and what that is held against.
#[derive(Clone, Debug)]
pub(crate) struct Quantity {
    pub(crate) measure: Measure,
    pub(crate) window: Option<String>,
    pub(crate) per: Option<Per>,
}

/// How a measure is held against another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    /// How often that is in it.
    Quotient,
    /// By how much it is more.
    Difference,
}

/// What a measure is held against.
#[derive(Clone, Debug)]
pub(crate) struct Per {
    pub(crate) against: Against,
    pub(crate) measure: Measure,
    /// The expectation's own group when none.
    pub(crate) of: Option<Vec<String>>,
    pub(crate) window: Option<String>,
    /// The expectation's own variant when none. A {} in it is the group.
    pub(crate) variant: Option<String>,
}

impl Per {
    /// The name of a variant for a group: where it has a {}, the group goes.
    pub(crate) fn of_group(variant: &str, group: &[String]) -> String {
        variant.replace("{}", &group.join("+"))
    }
}

/// What a value is held against.
#[derive(Clone, Debug, Default)]
pub(crate) struct Test {
    pub(crate) target: Option<Target>,
    /// Relative tolerance of the target, 0.05 for 5 %.
    pub(crate) within: f64,
    /// Tolerance in the value's unit; the larger of both counts.
    pub(crate) slack: f64,
    pub(crate) at_least: Option<f64>,
    pub(crate) at_most: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Value(f64),
    /// What water-filling gives each of the group at a capacity, or at what all running VMs got.
    WaterFill {
        capacity: Option<Iops>,
    },
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Unit {
    /// Something per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Seconds.
    Seconds,
    /// A plain number.
    Number,
    /// A quotient.
    Ratio,
}

impl Unit {
    /// A value with its unit, with four significant digits.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::PerSecond => format!("{}/s", digits(value)),
            Unit::BytesPerSecond => format!("{} MiB/s", digits(value / f64::from(1 << 20))),
            Unit::Seconds if value < 1.0 => format!("{} ms", digits(value * 1e3)),
            Unit::Seconds => format!("{} s", digits(value)),
            Unit::Number | Unit::Ratio => digits(value),
        }
    }
}

fn digits(value: f64) -> String {
    let places = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.places$}")
}

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
    /// There is no outcome to judge.
    NotRun,
}

/// One expectation, in one variant, for one group of subjects.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Verdict {
    /// The line of the expectation in the file.
    pub line: usize,
    /// Why it is expected, in the file's words; may be empty.
    pub about: String,
    /// The variant.
    pub variant: String,
    /// What was measured, such as `iops of VM1 + VM2 in steady`.
    pub what: String,
    /// What was expected, such as `1600/s ± 5 %`.
    pub expected: String,
    /// What was published, in the verdict's unit.
    pub paper: Option<f64>,
    /// The unit of all values here; of the published one and ours [`Verdict::summary`] may make a part of a whole.
    pub unit: Unit,
    /// What of all seeds is held against what is expected.
    pub summary: Summary,
    /// One for each outcome of the variant.
    pub readings: Vec<Reading>,
    /// Why it is known not to hold, if it is.
    pub differs: Option<String>,
    /// How it came out.
    pub judgement: Judgement,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.judgement {
            Judgement::Holds => "holds",
            Judgement::Fails => "FAILS",
            Judgement::Differs => "differs",
            Judgement::NotRun => "not run",
        };
        let ours = self.ours().map_or("nothing".to_owned(), |ours| self.shown_unit().show(ours));
        write!(f, "{word}: [{}] {}: {ours}, expected {}", self.variant, self.what, self.expected)?;
        match self.paper {
            Some(paper) => write!(f, " (paper: {})", self.shown_unit().show(paper)),
            None => Ok(()),
        }
    }
}

/// What one run gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Reading {
    /// The run's seed.
    pub seed: u64,
    /// What was measured; `None` when nothing was, such as a latency where nothing completed.
    pub value: Option<f64>,
    /// What it is held against, where that is one value.
    pub target: Option<f64>,
    /// Whether this run is as expected.
    pub holds: bool,
}

/// Values that differ by less than this part have the same rank: chance alone differs by as much.
const ALIKE: f64 = 0.01;

/// Judges all expectations, in the order of the file. Outcomes may come from any variants and seeds, in any order; those
/// of other scenarios are left out.
pub fn judge(scenario: &Scenario, outcomes: &[Outcome]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for expectation in &scenario.expectations {
        for variant in &expectation.variants {
            // Counted together, or each for itself.
            let together = expectation.members.is_some() || expectation.rank_with.is_some();
            let parts: Vec<&[Vec<String>]> = match together {
                true => vec![&expectation.groups[..]],
                false => expectation.groups.iter().map(std::slice::from_ref).collect(),
            };
            for groups in parts {
                verdicts.push(verdict(scenario, expectation, variant, groups, outcomes));
            }
        }
    }
    verdicts
}

fn verdict(
    scenario: &Scenario,
    expectation: &Expectation,
    variant: &str,
    groups: &[Vec<String>],
    outcomes: &[Outcome],
) -> Verdict {
    let of_variant = |name: &str| {
        let name = name.to_owned();
        outcomes.iter().filter(move |o| o.scenario == scenario.name && o.variant == name)
    };
    let read = |group: &[String], outcome: &Outcome| -> Option<Reading> {
        let with_seed = |name: &str| of_variant(name).find(|o| o.seed == outcome.seed);
        let other = |outcome| other_run(expectation.per.as_ref(), group, outcome, &with_seed);
        let own = reading(scenario, expectation, group, outcome, other(outcome)?);
        if expectation.rank_among.is_empty() {
            return Some(own);
        }
        let mut rank = own.value.map(|_| 1.0);
        for name in &expectation.rank_among {
            let rival = with_seed(name)?;
            let rival = reading(scenario, expectation, group, rival, other(rival)?);
            match own.value.zip(rival.value) {
                Some((own, rival)) if rival < own * (1.0 - ALIKE) => rank = rank.map(|rank| rank + 1.0),
                Some(_) => {}
                None => rank = None,
            }
        }
        let holds = rank.is_some_and(|rank| expectation.test.holds(rank, expectation.test.value()));
        Some(Reading { value: rank, holds, ..own })
    };
    let ranked = |quantity: &Quantity, outcome: &Outcome| -> Option<Reading> {
        let with_seed = |name: &str| of_variant(name).find(|o| o.seed == outcome.seed);
        let values = |quantity: &Quantity| -> Option<Vec<f64>> {
            let of = |group: &Vec<String>| {
                let other = other_run(quantity.per.as_ref(), group, outcome, &with_seed)?;
                value_of(scenario, quantity, &expectation.selection, group, outcome, other)
            };
            groups.iter().map(of).collect()
        };
        let Expectation { measure, window, per, .. } = expectation;
        let own = Quantity { measure: *measure, window: window.clone(), per: per.clone() };
        let value = values(&own).zip(values(quantity)).and_then(|(own, rival)| correlation(&own, &rival));
        let target = expectation.test.value();
        let holds = value.is_some_and(|value| expectation.test.holds(value, target));
        Some(Reading { seed: outcome.seed, value, target, holds })
    };
    let readings: Vec<Reading> = of_variant(variant)
        .filter_map(|outcome| match expectation.members {
            None if expectation.rank_with.is_some() => ranked(expectation.rank_with.as_ref()?, outcome),
            None => read(groups.first()?, outcome),
            Some(least) => {
                let each: Vec<Reading> =
                    groups.iter().map(|group| read(group, outcome)).collect::<Option<_>>()?;
                let holding = each.iter().filter(|reading| reading.holds).count();
                let (value, holds) = (Some(holding as f64), holding >= least as usize);
                Some(Reading { seed: outcome.seed, value, target: None, holds })
            }
        })
        .collect();
    let holds = expectation.summary.holds(&readings, &expectation.test);
    let judgement = match (readings.is_empty(), holds) {
        (true, _) => Judgement::NotRun,
        (false, true) => Judgement::Holds,
        (false, false) if expectation.differs.is_some() => Judgement::Differs,
        (false, false) => Judgement::Fails,
    };
    let names: Vec<String> = groups.iter().flatten().cloned().collect();
    Verdict {
        line: expectation.line,
        about: expectation.about.clone(),
        variant: variant.to_owned(),
        what: expectation.describe(&names),
        expected: expectation.expected(),
        paper: expectation.paper,
        unit: expectation.unit(),
        summary: expectation.summary,
        readings,
        differs: expectation.differs.clone(),
        judgement,
    }
}

/// The run that a measure is held against: that of another variant with the same seed, or the same.
fn other_run<'a>(
    per: Option<&Per>,
    group: &[String],
    outcome: &'a Outcome,
    with_seed: &dyn Fn(&str) -> Option<&'a Outcome>,
) -> Option<&'a Outcome> {
    match per.and_then(|per| per.variant.as_deref()) {
        Some(variant) => with_seed(&Per::of_group(variant, group)),
        None => Some(outcome),
    }
}

fn find_window<'a>(scenario: &'a Scenario, name: Option<&str>) -> Option<&'a Window> {
    name.and_then(|name| scenario.windows.iter().find(|window| window.name == name))
}

/// A quantity of a group, held against what it is to be held against.
fn value_of(
    scenario: &Scenario,
    quantity: &Quantity,
    selection: &Selection,
    group: &[String],
    outcome: &Outcome,
    other: &Outcome,
) -> Option<f64> {
    let window = find_window(scenario, quantity.window.as_deref());
    let own = measure(scenario, outcome, quantity.measure, group, window, selection);
    let Some(per) = &quantity.per else { return own };
    let of = per.of.as_deref().unwrap_or(group);
    let base =
        measure(scenario, other, per.measure, of, find_window(scenario, per.window.as_deref()), selection);
    let value = own.zip(base).map(|(own, base)| match per.against {
        Against::Quotient => own / base,
        Against::Difference => own - base,
    });
    value.filter(|value| value.is_finite())
}

fn reading(
    scenario: &Scenario,
    expectation: &Expectation,
    group: &[String],
    outcome: &Outcome,
    other: &Outcome,
) -> Reading {
    let window = find_window(scenario, expectation.window.as_deref());
    let selection = &expectation.selection;
    let (value, target) = match (expectation.every, expectation.settles_within, expectation.reversal) {
        (Some(length), ..) => (extreme(expectation, group, outcome, window, length), None),
        (None, Some(within), _) => {
            (settling(expectation, group, outcome, window, within), expectation.test.value())
        }
        (None, None, Some(length)) => {
            (reversal(expectation, group, outcome, window, length), expectation.test.value())
        }
        (None, None, None) => {
            let Expectation { measure, window: name, per, .. } = expectation;
            let quantity = Quantity { measure: *measure, window: name.clone(), per: per.clone() };
            let value = value_of(scenario, &quantity, selection, group, outcome, other);
            let target = match expectation.test.target {
                Some(Target::WaterFill { capacity }) => {
                    scenario.variant(&outcome.variant).and_then(|variant| {
                        let setup = &variant.setup;
                        allocation(scenario, setup, expectation, group, outcome, window, capacity)
                    })
                }
                _ => expectation.test.value(),
            };
            (value, target)
        }
    };
    let holds = value.is_some_and(|value| expectation.test.holds(value, target));
    Reading { seed: outcome.seed, value, target, holds }
}

impl Test {
    /// The one value that it is held against, if it is one.
    fn value(&self) -> Option<f64> {
        match self.target {
            Some(Target::Value(value)) => Some(value),
            Some(Target::WaterFill { .. }) | None => None,
        }
    }

    fn holds(&self, value: f64, target: Option<f64>) -> bool {
        let near = match (&self.target, target) {
            (None, _) => true,
            (Some(_), Some(target)) => (value - target).abs() <= (self.within * target.abs()).max(self.slack),
            (Some(_), None) => false,
        };
        near && self.at_least.is_none_or(|least| value >= least)
            && self.at_most.is_none_or(|most| value <= most)
    }

    fn describe(&self, unit: Unit) -> String {
        let mut parts = Vec::new();
        if let Some(target) = self.target {
            let target = match target {
                Target::Value(value) => unit.show(value),
                Target::WaterFill { capacity: Some(capacity) } => format!("water-filling of {capacity}"),
                Target::WaterFill { capacity: None } => "water-filling".to_owned(),
            };
            let mut tolerance = Vec::new();
            if self.within > 0.0 {
                tolerance.push(format!(
                    "{} %",
                    digits(self.within * 100.0).trim_end_matches('0').trim_end_matches('.')
                ));
            }
            if self.slack > 0.0 {
                tolerance.push(unit.show(self.slack));
            }
            parts.push(format!("{target} ± {}", tolerance.join(" or ")));
        }
        parts.extend(self.at_least.map(|least| format!("at least {}", unit.show(least))));
        parts.extend(self.at_most.map(|most| format!("at most {}", unit.show(most))));
        parts.join(", ")
    }
}

impl Expectation {
    fn unit(&self) -> Unit {
        if self.members.is_some() || !self.rank_among.is_empty() || self.rank_with.is_some() {
            return Unit::Number;
        }
        self.test_unit()
    }

    /// Of what is tested.
    fn test_unit(&self) -> Unit {
        match (&self.per, self.settles_within) {
            (_, Some(_)) => Unit::Seconds,
            (Some(Per { against: Against::Quotient, .. }), None) => Unit::Ratio,
            (Some(_) | None, None) => self.measure.unit(),
        }
    }

    fn expected(&self) -> String {
        let ranks = !self.rank_among.is_empty() || self.rank_with.is_some();
        let unit = if ranks { Unit::Number } else { self.test_unit() };
        let mut text = self.test.describe(unit);
        if let Some(members) = self.members {
            text += &format!(" for {members} of {}", self.groups.len());
        }
        text + &self.summary.expected()
    }

    fn describe(&self, group: &[String]) -> String {
        let place = |window: &Option<String>| match window {
            Some(window) => format!(" in {window}"),
            None => String::new(),
        };
        let mut text = format!("{} of {}{}", self.measure.name(), group.join(" + "), place(&self.window));
        if let Some(length) = self.every {
            text += &format!(" in every {length}");
        }
        if let Some(within) = self.settles_within {
            text = format!("time until {text} stays within {} %", digits(within * 100.0));
        }
        if let Some(length) = self.reversal {
            text = format!("way back of {text} in means over {length}");
        }
        let variant_of = |variant: &String| match self.rank_with {
            Some(_) => variant.clone(),
            None => Per::of_group(variant, group),
        };
        let base_of = |per: &Per, measure: Measure, window: &Option<String>| {
            let mut base = Vec::new();
            if per.measure != measure {
                base.push(per.measure.name().to_owned());
            }
            base.extend(per.of.as_ref().map(|of| of.join(" + ")));
            if per.window != *window {
                base.push(format!("in {}", per.window.as_deref().unwrap_or("the whole run")));
            }
            base.extend(per.variant.as_ref().map(|variant| format!("under {}", variant_of(variant))));
            let sign = match per.against {
                Against::Quotient => "/",
                Against::Difference => "-",
            };
            format!(" {sign} {}", base.join(" "))
        };
        if let Some(per) = &self.per {
            text += &base_of(per, self.measure, &self.window);
        }
        if let Some(Quantity { measure, window, per }) = &self.rank_with {
            let base = per.as_ref().map_or_else(String::new, |per| base_of(per, *measure, window));
            text = format!("rank correlation of {text} with {}{base}", measure.name());
        }
        if !self.rank_among.is_empty() {
            text = format!("rank of {text} among {}", self.rank_among.join(", "));
        }
        self.summary.describe(text)
    }
}

/// What water-filling gives a group: the policies are those at the end of the window, the VMs those that run then.
fn allocation(
    scenario: &Scenario,
    setup: &Setup,
    expectation: &Expectation,
    group: &[String],
    outcome: &Outcome,
    window: Option<&Window>,
    capacity: Option<Iops>,
) -> Option<f64> {
    let first = outcome.subject(group.first()?)?;
    let (from, to) = match expectation.window.as_deref() {
        Some(name) => {
            let stretch = first.windows.iter().find(|stretch| stretch.name == name)?;
            (stretch.from, stretch.to)
        }
        None => (Nanos::ZERO, outcome.duration),
    };
    let running = policies_at(setup, from, to).into_iter().filter(|held| held.runs);
    let (names, policies): (Vec<String>, Vec<Policy>) = running.map(|held| (held.name, held.policy)).unzip();
    let capacity = match capacity {
        Some(capacity) => capacity,
        None => {
            let Expectation { measure: of, selection, .. } = expectation;
            let together = measure(scenario, outcome, *of, &names, window, selection)?;
            Iops::new(together.round() as u64).ok()?
        }
    };
    let allocations = water_fill(&policies, capacity);
    let shares = names.iter().zip(&allocations).filter(|(name, _)| {
        group.iter().any(|member| *name == member || name.starts_with(&format!("{member}/")))
    });
    Some(shares.map(|(_, cost)| cost.as_millionths() as f64 / 1e6).sum())
}
