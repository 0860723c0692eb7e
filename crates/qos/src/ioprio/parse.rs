use super::field::LEVEL_UNSAID;
use super::map::IoprioMap;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use headgate_units::Priority;
use thiserror::Error;

/// A text that is no map.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IoprioMapError {
    /// Not of the form.
    #[error(
        "'{0}' is not of the form CLASS=PRIORITY: rt0 to rt7, be0 to be7 or idle, and 1 to 254, such as be7=20,idle=1"
    )]
    Form(String),
    /// The level that Linux writes if no priority was set.
    #[error(
        "be4 is what Linux writes where nobody gave a priority: the default priority stands for it"
    )]
    Unsaid,
    /// Twice the same.
    #[error("'{0}' is there twice: give each class and level once")]
    Twice(String),
}

/// What an entry is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    RealTime(u8),
    BestEffort(u8),
    Idle,
}

impl Key {
    fn all() -> impl Iterator<Item = Key> {
        let best_effort = (0..8).filter(|level| *level != LEVEL_UNSAID).map(Key::BestEffort);
        (0..8).map(Key::RealTime).chain(best_effort).chain([Key::Idle])
    }

    fn parse(text: &str) -> Option<Key> {
        let level = |digits: &str| {
            digits.parse::<u8>().ok().filter(|level| *level < 8 && digits.len() == 1)
        };
        match (text.strip_prefix("rt"), text.strip_prefix("be")) {
            (Some(digits), _) => level(digits).map(Key::RealTime),
            (_, Some(digits)) => level(digits).map(Key::BestEffort),
            _ => (text == "idle").then_some(Key::Idle),
        }
    }

    fn entry(self, map: &mut IoprioMap) -> &mut Priority {
        match self {
            Key::RealTime(level) => &mut map.real_time[usize::from(level)],
            Key::BestEffort(level) => &mut map.best_effort[usize::from(level)],
            Key::Idle => &mut map.idle,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::RealTime(level) => write!(f, "rt{level}"),
            Key::BestEffort(level) => write!(f, "be{level}"),
            Key::Idle => f.write_str("idle"),
        }
    }
}

/// The table's text alone; `nice` is no part of it.
impl FromStr for IoprioMap {
    type Err = IoprioMapError;

    fn from_str(text: &str) -> Result<IoprioMap, IoprioMapError> {
        let mut map = IoprioMap::default();
        if text == "default" {
            return Ok(map);
        }
        let mut seen = Vec::new();
        for entry in text.split(',') {
            let wrong = || IoprioMapError::Form(entry.to_owned());
            let (key, value) = entry.split_once('=').ok_or_else(wrong)?;
            let key = Key::parse(key).ok_or_else(wrong)?;
            if key == Key::BestEffort(LEVEL_UNSAID) {
                return Err(IoprioMapError::Unsaid);
            }
            if seen.contains(&key) {
                return Err(IoprioMapError::Twice(key.to_string()));
            }
            seen.push(key);
            *key.entry(&mut map) = value.parse().map_err(|_| wrong())?;
        }
        Ok(map)
    }
}

impl fmt::Display for IoprioMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut mine, mut default) = (*self, IoprioMap::default());
        let mut separator = "";
        for key in Key::all() {
            let priority = *key.entry(&mut mine);
            if priority != *key.entry(&mut default) {
                write!(f, "{separator}{key}={priority}")?;
                separator = ",";
            }
        }
        if separator.is_empty() { f.write_str("default") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_written_as_it_is_read() {
        for text in ["default", "idle=1", "rt0=100,rt7=99,be0=98,be7=2,idle=1"] {
            assert_eq!(text.parse::<IoprioMap>().unwrap().to_string(), text);
        }
        let same = "idle=10,be7=40".parse::<IoprioMap>().unwrap();
        assert_eq!((same, same.to_string().as_str()), (IoprioMap::default(), "default"));
    }

    #[test]
    fn what_is_no_map_says_what_one_is() {
        for (text, hint) in [
            ("", "CLASS=PRIORITY"),
            ("be7", "'be7' is not"),
            ("be8=1", "be0 to be7"),
            ("be+1=1", "'be+1=1' is not"),
            ("be07=1", "'be07=1' is not"),
            ("rt=1", "'rt=1' is not"),
            ("be7=0", "1 to 254"),
            ("be7=255", "1 to 254"),
            ("be7=1,", "'' is not"),
            ("be4=50", "default priority"),
            ("be7=1,idle=3,be7=2", "'be7' is there twice"),
        ] {
            let error = text.parse::<IoprioMap>().unwrap_err().to_string();
            assert!(error.contains(hint), "'{text}': {error}");
        }
    }
}
