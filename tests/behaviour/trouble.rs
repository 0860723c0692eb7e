//! Storage in trouble: full file systems, storage that fails requests. A disk that needs what is
//! not there waits for it and loses nothing, and the others of its datastore do not notice.

use anyhow::{Context, ensure};
use headgate_lab::faulty_fs::{Fault, FaultyFs};
use headgate_lab::file_system::{FileSystem, Kind};
use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::{Process, run_to_end};
use headgate_lab::{Lab, Server, wait_for, with_lab};
use serde_json::Value;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

/// What is free of the file system beside the disk `old` when the load begins, and what it writes.
const FREE_MIB: u64 = 8;
const WRITTEN_MIB: u64 = 32;

/// Which way a client comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Nbd,
    Vhost,
}

fn target(daemon: &Headgate, disk: &str, way: Way) -> String {
    match way {
        Way::Nbd => daemon.nbd_uri(disk),
        Way::Vhost => daemon.vhost_socket(disk).to_string_lossy().into_owned(),
    }
}

fn load(daemon: &Headgate, disk: &str, way: Way, words: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(headgate::binary()?);
    command.arg("load").arg(target(daemon, disk, way)).args(words.split_whitespace());
    // Longer than any test waits.
    command.args(["--timeout", "600"]);
    Ok(command)
}

/// Loads a disk of which nothing may fail.
fn serves(daemon: &Headgate, disk: &str, words: &str) -> anyhow::Result<()> {
    let finished = run_to_end(load(daemon, disk, Way::Nbd, words)?, PATIENCE)?;
    let said = format!("{}{}", finished.stdout, finished.stderr);
    ensure!(finished.status.success(), "'{disk}' beside the trouble: {}\n{said}", finished.status);
    Ok(())
}

/// Overwrites what is allocated, and checks it.
const OVERWRITE: &str =
    "--verify --read-percent 50 --seconds 3 --depth 8 --block-size 4k --offset-range 0-4M";

fn show(daemon: &Headgate, disk: &str) -> anyhow::Result<Value> {
    daemon.json(&["disk", "show", disk])
}

fn wait_held(daemon: &Headgate, disk: &str) -> anyhow::Result<Value> {
    wait_for(&format!("{disk} should hold its requests"), PATIENCE, || {
        let shown = show(daemon, disk)?;
        Ok((shown["trouble"]["state"] == "held").then_some(shown))
    })
}

fn wait_served(daemon: &Headgate, disk: &str) -> anyhow::Result<()> {
    wait_for(&format!("{disk} should go on"), PATIENCE, || {
        Ok(show(daemon, disk)?.get("trouble").is_none().then_some(()))
    })
}

/// A datastore on a small file system, with a disk `old` all of which is allocated and a thin disk
/// `thin` that finds no space for what is written to it.
struct Full {
    daemon: Headgate,
    files: FileSystem,
    filler: std::path::PathBuf,
}

impl Full {
    fn new(lab: &Lab, kind: Kind, thin: &[&str]) -> anyhow::Result<Full> {
        let files = FileSystem::mount(lab, kind, 64)?;
        let daemon = Headgate::start(lab)?;
        let dir = files.path().to_string_lossy().into_owned();
        daemon.command(&["datastore", "add", "small", "--dir", &dir])?;
        let create = ["disk", "create", "old", "--datastore", "small", "--size", "4M"];
        daemon.command(&[&create[..], &["--reservation", "50"]].concat())?;
        serves(&daemon, "old", "--sequential --read-percent 0 --ios 64 --block-size 64k")?;
        let create = ["disk", "create", "thin", "--datastore", "small", "--size", "128M"];
        daemon.command(&[&create[..], thin].concat())?;
        let filler = files.fill(FREE_MIB)?;
        Ok(Full { daemon, files, filler })
    }

    /// Writes more than there is space for, and checks it in the end.
    fn write(&self, lab: &Lab, way: Way, more: &str) -> anyhow::Result<Process> {
        let words = format!(
            "--verify --sequential --read-percent 0 --depth 8 --block-size 64k \
             --ios {} --offset-range 0-{WRITTEN_MIB}M {more}",
            WRITTEN_MIB * 16
        );
        let command = load(&self.daemon, "thin", way, &words)?;
        Process::spawn("headgate load", command, &lab.dir().join("thin.log"))
    }

    fn make_room(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(&self.filler)?)
    }
}

fn ends_well(lab: &Lab, mut writer: Process) -> anyhow::Result<()> {
    let status = writer.wait(PATIENCE)?;
    let said = std::fs::read_to_string(lab.dir().join("thin.log"))?;
    ensure!(status.success(), "the client of the full disk: {status}\n{said}");
    Ok(())
}

