use super::*;
use crate::ErrorKind;
use crate::terms::{run, under};
use crate::testing::Bench;
use headgate_api::classes::ClassPut;
use headgate_api::types::{Force, ImageFate};
use headgate_model::Name;
use headgate_units::Iops;
use serde_json::Value;
use serde_json::json;
use std::sync::Barrier;
use std::sync::mpsc::channel;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn gold() -> Thing {
    Thing::Class(name("gold"))
}

fn put(value: Value) -> ClassPut {
    serde_json::from_value(value).unwrap()
}

fn seen(thing: &Thing, tag: Etag) -> Terms {
    Terms { seen: Some((thing.clone(), Seen::OneOf(vec![tag]))), run: Run::Real }
}

macro_rules! patch {
    ($value:tt) => {
        serde_json::from_value(json!($value)).unwrap()
    };
}

/// A disk of a class, of a machine of a tenant.
fn bench() -> Bench {
    let bench = Bench::new();
    let control = &bench.control;
    control.set_class(&name("gold"), put(json!({"policy": {"limit": 500}}))).unwrap();
    control.set_tenant(&name("red"), &serde_json::from_value(json!({})).unwrap()).unwrap();
    let vm = json!({"tenant": "red"});
    control.set_vm(&name("web"), &serde_json::from_value(vm).unwrap()).unwrap();
    let disk = json!({"name": "a", "size": 1 << 20, "datastore": "array", "vm": "web",
        "class": "gold"});
    control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    bench
}

fn all() -> [Thing; 6] {
    [
        Thing::Disk(name("a")),
        gold(),
        Thing::Tenant(name("red")),
        Thing::Vm(name("web")),
        Thing::Datastore(name("array")),
        Thing::Rules,
    ]
}

fn tags(bench: &Bench) -> Vec<Option<Etag>> {
    all().iter().map(|thing| bench.control.show_etag(thing)).collect()
}

/// Each change gives the tags of what it changes, and of nothing else, another value; what was
/// before has the tag that it had, and a restart changes none.
#[test]
fn a_tag_is_that_of_what_is_set() {
    let bench = bench();
    let (control, first) = (&bench.control, tags(&bench));
    assert!(first.iter().all(Option::is_some));
    let changed = |before: &[Option<Etag>]| -> Vec<usize> {
        let now = tags(&bench);
        (0..6).filter(|at| before[*at] != now[*at]).collect()
    };
    let disk = |patch| control.set_disk(&name("a"), serde_json::from_value(patch).unwrap());
    disk(json!({"shares": 7})).unwrap();
    assert_eq!(changed(&first), [0]);
    disk(json!({"inherit": ["shares"]})).unwrap();
    assert_eq!(changed(&first), [] as [usize; 0]);
    // Its class says another policy.
    control.set_class(&name("gold"), put(json!({"policy": {"limit": 600}}))).unwrap();
    assert_eq!(changed(&first), [0, 1]);
    control.set_class(&name("gold"), put(json!({"policy": {"limit": 500}}))).unwrap();
    let tenant = |patch| control.set_tenant(&name("red"), &serde_json::from_value(patch).unwrap());
    tenant(json!({"max_disks": 9})).unwrap();
    assert_eq!(changed(&first), [2]);
    tenant(json!({"max_disks": null})).unwrap();
    let vm = |patch| control.set_vm(&name("web"), &serde_json::from_value(patch).unwrap());
    vm(json!({"max_priority": 9})).unwrap();
    assert_eq!(changed(&first), [3]);
    vm(json!({"max_priority": 254})).unwrap();
    let store =
        |patch| control.set_datastore(&name("array"), serde_json::from_value(patch).unwrap());
    let depth = control.datastore(&name("array")).unwrap().queue_depth;
    store(json!({"queue_depth": 7, "window": {"min": 2}})).unwrap();
    assert_eq!(changed(&first), [4]);
    store(json!({"queue_depth": depth, "window": {"min": 4}})).unwrap();
    let rules = control.rules();
    control.set_rules(serde_json::from_value(json!({"balance": {"start": 222}})).unwrap()).unwrap();
    assert_eq!(changed(&first), [5]);
    control.set_rules(rules).unwrap();
    assert_eq!(changed(&first), [] as [usize; 0]);
    let bench = bench.restart();
    assert_eq!(tags(&bench), first);
    for tag in first.into_iter().flatten() {
        assert_eq!(tag.to_string().parse::<Etag>(), Ok(tag));
    }
    for wrong in ["", "\"", "\"\"", "abc", "\"12345678901234567890123456789012", "W/\"1\""] {
        assert!(wrong.parse::<Etag>().is_err(), "{wrong}");
    }
}

