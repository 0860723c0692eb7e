use crate::{Held, Permille};
use core::fmt;
use core::iter::Sum;
use headgate_stats::Interval;
use headgate_units::Bytes;
use serde::{Deserialize, Serialize};

/// Requests outstanding, in thousandths: means are not whole. 0 to four million requests.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Outstanding(u32);

impl Outstanding {
    /// `n` requests; saturates.
    pub const fn whole(n: u32) -> Outstanding {
        Outstanding(n.saturating_mul(1_000))
    }

    /// Thousandths of a request.
    pub const fn from_thousandths(thousandths: u32) -> Outstanding {
        Outstanding(thousandths)
    }

    /// Thousandths of a request.
    pub const fn as_thousandths(self) -> u32 {
        self.0
    }

    /// The nearest to `requests`. What is not a number, or below zero, is zero; what is too large
    /// is the largest.
    pub fn of(requests: f64) -> Outstanding {
        // A float-to-integer cast saturates, and takes what is not a number for zero.
        Outstanding(libm::round(requests * 1e3) as u32)
    }

    /// As a float.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e3
    }
}

impl fmt::Display for Outstanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.as_f64())
    }
}

/// What a workload does, as far as it does so on any device: the four traits of the workload model
/// (section 3.1).
///
/// That they do not depend on the device is an approximation: a log's writes grow while they wait.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct WorkloadProfile {
    /// Requests outstanding at once.
    pub outstanding: Outstanding,
    /// Bytes of a request.
    pub size: Bytes,
    /// Reads among reads and writes.
    pub read: Permille,
    /// Requests that continue no stream, among reads and writes.
    pub random: Permille,
}

impl WorkloadProfile {
    /// The traits in an interval of a disk's statistics; `None` when it neither read nor wrote.
    /// What waited for its own limit is not demand, but the limit's doing: then only what was at
    /// the device is outstanding.
    ///
    /// A disk that waited all the time and got nothing is not idle, but worst off: then what is
    /// outstanding is known, and nothing else ([`WorkloadProfile::is_stalled`]).
    pub fn of(interval: &Interval, held: Held) -> Option<WorkloadProfile> {
        let ios = interval.reads.iops + interval.writes.iops;
        let outstanding = match held {
            Held::No | Held::ByWindow => interval.outstanding,
            Held::ByLimit => interval.reads.at_device + interval.writes.at_device,
        };
        let outstanding = Outstanding::of(outstanding);
        if interval.iops == 0.0 && outstanding > Outstanding::default() {
            return Some(WorkloadProfile { outstanding, ..WorkloadProfile::default() });
        }
        Some(WorkloadProfile {
            outstanding,
            size: Bytes((interval.bytes_per_sec / ios) as u64),
            read: Permille::of_ratio(interval.read_fraction?),
            random: Permille::of_ratio(1.0 - interval.sequential_fraction.unwrap_or(0.0)),
        })
    }

    /// Whether requests waited and none was done: what is outstanding is all that was seen.
    pub fn is_stalled(&self) -> bool {
        self.outstanding > Outstanding::default() && self.size == Bytes(0)
    }
}

/// How much a workload asks of whatever device it is on: the numerator of equation 1, in
/// thousandths of (IO · KiB).
///
/// An integer, so that the sum over a datastore is exact in any order and a disk that comes and
/// goes leaves no trace. Sums saturate.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Load(pub u64);

impl Load {
    /// Nothing.
    pub const ZERO: Load = Load(0);

    /// In the paper's unit, IO · KiB.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

impl Sum for Load {
    fn sum<I: Iterator<Item = Load>>(loads: I) -> Load {
        Load(loads.fold(0, |sum, load| sum.saturating_add(load.0)))
    }
}

/// In thousands, as the paper's tables: `3.48`.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0 as f64 / 1e6)
    }
}

/// K1 to K4 of equation 1: how latency grows with each trait.
///
/// > L = (K1 + OIO) · (K2 + size) · (K3 + read) · (K4 + random) / K5
///
/// A large constant says that the trait hardly matters. K5 is the device's and no part of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Constants {
    /// K1.
    pub outstanding: Outstanding,
    /// K2.
    pub size: Bytes,
    /// K3.
    pub read: Permille,
    /// K4.
    pub random: Permille,
}

/// Those that the authors used for an EMC CLARiiON, as far as we know: 1.3, 51 KiB, 1.4, 0.7.
impl Default for Constants {
    fn default() -> Constants {
        Constants {
            outstanding: Outstanding::from_thousandths(1_300),
            size: Bytes::from_kib(51),
            read: Permille(1_400),
            random: Permille(700),
        }
    }
}

/// Requests larger than this, 16 GiB, count as this: no product of four traits runs over 128 bits.
const LARGEST: u64 = 1 << 34;
/// K3 and K4 beyond this count as this.
const STEEPEST: u32 = 1_000_000;

impl Constants {
    /// The numerator of equation 1. A workload that has nothing outstanding is no load; the
    /// published formula would still count it as one of 1.3 requests, and a thousand idle disks as
    /// a busy one.
    pub fn load(&self, profile: &WorkloadProfile) -> Load {
        if profile.outstanding == Outstanding::default() {
            return Load::ZERO;
        }
        let outstanding = u128::from(self.outstanding.0) + u128::from(profile.outstanding.0);
        // Thousandths of requests times bytes times thousandths twice; a KiB is 1,024 bytes.
        let load = (outstanding * self.weight(profile)).div_ceil(1_024 * 1_000 * 1_000);
        Load(u64::try_from(load).unwrap_or(u64::MAX))
    }

