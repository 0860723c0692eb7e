//! Datastores side by side in one daemon, each with disks whose clients keep requests outstanding.

use headgate_lab::fleet::{self, load_of};
use headgate_lab::headgate::Headgate;
use headgate_lab::premise::Premises;
use headgate_lab::process::Process;
use headgate_lab::{Lab, Server, wait_for};
use std::time::Duration;

/// How a disk's client reaches it.
#[derive(Clone, Copy, Debug)]
pub enum Front {
    Nbd,
    Vhost,
}

/// A disk and what its client does.
#[derive(Clone, Debug)]
pub struct Disk {
    pub name: String,
    /// The options of its policy.
    pub policy: String,
    pub front: Front,
    /// Requests that the client keeps outstanding.
    pub depth: u32,
    /// Bytes of each, as the load generator reads them.
    pub size: &'static str,
}

impl Disk {
    /// One whose NBD client keeps 64 requests of the usual size outstanding.
    pub fn new(name: &str, policy: String) -> Disk {
        let name = name.to_owned();
        Disk { name, policy, front: Front::Nbd, depth: 64, size: fleet::BLOCK }
    }

    /// Makes the disk.
    pub fn create(&self, daemon: &Headgate, store: &str) -> anyhow::Result<()> {
        let create = ["disk", "create", &self.name, "--datastore", store, "--size=256M", "--force"];
        let policy: Vec<&str> = self.policy.split_whitespace().collect();
        daemon.command(&[&create[..], &policy].concat()).map(drop)
    }

    /// Starts its client and waits until it is served.
    pub fn load(&self, lab: &Lab, daemon: &Headgate) -> anyhow::Result<Process> {
        let target = match self.front {
            Front::Nbd => daemon.nbd_uri(&self.name),
            Front::Vhost => daemon.vhost_socket(&self.name).display().to_string(),
        };
        let before = daemon.metrics()?.ops(&self.name)?;
        let client = load_of(self.size, lab.dir(), &self.name, &target, self.depth)?;
        wait_for("the client should be served", Duration::from_secs(60), || {
            Ok((daemon.metrics()?.ops(&self.name)? > before).then_some(()))
        })?;
        Ok(client)
    }

    /// The client keeps its requests outstanding.
    pub fn backlog(&self, premises: Premises) -> Premises {
        premises.backlog(&self.name, self.depth)
    }
}

/// Makes an emulated datastore with disks and starts their clients.
pub fn start(
    lab: &Lab,
    daemon: &Headgate,
    store: &str,
    options: &[&str],
    disks: &[Disk],
) -> anyhow::Result<Vec<Process>> {
    daemon.command(&[&["datastore", "add", store, "--emulated"], options].concat())?;
    disks.iter().try_for_each(|disk| disk.create(daemon, store))?;
    disks.iter().map(|disk| disk.load(lab, daemon)).collect()
}

/// Ends clients without waiting for what they have outstanding; none may have ended before.
pub fn stop(clients: Vec<Process>) -> anyhow::Result<()> {
    for mut client in clients {
        client.ensure_running()?;
        client.kill()?;
    }
    Ok(())
}
