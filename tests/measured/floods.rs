//! What a client does to its own disk costs its neighbour nothing that it was promised.
//!
//! The load generator's floods, one after the other, on a disk with a limit. On a disk beside it a
//! client keeps requests outstanding all the time.

use crate::neighbour::{DEPTH, LIMIT, RESERVATION, premises, set_up};
use anyhow::ensure;
use headgate_lab::fleet::{end, load};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::process::Process;
use headgate_lab::{Lab, Server};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Longer than any measurement: a flood is stopped.
const FLOOD: &str = "--seconds=3600";

fn flood(lab: &Lab, daemon: &Headgate, target: &str, name: &str) -> anyhow::Result<Process> {
    let mut command = Command::new(headgate::binary()?);
    let innocent = daemon.nbd_uri("elsewhere");
    command.args(["load", target, &innocent, "--depth=1", "--hostile", name, FLOOD]);
    Process::spawn("headgate load", command, &lab.dir().join(format!("flood-{name}.log")))
}

/// Beside each of these the neighbour gets its reservation, and what the hostile client may not
/// have as well.
fn withstands(lab: &Lab, pace: Pace, target: &str, names: &[&str]) -> anyhow::Result<()> {
    let mut daemon = set_up(lab, pace)?;
    // The load generator asks for an innocent client's disk as well.
    daemon.command(&["disk", "create", "elsewhere", "--size", "64M"])?;
    let target = match target {
        "vhost" => daemon.vhost_socket("hostile").display().to_string(),
        _ => daemon.nbd_uri("hostile"),
    };
    let neighbour = load(lab.dir(), "neighbour", &daemon.nbd_uri("neighbour"), DEPTH)?;
    let premises = premises(pace);
    for name in names {
        let mut attacker = flood(lab, &daemon, &target, name)?;
        sleep(pace.time(Duration::from_secs(2)));
        let interval = premises.watch(&daemon, pace.time(Duration::from_secs(4)))?;
        attacker.ensure_running()?;
        attacker.kill()?;
        let (got, took) = (interval.completions("neighbour")?, interval.completions("hostile")?);
        let (due, limit) = (f64::from(pace.rate(RESERVATION)), f64::from(pace.rate(LIMIT)));
        eprintln!("  {name}: the neighbour {got:.1} of {due}, the client {took:.1} of {limit}");
        ensure!(got >= 0.99 * due, "{name}: {got:.1} of the reservation {due}");
        // One request more may have begun in the interval than its length allows.
        let most = limit * 1.01 + 1.0 / interval.seconds();
        ensure!(took > 0.0, "{name}: nothing of it reached the disk");
        ensure!(took <= most, "{name}: {took:.1} where the limit is {limit}");
    }
    end(neighbour)?;
    daemon.stop()
}

#[test]
fn drivers_that_flood_take_nothing_from_a_neighbour() {
    let names = [
        "reset-loop",
        "stop-loop",
        "reconnect-loop",
        "flush-flood",
        "zeroes-flood",
        "segments-flood",
    ];
    with_paced_lab(&[], |lab, pace| withstands(lab, pace, "vhost", &names));
}

#[test]
fn nbd_clients_that_flood_take_nothing_from_a_neighbour() {
    let names = ["reconnect-loop", "flush-flood", "zeroes-flood", "status-flood"];
    with_paced_lab(&[], |lab, pace| withstands(lab, pace, "nbd", &names));
}
