use crate::testing::Bench;
use crate::{ControlError, ErrorKind};
use headgate_api::tenants::{Tenant, Usage};
use headgate_api::types::Changed;
use headgate_model::Name;
use headgate_units::Bytes;
use serde_json::{Value, json};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn tenant(bench: &Bench, tenant: &str, patch: Value) -> Result<Changed<Tenant>, ControlError> {
    bench.control.set_tenant(&name(tenant), &serde_json::from_value(patch).unwrap())
}

fn vm(bench: &Bench, vm: &str, patch: Value) -> Result<(), ControlError> {
    bench.control.set_vm(&name(vm), &serde_json::from_value(patch).unwrap()).map(drop)
}

fn create(bench: &Bench, disk: &str, vm: &str, further: Value) -> Result<(), ControlError> {
    let mut request = json!({"name": disk, "size": 1 << 20, "datastore": "array", "vm": vm});
    request.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    bench.control.create_disk(serde_json::from_value(request).unwrap()).map(drop)
}

fn set(bench: &Bench, disk: &str, patch: Value) -> Result<(), ControlError> {
    bench.control.set_disk(&name(disk), serde_json::from_value(patch).unwrap()).map(drop)
}

fn refused(result: Result<impl Sized, ControlError>) -> String {
    let error = result.err().expect("it should be refused");
    assert!(matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid), "{error}");
    error.to_string()
}

/// A tenant of two machines with a disk each on the 1,600-IOPS array, and a disk of nobody's.
fn red() -> Bench {
    let bench = Bench::new();
    tenant(&bench, "red", json!({"reservation": 600})).unwrap();
    for machine in ["web", "db"] {
        vm(&bench, machine, json!({"tenant": "red"})).unwrap();
        create(&bench, machine, machine, json!({})).unwrap();
    }
    create(&bench, "other", "lone", json!({})).unwrap();
    bench
}

fn reserved(bench: &Bench) -> u64 {
    bench.control.datastore(&name("array")).unwrap().reserved_iops
}

type InForce = Vec<(Option<u32>, Option<u64>, Vec<String>)>;

fn of(disks: &[&str]) -> Vec<String> {
    disks.iter().map(|disk| (*disk).to_owned()).collect()
}

#[test]
fn what_is_promised_together_is_in_force_and_survives_a_restart() {
    let bench = red();
    let tenant_alone: InForce = vec![(None, Some(600), of(&["db", "web"]))];
    assert_eq!(bench.plane.groups("array"), tenant_alone);
    vm(&bench, "web", json!({"reservation": 200, "shares": 3000})).unwrap();
    let both: InForce = vec![(None, Some(600), of(&["db"])), (Some(0), Some(200), of(&["web"]))];
    assert_eq!(bench.plane.groups("array"), both);
    assert_eq!(bench.plane.groups("default"), vec![], "nobody of red's is there");
    let bench = bench.restart();
    assert_eq!(bench.plane.groups("array"), both);
    let shown = bench.control.tenant(&name("red")).unwrap();
    let promised = (shown.datastores[0].promised_iops, shown.datastores[0].inside_iops);
    assert_eq!((shown.vms, promised), (vec![name("db"), name("web")], (600, 200)));
    // A disk of another machine, and a machine of nobody's.
    set(&bench, "other", json!({"vm": "web"})).unwrap();
    assert_eq!(bench.plane.groups("array")[1].2, of(&["other", "web"]));
    vm(&bench, "web", json!({"tenant": null})).unwrap();
    let apart: InForce =
        vec![(None, Some(600), of(&["db"])), (None, Some(200), of(&["other", "web"]))];
    assert_eq!(bench.plane.groups("array"), apart);
    bench.control.reset_vm(&name("web")).unwrap();
    bench.control.reset_vm(&name("db")).unwrap();
    assert_eq!(bench.plane.groups("array"), vec![]);
    bench.control.remove_tenant(&name("red")).unwrap();
    assert_eq!(bench.control.tenants(), vec![]);
}

