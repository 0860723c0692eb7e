//! Which stretches of the record are simulated, and for how long each.

use super::record::LoadRecord;
use headgate_units::Nanos;

/// A stretch of the record: an interval of a period, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) period: usize,
    pub(super) interval: Option<usize>,
    /// How long it is simulated.
    pub(super) length: Nanos,
}

/// What a run goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) stretches: Vec<Stretch>,
    /// How long the first is simulated before anything is counted.
    pub(super) warm_up: Nanos,
    /// Requests at which a run ends without a result.
    pub(super) most: u64,
}

/// A stretch is simulated for so long at least, if it lasted so long: what a scheduler remembers of
/// the one before is gone by then.
const LEAST: Nanos = Nanos::from_secs(1);
/// From an empty gate until it is counted: a window that gives way to reservations has then found
/// how narrow it is to be.
const WARM_UP: Nanos = Nanos::from_secs(4);
/// Stretches of a run.
const STRETCHES_MAX: u64 = 2_000;

impl Plan {
    /// So much of the record that a run has about `budget` requests: of every stretch a part if
    /// that is a second, else every so many of them.
    pub(super) fn of(record: &LoadRecord, budget: u64) -> Plan {
        let mut all = Vec::new();
        for (period, &length) in record.periods.iter().enumerate() {
            let parts = record.disks.iter().filter_map(|disk| disk.periods.get(period));
            let parts = parts.map(|known| known.outstanding.len()).max().unwrap_or(0);
            let each = Nanos(length.0 / parts.max(1) as u64);
            match parts {
                0 => all.push(Stretch { period, interval: None, length: each }),
                _ => all.extend((0..parts).map(|part| Stretch {
                    period,
                    interval: Some(part),
                    length: each,
                })),
            }
        }
        let part = (budget as f64 / record.requests().max(1) as f64).min(1.0);
        let mean = record.seen().0 as f64 / all.len().max(1) as f64;
        let least = mean.min(LEAST.0 as f64).max(1.0);
        // Every so many stretches, each for so much of its length.
        let by_time = libm::ceil(least / (mean * part).max(1.0)).max(1.0) as u64;
        let step = by_time.max((all.len() as u64).div_ceil(STRETCHES_MAX)).max(1);
        let take = (part * step as f64).min(1.0);
        // From the middle of the first so many.
        let first = (step / 2).min(all.len().saturating_sub(1) as u64);
        let stretches = all
            .into_iter()
            .skip(first as usize)
            .step_by(step as usize)
            .map(|stretch| Stretch {
                length: Nanos(((stretch.length.0 as f64 * take) as u64).max(1)),
                ..stretch
            })
            .collect();
        // Storage of a million a second is warm sooner.
        let rate = record.requests() as f64 / record.seen().as_secs_f64().max(1e-9);
        let all = Nanos((budget as f64 / rate.max(1.0) * 1e9) as u64);
        Plan { stretches, warm_up: WARM_UP.min(all), most: budget.saturating_mul(4) }
    }
}
