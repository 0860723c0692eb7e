//! While a disk moves or is copied, others get what they were promised, however much the copying
//! may take.

use anyhow::{Context, ensure};
use headgate_lab::fleet::{end, load, writes_of};
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::process::Process;
use headgate_lab::{Lab, Server, tools};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

const RATE: u32 = 1_000;
const DEPTH: u32 = 16;
const RESERVATION: u32 = 500;
/// Who has it, on the one array and on the other.
const BESIDE: [&str; 2] = ["beside-the-old", "beside-the-new"];

/// Two arrays of one speed on two shards, a disk with a reservation on each, and one that moves or
/// is copied.
fn set_up(lab: &Lab, pace: Pace) -> anyhow::Result<Headgate> {
    let config = lab.dir().join("headgate.toml");
    std::fs::write(&config, "shards = 2\n")?;
    let config = config.to_string_lossy().into_owned();
    let daemon = Headgate::start_as(lab, "state", &[], &["--config", &config])?;
    let model = format!("rate={},depth={DEPTH},service=exponential", pace.rate(RATE));
    let depth = format!("--queue-depth={DEPTH}");
    let reservation = format!("--reservation={}", pace.rate(RESERVATION));
    for (store, disk) in [("from", "beside-the-old"), ("to", "beside-the-new")] {
        daemon.command(&["datastore", "add", store, "--emulated", &model, &depth])?;
        let create = ["disk", "create", disk, "--datastore", store, "--size", "64M"];
        daemon.command(&[&create[..], &[&reservation]].concat())?;
    }
    daemon.command(&["disk", "create", "moves", "--datastore", "from", "--size", "1G"])?;
    Ok(daemon)
}

/// How much is copied of the one disk that moves, or is copied.
fn copied(daemon: &Headgate, listed: &str) -> anyhow::Result<u64> {
    let all = daemon.json(&["disk", listed])?;
    let first = all.get(0).with_context(|| format!("nothing is listed: {all}"))?;
    first["copied"].as_u64().with_context(|| format!("{first}"))
}

/// Both reservations hold while copying that is in a hurry gets on. Returns how many MiB it copied.
fn hold_while_copying(daemon: &Headgate, pace: Pace, listed: &str) -> anyhow::Result<u64> {
    sleep(pace.time(Duration::from_secs(1)));
    let premises = BESIDE.iter().fold(Premises::new(), |all, disk| all.backlog(disk, 2 * DEPTH));
    let before = copied(daemon, listed)?;
    let interval = premises.watch(daemon, pace.time(Duration::from_secs(5)))?;
    let (after, due) = (copied(daemon, listed)?, f64::from(pace.rate(RESERVATION)));
    ensure!(before < after, "{before} bytes were copied, and {after} later: it is over");
    for disk in BESIDE {
        let got = interval.completions(disk)?;
        eprintln!("  {disk}: {got:.1} of {due}, {} MiB copied", (after - before) >> 20);
        ensure!(got >= 0.99 * due, "{disk}: {got:.1} of the reservation {due}");
    }
    Ok((after - before) >> 20)
}

/// Clients of both neighbours and of the disk are at work, and copying in a hurry is begun by one
/// command and ended by another: both reservations hold, and so many MiB are copied.
fn beside_clients(
    client: fn(&Path, &str, &str, u32) -> anyhow::Result<Process>,
    [listed, begin, cancel]: [&'static str; 3],
    due: u64,
) {
    with_paced_lab(&["qemu-io"], |lab, pace| {
        let mut daemon = set_up(lab, pace)?;
        tools::qemu_io(&daemon.nbd_uri("moves"), &["write -P 5 0 1G"])?;
        let mut loads = Vec::new();
        for disk in BESIDE {
            loads.push(load(lab.dir(), disk, &daemon.nbd_uri(disk), 2 * DEPTH)?);
        }
        loads.push(client(lab.dir(), "moves", &daemon.nbd_uri("moves"), 2 * DEPTH)?);
        let words = |line: &'static str| line.split(' ').collect::<Vec<&str>>();
        daemon.command(&words(begin))?;
        let mib = hold_while_copying(&daemon, pace, listed)?;
        // It was in a hurry.
        ensure!(mib >= due, "{mib} MiB were copied");
        daemon.command(&words(cancel))?;
        loads.into_iter().try_for_each(end)?;
        daemon.stop()
    });
}

#[test]
fn reservations_on_both_sides_hold_while_a_disk_moves_in_a_hurry() {
    let begin = "disk migrate moves --to to --move-shares=100000 --detach";
    beside_clients(load, ["moves", begin, "disk migrate moves --cancel"], 100);
}

/// Each first change of a part of the disk has 64 KiB read at its array, and written at the other.
#[test]
fn reservations_on_both_sides_hold_while_a_disk_that_is_written_everywhere_is_copied() {
    let begin = "disk copy moves copy --datastore to --copy-shares=100000 --detach";
    let writes = |dir: &Path, disk: &str, uri: &str, depth| writes_of("4k", dir, disk, uri, depth);
    beside_clients(writes, ["copies", begin, "disk copy --cancel copy"], 50);
}
