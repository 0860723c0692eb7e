//! What a datastore can do, from what it did.

mod learn;
mod line;
mod model;
mod point;

pub use learn::Coarse;
pub use model::{DeviceModel, Doubts, Evidence, LEAST_POINTS, Refusal, Slope};
pub use point::{DeviceInterval, DevicePoint, Filters, LeftOut, Tally};
