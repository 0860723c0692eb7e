//! Promises hold on files that a layer makes as slow as an array.

use anyhow::ensure;
use headgate_lab::Server;
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
        // By shares alone, the third disk would get ten of twelve parts.
        let due = [("most", 600), ("some", 250), ("rest", 150)];
        let due = due.map(|(disk, rate)| (disk, pace.rate(rate)));
        for (disk, rate) in due {
            let create = ["disk", "create", disk, "--datastore", "slow", "--size", "64M"];
            let reservation = format!("--reservation={rate}");
            let policy = match disk {
                "rest" => ["--shares=1000", "--burst=0"],
                _ => ["--shares=100", &reservation],
            };
            daemon.command(&[&create[..], &policy].concat())?;
        }

        let clients = due.map(|(disk, _)| load(lab.dir(), disk, &daemon.nbd_uri(disk), DEPTH));
        sleep(pace.time(Duration::from_secs(2)));
        let busy = Premises::new().busy("slow", rate.into());
        let contended = due.iter().fold(busy, |p, (disk, _)| p.backlog(disk, DEPTH));
        let interval = contended.watch(&daemon, pace.time(Duration::from_secs(5)))?;
        clients.into_iter().try_for_each(|client| end(client?))?;
        for (disk, due) in due {
            let rate = interval.iops(disk)?;
            eprintln!("  {disk}: {rate:.1}, due {due}");
            ensure!(
                (rate / f64::from(due) - 1.0).abs() < 0.06,
                "{disk}: {rate:.1} instead of {due}"
            );
        }
        daemon.stop()
    });
}
