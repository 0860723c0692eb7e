//! Moves that come to nothing, or to something else than they began with: the disk serves on.

use anyhow::ensure;
use headgate_lab::file_system::{FileSystem, Kind};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::Process;
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// A daemon with two shards, and on the default datastore a disk of 64 MiB of sevens.
fn start(lab: &Lab) -> anyhow::Result<Headgate> {
    let config = lab.dir().join("headgate.toml");
    std::fs::write(&config, "shards = 2\n")?;
    let config = config.to_string_lossy().into_owned();
    let daemon = Headgate::start_as(lab, "state", &[], &["--config", &config])?;
    let other = lab.subdir("other")?;
    daemon.command(&["datastore", "add", "other", "--dir", &other.to_string_lossy()])?;
    daemon.command(&["disk", "create", "d", "--size=64M", "--datastore=default"])?;
    tools::qemu_io(&daemon.nbd_uri("d"), &["write -P 7 0 64M"])?;
    Ok(daemon)
}

/// A client that reads all the time, and ends at the first error.
fn reader(lab: &Lab, daemon: &Headgate) -> anyhow::Result<Process> {
    let mut command = Command::new(headgate::binary()?);
    let uri = daemon.nbd_uri("d");
    command.args(["load", &uri, "--depth=4", "--read-percent=100", "--seconds=3600"]);
    Process::spawn("headgate load", command, &lab.dir().join("reader.log"))
}

/// The disk is where it was, with what it had, and nothing else is left.
fn stays(daemon: &Headgate, other: &std::path::Path) -> anyhow::Result<()> {
    wait_for("the copy should be gone", PATIENCE, || {
        let shown = daemon.json(&["disk", "show", "d"])?;
        let left = std::fs::read_dir(other)?
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().to_string_lossy().starts_with("d."));
        Ok((shown["datastore"] == "default" && !left).then_some(()))
    })?;
    tools::qemu_io(&daemon.nbd_uri("d"), &["read -P 7 0 64M"]).map(drop)
}

fn copied(daemon: &Headgate) -> anyhow::Result<u64> {
    let moves = daemon.json(&["disk", "moves"])?;
    Ok(moves[0]["copied"].as_u64().unwrap_or_default())
}

#[test]
fn a_target_that_is_full_half_way_ends_the_move_and_not_the_disk() {
    with_lab(&["qemu-io", "mkfs.ext4"], |lab| {
        let mut daemon = start(lab)?;
        let small = FileSystem::mount(lab, Kind::Ext4, 48)?;
        let dir = small.path().to_string_lossy().into_owned();
        daemon.command(&["datastore", "add", "small", "--dir", &dir])?;
        let mut reader = reader(lab, &daemon)?;
        let refused = daemon.command(&["disk", "migrate", "d", "--to", "small"]);
        let refused = format!("{:#}", refused.expect_err("64 MiB do not fit into 48"));
        ensure!(refused.contains("small"), "{refused}");
        // Whoever overbooks it may find it full later.
        let forced = ["disk", "migrate", "d", "--to", "small", "--force"];
        let failed = daemon.command_for(PATIENCE, &forced);
        let failed = format!("{:#}", failed.expect_err("the target is full"));
        ensure!(failed.contains("target"), "{failed}");
        stays(&daemon, small.path())?;
        let moves = daemon.json(&["disk", "moves"])?;
        ensure!(moves[0]["outcome"] == "failed", "{moves}");
        reader.ensure_running()?;
        reader.kill()?;
        daemon.stop()
    });
}

#[test]
fn a_move_can_be_cancelled_at_its_very_end_and_ends_with_the_daemon() {
    with_lab(&["qemu-io"], |lab| {
        let mut daemon = start(lab)?;
        let other = lab.dir().join("other");
        let begin = ["disk", "migrate", "d", "--to", "other", "--detach"];
        daemon.command(&[&begin[..], &["--move-bandwidth=16M"]].concat())?;
        wait_for("nearly all should be copied", PATIENCE, || {
            Ok((copied(&daemon)? >= 61 << 20).then_some(()))
        })?;
        daemon.command(&["disk", "migrate", "d", "--pause"])?;
        daemon.command(&["disk", "migrate", "d", "--cancel"])?;
        stays(&daemon, &other)?;

        daemon.command(&[&begin[..], &["--move-bandwidth=4M"]].concat())?;
        wait_for("something should be copied", PATIENCE, || {
            Ok((copied(&daemon)? >= 4 << 20).then_some(()))
        })?;
        daemon.stop()?;
        daemon.start_again()?;
        stays(&daemon, &other)?;
        daemon.stop()
    });
}

#[test]
fn a_policy_that_is_set_while_a_disk_moves_goes_along() {
    with_lab(&["qemu-io"], |lab| {
        let mut daemon = start(lab)?;
        let slow = ["disk", "migrate", "d", "--to", "other", "--detach", "--move-bandwidth=1M"];
        daemon.command(&slow)?;
        let set = ["disk", "set", "d", "--limit=5000", "--shares=700", "--werror=stop"];
        daemon.command(&set)?;
        daemon.command(&["disk", "migrate", "d", "--move-bandwidth=none"])?;
        wait_for("the disk should move", PATIENCE, || {
            let shown = daemon.json(&["disk", "show", "d"])?;
            let is_over = shown["moving"]["state"] == "ended";
            Ok((shown["datastore"] == "other" && is_over).then_some(()))
        })?;
        let shown = daemon.json(&["disk", "show", "d"])?;
        let force = &shown["effective_policy"];
        ensure!(force["limit"] == 5000 && force["shares"] == 700, "{shown}");
        let text = daemon.command(&["disk", "show", "d"])?;
        ensure!(text.contains("stop"), "{text}");
        tools::qemu_io(&daemon.nbd_uri("d"), &["read -P 7 0 64M"])?;
        daemon.stop()
    });
}