/// What disks are promised counts towards what their tenant is: the datastore has promised the
/// larger of both.
#[test]
fn what_is_in_a_group_counts_towards_its_reservation() {
    let bench = red();
    assert_eq!(reserved(&bench), 600);
    set(&bench, "web", json!({"reservation": 500})).unwrap();
    assert_eq!(reserved(&bench), 600);
    set(&bench, "other", json!({"reservation": 1000})).unwrap();
    assert_eq!(reserved(&bench), 1_600);
    set(&bench, "db", json!({"reservation": 100})).unwrap();
    let error = refused(set(&bench, "db", json!({"reservation": 101})));
    assert!(error.contains("does not fit on datastore 'array'"), "{error}");
    let error = refused(tenant(&bench, "red", json!({"reservation": 700})));
    assert_eq!(
        error,
        "the promises do not fit: datastore 'array' can promise 1600 IOPS, has promised 1600, and \
         would have promised 1700: 100 too many, for its groups"
    );
    assert_eq!(reserved(&bench), 1_600);
    tenant(&bench, "red", json!({"reservation": 700, "force": "yes"})).unwrap();
    assert_eq!(reserved(&bench), 1_700);
}

#[test]
fn a_limit_below_what_is_promised_inside_is_refused_with_the_group_and_figures() {
    let bench = red();
    set(&bench, "web", json!({"reservation": 500})).unwrap();
    let limit = |limit: u64| tenant(&bench, "red", json!({"reservation": null, "limit": limit}));
    assert_eq!(
        refused(limit(400)),
        "tenant 'red' would promise 500 IOPS to what is in it on datastore 'array', 100 more than \
         its limit of 400 IOPS"
    );
    assert_eq!(bench.plane.groups("array")[0].1, Some(600), "all is as it was");
    limit(600).unwrap();
    for error in [
        refused(set(&bench, "db", json!({"reservation": 101}))),
        refused(create(&bench, "new", "web", json!({"policy": {"reservation": 101}}))),
        refused(vm(&bench, "db", json!({"reservation": 101}))),
        refused(vm(&bench, "db", json!({"limit": 50, "reservation": 60}))),
    ] {
        let words = ["tenant 'red' would promise 601 IOPS", "above the limit of 50 IOPS"];
        assert!(words.iter().any(|words| error.contains(words)), "{error}");
    }
    // A class is judged with all of its disks.
    let class = json!({"policy": {"reservation": 301}});
    bench.control.set_class(&name("gold"), serde_json::from_value(class).unwrap()).unwrap();
    set(&bench, "web", json!({"class": "gold", "inherit": ["reservation"]})).unwrap();
    let error = refused(set(&bench, "db", json!({"class": "gold"})));
    assert!(error.contains("would promise 602 IOPS"), "{error}");
}

/// Each way to have one disk more, a larger one, or more reserved.
#[test]
fn nothing_grows_beyond_a_quota_by_whatever_way() {
    let bench = red();
    let quota = json!({"max_disks": 2, "max_space": 3 << 20, "max_reserved": 700});
    tenant(&bench, "red", quota).unwrap();
    let three = "tenant 'red' would have 3 disks, and may have 2";
    assert_eq!(refused(create(&bench, "new", "web", json!({}))), three);
    assert_eq!(refused(set(&bench, "other", json!({"vm": "web"}))), three);
    assert_eq!(refused(vm(&bench, "lone", json!({"tenant": "red"}))), three);
    let documents = json!({"set": "s", "disks": [
        {"name": "new", "size": 1 << 20, "datastore": "array", "vm": "web"}]});
    let apply = serde_json::from_value(documents).unwrap();
    assert_eq!(refused(bench.control.apply(&apply)), three);
    let resize = |size: u64| {
        let request = serde_json::from_value(json!({"size": size})).unwrap();
        bench.control.resize_disk(&name("web"), request)
    };
    assert_eq!(
        refused(resize((2 << 20) + 4096)),
        "tenant 'red' would have 3 MiB in its disks, and may have 3 MiB"
            .replace("3 MiB in", &format!("{} in", Bytes((3 << 20) + 4096)))
    );
    resize(2 << 20).unwrap();
    set(&bench, "web", json!({"reservation": 400})).unwrap();
    let reserved = "tenant 'red' would have 701 IOPS reserved, and may have 700 IOPS";
    assert_eq!(refused(set(&bench, "db", json!({"reservation": 301}))), reserved);
    let class = json!({"policy": {"reservation": 301}});
    bench.control.set_class(&name("gold"), serde_json::from_value(class).unwrap()).unwrap();
    assert_eq!(refused(set(&bench, "db", json!({"class": "gold"}))), reserved);
    // Removed and brought back, when another has its place.
    let keep = headgate_api::types::ImageFate::Remove;
    bench.control.remove_disk(&name("db"), Default::default(), keep).unwrap();
    create(&bench, "new", "web", json!({})).unwrap();
    let restore = serde_json::from_value(json!({})).unwrap();
    assert_eq!(refused(bench.control.restore_disk("db", restore)), three);
    let usage = bench.control.tenant(&name("red")).unwrap().usage;
    assert_eq!(usage, Usage { disks: 2, size: Bytes(3 << 20), reserved_iops: 400 });
    // A quota below what there is takes nothing away.
    let lower = tenant(&bench, "red", json!({"max_disks": 1})).unwrap();
    assert!(lower.warnings[0].contains("has more than its quota already"), "{lower:?}");
    set(&bench, "web", json!({"reservation": 300})).unwrap();
}

