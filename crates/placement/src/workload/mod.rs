//! What a workload asks of whatever device it is on.

mod fit;
mod meter;
mod pooled;
mod profile;
mod spread;

pub use fit::{Fit, FitError, Measurement, fit_by_least_squares, fit_by_pairs};
pub use meter::WorkloadMeter;
pub use pooled::{NoGain, PoolFit, PredictionError, fit_pool};
pub use profile::{Constants, Load, Outstanding, WorkloadProfile};
pub use spread::{Trait, Untold};
