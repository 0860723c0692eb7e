//! The least squares behind learned costs.

use super::class::IoClass;
use super::factors::{Factors, Matrix, TERMS, Vector, dot};
use super::stretch::Sample;

/// The place of a reference IO's time without its bytes.
const REFERENCE: usize = 0;

/// Costs change by themselves: the variance of a term after a second of the device's time spent on
/// its class, as a part of its square. After a minute it is 2 %.
const DRIFT: f64 = 1e-5;

/// How far from the declared model costs are expected to be, as a part of the reference IO's.
const EXPECTED: f64 = 2.0;

/// A stretch that is this part longer or shorter than expected has half of its weight, and one that
/// differs by more has little.
const SURPRISE: f64 = 0.25;

/// A class of which this part of the requests is, or about, is in use.
const USED: f64 = 1e-3;

/// What had this part of the time, and is known, is expected to stay in proportion.
const IN_USE: f64 = 0.05;

/// The least and the most variance of a second of busy time: no device is as exact as this model.
const NOISE_MIN: f64 = 1e-4;
const NOISE_MAX: f64 = SURPRISE * SURPRISE;
const NOISE_FIRST: f64 = 2.5e-3;

/// Keeps the factors of a matrix from dividing by zero; far below any evidence.
const TINY: f64 = 1e-10;

/// The declared model, fitted to what the device did.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    /// Bytes whose transfer the declared model takes for as long as one request.
    reference: f64,
    /// Nanoseconds of one term of one; 0 before the first stretch.
    unit: f64,
    /// Information, and information times terms.
    information: Matrix,
    seen: Vector,
    /// Times of the terms, in units.
    terms: Vector,
    /// What they are expected to be, as parts of the reference IO's: as declared, until the device
    /// changes.
    expected: Vector,
    /// Variance of a second of busy time, as a part of it.
    noise: f64,
    /// The last surprises in a row of one sign, the latest first; 0 where there are none.
    surprises: [f64; 2],
    /// How often each term occurs in what was sent lately, as the rows of the fit have it: times
    /// terms they add up to about one.
    mix: Vector,
    factors: Factors,
}

impl Fit {
    pub(super) fn new(reference: f64) -> Fit {
        Fit {
            reference,
            unit: 0.0,
            information: [[0.0; TERMS]; TERMS],
            seen: [0.0; TERMS],
            terms: [1.0; TERMS],
            expected: [1.0; TERMS],
            noise: NOISE_FIRST,
            surprises: [0.0; 2],
            mix: [0.0; TERMS],
            factors: Factors::EMPTY,
        }
    }

    /// How often each term occurs in what was sent.
    fn amounts(&self, sent: &Sample) -> Vector {
        let mut amounts = [0.0; TERMS];
        for class in 0..IoClass::COUNT {
            amounts[2 * class] = f64::from(sent.requests[class]);
            amounts[2 * class + 1] = sent.bytes[class] as f64 / self.reference;
        }
        amounts
    }

    /// Takes in a stretch of busy time with at least one request.
    pub(super) fn learn(&mut self, sent: &Sample) -> Device {
        self.rescale();
        let amounts = self.amounts(sent);
        let busy = sent.busy.0 as f64;
        let all: f64 = amounts.iter().sum();
        if all < 1.0 || busy < 1.0 {
            return Device::AsBefore;
        }
        if self.unit == 0.0 {
            self.unit = busy / all;
        }
        let expected = (self.unit * dot(&amounts, &self.terms)).max(1.0);
        let row = amounts.map(|amount| self.unit * amount / expected);
        let seconds = (busy / 1e9).min(4.0);
        let surprise = busy / expected - 1.0;
        let leverage = dot(&row, &self.factors.solve(&row)).clamp(0.0, 1e6);
        let variance = self.noise * (1.0 / seconds + leverage);
        let device = self.judge(surprise, variance);
        let surprise = match device {
            Device::AsBefore => surprise,
            Device::Changed => busy / (self.unit * dot(&amounts, &self.terms)).max(1.0) - 1.0,
        };
        for (mean, now) in self.mix.iter_mut().zip(row) {
            *mean += (now - *mean) / 4.0;
        }
        self.forget(DRIFT * seconds, 0.0);
        let weight = seconds * tame(surprise, variance);
        for (one, &x) in row.iter().enumerate() {
            self.seen[one] += weight * x * (1.0 + surprise);
            for (other, &y) in row.iter().enumerate() {
                self.information[one][other] += weight * x * y;
            }
        }
        self.solve();
        device
    }

