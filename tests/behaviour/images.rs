//! Disks made of image files, and image files made of disks: the bytes and the holes are those of
//! `qemu-img`, which makes and checks the images.

use anyhow::{Context, ensure};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::ledger::splitmix;
use headgate_lab::process::{Process, run, run_to_end};
use headgate_lab::writer::Writer;
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;
/// What a disk may take beyond its data: a grain at both ends of each stretch, and the file
/// system's own.
const SLACK: u64 = 2 * MIB;
/// The unit in which zeroes are looked for.
const GRAIN: u64 = 64 << 10;

/// Stretches of data: where they begin and how long they are, in bytes. Odd places, whole
/// megabytes, one that ends with the image.
const DATA: [(u64, u64); 5] = [
    (0, 3 * MIB),
    (5 * MIB + 512, 700),
    (9 * MIB - 4096, 2 * MIB + 1),
    (20 * MIB, 512),
    (31 * MIB, MIB),
];

pub(super) fn qemu_img(arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("qemu-img");
    command.args(arguments);
    run(command, PATIENCE)
}

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Bytes that no compression makes short.
pub(super) fn noise(seed: u64, len: u64) -> Vec<u8> {
    let words = (0..len.div_ceil(8)).flat_map(|n| splitmix(seed ^ n << 20).to_le_bytes());
    words.take(len as usize).collect()
}

/// A sparse raw file with [`DATA`] and `more` bytes behind 32 MiB.
fn raw(lab: &Lab, name: &str, more: u64) -> anyhow::Result<PathBuf> {
    let path = lab.dir().join(name);
    let file = File::create(&path)?;
    file.set_len(32 * MIB + more)?;
    for (n, (offset, len)) in DATA.into_iter().enumerate() {
        file.write_all_at(&noise(n as u64, len), offset)?;
    }
    Ok(path)
}

/// `qemu-img compare` of an image of any format with a disk; what the disk has more is zeroes.
fn same(image: &Path, format: &str, uri: &str) -> anyhow::Result<()> {
    qemu_img(&["compare", "--force-share", "-f", format, "-F", "raw", &text(image), uri]).map(drop)
}

/// What a disk of the default datastore takes of the file system, in bytes.
fn taken(daemon: &Headgate, disk: &str) -> anyhow::Result<u64> {
    let file = daemon.state_dir().join(format!("default/{disk}.img"));
    Ok(file.metadata().with_context(|| text(&file))?.blocks() * 512)
}

fn import(daemon: &Headgate, disk: &str, source: &str, more: &[&str]) -> anyhow::Result<String> {
    daemon.command_for(PATIENCE, &[&["disk", "import", disk, source], more].concat())
}

/// Images of all kinds that `qemu-img` makes of a raw file.
fn kinds(lab: &Lab, raw: &Path) -> anyhow::Result<Vec<(&'static str, &'static str, PathBuf)>> {
    let mut kinds = vec![("raw", "raw", raw.to_owned())];
    let from = text(raw);
    for (name, options) in [
        ("plain", "cluster_size=64k"),
        ("old", "compat=0.10"),
        ("small", "cluster_size=512"),
        ("large", "cluster_size=2M"),
        ("narrow", "refcount_bits=1"),
        ("full", "preallocation=full"),
    ] {
        let path = lab.dir().join(format!("{name}.qcow2"));
        qemu_img(&["convert", "-f", "raw", "-O", "qcow2", "-o", options, &from, &text(&path)])?;
        kinds.push((name, "qcow2", path));
    }
    for (name, options) in [("compressed", "cluster_size=64k"), ("pressed", "cluster_size=2M")] {
        let path = lab.dir().join(format!("{name}.qcow2"));
        let words = ["convert", "-c", "-f", "raw", "-O", "qcow2", "-o", options];
        qemu_img(&[&words[..], &[&from, &text(&path)]].concat())?;
        kinds.push((name, "qcow2", path));
    }
    // A snapshot holds what was there before; the disk is what is there now.
    let snapshot = lab.dir().join("snapshot.qcow2");
    std::fs::copy(lab.dir().join("plain.qcow2"), &snapshot)?;
    qemu_img(&["snapshot", "-c", "before", &text(&snapshot)])?;
    write_over(&snapshot, &["write -P 9 1M 3M", "write -z 31M 512k"])?;
    kinds.push(("snapshot", "qcow2", snapshot));
    Ok(kinds)
}

