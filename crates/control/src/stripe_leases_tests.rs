use crate::ControlError;
use crate::testing::Bench;
use headgate_api::leases::{DiskTakeover, LeasePlace};
use headgate_api::state::ServiceState;
use headgate_api::types::{Force, ImageFate};
use headgate_model::{Connection, ConnectionState, MemberContent, Name, ServerLeases};
use headgate_stripe::{HostName, Label, Lease};
use serde_json::{Value, json};

const EXPORTS: [&str; 2] = ["nbd://a:10809/x", "nbd://b:10809/x"];

fn wide() -> Name {
    "wide".parse().unwrap()
}

fn bench() -> Bench {
    let bench = Bench::new();
    let backend = json!({"stripe": ["nbd://a", "nbd://b"]});
    let request = json!({"name": "ab", "backend": backend});
    bench.control.add_datastore(serde_json::from_value(request).unwrap()).unwrap();
    bench
}

fn create(bench: &Bench, further: Value) -> Result<(), ControlError> {
    let mut request = json!({"name": "wide", "datastore": "ab", "export": "x"});
    request.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    bench.control.create_disk(serde_json::from_value(request).unwrap()).map(drop)
}

fn take_over(bench: &Bench, evict: Force, force: Force) -> Result<(), ControlError> {
    let request = DiskTakeover { evict, force, ..DiskTakeover::default() };
    bench.control.take_over(&wide(), request).map(drop)
}

fn leases(bench: &Bench) -> Vec<(u64, bool)> {
    let own = bench.control.leases.on_labels(0).host;
    bench.plane.labels().values().map(|l| (l.lease.number, l.lease.host == own)).collect()
}

/// Another host has written its lease to these members.
fn by_another(bench: &Bench, exports: &[&str], number: u64) {
    let lease = Lease { number, host: [0xEE; 16], name: HostName::new("gw2") };
    for export in exports {
        let label = Label { lease, ..bench.plane.labels()[*export] };
        bench.plane.put_content(export, MemberContent::Labelled(label));
    }
}

fn evict(bench: &Bench) {
    let connection = Connection {
        state: ConnectionState::Evicted,
        reason: Some("nbd://a:10809/: another host".into()),
        reconnects: 0,
        losses: 0,
        servers: Vec::new(),
    };
    bench.plane.put_connection("wide", connection);
    bench.control.look_at_leases();
}

#[test]
fn a_disk_that_is_made_is_held_and_one_that_leaves_is_given_back() {
    let bench = bench();
    create(&bench, json!({})).unwrap();
    assert_eq!(leases(&bench), [(1, true); 2]);
    let lease = bench.control.disk(&wide()).unwrap().lease.unwrap();
    assert_eq!((lease.place, lease.number), (LeasePlace::Labels, Some(1)));
    bench.control.remove_disk(&wide(), Force::No, ImageFate::Keep).unwrap();
    assert_eq!(leases(&bench), [(1, false); 2]);
    assert!(bench.plane.labels().values().all(|label| !label.lease.is_held()));
    // Whoever is next has a greater number.
    create(&bench, json!({})).unwrap();
    assert_eq!(leases(&bench), [(2, true); 2]);
}

#[test]
fn what_another_host_holds_is_taken_by_eviction_only() {
    for further in [json!({}), json!({"overwrite": "yes"})] {
        let bench = bench();
        create(&bench, json!({})).unwrap();
        by_another(&bench, &EXPORTS, 7);
        bench.control.remove_disk(&wide(), Force::No, ImageFate::Keep).unwrap();
        assert_eq!(leases(&bench), [(7, false); 2], "the label is not ours to change");
        let error = create(&bench, further.clone()).unwrap_err();
        assert!(error.to_string().contains("held by host 'gw2' (lease 7)"), "{error}");
        assert!(error.hint().unwrap().contains("--evict"), "{error}");
        assert_eq!(leases(&bench), [(7, false); 2]);
        let mut evict = further;
        evict["evict"] = "yes".into();
        create(&bench, evict).unwrap();
        assert_eq!(leases(&bench), [(8, true); 2]);
    }
}

#[test]
fn where_servers_cannot_end_its_connections_a_host_is_evicted_by_force_only() {
    let bench = bench();
    create(&bench, json!({})).unwrap();
    bench.plane.put_server_leases(ServerLeases::Unknown);
    by_another(&bench, &EXPORTS, 7);
    evict(&bench);
    let error = take_over(&bench, Force::Yes, Force::No).unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.contains("nbd://a:10809/ cannot end the connections of host 'gw2'"), "{hint}");
    assert_eq!(leases(&bench), [(7, false); 2]);
    take_over(&bench, Force::Yes, Force::Yes).unwrap();
    assert_eq!(leases(&bench), [(8, true); 2]);
}

#[test]
fn a_disk_that_was_taken_stops_and_is_taken_back_by_eviction() {
    let bench = bench();
    create(&bench, json!({})).unwrap();
    by_another(&bench, &EXPORTS, 2);
    evict(&bench);
    let disk = bench.control.disk(&wide()).unwrap();
    assert_eq!(disk.state, ServiceState::Evicted);
    assert!(disk.reason.unwrap().contains("another host"));
    assert_eq!(disk.lease.unwrap().number, None);
    let error = take_over(&bench, Force::No, Force::No).unwrap_err();
    assert!(error.to_string().contains("held by host 'gw2' (lease 2)"), "{error}");
    assert_eq!(bench.control.disk(&wide()).unwrap().state, ServiceState::Evicted);
    take_over(&bench, Force::Yes, Force::No).unwrap();
    assert_eq!(leases(&bench), [(3, true); 2]);
    let disk = bench.control.disk(&wide()).unwrap();
    assert_eq!((disk.state, disk.lease.unwrap().number), (ServiceState::Serving, Some(3)));
    // The catalog has it, too.
    let bench = bench.restart();
    assert_eq!(bench.control.disk(&wide()).unwrap().lease.unwrap().number, Some(3));
}

#[test]
fn a_disk_that_the_other_host_gave_back_is_taken_without_eviction() {
    let bench = bench();
    create(&bench, json!({})).unwrap();
    by_another(&bench, &EXPORTS, 2);
    evict(&bench);
    for export in EXPORTS {
        let label = bench.plane.labels()[export];
        let free = Label { lease: label.lease.given_back(), ..label };
        bench.plane.put_content(export, MemberContent::Labelled(free));
    }
    take_over(&bench, Force::No, Force::No).unwrap();
    assert_eq!(leases(&bench), [(3, true); 2]);
}

/// A takeover that was interrupted leaves members with different leases: the next one passes all.
#[test]
fn members_that_differ_in_their_leases_are_taken_with_a_number_above_all_of_them() {
    let bench = bench();
    create(&bench, json!({})).unwrap();
    by_another(&bench, &EXPORTS[1..], 9);
    evict(&bench);
    take_over(&bench, Force::No, Force::No).unwrap_err();
    take_over(&bench, Force::Yes, Force::No).unwrap();
    assert_eq!(leases(&bench), [(10, true); 2]);
}

#[test]
fn nothing_is_written_when_an_export_is_no_member_any_more() {
    let bench = bench();
    create(&bench, json!({})).unwrap();
    by_another(&bench, &EXPORTS[..1], 2);
    evict(&bench);
    bench.plane.put_content(EXPORTS[1], MemberContent::Nothing);
    let error = take_over(&bench, Force::Yes, Force::No).unwrap_err().to_string();
    assert!(error.contains("of nbd://b:10809/ is no member of disk 'wide' any more"), "{error}");
    assert_eq!(leases(&bench), [(2, false)]);
}
