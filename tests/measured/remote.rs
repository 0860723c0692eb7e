//! Promises hold on disks whose storage is another server.

use anyhow::ensure;
use headgate_lab::fleet::{end, load};
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::with_paced_lab;
use headgate_lab::premise::Premises;
use headgate_lab::{Lab, Server};
use std::thread::sleep;
use std::time::Duration;

/// Requests that each client keeps outstanding.
const DEPTH: u32 = 32;

/// A daemon with three disks, each an export of the server: their names and policies.
fn host(lab: &Lab, server: &Headgate, disks: &[(&str, [&str; 2])]) -> anyhow::Result<Headgate> {
    let host = Headgate::start_as(lab, "host", &[], &[])?;
    let uri = format!("nbd+unix:///?socket={}", server.nbd_socket().display());
    let add = ["datastore", "add", "far", "--nbd", &uri];
    host.command(&[&add[..], &["--queue-depth=16", "--cost-model=unit"]].concat())?;
    for (disk, policy) in disks {
        let create = ["disk", "create", disk, "--datastore", "far", "--export", disk, "--force"];
        host.command(&[&create[..], policy].concat())?;
    }
    Ok(host)
}

#[test]
fn promises_hold_over_a_server() {
    with_paced_lab(&[], |lab, pace| {
        let mut server = Headgate::start(lab)?;
        let rate = pace.rate(1000);
        let model = format!("rate={rate},latency={}ms,depth=16", 2 * pace.factor());
        server.command(&["datastore", "add", "array", "--emulated", &model])?;
        let due = [("reserved", 600), ("limited", 100), ("rest", 300)];
        let due = due.map(|(disk, rate)| (disk, pace.rate(rate)));
        for (disk, _) in due {
            server.command(&["disk", "create", disk, "--datastore", "array", "--size", "64M"])?;
        }
        let reserved = format!("--reservation={}", due[0].1);
        let limited = format!("--limit={}", due[1].1);
        let mut host = host(
            lab,
            &server,
            &[
                ("reserved", [&reserved, "--shares=100"]),
                ("limited", [&limited, "--shares=1000"]),
                ("rest", ["--burst=0", "--shares=1000"]),
            ],
        )?;

        let clients = due.map(|(disk, _)| load(lab.dir(), disk, &host.nbd_uri(disk), DEPTH));
        sleep(pace.time(Duration::from_secs(2)));
        let busy = Premises::new().busy("far", rate.into());
        let contended = due.iter().fold(busy, |p, (disk, _)| p.backlog(disk, DEPTH));
        let interval = contended.watch(&host, pace.time(Duration::from_secs(5)))?;
        clients.into_iter().try_for_each(|client| end(client?))?;
        for (disk, due) in due {
            let rate = interval.iops(disk)?;
            eprintln!("  {disk}: {rate:.1}, due {due}");
            ensure!(
                (rate / f64::from(due) - 1.0).abs() < 0.06,
                "{disk}: {rate:.1} instead of {due}"
            );
        }
        host.stop()?;
        server.stop()
    });
}
