//! Copies of disks as of one instant, while a guest and an NBD client write.

use crate::remote::Peer;
use anyhow::{Context, ensure};
use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::Headgate;
use headgate_lab::loop_device::Loop;
use headgate_lab::nbd::{CMD_WRITE, Client};
use headgate_lab::process::run;
use headgate_lab::{Server, tools, wait_for, with_lab};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// Where a counter's blocks are, and how large they are.
const BLOCKS: u64 = 512;
const BLOCK: u64 = 4096;
/// Far apart, so that many chunks are written to, each again and again.
const APART: u64 = 128 << 10;

/// `NBD_CMD_FLAG_FUA`
const FUA: u16 = 1;

/// Writes the numbers from 1 on, each when the one before is durable, to one block after the other,
/// round and round.
struct Counter {
    acknowledged: AtomicU64,
    stop: AtomicBool,
}

impl Counter {
    fn run(&self, daemon: &Headgate, disk: &str) -> anyhow::Result<()> {
        let mut client = Client::connect(daemon.nbd_socket(), disk)?;
        let mut number: u64 = 0;
        while !self.stop.load(Ordering::Relaxed) {
            number += 1;
            let data = number.to_le_bytes().repeat(BLOCK as usize / 8);
            let at = (number % BLOCKS) * APART;
            let answer = client.ask((CMD_WRITE, FUA), at, BLOCK as u32, &data)?;
            ensure!(answer == Some(0), "write {number}: {answer:?}");
            self.acknowledged.store(number, Ordering::Release);
        }
        Ok(())
    }

    fn at(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }
}

/// The number that was written last, if this is a disk as it was when that had been written.
fn counted(daemon: &Headgate, disk: &str) -> anyhow::Result<u64> {
    let mut client = Client::connect(daemon.nbd_socket(), disk)?;
    let mut blocks = Vec::new();
    for at in 0..BLOCKS {
        let block = client.read(at * APART, BLOCK as u32)?;
        let number = u64::from_le_bytes(block[..8].try_into()?);
        ensure!(block == number.to_le_bytes().repeat(BLOCK as usize / 8), "block {at} is torn");
        blocks.push(number);
    }
    let last = blocks.iter().copied().max().unwrap_or(0);
    for (at, number) in (0..).zip(blocks) {
        // The last number not above `last` that goes to this block.
        let wanted = (0..BLOCKS).map(|back| last.saturating_sub(back)).find(|n| n % BLOCKS == at);
        let wanted = wanted.filter(|n| last >= BLOCKS || *n > 0).unwrap_or(0);
        ensure!(number == wanted, "block {at} has {number}, and {last} was written, not {wanted}");
    }
    Ok(last)
}

#[test]
fn a_snapshot_is_of_one_instant_of_a_disk_that_is_written() {
    with_lab(&["qemu-img"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["datastore", "add", "ram", "--memory=512M"])?;
        let array = "rate=3000,service=exponential,depth=32";
        daemon.command(&["datastore", "add", "array", "--emulated", array])?;
        for (from, to) in [("default", "array"), ("array", "ram"), ("ram", "default")] {
            let disk = format!("of-{from}");
            let on = ["--size=64M", "--datastore", from];
            daemon.command(&[&["disk", "create", &disk][..], &on].concat())?;
            counts(&daemon, &disk, &["--datastore", to], Room::ForMany)
                .with_context(|| format!("from {from} to {to}"))?;
        }
        daemon.stop()
    });
}

/// How many copies there may be at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    ForMany,
    /// It is one device, or one export.
    ForOne,
}

