//! After any sequence of events all that a tree keeps is what a scan of it would find.

use super::node::{Kind, ROOT, Standing};
use super::*;
use crate::cost::{CostModel, Io};
use crate::mclock::claims::Claims;
use crate::mclock::share_order::Class;
use headgate_units::{Iops, Shares};
use proptest::prelude::*;
use std::collections::VecDeque;

impl<R> MClockTree<R> {
    fn inside(&self, group: usize) -> Vec<usize> {
        let is_member = |slot: &usize| {
            *slot != ROOT
                && self.nodes[*slot].standing != Standing::Free
                && self.nodes[*slot].parent as usize == group
        };
        (0..self.nodes.len()).filter(is_member).collect()
    }

    fn self_check(&self, now: u64) {
        for slot in 0..self.nodes.len() {
            let node = &self.nodes[slot];
            let Kind::Group(group) = &node.kind else { continue };
            if node.standing == Standing::Free {
                continue;
            }
            group.shares.self_check();
            group.reservations.self_check();
            let inside = self.inside(slot);
            assert_eq!(group.members as usize, inside.len());
            let waiting = inside.iter().filter(|member| self.nodes[**member].waits()).count();
            assert_eq!(group.waiting as usize, waiting, "waiting in {slot}");
            let promised: u64 = inside.iter().map(|member| self.nodes[*member].promised()).sum();
            assert_eq!(group.promised, promised, "promised in {slot}");
            let limit = node.policy.limit().map_or(u64::MAX, Iops::get);
            assert!(promised <= limit, "{slot} promises {promised} of {limit}");
            let in_flight: u32 = inside.iter().map(|member| self.nodes[*member].in_flight).sum();
            assert_eq!(node.in_flight, in_flight, "in flight in {slot}");
            let mut claims = Claims::default();
            for member in &inside {
                claims.add(self.nodes[*member].claims_now());
                self.check_member(slot, *member, now);
            }
            assert_eq!(group.claims, claims, "claims in {slot}");
        }
        let blocked = self.nodes.iter().filter(|node| node.standing == Standing::Blocked).count();
        let seats = self.waiting_seats.end as usize - self.waiting_seats.vacated.len();
        assert_eq!(blocked, seats, "nodes that wait for limits");
    }

    fn check_member(&self, group: usize, slot: usize, now: u64) {
        let (node, group) = (&self.nodes[slot], self.group(group));
        match node.standing {
            Standing::Free => unreachable!(),
            Standing::Out => assert!(!node.is_ready(), "{slot} may be served"),
            Standing::Blocked => {
                let until = u128::from(node.blocked_until());
                assert!(node.is_ready());
                assert_eq!(self.blocked.at(node.waiting_seat), Some((until, slot as u32)));
            }
            Standing::In => {
                assert!(node.is_ready());
                assert!(node.blocked_until() <= now, "{slot} is not held back");
                let v = group.virtual_time;
                let class = node.class_now();
                let at = (v.full(node.share.at), slot as u32);
                assert_eq!(group.shares.at(node.seat), Some((class, at)), "{slot} by shares");
                let earliest = self.scan(slot).map(|tag| (u128::from(tag), slot as u32));
                assert_eq!(group.reservations.at(node.seat), earliest, "{slot} by reservation");
            }
        }
    }

    /// The earliest reservation in a node.
    fn scan(&self, slot: usize) -> Option<u64> {
        let node = &self.nodes[slot];
        let own = node.reservation.as_ref().map(|tag| tag.at);
        let Kind::Group(group) = &node.kind else { return own };
        let inside = self.inside(slot).into_iter();
        let inside = inside.filter(|member| self.nodes[*member].standing == Standing::In);
        let least = own.into_iter().chain(inside.filter_map(|member| self.scan(member))).min();
        least.map(|tag| tag.max(group.held))
    }
}

