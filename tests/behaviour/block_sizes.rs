//! What a disk's storage is made of is what guests and NBD clients are told: files, emulated
//! drives, and block devices of either length of sectors.

use anyhow::{Context, ensure};
use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::Headgate;
use headgate_lab::loop_device::Loop;
use headgate_lab::{DiskSpec, Lab, Server, tools, with_lab};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

const MINUTES: Duration = Duration::from_secs(300);

const MIB: u64 = 1 << 20;

/// What Linux says of a disk, on the host as in a guest.
const FILES: [&str; 5] = [
    "queue/logical_block_size",
    "queue/physical_block_size",
    "queue/minimum_io_size",
    "queue/optimal_io_size",
    "alignment_offset",
];

/// A file system on the whole disk, written and checked; and requests as short as it takes.
const WORK: &str = "set -e
    fio --name=short --filename=/dev/vda --size=4m --direct=1 --ioengine=libaio --iodepth=8 --thread \
        --rw=randrw --bs=SECTOR --verify=crc32c --verify_fatal=1 >/dev/null
    mkfs.ext4 -q -F /dev/vda
    mount -t ext4 /dev/vda /mnt
    seq 1 20000 >/mnt/numbers
    umount /mnt
    e2fsck -fn /dev/vda >/dev/null 2>&1
    echo sound";

/// The daemon shows these sizes of a disk, in the order of [`FILES`].
fn shown(daemon: &Headgate, disk: &str) -> anyhow::Result<[u64; 5]> {
    let shown = daemon.json(&["disk", "show", disk])?["block_sizes"].clone();
    let keys = ["logical", "physical", "minimum_io", "optimal_io", "alignment_offset"];
    Ok(keys.map(|key| shown[key].as_u64().unwrap_or(u64::MAX)))
}

/// A guest that was told these sizes, and an NBD client that was told to prefer these blocks.
fn is_told(
    lab: &Lab,
    daemon: &Headgate,
    disk: &str,
    (sizes, preferred): ([u64; 5], u64),
) -> anyhow::Result<Guest> {
    let info = tools::nbdinfo(&daemon.nbd_uri(disk))?;
    let told = &info["exports"][0]["block_size_preferred"];
    ensure!(told.as_u64() == Some(preferred), "{disk}: NBD has {told}, not {preferred}");
    let drive = Drive::VhostUser { socket: daemon.vhost_socket(disk) };
    let mut guest = Guest::boot(lab, &Machine::new(disk, drive))?;
    let said = guest.run(&format!("cd /sys/block/vda && cat {}", FILES.join(" ")), MINUTES)?;
    let told: Vec<u64> = said.lines().filter_map(|line| line.trim().parse().ok()).collect();
    ensure!(told == sizes, "{disk}: the guest has {told:?}, not {sizes:?}");
    Ok(guest)
}

#[test]
fn a_guest_and_an_nbd_client_are_told_what_the_storage_is_made_of() {
    with_lab(&[QEMU, "nbdinfo"], |lab| {
        let mut daemon = Headgate::with_disks(lab, &[DiskSpec::mib("file", 16)])?;
        let drive = "ssd=64M,dies=1,planes=1,channels=1,block=32,page=16K";
        daemon.command(&["datastore", "add", "flash", "--emulated", drive])?;
        daemon.command(&["disk", "create", "flash", "--size=16M", "--datastore=flash"])?;
        let transfer = fs::metadata(daemon.image("file")?)?.blksize();
        let long = if transfer > 4096 { transfer } else { 0 };
        for (disk, physical, optimal) in [("file", 4096, long), ("flash", 16 << 10, 0)] {
            let shown = shown(&daemon, disk)?;
            ensure!(shown[1..] == [physical, physical, optimal, 0], "{disk} has {shown:?}");
            is_told(lab, &daemon, disk, (shown, physical))?.power_off()?;
        }
        daemon.stop()
    });
}

/// The host's kernel is asked what the devices are.
#[test]
fn a_guest_is_told_what_a_block_device_is_made_of() {
    with_lab(&[QEMU, "nbdinfo", "losetup", "qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        for sector in [512, 4096] {
            let disk = format!("of-{sector}");
            let file = lab.dir().join(format!("{disk}.raw"));
            tools::sparse_file(&file, 64 * MIB)?;
            let Some(device) = Loop::attach_with(&file, sector) else {
                eprintln!("SKIPPED: no loop device to be had");
                return Ok(());
            };
            let name = device.0.file_name().context("a name")?.to_string_lossy().into_owned();
            let mut sizes = [0; 5];
            for (size, file) in sizes.iter_mut().zip(FILES) {
                let path = format!("/sys/block/{name}/{file}");
                *size = fs::read_to_string(&path).context(path)?.trim().parse()?;
            }
            ensure!(sizes[0] == u64::from(sector), "the test's premise: {sizes:?}");
            eprintln!("{disk}: {sizes:?}");
            let path = device.0.to_string_lossy().into_owned();
            daemon.command(&["datastore", "add", &disk, "--block", &path])?;
            daemon.command(&["disk", "create", &disk, &format!("--datastore={disk}")])?;
            let shown = shown(&daemon, &disk)?;
            ensure!(shown == sizes, "{disk} is shown with {shown:?}, and has {sizes:?}");
            let preferred = sizes[1].max(4096);
            let mut guest = is_told(lab, &daemon, &disk, (sizes, preferred))?;
            let said = guest.run(&WORK.replace("SECTOR", &sector.to_string()), MINUTES)?;
            ensure!(said.contains("sound"), "{disk}: {said}");
            guest.power_off()?;
            // NBD has no such bound: what is shorter is made whole here.
            let uri = daemon.nbd_uri(&disk);
            let short = ["write -P 5 8M 8k", "write -P 6 8389120 512", "read -P 5 8M 512"];
            tools::qemu_io(&uri, &short)?;
            tools::qemu_io(&uri, &["read -P 6 8389120 512", "read -P 5 8389632 7168"])?;
            daemon.command(&["disk", "remove", &disk])?;
            daemon.command(&["datastore", "remove", &disk])?;
        }
        daemon.stop()
    });
}
