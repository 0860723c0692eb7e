//! Who looks after things rests while there is nothing to look after, and is rung up when there is.

use crate::leases::{LOOK, Next, TERMS};
use crate::testing::Bench;
use crate::to_tend::ToTend;
use headgate_api::types::{Force, ImageFate};
use headgate_model::Name;
use proptest::prelude::*;
use serde_json::json;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A disk in memory, on an emulated array with a directory, or in files.
    Create(&'static str),
    /// The same, where it cannot be opened.
    CreateInVain(&'static str),
    Remove,
    /// A thread comes to its turn.
    Turn,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let on = prop_oneof![Just("ram"), Just("array"), Just("default")];
    let step = prop_oneof![
        3 => on.clone().prop_map(Step::Create),
        1 => on.prop_map(Step::CreateInVain),
        3 => Just(Step::Remove),
        4 => Just(Step::Turn),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..12)
}

/// What each thread looks after, by a look at everything: whether there is anything.
fn plain(bench: &Bench) -> [bool; 3] {
    let (control, leases) = (&bench.control, bench.control.leases());
    let to_tend = ToTend::of(&control.model(), |backend| control.directory(backend));
    let has_files = !leases.directories().is_empty();
    [to_tend != ToTend::default() || leases.wants_any(), has_files, false]
}

/// The turns of all threads, and how often the bell was rung before them.
fn turn(bench: &Bench) -> ([Next; 3], u64) {
    let (control, rung) = (&bench.control, bench.control.bell().rung());
    ([control.tend(), control.look_at_leases(), control.keep_terms()], rung)
}

fn act(mut bench: Bench, step: Step, made: &mut Vec<Name>) -> Bench {
    let create = |bench: &Bench, made: &mut Vec<Name>, on| {
        let name = format!("d{}", made.len());
        let disk = json!({"name": name, "datastore": on, "size": 1 << 20});
        if bench.control.create_disk(serde_json::from_value(disk).unwrap()).is_ok() {
            made.push(name.parse().unwrap());
        }
    };
    match step {
        Step::Create(on) => create(&bench, made, on),
        Step::CreateInVain(on) => {
            bench.plane.break_down("open");
            create(&bench, made, on);
            bench.plane.repair();
        }
        Step::Remove => {
            if let Some(disk) = made.pop() {
                let _ = bench.control.remove_disk(&disk, Force::No, ImageFate::Remove);
            }
        }
        Step::Turn => {}
        Step::Restart => bench = bench.restart(),
    }
    bench
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Against a look at all that there is, at any time.
    #[test]
    fn nobody_rests_who_has_to_look_unless_he_was_rung_up(steps in steps()) {
        let mut bench = Bench::new();
        let ram = json!({"name": "ram", "backend": {"memory": 1 << 30}});
        bench.control.add_datastore(serde_json::from_value(ram).unwrap()).unwrap();
        let mut made = Vec::new();
        let (mut next, mut rung) = turn(&bench);
        for step in steps {
            bench = act(bench, step, &mut made);
            if matches!(step, Step::Turn | Step::Restart) {
                (next, rung) = turn(&bench);
            }
            for (next, has_to) in next.into_iter().zip(plain(&bench)) {
                if has_to && next == Next::WhenRung {
                    prop_assert_ne!(bench.control.bell().rung(), rung);
                }
            }
        }
    }
}

#[test]
fn who_has_nothing_to_look_after_rests() {
    let bench = Bench::new();
    let control = &bench.control;
    let ram = json!({"name": "ram", "backend": {"memory": 1 << 30}});
    control.add_datastore(serde_json::from_value(ram).unwrap()).unwrap();
    let create = |name: &str, on: &str| {
        let disk = json!({"name": name, "datastore": on, "size": 1 << 20});
        control.create_disk(serde_json::from_value(disk).unwrap()).unwrap();
    };
    create("still", "ram");
    assert_eq!(turn(&bench).0, [Next::WhenRung; 3]);
    assert_eq!(control.carry_out(), Next::WhenRung);
    let rung = control.bell().rung();
    assert_eq!(turn(&bench).0, [Next::WhenRung; 3]);
    assert_eq!(control.bell().rung(), rung, "a turn without work rings nobody up");

    create("emulated", "array");
    assert_ne!(control.bell().rung(), rung, "its directory is to be asked");
    assert_eq!(turn(&bench).0, [Next::After(LOOK), Next::WhenRung, Next::WhenRung]);
    create("filed", "default");
    assert_eq!(turn(&bench).0, [Next::After(LOOK), Next::After(LOOK), Next::WhenRung]);
}

#[test]
fn a_reserved_device_is_looked_after() {
    let bench = Bench::new();
    let leases = bench.control.leases();
    let rung = bench.control.bell().rung();
    let key = headgate_cluster::fence::FenceKey::new(
        headgate_cluster::HostId([1; 16]),
        1,
        headgate_cluster::fence::Cover::Nothing,
    );
    let name: Name = "db".parse().unwrap();
    let _refused = leases.fences().hold_for_test(&name, key, bench.temp.path());
    assert_ne!(bench.control.bell().rung(), rung);
    let (next, _) = turn(&bench);
    assert_eq!((next[1], next[2]), (Next::After(LOOK), Next::After(TERMS)));
}
