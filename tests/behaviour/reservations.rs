//! A device with persistent reservations refuses the writes of a host that it was taken from. The
//! device is the kernel's own SCSI target in a guest, which two initiators reach over iSCSI: a
//! daemon on each is a host.

use anyhow::{Context, ensure};
use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::tools_disk::tools_disk;
use headgate_lab::{Lab, cache_dir, headgate, tools, with_lab};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For what a guest without KVM does with a daemon built for debugging.
const LONG: Duration = Duration::from_secs(600);

const LIBRARY: &str = include_str!("reservations.sh");

/// Pages of the device in memory: 16 MiB.
const PAGES: u32 = 4096;
/// Blocks that are written: as many as a disk's queue takes.
const BLOCKS: u32 = 200;

const PROGRAMS: [&str; 3] = [QEMU, "sg_persist", "strip"];
const MODULES: [&str; 5] =
    ["configfs", "target_core_mod", "iscsi_target_mod", "iscsi_tcp", "sd_mod"];

/// A guest with two hosts, `one` on `/dev/sda` and `two` on `/dev/sdb`, which are one device.
/// `/dev/vdb` is a device without persistent reservations.
struct Rack {
    guest: Guest,
}

/// What the device says of its reservation.
#[derive(Debug)]
struct Seen {
    keys: Vec<String>,
    reservation: String,
}

/// What makes a session with an iSCSI target, where `tests/install` put it.
fn initiator() -> anyhow::Result<PathBuf> {
    let unpacked = cache_dir().join("open-iscsi/sbin/iscsistart");
    let found = tools::find("iscsistart").or_else(|| unpacked.is_file().then_some(unpacked));
    found.context("there is no iscsistart: run tests/install")
}

impl Rack {
    fn boot(lab: &Lab) -> anyhow::Result<Rack> {
        let sg_persist = tools::find("sg_persist").context("it was there")?;
        let client = env!("CARGO_BIN_EXE_fence-client").into();
        let programs = [headgate::binary()?, client, sg_persist, initiator()?];
        let (disk, blank) = (tools_disk(lab, &programs, &MODULES)?, lab.dir().join("blank.raw"));
        tools::sparse_file(&blank, 16 << 20)?;
        let file = |path: &Path| format!("driver=file,filename={}", path.display());
        let words = [
            "-m",
            "1536",
            "-blockdev",
            &format!("{},node-name=tools,read-only=on", file(&disk)),
            "-device",
            "virtio-blk-pci,drive=tools",
            "-blockdev",
            &format!("{},node-name=blank", file(&blank)),
            "-device",
            "virtio-blk-pci,drive=blank",
        ];
        let drive = Drive::AsPrinted(words.map(str::to_owned).to_vec());
        let guest = Guest::boot(lab, &Machine { cpus: 2, ..Machine::new("rack", drive) })?;
        let mut rack = Rack { guest };
        rack.sh(&format!(
            "mkdir -p /host /var/target/pr && mount -o ro /dev/vda /host || exit 1
             mkdir -p /sys/kernel/config
             while read -r module; do insmod $module || exit 1; done </host/modules
             mount -t configfs configfs /sys/kernel/config && ifconfig lo 127.0.0.1 || exit 1
             mkdir /sys/kernel/config/target/iscsi
             target lun serial-of-lun {PAGES} 0 && path lun 0 1 && path lun 0 2"
        ))?;
        Ok(rack)
    }

    fn sh(&mut self, script: &str) -> anyhow::Result<String> {
        self.guest.run(&format!("{LIBRARY}\n{script}"), LONG)
    }

    /// A command that must fail, with all of these words.
    fn refused(&mut self, script: &str, words: &[&str]) -> anyhow::Result<()> {
        let (status, said) = self.guest.run_any(&format!("{LIBRARY}\n{script}"), LONG)?;
        ensure!(status != 0, "it was done: {script}\n{said}");
        for word in words {
            ensure!(said.contains(word), "no '{word}' in: {said}");
        }
        Ok(())
    }

