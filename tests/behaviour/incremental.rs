//! Incremental backups: what changed between snapshots, as libnbd and QEMU learn it, put into an
//! older backup makes the newer one.

use crate::confinement::confined;
use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::nbd::{CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES, Client};
use headgate_lab::{Lab, Server, tools, with_lab};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const SIZE: u64 = 256 << 20;
/// Where clients change anything, and how much of each part.
const PART: u64 = 4 << 20;
const CHANGED: u64 = 2 << 20;
/// How long the client rests between two changes: it is not to change everything.
const PACE: Duration = Duration::from_millis(3);

/// A generator of numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % n
    }
}

/// Changes something at the beginnings of parts: also less than a block, and what is not aligned.
fn change(client: &mut Client, numbers: &mut Numbers) -> anyhow::Result<()> {
    let len = [1, 512, 4096, 10_000, 65_536, 200_000][numbers.below(6) as usize];
    let at = numbers.below(SIZE / PART) * PART + numbers.below(CHANGED - len);
    let command = match numbers.below(8) {
        0 => CMD_TRIM,
        1 => CMD_WRITE_ZEROES,
        _ => CMD_WRITE,
    };
    let data = match command {
        CMD_WRITE => vec![numbers.below(255) as u8 + 1; len as usize],
        _ => Vec::new(),
    };
    let answer = client.ask((command, 0), at, len as u32, &data)?;
    ensure!(answer == Some(0), "command {command} at {at}: {answer:?}");
    Ok(())
}

/// A client that dies in the middle of a write, of which a part may be on the disk.
fn die_writing(daemon: &Headgate, disk: &str, part: u64) -> anyhow::Result<()> {
    let mut client = Client::connect(daemon.nbd_socket(), disk)?;
    let at = (part + 1) * PART - 65_536;
    client.send((CMD_WRITE, 0), 1, at, 65_536, &vec![0xdd; 20_000])
}

fn said(program: &str, arguments: &[&str]) -> anyhow::Result<serde_json::Value> {
    let done = Command::new(program).args(arguments).output()?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{program} {arguments:?}: {errors}");
    Ok(serde_json::from_slice(&done.stdout)?)
}

/// Where an answer in JSON says so, in ranges that are as long as they can be.
fn ranges(
    map: &serde_json::Value,
    key: &str,
    of: impl Fn(&serde_json::Value) -> bool,
) -> anyhow::Result<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for extent in map.as_array().context("no list of extents")? {
        let number = |key: &str| extent[key].as_u64().with_context(|| format!("{extent}"));
        let (begin, len) = (number(key)?, number("length")?);
        match ranges.last_mut() {
            _ if !of(extent) => {}
            Some(last) if last.end == begin => last.end += len,
            _ => ranges.push(begin..begin + len),
        }
    }
    Ok(ranges)
}

/// What libnbd and QEMU are told to have changed; they are told the same.
fn changed(daemon: &Headgate, snapshot: &str, base: &str) -> anyhow::Result<Vec<Range<u64>>> {
    let (uri, context) = (daemon.nbd_uri(snapshot), format!("qemu:dirty-bitmap:{base}"));
    let map = said("nbdinfo", &["--json", &format!("--map={context}"), &uri])?;
    let by_libnbd = ranges(&map, "offset", |extent| extent["type"] == 1)?;
    let socket = daemon.nbd_socket().display();
    let image = format!(
        "driver=nbd,server.type=unix,server.path={socket},export={snapshot},x-dirty-bitmap={context}"
    );
    // QEMU gives what is dirty out as what is no data.
    let map = said("qemu-img", &["map", "--output=json", "--image-opts", &image])?;
    let by_qemu = ranges(&map, "start", |extent| extent["data"] == false)?;
    ensure!(by_libnbd == by_qemu, "libnbd: {by_libnbd:?}\nQEMU: {by_qemu:?}");
    Ok(by_libnbd)
}

/// Reads what changed into the backup of the base, and compares the whole with the snapshot.
fn bring_up_to_date(
    daemon: &Headgate,
    backup: &Path,
    (snapshot, base): (&str, &str),
) -> anyhow::Result<()> {
    let ranges = changed(daemon, snapshot, base)?;
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let most = SIZE / PART * (CHANGED + 2 * 65_536);
    ensure!(0 < bytes && bytes <= most, "{bytes} bytes since {base}, and {most} can have changed");
    let mut client = Client::connect(daemon.nbd_socket(), snapshot)?;
    let file = File::options().write(true).open(backup)?;
    for range in ranges {
        let content = client.read(range.start, (range.end - range.start) as u32)?;
        file.write_all_at(&content, range.start)?;
    }
    eprintln!("  {snapshot} since {base}: {} KiB", bytes >> 10);
    tools::qemu_img_compare(&backup.display().to_string(), &daemon.nbd_uri(snapshot))
        .with_context(|| format!("{snapshot} since {base}"))
}

