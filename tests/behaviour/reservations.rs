//! A device with persistent reservations refuses the writes of a host that it was taken from. The
//! device is the kernel's own SCSI target in a guest, which two initiators reach over iSCSI, or its
//! own NVMe target over TCP: a daemon on each is a host.

mod device;

use self::device::{Device, Seen};
use anyhow::{Context, ensure};
use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::tools_disk::tools_disk;
use headgate_lab::{Lab, headgate, tools, with_lab};
use std::path::Path;
use std::time::Duration;

/// For what a guest without KVM does with a daemon built for debugging.
const LONG: Duration = Duration::from_secs(600);

const LIBRARY: &str = include_str!("reservations.sh");

/// Pages of the device in memory: 16 MiB.
const PAGES: u32 = 4096;
/// Blocks that are written: as many as a disk's queue takes.
const BLOCKS: u32 = 200;

const PROGRAMS: [&str; 3] = [QEMU, "sg_persist", "strip"];

/// A guest with two hosts, `one` and `two`, each with a way of its own to one device. `/dev/vdb` is
/// a device without persistent reservations.
struct Rack {
    guest: Guest,
    device: Device,
}

impl Rack {
    /// `None`, and said aloud: there is no kernel here that has such a device.
    fn boot(lab: &Lab, device: Device) -> anyhow::Result<Option<Rack>> {
        let Some(kernel) = device.kernel()? else { return Ok(None) };
        let client = env!("CARGO_BIN_EXE_fence-client").into();
        let mut programs = vec![headgate::binary()?, client];
        programs.extend(device.programs()?);
        let disk = tools_disk(lab, &kernel, &programs, device.modules())?;
        let blank = lab.dir().join("blank.raw");
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
        let machine = Machine {
            cpus: 2,
            kernel: Some(kernel),
            kernel_words: device.kernel_words().to_owned(),
            ..Machine::new("rack", drive)
        };
        let mut rack = Rack { guest: Guest::boot(lab, &machine)?, device };
        rack.sh(&format!(
            "mkdir -p /host && mount -o ro /dev/vda /host || exit 1
             while read -r module; do insmod $module || exit 1; done </host/modules
             mkdir -p /sys/kernel/config
             mount -t configfs configfs /sys/kernel/config && ifconfig lo 127.0.0.1 || exit 1
             {}",
            device.set_up()
        ))?;
        Ok(Some(rack))
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

    fn seen(&mut self) -> anyhow::Result<Seen> {
        let said = self.sh(&self.device.question())?;
        self.device.seen(&said)
    }

    /// Only this host's key is there, and has the device reserved.
    fn is_held_by(&mut self, host: &str) -> anyhow::Result<String> {
        let seen = self.seen()?;
        let show = self.sh(&format!("on {host} datastore show lun --json"))?;
        let show: serde_json::Value = serde_json::from_str(&show)?;
        let reservation = &show["persistent_reservations"];
        ensure!(reservation["state"] == "held", "{reservation}");
        let key = reservation["key"].as_str().context("a key")?.to_owned();
        ensure!(seen == Seen::held_by(&key), "{seen:?}, and {host} has {key}");
        Ok(key)
    }

    fn is_free(&mut self) -> anyhow::Result<()> {
        let seen = self.seen()?;
        ensure!(seen == Seen::default(), "{seen:?}");
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
        let [one, two] = self.device.paths();
        self.sh(&(add("one", one) + &add("two", two) + create)).map(drop)
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
             head -c {bytes} {} | tr -d '\\002' | wc -c",
            self.device.paths()[1]
        ))?;
        Ok((count.trim().parse::<usize>()?.div_ceil(4096), heard))
    }
}

/// Whether the device had to refuse something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Something,
    Nothing,
}

/// A host that goes on may find that its time is over before it has sent the device anything, and
/// hang up. Nothing is overwritten then, either, but nothing is shown of the device.
const ATTEMPTS: u32 = 4;

fn refuses_the_writes_of_a_former_holder(device: Device) {
    for _ in 0..ATTEMPTS {
        let mut refused = Refused::Something;
        with_lab(&PROGRAMS, |lab| {
            if let Some(rack) = Rack::boot(lab, device)? {
                refused = overtaken_and_back(rack)?;
            }
            Ok(())
        });
        if refused == Refused::Something {
            return;
        }
    }
    panic!("the device was asked for nothing that it had to refuse");
}

