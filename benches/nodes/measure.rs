//! Clients, and the processor time of daemons.

use anyhow::Context;
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::run;
use headgate_lab::tools;
use std::process::Command;
use std::time::Duration;

/// What a client saw.
#[derive(Clone, Copy)]
pub struct Seen {
    /// Requests per second.
    pub iops: f64,
    /// Percentiles of their latency, in microseconds: 50 %, 99 %.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
}

/// Reads of a disk at random, of this size, so many outstanding.
pub fn load(uri: &str, size: &str, depth: u32, seconds: u32) -> anyhow::Result<Seen> {
    let mut command = Command::new(headgate::binary()?);
    command.args(["load", uri, "--random", "--read-percent=100", "--json", "--timeout=120"]);
    command.args([format!("--block-size={size}"), format!("--depth={depth}")]);
    command.arg(format!("--seconds={seconds}"));
    let report = tools::json_in(&run(command, Duration::from_secs(u64::from(seconds) + 120))?)?;
    let total = &report["total"];
    let micros = |key: &str| {
        let nanos = total["latency"][key].as_f64();
        nanos.map(|nanos| nanos / 1e3).with_context(|| format!("no {key}: {report}"))
    };
    let iops = total["iops"].as_f64().with_context(|| format!("no IOPS: {report}"))?;
    Ok(Seen { iops, p50_us: micros("p50_ns")?, p99_us: micros("p99_ns")? })
}

/// The processor time that a daemon has used, in seconds.
pub fn cpu(daemon: &Headgate) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid()))?;
    // The second field, the name, may hold spaces; it ends with the last parenthesis.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |n: usize| -> anyhow::Result<f64> {
        Ok(after_name.split_whitespace().nth(n - 3).context("a short /proc/PID/stat")?.parse()?)
    };
    // SAFETY: sysconf reads a constant of the system; it has no preconditions.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    Ok((field(14)? + field(15)?) / ticks_per_second)
}

/// The middle and the ends of some figures.
pub fn range(values: &[f64], digits: usize) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = match sorted.len() {
        0 => return "-".into(),
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    };
    let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
    format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
}
