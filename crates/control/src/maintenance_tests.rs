//! Datastores that are emptied.

use crate::balance::testing::{bench, create, end, finish, name, on, until};
use crate::testing::Bench;
use crate::{Control, ErrorKind};
use headgate_api::maintenance::{Maintenance, MaintenanceState, MaintenanceWish};
use headgate_mirror::{Outcome, Reason, Record, Side};
use headgate_model::MoveEvent;
use serde_json::json;

fn begin(bench: &Bench) -> Maintenance {
    bench.control.set_maintenance(&name("old"), MaintenanceWish::On).unwrap()
}

fn now(control: &Control) -> Maintenance {
    control.maintenance(&name("old")).unwrap()
}

fn moving(control: &Control) -> Vec<String> {
    let model = control.model();
    let under_way = model.moves.values().filter(|one| !one.is_over());
    under_way.map(|one| one.record.disk.to_string()).collect()
}

#[test]
fn disks_leave_one_after_the_other_and_nothing_comes() {
    let bench = bench(&["a", "b"]);
    let control = &bench.control;
    let told = begin(&bench);
    assert_eq!((told.state, told.disks, told.waiting.len()), (MaintenanceState::Emptying, 2, 2));
    control.carry_out();
    control.carry_out();
    let first = moving(control);
    assert_eq!(first.len(), 1, "one at a time: {first:?}");
    assert_eq!((now(control).moving.len(), now(control).waiting.len()), (1, 1));

    let new = json!({"name": "x", "size": 8192, "datastore": "old"});
    let refused = control.create_disk(serde_json::from_value(new).unwrap()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.to_string().contains("in maintenance"), "{refused}");

    finish(&bench, &first[0], Outcome::Switched);
    assert_eq!(now(control).state, MaintenanceState::Emptying, "another is to go");
    control.carry_out();
    let second = moving(control);
    assert!(second.len() == 1 && second != first, "{second:?}");
    bench.plane.play(&second[0], MoveEvent::Record(Record::Switched));
    until("the last disk should switch", || now(control).disks == 0);
    control.carry_out();
    assert_eq!(now(control).state, MaintenanceState::Emptying, "a copy is left on it");
    end(&bench, &second[0], Outcome::Switched, Side::Source);
    control.carry_out();
    let end = now(control);
    assert_eq!((end.state, end.disks), (MaintenanceState::Empty, 0));
    assert!(["a", "b"].iter().all(|disk| on(&bench, disk) != "old"));
}

#[test]
fn what_cannot_leave_is_told_with_its_reason_and_tried_again_when_something_changes() {
    let bench = bench(&["a", "b"]);
    let control = &bench.control;
    let pin = |word: &str| {
        let patch = serde_json::from_value(json!({"placement": {"mobility": word}})).unwrap();
        control.set_disk(&name("a"), patch).unwrap();
    };
    pin("pinned");
    begin(&bench);
    control.carry_out();
    assert_eq!(moving(control), ["b"]);
    finish(&bench, "b", Outcome::Switched);
    control.carry_out();
    let stuck = now(control);
    assert_eq!((stuck.state, stuck.disks), (MaintenanceState::Stuck, 1));
    assert!(stuck.stuck[0].reason.contains("pinned"), "{stuck:?}");
    assert!(moving(control).is_empty());
    pin("free");
    control.carry_out();
    assert_eq!(moving(control), ["a"]);
    finish(&bench, "a", Outcome::Switched);
    control.carry_out();
    assert_eq!(now(control).state, MaintenanceState::Empty);
}

#[test]
fn a_move_that_fails_is_made_again_and_one_that_is_refused_keeps_no_other() {
    let bench = bench(&["a", "b"]);
    let control = &bench.control;
    // It has no connection to what it is on.
    control.model_mut().disks.get_mut(&name("a")).unwrap().service =
        crate::Service::Failed("its image is damaged".into());
    begin(&bench);
    control.carry_out();
    assert_eq!(moving(control), ["b"]);
    finish(&bench, "b", Outcome::Failed(Reason::TargetFailed));
    control.carry_out();
    assert_eq!(moving(control), ["b"], "it is made again");
    assert!(now(control).stuck.iter().any(|one| one.reason.contains("damaged")));
}

#[test]
fn an_end_lets_no_further_disk_go_and_a_restart_goes_on() {
    let bench = bench(&["a", "b"]);
    begin(&bench);
    let bench = bench.restart();
    let control = &bench.control;
    control.carry_out();
    let first = moving(control);
    assert_eq!(first.len(), 1, "it is forgotten");
    let told = control.set_maintenance(&name("old"), MaintenanceWish::Off).unwrap();
    assert_eq!((told.state, told.moving.len()), (MaintenanceState::Off, 1));
    finish(&bench, &first[0], Outcome::Switched);
    control.carry_out();
    assert!(moving(control).is_empty());
    assert_eq!(now(control).disks, 1);
    create(&bench, json!({"name": "x", "size": 8192, "datastore": "old"}));
}

#[test]
fn a_datastore_that_an_operator_empties_is_left_to_the_operator() {
    let bench = bench(&["a"]);
    let control = &bench.control;
    // Also after one that the daemon was to empty.
    begin(&bench);
    control.set_maintenance(&name("old"), MaintenanceWish::Off).unwrap();
    let patch = json!({"placement": {"state": "maintenance"}});
    control.set_datastore(&name("old"), serde_json::from_value(patch).unwrap()).unwrap();
    control.carry_out();
    assert!(moving(control).is_empty());
    let told = now(control);
    assert_eq!((told.state, told.waiting.len()), (MaintenanceState::Advised, 1));
}

#[test]
fn disks_of_what_takes_no_part_in_advice_are_placed_as_new_ones() {
    let bench = bench(&[]);
    let control = &bench.control;
    let ram = json!({"name": "ram", "backend": {"memory": 1 << 20}});
    control.add_datastore(serde_json::from_value(ram).unwrap()).unwrap();
    create(&bench, json!({"name": "m", "size": 8192, "datastore": "ram"}));
    control.set_maintenance(&name("ram"), MaintenanceWish::On).unwrap();
    control.carry_out();
    assert_eq!(moving(control), ["m"]);
    finish(&bench, "m", Outcome::Switched);
    control.carry_out();
    until("it should be empty", || {
        control.maintenance(&name("ram")).unwrap().state == MaintenanceState::Empty
    });
}
