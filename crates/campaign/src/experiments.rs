//! Findings of an outside review of the scheduler, each as a small experiment: what is due beside
//! what is got. They need not pass.

use crate::class::Class;
use crate::record::Record;
use crate::run::run;
use crate::setup::{Conduct, DiskSetup, Load, Mix, Phase, Setup, Sizes, Suspect, policy};
use anyhow::{Context, Result};
use headgate_devices::{ServiceTime, Stall};
use headgate_qos::{CostModel, Policy};
use headgate_units::{Bytes, Iops, Nanos};
use std::fmt::Write;

/// One line of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The experiment.
    pub name: &'static str,
    /// Its set-up.
    pub what: String,
    /// IOPS that the disk is due.
    pub due: f64,
    /// IOPS that it got.
    pub got: f64,
}

impl Row {
    /// What is missing, as a part of what is due; negative where it got more.
    pub fn short(&self) -> f64 {
        (self.due - self.got) / self.due
    }
}

/// A set-up of one phase, or of several rates.
struct Bench {
    window: u32,
    rates: Vec<(u64, usize)>,
    service: ServiceTime,
    stall: Option<Stall>,
    cost_model: CostModel,
    disks: Vec<(Policy, Load, Bytes)>,
}

const SMALL: Bytes = Bytes::from_kib(4);
const DEEP: Load = Load::Queued(64);

impl Bench {
    fn new(window: u32, rate: u64, disks: &[(Policy, Load)]) -> Bench {
        Bench {
            window,
            rates: vec![(rate, 101)],
            service: ServiceTime::Constant,
            stall: None,
            cost_model: CostModel::Unit,
            disks: disks.iter().map(|&(policy, load)| (policy, load, SMALL)).collect(),
        }
    }

    fn setup(&self) -> Result<Setup> {
        let phase = |&(rate, seconds): &(u64, usize)| -> Result<Phase> {
            let disks = self.disks.iter().map(|&(policy, load, _)| (policy, load)).collect();
            Ok(Phase { seconds, rate: Iops::new(rate)?, disks })
        };
        let disk = |&(_, _, size): &(Policy, Load, Bytes)| DiskSetup {
            sizes: Sizes::Fixed(size),
            mix: Mix::Reads,
            conduct: Conduct::Honest,
        };
        Ok(Setup {
            class: Class::Constant,
            seed: 1,
            window: self.window,
            cost_model: self.cost_model,
            latency: Nanos::ZERO,
            service: self.service,
            stall: self.stall,
            settle: 1,
            disks: self.disks.iter().map(disk).collect(),
            phases: self.rates.iter().map(phase).collect::<Result<_>>()?,
        })
    }

    fn run(&self, suspect: Suspect) -> Result<Record> {
        run(&self.setup()?, suspect)
    }

    /// Rates of the disks after the first second.
    fn rates(&self, suspect: Suspect) -> Result<Vec<f64>> {
        let record = self.run(suspect)?;
        Ok((0..self.disks.len()).map(|disk| record.rate(disk, 1, record.seconds.len())).collect())
    }
}

/// All experiments.
///
/// # Errors
/// The set-up is out of range.
pub fn all(suspect: Suspect) -> Result<Vec<Row>> {
    let experiments = [
        limited_disk,
        stalls,
        shallow_stalls,
        large_requests,
        floor,
        low_depth,
        small_requests,
        after_shortage,
        limited_in_stalls,
    ];
    let mut rows = Vec::new();
    for experiment in experiments {
        rows.extend(experiment(suspect)?);
    }
    Ok(rows)
}

/// All experiments as a table in Markdown.
///
/// # Errors
/// Those of [`all`].
pub fn table(suspect: Suspect) -> Result<String> {
    let mut text =
        String::from("| experiment | set-up | due/s | got/s | short % |\n|---|---|---|---|---|\n");
    for row in all(suspect)? {
        let Row { name, what, due, got } = &row;
        let short = row.short() * 100.0;
        writeln!(text, "| {name} | {what} | {due:.1} | {got:.1} | {short:.1} |")?;
    }
    Ok(text)
}

/// Row 2: a disk at its limit beside a large reservation, by service times.
pub fn limited_disk(suspect: Suspect) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (reserved, limit) in [(1_400, 300), (1_600, 200), (1_600, 50), (1_800, 60)] {
        for service in [ServiceTime::Constant, ServiceTime::Exponential { seed: 1 }] {
            let disks = [
                (policy(reserved, 0, 1), DEEP),
                (policy(0, limit, 1_000), DEEP),
                (policy(0, 0, 10), DEEP),
            ];
            let bench = Bench { service, ..Bench::new(32, 2_000, &disks) };
            let kind = match service {
                ServiceTime::Constant => "constant",
                _ => "exponential",
            };
            rows.push(Row {
                name: "row2 limited disk",
                what: format!("rate 2000, {reserved} reserved, limit {limit}, {kind}"),
                due: limit as f64,
                got: *bench.rates(suspect)?.get(1).context("a disk")?,
            });
        }
    }
    Ok(rows)
}

fn stalled(suspect: Suspect, window: u32, load: Load, ms: u64) -> Result<(f64, f64)> {
    let disks = [(policy(400, 0, 1), load), (policy(0, 0, 10), DEEP)];
    let stall = Stall::new(Nanos::from_millis(ms), Nanos::from_secs(5));
    let rates = Bench { stall, ..Bench::new(window, 1_000, &disks) }.rates(suspect)?;
    Ok((*rates.first().context("a disk")?, *rates.get(1).context("a disk")?))
}