fn write_over(qcow2: &Path, commands: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "qcow2"]);
    for line in commands {
        command.args(["-c", line]);
    }
    command.arg(qcow2);
    let said = run(command, PATIENCE)?;
    ensure!(!said.contains("failed"), "qemu-io: {said}");
    Ok(())
}

#[test]
fn images_of_all_kinds_become_disks_with_their_bytes_and_holes() {
    with_lab(&["qemu-img", "qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        daemon.command(&["disk", "create", "neighbour", "--size=64M"])?;
        // Somebody else's disk is written and checked meanwhile.
        let writer = Writer::new(daemon.nbd_socket(), "neighbour", 1, 4096);
        let progress = writer.progress();
        thread::scope(|scope| {
            let writer = scope.spawn(|| writer.run());
            let outcome = import_all(lab, &daemon).and_then(|()| {
                let before = progress.flushes.load(Ordering::Relaxed);
                wait_for("the neighbour should get on", PATIENCE, || {
                    let now = progress.flushes.load(Ordering::Relaxed);
                    Ok((now > before || writer.is_finished()).then_some(()))
                })
            });
            progress.stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer does not panic")?;
            outcome
        })?;
        daemon.stop()
    });
}

fn import_all(lab: &Lab, daemon: &Headgate) -> anyhow::Result<()> {
    let data: u64 = DATA.iter().map(|(_, len)| len + 2 * GRAIN).sum();
    for (name, format, image) in kinds(lab, &raw(lab, "whole.raw", 0)?)? {
        let shown = daemon.json(&["disk", "import", name, &text(&image), "--vm", "db"])?;
        ensure!(shown["size"] == 32 * MIB && shown["vm"] == "db", "{name}: {shown}");
        ensure!(shown["import"]["format"] == format, "{name}: {shown}");
        let written = shown["import"]["written"].as_u64().context("no count")?;
        // The snapshot's image has 3 MiB more.
        ensure!(written <= data + 3 * MIB, "{name}: {written} bytes are written of {data}");
        same(&image, format, &daemon.nbd_uri(name)).with_context(|| name.to_owned())?;
        let taken = taken(daemon, name)?;
        ensure!(taken <= data + 3 * MIB + SLACK, "{name} takes {taken} bytes for {data}");
    }
    // Sizes that no disk has, and a larger one.
    for (more, size) in [(1, 32 * MIB + 4096), (4095, 32 * MIB + 4096), (6000, 32 * MIB + 8192)] {
        let (disk, name) = (format!("odd{more}"), format!("odd{more}.raw"));
        let image = raw(lab, &name, more)?;
        import(daemon, &disk, &text(&image), &[])?;
        let shown = daemon.json(&["disk", "show", &disk])?;
        ensure!(shown["size"] == size, "{disk}: {shown}");
        same(&image, "raw", &daemon.nbd_uri(&disk)).context(disk)?;
    }
    let image = raw(lab, "short.raw", 512)?;
    import(daemon, "longer", &text(&image), &["--size=100M"])?;
    same(&image, "raw", &daemon.nbd_uri("longer"))?;
    let refused = import(daemon, "shorter", &text(&image), &["--size=32M"]).err();
    let refused = refused.context("it does not fit")?.to_string();
    ensure!(refused.contains("takes 33558528 bytes"), "{refused}");
    on_other_storage(lab, daemon)
}

