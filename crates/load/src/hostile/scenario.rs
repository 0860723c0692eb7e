//! Common parts of the attacks on both protocols.

use crate::reaction::Reaction;
use crate::target::{NbdTarget, Reach};
use std::time::Duration;

/// The longest wait for a reaction.
pub(crate) const ATTENTION: Duration = Duration::from_secs(1);

/// An attack on protocol `V`. An error of `attack` says why it could not begin.
pub(crate) struct Scenario<V: ?Sized> {
    pub name: &'static str,
    pub about: &'static str,
    pub attack: fn(&V) -> Result<Vec<Reaction>, String>,
}

/// An NBD export under attack.
pub(crate) struct NbdVictim {
    pub target: NbdTarget,
    pub reach: Reach,
}
