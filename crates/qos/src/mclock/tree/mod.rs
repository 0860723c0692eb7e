//! mClock in a tree: a minimum, a maximum and a share for each tenant, machine, disk and
//! application, in one decision.
//!
//! `docs/tree.md` defines what a tree divides and what it guarantees. Here are the rules. They are
//! the flat scheduler's ([`mclock`](super)) at every level, with its clocks, and with its tags R, L
//! and P at every node but the root.
//!
//! ```
//! use headgate_qos::{Config, CostModel, Io, MClockTree, NodeId, Policy, TreeDecision};
//! use headgate_units::{Iops, Nanos, Shares};
//!
//! let iops = |n| Some(Iops::new(n).unwrap());
//! let config = Config { cost_model: CostModel::Unit, ..Config::default() };
//! let mut tree = MClockTree::new(config).unwrap();
//! let now = Nanos::ZERO;
//! let shared = |shares| Policy::shared(Shares::new(shares).unwrap());
//! let tenant = shared(1).with_reservation(iops(600)).unwrap();
//! let tenant = tree.add_group(now, NodeId::ROOT, tenant).unwrap();
//! let other = tree.add_leaf(now, NodeId::ROOT, shared(9)).unwrap();
//! let disks = [1, 2].map(|shares| tree.add_leaf(now, tenant, shared(shares)).unwrap());
//! let leaves = [other, disks[0], disks[1]];
//! for leaf in leaves {
//!     (0..2).for_each(|_| tree.enqueue(now, leaf, Io::default(), ()).unwrap());
//! }
//! let mut done = [0; 3];
//! for n in 0..100_000u64 {
//!     let now = Nanos(n * 1_000_000);
//!     let TreeDecision::Dispatch(next) = tree.dispatch(now) else { unreachable!() };
//!     tree.complete(now, next.leaf);
//!     tree.enqueue(now, next.leaf, Io::default(), ()).unwrap();
//!     done[leaves.iter().position(|leaf| *leaf == next.leaf).unwrap()] += 1;
//! }
//! // Of 1,000 per second the tenant has its 600, which its disks divide by 1:2.
//! assert_eq!(done.map(|count: u64| (count + 50) / 100), [400, 200, 400]);
//! ```
//!
//! # Rules
//! A node *may be served* if it is a leaf with requests queued, or a group with a member that may
//! be served, and `L <= t` for its own limit. A decision at t is one way from the root to a leaf,
//! through nodes that may be served:
//!
//! - **reservation phase**: the smallest R of all nodes, if that is `<= t`. The way leads to its
//!   node, goes on to the smallest R inside as long as that is `<= t` too, and ends by the smallest
//!   P of each group;
//! - **weight phase**: else the smallest P of each group.
//!
//! | tag | of a node on the way advances by | at |
//! |---|---|---|
//! | R | c/r | decisions of the reservation phase, from the root down to the node whose R was last followed |
//! | L | c/l | every decision |
//! | P | c/w, in the virtual time of its group | every decision |
//!
//! So what leaves get by reservations of their own counts towards those of the groups that they are
//! in, and what a group's members divide by shares counts towards none of theirs.
//!
//! # Reservations of groups
//! R of a group may run ahead of the clock where its members have more by their own reservations
//! than the group's. It is held, after it advances, to
//!
//! ```text
//! R  <=  t + (peak + Σ peaks of nodes in it with a reservation that wait or have requests in flight)/r
//! ```
//!
//! So what members get beyond the group's reservation is forgotten, but for one request of each.
//! That much must be remembered: reservations that fall due together are served together. If they
//! sum up to no more than r, they are never further ahead than that.
//!
//! # The share clock of each group
//! Each group has a V of its own, and P of its members is bounded by it as by the one V of the flat
//! scheduler. Whether a member was chosen by P or by R is asked at each level: in one decision it
//! may be by R above and by P below. The lead counts in what is promised inside: r is the larger of
//! the node's own reservation and those in it, and one request of each node in it that has a
//! reservation may be served at once. In a group with a limit it counts in as long a pause as the
//! limit makes good for (250 ms). Idle leaves earn nothing beyond their burst credit, nor do idle
//! groups.
//!
//! After a decision of the reservation phase V is no less than the smallest P of the members that
//! may be served. Else all members of a group that has little beside reservations would be held to
//! the same lead, and what tells them apart be forgotten: 43 and 33 in the place of 40 and 37.
//!
//! # Lateness
//! One number of forgiven time is for all R of the tree, as they compete with each other. Σr is
//! what the root promises to who waits: of each group the larger of its own reservation and its
//! members'. A group that its limit held back may be late by the bound B, and so may all in it: it
//! has one number, *held*, before which nothing in it counts as due. So a group of any number of
//! nodes comes back in O(1).
//!
//! # The floor
//! The floor is for leaves without a reservation and outside of groups that have one to divide: a
//! group whose own reservation is larger than the sum of its members' has something left for those
//! without. The others are reached by P of each group through members in which there is one.
//!
//! # Cost
//! A group keeps two tournaments of its members by P and one by the smallest R in each. A decision
//! replays at each level of the way one or two paths of them, and one in the tournament of nodes
//! that wait for limits where one begins or ends to do so: O(Σ log n) in the members n that may be
//! served of each group on the way. An idle node is in none. Nothing is allocated once the most
//! that waits at once has been seen.

