use super::line::{self, Line};
use super::point::DevicePoint;
use crate::{Outstanding, Permille, WorkloadProfile};
use alloc::vec::Vec;
use core::fmt;
use headgate_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How much longer a read takes for each read more that is outstanding, in picoseconds; at least
/// one.
///
/// P of the paper, a device's ability, is its inverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slope(u64);

impl Slope {
    /// In picoseconds; zero becomes one.
    pub const fn from_picos(picos: u64) -> Slope {
        Slope(if picos == 0 { 1 } else { picos })
    }

    /// In picoseconds.
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// The nearest to so many nanoseconds; what is no number, or not above zero, is the smallest.
    fn of_nanos(nanos: f64) -> Slope {
        Slope::from_picos(libm::round(nanos * 1e3) as u64)
    }

    /// In milliseconds, the paper's unit.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// P: reads per millisecond, the paper's unit.
    pub fn ability(self) -> f64 {
        1e9 / self.0 as f64
    }
}

/// `1.13 ms`.
impl fmt::Display for Slope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} ps", self.0),
            picos => Nanos(picos / 1_000).fmt(f),
        }
    }
}

/// Where a slope comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Latency was seen to rise by it.
    Rise,
    /// Latency did not rise as far as the device was loaded. The slope is the one beyond if the
    /// device could do no more than it has done: 1 / throughput. It is at least so good.
    Flat,
    /// Always about the same number of reads: nothing to draw a line through. The slope is 1 / the
    /// best throughput, which it is if the device was busy; if it was not, it is better.
    Steady,
    /// Latency changed with something else than load, and too much to see the load in it. The slope
    /// is 1 / the best throughput.
    Unclear,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::Rise => "latency rose with load",
            Evidence::Flat => "latency never rose: at least as good as its best throughput",
            Evidence::Unclear => {
                "latency changed with other things than load: at least as good as its throughput"
            }
            Evidence::Steady => "load never varied: at least as good as its throughput",
        })
    }
}

/// What is known of a device (section 4): a line of read latency over outstanding reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceModel {
    /// The slope; 1/P.
    pub slope: Slope,
    /// The slope is not less with 95 % (two-sided); zero when it may be anything below
    /// [`DeviceModel::high`].
    pub low: u64,
    /// The slope is not more, likewise, in picoseconds.
    pub high: u64,
    /// Where the line crosses zero outstanding, in nanoseconds. Below zero for a device with a
    /// knee.
    pub base: i64,
    /// The lowest latency seen: predictions do not go below it.
    pub floor: Nanos,
    /// The part of the variance of latency that the line explains: R².
    pub explained: Permille,
    /// Intervals it was learnt from.
    pub points: u32,
    /// Where the slope comes from.
    pub evidence: Evidence,
    /// Median size of the requests it was learnt from.
    pub size: Bytes,
    /// Their median randomness.
    pub random: Permille,
    /// What else than good intervals it was learnt from.
    #[serde(default)]
    pub doubts: Doubts,
}

/// How many of the points of a model are second choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Doubts {
    /// In which requests waited for a limit or for the window.
    pub held: u32,
    /// Of large requests, brought to a usual size by equation 1.
    pub large: u32,
    /// Which each stand for several intervals of one hour.
    pub coarse: u32,
}

impl Doubts {
    /// No: all points are good.
    pub fn is_empty(&self) -> bool {
        *self == Doubts::default()
    }
}

/// Intervals below which nothing is learnt.
pub const LEAST_POINTS: usize = 20;
/// A slope is taken for measured when half of its 95 % interval is at most this part of it.
const SURE: f64 = 0.5;
/// Latency that falls by more than this part over the range of loads is an anomaly.
const FALL: f64 = 0.1;
/// Latency that surely rises by less than this part over the range of loads does not rise, if it
/// does not change much otherwise.
const LEVEL: f64 = 0.3;
/// The load varied when its 95th percentile is at least this much above its 5th.
const VARIED: f64 = 1.5;

/// Why nothing was learnt of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Refusal {
    /// Too short a history.
    #[error("{have} intervals with reads, {LEAST_POINTS} are needed")]
    FewPoints {
        /// Intervals there are.
        have: u32,
    },
    /// Latency falls as load rises: something else than load changed, a cache or what was asked.
    #[error(
        "latency falls by {} ps for each read more: the intervals are not comparable, a cache changes what they show",
        slope.unsigned_abs()
    )]
    Falls {
        /// The slope, in picoseconds.
        slope: i64,
    },
    /// No reads outstanding worth speaking of in any interval.
    #[error("no reads outstanding in any interval")]
    Idle,
}

