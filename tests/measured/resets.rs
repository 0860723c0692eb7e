//! A guest that resets its device in a loop, through QEMU, takes no more than its limit, and
//! nothing of what its neighbour was promised.
//!
//! Linux waits for its requests before it resets a device. So the driver is the test itself.

use crate::neighbour::{DEPTH, LIMIT, RESERVATION, premises, set_up};
use anyhow::ensure;
use headgate_lab::fleet::{end, load};
use headgate_lab::guest::QEMU;
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::qtest::{BareDriver, READS};
use headgate_lab::sample::Interval;
use headgate_lab::{Lab, Server};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

/// Fills the ring and resets the device until told to stop, and counts the rounds.
fn reset_again_and_again(
    driver: &mut BareDriver,
    stop: &AtomicBool,
    rounds: &AtomicU64,
) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        driver.fill()?;
        driver.reset()?;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// What happened while the device was reset in a loop, and how often it was.
fn measure(
    daemon: &Headgate,
    driver: &mut BareDriver,
    pace: Pace,
) -> anyhow::Result<(u64, Interval)> {
    let premises = premises(pace);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    scope(|scope| {
        let resetting = scope.spawn(|| reset_again_and_again(driver, &stop, &rounds));
        sleep(pace.time(Duration::from_secs(2)));
        let measured = premises.measure(daemon, || {
            let before = rounds.load(Ordering::Relaxed);
            sleep(pace.time(Duration::from_secs(6)));
            Ok(rounds.load(Ordering::Relaxed) - before)
        });
        stop.store(true, Ordering::Relaxed);
        resetting.join().expect("the driver does not panic")?;
        measured
    })
}

fn resets_pay(lab: &Lab, pace: Pace) -> anyhow::Result<()> {
    let mut daemon = set_up(lab, pace)?;
    let neighbour = load(lab.dir(), "neighbour", &daemon.nbd_uri("neighbour"), DEPTH)?;
    let mut driver = BareDriver::start(lab, &daemon.vhost_socket("hostile"))?;
    let (rounds, interval) = measure(&daemon, &mut driver, pace)?;
    let (got, took) = (interval.completions("neighbour")?, interval.completions("hostile")?);
    let (due, limit) = (f64::from(pace.rate(RESERVATION)), f64::from(pace.rate(LIMIT)));
    let offered = (rounds * u64::from(READS)) as f64 / interval.seconds();
    eprintln!(
        "  {rounds} resets, {offered:.0} reads offered per second: the neighbour {got:.1} of {due}, \
         the resetting disk {took:.1} of {limit}"
    );
    ensure!(offered > 4.0 * limit, "only {offered:.0} reads were offered at a limit of {limit}");
    ensure!(got >= 0.99 * due, "{got:.1} of the reservation {due}");
    // One request more may have begun in the interval than its length allows.
    let most = limit * 1.01 + 1.0 / interval.seconds();
    ensure!(took > 0.0, "nothing reached the disk");
    ensure!(took <= most, "{took:.1} where the limit is {limit}");
    // The device is as good as new: what is offered and left alone is served.
    driver.fill()?;
    driver.finish()?;
    end(neighbour)?;
    daemon.stop()
}

#[test]
fn a_device_that_is_reset_in_a_loop_through_qemu_keeps_its_limit() {
    with_paced_lab(&[QEMU], resets_pay);
}
