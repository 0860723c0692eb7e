//! Values as they are written on the command line.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use headgate_api::types::{Change, Force};
use std::str::FromStr;

/// A value, or the word `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrNone<T> {
    /// `none`.
    None,
    /// A value.
    Value(T),
}

impl<T: FromStr> FromStr for OrNone<T>
where
    T::Err: std::fmt::Display,
{
    type Err = String;
    fn from_str(text: &str) -> Result<OrNone<T>, String> {
        match text {
            "none" => Ok(OrNone::None),
            _ => {
                text.parse().map(OrNone::Value).map_err(|e| format!("{e}, or 'none' for no value"))
            }
        }
    }
}

impl<T> OrNone<T> {
    /// For a change, where `none` takes the value away.
    pub(super) fn change(given: Option<OrNone<T>>) -> Change<T> {
        match given {
            None => Change::Keep,
            Some(OrNone::None) => Change::Remove,
            Some(OrNone::Value(value)) => Change::Set(value),
        }
    }
}

/// The options of a group, for messages: `--reservation, --limit`.
pub(super) fn options<T: Args>() -> String {
    let group = T::augment_args(clap::Command::new("group"));
    let long = group.get_arguments().filter_map(clap::Arg::get_long);
    long.map(|long| format!("--{long}")).collect::<Vec<_>>().join(", ")
}

/// A word on the command line, what it means, and its line in `--help`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<T: 'static>(pub &'static str, pub T, pub &'static str);

/// Parses one of these words; `--help` lists them.
pub(super) fn one_of<T: Copy + Send + Sync + 'static>(
    words: &'static [Word<T>],
) -> impl TypedValueParser<Value = T> {
    let listed = words.iter().map(|word| PossibleValue::new(word.0).help(word.2));
    PossibleValuesParser::new(listed).try_map(|given| {
        let known = words.iter().find(|word| word.0 == given);
        known.map(|word| word.1).ok_or("no such word")
    })
}

/// The flag `--force`.
pub(super) fn force(flag: bool) -> Force {
    if flag { Force::Yes } else { Force::No }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::{BytesPerSec, Iops};

    #[test]
    fn none_takes_a_value_away() {
        assert_eq!("none".parse::<OrNone<Iops>>(), Ok(OrNone::None));
        assert_eq!("7".parse::<OrNone<Iops>>(), Ok(OrNone::Value(Iops::new(7).unwrap())));
        let error = "7x".parse::<OrNone<Iops>>().unwrap_err();
        assert_eq!(
            error,
            "'7x' is not a rate in IOPS, a whole number from 1 to 1000000000, or 'none' for no value"
        );
        assert!("50M".parse::<OrNone<BytesPerSec>>().is_ok());
    }
}
