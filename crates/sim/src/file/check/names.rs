//! Names, numbers and times: whether they fit, and what they stand for.

use super::super::read::{Fault, hint, list};
use super::super::values::{At, Percent, Time};
use headgate_units::Nanos;
use std::collections::BTreeSet;
use std::ops::Range;

/// A key that only some kinds or verbs have a use for: its name, where it stands if it does, and for which.
pub(super) type Special<'a, K> = (&'static str, Option<&'a Range<usize>>, &'static [K]);

/// Names are parts of other names and of paths: no dots, slashes or spaces.
pub(super) fn plain_name(name: &At<String>, of: &str) -> Result<(), Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.value.is_empty() && name.value.len() <= 64 && name.value.chars().all(fits) {
        return Ok(());
    }
    let message =
        format!("'{}' cannot be the name of {of}; write 1 to 64 letters, digits, - and _", name.value);
    Err(Fault::new(&name.span, message))
}

pub(super) fn unique(seen: &mut BTreeSet<String>, name: &str, span: &Range<usize>) -> Result<(), Fault> {
    if seen.insert(name.to_owned()) {
        return Ok(());
    }
    Err(Fault::new(span, format!("the name '{name}' is used twice; give each its own")))
}

/// The index of a name among those known.
pub(super) fn find<'a>(
    name: &str,
    span: &Range<usize>,
    what: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, Fault> {
    known.clone().position(|other| other == name).ok_or_else(|| {
        let known: Vec<&str> = known.collect();
        Fault::new(span, format!("there is no {what} '{name}'; {}", hint(name, &known)))
    })
}

/// The index of what a key names; of the only one when the key is left out.
pub(super) fn find_or_only<'a>(
    key: Option<&At<String>>,
    place: &Range<usize>,
    what: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, Fault> {
    match key {
        Some(name) => find(&name.value, &name.span, what, known),
        None if known.clone().count() == 1 => Ok(0),
        None => {
            let names: Vec<&str> = known.take(12).collect();
            let message =
                format!("it is not said which {what} is meant; add {what} = one of {}", list(&names));
            Err(Fault::new(place, message))
        }
    }
}

pub(super) fn in_range(value: &At<u32>, what: &str, most: u32) -> Result<u32, Fault> {
    if (1..=most).contains(&value.value) {
        return Ok(value.value);
    }
    Err(Fault::new(&value.span, format!("{what} is 1 to {most}, not {}; write such a number", value.value)))
}

pub(super) fn some_time(value: &At<Time>, what: &str) -> Result<Nanos, Fault> {
    if value.value.0 == Nanos::ZERO {
        return Err(Fault::new(&value.span, format!("{what} cannot be zero; write a time above it")));
    }
    Ok(value.value.0)
}

pub(super) fn whole_percent(value: &At<Percent>, least: u8, most: u8) -> Result<u8, Fault> {
    let percent = value.value.0;
    if percent.fract() == 0.0 && (f64::from(least)..=f64::from(most)).contains(&percent) {
        return Ok(percent as u8);
    }
    let message = format!("{percent}% does not fit here; write a whole percentage from {least}% to {most}%");
    Err(Fault::new(&value.span, message))
}
