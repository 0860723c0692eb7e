//! The oracle against all allocations of tiny trees, and against the conditions that define one.
//!
//! The search knows no recursion and no level: an allocation gives whole units to leaves, keeps
//! each promise of each node as far as the node can take it, and no limit is passed. Of these the
//! best is the one that is most even per share from the root down.

use crate::oracle::{Spec, due, members};
use crate::world::Dice;

/// All that leaves get, and with it all groups.
fn totals(tree: &[Spec], leaves: &[(usize, u32)]) -> Vec<u32> {
    let mut given = vec![0; tree.len()];
    for (leaf, amount) in leaves {
        let mut node = Some(*leaf);
        while let Some(at) = node {
            given[at] += amount;
            node = tree[at].parent;
        }
    }
    given
}

/// Calls with each way to give whole units to leaves within the limits of all nodes.
fn each_allocation(tree: &[Spec], most: u32, visit: &mut dyn FnMut(&[u32])) {
    let leaves: Vec<usize> =
        (0..tree.len()).filter(|node| members(tree, Some(*node)).is_empty()).collect();
    let mut amounts = vec![0u32; leaves.len()];
    loop {
        let pairs: Vec<(usize, u32)> =
            leaves.iter().copied().zip(amounts.iter().copied()).collect();
        let given = totals(tree, &pairs);
        let allowed = |node: usize| {
            let wanted = if leaves.contains(&node) { tree[node].demand } else { f64::INFINITY };
            f64::from(given[node]) <= tree[node].limit.min(wanted)
        };
        if (0..tree.len()).all(allowed) {
            visit(&given);
        }
        let Some(next) = amounts.iter().position(|amount| *amount < most) else { return };
        amounts[next] += 1;
        amounts[..next].fill(0);
    }
}

fn total(tree: &[Spec], given: &[u32]) -> u32 {
    members(tree, None).iter().map(|node| given[*node]).sum()
}

/// How even an allocation is: of each group from the root down, what its members have per share,
/// the least first.
fn evenness(tree: &[Spec], given: &[u32]) -> Vec<Vec<f64>> {
    let mut groups = vec![None];
    let mut order = Vec::new();
    while !groups.is_empty() {
        let mut next = Vec::new();
        for group in groups {
            let inside = members(tree, group);
            let mut each: Vec<f64> =
                inside.iter().map(|node| f64::from(given[*node]) / tree[*node].shares).collect();
            each.sort_by(f64::total_cmp);
            order.push(each);
            next.extend(inside.into_iter().map(Some));
        }
        groups = next;
    }
    order
}

/// The best allocation of whole units, where all promises fit; `None` where they do not.
fn best(tree: &[Spec], capacity: u32) -> Option<Vec<u32>> {
    let mut most = vec![0u32; tree.len()];
    each_allocation(tree, capacity.max(12), &mut |given| {
        for (most, given) in most.iter_mut().zip(given) {
            *most = (*most).max(*given);
        }
    });
    let asked: u32 = members(tree, None).iter().map(|node| most[*node]).sum();
    let mut best: Option<(Vec<Vec<f64>>, Vec<u32>)> = None;
    each_allocation(tree, capacity, &mut |given| {
        let kept = |node: usize| {
            f64::from(given[node]) >= tree[node].reservation.min(f64::from(most[node]))
        };
        if total(tree, given) != capacity.min(asked) || !(0..tree.len()).all(kept) {
            return;
        }
        let even = evenness(tree, given);
        if best.as_ref().is_none_or(|(other, _)| even.partial_cmp(other) == Some(GREATER)) {
            best = Some((even, given.to_vec()));
        }
    });
    best.map(|(_, given)| given)
}

const GREATER: std::cmp::Ordering = std::cmp::Ordering::Greater;

fn spec(parent: Option<usize>, reservation: u64, limit: u64, shares: u64, demand: u64) -> Spec {
    let or_none = |n: u64| if n == 0 { f64::INFINITY } else { n as f64 };
    Spec {
        parent,
        reservation: reservation as f64,
        limit: or_none(limit),
        shares: shares as f64,
        demand: demand as f64,
    }
}

/// Two tenants; the first has two disks, the second one or two.
fn tiny(dice: &mut Dice) -> Vec<Spec> {
    loop {
        let mut node = |parent: Option<usize>| {
            let demand = [2, 5, 12, 12][dice.below(4) as usize];
            let limit = [0, 0, 4, 6][dice.below(4) as usize];
            spec(parent, [0, 0, 1, 3][dice.below(4) as usize], limit, 1 + dice.below(2), demand)
        };
        let mut tree = vec![node(None), node(None), node(Some(0)), node(Some(0)), node(Some(1))];
        tree[4].shares = 1.0;
        // A tree that promises more than it allows is refused.
        let promised = |tree: &[Spec], node: usize| {
            let inside: f64 = members(tree, Some(node)).iter().map(|m| tree[*m].reservation).sum();
            tree[node].reservation.max(inside)
        };
        if (0..tree.len()).all(|node| promised(&tree, node) <= tree[node].limit) {
            return tree;
        }
    }
}

