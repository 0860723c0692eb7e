//! A latency target narrows the window as far as it needs, is judged by what the disk's requests
//! took, and costs nobody anything where no window helps.

use anyhow::{Context, ensure};
use headgate_lab::fleet::{end, load};
use headgate_lab::headgate::Headgate;
use headgate_lab::metrics::Metrics;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::{Lab, Server, wait_for};
use std::thread::sleep;
use std::time::{Duration, Instant};

const RATE: u32 = 1_000;
const WINDOW: u32 = 32;
const DEEP: u32 = 64;

/// Above what one request at a time gets behind a full window, so that nothing but the target asks
/// for a narrower one.
const RESERVATION: u32 = 20;
const TARGET: Duration = Duration::from_millis(15);

fn target(pace: Pace) -> String {
    format!("--latency-target=p90={}us", pace.time(TARGET).as_micros())
}

/// A datastore with a disk `quick`, whose shares let its requests go first, and a disk `deep`.
fn set_up(lab: &Lab, pace: Pace, model: &str, target: &str) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start(lab)?;
    let depth = format!("--queue-depth={WINDOW}");
    let add = ["datastore", "add", "array", "--emulated", model, &depth];
    daemon.command(&[&add[..], &["--cost-model=unit", "--narrow-window=never"]].concat())?;
    let reservation = format!("--reservation={}", pace.rate(RESERVATION));
    let quick = ["--shares=100000", &reservation, target, "--force"];
    for (disk, policy) in [("quick", &quick[..]), ("deep", &["--shares=100"])] {
        let create = ["disk", "create", disk, "--datastore", "array", "--size", "64M"];
        daemon.command(&[&create[..], policy].concat())?;
    }
    Ok(daemon)
}

/// What is said of the quick disk's target.
fn verdict(daemon: &Headgate) -> anyhow::Result<Option<String>> {
    let disk = daemon.json(&["disk", "show", "quick"])?;
    Ok(disk["latency"]["verdict"].as_str().map(str::to_owned))
}

/// For which disk and promise `top` says that the window is narrowed.
fn narrowed_for(daemon: &Headgate) -> anyhow::Result<Option<(String, String)>> {
    let top = daemon.json(&["top"])?;
    let stores = top["datastores"].as_array().context("top has no datastores")?;
    let array = stores.iter().find(|s| s["name"] == "array").context("no array in top")?;
    let word = |key: &str| array["narrowed"][key].as_str().map(str::to_owned);
    Ok(word("disk").zip(word("promise")))
}

/// The mean time that a request of the quick disk takes, by Little's law from the daemon's counters
/// while its client keeps one request outstanding.
fn takes(daemon: &Headgate, pace: Pace) -> anyhow::Result<Duration> {
    let premises = Premises::new()
        .busy("array", pace.rate(RATE).into())
        .backlog("quick", 1)
        .backlog("deep", DEEP);
    let interval = premises.watch(daemon, pace.time(Duration::from_secs(8)))?;
    Ok(Duration::from_secs_f64(interval.outstanding("quick")? / interval.iops("quick")?))
}

/// The reads of a disk that were at the device on average, by Little's law: the time that they took
/// there, per time that passed.
fn at_device(from: &Metrics, to: &Metrics, disk: &str) -> anyhow::Result<f64> {
    let taken = |at: &Metrics| at.of_disk("headgate_disk_device_seconds_sum", disk);
    Ok((taken(to)? - taken(from)?) / (to.at - from.at).as_secs_f64())
}

