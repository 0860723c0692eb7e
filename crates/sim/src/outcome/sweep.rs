//! The outcome of a sweep: its points, and the workload model fitted to them.

use headgate_placement::{
    Constants, Fit, Load, Measurement, Outstanding, Permille, WorkloadProfile, fit_by_pairs,
};
use headgate_units::{Bytes, Nanos};
use serde::Serialize;

/// The points of a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct SweepOutcome {
    /// Its name.
    pub name: String,
    /// One for each combination that was measured.
    pub points: Vec<SweepPoint>,
    /// How many combinations there are.
    pub of: usize,
    /// K1 to K4; none where nothing could be fitted.
    pub constants: Option<Constants>,
    /// K5.
    pub per_millisecond: Option<Load>,
    #[serde(skip)]
    pub(crate) fit: Option<Fit>,
}

/// One combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct SweepPoint {
    /// Requests outstanding.
    pub outstanding: u32,
    /// Their size.
    pub size: Bytes,
    /// Reads, in per cent.
    pub read: u8,
    /// Those that went anywhere, in per cent.
    pub random: u8,
    /// Their mean latency.
    pub latency: Option<Nanos>,
}

impl SweepPoint {
    pub(crate) fn profile(&self) -> WorkloadProfile {
        WorkloadProfile {
            outstanding: Outstanding::whole(self.outstanding),
            size: self.size,
            read: Permille(u32::from(self.read) * 10),
            random: Permille(u32::from(self.random) * 10),
        }
    }
}

impl SweepOutcome {
    /// `carried` is another sweep's fit and what part of its K5 to take, in per cent; the sweep's
    /// own fit where it is none.
    pub(crate) fn new(
        name: String,
        points: Vec<SweepPoint>,
        of: usize,
        carried: Option<(Option<Fit>, u32)>,
    ) -> SweepOutcome {
        let fit = match carried {
            Some((fit, percent)) => fit.map(|fit| {
                let scaled = u128::from(fit.per_millisecond.0) * u128::from(percent) / 100;
                Fit { per_millisecond: Load(u64::try_from(scaled).unwrap_or(u64::MAX)), ..fit }
            }),
            None => {
                let measured: Vec<Measurement> = points
                    .iter()
                    .filter_map(|point| {
                        Some(Measurement { profile: point.profile(), latency: point.latency? })
                    })
                    .collect();
                fit_by_pairs(&measured).ok()
            }
        };
        let (constants, per_millisecond) =
            (fit.map(|fit| fit.constants), fit.map(|fit| fit.per_millisecond));
        SweepOutcome { name, points, of, constants, per_millisecond, fit }
    }
}