/// Whole units are as near to what is due as their size allows: one for each level.
#[test]
fn the_oracle_finds_the_best_of_all_allocations() {
    let mut dice = Dice::new(1);
    let (mut fitted, mut short) = (0, 0);
    for case in 0..400 {
        let tree = tiny(&mut dice);
        let capacity = 1 + dice.below(12) as u32;
        let oracle = due(&tree, f64::from(capacity));
        match best(&tree, capacity) {
            Some(best) => {
                fitted += 1;
                assert_eq!(oracle.part, 1.0, "case {case}: {tree:?} at {capacity}");
                for (node, given) in best.iter().enumerate() {
                    let off = (oracle.due[node] - f64::from(*given)).abs();
                    let units = if tree[node].parent.is_none() { 1.0 } else { 2.0 };
                    assert!(
                        off < units + 1e-9,
                        "case {case}: node {node} of {tree:?} at {capacity}: {best:?}, {:?}",
                        oracle.due
                    );
                }
            }
            None => {
                short += 1;
                assert!(oracle.part < 1.0, "case {case}: {tree:?} at {capacity}");
            }
        }
    }
    assert!(fitted > 100 && short > 20, "{fitted} and {short}");
}

/// On trees of any size: bounds, conservation, and nobody who could have more has less per share
/// than somebody who could give.
#[test]
fn what_is_due_satisfies_the_definition() {
    for seed in 0..2_000 {
        let mut dice = Dice::new(seed);
        let tree = crate::random::tree(&mut dice).specs;
        let capacity = 1.0 + dice.below(20_000) as f64;
        let d = due(&tree, capacity);
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * (1.0 + a.abs() + b.abs());
        for group in (0..tree.len()).map(Some).chain([None]) {
            let inside = members(&tree, group);
            if inside.is_empty() {
                continue;
            }
            let sum: f64 = inside.iter().map(|node| d.due[*node]).sum();
            let cap: f64 = inside.iter().map(|node| d.cap[*node]).sum();
            let given = group.map_or(capacity.min(cap), |group| d.due[group]);
            assert!(near(sum, given), "seed {seed}: {sum} of {given}");
            for a in &inside {
                let low = d.part * d.promised[*a];
                assert!(d.due[*a] >= low - 1e-6 && d.due[*a] <= d.cap[*a] + 1e-6, "seed {seed}");
                for b in &inside {
                    let may_have = d.due[*a] < d.cap[*a] - 1e-3;
                    let may_give = d.due[*b] > d.part * d.promised[*b] + 1e-3;
                    let (a, b) = (d.due[*a] / tree[*a].shares, d.due[*b] / tree[*b].shares);
                    assert!(!(may_have && may_give && a < b - 1e-3), "seed {seed}: {a} and {b}");
                }
            }
        }
    }
}

/// By hand: a tenant's reservation, one of its disk's, a limit, and a member that asks for little.
#[test]
fn examples() {
    let tree = [
        spec(None, 600, 0, 1, 0),
        spec(None, 0, 300, 4, 0),
        spec(None, 0, 0, 1, 0),
        spec(Some(0), 100, 0, 1, 5_000),
        spec(Some(0), 0, 0, 3, 5_000),
        spec(Some(1), 0, 0, 1, 5_000),
        spec(Some(2), 0, 0, 1, 50),
        spec(Some(2), 0, 0, 1, 5_000),
    ];
    for (capacity, expected) in [
        (2_000.0, [850.0, 300.0, 850.0, 212.5, 637.5, 300.0, 50.0, 800.0]),
        (1_000.0, [600.0, 300.0, 100.0, 150.0, 450.0, 300.0, 50.0, 50.0]),
        (600.0, [600.0, 0.0, 0.0, 150.0, 450.0, 0.0, 0.0, 0.0]),
        (300.0, [300.0, 0.0, 0.0, 75.0, 225.0, 0.0, 0.0, 0.0]),
        (160.0, [160.0, 0.0, 0.0, 40.0, 120.0, 0.0, 0.0, 0.0]),
    ] {
        let found = due(&tree, capacity).due;
        for (node, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() < 1e-6, "node {node} at {capacity}: {found}");
        }
    }
    let shares = [tree[0], Spec { reservation: 400.0, ..tree[3] }, Spec { ..tree[4] }]
        .map(|spec| Spec { parent: spec.parent.map(|_| 0), ..spec });
    let found = due(&shares, 1_000.0).due;
    assert!((found[1] - 400.0).abs() < 1e-6 && (found[2] - 600.0).abs() < 1e-6, "{found:?}");
}
