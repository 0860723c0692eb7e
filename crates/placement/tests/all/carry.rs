//! Moves are carried out within their limits, each at most once, and none for ever.

use crate::common::{Dice, HOUR, cases};
use headgate_placement::*;
use headgate_units::Nanos;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

fn limits(at_once: u32, per_datastore: u32) -> MoveLimits {
    let number = |n| NonZeroU32::new(n).unwrap();
    MoveLimits { at_once: number(at_once), per_datastore: number(per_datastore) }
}

fn leg(disk: &str, from: &str, to: &str, decision: usize) -> Leg {
    Leg { disk: disk.into(), from: from.into(), to: to.into(), decision }
}

fn route(leg: &Leg) -> (Name, Name) {
    (leg.from.clone(), leg.to.clone())
}

fn fates(sequence: &Sequence) -> Vec<&Fate> {
    sequence.legs().iter().map(|(_, fate)| fate).collect()
}

#[test]
fn the_first_whose_datastores_are_free_begins() {
    let legs = vec![leg("one", "a", "b", 0), leg("two", "a", "c", 1), leg("three", "c", "d", 2)];
    let mut sequence = Sequence::new(legs, limits(2, 1), Hours::ALWAYS);
    let now = Nanos::ZERO;
    assert_eq!(sequence.next(now, &[]), Some(0));
    sequence.put(0, Fate::Moving);
    let mut under_way = vec![("a".into(), "b".into())];
    assert_eq!(sequence.next(now, &under_way), Some(2), "the second would leave 'a' as well");
    sequence.put(2, Fate::Moving);
    under_way.push(("c".into(), "d".into()));
    assert_eq!(sequence.next(now, &under_way), None, "two are enough");
    sequence.put(0, Fate::Moved);
    under_way.remove(0);
    assert_eq!(sequence.next(now, &under_way), None, "'c' has one already");
    // A move by hand counts like any other.
    assert_eq!(sequence.next(now, &[("x".into(), "a".into())]), None);
    assert_eq!(sequence.next(now, &[]), Some(1));
    assert!(!sequence.is_over());
}

#[test]
fn what_was_decided_together_is_not_half_made_where_that_can_be_known() {
    let legs = vec![leg("one", "a", "b", 0), leg("two", "b", "a", 0), leg("three", "a", "b", 1)];
    let mut sequence = Sequence::new(legs, limits(1, 1), Hours::ALWAYS);
    let disks: Vec<&str> = sequence.with(0).iter().map(|leg| leg.disk.as_str()).collect();
    assert_eq!(disks, ["one", "two"]);
    sequence.put(0, Fate::Failed("the target failed".into()));
    let skipped = Fate::Skipped(Skip::With("one".into()));
    assert_eq!(fates(&sequence)[1..], [&skipped, &Fate::Waiting]);
    assert_eq!(sequence.next(Nanos::ZERO, &[]), Some(2));
    // Nothing that is over begins again.
    sequence.put(1, Fate::Moving);
    assert_eq!(fates(&sequence)[1], &skipped);
}

#[test]
fn nothing_begins_after_a_stop_or_outside_the_hours() {
    let legs = || vec![leg("one", "a", "b", 0), leg("two", "c", "d", 1)];
    let night = "22:00-06:00".parse().unwrap();
    let mut sequence = Sequence::new(legs(), limits(2, 2), night);
    let at = |hour: u64| Nanos::from_secs(hour * HOUR);
    assert_eq!(sequence.next(at(23), &[]), Some(0));
    sequence.put(0, Fate::Moving);
    assert_eq!(sequence.next(at(30), &[]), None);
    assert_eq!(fates(&sequence), [&Fate::Moving, &Fate::Skipped(Skip::Hours)]);
    sequence.put(0, Fate::Moved);
    assert!(sequence.is_over());

    let mut sequence = Sequence::new(legs(), limits(2, 2), Hours::ALWAYS);
    sequence.put(0, Fate::Moving);
    sequence.stop();
    assert_eq!(fates(&sequence), [&Fate::Moving, &Fate::Skipped(Skip::Stopped)]);
    assert!(!sequence.is_over(), "one is under way");
}

/// Legs between five datastores, some decided together.
fn random_legs(dice: &mut Dice) -> Vec<Leg> {
    let mut decision = 0;
    (0..1 + dice.roll(12))
        .map(|n| {
            decision += usize::from(dice.one_in(2));
            let from = dice.roll(5);
            let to = (from + 1 + dice.roll(4)) % 5;
            leg(&format!("d{n}"), &format!("s{from}"), &format!("s{to}"), decision)
        })
        .collect()
}

proptest! {
    #![proptest_config(cases())]

    /// Somebody carries them out as they come, and some fail, and some do not stand any more.
    #[test]
    fn limits_hold_and_every_move_comes_to_an_end(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let bounds = limits(1 + dice.roll(4) as u32, 1 + dice.roll(3) as u32);
        let mut sequence = Sequence::new(random_legs(&mut dice), bounds, Hours::ALWAYS);
        let others: Vec<(Name, Name)> =
            (0..dice.roll(2)).map(|_| ("s0".into(), "elsewhere".into())).collect();
        let mut moving: BTreeMap<usize, (Name, Name)> = BTreeMap::new();
        let (mut begun, mut failed): (BTreeSet<usize>, BTreeSet<usize>) = Default::default();
        let mut is_stopped = false;
        for _ in 0..200 {
            if sequence.is_over() {
                break;
            }
            let by_hand = if dice.one_in(3) { &others[..] } else { &[] };
            let under_way: Vec<(Name, Name)> =
                moving.values().chain(by_hand).cloned().collect();
            match sequence.next(Nanos::ZERO, &under_way) {
                Some(at) => {
                    let (leg, fate) = sequence.legs()[at].clone();
                    prop_assert_eq!(fate, Fate::Waiting);
                    prop_assert!(!is_stopped && begun.insert(at));
                    prop_assert!(!failed.contains(&leg.decision), "it goes without the other");
                    prop_assert!(under_way.len() < bounds.at_once.get() as usize);
                    for store in [&leg.from, &leg.to] {
                        let there = under_way.iter().filter(|(a, b)| a == store || b == store);
                        prop_assert!(there.count() < bounds.per_datastore.get() as usize);
                    }
                    if dice.one_in(5) {
                        failed.insert(leg.decision);
                        sequence.put(at, Fate::Skipped(Skip::Barred("gone".into())));
                    } else {
                        moving.insert(at, route(&leg));
                        sequence.put(at, Fate::Moving);
                    }
                }
                // With nothing under way something can always begin.
                None => prop_assert!(!under_way.is_empty(), "{:?}", sequence),
            }
            if dice.one_in(2) && let Some((at, _)) = moving.pop_first() {
                let is_well = !dice.one_in(4);
                let decision = sequence.legs()[at].0.decision;
                let fate =
                    if is_well { Fate::Moved } else { Fate::Failed("the target failed".into()) };
                failed.extend((!is_well).then_some(decision));
                sequence.put(at, fate);
            }
            if dice.one_in(40) {
                is_stopped = true;
                sequence.stop();
            }
        }
        prop_assert!(sequence.is_over(), "{:?}", sequence);
        for (at, (_, fate)) in sequence.legs().iter().enumerate() {
            let was_made = matches!(fate, Fate::Moved | Fate::Failed(_));
            prop_assert!(begun.contains(&at) || !was_made);
        }
    }
}
