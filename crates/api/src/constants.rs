//! Wire types of constants that are fitted to a pool.

use crate::placement::Outside;
use headgate_model::Name;
use headgate_placement::{Constants, PredictionError, Trait};
use serde::{Deserialize, Serialize};

/// Constants of the load formula (BASIL, FAST 2010, equation 1) beside those that fit what was
/// measured best.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConstantsFit {
    /// How far back measurements were looked at, such as `7d`.
    pub since: String,
    /// The constants of the rules: `outstanding` in thousandths of a request, `size` in bytes,
    /// `read` and `random` in thousandths.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub now: Constants,
    /// Those that were fitted; a constant that could not be told is that of the rules.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub fitted: Constants,
    /// K1 to K4.
    pub factors: Vec<FactorFit>,
    /// The datastores that were measured, and those that were not.
    pub datastores: Vec<DeviceFit>,
    /// Datastores that take no part.
    pub outside: Vec<Outside>,
    /// How far predictions of latency are off with the constants of the rules: medians, in
    /// thousandths of what was measured, of intervals that were fitted to and of others.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub error_now: PredictionError,
    /// The same with the fitted constants.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub error_fitted: PredictionError,
    /// Why the constants of the rules should stay; absent where the fitted ones are better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_gain: Option<String>,
}

/// A factor of equation 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FactorFit {
    /// Its trait: `outstanding`, `size`, `read`, `random`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub factor: Trait,
    /// How many intervals tell of it; absent where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intervals: Option<usize>,
    /// Why its constant stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// A datastore's part of a fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceFit {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub datastore: Name,
    /// Intervals in which one disk alone was busy on it.
    pub intervals: usize,
    /// K5 with the fitted constants: the load, in thousandths of IO·KiB, whose requests take a
    /// millisecond. Absent where nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_millisecond: Option<u64>,
}
