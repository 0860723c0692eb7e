//! QEMU's mirror: a qemu-storage-daemon between the client and two exports.

use anyhow::Context;
use headgate_lab::guest::Monitor;
use headgate_lab::nbd::Handshake;
use headgate_lab::process::Process;
use headgate_lab::{Lab, wait_for};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const JOB: &str = "mirror";

/// The daemon, which serves the first export to its clients and can mirror it to the second.
pub struct Mirror {
    nbd: PathBuf,
    monitor: Monitor,
    process: Process,
}

impl Mirror {
    /// Starts one with the exports `from` and `to` of the server at `server`.
    pub fn start(lab: &Lab, server: &Path, from: &str, to: &str) -> anyhow::Result<Mirror> {
        let dir = lab.subdir("mirror")?;
        let (nbd, socket) = (dir.join("nbd.sock"), dir.join("qmp.sock"));
        for old in [&nbd, &socket] {
            let _ = std::fs::remove_file(old);
        }
        let mut command = Command::new("qemu-storage-daemon");
        command
            .arg("--chardev")
            .arg(format!("socket,id=qmp,path={},server=on,wait=off", socket.display()));
        command.args(["--monitor", "chardev=qmp"]);
        for (node, export) in [("from", from), ("to", to)] {
            command.arg("--blockdev").arg(format!(
                "driver=nbd,node-name={node},server.type=unix,server.path={},export={export},\
                 cache.direct=on",
                server.display()
            ));
        }
        command.arg("--nbd-server").arg(format!("addr.type=unix,addr.path={}", nbd.display()));
        command.args(["--export", "type=nbd,id=export,node-name=from,name=moving,writable=on"]);
        let mut process = Process::spawn("qemu-storage-daemon", command, &dir.join("log"))?;
        wait_for("qemu-storage-daemon should greet NBD clients", PATIENCE, || {
            process.ensure_running()?;
            Ok(Handshake::connect(&nbd).ok())
        })?;
        let monitor = Monitor::connect(&socket)?;
        Ok(Mirror { nbd, monitor, process })
    }

    /// Where its clients find the disk.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///moving?socket={}", self.nbd.display())
    }

    /// Begins to mirror, with a write acknowledged when both sides have it: at so many bytes a
    /// second, or at its own default, as fast as it can.
    pub fn begin(&mut self, rate: Option<u64>) -> anyhow::Result<()> {
        let arguments = json!({
            "job-id": JOB,
            "device": "from",
            "target": "to",
            "sync": "full",
            "copy-mode": "write-blocking",
            "speed": rate.unwrap_or(0),
        });
        self.monitor.execute_with("blockdev-mirror", &arguments, PATIENCE).map(drop)
    }

    /// What it has copied so far, in bytes.
    pub fn copied(&mut self) -> anyhow::Result<u64> {
        let jobs = self.monitor.execute("query-block-jobs", PATIENCE)?;
        let job = jobs.as_array().and_then(|jobs| jobs.first());
        let job: &Value = job.with_context(|| format!("no job: {jobs}"))?;
        job["offset"].as_u64().with_context(|| format!("no offset: {job}"))
    }

    /// Takes the mirror back.
    pub fn cancel(&mut self) -> anyhow::Result<()> {
        let arguments = json!({ "device": JOB, "force": true });
        self.monitor.execute_with("block-job-cancel", &arguments, PATIENCE)?;
        wait_for("the mirror should end", Duration::from_secs(60), || {
            let jobs = self.monitor.execute("query-block-jobs", PATIENCE)?;
            Ok(jobs.as_array().is_some_and(Vec::is_empty).then_some(()))
        })
    }

    /// Ends the daemon.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.process.terminate(PATIENCE)
    }
}
