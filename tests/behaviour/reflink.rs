//! Copies that share blocks with their disk, where the file system can have files do that.

use crate::copies::{Room, copy_of, counts};
use anyhow::{Context, ensure};
use headgate_lab::file_system::{FileSystem, Kind};
use headgate_lab::headgate::Headgate;
use headgate_lab::process::run;
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const PROGRAMS: [&str; 5] = ["qemu-img", "qemu-io", "losetup", "mkfs.xfs", "mkfs.btrfs"];

/// What a copy of 64 MiB may take of a file system for its own records.
const RECORDS: u64 = 12 << 20;

/// A daemon with a datastore there, and what is in the file system.
fn on(lab: &Lab, kind: Kind) -> anyhow::Result<Option<(Headgate, FileSystem)>> {
    let files = match FileSystem::mount(lab, kind, 512) {
        Ok(files) => files,
        Err(e) => {
            println!("SKIPPED: no {kind:?} here: {e:#}");
            return Ok(None);
        }
    };
    let daemon = Headgate::start(lab)?;
    let dir = files.path().display().to_string();
    daemon.command(&["datastore", "add", "files", "--dir", &dir])?;
    Ok(Some((daemon, files)))
}

/// Begins a copy and waits for its end.
fn copied(daemon: &Headgate, copy: &str, words: &[&str]) -> anyhow::Result<serde_json::Value> {
    daemon.command(&[&["disk", "copy", "db", copy, "--datastore=files"][..], words].concat())?;
    copy_of(daemon, copy)
}

fn free(files: &FileSystem) -> anyhow::Result<u64> {
    run_on(files, "sync", &["-f"])?;
    files.free()
}

fn run_on(files: &FileSystem, program: &str, words: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(words).arg(files.path());
    run(command, PATIENCE).map(drop)
}

fn shares(lab: &Lab, kind: Kind) -> anyhow::Result<()> {
    let Some((mut daemon, files)) = on(lab, kind)? else { return Ok(()) };
    daemon.command(&["disk", "create", "db", "--size=96M", "--datastore=files"])?;
    tools::qemu_io(&daemon.nbd_uri("db"), &["write -P 7 0 64M", "flush"])?;
    let before = free(&files)?;
    let shared = copied(&daemon, "shared", &[])?;
    ensure!(shared["blocks"] == "shared", "{shared}");
    let taken = before.saturating_sub(free(&files)?);
    ensure!(taken <= RECORDS, "a copy that shares blocks takes {taken} bytes");
    let full = copied(&daemon, "full", &["--reflink=never"])?;
    ensure!(full["blocks"] == "copied", "{full}");
    let taken = before.saturating_sub(free(&files)?);
    ensure!(taken >= 64 << 20, "a copy that shares nothing takes {taken} bytes");
    // What one changes is not of the other, and what is left of one needs none of the other.
    tools::qemu_io(&daemon.nbd_uri("db"), &["write -P 8 0 32M", "flush"])?;
    tools::qemu_io(&daemon.nbd_uri("shared"), &["read -P 7 0 64M", "read -P 0 64M 32M"])?;
    tools::qemu_io(&daemon.nbd_uri("db"), &["read -P 8 0 32M", "read -P 7 32M 32M"])?;
    daemon.command(&["disk", "remove", "db", "--purge", "--yes"])?;
    tools::qemu_io(&daemon.nbd_uri("shared"), &["read -P 7 0 64M"])?;
    // Killed at once: it was durable when it was complete.
    daemon.kill()?;
    daemon.start_again()?;
    tools::qemu_io(&daemon.nbd_uri("shared"), &["read -P 7 0 64M"])?;
    daemon.stop()
}

#[test]
fn a_copy_on_xfs_and_btrfs_shares_the_blocks_of_its_disk() {
    with_lab(&PROGRAMS, |lab| shares(lab, Kind::Xfs));
    with_lab(&PROGRAMS, |lab| shares(lab, Kind::Btrfs));
}

