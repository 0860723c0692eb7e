//! Which groups there are, and which disks are in them.

use crate::policy::{LimitMode, Policy};
use crate::scheduler::DiskId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use thiserror::Error;

/// How many groups may be inside each other: two levels of a [tree](crate::MClockTree) are a disk
/// and its streams.
pub const GROUP_DEPTH: usize = crate::mclock::tree::DEPTH - 2;

/// A group of disks, by a number that its owner chose. One that goes on under the same number, in
/// the same group, keeps what its limit and its reservation are owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// A group, and what it is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub id: GroupId,
    /// The group that it is in; `None`: in none.
    pub parent: Option<GroupId>,
    /// A minimum, a maximum and shares of all that is in it.
    pub policy: Policy,
}

/// All groups of a datastore's disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Each after the one that it is in.
    pub groups: Vec<Group>,
    /// Which disk is in which. Others are in none.
    pub members: Vec<(DiskId, GroupId)>,
}

/// Why there are no such groups. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GroupsError {
    /// Only mClock has groups.
    #[error("only the scheduler mclock keeps what groups of disks are promised")]
    NotMClock,
    /// The configuration asks for what a tree has no rule for.
    #[error("disks in groups have no {0}: turn it off at the datastore")]
    Configured(&'static str),
    /// A group's policy has what a tree has no rule for.
    #[error("group {} has {what}, which groups have not: leave it out", .group.0)]
    Group {
        /// The group.
        group: GroupId,
        /// What it has.
        what: &'static str,
    },
    /// A disk's policy has what a tree has no rule for.
    #[error(
        "disk {}.{} has {what}, which disks have not beside groups: leave it out",
        .disk.slot, .disk.generation
    )]
    Disk {
        /// The disk.
        disk: DiskId,
        /// What it has.
        what: &'static str,
    },
    /// A group is in one that is not listed before it.
    #[error("group {} is in a group that is not listed before it", .0.0)]
    UnknownParent(GroupId),
    /// A disk is in a group that is not listed.
    #[error("a disk is in group {}, which is not listed", .0.0)]
    UnknownGroup(GroupId),
    /// Two groups of one number.
    #[error("group {} is listed twice", .0.0)]
    Twice(GroupId),
    /// Groups are inside each other too deep.
    #[error("groups are inside each other at most {GROUP_DEPTH} deep")]
    TooDeep,
}

impl Groups {
    /// Whether they can be: each is listed once, after the one that it is in. O(n log n).
    pub(crate) fn check(&self) -> Result<(), GroupsError> {
        let mut depths: BTreeMap<GroupId, usize> = BTreeMap::new();
        for Group { id, parent, policy } in &self.groups {
            let above = match parent {
                None => 0,
                Some(parent) => *depths.get(parent).ok_or(GroupsError::UnknownParent(*id))?,
            };
            if above >= GROUP_DEPTH {
                return Err(GroupsError::TooDeep);
            }
            if depths.insert(*id, above + 1).is_some() {
                return Err(GroupsError::Twice(*id));
            }
            if let Some(what) = without_rule(*policy) {
                return Err(GroupsError::Group { group: *id, what });
            }
        }
        match self.members.iter().find(|(_, group)| !depths.contains_key(group)) {
            Some((_, group)) => Err(GroupsError::UnknownGroup(*group)),
            None => Ok(()),
        }
    }
}

/// What a policy says that a tree has no rule for.
pub(crate) fn without_rule(policy: Policy) -> Option<&'static str> {
    if policy.limits_directions() {
        return Some("limits of reads or of writes alone");
    }
    (policy.limit_mode() == LimitMode::Soft).then_some("soft limits")
}
