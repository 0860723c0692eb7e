//! Striped disks whose making was cut: what their labels say decides.

use crate::ControlError;
use crate::crash::testing::killed_after;
use crate::testing::Bench;
use headgate_model::MemberContent;
use headgate_stripe::{HostName, Label, Lease, Stage, StripeId};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const EXPORTS: [&str; 3] = ["nbd://a:10809/x", "nbd://b:10809/x", "nbd://c:10809/x"];

fn add(bench: &Bench) {
    let backend = json!({"stripe": ["nbd://a", "nbd://b", "nbd://c"], "stripe_unit": 4096});
    let request = json!({"name": "abc", "backend": backend});
    bench.control.add_datastore(serde_json::from_value(request).unwrap()).unwrap();
}

fn bench() -> Bench {
    let bench = Bench::new();
    add(&bench);
    bench
}

fn create(bench: &Bench, further: Value) -> Result<(), ControlError> {
    let mut request = json!({"name": "wide", "datastore": "abc", "export": "x"});
    request.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    bench.control.create_disk(serde_json::from_value(request).unwrap()).map(drop)
}

/// The labels of a disk that is this host's and in no catalog, as they are when it is made.
fn made(bench: &Bench) -> [Label; 3] {
    create(bench, json!({"size": 1 << 20})).unwrap();
    let labels = EXPORTS.map(|export| bench.plane.labels()[export]);
    let name = "wide".parse().unwrap();
    let keep = headgate_api::types::ImageFate::Keep;
    bench.control.remove_disk(&name, Default::default(), keep).unwrap();
    labels
}

/// What is found on one export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    BeingMade,
    Made,
    /// By another host.
    BeingMadeElsewhere,
    /// Of another disk, by this host.
    OtherBeingMade,
    Other,
}

const ALL: [Found; 6] = [
    Found::Nothing,
    Found::BeingMade,
    Found::Made,
    Found::BeingMadeElsewhere,
    Found::OtherBeingMade,
    Found::Other,
];

fn content(found: Found, label: Label) -> MemberContent {
    let being_made = Label { stage: Stage::BeingMade, ..label };
    let elsewhere = Lease { number: 9, host: [0xEE; 16], name: HostName::new("gw2") };
    MemberContent::Labelled(match found {
        Found::Nothing => return MemberContent::Nothing,
        Found::Other => return MemberContent::Other("a file system".into()),
        Found::BeingMade => being_made,
        Found::Made => label,
        Found::BeingMadeElsewhere => Label { lease: elsewhere, ..being_made },
        Found::OtherBeingMade => Label { id: StripeId([9; 16]), ..being_made },
    })
}

/// What is to become of a creation, by the definition.
fn is_taken(found: [Found; 3]) -> bool {
    let has = |one: Found| found.contains(&one);
    let only = |some: &[Found]| found.iter().all(|one| some.contains(one));
    // All that is there are labels of one disk that nobody has served, or all labels of one.
    only(&[Found::Nothing, Found::BeingMade])
        || only(&[Found::Made, Found::BeingMade])
        || only(&[Found::Nothing, Found::OtherBeingMade]) && !has(Found::BeingMade)
}

#[test]
fn of_all_sets_of_labels_those_are_taken_that_nobody_can_have_written_to() {
    let bench = bench();
    let labels = made(&bench);
    let mut taken = 0;
    let sets = ALL.into_iter().flat_map(|a| ALL.into_iter().map(move |b| [a, b]));
    for set in sets.flat_map(|[a, b]| ALL.into_iter().map(move |c| [a, b, c])) {
        for ((export, found), label) in EXPORTS.iter().zip(set).zip(labels) {
            bench.plane.put_content(export, content(found, label));
        }
        let before = bench.plane.labels();
        let created = create(&bench, json!({}));
        assert_eq!(created.is_ok(), is_taken(set), "{set:?}: {created:?}");
        if created.is_err() {
            assert_eq!(bench.plane.labels(), before, "{set:?}: something was written");
            continue;
        }
        taken += 1;
        let now = bench.plane.labels();
        let lease = now[EXPORTS[0]].lease;
        assert!(now.values().all(|label| label.stage == Stage::Made && label.lease == lease));
        assert!(before.values().all(|label| label.lease.number < lease.number), "{set:?}");
        let id = before.values().next().map_or(now[EXPORTS[0]].id, |label| label.id);
        for (index, export) in (0..).zip(EXPORTS) {
            assert_eq!((now[export].id, now[export].index), (id, index), "{set:?}");
        }
        let keep = headgate_api::types::ImageFate::Keep;
        bench.control.remove_disk(&"wide".parse().unwrap(), Default::default(), keep).unwrap();
    }
    assert_eq!(taken, 8 + 7 + 7);
}