/// What lies in one piece is shared in one step, however much it is: nobody sees a small part of a
/// copy that makes a step a second.
#[test]
fn what_lies_in_few_extents_is_shared_in_one_step() {
    with_lab(&PROGRAMS, |lab| {
        let Some((mut daemon, _files)) = on(lab, Kind::Xfs)? else { return Ok(()) };
        daemon.command(&["disk", "create", "db", "--size=192M", "--datastore=files"])?;
        tools::qemu_io(&daemon.nbd_uri("db"), &["write -P 7 0 192M", "flush"])?;
        let slow = ["--datastore=files", "--copy-limit=1", "--detach"];
        daemon.command(&[&["disk", "copy", "db", "copy"][..], &slow].concat())?;
        let seen = wait_for("some of it should be shared", PATIENCE, || {
            let now = copy_of(&daemon, "copy")?;
            Ok((now["copied"].as_u64() > Some(0)).then_some(now))
        })?;
        ensure!(seen["copied"].as_u64() >= Some(96 << 20), "so much in one step: {seen}");
        wait_for("the copy should be complete", PATIENCE, || {
            Ok((copy_of(&daemon, "copy")?["state"] == "complete").then_some(()))
        })?;
        tools::qemu_io(&daemon.nbd_uri("copy"), &["read -P 7 0 192M"])?;
        daemon.stop()
    });
}

#[test]
fn a_snapshot_that_shares_blocks_is_of_one_instant_of_a_disk_that_is_written() {
    with_lab(&PROGRAMS, |lab| {
        let Some((mut daemon, _files)) = on(lab, Kind::Xfs)? else { return Ok(()) };
        daemon.command(&["disk", "create", "db", "--size=64M", "--datastore=files"])?;
        counts(&daemon, "db", &["--datastore=files"], Room::ForMany)?;
        for copy in ["db-0", "db-1", "db-2", "db-idle"] {
            let now = copy_of(&daemon, copy)?;
            ensure!(now["blocks"] == "shared", "{now}");
        }
        daemon.stop()
    });
}

#[test]
fn what_a_file_system_does_not_share_is_copied() {
    with_lab(&[&PROGRAMS[..], &["chattr", "mkfs.ext4"]].concat(), |lab| {
        let Some((mut daemon, files)) = on(lab, Kind::Xfs)? else { return Ok(()) };
        daemon.command(&["disk", "create", "db", "--size=64M", "--datastore=files"])?;
        // In so many extents that it is shared in sixteen steps.
        let part = |n: u64| format!("write -P 7 {} 32k", n * (32 << 10));
        let parts: Vec<String> = [(0..1024), (1024..2048)]
            .into_iter()
            .flat_map(|half| half.map(|n| part(n * 2 % 2048 + n / 1024)).chain(["flush".into()]))
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        tools::qemu_io(&daemon.nbd_uri("db"), &parts)?;
        let slow = ["--datastore=files", "--copy-limit=2", "--detach"];
        daemon.command(&[&["disk", "copy", "db", "half"][..], &slow].concat())?;
        wait_for("some of it should be shared", PATIENCE, || {
            Ok((copy_of(&daemon, "half")?["copied"].as_u64() > Some(0)).then_some(()))
        })?;
        // An image that is made immutable takes no blocks, and content by those who have it open.
        let images = std::fs::read_dir(files.path())?;
        let mut images = images.filter_map(|entry| Some(entry.ok()?.path()));
        let image = images.find(|path| path.file_stem().is_some_and(|stem| stem == "half"));
        let image = image.context("no image of the copy")?.display().to_string();
        let chattr = |word: &str| {
            let mut command = Command::new("chattr");
            command.args([word, &image]);
            run(command, PATIENCE).map(drop)
        };
        chattr("+i")?;
        tools::qemu_io(&daemon.nbd_uri("db"), &["write -P 8 0 64M", "flush"])?;
        let ended = wait_for("the copy should be complete", PATIENCE, || {
            let now = copy_of(&daemon, "half")?;
            ensure!(now["state"] != "failed", "{now}");
            Ok((now["state"] == "complete").then_some(now))
        });
        chattr("-i")?;
        let ended = ended?;
        ensure!(ended["blocks"] == "copied", "{ended}");
        tools::qemu_io(&daemon.nbd_uri("half"), &["read -P 7 0 64M"])?;
        tools::qemu_io(&daemon.nbd_uri("db"), &["read -P 8 0 64M"])?;
        ensure!(daemon.log()?.contains("the rest is copied"), "nobody was told");
        // Two file systems share nothing.
        daemon.command(&["disk", "create", "plain", "--size=32M", "--datastore=default"])?;
        tools::qemu_io(&daemon.nbd_uri("plain"), &["write -P 5 0 32M"])?;
        daemon.command(&["disk", "copy", "plain", "there", "--datastore=files"])?;
        let there = copy_of(&daemon, "there")?;
        ensure!(there["blocks"] == "copied", "{there}");
        tools::qemu_io(&daemon.nbd_uri("there"), &["read -P 5 0 32M"])?;
        daemon.command(&["disk", "remove", "there", "--purge", "--yes"])?;
        drop(files);
        daemon.stop()
    });
}
