//! Clients that keep 32 random reads of 16 KiB under way, as in the papers' experiments, until told
//! to stop.

use crate::guest::{Guest, QEMU};
use crate::headgate;
use crate::process::Process;
use crate::{Lab, Server, tools};
use anyhow::Context;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The programs that a loaded test needs.
pub const PROGRAMS: [&str; 2] = [QEMU, "fio"];

/// Size of each read in bytes.
pub const READ: u64 = 16 << 10;

/// Reads of each client under way.
pub const DEPTH: u32 = 32;

const FIO: &str = "--name=load --direct=1 --rw=randread --bs=16k --iodepth=32 --time_based --runtime=3600 \
                   --thread --random_generator=tausworthe64 --norandommap \
                   --output-format=json";

/// A client that reads as fast as it is served.
pub enum Client {
    /// fio inside a guest.
    Guest(Box<Guest>),
    /// fio's NBD engine on the host.
    Nbd {
        /// The running fio; `None` before the start.
        process: Option<Process>,
        /// The export.
        uri: String,
        /// Where its report and its log go.
        dir: PathBuf,
    },
    /// `headgate load` as the other end of vhost-user-blk on the host.
    Vhost {
        /// The running program; `None` before the start.
        process: Option<Process>,
        /// The disk's socket.
        socket: PathBuf,
        /// Where its report goes.
        report: PathBuf,
    },
}

impl Client {
    /// A client on the host for a disk.
    pub fn nbd(lab: &Lab, server: &dyn Server, disk: &str) -> anyhow::Result<Client> {
        let dir = lab.subdir(&format!("load-{disk}"))?;
        Ok(Client::Nbd { process: None, uri: server.nbd_uri(disk), dir })
    }

    /// A client on the host that does what a virtual machine's process does.
    pub fn vhost(lab: &Lab, server: &dyn Server, disk: &str) -> anyhow::Result<Client> {
        let dir = lab.subdir(&format!("load-{disk}"))?;
        Ok(Client::Vhost {
            process: None,
            socket: server.vhost_socket(disk),
            report: dir.join("report.json"),
        })
    }

    /// Starts reading.
    pub fn start(&mut self) -> anyhow::Result<()> {
        match self {
            Client::Guest(guest) => {
                let script = format!(
                    "fio {FIO} --ioengine=libaio --filename=/dev/vda --output=/tmp/load.json 2>/tmp/load.err &"
                );
                guest.run(&script, Duration::from_secs(20)).map(drop)
            }
            Client::Nbd { process, uri, dir } => {
                let mut command = Command::new("fio");
                command
                    .args(FIO.split_whitespace())
                    .arg("--ioengine=nbd")
                    .arg(format!("--uri={uri}"));
                command.arg(format!("--output={}", dir.join("report.json").display()));
                *process = Some(Process::spawn("fio", command, &dir.join("log"))?);
                Ok(())
            }
            Client::Vhost { process, socket, report } => {
                let mut command = Command::new(headgate::binary()?);
                command.args([
                    "load",
                    "--json",
                    "--random",
                    "--read-percent=100",
                    "--seconds=3600",
                ]);
                command
                    .arg(format!("--depth={DEPTH}"))
                    .arg(format!("--block-size={READ}"))
                    .arg(socket);
                *process = Some(Process::spawn("headgate load", command, report)?);
                Ok(())
            }
        }
    }

    /// Stops and returns how many reads the client says it has completed; any error it saw is an
    /// error.
    pub fn stop(self) -> anyhow::Result<u64> {
        let report = match self {
            Client::Guest(mut guest) => {
                let script = "killall -INT fio; while pidof fio >/dev/null; do sleep 0.1; done; cat /tmp/load.json; cat /tmp/load.err >&2";
                let report = guest.run(script, Duration::from_secs(60))?;
                guest.power_off()?;
                report
            }
            Client::Nbd { process, dir, .. } => {
                let mut fio = process.context("the client was never started")?;
                fio.interrupt()?;
                let status = fio.wait(Duration::from_secs(60))?;
                let report = std::fs::read_to_string(dir.join("report.json"))?;
                // An interrupted fio may end with status 128.
                anyhow::ensure!(status.code().is_some(), "fio died: {status}\n{report}");
                report
            }
            Client::Vhost { process, report, .. } => {
                let mut load = process.context("the client was never started")?;
                load.interrupt()?;
                let status = load.wait(Duration::from_secs(60))?;
                let report = std::fs::read_to_string(report)?;
                // Failed requests are failures of the program.
                anyhow::ensure!(status.success(), "headgate load: {status}\n{report}");
                let report = tools::json_in(&report)?;
                return report["total"]["ios"].as_u64().context("no count in headgate's report");
            }
        };
        let report = tools::json_in(&report)?;
        let job = &report["jobs"][0];
        anyhow::ensure!(
            job["error"] == 0 && job["total_err"].as_u64().unwrap_or(0) == 0,
            "fio saw errors: {job}"
        );
        job["read"]["total_ios"].as_u64().context("no count of reads in fio's report")
    }
}