#[test]
fn a_disk_without_space_waits_for_it_and_no_other_does() {
    with_lab(&["mkfs.ext4", "losetup"], |lab| {
        let mut full = Full::new(lab, Kind::Ext4, &[])?;
        let writer = full.write(lab, Way::Vhost, "")?;
        let daemon = &full.daemon;
        let shown = wait_held(daemon, "thin")?;
        ensure!(shown["state"] == "serving", "{shown}");
        ensure!(shown["trouble"]["error"].to_string().contains("no space left"), "{shown}");
        ensure!(shown["last_error"]["op"] == "write", "{shown}");

        // What others may notice of it: nothing.
        serves(daemon, "old", OVERWRITE)?;
        ensure!(show(daemon, "old")?.get("trouble").is_none(), "the other disk is in trouble");
        let metrics = daemon.metrics()?;
        ensure!(metrics.of_disk("headgate_disk_errors_total", "old")? == 0.0);
        ensure!(metrics.of_disk("headgate_disk_errors_total", "thin")? == 0.0, "it was told");

        // What its operator sees.
        ensure!(metrics.of_disk("headgate_disk_held_requests", "thin")? >= 1.0);
        ensure!(metrics.of_disk("headgate_disk_storage_errors_total", "thin")? >= 1.0);
        let listed = daemon.command(&["disk", "list"])?;
        ensure!(listed.lines().any(|l| l.contains("thin") && l.contains("held")), "{listed}");
        let top = daemon.command(&["top", "--once"])?;
        ensure!(top.contains("HELD: no space left"), "{top}");
        let health: Value = serde_json::from_str(&daemon.get("/healthz")?)?;
        ensure!(health["status"] == "degraded", "{health}");
        ensure!(health["failed"][0].to_string().contains("disk 'thin': held"), "{health}");
        wait_for("health should warn of the space", PATIENCE, || {
            let health = daemon.health()?;
            Ok(health["warnings"][0].to_string().contains("% full").then_some(()))
        })?;
        wait_for("the log should tell of it", PATIENCE, || {
            Ok(daemon.log()?.contains("the disk holds its requests").then_some(()))
        })?;
        let error = daemon.command(&["disk", "resume", "thin"]).err().context("it went on")?;
        ensure!(error.to_string().contains("it was tried, and failed: no space"), "{error}");

        full.make_room()?;
        let resumed = daemon.command(&["disk", "resume", "thin"])?;
        ensure!(!resumed.contains("requests are held"), "{resumed}");
        ends_well(lab, writer)?;
        wait_for("the log should tell of its end", PATIENCE, || {
            Ok(daemon.log()?.contains("the disk goes on").then_some(()))
        })?;
        full.daemon.stop()
    });
}

#[test]
fn a_disk_goes_on_by_itself_when_there_is_space() {
    with_lab(&[], |lab| {
        let mut full = Full::new(lab, Kind::Tmpfs, &[])?;
        // Long writes, which are received to their places in a mapped image.
        let writer = full.write(lab, Way::Nbd, "")?;
        wait_held(&full.daemon, "thin")?;
        serves(&full.daemon, "old", OVERWRITE)?;
        full.make_room()?;
        ends_well(lab, writer)?;
        wait_served(&full.daemon, "thin")?;
        full.daemon.stop()
    });
}

#[test]
fn a_disk_that_is_to_report_reports_and_says_so() {
    with_lab(&["mkfs.ext4", "losetup"], |lab| {
        let mut full = Full::new(lab, Kind::Ext4, &["--werror", "report"])?;
        let mut writer = full.write(lab, Way::Nbd, "")?;
        ensure!(!writer.wait(PATIENCE)?.success(), "writes without space succeeded");
        let daemon = &full.daemon;
        let shown = show(daemon, "thin")?;
        ensure!(shown["trouble"]["state"] == "failing", "{shown}");
        let health: Value = serde_json::from_str(&daemon.get("/healthz")?)?;
        ensure!(health["failed"][0].to_string().contains("disk 'thin': failing"), "{health}");
        wait_for("the log should tell of it", PATIENCE, || {
            Ok(daemon.log()?.contains("the storage fails requests").then_some(()))
        })?;
        let lines = daemon.log()?.matches("the storage fails requests").count();
        ensure!(lines == 1, "{lines} lines of one trouble");
        // It is over by itself.
        wait_served(daemon, "thin")?;
        let health: Value = serde_json::from_str(&daemon.get("/healthz")?)?;
        ensure!(health["status"] == "ok", "{health}");
        full.daemon.stop()
    });
}

