//! How workloads on one device change each other.
//!
//! A sequential request is cheap because the heads are where it begins. That is so only if the
//! device served no other request since the one before. Of n requests outstanding on a device n_i
//! are a workload's own; all wait about equally long, so of the requests that it serves n_i/n are
//! its own, too (Little's law), and what went before one of its sequential requests was another's
//! with probability 1 - n_i/n. With ρ of its requests random by itself, there is to be positioned
//! for
//!
//! > ρ' = ρ + (1 - ρ)·(1 - n_i/n)
//!
//! of them, and ρ' takes the place of ρ in equation 1. It is ρ for a workload that is alone, 1 for
//! one that is random anyway, never less than ρ, and never falls when something comes to the
//! device.
//!
//! With w_i = n_i·(K2 + size)·(K3 + read) the work Σ w_i·(K4 + ρ') is
//!
//! > Σ w_i·(K4 + ρ_i) + Σ w_i·(1 - ρ_i) - (Σ n_i·w_i·(1 - ρ_i))/n
//!
//! that is, of four sums. What comes or goes changes them by its own terms: a prediction costs as
//! much as without interference.
//!
//! # Limits
//! Elevators, and arrays that read ahead, serve several requests of a stream before they leave it:
//! then streams suffer less than this says. Equation 1 says that sequential requests cost 2.4 times
//! less than random ones at most (K4 = 0.7), and arrays do more: then they suffer more. Streams of
//! one disk that disturb each other are random requests in its statistics already.

use crate::{Constants, DeviceModel, WorkloadProfile};
use headgate_units::Nanos;
use serde::{Deserialize, Serialize};

/// How workloads on one device are taken to change each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interference {
    /// Not at all, as published: equation 1 is the same whatever else is there, the model's line
    /// holds for requests of any kind, and load is all that disks move for.
    None,
    /// Other requests break sequential streams: of what is sequential, only the part is that the
    /// workload's own requests are of all on the device. The model's line is that of requests of
    /// its kind; where requests weigh half as much, it is half as high. Disks also move because the
    /// two datastores do more together afterwards, and none does that makes others wait more than
    /// it saves. The default.
    #[default]
    Streams,
}

/// What is asked of a device at once. Sums of integers: exact in any order, and what comes and goes
/// leaves no trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Requests outstanding, in thousandths.
    pub(crate) outstanding: u64,
    /// Σ n·weight: the work if nobody disturbed anybody.
    work: u128,
    /// Σ w·(1 - ρ): what is added to it if all streams were broken.
    streams: u128,
    /// Σ n·w·(1 - ρ): over n, what is not as they are their own neighbours.
    unbroken: u128,
}

impl Demand {
    pub(crate) fn of(profile: &WorkloadProfile, constants: &Constants) -> Demand {
        let outstanding = profile.outstanding.as_thousandths();
        let n = u128::from(outstanding);
        let random = WorkloadProfile { random: crate::Permille::WHOLE, ..*profile };
        let work = n * constants.weight(profile);
        let streams = (n * constants.weight(&random)).saturating_sub(work);
        let unbroken = streams.saturating_mul(n);
        Demand { outstanding: outstanding.into(), work, streams, unbroken }
    }

    pub(crate) fn plus(self, other: Demand) -> Demand {
        Demand {
            outstanding: self.outstanding.saturating_add(other.outstanding),
            work: self.work.saturating_add(other.work),
            streams: self.streams.saturating_add(other.streams),
            unbroken: self.unbroken.saturating_add(other.unbroken),
        }
    }

    pub(crate) fn minus(self, other: Demand) -> Demand {
        Demand {
            outstanding: self.outstanding.saturating_sub(other.outstanding),
            work: self.work.saturating_sub(other.work),
            streams: self.streams.saturating_sub(other.streams),
            unbroken: self.unbroken.saturating_sub(other.unbroken),
        }
    }

    /// Requests in thousandths, each times what it weighs.
    pub(crate) fn work(&self, interference: Interference) -> u128 {
        match interference {
            Interference::None => self.work,
            Interference::Streams => {
                let unbroken = self.unbroken / u128::from(self.outstanding.max(1));
                self.work.saturating_add(self.streams.saturating_sub(unbroken))
            }
        }
    }

