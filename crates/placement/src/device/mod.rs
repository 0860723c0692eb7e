//! What a datastore can do, from what it did.

mod judge;
mod learn;
mod line;
mod model;
mod point;

pub use judge::DatastoreJudge;
pub use learn::Coarse;
pub use model::{DeviceModel, Doubts, Evidence, LEAST_POINTS, Refusal, Slope};
pub use point::{DeviceInterval, DevicePoint, Filters, LeftOut, Totals};