/// A client changes the disk all the time; now and then it is copied, and once it moves.
fn back_up(daemon: &Headgate, dir: &Path, disk: &str, other: &str) -> anyhow::Result<()> {
    let (stop, mut numbers) = (AtomicBool::new(false), Numbers(7));
    let mut client = Client::connect(daemon.nbd_socket(), disk)?;
    (0..200).try_for_each(|_| change(&mut client, &mut numbers))?;
    let snapshot = |name: &str| {
        daemon.command(&["disk", "snapshot", disk, &format!("{disk}-{name}")]).map(drop)
    };
    let name = |of: &str| format!("{disk}-{of}");
    thread::scope(|scope| {
        let working = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                change(&mut client, &mut numbers)?;
                thread::sleep(PACE);
            }
            anyhow::Ok(())
        });
        let outcome = (|| {
            die_writing(daemon, disk, 0)?;
            snapshot("mon")?;
            let full = dir.join(name("full"));
            tools::nbdcopy(&daemon.nbd_uri(&name("mon")), &full.display().to_string())?;
            let old = dir.join(name("old"));
            std::fs::copy(&full, &old)?;
            die_writing(daemon, disk, 1)?;
            snapshot("tue")?;
            bring_up_to_date(daemon, &full, (&name("tue"), &name("mon")))?;
            daemon.command(&["disk", "migrate", disk, "--to", other])?;
            die_writing(daemon, disk, 2)?;
            snapshot("wed")?;
            bring_up_to_date(daemon, &full, (&name("wed"), &name("tue")))?;
            // Over two snapshots at once, from the first one.
            bring_up_to_date(daemon, &old, (&name("wed"), &name("mon")))
        })();
        stop.store(true, Ordering::Relaxed);
        working.join().expect("the client does not panic")?;
        outcome
    })
}

/// The snapshots since which one tells what changed.
fn since(daemon: &Headgate, snapshot: &str) -> anyhow::Result<serde_json::Value> {
    let disk: serde_json::Value =
        serde_json::from_str(&daemon.get(&format!("/v1/disks/{snapshot}"))?)?;
    Ok(disk["changes_since"].clone())
}

#[test]
fn what_changed_since_a_backup_makes_the_next_one_of_it() {
    with_lab(&["nbdinfo", "nbdcopy", "qemu-img"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["datastore", "add", "ram", "--memory=2G"])?;
        let array = "rate=5000,service=exponential,depth=32";
        daemon.command(&["datastore", "add", "array", "--emulated", array])?;
        let kinds = [("default", "ram"), ("array", "default"), ("ram", "array")];
        for (on, other) in kinds {
            let (disk, size) = (format!("on-{on}"), SIZE.to_string());
            daemon.command(&["disk", "create", &disk, "--size", &size, "--datastore", on])?;
            back_up(&daemon, lab.dir(), &disk, other).with_context(|| format!("on {on}"))?;
        }
        // A snapshot that is gone can be compared with, but leads no further back.
        daemon.command(&["disk", "remove", "on-default-tue", "--purge", "--yes"])?;
        ensure!(since(&daemon, "on-default-wed")? == serde_json::json!(["on-default-tue"]));
        let unknown = changed(&daemon, "on-default-wed", "on-default-mon");
        ensure!(unknown.is_err(), "{unknown:?}");
        // The next daemon tells what this one knew.
        let before = changed(&daemon, "on-array-wed", "on-array-mon")?;
        daemon.kill()?;
        let mut daemon = Headgate::start(lab)?;
        ensure!(changed(&daemon, "on-array-wed", "on-array-mon")? == before);
        // What was changed in between it cannot know, and claims nothing.
        daemon.command(&["disk", "snapshot", "on-array", "on-array-thu"])?;
        ensure!(since(&daemon, "on-array-thu")?.is_null());
        daemon.stop()
    });
}

/// That every block of 64 KiB which differs between two snapshots is said to have changed, and not
/// half of the disk is.
fn ensure_covered(daemon: &Headgate, snapshot: &str, base: &str) -> anyhow::Result<()> {
    const BLOCK: u64 = 64 << 10;
    let ranges = changed(daemon, snapshot, base)?;
    let connect = |export| Client::connect(daemon.nbd_socket(), export);
    let (mut new, mut old) = (connect(snapshot)?, connect(base)?);
    let mut different = 0;
    for begin in (0..SIZE).step_by(BLOCK as usize) {
        if new.read(begin, BLOCK as u32)? == old.read(begin, BLOCK as u32)? {
            continue;
        }
        different += 1;
        let is_named = |range: &Range<u64>| range.start <= begin && begin + BLOCK <= range.end;
        ensure!(ranges.iter().any(is_named), "{begin} differs, and is not named: {ranges:?}");
    }
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    eprintln!("  {snapshot} since {base}: {} KiB, {different} blocks differ", bytes >> 10);
    ensure!(different > 0 && bytes < SIZE / 2, "{bytes} bytes are named");
    Ok(())
}

