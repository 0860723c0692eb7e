//! The report of a run: a table, JSON, an exit code.

use crate::error::Failure;
use crate::link::DiskInfo;
use crate::measure::{Latency, Second, Tally, histogram};
use crate::reaction::ScenarioReport;
use crate::replay::Replayed;
use crate::target::Target;
use crate::worker::Worker;
use hdrhistogram::Histogram;
use headgate_units::Nanos;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Requests of one sort, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Requests completed.
    pub ios: u64,
    /// Per second.
    pub iops: f64,
    /// Bytes read and written per second.
    pub bytes_per_second: f64,
    /// Latencies: from the intended start to the completion.
    pub latency: Latency,
}

impl Summary {
    fn of(tally: &Tally, measured: Nanos) -> Summary {
        let seconds = measured.as_secs_f64();
        let per_second = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        Summary {
            ios: tally.ios,
            iops: per_second(tally.ios),
            bytes_per_second: per_second(tally.bytes),
            latency: Latency::of(&tally.latency),
        }
    }
}

/// The result of verification.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verification {
    /// Blocks read and judged.
    pub blocks_checked: u64,
    /// Blocks that held what they must not.
    pub faults: u64,
    /// The first of them.
    pub first_faults: Vec<String>,
}

/// The requests of one priority, with `--streams`.
#[derive(Clone, Debug, Serialize)]
pub struct StreamReport {
    /// The priority as it went into the requests, in hexadecimal.
    pub priority: String,
    /// Their measurements.
    #[serde(flatten)]
    pub all: Summary,
}

/// One target.
#[derive(Clone, Debug, Serialize)]
pub struct TargetReport {
    /// Its URI or path.
    pub target: String,
    /// The disk's size in bytes.
    pub disk_size: u64,
    /// Seconds counted.
    pub seconds: f64,
    /// Everything together.
    pub all: Summary,
    /// Reads.
    pub reads: Summary,
    /// Writes and write-zeroes.
    pub writes: Summary,
    /// Flushes.
    pub flushes: Summary,
    /// By priority, with `--streams`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamReport>,
    /// Requests that failed, by the server's code: an NBD error number or a virtio-blk status.
    pub errors: BTreeMap<u32, u64>,
    /// Why the load of this target ended early.
    pub failure: Option<String>,
    /// Set with `--verify`.
    pub verification: Option<Verification>,
    /// How a recording was replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replayed>,
    /// Deaths of the server survived.
    pub reconnects: u64,
    /// CPU seconds of the loading thread, warm-up and checks included.
    pub client_cpu_seconds: f64,
    /// One entry per second.
    pub series: Vec<Second>,
    #[serde(skip)]
    sum: Tally,
}

impl TargetReport {
    pub(crate) fn new(
        target: &Target,
        info: DiskInfo,
        worker: &Worker<'_>,
        failure: Option<Failure>,
    ) -> TargetReport {
        let meter = &worker.meter;
        let measured = meter.measured();
        let sum = meter.all();
        TargetReport {
            target: target.to_string(),
            disk_size: info.size,
            seconds: measured.as_secs_f64(),
            all: Summary::of(&sum, measured),
            reads: Summary::of(&meter.reads, measured),
            writes: Summary::of(&meter.writes, measured),
            flushes: Summary::of(&meter.flushes, measured),
            streams: meter
                .streams
                .iter()
                .map(|(priority, tally)| StreamReport {
                    priority: priority.to_string(),
                    all: Summary::of(tally, measured),
                })
                .collect(),
            errors: meter.errors.clone(),
            failure: failure.map(|f| f.to_string()),
            verification: worker.verifier.as_ref().map(|v| Verification {
                blocks_checked: v.checked,
                faults: v.fault_count,
                first_faults: v.faults.iter().map(ToString::to_string).collect(),
            }),
            replay: worker.demand.replayed(),
            reconnects: worker.reconnects,
            client_cpu_seconds: crate::cpu::of_this_thread().as_secs_f64(),
            series: meter.series.clone(),
            sum,
        }
    }

    /// Requests that failed.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Did everything go as it must.
    pub fn is_clean(&self) -> bool {
        let verified = self.verification.as_ref().is_none_or(|v| v.faults == 0);
        self.failure.is_none() && self.errors.is_empty() && verified
    }
}

