//! A client that keeps one request outstanding gets its reservation beside one that fills the
//! window, for the window gives way to it, and no longer than it needs that.

use anyhow::{Context, ensure};
use headgate_lab::fleet::{end, load};
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::{Lab, Server, wait_for};
use std::thread::sleep;
use std::time::Duration;

const RATE: u32 = 1_000;
const RESERVATION: u32 = 100;
const WINDOW: u32 = 32;
const DEEP: u32 = 64;

fn set_up(lab: &Lab, pace: Pace) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start(lab)?;
    let model = format!("rate={},depth={WINDOW}", pace.rate(RATE));
    let depth = format!("--queue-depth={WINDOW}");
    let add = ["datastore", "add", "array", "--emulated", &model, &depth];
    daemon.command(&[&add[..], &["--cost-model=unit", "--narrow-window=never"]].concat())?;
    let reservation = format!("--reservation={}", pace.rate(RESERVATION));
    for (disk, policy) in [("shallow", &*reservation), ("deep", "--shares=10000")] {
        let create = ["disk", "create", disk, "--datastore", "array", "--size", "64M"];
        daemon.command(&[&create[..], &[policy]].concat())?;
    }
    Ok(daemon)
}

/// What the shallow disk gets per second while both clients keep up.
fn measure(daemon: &Headgate, pace: Pace) -> anyhow::Result<f64> {
    let premises = Premises::new()
        .busy("array", pace.rate(RATE).into())
        .backlog("shallow", 1)
        .backlog("deep", DEEP);
    let interval = premises.watch(daemon, pace.time(Duration::from_secs(8)))?;
    interval.iops("shallow")
}

/// For whom `top` says that the window is narrowed.
fn narrowed_for(daemon: &Headgate) -> anyhow::Result<Option<String>> {
    let top = daemon.json(&["top"])?;
    let stores = top["datastores"].as_array().context("top has no datastores")?;
    let array = stores.iter().find(|s| s["name"] == "array").context("no array in top")?;
    Ok(array["narrowed"]["disk"].as_str().map(str::to_owned))
}

#[test]
fn one_request_at_a_time_gets_its_reservation_in_a_narrow_window() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = set_up(lab, pace)?;
        let shallow = load(lab.dir(), "shallow", &daemon.nbd_uri("shallow"), 1)?;
        let deep = load(lab.dir(), "deep", &daemon.nbd_uri("deep"), DEEP)?;
        let due = f64::from(pace.rate(RESERVATION));
        let moment = pace.time(Duration::from_secs(6));

        // A full window is 32 ms long: 31 requests per second, one after the other.
        sleep(moment);
        let behind = measure(&daemon, pace)?;
        ensure!(behind < 0.4 * due, "{behind:.1} of {due} behind a full window");
        daemon.command(&["datastore", "set", "array", "--narrow-window=reservations"])?;
        sleep(moment);
        let kept = measure(&daemon, pace)?;
        eprintln!("  of {due}: {behind:.1} behind a full window, {kept:.1} in a narrow one");
        ensure!(kept >= 0.97 * due, "{kept:.1} of {due} in a window that gives way");
        ensure!(kept <= 1.2 * due, "{kept:.1} of {due}: the window is too narrow");
        let whom = narrowed_for(&daemon)?;
        ensure!(whom.as_deref() == Some("shallow"), "narrowed for {whom:?}");

        end(shallow)?;
        wait_for("the window should be as wide as it was set", moment * 4, || {
            Ok(narrowed_for(&daemon)?.is_none().then_some(()))
        })?;
        end(deep)?;
        daemon.stop()
    });
}
