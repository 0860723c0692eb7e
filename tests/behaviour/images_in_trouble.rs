//! Images that are not what they say, and imports and exports that are cut short: a clear error,
//! and nothing is left.

use crate::images::{no_partial_files, noise, qemu_img, qemu_nbd, text};
use anyhow::{Context, ensure};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::{Process, run_to_end};
use headgate_lab::{Lab, Server, wait_for, with_lab};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

/// The command line of this daemon.
fn command(daemon: &Headgate, words: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(headgate::binary()?);
    command.args(words).env("HEADGATE_STATE_DIR", daemon.state_dir());
    Ok(command)
}

fn disks(daemon: &Headgate) -> anyhow::Result<Vec<String>> {
    let disks = daemon.json(&["disk", "list"])?;
    let names =
        disks.as_array().context("no list")?.iter().filter_map(|disk| disk["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// An import that must fail with these words, and leave no disk.
fn refused(daemon: &Headgate, image: &Path, words: &[&str], why: &str) -> anyhow::Result<()> {
    let image = text(image);
    let import = [&["disk", "import", "bad", &image], words].concat();
    let ended = run_to_end(command(daemon, &import)?, PATIENCE)?;
    let said = &ended.stderr;
    let told = ended.status.code() == Some(1) && said.starts_with("error: ") && said.contains(why);
    ensure!(told, "{image} {words:?}: {}, expected '{why}'\n{said}", ended.status);
    ensure!(disks(daemon)?.is_empty(), "{image}: {:?}", disks(daemon)?);
    Ok(())
}

fn qcow2(lab: &Lab, name: &str, options: &[&str]) -> anyhow::Result<PathBuf> {
    let path = lab.dir().join(name);
    let file = text(&path);
    qemu_img(&[&["create", "-q", "-f", "qcow2"], options, &[&file, "64M"]].concat())?;
    Ok(path)
}

/// 64 MiB, of which 16 are data.
fn raw(lab: &Lab) -> anyhow::Result<PathBuf> {
    let path = lab.dir().join("data.raw");
    let file = File::create(&path)?;
    file.set_len(64 * MIB)?;
    file.write_all_at(&noise(5, 16 * MIB), 8 * MIB)?;
    Ok(path)
}

/// A copy of a file, changed.
fn changed(
    from: &Path,
    change: impl FnOnce(&File) -> std::io::Result<()>,
) -> anyhow::Result<PathBuf> {
    let to = from.with_extension("changed");
    std::fs::copy(from, &to)?;
    change(&File::options().read(true).write(true).open(&to)?)?;
    Ok(to)
}

#[test]
fn hostile_images_end_with_a_clear_error_and_no_disk() {
    with_lab(&["qemu-img"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        other_files(lab, &daemon)?;
        tables(lab, &daemon)?;
        no_images(lab, &daemon)?;
        daemon.ensure_running()?;
        daemon.stop()
    });
}

/// Images that name files which they have no business with.
fn other_files(lab: &Lab, daemon: &Headgate) -> anyhow::Result<()> {
    let allow = &["--allow-backing"][..];
    let evil = qcow2(lab, "evil.qcow2", &["-u", "-b", "/etc/passwd", "-F", "raw"])?;
    refused(daemon, &evil, &[], "'/etc/passwd'")?;
    refused(daemon, &evil, &["--format=qcow2"], "--allow-backing")?;
    // No format is guessed: a guest may have written what a raw file begins with.
    let guess = changed(&evil, |file| file.write_all_at(b"r\xc3\xa4w", 0x70 + 8).map(drop))?;
    refused(daemon, &guess, allow, "format")?;
    let lost = qcow2(lab, "lost.qcow2", &["-u", "-b", "nowhere.raw", "-F", "raw"])?;
    refused(daemon, &lost, allow, "cannot open")?;
    let protocol = qcow2(lab, "far.qcow2", &["-u", "-b", "nbd://localhost/x", "-F", "raw"])?;
    refused(daemon, &protocol, allow, "cannot open")?;
    // Loops, of one and of two.
    let own = qcow2(lab, "own.qcow2", &["-u", "-b", "own.qcow2", "-F", "qcow2"])?;
    refused(daemon, &own, allow, "its own backing file")?;
    let one = qcow2(lab, "one.qcow2", &["-u", "-b", "two.qcow2", "-F", "qcow2"])?;
    qcow2(lab, "two.qcow2", &["-u", "-b", "./one.qcow2", "-F", "qcow2"])?;
    refused(daemon, &one, allow, "its own backing file")?;
    for n in 0..40 {
        let behind = format!("long{}.qcow2", n + 1);
        qcow2(lab, &format!("long{n}.qcow2"), &["-u", "-b", &behind, "-F", "qcow2"])?;
    }
    refused(daemon, &lab.dir().join("long0.qcow2"), allow, "more than 32 images")?;
    let data = format!("data_file={}/elsewhere.raw", lab.dir().display());
    let elsewhere = qcow2(lab, "meta.qcow2", &["-o", &data])?;
    refused(daemon, &elsewhere, allow, "its data is in another file")
}

/// Images whose tables lie.
fn tables(lab: &Lab, daemon: &Headgate) -> anyhow::Result<()> {
    let whole = lab.dir().join("whole.qcow2");
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &text(&raw(lab)?), &text(&whole)])?;
    let len = whole.metadata()?.len();
    for (cut, why) in [
        (3, "truncated"),
        (len / 2, "truncated"),
        // One sector of the last cluster.
        (len - 512, "truncated"),
        (200 << 10, "truncated"),
        (100, "truncated"),
        (60, "truncated within its header"),
    ] {
        let image = changed(&whole, |file| file.set_len(cut))?;
        refused(daemon, &image, &["--format=qcow2"], why)?;
    }
    let field = |at: u64, bytes: &[u8]| changed(&whole, |file| file.write_all_at(bytes, at));
    refused(daemon, &field(24, &u64::MAX.to_be_bytes())?, &[], "does not fit its table")?;
    refused(daemon, &field(24, &[0; 8])?, &[], "it is empty")?;
    refused(daemon, &field(20, &40_u32.to_be_bytes())?, &[], "clusters")?;
    refused(daemon, &field(32, &2_u32.to_be_bytes())?, &[], "encrypted")?;
    refused(daemon, &field(72, &(1_u64 << 40).to_be_bytes())?, &[], "incompatible feature")?;
    refused(daemon, &field(4, &9_u32.to_be_bytes())?, &[], "v9 is not supported")?;
    let vast = lab.dir().join("vast.qcow2");
    let words = ["create", "-q", "-f", "qcow2", "-o", "cluster_size=2M", &text(&vast), "1E"];
    qemu_img(&words)?;
    // No bad image: the storage of the disk refuses.
    refused(daemon, &vast, &[], "1 EiB do not fit")?;
    let wide = lab.dir().join("wide.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &text(&wide), "15T"])?;
    refused(daemon, &wide, &["--datastore=default"], "does not fit on datastore")
}

/// What is no image at all.
fn no_images(lab: &Lab, daemon: &Headgate) -> anyhow::Result<()> {
    let at = |name: &str| lab.dir().join(name);
    refused(daemon, &at("nothing"), &[], "cannot open")?;
    refused(daemon, lab.dir(), &[], "neither a file nor a block device")?;
    refused(daemon, Path::new("/dev/zero"), &[], "neither a file nor a block device")?;
    File::create(at("empty"))?;
    refused(daemon, &at("empty"), &[], "it is empty")?;
    let pipe = at("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR)?;
    refused(daemon, &pipe, &[], "neither a file nor a block device")?;
    for (format, name) in [("vmdk", "VMDK"), ("vdi", "VDI"), ("vhdx", "VHDX")] {
        let image = at(&format!("image.{format}"));
        qemu_img(&["create", "-q", "-f", format, &text(&image), "8M"])?;
        refused(daemon, &image, &[], &format!("it looks like {name}"))?;
    }
    refused(daemon, &at("image.vdi"), &["--format=qcow2"], "no qcow2 image")
}

/// An import that takes half a minute, in its middle: the disk is there and holds something.
fn slow_import(lab: &Lab, daemon: &Headgate, name: &str) -> anyhow::Result<(Process, PathBuf)> {
    let image = text(&raw(lab)?);
    let words = ["disk", "import", name, &image, "--limit-bandwidth=512K", "--vm=db"];
    let log = lab.dir().join(format!("import-{name}.log"));
    let mut import = Process::spawn("import", command(daemon, &words)?, &log)?;
    wait_for("the import should be in its middle", PATIENCE, || {
        import.ensure_running()?;
        let written = daemon.metrics()?.of_disk("headgate_disk_written_bytes_total", name);
        Ok(written.is_ok_and(|bytes| bytes > 1e6).then_some(()))
    })?;
    Ok((import, log))
}

fn signal(process: &Process, signal: Signal) -> anyhow::Result<()> {
    let pid = Pid::from_raw(process.id() as i32).context("no process")?;
    Ok(kill_process(pid, signal)?)
}

fn end(process: &mut Process, log: &Path) -> anyhow::Result<(ExitStatus, String)> {
    let status = process.wait(PATIENCE)?;
    Ok((status, std::fs::read_to_string(log)?))
}

#[test]
fn an_import_that_is_interrupted_leaves_no_disk() {
    with_lab(&["qemu-img"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        for (name, number, code) in [("term", Signal::TERM, 143), ("int", Signal::INT, 130)] {
            let (mut import, log) = slow_import(lab, &daemon, name)?;
            signal(&import, number)?;
            let (status, said) = end(&mut import, &log)?;
            ensure!(status.code() == Some(code), "{status}: {said}");
            ensure!(said.contains("interrupted") && said.contains("is removed again"), "{said}");
            ensure!(disks(&daemon)?.is_empty() && removed(&daemon)?.is_empty());
            let image = daemon.state_dir().join(format!("default/{name}.img"));
            ensure!(!image.exists(), "{}", image.display());
        }
        daemon.stop()
    });
}

fn removed(daemon: &Headgate) -> anyhow::Result<Vec<serde_json::Value>> {
    let removed = daemon.json(&["disk", "list", "--removed"])?;
    Ok(removed.as_array().context("no list")?.clone())
}

#[test]
fn an_import_that_is_killed_leaves_a_disk_that_says_so() {
    with_lab(&["qemu-img"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let (mut import, _) = slow_import(lab, &daemon, "killed")?;
        import.kill()?;
        let shown = daemon.json(&["disk", "show", "killed"])?;
        ensure!(shown["vm"] == "incomplete-import", "{shown}");
        let list = daemon.command(&["disk", "list"])?;
        ensure!(list.contains("copying "), "{list}");
        let image = text(&lab.dir().join("data.raw"));
        let again = run_to_end(command(&daemon, &["disk", "import", "killed", &image])?, PATIENCE)?;
        for word in ["or was killed", "disk import killed --cancel"] {
            ensure!(again.stderr.contains(word), "{again:?}");
        }
        let file = text(&lab.dir().join("out.raw"));
        let export = run_to_end(command(&daemon, &["disk", "export", "killed", &file])?, PATIENCE)?;
        ensure!(export.stderr.contains("not whole") && !Path::new(&file).exists(), "{export:?}");
        daemon.command(&["disk", "import", "killed", "--cancel"])?;
        ensure!(disks(&daemon)?.is_empty() && removed(&daemon)?.is_empty());
        daemon.command_for(PATIENCE, &["disk", "import", "killed", &image])?;
        daemon.stop()
    });
}

#[test]
fn an_import_is_shown_with_how_far_it_is_and_another_command_ends_it() {
    with_lab(&["qemu-img"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let (mut import, log) = slow_import(lab, &daemon, "shown")?;
        let far = wait_for("it should be said how far it is", PATIENCE, || {
            let all = daemon.json(&["disk", "imports"])?;
            let one = all[0].clone();
            let is_begun = one["rate"].is_number() && one["copied"].as_u64() > Some(1 << 20);
            Ok(is_begun.then_some(one))
        })?;
        ensure!(far["state"] == "copying" && far["disk"] == "shown", "{far}");
        ensure!(far["source"].as_str().is_some_and(|from| from.ends_with(".raw")), "{far}");
        let shown = daemon.json(&["disk", "show", "shown"])?;
        let filling = &shown["filling"];
        ensure!(filling["by"] == "import" && filling["size"] == shown["size"], "{shown}");
        let again = daemon.json(&["disk", "imports"])?[0]["copied"].as_u64();
        ensure!(again >= far["copied"].as_u64(), "{again:?} after {far}");
        let text = daemon.command(&["disk", "show", "shown"])?;
        ensure!(text.contains("an import of ") && text.contains("copying "), "{text}");
        let top: serde_json::Value = serde_json::from_str(&daemon.get("/v1/top")?)?;
        ensure!(top["imports"][0]["disk"] == "shown", "{top}");
        daemon.command(&["disk", "import", "shown", "--cancel"])?;
        let (status, said) = end(&mut import, &log)?;
        ensure!(status.code() == Some(1) && said.contains("of this import is removed"), "{said}");
        let image = daemon.state_dir().join("default/shown.img");
        ensure!(disks(&daemon)?.is_empty() && removed(&daemon)?.is_empty() && !image.exists());
        let none = daemon.command(&["disk", "import", "shown", "--cancel"]);
        ensure!(none.is_err_and(|e| format!("{e:#}").contains("no disk 'shown'")));
        daemon.command(&["disk", "create", "plain", "--size=1M"])?;
        let whole = daemon.command(&["disk", "import", "plain", "--cancel"]);
        ensure!(whole.is_err_and(|e| format!("{e:#}").contains("is not being imported")));
        ensure!(disks(&daemon)?.len() == 1, "a whole disk is removed");
        daemon.stop()
    });
}

#[test]
fn an_import_whose_daemon_or_source_dies_says_so() {
    with_lab(&["qemu-img", "qemu-nbd"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let (mut import, log) = slow_import(lab, &daemon, "cut")?;
        daemon.kill()?;
        let (status, said) = end(&mut import, &log)?;
        ensure!(status.code() == Some(1), "{status}: {said}");
        for word in ["is there, incomplete", "disk remove cut --purge", "the connection broke"] {
            ensure!(said.contains(word), "no '{word}': {said}");
        }
        daemon.start_again()?;
        let shown = daemon.json(&["disk", "show", "cut"])?;
        ensure!(shown["vm"] == "incomplete-import", "{shown}");
        daemon.command(&["disk", "remove", "cut", "--purge", "--yes"])?;

        // The server of the source dies: the daemon removes the disk again.
        let image = text(&raw(lab)?);
        let (mut server, uri) = qemu_nbd(lab, "source", &["-r", "-f", "raw", &image])?;
        let words = ["disk", "import", "orphan", &uri, "--limit-bandwidth=512K"];
        let log = lab.dir().join("orphan.log");
        let mut import = Process::spawn("import", command(&daemon, &words)?, &log)?;
        wait_for("the import should be in its middle", PATIENCE, || {
            import.ensure_running()?;
            let written = daemon.metrics()?.of_disk("headgate_disk_written_bytes_total", "orphan");
            Ok(written.is_ok_and(|bytes| bytes > 1e6).then_some(()))
        })?;
        server.kill()?;
        let (status, said) = end(&mut import, &log)?;
        ensure!(status.code() == Some(1), "{status}: {said}");
        ensure!(said.contains(&uri) && said.contains("removed again"), "{said}");
        ensure!(disks(&daemon)?.is_empty());
        daemon.stop()
    });
}

#[test]
fn an_export_that_is_cut_short_leaves_no_file() {
    with_lab(&["qemu-img"], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let image = text(&raw(lab)?);
        daemon.command_for(PATIENCE, &["disk", "import", "disk", &image])?;
        daemon.command(&["disk", "set", "disk", "--limit-bandwidth=512K"])?;
        let file = lab.dir().join("out.qcow2");
        std::fs::write(&file, "what was there")?;
        for cut in ["SIGTERM", "SIGINT", "the daemon's death"] {
            let log = lab.dir().join("export.log");
            File::create(&log)?;
            let path = text(&file);
            let words = ["disk", "export", "disk", &path, "--format=qcow2", "--overwrite"];
            wait_for("the last client should be gone", PATIENCE, || {
                let shown = daemon.json(&["disk", "show", "disk"])?;
                Ok((shown["clients"] == 0).then_some(()))
            })?;
            let mut export = Process::spawn("export", command(&daemon, &words)?, &log)?;
            wait_for("the export should begin", PATIENCE, || {
                export.ensure_running()?;
                Ok((!no_partial_files(lab)?).then_some(()))
            })?;
            match cut {
                "SIGTERM" => signal(&export, Signal::TERM)?,
                "SIGINT" => export.interrupt()?,
                _ => daemon.kill()?,
            }
            let (status, said) = end(&mut export, &log)?;
            ensure!(!status.success() && said.contains("not exported"), "{cut}: {status}: {said}");
            ensure!(no_partial_files(lab)?, "{cut}");
            ensure!(std::fs::read(&file)? == b"what was there", "{cut}");
        }
        daemon.start_again()?;
        daemon.stop()
    });
}
