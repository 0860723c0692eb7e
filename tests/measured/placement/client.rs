//! The clients of the disks: fio over NBD or inside a guest. Beside each there may be one that
//! writes, and checks all it wrote.

use anyhow::{Context, ensure};
use headgate_lab::guest::Guest;
use headgate_lab::process::Process;
use headgate_lab::tools;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// The blocks of 4 KiB at a disk's begin that belong to who checks them.
pub const CHECKED: u64 = 256;

/// Random writes with flushes in between, read again and compared; until told to stop. A block of
/// an earlier round is told by its seed.
const CHECKS: &str = r#"
rm -f /tmp/stop /tmp/done
(
  round=0
  while [ ! -e /tmp/stop ]; do
    round=$((round + 1))
    fio --name=check --filename=/dev/vda --size=1m --direct=1 --ioengine=libaio --thread \
        --iodepth=2 --rw=randwrite --bs=4k --fsync=32 --randseed=$round --verify=crc32c \
        --verify_fatal=1 >/tmp/check.log 2>&1 || touch /tmp/failed
    [ -e /tmp/failed ] && break
    echo $round >/tmp/round
  done
  touch /tmp/done
) >/dev/null 2>&1 &
"#;

/// What a disk's client is.
pub enum Client {
    /// fio on the host.
    Nbd {
        /// The running fio.
        fio: Option<Process>,
        /// The export.
        uri: String,
        /// Where its job, report and log go.
        dir: PathBuf,
    },
    /// fio in a guest whose only disk this is.
    Guest(Box<Guest>),
}

/// What a client says of its requests under one load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// The longest wait of a read or write in milliseconds.
    pub longest: f64,
    /// What one of a thousand waits longer than, of reads or of writes, in milliseconds.
    pub slow: f64,
}

impl Client {
    /// Starts a load: jobs one after the other, which say neither how the disk is reached nor
    /// where the client's part of it is.
    pub fn start(&mut self, jobs: &str) -> anyhow::Result<()> {
        let place = format!("direct=1\noffset={}\nsize=250m\nthread\n", CHECKED * 4096);
        match self {
            Client::Nbd { fio, uri, dir } => {
                let file = dir.join("load.fio");
                let engine = format!("[global]\nioengine=nbd\nuri={uri}\n{place}");
                std::fs::write(&file, engine + jobs)?;
                let mut command = Command::new("fio");
                command.arg("--output-format=json").arg("--output").arg(dir.join("report"));
                command.arg(file);
                *fio = Some(Process::spawn("fio", command, &dir.join("log"))?);
                Ok(())
            }
            Client::Guest(guest) => {
                let engine = "[global]\nioengine=libaio\nfilename=/dev/vda\n";
                let script = format!(
                    "cat >/tmp/load.fio <<'END'\n{engine}{place}{jobs}END\n\
                     fio --output-format=json --output=/tmp/report /tmp/load.fio >/tmp/log 2>&1 &\n\
                     echo $! >/tmp/load.pid"
                );
                guest.run(&script, PATIENCE).map(drop)
            }
        }
    }

    /// Ends the load; an error that the client saw is one.
    pub fn stop(&mut self) -> anyhow::Result<Told> {
        let report = match self {
            Client::Nbd { fio, dir, .. } => {
                let mut fio = fio.take().context("the client does not run")?;
                fio.interrupt()?;
                fio.wait(PATIENCE)?;
                std::fs::read_to_string(dir.join("report"))?
            }
            Client::Guest(guest) => {
                let script = "pid=$(cat /tmp/load.pid); kill -INT $pid; \
                              while kill -0 $pid 2>/dev/null; do sleep 0.1; done; \
                              cat /tmp/report; cat /tmp/log >&2";
                guest.run(script, PATIENCE)?
            }
        };
        let report = tools::json_in(&report)?;
        let jobs = report["jobs"].as_array().context("no jobs in fio's report")?;
        ensure!(!jobs.is_empty(), "no jobs in fio's report");
        let mut told = Told::default();
        for job in jobs {
            ensure!(job["error"] == 0, "fio saw an error: {job}");
            for direction in ["read", "write"] {
                let longest = job[direction]["clat_ns"]["max"].as_f64();
                told.longest = told.longest.max(longest.context("no latency")? / 1e6);
                let slow = job[direction]["clat_ns"]["percentile"]["99.900000"].as_f64();
                told.slow = told.slow.max(slow.unwrap_or(0.0) / 1e6);
            }
        }
        Ok(told)
    }

    /// Begins to check what is written in a guest. Over NBD the test does it itself.
    pub fn begin_checks(&mut self) -> anyhow::Result<()> {
        match self {
            Client::Nbd { .. } => Ok(()),
            Client::Guest(guest) => guest.run(CHECKS, PATIENCE).map(drop),
        }
    }

    /// Ends it. All that was written in a guest must have been read as it was written, by at least
    /// one round.
    pub fn end_checks(&mut self, within: Duration) -> anyhow::Result<()> {
        let Client::Guest(guest) = self else { return Ok(()) };
        let script = "touch /tmp/stop; while [ ! -e /tmp/done ]; do sleep 0.1; done; \
                      cat /tmp/check.log; test ! -e /tmp/failed && cat /tmp/round";
        let said = guest.run(script, within)?;
        let console = guest.console();
        ensure!(!console.contains("I/O error"), "the guest saw IO errors:\n{console}");
        eprintln!("  a guest checked {} rounds", said.lines().last().unwrap_or_default());
        Ok(())
    }
}