#[test]
fn what_was_begun_in_another_order_or_over_other_servers_is_not_taken() {
    let bench = bench();
    let labels = made(&bench);
    let being_made =
        |label: Label| MemberContent::Labelled(Label { stage: Stage::BeingMade, ..label });
    let put = |contents: [MemberContent; 3]| {
        EXPORTS.iter().zip(contents).for_each(|(at, what)| bench.plane.put_content(at, what));
    };
    let [a, b, _] = labels;
    put([being_made(b), being_made(a), MemberContent::Nothing]);
    let error = create(&bench, json!({})).unwrap_err().to_string();
    assert!(error.contains("expected member 0"), "{error}");
    // The size is that which was asked for at first.
    put([being_made(a), being_made(b), MemberContent::Nothing]);
    let error = create(&bench, json!({"size": 1 << 21})).unwrap_err().to_string();
    assert!(error.contains("of 1048576 bytes, and 2097152 were asked for"), "{error}");
    let lease = Lease { number: 9, host: [0xEE; 16], name: HostName::new("gw2") };
    let elsewhere = |label: Label| being_made(Label { lease, ..label });
    put([elsewhere(a), elsewhere(b), MemberContent::Nothing]);
    let error = create(&bench, json!({})).unwrap_err().to_string();
    assert!(error.contains("which host 'gw2' began to make and did not finish"), "{error}");
    let error = create(&bench, json!({"overwrite": "yes"})).unwrap_err().to_string();
    assert!(error.contains("held by host 'gw2' (lease 9)"), "{error}");
    create(&bench, json!({"overwrite": "yes", "evict": "yes"})).unwrap();
    assert!(bench.plane.labels().values().all(|label| label.lease.number == 10));
}

/// By other addresses the catalog would not know the exports.
#[test]
fn the_labels_of_a_disk_that_is_known_make_no_second_one() {
    let bench = bench();
    create(&bench, json!({"size": 1 << 20})).unwrap();
    let backend = json!({"stripe": ["nbd://1", "nbd://2", "nbd://3"], "stripe_unit": 4096});
    let request = json!({"name": "numbers", "backend": backend});
    bench.control.add_datastore(serde_json::from_value(request).unwrap()).unwrap();
    let labels: BTreeMap<String, Label> = bench.plane.labels();
    for (host, label) in (1..).zip(labels.values()) {
        let export = format!("nbd://{host}:10809/x");
        bench.plane.put_content(&export, MemberContent::Labelled(*label));
    }
    let other = json!({"name": "other", "datastore": "numbers"});
    let error = create(&bench, other).unwrap_err().to_string();
    assert!(error.contains("are disk 'wide' here already, by their labels"), "{error}");
    assert!(bench.plane.labels().values().all(|label| label.lease.number == 1));
}

#[test]
fn a_creation_that_was_cut_at_any_label_is_made_again_without_overwriting() {
    for instant in 0.. {
        let bench = bench();
        let killed = killed_after(instant, || create(&bench, json!({"size": 1 << 20})));
        assert_eq!(killed, (instant < 6).then_some("member labelled"), "{instant}");
        let labels = bench.plane.labels();
        assert_eq!(labels.len(), (instant + 1).min(3));
        let finished = labels.values().filter(|label| label.stage == Stage::Made).count();
        assert_eq!(finished, (instant + 1).saturating_sub(3).min(3));
        let bench = Bench::start_again(bench.killed());
        for (export, label) in &labels {
            bench.plane.put_content(export, MemberContent::Labelled(*label));
        }
        let known = bench.control.disks().unwrap();
        if killed.is_none() {
            assert_eq!(known.len(), 1, "a disk that was made is gone");
            break;
        }
        assert!(known.is_empty(), "{instant}: {known:?}");
        create(&bench, json!({"size": 1 << 20})).unwrap();
        let now = bench.plane.labels();
        let id = labels.values().next().unwrap().id;
        assert!(now.values().all(|label| label.stage == Stage::Made && label.id == id));
        assert!(now.values().all(|label| label.lease.number == 2), "{now:?}");
    }
}

#[test]
fn a_creation_that_fails_at_a_label_is_made_again_without_overwriting() {
    let bench = bench();
    bench.plane.break_down("label_member");
    create(&bench, json!({})).unwrap_err();
    assert!(bench.control.disks().unwrap().is_empty());
    bench.plane.repair();
    create(&bench, json!({})).unwrap();
}