impl DeviceModel {
    /// Learns from intervals, in the order of time. O(n log n), some milliseconds for a day.
    ///
    /// Who has an older model keeps it when this one is refused: a device seldom becomes another
    /// overnight. When it is not, see [`DeviceModel::renewed`].
    ///
    /// # Errors
    /// [`Refusal`] when the points make no sense.
    pub fn learn(points: &[DevicePoint]) -> Result<DeviceModel, Refusal> {
        let works =
            |p: &&DevicePoint| p.outstanding > Outstanding::default() && p.latency > Nanos::ZERO;
        let busy: Vec<&DevicePoint> = points.iter().filter(works).collect();
        if busy.len() < LEAST_POINTS {
            let have = busy.len() as u32;
            return Err(if points.len() < LEAST_POINTS {
                Refusal::FewPoints { have }
            } else {
                Refusal::Idle
            });
        }
        let xy: Vec<(f64, f64)> =
            busy.iter().map(|point| (point.outstanding.as_f64(), point.latency.0 as f64)).collect();
        let mut loads: Vec<f64> = xy.iter().map(|&(x, _)| x).collect();
        loads.sort_by(f64::total_cmp);
        let (light, heavy) = (loads[loads.len() / 20], loads[loads.len() - 1 - loads.len() / 20]);
        let middle_load = loads[loads.len() / 2];
        // What it has done for a twentieth of the time, in reads per nanosecond: it can do so much.
        let mut rates: Vec<f64> = xy.iter().map(|&(x, y)| x / y).collect();
        rates.sort_by(f64::total_cmp);
        let shown = 1.0 / rates[rates.len() - 1 - rates.len() / 20];
        let mut latencies: Vec<f64> = xy.iter().map(|&(_, y)| y).collect();
        latencies.sort_by(f64::total_cmp);
        let usual = latencies[latencies.len() / 2];
        let spread = latencies[latencies.len() * 9 / 10] - latencies[latencies.len() / 10];

        let mut model = DeviceModel {
            slope: Slope::from_picos(0),
            low: 0,
            high: 0,
            base: 0,
            floor: Nanos(latencies[0] as u64),
            explained: Permille(0),
            points: busy.len() as u32,
            evidence: Evidence::Steady,
            size: middle(busy.iter().map(|point| point.size)),
            random: middle(busy.iter().map(|point| point.random)),
            doubts: Doubts::default(),
        };
        let line = match line::through(&xy) {
            Some(line) if heavy >= VARIED * light => {
                above_a_knee(&xy, middle_load).map_or(line, |above| {
                    let steeper = above.slope - above.error > line.slope + line.error;
                    if steeper {
                        Line { floor: line.floor, peak: line.peak, ..above }
                    } else {
                        line
                    }
                })
            }
            _ => {
                model.bound_by(shown, middle_load, usual);
                model.low = model.slope.as_picos() / 2;
                return Ok(model);
            }
        };
        if line.slope < 0.0 && -line.slope * (heavy - light) > FALL * usual {
            return Err(Refusal::Falls { slope: (line.slope * 1e3) as i64 });
        }
        model.explained = Permille::of_ratio(line.explained);
        model.floor = Nanos(line.floor as u64);
        if line.slope > 0.0 && line.error <= SURE * line.slope {
            model.evidence = Evidence::Rise;
            model.slope = Slope::of_nanos(line.slope);
            model.low = Slope::of_nanos(line.slope - line.error).as_picos();
            model.high = Slope::of_nanos(line.slope + line.error).as_picos();
            model.base = line.base as i64;
        } else if (line.slope + line.error) * (heavy - light) <= LEVEL * usual && spread <= usual {
            model.evidence = Evidence::Flat;
            model.bound_by(1.0 / line.peak, heavy, usual);
        } else {
            model.evidence = Evidence::Unclear;
            model.bound_by(shown, middle_load, usual);
            model.low = model.slope.as_picos() / 2;
        }
        Ok(model)
    }

    /// What is known of a device of which this was known, once something newer was learnt: a slope
    /// that was seen is not given up for a bound, which says only that the load did not vary, or
    /// other things did.
    pub fn renewed(self, newer: DeviceModel) -> DeviceModel {
        match (self.evidence, newer.evidence) {
            (Evidence::Rise, Evidence::Steady | Evidence::Unclear) => self,
            _ => newer,
        }
    }

    /// A line of this slope, in nanoseconds, through a point of load and latency.
    fn bound_by(&mut self, slope: f64, load: f64, latency: f64) {
        self.slope = Slope::of_nanos(slope);
        self.high = self.slope.as_picos();
        self.base = (latency - slope * load) as i64;
    }

    /// How long a read takes with so many requests of the kind that the model was learnt from.
    pub fn latency(&self, outstanding: Outstanding) -> Nanos {
        self.latency_at(outstanding.as_f64())
    }

