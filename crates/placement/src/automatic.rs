//! Moves without an operator: when they may be made, and when no more are.

use alloc::string::String;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use headgate_units::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{MoveLimits, Name};

/// Minutes of a day.
const DAY: u64 = 24 * 60;
const MINUTE: u64 = 60_000_000_000;

/// What happens with advice that nobody has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing.
    #[default]
    Off,
    /// It is shown, and waits for the operator.
    Ask,
    /// It is carried out.
    On,
}

impl Mode {
    /// The word in rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Ask => "ask",
            Mode::On => "on",
        }
    }
}

/// The hours of each day in which moves may begin, in UTC: `22:00-06:00`, or `always`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hours(Option<Span>);

/// Minutes after midnight. The end is not in it; one that ends before it begins goes over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: u16,
    to: u16,
}

/// The text is no such time of the day.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is no span of hours, expected two different times of the day in UTC such as 22:00-06:00, or always"
)]
pub struct UnknownHours(String);

impl Hours {
    /// At any time.
    pub const ALWAYS: Hours = Hours(None);

    /// Whether an instant is within them, on a clock that counts from a midnight.
    pub fn contain(self, now: Nanos) -> bool {
        let Some(Span { from, to }) = self.0 else { return true };
        let minute = now.0 / MINUTE % DAY;
        let (from, to) = (u64::from(from), u64::from(to));
        if from < to { (from..to).contains(&minute) } else { minute >= from || minute < to }
    }
}

fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str, below: u16| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|&number| digits && number < below)
    };
    Some(number(hours, 24)? * 60 + number(minutes, 60)?)
}

impl FromStr for Hours {
    type Err = UnknownHours;
    fn from_str(text: &str) -> Result<Hours, UnknownHours> {
        if text == "always" {
            return Ok(Hours::ALWAYS);
        }
        let span = text.split_once('-').and_then(|(from, to)| {
            let span = Span { from: minute(from)?, to: minute(to)? };
            (span.from != span.to).then_some(span)
        });
        match span {
            Some(span) => Ok(Hours(Some(span))),
            None => Err(UnknownHours(text.chars().take(40).collect())),
        }
    }
}

impl TryFrom<String> for Hours {
    type Error = UnknownHours;
    fn try_from(text: String) -> Result<Hours, UnknownHours> {
        text.parse()
    }
}

impl From<Hours> for String {
    fn from(hours: Hours) -> String {
        alloc::format!("{hours}")
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Span { from, to }) = self.0 else { return f.write_str("always") };
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

/// When moves are made without an operator, and how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Automatic {
    /// Whether. `off`.
    pub mode: Mode,
    /// In which hours they begin. `always`.
    pub hours: Hours,
    /// At most so many disks move at once. 1.
    pub at_once: NonZeroU32,
    /// Of these, at most so many from or to one datastore. 1.
    pub per_datastore: NonZeroU32,
    /// When the mode was set: moves before that are not held against it. Set by the daemon.
    #[serde(skip_serializing_if = "is_zero")]
    pub since: Nanos,
    /// Why no moves are made although they should be, until the mode is set again. Set by the
    /// daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

fn is_zero(at: &Nanos) -> bool {
    *at == Nanos::ZERO
}

impl Default for Automatic {
    fn default() -> Automatic {
        Automatic {
            mode: Mode::Off,
            hours: Hours::ALWAYS,
            at_once: NonZeroU32::MIN,
            per_datastore: NonZeroU32::MIN,
            since: Nanos::ZERO,
            stopped: None,
        }
    }
}

/// Why automatic moves have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stopped {
    /// When.
    pub at: Nanos,
    /// Why.
    pub why: String,
}

/// A move that made things worse, by what its datastores did before it and after it
/// ([`Finding::Worse`](crate::Finding::Worse)).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the prediction for disk '{disk}' proved wrong: since it went from '{from}' to '{to}' requests \
     on both take {after}, and took {before} a day before, with no more done"
)]
pub struct Harm {
    /// The disk.
    pub disk: Name,
    /// Where it was.
    pub from: Name,
    /// Where it is.
    pub to: Name,
    /// When it moved, on the clock of [`Pool::now`](crate::Pool::now).
    pub at: Nanos,
    /// How long requests took before.
    pub before: Nanos,
    /// And after.
    pub after: Nanos,
}

/// What is to be done now without an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing.
    Rest,
    /// Nothing any more, because of this.
    Stop(Harm),
    /// Advice is asked, and shown.
    Show,
    /// Advice is asked, and carried out.
    Carry,
}

impl Automatic {
    /// How many moves may be under way.
    pub fn limits(&self) -> MoveLimits {
        MoveLimits { at_once: self.at_once, per_datastore: self.per_datastore }
    }

