//! What part of the storage's highest rate is reached at a latency, from rates at three of them.
//!
//! The rate X that storage does at a mean latency L tends to a highest one. Storage whose latency
//! grows by as much with each request in flight, `L = L0 + N·s` (Pesto and BASIL model arrays so),
//! does X = (1 - L0/L)/s: from L to r·L to r²·L the gains shrink by the factor 1/r. Storage with a
//! sharper knee has gains that shrink faster. So with the gains g and g' of two steps, the rest of
//! the way is g'·q/(1 - q) where q = g'/g, at most 1/r: Aitken's Δ² extrapolation of a geometric
//! sequence.

use super::slots::{MILLION, ratio};
use headgate_units::Nanos;

/// How many latencies a round tries.
pub(super) const LEVELS: usize = 3;

/// The good rounds of a trial.
pub(super) const ROUNDS: usize = 8;

/// A latency is so many thirds of the one below.
const STEP: (u64, u64) = (4, 3);

/// The base of a trial, and the two latencies above it.
pub(super) fn levels(base: Nanos) -> [Nanos; LEVELS] {
    let above = |latency: Nanos| Nanos(ratio(latency.0, STEP.0, STEP.1));
    [base, above(base), above(above(base))]
}

/// The rates of a trial's rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    /// Each level's part of the round's rates, in millionths: what all levels of a round did more
    /// than those of another is the load's doing.
    parts: [[u64; LEVELS]; ROUNDS],
    count: usize,
}

/// What the rounds of a trial say of the base, in millionths of the highest rate: all of them, and
/// each half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) all: u64,
    pub(super) halves: [u64; 2],
}

impl Rounds {
    pub(super) fn push(&mut self, rates: [u64; LEVELS]) {
        let sum = rates.iter().fold(0, |sum: u64, rate| sum.saturating_add(*rate));
        if let Some(place) = self.parts.get_mut(self.count) {
            *place = rates.map(|rate| ratio(rate, MILLION, sum));
            self.count += 1;
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == ROUNDS
    }

    pub(super) fn estimate(&self) -> Estimate {
        let of = |first: usize, step: usize| {
            let level = |level: usize| {
                let rounds = self.parts[..self.count].iter().skip(first).step_by(step);
                inner_sum(rounds.map(|parts| parts[level]))
            };
            part_of_peak([level(0), level(1), level(2)])
        };
        Estimate { all: of(0, 1), halves: [of(0, 2), of(1, 2)] }
    }
}

/// The sum without the quarters of the lowest and of the highest: one burst says nothing.
fn inner_sum(values: impl Iterator<Item = u64>) -> u64 {
    let (mut sorted, mut count) = ([u64::MAX; ROUNDS], 0);
    for (place, value) in sorted.iter_mut().zip(values) {
        (*place, count) = (value, count + 1);
    }
    sorted[..count].sort_unstable();
    let cut = count / 4;
    sorted[cut..count - cut].iter().sum()
}

/// What part of the rate that the curve tends to its first point has, in millionths.
fn part_of_peak([base, up, top]: [u64; LEVELS]) -> u64 {
    let (gain, next) = (up.saturating_sub(base), top.saturating_sub(up));
    let peak = match (gain, next) {
        // Past the knee: what differs is noise.
        (_, 0) => base.max(up.midpoint(top)),
        (0, _) => base.max(top),
        // q is at most 3/4, and so q/(1 - q) at most 3.
        _ if next.saturating_mul(STEP.0) >= gain.saturating_mul(STEP.1) => top + 3 * next,
        _ => top + ratio(next, next, gain - next),
    };
    ratio(base, MILLION, peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate at a mean latency of storage with a way of `way` there and back and one server of
    /// exponential times of 1, by mean value analysis; the highest is 1.
    fn one_server(way: f64) -> impl Fn(f64) -> f64 {
        move |latency| {
            let (mut queue, mut before) = (0.0, (0.0, way));
            for n in 1..10_000 {
                let time = way + 1.0 + queue;
                let rate = f64::from(n) / time;
                queue = rate * (1.0 + queue);
                if time >= latency {
                    let part = (latency - before.1) / (time - before.1);
                    return before.0 + part * (rate - before.0);
                }
                before = (rate, time);
            }
            1.0
        }
    }

    /// Where the curve itself says that the latency does `part` of its highest rate.
    fn latency_at(rate: &impl Fn(f64) -> f64, part: f64) -> f64 {
        (1..1_000_000).map(|n| f64::from(n) / 100.0).find(|l| rate(*l) >= part).unwrap()
    }

    #[test]
    fn the_part_of_the_peak_is_what_the_curve_says() {
        let linear = |latency: f64| (1.0 - 1.0 / latency).max(0.0);
        // Ten balanced disks and no way: X = N/(N + 9), L = N + 9.
        let disks = |latency: f64| ((latency - 9.0) / latency).max(0.0);
        let check = |rate: &dyn Fn(f64) -> f64, part: f64, base: f64| {
            let at = levels(Nanos((base * 1e6) as u64)).map(|l| rate(l.0 as f64 / 1e6));
            let found = part_of_peak(at.map(|rate| (rate * 1e6) as u64)) as f64 / 1e6;
            let truth = rate(base);
            assert!((found - truth).abs() < 0.02, "{found} of {truth}, sought {part}");
        };
        for part in [0.8, 0.87, 0.9, 0.93, 0.97] {
            check(&linear, part, latency_at(&linear, part));
            check(&disks, part, latency_at(&disks, part));
            for way in [2.0, 5.0, 10.0, 50.0] {
                let server = one_server(way);
                check(&server, part, latency_at(&server, part));
            }
        }
    }

    #[test]
    fn a_burst_in_one_round_says_nothing_and_load_that_grows_says_nothing() {
        let curve = [900u64, 925, 944];
        let mut rounds = Rounds::default();
        for round in 0..ROUNDS as u64 {
            let burst = if round == 3 { 5_000 } else { 0 };
            rounds.push([
                curve[0] * (10 + round) + burst,
                curve[1] * (10 + round),
                curve[2] * (10 + round),
            ]);
        }
        assert!(rounds.is_full());
        let Estimate { all, halves } = rounds.estimate();
        assert!(all.abs_diff(900_000) < 2_000, "{all}");
        assert!(halves.iter().all(|half| half.abs_diff(900_000) < 2_000), "{halves:?}");
    }

    #[test]
    fn no_rates_hurt() {
        let values = [0, 1, 7, u64::MAX / 2, u64::MAX];
        for a in values {
            for b in values {
                for c in values {
                    let mut rounds = Rounds::default();
                    (0..ROUNDS + 2).for_each(|_| rounds.push([a, b, c]));
                    assert!(rounds.estimate().all <= MILLION, "{a} {b} {c}");
                }
            }
        }
    }
}
