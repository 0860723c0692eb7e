//! Isolation on flash through the daemon (experiment OP-8 of OPS isolation, FAST 2015): disks with
//! shares 1, 3 and 6 on an aged emulated drive, real NBD clients that write. No scheduler divides
//! anything, first come is first served and nothing waits: what each disk gets is what its writes
//! cost. Three drives are served side by side, which isolate their disks dynamically, statically
//! and not at all.
//!
//! The chips are twelve times as slow as real ones, so that sockets and threads are a small part of
//! each write. Blocks have a quarter of the usual pages, and are erased in a quarter of the time.

use anyhow::{Context, ensure};
use headgate_lab::headgate::{Headgate, binary};
use headgate_lab::pace::with_paced_lab;
use headgate_lab::premise::Premises;
use headgate_lab::process::Process;
use headgate_lab::{Lab, Server, wait_for};
use serde_json::Value;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// In microseconds.
const CHIPS: [(&str, u32); 4] =
    [("read", 300), ("program", 2_400), ("transfer", 1_200), ("erase", 4_500)];
const DRIVE: &str = "ssd=48M,op=20%,dies=8,planes=2,block=16,aged=yes,background=no";
const DISK: &str = "16M";
const ISOLATIONS: [&str; 3] = ["dynamic", "static", "none"];
const SHARES: [u32; 3] = [1_000, 3_000, 6_000];

/// How often is looked.
const LOOK: Duration = Duration::from_millis(500);
/// How often in a row each disk has to be on its target before it counts as settled.
const LOOKS: u32 = 3;
/// How near to its target each disk's utilisation has to come: the drives' hysteresis.
const NEAR: f64 = 0.01;
/// How many blocks have to have been collected for each before: the window of the mean.
const COLLECTED: u64 = 64;
/// How long that may take.
const SETTLE: Duration = Duration::from_secs(120);
/// What is measured over, in page writes on the drive with dynamic isolation: at least so many, and
/// up to three times as many. The disk with the smallest share has a handful of blocks, and one
/// more or less is a fifth of its rate: its part is a mean that takes time.
const WRITES: u64 = 4_500;
const AT_MOST: u64 = 3 * WRITES;
/// How long that may take.
const MEASURE: Duration = Duration::from_secs(240);
/// How far from its share a disk's part may be.
const WITHIN: f64 = 0.1;

/// The part of the time for which a disk's only request has to be at the daemon: the rest is time
/// in which its client was slow, and the drive could have written for it.
const ASKED: f64 = 0.95;

#[test]
fn dynamic_isolation_divides_an_aged_drive_by_shares() {
    with_paced_lab(&[], |lab, pace| {
        let chips = CHIPS.map(|(what, micros)| format!("{what}={}us", micros * pace.factor()));
        let mut daemon = Headgate::start(lab)?;
        let mut writers = Vec::new();
        for isolation in ISOLATIONS {
            let model = format!("{DRIVE},{},isolation={isolation}", chips.join(","));
            daemon.command(&[
                "datastore",
                "add",
                isolation,
                "--emulated",
                &model,
                "--scheduler=fifo",
            ])?;
            for shares in SHARES {
                let (disk, shares) = (name(isolation, shares), format!("--shares={shares}"));
                daemon.command(&[
                    "disk",
                    "create",
                    &disk,
                    "--datastore",
                    isolation,
                    "--size",
                    DISK,
                    &shares,
                ])?;
            }
        }
        for isolation in ISOLATIONS {
            for shares in SHARES {
                writers.push(writer(lab, &daemon, &name(isolation, shares))?);
            }
        }
        let mut calm = [0; SHARES.len()];
        wait_for("utilisation should come to its targets", pace.time(SETTLE), || {
            sleep(LOOK);
            for (near, calm) in
                near_targets(&drive(&daemon, "dynamic")?)?.into_iter().zip(&mut calm)
            {
                *calm = if near || *calm >= LOOKS { *calm + 1 } else { 0 };
            }
            Ok(calm.iter().all(|calm| *calm >= LOOKS).then_some(()))
        })?;
        let writes = || {
            let from = page_writes(&daemon)?;
            let to = wait_for("pages should be written", pace.time(MEASURE), || {
                sleep(LOOK);
                let now = page_writes(&daemon)?;
                let written = since(&now[0], &from[0]);
                let sum: u64 = written.iter().sum();
                let enough = sum >= AT_MOST || sum >= WRITES && worst(&errors(&written)) <= WITHIN;
                Ok(enough.then_some(now))
            })?;
            Ok((from, to))
        };
        let disks = ISOLATIONS.iter().flat_map(|of| SHARES.map(|shares| name(of, shares)));
        let disks: Vec<String> = disks.collect();
        let asked = disks.iter().fold(Premises::new(), |p, disk| p.backlog_of(disk, 1, ASKED));
        let ((from, to), interval) = asked.measure(&daemon, writes)?;
        for disk in &disks {
            eprintln!("  {disk}: {:.3} requests outstanding", interval.outstanding(disk)?);
        }
        for mut writer in writers {
            writer.interrupt()?;
            let status = writer.wait(Duration::from_secs(60))?;
            ensure!(status.success(), "headgate load: {status}");
        }
        let targets = drive(&daemon, "dynamic")?;
        daemon.stop()?;

        let mut off = Vec::new();
        for ((isolation, from), to) in ISOLATIONS.iter().zip(&from).zip(&to) {
            let written = since(to, from);
            let errors = errors(&written);
            eprintln!("  {isolation:<8} {}", said(&written, &errors));
            off.push(errors);
        }
        let [dynamic, fixed, none] = [worst(&off[0]), worst(&off[1]), worst(&off[2])];
        ensure!(dynamic <= WITHIN, "isolated parts are off by {:?}\n{targets:#}", off[0]);
        ensure!(
            fixed > 2.0 * dynamic && fixed > WITHIN,
            "space that stays should miss the shares: {:?}",
            off[1]
        );
        ensure!(none > fixed, "without isolation shares should mean nothing: {:?}", off[2]);
        Ok(())
    });
}