/// Row 3: a reservation on storage that stands still once in 5 s.
pub fn stalls(suspect: Suspect) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for ms in [100, 200, 300, 500, 1_000, 2_000] {
        let (reserved, other) = stalled(suspect, 32, DEEP, ms)?;
        let name = "row3 stalls";
        let what = format!("rate 1000, reservation 400, stall {ms} ms in 5 s");
        rows.push(Row { name, what, due: 400.0, got: reserved });
        let what = format!("the other, no reservation, shares 10:1, stall {ms} ms");
        rows.push(Row { name, what, due: reserved + other - 400.0, got: other });
    }
    Ok(rows)
}

/// Row 3: the same where all requests of the reserved disk fit into the window.
pub fn shallow_stalls(suspect: Suspect) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (window, ms) in [(32, 100), (32, 200), (31, 200), (16, 200), (8, 200)] {
        let (got, _) = stalled(suspect, window, Load::Outstanding(32), ms)?;
        rows.push(Row {
            name: "row3 shallow",
            what: format!("depth 32, window {window}, stall {ms} ms in 5 s"),
            due: 400.0,
            got,
        });
    }
    Ok(rows)
}

/// Row 4: a reservation of small requests beside a disk of large ones.
pub fn large_requests(suspect: Suspect) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (rate, window, reservation, mib) in
        [(200, 1, 60, 64), (200, 32, 60, 4), (1_000, 8, 300, 64), (1_000, 32, 300, 64)]
    {
        let other = Bench::new(window, rate, &[(policy(reservation, 0, 1), DEEP)]);
        let mut disks = other.disks.clone();
        disks.push((policy(0, 0, 10), DEEP, Bytes::from_mib(mib)));
        let bench = Bench { disks, cost_model: CostModel::default(), ..other };
        rows.push(Row {
            name: "row4 large requests",
            what: format!("rate {rate}, window {window}, neighbour of {mib} MiB, shares 1:10"),
            due: reservation as f64,
            got: *bench.rates(suspect)?.first().context("a disk")?,
        });
    }
    Ok(rows)
}

/// Row 5: the floor of an unreserved disk beside reserved ones, by their shares.
pub fn floor(suspect: Suspect) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for shares in [1, 10, 30, 100, 1_000, 100_000] {
        let disks = [
            (policy(800, 0, shares), DEEP),
            (policy(700, 0, shares), DEEP),
            (policy(0, 0, 1), DEEP),
        ];
        rows.push(Row {
            name: "row5 floor",
            what: format!("rate 1000, 1500 reserved, shares of the reserved {shares}:1"),
            due: 1_000.0 / 101.0,
            got: *Bench::new(32, 1_000, &disks).rates(suspect)?.get(2).context("a disk")?,
        });
    }
    Ok(rows)
}

/// Row 7: a reservation of a guest with few requests outstanding.
pub fn low_depth(suspect: Suspect) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for depth in [1, 2, 4, 8] {
        let disks = [(policy(100, 0, 1), Load::Outstanding(depth)), (policy(0, 0, 1), DEEP)];
        rows.push(Row {
            name: "row7 low depth",
            what: format!("rate 1000, window 32, reservation 100, depth {depth}"),
            due: 100.0,
            got: *Bench::new(32, 1_000, &disks).rates(suspect)?.first().context("a disk")?,
        });
    }
    Ok(rows)
}

/// Row 8: equal shares of a reserved disk of small requests and one of large requests.
pub fn small_requests(suspect: Suspect) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for mib in [8, 16, 32, 64] {
        let bench = Bench {
            cost_model: CostModel::default(),
            disks: vec![
                (policy(300, 0, 1), DEEP, SMALL),
                (policy(0, 0, 1), DEEP, Bytes::from_mib(mib)),
            ],
            ..Bench::new(8, 1_000, &[])
        };
        let rates = bench.rates(suspect)?;
        let due = rates.iter().sum::<f64>() / 2.0;
        rows.push(Row {
            name: "row8 small requests",
            what: format!("equal shares, reservation 300, neighbour of {mib} MiB: the neighbour"),
            due,
            got: *rates.get(1).context("a disk")?,
        });
    }
    Ok(rows)
}

/// Row 8: what an unreserved disk gets in the 5 s after a shortage of 5 s.
pub fn after_shortage(suspect: Suspect) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for rate in [920u64, 950, 990] {
        let disks = [(policy(900, 0, 1), DEEP), (policy(0, 0, 1), DEEP)];
        let rates = vec![(1_000, 5), (500, 5), (rate, 6)];
        let record = Bench { rates, ..Bench::new(32, 1_000, &disks) }.run(suspect)?;
        rows.push(Row {
            name: "row8 after shortage",
            what: format!("rate {rate} after 500, 900 reserved: seconds 2 to 6"),
            due: rate as f64 - 900.0,
            got: record.rate(1, 11, 16),
        });
    }
    Ok(rows)
}

/// Row 8: a limited disk on storage that stands still 1 s in 5. The limit binds in each second, so
/// 4/5 of it is what is due.
pub fn limited_in_stalls(suspect: Suspect) -> Result<Vec<Row>> {
    let disks = [(policy(0, 300, 10), DEEP), (policy(0, 0, 1), DEEP)];
    let stall = Stall::new(Nanos::from_secs(1), Nanos::from_secs(5));
    let rates = Bench { stall, ..Bench::new(32, 1_000, &disks) }.rates(suspect)?;
    Ok(vec![Row {
        name: "row8 limit in stalls",
        what: "rate 1000, limit 300, stall 1 s in 5 s".to_owned(),
        due: 240.0,
        got: *rates.first().context("a disk")?,
    }])
}