/// A client comes, changes something, and goes without a flush.
fn visit(daemon: &Headgate, numbers: &mut Numbers) -> anyhow::Result<()> {
    let mut client = Client::connect(daemon.nbd_socket(), "disk")?;
    (0..60).try_for_each(|_| change(&mut client, numbers))
}

/// That a daemon which ended in order kept what changed, if its file system tells of changes.
/// Whether it does.
fn ensure_kept(lab: &Lab, ended: &Headgate) -> anyhow::Result<bool> {
    let kept = ended.state_dir().join("changes/disk.tracked");
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(lab.dir()).output()?;
    let kind = String::from_utf8_lossy(&kind.stdout).trim().to_owned();
    let is_kept = ["ext2/ext3", "xfs", "btrfs"].contains(&kind.as_str());
    ensure!(kept.exists() == is_kept, "{} is on {kind}", kept.display());
    if !is_kept {
        eprintln!("left out: {kind} does not tell who changed an image");
    }
    Ok(is_kept)
}

/// The kernel has to let it read which boot of the host this is, at the end and at the start.
#[test]
fn an_orderly_restart_of_a_confined_daemon_keeps_what_changed() {
    with_lab(&["nbdinfo"], |lab| {
        let allowed = lab.subdir("allowed")?;
        let Some(mut daemon) = confined(lab, &allowed)? else { return Ok(()) };
        let directory = allowed.to_string_lossy().into_owned();
        daemon.command(&["datastore", "add", "dir", "--dir", &directory])?;
        let size = SIZE.to_string();
        daemon.command(&["disk", "create", "disk", "--size", &size, "--datastore", "dir"])?;
        let mut numbers = Numbers(13);
        visit(&daemon, &mut numbers)?;
        daemon.command(&["disk", "snapshot", "disk", "mon"])?;
        visit(&daemon, &mut numbers)?;
        daemon.stop()?;
        if !ensure_kept(lab, &daemon)? {
            return Ok(());
        }
        daemon.start_again()?;
        let log = daemon.log()?;
        ensure!(log.matches("Landlock confines the daemon").count() == 2, "{log}");
        visit(&daemon, &mut numbers)?;
        daemon.command(&["disk", "snapshot", "disk", "tue"])?;
        ensure!(since(&daemon, "tue")? == serde_json::json!(["mon"]), "{log}");
        ensure_covered(&daemon, "tue", "mon")?;
        daemon.stop()
    });
}

#[test]
fn an_orderly_restart_keeps_what_changed_and_no_other_one_does() {
    with_lab(&["nbdinfo", "qemu-img"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "disk", "--size", &SIZE.to_string()])?;
        let mut numbers = Numbers(11);
        let snapshot =
            |daemon: &Headgate, name| daemon.command(&["disk", "snapshot", "disk", name]).map(drop);
        visit(&daemon, &mut numbers)?;
        snapshot(&daemon, "mon")?;
        visit(&daemon, &mut numbers)?;
        daemon.stop()?;
        let kept = daemon.state_dir().join("changes/disk.tracked");
        if !ensure_kept(lab, &daemon)? {
            return Ok(());
        }
        daemon.start_again()?;
        ensure!(!kept.exists(), "a crash from now on would leave it to the next start");
        visit(&daemon, &mut numbers)?;
        snapshot(&daemon, "tue")?;
        ensure!(since(&daemon, "tue")? == serde_json::json!(["mon"]));
        ensure_covered(&daemon, "tue", "mon")?;
        // A daemon that is killed says nothing.
        visit(&daemon, &mut numbers)?;
        daemon.kill()?;
        daemon.start_again()?;
        visit(&daemon, &mut numbers)?;
        snapshot(&daemon, "wed")?;
        ensure!(since(&daemon, "wed")?.is_null(), "it was killed");
        // Nor is it known what others change while no daemon runs.
        visit(&daemon, &mut numbers)?;
        daemon.stop()?;
        ensure!(kept.exists());
        File::options().write(true).open(daemon.image("disk")?)?.write_all_at(&[7], SIZE - 1)?;
        daemon.start_again()?;
        ensure!(!kept.exists());
        visit(&daemon, &mut numbers)?;
        snapshot(&daemon, "thu")?;
        ensure!(since(&daemon, "thu")?.is_null(), "its image was changed");
        let log = daemon.log()?;
        ensure!(log.contains("its image was changed"), "{log}");
        // And on it goes.
        visit(&daemon, &mut numbers)?;
        daemon.stop()?;
        daemon.start_again()?;
        snapshot(&daemon, "fri")?;
        ensure_covered(&daemon, "fri", "thu")?;
        daemon.stop()
    });
}