fn overtaken_and_back(mut rack: Rack) -> anyhow::Result<Refused> {
    rack.start_hosts("require")?;
    let first = rack.is_held_by("one")?;
    let take = "on two disk takeover db --datastore lun";
    rack.refused(take, &["reserved by another host", &first, "--evict"])?;
    ensure!(rack.is_held_by("one")? == first);

    let (wrong, heard) = rack.overtake(&format!("{take} --evict"))?;
    eprintln!("the first host's client: {heard}");
    ensure!(wrong == 0, "{wrong} blocks were overwritten");
    if heard.contains("failed 0 ") {
        return Ok(Refused::Nothing);
    }
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
    rack.is_free()?;
    Ok(Refused::Something)
}

/// Without reservations the same is seen to go wrong.
fn accepts_the_writes_of_a_former_holder(device: Device) {
    with_lab(&PROGRAMS, |lab| {
        let Some(mut rack) = Rack::boot(lab, device)? else { return Ok(()) };
        rack.start_hosts("off")?;
        rack.is_free()?;
        let (wrong, heard) = rack.overtake("on two disk takeover db --datastore lun")?;
        ensure!(wrong > 0, "nothing was overwritten, so the other test proves nothing: {heard}");
        Ok(())
    });
}

/// What a host that crashed left is its own, and what somebody else did is not.
fn tells_keys_apart(rack: &mut Rack) -> anyhow::Result<()> {
    rack.start_hosts("auto")?;
    let before = rack.is_held_by("one")?;

    // A host that crashed has its disk again, with another key.
    rack.sh("stop one KILL")?;
    ensure!(rack.seen()? == Seen::held_by(&before));
    rack.sh("serve one && until_state one serving db")?;
    let after = rack.is_held_by("one")?;
    ensure!(after != before && after[..14] == before[..14], "{before} and {after}");

    // Somebody takes the device while no request is under way.
    rack.sh(&format!("{} && until_state one evicted db", rack.device.taken_from(&after)))?;
    let show = rack.sh("on one disk show db")?;
    ensure!(show.contains("0x0000000000000099"), "{show}");

    // It is not Headgate's, so it is left alone, also by one who evicts.
    let words = ["0x0000000000000099", "sg_persist --out --clear", "--persistent-reservations off"];
    rack.refused("on one disk takeover db --evict", &words)?;
    rack.refused("on two disk takeover db --datastore lun --evict", &words)?;
    ensure!(rack.seen()? == Seen::held_by("0x0000000000000099"));
    rack.sh(&format!("{} && on one disk takeover db", rack.device.cleared()))?;
    rack.is_held_by("one").map(drop)
}

#[test]
fn a_device_refuses_the_writes_of_a_host_that_it_was_taken_from() {
    refuses_the_writes_of_a_former_holder(Device::Scsi);
}

#[test]
fn an_nvme_device_refuses_the_writes_of_a_host_that_it_was_taken_from() {
    refuses_the_writes_of_a_former_holder(Device::Nvme);
}

#[test]
fn a_device_that_is_not_reserved_accepts_the_writes_of_a_former_holder() {
    accepts_the_writes_of_a_former_holder(Device::Scsi);
}

#[test]
fn an_nvme_device_that_is_not_reserved_accepts_the_writes_of_a_former_holder() {
    accepts_the_writes_of_a_former_holder(Device::Nvme);
}

