use super::recorder::StoreFine;
use headgate_placement::{DeviceInterval, DeviceModel, DevicePoint, Evidence, LeftOut, Refusal, Tally};
use headgate_units::Nanos;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Where a model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Intervals of the last 24 hours.
    Day,
    /// What is left of the hours of the last 30 days.
    Month,
    /// Intervals of 24 hours that ended then, in nanoseconds since 1970.
    Earlier(Nanos),
    /// What was recorded elsewhere.
    Recorded,
}

/// What is known of a datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// The model, if there is one.
    pub model: Option<DeviceModel>,
    /// Where it comes from; of no meaning without one.
    pub source: Source,
    /// Why the last 24 hours make none.
    pub refusal: Option<Refusal>,
    /// How many intervals of the last 24 hours told something, and why others did not.
    pub tally: Tally,
}

/// What was learnt before.
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
    /// What these points make.
    pub(crate) fn of_points(points: &[DevicePoint]) -> Learnt {
        let tally = Tally { taken: points.len() as u64, ..Tally::default() };
        let (model, refusal) = match DeviceModel::learn(points) {
            Ok(model) => (Some(model), None),
            Err(refusal) => (None, Some(refusal)),
        };
        Learnt { model, source: Source::Recorded, refusal, tally }
    }

    /// What was learnt before.
    pub(crate) fn of_model(model: DeviceModel) -> Learnt {
        Learnt { model: Some(model), source: Source::Recorded, refusal: None, tally: Tally::default() }
    }

    /// Learns from the intervals of the last 24 hours. A slope that was seen before is not given up while those show only a bound: that
    /// says that the load did not vary, or other things did.
    pub(super) fn from<'a>(intervals: impl Iterator<Item = &'a StoreFine>, before: &Before) -> Learnt {
        let intervals: Vec<DeviceInterval> = intervals.map(|fine| fine.0).collect();
        let found = DeviceModel::learn_from(&intervals);
        let mut tally = Tally::default();
        let of_day = found.as_ref().ok();
        intervals.iter().for_each(|interval| {
            let why = interval.why().filter(|_| of_day.is_none_or(|model| !was_taken(model, interval)));
            tally.count_why(why);
        });
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
        Learnt { model: chosen.map(|(_, model)| model), source, refusal, tally }
    }

    /// Whether the model is learnt from such an interval.
    pub(super) fn takes(&self, interval: &DeviceInterval) -> bool {
        let by_model = self.model.as_ref().is_some_and(|model| was_taken(model, interval));
        matches!(interval, DeviceInterval::Point(_)) || by_model
    }
}

/// Whether a model looked at such an interval.
fn was_taken(model: &DeviceModel, interval: &DeviceInterval) -> bool {
    match interval {
        DeviceInterval::Point(_) => true,
        DeviceInterval::Doubtful(_, LeftOut::Large) => model.doubts.large > 0,
        DeviceInterval::Doubtful(..) => model.doubts.held > 0 || model.doubts.large > 0,
        DeviceInterval::Nothing(_) => false,
    }
}

/// How far back workloads are looked at: a minute to 30 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(Nanos);

/// The text is no [`Window`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no window: a time of 1 min to 30 d, such as 90min, 24h or 7d")]
pub struct UnknownWindow(String);

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

impl Window {
    /// 24 hours.
    pub const DAY: Window = Window(Nanos::from_secs(DAY));

    /// 30 days, the longest.
    pub(crate) const MONTH: Window = Window(Nanos::from_secs(30 * DAY));

    /// The window as of now.
    pub(crate) fn from(self, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_sub(self.0.0))
    }

    /// Whether single intervals are looked at instead of whole hours.
    pub(super) fn is_fine(self) -> bool {
        self.0 < Nanos::from_secs(3 * HOUR)
    }
}

impl Default for Window {
    fn default() -> Window {
        Window::DAY
    }
}

impl FromStr for Window {
    type Err = UnknownWindow;
    fn from_str(text: &str) -> Result<Window, UnknownWindow> {
        let unknown = || UnknownWindow(text.to_owned());
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| unknown())?;
        let unit = match unit.trim_start() {
            "min" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            _ => return Err(unknown()),
        };
        let seconds =
            number.checked_mul(unit).filter(|s| (MINUTE..=30 * DAY).contains(s)).ok_or_else(unknown)?;
        Ok(Window(Nanos::from_secs(seconds)))
    }
}

/// As it is written: `24h`.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0 / 1_000_000_000 {
            seconds if seconds % DAY == 0 && seconds > DAY => write!(f, "{}d", seconds / DAY),
            seconds if seconds % HOUR == 0 => write!(f, "{}h", seconds / HOUR),
            seconds => write!(f, "{}min", seconds / MINUTE),
        }
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
        let varied: Vec<_> = (0..60).map(|n| StoreFine(DeviceInterval::Point(point(n % 12 + 1)))).collect();
        let steady = vec![StoreFine(DeviceInterval::Point(point(4))); 60];
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

    #[test]
    fn windows_are_written_as_they_are_read() {
        for text in ["1min", "90min", "24h", "7d", "30d"] {
            assert_eq!(text.parse::<Window>().unwrap().to_string(), text);
        }
        for bad in ["", "0min", "31d", "24", "h", "1 week", "-1h", "99999999999999999999d"] {
            let error = bad.parse::<Window>().unwrap_err().to_string();
            assert!(error.contains("such as 90min, 24h or 7d"), "{error}");
        }
        assert_eq!(Window::default(), "1d".parse().unwrap());
    }
}