fn name(isolation: &str, shares: u32) -> String {
    format!("{isolation}-{shares}")
}

/// Random pages, one write after the other.
fn writer(lab: &Lab, daemon: &Headgate, disk: &str) -> anyhow::Result<Process> {
    let mut command = Command::new(binary()?);
    command.args([
        "load",
        &daemon.nbd_uri(disk),
        "--block-size=4096",
        "--depth=1",
        "--read-percent=0",
        "--random",
    ]);
    command.args(["--seconds=3600", "--timeout=120"]);
    Process::spawn("headgate load", command, &lab.subdir(disk)?.join("load.log"))
}

/// What the daemon says of a drive.
fn drive(daemon: &Headgate, datastore: &str) -> anyhow::Result<Value> {
    let shown = daemon.json(&["datastore", "show", datastore])?;
    ensure!(shown["flash"]["disks"].is_array(), "nothing is said of flash: {shown:#}");
    Ok(shown["flash"].clone())
}

fn disks(drive: &Value) -> impl Iterator<Item = &Value> {
    drive["disks"].as_array().into_iter().flatten()
}

/// Whether each disk's victims are as full as its target wants them, over a window of them.
fn near_targets(drive: &Value) -> anyhow::Result<Vec<bool>> {
    let is_near = |disk: &Value| {
        let near = match (disk["utilisation"].as_f64(), disk["target_utilisation"].as_f64()) {
            (Some(u), Some(target)) => (u - target).abs() <= NEAR,
            _ => false,
        };
        let collected = disk["blocks_collected"].as_u64().context("blocks that were collected")?;
        Ok(near && collected >= COLLECTED)
    };
    disks(drive).map(is_near).collect()
}

/// Pages that the disks of each drive wrote so far, in the order of their shares.
fn page_writes(daemon: &Headgate) -> anyhow::Result<Vec<Vec<u64>>> {
    let of_drive = |isolation: &&str| {
        let drive = drive(daemon, isolation)?;
        let of_disk = |&shares: &u32| {
            let disk = disks(&drive).find(|disk| disk["name"] == name(isolation, shares));
            disk.and_then(|disk| disk["page_writes"].as_u64()).with_context(|| format!("{drive:#}"))
        };
        SHARES.iter().map(of_disk).collect()
    };
    ISOLATIONS.iter().map(of_drive).collect()
}

/// By which part of its share each is off.
fn errors(written: &[u64]) -> Vec<f64> {
    let (sum, shares): (u64, u32) = (written.iter().sum(), SHARES.iter().sum());
    let due = |shares_of_it: u32| f64::from(shares_of_it) / f64::from(shares);
    written.iter().zip(SHARES).map(|(&n, of_it)| n as f64 / sum as f64 / due(of_it) - 1.0).collect()
}

fn since(to: &[u64], from: &[u64]) -> Vec<u64> {
    to.iter().zip(from).map(|(to, from)| to - from).collect()
}

fn worst(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |most, error| error.abs().max(most))
}

fn said(written: &[u64], errors: &[f64]) -> String {
    let sum: u64 = written.iter().sum();
    let one = |((&written, error), shares): ((&u64, &f64), u32)| {
        let part = 100.0 * written as f64 / sum as f64;
        format!("{shares} shares {written:>5} pages, {part:>4.1} % ({:+.0} %)", 100.0 * error)
    };
    written.iter().zip(errors).zip(SHARES).map(one).collect::<Vec<_>>().join("   ")
}