#[test]
fn the_second_of_two_who_edit_a_class_is_told_what_the_first_changed() {
    let bench = bench();
    let control = &bench.control;
    let tag = control.show_etag(&gold()).unwrap();
    let set = |limit: u64, tag: Etag| {
        let class = put(json!({"policy": {"limit": limit, "shares": limit}}));
        control.on_terms(seen(&gold(), tag), |control| control.set_class(&name("gold"), class))
    };
    set(600, tag).unwrap();
    let told = set(700, tag).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Stale);
    assert_eq!(
        told.to_string(),
        "class 'gold' was changed since it was looked at: policy.limit 500 -> 600, policy.shares \
         null -> 600"
    );
    assert!(told.hint().unwrap().contains("headgate class show gold"));
    let limit = |control: &Control| control.disk(&name("a")).unwrap().policy.limit.map(Iops::get);
    assert_eq!(limit(control), Some(600));
    // What is not remembered is said so, also after a restart.
    let bench = bench.restart();
    let control = &bench.control;
    let class = put(json!({"policy": {"limit": 700}}));
    let again = control
        .on_terms(seen(&gold(), tag), |control| control.set_class(&name("gold"), class.clone()));
    assert!(again.unwrap_err().to_string().contains("not known any more"));
    let tag = control.show_etag(&gold()).unwrap();
    control.on_terms(seen(&gold(), tag), |c| c.set_class(&name("gold"), class)).unwrap();
    assert_eq!(limit(control), Some(700));
}

/// Each of them is refused by the tag of before, and taken by that of now.
#[test]
fn every_change_of_a_thing_goes_by_its_tag() {
    type Change = fn(&Control) -> Result<(), ControlError>;
    let changes: [(usize, Change); 13] = [
        (0, |c| c.set_disk(&name("a"), patch!({"shares": 8})).map(drop)),
        (0, |c| c.remove_disk(&name("a"), Force::No, ImageFate::Remove)),
        (0, |c| c.remove_disk(&name("a"), Force::No, ImageFate::Purge)),
        (0, |c| c.remove_disk(&name("a"), Force::No, ImageFate::Keep)),
        (1, |c| c.set_class(&name("gold"), put(json!({"policy": {"limit": 9}}))).map(drop)),
        (1, |c| c.remove_class(&name("gold"), Force::Yes)),
        (2, |c| c.set_tenant(&name("red"), &patch!({"max_disks": 8})).map(drop)),
        (2, |c| c.remove_tenant(&name("red"))),
        (3, |c| c.set_vm(&name("web"), &patch!({"max_priority": 8})).map(drop)),
        (3, |c| c.reset_vm(&name("web"))),
        (4, |c| c.set_datastore(&name("array"), patch!({"queue_depth": 8})).map(drop)),
        (4, |c| c.remove_datastore(&name("array"))),
        (5, |c| c.set_rules(patch!({"balance": {"start": 333}})).map(drop)),
    ];
    for (at, (of, change)) in changes.into_iter().enumerate() {
        let bench = bench();
        let control = &bench.control;
        if at == 7 {
            control.reset_vm(&name("web")).unwrap();
        }
        if at == 11 {
            control.remove_disk(&name("a"), Force::No, ImageFate::Purge).unwrap();
        }
        let thing = all()[of].clone();
        let old = control.show_etag(&thing).unwrap();
        match of {
            0 => drop(control.set_disk(&name("a"), patch!({"shares": 5})).unwrap()),
            1 => drop(control.set_class(&name("gold"), put(json!({}))).unwrap()),
            2 => drop(control.set_tenant(&name("red"), &patch!({"max_disks": 5})).unwrap()),
            3 => drop(control.set_vm(&name("web"), &patch!({"max_priority": 5})).unwrap()),
            4 => drop(control.set_datastore(&name("array"), patch!({"queue_depth": 5})).unwrap()),
            _ => drop(control.set_rules(patch!({"balance": {"start": 111}})).unwrap()),
        }
        let now = control.show_etag(&thing).unwrap();
        let refused = control.on_terms(seen(&thing, old), change).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Stale, "{at}: {refused}");
        assert_eq!(control.show_etag(&thing), Some(now), "{at}");
        control.on_terms(seen(&thing, now), change).unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_ne!(control.show_etag(&thing), Some(now), "{at}");
    }
}

