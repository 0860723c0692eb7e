use super::Announcement;
use crate::ControlError;
use crate::testing::Bench;
use headgate_model::{Name, PlaneError, Policy, PolicyAnswer};
use headgate_stripe::StripeId;
use headgate_units::{Iops, Shares};
use serde_json::json;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn policy(reservation: u64, shares: u64) -> Policy {
    let reservation = Iops::new(reservation).ok();
    Policy { reservation, shares: Shares::new(shares).unwrap(), ..Policy::default() }
}

fn said(lease: u64, epoch: u64, policy: Policy) -> Announcement {
    Announcement {
        peer: "gw1".into(),
        stripe: StripeId([1; 16]),
        lease,
        epoch,
        servers: 3,
        policy: serde_json::to_string(&policy).unwrap(),
        reservation_at_most: 1_000,
        shares_at_most: 500,
    }
}

/// A datastore of 900 IOPS with some disks.
fn node(disks: &[&str]) -> Bench {
    let bench = Bench::new();
    let store = json!({"name": "small", "backend": {"emulated": "rate=900,depth=16"},
        "capacity": 900});
    bench.control.add_datastore(serde_json::from_value(store).unwrap()).unwrap();
    for disk in disks {
        let disk = json!({"name": disk, "datastore": "small", "size": 1 << 20,
            "policy": {"werror": "stop"}});
        bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    }
    bench
}

fn set(bench: &Bench, disk: &str, patch: serde_json::Value) -> Result<Vec<String>, ControlError> {
    let patch = serde_json::from_value(patch).unwrap();
    bench.control.set_disk(&name(disk), patch).map(|changed| changed.warnings)
}

fn refusal(taken: Result<(), ControlError>) -> String {
    taken.unwrap_err().to_string()
}

#[test]
fn a_policy_is_taken_but_for_what_is_the_hosts_own_matter_and_kept() {
    let bench = node(&["a"]);
    bench.control.take_announced(&name("a"), said(1, 5, policy(300, 200))).unwrap();
    let check = |bench: &Bench| {
        let disk = bench.control.disk(&name("a")).unwrap();
        assert_eq!(disk.policy.reservation, Iops::new(300).ok());
        assert_eq!(disk.policy.werror, headgate_model::WriteErrors::Stop);
        let by = disk.set_by.unwrap();
        assert_eq!((by.peer.as_str(), by.lease, by.epoch, by.servers), ("gw1", 1, 5, 3));
        // The scheduler has the whole; admission counts a third.
        assert_eq!(bench.plane.policy("a").reservation, Iops::new(300).ok());
        let store = bench.control.datastore(&name("small")).unwrap();
        assert_eq!(store.reserved_iops, 100);
    };
    check(&bench);
    check(&bench.restart());
}

#[test]
fn the_later_policy_holds_by_lease_and_then_by_epoch() {
    let bench = node(&["a"]);
    let take = |lease, epoch, reservation| {
        bench.control.take_announced(&name("a"), said(lease, epoch, policy(reservation, 1)))
    };
    let now = || bench.control.disk(&name("a")).unwrap().policy.reservation.map(Iops::get);
    take(2, 5, 100).unwrap();
    take(2, 5, 100).unwrap();
    for (lease, epoch, reservation) in [(2, 5, 101), (2, 4, 102), (1, 9, 103)] {
        let error = refusal(take(lease, epoch, reservation));
        assert!(error.contains("a later policy of the disk is in force: epoch 5"), "{error}");
        assert_eq!(now(), Some(100));
    }
    take(2, 6, 104).unwrap();
    take(3, 1, 105).unwrap();
    assert_eq!(now(), Some(105));
    // Another striped disk on the same export begins anew.
    let other = Announcement { stripe: StripeId([2; 16]), ..said(1, 1, policy(106, 1)) };
    bench.control.take_announced(&name("a"), other).unwrap();
    assert_eq!(now(), Some(106));
}

