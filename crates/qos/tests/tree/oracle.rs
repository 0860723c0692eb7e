//! What each node of a tree is due, from the definition in `docs/tree.md` alone: progressive
//! filling from the leaves up and from the root down, in floating point.
//!
//! It knows nothing of tags, clocks and decisions, nor anything of the crate that is tested.

/// A node as a tree is written down. The parent of a node stands before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// `None`: a member of the root.
    pub parent: Option<usize>,
    /// Per second; 0 for none.
    pub reservation: f64,
    /// Per second; `f64::INFINITY` for none.
    pub limit: f64,
    pub shares: f64,
    /// What a leaf asks for per second. Of no meaning for a group.
    pub demand: f64,
}

/// What nodes may take at most, are promised, and are due.
#[derive(Clone, Debug)]
pub struct Due {
    pub cap: Vec<f64>,
    pub promised: Vec<f64>,
    pub due: Vec<f64>,
    /// The part of reservations that the storage can give.
    pub part: f64,
}

pub fn members(tree: &[Spec], of: Option<usize>) -> Vec<usize> {
    (0..tree.len()).filter(|node| tree[*node].parent == of).collect()
}

/// What each node is due of a storage that gives `capacity` per second.
pub fn due(tree: &[Spec], capacity: f64) -> Due {
    let count = tree.len();
    let (mut cap, mut promised) = (vec![0.0; count], vec![0.0; count]);
    for node in (0..count).rev() {
        let inside = members(tree, Some(node));
        let Spec { reservation, limit, demand, .. } = tree[node];
        let (wanted, kept) = if inside.is_empty() {
            (demand, 0.0)
        } else {
            let sum = |of: &[f64]| inside.iter().map(|member| of[*member]).sum::<f64>();
            (sum(&cap), sum(&promised))
        };
        cap[node] = limit.min(wanted);
        promised[node] = cap[node].min(reservation.max(kept));
    }
    let top = members(tree, None);
    let asked: f64 = top.iter().map(|node| cap[*node]).sum();
    let reserved: f64 = top.iter().map(|node| promised[*node]).sum();
    let part = if reserved > capacity { capacity / reserved } else { 1.0 };
    let mut found = Due { cap, promised, due: vec![0.0; count], part };
    let mut todo = vec![(None, capacity.min(asked))];
    while let Some((group, amount)) = todo.pop() {
        let inside = members(tree, group);
        let amounts = found.of_group(tree, &inside, amount);
        for (node, amount) in inside.iter().zip(amounts) {
            found.due[*node] = amount;
            todo.push((Some(*node), amount));
        }
    }
    found
}

impl Due {
    /// What the members of a group are due of what it has, whatever that is.
    pub fn of_group(&self, tree: &[Spec], inside: &[usize], amount: f64) -> Vec<f64> {
        let bounds: Vec<(f64, f64, f64)> = inside
            .iter()
            .map(|node| (self.part * self.promised[*node], self.cap[*node], tree[*node].shares))
            .collect();
        fill(&bounds, amount)
    }
}

/// Divides an amount by shares between bounds from below and above: raises a level through the
/// points at which a member leaves its lower bound or reaches its upper one.
fn fill(bounds: &[(f64, f64, f64)], amount: f64) -> Vec<f64> {
    let at = |level: f64| -> Vec<f64> {
        bounds.iter().map(|(low, high, shares)| (level * shares).max(*low).min(*high)).collect()
    };
    let sum = |level: f64| at(level).iter().sum::<f64>();
    let mut edges: Vec<f64> = bounds
        .iter()
        .flat_map(|(low, high, shares)| [low / shares, high / shares])
        .filter(|level| level.is_finite())
        .collect();
    edges.sort_by(f64::total_cmp);
    let below = edges.iter().copied().filter(|level| sum(*level) <= amount).fold(0.0, f64::max);
    let rising: f64 = bounds
        .iter()
        .filter(|(low, high, shares)| low / shares <= below && below < high / shares)
        .map(|bound| bound.2)
        .sum();
    let level = if rising > 0.0 { below + (amount - sum(below)).max(0.0) / rising } else { below };
    at(level)
}
