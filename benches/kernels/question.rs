//! What is asked of a scheduler, and what the answer is worth.
//!
//! The questions are after isol-bench (*Does Linux Provide Performance Isolation for NVMe SSDs?*,
//! IISWC 2025): fairness, priority against utilisation, latency, and response to bursts.

use crate::contender::Contender;
use anyhow::{Context, ensure};
use std::fmt::Write;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Question {
    /// Four tenants of equal weight that keep 16, 32, 64 and 128 requests outstanding.
    Depths,
    /// A tenant that keeps 4 requests outstanding beside three that keep 64, of equal weight.
    Shallow,
    /// Four tenants of equal weight, two of which send requests of 64 KiB.
    Sizes,
    /// Three tenants of weights 1, 2 and 4.
    Weights,
    /// A tenant that sends 100 requests per second at random beside one that saturates.
    Latency,
    /// A tenant that comes back after idleness beside one that saturates, of equal weight.
    Burst,
}

/// Who asks for storage.
#[derive(Clone, Copy, Debug)]
pub struct Tenant {
    /// Its part in proportion.
    pub weight: u32,
    /// What Headgate reserves for it; the kernel has no such thing.
    pub reservation: u32,
    /// Requests outstanding.
    pub depth: u32,
    /// Size of a request in KiB.
    pub kib: u32,
}

/// Requests per second of the light tenant, at random.
const LIGHT: u32 = 100;
/// Processes of the light tenant: one that waits in the kernel to hand in a request must not hold
/// up all others.
const LIGHT_JOBS: u32 = 4;
/// When the bursty tenant comes back, in seconds.
const BACK: u32 = 5;
/// For how long, in seconds.
const BURST: u32 = 4;
/// What is counted begins so long after the start, in milliseconds, and all jobs run on so long
/// after its end: they do not start and stop at the same instant.
const SETTLE: f64 = 1_500.0;
const TAIL: u32 = 1;
/// Seconds at its share that the bursty tenant's first requests stand for.
const FIRST: f64 = 0.5;

const fn tenant(weight: u32, depth: u32, kib: u32) -> Tenant {
    Tenant { weight, reservation: 0, depth, kib }
}

impl Question {
    /// All of them, in the order of the table.
    pub const ALL: [Question; 6] = [
        Question::Depths,
        Question::Shallow,
        Question::Sizes,
        Question::Weights,
        Question::Latency,
        Question::Burst,
    ];

