//! Expectations, as a file writes them.

use super::measure::Measure;
use super::pool::SelectionFile;
use super::values::{At, Names, Percent, Quantity, Rate, Time};
use schemars::JsonSchema;
use serde::Deserialize;

/// What is expected of the results.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ExpectFile {
    /// Why, in one line.
    #[serde(default)]
    pub(super) about: String,
    /// In which variants; in all unless given.
    pub(super) variant: Option<At<Names>>,
    /// What is measured.
    pub(super) measure: At<Measure>,
    /// Of which VMs, disks, datastores, nodes or hosts; of several together.
    pub(super) of: Option<At<Names>>,
    /// Of which, each for itself.
    pub(super) each: Option<At<Names>>,
    /// When; in the whole run unless given.
    pub(super) window: Option<At<String>>,
    /// In every stretch of this length within the window, instead of the window as a whole.
    pub(super) every: Option<At<Time>>,
    /// So many of 'each' at least, instead of all.
    pub(super) members: Option<At<u32>>,
    /// Over all seeds together: the value that so many per cent of them do not exceed. Every seed by itself unless given.
    pub(super) quantile: Option<At<Percent>>,
    /// In so many per cent of the seeds at least, instead of all. 'paper' is then such a part, too: 0.9 for 90%.
    pub(super) in_seeds: Option<At<Percent>>,
    /// Not the value, but its place among those of these variants with the same seed: 1 where none is lower by
    /// more than 1%.
    pub(super) rank_among: Option<At<Names>>,
    /// Of a sweep: which of its points.
    #[serde(default, rename = "where")]
    pub(super) selected: Option<At<SelectionFile>>,
    /// How long it takes from the window's beginning until the series stays this near to where it ends, which is the
    /// mean of the window's last quarter.
    pub(super) settles_within: Option<At<Percent>>,
    /// Relative to this.
    pub(super) per: Option<At<PerFile>>,
    /// By how much more than this.
    pub(super) less: Option<At<PerFile>>,
    /// Not the values of 'each', but whether they are in the same order as these: Spearman's rank correlation, 1 for the same order,
    /// -1 for the opposite.
    pub(super) rank_with: Option<At<RivalFile>>,
    /// Not the measure, but by how much it goes back at most on its way from the window's beginning to its end, in means over
    /// this length.
    pub(super) reversal: Option<At<Time>>,
    /// What it should be, with 'within' or 'slack'.
    pub(super) equals: Option<At<Quantity>>,
    /// That it should be what water-filling gives to each: of 'capacity', or of what all that run get together.
    pub(super) water_fill: Option<At<bool>>,
    /// The capacity for water-filling, in the unit of the measure.
    pub(super) capacity: Option<At<Rate>>,
    /// How much it may differ, relative.
    pub(super) within: Option<At<Percent>>,
    /// How much it may differ at least, in its own unit, however small 'within' is.
    pub(super) slack: Option<At<Quantity>>,
    /// The least it may be.
    pub(super) at_least: Option<At<Quantity>>,
    /// The most it may be.
    pub(super) at_most: Option<At<Quantity>>,
    /// What was published.
    pub(super) paper: Option<At<Quantity>>,
    /// Why it is known not to hold. Then it is an error that it does.
    pub(super) differs: Option<String>,
}

/// What else is measured of each, to compare the order. What is not given is as in the expectation.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RivalFile {
    /// What is measured.
    pub(super) measure: At<Measure>,
    /// When.
    pub(super) window: Option<At<String>>,
    /// Relative to this.
    pub(super) per: Option<At<PerFile>>,
    /// By how much more than this.
    pub(super) less: Option<At<PerFile>>,
}

/// What a measure is held against. What is not given is as in the expectation.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PerFile {
    /// What is measured.
    pub(super) measure: Option<At<Measure>>,
    /// Of which together.
    pub(super) of: Option<At<Names>>,
    /// When.
    pub(super) window: Option<At<String>>,
    /// In which variant, with the same seed; with 'each' a {} in it stands for the name of each.
    pub(super) variant: Option<At<String>>,
}