fn policy(shares: u64, reservation: u64, limit: u64) -> Policy {
    Policy::shared(Shares::new(shares).unwrap())
        .with_limit(Iops::new(limit).ok())
        .unwrap()
        .with_reservation(Iops::new(reservation).ok())
        .unwrap()
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (1u64..5, prop_oneof![Just(0u64), 1u64..300], prop_oneof![Just(0u64), 1u64..400]).prop_map(
        |(shares, reservation, limit)| {
            let limit = if limit == 0 { 0 } else { limit.max(reservation) };
            policy(shares, reservation, limit)
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    AddGroup(usize, Policy),
    AddLeaf(usize, Policy),
    Remove(usize),
    SetPolicy(usize, Policy),
    SetPolicies(Box<[(usize, Policy); 3]>),
    Enqueue(usize, u64),
    Extract(usize),
    Dispatch(u8),
    Complete(u8),
    Wait(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0usize..40, any_policy()).prop_map(|(at, policy)| Step::AddGroup(at, policy)),
        1 => (0usize..40, any_policy()).prop_map(|(at, policy)| Step::AddLeaf(at, policy)),
        1 => (0usize..40).prop_map(Step::Remove),
        2 => (0usize..40, any_policy()).prop_map(|(at, policy)| Step::SetPolicy(at, policy)),
        1 => prop::array::uniform3((0usize..40, any_policy())).prop_map(|all| Step::SetPolicies(Box::new(all))),
        8 => (0usize..40, 0u64..2_000_000).prop_map(|(at, bytes)| Step::Enqueue(at, bytes)),
        1 => (0usize..40).prop_map(Step::Extract),
        8 => (1u8..4).prop_map(Step::Dispatch),
        6 => (1u8..4).prop_map(Step::Complete),
        6 => prop_oneof![0u64..1_000_000, 0u64..50_000_000, 0u64..3_000_000_000]
            .prop_map(Step::Wait),
    ]
}

/// A tree beside the lists of what is queued and in flight.
struct Model {
    tree: MClockTree<u64>,
    now: Nanos,
    groups: Vec<NodeId>,
    leaves: Vec<(NodeId, VecDeque<u64>)>,
    flying: VecDeque<NodeId>,
    next: u64,
}

impl Model {
    fn new() -> Model {
        let config = Config { cost_model: CostModel::default(), ..Config::default() };
        let mut tree = MClockTree::new(config).unwrap();
        let now = Nanos::from_secs(1);
        let mut groups = vec![NodeId::ROOT];
        let mut leaves = Vec::new();
        for (parent, reservation, limit) in [(0, 100, 0), (0, 0, 200), (1, 50, 0)] {
            groups
                .push(tree.add_group(now, groups[parent], policy(1, reservation, limit)).unwrap());
        }
        for (parent, reservation, limit) in [(1, 0, 0), (2, 40, 100), (3, 0, 0), (3, 80, 0)] {
            let leaf = tree.add_leaf(now, groups[parent], policy(1, reservation, limit)).unwrap();
            leaves.push((leaf, VecDeque::new()));
        }
        Model { tree, now, groups, leaves, flying: VecDeque::new(), next: 0 }
    }

    fn step(&mut self, step: &Step) {
        let (now, groups, leaves) = (self.now, self.groups.len(), self.leaves.len());
        match step {
            Step::AddGroup(at, policy) => {
                let added = self.tree.add_group(now, self.groups[at % groups], *policy);
                self.groups.extend(added.ok());
            }
            Step::AddLeaf(at, policy) => {
                let added = self.tree.add_leaf(now, self.groups[at % groups], *policy);
                self.leaves.extend(added.ok().map(|leaf| (leaf, VecDeque::new())));
            }
            Step::Remove(at) if at % 2 == 0 && leaves > 0 => {
                let (leaf, queued) = self.leaves.swap_remove(at % leaves);
                assert_eq!(self.tree.remove(now, leaf), Ok(queued.into()));
                assert_eq!(self.tree.policy(leaf), Err(TreeError::UnknownNode(leaf)));
            }
            Step::Remove(at) => {
                let group = self.groups[at % groups];
                if self.tree.remove(now, group).is_ok() {
                    self.groups.swap_remove(at % groups);
                }
            }
            Step::SetPolicy(at, policy) => {
                let all = self.groups.iter().chain(self.leaves.iter().map(|(leaf, _)| leaf));
                let node = *all.into_iter().nth(at % (groups + leaves)).unwrap();
                let before = self.tree.policy(node);
                match self.tree.set_policy(now, node, *policy) {
                    Ok(()) => assert_eq!(self.tree.policy(node), Ok(*policy)),
                    Err(_) => assert_eq!(self.tree.policy(node), before),
                }
            }
            Step::SetPolicies(changes) => {
                let all: Vec<NodeId> = self
                    .groups
                    .iter()
                    .chain(self.leaves.iter().map(|leaf| &leaf.0))
                    .copied()
                    .collect();
                let changes = changes.as_ref().map(|(at, policy)| (all[at % all.len()], policy));
                let before = changes.map(|(node, _)| self.tree.policy(node));
                let done = self.tree.set_policies(now, &changes);
                for (n, (node, _)) in changes.iter().enumerate() {
                    let last = changes.iter().rfind(|other| other.0 == *node).unwrap().1;
                    let expected = done.as_ref().map_or(before[n].clone(), |()| Ok(last));
                    assert_eq!(self.tree.policy(*node), expected);
                }
            }
            Step::Enqueue(at, bytes) if leaves > 0 => {
                let (leaf, queue) = &mut self.leaves[at % leaves];
                let io = Io { bytes: headgate_units::Bytes(*bytes), ..Io::default() };
                self.tree.enqueue(now, *leaf, io, self.next).unwrap();
                queue.push_back(self.next);
                self.next += 1;
            }
            Step::Extract(at) if leaves > 0 => {
                let (leaf, queue) = &mut self.leaves[at % leaves];
                let taken = self.tree.extract(now, *leaf, &mut |n| n % 3 > 0).unwrap();
                let (out, kept) = queue.drain(..).partition::<Vec<u64>, _>(|n| n % 3 > 0);
                assert_eq!(taken, out);
                queue.extend(kept);
            }
            Step::Enqueue(..) | Step::Extract(_) => {}
            Step::Dispatch(most) => (0..*most).for_each(|_| self.dispatch()),
            Step::Complete(most) => {
                for leaf in self.flying.drain(..self.flying.len().min(*most as usize)) {
                    self.tree.complete(now, leaf);
                }
            }
            Step::Wait(time) => self.now += Nanos(*time),
        }
    }

    fn dispatch(&mut self) {
        match self.tree.dispatch(self.now) {
            TreeDecision::Dispatch(next) => {
                let (leaf, queue) =
                    self.leaves.iter_mut().find(|(leaf, _)| *leaf == next.leaf).unwrap();
                assert_eq!(queue.pop_front(), Some(next.request), "in order");
                assert_eq!(next.due.is_some(), next.phase == Phase::Reservation);
                self.flying.push_back(*leaf);
            }
            TreeDecision::WaitUntil(at) => {
                assert!(at > self.now);
                assert!(self.tree.queued() > 0);
            }
            TreeDecision::Idle => assert_eq!(self.tree.queued(), 0),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn what_is_kept_is_what_a_scan_finds(steps in prop::collection::vec(any_step(), 1..120)) {
        let mut model = Model::new();
        for step in steps {
            model.step(&step);
            let queued: usize = model.leaves.iter().map(|(_, queue)| queue.len()).sum();
            prop_assert_eq!(model.tree.queued(), queued);
            let now = model.tree.time.now();
            model.tree.self_check(now);
        }
    }
}

/// All short sequences of few events, on a tree with a limit and reservations at two levels.
#[test]
fn all_short_sequences() {
    let alphabet = [
        Step::Enqueue(1, 4_096),
        Step::Enqueue(3, 1_000_000),
        Step::Dispatch(1),
        Step::Complete(1),
        Step::Wait(30_000_000),
        Step::SetPolicy(2, policy(3, 0, 150)),
        Step::Extract(3),
    ];
    let length = 6;
    for number in 0..alphabet.len().pow(length) {
        let mut model = Model::new();
        let mut rest = number;
        for _ in 0..length {
            model.step(&alphabet[rest % alphabet.len()]);
            rest /= alphabet.len();
        }
        let now = model.tree.time.now();
        model.tree.self_check(now);
    }
}

fn unit() -> MClockTree<u64> {
    MClockTree::new(Config { cost_model: CostModel::Unit, ..Config::default() }).unwrap()
}

#[test]
fn promises_above_a_limit_are_refused_and_change_nothing() {
    let (mut tree, now) = (unit(), Nanos::ZERO);
    let tenant = tree.add_group(now, NodeId::ROOT, policy(1, 100, 300)).unwrap();
    let machine = tree.add_group(now, tenant, policy(1, 0, 0)).unwrap();
    let disk = tree.add_leaf(now, machine, policy(1, 200, 0)).unwrap();
    assert_eq!(tree.promised(tenant), Ok(200), "the reservation of the disk counts towards it");
    assert_eq!(tree.promised(NodeId::ROOT), Ok(200));
    let refused = tree.add_leaf(now, machine, policy(1, 101, 0)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "group 1.0 would promise 301 IOPS to its members, above its limit of 300 IOPS: lower \
         reservations in it or raise its limit"
    );
    assert!(tree.set_policy(now, disk, policy(1, 301, 0)).is_err());
    assert!(tree.set_policy(now, tenant, policy(1, 0, 199)).is_err());
    assert_eq!(tree.promised(NodeId::ROOT), Ok(200), "nothing has changed");
    assert_eq!(tree.set_policy(now, tenant, policy(1, 250, 250)), Ok(()));
    assert_eq!(tree.promised(NodeId::ROOT), Ok(250));
    assert_eq!(tree.remove(now, disk), Ok(Vec::new()));
    assert_eq!(tree.promised(machine), Ok(0));
    assert_eq!(tree.set_policy(now, tenant, policy(1, 0, 10)), Ok(()));
}

#[test]
fn policies_of_many_nodes_change_all_or_none() {
    let (mut tree, now) = (unit(), Nanos::ZERO);
    let tenant = tree.add_group(now, NodeId::ROOT, policy(1, 0, 300)).unwrap();
    let machine = tree.add_group(now, tenant, policy(1, 100, 200)).unwrap();
    let disks = [0, 1].map(|_| tree.add_leaf(now, machine, policy(1, 100, 0)).unwrap());
    let larger =
        [(disks[0], policy(1, 250, 0)), (machine, policy(1, 0, 400)), (tenant, policy(1, 0, 350))];
    assert!(tree.set_policy(now, disks[0], policy(1, 250, 0)).is_err());
    assert_eq!(tree.set_policies(now, &larger), Ok(()));
    assert_eq!(tree.promised(NodeId::ROOT), Ok(350));
    let too_much = [(disks[1], policy(1, 101, 0)), (disks[0], policy(1, 250, 0))];
    let limit = Iops::new(350).unwrap();
    let refused = TreeError::PromisedAboveLimit { group: tenant, promised: 351, limit };
    assert_eq!(tree.set_policies(now, &too_much), Err(refused));
    assert_eq!(tree.policy(disks[1]), Ok(policy(1, 100, 0)));
    // What one disk gives up the other may have.
    let exchanged = [(disks[1], policy(1, 200, 0)), (disks[0], policy(1, 150, 0))];
    assert_eq!(tree.set_policies(now, &exchanged), Ok(()));
    assert_eq!(tree.promised(tenant), Ok(350));
}

#[test]
fn wrong_nodes_are_named() {
    let (mut tree, now) = (unit(), Nanos::ZERO);
    let mut group = NodeId::ROOT;
    for _ in 1..DEPTH {
        group = tree.add_group(now, group, policy(1, 0, 0)).unwrap();
    }
    let leaf = tree.add_leaf(now, group, policy(1, 0, 0)).unwrap();
    let deepest = tree.add_group(now, group, policy(1, 0, 0)).unwrap();
    assert_eq!(tree.add_leaf(now, deepest, policy(1, 0, 0)), Err(TreeError::TooDeep));
    assert_eq!(tree.add_leaf(now, leaf, policy(1, 0, 0)), Err(TreeError::NotAGroup(leaf)));
    let refused = tree.enqueue(now, group, Io::default(), 7).unwrap_err();
    assert_eq!((refused.reason, refused.request), (TreeError::NotALeaf(group), 7));
    let has_members = TreeError::HasMembers { group, members: 2 };
    assert_eq!(tree.remove(now, group), Err(has_members));
    assert_eq!(tree.remove(now, NodeId::ROOT), Err(TreeError::Root));
    assert_eq!(tree.set_policy(now, NodeId::ROOT, policy(1, 0, 0)), Err(TreeError::Root));
    tree.enqueue(now, leaf, Io::default(), 8).unwrap();
    assert!(matches!(tree.dispatch(now), TreeDecision::Dispatch(_)));
    tree.enqueue(now, leaf, Io::default(), 9).unwrap();
    assert_eq!(tree.remove(now, leaf), Ok(vec![9]));
    tree.complete(now, leaf);
    assert_eq!(tree.counters(leaf), Err(TreeError::UnknownNode(leaf)));
    let again = tree.add_leaf(now, group, policy(1, 0, 0)).unwrap();
    assert_ne!(again, leaf, "an id never comes to mean another node");
    let soft = policy(1, 0, 9).with_limit_mode(crate::policy::LimitMode::Soft);
    assert_eq!(tree.add_leaf(now, group, soft), Err(TreeError::Unsupported("soft limits")));
    let plug = Config { plug: Nanos(1), ..Config::default() };
    assert_eq!(MClockTree::<u64>::new(plug).err(), Some(TreeConfigError::Unsupported("plug")));
}

/// The floor is for leaves that no reservation covers, its own or one that a group has to divide.
#[test]
fn whom_the_floor_is_for() {
    let (mut tree, now) = (unit(), Nanos::ZERO);
    let covered = tree.add_group(now, NodeId::ROOT, policy(1, 100, 0)).unwrap();
    let free = tree.add_group(now, NodeId::ROOT, policy(1, 0, 0)).unwrap();
    let leaves = [(covered, 0), (free, 0), (free, 50)]
        .map(|(group, reservation)| tree.add_leaf(now, group, policy(1, reservation, 0)).unwrap());
    for leaf in leaves {
        tree.enqueue(now, leaf, Io::default(), 0).unwrap();
    }
    let class = |tree: &MClockTree<u64>, node: NodeId| tree.nodes[tree.slot(node).unwrap()].class;
    assert_eq!(class(&tree, covered), Class::Reserved);
    assert_eq!(class(&tree, free), Class::Unreserved);
    assert_eq!(leaves.map(|leaf| class(&tree, leaf)), {
        [Class::Unreserved, Class::Unreserved, Class::Reserved]
    });
    // Where its members use up all that a group has reserved, the floor is for the others in it.
    let other = tree.add_leaf(now, covered, policy(1, 100, 0)).unwrap();
    assert_eq!(class(&tree, covered), Class::Unreserved);
    tree.remove(now, other).unwrap();
    assert_eq!(class(&tree, covered), Class::Reserved);
    assert_eq!(tree.extract(now, leaves[1], &mut |_| true), Ok(vec![0]));
    assert_eq!(class(&tree, free), Class::Reserved);
}
