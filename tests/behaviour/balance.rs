//! Advice is carried out, and datastores are emptied, while clients work on the disks and check all
//! they wrote.

use anyhow::Context;
use headgate_lab::headgate::{Headgate, binary};
use headgate_lab::process::Process;
use headgate_lab::writer::{self, Writer};
use headgate_lab::{Lab, Server, fleet, wait_for, with_lab};
use serde_json::Value;
use std::process::Command;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(180);
const BLOCKS: u64 = 2048;

/// Requests that each client keeps under way, one number after the other: nothing can be learnt
/// from one load. Together they take the twenty intervals that a model needs.
const STEPS: [u32; 5] = [1, 2, 3, 4, 6];
const STEP: Duration = Duration::from_secs(10);

/// A daemon whose datastores share a thread, with short intervals, and rules that do not care how
/// full the machine's file system is.
fn start(lab: &Lab, rules: &str) -> anyhow::Result<Headgate> {
    let config = lab.dir().join("headgate.toml");
    std::fs::write(&config, "shards = 1\nsample-seconds = 2\n")?;
    let config = config.display().to_string();
    let daemon = Headgate::start_as(lab, "state", &[], &["--config", &config])?;
    set_rules(lab, &daemon, rules)?;
    Ok(daemon)
}

fn set_rules(lab: &Lab, daemon: &Headgate, rules: &str) -> anyhow::Result<()> {
    let file = lab.dir().join("rules.toml");
    std::fs::write(&file, format!("{rules}\n[space]\nfull = 1000\nrelieve = 1000\n"))?;
    daemon.command(&["rules", "set", &file.display().to_string()]).map(drop)
}

/// A directory that passes for a device of its own.
fn add_directory(lab: &Lab, daemon: &Headgate, name: &str) -> anyhow::Result<()> {
    let path = lab.subdir(&format!("on-{name}"))?.display().to_string();
    let spindles = format!("--spindles={name}");
    daemon.command(&["datastore", "add", name, "--dir", &path, &spindles]).map(drop)
}

fn on(daemon: &Headgate, disk: &str) -> anyhow::Result<String> {
    let shown = daemon.json(&["disk", "show", disk])?;
    Ok(shown["datastore"].as_str().context("a disk is somewhere")?.to_owned())
}

/// Disk, source, target.
fn routes(moves: &Value) -> anyhow::Result<Vec<[String; 3]>> {
    let moves = moves.as_array().context("no moves")?;
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    Ok(moves.iter().map(|one| ["disk", "from", "to"].map(|key| text(one, key))).collect())
}

/// Has clients write on these disks, and check what they wrote, while something is done; they must
/// get on afterwards.
fn beside_writers(
    daemon: &Headgate,
    disks: &[&str],
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let writer = |(disk, seed): (&&str, u64)| Writer::new(daemon.nbd_socket(), disk, seed, BLOCKS);
    let mut writers: Vec<Writer> = disks.iter().zip(1..).map(writer).collect();
    writer::beside(&mut writers, PATIENCE, work)
}

#[test]
fn what_is_advised_by_load_is_carried_out_and_the_disks_serve_on() {
    with_lab(&[], |lab| {
        let mut daemon = start(lab, "")?;
        let add = |spindles: u32| {
            let (name, model) = (format!("array{spindles}"), format!("array={spindles},cache=8M"));
            let emulated = ["datastore", "add", &name, "--emulated", &model];
            let args = [&emulated[..], &["--queue-depth=512", "--class=pod"]].concat();
            daemon.command(&args).map(drop)
        };
        add(3)?;
        let disks = ["d1", "d2", "d3", "d4"];
        for disk in disks {
            let place = ["--datastore=array3", "--datastore-class=pod", "--size=16M"];
            daemon.command(&[&["disk", "create", disk], &place[..]].concat())?;
        }
        let load = |depth: u32| -> anyhow::Result<Vec<Process>> {
            let each = |disk: &&str| fleet::load(lab.dir(), disk, &daemon.nbd_uri(disk), depth);
            disks.iter().map(each).collect()
        };
        for depth in STEPS {
            let clients = load(depth)?;
            thread::sleep(STEP);
            clients.into_iter().try_for_each(fleet::end)?;
        }
        add(9)?;
        let report = daemon.json(&["advise"])?;
        let pools = report["pools"].as_array().context("no pools")?;
        let pod = pools.iter().find(|pool| pool["class"] == "pod").context("no such pool")?;
        let advised = routes(&pod["advice"]["moves"])?;
        eprintln!("{}", daemon.command(&["advise"])?);
        anyhow::ensure!(!advised.is_empty(), "nothing is advised: {report}");

        let shown = daemon.json(&["balance"])?;
        anyhow::ensure!(routes(&shown["plan"]["moves"])? == advised, "{shown}");
        anyhow::ensure!(on(&daemon, &advised[0][0])? == "array3", "it was carried out unasked");
        let readers: Vec<Process> = load(1)?;
        let written = advised[0][0].as_str();
        beside_writers(&daemon, &[written], || {
            let said = daemon.command_for(PATIENCE, &["balance", "--apply", "--json"])?;
            let done: Value = serde_json::from_str(&said)?;
            let moves = &done["run"]["moves"];
            anyhow::ensure!(routes(moves)? == advised, "{done}");
            let all = moves.as_array().context("no moves")?;
            anyhow::ensure!(all.iter().all(|one| one["state"] == "moved"), "{done}");
            Ok(())
        })?;
        readers.into_iter().try_for_each(fleet::end)?;
        for [disk, _, to] in &advised {
            anyhow::ensure!(on(&daemon, disk)? == *to, "{disk} is not on {to}");
        }
        // What has moved is known, and is left in peace.
        let again = daemon.json(&["balance"])?;
        let again = routes(&again["plan"]["moves"])?;
        anyhow::ensure!(again.iter().all(|[disk, ..]| advised.iter().all(|a| a[0] != *disk)));
        let log = daemon.log()?;
        anyhow::ensure!(log.contains("balance --apply") && log.contains("an advised move begins"));
        daemon.stop()
    });
}

