//! The NBD clients that people use: what each writes is what the others read, and the server tells
//! the truth about itself.

use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::Headgate;
use headgate_lab::peer::{QEMU_STORAGE_DAEMON, StorageDaemon};
use headgate_lab::process::run;
use headgate_lab::{DiskSpec, Lab, Server, nbd, tools, with_lab};
use std::time::Duration;

const CLIENTS: [&str; 5] = ["nbdinfo", "nbdcopy", "qemu-img", "qemu-io", "fio"];
const SIZE_MIB: u64 = 32;
const MINUTE: Duration = Duration::from_secs(60);

fn serves_everybody(lab: &Lab, server: &mut dyn Server) -> anyhow::Result<()> {
    let uri = server.nbd_uri("disk");

    let info = tools::nbdinfo(&uri)?;
    let export = &info["exports"][0];
    anyhow::ensure!(export["export-size"] == SIZE_MIB << 20, "nbdinfo: {info}");
    for can in ["can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn"] {
        anyhow::ensure!(export[can] == true, "{can}: {info}");
    }
    anyhow::ensure!(export["is_read_only"] == false, "nbdinfo: {info}");

    tools::qemu_io(
        &uri,
        &[
            "write -P 0xa1 0 1M",
            "write -f -P 0xa2 1M 512k",
            "write -P 0xa3 3584 1024",
            "read -P 0xa1 0 3584",
            "read -P 0xa3 3584 1024",
            "read -P 0xa1 4608 1043968",
            "write -z 64k 64k",
            "write -z -u 256k 64k",
            "discard 512k 64k",
            "flush",
            "read -P 0 64k 64k",
            "read -P 0 256k 64k",
            "read -P 0 512k 64k",
            "read -P 0xa1 128k 128k",
            "read -P 0xa2 1M 512k",
            "read -P 0 16M 16M",
            "aio_write -P 0xb1 20M 64k",
            "aio_write -P 0xb2 21M 64k",
            "aio_flush",
            "read -P 0xb1 20M 64k",
            "read -P 0xb2 21M 64k",
        ],
    )?;

    // Holes are told as holes and data as data: a copy that trusts the map has the same bytes.
    let map = tools::nbdinfo_map(&uri)?;
    let extents = map.as_array().map(Vec::as_slice).unwrap_or_default();
    let hole_at_the_end =
        extents.last().is_some_and(|last| last["type"].as_u64().is_some_and(|t| t & 2 != 0));
    anyhow::ensure!(hole_at_the_end, "the untouched end is no hole of zeroes: {map}");
    let data_at_1m = extents.iter().any(|e| {
        let (from, length) = (e["offset"].as_u64().unwrap_or(0), e["length"].as_u64().unwrap_or(0));
        from <= 1 << 20 && from + length > 1 << 20 && e["type"] == 0
    });
    anyhow::ensure!(data_at_1m, "written data is not told as data: {map}");
    let copy = lab.dir().join("copy.raw");
    tools::nbdcopy(&uri, &copy.to_string_lossy())?;
    tools::qemu_img_compare(&uri, &copy.to_string_lossy())?;

    // What they wrote is read back by another client.
    let report = tools::fio_nbd(&uri, &tools::FOUR_WRITERS, Duration::from_secs(120))?;
    anyhow::ensure!(report["jobs"][0]["error"] == 0, "fio: {report}");

    // A whole disk through another client and back.
    let random = lab.dir().join("random.raw");
    let bytes: Vec<u8> = (0..(SIZE_MIB << 20) / 8)
        .flat_map(|i| headgate_lab::ledger::splitmix(i).to_le_bytes())
        .collect();
    std::fs::write(&random, bytes)?;
    tools::nbdcopy(&random.to_string_lossy(), &uri)?;
    tools::qemu_img_compare(&uri, &random.to_string_lossy())?;
    let image = server.image("disk")?;
    server.stop()?;
    tools::qemu_img_compare(&image.to_string_lossy(), &random.to_string_lossy())?;

    // And after a restart.
    server.start_again()?;
    tools::qemu_img_compare(&uri, &random.to_string_lossy())?;
    server.stop()
}

#[test]
fn a_peer_serves_everybody() {
    with_lab(&[&CLIENTS[..], &[QEMU_STORAGE_DAEMON]].concat(), |lab| {
        serves_everybody(lab, &mut StorageDaemon::start(lab, &[DiskSpec::mib("disk", SIZE_MIB)])?)
    });
}