    /// Requests outstanding.
    pub(crate) fn requests(&self) -> f64 {
        self.outstanding as f64 / 1e3
    }

    /// Predicted latency on a device, `weight` being that of a request of its model.
    pub(crate) fn latency(
        &self,
        interference: Interference,
        model: &DeviceModel,
        weight: u128,
    ) -> Nanos {
        let requests = self.work(interference) as f64 / weight.max(1) as f64 / 1e3;
        match interference {
            Interference::None => model.latency_at(requests),
            Interference::Streams => model.latency_of(self.requests(), requests),
        }
    }

    /// Predicted requests per nanosecond on a device with another slope, in picoseconds, in place
    /// of the model's (Little's law).
    pub(crate) fn rate(
        &self,
        interference: Interference,
        model: &DeviceModel,
        slope: u64,
        weight: u128,
    ) -> f64 {
        let model = DeviceModel { slope: crate::Slope::from_picos(slope), ..*model };
        self.requests() / self.latency(interference, &model, weight).0 as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outstanding, Permille};
    use headgate_units::Bytes;
    use proptest::prelude::*;

    fn any_traits() -> impl Strategy<Value = WorkloadProfile> {
        (0..64_000u32, 0..1u64 << 20, 0..=1_000u32, 0..=1_000u32).prop_map(
            |(n, size, read, random)| WorkloadProfile {
                outstanding: Outstanding::from_thousandths(n),
                size: Bytes(size),
                read: Permille(read),
                random: Permille(random),
            },
        )
    }

    fn demand(of: &[WorkloadProfile]) -> Demand {
        let constants = Constants::default();
        of.iter().fold(Demand::default(), |sum, profile| sum.plus(Demand::of(profile, &constants)))
    }

    /// By the formula with ρ', one workload after the other, in floating point.
    fn naive(of: &[WorkloadProfile]) -> f64 {
        let all: f64 = of.iter().map(|t| t.outstanding.as_f64()).sum();
        let one = |t: &WorkloadProfile| {
            let (n, random) = (t.outstanding.as_f64(), t.random.as_f64());
            let share = if all > 0.0 { n / all } else { 0.0 };
            let effective = random + (1.0 - random) * (1.0 - share);
            let size = (51.0 * 1_024.0 + t.size.0 as f64) * (1.4 + t.read.as_f64());
            n * size * (0.7 + effective)
        };
        of.iter().map(one).sum::<f64>() * 1e9
    }

    proptest! {
        #[test]
        fn the_sums_are_the_formula(of in prop::collection::vec(any_traits(), 0..12)) {
            let (ours, naive) = (demand(&of).work(Interference::Streams) as f64, naive(&of));
            prop_assert!((ours - naive).abs() <= 1e-9 * naive + 1.0, "{ours} {naive}");
        }

        #[test]
        fn alone_or_all_random_it_is_equation_one(one in any_traits(), of in prop::collection::vec(any_traits(), 0..12)) {
            let alone = demand(&[one]);
            prop_assert_eq!(alone.work(Interference::Streams), alone.work(Interference::None));
            let random: Vec<WorkloadProfile> = of.iter().map(|t| WorkloadProfile { random: Permille::WHOLE, ..*t }).collect();
            let random = demand(&random);
            prop_assert_eq!(random.work(Interference::Streams), random.work(Interference::None));
        }

        #[test]
        fn company_never_makes_work_less(of in prop::collection::vec(any_traits(), 0..12), more in any_traits()) {
            let (before, comes) = (demand(&of), demand(&[more]));
            let after = before.plus(comes).work(Interference::Streams);
            // Rounded down once each.
            prop_assert!(after + 2 >= before.work(Interference::Streams) + comes.work(Interference::Streams));
            prop_assert!(before.work(Interference::Streams) >= before.work(Interference::None));
            prop_assert_eq!(before.plus(comes).minus(comes), before);
        }

        #[test]
        fn nothing_overflows(n in any::<u32>(), size in any::<u64>(), read in any::<u32>(), random in any::<u32>()) {
            let profile = WorkloadProfile {
                outstanding: Outstanding::from_thousandths(n),
                size: Bytes(size),
                read: Permille(read),
                random: Permille(random),
            };
            let twice = demand(&[profile, profile]);
            prop_assert!(twice.work(Interference::Streams) >= twice.work(Interference::None));
        }
    }
}
