//! A neighbour floods: who waits for it is told by the API, the command line and the metrics.

use anyhow::{Context as _, ensure};
use headgate_lab::fleet::{end, load};
use headgate_lab::headgate::Headgate;
use headgate_lab::{Lab, Server, wait_for, with_lab};
use serde_json::Value;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Two requests at a device of known speed, so that who floods makes others wait in front of it.
const ARRAY: &[&str] =
    &["datastore", "add", "array", "--emulated", "rate=400", "--queue-depth", "2"];

/// A daemon with a disk that floods, one beside it, and one that its limit holds back.
fn set_up(lab: &Lab) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start(lab)?;
    daemon.command(ARRAY)?;
    let more: [&[&str]; 3] = [&["--shares", "4000"], &[], &["--limit", "20"]];
    for (disk, more) in ["flooder", "victim", "capped"].into_iter().zip(more) {
        let plain = ["disk", "create", disk, "--size", "64M", "--datastore", "array", "--vm", disk];
        daemon.command(&[&plain, more].concat())?;
    }
    Ok(daemon)
}

fn blame(daemon: &Headgate, disk: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&daemon.get(&format!("/v1/disks/{disk}/blame"))?)?)
}

/// What part of a disk's waiting time another took.
fn part(blame: &Value, neighbour: &str) -> f64 {
    let named = blame["neighbours"].as_array().into_iter().flatten();
    named.filter(|one| one["disk"] == neighbour).filter_map(|one| one["part"].as_f64()).sum()
}

#[test]
fn who_floods_is_named_by_those_who_wait() {
    with_lab(&[], |lab| {
        let mut daemon = set_up(lab)?;
        ensure!(blame(&daemon, "victim")?.is_null(), "it has asked for nothing");
        let clients = [("flooder", 32), ("victim", 2), ("capped", 8)]
            .map(|(disk, depth)| load(lab.dir(), disk, &daemon.nbd_uri(disk), depth));
        let of_victim = wait_for("the flooder should be blamed", MINUTE, || {
            let blame = blame(&daemon, "victim")?;
            let whole = blame["seconds"].as_f64().is_some_and(|seconds| seconds > 4.5);
            Ok((whole && part(&blame, "flooder") > 0.5).then_some(blame))
        })?;
        let causes = &of_victim["causes"];
        let all: f64 =
            causes.as_object().context("causes")?.values().filter_map(Value::as_f64).sum();
        ensure!((all - 1.0).abs() < 0.01, "{of_victim}");
        ensure!(part(&of_victim, "flooder") > part(&of_victim, "capped"), "{of_victim}");
        ensure!(causes["limit"].as_f64() == Some(0.0), "{of_victim}");
        let of_capped = blame(&daemon, "capped")?;
        ensure!(of_capped["causes"]["limit"].as_f64() > Some(0.8), "{of_capped}");
        let of_flooder = blame(&daemon, "flooder")?;
        ensure!(of_flooder["causes"]["own"].as_f64() > Some(0.3), "{of_flooder}");
        eprintln!("victim: {of_victim}\ncapped: {of_capped}\nflooder: {of_flooder}");
        let shown = daemon.command(&["disk", "show", "victim"])?;
        ensure!(shown.contains("waits for: flooder"), "{shown}");
        let top = daemon.json(&["top"])?;
        let disks = top["datastores"].as_array().context("datastores")?.iter();
        let mut disks = disks.flat_map(|store| store["disks"].as_array().into_iter().flatten());
        let victim = disks.find(|disk| disk["name"] == "victim").context("it is there")?;
        ensure!(part(&victim["blame"], "flooder") > 0.5, "{victim}");
        let waited = |cause: &str| {
            let labels = ["disk=\"victim\"", &format!("cause=\"{cause}\"")];
            daemon.metrics()?.sum("headgate_disk_waiting_seconds_total", &labels)
        };
        let (neighbours, limit) = (waited("neighbours")?, waited("limit")?);
        ensure!(neighbours > 1.0 && limit == 0.0, "{neighbours} s, {limit} s");
        for client in clients {
            end(client?)?;
        }
        daemon.ensure_running()?;
        daemon.stop()
    });
}
