use super::recorder::StoreFine;
use headgate_placement::{DeviceModel, DevicePoint, LeftOut, Refusal, Tally};
use headgate_units::Nanos;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What is known of a datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// The model, if there is one: of the last 24 hours, or an older one while those make none.
    pub model: Option<DeviceModel>,
    /// Why the last 24 hours make none.
    pub refusal: Option<Refusal>,
    /// How many intervals of the last 24 hours told something, and why others did not.
    pub tally: Tally,
}

impl Learnt {
    /// What these points make.
    pub(crate) fn of_points(points: &[DevicePoint]) -> Learnt {
        let tally = Tally { taken: points.len() as u64, ..Tally::default() };
        match DeviceModel::learn(points) {
            Ok(model) => Learnt { model: Some(model), refusal: None, tally },
            Err(refusal) => Learnt { model: None, refusal: Some(refusal), tally },
        }
    }

    /// What was learnt before.
    pub(crate) fn of_model(model: DeviceModel) -> Learnt {
        Learnt { model: Some(model), refusal: None, tally: Tally::default() }
    }

    pub(super) fn from<'a>(
        intervals: impl Iterator<Item = &'a StoreFine>,
        before: Option<DeviceModel>,
    ) -> Learnt {
        let mut tally = Tally::default();
        let points: Vec<DevicePoint> = intervals
            .filter_map(|interval| {
                let interval: &Result<DevicePoint, LeftOut> = &interval.0;
                tally.count(interval);
                interval.ok()
            })
            .collect();
        match DeviceModel::learn(&points) {
            Ok(model) => {
                let model = before.map_or(model, |known| known.renewed(model));
                Learnt { model: Some(model), refusal: None, tally }
            }
            Err(refusal) => Learnt { model: before, refusal: Some(refusal), tally },
        }
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

    /// The window as of now.
    pub(super) fn from(self, now: Nanos) -> Nanos {
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
        let varied: Vec<_> = (0..60).map(|n| StoreFine(Ok(point(n % 12 + 1)))).collect();
        let steady = vec![StoreFine(Ok(point(4))); 60];
        let known = Learnt::from(varied.iter(), None).model;
        assert!((known.unwrap().slope.as_millis_f64() - 0.5).abs() < 0.01);
        assert_eq!(Learnt::from(steady.iter(), known).model, known);
        let alone = Learnt::from(steady.iter(), None).model.unwrap();
        assert!(alone.slope.as_millis_f64() > 1.0, "latency over load: {alone}");
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
