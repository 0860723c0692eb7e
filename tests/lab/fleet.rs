//! Several hosts that share one array: daemons whose datastores are exports of one more daemon, which plays the array.

use crate::headgate::{self, Headgate};
use crate::process::Process;
use crate::{Lab, Server, wait_for};
use anyhow::{Context, ensure};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The datastore's name on every host.
pub const SHARED: &str = "shared";

/// Size of each disk.
const SIZE: &str = "1G";

/// Requests of each client: those of the cost model's reference, so that latencies are what the clock says.
pub const BLOCK: &str = "8K";

/// An array that serves requests in the order of their arrival, as hosts see it: it knows nothing of them.
pub struct Array {
    /// The daemon that plays it.
    pub daemon: Headgate,
}

impl Array {
    /// Starts one of this model.
    pub fn start(lab: &Lab, model: &str) -> anyhow::Result<Array> {
        let daemon = Headgate::start_as(lab, "array", &[], &[])?;
        daemon.command(&[
            "datastore",
            "add",
            "spindles",
            "--emulated",
            model,
            "--scheduler=fifo",
            "--queue-depth=4096",
        ])?;
        Ok(Array { daemon })
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
    /// Starts a host on this array: by another program if `through` names one, and with further arguments to `serve`.
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
        self.clients.push(Client { disk: disk.into(), process });
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

    /// Kills the daemon, and with it its clients.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.daemon.kill()?;
        self.clients.clear();
        Ok(())
    }
}

/// A client that loads a disk until it is told to end.
pub fn load(dir: &std::path::Path, name: &str, uri: &str, depth: u32) -> anyhow::Result<Process> {
    let mut command = Command::new(headgate::binary()?);
    command.args(["load", uri, "--block-size", BLOCK, "--seconds=3600", "--timeout=120"]);
    command.args(["--depth", &depth.to_string()]);
    Process::spawn("headgate load", command, &dir.join(format!("load-{name}.log")))
}

/// Ends a client, which must have seen no error.
pub fn end(mut client: Process) -> anyhow::Result<()> {
    client.interrupt()?;
    let status = client.wait(Duration::from_secs(60))?;
    ensure!(status.success(), "headgate load: {status}");
    Ok(())
}

/// Watches hosts for so long: means over samples a quarter of a second apart.
pub fn watch(hosts: &[&Host], disks: &[Vec<&str>], length: Duration) -> anyhow::Result<Vec<Seen>> {
    let begin: Vec<_> = hosts.iter().map(|host| host.daemon.metrics()).collect::<Result<_, _>>()?;
    let (mut windows, mut latencies) = (vec![Vec::new(); hosts.len()], vec![Vec::new(); hosts.len()]);
    let end = Instant::now() + length;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(250));
        for (n, host) in hosts.iter().enumerate() {
            let now = host.now()?;
            windows[n].extend(now["slots"].as_f64());
            latencies[n].extend(now["latency_ns"].as_f64().map(|ns| ns / 1e9));
        }
    }
    let mean = |of: &[f64]| if of.is_empty() { 0.0 } else { of.iter().sum::<f64>() / of.len() as f64 };
    hosts
        .iter()
        .enumerate()
        .map(|(n, host)| {
            let now = host.daemon.metrics()?;
            let seconds = (now.at - begin[n].at).as_secs_f64();
            let rate = |disk: &&str| Ok((now.ops(disk)? - begin[n].ops(disk)?) / seconds);
            let iops = disks[n].iter().map(rate).collect::<anyhow::Result<_>>()?;
            Ok(Seen { window: mean(&windows[n]), latency: mean(&latencies[n]), iops })
        })
        .collect()
}

/// Waits until what the hosts show over `length` is as wanted: `Ok` of the last look, with what was wrong in it otherwise.
pub fn settle(
    hosts: &[&Host],
    disks: &[Vec<&str>],
    length: Duration,
    within: Duration,
    wanted: impl Fn(&[Seen]) -> Result<(), String>,
) -> anyhow::Result<Vec<Seen>> {
    let mut last = String::new();
    let found = wait_for("the windows should settle", within, || {
        let seen = watch(hosts, disks, length)?;
        match wanted(&seen) {
            Ok(()) => Ok(Some(seen)),
            Err(why) => {
                last = format!("{why}: {seen:.2?}");
                eprintln!("  not yet: {last}");
                Ok(None)
            }
        }
    });
    found.with_context(|| last)
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
