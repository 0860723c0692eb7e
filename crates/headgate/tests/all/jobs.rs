//! What runs inside the daemon: calibration and the demonstration; and the load generator beside
//! it.

use crate::support::{Daemon, HEADGATE};
use std::process::{Command, Stdio};

#[test]
fn calibration_measures_an_array_and_leaves_nothing_behind() {
    let daemon = Daemon::start(&[]);
    daemon.ok("datastore add array --emulated rate=1600");
    let done = daemon.json("datastore calibrate array --seconds 6");
    assert_eq!(done["state"], "done");
    let capacity = &daemon.json("datastore show array")["capacity"];
    assert_eq!(capacity, &done["capacity"]);
    assert_eq!(capacity["source"], "measured");
    // No machine makes the model faster than it is.
    let iops = capacity["iops"].as_u64().unwrap();
    assert!((1..=1_700).contains(&iops), "{capacity}");
    assert_eq!(std::fs::read_dir(daemon.dir().join("emulated/array")).unwrap().count(), 0);
    assert_eq!(daemon.json("disk list"), serde_json::json!([]));
}

#[test]
fn calibration_is_stopped_by_ctrl_c_and_changes_nothing_then() {
    let daemon = Daemon::start(&[]);
    daemon.ok("datastore add array --emulated rate=1600");
    let child = Command::new(HEADGATE)
        .args(["datastore", "calibrate", "array"])
        .env("HEADGATE_STATE_DIR", daemon.dir())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Signals are caught before the calibration is asked for.
    while daemon.json_of("/v1/datastores/array/calibration").is_none() {
        std::thread::yield_now();
    }
    // SAFETY: a signal to a child that was not waited for yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("was stopped: its capacity is as it was"), "{said}");
    assert_eq!(daemon.json("datastore show array")["capacity"]["source"], "model");
}

#[test]
fn what_cannot_be_measured_is_refused_with_advice() {
    let daemon = Daemon::start(&[]);
    daemon.ok("datastore add nothing --emulated null");
    let refused = daemon.run("datastore calibrate nothing");
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("has no storage to measure") && refused.err.contains("--capacity"),
        "{}",
        refused.err
    );
}

#[test]
fn the_demonstration_shows_its_disks_at_work_and_wants_a_new_directory() {
    let mut daemon = Daemon::start(&["--demo"]);
    let at_work = |top: &serde_json::Value| {
        top["datastores"][0]["load"]["iops"].as_f64().is_some_and(|iops| iops > 0.0)
    };
    let top = std::iter::repeat_with(|| daemon.json("top")).find(at_work).unwrap();
    let array = &top["datastores"][0];
    assert_eq!((&array["name"], &array["capacity_iops"]), (&"array".into(), &1600.into()));
    let disks = array["disks"].as_array().unwrap();
    let find = |name: &str| disks.iter().find(|d| d["name"] == name).unwrap();
    assert!(disks.len() >= 3 && find("RD")["clients"] == 1, "{top}");
    assert_eq!(find("OLTP")["policy"]["reservation"], 250);
    assert_eq!(find("DM")["policy"]["limit"], 1000);
    let busy = daemon.run("datastore calibrate array");
    assert!(busy.code == 1 && busy.err.contains("are in use"), "{}", busy.err);
    let once = daemon.ok("top --once");
    assert!(once.contains("array") && once.contains("OLTP"), "{once}");

    assert_eq!(daemon.end(libc::SIGTERM), Some(0));
    let again = daemon.run("serve --demo");
    assert_eq!(again.code, 1);
    assert!(
        again.err.contains("the demonstration adds its own datastore and disks to a new one only"),
        "{}",
        again.err
    );
    daemon.start_again();
    assert_eq!(daemon.json("disk show RD")["state"], "serving");
}

#[test]
fn the_load_generator_loads_the_daemons_disks() {
    let daemon = Daemon::start(&[]);
    daemon.ok("disk create a --size 8M");
    let uri = daemon.ok("disk attach a --nbd");
    let socket = daemon.json("disk show a")["vhost_socket"].as_str().unwrap().to_owned();
    let report = daemon.json(&format!("load {} --ios 200 --depth 4", uri.trim()));
    assert!(report["total"].is_object() && report["errors"] == 0, "{report}");
    assert!(std::path::Path::new(&socket).exists());
    let usage = daemon.run("load not-a-target");
    assert_ne!(usage.code, 0);
}

/// Normalised IOs dispatched to a disk so far, and the shard's time of that.
fn served(daemon: &Daemon, disk: &str) -> (f64, f64) {
    let stats = daemon.json_of("/v1/stats").unwrap();
    let disks =
        stats.as_array().unwrap().iter().flat_map(|store| store["disks"].as_array().unwrap());
    let stats = &disks.into_iter().find(|d| d["name"] == disk).unwrap()["stats"];
    let cost =
        ["reservation_cost", "weight_cost"].map(|phase| stats["served"][phase].as_f64().unwrap());
    (cost.iter().sum::<f64>() / 1e6, stats["at"].as_f64().unwrap() / 1e9)
}

#[test]
fn a_limit_changed_under_load_binds_from_the_answer_on() {
    let daemon = Daemon::start(&[]);
    daemon.ok("datastore add array --emulated rate=5000");
    daemon.ok("disk create a --size 8M --datastore array");
    let uri = daemon.ok("disk attach a --nbd");
    let mut load = Command::new(HEADGATE)
        .args(["load", uri.trim(), "--read-percent", "100", "--depth", "32", "--seconds", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while served(&daemon, "a").0 == 0.0 {
        std::thread::yield_now();
    }
    for limit in [400.0, 50.0, 200.0] {
        daemon.ok(&format!("disk set a --limit {limit}"));
        let (before, from) = served(&daemon, "a");
        let (mut after, mut to) = (before, from);
        while to - from < 1.0 {
            (after, to) = served(&daemon, "a");
        }
        // The slack for late dispatches, and one IO, are on top.
        let most = limit * (to - from + 0.02) + 2.0;
        assert!(
            after - before <= most,
            "{} IOs in {} s under a limit of {limit}",
            after - before,
            to - from
        );
        assert!(after > before, "nothing was served under a limit of {limit}");
    }
    let _ = load.kill();
    let _ = load.wait();
}