#[test]
fn storage_that_fails_writes_is_waited_for_where_that_is_asked_for() {
    with_lab(&[], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let dir = lab.subdir("store")?.to_string_lossy().into_owned();
        daemon.command(&["datastore", "add", "store", "--dir", &dir])?;
        for (disk, options) in [
            ("waits", ["--werror", "stop", "--rerror", "report"]),
            ("reads", ["--reservation", "50", "--shares", "10"]),
        ] {
            let create = ["disk", "create", disk, "--datastore", "store", "--size", "8M"];
            daemon.command(&[&create[..], &options[..]].concat())?;
        }
        let layer = |layer| daemon.command(&["datastore", "set", "store", "--layer", layer]);
        layer("error=100%,on=write")?;
        let words = "--verify --read-percent 50 --ios 4000 --depth 16 --offset-range 0-4M";
        let command = load(&daemon, "waits", Way::Vhost, words)?;
        let writer = Process::spawn("headgate load", command, &lab.dir().join("thin.log"))?;
        wait_held(&daemon, "waits")?;
        serves(&daemon, "reads", "--read-percent 100 --seconds 3 --depth 8")?;
        let error = daemon.command(&["disk", "resume", "waits"]).err().context("it went on")?;
        ensure!(error.to_string().contains("Input/output error"), "{error}");
        layer("none")?;
        daemon.command(&["disk", "resume", "waits"])?;
        ends_well(lab, writer)?;
        daemon.stop()
    });
}

/// Whoever ends does not wait for what is held: clients, disks, daemons.
#[test]
fn what_is_held_keeps_nobody_from_ending() {
    with_lab(&["mkfs.ext4", "losetup"], |lab| {
        let mut full = Full::new(lab, Kind::Ext4, &[])?;
        let mut killed = full.write(lab, Way::Nbd, "")?;
        wait_held(&full.daemon, "thin")?;
        killed.kill()?;
        // Nothing is left to hold for: the next client is served.
        wait_served(&full.daemon, "thin")?;
        serves(&full.daemon, "thin", "--read-percent 100 --ios 100")?;

        // What the daemon held when it stopped is served by the next one.
        let writer = full.write(lab, Way::Vhost, "--reconnect 60")?;
        wait_held(&full.daemon, "thin")?;
        full.daemon.stop()?;
        full.make_room()?;
        full.daemon.start_again()?;
        ends_well(lab, writer)?;

        // A disk that holds requests can be removed, where the directory of removed disks is there.
        full.daemon.command(&["disk", "create", "first", "--datastore=small", "--size=1M"])?;
        full.daemon.command(&["disk", "remove", "first"])?;
        let filler = full.files.fill(1)?;
        let remove = ["disk", "create", "gone", "--datastore", "small", "--size", "16M"];
        full.daemon.command(&remove)?;
        let words = "--sequential --read-percent 0 --ios 4000 --block-size 4k";
        let command = load(&full.daemon, "gone", Way::Vhost, words)?;
        let mut writer = Process::spawn("headgate load", command, &lab.dir().join("gone.log"))?;
        wait_held(&full.daemon, "gone")?;
        full.daemon.command(&["disk", "remove", "gone", "--force"])?;
        ensure!(!writer.wait(PATIENCE)?.success(), "its client did not notice");
        serves(&full.daemon, "old", OVERWRITE)?;
        std::fs::remove_file(filler)?;
        full.daemon.stop()
    });
}

/// A guest's machine is paused, goes on, and is reset while its writes are held.
#[test]
fn a_guest_whose_writes_wait_for_space_is_paused_and_resumed() {
    with_lab(&[QEMU, "mkfs.ext4", "losetup"], |lab| {
        let mut full = Full::new(lab, Kind::Ext4, &[])?;
        let drive = Drive::VhostUser { socket: full.daemon.vhost_socket("thin") };
        let mut guest = Guest::boot(lab, &Machine::new("guest", drive))?;
        let mut monitor = guest.monitor()?;
        let write = format!(
            "head -c {} /dev/urandom >/tmp/data; md5sum </tmp/data\n\
             (dd if=/tmp/data of=/dev/vda bs=64k oflag=direct && sync; echo dd $? >/tmp/end) \
             >/tmp/dd.log 2>&1 &",
            16 * MIB
        );
        let wanted = guest.run(&write, PATIENCE)?;
        wait_held(&full.daemon, "thin")?;
        monitor.execute("stop", PATIENCE)?;
        monitor.execute("cont", PATIENCE)?;
        wait_held(&full.daemon, "thin")?;
        serves(&full.daemon, "old", OVERWRITE)?;
        full.make_room()?;
        full.daemon.command(&["disk", "resume", "thin"])?;
        let end = "while [ ! -e /tmp/end ]; do sleep 0.1; done; cat /tmp/end /tmp/dd.log";
        let said = guest.run(end, PATIENCE)?;
        ensure!(said.contains("dd 0"), "the guest's write failed:\n{said}");
        let read = format!("dd if=/dev/vda bs=64k count={} iflag=direct 2>/dev/null | md5sum", 256);
        let found = guest.run(&read, PATIENCE)?;
        ensure!(found.trim() == wanted.trim(), "{found} is there, and {wanted} was written");
        let console = guest.console();
        ensure!(!console.contains("I/O error"), "the guest saw IO errors:\n{console}");
        guest.power_off()?;
        full.daemon.stop()
    });
}