    pub(crate) fn latency_at(&self, outstanding: f64) -> Nanos {
        // A cast saturates, and takes what is not a number for zero.
        let line = (self.base as f64 + self.slope.as_picos() as f64 / 1e3 * outstanding) as u64;
        Nanos(line).max(self.floor).max(Nanos(1))
    }

    /// The same for requests of another kind, which weigh as much as so many of the model's: the
    /// line as a whole is as much higher or lower as each of them weighs more or less, as equation
    /// 1 has it.
    pub(crate) fn latency_of(&self, outstanding: f64, weighed: f64) -> Nanos {
        let each = if outstanding > 0.0 { weighed / outstanding } else { 1.0 };
        // What is below zero is a knee's, and no time that a request takes.
        let base = self.base as f64 * if self.base > 0 { each } else { 1.0 };
        let line = (base + self.slope.as_picos() as f64 / 1e3 * weighed) as u64;
        let floor = (self.floor.0 as f64 * each.min(1.0)) as u64;
        Nanos(line).max(Nanos(floor)).max(Nanos(1))
    }

    /// What the model's requests look like.
    pub(crate) fn reference(&self) -> WorkloadProfile {
        WorkloadProfile {
            outstanding: Outstanding::whole(1),
            size: self.size,
            read: Permille::WHOLE,
            random: self.random,
        }
    }
}

/// `1.13 ms per outstanding read (1.05 ms to 1.21 ms), P 0.88, R² 97.1 %, 870 intervals; latency
/// rose with load`.
impl fmt::Display for DeviceModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (Slope(self.low), Slope(self.high));
        write!(
            f,
            "{} per outstanding read ({low} to {high}), P {:.3}",
            self.slope,
            self.slope.ability()
        )?;
        if self.evidence == Evidence::Rise {
            write!(f, ", R² {}", self.explained)?;
        }
        write!(
            f,
            ", {} {}",
            self.points,
            if self.doubts.coarse > 0 { "points of whole hours" } else { "intervals" }
        )?;
        for (count, what) in [
            (self.doubts.held, "in which requests waited for a limit or the queue depth"),
            (self.doubts.large, "of large requests, brought to a usual size"),
        ] {
            if count > 0 {
                write!(f, ", {count} of them {what}")?;
            }
        }
        write!(f, "; {}", self.evidence)
    }
}

/// The line through the busier half. Storage that serves many at once is flat until it is busy; a
/// line through all would take it for better than it is when it matters.
fn above_a_knee(xy: &[(f64, f64)], middle_load: f64) -> Option<Line> {
    let busier: Vec<(f64, f64)> = xy.iter().copied().filter(|&(x, _)| x > middle_load).collect();
    if busier.len() < LEAST_POINTS { None } else { line::through(&busier) }
}