/// In memory, and on an array; and all of a policy holds once the disk is whole.
fn on_other_storage(lab: &Lab, daemon: &Headgate) -> anyhow::Result<()> {
    daemon.command(&["datastore", "add", "ram", "--memory=256M"])?;
    daemon.command(&["datastore", "add", "array", "--emulated=rate=20000,depth=32"])?;
    let image = lab.dir().join("large.qcow2");
    for (datastore, disk) in [("ram", "memory"), ("array", "slow")] {
        let words = ["--datastore", datastore, "--reservation=50", "--shares=300", "--read-only"];
        import(daemon, disk, &text(&image), &words)?;
        let shown = daemon.json(&["disk", "show", disk])?;
        let as_asked = shown["policy"]["reservation"] == 50
            && shown["effective_policy"]["shares"] == 300
            && shown["read_only"] == true
            && shown["vm"].is_null();
        ensure!(as_asked, "{shown}");
        same(&image, "qcow2", &daemon.nbd_uri(disk)).context(datastore)?;
    }
    Ok(())
}

/// Two images behind one, the last of them raw; each has some of what the disk reads.
fn chain(lab: &Lab) -> anyhow::Result<PathBuf> {
    let base = raw(lab, "base.raw", 0)?;
    let [middle, top] = ["middle", "top"].map(|name| lab.dir().join(format!("{name}.qcow2")));
    let made = |image: &Path, behind: &str, format: &str| {
        let words = ["create", "-q", "-f", "qcow2", "-b", behind, "-F", format];
        qemu_img(&[&words[..], &[&text(image), "40M"]].concat())
    };
    made(&middle, "base.raw", "raw")?;
    write_over(&middle, &["write -P 3 1M 1M", "write -z 2M 64k"])?;
    // By a path without a directory, as it is mostly written.
    made(&top, "middle.qcow2", "qcow2")?;
    write_over(&top, &["write -P 4 1536k 1M", "write -P 5 39M 1M"])?;
    ensure!(base.is_file());
    Ok(top)
}

#[test]
fn a_chain_of_images_is_read_only_where_that_is_allowed() {
    with_lab(&["qemu-img", "qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let top = chain(lab)?;
        let refused = import(&daemon, "chain", &text(&top), &[]).err().context("not allowed")?;
        let refused = refused.to_string();
        ensure!(
            refused.contains("'middle.qcow2'") && refused.contains("--allow-backing"),
            "{refused}"
        );
        import(&daemon, "chain", &text(&top), &["--allow-backing"])?;
        same(&top, "qcow2", &daemon.nbd_uri("chain"))?;
        daemon.stop()
    });
}

#[test]
fn an_import_takes_memory_for_its_chunks_and_not_for_the_image() {
    with_lab(&["qemu-img"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let image = lab.dir().join("long.raw");
        let file = File::create(&image)?;
        for n in 0..320 {
            file.write_all_at(&noise(n, MIB), n * MIB)?;
        }
        let mut command = Command::new(headgate::binary()?);
        command.args(["disk", "import", "long", &text(&image)]);
        command.env("HEADGATE_STATE_DIR", daemon.state_dir());
        let mut process = Process::spawn("import", command, &lab.dir().join("import.log"))?;
        let mut most = 0;
        let status = wait_for("the import should end", PATIENCE, || {
            most = most.max(memory_kib(process.id()).unwrap_or(0));
            process.wait(Duration::ZERO).map(Some).or(Ok(None))
        })?;
        ensure!(status.success(), "{status}");
        println!("the import had {most} KiB of memory of its own for an image of 320 MiB");
        ensure!(most > 0 && most < 64 << 10, "{most} KiB");
        same(&image, "raw", &daemon.nbd_uri("long"))?;
        daemon.stop()
    });
}