/// Copies a disk there while a client counts on it: three times, and once when it rests.
pub(crate) fn counts(daemon: &Headgate, disk: &str, to: &[&str], room: Room) -> anyhow::Result<()> {
    let counter = Counter { acknowledged: AtomicU64::new(0), stop: AtomicBool::new(false) };
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            let ended = counter.run(daemon, disk);
            counter.stop.store(true, Ordering::Relaxed);
            ended
        });
        let outcome = (0..3).try_for_each(|n| {
            let begun = counter.at();
            wait_for("the client should get on", PATIENCE, || {
                let stopped = counter.stop.load(Ordering::Relaxed);
                Ok((stopped || counter.at() > begun + 700).then_some(()))
            })?;
            let (copy, before) = (format!("{disk}-{n}"), counter.at());
            // The last one is slow: the client writes to all of its chunks while it is made.
            let slow: &[&str] = if n == 2 { &["--copy-limit=100"] } else { &[] };
            let words = match n {
                0 => vec!["disk", "copy", disk, &copy],
                1 => vec!["disk", "create", &copy, "--from", disk],
                _ => vec!["disk", "clone", disk, &copy],
            };
            daemon.command(&[&words[..], &["--read-only", "--detach"], to, slow].concat())?;
            // One may be under way that nobody has heard of.
            let after = counter.at() + 1;
            wait_for("the copy should be complete", PATIENCE, || {
                let now = copy_of(daemon, &copy)?;
                ensure!(now["state"] != "failed", "{now}");
                Ok((now["state"] == "complete").then_some(()))
            })?;
            let found = counted(daemon, &copy).with_context(|| format!("copy {n}"))?;
            ensure!(
                (before..=after).contains(&found),
                "{found} is not between {before}, written before the copy, and {after}"
            );
            if room == Room::ForOne {
                daemon.command(&["disk", "remove", &copy])?;
            }
            Ok(())
        });
        counter.stop.store(true, Ordering::Relaxed);
        client.join().expect("the client does not panic")?;
        outcome
    })?;
    let last = counted(daemon, disk)?;
    ensure!(last == counter.at(), "the disk has {last}, and {} were written", counter.at());
    // A copy of what nobody writes is the same to a program that knows nothing of us.
    daemon.command(&[&["disk", "snapshot", disk, &format!("{disk}-idle")], to].concat())?;
    tools::qemu_img_compare(&daemon.nbd_uri(disk), &daemon.nbd_uri(&format!("{disk}-idle")))
}

pub(crate) fn copy_of(daemon: &Headgate, copy: &str) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::from_str(&daemon.get(&format!("/v1/copies/{copy}"))?)?)
}

/// What is there before is neither zeroes nor anything that a disk would be refused for.
fn full_of_junk(path: &Path, mib: usize) -> anyhow::Result<()> {
    Ok(std::fs::write(path, vec![0xa5; mib << 20])?)
}

#[test]
fn a_block_device_and_an_export_take_a_disk_as_of_one_instant() {
    with_lab(&["qemu-img", "qemu-io", "qemu-nbd", "losetup", "mkfs.ext4"], |lab| {
        let (file, exported) = (lab.dir().join("device.raw"), lab.dir().join("export.raw"));
        full_of_junk(&file, 64)?;
        full_of_junk(&exported, 64)?;
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "db", "--size=64M"])?;
        // A server that knows nothing of us. What is a hole of the disk is zero there.
        let exported = exported.display().to_string();
        let serve = ["qemu-nbd", "-t", "-e", "4", "-k", "SOCKET", "-f", "raw", &exported];
        let server = Peer::start(lab, &serve)?;
        let uri = format!("nbd+unix:///?socket={}", server.socket.display());
        daemon.command(&["datastore", "add", "far", "--nbd", &uri])?;
        let unnamed = daemon.command(&["disk", "snapshot", "db", "s", "--datastore=far"]);
        let refused = unnamed.expect_err("no export was named").to_string();
        ensure!(refused.contains("no export of it is named"), "{refused}");
        counts(&daemon, "db", &["--datastore=far", "--export="], Room::ForOne).context("far")?;
        daemon.command(&["disk", "remove", "db-idle"])?;
        tools::qemu_io(&daemon.nbd_uri("db"), &["write -P 9 5M 1M"])?;
        let Some(device) = Loop::attach(&file) else {
            println!("SKIPPED: no loop device to be had");
            return Ok(());
        };
        let node = device.0.display().to_string();
        daemon.command(&["datastore", "add", "lun", "--block", &node])?;
        counts(&daemon, "db", &["--datastore=lun"], Room::ForOne).context("lun")?;
        // Somebody else's file system is overwritten by force only.
        daemon.command(&["disk", "remove", "db-idle"])?;
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F"]).arg(&device.0);
        run(mkfs, PATIENCE)?;
        let copy = ["disk", "snapshot", "db", "s", "--datastore=lun"];
        let refused = daemon.command(&copy).expect_err("it holds ext4").to_string();
        ensure!(refused.contains("ext4"), "{refused}");
        let disks = daemon.json(&["disk", "list"])?;
        ensure!(disks.as_array().map(Vec::len) == Some(1), "{disks}");
        daemon.command(&[&copy[..], &["--force"]].concat())?;
        tools::qemu_img_compare(&daemon.nbd_uri("db"), &daemon.nbd_uri("s"))?;
        // One that is smaller has no room.
        daemon.command(&["disk", "create", "large", "--size=65M"])?;
        daemon.command(&["disk", "remove", "s"])?;
        let large = daemon.command(&["disk", "copy", "large", "l", "--datastore=lun", "--force"]);
        let refused = large.expect_err("it is smaller").to_string();
        ensure!(refused.contains("differs"), "{refused}");
        // One that is killed takes no device: the next daemon can use it.
        let slow = ["disk", "copy", "db", "half", "--datastore=lun", "--force"];
        daemon.command(&[&slow[..], &["--copy-limit=20", "--detach"]].concat())?;
        daemon.kill()?;
        daemon.start_again()?;
        wait_for("half a copy should be removed", PATIENCE, || {
            let disks = daemon.json(&["disk", "list"])?;
            Ok((disks.as_array().map(Vec::len) == Some(2)).then_some(()))
        })?;
        daemon.command(&slow)?;
        tools::qemu_img_compare(&daemon.nbd_uri("db"), &daemon.nbd_uri("half"))?;
        daemon.stop()
    });
}

