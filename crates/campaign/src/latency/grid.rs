//! Many contests, and what came out of each.

use super::contest::{Contest, Outcome};
use super::deadlines::Eligible;
use super::order::Rule;
use super::server::{Pause, Service};
use crate::setup::{Suspect, Withheld};
use anyhow::{Context, Result};
use headgate_qos::SchedulerKind;
use headgate_units::Nanos;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Requests per second of the storage.
pub const RATE: u64 = 1_000;

/// What the neighbour has for the one share of a reserved disk.
pub const SHARES: [u64; 3] = [1, 10, 1_000];

/// What is behind the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// Each request takes 1/T.
    Constant,
    /// 1/T in the mean.
    Exponential,
    /// 1/T, and nothing for 200 ms in each 5 s.
    ShortStalls,
    /// 1/T, and nothing for 500 ms in each 5 s.
    LongStalls,
}

impl Below {
    /// All of them.
    pub const ALL: [Below; 4] =
        [Below::Constant, Below::Exponential, Below::ShortStalls, Below::LongStalls];

    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            Below::Constant => "constant",
            Below::Exponential => "exponential",
            Below::ShortStalls => "stall 0.2 s / 5 s",
            Below::LongStalls => "stall 0.5 s / 5 s",
        }
    }

    fn service(self) -> Service {
        match self {
            Below::Exponential => Service::Exponential,
            _ => Service::Constant,
        }
    }

    fn pause(self) -> Option<Pause> {
        let millis = match self {
            Below::Constant | Below::Exponential => return None,
            Below::ShortStalls => 200,
            Below::LongStalls => 500,
        };
        Some(Pause { time: Nanos::from_millis(millis), period: Nanos::from_secs(5) })
    }
}

/// The disks with a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// One of a tenth of the rate.
    One,
    /// One of a tenth of the rate that asks for half of it.
    OneAtHalf,
    /// 20 that have four fifths of the rate together.
    Twenty,
    /// One of two fifths of the rate, which is counted, beside 20 that have as much together.
    Uneven,
}

impl Reserved {
    /// All of them.
    pub const ALL: [Reserved; 4] =
        [Reserved::One, Reserved::OneAtHalf, Reserved::Twenty, Reserved::Uneven];

    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            Reserved::One => "100 at 80 %",
            Reserved::OneAtHalf => "100 at 50 %",
            Reserved::Twenty => "20 of 40 at 80 %",
            Reserved::Uneven => "400 at 80 %, beside 20 of 20",
        }
    }

    /// Their reservations, those that are counted first.
    pub fn rates(self) -> Vec<u64> {
        match self {
            Reserved::One | Reserved::OneAtHalf => vec![100],
            Reserved::Twenty => vec![40; 20],
            Reserved::Uneven => std::iter::once(400).chain([20; 20]).collect(),
        }
    }
}

/// A contest without its neighbour's shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The storage.
    pub below: Below,
    /// The reserved disks.
    pub reserved: Reserved,
    /// Requests in flight.
    pub window: u32,
}

impl Cell {
    /// Windows.
    pub const WINDOWS: [u32; 4] = [1, 8, 32, 64];

    /// All of them, in the order of the table.
    pub fn all() -> Vec<Cell> {
        let windows = |below, reserved| {
            Cell::WINDOWS.into_iter().map(move |window| Cell { below, reserved, window })
        };
        let reserved =
            |below| Reserved::ALL.into_iter().flat_map(move |reserved| windows(below, reserved));
        Below::ALL.into_iter().flat_map(reserved).collect()
    }

    /// The contest beside a neighbour of so many shares.
    pub fn contest(self, shares: u64, seconds: u64, seed: u64) -> Contest {
        let reserved = self.reserved.rates();
        Contest {
            rate: RATE,
            window: self.window,
            service: self.below.service(),
            pause: self.below.pause(),
            part: if self.reserved == Reserved::OneAtHalf { 0.5 } else { 0.8 },
            neighbour: Some(shares),
            counted: if self.reserved == Reserved::Uneven { 1 } else { reserved.len() },
            reserved,
            seconds,
            seed,
            first: 0,
        }
    }

