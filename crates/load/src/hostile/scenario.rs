//! Common parts of the attacks on both protocols.

use crate::reaction::Reaction;
use crate::target::{NbdTarget, Reach};
use std::fs::File;
use std::time::Duration;

/// The longest wait for a reaction.
pub(crate) const ATTENTION: Duration = Duration::from_secs(1);

/// Connections that break the protocol, one after the other.
pub(crate) const BROKEN: usize = 2000;

/// What an attack on protocol `V` does. An error says why it could not begin.
pub(crate) enum Attack<V: ?Sized> {
    /// Something that must not be done, once.
    Once(fn(&V) -> Result<Vec<Reaction>, String>),
    /// The same with a file that the attacker brings.
    Bringing(fn(&V, &File) -> Result<Vec<Reaction>, String>),
    /// Something that may be done, as often as it goes for this long.
    Flood(fn(&V, Duration) -> Result<Vec<Reaction>, String>),
}

/// An attack on protocol `V`.
pub(crate) struct Scenario<V: ?Sized> {
    pub name: &'static str,
    pub about: &'static str,
    pub attack: Attack<V>,
}

/// An NBD export under attack.
pub(crate) struct NbdVictim {
    pub target: NbdTarget,
    pub reach: Reach,
}