/// Files that are written, renamed and removed for ever, each with its checksum in its name.
const BUSY: &str = r#"
set -e
mkfs.ext4 -q -F /dev/vda
mount -t ext4 /dev/vda /mnt
mkdir /mnt/files
seq 1 100000 >/mnt/numbers
sync
(
  n=0
  while [ ! -e /tmp/stop ]; do
    n=$((n + 1))
    head -c $((n % 50 * 1000 + 1)) /dev/urandom >/tmp/new || touch /tmp/failed
    sum=$(sha256sum /tmp/new); sum=${sum%% *}
    cp /tmp/new /mnt/files/.new && sync /mnt/files/.new &&
      mv /mnt/files/.new "/mnt/files/$((n % 40)).$sum" || touch /tmp/failed
    for old in /mnt/files/$((n % 40)).*; do
      [ "$old" = "/mnt/files/$((n % 40)).$sum" ] || rm -f "$old"
    done
    dd if=/dev/zero of=/mnt/busy bs=64k count=64 oflag=direct conv=notrunc 2>/tmp/dd.log ||
      touch /tmp/failed
    echo $n >/tmp/rounds
    [ -e /tmp/failed ] && break
  done
  touch /tmp/done
) &
"#;

/// Waits for the next sixty rounds of it.
const ROUNDS: &str = r#"
now() { cat /tmp/rounds 2>/dev/null || echo 0; }
from=$(now)
n=0
until [ "$(now)" -gt $((from + 60)) ]; do
  n=$((n + 1))
  [ $n -lt 900 ] || { echo "$(now) rounds, of which $from were before"; exit 1; }
  sleep 0.1
done
"#;

/// What a guest finds on a copy: a file system that was cut, and is whole when its journal is read.
const FIND: &str = r#"
set -e
mount -t ext4 /dev/vda /mnt
seq 1 100000 | cmp - /mnt/numbers
files=0
for file in /mnt/files/[0-9]*; do
  sum=$(sha256sum "$file"); sum=${sum%% *}
  [ "${file##*.}" = "$sum" ] || { echo "$file has $sum"; exit 1; }
  files=$((files + 1))
done
umount /mnt
e2fsck -fn /dev/vda >/tmp/fsck 2>&1 || { cat /tmp/fsck; exit 1; }
echo $files
"#;