mod carry;
mod change;
mod decide;
mod error;
mod events;
mod node;
mod place;
#[cfg(test)]
mod tests;

pub(in crate::mclock) use change::Part;
pub use error::{NotQueued, TreeConfigError, TreeError};
pub use node::NodeId;

use crate::config::Config;
use crate::cost::Cost;
use crate::learned_cost::{Charging, QueuedSize};
use crate::mclock::delivered::Delivered;
use crate::mclock::seats::Seats;
use crate::policy::Policy;
use crate::queue::Requests;
use crate::scheduler::{Phase, ReservationDebt};
use crate::steady::Steady;
use crate::tournament::Tournament;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use headgate_units::Nanos;
use node::{Group, Kind, Node, ROOT, Standing};

/// How many levels a tree has below its root at most.
pub const DEPTH: usize = 8;

/// A request to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeDispatched<R> {
    /// The leaf that sent it.
    pub leaf: NodeId,
    /// The queued request.
    pub request: R,
    /// The tag that decided.
    pub phase: Phase,
    /// Whose reservation was due, in the reservation phase: the leaf, or a group that it is in.
    pub due: Option<NodeId>,
    /// What the leaf and all groups that it is in were charged.
    pub cost: Cost,
    /// As it was queued.
    pub(crate) size: QueuedSize,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeDecision<R> {
    /// Send this request, then ask again if the window has room.
    Dispatch(TreeDispatched<R>),
    /// All queued requests wait for limits. Ask again at this time, which is later than now, or
    /// earlier if anything changes.
    WaitUntil(Nanos),
    /// Nothing is queued. Ask again after the next event.
    Idle,
}

/// What a node has received since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Requests dispatched by its reservation, or by one in it.
    pub by_reservation: u64,
    /// Requests dispatched by its shares.
    pub by_weight: u64,
    /// Charges of all of them.
    pub cost: Cost,
    /// Requests dispatched and not completed.
    pub in_flight: usize,
}

/// The mClock scheduler of one datastore whose nodes form a tree. See the module documentation.
///
/// The caller owns the window, as with [`Scheduler`](crate::Scheduler).
#[derive(Clone)]
pub struct MClockTree<R> {
    config: Config,
    charging: Charging,
    time: Steady,
    nodes: Vec<Node>,
    free: Vec<u32>,
    requests: Requests<R>,
    /// Nodes that wait for their own limit, by the time it lets them go.
    blocked: Tournament,
    waiting_seats: Seats,
    /// By how much all reservation tags in orders have been shifted forward since the start.
    forgiven: u64,
    delivered: Delivered,
    /// How late the last dispatch by reservation was, and when that was.
    late: (u64, u64),
    /// The largest recent cost of all leaves: sinks by an eighth of what is served.
    largest: Cost,
    /// Millionths of IOs by reservation since a leaf was last served by shares while one that the
    /// floor is for waited.
    floor_debt: i64,
    in_flight: usize,
}

