//! Times on the command line: a month, a day, an instant, or so long ago.

use headgate_model::Lookback;
use headgate_units::Nanos;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// The text is no time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is no time: 2026-11, 2026-11-28, 2026-11-28T03:00 (UTC), or so long ago, such as 24h"
)]
pub(super) struct NoTime(String);

/// The text is no month.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no month: such as 2026-11")]
pub(super) struct NoMonth(String);

/// An instant, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At(pub i64);

/// A month of UTC: its first second, and the first after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Month {
    pub since: i64,
    pub until: i64,
}

pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Days since 1970 of a day of the proleptic Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // By eras of 400 years that start in March.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Numbers of so many digits each, joined by this.
fn numbers<const N: usize>(text: &str, joint: char, digits: [usize; N]) -> Option<[i64; N]> {
    let parts: Vec<&str> = text.split(joint).collect();
    let fits = |(part, digits): (&&str, &usize)| {
        part.len() == *digits && part.bytes().all(|b| b.is_ascii_digit())
    };
    if parts.len() != N || !parts.iter().zip(&digits).all(fits) {
        return None;
    }
    let mut found = [0; N];
    for (found, part) in found.iter_mut().zip(parts) {
        *found = part.parse().ok()?;
    }
    Some(found)
}

fn month(text: &str) -> Option<Month> {
    let [year, month] = numbers(text, '-', [4, 2])?;
    if year < 1970 || !(1..=12).contains(&month) {
        return None;
    }
    let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    Some(Month { since: days(year, month, 1) * 86_400, until: days(next.0, next.1, 1) * 86_400 })
}

fn instant(text: &str) -> Option<i64> {
    if let Some(month) = month(text) {
        return Some(month.since);
    }
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00"));
    let [year, of_year, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute] = numbers(time.trim_end_matches('Z'), ':', [2, 2])?;
    let length = month(&date[..7])?;
    let days_of_month = (length.until - length.since) / 86_400;
    let fits = (1..=days_of_month).contains(&day) && hour < 24 && minute < 60;
    fits.then(|| days(year, of_year, day) * 86_400 + hour * 3_600 + minute * 60)
}

impl FromStr for Month {
    type Err = NoMonth;
    fn from_str(text: &str) -> Result<Month, NoMonth> {
        month(text).ok_or_else(|| NoMonth(text.to_owned()))
    }
}

impl FromStr for At {
    type Err = NoTime;
    fn from_str(text: &str) -> Result<At, NoTime> {
        if let Some(at) = instant(text) {
            return Ok(At(at));
        }
        let ago: Lookback = text.parse().map_err(|_| NoTime(text.to_owned()))?;
        let now = Nanos::from_secs(now().cast_unsigned());
        Ok(At((ago.from(now).0 / 1_000_000_000).cast_signed()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::date;
    use super::*;

    #[test]
    fn months_and_instants_are_those_of_the_calendar() {
        let of = |text: &str| text.parse::<Month>().unwrap();
        assert_eq!(date(of("2024-02").since.cast_unsigned()), "2024-02-01 00:00 UTC");
        assert_eq!(of("2024-02").until - of("2024-02").since, 29 * 86_400);
        assert_eq!(date(of("2026-12").until.cast_unsigned()), "2027-01-01 00:00 UTC");
        for (text, said) in [
            ("2026-11-28T03:05", "2026-11-28 03:05 UTC"),
            ("2026-11-28T03:05Z", "2026-11-28 03:05 UTC"),
            ("2000-02-29", "2000-02-29 00:00 UTC"),
            ("2026-11", "2026-11-01 00:00 UTC"),
        ] {
            assert_eq!(date(text.parse::<At>().unwrap().0.cast_unsigned()), said);
        }
        for wrong in ["2026-13", "2026-2-1", "2026-02-29", "2026-11-28T24:00", "yesterday", ""] {
            assert!(wrong.parse::<At>().is_err(), "{wrong}");
        }
        let ago = now() - "24h".parse::<At>().unwrap().0;
        assert!((86_399..=86_401).contains(&ago), "{ago}");
    }
}
