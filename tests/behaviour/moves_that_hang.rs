//! A move whose target stops answering: the disk's client and all others go on.

use anyhow::{Context, ensure};
use headgate_lab::faulty_fs::FaultyFs;
use headgate_lab::headgate::Headgate;
use headgate_lab::writer::{self, Writer};
use headgate_lab::{Lab, Server, wait_for, with_lab};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(180);
const BLOCKS: u64 = 2048;

/// A daemon with a datastore that can hang, and two disks on another one of its kind: `moves`, and
/// `stays`. The file systems end first, or the daemon would wait for them.
fn start(lab: &Lab) -> anyhow::Result<Option<(Headgate, FaultyFs, FaultyFs)>> {
    let Some(far) = FaultyFs::mount(lab.dir(), "far")? else { return Ok(None) };
    let Some(near) = FaultyFs::mount(lab.dir(), "near")? else { return Ok(None) };
    let config = lab.dir().join("headgate.toml");
    std::fs::write(&config, "shards = 1\n")?;
    let config = config.display().to_string();
    let daemon = Headgate::start_as(lab, "state", &[], &["--config", &config])?;
    for (store, files) in [("far", &far), ("near", &near)] {
        let dir = files.path().display().to_string();
        daemon.command(&["datastore", "add", store, "--dir", &dir])?;
    }
    for disk in ["moves", "stays"] {
        daemon.command(&["disk", "create", disk, "--size=16M", "--datastore=near"])?;
    }
    Ok(Some((daemon, far, near)))
}

fn last_move(daemon: &Headgate) -> anyhow::Result<serde_json::Value> {
    daemon.json(&["disk", "moves"])?.get(0).cloned().context("no move is known")
}

/// Both clients get on from here.
fn get_on(counters: [&AtomicU64; 2]) -> anyhow::Result<()> {
    let now = || counters.map(|counter| counter.load(Ordering::Relaxed));
    let before = now();
    wait_for("both clients should get on", PATIENCE, || {
        let more = now().into_iter().zip(before).all(|(now, before)| now > before + 3);
        Ok(more.then_some(()))
    })
}

#[test]
fn a_target_that_hangs_ends_the_move_and_no_client_notices() {
    with_lab(&["stat"], |lab| {
        let Some((mut daemon, mut far, _near)) = start(lab)? else { return Ok(()) };
        let writer = |disk: &str, seed| Writer::new(daemon.nbd_socket(), disk, seed, BLOCKS);
        let mut writers = vec![writer("moves", 1), writer("stays", 2)];
        let flushes = [writers[0].progress(), writers[1].progress()];
        let counters = || flushes.each_ref().map(|one| &one.flushes);
        writer::beside(&mut writers, PATIENCE, || {
            get_on(counters())?;
            let slowly =
                ["disk", "migrate", "moves", "--to=far", "--move-bandwidth=1M", "--detach"];
            daemon.command(&slowly)?;
            wait_for("some of it should be copied", PATIENCE, || {
                Ok((last_move(&daemon)?["copied"].as_u64() > Some(1 << 20)).then_some(()))
            })?;
            far.hang()?;
            // What goes to both sides waits until the target is given up: no longer than that.
            let ended = wait_for("the move should end", PATIENCE, || {
                let now = last_move(&daemon)?;
                Ok(now["outcome"].is_string().then_some(now))
            })?;
            ensure!(ended["outcome"] == "failed", "{ended}");
            ensure!(daemon.json(&["disk", "show", "moves"])?["datastore"] == "near");
            get_on(counters())?;
            // It still hangs, and nothing of it is in anybody's way.
            ensure!(far.held() > 0, "nothing hangs");
            let again = daemon.command(&["disk", "migrate", "moves", "--to=far"]);
            ensure!(again.is_err(), "a move to a datastore that hangs");
            get_on(counters())?;
            far.heal();
            wait_for("the datastore should be back", PATIENCE, || {
                let shown = daemon.json(&["datastore", "show", "far"])?;
                Ok((shown["state"] == "serving").then_some(()))
            })?;
            // What was left there is gone, so that the disk can move after all.
            wait_for("the disk should move", PATIENCE, || {
                Ok(daemon.command(&["disk", "migrate", "moves", "--to=far"]).is_ok().then_some(()))
            })?;
            ensure!(daemon.json(&["disk", "show", "moves"])?["datastore"] == "far");
            get_on(counters())
        })?;
        let crashes = flushes.iter().map(|one| one.crashes.load(Ordering::Relaxed)).sum::<u64>();
        ensure!(crashes == 0, "a client lost its connection");
        daemon.stop()
    });
}

/// What does not go together with a move says so, and the move and its client go on.
#[test]
fn a_disk_that_moves_is_not_resized_copied_or_removed() {
    with_lab(&["stat"], |lab| {
        let Some((mut daemon, _far, _near)) = start(lab)? else { return Ok(()) };
        let mut writers = vec![Writer::new(daemon.nbd_socket(), "moves", 3, BLOCKS)];
        let (disk, snapshot) = (["disk", "resize", "moves", "--size=32M"], ["disk", "snapshot"]);
        writer::beside(&mut writers, PATIENCE, || {
            let slowly =
                ["disk", "migrate", "moves", "--to=far", "--move-bandwidth=1M", "--detach"];
            daemon.command(&slowly)?;
            for words in [
                &disk[..],
                &[&snapshot[..], &["moves", "moves-now"]].concat(),
                &["disk", "clone", "moves", "moves-too"],
                &["disk", "remove", "moves", "--yes", "--force"],
                &["disk", "migrate", "moves", "--to=near"],
            ] {
                let refused = daemon.command(words).err().map(|e| format!("{e:#}"));
                let refused = refused.with_context(|| format!("{words:?} was done"))?;
                ensure!(refused.contains("move"), "{words:?}: {refused}");
            }
            daemon.command(&["disk", "migrate", "moves", "--move-bandwidth=none"])?;
            wait_for("the disk should move", PATIENCE, || {
                let shown = daemon.json(&["disk", "show", "moves"])?;
                Ok((shown["datastore"] == "far").then_some(()))
            })?;
            wait_for("it should get its size", PATIENCE, || {
                Ok(daemon.command(&disk).is_ok().then_some(()))
            })
        })?;
        daemon.stop()
    });
}