#[test]
fn a_window_gives_way_to_a_latency_target() {
    with_paced_lab(&[], |lab, pace| {
        let model = format!("rate={},depth={WINDOW}", pace.rate(RATE));
        let mut daemon = set_up(lab, pace, &model, &target(pace))?;
        let quick = load(lab.dir(), "quick", &daemon.nbd_uri("quick"), 1)?;
        let deep = load(lab.dir(), "deep", &daemon.nbd_uri("deep"), DEEP)?;
        let (due, moment) = (pace.time(TARGET), pace.time(Duration::from_secs(6)));

        // A full window is 32 ms long.
        sleep(moment);
        let behind = takes(&daemon, pace)?;
        ensure!(behind > due * 2, "{behind:?} behind a full window, of {due:?}");
        let said = verdict(&daemon)?;
        ensure!(said.as_deref() == Some("window"), "a full window is said to be {said:?}");
        ensure!(daemon.metrics()?.of_disk("headgate_disk_latency_target_missed", "quick")? == 1.0);

        daemon.command(&["datastore", "set", "array", "--narrow-window=reservations"])?;
        sleep(moment * 2);
        let kept = takes(&daemon, pace)?;
        eprintln!("  of {due:?}: {behind:?} behind a full window, {kept:?} in a narrow one");
        ensure!(kept < due, "{kept:?} of {due:?} in a window that gives way");
        ensure!(kept * 2 > due, "{kept:?} of {due:?}: the window is too narrow");
        let said = verdict(&daemon)?;
        ensure!(said.as_deref() == Some("met"), "{kept:?} is said to be {said:?}");
        let whom = narrowed_for(&daemon)?;
        ensure!(whom == Some(("quick".into(), "latency".into())), "narrowed for {whom:?}");

        daemon.command(&["disk", "set", "quick", "--latency-target=none"])?;
        wait_for("the window should be as wide as it was set", moment * 4, || {
            Ok(narrowed_for(&daemon)?.is_none().then_some(()))
        })?;
        end(quick)?;
        end(deep)?;
        daemon.stop()
    });
}

/// Storage that takes 20 ms for each request, however few it has.
#[test]
fn what_no_window_helps_costs_the_neighbour_nothing_for_long() {
    with_paced_lab(&[], |lab, pace| {
        let latency = pace.time(Duration::from_millis(20));
        let model = format!("rate=1000000,latency={}us", latency.as_micros());
        let mut daemon = set_up(lab, pace, &model, &target(pace))?;
        let quick = load(lab.dir(), "quick", &daemon.nbd_uri("quick"), 1)?;
        let deep = load(lab.dir(), "deep", &daemon.nbd_uri("deep"), DEEP)?;
        let moment = pace.time(Duration::from_secs(6));
        let premises = Premises::new().backlog("quick", 1).backlog("deep", DEEP);
        // Such storage does not make good what the daemon is late, so a rate would be the
        // machine's. Of the window a neighbour has what it has, however long a request takes.
        let neighbour = || {
            let (part, _) = premises.measure(&daemon, || {
                let from = daemon.metrics()?;
                sleep(pace.time(Duration::from_secs(4)));
                at_device(&from, &daemon.metrics()?, "deep")
            })?;
            anyhow::Ok(part)
        };

        sleep(moment / 2);
        let before = neighbour()?;
        daemon.command(&["datastore", "set", "array", "--narrow-window=reservations"])?;
        wait_for("the storage should be said to take as long", moment * 5, || {
            Ok((verdict(&daemon)?.as_deref() == Some("storage")).then_some(()))
        })?;
        // It is tried twice before the disk is left alone, 128 requests each time, and the window
        // is open for a moment in between.
        let mut open = None;
        wait_for("the window should be left alone", moment * 15, || {
            if narrowed_for(&daemon)?.is_some() {
                open = None;
            }
            let since = *open.get_or_insert_with(Instant::now);
            Ok((since.elapsed() >= moment).then_some(()))
        })?;
        let after = neighbour()?;
        eprintln!(
            "  beside a target that no window keeps: {after:.1} at the device, of {before:.1}"
        );
        ensure!(before > 0.9 * f64::from(WINDOW), "{before:.1} of a window of {WINDOW}");
        ensure!(after > 0.95 * before, "{after:.1} of {before:.1} at the device");
        end(quick)?;
        end(deep)?;
        daemon.stop()
    });
}
