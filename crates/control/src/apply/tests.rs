use crate::testing::Bench;
use crate::{ControlError, crash};
use headgate_api::apply::{Applied, Apply};
use headgate_api::types::Disk;
use headgate_catalog::{Catalog, PolicyChange, SqliteCatalog};
use headgate_model::{DiskRecord, DiskState, Name, PlannedRecord};
use serde_json::{Value, json};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn disk(disk: &str, further: Value) -> Value {
    let mut value = json!({"name": disk, "datastore": "array", "size": 1 << 20});
    value.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    value
}

/// A class of so much reservation, and these disks.
fn site(reservation: u64, disks: &[Value]) -> Apply {
    let gold = json!({"name": "gold", "class": {"policy": {"reservation": reservation}}});
    serde_json::from_value(json!({"set": "site", "classes": [gold], "disks": disks})).unwrap()
}

/// Applies documents as the command does: what is to be made is made after that.
fn applied(bench: &Bench, documents: &Apply) -> Result<Applied, ControlError> {
    let applied = bench.control.apply(documents)?;
    for wanted in &applied.to_create {
        make(bench, documents, wanted)?;
    }
    for gone in &applied.to_remove {
        bench.control.remove_disk(gone, Default::default(), Default::default())?;
    }
    Ok(applied)
}

fn make(bench: &Bench, documents: &Apply, disk: &Name) -> Result<(), ControlError> {
    let one = documents.disks.iter().find(|one| one.name == *disk).unwrap();
    let request = json!({"name": one.name, "size": one.size, "datastore": one.datastore,
        "vm": one.vm, "class": one.class, "policy": one.policy});
    bench.control.create_disk(serde_json::from_value(request).unwrap()).map(drop)
}

fn reserved(bench: &Bench) -> Vec<(String, Option<u64>)> {
    let of = |disk: Disk| {
        (disk.name.to_string(), disk.effective_policy.unwrap().reservation.map(|r| r.get()))
    };
    bench.control.disks().unwrap().into_iter().map(of).collect()
}

fn promised(bench: &Bench) -> u64 {
    bench.control.datastore(&name("array")).unwrap().reserved_iops
}

#[test]
fn documents_are_applied_once_and_nothing_is_left_to_do() {
    let bench = Bench::new();
    let gold = json!({"class": "gold"});
    let own = json!({"policy": {"reservation": 50, "shares": 7}, "vm": "web"});
    let documents = site(100, &[disk("a", gold.clone()), disk("b", gold), disk("c", own)]);
    let first = applied(&bench, &documents).unwrap();
    assert!(first.changed && first.to_create.len() == 3 && first.changes.len() == 4);
    let expected = [("a", 100), ("b", 100), ("c", 50)].map(|(n, r)| (n.to_owned(), Some(r)));
    assert_eq!(reserved(&bench), expected);
    assert_eq!(promised(&bench), 250);
    let owner = |disk: &str| bench.control.disk(&name(disk)).unwrap().applied_by;
    assert_eq!(owner("a"), Some(name("site")));
    let again = applied(&bench, &documents).unwrap();
    assert!(!again.changed && again.changes.is_empty() && again.to_create.is_empty());
    let bench = bench.restart();
    let again = applied(&bench, &documents).unwrap();
    assert!(!again.changed && again.changes.is_empty());
}

#[test]
fn a_dry_run_tells_what_would_be_and_changes_nothing() {
    let bench = Bench::new();
    let all: Vec<Value> = ["a", "b"].map(|one| disk(one, json!({"class": "gold"}))).into();
    for (reservation, fits) in [(100, true), (900, false)] {
        let dry = Apply { dry_run: true, ..site(reservation, &all) };
        let told = bench.control.apply(&dry).unwrap();
        assert_eq!((told.changed, told.changes.len(), told.to_create.len()), (false, 3, 2));
        assert_eq!(told.refused.is_none(), fits, "{told:?}");
        assert!(bench.control.classes().is_empty() && bench.control.disks().unwrap().is_empty());
        assert_eq!(promised(&bench), 0);
        if !fits {
            let why = told.refused.unwrap().error;
            assert!(why.contains("200 too many, for 'a' (+900), 'b' (+900)"), "{why}");
            bench.control.apply(&Apply { dry_run: false, ..dry }).unwrap_err();
            assert!(bench.control.classes().is_empty());
            assert_eq!(promised(&bench), 0);
        }
    }
}

/// What is recorded counts until it is made, and for nobody twice.
#[test]
fn what_is_to_be_made_is_promised_already() {
    let bench = Bench::new();
    let all: Vec<Value> = ["a", "b"].map(|one| disk(one, json!({"class": "gold"}))).into();
    let documents = site(700, &all);
    let recorded = bench.control.apply(&documents).unwrap();
    assert_eq!((recorded.to_create.len(), promised(&bench)), (2, 1_400));
    let bench = bench.restart();
    assert_eq!(promised(&bench), 1_400);
    let greedy =
        json!({"name": "x", "datastore": "array", "size": 1 << 20, "policy": {"reservation": 300}});
    let greedy = serde_json::from_value::<headgate_api::types::DiskCreate>(greedy).unwrap();
    let error = bench.control.create_disk(greedy).unwrap_err();
    assert!(error.to_string().contains("1400 of 1600 IOPS are reserved already"), "{error}");
    // Its class changes before it is made.
    let error = bench.control.apply(&site(900, &all)).unwrap_err();
    assert!(error.to_string().contains("200 too many, for 'a' (+200), 'b' (+200)"), "{error}");
    for one in ["a", "b"] {
        make(&bench, &documents, &name(one)).unwrap();
        assert_eq!(promised(&bench), 1_400, "{one}");
    }
    assert!(bench.control.apply(&documents).unwrap().to_create.is_empty());
    // What is not wanted any more is promised to nobody.
    let more = [all, vec![disk("d", json!({"policy": {"reservation": 100}}))]].concat();
    bench.control.apply(&site(700, &more)).unwrap();
    assert_eq!(promised(&bench), 1_500);
    bench.control.apply(&documents).unwrap();
    assert_eq!(promised(&bench), 1_400);
}

