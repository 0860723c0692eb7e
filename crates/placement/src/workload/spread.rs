//! Which factors of equation 1 measurements can tell of: those whose trait varies on a device, and
//! not only together with another.

use super::Measurement;
use super::fit::FACTORS;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A trait of a workload, in the order of K1 to K4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trait {
    /// Requests outstanding at once: K1.
    Outstanding,
    /// Bytes of a request: K2.
    Size,
    /// Reads among reads and writes: K3.
    Read,
    /// Requests that continue no stream: K4.
    Random,
}

impl Trait {
    /// All, in the order of K1 to K4.
    pub const ALL: [Trait; 4] = [Trait::Outstanding, Trait::Size, Trait::Read, Trait::Random];

    /// A value in the trait's unit as people write it.
    fn text(self, value: f64) -> alloc::string::String {
        match self {
            Trait::Outstanding => alloc::format!("{value:.1}"),
            Trait::Size => alloc::format!("{value:.1} KiB"),
            Trait::Read | Trait::Random => alloc::format!("{:.0} %", value * 100.0),
        }
    }

    /// Whether latency could show a difference between two values: twice as much, or a quarter of
    /// all requests.
    fn differs(self, low: f64, high: f64) -> bool {
        match self {
            Trait::Outstanding => high >= 2.0 * low && high - low >= 1.0,
            Trait::Size => high >= 2.0 * low,
            Trait::Read | Trait::Random => high - low >= 0.25,
        }
    }

    /// On a scale on which equal distances say equally much.
    fn scaled(self, value: f64) -> f64 {
        match self {
            Trait::Outstanding | Trait::Size => libm::log(value.max(1e-3)),
            Trait::Read | Trait::Random => value,
        }
    }
}

impl fmt::Display for Trait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FACTORS[*self as usize].about)
    }
}

/// Why a constant stays what it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Untold {
    /// No device has enough intervals.
    TooFew {
        /// Of the device with the most.
        have: usize,
        /// How many there must be.
        need: usize,
    },
    /// The trait hardly varied on any device.
    Same {
        /// The trait.
        of: Trait,
        /// Of the device on which it varied most: nineteen of twenty intervals had more, in
        /// requests, KiB or parts.
        low: f64,
        /// Nineteen of twenty had less.
        high: f64,
    },
    /// It varied only together with another.
    Tied {
        /// The trait.
        of: Trait,
        /// The other.
        to: Trait,
    },
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Untold::TooFew { have, need } => write!(
                f,
                "no datastore has more than {have} intervals, {need} are needed; kept as it is"
            ),
            Untold::Same { of, low, high } if of.text(*low) == of.text(*high) => {
                write!(f, "nearly all intervals have {}; kept as it is", of.text(*low))
            }
            Untold::Same { of, low, high } => write!(
                f,
                "nearly all intervals have {} to {}, which is too little difference; kept as it is",
                of.text(*low),
                of.text(*high)
            ),
            Untold::Tied { to, .. } => {
                write!(f, "it varies only together with {to}; kept as it is")
            }
        }
    }
}

/// A device with fewer intervals tells of no factor.
pub(super) const LEAST: usize = 40;

/// Where the other traits explain a trait to so much (as a variance inflation factor, 1/(1 - R²)),
/// its constant is chance.
const INFLATION: f64 = 10.0;

/// For each factor, how many intervals tell of it: those of the devices on which its trait varies.
/// O(n log n).
pub(super) fn told(devices: &[Vec<Measurement>]) -> [Result<usize, Untold>; 4] {
    let mut told = Trait::ALL.map(|of| varies(of, devices));
    let varying: Vec<usize> = (0..4).filter(|&index| told[index].is_ok()).collect();
    let correlation = correlations(devices);
    let inflation = inflations(&varying, &correlation);
    for (&index, inflation) in varying.iter().zip(inflation) {
        if inflation > INFLATION {
            let others = varying.iter().copied().filter(|&other| other != index);
            let with = |other: usize| correlation[index][other].abs();
            let nearest = others.max_by(|&a, &b| with(a).total_cmp(&with(b)));
            if let Some(nearest) = nearest {
                told[index] = Err(Untold::Tied { of: Trait::ALL[index], to: Trait::ALL[nearest] });
            }
        }
    }
    told
}

