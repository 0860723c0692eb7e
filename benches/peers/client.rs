//! The clients that measure.

use crate::servers::{Contender, Running, Way};
use crate::states::{Side, State};
use crate::{Direction, Order, Workload};
use anyhow::{Context, ensure};
use headgate_lab::process::run;
use headgate_lab::{headgate, tools};
use std::process::Command;
use std::time::Duration;

/// Runs before the measurement, in seconds.
const WARM_UP: u32 = 1;

/// What drives the servers.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Tool {
    /// `headgate load`.
    Load,
    /// fio's NBD engine, as a cross-check by a client that is not ours.
    Fio,
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Requests completed per second.
    pub iops: f64,
    /// Latency percentiles in microseconds.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// CPU seconds of the server's process tree per million requests.
    pub cpu_per_million: f64,
}

impl Tool {
    /// Can it speak to that server?
    pub fn speaks(self, contender: Contender) -> bool {
        self == Tool::Load || matches!(contender.way(), Way::Nbd | Way::Tcp)
    }

    /// What one would type.
    pub fn command_line(self, workload: &Workload, seconds: u32, target: &str) -> String {
        let words = self.arguments(workload, seconds, target);
        let program = match self {
            Tool::Load => "headgate",
            Tool::Fio => "fio",
        };
        format!("{program} {}", words.join(" "))
    }

    fn arguments(self, workload: &Workload, seconds: u32, target: &str) -> Vec<String> {
        let Workload { order, direction, block_kib, depth, clients, .. } = workload;
        match self {
            Tool::Fio => {
                let rw = match (order, direction) {
                    (Order::Random, Direction::Read) => "randread",
                    (Order::Random, Direction::Write) => "randwrite",
                    (Order::Sequential, Direction::Read) => "read",
                    (Order::Sequential, Direction::Write) => "write",
                };
                let fixed = "--name=peers --ioengine=nbd --thread --time_based --norandommap --random_generator=tausworthe64 \
                             --group_reporting --output-format=json";
                let mut words: Vec<String> = fixed.split_whitespace().map(str::to_owned).collect();
                words.extend([
                    format!("--rw={rw}"),
                    format!("--bs={block_kib}k"),
                    format!("--iodepth={depth}"),
                    format!("--numjobs={clients}"),
                    format!("--runtime={seconds}"),
                    format!("--uri={target}"),
                ]);
                words
            }
            Tool::Load => vec![
                "load".into(),
                target.into(),
                format!("--depth={depth}"),
                format!("--read-percent={}", if *direction == Direction::Read { 100 } else { 0 }),
                format!("--block-size={block_kib}K"),
                format!("--seconds={seconds}"),
                // A connection to an NBD server is what a queue is to a vhost-user device.
                format!("--connections={clients}"),
                format!("--queues={clients}"),
                match order {
                    Order::Random => "--random".into(),
                    Order::Sequential => "--sequential".into(),
                },
                "--json".into(),
            ],
        }
    }

    fn run(
        self,
        workload: &Workload,
        state: State,
        seconds: u32,
        target: &str,
    ) -> anyhow::Result<serde_json::Value> {
        let mut command = match self {
            Tool::Load => Command::new(headgate::binary()?),
            Tool::Fio => Command::new("fio"),
        };
        command.args(self.arguments(workload, seconds, target));
        if state == State::Polled && self == Tool::Load {
            command.arg("--spin");
        }
        let command = state.place(Side::Client, command);
        tools::json_in(&run(command, Duration::from_secs(u64::from(seconds) + 60))?)
    }
}

/// Warms a server up and measures it.
pub fn measure(
    tool: Tool,
    server: &mut Running,
    workload: &Workload,
    state: State,
    seconds: u32,
) -> anyhow::Result<Sample> {
    tool.run(workload, state, WARM_UP, &server.target)?;
    let before = server.cpu_seconds()?;
    let report = tool.run(workload, state, seconds, &server.target)?;
    let cpu = server.cpu_seconds()? - before;
    let mut sample = match tool {
        Tool::Fio => from_fio(&report, workload.direction)?,
        Tool::Load => from_load(&report)?,
    };
    let count = sample.iops * f64::from(seconds);
    ensure!(count > 0.0, "nothing was completed: {report}");
    sample.cpu_per_million = cpu / count * 1e6;
    Ok(sample)
}

fn from_fio(report: &serde_json::Value, direction: Direction) -> anyhow::Result<Sample> {
    let job = &report["jobs"][0];
    ensure!(job["error"] == 0, "fio saw errors: {job}");
    let side = &job[if direction == Direction::Read { "read" } else { "write" }];
    let percentile = |p: &str| -> anyhow::Result<f64> {
        Ok(side["clat_ns"]["percentile"][p]
            .as_f64()
            .with_context(|| format!("no percentile {p}: {side}"))?
            / 1e3)
    };
    Ok(Sample {
        iops: side["iops"].as_f64().context("no IOPS in fio's report")?,
        p50_us: percentile("50.000000")?,
        p99_us: percentile("99.000000")?,
        p999_us: percentile("99.900000")?,
        cpu_per_million: 0.0,
    })
}

fn from_load(report: &serde_json::Value) -> anyhow::Result<Sample> {
    let total = &report["total"];
    ensure!(report["errors"] == 0, "headgate load saw errors: {report}");
    let micros = |key: &str| -> anyhow::Result<f64> {
        let nanos = total["latency"][key].as_f64();
        Ok(nanos.with_context(|| format!("no {key} in the report: {report}"))? / 1e3)
    };
    Ok(Sample {
        iops: total["iops"].as_f64().context("no IOPS in the report")?,
        p50_us: micros("p50_ns")?,
        p99_us: micros("p99_ns")?,
        p999_us: micros("p999_ns")?,
        cpu_per_million: 0.0,
    })
}
