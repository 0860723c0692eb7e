//! The shares of groups that disks are in, for who compares what disks get.

use headgate_model::Name;
use headgate_units::Shares;
use std::collections::BTreeMap;

/// A group that disks are in, and its shares beside what it competes with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupShares {
    /// Its name, with its kind: unique.
    pub group: String,
    /// Its shares.
    pub shares: Shares,
}

/// The groups that the disks of machines are in, the innermost first.
pub type GroupsOfMachines = BTreeMap<Name, Vec<GroupShares>>;
