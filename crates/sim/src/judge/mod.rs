//! Whether the outcomes are what a scenario expects.

mod measure;
mod over;
mod pool;
mod sweep;

use crate::file::Measure;
use crate::outcome::Outcome;
use crate::scenario::{Action, Scenario, Setup, Window};
use headgate_qos::{Policy, water_fill};
use headgate_units::{Iops, Nanos};
use measure::{Series, measure, series};
pub use over::Summary;
pub(crate) use pool::POOL;
use serde::Serialize;
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
    pub(crate) per: Option<Per>,
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

/// What a measure is divided by.
#[derive(Clone, Debug)]
pub(crate) struct Per {
    pub(crate) measure: Measure,
    /// The expectation's own group when none.
    pub(crate) of: Option<Vec<String>>,
    pub(crate) window: Option<String>,
    /// The expectation's own variant when none.
    pub(crate) variant: Option<String>,
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
            let parts: Vec<&[Vec<String>]> = match expectation.members {
                Some(_) => vec![&expectation.groups[..]],
                None => expectation.groups.iter().map(std::slice::from_ref).collect(),
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
        // Relative to another variant: to its run with the same seed.
        let other = |outcome| match expectation.per.as_ref().and_then(|per| per.variant.as_deref()) {
            Some(other) => with_seed(other),
            None => Some(outcome),
        };
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
    let readings: Vec<Reading> = of_variant(variant)
        .filter_map(|outcome| match expectation.members {
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

fn reading(
    scenario: &Scenario,
    expectation: &Expectation,
    group: &[String],
    outcome: &Outcome,
    other: &Outcome,
) -> Reading {
    let find =
        |name: Option<&str>| name.and_then(|name| scenario.windows.iter().find(|window| window.name == name));
    let window = find(expectation.window.as_deref());
    let selection = &expectation.selection;
    let (value, target) = match (expectation.every, expectation.settles_within) {
        (Some(length), _) => (extreme(expectation, group, outcome, window, length), None),
        (None, Some(within)) => {
            (settling(expectation, group, outcome, window, within), expectation.test.value())
        }
        (None, None) => {
            let own = measure(outcome, expectation.measure, group, window, selection);
            let value = match &expectation.per {
                Some(per) => {
                    let of = per.of.as_deref().unwrap_or(group);
                    let base = measure(other, per.measure, of, find(per.window.as_deref()), selection);
                    own.zip(base).map(|(own, base)| own / base).filter(|ratio| ratio.is_finite())
                }
                None => own,
            };
            let target = match expectation.test.target {
                Some(Target::WaterFill { capacity }) => {
                    scenario.variant(&outcome.variant).and_then(|variant| {
                        allocation(&variant.setup, expectation, group, outcome, window, capacity)
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
        if self.members.is_some() || !self.rank_among.is_empty() {
            return Unit::Number;
        }
        self.test_unit()
    }

    /// Of what is tested.
    fn test_unit(&self) -> Unit {
        match (&self.per, self.settles_within) {
            (_, Some(_)) => Unit::Seconds,
            (Some(_), None) => Unit::Ratio,
            (None, None) => self.measure.unit(),
        }
    }

    fn expected(&self) -> String {
        let unit = if self.rank_among.is_empty() { self.test_unit() } else { Unit::Number };
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
        if let Some(per) = &self.per {
            let mut base = Vec::new();
            if per.measure != self.measure {
                base.push(per.measure.name().to_owned());
            }
            base.extend(per.of.as_ref().map(|of| of.join(" + ")));
            if per.window != self.window {
                base.push(format!("in {}", per.window.as_deref().unwrap_or("the whole run")));
            }
            base.extend(per.variant.as_ref().map(|variant| format!("under {variant}")));
            text += &format!(" / {}", base.join(" "));
        }
        if !self.rank_among.is_empty() {
            text = format!("rank of {text} among {}", self.rank_among.join(", "));
        }
        self.summary.describe(text)
    }
}

/// The least or the most in any stretch of a length, whichever is to be bounded.
fn extreme(
    expectation: &Expectation,
    group: &[String],
    outcome: &Outcome,
    window: Option<&Window>,
    length: Nanos,
) -> Option<f64> {
    let points = (length.0 / outcome.interval.0.max(1)) as usize;
    let values = series(outcome, expectation.measure, group, window, points)?.values.into_iter().flatten();
    if expectation.test.at_least.is_some() { values.reduce(f64::min) } else { values.reduce(f64::max) }
}

/// Seconds from a window's beginning until all points of the series are within a part of the mean of its last quarter.
fn settling(
    expectation: &Expectation,
    group: &[String],
    outcome: &Outcome,
    window: Option<&Window>,
    within: f64,
) -> Option<f64> {
    let Series { from, values } = series(outcome, expectation.measure, group, window, 1)?;
    let last: Vec<f64> =
        values[values.len() - values.len().div_ceil(4)..].iter().copied().flatten().collect();
    if last.is_empty() {
        return None;
    }
    let end = last.iter().sum::<f64>() / last.len() as f64;
    let far = |value: &Option<f64>| value.is_none_or(|value| (value - end).abs() > within * end.abs());
    let settled = values.iter().rposition(far).map_or(0, |index| index + 1);
    let begins = window.map_or(Nanos::ZERO, |window| window.from);
    // A last point that is far off has not settled at all.
    (settled < values.len()).then(|| {
        (from.since(begins) + Nanos(outcome.interval.0.saturating_mul(settled as u64))).as_secs_f64()
    })
}

/// What water-filling gives a group: the policies are those at the end of the window, the VMs those that run then.
fn allocation(
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
    let (mut names, mut policies): (Vec<String>, Vec<Policy>) = (Vec::new(), Vec::new());
    for (index, vm) in setup.vms.iter().enumerate() {
        let mut runs = vm.start.is_some_and(|start| start <= from);
        let mut own: Vec<Policy> = vm.disks.iter().map(|disk| disk.policy).collect();
        for event in setup.timeline.iter().filter(|event| event.at < to) {
            match event.action {
                Action::Start { vm } if vm == index => runs = true,
                Action::Stop { vm } if vm == index => runs = false,
                Action::Policy { vm, disk, policy } if vm == index => own[disk] = policy,
                _ => {}
            }
        }
        for (disk, policy) in vm.disks.iter().zip(own).filter(|_| runs) {
            let name =
                if vm.disks.len() == 1 { vm.name.clone() } else { format!("{}/{}", vm.name, disk.name) };
            names.push(name);
            policies.push(policy);
        }
    }
    let capacity = match capacity {
        Some(capacity) => capacity,
        None => {
            let together = measure(outcome, expectation.measure, &names, window, &expectation.selection)?;
            Iops::new(together.round() as u64).ok()?
        }
    };
    let allocations = water_fill(&policies, capacity);
    let shares = names.iter().zip(&allocations).filter(|(name, _)| {
        group.iter().any(|member| *name == member || name.starts_with(&format!("{member}/")))
    });
    Some(shares.map(|(_, cost)| cost.as_millionths() as f64 / 1e6).sum())
}
