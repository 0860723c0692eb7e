//! Disks that get another size while a guest and an NBD client use them.

use anyhow::{Context, ensure};
use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::Headgate;
use headgate_lab::loop_device::Loop;
use headgate_lab::process::run;
use headgate_lab::writer::Writer;
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use std::fs::File;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

/// A file system in use, and the size that the guest's kernel knows, in sectors.
const PREPARE: &str = r#"
set -e
mkfs.ext4 -q -F /dev/vda
mount -t ext4 /dev/vda /mnt
seq 1 100000 >/mnt/numbers
sync
(
  n=0
  while [ ! -e /tmp/stop ]; do
    n=$((n + 1))
    dd if=/dev/zero of=/mnt/busy bs=64k count=32 oflag=direct conv=notrunc 2>/tmp/dd.log || touch /tmp/failed
    [ -e /tmp/failed ] && break
  done
  touch /tmp/done
) &
cat /sys/block/vda/size
"#;

/// Waits for the size, lets the file system grow into it, and fills what is new.
const GROW: &str = r#"
set -e
n=0
while [ "$(cat /sys/block/vda/size)" != SECTORS ]; do
  n=$((n + 1))
  [ $n -lt 600 ] || { echo "the guest knows $(cat /sys/block/vda/size) sectors"; exit 1; }
  sleep 0.1
done
resize2fs /dev/vda 2>&1
dd if=/dev/zero of=/mnt/large bs=1M count=FILL 2>&1
sync
test ! -e /tmp/failed
"#;

const CHECK: &str = r#"
set -e
touch /tmp/stop
while [ ! -e /tmp/done ]; do sleep 0.1; done
test ! -e /tmp/failed
seq 1 100000 | cmp - /mnt/numbers
umount /mnt
e2fsck -fn /dev/vda
sha256sum /dev/vda
"#;

fn resize(daemon: &Headgate, disk: &str, mib: u64) -> anyhow::Result<()> {
    let changed = daemon.json(&["disk", "resize", disk, &format!("--size={mib}M")])?;
    ensure!(changed["size"] == mib * MIB, "{changed}");
    Ok(())
}

fn size(daemon: &Headgate, disk: &str) -> anyhow::Result<u64> {
    let shown = daemon.json(&["disk", "show", disk])?;
    shown["size"].as_u64().context("no size")
}

#[test]
fn a_guest_and_an_nbd_client_work_on_while_their_disks_grow() {
    with_lab(&[QEMU, "qemu-io", "qemu-img", "nbdcopy"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["datastore", "add", "ram", "--memory=512M"])?;
        let array = "rate=3000,service=exponential,depth=32";
        daemon.command(&["datastore", "add", "array", "--emulated", array])?;
        for (datastore, disk) in [("default", "files"), ("ram", "memory"), ("array", "slow")] {
            grows(lab, &daemon, datastore, disk).with_context(|| datastore.to_owned())?;
        }
        daemon.stop()
    });
}

fn grows(lab: &Lab, daemon: &Headgate, datastore: &str, disk: &str) -> anyhow::Result<()> {
    let client = format!("{disk}-client");
    for name in [disk, &client] {
        daemon.command(&["disk", "create", name, "--size=64M", "--datastore", datastore])?;
    }
    let drive = Drive::VhostUser { socket: daemon.vhost_socket(disk) };
    let mut guest = Guest::boot(lab, &Machine { cpus: 2, ..Machine::new(disk, drive) })?;
    let said = guest.run(PREPARE, PATIENCE)?;
    ensure!(said.trim() == (64 * MIB / 512).to_string(), "{said}");
    let writer = Writer::new(daemon.nbd_socket(), &client, 1, 4096);
    let progress = writer.progress();
    thread::scope(|scope| {
        let writer = scope.spawn(|| writer.run());
        let outcome = [(96, 20), (160, 60)].into_iter().try_for_each(|(mib, fill)| {
            resize(daemon, disk, mib)?;
            resize(daemon, &client, mib)?;
            let script = GROW.replace("SECTORS", &(mib * MIB / 512).to_string());
            guest.run(&script.replace("FILL", &fill.to_string()), PATIENCE)?;
            // A client that comes now sees the size, and one that is there has it.
            let uri = daemon.nbd_uri(&client);
            let last = format!("write -P 9 {}M 1M", mib - 1);
            tools::qemu_io(&uri, &[&last])?;
            let before = progress.flushes.load(Ordering::Relaxed);
            wait_for("the client should get on", PATIENCE, || {
                let now = progress.flushes.load(Ordering::Relaxed);
                Ok((now > before + 3 || writer.is_finished()).then_some(()))
            })
        });
        progress.stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer does not panic")?;
        outcome
    })?;
    let lost = progress.crashes.load(Ordering::Relaxed);
    ensure!(lost == 0, "the client lost its connection");
    let hash = guest.run(CHECK, PATIENCE)?;
    let hash = hash.lines().last().unwrap_or_default();
    ensure!(!guest.console().contains("I/O error"), "{}", guest.console());
    let smaller = daemon.command(&["disk", "resize", disk, "--size=64M", "--shrink"]);
    let smaller = format!("{:#}", smaller.expect_err("a guest uses it"));
    ensure!(smaller.contains("1 client"), "{smaller}");
    guest.power_off()?;
    let copy = lab.dir().join(format!("{disk}.raw"));
    tools::nbdcopy(&daemon.nbd_uri(disk), &copy.to_string_lossy())?;
    ensure!(hash.starts_with(&tools::sha256(&copy)?), "not what the guest read last: {hash}");
    ensure!(copy.metadata()?.len() == 160 * MIB, "{}", copy.metadata()?.len());
    Ok(())
}