impl<R> MClockTree<R> {
    /// A tree of a root alone.
    ///
    /// # Errors
    /// A value of the configuration is out of range, or it asks for batches or a plug.
    pub fn new(config: Config) -> Result<MClockTree<R>, TreeConfigError> {
        config.validate()?;
        if config.batch.is_some() {
            return Err(TreeConfigError::Unsupported("batches"));
        }
        if config.plug > Nanos::ZERO {
            return Err(TreeConfigError::Unsupported("plug"));
        }
        let mut charging = Charging::new(config.cost_model)?;
        charging.register(ROOT);
        let root = Kind::Group(Box::new(Group::new()));
        let clock = crate::mclock::virtual_time::VirtualTime::new();
        let mut root = Node::new(root, ROOT, 0, Policy::default(), 0, 0, clock);
        root.standing = Standing::In;
        Ok(MClockTree {
            charging,
            config,
            time: Steady::new(),
            nodes: vec![root],
            free: Vec::new(),
            requests: Requests::new(),
            blocked: Tournament::new(),
            waiting_seats: Seats::new(),
            forgiven: 0,
            delivered: Delivered::new(config.debt_horizon.0, config.debt_bound.0),
            late: (0, 0),
            largest: Cost::ONE,
            floor_debt: 0,
            in_flight: 0,
        })
    }

    /// The next request to send, if any may go now.
    pub fn dispatch(&mut self, now: Nanos) -> TreeDecision<R> {
        let now = self.time.advance(now);
        self.decide(now)
    }

    /// Requests queued, of all leaves.
    pub fn queued(&self) -> usize {
        self.requests.len()
    }

    /// A node's policy.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`], [`TreeError::Root`].
    pub fn policy(&self, node: NodeId) -> Result<Policy, TreeError> {
        match self.slot(node)? {
            ROOT => Err(TreeError::Root),
            slot => Ok(self.nodes[slot].policy),
        }
    }

    /// What is promised to a node where all leaves in it ask, in normalised IOs per second: the
    /// larger of its own reservation and its members' together. Of the root, what the storage has
    /// to give for all.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`].
    pub fn promised(&self, node: NodeId) -> Result<u64, TreeError> {
        Ok(self.nodes[self.slot(node)?].promised())
    }

    /// What the node has received. The root has counted everything, and nothing by reservation.
    ///
    /// # Errors
    /// [`TreeError::UnknownNode`].
    pub fn counters(&self, node: NodeId) -> Result<NodeCounters, TreeError> {
        let node = &self.nodes[self.slot(node)?];
        Ok(NodeCounters {
            by_reservation: node.by_reservation,
            by_weight: node.by_weight,
            cost: node.cost,
            in_flight: node.in_flight as usize,
        })
    }

    /// How far reservations are behind, as of the last call with a time.
    pub fn reservation_debt(&self) -> ReservationDebt {
        let due = self.first_due().map_or(u64::MAX, |tag| tag + self.forgiven);
        let behind = Nanos(self.time.now().saturating_sub(due));
        ReservationDebt { behind, forgiven: Nanos(self.forgiven) }
    }

    pub(super) fn slot(&self, node: NodeId) -> Result<usize, TreeError> {
        match self.nodes.get(node.slot as usize) {
            Some(known)
                if known.generation == node.generation && known.standing != Standing::Free =>
            {
                Ok(node.slot as usize)
            }
            _ => Err(TreeError::UnknownNode(node)),
        }
    }

    fn id(&self, slot: usize) -> NodeId {
        NodeId { slot: slot as u32, generation: self.nodes[slot].generation }
    }

    /// What a group knows of its members. Parents are groups, and stay while they have members.
    #[inline]
    fn group(&self, slot: usize) -> &Group {
        match &self.nodes[slot].kind {
            Kind::Group(group) => group,
            Kind::Leaf(_) => unreachable!("a leaf has no members"),
        }
    }

    #[inline]
    fn group_mut(&mut self, slot: usize) -> &mut Group {
        match &mut self.nodes[slot].kind {
            Kind::Group(group) => group,
            Kind::Leaf(_) => unreachable!("a leaf has no members"),
        }
    }

    /// The smallest reservation tag of all nodes that may be served, less what was forgiven.
    #[inline]
    fn first_due(&self) -> Option<u64> {
        self.group(ROOT).reservations.first().map(|(tag, _)| tag as u64)
    }
}

/// The group that a node is in.
#[inline]
fn up(nodes: &[Node], slot: usize) -> Option<usize> {
    match slot {
        ROOT => None,
        slot => Some(nodes[slot].parent as usize),
    }
}
