//! Wire types of events: who changed what, what was refused, and what the daemon did and noticed.

pub use headgate_events::{Entry, Event, Outcome, Subject, Who};
use serde::{Deserialize, Serialize};

/// Some events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventPage {
    /// In the order of their numbers.
    pub events: Vec<Event>,
    /// Whether there are no more of them now; if there are, ask for those after the last one.
    pub is_last: bool,
    /// The number of the newest event, also of those that were not asked for.
    pub newest: u64,
    /// Lines among those read that a crash had torn, or that were changed in their file: events
    /// may be missing.
    pub damaged: u64,
}
