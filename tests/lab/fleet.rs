//! Several hosts that share one array: daemons whose datastores are exports of one more daemon,
//! which plays the array.

use crate::headgate::{self, Headgate};
use crate::premise::{Premises, Unmet, measure};
use crate::process::Process;
use crate::{Lab, Server};
use anyhow::{Context, anyhow, ensure};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The datastore's name on every host.
pub const SHARED: &str = "shared";

/// Size of each disk.
const SIZE: &str = "1G";

/// Requests of each client: those of the cost model's reference, so that latencies are what the
/// clock says.
pub const BLOCK: &str = "8K";

/// An array that serves requests in the order of their arrival, as hosts see it: it knows nothing
/// of them.
pub struct Array {
    /// The daemon that plays it.
    pub daemon: Headgate,
    rate: u32,
}

impl Array {
    /// Starts one that serves so many requests per second, each in no less than `latency`.
    pub fn start(lab: &Lab, rate: u32, latency: Duration) -> anyhow::Result<Array> {
        let model = format!("rate={rate},latency={}us", latency.as_micros());
        let daemon = Headgate::start_as(lab, "array", &[], &[])?;
        daemon.command(&[
            "datastore",
            "add",
            "spindles",
            "--emulated",
            &model,
            "--scheduler=fifo",
            "--queue-depth=4096",
        ])?;
        Ok(Array { daemon, rate })
    }

    /// It serves all that it can.
    fn busy(&self) -> Premises {
        Premises::new().busy("spindles", self.rate.into())
    }

    /// Makes a volume.
    pub fn volume(&self, name: &str) -> anyhow::Result<()> {
        let create = ["disk", "create", name, "--datastore", "spindles", "--size", SIZE];
        self.daemon.command(&create).map(drop)
    }
}

/// A host: a daemon whose datastore is the array.
pub struct Host {
    /// What the test calls it.
    pub name: String,
    /// Its daemon.
    pub daemon: Headgate,
    clients: Vec<Client>,
    lab: PathBuf,
}

struct Client {
    disk: String,
    depth: u32,
    process: Process,
}

/// What a host showed over some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Mean window; 0 without control.
    pub window: f64,
    /// Mean latency of the cluster, in seconds.
    pub latency: f64,
    /// Requests per second of each disk, in order of creation.
    pub iops: Vec<f64>,
}

impl Host {
    /// Starts a host on this array: by another program if `through` names one, and with further
    /// arguments to `serve`.
    pub fn start(
        lab: &Lab,
        name: &str,
        array: &Array,
        through: &[&str],
        serve: &[&str],
    ) -> anyhow::Result<Host> {
        let daemon = Headgate::start_as(lab, name, through, serve)?;
        let uri = format!("nbd+unix:///?socket={}", array.daemon.nbd_socket().display());
        daemon.command(&["datastore", "add", SHARED, "--nbd", &uri, "--queue-depth=64"])?;
        Ok(Host { name: name.into(), daemon, clients: Vec::new(), lab: lab.dir().to_owned() })
    }

    /// Makes a disk on a volume of its own.
    pub fn disk(&self, array: &Array, disk: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let volume = format!("{}-{disk}", self.name);
        array.volume(&volume)?;
        let create = ["disk", "create", disk, "--datastore", SHARED, "--export", &volume];
        self.daemon.command(&[&create, arguments].concat()).map(drop)
    }

    /// Changes how the datastore's window is set.
    pub fn set(&self, arguments: &[&str]) -> anyhow::Result<()> {
        self.daemon.command(&[&["datastore", "set", SHARED], arguments].concat()).map(drop)
    }

    /// Starts a client that keeps so many random reads under way, until told to stop.
    pub fn load(&mut self, disk: &str, depth: u32) -> anyhow::Result<()> {
        let what = format!("{}-{disk}", self.name);
        let process = load(&self.lab, &what, &self.daemon.nbd_uri(disk), depth)?;
        self.clients.push(Client { disk: disk.into(), depth, process });
        Ok(())
    }

    /// Ends the client of a disk, which must have seen no error.
    pub fn idle(&mut self, disk: &str) -> anyhow::Result<()> {
        let at = self.clients.iter().position(|client| client.disk == disk);
        let client = self.clients.remove(at.with_context(|| format!("{disk} has no client"))?);
        end(client.process)
    }

    /// Ends all clients, which must have seen no error.
    pub fn idle_all(&mut self) -> anyhow::Result<()> {
        self.clients.drain(..).try_for_each(|client| end(client.process))
    }

    /// How the window is, as the daemon tells it.
    pub fn now(&self) -> anyhow::Result<serde_json::Value> {
        Ok(self.daemon.json(&["datastore", "show", SHARED])?["window"]["now"].clone())
    }

    /// Its clients keep their requests outstanding.
    fn backlog(&self) -> Premises {
        let clients = self.clients.iter();
        clients
            .fold(Premises::new(), |premises, client| premises.backlog(&client.disk, client.depth))
    }

    /// Kills the daemon, and with it its clients.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.daemon.kill()?;
        self.clients.clear();
        Ok(())
    }
}

/// A client that loads a disk until it is told to end.
pub fn load(dir: &std::path::Path, name: &str, uri: &str, depth: u32) -> anyhow::Result<Process> {
    load_of(BLOCK, dir, name, uri, depth)
}

