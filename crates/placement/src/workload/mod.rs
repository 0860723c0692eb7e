//! What a workload asks of whatever device it is on.

mod fit;
mod meter;
mod traits;

pub use fit::{Fit, FitError, Measurement, fit_by_least_squares, fit_by_pairs};
pub use meter::WorkloadMeter;
pub use traits::{Constants, Held, Load, Outstanding, Traits};
