//! What was found out of datastores that are emptied.

use headgate_api::balance::Staying;
use headgate_api::maintenance::Leaving;
use headgate_model::Name;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long one waits at least before disks are tried again that could not move.
#[cfg(not(test))]
const PAUSE: Duration = Duration::from_secs(2);
#[cfg(test)]
const PAUSE: Duration = Duration::ZERO;

/// And after what time they are, although nothing that is known here has changed.
const AGAIN: Duration = Duration::from_secs(60);

/// Whether a disk leaves now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    Begun,
    Nobody,
}

/// Datastores that are emptied.
#[derive(Debug, Default)]
pub(crate) struct Emptied(pub(crate) BTreeMap<Name, Emptying>);

/// What was found out of a datastore that is emptied.
#[derive(Debug, Default)]
pub(crate) struct Emptying {
    /// When its disks were looked at last, and the number of changes by then; `None`: they are to
    /// be looked at now.
    pub(crate) looked: Option<(Instant, u64)>,
    /// What came of that, and is true still while a disk leaves.
    pub(crate) found: Option<Found>,
    /// That it is empty was said.
    pub(crate) is_told: bool,
}

/// Where disks of a datastore can go, and which cannot go anywhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) waiting: Vec<Leaving>,
    pub(crate) stuck: BTreeMap<String, String>,
}

impl Found {
    pub(crate) fn stuck(&self) -> Vec<Staying> {
        let one = |(name, reason): (&String, &String)| Staying {
            name: name.clone(),
            reason: reason.clone(),
        };
        self.stuck.iter().map(one).collect()
    }
}

impl Emptying {
    pub(crate) fn is_due(&self, now: Instant, changes: u64) -> bool {
        self.looked.is_none_or(|(at, seen)| {
            let since = now.duration_since(at);
            since >= AGAIN || seen != changes && since >= PAUSE
        })
    }
}
