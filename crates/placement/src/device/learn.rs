//! Learning where good intervals are few: from those that are second choice, and from what is left
//! of long ago.

use super::model::{DeviceModel, Doubts, Evidence, Refusal, Slope, middle};
use super::point::{DeviceInterval, DevicePoint, Filters, LeftOut, Totals};
use crate::{Constants, Outstanding};
use alloc::vec::Vec;
use headgate_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The size that large requests are brought to, for which most models are learnt: that of most of
/// BASIL's experiments.
const USUAL: Bytes = Bytes::from_kib(8);
/// Points that are kept of an hour, of each kind.
const KEPT: usize = 12;
/// A slope learnt from what is left of whole hours is believed to within this part of it at best:
/// medians of neighbours hide how they scatter, and in a month a device may have become another.
const COARSE: f64 = 0.2;

/// How good a point is: the kinds are taken one after the other, until latency is seen to rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Good,
    Held,
    Large,
}

fn kind(interval: &DeviceInterval) -> Option<(Kind, DevicePoint)> {
    match *interval {
        DeviceInterval::Point(point) => Some((Kind::Good, point)),
        DeviceInterval::Doubtful(point, LeftOut::Limited | LeftOut::Windowed)
            if point.size <= Filters::default().largest =>
        {
            Some((Kind::Held, point))
        }
        DeviceInterval::Doubtful(point, _) => Some((Kind::Large, point)),
        DeviceInterval::Nothing(_) => None,
    }
}

fn is_busy(point: &DevicePoint) -> bool {
    point.outstanding > Outstanding::default() && point.latency > Nanos::ZERO
}

/// A point of requests of any size as one of the usual size: latency is as (K2 + size) by equation
/// 1.
fn at_usual_size(point: DevicePoint) -> DevicePoint {
    let term = Constants::default().size.0;
    let (numerator, denominator) =
        (u128::from(term + USUAL.0), u128::from(term) + u128::from(point.size.0));
    let latency = u128::from(point.latency.0) * numerator / denominator;
    let latency = Nanos(u64::try_from(latency).unwrap_or(u64::MAX)).max(Nanos(1));
    DevicePoint { latency, size: USUAL, ..point }
}

impl DeviceModel {
    /// Learns from intervals, in the order of time, of which not all are good: from the good ones
    /// if those show how latency rises; else also from those in which requests waited for us; else
    /// also from those of large requests, which equation 1 brings to a usual size.
    /// [`DeviceModel::doubts`] says what was taken. O(n log n).
    ///
    /// Large requests say less than they seem to: how much of their latency is transfer is not
    /// known. The slope at the usual size is not above theirs, and not below theirs in proportion
    /// to size; [`DeviceModel::low`] and [`DeviceModel::high`] say so.
    ///
    /// # Errors
    /// [`Refusal`] when none of these makes sense, or good intervals contradict each other.
    pub fn learn_from(intervals: &[DeviceInterval]) -> Result<DeviceModel, Refusal> {
        let known: Vec<(Kind, DevicePoint)> = intervals.iter().filter_map(kind).collect();
        let mut best: Option<Result<DeviceModel, Refusal>> = None;
        for worst in [Kind::Good, Kind::Held, Kind::Large] {
            let new = worst == Kind::Good || known.iter().any(|&(kind, _)| kind == worst);
            if !new {
                continue;
            }
            match learn_up_to(worst, &known) {
                Ok(model) if model.evidence == Evidence::Rise => return Ok(model),
                Err(falls @ Refusal::Falls { .. }) if worst == Kind::Good => return Err(falls),
                Ok(model) if !matches!(best, Some(Ok(_))) => best = Some(Ok(model)),
                found => best = best.or(Some(found)),
            }
        }
        best.unwrap_or(Err(Refusal::FewPoints { have: 0 }))
    }

    /// Whether [`DeviceModel::learn_from`] took such an interval when it learnt this model.
    pub fn is_learnt_from(&self, interval: &DeviceInterval) -> bool {
        match interval {
            DeviceInterval::Point(_) => true,
            DeviceInterval::Doubtful(_, LeftOut::Large) => self.doubts.large > 0,
            DeviceInterval::Doubtful(..) => self.doubts.held > 0 || self.doubts.large > 0,
            DeviceInterval::Nothing(_) => false,
        }
    }

