//! What an operator can lose by one wrong command or one bad block, and gets back: a removed disk,
//! a damaged catalog, a missing one. Judged by what a client reads afterwards and by the policy.

use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// Two disks of one machine, and what a client writes into each.
const DISKS: [(&str, u8); 2] = [("db", 0xd1), ("mail", 0x3a)];

/// Everything that a disk is to its owner.
fn identity(daemon: &Headgate, disk: &str) -> anyhow::Result<Value> {
    let shown = daemon.json(&["disk", "show", disk])?;
    let part = |name: &str| shown.get(name).cloned().with_context(|| format!("{name}: {shown}"));
    let parts = ["name", "state", "datastore", "vm", "size", "policy", "placement"];
    parts.into_iter().map(|name| Ok((name.to_owned(), part(name)?))).collect()
}

fn reads(daemon: &Headgate, disk: &str, pattern: u8) -> anyhow::Result<()> {
    let read = format!("read -P {pattern} 3M 1M");
    tools::qemu_io(&daemon.nbd_uri(disk), &[&read, "read -P 0 8M 1M"]).map(drop)
}

/// A daemon with both disks, a pattern flushed in each, and what each disk is.
fn filled(lab: &Lab) -> anyhow::Result<(Headgate, Vec<Value>)> {
    let daemon = Headgate::start(lab)?;
    for (at, (disk, pattern)) in DISKS.into_iter().enumerate() {
        let (reservation, shares) = (format!("{}", 100 + at), format!("{}", 300 + at));
        daemon.command(&[
            "disk",
            "create",
            disk,
            "--size=16M",
            "--vm=web",
            "--limit=50000",
            &format!("--reservation={reservation}"),
            &format!("--shares={shares}"),
        ])?;
        let write = format!("write -P {pattern} 3M 1M");
        tools::qemu_io(&daemon.nbd_uri(disk), &[&write, "flush"])?;
    }
    let known = DISKS.iter().map(|(disk, _)| identity(&daemon, disk)).collect::<Result<_, _>>()?;
    Ok((daemon, known))
}

fn is_all_there(daemon: &Headgate, known: &[Value]) -> anyhow::Result<()> {
    for ((disk, pattern), known) in DISKS.into_iter().zip(known) {
        let found = identity(daemon, disk)?;
        ensure!(found == *known, "{disk} was {known}\nand is {found}");
        reads(daemon, disk, pattern)?;
    }
    let all = daemon.json(&["disk", "list"])?;
    ensure!(all.as_array().map(Vec::len) == Some(DISKS.len()), "other disks too: {all}");
    Ok(())
}

/// What a command says when it fails, as it must.
fn refusal(daemon: &Headgate, args: &[&str]) -> anyhow::Result<String> {
    match daemon.command(args) {
        Ok(said) => anyhow::bail!("'{}' succeeded: {said}", args.join(" ")),
        Err(error) => Ok(format!("{error:#}")),
    }
}

/// The files of the catalog itself, its log among them.
fn catalog_files(daemon: &Headgate) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(daemon.state_dir())?.filter_map(|entry| Some(entry.ok()?.path()));
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("catalog.sqlite"))
    };
    let files: Vec<_> = entries.filter(named).collect();
    ensure!(!files.is_empty(), "no catalog in {}", daemon.state_dir().display());
    Ok(files)
}

/// Waits until a copy of the catalog knows both disks as they are.
fn is_copied(daemon: &Headgate) -> anyhow::Result<()> {
    wait_for("a copy of the catalog's last state", PATIENCE, || {
        let copies = fs::read_dir(daemon.state_dir().join("catalog.copies"));
        let copies = copies.into_iter().flatten().filter_map(|e| Some(e.ok()?.path()));
        // One that is being made has a name that is hidden.
        let is_whole = |copy: &PathBuf| {
            !copy.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        };
        let Some(newest) = copies.filter(is_whole).max() else { return Ok(None) };
        let bytes = fs::read(newest)?;
        let has = |name: &str| bytes.windows(name.len()).any(|part| part == name.as_bytes());
        Ok(DISKS.iter().all(|(disk, _)| has(disk)).then_some(()))
    })
}

fn scribble(path: &Path) -> anyhow::Result<()> {
    let file = File::options().write(true).open(path)?;
    let length = file.metadata()?.len();
    let noise: Vec<u8> =
        (0..length / 8).flat_map(|i| headgate_lab::ledger::splitmix(i).to_le_bytes()).collect();
    file.write_all_at(&noise, 0)?;
    Ok(())
}

