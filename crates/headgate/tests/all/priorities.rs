//! Applications' priorities through the whole daemon: set, kept, read from requests, counted.

use crate::support::Daemon;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Slow enough that 64 requests outstanding are more than a quarter of a second ahead of a client
/// that gets no CPU.
fn emulated(daemon: &Daemon) {
    daemon.ok("datastore add array --emulated rate=400,depth=8 --queue-depth 8");
}

/// Requests that each priority of a disk got, as the metrics have them.
fn by_priority(daemon: &Daemon, disk: &str) -> Vec<(String, f64)> {
    let (_, text) = daemon.http("GET", "/metrics", "");
    let head = format!(
        "headgate_disk_priority_ios_total{{datastore=\"array\",disk=\"{disk}\",priority=\""
    );
    let counted = text.lines().filter_map(|line| {
        let (band, value) = line.strip_prefix(&head)?.split_once("\"} ")?;
        Some((band.to_owned(), value.parse().unwrap()))
    });
    counted.collect()
}

/// Runs `load` on a disk, and compares the part of 2,000 requests that each of `expected` got,
/// within 10 %: (band, part). All of them are counted while clients keep requests outstanding: what
/// they have outstanding at the end is served whatever its priority.
fn divides(daemon: &Daemon, disk: &str, load: &str, expected: &[(&str, f64)]) {
    let load = format!("load {load} --depth 64 --seconds 12");
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| daemon.ok(&load));
        let from = reached(daemon, disk, 400.0);
        let to = reached(daemon, disk, total(&from) + 2_000.0);
        assert!(!clients.is_finished(), "too slow to say anything: {from:?}, {to:?}");
        assert_eq!(to.len(), expected.len(), "{to:?}");
        let all = total(&to) - total(&from);
        for ((band, ios), (name, part)) in to.iter().zip(expected) {
            assert_eq!(band, name, "{to:?}");
            let before = from.iter().find(|(other, _)| other == band).map_or(0.0, |(_, ios)| *ios);
            let got = (ios - before) / all;
            assert!((got / part - 1.0).abs() < 0.1, "{band}: {got} of {part}: {from:?}, {to:?}");
        }
    });
}

fn total(counts: &[(String, f64)]) -> f64 {
    counts.iter().map(|(_, ios)| ios).sum()
}

/// The requests by priority once there are so many.
fn reached(daemon: &Daemon, disk: &str, ios: f64) -> Vec<(String, f64)> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let counts = by_priority(daemon, disk);
        if total(&counts) >= ios {
            return counts;
        }
        assert!(Instant::now() < deadline, "{ios} requests were not reached: {counts:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_plug_is_set_kept_and_bounded() {
    let mut daemon = Daemon::start(&[]);
    daemon.ok("datastore add array --emulated rate=2000 --plug 200us");
    assert_eq!(daemon.json("datastore show array")["plug_ns"], 200_000);
    assert!(daemon.ok("datastore show array").contains("plug:         200.00 us\n"));
    daemon.ok("datastore set array --plug 1ms");
    daemon.restart(libc::SIGKILL);
    assert_eq!(daemon.json("datastore show array")["plug_ns"], 1_000_000);
    for (line, says) in [
        ("datastore set array --plug 2ms", "a plug of 2.00 ms is too long"),
        ("datastore set array --plug 100", "such as 100us"),
        ("datastore set array", "--plug"),
    ] {
        let printed = daemon.run(line);
        assert_eq!(printed.code, 2, "{line}: {}", printed.err);
        assert!(printed.err.contains(says), "{line}: {}", printed.err);
    }
    daemon.ok("datastore set array --plug 0us");
    assert!(!daemon.ok("datastore show array").contains("plug"));
}