    /// Asks the device by SG_IO, and not as the daemon does on newer kernels.
    fn seen(&mut self) -> anyhow::Result<Seen> {
        let said = self.sh("sg_persist --in --read-keys /dev/sdb")?;
        let keys = said.lines().map(str::trim).filter(|line| line.starts_with("0x"));
        let keys = keys.map(str::to_owned).collect();
        let reservation = self.sh("sg_persist --in --read-reservation /dev/sdb")?;
        Ok(Seen { keys, reservation })
    }

    /// Only this host's key is there, and has the device reserved.
    fn is_held_by(&mut self, host: &str) -> anyhow::Result<String> {
        let seen = self.seen()?;
        let show = self.sh(&format!("on {host} datastore show lun --json"))?;
        let show: serde_json::Value = serde_json::from_str(&show)?;
        let reservation = &show["persistent_reservations"];
        ensure!(reservation["state"] == "held", "{reservation}");
        let key = reservation["key"].as_str().context("a key")?.to_owned();
        ensure!(seen.keys == [key.clone()], "{seen:?}, and {host} has {key}");
        ensure!(
            seen.reservation.contains(&format!("Key={key}"))
                && seen.reservation.contains("type: Write Exclusive, registrants only"),
            "{seen:?}"
        );
        Ok(key)
    }

    fn is_free(&mut self) -> anyhow::Result<()> {
        let seen = self.seen()?;
        let free = seen.keys.is_empty() && seen.reservation.contains("there is NO reservation");
        ensure!(free, "{seen:?}");
        Ok(())
    }

    /// Both hosts run, and one of them has a disk.
    fn start_hosts(&mut self, reservations: &str) -> anyhow::Result<()> {
        let add = |host: &str, device: &str| {
            format!(
                "serve {host} && on {host} datastore add lun --block {device} \
                 --persistent-reservations {reservations} || exit 1\n"
            )
        };
        let create = "on one disk create db --datastore lun --limit 50";
        self.sh(&(add("one", "/dev/sda") + &add("two", "/dev/sdb") + create)).map(drop)
    }

    /// The first host stands still with writes queued, the second takes its disk and writes all
    /// blocks, and the first goes on until it has answered its client, or hung up. Answers the
    /// blocks that are not the second's, and what the first's client heard.
    fn overtake(&mut self, take: &str) -> anyhow::Result<(usize, String)> {
        let said = self.sh(&format!(
            "fence-client /tmp/one/nbd.sock db 1 {BLOCKS} >/tmp/old 2>&1 & client=$!
             until grep -q sent /tmp/old; do usleep 100000; done
             sleep 1
             kill -STOP $(cat /tmp/one.pid)
             {take} || exit 1
             fence-client /tmp/two/nbd.sock db 2 {BLOCKS} || exit 1
             kill -CONT $(cat /tmp/one.pid)
             wait $client
             cat /tmp/old"
        ))?;
        ensure!(said.contains("flushed"), "the second host did not write: {said}");
        let heard = said.lines().last().unwrap_or_default().to_owned();
        let bytes = u64::from(BLOCKS) * 4096;
        let count = self.sh(&format!(
            "echo 3 >/proc/sys/vm/drop_caches
             head -c {bytes} /dev/sdb | tr -d '\\002' | wc -c"
        ))?;
        Ok((count.trim().parse::<usize>()?.div_ceil(4096), heard))
    }
}

#[test]
fn a_device_refuses_the_writes_of_a_host_that_it_was_taken_from() {
    with_lab(&PROGRAMS, |lab| {
        let mut rack = Rack::boot(lab)?;
        rack.start_hosts("require")?;
        let first = rack.is_held_by("one")?;
        let take = "on two disk takeover db --datastore lun";
        rack.refused(take, &["reserved by another host", &first, "--evict"])?;
        ensure!(rack.is_held_by("one")? == first);

        let (wrong, heard) = rack.overtake(&format!("{take} --evict"))?;
        eprintln!("the first host's client: {heard}");
        ensure!(wrong == 0, "{wrong} blocks were overwritten");
        ensure!(!heard.contains("failed 0 "), "the device refused nothing: {heard}");
        rack.sh("until_state one evicted db")?;
        let show = rack.sh("on one datastore show lun; on one disk list; cat /tmp/one.log")?;
        ensure!(show.contains("evicted"), "{show}");
        let second = rack.is_held_by("two")?;
        ensure!(first != second);

        // It comes back only when it is told to, and by the device's leave.
        rack.refused("on one disk takeover db", &["reserved by another host", &second])?;
        rack.sh("stop two TERM")?;
        rack.is_free()?;
        rack.sh("on one disk takeover db")?;
        rack.is_held_by("one")?;
        rack.sh("fence-client /tmp/one/nbd.sock db 3 8 && stop one TERM")?;
        rack.is_free()
    });
}