#[test]
fn a_gateway_has_no_more_promised_than_its_certificate_says() {
    let bench = node(&["a", "b", "c"]);
    let take = |disk: &str, said| bench.control.take_announced(&name(disk), said);
    take("a", said(1, 1, policy(600, 500))).unwrap();
    let error = refusal(take("b", said(1, 1, policy(401, 1))));
    assert!(error.contains("1000 IOPS reserved in all, has 600, and asks for 401"), "{error}");
    let error = refusal(take("b", said(1, 1, policy(400, 501))));
    assert!(error.contains("500 shares at most, and asks for 501"), "{error}");
    assert_eq!(bench.control.disk(&name("b")).unwrap().set_by, None);
    take("b", said(1, 1, policy(400, 500))).unwrap();
    // What it had for the same disk does not count twice, and others have bounds of their own.
    take("a", said(1, 2, policy(600, 1))).unwrap();
    take("c", Announcement { peer: "gw2".into(), ..said(1, 1, policy(700, 1)) }).unwrap();
}

#[test]
fn an_equal_part_of_a_reservation_has_to_fit() {
    let bench = node(&["a", "b"]);
    set(&bench, "b", json!({"reservation": 700})).unwrap();
    let take = |reservation, epoch| {
        bench.control.take_announced(&name("a"), said(1, epoch, policy(reservation, 1)))
    };
    let error = refusal(take(601, 1));
    assert!(error.contains("201"), "{error}");
    take(600, 2).unwrap();
    let error = set(&bench, "b", json!({"reservation": 701})).unwrap_err();
    assert!(matches!(error, ControlError::NotAdmitted { shortfall: 1, .. }), "{error}");
}

#[test]
fn what_is_no_policy_is_refused() {
    let bench = node(&["a"]);
    for (text, words) in [
        ("", "the announced policy"),
        ("{\"reservation\": 0}", "the announced policy"),
        ("{\"colour\": 1}", "colour"),
        ("{\"reservation\": 200, \"limit\": 100}", "reservation"),
        ("{\"shares\": 4000000000}", "the announced policy"),
    ] {
        let bad = Announcement { policy: text.into(), ..said(1, 1, policy(1, 1)) };
        let error = refusal(bench.control.take_announced(&name("a"), bad));
        assert!(error.contains(words), "{text}: {error}");
    }
    let error = refusal(bench.control.take_announced(&name("x"), said(1, 1, policy(1, 1))));
    assert!(error.contains("there is no disk 'x'"), "{error}");
    assert_eq!(bench.control.disk(&name("a")).unwrap().set_by, None);
}

#[test]
fn what_a_gateway_has_set_is_changed_there_or_by_force() {
    let bench = node(&["a"]);
    bench.control.take_announced(&name("a"), said(1, 1, policy(300, 200))).unwrap();
    let error = set(&bench, "a", json!({"shares": 7})).unwrap_err();
    assert!(error.to_string().contains("set by gateway 'gw1', for 3 servers"), "{error}");
    // What is no policy is not the gateway's matter.
    set(&bench, "a", json!({"vm": "m"})).unwrap();
    set(&bench, "a", json!({"shares": 7, "force": "yes"})).unwrap();
    let disk = bench.control.disk(&name("a")).unwrap();
    assert_eq!((disk.set_by, disk.policy.shares.get()), (None, 7));
    assert_eq!(bench.control.datastore(&name("small")).unwrap().reserved_iops, 300);
}