    /// What is to be done at an instant, with so many moves under way, and after moves that made
    /// things worse. One that was made before the mode was set is the operator's to judge: they
    /// knew of it, or could.
    pub fn turn(&self, now: Nanos, under_way: usize, harms: &[Harm]) -> Turn {
        if self.mode == Mode::Off || self.stopped.is_some() {
            return Turn::Rest;
        }
        if self.mode == Mode::Ask {
            return Turn::Show;
        }
        if let Some(harm) = harms.iter().find(|harm| harm.at >= self.since) {
            return Turn::Stop(harm.clone());
        }
        // What is under way changes what advice goes by.
        match under_way == 0 && self.hours.contain(now) {
            true => Turn::Carry,
            false => Turn::Rest,
        }
    }

    /// As an operator has set it: what stopped it is forgiven, and what was before is.
    pub fn set(self, now: Nanos) -> Automatic {
        Automatic { since: now, stopped: None, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn at(text: &str) -> Nanos {
        Nanos(u64::from(minute(text).unwrap()) * MINUTE + 20_000 * DAY * MINUTE)
    }

    fn harm(at: Nanos) -> Harm {
        let [before, after] = [5, 8].map(Nanos::from_millis);
        Harm { disk: "d".into(), from: "a".into(), to: "b".into(), at, before, after }
    }

    #[test]
    fn hours_over_midnight_and_within_a_day() {
        let night: Hours = "22:00-06:00".parse().unwrap();
        let inside = ["22:00", "23:59", "00:00", "05:59"];
        assert!(inside.iter().all(|time| night.contain(at(time))));
        assert!(["06:00", "12:00", "21:59"].iter().all(|time| !night.contain(at(time))));
        let noon: Hours = "11:30-12:00".parse().unwrap();
        assert!(noon.contain(at("11:30")) && noon.contain(at("11:59")));
        assert!(!noon.contain(at("12:00")) && !noon.contain(at("11:29")));
        assert!(Hours::ALWAYS.contain(at("03:00")));
        for text in ["22:00-06:00", "00:00-23:59", "always"] {
            assert_eq!(text.parse::<Hours>().unwrap().to_string(), text);
        }
        for bad in
            ["", "22-6", "24:00-06:00", "22:60-06:00", "06:00-06:00", "2:00-06:00", "+2:00-06:00"]
        {
            let error = bad.parse::<Hours>().unwrap_err().to_string();
            assert!(error.contains("such as 22:00-06:00"), "{error}");
        }
    }

    #[test]
    fn nothing_is_done_that_was_not_set_and_nothing_outside_the_hours() {
        let turn = |mode, time: &str, under_way| {
            let hours = "22:00-06:00".parse().unwrap();
            Automatic { mode, hours, ..Automatic::default() }.turn(at(time), under_way, &[])
        };
        assert_eq!(Automatic::default().turn(at("23:00"), 0, &[]), Turn::Rest);
        assert_eq!(turn(Mode::Off, "23:00", 0), Turn::Rest);
        assert_eq!(turn(Mode::On, "23:00", 0), Turn::Carry);
        assert_eq!(turn(Mode::On, "12:00", 0), Turn::Rest, "by day");
        assert_eq!(turn(Mode::On, "23:00", 1), Turn::Rest, "a disk moves");
        assert_eq!(turn(Mode::Ask, "12:00", 1), Turn::Show, "who asks does nothing");
    }

    #[test]
    fn a_wrong_prediction_stops_it_until_it_is_set_again() {
        let on = Automatic { mode: Mode::On, ..Automatic::default() }.set(at("12:00"));
        assert_eq!(on.turn(at("13:00"), 0, &[harm(at("11:59"))]), Turn::Carry, "known before");
        let found = harm(at("12:00"));
        let Turn::Stop(why) = on.turn(at("13:00"), 1, &[harm(at("11:00")), found.clone()]) else {
            panic!("it goes on")
        };
        assert_eq!(why, found);
        assert!(why.to_string().contains("take 8.00 ms, and took 5.00 ms"), "{why}");
        let ask = Automatic { mode: Mode::Ask, ..on.clone() };
        assert_eq!(ask.turn(at("13:00"), 1, std::slice::from_ref(&found)), Turn::Show);
        let stopped = Stopped { at: at("13:00"), why: why.to_string() };
        let stopped = Automatic { stopped: Some(stopped), ..on };
        assert_eq!(stopped.turn(at("14:00"), 0, &[]), Turn::Rest);
        assert_eq!(stopped.set(at("15:00")).turn(at("15:01"), 0, &[found]), Turn::Carry);
    }

    #[test]
    fn it_is_read_as_it_was_written_and_never_with_no_moves_at_once() {
        let text = r#"{"mode":"on","hours":"22:00-06:00","at_once":2,"per_datastore":1}"#;
        let automatic: Automatic = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&automatic).unwrap(), text);
        serde_json::from_str::<Automatic>(r#"{"at_once":0}"#).unwrap_err();
        serde_json::from_str::<Automatic>(r#"{"hours":"nights"}"#).unwrap_err();
    }
}