#[test]
fn what_is_gone_or_new_is_not_what_was_seen() {
    let bench = bench();
    let control = &bench.control;
    let (silver, none) = (Thing::Class(name("silver")), ClassPut::default());
    let on = |seen: Seen| Terms { seen: Some((silver.clone(), seen)), run: Run::Real };
    let make = |terms| control.on_terms(terms, |c| c.set_class(&name("silver"), none.clone()));
    let error = make(on(Seen::Existing)).unwrap_err().to_string();
    assert_eq!(error, "class 'silver' is not there, or not any more");
    make(on(Seen::Nothing)).unwrap();
    let error = make(on(Seen::Nothing)).unwrap_err().to_string();
    assert_eq!(error, "class 'silver' is there by now, made by somebody else");
    make(on(Seen::Existing)).unwrap();
}

/// Nothing changes a thing between the check and the change: while the first writer is at its
/// disks, the second one, who has seen the same, waits, and is told.
#[test]
fn of_two_writers_at_once_one_is_told() {
    let bench = bench();
    let tag = bench.control.show_etag(&gold()).unwrap();
    let set = |limit: u64| {
        let class = put(json!({"policy": {"limit": limit}}));
        bench.control.on_terms(seen(&gold(), tag), |c| c.set_class(&name("gold"), class))
    };
    let (began, end) = bench.plane.hold_next("set_policy");
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| set(600));
        began.recv().unwrap();
        let (about, comes) = channel();
        let second = scope.spawn(|| {
            let about = about;
            about.send(()).unwrap();
            set(700)
        });
        comes.recv().unwrap();
        // Nothing is concluded from this time: one that checks before it holds the catalog has it.
        std::thread::sleep(std::time::Duration::from_millis(50));
        end.send(()).unwrap();
        (first.join().unwrap(), second.join().unwrap())
    });
    first.unwrap();
    let limit = bench.control.disk(&name("a")).unwrap().policy.limit;
    assert_eq!(limit.map(Iops::get), Some(600));
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Stale);
}

#[test]
fn of_many_rounds_of_two_writers_each_has_one_winner() {
    let bench = bench();
    for round in 0..100 {
        let tag = bench.control.show_etag(&gold()).unwrap();
        let start = Barrier::new(2);
        let set = |limit: u64| {
            let class = put(json!({"policy": {"limit": limit}}));
            start.wait();
            let set = |control: &Control| control.set_class(&name("gold"), class);
            bench.control.on_terms(seen(&gold(), tag), set).is_ok()
        };
        let [first, second] = std::thread::scope(|scope| {
            let writers =
                [1_000 + round, 2_000 + round].map(|limit| scope.spawn(move || set(limit)));
            writers.map(|one| one.join().unwrap())
        });
        assert!(first != second, "round {round}: {first} {second}");
    }
}

/// Terms are those of the thread, and end with what is done on them, also by a panic.
#[test]
fn terms_end_with_what_is_done_on_them() {
    let dry = Terms { seen: None, run: Run::Dry };
    assert_eq!(run(), Run::Real);
    under(dry.clone(), || {
        assert_eq!(run(), Run::Dry);
        under(Terms::default(), || assert_eq!(run(), Run::Real));
        assert_eq!(run(), Run::Dry);
        assert_eq!(std::thread::spawn(run).join().unwrap(), Run::Real);
    });
    let panicked = std::panic::catch_unwind(|| under(dry, || panic!("on purpose")));
    assert!(panicked.is_err());
    assert_eq!(run(), Run::Real);
}
