//! What a disk's client gets while something is done to another disk, compared with what it gets
//! when nothing is.

use crate::Lab;
use crate::headgate;
use crate::process::Process;
use crate::tools::json_in;
use anyhow::{Context, ensure};
use std::fmt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Requests that the client keeps outstanding.
const DEPTH: &str = "--depth=8";

/// Longer than anything that is done: the client is stopped.
const FOR_EVER: &str = "--seconds=3600";

/// What is over at once is judged with the time after it: a client that has run for milliseconds
/// may have been served nothing yet.
const SHORTEST: Duration = Duration::from_secs(2);

/// How much later than undisturbed a request may be, besides ten times its own latency: a machine
/// that is busy with others, not a thread that waits for one of them.
const LATER: Duration = Duration::from_secs(1);

/// What a client was given.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Requests per second.
    pub iops: f64,
    /// 99th percentile of the latencies.
    pub p99: Duration,
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s, p99 {:.1?}", self.iops, self.p99)
    }
}

/// A client of a disk that reads all the time, and must see no error.
pub struct Neighbour<'a> {
    lab: &'a Lab,
    target: String,
}

impl<'a> Neighbour<'a> {
    /// One at an NBD URI or a vhost-user socket.
    pub fn new(lab: &'a Lab, target: &str) -> Neighbour<'a> {
        Neighbour { lab, target: target.to_owned() }
    }

    /// What it gets while `work` is done, and the outcome of that.
    ///
    /// # Errors
    /// The client saw an error, or was not served.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> anyhow::Result<(Served, T)> {
        let report = tempfile::Builder::new()
            .prefix("neighbour-")
            .tempfile_in(self.lab.dir())
            .context("a file for the neighbour's report")?;
        let report = report.path();
        let mut command = Command::new(headgate::binary()?);
        command.args(["load", &self.target, DEPTH, FOR_EVER, "--read-percent=100", "--json"]);
        let mut client = Process::spawn("headgate load", command, report)?;
        let began = Instant::now();
        let done = work();
        sleep(SHORTEST.saturating_sub(began.elapsed()));
        client.interrupt()?;
        let status = client.wait(Duration::from_secs(120))?;
        let text = std::fs::read_to_string(report)?;
        ensure!(status.success(), "the neighbour's client: {status}\n{text}");
        let all = &json_in(&text)?["total"];
        let iops = all["iops"].as_f64().context("no iops")?;
        let p99 = all["latency"]["p99_ns"].as_u64().context("no latency")?;
        Ok((Served { iops, p99: Duration::from_nanos(p99) }, done))
    }

    /// What it gets while nothing is done.
    ///
    /// # Errors
    /// See [`during`](Neighbour::during).
    pub fn alone(&self, length: Duration) -> anyhow::Result<Served> {
        Ok(self.during(|| sleep(length))?.0)
    }
}

/// Checks that a client got its `reservation` while something was done, and was as prompt as
/// undisturbed.
///
/// # Errors
/// It was not so.
pub fn check(undisturbed: Served, meanwhile: Served, reservation: f64) -> anyhow::Result<()> {
    let latest = undisturbed.p99 * 10 + LATER;
    ensure!(meanwhile.p99 <= latest, "{meanwhile}, and undisturbed {undisturbed}");
    // A machine that has no time for the undisturbed client has none for this one.
    let due = reservation.min(undisturbed.iops) * 0.9;
    ensure!(meanwhile.iops >= due, "{meanwhile} of {reservation}; undisturbed {undisturbed}");
    Ok(())
}
