//! Options of a device model or layer as text: `rate=1600,latency=5ms`.

use crate::{ArraySpecError, SsdSpecError};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use headgate_units::{Bytes, Nanos};
use thiserror::Error;

const FORMS: &str = "rate=IOPS[,latency=TIME][,depth=N][,service=constant|exponential|pareto][,seed=N][,stragglers=N:TIME][,stall=TIME/PERIOD], array=SPINDLES[,raid=0|5][,disk=fc15k|sata7k][,unit=SIZE]\
    [,cache=SIZE][,power=battery|volatile][,readahead=SIZE][,elevator=N][,ageing=TIME|passes][,slowdown=N][,seed=N], \
    ssd[=SIZE][,op=PERCENT][,isolation=none|static|dynamic][,aged=yes|full|no] and more, or null";

/// A text that is not a device model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModelSpecError {
    /// The first word names no model.
    #[error("'{given}' is not a device model; write {FORMS}")]
    UnknownModel {
        /// The text as given.
        given: String,
    },
    /// An option that the model does not have.
    #[error("a device model '{model}' has no option '{given}'; it takes {expected}")]
    UnknownOption {
        /// The model.
        model: &'static str,
        /// What was given.
        given: String,
        /// The model's options.
        expected: &'static str,
    },
    /// The same option twice.
    #[error("option '{option}' of the device model is given twice; give it once")]
    Repeated {
        /// The option.
        option: String,
    },
    /// A value that does not fit its option.
    #[error("{option}='{given}' does not fit the device model; {option} is {expected}")]
    BadValue {
        /// The option.
        option: &'static str,
        /// Its value as given.
        given: String,
        /// What would fit.
        expected: String,
    },
    /// An array that cannot be.
    #[error(transparent)]
    Array(#[from] ArraySpecError),
    /// A flash drive that cannot be.
    #[error(transparent)]
    Ssd(#[from] SsdSpecError),
}

pub(crate) fn by_name<T: Copy>(names: &[(&str, T)], text: &str) -> Option<T> {
    names.iter().find(|(name, _)| *name == text).map(|&(_, value)| value)
}

pub(crate) fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    names.iter().find(|(_, named)| named == value).map_or("", |(name, _)| name)
}

const TIME_UNITS: [(&str, u64); 4] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

pub(crate) fn parse_latency(text: &str) -> Option<Nanos> {
    text.parse().ok().filter(|time| *time <= Nanos::from_secs(100))
}

/// Prints with the largest unit that divides the time.
pub(crate) fn write_latency(f: &mut fmt::Formatter<'_>, time: Nanos) -> fmt::Result {
    let exact = TIME_UNITS.iter().rev().find(|(_, nanos)| time.0.is_multiple_of(*nanos));
    let &(name, nanos) = exact.unwrap_or(&TIME_UNITS[0]);
    write!(f, "{}{name}", time.0 / nanos)
}

const SIZE_UNITS: [(&str, u32); 4] = [("", 0), ("K", 10), ("M", 20), ("G", 30)];

/// Prints with the largest unit that divides the size.
pub(crate) fn write_size(f: &mut fmt::Formatter<'_>, size: Bytes) -> fmt::Result {
    let exact =
        SIZE_UNITS.iter().rev().find(|(_, shift)| size.0 != 0 && size.0.trailing_zeros() >= *shift);
    let &(name, shift) = exact.unwrap_or(&SIZE_UNITS[0]);
    write!(f, "{}{name}", size.0 >> shift)
}

/// The options behind a model's name, until each is taken.
pub(crate) struct Options<'a> {
    model: &'static str,
    known: &'static str,
    given: Vec<(&'a str, &'a str)>,
}

impl<'a> Options<'a> {
    pub(crate) fn split(
        model: &'static str,
        known: &'static str,
        text: Option<&'a str>,
    ) -> Result<Options<'a>, ModelSpecError> {
        let mut options = Options { model, known, given: Vec::new() };
        for part in text.into_iter().flat_map(|text| text.split(',')) {
            let Some((name, value)) = part.split_once('=') else {
                return Err(options.unknown(part));
            };
            if options.given.iter().any(|&(other, _)| other == name) {
                return Err(ModelSpecError::Repeated { option: name.to_owned() });
            }
            options.given.push((name, value));
        }
        Ok(options)
    }

    fn unknown(&self, given: &str) -> ModelSpecError {
        ModelSpecError::UnknownOption {
            model: self.model,
            given: given.to_owned(),
            expected: self.known,
        }
    }

    pub(crate) fn take<T>(
        &mut self,
        option: &'static str,
        parse: impl Fn(&str) -> Option<T>,
        expected: &str,
    ) -> Result<Option<T>, ModelSpecError> {
        let Some(at) = self.given.iter().position(|&(name, _)| name == option) else {
            return Ok(None);
        };
        let (_, given) = self.given.swap_remove(at);
        match parse(given) {
            Some(value) => Ok(Some(value)),
            None => {
                let (given, expected) = (given.to_owned(), expected.to_owned());
                Err(ModelSpecError::BadValue { option, given, expected })
            }
        }
    }

    /// Takes an option, if it is given, into a place that has its default.
    pub(crate) fn set<T>(
        &mut self,
        option: &'static str,
        place: &mut T,
        parse: impl Fn(&str) -> Option<T>,
        expected: &str,
    ) -> Result<(), ModelSpecError> {
        if let Some(value) = self.take(option, parse, expected)? {
            *place = value;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<(), ModelSpecError> {
        self.given.first().map_or(Ok(()), |&(name, _)| Err(self.unknown(name)))
    }
}