#[test]
fn a_disk_shrinks_by_two_words_and_grows_after_a_kill() {
    with_lab(&["qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "d", "--size=64M"])?;
        let uri = daemon.nbd_uri("d");
        tools::qemu_io(&uri, &["write -P 5 0 1M", "write -P 6 40M 1M"])?;
        let refused = |arguments: &[&str], word: &str| {
            let arguments = [&["disk", "resize", "d"], arguments].concat();
            let said = format!("{:#}", daemon.command(&arguments).expect_err("data is lost"));
            ensure!(said.contains(word), "{said}");
            ensure!(size(&daemon, "d")? == 64 * MIB, "{said}");
            tools::qemu_io(&uri, &["read -P 6 40M 1M"]).map(drop)
        };
        refused(&["--size=32M"], "--shrink")?;
        refused(&["--size=32M", "--shrink"], "--discard-data")?;
        refused(&[], "size")?;
        refused(&["--size=3"], "multiple of 4096")?;
        daemon.command(&["disk", "resize", "d", "--size=48M", "--shrink"])?;
        let cut = ["disk", "resize", "d", "--size=32M", "--shrink", "--discard-data"];
        daemon.command(&cut)?;
        ensure!(size(&daemon, "d")? == 32 * MIB);
        resize(&daemon, "d", 64)?;
        tools::qemu_io(&uri, &["read -P 5 0 1M", "read -P 0 1M 63M"])?;
        daemon.kill()?;
        daemon.start_again()?;
        ensure!(size(&daemon, "d")? == 64 * MIB);
        resize(&daemon, "d", 80)?;
        tools::qemu_io(&uri, &["read -P 5 0 1M", "write -P 7 79M 1M"])?;
        daemon.stop()
    });
}

#[test]
fn a_block_device_that_has_grown_is_noticed() {
    with_lab(&["qemu-io", "losetup"], |lab| {
        let file = lab.dir().join("device.raw");
        File::create(&file)?.set_len(32 * MIB)?;
        let Some(device) = Loop::attach(&file) else {
            println!("SKIPPED: no loop device to be had");
            return Ok(());
        };
        let grow = |mib: u64| {
            File::options().write(true).open(&file)?.set_len(mib * MIB)?;
            let mut command = Command::new("losetup");
            command.arg("--set-capacity").arg(&device.0);
            run(command, PATIENCE).map(drop)
        };
        let mut daemon = Headgate::start(lab)?;
        let path = device.0.to_string_lossy().into_owned();
        daemon.command(&["datastore", "add", "lun", "--block", &path])?;
        daemon.command(&["disk", "create", "d", "--datastore=lun"])?;
        let uri = daemon.nbd_uri("d");
        tools::qemu_io(&uri, &["write -P 5 31M 1M"])?;
        grow(48)?;
        wait_for("the disk should follow its device", PATIENCE, || {
            Ok((size(&daemon, "d")? == 48 * MIB).then_some(()))
        })?;
        tools::qemu_io(&uri, &["read -P 5 31M 1M", "write -P 6 47M 1M"])?;
        ensure!(daemon.log()?.contains("the device has grown"), "the log says nothing of it");
        // One that grew while nobody looked may be another one: somebody has to say so.
        daemon.stop()?;
        grow(64)?;
        daemon.start_again()?;
        let shown = daemon.command(&["disk", "show", "d"])?;
        ensure!(shown.contains("'headgate disk resize d'"), "{shown}");
        ensure!(size(&daemon, "d")? == 48 * MIB, "{shown}");
        daemon.command(&["disk", "resize", "d"])?;
        ensure!(size(&daemon, "d")? == 64 * MIB);
        tools::qemu_io(&uri, &["read -P 6 47M 1M", "write -P 7 63M 1M"])?;
        daemon.stop()
    });
}
