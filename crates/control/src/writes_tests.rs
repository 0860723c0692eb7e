//! Disks that clients may not write.

use crate::ErrorKind;
use crate::testing::Bench;
use headgate_model::{Name, Writes};
use serde_json::json;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn a_disk_is_read_only_when_nobody_was_told_otherwise() {
    let bench = Bench::new();
    let control = &bench.control;
    let create = |body| control.create_disk(serde_json::from_value(body).unwrap()).unwrap().now;
    let golden = create(json!({"name": "golden", "size": 4096, "read_only": true}));
    assert!(golden.read_only && bench.plane.writes("golden") == Writes::Refused);
    let disk = create(json!({"name": "disk", "size": 4096}));
    assert!(!disk.read_only && bench.plane.writes("disk") == Writes::Allowed);
    let set = |read_only: bool| {
        let patch = serde_json::from_value(json!({"read_only": read_only, "shares": 7})).unwrap();
        control.set_disk(&name("disk"), patch)
    };
    bench.plane.connect("disk", 2);
    let error = set(true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("2 client(s)"), "{error}");
    let now = control.disk(&name("disk")).unwrap();
    assert!(!now.read_only && now.policy.shares.get() != 7, "nothing of it is done");
    // What says nothing new is no matter of theirs.
    set(false).unwrap();
    bench.plane.connect("disk", 0);
    bench.plane.break_down("set_policy");
    let patch = serde_json::from_value(json!({"read_only": true, "shares": 8})).unwrap();
    control.set_disk(&name("disk"), patch).unwrap_err();
    assert_eq!(bench.plane.writes("disk"), Writes::Allowed, "taken back");
    bench.plane.repair();
    assert!(set(true).unwrap().now.read_only);
    let bench = bench.restart();
    for disk in ["golden", "disk"] {
        assert!(bench.control.disk(&name(disk)).unwrap().read_only);
        assert_eq!(bench.plane.writes(disk), Writes::Refused);
    }
}
