//! Theorems 3 and 4 for each direction of a disk: its reads and its writes are to an adversary two
//! disks, each with its limit.

use crate::harness::*;
use crate::{conservation, limits};
use headgate_qos::{Direction, LimitMode};

/// What is promised of a limit, of the first of the two.
fn limited() -> Vec<Case> {
    let mut cases = limits::cases();
    // Limits of a direction have no peaks.
    cases.retain(|case| !case.name.contains("peak"));
    for case in &mut cases {
        // The second disk becomes the other direction, and another one comes to share with both.
        case.setup.policies.push(policy(2, 0, 0));
        case.space.disks += 1;
    }
    cases
}

/// The same, with a limit of the other direction too.
fn limited_both_ways() -> Vec<Case> {
    let mut cases = limited();
    for case in &mut cases {
        let other = case.setup.menu.len();
        case.setup.menu.extend([policy(2, 0, 15), policy(1, 0, 90)]);
        case.setup.policies[1] = policy(2, 0, 15);
        if !case.space.policies.is_empty() {
            case.space.policies.extend([(1, other), (1, other + 1)]);
        }
    }
    cases
}

/// A disk of its own for each of the two, and two directions of one.
fn conserved() -> Vec<Case> {
    let soft = |shares, limit| policy(shares, 0, limit).with_limit_mode(LimitMode::Soft);
    let strict = vec![policy(2, 0, 0), policy(2, 0, 20), policy(9, 30, 60), policy(1, 0, 150)];
    let both = vec![soft(1, 30), soft(2, 20), soft(3, 0), soft(1, 150)];
    let mut cases = vec![
        conservation::case("one limited", 2, vec![policy(1, 0, 0), policy(3, 0, 25)]),
        conservation::case("both", 3, vec![policy(1, 0, 40), policy(2, 0, 9), policy(1, 0, 0)]),
        conservation::case("beside", 2, vec![policy(1, 0, 9), policy(2, 5, 40), policy(1, 40, 40)]),
        conservation::case("one slot", 1, vec![policy(2, 0, 9), policy(1, 0, 0), policy(1, 0, 25)]),
    ];
    cases.iter_mut().for_each(|case| case.setup.menu = strict.clone());
    let mut case = conservation::case("soft", 2, vec![soft(1, 30), soft(1, 0), policy(1, 0, 25)]);
    case.setup.menu = both;
    case.space.policies.retain(|(disk, _)| *disk < 2);
    cases.push(case);
    cases
}

fn all() -> Vec<Case> {
    limited().into_iter().chain(limited_both_ways()).chain(conserved()).collect()
}

#[test]
fn the_limit_of_a_direction_holds_from_above_and_below() {
    for first in Direction::BOTH {
        for worst in worst_of(&all(), &directed(Design::Lanes, first)) {
            assert!(!worst.verdict.is_broken(), "{first:?}: {worst}");
        }
    }
}

/// Requests that a stage before the scheduler lets go pile up behind others, and then all go. In
/// one queue what may go waits behind what may not.
#[test]
fn a_stage_before_the_scheduler_and_one_queue_are_found_out() {
    for design in [Design::HoldingStage, Design::OneQueue] {
        assert!(breaks(&limited_both_ways(), &directed(design, Direction::Write)), "{design:?}");
    }
    assert!(breaks(&conserved(), &directed(Design::OneQueue, Direction::Read)));
}
