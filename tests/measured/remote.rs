//! Promises hold on disks whose storage is another server.

use headgate_lab::allocation::{Promise, ensure_divided};
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
fn host(lab: &Lab, server: &Headgate, disks: &[(&str, Promise)]) -> anyhow::Result<Headgate> {
    let host = Headgate::start_as(lab, "host", &[], &[])?;
    let uri = format!("nbd+unix:///?socket={}", server.nbd_socket().display());
    let add = ["datastore", "add", "far", "--nbd", &uri];
    host.command(&[&add[..], &["--queue-depth=16", "--cost-model=unit"]].concat())?;
    for (disk, promise) in disks {
        let create = ["disk", "create", disk, "--datastore", "far", "--export", disk, "--force"];
        let policy = promise.arguments();
        let policy: Vec<&str> = policy.iter().map(String::as_str).collect();
        host.command(&[&create[..], &policy].concat())?;
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
        // 600, 100 and, of what is left, all.
        let promises = [
            ("reserved", Promise { reservation: 600, limit: None, shares: 100 }),
            ("limited", Promise { reservation: 0, limit: Some(100), shares: 1000 }),
            ("rest", Promise::shares(1000)),
        ];
        let promises = promises.map(|(disk, promise)| (disk, promise.at(pace)));
        for (disk, _) in promises {
            server.command(&["disk", "create", disk, "--datastore", "array", "--size", "64M"])?;
        }
        let mut host = host(lab, &server, &promises)?;

        let clients = promises.map(|(disk, _)| load(lab.dir(), disk, &host.nbd_uri(disk), DEPTH));
        sleep(pace.time(Duration::from_secs(2)));
        let busy = Premises::new().busy("far", rate.into());
        let contended = promises.iter().fold(busy, |p, (disk, _)| p.backlog(disk, DEPTH));
        let interval = contended.watch(&host, pace.time(Duration::from_secs(5)))?;
        clients.into_iter().try_for_each(|client| end(client?))?;
        ensure_divided(&interval, &promises, 0.03)?;
        host.stop()?;
        server.stop()
    });
}