#[test]
fn the_daemon_serves_everybody() {
    with_lab(&CLIENTS, |lab| {
        serves_everybody(lab, &mut Headgate::with_disks(lab, &[DiskSpec::mib("disk", SIZE_MIB)])?)
    });
}

/// How often two clients write side by side: now and then one is done before the other begins.
const RACES: u32 = 5;

/// Writes of two clients that begin and end anywhere, many at once and side by side within blocks:
/// no byte of a neighbour may be lost to a block that is read, changed and written back.
#[test]
fn two_clients_write_single_bytes_and_neither_loses_one() {
    with_lab(&["nbdinfo", "nbdcopy", "qemu-io", "qemu-img"], |lab| {
        let disks: Vec<_> = (0..RACES).map(|n| DiskSpec::mib(&format!("disk{n}"), 1)).collect();
        let daemon = Headgate::with_disks(lab, &disks)?;
        disks.iter().try_for_each(|disk| write_side_by_side(lab, &daemon, &disk.name))
    });
}

fn write_side_by_side(lab: &Lab, daemon: &Headgate, disk: &str) -> anyhow::Result<()> {
    let uri = daemon.nbd_uri(disk);
    let info = tools::nbdinfo(&uri)?;
    anyhow::ensure!(
        info["exports"][0]["block_size_minimum"] == 1,
        "qemu-io would write whole blocks by itself: {info}"
    );

    let mut expected = vec![0u8; 1 << 20];
    let mut commands = [Vec::new(), Vec::new()];
    let mut at = 3;
    for round in 0..800 {
        let (pattern, length) = (round % 255 + 1, [1, 7, 100, 30, 511, 513, 1025][round % 7]);
        commands[round % 2].push(format!("aio_write -P {pattern} {at} {length}"));
        expected[at..at + length].fill(pattern as u8);
        at += length;
    }
    // Zeroes keep what is in the rest of their first and of their last block.
    for (n, command) in ["write -z", "write -z -u", "write -f -P 0"].into_iter().enumerate() {
        let from = at + 5 + n * 2000;
        let end = [format!("write -P 9 {from} 1500"), format!("{command} {} 777", from + 100)];
        commands[0].extend(end);
        expected[from..from + 1500].fill(9);
        expected[from + 100..from + 877].fill(0);
    }
    std::thread::scope(|scope| {
        let clients = commands.each_mut().map(|commands| {
            commands.extend(["aio_flush".into(), "flush".into()]);
            let uri = &uri;
            scope.spawn(move || {
                let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
                tools::qemu_io(uri, &commands).map(drop)
            })
        });
        clients.into_iter().try_for_each(|client| client.join().expect("it does not panic"))
    })?;

    let (copy, oracle) = (lab.dir().join("copy.raw"), lab.dir().join("oracle.raw"));
    std::fs::write(&oracle, &expected)?;
    tools::nbdcopy(&uri, &copy.to_string_lossy())?;
    let (copy, oracle) = (copy.to_string_lossy(), oracle.to_string_lossy());
    tools::qemu_img_compare(&copy, &oracle)?;
    tools::qemu_img_compare(&daemon.image(disk)?.to_string_lossy(), &oracle)
}