#[test]
fn a_removed_disk_comes_back_with_its_bytes_and_its_policy() {
    with_lab(&["qemu-io"], |lab| {
        let (mut daemon, known) = filled(lab)?;
        daemon.command(&["disk", "remove", "db"])?;
        ensure!(
            tools::qemu_io(&daemon.nbd_uri("db"), &["read 0 4k"]).is_err(),
            "a removed disk is served"
        );
        reads(&daemon, "mail", 0x3a)?;

        // The removal was acknowledged, and the next instant is the daemon's last.
        daemon.kill()?;
        daemon.start_again()?;
        let removed = daemon.json(&["disk", "list", "--removed"])?;
        ensure!(removed[0]["name"] == "db" && removed[1].is_null(), "removed: {removed}");
        daemon.command(&["disk", "restore", "db"])?;
        is_all_there(&daemon, &known)?;
        daemon.kill()?;
        daemon.start_again()?;
        is_all_there(&daemon, &known)
    });
}

#[test]
fn a_purged_disk_is_gone_and_one_removed_by_another_name_is_not() {
    with_lab(&["qemu-io"], |lab| {
        let (daemon, _) = filled(lab)?;
        daemon.command(&["disk", "remove", "db"])?;
        // A new disk takes the name: what was kept comes back under another one.
        daemon.command(&["disk", "create", "db", "--size=16M"])?;
        tools::qemu_io(&daemon.nbd_uri("db"), &["read -P 0 3M 1M"])?;
        let said = refusal(&daemon, &["disk", "restore", "db"])?;
        ensure!(said.contains("--name"), "no way out is named: {said}");
        daemon.command(&["disk", "restore", "db", "--name", "old"])?;
        reads(&daemon, "old", 0xd1)?;
        tools::qemu_io(&daemon.nbd_uri("db"), &["read -P 0 3M 1M"])?;

        daemon.command(&["disk", "remove", "mail"])?;
        daemon.command(&["disk", "purge", "mail"])?;
        let said = refusal(&daemon, &["disk", "restore", "mail"])?;
        ensure!(said.contains("mail"), "{said}");
        let kept = daemon.json(&["disk", "list", "--removed"])?;
        ensure!(kept == Value::Array(Vec::new()), "still listed: {kept}");
        let trash = daemon.state_dir().join("default/.removed");
        let left = fs::read_dir(&trash).map_or(0, |entries| entries.count());
        ensure!(left == 0, "{left} files are left in {}", trash.display());
        reads(&daemon, "old", 0xd1)
    });
}

#[test]
fn a_damaged_catalog_ends_the_start_and_a_copy_takes_its_place() {
    with_lab(&["qemu-io"], |lab| {
        let (mut daemon, known) = filled(lab)?;
        is_copied(&daemon)?;
        let said = refusal(&daemon, &["catalog", "restore"])?;
        ensure!(said.contains("daemon"), "it does not say that a daemon runs: {said}");
        daemon.kill()?;
        catalog_files(&daemon)?.iter().try_for_each(|file| scribble(file))?;

        let said = refusal(&daemon, &["serve"])?;
        for word in ["is damaged", "catalog restore", "catalog rebuild"] {
            ensure!(said.contains(word), "nothing about '{word}': {said}");
        }
        refusal(&daemon, &["catalog", "check"])?;
        daemon.command(&["catalog", "restore"])?;
        daemon.command(&["catalog", "check"])?;
        daemon.start_again()?;
        is_all_there(&daemon, &known)
    });
}

#[test]
fn a_missing_catalog_ends_the_start_and_is_made_from_what_images_say() {
    with_lab(&["qemu-io"], |lab| {
        let (mut daemon, known) = filled(lab)?;
        // Records are written behind the change; the end of the daemon waits for them.
        daemon.stop()?;
        catalog_files(&daemon)?.iter().try_for_each(fs::remove_file)?;
        fs::remove_dir_all(daemon.state_dir().join("catalog.copies"))?;

        let said = refusal(&daemon, &["serve"])?;
        for word in ["is missing", "catalog rebuild", "catalog create"] {
            ensure!(said.contains(word), "nothing about '{word}': {said}");
        }
        daemon.command(&["catalog", "rebuild"])?;
        daemon.start_again()?;
        is_all_there(&daemon, &known)
    });
}
