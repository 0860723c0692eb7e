//! Wire types of placement: settings, models and advice.

use super::change::Change;
use headgate_model::{DatastorePlacement, DiskPlacement, EmptiedBy, Name, Overcommit};
use headgate_placement::{
    Advice, Affinity, Automatic, Barred, DeviceInterval, DeviceModel, DevicePoint, Finding,
    LeftOut, Made, Mobility, Placement, Pool, State,
};
use headgate_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What to change about a datastore's placement. A field that is absent stays as it is; `null`
/// takes a value away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DatastorePlacementPatch {
    /// What kind of storage it is.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub class: Change<Name>,
    /// The device under it, for datastores that share one.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub spindles: Change<Name>,
    /// `active`, `closed` or `maintenance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub state: Option<State>,
    /// In maintenance: whether its disks are moved away, `daemon`, or nobody but an operator does,
    /// `operator`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emptied_by: Option<EmptiedBy>,
    /// How many times the room of its file system disks may be large together, such as `2.5`, or
    /// `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub overcommit: Option<Overcommit>,
}

impl DatastorePlacementPatch {
    /// Does it change nothing.
    pub fn is_empty(&self) -> bool {
        *self == DatastorePlacementPatch::default()
    }

    /// What holds after the change.
    pub fn apply(self, before: DatastorePlacement) -> DatastorePlacement {
        let state = self.state.unwrap_or(before.state);
        let emptied_by = match state {
            State::Maintenance => self.emptied_by.unwrap_or(before.emptied_by),
            // The next maintenance begins anew.
            State::Active | State::Closed => EmptiedBy::Operator,
        };
        DatastorePlacement {
            class: self.class.apply(before.class),
            spindles: self.spindles.apply(before.spindles),
            state,
            emptied_by,
            overcommit: self.overcommit.or(before.overcommit),
        }
    }
}

/// What to change about a disk's placement. A field that is absent stays as it is; `null` takes a
/// value away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DiskPlacementPatch {
    /// The class of datastore it must be on.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub class: Change<Name>,
    /// `free` or `pinned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub mobility: Option<Mobility>,
    /// `none` or `vm`; formerly `company`, `alone` or `with-vm`.
    #[serde(alias = "company", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub affinity: Option<Affinity>,
}

impl DiskPlacementPatch {
    /// Does it change nothing.
    pub fn is_empty(&self) -> bool {
        *self == DiskPlacementPatch::default()
    }

    /// What holds after the change.
    pub fn apply(self, before: DiskPlacement) -> DiskPlacement {
        DiskPlacement {
            class: self.class.apply(before.class),
            mobility: self.mobility.unwrap_or(before.mobility),
            affinity: self.affinity.unwrap_or(before.affinity),
        }
    }
}

/// What is known of what a datastore can do: read latency over outstanding reads (BASIL, FAST 2010,
/// section 4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DatastoreModel {
    /// P: the inverse of the slope, in reads per millisecond; `null` without a model.
    pub ability: Option<f64>,
    /// How much longer a read takes for each read more that is outstanding, in nanoseconds.
    pub slope_ns: Option<f64>,
    /// The slope is not less with 95 %, in nanoseconds.
    pub slope_low_ns: Option<f64>,
    /// The slope is not more, likewise.
    pub slope_high_ns: Option<f64>,
    /// The part of the variance of latency that the line explains, 0 to 1.
    pub r_squared: Option<f64>,
    /// The model in words.
    pub text: Option<String>,
    /// The whole model.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub model: Option<DeviceModel>,
    /// Where the model comes from: `day`, intervals of the last 24 hours; `month`, a few points of
    /// each hour of the last 30 days, while the last 24 hours do not show how latency rises;
    /// `earlier`, intervals of 24 hours that ended at `learnt_at`, likewise; `recorded`, without a
    /// daemon. Absent without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ModelSource>,
    /// When the intervals ended that the model is learnt from, in seconds since 1970; only of an
    /// earlier model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt_at: Option<u64>,
    /// Why the last 24 hours make no model; an older one is used then, if there is one.
    pub refusal: Option<String>,
    /// Intervals of the last 24 hours that the model is learnt from.
    pub intervals: u64,
    /// Intervals that were left out, by reason.
    pub left_out: BTreeMap<String, u64>,
}

/// Where a model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ModelSource {
    /// Intervals of the last 24 hours.
    Day,
    /// A few points of each hour of the last 30 days.
    Month,
    /// Intervals of an earlier time.
    Earlier,
    /// What was recorded, without a daemon.
    Recorded,
}

