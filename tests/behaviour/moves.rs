//! Disks move between datastores while a guest and an NBD client work on them, and check all they
//! wrote. The daemon dies in between.

use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::Headgate;
use headgate_lab::writer::Writer;
use headgate_lab::{Lab, Server, count, tools, wait_for, with_lab};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Moves of a test, unless `HEADGATE_MOVES` says otherwise.
const MOVES: u32 = 20;
/// Kills of a test, unless `HEADGATE_KILLS` says otherwise.
const KILLS: u32 = 12;
const PATIENCE: Duration = Duration::from_secs(120);
/// For a guest without KVM, which verifies between its writes.
const GUEST_PATIENCE: Duration = Duration::from_secs(300);
const BLOCKS: u64 = 4096;

/// Random writes, trims and flushes, each block checked; until told to stop.
pub(crate) const GUEST_LOAD: &str = r#"
(
  round=0
  check="--direct=1 --ioengine=libaio --iodepth=16 --thread --verify=crc32c --verify_fatal=1"
  while [ ! -e /tmp/stop ]; do
    round=$((round + 1))
    fio $check --filename=/dev/vda --size=8m --randseed=$round \
        --name=write --rw=randwrite --bsrange=4k-16k --fsync=32 \
        --name=trim --rw=randtrimwrite --bs=16k --offset=8m >/tmp/fio.log 2>&1 || touch /tmp/failed
    [ -e /tmp/failed ] && break
    echo $round >/tmp/round
  done
  touch /tmp/done
) &
"#;

/// The daemon, with four kinds of datastores: a directory, one more, a slow array of random
/// service, memory.
fn start(lab: &Lab) -> anyhow::Result<Headgate> {
    // Two datastores on each: disks move on a shard and from one to the other.
    let config = lab.dir().join("headgate.toml");
    std::fs::write(&config, "shards = 2\n")?;
    let config = config.to_string_lossy().into_owned();
    let daemon = Headgate::start_as(lab, "state", &[], &["--config", &config])?;
    let other = lab.subdir("other")?;
    daemon.command(&["datastore", "add", "other", "--dir", &other.to_string_lossy()])?;
    let array = "rate=2000,service=exponential,depth=32";
    daemon.command(&["datastore", "add", "array", "--emulated", array])?;
    daemon.command(&["datastore", "add", "ram", "--memory=256M"])?;
    Ok(daemon)
}

#[test]
fn disks_move_twenty_times_while_a_guest_and_an_nbd_client_work_on_them() {
    with_lab(&[QEMU, "nbdcopy"], |lab| {
        let mut daemon = start(lab)?;
        for disk in ["guest", "client"] {
            daemon.command(&["disk", "create", disk, "--size=16M"])?;
        }
        let drive = Drive::VhostUser { socket: daemon.vhost_socket("guest") };
        let mut guest = Guest::boot(lab, &Machine { cpus: 2, ..Machine::new("guest", drive) })?;
        guest.run(GUEST_LOAD, PATIENCE)?;
        let writer = Writer::new(daemon.nbd_socket(), "client", 1, BLOCKS);
        let progress = writer.progress();
        let moves = count("HEADGATE_MOVES", MOVES)?;
        thread::scope(|scope| {
            let writer = scope.spawn(|| writer.run());
            let places = ["ram", "array", "other", "default"];
            let outcome = (0..moves).try_for_each(|n| {
                let disk = ["guest", "client"][n as usize % 2];
                let to = places[n as usize / 2 % places.len()];
                let before = progress.flushes.load(Ordering::Relaxed);
                daemon.command_for(PATIENCE, &["disk", "migrate", disk, "--to", to])?;
                let shown = daemon.json(&["disk", "show", disk])?;
                anyhow::ensure!(shown["datastore"] == to, "{shown}");
                wait_for("the client should get on", PATIENCE, || {
                    let now = progress.flushes.load(Ordering::Relaxed);
                    Ok((now > before + 3 || writer.is_finished()).then_some(()))
                })
            });
            progress.stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer does not panic")?;
            outcome
        })?;
        let seen = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        anyhow::ensure!(seen(&progress.crashes) == 0, "the client lost its connection");
        let script = "touch /tmp/stop; while [ ! -e /tmp/done ]; do sleep 0.1; done; cat /tmp/fio.log; \
                      test ! -e /tmp/failed && cat /tmp/round";
        let said = guest.run(script, GUEST_PATIENCE)?;
        let rounds = said.lines().last().unwrap_or_default();
        let console = guest.console();
        anyhow::ensure!(!console.contains("I/O error"), "the guest saw IO errors:\n{console}");
        eprintln!(
            "{moves} moves: {} writes acknowledged over NBD, {rounds} rounds of the guest's",
            seen(&progress.writes)
        );
        let hash = guest.run("sha256sum /dev/vda", PATIENCE)?;
        guest.power_off()?;
        let copy = lab.dir().join("copy.raw");
        tools::nbdcopy(&daemon.nbd_uri("guest"), &copy.to_string_lossy())?;
        anyhow::ensure!(hash.starts_with(&tools::sha256(&copy)?), "not what the guest last read");
        one_copy(lab, &daemon, "guest")?;
        one_copy(lab, &daemon, "client")?;
        daemon.stop()
    });
}

/// The images below these directories that have to do with a disk.
fn images(within: &Path, disk: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(within)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(images(&path, disk)?);
        } else if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy() == format!("{disk}.img"))
        {
            found.push(path);
        }
    }
    Ok(found)
}

