//! An emulated flash drive keeps its disks, their data and the space of each over restarts.

use anyhow::{Context, bail, ensure};
use headgate_lab::headgate::{Headgate, binary};
use headgate_lab::process::run;
use headgate_lab::{Server, with_lab};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_drive_keeps_its_disks_and_its_room_over_restarts() {
    with_lab(&[], |lab| {
        let mut daemon = Headgate::start(lab)?;
        let model = "ssd=32M,op=60%,dies=2,planes=2,block=16,aged=full,isolation=dynamic,program=20us,transfer=10us,erase=100us";
        daemon.command(&["datastore", "add", "flash", "--emulated", model, "--scheduler=fifo"])?;
        let create = |daemon: &Headgate, disk: &str, size: &str| {
            daemon.command(&["disk", "create", disk, "--datastore", "flash", "--size", size])
        };
        create(&daemon, "a", "12M")?;
        create(&daemon, "b", "12M")?;
        ensure!(left(&daemon)? == 8 << 20, "{} bytes are left", left(&daemon)?);

        let refused = create(&daemon, "c", "12M").err().context("the drive is full")?;
        let refused = format!("{refused:#}");
        ensure!(
            refused.contains("8 MiB of its 32 MiB are left"),
            "how much room there is should be said: {refused}"
        );
        let disks = daemon.json(&["disk", "list"])?;
        ensure!(
            disks.as_array().is_some_and(|disks| disks.len() == 2),
            "a disk was left behind: {disks}"
        );
        ensure!(
            !daemon.state_dir().join("emulated/flash/c.img").exists(),
            "an image was left behind"
        );

        create(&daemon, "c", "8M")?;
        ensure!(left(&daemon)? == 0);
        daemon.command(&["disk", "remove", "c"])?;
        ensure!(left(&daemon)? == 8 << 20);
        create(&daemon, "c", "4M")?;
        daemon.command(&["disk", "set", "b", "--shares=9000"])?;
        by_shares(&daemon)?;

        let journal = lab.dir().join("journal");
        verify(&daemon, "a", &journal)?;
        daemon.kill()?;
        daemon.start_again()?;
        ensure!(left(&daemon)? == 4 << 20);
        by_shares(&daemon)?;
        verify(&daemon, "a", &journal)?;
        daemon.stop()
    });
}

/// Writes, checks what was written, and first what an earlier run left.
fn verify(daemon: &Headgate, disk: &str, journal: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(binary()?);
    command.args([
        "load",
        &daemon.nbd_uri(disk),
        "--verify",
        "--random",
        "--block-size=4096",
        "--depth=8",
    ]);
    command.args(["--read-percent=30", "--seconds=1", "--journal"]).arg(journal);
    run(command, Duration::from_secs(60)).map(drop)
}

fn left(daemon: &Headgate) -> anyhow::Result<u64> {
    let shown = daemon.json(&["datastore", "show", "flash"])?;
    shown["space"]["left"].as_u64().with_context(|| format!("no space is reported: {shown:#}"))
}

/// Space as it is divided when a disk comes or its shares change.
fn by_shares(daemon: &Headgate) -> anyhow::Result<()> {
    let drive = daemon.json(&["datastore", "show", "flash"])?["flash"].clone();
    let disks = drive["disks"].as_array().context("nothing is said of flash")?;
    let spare: Vec<u64> = disks.iter().filter_map(|disk| disk["spare_blocks"].as_u64()).collect();
    let [a, b, c] = spare[..] else { bail!("three disks have space of their own: {drive:#}") };
    ensure!(
        b > 8 * a && b < 10 * a && a.abs_diff(c) <= 1,
        "space is not as 1 to 9 to 1: {drive:#}"
    );
    Ok(())
}