#[test]
fn a_command_that_is_interrupted_leaves_the_move_under_way_going_and_begins_no_other() {
    with_lab(&[], |lab| {
        let apart = "[[anti-affinity]]\nname = \"trio\"\ndisks = [\"a\", \"b\", \"c\"]\n";
        let mut daemon = start(lab, "")?;
        for name in ["one", "two", "three"] {
            add_directory(lab, &daemon, name)?;
        }
        for disk in ["a", "b", "c"] {
            daemon.command(&["disk", "create", disk, "--size=16M", "--datastore=one"])?;
        }
        set_rules(lab, &daemon, apart)?;
        beside_writers(&daemon, &["a", "b", "c"], || {
            let log = lab.dir().join("balance.log");
            let mut command = Command::new(binary()?);
            command.args(["balance", "--apply", "--move-bandwidth=1M"]);
            command.env("HEADGATE_STATE_DIR", daemon.state_dir());
            let mut client = Process::spawn("headgate balance", command, &log)?;
            let moves = || daemon.json(&["disk", "moves"]);
            wait_for("a disk should move", PATIENCE, || {
                Ok(moves()?.as_array().is_some_and(|all| !all.is_empty()).then_some(()))
            })?;
            client.interrupt()?;
            anyhow::ensure!(!client.wait(PATIENCE)?.success());
            let said = std::fs::read_to_string(&log)?;
            anyhow::ensure!(said.contains("no further one begins"), "{said}");
            let shown = daemon.json(&["balance"])?;
            let states = |shown: &Value| -> Vec<String> {
                let all = shown["run"]["moves"].as_array().cloned().unwrap_or_default();
                all.iter().map(|one| one["state"].as_str().unwrap_or("?").to_owned()).collect()
            };
            anyhow::ensure!(states(&shown) == ["moving", "skipped"], "{shown}");
            let first = shown["run"]["moves"][0]["disk"].as_str().context("a disk")?;
            daemon.command(&["disk", "migrate", first, "--move-bandwidth", "none"])?;
            wait_for("its move should end", PATIENCE, || {
                let shown = daemon.json(&["balance"])?;
                Ok((states(&shown) == ["moved", "skipped"]).then_some(()))
            })?;
            // Again: what is left of it.
            daemon.command_for(PATIENCE, &["balance", "--apply"])?;
            let places = [on(&daemon, "a")?, on(&daemon, "b")?, on(&daemon, "c")?];
            let apart = places.iter().collect::<std::collections::BTreeSet<_>>().len() == 3;
            anyhow::ensure!(apart, "{places:?}");
            Ok(())
        })?;
        daemon.stop()
    });
}

#[test]
fn a_datastore_is_emptied_under_load_and_what_cannot_leave_is_told() {
    with_lab(&[], |lab| {
        let mut daemon = start(lab, "")?;
        for name in ["old", "new", "other"] {
            add_directory(lab, &daemon, name)?;
        }
        for disk in ["a", "b"] {
            daemon.command(&["disk", "create", disk, "--size=16M", "--datastore=old"])?;
        }
        daemon.command(&["disk", "set", "b", "--mobility=pinned"])?;
        let empty = ["datastore", "maintenance", "old", "on", "--wait"];
        beside_writers(&daemon, &["a", "b"], || {
            let refused = daemon.command_for(PATIENCE, &empty).map_err(|e| format!("{e:#}"));
            let refused = refused.expect_err("a pinned disk stays");
            anyhow::ensure!(refused.contains("b: cannot move: it is pinned"), "{refused}");
            anyhow::ensure!(on(&daemon, "a")? != "old" && on(&daemon, "b")? == "old");
            let create = ["disk", "create", "x", "--size=1M", "--datastore=old"];
            let refused = daemon.command(&create).map_err(|e| format!("{e:#}"));
            let refused = refused.expect_err("it takes no disks");
            anyhow::ensure!(refused.contains("is in maintenance"), "{refused}");
            daemon.command(&["disk", "set", "b", "--mobility=free"])?;
            let said = daemon.command_for(PATIENCE, &empty)?;
            anyhow::ensure!(said.contains("and empty"), "{said}");
            anyhow::ensure!(on(&daemon, "b")? != "old");
            let listed = daemon.command(&["datastore", "list"])?;
            anyhow::ensure!(listed.contains("maintenance"), "{listed}");
            let scraped = daemon.get("/metrics")?;
            let left = "headgate_datastore_maintenance_disks{datastore=\"old\"} 0";
            anyhow::ensure!(scraped.contains(left), "no '{left}'");
            Ok(())
        })?;
        daemon.command(&["datastore", "remove", "old"])?;
        daemon.stop()
    });
}