pub(super) fn middle<T: Ord + Default>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    let at = values.len() / 2;
    values.into_iter().nth(at).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(of: impl Iterator<Item = (f64, f64)>) -> Vec<DevicePoint> {
        of.map(|(outstanding, millis)| DevicePoint {
            outstanding: Outstanding::of(outstanding),
            latency: Nanos((millis * 1e6) as u64),
            size: Bytes::from_kib(8),
            random: Permille(1_000),
        })
        .collect()
    }

    fn scattered(i: u32) -> f64 {
        f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1u32 << 24)
    }

    #[test]
    fn a_line_is_found_with_its_slope_and_base() {
        let noisy = |i| 0.9 + 0.2 * scattered(i * 13 + 5);
        let all = points((0..500).map(|i| {
            let x = 2.0 + 40.0 * scattered(i);
            (x, (6.0 + 1.13 * x) * noisy(i))
        }));
        let model = DeviceModel::learn(&all).unwrap();
        assert_eq!(model.evidence, Evidence::Rise);
        assert!((model.slope.as_millis_f64() - 1.13).abs() < 0.05, "{model}");
        assert!(
            model.low < model.slope.as_picos() && model.slope.as_picos() < model.high,
            "{model}"
        );
        assert!(model.low < 1_130_000_000 && 1_130_000_000 < model.high, "{model}");
        assert!(
            (model.latency(Outstanding::whole(20)).0 as f64 / 28.6e6 - 1.0).abs() < 0.05,
            "{model}"
        );
        assert!(model.explained > Permille(900), "{model}");
    }

    #[test]
    fn bursts_of_cached_writes_that_make_latency_fall_are_refused() {
        let all = points((0..200).map(|i| {
            let x = 1.0 + 20.0 * scattered(i);
            (x, 8.0 - 0.2 * x + scattered(i * 3))
        }));
        let refused = DeviceModel::learn(&all).unwrap_err();
        assert!(matches!(refused, Refusal::Falls { slope } if slope < -100_000_000), "{refused}");
        assert!(refused.to_string().contains("a cache changes"), "{refused}");
    }

    #[test]
    fn a_device_that_was_never_busy_is_as_good_as_its_best_throughput() {
        // Up to 0.9 reads at 1 ms: it did 900 per second, so each more takes 1.11 ms at worst.
        let all =
            points((0..200).map(|i| (0.1 + 0.8 * scattered(i), 1.0 + 0.02 * scattered(i * 7 + 3))));
        let model = DeviceModel::learn(&all).unwrap();
        assert_eq!((model.evidence, model.low), (Evidence::Flat, 0), "{model}");
        assert!((model.slope.as_millis_f64() - 1.12).abs() < 0.03, "{model}");
        assert!(model.latency(Outstanding::from_thousandths(100)) >= Nanos::from_millis(1));
    }

    #[test]
    fn the_slope_is_that_beyond_the_knee() {
        // Ten at once for 5 ms each; then 2,000 per second. The line of a fixed rate, and 0.5 ms
        // for each more.
        let all = points((0..400).map(|i| {
            let x = 1.0 + 19.0 * scattered(i);
            (x, (0.5 * x).max(5.0) * (0.97 + 0.06 * scattered(i * 17 + 2)))
        }));
        let model = DeviceModel::learn(&all).unwrap();
        assert_eq!(model.evidence, Evidence::Rise);
        assert!((model.slope.as_millis_f64() - 0.5).abs() < 0.05, "{model}");
        assert!((model.latency(Outstanding::whole(3)).0 as f64 / 5e6 - 1.0).abs() < 0.1, "{model}");
    }

    #[test]
    fn latency_that_changes_with_other_things_is_not_taken_for_flat() {
        let all = points(
            (0..400).map(|i| (4.0 + 28.0 * scattered(i), 5.0 + 60.0 * scattered(i / 40 * 977))),
        );
        match DeviceModel::learn(&all) {
            Ok(model) => assert!(model.evidence == Evidence::Unclear && model.low > 0, "{model}"),
            Err(refused) => assert!(matches!(refused, Refusal::Falls { .. }), "{refused}"),
        }
    }

    #[test]
    fn a_device_with_one_load_is_as_good_as_its_throughput() {
        let all = points((0..50).map(|i| (32.0 + scattered(i), 64.0)));
        let model = DeviceModel::learn(&all).unwrap();
        assert_eq!(model.evidence, Evidence::Steady);
        assert!((model.slope.as_millis_f64() - 2.0).abs() < 0.1, "{model}");
    }

    #[test]
    fn what_was_seen_is_not_given_up_for_a_bound() {
        // Busy for a tenth of the time, at up to 4,000 a second; then hardly, between streams that
        // come and go.
        let busy =
            (0..40).map(|i| (4.0 + 60.0 * scattered(i), 1.0 + (4.0 + 60.0 * scattered(i)) / 4.0));
        let known = DeviceModel::learn(&points(busy.clone())).unwrap();
        assert_eq!(known.evidence, Evidence::Rise);
        let calm =
            (0..360).map(|i| (0.5 + 0.5 * scattered(i * 3), 2.0 + 20.0 * scattered(i * 7 / 9)));
        let newer = DeviceModel::learn(&points(busy.chain(calm))).unwrap();
        if newer.evidence != Evidence::Rise {
            // The bound is by what it has done at its best, not by what it usually does.
            assert!(newer.slope.as_millis_f64() < 0.4, "{newer}");
            assert_eq!(known.renewed(newer), known);
        }
        let steady =
            DeviceModel::learn(&points((0..50).map(|i| (1.0 + 0.1 * scattered(i), 9.0)))).unwrap();
        assert_eq!(known.renewed(steady), known);
        assert_eq!(steady.renewed(known), known);
    }

    #[test]
    fn too_little_is_nothing() {
        let few = points((0..19).map(|i| (f64::from(i + 1), 1.0)));
        assert_eq!(DeviceModel::learn(&few), Err(Refusal::FewPoints { have: 19 }));
        assert_eq!(DeviceModel::learn(&points((0..50).map(|_| (0.0, 1.0)))), Err(Refusal::Idle));
        assert!(Refusal::FewPoints { have: 19 }.to_string().contains("20 are needed"));
    }

    proptest! {
        #[test]
        fn no_points_hurt(points in prop::collection::vec(any::<(u32, u64)>(), 0..120)) {
            let points: Vec<DevicePoint> = points
                .into_iter()
                .map(|(outstanding, latency)| DevicePoint {
                    outstanding: Outstanding::from_thousandths(outstanding),
                    latency: Nanos(latency),
                    size: Bytes(0),
                    random: Permille(0),
                })
                .collect();
            if let Ok(model) = DeviceModel::learn(&points) {
                prop_assert!(model.low <= model.slope.as_picos() && model.slope.as_picos() <= model.high, "{}", model);
                prop_assert!(model.latency(Outstanding::whole(1)) > Nanos::ZERO);
            }
        }
    }
}
