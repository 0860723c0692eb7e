//! The daemon under Landlock: it serves as without, and the kernel keeps it from the rest.

use anyhow::{Context, ensure};
use headgate_lab::file_system::{FileSystem, Kind};
use headgate_lab::headgate::{Headgate, binary};
use headgate_lab::process::{Finished, run_to_end};
use headgate_lab::{Lab, Server, tools, with_lab};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A daemon that must be confined, with this directory allowed. `None`: this kernel cannot.
pub(crate) fn confined(lab: &Lab, allowed: &Path) -> anyhow::Result<Option<Headgate>> {
    let allow = format!("--allow-dir={}", allowed.display());
    let required = ["--landlock=require", &allow];
    match Headgate::start_as(lab, "state", &[], &required) {
        Err(e) if format!("{e:#}").contains("Landlock is required, and there is none") => {
            eprintln!("SKIPPED: the kernel has no Landlock");
            Ok(None)
        }
        started => started.map(Some),
    }
}

fn copy(daemon: &Headgate, disk: &str, from: &Path, to: &Path) -> anyhow::Result<()> {
    let uri = daemon.nbd_uri(disk);
    tools::nbdcopy(&from.to_string_lossy(), &uri)?;
    tools::nbdcopy(&uri, &to.to_string_lossy())?;
    ensure!(tools::sha256(from)? == tools::sha256(to)?, "{disk} has other bytes");
    Ok(())
}

/// What `GET /healthz` says of it.
fn confinement(daemon: &Headgate) -> anyhow::Result<Value> {
    let health: Value = serde_json::from_str(&daemon.get("/healthz")?)?;
    Ok(health["confinement"].clone())
}

#[test]
fn a_confined_daemon_does_all_that_it_does_without() {
    with_lab(&["nbdcopy"], |lab| {
        let allowed = lab.subdir("allowed")?;
        let Some(mut daemon) = confined(lab, &allowed)? else { return Ok(()) };
        ensure!(daemon.log()?.contains("Landlock confines the daemon"), "{}", daemon.log()?);
        let told = confinement(&daemon)?;
        ensure!(told["state"] == "confined" || told["state"] == "partly", "{told}");
        let (from, to) = (lab.dir().join("from"), lab.dir().join("to"));
        let noise = format!("head -c 8M /dev/urandom >'{}'", from.display());
        ensure!(Command::new("sh").args(["-c", &noise]).status()?.success());
        let directory = allowed.to_string_lossy().into_owned();
        daemon.command(&["datastore", "add", "dir", "--dir", &directory])?;
        daemon.command(&["datastore", "add", "ram", "--memory", "64M"])?;
        daemon.command(&["datastore", "add", "model", "--emulated", "rate=1000"])?;
        for store in ["default", "dir", "ram", "model"] {
            let disk = format!("on-{store}");
            let place = ["--size=8M", "--datastore", store, "--vm=web"];
            daemon.command(&[&["disk", "create", &disk][..], &place].concat())?;
            copy(&daemon, &disk, &from, &to)?;
        }
        daemon.command(&["vm", "set", "web", "--socket-user=root"])?;
        for disk in ["on-default", "on-dir"] {
            daemon.command(&["disk", "remove", disk])?;
            daemon.command(&["disk", "restore", disk])?;
        }
        daemon.command(&["disk", "remove", "on-model", "--purge", "--yes"])?;
        daemon.command(&["datastore", "remove", "model"])?;
        daemon.kill()?;
        daemon.start_again()?;
        tools::nbdcopy(&daemon.nbd_uri("on-dir"), &to.to_string_lossy())?;
        ensure!(tools::sha256(&from)? == tools::sha256(&to)?, "lost over a restart");
        let health = daemon.health()?;
        ensure!(health["status"] == "ok", "{health}");
        ensure!(!daemon.log()?.contains("denied"), "{}", daemon.log()?);
        daemon.stop()
    });
}

/// A file system that is mounted over an allowed directory later has the path that is allowed, and
/// is another directory than the one that the kernel was told of.
#[test]
fn the_kernel_keeps_a_confined_daemon_from_what_its_own_rules_allow() {
    with_lab(&["mount"], |lab| {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: needs root, to mount");
            return Ok(());
        }
        let allowed = lab.subdir("small")?;
        let Some(mut daemon) = confined(lab, &allowed)? else { return Ok(()) };
        let directory = allowed.to_string_lossy().into_owned();
        daemon.command(&["datastore", "add", "before", "--dir", &directory])?;
        daemon.command(&["disk", "create", "a", "--size=1M", "--datastore=before"])?;
        let mounted = FileSystem::mount(lab, Kind::Tmpfs, 8)?;
        ensure!(mounted.path() == allowed, "it is mounted over the directory");
        let create = ["disk", "create", "b", "--size=1M", "--datastore=before"];
        let refused = daemon.command(&create).err().context("the mount was used")?;
        let refused = format!("{refused:#}");
        ensure!(refused.contains("ermission denied"), "{refused}");
        ensure!(refused.contains("start the daemon again"), "no advice: {refused}");
        ensure!(std::fs::read_dir(&allowed)?.count() == 0, "something was made there");
        daemon.kill()?;
        daemon.start_again()?;
        daemon.command(&create)?;
        daemon.stop()?;
        drop(mounted);
        Ok(())
    });
}

#[test]
fn a_daemon_that_must_be_confined_and_cannot_be_does_not_start() {
    with_lab(&[], |lab| {
        let mut serve = Command::new(binary()?);
        serve.args(["serve", "--landlock=require", "--state-dir"]).arg(lab.subdir("state")?);
        let Finished { status, stderr, .. } = run_to_end(serve, Duration::from_secs(60))?;
        ensure!(!status.success(), "it started");
        ensure!(
            stderr.contains("Landlock is required") && stderr.contains("--allow-dir"),
            "{stderr}"
        );
        let mut daemon = Headgate::start(lab)?;
        ensure!(daemon.log()?.contains("not confined by Landlock"), "{}", daemon.log()?);
        let told = confinement(&daemon)?;
        ensure!(told["state"] == "unconfined", "{told}");
        ensure!(told["reason"].as_str().is_some_and(|r| r.contains("--allow-dir")), "{told}");
        daemon.stop()
    });
}
