//! Layers as the command line and the catalog write them.

use super::fault::Fault;
use super::stall::Stall;
use crate::IoKind;
use crate::options::{ModelSpecError, Options, by_name, name_of, parse_latency, write_latency};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use headgate_units::{Iops, Nanos};
use thiserror::Error;

const FORMS: &str = "delay=TIME[,on=KIND], rate=IOPS[,on=KIND], \
    error=PERCENT[,on=KIND][,errno=EIO|ENOSPC][,after=N][,count=N][,seed=N], stragglers=N:TIME, \
    stall=TIME/PERIOD, or trace=N, where KIND is read, write, flush, discard or all";

/// Most requests that a trace keeps: 4 MiB of memory.
const TRACE_MAX: u32 = 65_536;

/// One layer, in text form `NAME=VALUE[,OPTION=VALUE...]`.
///
/// | text | what it does |
/// |---|---|
/// | `delay=5ms` | holds each request for a time before it goes on, 1 ns to 100 s |
/// | `rate=1000` | lets at most so many requests per second go on, 1 to 1,000,000,000 |
/// | `error=1%` | fails requests with this probability, 0.0001 % to 100 % |
/// | `stragglers=16:300ms` | holds every 16th completion for a time, 1 ns to 100 s |
/// | `stall=1s/5s` | stands still for 1 s at the end of every 5 s, 1 ns to 100 s |
/// | `trace=1000` | keeps the last so many requests with their times, 1 to 65,536 |
///
/// `delay`, `rate` and `error` apply to all requests, or with `on=read|write|flush|discard` to one
/// kind. `error` also takes `errno=EIO|ENOSPC` (`EIO` unless given), `after=N` (the first N of its
/// kind pass), `count=N` (no more than N fail) and `seed=N` (1 unless given): `error=100%,count=3`
/// fails exactly the first three.
///
/// `Display` writes every option that differs from its default and parses back to the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerSpec {
    /// Holds each request before it goes on.
    Delay {
        /// For how long.
        time: Nanos,
        /// Which requests.
        on: Which,
    },
    /// Spaces requests out.
    Rate {
        /// Requests per second.
        rate: Iops,
        /// Which requests.
        on: Which,
    },
    /// Fails requests.
    Error {
        /// How probable it is.
        chance: Percentage,
        /// Which requests.
        on: Which,
        /// How they fail.
        fault: Fault,
        /// Requests of these kinds that pass first.
        after: u64,
        /// Most requests that fail. `None`: no bound.
        count: Option<u64>,
        /// Of the random sequence.
        seed: u64,
    },
    /// Holds some completions.
    Stragglers(Stragglers),
    /// Stands still now and then.
    Stall(Stall),
    /// Records requests.
    Trace {
        /// How many are kept.
        entries: NonZeroU32,
    },
}

/// Every n-th request completes late, as on any real device, but regularly enough for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stragglers {
    /// The n of "every n-th".
    pub every: NonZeroU32,
    /// By how much.
    pub held: Nanos,
}

impl Stragglers {
    pub(crate) const FORM: &str = "N:TIME, every N-th request for a time, such as 16:300ms";
}

/// Prints what stands behind `stragglers=`.
impl fmt::Display for Stragglers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.every)?;
        write_latency(f, self.held)
    }
}

/// The requests that a layer applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// Every request.
    #[default]
    All,
    /// Those of one kind.
    Only(IoKind),
}

impl Which {
    pub(super) fn includes(self, kind: IoKind) -> bool {
        self == Which::All || self == Which::Only(kind)
    }
}

const KINDS: [(&str, Which); 5] = [
    ("all", Which::All),
    ("read", Which::Only(IoKind::Read)),
    ("write", Which::Only(IoKind::Write)),
    ("flush", Which::Only(IoKind::Flush)),
    ("discard", Which::Only(IoKind::Discard)),
];
const FAULTS: [(&str, Fault); 2] = [("EIO", Fault::Io), ("ENOSPC", Fault::NoSpace)];

/// A probability in parts per million, 1 to 1,000,000. Its text is a percentage with up to four
/// decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentage(u32);

impl Percentage {
    const WHOLE: u32 = 1_000_000;

    /// Parts per million.
    pub(super) fn ppm(self) -> u64 {
        u64::from(self.0)
    }

    fn parse(text: &str) -> Option<Percentage> {
        let (whole, decimals) = match text.strip_suffix('%')?.split_once('.') {
            Some((whole, decimals)) => (whole, decimals),
            None => (text.strip_suffix('%')?, "0"),
        };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 4 {
            return None;
        }
        let fraction = format!("{decimals:0<4}").parse::<u32>().ok()?;
        let ppm = whole.parse::<u32>().ok()?.checked_mul(10_000)?.checked_add(fraction)?;
        (1..=Percentage::WHOLE).contains(&ppm).then_some(Percentage(ppm))
    }
}