/// The same with requests of this size, of an NBD server's disk or behind a vhost-user socket.
pub fn load_of(
    size: &str,
    dir: &std::path::Path,
    name: &str,
    target: &str,
    depth: u32,
) -> anyhow::Result<Process> {
    let log = dir.join(format!("load-{name}.log"));
    spawn_load(size, &log, target, depth, 100)
}

/// The same with writes, beside the client that reads.
pub fn writes_of(
    size: &str,
    dir: &std::path::Path,
    name: &str,
    target: &str,
    depth: u32,
) -> anyhow::Result<Process> {
    let log = dir.join(format!("load-{name}-writes.log"));
    spawn_load(size, &log, target, depth, 0)
}

fn spawn_load(
    size: &str,
    log: &std::path::Path,
    target: &str,
    depth: u32,
    read_percent: u32,
) -> anyhow::Result<Process> {
    let mut command = Command::new(headgate::binary()?);
    command.args(["load", target, "--block-size", size, "--seconds=3600", "--timeout=120"]);
    command.args(["--depth", &depth.to_string(), "--read-percent", &read_percent.to_string()]);
    Process::spawn("headgate load", command, log)
}

/// Ends a client, which must have seen no error.
pub fn end(mut client: Process) -> anyhow::Result<()> {
    client.interrupt()?;
    let status = client.wait(Duration::from_secs(60))?;
    ensure!(status.success(), "headgate load: {status}");
    Ok(())
}

/// Watches hosts for so long: means over samples a quarter of a second apart. Meanwhile the array
/// is busy and all clients keep their requests outstanding.
///
/// # Errors
/// [`Unmet`] when that was not so in any attempt.
pub fn watch(
    array: &Array,
    hosts: &[&Host],
    disks: &[Vec<&str>],
    length: Duration,
) -> anyhow::Result<Vec<Seen>> {
    let busy = array.busy();
    let backlogs: Vec<Premises> = hosts.iter().map(|host| host.backlog()).collect();
    let daemons = hosts.iter().map(|host| &host.daemon).zip(&backlogs);
    let subjects: Vec<_> = std::iter::once((&array.daemon, &busy)).chain(daemons).collect();
    let (shown, intervals) = measure(&subjects, || sample_windows(hosts, length))?;
    let seen = shown.into_iter().zip(&intervals[1..]).zip(disks);
    seen.map(|(((window, latency), interval), disks)| {
        let iops = disks.iter().map(|disk| interval.iops(disk)).collect::<anyhow::Result<_>>()?;
        Ok(Seen { window, latency, iops })
    })
    .collect()
}

/// The mean window and the mean latency in seconds of each host over this time.
fn sample_windows(hosts: &[&Host], length: Duration) -> anyhow::Result<Vec<(f64, f64)>> {
    let mut samples = vec![(Vec::new(), Vec::new()); hosts.len()];
    let end = Instant::now() + length;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(250));
        for (host, (windows, latencies)) in hosts.iter().zip(&mut samples) {
            let now = host.now()?;
            windows.extend(now["slots"].as_f64());
            latencies.extend(now["latency_ns"].as_f64().map(|ns| ns / 1e9));
        }
    }
    let mean =
        |of: &[f64]| if of.is_empty() { 0.0 } else { of.iter().sum::<f64>() / of.len() as f64 };
    Ok(samples.iter().map(|(windows, latencies)| (mean(windows), mean(latencies))).collect())
}

/// Waits until what the hosts show over `length` is as wanted: what was seen last, or what was
/// wrong in it.
///
/// # Errors
/// [`Unmet`] when at the end it was a premise that was not met.
pub fn settle(
    array: &Array,
    hosts: &[&Host],
    disks: &[Vec<&str>],
    length: Duration,
    within: Duration,
    wanted: impl Fn(&[Seen]) -> Result<(), String>,
) -> anyhow::Result<Vec<Seen>> {
    let deadline = Instant::now() + within;
    loop {
        let wrong = match watch(array, hosts, disks, length) {
            Ok(seen) => match wanted(&seen) {
                Ok(()) => return Ok(seen),
                Err(why) => anyhow!("the windows did not settle: {why}: {seen:.2?}"),
            },
            Err(error) if error.is::<Unmet>() => error,
            Err(error) => return Err(error),
        };
        eprintln!("  not yet: {wrong:#}");
        if Instant::now() >= deadline {
            return Err(wrong);
        }
    }
}

/// Are these as `parts` are to each other, each within `tolerance` of its part.
pub fn in_ratio(values: &[f64], parts: &[f64], tolerance: f64) -> Result<(), String> {
    let (all, whole): (f64, f64) = (values.iter().sum(), parts.iter().sum());
    for (value, part) in values.iter().zip(parts) {
        near("one", *value, all * part / whole, tolerance)
            .map_err(|why| format!("{why}, of {values:.2?}"))?;
    }
    Ok(())
}

/// Is this within `tolerance` of what is due.
pub fn near(what: &str, value: f64, due: f64, tolerance: f64) -> Result<(), String> {
    if (value / due - 1.0).abs() <= tolerance {
        return Ok(());
    }
    Err(format!("{what} is {value:.4}, {due:.4} is due"))
}