    /// W/T in milliseconds: what the window may add.
    pub fn slack(self) -> f64 {
        f64::from(self.window) / RATE as f64 * 1e3
    }
}

/// What came out of a cell.
#[derive(Clone, Debug)]
pub struct Row {
    /// Where.
    pub cell: Cell,
    /// Each disk on a device of its own.
    pub alone: Outcome,
    /// Earliest deadline first.
    pub deadline: Outcome,
    /// The same, with no request ahead of its start.
    pub regulated: Outcome,
    /// Order of arrival.
    pub fifo: Outcome,
    /// Headgate, by the neighbour's shares: [`SHARES`].
    pub headgate: Vec<Outcome>,
    /// SFQ(D), by the neighbour's shares.
    pub sfq: Vec<Outcome>,
}

impl Row {
    /// Runs all contests of a cell. `withheld` is what Headgate is not told.
    ///
    /// # Errors
    /// Those of [`Contest::run`].
    pub fn new(cell: Cell, seconds: u64, seed: u64, withheld: Withheld) -> Result<Row> {
        let gate = |kind, withheld| Rule::Gate(Suspect { kind, withheld });
        let contest = |shares| cell.contest(shares, seconds, seed);
        let by_shares = |rule| -> Result<Vec<Outcome>> {
            SHARES.iter().map(|&shares| contest(shares).run(rule)).collect()
        };
        let any = contest(1);
        Ok(Row {
            cell,
            alone: any.alone()?,
            deadline: any.run(Rule::Deadline(Eligible::AtOnce))?,
            regulated: any.run(Rule::Deadline(Eligible::AtStart))?,
            fifo: any.run(gate(SchedulerKind::Fifo, Withheld::Nothing))?,
            headgate: by_shares(gate(SchedulerKind::MClock, withheld))?,
            sfq: by_shares(gate(SchedulerKind::Sfq, Withheld::Nothing))?,
        })
    }

    /// Headgate's p99 beside the neighbour that makes it longest, in milliseconds.
    pub fn worst(&self) -> f64 {
        self.headgate.iter().map(|outcome| outcome.took.quantile(0.99)).fold(0.0, f64::max)
    }

    /// The longest that Headgate completed a request past its deadline, in milliseconds.
    pub fn latest(&self) -> f64 {
        self.headgate.iter().map(|outcome| outcome.late.worst()).fold(0.0, f64::max)
    }

    /// p99 alone and W/T, in milliseconds.
    pub fn bound(&self) -> f64 {
        self.alone.took.quantile(0.99) + self.cell.slack()
    }

    /// Headgate's p99 beside that alone.
    pub fn ratio(&self) -> f64 {
        self.worst() / self.alone.took.quantile(0.99)
    }
}

/// What stays the same in all cells.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Of virtual time, each run.
    pub seconds: u64,
    /// Of arrivals and service times.
    pub seed: u64,
    /// What Headgate is not told.
    pub withheld: Withheld,
}

/// The rows of these cells, the same for any number of `jobs`. Ends early once `stop` is set, with
/// the rows that are done. `progress` hears how many are, and of how many.
///
/// # Errors
/// The first of a cell.
pub fn rows(
    cells: &[Cell],
    terms: Terms,
    jobs: usize,
    stop: &AtomicBool,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Row>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&cell) = cells.get(number) else { return };
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let row = Row::new(cell, terms.seconds, terms.seed, terms.withheld)
                        .with_context(|| format!("{cell:?}"));
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((number, row));
                    progress(done.len(), cells.len());
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|&(number, _)| number);
    done.into_iter().map(|(_, row)| row).collect()
}