fn varies(of: Trait, devices: &[Vec<Measurement>]) -> Result<usize, Untold> {
    let value = FACTORS[of as usize].value;
    let most = devices.iter().map(Vec::len).max().unwrap_or(0);
    if most < LEAST {
        return Err(Untold::TooFew { have: most, need: LEAST });
    }
    let (mut count, mut widest) = (0, (0.0, 0.0));
    for measured in devices.iter().filter(|measured| measured.len() >= LEAST) {
        let mut values: Vec<f64> = measured.iter().map(|point| value(&point.profile)).collect();
        values.sort_unstable_by(f64::total_cmp);
        let edge = values.len() / 20;
        let (low, high) = (values[edge], values[values.len() - 1 - edge]);
        if of.differs(low, high) {
            count += measured.len();
        }
        if widest == (0.0, 0.0) || of.scaled(high) - of.scaled(low) > width(of, widest) {
            widest = (low, high);
        }
    }
    let (low, high) = widest;
    if count > 0 { Ok(count) } else { Err(Untold::Same { of, low, high }) }
}

fn width(of: Trait, (low, high): (f64, f64)) -> f64 {
    of.scaled(high) - of.scaled(low)
}

type Matrix = [[f64; 4]; 4];

/// Correlations of the traits within devices: what differs between devices is K5's.
fn correlations(devices: &[Vec<Measurement>]) -> Matrix {
    let mut sums: Matrix = [[0.0; 4]; 4];
    for measured in devices.iter().filter(|measured| measured.len() >= LEAST) {
        let values: Vec<[f64; 4]> = measured
            .iter()
            .map(|point| {
                Trait::ALL.map(|of| of.scaled((FACTORS[of as usize].value)(&point.profile)))
            })
            .collect();
        let count = values.len() as f64;
        let means: [f64; 4] =
            core::array::from_fn(|i| values.iter().map(|value| value[i]).sum::<f64>() / count);
        for value in &values {
            for (i, row) in sums.iter_mut().enumerate() {
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum += (value[i] - means[i]) * (value[j] - means[j]);
                }
            }
        }
    }
    core::array::from_fn(|i| {
        core::array::from_fn(|j| {
            let scale = libm::sqrt(sums[i][i] * sums[j][j]);
            if scale > 0.0 { sums[i][j] / scale } else { 0.0 }
        })
    })
}

/// The variance inflation of each of the traits: the diagonal of the inverse of their correlations.
fn inflations(of: &[usize], correlation: &Matrix) -> Vec<f64> {
    // What is added keeps the inverse finite where two traits are one.
    let n = of.len();
    let mut left: Matrix = core::array::from_fn(|i| {
        core::array::from_fn(|j| match (i < n && j < n, i == j) {
            (true, true) => 1.0 + 1e-6,
            (true, false) => correlation[of[i]][of[j]],
            (false, true) => 1.0,
            (false, false) => 0.0,
        })
    });
    let mut right: Matrix =
        core::array::from_fn(|i| core::array::from_fn(|j| f64::from(u8::from(i == j))));
    // Correlations are positive definite: no pivot is sought.
    for column in 0..4 {
        let pivot = left[column][column];
        for j in 0..4 {
            left[column][j] /= pivot;
            right[column][j] /= pivot;
        }
        for row in (0..4).filter(|&row| row != column) {
            let factor = left[row][column];
            for j in 0..4 {
                left[row][j] -= factor * left[column][j];
                right[row][j] -= factor * right[column][j];
            }
        }
    }
    (0..n).map(|i| right[i][i]).collect()
}
