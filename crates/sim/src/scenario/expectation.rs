//! What a scenario expects of its results: a measure, what it is compared with, and its bounds.

use super::Measure;
use headgate_units::{Bytes, Iops, Nanos};
use serde::Serialize;

/// The subject of the measures of a pool as a whole.
pub(crate) const POOL: &str = "pool";

/// Something that a scenario expects, as its file says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Expectation {
    /// Where it stands in the file.
    pub line: usize,
    /// What sensitivities call it, if they do.
    pub name: Option<String>,
    /// Why, in the file's words.
    pub about: String,
    /// The variants for which it holds.
    pub variants: Vec<String>,
    /// What is measured, each group for itself, its members together.
    pub(crate) groups: Vec<Vec<String>>,
    pub(crate) measure: Measure,
    pub(crate) span: Option<String>,
    pub(crate) every: Option<Nanos>,
    /// Not the measure, but how long it takes to stay so near to where it ends.
    pub(crate) settles_within: Option<f64>,
    /// Not the measure, but by how much it goes back on its way through the span, in means over
    /// this.
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
    /// Why it holds at the file's own value of a parameter and at no other.
    pub(crate) at_one_point: Option<String>,
    /// Why the value is as expected and not as published.
    pub(crate) off_paper: Option<String>,
}

/// What a file says it knows of an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing: it is to hold.
    Plain,
    /// It does not hold.
    Differs,
    /// It holds at the file's own value of a parameter and at no other.
    AtOnePoint,
}

impl Expectation {
    /// What the file says it knows of it.
    pub fn mark(&self) -> Mark {
        match (&self.differs, &self.at_one_point) {
            (Some(_), _) => Mark::Differs,
            (None, Some(_)) => Mark::AtOnePoint,
            (None, None) => Mark::Plain,
        }
    }
}

/// A measure of a group, and the reference that it is compared with.
#[derive(Clone, Debug)]
pub(crate) struct Quantity {
    pub(crate) measure: Measure,
    pub(crate) span: Option<String>,
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

/// The reference of a measure.
#[derive(Clone, Debug)]
pub(crate) struct Per {
    pub(crate) against: Against,
    pub(crate) measure: Measure,
    /// The expectation's own group when none.
    pub(crate) of: Option<Vec<String>>,
    pub(crate) span: Option<String>,
    /// The expectation's own variant when none. A {} in it is the group.
    pub(crate) variant: Option<String>,
}

impl Per {
    /// The name of a variant for a group: where it has a {}, the group goes.
    pub(crate) fn of_group(variant: &str, group: &[String]) -> String {
        variant.replace("{}", &group.join("+"))
    }
}

/// The target of a value.
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

/// The unit of a value.
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

/// A number with four significant digits.
pub(crate) fn digits(value: f64) -> String {
    let places = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.places$}")
}

/// Which points of a sweep: those with one of these values. An empty list is any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) outstanding: Vec<u32>,
    pub(crate) sizes: Vec<Bytes>,
    pub(crate) read: Vec<u8>,
    pub(crate) random: Vec<u8>,
}

/// What of all seeds is held against what is expected. Parts are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Summary {
    /// Each by itself; their mean is shown.
    Each,
    /// The value that so many of them do not exceed.
    Quantile(u32),
    /// How many of them are as expected: at least so many must be.
    Share(u32),
}
