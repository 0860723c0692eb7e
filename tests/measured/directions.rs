//! Limits of reads and of writes alone: each holds, and nothing of the disk waits behind what one
//! of them holds back.

use crate::stores::{Disk, start, stop};
use anyhow::ensure;
use headgate_lab::fleet;
use headgate_lab::headgate::Headgate;
use headgate_lab::metrics::Metrics;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::{Server, wait_for};
use std::thread::sleep;
use std::time::Duration;

/// What the storage serves per second.
const RATE: u32 = 1_000;

/// The part of the time for which the daemon may wait for a CPU.
const WAITING: f64 = 0.3;

/// What is due per second: reads and writes of the disk with limits, and all of its neighbour.
type Due = [u32; 3];

/// What came between two readings: reads and writes of the one disk, and reads of the other.
fn rates(from: &Metrics, to: &Metrics) -> anyhow::Result<[f64; 3]> {
    let seconds = (to.at - from.at).as_secs_f64();
    let rate = |metric: &str, disk| {
        let count = to.of_disk(metric, disk)? - from.of_disk(metric, disk)?;
        anyhow::Ok(count / seconds)
    };
    let (reads, writes) = ("headgate_disk_read_ops_total", "headgate_disk_write_ops_total");
    Ok([rate(reads, "db")?, rate(writes, "db")?, rate(reads, "busy")?])
}

/// Sets a policy, and compares what both disks get under it.
fn under(
    daemon: &Headgate,
    pace: Pace,
    premises: &Premises,
    policy: &[(&str, u32)],
    due: Due,
) -> anyhow::Result<()> {
    let option = |(option, limit): &(&str, u32)| match limit {
        0 => format!("--{option}=none"),
        limit => format!("--{option}={}", pace.rate(*limit)),
    };
    let options: Vec<String> = policy.iter().map(option).collect();
    let mut command = vec!["disk", "set", "db", "--force"];
    command.extend(options.iter().map(String::as_str));
    daemon.command(&command)?;
    sleep(pace.time(Duration::from_secs(1)));
    let (got, _) = premises.measure(daemon, || {
        let from = daemon.metrics()?;
        sleep(pace.time(Duration::from_secs(4)));
        rates(&from, &daemon.metrics()?)
    })?;
    for ((what, got), due) in ["reads", "writes", "neighbour"].iter().zip(got).zip(due) {
        let due = f64::from(pace.rate(due));
        eprintln!("  {}: {what} {got:.1} per second of {due} due", options.join(" "));
        ensure!((0.95 * due..=1.03 * due).contains(&got), "{what}: {got:.1} of {due}");
    }
    Ok(())
}

#[test]
fn reads_and_writes_have_limits_of_their_own() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = Headgate::start(lab)?;
        let model = format!("rate={}", pace.rate(RATE));
        let disks = ["db", "busy"].map(|name| Disk::new(name, "--shares=1000".to_owned()));
        let mut clients = start(lab, &daemon, "array", &[&model], &disks)?;
        // Another client of the same disk, that only writes.
        let target = daemon.nbd_uri("db");
        clients.push(fleet::writes_of(fleet::BLOCK, lab.dir(), "db", &target, disks[0].depth)?);
        wait_for("a write should be served", Duration::from_secs(60), || {
            let writes = daemon.metrics()?.of_disk("headgate_disk_write_ops_total", "db")?;
            Ok((writes > 0.0).then_some(()))
        })?;
        let premises = Premises::new()
            .prompt(WAITING)
            .backlog("db", 2 * disks[0].depth)
            .backlog("busy", disks[1].depth);
        let under = |policy: &[(&str, u32)], due| under(&daemon, pace, &premises, policy, due);

        under(&[("limit-write", 100)], [400, 100, 500])?;
        under(&[("limit-write", 0), ("limit-read", 100)], [100, 400, 500])?;
        // All hold at once.
        under(&[("limit-write", 100), ("limit-read", 0), ("limit", 250)], [150, 100, 750])?;
        // The reservation is met by what may go.
        under(&[("limit", 0), ("reservation", 600)], [500, 100, 400])?;
        stop(clients)?;
        daemon.stop()
    });
}