#[test]
fn a_read_only_export_is_read_by_everybody_and_written_by_nobody() {
    with_lab(&CLIENTS, |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "d", "--size=16M"])?;
        daemon.command(&["export", "add", "d-look", "--disk=d", "--read-only"])?;
        let (own, look) = (daemon.nbd_uri("d"), daemon.nbd_uri("d-look"));
        tools::qemu_io(&own, &["write -P 7 0 16M"])?;
        let check = |daemon: &Headgate| -> anyhow::Result<()> {
            let (look, own) = (daemon.nbd_uri("d-look"), daemon.nbd_uri("d"));
            let info = tools::nbdinfo(&look)?;
            anyhow::ensure!(info["exports"][0]["is_read_only"] == true, "{info}");
            anyhow::ensure!(tools::nbdinfo(&own)?["exports"][0]["is_read_only"] == false);
            let copy = lab.dir().join("look.raw");
            tools::nbdcopy(&look, &copy.to_string_lossy())?;
            tools::qemu_img_compare(&copy.to_string_lossy(), &own)?;
            // Clients see by the flag that they may not.
            for command in ["write -P 1 0 4k", "write -z 0 4k", "discard 0 4k"] {
                let refused = tools::qemu_io(&look, &[command]);
                anyhow::ensure!(refused.is_err(), "{command} is done");
            }
            // Nor does a client that never heard of the flag.
            let mut rude = nbd::Client::connect(daemon.nbd_socket(), "d-look")?;
            for command in [nbd::CMD_WRITE, nbd::CMD_TRIM, nbd::CMD_WRITE_ZEROES] {
                let data = vec![1; if command == nbd::CMD_WRITE { 4096 } else { 0 }];
                let error = rude.ask((command, 0), 0, 4096, &data)?;
                anyhow::ensure!(error == Some(nbd::EPERM), "{command}: {error:?}");
            }
            anyhow::ensure!(rude.read(0, 4096)? == [7; 4096], "it is in step still");
            tools::qemu_io(&own, &["read -P 7 0 16M"]).map(drop)
        };
        check(&daemon)?;
        let listed = daemon.json(&["export", "list"])?;
        anyhow::ensure!(listed[0]["read_only"] == true, "{listed}");
        // What is written meanwhile is seen, and a restart changes nothing.
        tools::qemu_io(&own, &["write -P 8 1M 1M"])?;
        let open = std::process::Command::new("qemu-io")
            .args(["-r", "-f", "raw", "-c", "read -P 8 1M 1M", &look])
            .output()?;
        anyhow::ensure!(open.status.success(), "{open:?}");
        tools::qemu_io(&own, &["write -P 7 1M 1M"])?;
        daemon.stop()?;
        daemon.start_again()?;
        check(&daemon)?;
        daemon.stop()
    });
}

#[test]
fn a_read_only_disk_is_mounted_by_a_guest_and_written_by_nobody() {
    with_lab(&[&[QEMU][..], &CLIENTS[..]].concat(), |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "d", "--size=16M"])?;
        let image = lab.dir().join("made.ext4");
        std::fs::File::create(&image)?.set_len(16 << 20)?;
        let mut made = std::process::Command::new("mkfs.ext4");
        made.args(["-q", "-F"]).arg(&image);
        run(made, MINUTE)?;
        let uri = daemon.nbd_uri("d");
        tools::nbdcopy(&image.to_string_lossy(), &uri)?;
        daemon.command(&["disk", "set", "d", "--read-only=yes"])?;
        let info = tools::nbdinfo(&uri)?;
        anyhow::ensure!(info["exports"][0]["is_read_only"] == true, "{info}");
        anyhow::ensure!(tools::qemu_io(&uri, &["write -P 1 0 4k"]).is_err(), "it is written");
        let drive = Drive::VhostUser { socket: daemon.vhost_socket("d") };
        let mut guest = Guest::boot(lab, &Machine::new("guest", drive))?;
        let script = r#"
            cat /sys/block/vda/ro
            mount -t ext4 -o ro /dev/vda /mnt && ls /mnt && umount /mnt
            # It may be mounted for reading all the same.
            mount -t ext4 -o rw /dev/vda /mnt 2>/dev/null
            touch /mnt/file 2>/dev/null && echo written
            umount /mnt 2>/dev/null
            dd if=/dev/zero of=/dev/vda bs=4k count=1 oflag=direct 2>/dev/null && echo written
            echo over"#;
        let said = guest.run(script, MINUTE)?;
        anyhow::ensure!(said.lines().eq(["1", "lost+found", "over"]), "{said}");
        let busy = daemon.command(&["disk", "set", "d", "--read-only=no"]);
        let busy = format!("{:#}", busy.expect_err("a guest was told"));
        anyhow::ensure!(busy.contains("1 client"), "{busy}");
        guest.power_off()?;
        tools::qemu_img_compare(&image.to_string_lossy(), &uri)?;
        daemon.stop()?;
        daemon.start_again()?;
        anyhow::ensure!(tools::qemu_io(&uri, &["write -P 1 0 4k"]).is_err(), "it is written");
        daemon.command(&["disk", "set", "d", "--read-only=no"])?;
        tools::qemu_io(&uri, &["write -P 1 0 4k"])?;
        daemon.stop()
    });
}
