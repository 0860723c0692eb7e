use super::recorder::StoreInterval;
use headgate_placement::{DeviceInterval, DeviceModel, DevicePoint, Evidence, Refusal, Totals};
use headgate_units::Nanos;

/// Where a model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Intervals of the last 24 hours.
    Day,
    /// Points of the hours of the last 30 days.
    Month,
    /// Intervals of 24 hours that ended then, in nanoseconds since 1970.
    Earlier(Nanos),
    /// An offline pool.
    Recorded,
}

/// The model of a datastore, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// The model, if there is one.
    pub model: Option<DeviceModel>,
    /// Where it comes from; of no meaning without one.
    pub source: Source,
    /// Why the last 24 hours make none.
    pub refusal: Option<Refusal>,
    /// Intervals of the last 24 hours that became points, and why others did not.
    pub totals: Totals,
}

/// The model learnt before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Before {
    /// From 24 hours that ended then.
    pub day: Option<(Nanos, DeviceModel)>,
    /// From the hours of 30 days.
    pub month: Option<DeviceModel>,
}

impl Before {
    /// What holds while the last 24 hours say nothing: a slope that was seen, lately if possible.
    pub fn model(&self) -> Option<(Source, DeviceModel)> {
        let day = self.day.map(|(at, model)| (Source::Earlier(at), model));
        let month = self.month.map(|model| (Source::Month, model));
        let rises = |known: &(Source, DeviceModel)| known.1.evidence == Evidence::Rise;
        day.filter(rises).or(month.filter(rises)).or(day).or(month)
    }
}

impl Learnt {
    /// The model of these points.
    pub fn of_points(points: &[DevicePoint]) -> Learnt {
        let totals = Totals { taken: points.len() as u64, ..Totals::default() };
        let (model, refusal) = match DeviceModel::learn(points) {
            Ok(model) => (Some(model), None),
            Err(refusal) => (None, Some(refusal)),
        };
        Learnt { model, source: Source::Recorded, refusal, totals }
    }

    /// The model learnt before.
    pub fn of_model(model: DeviceModel) -> Learnt {
        Learnt {
            model: Some(model),
            source: Source::Recorded,
            refusal: None,
            totals: Totals::default(),
        }
    }

    /// Learns from the intervals of the last 24 hours. A slope that was seen before is not given up
    /// while those show only a bound: that says that the load did not vary, or other things did.
    pub(super) fn from<'a>(
        intervals: impl Iterator<Item = &'a StoreInterval>,
        before: &Before,
    ) -> Learnt {
        let intervals: Vec<DeviceInterval> = intervals.map(|interval| interval.0).collect();
        let found = DeviceModel::learn_from(&intervals);
        let totals = Totals::of(&intervals, found.as_ref().ok());
        let (model, refusal) = match found {
            Ok(model) => (Some((Source::Day, model)), None),
            Err(refusal) => (None, Some(refusal)),
        };
        let kept = before.model();
        let better = match (&model, &kept) {
            (Some((_, new)), Some((_, old))) => old.renewed(*new) == *new,
            (found, _) => found.is_some(),
        };
        let chosen = if better { model } else { kept };
        let source = chosen.map_or(Source::Day, |(source, _)| source);
        Learnt { model: chosen.map(|(_, model)| model), source, refusal, totals }
    }

    /// Whether the model is learnt from such an interval.
    pub(super) fn takes(&self, interval: &DeviceInterval) -> bool {
        let by_model = self.model.is_some_and(|model| model.is_learnt_from(interval));
        matches!(interval, DeviceInterval::Point(_)) || by_model
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_placement::{Outstanding, Permille};
    use headgate_units::Bytes;

    #[test]
    fn a_slope_that_was_seen_is_not_given_up_while_the_load_does_not_vary() {
        let point = |outstanding: u32| {
            let latency = Nanos::from_micros(3_000 + 500 * u64::from(outstanding));
            let (size, random) = (Bytes::from_kib(8), Permille::WHOLE);
            DevicePoint { outstanding: Outstanding::whole(outstanding), latency, size, random }
        };
        let varied: Vec<_> =
            (0..60).map(|n| StoreInterval(DeviceInterval::Point(point(n % 12 + 1)))).collect();
        let steady = vec![StoreInterval(DeviceInterval::Point(point(4))); 60];
        let learnt = Learnt::from(varied.iter(), &Before::default());
        let known = learnt.model.unwrap();
        assert!((known.slope.as_millis_f64() - 0.5).abs() < 0.01 && learnt.source == Source::Day);
        let day = Before { day: Some((Nanos(7), known)), month: None };
        let kept = Learnt::from(steady.iter(), &day);
        assert_eq!((kept.model, kept.source), (Some(known), Source::Earlier(Nanos(7))));
        let alone = Learnt::from(steady.iter(), &Before::default()).model.unwrap();
        assert!(alone.slope.as_millis_f64() > 1.0, "latency over load: {alone}");
        // Of a day's bound, of another's and of a month's slope, the slope counts.
        let month = DeviceModel { points: 99, ..known };
        let bound = Before { day: Some((Nanos(7), alone)), month: Some(month) };
        let found = Learnt::from(steady.iter(), &bound);
        assert_eq!((found.model, found.source), (Some(month), Source::Month));
        assert_eq!(Learnt::from(varied.iter(), &bound).source, Source::Day);
    }
}