impl fmt::Display for Percentage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 / 10_000)?;
        let decimals = format!("{:04}", self.0 % 10_000);
        let decimals = decimals.trim_end_matches('0');
        if !decimals.is_empty() {
            write!(f, ".{decimals}")?;
        }
        f.write_str("%")
    }
}

/// A text that is not a layer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayerSpecError {
    /// The first word names no layer.
    #[error("'{given}' is not a layer; write {FORMS}")]
    UnknownLayer {
        /// The text as given.
        given: String,
    },
    /// An option that the layer does not have.
    #[error("layer '{layer}' has no option '{given}'; it takes {expected}")]
    UnknownOption {
        /// The layer.
        layer: &'static str,
        /// What was given.
        given: String,
        /// The layer's options.
        expected: &'static str,
    },
    /// The same option twice.
    #[error("option '{option}' of the layer is given twice; give it once")]
    Repeated {
        /// The option.
        option: String,
    },
    /// A value that does not fit its option.
    #[error("{option}='{given}' does not fit the layer; {option} is {expected}")]
    BadValue {
        /// The option.
        option: &'static str,
        /// Its value as given.
        given: String,
        /// What would fit.
        expected: String,
    },
}

impl LayerSpecError {
    fn of(error: ModelSpecError, text: &str) -> LayerSpecError {
        match error {
            ModelSpecError::UnknownOption { model, given, expected } => {
                LayerSpecError::UnknownOption { layer: model, given, expected }
            }
            ModelSpecError::Repeated { option } => LayerSpecError::Repeated { option },
            ModelSpecError::BadValue { option, given, expected } => {
                LayerSpecError::BadValue { option, given, expected }
            }
            _ => LayerSpecError::UnknownLayer { given: text.to_owned() },
        }
    }
}

impl FromStr for LayerSpec {
    type Err = LayerSpecError;

    fn from_str(text: &str) -> Result<LayerSpec, LayerSpecError> {
        let (head, rest) = text.split_once(',').map_or((text, None), |(h, rest)| (h, Some(rest)));
        let unknown = || LayerSpecError::UnknownLayer { given: text.to_owned() };
        let (name, value) = head.split_once('=').ok_or_else(unknown)?;
        let parsed = match name {
            "delay" => parse_delay(value, rest),
            "rate" => parse_rate(value, rest),
            "error" => parse_error(value, rest),
            "stragglers" => parse_whole("stragglers", value, rest, Stragglers::FORM, |text| {
                Some(LayerSpec::Stragglers(parse_stragglers(text)?))
            }),
            "stall" => parse_whole("stall", value, rest, Stall::FORM, |text| {
                Some(LayerSpec::Stall(Stall::parse(text)?))
            }),
            "trace" => {
                parse_whole("trace", value, rest, "a whole number from 1 to 65536", |text| {
                    let entries: NonZeroU32 = text.parse().ok()?;
                    (entries.get() <= TRACE_MAX).then_some(LayerSpec::Trace { entries })
                })
            }
            _ => return Err(unknown()),
        };
        parsed.map_err(|error| LayerSpecError::of(error, text))
    }
}

const TIME: &str = "a time from 1ns to 100s with a unit, such as 5ms or 250us";
const ON: &str = "read, write, flush, discard or all";

