//! NBD over TLS, with certificates that the command line makes.

mod dialled;
mod served;

use anyhow::Context;
use headgate_lab::Lab;
use headgate_lab::headgate::Headgate;
use headgate_lab::process::{Finished, run_to_end};
use headgate_lab::tls::{certificates, issue};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const MINUTE: Duration = Duration::from_secs(60);
pub const SIZE_MIB: u64 = 32;

/// A laboratory's certificates, and a daemon that serves two disks with them.
pub struct Secure {
    pub daemon: Headgate,
    pub authority: PathBuf,
    pub server: PathBuf,
    /// `127.0.0.1:PORT`.
    pub address: String,
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of a test is UTF-8")
}

impl Secure {
    pub fn start(lab: &Lab) -> anyhow::Result<Secure> {
        let [authority, server] = ["authority", "server"].map(|name| lab.dir().join(name));
        certificates(&["init", text(&authority)])?;
        issue(&authority, "server", "127.0.0.1", &server)?;
        let tls = text(&server).to_owned();
        let words = ["--nbd-listen", "127.0.0.1:0", "--nbd-tls", &tls];
        let daemon = Headgate::start_as(lab, "state", &[], &words)?;
        for name in ["disk", "other"] {
            daemon.command(&["disk", "create", name, "--size", &format!("{SIZE_MIB}M")])?;
        }
        let attachment = daemon.json(&["disk", "attach", "disk"])?;
        let uri = attachment["nbd_tcp_uri"].as_str().context("no URI over TCP")?;
        let address = uri.strip_prefix("nbds://").and_then(|rest| rest.strip_suffix("/disk"));
        let address = address.with_context(|| uri.to_owned())?.to_owned();
        Ok(Secure { daemon, authority, server, address })
    }

    /// A new client's directory.
    pub fn client(&self, lab: &Lab, name: &str) -> anyhow::Result<PathBuf> {
        let dir = lab.dir().join(name);
        issue(&self.authority, "client", name, &dir)?;
        Ok(dir)
    }

    /// As libnbd writes it.
    pub fn uri(&self, disk: &str, certificates: &Path) -> String {
        format!("nbds://{}/{disk}?tls-certificates={}", self.address, text(certificates))
    }

    /// `nbdinfo` with whatever comes of it.
    pub fn nbdinfo(&self, uri: &str) -> anyhow::Result<Finished> {
        let mut command = Command::new("nbdinfo");
        command.args(["--json", uri]);
        run_to_end(command, MINUTE)
    }

    pub fn put(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let next = self.server.with_extension("next");
        fs::write(&next, content)?;
        Ok(fs::rename(next, self.server.join(name))?)
    }
}