/// A disk that holds waits for space, and one whose storage does not answer hangs: who looks can
/// tell them apart, also when one follows the other.
#[test]
fn a_disk_that_holds_does_not_hang_until_its_storage_does() {
    with_lab(&["stat"], |lab| {
        let Some(mut far) = FaultyFs::mount(lab.dir(), "far")? else { return Ok(()) };
        let mut daemon = Headgate::start(lab)?;
        let dir = far.path().to_string_lossy().into_owned();
        daemon.command(&["datastore", "add", "far", "--dir", &dir])?;
        for (disk, on) in [("there", "far"), ("here", "default")] {
            daemon.command(&["disk", "create", disk, "--size", "8M", "--datastore", on])?;
        }
        let state = |kind, name| -> anyhow::Result<Value> {
            Ok(daemon.json(&[kind, "show", name])?["state"].clone())
        };
        far.set(Fault::FailWrites(libc::ENOSPC));
        let words = "--verify --read-percent 50 --ios 2000 --depth 16 --offset-range 0-4M";
        let command = load(&daemon, "there", Way::Vhost, words)?;
        let writer = Process::spawn("headgate load", command, &lab.dir().join("thin.log"))?;
        wait_held(&daemon, "there")?;
        // Until two tries are further apart than what counts as a hang.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(28) {
            let (store, disk) = (state("datastore", "far")?, state("disk", "there")?);
            ensure!(store == "serving" && disk == "serving", "{store}, {disk}: it answers");
            sleep(Duration::from_millis(500));
        }
        far.hang()?;
        wait_for("the datastore should hang", PATIENCE, || {
            Ok((state("datastore", "far")? == "hung").then_some(()))
        })?;
        serves(&daemon, "here", OVERWRITE)?;
        daemon.command(&["disk", "resume", "there"]).err().context("it went on")?;
        let listed = daemon.command(&["disk", "list"])?;
        ensure!(listed.lines().any(|l| l.contains("there") && l.contains("hung")), "{listed}");
        far.heal();
        ends_well(lab, writer)?;
        wait_served(&daemon, "there")?;
        wait_for("the datastore should be back", PATIENCE, || {
            Ok((state("datastore", "far")? == "serving").then_some(()))
        })?;
        daemon.stop()
    });
}

#[test]
fn space_is_shown_and_promised_within_bounds() {
    with_lab(&["mkfs.ext4", "losetup"], |lab| {
        let mut full = Full::new(lab, Kind::Ext4, &[])?;
        let daemon = &full.daemon;
        let create = ["disk", "create", "huge", "--datastore", "small", "--size", "1G"];
        let error = daemon.command(&create).err().context("1G on 64M was taken")?.to_string();
        ensure!(error.contains("at most 10 times that room may be"), "{error}");
        ensure!(error.contains("--overcommit RATIO"), "{error}");
        daemon.command(&["datastore", "set", "small", "--overcommit", "100"])?;
        let created = daemon.json(&create)?;
        ensure!(created["warnings"].to_string().contains("are free on datastore"), "{created}");

        let shown = daemon.json(&["datastore", "show", "small"])?;
        let found = &shown["file_system"];
        ensure!(found["provisioned"] == (4 + 128 + 1024) * MIB, "{found}");
        ensure!(found["overcommit_max"] == "100", "{found}");
        ensure!(found["overcommit"].as_f64().context("no ratio")? > 10.0, "{found}");
        let text = daemon.command(&["datastore", "show", "small"])?;
        ensure!(text.contains("over-commitment:") && text.contains("at most 100"), "{text}");
        wait_for("the file system should be told to be full", PATIENCE, || {
            Ok(daemon.log()?.contains("is over 80 % full").then_some(()))
        })?;
        let metrics = daemon.get("/metrics")?;
        let full_at = "headgate_datastore_space_warning_percent{datastore=\"small\"} 80";
        ensure!(metrics.contains(full_at), "no warning of 'small' in the metrics");
        full.make_room()?;
        wait_for("there should be space again", PATIENCE, || {
            Ok(daemon.log()?.contains("there is more space on the datastore again").then_some(()))
        })?;
        full.daemon.stop()
    });
}
