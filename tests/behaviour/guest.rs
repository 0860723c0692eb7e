//! A real guest works on a disk: file system, verified random reads, writes and trims, clean check,
//! power off; and what it wrote is what an NBD client and the image file show.

use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::Headgate;
use headgate_lab::peer::{QEMU_STORAGE_DAEMON, StorageDaemon};
use headgate_lab::{DiskSpec, Lab, Server, tools, with_lab};
use std::path::PathBuf;
use std::time::Duration;

const MINUTES: Duration = Duration::from_secs(300);

/// Random reads, writes and trims over the raw disk, every block checked; then the same inside a
/// file system.
const WORK: &str = r#"
set -e
uname -r
check="--direct=1 --ioengine=libaio --iodepth=16 --thread --verify=crc32c --verify_fatal=1 --group_reporting"
# Two workloads side by side: one reads and writes, the other trims each block before it writes it. Both check all they wrote.
fio $check --filename=/dev/vda --size=24m \
    --name=readwrite --rw=randrw --rwmixread=30 --bsrange=4k-64k --verify_backlog=64 \
    --name=trimwrite --rw=randtrimwrite --bs=16k --offset=32m
# Zeroes that were asked for read as zeroes, and leave their neighbours alone.
before=$(dd if=/dev/vda bs=64k count=1 iflag=direct 2>/dev/null | sha256sum)
/usr/bin/blkdiscard -z -o 64k -l 8m /dev/vda
dd if=/dev/vda bs=64k skip=1 count=128 iflag=direct 2>/dev/null | cmp -n 8388608 - /dev/zero
test "$before" = "$(dd if=/dev/vda bs=64k count=1 iflag=direct 2>/dev/null | sha256sum)"
/usr/bin/blkdiscard /dev/vda

mkfs.ext4 -q -F /dev/vda
mount -t ext4 -o discard /dev/vda /mnt
fio $check --name=file --directory=/mnt --rw=randwrite --bs=4k --size=8m --fsync=64
rm /mnt/file.0.0
seq 1 20000 >/mnt/numbers
sync
/usr/bin/fstrim -v /mnt
umount /mnt
e2fsck -fn /dev/vda
sha256sum /dev/vda
"#;

/// Boots a guest that works on the drive of a server's disk `disk`. What it read in the end is what
/// clients read, in a file of that content.
pub fn works(lab: &Lab, server: &dyn Server, drive: Drive) -> anyhow::Result<PathBuf> {
    let mut guest = Guest::boot(lab, &Machine { cpus: 2, ..Machine::new("guest", drive) })?;
    let said = guest.run(WORK, MINUTES)?;
    let console = guest.console();
    anyhow::ensure!(!console.contains("I/O error"), "the guest saw IO errors:\n{console}");
    guest.power_off()?;

    let path = lab.dir().join("copy.raw");
    let copy = path.to_string_lossy();
    tools::nbdcopy(&server.nbd_uri("disk"), &copy)?;
    tools::qemu_img_compare(&server.nbd_uri("disk"), &copy)?;
    let host = tools::sha256(&path)?;
    anyhow::ensure!(
        said.contains(&host),
        "the guest read other bytes than {}: {said}",
        server.name()
    );
    Ok(path)
}

fn works_on_a_disk(lab: &Lab, server: &mut dyn Server, drive: Drive) -> anyhow::Result<()> {
    let copy = works(lab, server, drive)?;
    let image = server.image("disk")?;
    server.stop()?;
    tools::qemu_img_compare(&image.to_string_lossy(), &copy.to_string_lossy())
}

#[test]
fn a_guest_works_on_a_peers_vhost_user_disk() {
    with_lab(&[QEMU, QEMU_STORAGE_DAEMON, "nbdcopy", "qemu-img"], |lab| {
        let mut server = StorageDaemon::start(lab, &[DiskSpec::mib("disk", 64)])?;
        let drive = Drive::VhostUser { socket: server.vhost_socket("disk") };
        works_on_a_disk(lab, &mut server, drive)
    });
}

#[test]
fn a_guest_works_on_a_peers_nbd_disk() {
    with_lab(&[QEMU, QEMU_STORAGE_DAEMON, "nbdcopy", "qemu-img"], |lab| {
        let mut server = StorageDaemon::start(lab, &[DiskSpec::mib("disk", 64)])?;
        let drive =
            Drive::Nbd { socket: server.nbd_socket().to_owned(), export: "disk".to_owned() };
        works_on_a_disk(lab, &mut server, drive)
    });
}

#[test]
fn a_guest_works_on_a_vhost_user_disk() {
    with_lab(&[QEMU, "nbdcopy", "qemu-img"], |lab| {
        let mut server = Headgate::with_disks(lab, &[DiskSpec::mib("disk", 64)])?;
        let drive = Drive::VhostUser { socket: server.vhost_socket("disk") };
        works_on_a_disk(lab, &mut server, drive)
    });
}

#[test]
fn a_guest_works_on_an_nbd_disk() {
    with_lab(&[QEMU, "nbdcopy", "qemu-img"], |lab| {
        let mut server = Headgate::with_disks(lab, &[DiskSpec::mib("disk", 64)])?;
        let drive =
            Drive::Nbd { socket: server.nbd_socket().to_owned(), export: "disk".to_owned() };
        works_on_a_disk(lab, &mut server, drive)
    });
}

#[test]
fn the_qemu_arguments_that_attach_prints_work_as_printed() {
    with_lab(&[QEMU], |lab| {
        let mut daemon = Headgate::with_disks(lab, &[DiskSpec::mib("disk", 64)])?;
        let attachment = daemon.json(&["disk", "attach", "disk", "--qemu"])?;
        let arguments = attachment["qemu"].as_array().map(Vec::as_slice).unwrap_or_default();
        let arguments = arguments.iter().filter_map(|a| a.as_str().map(str::to_owned)).collect();
        let mut guest = Guest::boot(
            lab,
            &Machine { cpus: 4, ..Machine::new("guest", Drive::AsPrinted(arguments)) },
        )?;
        let script =
            "cat /sys/block/vda/size; echo $(cat /sys/block/vda/serial); ls /sys/block/vda/mq | wc -l
                      mkfs.ext4 -q /dev/vda && e2fsck -fn /dev/vda >/dev/null 2>&1 && echo sound";
        let said = guest.run(script, MINUTES)?;
        let lines: Vec<&str> = said.lines().collect();
        anyhow::ensure!(
            lines == ["131072", "disk", "4", "sound"],
            "size, serial, queues and state: {said}"
        );
        guest.power_off()?;
        daemon.stop()
    });
}