#[test]
fn servers_are_told_of_a_new_policy_under_a_later_epoch() {
    let bench = Bench::new();
    let backend = json!({"stripe": ["nbd://a", "nbd://b"]});
    let store = json!({"name": "ab", "backend": backend});
    bench.control.add_datastore(serde_json::from_value(store).unwrap()).unwrap();
    let disk = json!({"name": "wide", "datastore": "ab", "export": "x"});
    bench.control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    bench.plane.put_answers(vec![
        ("a".into(), Ok(PolicyAnswer::Taken)),
        ("b".into(), Ok(PolicyAnswer::Refused("no room".into()))),
        ("c".into(), Err(PlaneError::new("no route"))),
        ("d".into(), Ok(PolicyAnswer::Unknown)),
    ]);
    let warnings = set(&bench, "wide", json!({"shares": 7, "werror": "stop"})).unwrap();
    let told = |words: &str| warnings.iter().any(|warning| warning.contains(words));
    assert!(told("b does not take the policy: no room"), "{warnings:?}");
    assert!(told("c is told when it is connected again: no route"), "{warnings:?}");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    set(&bench, "wide", json!({"shares": 8})).unwrap();
    // What is no policy is not told.
    set(&bench, "wide", json!({"vm": "m"})).unwrap();
    let announced = bench.plane.announced();
    let [(_, first), (_, second)] = &announced[..] else { panic!("{announced:?}") };
    assert!(first.epoch < second.epoch);
    let said: Policy = serde_json::from_str(&second.text).unwrap();
    assert_eq!(said.shares.get(), 8);
    assert_eq!(said.werror, Policy::default().werror, "that is each host's own");
}

#[test]
fn what_is_set_once_more_is_not_written_again() {
    let bench = node(&["a"]);
    let written = || bench.faults.lock().unwrap().disk_updates;
    let take = |lease, epoch, reservation| {
        bench.control.take_announced(&name("a"), said(lease, epoch, policy(reservation, 1)))
    };
    take(1, 1, 100).unwrap();
    let before = written();
    for epoch in 1..200 {
        take(1, epoch, 100).unwrap();
    }
    assert_eq!(written(), before);
    // It is the later one all the same.
    assert_eq!(bench.control.disk(&name("a")).unwrap().set_by.unwrap().epoch, 199);
    let error = refusal(take(1, 198, 101));
    assert!(error.contains("a later policy of the disk is in force: epoch 199"), "{error}");
    for (lease, epoch, reservation) in [(1, 200, 101), (2, 1, 101)] {
        let before = written();
        take(lease, epoch, reservation).unwrap();
        assert_eq!(written(), before + 1);
    }
}

#[test]
fn a_peer_that_changes_policies_too_fast_is_refused_and_others_are_not() {
    use crate::announced_pace::Turn;
    let bench = node(&["a", "b"]);
    let take = |disk: &str, said| bench.control.take_announced(&name(disk), said);
    take("a", said(1, 1, policy(100, 1))).unwrap();
    let before = bench.faults.lock().unwrap().disk_updates;
    // As many as it may have wait already.
    let now = headgate_units::Nanos(u64::MAX / 2);
    let mut pace = bench.control.announced_pace.lock().unwrap();
    let refused = (0..1_000).any(|_| matches!(pace.turn("gw1", now), Turn::TooFast(_)));
    assert!(refused, "a thousand changes at once");
    drop(pace);
    for disk in ["a", "b"] {
        let error = take(disk, said(1, 2, policy(101, 1))).unwrap_err();
        assert!(error.to_string().contains("peer 'gw1' changes policies faster"), "{error}");
        assert!(error.hint().unwrap().contains("once more after"), "{error}");
    }
    assert_eq!(bench.control.disk(&name("a")).unwrap().policy.reservation, Iops::new(100).ok());
    // What it says anew on every connection is no change, and what is refused for another reason
    // is refused for that.
    take("a", said(1, 3, policy(100, 1))).unwrap();
    let error = refusal(take("a", said(1, 4, policy(1_001, 1))));
    assert!(error.contains("IOPS reserved in all"), "{error}");
    assert_eq!(bench.faults.lock().unwrap().disk_updates, before);
    take("b", Announcement { peer: "gw2".into(), ..said(1, 1, policy(101, 1)) }).unwrap();
    set(&bench, "b", json!({"vm": "m"})).unwrap();
}
