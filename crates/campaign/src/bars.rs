//! How good is good enough, and where it is not today.

use crate::class::Class;
use crate::judge::{Measure, Score};

/// A bound on a measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Its name in tables.
    pub name: &'static str,
    /// What is bounded.
    pub measure: Measure,
    /// Of how many samples: 1 for all.
    pub part: f64,
    /// The most.
    pub most: f64,
}

/// What is asked of every class.
pub const BARS: [Bar; 11] = [
    // Wherever the reservations fit into what the storage delivered.
    Bar { name: "reservation-5s", measure: Measure::Reservation5, part: 1.0, most: 0.01 },
    // 99 % of the reservation in 99.99 % of all seconds.
    Bar { name: "reservation-1s", measure: Measure::Reservation1, part: 0.9999, most: 0.01 },
    // Where they do not fit they are shares.
    Bar { name: "shortage", measure: Measure::Shortage5, part: 0.99, most: 0.02 },
    Bar { name: "limit-over", measure: Measure::Over5, part: 1.0, most: 0.01 },
    Bar { name: "limit-short", measure: Measure::Limited5, part: 1.0, most: 0.02 },
    Bar { name: "shares", measure: Measure::Share5, part: 0.99, most: 0.02 },
    Bar { name: "floor", measure: Measure::Floor5, part: 1.0, most: 0.02 },
    // A window of requests stands before each that is dispatched.
    Bar { name: "late", measure: Measure::Late, part: 1.0, most: 1.1 },
    Bar { name: "turns", measure: Measure::Turns5, part: 1.0, most: 0.02 },
    // Decision 52: no more than a tenth above the target, and 90 % of the storage's rate or more.
    Bar { name: "target", measure: Measure::Target, part: 1.0, most: 0.1 },
    Bar { name: "target-loss", measure: Measure::TargetLoss, part: 1.0, most: 0.1 },
];

impl Bar {
    /// What a score has in the place of the bound; `None` where nothing was measured.
    pub fn value(&self, score: &Score) -> Option<f64> {
        score.of(self.measure).quantile(self.part)
    }

    /// Whether a score is within the bound. Nothing measured is nothing missed.
    pub fn is_met(&self, score: &Score) -> bool {
        self.value(score).is_none_or(|value| value <= self.most)
    }
}

/// Seeds of each class that the ratchet is made of, from 0 on.
pub const RATCHET_SEEDS: u64 = 20;

/// A bar that a class misses today, with the figure over [`RATCHET_SEEDS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnownMiss(pub Class, pub &'static str, pub f64);

/// Bars missed today. An entry may sink and never rise, and goes when its bar is met.
/// `campaign --ratchet` prints what it would be.
pub const KNOWN_MISSES: &[KnownMiss] = &[
    KnownMiss(Class::Collection, "shares", 0.0554),
    KnownMiss(Class::Swing, "limit-short", 0.0250),
    KnownMiss(Class::Directions, "limit-short", 0.0218),
];

/// What is wrong with [`KNOWN_MISSES`], given the score of a class over [`RATCHET_SEEDS`].
pub fn ratchet(class: Class, score: &Score) -> Vec<String> {
    let mut wrong = Vec::new();
    for bar in &BARS {
        let known = KNOWN_MISSES.iter().find(|miss| miss.0 == class && miss.1 == bar.name);
        let value = bar.value(score).unwrap_or(0.0);
        match known {
            None if bar.is_met(score) => {}
            None => wrong.push(format!(
                "{class} misses {}: {value:.4} where {} is the most",
                bar.name, bar.most
            )),
            Some(_) if bar.is_met(score) => wrong.push(format!(
                "{class} meets {} with {value:.4}: take it off the known misses",
                bar.name
            )),
            Some(miss) if value > miss.2 * 1.001 => wrong.push(format!(
                "{class} got worse at {}: {value:.4}, recorded is {}",
                bar.name, miss.2
            )),
            Some(_) => {}
        }
    }
    wrong
}

/// The entries of [`KNOWN_MISSES`] that a score asks for, as code.
pub fn entries(class: Class, score: &Score) -> Vec<String> {
    BARS.iter()
        .filter(|bar| !bar.is_met(score))
        .filter_map(|bar| {
            let value = (bar.value(score)? * 10_000.0).ceil() / 10_000.0;
            Some(format!("    KnownMiss(Class::{class:?}, \"{}\", {value:.4}),", bar.name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Sample;

    #[test]
    fn a_bar_counts_its_part_of_the_samples() {
        let mut score = Score::default();
        for n in 0..100 {
            let error = if n == 0 { 0.5 } else { 0.0 };
            let measure = Measure::Share5;
            score.add(0, &Sample { measure, disk: 0, from: 0, got: 1.0, due: 1.0, error });
        }
        let bar = |name| *BARS.iter().find(|bar| bar.name == name).unwrap();
        assert!(bar("shares").is_met(&score), "one in 100 may be off");
        assert!(bar("floor").is_met(&score), "nothing was measured");
        let measure = Measure::Floor5;
        score.add(0, &Sample { measure, disk: 0, from: 0, got: 1.0, due: 1.0, error: 0.5 });
        assert_eq!(bar("floor").value(&score), Some(0.5));
        assert!(!bar("floor").is_met(&score));
    }
}