/// Without reservations the same is seen to go wrong.
#[test]
fn a_device_that_is_not_reserved_accepts_the_writes_of_a_former_holder() {
    with_lab(&PROGRAMS, |lab| {
        let mut rack = Rack::boot(lab)?;
        rack.start_hosts("off")?;
        rack.is_free()?;
        let (wrong, heard) = rack.overtake("on two disk takeover db --datastore lun")?;
        ensure!(wrong > 0, "nothing was overwritten, so the other test proves nothing: {heard}");
        Ok(())
    });
}

#[test]
fn keys_that_are_left_over_or_somebody_elses_are_told_apart() {
    with_lab(&PROGRAMS, |lab| {
        let mut rack = Rack::boot(lab)?;
        rack.start_hosts("auto")?;
        let before = rack.is_held_by("one")?;

        // A host that crashed has its disk again, with another key.
        rack.sh("stop one KILL")?;
        ensure!(rack.seen()?.keys == std::slice::from_ref(&before));
        rack.sh("serve one && until_state one serving db")?;
        let after = rack.is_held_by("one")?;
        ensure!(after != before && after[..14] == before[..14], "{before} and {after}");

        // Somebody takes the device while no request is under way.
        rack.sh("sg_persist --out --register --param-sark=0x99 /dev/sdb &&
             sg_persist --out --preempt --param-rk=0x99 --param-sark=$(
               on one datastore show lun | grep -o '0x4847[0-9a-f]*') --prout-type=5 /dev/sdb &&
             until_state one evicted db")?;
        let show = rack.sh("on one disk show db")?;
        ensure!(show.contains("0x0000000000000099"), "{show}");

        // It is not Headgate's, so it is left alone, also by one who evicts.
        let words =
            ["0x0000000000000099", "sg_persist --out --clear", "--persistent-reservations off"];
        rack.refused("on one disk takeover db --evict", &words)?;
        rack.refused("on two disk takeover db --datastore lun --evict", &words)?;
        ensure!(rack.seen()?.keys == ["0x99"]);
        rack.sh("sg_persist --out --clear --param-rk=0x99 /dev/sdb && on one disk takeover db")?;
        rack.is_held_by("one")?;

        // Devices that cannot be reserved, and a part of one that can.
        let add = "on two datastore add plain --block /dev/vdb --persistent-reservations";
        rack.refused(&format!("{add} require"), &["cannot be reserved"])?;
        let added = rack.sh(&format!(
            "{add} auto 2>&1 && on two disk create p --datastore plain &&
             on two datastore show plain && fence-client /tmp/two/nbd.sock p 1 8"
        ))?;
        ensure!(added.contains("cannot be reserved"), "no warning: {added}");
        ensure!(added.contains("unsupported (auto)"), "{added}");
        rack.sh(&format!(
            "target other serial-of-other {PAGES} 1 && path other 1 3 &&
             printf 'n\\np\\n1\\n\\n\\nw\\n' | fdisk /dev/sdc && [ -b /dev/sdc1 ]"
        ))?;
        let part = "on two datastore add part --block /dev/sdc1 --persistent-reservations require";
        rack.refused(part, &["it is a part of a device"])?;
        let keys = rack.sh("sg_persist --in --read-keys /dev/sdc")?;
        ensure!(keys.contains("there are NO registered reservation keys"), "{keys}");
        rack.sh("stop one TERM; stop two TERM")?;
        rack.is_free()
    });
}