/// The whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Every target.
    pub targets: Vec<TargetReport>,
    /// All targets together: sums of rates, latencies of all requests.
    pub total: Summary,
    /// Requests that failed, all targets.
    pub errors: u64,
    /// CPU seconds of the processes named with `--server-pid`, while requests counted.
    pub server_cpu_seconds: Option<f64>,
    /// The same per million requests.
    pub server_cpu_seconds_per_million: Option<f64>,
    /// The seed that repeats the requests.
    pub seed: u64,
    /// The results of `--hostile`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hostile: Vec<ScenarioReport>,
    /// Whether Ctrl-C ended the run.
    pub interrupted: bool,
}

impl Report {
    pub(crate) fn new(
        targets: Vec<TargetReport>,
        servers: Option<Duration>,
        seed: u64,
        interrupted: bool,
    ) -> Report {
        let mut latency: Histogram<u64> = histogram(3);
        let mut total = Summary::default();
        for target in &targets {
            total.ios += target.all.ios;
            total.iops += target.all.iops;
            total.bytes_per_second += target.all.bytes_per_second;
            latency.add(&target.sum.latency).expect("all histograms have the same bounds");
        }
        total.latency = Latency::of(&latency);
        let server_cpu_seconds = servers.map(|d| d.as_secs_f64());
        let millions = total.ios as f64 / 1e6;
        Report {
            errors: targets.iter().map(TargetReport::error_count).sum(),
            server_cpu_seconds,
            server_cpu_seconds_per_million: server_cpu_seconds
                .filter(|_| total.ios > 0)
                .map(|s| s / millions),
            targets,
            total,
            seed,
            hostile: Vec::new(),
            interrupted,
        }
    }

    /// 0 when no request failed, no server failed, no block held what it must not, and no attack
    /// harmed others; else 1.
    pub fn exit_code(&self) -> u8 {
        let withstood = self.hostile.iter().all(|s| s.failure.is_none());
        u8::from(!withstood || !self.targets.iter().all(TargetReport::is_clean))
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("the report has only string keys and finite numbers")
    }
}

/// Prints the attacks, the table, and the failures.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for scenario in &self.hostile {
            writeln!(f, "{scenario}")?;
        }
        let width =
            self.targets.iter().map(|t| t.target.len()).max().unwrap_or(0).max("target".len());
        writeln!(
            f,
            "{:width$} {:>10} {:>9} {:>10} {:>10} {:>10} {:>10} {:>7}",
            "target", "IOPS", "MiB/s", "p50", "p99", "p99.9", "max", "errors"
        )?;
        let mut row = |name: &str, s: &Summary, errors: u64| {
            let Latency { p50_ns, p99_ns, p999_ns, max_ns, .. } = s.latency;
            let [p50, p99, p999, max] =
                [p50_ns, p99_ns, p999_ns, max_ns].map(|n| Nanos(n).to_string());
            let mib = s.bytes_per_second / f64::from(1 << 20);
            writeln!(
                f,
                "{name:width$} {:>10.0} {mib:>9.1} {p50:>10} {p99:>10} {p999:>10} {max:>10} {errors:>7}",
                s.iops
            )
        };
        for target in &self.targets {
            row(&target.target, &target.all, target.error_count())?;
            for stream in &target.streams {
                row(&format!("  {}", stream.priority), &stream.all, 0)?;
            }
        }
        if self.targets.len() > 1 {
            row("total", &self.total, self.errors)?;
        }
        let client: f64 = self.targets.iter().map(|t| t.client_cpu_seconds).sum();
        write!(f, "client CPU {client:.2} s")?;
        if let (Some(s), Some(per)) = (self.server_cpu_seconds, self.server_cpu_seconds_per_million)
        {
            write!(f, ", server CPU {s:.2} s ({per:.2} s per million)")?;
        }
        writeln!(f, ", seed {}{}", self.seed, if self.interrupted { ", interrupted" } else { "" })?;
        for target in &self.targets {
            if let Some(Replayed { requests, split, moved, left_out }) = target.replay {
                writeln!(
                    f,
                    "{}: {requests} recorded requests replayed, {split} of them in parts, {moved} moved onto the disk; {left_out} \
                     left out",
                    target.target
                )?;
            }
            if target.reconnects > 0 {
                writeln!(f, "{}: connected anew {} times", target.target, target.reconnects)?;
            }
            for (code, count) in &target.errors {
                writeln!(f, "{}: {count} requests failed with code {code}", target.target)?;
            }
            if let Some(v) = &target.verification {
                writeln!(
                    f,
                    "{}: {} blocks checked, {} wrong",
                    target.target, v.blocks_checked, v.faults
                )?;
                for fault in &v.first_faults {
                    writeln!(f, "  {fault}")?;
                }
            }
            if let Some(failure) = &target.failure {
                writeln!(f, "{}: FAILED: {failure}", target.target)?;
            }
        }
        Ok(())
    }
}