#[test]
fn documents_that_are_cut_anywhere_are_completed_by_the_next_apply() {
    let all: Vec<Value> = ["a", "b"].map(|one| disk(one, json!({"class": "gold"}))).into();
    let (before, after) =
        (site(100, &all), site(200, &[all.clone(), vec![disk("c", json!({}))]].concat()));
    let mut instants = Vec::new();
    for instant in 0.. {
        let bench = Bench::new();
        applied(&bench, &before).unwrap();
        let Some(at) = crash::testing::killed_after(instant, || applied(&bench, &after)) else {
            break;
        };
        instants.push(at);
        let bench = bench.restart();
        // All policies are in force, or none is.
        let rates: Vec<Option<u64>> =
            reserved(&bench).into_iter().take(2).map(|(_, rate)| rate).collect();
        assert!([vec![Some(100); 2], vec![Some(200); 2]].contains(&rates), "{at}: {rates:?}");
        applied(&bench, &after).unwrap();
        let expected =
            [("a", Some(200)), ("b", Some(200)), ("c", None)].map(|(n, r)| (n.to_owned(), r));
        assert_eq!(reserved(&bench), expected, "{at}");
        assert!(bench.control.apply(&after).unwrap().changes.is_empty(), "{at}");
    }
    assert!(!instants.is_empty());
}

/// A daemon is killed between a disk's image and the word that it is whole.
#[test]
fn a_disk_that_was_made_before_a_kill_is_planned_no_more() {
    let bench = Bench::new();
    let documents = site(100, &[disk("a", json!({"class": "gold"}))]);
    bench.control.apply(&documents).unwrap();
    make(&bench, &documents, &name("a")).unwrap();
    let temp = bench.killed();
    let mut catalog = SqliteCatalog::open(&temp.path().join("catalog.sqlite")).unwrap();
    let contents = catalog.load().unwrap();
    let made = contents.disks[0].clone();
    let creating = DiskRecord { state: DiskState::Creating, ..made.clone() };
    let planned = PlannedRecord {
        name: made.name.clone(),
        datastore: made.datastore,
        size: made.size,
        vm: None,
        class: made.set.class,
        policy: made.set.policy,
        applied_by: name("site"),
    };
    let plan = PolicyChange { planned: vec![planned], ..PolicyChange::default() };
    catalog.change_policies(&plan).unwrap();
    catalog.update_disk(&creating).unwrap();
    drop(catalog);
    let bench = Bench::start_again(temp);
    assert_eq!(reserved(&bench), [("a".to_owned(), Some(100))]);
    assert_eq!(promised(&bench), 100);
    let (force, fate) = Default::default();
    bench.control.remove_disk(&name("a"), force, fate).unwrap();
    assert_eq!(promised(&bench), 0, "what was planned is there again");
    assert_eq!(bench.restart().control.class(&name("gold")).unwrap().disks, 0);
}

#[test]
fn a_set_removes_what_it_made_and_nothing_else() {
    let bench = Bench::new();
    let mine = json!({"name": "mine", "size": 1 << 20, "datastore": "array"});
    bench.control.create_disk(serde_json::from_value(mine).unwrap()).unwrap();
    let all: Vec<Value> = ["a", "b"].map(|one| disk(one, json!({"class": "gold"}))).into();
    applied(&bench, &site(100, &all)).unwrap();
    let empty = |prune: &str| -> Apply {
        serde_json::from_value(json!({"set": "site", "prune": prune})).unwrap()
    };
    assert!(applied(&bench, &empty("nothing")).unwrap().changes.is_empty());
    let error = applied(&bench, &empty("empty")).unwrap_err();
    assert!(error.to_string().contains("2 disk(s) are in the documents no more"), "{error}");
    assert_eq!(bench.control.disks().unwrap().len(), 3);
    let other = Apply { set: name("other"), ..empty("disks") };
    assert!(applied(&bench, &other).unwrap().changes.is_empty());
    let pruned = applied(&bench, &empty("disks")).unwrap();
    assert_eq!(pruned.to_remove, [name("a"), name("b")]);
    assert_eq!(bench.control.disks().unwrap().len(), 1);
    assert!(bench.control.classes().is_empty());
    assert_eq!(bench.control.removed_disks().len(), 2, "what they held is kept for a while");
}

#[test]
fn a_disk_made_by_hand_in_place_of_one_that_was_recorded_is_nobodys() {
    let bench = Bench::new();
    let documents = site(100, &[disk("a", json!({"class": "gold"}))]);
    bench.control.apply(&documents).unwrap();
    let own =
        json!({"name": "a", "size": 1 << 20, "datastore": "array", "policy": {"reservation": 5}});
    let made = bench.control.create_disk(serde_json::from_value(own).unwrap()).unwrap().now;
    assert_eq!((made.applied_by, promised(&bench)), (None, 5));
    let applied = applied(&bench, &documents).unwrap();
    assert!(applied.changed && applied.to_create.is_empty());
    assert_eq!(reserved(&bench), [("a".to_owned(), Some(100))]);
}
