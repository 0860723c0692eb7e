//! Error messages about scenario texts, with their position.

use crate::values::Fault;
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

/// Line and column of a byte, both from 1.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line_start =
        before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}

pub(super) fn deserialize<T: for<'de> Deserialize<'de>>(
    table: Spanned<DeTable<'_>>,
) -> Result<T, Fault> {
    T::deserialize(toml::de::Deserializer::from(table)).map_err(|error| explain(&error))
}

/// A hint with a similar name, and the names that exist.
pub(crate) fn hint(given: &str, known: &[impl AsRef<str>]) -> String {
    let near = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(given, name.as_ref()), name.as_ref()))
        .filter(|&(distance, name)| distance <= 2.min(name.len() / 2))
        .min();
    let (listed, more) = known.split_at(known.len().min(MOST_LISTED));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    match near {
        Some((_, name)) => format!("did you mean '{name}'? There is {}{more}", list(listed)),
        None => format!("there is {}{more}", list(listed)),
    }
}

/// As many names as one reads.
const MOST_LISTED: usize = 40;

pub(crate) fn list(names: &[impl AsRef<str>]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    names.iter().map(|name| format!("'{}'", name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// What the TOML reader found, in our words. Our own types say it themselves, with a hint after a
/// semicolon.
pub(super) fn explain(error: &toml::de::Error) -> Fault {
    let said = error.message();
    let mut quoted = said.split('`').skip(1).step_by(2);
    let message = if let Some(kind) = said.strip_prefix("unknown ") {
        let what = if kind.starts_with("field") { "key" } else { "choice" };
        let given = quoted.next().unwrap_or_default();
        format!("there is no {what} '{given}' here; {}", hint(given, &quoted.collect::<Vec<_>>()))
    } else if said.starts_with("missing field") {
        format!("the key '{}' is missing here; add it", quoted.next().unwrap_or_default())
    } else if let Some(mismatch) =
        said.strip_prefix("invalid type: ").or(said.strip_prefix("invalid value: "))
    {
        let (given, expected) =
            mismatch.split_once(", expected ").unwrap_or((mismatch, "something else"));
        format!("this is the {}; write {}", given.replace('`', "'"), in_our_words(expected))
    } else if said.contains(';') {
        said.to_owned()
    } else if said.starts_with("duplicate key") {
        "this key was written before in the same table; keep one of the two".to_owned()
    } else {
        let said = said.replace('`', "'");
        format!("this is not TOML: {said}; see https://toml.io for how it is written")
    };
    Fault { span: error.span().unwrap_or(0..0), message }
}

/// The names of Rust's types, for readers of TOML.
fn in_our_words(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number, 0 or more",
        "a string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list in brackets",
        "a map" => "a table in braces",
        other if other.starts_with("struct ") => "a table in braces",
        other => other,
    }
}
