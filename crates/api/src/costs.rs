//! Wire types of costs that are learned from the device.

use headgate_model::DatastoreSample;
use headgate_qos::IoClass;
use serde::{Deserialize, Serialize};

/// What requests cost on a datastore that learns it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LearnedCosts {
    /// Seconds since learning began: since the datastore was opened.
    pub learning_secs: u64,
    /// Seconds of them in which the storage was busy, and was learned from.
    pub busy_secs: u64,
    /// Device time of a reference IO, a random read of 4 KiB, in nanoseconds; `null` while nothing
    /// is known.
    pub reference_ns: Option<u64>,
    /// What each class of requests costs.
    pub classes: Vec<ClassCost>,
}

/// What requests of one class cost, in reference IOs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClassCost {
    /// The class: `random read`, `sequential read`, `random write`, `sequential write`, or `no
    /// data` (flush, discard, write-zeroes).
    pub class: String,
    /// A request of 4 KiB.
    pub cost_4k: f64,
    /// A request of 64 KiB.
    pub cost_64k: f64,
    /// Requests that were learned from; 0 where the cost is the declared one.
    pub requests: u64,
    /// Seconds of the busy time that they had.
    pub busy_secs: u64,
}

impl LearnedCosts {
    /// Of a sample; `None` where costs are declared.
    pub fn of(sample: &DatastoreSample) -> Option<LearnedCosts> {
        let learned = sample.costs.as_ref()?;
        let seconds = |time: headgate_units::Nanos| time.0 / 1_000_000_000;
        let cost = |cost: headgate_qos::Cost| cost.as_millionths() as f64 / 1e6;
        let classes = IoClass::ALL.iter().zip(learned.classes).map(|(class, of)| ClassCost {
            class: class.name().to_owned(),
            cost_4k: cost(of.small),
            cost_64k: cost(of.large),
            requests: of.requests,
            busy_secs: seconds(of.busy),
        });
        Some(LearnedCosts {
            learning_secs: seconds(sample.stats.at.since(learned.since)),
            busy_secs: seconds(learned.busy),
            reference_ns: (learned.reference.0 > 0).then_some(learned.reference.0),
            classes: classes.collect(),
        })
    }
}