    /// Learns from what is left of whole hours, in the order of time, as
    /// [`DeviceModel::learn_from`] does from intervals, with less confidence. O(n log n).
    ///
    /// # Errors
    /// [`Refusal`] when they make no sense.
    pub fn learn_coarsely(hours: &[Coarse]) -> Result<DeviceModel, Refusal> {
        let points: Vec<DeviceInterval> =
            hours.iter().flat_map(|hour| hour.0.iter().copied()).collect();
        let mut model = DeviceModel::learn_from(&points)?;
        model.doubts.coarse = model.points;
        let slope = model.slope.as_picos() as f64;
        model.low = model.low.min((slope * (1.0 - COARSE)) as u64);
        model.high = model.high.max((slope * (1.0 + COARSE)) as u64);
        Ok(model)
    }
}

impl Totals {
    /// Of intervals, of which those that the model is learnt from count as points. O(n).
    pub fn of(intervals: &[DeviceInterval], model: Option<&DeviceModel>) -> Totals {
        let mut totals = Totals::default();
        for interval in intervals {
            let is_taken = model.is_some_and(|model| model.is_learnt_from(interval));
            totals.count_why(interval.why().filter(|_| !is_taken));
        }
        totals
    }
}

fn learn_up_to(worst: Kind, known: &[(Kind, DevicePoint)]) -> Result<DeviceModel, Refusal> {
    let taken = || known.iter().filter(|(kind, _)| *kind <= worst);
    let scaled = |&(_, point): &(Kind, DevicePoint)| match worst {
        Kind::Large => at_usual_size(point),
        Kind::Good | Kind::Held => point,
    };
    let points: Vec<DevicePoint> = taken().map(scaled).collect();
    let mut model = DeviceModel::learn(&points)?;
    let count =
        |of: Kind| taken().filter(|(kind, point)| *kind == of && is_busy(point)).count() as u32;
    model.doubts = Doubts { held: count(Kind::Held), large: count(Kind::Large), coarse: 0 };
    // What we let through bounds the device's ability from below only, and says nothing of how far
    // it goes.
    if model.doubts.held > 0 && model.evidence != Evidence::Rise {
        model.low = 0;
    }
    if worst == Kind::Large {
        let size = middle(taken().filter(|(_, point)| is_busy(point)).map(|(_, point)| point.size));
        admit_size(&mut model, size);
    }
    Ok(model)
}

/// Widens what a slope may be that was brought from requests of this size to the usual one.
fn admit_size(model: &mut DeviceModel, size: Bytes) {
    if size <= USUAL {
        return;
    }
    let (term, slope) = (Constants::default().size.0 as f64, model.slope.as_picos() as f64);
    let measured = slope * (term + size.0 as f64) / (term + USUAL.0 as f64);
    let in_proportion = measured * USUAL.0 as f64 / size.0 as f64;
    model.low = model.low.min(Slope::from_picos(in_proportion as u64).as_picos());
    model.high = model.high.max(measured as u64);
}

/// What is kept of a datastore's intervals of an hour: for each kind of point at most twelve, each
/// the medians of neighbours in load. Enough for the line to be found again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Coarse(Vec<DeviceInterval>);

impl Coarse {
    /// Of the intervals of an hour. O(n log n).
    pub fn of(intervals: impl IntoIterator<Item = DeviceInterval>) -> Coarse {
        let known: Vec<DeviceInterval> = intervals.into_iter().collect();
        let few = [Kind::Good, Kind::Held, Kind::Large].into_iter().flat_map(|wanted| {
            let of_kind = known.iter().filter_map(|interval| Some((kind(interval)?, interval)));
            let mut alike: Vec<(DevicePoint, Option<LeftOut>)> = of_kind
                .filter(|((kind, point), _)| *kind == wanted && is_busy(point))
                .map(|((_, point), interval)| (point, interval.why()))
                .collect();
            alike.sort_unstable_by_key(|(point, _)| (point.outstanding, point.latency));
            let (count, groups) = (alike.len(), alike.len().min(KEPT));
            let group = |n: usize| &alike[count * n / groups..count * (n + 1) / groups];
            (0..groups).map(|n| median(group(n))).collect::<Vec<DeviceInterval>>()
        });
        Coarse(few.collect())
    }