#[test]
fn what_has_no_rule_beside_groups_is_refused_from_both_sides() {
    let bench = red();
    let rule = "which has no rule beside the promises of tenant 'red' there";
    let datastore = |patch: Value| {
        let patch = serde_json::from_value(patch).unwrap();
        bench.control.set_datastore(&name("array"), patch).map(drop)
    };
    let tries: [&dyn Fn() -> Result<(), ControlError>; 4] = [
        &|| set(&bench, "other", json!({"limit": 100, "limit_mode": "soft"})),
        &|| set(&bench, "web", json!({"limit_read": 100})),
        &|| vm(&bench, "lone", json!({"priority_scope": "across"})),
        &|| datastore(json!({"plug_ns": 1000})),
    ];
    for attempt in tries {
        let error = refused(attempt());
        assert!(error.contains(rule), "{error}");
    }
    tenant(&bench, "red", json!({"reservation": null})).unwrap();
    for (at, attempt) in tries.iter().enumerate() {
        attempt().unwrap_or_else(|e| panic!("{at}: {e}"));
    }
    let error = refused(tenant(&bench, "red", json!({"limit": 500})));
    assert!(error.contains("datastore 'array' has a plug"), "{error}");
    // A quota alone makes no group.
    tenant(&bench, "red", json!({"max_disks": 5})).unwrap();
}

#[test]
fn a_shard_that_does_not_confirm_leaves_all_as_it_was() {
    let bench = red();
    let before = (bench.plane.groups("array"), bench.control.tenants());
    bench.plane.break_down("set_groups");
    tenant(&bench, "red", json!({"reservation": 700})).unwrap_err();
    vm(&bench, "web", json!({"limit": 100})).unwrap_err();
    set(&bench, "other", json!({"vm": "web"})).unwrap_err();
    bench.plane.repair();
    assert_eq!((bench.plane.groups("array"), bench.control.tenants()), before);
    assert_eq!(bench.control.disk(&name("other")).unwrap().vm, Some(name("lone")));
    let bench = bench.restart();
    assert_eq!((bench.plane.groups("array"), bench.control.tenants()), before);
}

#[test]
fn tenants_are_removed_after_their_machines() {
    let bench = red();
    let error = refused(bench.control.remove_tenant(&name("red")));
    assert_eq!(error, "2 virtual machine(s) belong to tenant 'red': db, web");
    let error = vm(&bench, "web", json!({"tenant": "blue"})).unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), {
        (ErrorKind::Missing, "there is no tenant 'blue'")
    });
    let error = tenant(&bench, "red", json!({"limit": 500})).unwrap_err();
    assert!(error.to_string().contains("a reservation of 600 IOPS is above the limit of 500 IOPS"));
}
