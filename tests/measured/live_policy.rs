//! Policy changed live, under load: each change is in force within a second, a hundred in a row as
//! well as the first.

use headgate_lab::allocation::{Promise, ensure_divided};
use headgate_lab::headgate::Headgate;
use headgate_lab::load::{Client, DEPTH};
use headgate_lab::pace::with_paced_lab;
use headgate_lab::premise::Premises;
use headgate_lab::{Server, wait_for};
use std::thread::sleep;
use std::time::Duration;

const DISKS: [&str; 2] = ["a", "b"];
const CHANGES: u32 = 100;
/// Each so-manieth change is also measured.
const MEASURED: u32 = 6;

/// The part of a client's requests that is there on average. What a disk of 300 shares loses while
/// its queue is empty is three times as much to one of 100.
const QUEUED: f64 = 0.98;

/// The policies of both disks after a change: limits, reservations and shares, raised, lowered and
/// taken away.
fn policies(change: u32) -> [Promise; 2] {
    let even = Promise::shares(100);
    match change % MEASURED {
        0 => [Promise { limit: Some(60 + change), ..even }, even],
        1 => [even, even],
        2 => [Promise::shares(300), even],
        3 => [Promise { reservation: 250 + change, ..even }, Promise::shares(500)],
        4 => [even, Promise { limit: Some(100), reservation: 50, ..even }],
        _ => [Promise::shares(1), Promise { reservation: 300, limit: Some(300), shares: 1 }],
    }
}

fn set(daemon: &Headgate, disk: &str, promise: &Promise) -> anyhow::Result<()> {
    let arguments = promise.arguments();
    let arguments: Vec<&str> =
        ["disk", "set", disk].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    daemon.command(&arguments)?;
    let shown = daemon.json(&["disk", "show", disk])?;
    let effective = &shown["effective_policy"];
    let expected =
        (Some(promise.reservation).filter(|r| *r > 0), promise.limit, Some(promise.shares));
    let number = |key: &str| effective[key].as_u64().map(|v| v as u32);
    let found = (number("reservation"), number("limit"), number("shares"));
    anyhow::ensure!(
        found == expected,
        "{disk}: {found:?} in force instead of {expected:?}: {shown}"
    );
    Ok(())
}

#[test]
fn a_hundred_changes_in_a_row_are_each_in_force_within_a_second() {
    with_paced_lab(&["fio"], |lab, pace| {
        let mut daemon = Headgate::start(lab)?;
        let rate = pace.rate(800);
        let model = format!("rate={rate},depth=32");
        daemon.command(&["datastore", "add", "array", "--emulated", &model, "--queue-depth=32"])?;
        // One of the disks has no limit at any time.
        let busy = Premises::new().busy("array", rate.into());
        let contended =
            DISKS.iter().fold(busy, |premises, disk| premises.backlog_of(disk, DEPTH, QUEUED));
        let mut clients = Vec::new();
        for disk in DISKS {
            daemon.command(&["disk", "create", disk, "--datastore", "array", "--size=256M"])?;
            let mut client = Client::nbd(lab, &daemon, disk)?;
            client.start()?;
            clients.push(client);
        }
        for disk in DISKS {
            wait_for("the load should begin", Duration::from_secs(30), || {
                Ok((daemon.metrics()?.ops(disk)? > 100.0).then_some(()))
            })?;
        }
        let check = |change: u32| -> anyhow::Result<()> {
            let promises = policies(change).map(|promise| promise.at(pace));
            for (disk, promise) in DISKS.iter().zip(&promises) {
                set(&daemon, disk, promise)?;
            }
            // One second for the change to take hold; the next two tell.
            sleep(pace.time(Duration::from_secs(1)));
            let interval = contended.watch(&daemon, pace.time(Duration::from_secs(2)))?;
            eprintln!("change {change}");
            let promises: Vec<_> = DISKS.into_iter().zip(promises).collect();
            ensure_divided(&interval, &promises, 0.05)
        };
        (0..MEASURED).try_for_each(check)?;
        for change in MEASURED..CHANGES {
            for (disk, promise) in DISKS.iter().zip(&policies(change)) {
                set(&daemon, disk, &promise.at(pace))?;
            }
        }
        (CHANGES..CHANGES + MEASURED).try_for_each(check)?;
        for client in clients {
            client.stop()?;
        }
        daemon.stop()
    });
}
