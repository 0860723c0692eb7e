//! Names: whether they are well formed, unique, and known.

use super::text::{hint, list};
use crate::values::{At, Fault, Names, Time};
use headgate_units::Nanos;
use std::collections::BTreeSet;
use std::ops::Range;

/// Names are parts of other names and of paths, so they have no dots, slashes or spaces.
pub(super) fn plain_name(name: &At<String>, of: &str) -> Result<(), Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain = (1..=64).contains(&name.len()) && name.chars().all(fits);
    name.check(
        plain,
        format!(
            "'{}' cannot be the name of {of}; write 1 to 64 letters, digits, - and _",
            name.value
        ),
    )
}

pub(super) fn unique(
    seen: &mut BTreeSet<String>,
    name: &str,
    span: &Range<usize>,
) -> Result<(), Fault> {
    match seen.insert(name.to_owned()) {
        true => Ok(()),
        false => {
            Err(Fault::new(span, format!("the name '{name}' is used twice; give each its own")))
        }
    }
}

/// The index of a name among those known.
pub(super) fn find<'a>(
    name: &str,
    span: &Range<usize>,
    what: &str,
    mut known: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, Fault> {
    let all = known.clone();
    known.position(|other| other == name).ok_or_else(|| {
        let known: Vec<&str> = all.collect();
        Fault::new(span, format!("there is no {what} '{name}'; {}", hint(name, &known)))
    })
}

/// The indices of several names.
pub(super) fn find_all<'a>(
    names: &At<Names>,
    what: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<Vec<usize>, Fault> {
    names.0.iter().map(|name| find(name, &names.span, what, known.clone())).collect()
}

/// The index of the name in a key, or of the only candidate where the key is missing.
pub(super) fn find_or_only<'a>(
    key: Option<&At<String>>,
    table: &Range<usize>,
    what: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, Fault> {
    match key {
        Some(name) => find(name, &name.span, what, known),
        None if known.clone().count() == 1 => Ok(0),
        None => {
            let names: Vec<&str> = known.take(12).collect();
            let message = format!(
                "it is not said which {what} is meant; add {what} = one of {}",
                list(&names)
            );
            Err(Fault::new(table, message))
        }
    }
}

/// The index for one of many alike: the names are used in turn, and `*` stands for all of them.
pub(super) fn in_turn<'a>(
    key: Option<&At<Names>>,
    turn: usize,
    table: &Range<usize>,
    what: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, Fault> {
    let Some(names) = key else { return find_or_only(None, table, what, known) };
    // All names are looked up, so that a wrong one is found even where it is not used.
    let mut found = Vec::new();
    for name in names.0.iter().filter(|name| *name != "*") {
        found.push(find(name, &names.span, what, known.clone())?);
    }
    match found.len() == names.0.len() {
        true => Ok(found[turn % found.len()]),
        false => Ok(turn % known.count()),
    }
}

/// A time that may not be zero.
pub(super) fn some_time(key: &At<Time>, what: &str) -> Result<Nanos, Fault> {
    let zero = key.0 == Nanos::ZERO;
    key.check(!zero, format!("{what} cannot be zero; write a time above it"))?;
    Ok(key.0)
}