    /// Says whether the device still is what it was, by how much a stretch differs from what was
    /// expected and the variance of that.
    fn judge(&mut self, surprise: f64, variance: f64) -> Device {
        let square = surprise * surprise;
        let own = square / variance * self.noise;
        self.noise += (own.min(9.0 * self.noise) - self.noise) / 32.0;
        self.noise = self.noise.clamp(NOISE_MIN, NOISE_MAX);
        let last = self.surprises[0];
        if square <= 9.0 * variance {
            self.surprises = [0.0; 2];
            return Device::AsBefore;
        }
        if last * surprise <= 0.0 {
            self.surprises = [surprise, 0.0];
            return Device::AsBefore;
        }
        if self.surprises[1] == 0.0 {
            self.surprises = [surprise, last];
            return Device::AsBefore;
        }
        let [b, c] = self.surprises;
        self.surprises = [0.0; 2];
        let middle = surprise.max(b.min(c)).min(b.max(c));
        // Everything takes so much longer, until more is known.
        self.unit *= 1.0 + middle.max(-0.9);
        Device::Changed
    }

    /// Makes evidence of what is in use count for less, until the cost of what `signs` puts up is
    /// as uncertain as that.
    pub(super) fn doubt_again(&mut self, signs: &Vector, doubt: f64) {
        if self.doubt(signs).is_some_and(|now| now < doubt / 4.0) {
            let one = self.terms[REFERENCE].max(1e-3);
            for term in 0..TERMS {
                if self.share(term / 2) > IN_USE {
                    self.expected[term] = (self.terms[term] / one).min(64.0);
                }
            }
        }
        let mut drift = DRIFT;
        while drift < 16.0 && self.doubt(signs).is_some_and(|now| now < doubt) {
            drift *= 4.0;
            self.forget(drift, 0.25);
            self.solve();
        }
    }

    /// Takes the terms to have changed a little, each with the use of its class: evidence of what
    /// nobody sends stays. Classes that are in use are taken to have had that part of the time at
    /// least.
    fn forget(&mut self, drift: f64, least: f64) {
        let inverse: Vector = core::array::from_fn(|term| {
            // A class that costs little may come to cost as much as others.
            let size = self.terms[term].max(self.terms[REFERENCE]);
            let used = if self.mix[term - term % 2] > USED { least } else { 0.0 };
            let variance = drift * self.share(term / 2).max(used) * size * size;
            1.0 / (variance / self.noise).max(1e-15)
        });
        // The information A becomes that of a random walk Q further on: A - A(A + 1/Q)^-1·A.
        let mut sum = self.information;
        (0..TERMS).for_each(|term| sum[term][term] += inverse[term]);
        let factors = Factors::of(&sum);
        let known = factors.solve(&self.seen);
        let before = self.information;
        for one in 0..TERMS {
            self.seen[one] -= dot(&before[one], &known);
            let column = factors.solve(&before[one]);
            for other in 0..TERMS {
                self.information[one][other] -= dot(&before[other], &column);
            }
        }
        for one in 0..TERMS {
            for other in 0..one {
                let mean = (self.information[one][other] + self.information[other][one]) / 2.0;
                (self.information[one][other], self.information[other][one]) = (mean, mean);
            }
        }
    }