    /// The last three factors of equation 1: what one outstanding request of this kind weighs, in
    /// bytes and millionths.
    pub(crate) fn weight(&self, profile: &WorkloadProfile) -> u128 {
        let size = u128::from(self.size.0.min(LARGEST)) + u128::from(profile.size.0.min(LARGEST));
        let thousandths = |k: Permille, part: Permille| {
            u128::from(k.0.min(STEEPEST)) + u128::from(part.0.min(1_000))
        };
        (size * thousandths(self.read, profile.read) * thousandths(self.random, profile.random))
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(outstanding: u32, size: u64, read: u32, random: u32) -> WorkloadProfile {
        WorkloadProfile {
            outstanding: Outstanding::whole(outstanding),
            size: Bytes::from_kib(size),
            read: Permille(read * 10),
            random: Permille(random * 10),
        }
    }

    #[test]
    fn the_published_suite_has_the_loads_that_its_constants_give() {
        // Workstation, Exchange server, Web server, OLTP at 4, 8, 16, 32 outstanding.
        let suite = [
            ((8, 80, 80), ["1.03", "1.81", "3.37", "6.48"]),
            ((4, 67, 100), ["1.03", "1.80", "3.35", "6.45"]),
            ((8, 95, 75), ["1.07", "1.87", "3.48", "6.69"]),
            ((8, 70, 100), ["1.12", "1.96", "3.64", "7.01"]),
        ];
        for ((size, read, random), loads) in suite {
            for (outstanding, load) in [4, 8, 16, 32].into_iter().zip(loads) {
                let profile = profile(outstanding, size, read, random);
                assert_eq!(Constants::default().load(&profile).to_string(), load, "{profile:?}");
            }
        }
    }

    #[test]
    fn idle_disks_are_no_load() {
        assert_eq!(Constants::default().load(&profile(0, 8, 100, 100)), Load::ZERO);
    }

    #[test]
    fn the_largest_values_saturate() {
        let all = WorkloadProfile {
            outstanding: Outstanding(u32::MAX),
            size: Bytes(u64::MAX),
            read: Permille(u32::MAX),
            random: Permille(u32::MAX),
        };
        let steep = Constants {
            outstanding: Outstanding(u32::MAX),
            size: Bytes(u64::MAX),
            read: Permille(u32::MAX),
            random: Permille(u32::MAX),
        };
        assert_eq!(steep.load(&all), Load(u64::MAX));
        assert_eq!([Load(u64::MAX), Load(1)].into_iter().sum::<Load>(), Load(u64::MAX));
    }

    #[test]
    fn an_interval_without_numbers_makes_no_traits_that_hurt() {
        let mut stats = headgate_stats::DiskStats::new(headgate_units::Nanos(0));
        let nothing =
            stats.snapshot(headgate_units::Nanos(0)).since_start(headgate_units::Nanos(0));
        assert_eq!(WorkloadProfile::of(&nothing, Held::No), None);
        stats.on_arrival(headgate_units::Nanos(0), headgate_stats::Op::Read, 0, Bytes(512));
        let latency = headgate_stats::Latency {
            device: headgate_units::Nanos(0),
            total: headgate_units::Nanos(0),
        };
        let done = headgate_stats::Outcome::Done;
        stats.on_complete(
            headgate_units::Nanos(0),
            headgate_stats::Op::Read,
            Bytes(512),
            latency,
            done,
        );
        let instant =
            stats.snapshot(headgate_units::Nanos(0)).since_start(headgate_units::Nanos(0));
        assert_eq!(
            WorkloadProfile::of(&instant, Held::No).map(|t| t.outstanding),
            Some(Outstanding(0))
        );
    }

    #[test]
    fn who_waits_and_gets_nothing_is_not_idle() {
        use headgate_stats::{DiskStats, Latency, Op, Outcome};
        use headgate_units::Nanos;
        let second = Nanos::from_secs(1);
        let mut stats = DiskStats::new(Nanos::ZERO);
        (0..3).for_each(|n| stats.on_arrival(Nanos::ZERO, Op::Write, n << 20, Bytes::from_kib(64)));
        let stalled =
            WorkloadProfile::of(&stats.snapshot(second).since_start(Nanos::ZERO), Held::No);
        assert!(stalled.is_some_and(|profile| profile.is_stalled()), "{stalled:?}");
        assert_eq!(stalled.map(|profile| profile.outstanding), Some(Outstanding::whole(3)));
        // A flush that was done is no reading or writing, but nothing waited in vain either.
        let latency = Latency { device: Nanos(1), total: Nanos(1) };
        let mut flushes = DiskStats::new(Nanos::ZERO);
        flushes.on_arrival(Nanos::ZERO, Op::Flush, 0, Bytes(0));
        flushes.on_complete(second, Op::Flush, Bytes(0), latency, Outcome::Done);
        assert_eq!(
            WorkloadProfile::of(&flushes.snapshot(second).since_start(Nanos::ZERO), Held::No),
            None
        );
    }
}