/// Memory of a process that is not shared with files, in KiB.
fn memory_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[test]
fn disks_become_raw_and_qcow2_files() {
    with_lab(&["qemu-img", "qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let image = raw(lab, "whole.raw", 4096)?;
        import(&daemon, "disk", &text(&image), &[])?;
        let uri = daemon.nbd_uri("disk");
        let data: u64 = DATA.iter().map(|(_, len)| len + 2 * GRAIN).sum();
        for format in ["raw", "qcow2"] {
            let file = lab.dir().join(format!("out.{format}"));
            let words = ["disk", "export", "disk", &text(&file), "--format", format];
            let said = daemon.json(&words)?;
            ensure!(said["consistent"] == true && said["size"] == 32 * MIB + 4096, "{said}");
            same(&file, format, &uri)?;
            same(&file, format, &text(&image))?;
            let info = qemu_img(&["info", "--output=json", "-f", format, &text(&file)])?;
            let info = tools::json_in(&info)?;
            ensure!(info["virtual-size"] == 32 * MIB + 4096, "{info}");
            let taken = file.metadata()?.blocks() * 512;
            ensure!(taken <= data + SLACK, "{format} takes {taken} bytes for {data}");
            // What is there stays, unless it is to be replaced.
            let refused = daemon.command(&words).err().context("it is there")?.to_string();
            ensure!(refused.contains("exists") && refused.contains("--overwrite"), "{refused}");
            daemon.command(&[&words[..], &["--overwrite"]].concat())?;
            same(&file, format, &uri)?;
        }
        qemu_img(&["check", "-f", "qcow2", &text(&lab.dir().join("out.qcow2"))])?;
        // A disk of nothing, and one that nothing can be told of.
        daemon.command(&["disk", "create", "empty", "--size=64M"])?;
        let file = text(&lab.dir().join("empty.qcow2"));
        daemon.command(&["disk", "export", "empty", &file, "--format=qcow2"])?;
        qemu_img(&["check", "-f", "qcow2", &file])?;
        same(Path::new(&file), "qcow2", &daemon.nbd_uri("empty"))?;
        ensure!(no_partial_files(lab)?);
        daemon.stop()
    });
}

/// Whether no file that was begun is left.
pub(super) fn no_partial_files(lab: &Lab) -> anyhow::Result<bool> {
    for entry in lab.dir().read_dir()? {
        if entry?.file_name().to_string_lossy().ends_with(".partial") {
            return Ok(false);
        }
    }
    Ok(true)
}

#[test]
fn a_disk_that_others_may_write_is_exported_only_when_that_is_wanted() {
    with_lab(&["qemu-img", "qemu-io"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let image = raw(lab, "whole.raw", 0)?;
        import(&daemon, "disk", &text(&image), &[])?;
        let file = lab.dir().join("out.raw");
        let words = ["disk", "export", "disk", &text(&file)];
        let client = headgate_lab::nbd::Client::connect(daemon.nbd_socket(), "disk")?;
        let refused = daemon.command(&words).err().context("it is in use")?.to_string();
        ensure!(refused.contains("1 client(s)") && refused.contains("--force-share"), "{refused}");
        ensure!(!file.exists());
        let said = daemon.json(&[&words[..], &["--force-share"]].concat())?;
        ensure!(said["consistent"] == true, "{said}");
        std::fs::remove_file(&file)?;
        // A snapshot of it is exported while the client stays.
        daemon.command(&["disk", "snapshot", "disk", "still"])?;
        let still = lab.dir().join("still.qcow2");
        daemon.command(&["disk", "export", "still", &text(&still), "--format=qcow2"])?;
        qemu_img(&["check", &text(&still)])?;
        same(&still, "qcow2", &daemon.nbd_uri("disk"))?;
        drop(client);

        // One that comes, writes and goes while the export runs is noticed too.
        daemon.command(&["disk", "set", "disk", "--limit-read-bandwidth=2M"])?;
        for (sharing, success) in [(None, false), (Some("--force-share"), true)] {
            let log = lab.dir().join(format!("export-{success}.log"));
            let mut command = Command::new(headgate::binary()?);
            command.args(words).args(sharing).env("HEADGATE_STATE_DIR", daemon.state_dir());
            wait_for("the last client should be gone", PATIENCE, || {
                let shown = daemon.json(&["disk", "show", "disk"])?;
                Ok((shown["clients"] == 0).then_some(()))
            })?;
            let mut export = Process::spawn("export", command, &log)?;
            wait_for("the export should begin", PATIENCE, || {
                export.ensure_running()?;
                Ok((!no_partial_files(lab)?).then_some(()))
            })?;
            tools::qemu_io(&daemon.nbd_uri("disk"), &["write -P 7 25M 4k"])?;
            let status = export.wait(PATIENCE)?;
            let said = std::fs::read_to_string(&log)?;
            ensure!(status.success() == success && file.exists() == success, "{status}: {said}");
            ensure!(said.contains("of one instant"), "{said}");
            ensure!(no_partial_files(lab)?);
        }
        daemon.stop()
    });
}

