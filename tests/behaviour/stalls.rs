//! A shard that stands still is named, and harms nobody but its own disks.
//!
//! With `--guest-memory any` a front-end can bring memory from a file system that does not answer:
//! the operator's own risk, and here the way to stop a shard.

use anyhow::{Context, ensure};
use headgate_lab::beside::{Neighbour, check};
use headgate_lab::faulty_fs::{Fault, FaultyFs};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::Process;
use headgate_lab::{Lab, Server, wait_for, with_lab};
use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// What waits for nothing that stands still is done long before; what does never is.
const SOON: Duration = Duration::from_secs(30);
/// Of the array's 400.
const RESERVATION: u32 = 200;

/// A daemon whose datastore `array` has a shard to itself, `default` and `other` the common one: a
/// disk `still` is on the common one, `neighbour` on the array's.
fn start(lab: &Lab) -> anyhow::Result<Headgate> {
    let config = lab.dir().join("config.toml");
    let groups = "[shard-groups]\ntenant = [\"array\"]\n";
    fs::write(&config, format!("shards = 1\ndrain-seconds = 2\n{groups}"))?;
    let config = config.to_str().context("a strange directory")?;
    let any = ["--config", config, "--guest-memory", "any"];
    let daemon = Headgate::start_as(lab, "state", &[], &any)?;
    let array = ["datastore", "add", "array", "--emulated", "rate=400,depth=8", "--queue-depth=8"];
    // The common shard has the more datastores: without the group this one would go elsewhere.
    daemon.command(&["datastore", "add", "other", "--emulated", "rate=400"])?;
    daemon.command(&array)?;
    daemon.command(&["disk", "create", "still", "--datastore=default", "--size=16M"])?;
    let neighbour = ["disk", "create", "neighbour", "--datastore=array", "--size=16M"];
    daemon.command(&[&neighbour[..], &[&format!("--reservation={RESERVATION}")]].concat())?;
    Ok(daemon)
}

/// Stops the shard of `still`: a front-end brings memory of which no page ever comes.
fn stop_a_shard(lab: &Lab, daemon: &Headgate, hanging: &FaultyFs) -> anyhow::Result<Process> {
    let file = hanging.path().join("memory");
    File::create(&file)?.set_len(1 << 20)?;
    hanging.set(Fault::HangData);
    let mut command = Command::new(headgate::binary()?);
    command.arg("load").arg(daemon.vhost_socket("still")).arg(daemon.nbd_uri("neighbour"));
    command.args(["--depth=1", "--timeout=120", "--hostile=foreign-memory", "--hostile-file"]);
    command.arg(&file);
    let front_end = Process::spawn("headgate load", command, &lab.dir().join("front-end.log"))?;
    wait_for("a page should be asked for", MINUTE, || Ok((hanging.held() > 0).then_some(())))?;
    Ok(front_end)
}

fn stalled(daemon: &Headgate) -> anyhow::Result<f64> {
    daemon.metrics()?.plain("headgate_stalled_shards")
}

fn check_told(daemon: &Headgate) -> anyhow::Result<()> {
    wait_for("the shard that stands still should be counted", MINUTE, || {
        Ok((stalled(daemon)? == 1.0).then_some(()))
    })?;
    let health = daemon.health()?;
    let text = health.to_string();
    ensure!(health["status"] == "failed" && text.contains("has not answered for"), "{health}");
    wait_for("the log should name it", SOON, || {
        let log = daemon.log()?;
        let line = log.lines().find(|line| line.contains("its disks stand still"));
        Ok(line.is_some_and(|line| line.contains("default")).then_some(()))
    })
}

fn check_others(daemon: &Headgate) -> anyhow::Result<()> {
    let start = Instant::now();
    let disks = daemon.command_for(SOON, &["disk", "list"])?;
    ensure!(disks.contains("still") && disks.contains("neighbour"), "{disks}");
    let shown = daemon.command_for(SOON, &["disk", "show", "still", "--json"])?;
    let shown: serde_json::Value = serde_json::from_str(&shown)?;
    let reason = shown["reason"].to_string();
    ensure!(shown["state"] == "failed" && reason.contains("has not answered"), "{shown}");
    daemon.command_for(SOON, &["disk", "set", "neighbour", "--shares=500"])?;
    let refused = daemon.command_for(SOON, &["disk", "set", "still", "--shares=500"]);
    ensure!(refused.is_err(), "a change of a disk that stands still is in force");
    println!("everything was answered in {:?}", start.elapsed());
    Ok(())
}

#[test]
fn a_shard_that_stands_still_is_named_and_the_others_serve() {
    with_lab(&[], |lab| {
        let Some(mut hanging) = FaultyFs::mount(lab.dir(), "hanging")? else { return Ok(()) };
        let mut daemon = start(lab)?;
        let neighbour = Neighbour::new(lab, &daemon.nbd_uri("neighbour"));
        let undisturbed = neighbour.alone(Duration::from_secs(3))?;
        let _front_end = stop_a_shard(lab, &daemon, &hanging)?;
        let (meanwhile, told) = neighbour.during(|| {
            check_told(&daemon)?;
            check_others(&daemon)
        })?;
        println!("the neighbour {meanwhile}; undisturbed {undisturbed}");
        told?;
        check(undisturbed, meanwhile, RESERVATION.into())?;
        // What held the shard lets it go: everything is served again.
        hanging.heal();
        wait_for("the shard should go on", MINUTE, || {
            Ok((stalled(&daemon)? == 0.0 && daemon.health()?["status"] != "failed").then_some(()))
        })?;
        wait_for("the log should say so", SOON, || {
            Ok(daemon.log()?.contains("it answers again").then_some(()))
        })?;
        let still = Neighbour::new(lab, &daemon.nbd_uri("still"));
        println!("the disk that stood still: {}", still.alone(Duration::from_secs(1))?);
        daemon.stop()
    });
}

#[test]
fn a_daemon_ends_beside_a_shard_that_stands_still() {
    with_lab(&[], |lab| {
        let Some(hanging) = FaultyFs::mount(lab.dir(), "hanging")? else { return Ok(()) };
        let mut daemon = start(lab)?;
        let _front_end = stop_a_shard(lab, &daemon, &hanging)?;
        wait_for("the shard that stands still should be counted", MINUTE, || {
            Ok((stalled(&daemon)? == 1.0).then_some(()))
        })?;
        let start = Instant::now();
        // The lab gives it a minute.
        daemon.stop()?;
        println!("it ended after {:?}", start.elapsed());
        daemon.start_again()?;
        // The next one serves the disk, although the file system still hangs.
        let still = Neighbour::new(lab, &daemon.nbd_uri("still"));
        println!("the disk that stood still: {}", still.alone(Duration::from_secs(1))?);
        daemon.stop()
    });
}
