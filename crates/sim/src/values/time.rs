//! Instants, durations and intervals.

use super::raw::Raw;
use headgate_units::Nanos;
#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A duration or an instant from the beginning of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Nanos);

const TIME: &str = "a time with a unit (ns, us, ms, s, m, h, d), such as '250ms' or '1.5s'";

impl Time {
    pub(crate) fn parse(text: &str) -> Result<Time, String> {
        let wrong = || format!("'{text}' is not {TIME}; write such a time");
        let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit: u64 = match unit {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return Err(wrong()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if fraction.is_empty() || fraction.len() > 9 {
            return Err(wrong());
        }
        let scale = 10u128.pow(fraction.len() as u32);
        let whole: u128 = whole.parse().map_err(|_| wrong())?;
        let fraction: u128 = fraction.parse().map_err(|_| wrong())?;
        let nanos =
            whole.checked_mul(scale).and_then(|w| (w + fraction).checked_mul(u128::from(unit)));
        let nanos = nanos.and_then(|n| u64::try_from(n / scale).ok()).ok_or_else(wrong)?;
        Ok(Time(Nanos(nanos)))
    }
}

value!(Time, TIME, {
    "type": "string",
    "pattern": r"^[0-9]+(\.[0-9]{1,9})?(ns|us|ms|s|m|h|d)$",
    "description": "A time with a unit: 250ms, 1.5s, 2h",
}, Raw::Text(text) => Time::parse(&text));

/// An interval of time; its end is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
}

impl Stretch {
    fn parse(text: &str) -> Result<Stretch, String> {
        let (from, to) = text.split_once("..").ok_or_else(|| {
            format!("'{text}' is not a stretch of time; write one as '60s..120s'")
        })?;
        let (from, to) = (Time::parse(from)?.0, Time::parse(to)?.0);
        if from >= to {
            return Err(format!(
                "the stretch '{text}' has no length; write the earlier time first"
            ));
        }
        Ok(Stretch { from, to })
    }
}

value!(Stretch, "a stretch of time such as '60s..120s'", {
    "type": "string",
    "pattern": r"^[0-9.]+(ns|us|ms|s|m|h|d)\.\.[0-9.]+(ns|us|ms|s|m|h|d)$",
    "description": "A stretch of time, its end excluded: 60s..120s",
}, Raw::Text(text) => Stretch::parse(&text));

/// A start time; none for "never".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start(pub(crate) Option<Nanos>);

value!(Start, "a time such as '60s', or 'never'", {
    "type": "string", "description": "A time such as 60s, or never",
}, Raw::Text(text) => match text.as_str() {
    "never" => Ok(Start(None)),
    text => Time::parse(text).map(|time| Start(Some(time.0))),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        for (text, nanos) in [
            ("250ms", 250_000_000),
            ("1.5s", 1_500_000_000),
            ("0.000000001s", 1),
            ("2h", 7_200_000_000_000),
        ] {
            assert_eq!(Time::parse(text), Ok(Time(Nanos(nanos))), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1e3s", "1.s", "99999999999d", "1 s"] {
            assert!(Time::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn stretches_go_forward() {
        assert_eq!(
            Stretch::parse("1s..2s"),
            Ok(Stretch { from: Nanos::from_secs(1), to: Nanos::from_secs(2) })
        );
        assert!(Stretch::parse("2s..2s").is_err());
        assert!(Stretch::parse("2s").is_err());
    }
}