    /// The terms that explain what was seen, each held to the reference IO's as it is expected, and
    /// none below its bound.
    fn solve(&mut self) {
        let one = self.terms[REFERENCE];
        let least: Vector = core::array::from_fn(|term| match term {
            REFERENCE => 1e-3,
            term if term % 2 == 0 => one * IoClass::ALL[term / 2].least(),
            _ => 0.0,
        });
        let hold = self.noise / (EXPECTED * EXPECTED);
        let mut matrix = self.information;
        for term in (0..TERMS).filter(|term| *term != REFERENCE) {
            let expected = self.expected[term];
            matrix[term][term] += hold + TINY;
            matrix[REFERENCE][REFERENCE] += hold * expected * expected;
            matrix[term][REFERENCE] -= hold * expected;
            matrix[REFERENCE][term] -= hold * expected;
        }
        matrix[REFERENCE][REFERENCE] += TINY;
        self.factors = Factors::of(&matrix);
        let (mut right, mut free) = (self.seen, [true; TERMS]);
        self.terms = self.factors.solve(&right);
        while let Some(below) = (0..TERMS).find(|t| free[*t] && self.terms[*t] < least[*t]) {
            // Held there, it leaves the rest to the others.
            free[below] = false;
            for term in 0..TERMS {
                right[term] -= matrix[term][below] * least[below];
                (matrix[below][term], matrix[term][below]) = (0.0, 0.0);
            }
            (matrix[below][below], right[below]) = (1.0, least[below]);
            self.terms = Factors::of(&matrix).solve(&right);
        }
        if !self.terms.iter().all(|term| term.is_finite()) {
            *self = Fit::new(self.reference);
        }
    }

    /// Keeps the numbers near one while the storage becomes faster or slower.
    fn rescale(&mut self) {
        let mean = self.terms.iter().sum::<f64>() / TERMS as f64;
        if mean <= 0.0 || (0.25..=4.0).contains(&mean) {
            return;
        }
        self.unit *= mean;
        for term in 0..TERMS {
            self.terms[term] /= mean;
            self.seen[term] *= mean;
            self.mix[term] *= mean;
            self.information[term].iter_mut().for_each(|entry| *entry *= mean * mean);
        }
        self.solve();
    }

    /// How uncertain the cost of what `signs` puts up is against what it puts down, as the square
    /// of a part; `None` where that makes no difference to what is sent.
    pub(super) fn doubt(&self, signs: &Vector) -> Option<f64> {
        let shares: Vector = core::array::from_fn(|t| self.mix[t] * self.terms[t]);
        let lean = dot(&shares, signs) / shares.iter().sum::<f64>().max(1e-3);
        let size: f64 = (0..TERMS).map(|t| (shares[t] * (signs[t] - lean)).abs()).sum();
        (size > 0.02).then(|| {
            let moved: Vector = core::array::from_fn(|t| self.mix[t] * (signs[t] - lean));
            let spread = self.noise * dot(&moved, &self.factors.solve(&moved));
            spread.max(0.0) / (size * size)
        })
    }

    /// The time of a request and of each byte, by class, in reference IOs: random reads of
    /// `size` bytes.
    pub(super) fn relative(&self, size: f64) -> ([f64; IoClass::COUNT], [f64; IoClass::COUNT]) {
        let one = self.terms[REFERENCE] + self.terms[REFERENCE + 1] * size / self.reference;
        let one = one.max(1e-6);
        (
            core::array::from_fn(|class| self.terms[2 * class] / one),
            core::array::from_fn(|class| self.terms[2 * class + 1] / self.reference / one),
        )
    }

    /// The nanoseconds of device time of a random read of `size` bytes; 0 while nothing is known.
    pub(super) fn reference_time(&self, size: f64) -> f64 {
        self.unit * (self.terms[REFERENCE] + self.terms[REFERENCE + 1] * size / self.reference)
    }

    /// What a class had of the busy time lately.
    pub(super) fn share(&self, class: usize) -> f64 {
        let of = |term: usize| self.mix[term] * self.terms[term];
        of(2 * class) + of(2 * class + 1)
    }
}

/// Whether the device is what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    AsBefore,
    Changed,
}

/// The weight of a surprise: Cauchy's.
fn tame(surprise: f64, variance: f64) -> f64 {
    let scale = (9.0 * variance).max(SURPRISE * SURPRISE);
    1.0 / (1.0 + surprise * surprise / scale)
}
