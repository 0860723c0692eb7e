//! The settings of a datastore's window.

use headgate_qos::Narrow;
use headgate_qos::window::{Config, Division, Follow, Slots};
use headgate_units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// By which latency a datastore's window is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Threshold {
    /// By none: the window is the queue depth.
    #[default]
    None,
    /// By one that begins where calibration found it, and follows the storage.
    Auto,
    /// By the one that calibration found.
    Calibrated,
    /// By this one.
    Fixed(Nanos),
}

/// The text is no [`Threshold`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is no latency threshold: a time such as 30ms or 200us, 'auto', 'calibrated' or 'none'"
)]
pub struct UnknownThreshold(String);

impl FromStr for Threshold {
    type Err = UnknownThreshold;
    fn from_str(text: &str) -> Result<Threshold, UnknownThreshold> {
        match text {
            "none" => Ok(Threshold::None),
            "auto" => Ok(Threshold::Auto),
            "calibrated" => Ok(Threshold::Calibrated),
            _ => text.parse().map(Threshold::Fixed).map_err(|_| UnknownThreshold(text.to_owned())),
        }
    }
}

/// As it is written: `none`, `auto`, `calibrated` or a whole number with its unit.
impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threshold::None => f.write_str("none"),
            Threshold::Auto => f.write_str("auto"),
            Threshold::Calibrated => f.write_str("calibrated"),
            Threshold::Fixed(Nanos(n)) if n % 1_000_000 == 0 => write!(f, "{}ms", n / 1_000_000),
            Threshold::Fixed(Nanos(n)) if n % 1_000 == 0 => write!(f, "{}us", n / 1_000),
            Threshold::Fixed(Nanos(n)) => write!(f, "{n}ns"),
        }
    }
}

/// What hosts that share a datastore get in proportion to their shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum WindowLaw {
    /// Work that is done, as it is measured.
    #[default]
    Measured,
    /// Slots in the storage's queue, by the same law otherwise.
    Slots,
    /// Slots, by the law as the PARDA paper prints it: a slot for 1,000 shares in each period.
    Published,
}

/// The text is no [`WindowLaw`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no window law: 'measured', 'slots' or 'published'")]
pub struct UnknownWindowLaw(String);

impl FromStr for WindowLaw {
    type Err = UnknownWindowLaw;
    fn from_str(text: &str) -> Result<WindowLaw, UnknownWindowLaw> {
        match text {
            "measured" => Ok(WindowLaw::Measured),
            "slots" => Ok(WindowLaw::Slots),
            "published" => Ok(WindowLaw::Published),
            _ => Err(UnknownWindowLaw(text.to_owned())),
        }
    }
}

impl fmt::Display for WindowLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WindowLaw::Measured => "measured",
            WindowLaw::Slots => "slots",
            WindowLaw::Published => "published",
        })
    }
}

/// The shares of one slot under [`WindowLaw::Published`]: those of a disk unless it was given
/// others.
const SHARES_PER_SLOT: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

/// Where the congestion board of a datastore is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum BoardPlace {
    /// In a file of the datastore's directory; nowhere if it has none.
    #[default]
    Auto,
    /// Nowhere: no other host uses the datastore.
    None,
    /// In a file of this directory, which all hosts reach.
    Directory(PathBuf),
    /// In etcd, under this name, the same on all hosts.
    Etcd(String),
}

/// The text is no [`BoardPlace`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is no place for a congestion board: an absolute path of a directory that all hosts reach, 'etcd=NAME', 'auto' or 'none'"
)]
pub struct UnknownBoard(String);

impl FromStr for BoardPlace {
    type Err = UnknownBoard;
    fn from_str(text: &str) -> Result<BoardPlace, UnknownBoard> {
        match text {
            "auto" => Ok(BoardPlace::Auto),
            "none" => Ok(BoardPlace::None),
            _ if text.starts_with('/') => Ok(BoardPlace::Directory(text.into())),
            _ => match text.strip_prefix("etcd=") {
                Some(name) if !name.is_empty() && name.len() <= 255 && !name.contains('/') => {
                    Ok(BoardPlace::Etcd(name.to_owned()))
                }
                _ => Err(UnknownBoard(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for BoardPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BoardPlace::Auto => f.write_str("auto"),
            BoardPlace::None => f.write_str("none"),
            BoardPlace::Directory(path) => write!(f, "{}", path.display()),
            BoardPlace::Etcd(name) => write!(f, "etcd={name}"),
        }
    }
}

/// The threshold that calibration found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FoundThreshold {
    /// The latency at 90 % of the highest throughput, in nanoseconds.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub threshold: Nanos,
    /// The highest throughput of random reads, in IOPS.
    pub peak: u64,
    /// The latency of a single request, in nanoseconds.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub unloaded: Nanos,
    /// Whether more requests would not have brought more.
    pub saturated: bool,
    /// When: seconds since 1970-01-01 UTC.
    pub at: u64,
}

/// Where an automatic threshold has got to by following the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FollowedThreshold {
    /// The threshold, in nanoseconds.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub threshold: Nanos,
    /// Since when: seconds since 1970-01-01 UTC.
    pub at: u64,
}

/// How a datastore's window is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowRecord {
    /// By which latency.
    pub threshold: Threshold,
    /// The threshold that calibration found.
    pub found: Option<FoundThreshold>,
    /// Where an automatic threshold has got to since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<FollowedThreshold>,
    /// The smallest window, 1 or more.
    pub min: u32,
    /// The largest; the queue depth when nothing was set.
    pub max: Option<u32>,
    /// How often it is set; by the threshold when nothing was set.
    pub period: Option<Nanos>,
    /// Where the hosts meet.
    pub board: BoardPlace,
    /// What is divided by shares.
    #[serde(default)]
    pub law: WindowLaw,
    /// Whether the window gives way to reservations.
    #[serde(default = "for_reservations", with = "narrow")]
    pub narrow: Narrow,
}