#[test]
fn a_guest_finds_its_file_system_whole_on_a_copy_of_a_disk_that_another_guest_writes() {
    with_lab(&[QEMU], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "db", "--size=96M", "--reservation=200"])?;
        let drive = Drive::VhostUser { socket: daemon.vhost_socket("db") };
        let mut guest = Guest::boot(lab, &Machine { cpus: 2, ..Machine::new("db", drive) })?;
        guest.run(BUSY, PATIENCE)?;
        for copy in ["one", "two"] {
            guest.run(ROUNDS, PATIENCE)?;
            daemon.command(&["disk", "copy", "db", copy])?;
        }
        let stopped = "touch /tmp/stop; while [ ! -e /tmp/done ]; do sleep 0.1; done; \
                       test ! -e /tmp/failed && umount /mnt && e2fsck -fn /dev/vda";
        guest.run(stopped, PATIENCE)?;
        ensure!(!guest.console().contains("I/O error"), "{}", guest.console());
        guest.power_off()?;
        for copy in ["one", "two"] {
            let drive = Drive::VhostUser { socket: daemon.vhost_socket(copy) };
            let mut finder = Guest::boot(lab, &Machine::new(copy, drive))?;
            let files: u32 = finder.run(FIND, PATIENCE)?.trim().parse()?;
            ensure!(files >= 30, "only {files} files are there");
            finder.power_off()?;
        }
        daemon.stop()
    });
}

#[test]
fn a_daemon_that_is_killed_leaves_no_half_copy() {
    with_lab(&["qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "db", "--size=32M"])?;
        tools::qemu_io(&daemon.nbd_uri("db"), &["write -P 7 0 32M"])?;
        let slow = ["--copy-limit=20", "--detach"];
        daemon.command(&[&["disk", "copy", "db", "half"][..], &slow].concat())?;
        let now = copy_of(&daemon, "half")?;
        ensure!(now["state"] == "copying", "{now}");
        let image = daemon.image("half")?;
        daemon.kill()?;
        daemon.start_again()?;
        wait_for("half a copy should be removed", PATIENCE, || {
            let disks = daemon.json(&["disk", "list"])?;
            Ok((disks.as_array().map(Vec::len) == Some(1) && !image.exists()).then_some(()))
        })?;
        tools::qemu_io(&daemon.nbd_uri("db"), &["read -P 7 0 32M", "write -P 8 0 1M"])?;
        // The name is free, and one that is cancelled leaves nothing either.
        daemon.command(&[&["disk", "copy", "db", "half"][..], &slow].concat())?;
        daemon.command(&["disk", "copy", "--cancel", "half"])?;
        ensure!(!image.exists(), "the image of a cancelled copy is left");
        daemon.command(&["disk", "copy", "db", "half"])?;
        tools::qemu_io(&daemon.nbd_uri("half"), &["read -P 8 0 1M", "read -P 7 1M 31M"])?;
        daemon.stop()
    });
}

/// At its first pace the copy would take an hour.
#[test]
fn a_copy_that_crawls_is_hurried_and_its_disk_stays_what_it_was() {
    with_lab(&["qemu-img", "qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "db", "--size=64M"])?;
        tools::qemu_io(&daemon.nbd_uri("db"), &["write -P 5 0 64M"])?;
        let crawl = ["--copy-bandwidth=16k", "--detach"];
        daemon.command(&[&["disk", "copy", "db", "copy"], &crawl[..]].concat())?;
        let slow = copy_of(&daemon, "copy")?;
        ensure!(slow["state"] == "copying" && slow["limit_bandwidth"] == 16 << 10, "{slow}");
        let metrics = daemon.get("/metrics")?;
        ensure!(metrics.contains(r#"headgate_copy_size_bytes{copy="copy",disk="db"} 67108864"#));
        let nothing = daemon.command(&["disk", "copy", "--change", "copy"]);
        ensure!(nothing.is_err_and(|e| format!("{e:#}").contains("--copy-shares")));
        let hurry = ["disk", "copy", "--change", "copy", "--copy-bandwidth", "none"];
        daemon.command(&[&hurry[..], &["--copy-shares", "9"]].concat())?;
        let end = wait_for("the copy should be complete", PATIENCE, || {
            let now = copy_of(&daemon, "copy")?;
            ensure!(now["state"] != "failed", "{now}");
            Ok((now["state"] == "complete").then_some(now))
        })?;
        ensure!(end["shares"] == 9 && end["limit_bandwidth"].is_null(), "{end}");
        let metrics = daemon.get("/metrics")?;
        ensure!(metrics.contains(r#"headgate_copies_ended_total{outcome="complete"} 1"#));
        tools::qemu_img_compare(&daemon.nbd_uri("db"), &daemon.nbd_uri("copy"))?;
        daemon.stop()
    });
}
