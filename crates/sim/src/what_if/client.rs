//! What clients did, judged by what is kept of them.

use super::record::{DiskRecord, PeriodRecord};
use headgate_units::Nanos;

/// How a disk's clients send requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadKind {
    /// They keep requests outstanding, perhaps with pauses: who is served sooner sends more.
    Closed {
        /// How many more take part than are outstanding on average, at least 1: the others pause.
        population: f64,
    },
    /// Requests come by themselves, however slow the storage is.
    Open,
}

/// Below this part of what random arrivals vary by, the number outstanding is kept by somebody.
const KEPT: f64 = 0.25;
/// Who has requests queued most of the time and varies by less than this has no pauses: what varies
/// is how late clients answer.
const STEADY: f64 = 0.015;
/// The same of who varies as much as arrivals would: those would vary more where they wait.
const VARYING: f64 = 0.1;
/// A loop has up to five times as many clients as are waiting.
const PART_MAX: f64 = 0.64;
/// Intervals below which nothing is said of how a number varies.
const LEAST: usize = 4;

impl LoadKind {
    /// By how the number outstanding varies from interval to interval. Random arrivals of rate λ
    /// vary it by the square root of 2/(λT) of itself at least, over intervals of T; a loop of K
    /// clients, of which N are waiting on average, by (1 - N/K) of that; and one without pauses not
    /// at all. `None`: it asked for nothing.
    pub(super) fn of(disk: &DiskRecord, lengths: &[Nanos]) -> Option<LoadKind> {
        if disk.requests() == 0 {
            return None;
        }
        let waited = disk.waited();
        let queued = 1.0 - waited.device as f64 / waited.total().max(1.0);
        let Some((variation, expected)) = variation(disk, lengths) else {
            let population = 1.0;
            return Some(if queued > 0.5 {
                LoadKind::Closed { population }
            } else {
                LoadKind::Open
            });
        };
        let part = variation / expected;
        let is_kept = part < KEPT || (queued > 0.5 && variation < VARYING * VARYING);
        Some(match is_kept {
            true if queued > 0.5 && variation < STEADY * STEADY => {
                LoadKind::Closed { population: 1.0 }
            }
            true => LoadKind::Closed { population: 1.0 / (1.0 - libm::sqrt(part.min(PART_MAX))) },
            false => LoadKind::Open,
        })
    }

    /// What the clients of a disk do in an interval of a period, or in all of it.
    pub(super) fn in_interval(
        self,
        period: &PeriodRecord,
        length: Nanos,
        interval: Option<usize>,
    ) -> Sending {
        let mean = period.mean_outstanding(length);
        let rate = period.rate(length);
        let (outstanding, rate) = match interval.and_then(|n| period.outstanding.get(n)) {
            Some(&now) if is_told(period, length) => {
                let sum: f64 = period.outstanding.iter().map(|n| f64::from(*n)).sum();
                let usual = sum / period.outstanding.len() as f64;
                let now = f64::from(now);
                (now, if usual > 0.0 { rate * now / usual } else { rate })
            }
            _ => (mean, rate),
        };
        if outstanding < 1e-4 || rate <= 0.0 {
            return Sending::Nothing;
        }
        match self {
            LoadKind::Open => Sending::Open { gap: Nanos((1e9 / rate) as u64) },
            LoadKind::Closed { population } => {
                let clients = libm::ceil(outstanding - 0.05)
                    .max(libm::round(outstanding * population))
                    .clamp(1.0, f64::from(CLIENTS_MAX));
                let pause = ((clients - outstanding) / rate * 1e9).max(0.0);
                Sending::Closed { clients: clients as u32, pause: Nanos(pause as u64) }
            }
        }
    }
}

/// The most that a closed loop keeps outstanding.
const CLIENTS_MAX: u32 = 4_096;

/// What a disk's clients do for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    Nothing,
    Open {
        /// The mean time between two requests.
        gap: Nanos,
    },
    Closed {
        clients: u32,
        /// The mean pause from a completion to the next request.
        pause: Nanos,
    },
}

/// Whether a period's intervals count what waited for limits, too: those of a disk at its limit
/// leave that out.
fn is_told(period: &PeriodRecord, length: Nanos) -> bool {
    let sum: f64 = period.outstanding.iter().map(|n| f64::from(*n)).sum();
    let usual = sum / period.outstanding.len().max(1) as f64;
    let mean = period.mean_outstanding(length);
    usual > 0.0 && (mean - usual).abs() <= 0.25 * mean
}

/// The squared variation of the number outstanding from one interval to the next, relative to its
/// mean, and that which random arrivals would have at least; `None` where too little is known.
/// The greatest tenth of steps is left out, so that a few from one load to another count for
/// nothing.
fn variation(disk: &DiskRecord, lengths: &[Nanos]) -> Option<(f64, f64)> {
    let (mut steps, mut expected) = (Vec::new(), Vec::new());
    for (period, &length) in disk.periods.iter().zip(lengths) {
        if period.requests() == 0 || !is_told(period, length) {
            continue;
        }
        let each = period.requests() as f64 / period.outstanding.len() as f64;
        for pair in period.outstanding.windows(2) {
            let (a, b) = (f64::from(pair[0]), f64::from(pair[1]));
            if a.min(b) <= 0.05 * a.max(b) {
                continue;
            }
            let step = (b - a) / ((a + b) / 2.0);
            steps.push(step * step);
            expected.push(2.0 / each.max(1.0));
        }
    }
    if steps.len() < LEAST {
        return None;
    }
    steps.sort_by(f64::total_cmp);
    let kept = steps.len() - steps.len() / 10;
    let mean = steps.iter().take(kept).sum::<f64>() / kept as f64;
    // A step has twice the variance of a value. Of a squared normal variable, the mean below its
    // 90th percentile is 0.623 of the whole.
    let whole = if kept < steps.len() { 0.623 } else { 1.0 };
    Some((mean / 2.0 / whole, median(&mut expected)))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