fn for_reservations() -> Narrow {
    Narrow::ForReservations
}

/// As text.
mod narrow {
    use headgate_qos::Narrow;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(narrow: &Narrow, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(narrow)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Narrow, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// What devices that answer within microseconds need: a period should see a hundred IOs and no more
/// than it must.
const PERIOD_FAST: Nanos = Nanos::from_millis(500);

/// Thresholds below this one are those of such devices.
const FAST: Nanos = Nanos::from_millis(5);

/// The smallest window unless something else was set.
const MIN: u32 = 4;

impl WindowRecord {
    /// No control.
    pub fn unset() -> WindowRecord {
        WindowRecord {
            threshold: Threshold::None,
            found: None,
            followed: None,
            min: MIN,
            max: None,
            period: None,
            board: BoardPlace::Auto,
            law: WindowLaw::default(),
            narrow: Narrow::ForReservations,
        }
    }

    /// The latency to go by, or to begin with; `None` without control. Until a threshold that is to
    /// be found has been, the usual one of arrays.
    pub fn latency(&self) -> Option<Nanos> {
        match self.threshold {
            Threshold::None => None,
            Threshold::Fixed(threshold) => Some(threshold),
            Threshold::Auto | Threshold::Calibrated => {
                Some(self.found.map_or(Config::default().threshold, |found| found.threshold))
            }
        }
    }

    /// How the window is controlled, on a datastore of this queue depth. `None` without control.
    pub fn control(&self, queue_depth: u32) -> Option<Config> {
        let threshold = self.latency()?;
        let default = Config::default();
        let law = match self.law {
            WindowLaw::Measured => default,
            WindowLaw::Slots => Config { division: Division::Slots, ..default },
            WindowLaw::Published => Config::published(threshold, SHARES_PER_SLOT),
        };
        let usual = if threshold < FAST { PERIOD_FAST } else { default.period };
        let max = self.max.unwrap_or(queue_depth);
        // A bound that only follows from the queue depth gives way to one that was set.
        let min = if self.max.is_none() { self.min.min(max) } else { self.min };
        Some(Config {
            threshold,
            period: self.period.unwrap_or(usual),
            min: Slots::whole(min),
            max: Slots::whole(max),
            follow: match self.threshold {
                Threshold::Auto => Follow::DEFAULT,
                Threshold::None | Threshold::Fixed(_) | Threshold::Calibrated => Follow::Never,
            },
            ..law
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_qos::window::Gain;

    #[test]
    fn thresholds_and_boards_are_read_as_they_are_written() {
        for text in ["none", "auto", "calibrated", "30ms", "250us", "1500us"] {
            assert_eq!(text.parse::<Threshold>().unwrap().to_string(), text);
        }
        assert_eq!("2s".parse::<Threshold>().unwrap().to_string(), "2000ms");
        assert!("30".parse::<Threshold>().unwrap_err().to_string().contains("30ms or 200us"));
        for text in ["measured", "slots", "published"] {
            assert_eq!(text.parse::<WindowLaw>().unwrap().to_string(), text);
        }
        assert!("printed".parse::<WindowLaw>().unwrap_err().to_string().contains("'published'"));
        for text in ["auto", "none", "/mnt/shared", "etcd=array1"] {
            assert_eq!(text.parse::<BoardPlace>().unwrap().to_string(), text);
        }
        for wrong in ["etcd", "etcd=", "etcd=a/b", "mnt", ""] {
            wrong.parse::<BoardPlace>().unwrap_err();
        }
    }

    #[test]
    fn the_control_follows_threshold_and_depth() {
        let mut window = WindowRecord::unset();
        assert_eq!(window.control(32), None);
        window.threshold = Threshold::Auto;
        let control = window.control(32).unwrap();
        assert_eq!(
            (control.threshold, control.period),
            (Nanos::from_millis(30), Nanos::from_secs(4))
        );
        assert_eq!((control.min, control.max), (Slots::whole(4), Slots::whole(32)));
        assert_eq!(window.control(2).unwrap().validate(), Ok(()));
        window.threshold = Threshold::Fixed(Nanos::from_micros(300));
        assert_eq!(window.control(128).unwrap().period, Nanos::from_millis(500));
        // The bounds and the period are the datastore's, whatever the law.
        for law in [WindowLaw::Measured, WindowLaw::Slots, WindowLaw::Published] {
            window.law = law;
            let control = window.control(128).unwrap();
            assert_eq!(control.validate(), Ok(()));
            assert_eq!((control.min, control.max), (Slots::whole(4), Slots::whole(128)));
            assert_eq!(control.period, Nanos::from_millis(500));
            let divides_work = control.division == Division::Service;
            assert_eq!(divides_work, law == WindowLaw::Measured);
            let by_excess = matches!(control.gain, Gain::Excess(_));
            assert_eq!(by_excess, law != WindowLaw::Published);
        }
        window.max = Some(3);
        assert!(window.control(128).unwrap().validate().is_err(), "a minimum of 4, a maximum of 3");
    }
}