/// An interval that a model is learnt from, or a point that stands for several of one hour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelPoint {
    /// When it ended, in nanoseconds since 1970; of a point that stands for several, the beginning
    /// of the hour.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub at: Nanos,
    /// Mean number of reads at the device.
    pub outstanding: f64,
    /// Mean latency of a read there, in nanoseconds.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub latency: Nanos,
    /// Mean size of reads and writes in bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub size: Bytes,
    /// Reads and writes that continue no stream, 0 to 1.
    pub random: f64,
    /// Why it is second choice: `limited`, `windowed` or `large`. Absent for one that is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub doubt: Option<LeftOut>,
}

impl ModelPoint {
    /// `None` for an interval that says nothing of the device.
    pub fn new(at: Nanos, interval: &DeviceInterval) -> Option<ModelPoint> {
        let DevicePoint { outstanding, latency, size, random } = interval.any_point()?;
        let (outstanding, random) = (outstanding.as_f64(), random.as_f64());
        Some(ModelPoint { at, outstanding, latency, size, random, doubt: interval.why() })
    }
}

/// A disk, and where it was placed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Created<T> {
    /// The disk as it is now.
    #[serde(flatten)]
    pub now: T,
    /// What may not be as intended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why it is where it is, when that was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub placement_chosen: Option<Placement>,
}

/// Datastores among which disks may be moved, what is known of them and what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PoolAdvice {
    /// The class of its datastores.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub class: Option<Name>,
    /// What the advice is given by.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub pool: Pool,
    /// The advice.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub advice: Advice,
}

/// A datastore that takes no part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Outside {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// Why.
    pub reason: String,
}

/// Advice for a whole daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AdviceReport {
    /// How far back workloads were looked at, such as `24h`; absent where they were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// One for each class of datastores, and more classes together where a disk is on the wrong
    /// one.
    pub pools: Vec<PoolAdvice>,
    /// Datastores that take no part.
    pub outside: Vec<Outside>,
    /// What is known of each datastore that takes part.
    pub models: BTreeMap<String, DatastoreModel>,
    /// What came of the moves of the last two days.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviews: Vec<MoveReview>,
    /// Whether moves are made without an operator; absent without a daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub automatic: Option<Automatic>,
}

/// What came of a move, by what its datastores did in the hours after it and in the same hours of
/// the day before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MoveReview {
    /// The disk.
    pub disk: String,
    /// Where it was: where it should go back to, if the move did harm.
    pub from: String,
    /// Where it is.
    pub to: String,
    /// When it had moved: seconds since 1970.
    #[serde(default)]
    pub at: u64,
    /// What came of it.
    pub finding: MoveFinding,
}

/// What came of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MoveFinding {
    /// Requests take no longer.
    NoWorse,
    /// They take longer, with no more being done: how long on the datastores together, in
    /// nanoseconds.
    Worse {
        /// Before.
        before: u64,
        /// After.
        after: u64,
        /// What keeps it, and the moves made with it, from being taken back; absent if nothing
        /// does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        barred: Option<String>,
    },
    /// They take longer, but more or less is asked for than before.
    Changed,
    /// Fewer than four whole hours were seen on both days.
    TooSoon,
}

impl MoveReview {
    /// What came of `made`, at that instant; `barred` keeps it from being taken back.
    pub fn new(made: &Made, at: Nanos, finding: Finding, barred: Option<&Barred>) -> MoveReview {
        MoveReview {
            disk: made.disk.to_string(),
            from: made.from.to_string(),
            to: made.to.to_string(),
            at: at.0 / 1_000_000_000,
            finding: match finding {
                Finding::NoWorse => MoveFinding::NoWorse,
                Finding::Worse { before, after } => MoveFinding::Worse {
                    before: before.0,
                    after: after.0,
                    barred: barred.map(Barred::to_string),
                },
                Finding::Changed => MoveFinding::Changed,
                Finding::TooSoon => MoveFinding::TooSoon,
            },
        }
    }
}

/// `db0: b -> a, to take its move back: requests there took 5.00 ms a day before and take 8.00 ms
/// since, with no more done`.
impl fmt::Display for MoveReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MoveReview { disk, from, to, at: _, finding } = self;
        match finding {
            MoveFinding::Worse { before, after, barred } => {
                let (before, after) = (Nanos(*before), Nanos(*after));
                match barred {
                    None => write!(f, "{disk}: {to} -> {from}, to take its move back")?,
                    Some(barred) => {
                        write!(f, "{disk}: stays on {to}, as {barred}; but its move did harm")?
                    }
                }
                write!(
                    f,
                    ": requests there took {before} a day before and take {after} since, with no more done"
                )
            }
            MoveFinding::NoWorse => {
                write!(f, "{disk}: stays on {to}, requests take no longer than a day before")
            }
            MoveFinding::Changed => {
                write!(
                    f,
                    "{disk}: stays on {to}, requests take longer, but what is asked for has changed"
                )
            }
            MoveFinding::TooSoon => {
                write!(f, "{disk}: stays on {to}, too few hours were seen since it moved")
            }
        }
    }
}
