//! What did harm may still not go back where it must not be.

use crate::common::{datastore, disk, gib};
use headgate_placement::*;

fn made(disk: &str, from: &str, to: &str) -> Made {
    Made { disk: disk.into(), from: from.into(), to: to.into() }
}

fn pool() -> Pool {
    Pool {
        datastores: vec![datastore("a", 500), datastore("b", 500)],
        disks: vec![disk("one", "b", 4), disk("two", "b", 4)],
        ..Pool::default()
    }
}

fn barred(pool: &Pool) -> Option<String> {
    let moves = [made("one", "a", "b"), made("two", "a", "b")];
    check_rollback(pool, &moves).unwrap().map(|barred| barred.to_string())
}

#[test]
fn nothing_keeps_free_disks() {
    assert_eq!(barred(&pool()), None);
}

#[test]
fn a_datastore_that_is_emptied_or_closed_gets_nothing_back() {
    for (state, why) in [
        (State::Maintenance, "'one' cannot be on 'a': it is in maintenance"),
        (State::Closed, "'one' cannot be on 'a': it is closed to new disks"),
    ] {
        let mut pool = pool();
        pool.datastores[0].state = state;
        assert_eq!(barred(&pool).as_deref(), Some(why));
    }
}

#[test]
fn all_of_a_decision_must_fit() {
    let mut pool = pool();
    // Up to nine tenths: one of 20 GiB fits, two do not.
    pool.datastores[0].capacity = gib(40);
    let why = barred(&pool).unwrap();
    assert!(why.starts_with("'two' cannot be on 'a': 20 GiB do not fit: 16 GiB are free"), "{why}");
    pool.datastores[0].capacity = gib(45);
    assert_eq!(barred(&pool), None);
}

#[test]
fn rules_and_pins_hold_for_the_way_back() {
    let mut apart = pool();
    let disks = ["one", "two"].map(Name::from).to_vec();
    apart.rules.anti_affinity = vec![Group { name: "pair".into(), disks }];
    let why = barred(&apart).unwrap();
    assert_eq!(
        why,
        "'two' cannot be on 'a': 'one' is on its device, and rule 'pair' keeps them apart"
    );
    let mut pinned = pool();
    pinned.disks[1].mobility = Mobility::Pinned;
    assert_eq!(barred(&pinned).as_deref(), Some("'two' is pinned, or must be with a disk that is"));
    let mut classes = pool();
    classes.disks[0].class = Some("fast".into());
    classes.datastores[1].class = Some("fast".into());
    assert_eq!(
        barred(&classes).as_deref(),
        Some("'one' cannot be on 'a': it is not of class 'fast'")
    );
}

#[test]
fn who_must_be_together_goes_together_and_who_is_gone_does_not() {
    let mut together = pool();
    let disks = ["one", "two"].map(Name::from).to_vec();
    together.rules.affinity = vec![Group { name: "pair".into(), disks }];
    together.datastores[0].capacity = gib(45);
    assert_eq!(barred(&together), None);
    let gone = check_rollback(&pool(), &[made("three", "a", "b")]).unwrap().unwrap();
    assert_eq!(gone.to_string(), "'three' or the datastore 'a' is not there any more");
}
