//! Promises hold on files that a layer makes as slow as an array.

use headgate_lab::Server;
use headgate_lab::allocation::{Promise, ensure_divided};
use headgate_lab::fleet::{end, load};
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::with_paced_lab;
use headgate_lab::premise::Premises;
use std::thread::sleep;
use std::time::Duration;

/// Requests that each client keeps outstanding.
const DEPTH: u32 = 32;

#[test]
fn two_reservations_hold_under_a_rate_layer() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = Headgate::start(lab)?;
        let rate = pace.rate(1000);
        let (dir, layer) = (lab.subdir("files")?, format!("rate={rate}"));
        let dir = dir.to_string_lossy();
        let add = ["datastore", "add", "slow", "--dir", &*dir, "--layer", &layer];
        let capacity = format!("--capacity={rate}");
        let more = ["--queue-depth=8", "--cost-model=unit", &capacity];
        daemon.command(&[&add[..], &more].concat())?;
        // By shares alone, the third disk would get ten of twelve parts. It gets 150.
        let reserved = |reservation| Promise { reservation, limit: None, shares: 100 }.at(pace);
        let promises =
            [("most", reserved(600)), ("some", reserved(250)), ("rest", Promise::shares(1000))];
        for (disk, promise) in promises {
            let create = ["disk", "create", disk, "--datastore", "slow", "--size", "64M"];
            let policy = promise.arguments();
            let policy: Vec<&str> = policy.iter().map(String::as_str).collect();
            daemon.command(&[&create[..], &policy].concat())?;
        }

        let clients = promises.map(|(disk, _)| load(lab.dir(), disk, &daemon.nbd_uri(disk), DEPTH));
        sleep(pace.time(Duration::from_secs(2)));
        let busy = Premises::new().busy("slow", rate.into());
        let contended = promises.iter().fold(busy, |p, (disk, _)| p.backlog(disk, DEPTH));
        let interval = contended.watch(&daemon, pace.time(Duration::from_secs(5)))?;
        clients.into_iter().try_for_each(|client| end(client?))?;
        ensure_divided(&interval, &promises, 0.03)?;
        daemon.stop()
    });
}
