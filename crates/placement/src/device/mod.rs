//! What a datastore can do, from what it did.

mod line;
mod model;
mod point;

pub use model::{DeviceModel, Evidence, LEAST_POINTS, Refusal, Slope};
pub use point::{DevicePoint, Filters, LeftOut, Tally};