/// `qemu-nbd` with an image, on a socket of its own.
pub(super) fn qemu_nbd(lab: &Lab, name: &str, words: &[&str]) -> anyhow::Result<(Process, String)> {
    let socket = lab.dir().join(format!("{name}.sock"));
    let mut command = Command::new("qemu-nbd");
    command.args(["-t", "-x", name, "-k", &text(&socket)]).args(words);
    let mut server = Process::spawn("qemu-nbd", command, &lab.dir().join(format!("{name}.log")))?;
    wait_for("qemu-nbd should listen", PATIENCE, || {
        server.ensure_running()?;
        Ok(socket.exists().then_some(()))
    })?;
    Ok((server, format!("nbd+unix:///{name}?socket={}", socket.display())))
}

#[test]
fn exports_of_other_servers_become_disks() {
    with_lab(&["qemu-img", "qemu-io", "qemu-nbd"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let top = chain(lab)?;
        // One client at a time is all that it serves, and it says what holds data.
        let (_server, uri) = qemu_nbd(lab, "top", &["-r", "-f", "qcow2", &text(&top)])?;
        let shown = daemon.json(&["disk", "import", "far", &uri])?;
        ensure!(shown["import"]["format"].is_null() && shown["size"] == 40 * MIB, "{shown}");
        same(&top, "qcow2", &daemon.nbd_uri("far"))?;
        ensure!(taken(&daemon, "far")? <= 12 * MIB, "{}", taken(&daemon, "far")?);
        // The daemon's own exports, over the socket of a second daemon.
        let mut other = Headgate::start_as(lab, "other", &[], &[])?;
        import(&other, "near", &daemon.nbd_uri("far"), &[])?;
        same(&top, "qcow2", &other.nbd_uri("near"))?;
        for (uri, why) in [
            (daemon.nbd_uri("none"), "refuses export 'none'"),
            ("nbd+unix:///x?socket=/nowhere/at.all".into(), "cannot connect"),
            ("http://localhost/x".into(), "no NBD URI"),
        ] {
            let refused = import(&other, "bad", &uri, &[]).err().context("it is refused")?;
            ensure!(refused.to_string().contains(why), "{refused}");
        }
        other.stop()?;
        daemon.stop()
    });
}

#[test]
fn an_import_overwrites_what_the_storage_of_the_disk_held() {
    with_lab(&["qemu-img", "qemu-nbd"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let volume = lab.dir().join("volume.raw");
        std::fs::write(&volume, vec![0xff; 40 << 20])?;
        let (_server, uri) = qemu_nbd(lab, "volume", &["-e", "4", "-f", "raw", &text(&volume)])?;
        let server = uri.replace("nbd+unix:///volume", "nbd+unix:///");
        daemon.command(&["datastore", "add", "far", "--nbd", &server])?;
        let image = raw(lab, "whole.raw", 0)?;
        let words = ["--datastore=far", "--export=volume"];
        import(&daemon, "disk", &text(&image), &words)?;
        // The size is the export's; behind the image it has zeroes.
        ensure!(daemon.json(&["disk", "show", "disk"])?["size"] == 40 * MIB);
        same(&image, "raw", &daemon.nbd_uri("disk"))?;
        // One that is too long is told, and the disk is removed again.
        daemon.command(&["disk", "remove", "disk", "--yes"])?;
        let long = raw(lab, "long.raw", 20 * MIB)?;
        let mut command = Command::new(headgate::binary()?);
        command.args(["disk", "import", "disk", &text(&long)]).args(words);
        command.env("HEADGATE_STATE_DIR", daemon.state_dir());
        let refused = run_to_end(command, PATIENCE)?;
        let said = &refused.stderr;
        ensure!(said.contains("do not fit") && said.contains("removed again"), "{refused:?}");
        ensure!(daemon.json(&["disk", "list"])? == serde_json::json!([]));
        daemon.stop()
    });
}
