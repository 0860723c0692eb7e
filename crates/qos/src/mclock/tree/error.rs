//! What a tree refuses.

use super::node::NodeId;
use crate::config::ConfigError;
use headgate_units::Iops;
use thiserror::Error;

/// Why a change of a tree was refused. Nothing was changed then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TreeError {
    /// The id names no node.
    #[error("the tree knows no node {}.{}: it was removed", .0.slot, .0.generation)]
    UnknownNode(NodeId),
    /// Only groups have members.
    #[error("node {}.{} is a leaf, which has no members: name a group", .0.slot, .0.generation)]
    NotAGroup(NodeId),
    /// Only leaves send requests.
    #[error("node {}.{} is a group, which sends no requests: name a leaf", .0.slot, .0.generation)]
    NotALeaf(NodeId),
    /// The root stays, and has no policy.
    #[error("the root is the datastore: it cannot be removed and has no policy")]
    Root,
    /// A group is removed after its members.
    #[error(
        "group {}.{} has {members} members: remove them first", .group.slot, .group.generation
    )]
    HasMembers {
        /// The group.
        group: NodeId,
        /// How many it has.
        members: u32,
    },
    /// The tree would be too deep.
    #[error("a tree has at most {} levels below its root", super::DEPTH)]
    TooDeep,
    /// A group would promise more than it may have.
    #[error(
        "group {}.{} would promise {promised} IOPS to its members, above its limit of {limit} IOPS: lower reservations in it or raise its limit",
        .group.slot, .group.generation
    )]
    PromisedAboveLimit {
        /// The group.
        group: NodeId,
        /// What its members would be promised together.
        promised: u64,
        /// Its limit.
        limit: Iops,
    },
    /// A policy says what the tree has no rule for.
    #[error("nodes of a tree have no {0}: leave it out")]
    Unsupported(&'static str),
}

/// Why there is no tree with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TreeConfigError {
    /// A value is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It asks for what the tree has no rule for.
    #[error("a tree has no {0}: leave it out of the configuration")]
    Unsupported(&'static str),
}

/// A request that was not queued, handed back.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the request was not queued: {reason}")]
pub struct NotQueued<R> {
    /// Why.
    pub reason: TreeError,
    /// The request.
    pub request: R,
}