    /// The column's head.
    pub fn column(self) -> &'static str {
        match self {
            Question::Depths => "fairness, depths 16 to 128: worst error %",
            Question::Shallow => "depth 4 beside 64: its part of its share %",
            Question::Sizes => "fairness, 4 and 64 KiB: worst error %",
            Question::Weights => "weights 1:2:4: worst error %",
            Question::Latency => "100 IOPS beside a saturating tenant: p99 ms",
            Question::Burst => "first half second's worth after idleness: ms",
        }
    }

    /// The tenants.
    pub fn tenants(self) -> Vec<Tenant> {
        match self {
            Question::Depths => {
                vec![tenant(1, 16, 4), tenant(1, 32, 4), tenant(1, 64, 4), tenant(1, 128, 4)]
            }
            Question::Shallow => {
                // Nine tenths of a quarter of the rate that the bench has by default.
                let shallow = Tenant { reservation: 225, ..tenant(1, 4, 4) };
                vec![shallow, tenant(1, 64, 4), tenant(1, 64, 4), tenant(1, 64, 4)]
            }
            Question::Sizes => {
                vec![tenant(1, 32, 4), tenant(1, 32, 4), tenant(1, 32, 64), tenant(1, 32, 64)]
            }
            Question::Weights => vec![tenant(1, 32, 4), tenant(2, 32, 4), tenant(4, 32, 4)],
            Question::Latency => {
                let light = Tenant { reservation: 2 * LIGHT, ..tenant(4, 16, 4) };
                vec![light, tenant(1, 64, 4)]
            }
            Question::Burst => vec![tenant(1, 32, 4), tenant(1, 64, 4)],
        }
    }

    /// Seconds that are counted.
    fn seconds(self) -> u32 {
        match self {
            Question::Latency => 12,
            Question::Burst => BACK + BURST,
            _ => 6,
        }
    }

    /// Seconds that fio runs for.
    fn run_time(self) -> u32 {
        match self {
            Question::Burst => self.seconds(),
            _ => self.seconds() + (SETTLE / 1e3).ceil() as u32 + TAIL,
        }
    }

    /// Seconds that a run may take.
    pub fn patience(self) -> u64 {
        u64::from(self.run_time()) + 60
    }

    /// The script that runs fio and prints its logs: for each tenant a line with its name, and a
    /// line for each request.
    pub fn script(self, contender: Contender) -> String {
        let mut jobs = String::from(
            "[global]\nioengine=libaio\ndirect=1\nrw=randread\nnorandommap=1\n\
             random_generator=tausworthe64\nrandrepeat=0\nsize=1g\ntime_based=1\n\
             cgroup_nodelete=1\n",
        );
        let all = format!("runtime={}", self.run_time());
        for (number, tenant) in self.tenants().iter().enumerate() {
            let mut job = |name: &str, more: &str| {
                let _ = writeln!(
                    jobs,
                    "[{name}]\nwrite_lat_log=/tmp/log-{name}\nfilename=/dev/{}\nbs={}k\n\
                     iodepth={}\n{}\n{}\n{more}",
                    contender.disk(number),
                    tenant.kib,
                    tenant.depth,
                    contender.priority(tenant),
                    match contender.window() {
                        Some(_) => String::new(),
                        None => format!("cgroup=t{number}"),
                    },
                );
            };
            match (self, number) {
                (Question::Latency, 0) => {
                    let rate = LIGHT / LIGHT_JOBS;
                    let open = "rate_process=poisson";
                    job("t0", &format!("{all}\nnumjobs={LIGHT_JOBS}\nrate_iops={rate}\n{open}"));
                }
                (Question::Burst, 0) => {
                    job("before", "runtime=1");
                    job("t0", &format!("startdelay={BACK}\nruntime={BURST}"));
                }
                (_, number) => job(&format!("t{number}"), &all),
            }
        }
        format!(
            "cd /tmp\nrm -f log-*\ncat >jobs <<'JOBS'\n{jobs}JOBS\n\
             fio jobs >said 2>&1 || {{ cat said; exit 1; }}\n\
             for log in log-*_lat.*.log; do echo $log; cut -d , -f 1,2 $log; done\n"
        )
    }

    /// What the logs say.
    ///
    /// # Errors
    /// A log is no log, or a tenant did nothing.
    pub fn answer(self, output: &str, rate: u32) -> anyhow::Result<Answer> {
        let logs = Log::all(output)?;
        let length = f64::from(self.seconds());
        let (from, to) = match self {
            Question::Burst => (0.0, length * 1e3),
            _ => (SETTLE, SETTLE + length * 1e3),
        };
        let of = |name: &str| -> Vec<Log> {
            let within = |log: &&Log| log.job == name && log.time >= from && log.time < to;
            logs.iter().filter(within).cloned().collect()
        };
        let names = (0..self.tenants().len()).map(|tenant| format!("t{tenant}"));
        let tenants: Vec<Vec<Log>> = names.map(|name| of(&name)).collect();
        let shares: Vec<f64> = tenants.iter().map(|log| log.len() as f64 / length).collect();
        let (Some(first), total) = (tenants.first(), shares.iter().sum::<f64>()) else {
            anyhow::bail!("no tenants");
        };
        ensure!(total > 0.0, "nobody did anything: {output}");
        let before = of("before").len() as f64 / length;
        let value = match self {
            Question::Depths | Question::Sizes | Question::Weights => {
                worst_error(&shares, &self.tenants())
            }
            Question::Shallow => first.len() as f64 / length / total * shares.len() as f64 * 100.0,
            Question::Latency => {
                let times: Vec<f64> = first.iter().map(|log| log.took).collect();
                ensure!(times.len() > 500, "too few requests for a p99: {}", times.len());
                rank(times, (first.len() * 99).div_ceil(100))
            }
            Question::Burst => {
                let times: Vec<f64> = first.iter().map(|log| log.time).collect();
                let wanted = (FIRST * f64::from(rate) / 2.0) as usize;
                // Fewer in all of its time is worse than any time there could be.
                let all = times.len() >= wanted;
                if all { rank(times, wanted) } else { f64::from(BURST) * 1e3 }
            }
        };
        Ok(Answer { value, used: (total + before) / f64::from(rate), shares })
    }
}

/// One request, as fio's log of latencies has it.
#[derive(Clone, Debug)]
struct Log {
    job: String,
    /// Of its completion, in milliseconds since the job began.
    time: f64,
    /// From the attempt to hand it in to its completion, in milliseconds.
    took: f64,
}

impl Log {
    fn all(output: &str) -> anyhow::Result<Vec<Log>> {
        let (mut logs, mut job) = (Vec::new(), None);
        for line in output.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(name) = line.strip_prefix("log-") {
                job = name.split('_').next();
                continue;
            }
            let wrong = || format!("no line of a log: {line}");
            let (time, took) = line.split_once(',').with_context(wrong)?;
            let number = |text: &str| text.trim().parse::<f64>().with_context(wrong);
            let job = job.with_context(wrong)?.to_owned();
            logs.push(Log { job, time: number(time)?, took: number(took)? / 1e6 });
        }
        Ok(logs)
    }
}

/// The value of this rank, the least being 1; the last where there are fewer.
fn rank(mut values: Vec<f64>, rank: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get(rank.saturating_sub(1).min(last)).copied().unwrap_or(f64::NAN)
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// In the column's unit.
    pub value: f64,
    /// Requests of all tenants as a part of what the storage can serve.
    pub used: f64,
    /// Requests per second of each tenant.
    pub shares: Vec<f64>,
}

/// The largest distance of a tenant from its part of what all got, in per cent of that part.
fn worst_error(shares: &[f64], tenants: &[Tenant]) -> f64 {
    let weights: u32 = tenants.iter().map(|tenant| tenant.weight).sum();
    let total: f64 = shares.iter().sum();
    let error = |(got, tenant): (&f64, &Tenant)| {
        let due = total * f64::from(tenant.weight) / f64::from(weights);
        (got / due - 1.0).abs() * 100.0
    };
    shares.iter().zip(tenants).map(error).fold(0.0, f64::max)
}
