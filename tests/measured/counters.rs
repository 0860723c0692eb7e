//! A node believes what a gateway says of its disk at other servers: shares and reservations are
//! those of all servers together (dmClock, OSDI 2010, section 3.3). The gateway is a client of the
//! test's that says the same with each request.

use crate::neighbour::{DEPTH, RATE};
use anyhow::ensure;
use headgate_lab::counted::{Counted, Says, Told};
use headgate_lab::fleet::{end, load};
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::sample::{Interval, Sample};
use headgate_lab::{Lab, Server};
use std::thread::sleep;
use std::time::Duration;

const IO: u64 = 1_000_000;
const MEASURED: Duration = Duration::from_secs(6);

/// What the two disks did, and what the gateway was told while its disk was given `given` IOs.
struct Measured {
    interval: Interval,
    told: Told,
    given: f64,
}

/// A plain client on one disk, and one that counts on the other, both always busy.
fn measure(lab: &Lab, daemon: &Headgate, pace: Pace, says: Says) -> anyhow::Result<Measured> {
    let before = Sample::read(daemon)?;
    let plain = load(lab.dir(), "plain", &daemon.nbd_uri("plain"), DEPTH)?;
    let counted = Counted::start(daemon.nbd_socket(), "counted", DEPTH, says);
    // What was reported is remembered for two seconds.
    sleep(pace.time(Duration::from_secs(3)));
    let premises = Premises::new()
        .busy("array", pace.rate(RATE).into())
        .backlog("plain", DEPTH)
        .backlog("counted", DEPTH);
    let interval = premises.watch(daemon, pace.time(MEASURED))?;
    let told = counted.stop()?;
    let after = Sample::read(daemon)?;
    end(plain)?;
    let (_, given) = Interval { from: before, to: after }.given("counted")?;
    Ok(Measured { interval, told, given })
}

fn check(pace: Pace, what: &str, measured: &Measured, due: f64) -> anyhow::Result<()> {
    let due = due * f64::from(pace.rate(RATE));
    let interval = &measured.interval;
    let (got, other) = (interval.completions("counted")?, interval.completions("plain")?);
    let Told { replies, all, by_reservation, .. } = measured.told;
    eprintln!(
        "  {what}: {got:.1} of {due:.0}, the other disk {other:.1}; told of {all:.1} IOs in \
         {replies} replies, {by_reservation:.1} by reservation; the daemon counts {:.1}",
        measured.given
    );
    ensure!((got - due).abs() <= 0.05 * due, "{what}: {got:.1}, and {due:.0} are due");
    // Nothing of this disk's is under way before or after.
    ensure!((all - measured.given).abs() < 1e-3 * all, "{what}: it is told of another sum");
    Ok(())
}

#[test]
fn shares_and_reservations_are_those_of_all_servers_together() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = Headgate::start(lab)?;
        let model = format!("rate={},depth={DEPTH}", pace.rate(RATE));
        let depth = format!("--queue-depth={DEPTH}");
        daemon.command(&["datastore", "add", "array", "--emulated", &model, &depth])?;
        for disk in ["plain", "counted"] {
            let create =
                ["disk", "create", disk, "--datastore=array", "--size=64M", "--shares=100"];
            daemon.command(&create)?;
        }
        let nothing = Says::default();
        let measured = measure(lab, &daemon, pace, nothing)?;
        check(pace, "nothing elsewhere", &measured, 0.5)?;
        // Three IOs elsewhere for each here: here it is due a quarter of what the other one is.
        let thrice = Says { delta: 3 * IO, ..nothing };
        let measured = measure(lab, &daemon, pace, thrice)?;
        check(pace, "three elsewhere for each here", &measured, 0.2)?;

        // Half of the rate is reserved, and half of that is served elsewhere.
        let reservation = format!("--reservation={}", pace.rate(RATE / 2));
        daemon.command(&["disk", "set", "counted", &reservation, "--shares=1", "--force"])?;
        let measured = measure(lab, &daemon, pace, nothing)?;
        check(pace, "a reservation, nothing elsewhere", &measured, 0.5)?;
        ensure!(measured.told.by_reservation >= 0.95 * measured.told.all, "not by reservation");
        let by_reservation = Says { delta: IO, rho: IO, ..nothing };
        let measured = measure(lab, &daemon, pace, by_reservation)?;
        check(pace, "a reservation, half of it elsewhere", &measured, 0.25)?;
        ensure!(measured.told.by_reservation >= 0.95 * measured.told.all, "not by reservation");
        daemon.stop()
    });
}