    /// The points that are left.
    pub fn points(&self) -> &[DeviceInterval] {
        &self.0
    }
}

/// The medians of points of one kind, by themselves each.
fn median(group: &[(DevicePoint, Option<LeftOut>)]) -> DeviceInterval {
    let points = || group.iter().map(|(point, _)| point);
    let point = DevicePoint {
        outstanding: middle(points().map(|point| point.outstanding)),
        latency: middle(points().map(|point| point.latency)),
        size: middle(points().map(|point| point.size)),
        random: middle(points().map(|point| point.random)),
    };
    match group.get(group.len() / 2).and_then(|&(_, why)| why) {
        Some(why) => DeviceInterval::Doubtful(point, why),
        None => DeviceInterval::Point(point),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Permille;
    use proptest::prelude::*;

    fn scattered(i: u32) -> f64 {
        f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1u32 << 24)
    }

    /// Of a device with 6 ms and 1 ms for each read outstanding, give or take a tenth.
    fn point(i: u32, outstanding: f64) -> DevicePoint {
        let millis = (6.0 + outstanding) * (0.9 + 0.2 * scattered(i * 13 + 5));
        DevicePoint {
            outstanding: Outstanding::of(outstanding),
            latency: Nanos((millis * 1e6) as u64),
            size: Bytes::from_kib(8),
            random: Permille::WHOLE,
        }
    }

    fn varied(i: u32) -> DevicePoint {
        point(i, 1.0 + 31.0 * scattered(i))
    }

    #[test]
    fn intervals_that_were_held_back_are_not_looked_at_while_good_ones_suffice() {
        let good: Vec<DevicePoint> = (0..100).map(varied).collect();
        // What was held shows another device altogether.
        let held = (0..400).map(|i| DevicePoint { latency: Nanos::from_secs(1), ..varied(i) });
        let held = held.map(|point| DeviceInterval::Doubtful(point, LeftOut::Windowed));
        let both: Vec<DeviceInterval> =
            good.iter().map(|&point| DeviceInterval::Point(point)).chain(held).collect();
        assert_eq!(DeviceModel::learn_from(&both), DeviceModel::learn(&good));
    }

    #[test]
    fn where_all_was_held_back_that_is_learnt_from_and_said() {
        let held: Vec<DeviceInterval> =
            (0..200).map(|i| DeviceInterval::Doubtful(varied(i), LeftOut::Limited)).collect();
        let model = DeviceModel::learn_from(&held).unwrap();
        assert_eq!((model.evidence, model.doubts.held, model.points), (Evidence::Rise, 200, 200));
        assert!((model.slope.as_millis_f64() - 1.0).abs() < 0.05, "{model}");
        let text = model.to_string();
        assert!(text.contains("200 intervals, 200 of them in which requests waited for"), "{text}");
        // What a model is learnt from counts as taken, and without one it does not.
        let idle = DeviceInterval::Nothing(LeftOut::FewReads);
        let all: Vec<DeviceInterval> = held.into_iter().chain([idle, idle]).collect();
        let counted = |model| {
            let totals = Totals::of(&all, model);
            let left_out = |why| totals.left_out[why as usize];
            (totals.taken, left_out(LeftOut::Limited), left_out(LeftOut::FewReads))
        };
        assert_eq!((counted(Some(&model)), counted(None)), ((200, 0, 2), (0, 200, 2)));
    }

    #[test]
    fn good_intervals_that_contradict_each_other_are_not_outvoted() {
        let falling = |i| {
            let outstanding = 1.0 + 20.0 * scattered(i);
            let latency = Nanos(((9.0 - 0.2 * outstanding) * 1e6) as u64);
            DeviceInterval::Point(DevicePoint { latency, ..point(i, outstanding) })
        };
        let held = (0..500).map(|i| DeviceInterval::Doubtful(varied(i), LeftOut::Windowed));
        let all: Vec<DeviceInterval> = (0..100).map(falling).chain(held).collect();
        assert!(matches!(DeviceModel::learn_from(&all), Err(Refusal::Falls { .. })));
    }

    #[test]
    fn large_requests_make_a_model_that_admits_how_little_is_known() {
        // By equation 1, as large as it gets: three times as long as 8 KiB.
        let large = |i| {
            let small = varied(i);
            let latency = Nanos(small.latency.0 * (51 + 128) / (51 + 8));
            DeviceInterval::Doubtful(
                DevicePoint { latency, size: Bytes::from_kib(128), ..small },
                LeftOut::Large,
            )
        };
        let model = DeviceModel::learn_from(&(0..200).map(large).collect::<Vec<_>>()).unwrap();
        assert!((model.slope.as_millis_f64() - 1.0).abs() < 0.05, "{model}");
        assert_eq!((model.doubts.large, model.size), (200, Bytes::from_kib(8)));
        let (low, high) = (model.low as f64 / 1e9, model.high as f64 / 1e9);
        assert!((low - 3.03 / 16.0).abs() < 0.02 && (high - 3.03).abs() < 0.2, "{low} {high}");
    }

    #[test]
    fn a_month_of_hours_has_the_line_of_its_intervals_with_less_confidence() {
        // Every hour has a load of its own, of which it strays little: no hour has a line.
        let hour = |hour: u32| {
            let load = 2.0 + 28.0 * scattered(hour * 31);
            (0..720).map(move |i| {
                DeviceInterval::Point(point(hour * 720 + i, load * (0.95 + 0.1 * scattered(i))))
            })
        };
        let hours: Vec<Coarse> = (0..100).map(|n| Coarse::of(hour(n))).collect();
        assert!(hours.iter().all(|hour| hour.points().len() == KEPT));
        let (all, coarse) = (
            DeviceModel::learn_from(&(0..100).flat_map(hour).collect::<Vec<_>>()).unwrap(),
            DeviceModel::learn_coarsely(&hours).unwrap(),
        );
        assert_eq!((coarse.evidence, coarse.doubts.coarse), (Evidence::Rise, 1_200));
        assert!(
            (coarse.slope.as_millis_f64() - all.slope.as_millis_f64()).abs() < 0.03,
            "{coarse}, {all}"
        );
        assert!(coarse.low < all.low && coarse.high > all.high, "{coarse}, {all}");
        assert!(coarse.to_string().contains("1200 points of whole hours"), "{coarse}");
    }

    #[test]
    fn an_hour_keeps_of_each_kind_what_there_was() {
        let kinds = (0..90).map(|i| match i % 3 {
            0 => DeviceInterval::Point(varied(i)),
            1 => DeviceInterval::Doubtful(varied(i), LeftOut::Limited),
            _ => DeviceInterval::Nothing(LeftOut::FewReads),
        });
        let hour = Coarse::of(kinds);
        let count = |why| hour.points().iter().filter(|interval| interval.why() == why).count();
        assert_eq!(
            (count(None), count(Some(LeftOut::Limited)), hour.points().len()),
            (KEPT, KEPT, 2 * KEPT)
        );
        assert_eq!(Coarse::of([DeviceInterval::Nothing(LeftOut::FewReads)]), Coarse::default());
    }

    proptest! {
        #[test]
        fn no_intervals_hurt(seen in prop::collection::vec((any::<u32>(), any::<u64>(), any::<u64>(), 0u8..4), 0..120)) {
            let intervals: Vec<DeviceInterval> = seen
                .into_iter()
                .map(|(outstanding, latency, size, why)| {
                    let point = DevicePoint {
                        outstanding: Outstanding::from_thousandths(outstanding),
                        latency: Nanos(latency),
                        size: Bytes(size),
                        random: Permille(0),
                    };
                    match why {
                        0 => DeviceInterval::Point(point),
                        1 => DeviceInterval::Doubtful(point, LeftOut::Windowed),
                        2 => DeviceInterval::Doubtful(point, LeftOut::Large),
                        _ => DeviceInterval::Nothing(LeftOut::FewReads),
                    }
                })
                .collect();
            let learnt = [
                DeviceModel::learn_from(&intervals),
                DeviceModel::learn_coarsely(&[Coarse::of(intervals.iter().copied())]),
            ];
            for model in learnt.into_iter().flatten() {
                prop_assert!(model.low <= model.slope.as_picos() && model.slope.as_picos() <= model.high, "{}", model);
                prop_assert!(model.latency(Outstanding::whole(1)) > Nanos::ZERO);
            }
        }
    }
}
