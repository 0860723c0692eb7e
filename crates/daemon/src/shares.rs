//! What part of a datastore's service shares give each disk, level by level: `docs/tree.md`.

use headgate_control::GroupShares;
use headgate_model::Name;
use headgate_units::Shares;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A disk that competes, and the groups that it is in, the innermost first.
pub(crate) struct Sharer<'a> {
    pub(crate) name: &'a Name,
    pub(crate) shares: Shares,
    pub(crate) groups: &'a [GroupShares],
}

/// The part of the whole that shares alone give each of those that compete, 0 to 1. A group divides
/// among what competes in it, and competes itself with what is beside it. O(n log n).
pub(crate) fn due_by_shares<'a>(
    sharers: impl Iterator<Item = Sharer<'a>>,
) -> BTreeMap<&'a Name, f64> {
    let sharers: Vec<Sharer<'a>> = sharers.collect();
    // What competes within each group, and within none.
    let mut inside: HashMap<Option<&str>, f64> = HashMap::new();
    let mut counted: HashSet<&str> = HashSet::new();
    for one in &sharers {
        let mut add = |within: Option<&'a GroupShares>, shares: Shares| {
            let within = within.map(|group| group.group.as_str());
            *inside.entry(within).or_default() += shares.get() as f64;
        };
        add(one.groups.first(), one.shares);
        for (at, group) in one.groups.iter().enumerate() {
            if counted.insert(&group.group) {
                add(one.groups.get(at + 1), group.shares);
            }
        }
    }
    let part = |within: Option<&GroupShares>, shares: Shares| {
        let all = inside.get(&within.map(|group| group.group.as_str()));
        all.map_or(0.0, |all| shares.get() as f64 / all)
    };
    let due = |one: &Sharer<'a>| {
        let own = part(one.groups.first(), one.shares);
        let above = one.groups.iter().enumerate();
        above.fold(own, |due, (at, group)| due * part(one.groups.get(at + 1), group.shares))
    };
    sharers.iter().map(|one| (one.name, due(one))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(group: &str, shares: u64) -> GroupShares {
        GroupShares { group: group.into(), shares: Shares::new(shares).unwrap() }
    }

    #[test]
    fn each_level_divides_what_it_has_among_what_competes_in_it() {
        let (red, web) = (group("tenant red", 3_000), group("vm web", 2_000));
        let in_web = [web.clone(), red.clone()];
        let in_red = [red.clone()];
        let disks: [(&str, u64, &[GroupShares]); 5] = [
            ("w1", 1_000, &in_web),
            ("w2", 3_000, &in_web),
            ("r", 2_000, &in_red),
            ("x", 1_000, &[]),
            ("y", 2_000, &[]),
        ];
        let names: Vec<Name> = disks.iter().map(|one| one.0.parse().unwrap()).collect();
        let due = due_by_shares(disks.iter().zip(&names).map(|((_, shares, groups), name)| {
            Sharer { name, shares: Shares::new(*shares).unwrap(), groups }
        }));
        // Of 6,000 at the root red has 3,000; of 4,000 in it web has 2,000.
        let wanted = [0.5 * 0.5 * 0.25, 0.5 * 0.5 * 0.75, 0.5 * 0.5, 1.0 / 6.0, 2.0 / 6.0];
        for (name, wanted) in names.iter().zip(wanted) {
            assert!((due[name] - wanted).abs() < 1e-9, "{name}: {}, not {wanted}", due[name]);
        }
        assert!((due.values().sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
