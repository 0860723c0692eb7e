//! Clients: `headgate load` over NBD, and what it reports.

use anyhow::Context;
use headgate_lab::headgate;
use headgate_lab::process::Process;
use headgate_lab::tools;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What a client does.
#[derive(Clone, Copy)]
pub enum Pattern {
    /// Reads and writes of 4 KiB at random, 70 % of them reads, so many at once.
    Random {
        /// Outstanding requests.
        depth: u32,
    },
    /// Reads of 1 MiB in order, four at once.
    Reads,
    /// Writes of 1 MiB in order, four at once.
    Writes,
}

impl Pattern {
    fn words(self) -> Vec<String> {
        let words = match self {
            Pattern::Random { depth } => {
                format!("--random --read-percent=70 --block-size=4k --depth={depth}")
            }
            Pattern::Reads => "--sequential --read-percent=100 --block-size=1M --depth=4".into(),
            Pattern::Writes => "--sequential --read-percent=0 --block-size=1M --depth=4".into(),
        };
        words.split_whitespace().map(str::to_owned).collect()
    }
}

/// For how long.
#[derive(Clone, Copy)]
pub enum Length {
    /// So many seconds, behind so many that do not count.
    Seconds(u64, u64),
    /// So many requests.
    Requests(u64),
}

/// What a client had.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes: f64,
    /// 99 % of requests took no longer, in milliseconds.
    pub p99_ms: f64,
    /// 99.9 % of them.
    pub p999_ms: f64,
    /// The longest.
    pub longest_ms: f64,
}

/// A client at work.
pub struct Client {
    process: Process,
    report: PathBuf,
}

impl Client {
    /// Starts one on an export.
    pub fn start(dir: &Path, uri: &str, does: Pattern, length: Length) -> anyhow::Result<Client> {
        let mut command = Command::new(headgate::binary()?);
        command.args(["load", "--json", "--seed=1"]).args(does.words());
        match length {
            Length::Seconds(counted, before) => {
                command.arg(format!("--seconds={counted}")).arg(format!("--warmup={before}"))
            }
            Length::Requests(n) => command.arg(format!("--ios={n}")),
        };
        command.arg(uri);
        let report = dir.join("report.json");
        let _ = std::fs::remove_file(&report);
        Ok(Client { process: Process::spawn("headgate load", command, &report)?, report })
    }

    /// Tells it to come to an end, and waits for that.
    pub fn interrupt(mut self) -> anyhow::Result<Served> {
        self.process.interrupt()?;
        self.end(Duration::from_secs(60))
    }

    /// Waits for its end; a request that failed is an error.
    pub fn end(mut self, within: Duration) -> anyhow::Result<Served> {
        let status = self.process.wait(within)?;
        let said = std::fs::read_to_string(&self.report)?;
        anyhow::ensure!(status.success(), "headgate load: {status}\n{said}");
        let report = tools::json_in(&said)?;
        served(&report["targets"][0]["all"]).with_context(|| format!("no figures in {said}"))
    }
}

fn served(all: &Value) -> Option<Served> {
    let latency = &all["latency"];
    let ms = |field: &str| Some(latency[field].as_f64()? / 1e6);
    Some(Served {
        iops: all["iops"].as_f64()?,
        bytes: all["bytes_per_second"].as_f64()?,
        p99_ms: ms("p99_ns")?,
        p999_ms: ms("p999_ns")?,
        longest_ms: ms("max_ns")?,
    })
}