/// The value behind the layer's own name.
fn value<T>(
    option: &'static str,
    given: &str,
    expected: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, ModelSpecError> {
    parse(given).ok_or_else(|| ModelSpecError::BadValue {
        option,
        given: given.to_owned(),
        expected: expected.to_owned(),
    })
}

/// A layer without options.
fn parse_whole(
    name: &'static str,
    given: &str,
    rest: Option<&str>,
    expected: &str,
    parse: impl Fn(&str) -> Option<LayerSpec>,
) -> Result<LayerSpec, ModelSpecError> {
    Options::split(name, "no options", rest)?.finish()?;
    value(name, given, expected, parse)
}

fn parse_on(options: &mut Options<'_>) -> Result<Which, ModelSpecError> {
    Ok(options.take("on", |text| by_name(&KINDS, text), ON)?.unwrap_or_default())
}

fn parse_time(text: &str) -> Option<Nanos> {
    parse_latency(text).filter(|time| *time > Nanos::ZERO)
}

fn parse_delay(given: &str, rest: Option<&str>) -> Result<LayerSpec, ModelSpecError> {
    let mut options = Options::split("delay", "on", rest)?;
    let time = value("delay", given, TIME, parse_time)?;
    let on = parse_on(&mut options)?;
    options.finish()?;
    Ok(LayerSpec::Delay { time, on })
}

fn parse_rate(given: &str, rest: Option<&str>) -> Result<LayerSpec, ModelSpecError> {
    let mut options = Options::split("rate", "on", rest)?;
    let expected = "a whole number of requests per second from 1 to 1000000000";
    let rate = value("rate", given, expected, |text| text.parse().ok())?;
    let on = parse_on(&mut options)?;
    options.finish()?;
    Ok(LayerSpec::Rate { rate, on })
}

fn parse_error(given: &str, rest: Option<&str>) -> Result<LayerSpec, ModelSpecError> {
    let mut options = Options::split("error", "on, errno, after, count and seed", rest)?;
    let expected = "a percentage from 0.0001% to 100%";
    let chance = value("error", given, expected, Percentage::parse)?;
    let on = parse_on(&mut options)?;
    let fault = options.take("errno", |text| by_name(&FAULTS, text), "EIO or ENOSPC")?;
    let number = |text: &str| text.parse::<u64>().ok();
    let after = options.take("after", number, "a whole number of requests")?;
    let expected = "a whole number of requests, 1 or more";
    let count = options.take("count", |text| number(text).filter(|&n| n > 0), expected)?;
    let seed = options.take("seed", number, "a whole number from 0 to 18446744073709551615")?;
    options.finish()?;
    Ok(LayerSpec::Error {
        chance,
        on,
        fault: fault.unwrap_or(Fault::Io),
        after: after.unwrap_or(0),
        count,
        seed: seed.unwrap_or(1),
    })
}

/// `N:TIME`. A time of zero is accepted: catalogs may have it.
pub(crate) fn parse_stragglers(text: &str) -> Option<Stragglers> {
    let (every, held) = text.split_once(':')?;
    Some(Stragglers { every: every.parse().ok()?, held: parse_latency(held)? })
}

fn write_on(f: &mut fmt::Formatter<'_>, on: Which) -> fmt::Result {
    if on == Which::All { Ok(()) } else { write!(f, ",on={}", name_of(&KINDS, &on)) }
}

impl fmt::Display for LayerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LayerSpec::Delay { time, on } => {
                f.write_str("delay=")?;
                write_latency(f, time)?;
                write_on(f, on)
            }
            LayerSpec::Rate { rate, on } => {
                write!(f, "rate={rate}")?;
                write_on(f, on)
            }
            LayerSpec::Error { chance, on, fault, after, count, seed } => {
                write!(f, "error={chance}")?;
                write_on(f, on)?;
                if fault != Fault::Io {
                    write!(f, ",errno={fault}")?;
                }
                if after > 0 {
                    write!(f, ",after={after}")?;
                }
                if let Some(count) = count {
                    write!(f, ",count={count}")?;
                }
                if seed != 1 { write!(f, ",seed={seed}") } else { Ok(()) }
            }
            LayerSpec::Stragglers(stragglers) => write!(f, "stragglers={stragglers}"),
            LayerSpec::Stall(stall) => write!(f, "stall={stall}"),
            LayerSpec::Trace { entries } => write!(f, "trace={entries}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for text in [
            "delay=5ms",
            "delay=100s,on=write",
            "rate=1000,on=read",
            "error=0.0001%",
            "error=1.5%,on=flush,errno=ENOSPC,after=10,count=3,seed=7",
            "error=100%,count=1",
            "stragglers=16:300ms",
            "stall=1s/5s",
            "stall=20ms/100s",
            "trace=65536",
        ] {
            let spec: LayerSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
        }
        assert_eq!("delay=1000us,on=all".parse::<LayerSpec>().unwrap().to_string(), "delay=1ms");
    }

    #[test]
    fn errors_say_what_was_wrong_and_what_would_fit() {
        let error = |text: &str| text.parse::<LayerSpec>().unwrap_err().to_string();
        assert!(error("lag=5ms").starts_with("'lag=5ms' is not a layer; write delay=TIME"));
        assert_eq!(
            error("delay=0s"),
            "delay='0s' does not fit the layer; delay is a time from 1ns to 100s with a unit, \
             such as 5ms or 250us"
        );
        assert_eq!(
            error("trace=5,on=read"),
            "layer 'trace' has no option 'on'; it takes no options"
        );
        assert_eq!(
            error("rate=5,on=read,on=all"),
            "option 'on' of the layer is given twice; give it once"
        );
        for text in [
            "",
            "delay",
            "delay=5",
            "delay=101s",
            "rate=0",
            "error=0%",
            "error=101%",
            "error=1",
            "error=.5%",
            "error=1.00001%",
            "error=1%,count=0",
            "error=1%,errno=EPERM",
            "trace=0",
            "trace=65537",
            "stragglers=0:1s",
            "stragglers=4",
            "stall=1s",
            "stall=0s/1s",
            "stall=1s/1s",
            "stall=1s/101s",
            "stall=1s/5s,on=read",
            "delay=5ms,on=trim",
        ] {
            assert!(text.parse::<LayerSpec>().is_err(), "{text}");
        }
    }
}