/// A disk that has images has one, and nothing says that it moves.
pub(crate) fn one_copy(lab: &Lab, daemon: &Headgate, disk: &str) -> anyhow::Result<()> {
    wait_for("the other copy should be reclaimed", PATIENCE, || {
        let found = images(lab.dir(), disk)?;
        let shown = daemon.json(&["disk", "show", disk])?;
        let in_memory = shown["datastore"] == "ram";
        Ok((found.len() == usize::from(!in_memory)).then_some(()))
    })
}

#[test]
fn a_daemon_that_dies_while_a_disk_moves_leaves_one_copy_with_every_flushed_byte() {
    with_lab(&[], |lab| {
        let mut daemon = start(lab)?;
        daemon.command(&["disk", "create", "client", "--size=16M", "--datastore=array"])?;
        let writer = Writer::new(daemon.nbd_socket(), "client", 2, BLOCKS);
        let progress = writer.progress();
        let kills = count("HEADGATE_KILLS", KILLS)?;
        let seen = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (mut moved, mut stayed) = (0, 0);
        thread::scope(|scope| {
            let writer = scope.spawn(|| writer.run());
            let outcome = (1..=kills).try_for_each(|round| {
                let more = |counter: &AtomicU64, than: u64| {
                    wait_for("the writer should get on", PATIENCE, || {
                        Ok((seen(counter) > than || writer.is_finished()).then_some(()))
                    })
                };
                let flushes = seen(&progress.flushes);
                more(&progress.flushes, flushes + u64::from(round % 3))?;
                let shown = daemon.json(&["disk", "show", "client"])?;
                let from = shown["datastore"].as_str().unwrap_or_default().to_owned();
                let to = if from == "array" { "other" } else { "array" };
                // In turn: in the middle of the copy for certain, and at any instant.
                let pace = if round % 2 == 0 { "1M" } else { "none" };
                let pace = format!("--move-bandwidth={pace}");
                // In a hurry: beside the writer it would hardly ever come to the switch.
                let hurry = ["--detach", "--move-shares=1000000", &pace];
                let words = ["disk", "migrate", "client", "--to", to];
                daemon.command(&[&words[..], &hurry].concat())?;
                thread::sleep(Duration::from_millis(u64::from(round * 37 % 8) * 60));
                if round == 1 {
                    wait_for("the disk should move", PATIENCE, || {
                        let shown = daemon.json(&["disk", "show", "client"])?;
                        Ok((shown["datastore"] == to).then_some(()))
                    })?;
                }
                daemon.kill()?;
                daemon.start_again()?;
                more(&progress.crashes, u64::from(round) - 1)?;
                let shown = daemon.json(&["disk", "show", "client"])?;
                match shown["datastore"] == from.as_str() {
                    true => stayed += 1,
                    false => moved += 1,
                }
                one_copy(lab, &daemon, "client")
            });
            progress.stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer does not panic")?;
            outcome
        })?;
        eprintln!(
            "{kills} deaths: {moved} behind the switch, {stayed} before it; {} writes acknowledged",
            seen(&progress.writes)
        );
        anyhow::ensure!(moved > 0 && stayed > 0, "all deaths on one side of the switch");
        daemon.stop()
    });
}

#[test]
fn a_move_can_be_paused_slowed_cancelled_and_is_refused_where_it_makes_no_sense() {
    with_lab(&["qemu-io"], |lab| {
        let mut daemon = start(lab)?;
        daemon.command(&["disk", "create", "d", "--size=64M", "--datastore=other"])?;
        tools::qemu_io(&daemon.nbd_uri("d"), &["write -P 7 0 64M"])?;
        let slow = ["disk", "migrate", "d", "--to", "ram", "--move-bandwidth=1M", "--detach"];
        daemon.command(&slow)?;
        let moves = || -> anyhow::Result<String> { daemon.command(&["disk", "moves"]) };
        anyhow::ensure!(moves()?.contains("ram"), "{}", moves()?);
        for (words, says) in [
            (&["disk", "migrate", "d", "--to", "array"][..], "moved already"),
            (&["disk", "remove", "d", "--yes"], "being moved"),
            (&["datastore", "remove", "ram"], "d"),
        ] {
            let refused = daemon.command(words).map_err(|e| format!("{e:#}"));
            let refused = refused.expect_err("a disk that moves is busy");
            anyhow::ensure!(refused.contains(says), "{words:?}: {refused}");
        }
        let top = daemon.command(&["top", "--once"])?;
        for line in ["copy of d to ram: copying", "copy of d from other: copying"] {
            anyhow::ensure!(top.contains(line), "{top}");
        }
        daemon.command(&["disk", "migrate", "d", "--pause"])?;
        tools::qemu_io(&daemon.nbd_uri("d"), &["write -P 8 0 1M"])?;
        daemon.command(&["disk", "migrate", "d", "--cancel"])?;
        let top = daemon.command(&["top", "--once"])?;
        anyhow::ensure!(!top.contains("copy of"), "{top}");
        one_copy(lab, &daemon, "d")?;
        tools::qemu_io(&daemon.nbd_uri("d"), &["read -P 8 0 1M"])?;
        for (words, says) in [
            (["disk", "migrate", "d", "--to", "other"], "other"),
            (["disk", "migrate", "d", "--to", "nowhere"], "nowhere"),
            (["disk", "migrate", "nobody", "--to", "ram"], "nobody"),
        ] {
            let refused = daemon.command(&words).map_err(|e| format!("{e:#}"));
            let refused = refused.expect_err("there is no such move");
            anyhow::ensure!(refused.contains(says), "{words:?}: {refused}");
        }
        daemon.command(&["disk", "migrate", "d", "--to", "ram"])?;
        tools::qemu_io(&daemon.nbd_uri("d"), &["read -P 8 0 1M"])?;
        tools::qemu_io(&daemon.nbd_uri("d"), &["read -P 7 1M 63M"])?;
        daemon.stop()
    });
}