#[test]
fn what_is_set_for_a_vm_is_in_force_at_once_and_after_a_restart() {
    let mut daemon = Daemon::start(&[]);
    emulated(&daemon);
    daemon.ok("disk create a --size 16M --datastore array --vm web");
    let set = daemon.json(
        "vm set web --max-priority 150 --default-priority 50 --priority-scope across --nice ignore",
    );
    assert_eq!((&set["max_priority"], &set["priority_scope"]), (&150.into(), &"across".into()));
    daemon.ok("vm set web --ioprio-map be7=20,idle=1");
    let priorities = |daemon: &Daemon| daemon.json("disk show a")["effective_priorities"].clone();
    let expected: Value = serde_json::from_str(
        r#"{"max_priority": 150, "default_priority": 50, "priority_scope": "across", "nice": "ignore",
            "ioprio_map": "be7=20,idle=1"}"#,
    )
    .unwrap();
    assert_eq!(priorities(&daemon), expected);
    daemon.restart(libc::SIGKILL);
    assert_eq!(priorities(&daemon), expected);
    let list = daemon.ok("vm list");
    assert!(list.contains("web       1  16 MiB         0        50      150  across"), "{list}");
    assert!(daemon.ok("vm show web").contains("ioprio map:         be7=20,idle=1\n"));
    daemon.ok("vm reset web");
    assert_eq!(priorities(&daemon)["max_priority"], 254);
    for (line, code, says) in [
        ("vm set web --max-priority 0", 2, "from 1 to 254"),
        ("vm set web --max-priority 255", 2, "from 1 to 254"),
        ("vm set web --priority-scope host", 2, "within, across"),
        ("vm set web --ioprio-map be4=1", 2, "default priority stands for it"),
        ("vm set web --ioprio-map rt9=1", 2, "CLASS=PRIORITY"),
        ("vm set web", 2, "nothing to change"),
        ("vm reset nobody", 1, "there is no virtual machine 'nobody'"),
        ("export add a --disk a --priority 5", 1, "disk 'a' exists already"),
        ("export add b --disk c --priority 5", 1, "there is no disk 'c'"),
        ("export set b --priority 5", 1, "there is no export 'b'"),
    ] {
        let printed = daemon.run(line);
        assert_eq!(printed.code, code, "{line}: {}", printed.err);
        assert!(printed.err.contains(says), "{line}: {}", printed.err);
    }
}

#[test]
fn what_guests_write_beside_their_requests_divides_their_disk() {
    let daemon = Daemon::start(&[]);
    emulated(&daemon);
    daemon.ok("disk create a --size 16M --datastore array --vm web");
    let socket = daemon.dir().join("vhost/a.sock");
    divides(
        &daemon,
        "a",
        &format!("{} --streams --priority rt/0,be/0,be/7,none", socket.display()),
        &[
            ("26-50", 40.0 / 574.0),
            ("100", 100.0 / 574.0),
            ("151-197", 180.0 / 574.0),
            ("198-254", 254.0 / 574.0),
        ],
    );
}

#[test]
fn no_request_counts_more_than_its_vm_may() {
    let daemon = Daemon::start(&[]);
    daemon.ok("datastore add array --emulated rate=100000,depth=64");
    daemon.ok("disk create a --size 16M --datastore array --vm web");
    daemon.ok("vm set web --max-priority 25 --default-priority 10");
    let socket = daemon.dir().join("vhost/a.sock");
    // All values that a guest can write, among them every class that does not exist.
    let report =
        daemon.json(&format!("load {} --depth 64 --ios 65536 --priority each", socket.display()));
    assert_eq!((&report["errors"], &report["total"]["ios"]), (&0.into(), &65_536.into()));
    assert_eq!(by_priority(&daemon, "a"), [("1-25".to_owned(), 65_536.0)]);
}

#[test]
fn an_nbd_disk_has_a_priority_for_each_name() {
    let daemon = Daemon::start(&[]);
    emulated(&daemon);
    daemon.ok("disk create a --size 16M --datastore array");
    let fast = daemon.json("export add a-fast --disk a --priority 200");
    daemon.ok("export add a-slow --disk a --priority 25");
    let list = daemon.ok("export list");
    assert!(list.contains("a-fast  a          200  read-write  nbd+unix:///a-fast?"), "{list}");
    let shown = daemon.ok("disk show a");
    assert!(
        shown.contains("further exports:  a-fast (priority 200), a-slow (priority 25)"),
        "{shown}"
    );
    let fast = fast["nbd_uri"].as_str().unwrap().to_owned();
    let (slow, own) = (fast.replace("a-fast", "a-slow"), fast.replace("a-fast", "a"));
    divides(
        &daemon,
        "a",
        &format!("{fast} {slow} {own}"),
        &[("1-25", 25.0 / 325.0), ("100", 100.0 / 325.0), ("198-254", 200.0 / 325.0)],
    );
    daemon.ok("export remove a-slow");
    let gone = daemon.run(&format!("load {slow} --ios 1"));
    assert_ne!(gone.code, 0, "{}", gone.out);
}

/// The kernel refuses fields that make no sense, and real-time to who may not have it: neither may
/// fail a guest's request.
#[test]
fn no_priority_fails_a_request_on_storage_that_has_an_elevator() {
    for daemon in [Daemon::start(&[]), Daemon::start_without_privileges()] {
        daemon.ok("disk create a --size 16M --vm web");
        let socket = daemon.dir().join("vhost/a.sock");
        for scope in ["across", "within"] {
            daemon.ok(&format!("vm set web --priority-scope {scope}"));
            for more in [
                "--ios 65536 --priority each",
                "--ios 200 --priority rt/0 --read-percent 50 --flush-every 9",
            ] {
                let report = daemon.json(&format!("load {} --depth 64 {more}", socket.display()));
                assert_eq!(report["errors"], 0, "{scope}, {more}: {report}");
            }
        }
    }
}