#[test]
fn keys_that_are_left_over_or_somebody_elses_are_told_apart() {
    with_lab(&PROGRAMS, |lab| {
        let Some(mut rack) = Rack::boot(lab, Device::Scsi)? else { return Ok(()) };
        tells_keys_apart(&mut rack)?;

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

#[test]
fn keys_of_an_nvme_device_are_told_apart() {
    with_lab(&PROGRAMS, |lab| {
        let Some(mut rack) = Rack::boot(lab, Device::Nvme)? else { return Ok(()) };
        tells_keys_apart(&mut rack)?;

        // A namespace of which nobody made it one that can be reserved.
        rack.sh("nvme_target plain /dev/ram1 0 2 && nvme_path plain 2 3 3")?;
        let add = "on two datastore add plain --block /dev/nvme2n1 --persistent-reservations";
        rack.refused(&format!("{add} require"), &["cannot be reserved"])?;
        let added = rack.sh(&format!("{add} auto 2>&1 && on two datastore show plain"))?;
        ensure!(added.contains("unsupported (auto)"), "{added}");
        rack.sh("stop one TERM; stop two TERM")?;
        rack.is_free()
    });
}

/// A host with two paths is registered on both, goes on when either is lost, and has neither when
/// the device is taken.
fn counts_on_every_path(device: Device) {
    with_lab(&PROGRAMS, |lab| {
        let Some(mut rack) = Rack::boot(lab, device)? else { return Ok(()) };
        let path = device.paths()[0];
        rack.sh(&format!(
            "serve one && on one datastore add lun --block {path} \
             --persistent-reservations require && on one disk create db --datastore lun"
        ))?;
        let held = |rack: &mut Rack| -> anyhow::Result<String> {
            let seen = rack.seen()?;
            let key = seen.holder.clone().context("nobody holds it")?;
            ensure!(seen.keys == vec![key.clone(); device.registrations()], "{seen:?}");
            let show = rack.sh("on one datastore show lun")?;
            ensure!(show.contains(&key), "{key} is not in: {show}");
            Ok(key)
        };
        let write = "fence-client /tmp/one/nbd.sock db";
        let key = held(&mut rack)?;
        for (byte, event) in
            [(1, "true"), (2, device.first_path_fails()), (3, device.second_path_fails())]
        {
            let said = rack.sh(&format!("{event} || exit 1\n{write} {byte} {BLOCKS}"))?;
            ensure!(said.contains("flushed"), "behind '{event}': {said}");
        }
        ensure!(held(&mut rack)? == key);

        rack.sh(&format!("{} && until_state one evicted db", device.taken_from(&key)))?;
        let said =
            rack.sh(&format!("dd if=/dev/zero of={path} bs=4096 count=1 oflag=direct 2>&1; true"))?;
        ensure!(!said.contains("1+0 records out"), "the device took a write: {said}");
        rack.sh(&format!("{} && on one disk takeover db", device.cleared()))?;
        held(&mut rack)?;
        rack.sh(&format!("{write} 4 {BLOCKS} && stop one TERM"))?;
        rack.is_free()
    });
}

#[test]
fn a_reservation_counts_on_every_path_to_a_device() {
    counts_on_every_path(Device::ScsiPaths);
}

#[test]
fn a_reservation_counts_on_every_path_to_an_nvme_device() {
    counts_on_every_path(Device::NvmePaths);
}

/// The device is reserved from the first write of the copy on, by the host whose disk comes, and
/// free when the disk has gone or the move was taken back.
fn is_reserved_while_its_disk_is_there_or_comes(device: Device) {
    with_lab(&PROGRAMS, |lab| {
        let Some(mut rack) = Rack::boot(lab, device)? else { return Ok(()) };
        let [one, two] = device.paths();
        rack.sh(&format!(
            "serve one && serve two || exit 1
             for way in one:{one} two:{two}; do
               on ${{way%%:*}} datastore add lun --block ${{way#*:}} \
                 --persistent-reservations require || exit 1
             done
             on one disk create db --size 16M && fence-client /tmp/one/nbd.sock db 1 {BLOCKS}"
        ))?;
        // Longer than a slow guest needs for what comes while it is copied.
        let slow = "on one disk migrate db --force --to lun --detach --move-bandwidth 8k";
        rack.sh(slow)?;
        let copying = rack.is_held_by("one")?;
        rack.sh("on one disk migrate db --cancel && until_over one")?;
        rack.is_free()?;

        rack.sh("on one disk migrate db --force --to lun --move-shares 100000 && until_over one")?;
        ensure!(rack.is_held_by("one")? == copying);
        rack.sh(&format!("fence-client /tmp/one/nbd.sock db 2 {BLOCKS}"))?;
        let take = "on two disk takeover db --datastore lun";
        rack.refused(take, &["reserved by another host", "--evict"])?;
        rack.sh("on one disk migrate db --to default --move-shares 100000 && until_over one")?;
        rack.is_free()?;

        // The other host takes the device of a copy: it gets it, and the disk stays what it is.
        rack.sh(slow)?;
        rack.is_held_by("one")?;
        let said = rack.sh(&format!(
            "{take} --evict && fence-client /tmp/two/nbd.sock db 3 {BLOCKS} && until_over one &&
             on one disk show db && fence-client /tmp/one/nbd.sock db 4 {BLOCKS}"
        ))?;
        ensure!(said.contains("default"), "{said}");
        rack.is_held_by("two")?;
        let bytes = u64::from(BLOCKS) * 4096;
        let others = rack.sh(&format!(
            "echo 3 >/proc/sys/vm/drop_caches; head -c {bytes} {two} | tr -d '\\003' | wc -c"
        ))?;
        ensure!(others.trim() == "0", "{others} bytes were overwritten");
        rack.sh("stop one TERM; stop two TERM")?;
        rack.is_free()
    });
}

#[test]
fn a_device_is_reserved_while_its_disk_is_there_or_comes() {
    is_reserved_while_its_disk_is_there_or_comes(Device::Scsi);
}

#[test]
fn an_nvme_device_is_reserved_while_its_disk_is_there_or_comes() {
    is_reserved_while_its_disk_is_there_or_comes(Device::Nvme);
}
