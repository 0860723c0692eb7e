use super::values::At;
use super::{ScenarioFile, VariantFile};
use crate::scenario::Scenario;
use serde::Deserialize;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Why a scenario file is not one: where, what is wrong there, what was expected and what to do.
///
/// Prints as `FILE:LINE:COLUMN: MESSAGE`, as compilers do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
#[non_exhaustive]
pub struct ScenarioError {
    /// The file's name, as given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong, what was expected, what to do.
    pub message: String,
}

/// Something wrong at a place.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(span: &Range<usize>, message: impl fmt::Display) -> Fault {
        Fault { span: span.clone(), message: message.to_string() }
    }
}

impl Scenario {
    /// Reads a scenario file. `name` is what errors call it.
    ///
    /// # Errors
    /// [`ScenarioError`] names the line and the column of the first thing that is wrong.
    pub fn parse(name: &str, text: &str) -> Result<Scenario, ScenarioError> {
        parse(text).map_err(|fault| {
            let (line, column) = position(text, fault.span.start);
            ScenarioError { file: name.to_owned(), line, column, message: fault.message }
        })
    }
}

/// Line and column of a byte, both from 1.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}

fn parse(text: &str) -> Result<Scenario, Fault> {
    let tree = DeTable::parse(text).map_err(|error| said_by_toml(&error))?;
    let variants = variants(&tree)?;
    let mut files = Vec::new();
    for variant in &variants {
        let mut own = tree.clone();
        for change in &variant.changes {
            let path: Vec<&str> = change.path.split('.').collect();
            let mut root = Spanned::new(own.span(), DeValue::Table(own.into_inner()));
            set(&mut root, &path, change)?;
            let span = root.span();
            let DeValue::Table(table) = root.into_inner() else {
                return Err(Fault::new(&change.span, "this sets the whole file; name a key in it"));
            };
            own = Spanned::new(span, table);
        }
        let file = deserialize::<ScenarioFile>(own).map_err(|fault| variant.blame(fault))?;
        files.push((variant.name.clone(), file));
    }
    super::check::scenario(text, &files)
        .map_err(|(index, fault)| variants.get(index).map_or(fault.clone(), |variant| variant.blame(fault)))
}

fn deserialize<T: for<'de> Deserialize<'de>>(table: Spanned<DeTable<'_>>) -> Result<T, Fault> {
    T::deserialize(toml::de::Deserializer::from(table)).map_err(|error| said_by_toml(&error))
}

/// One variant: what it changes in the tree before it is read.
struct Variant<'i> {
    name: String,
    changes: Vec<Change<'i>>,
    index: usize,
}

struct Change<'i> {
    path: String,
    span: Range<usize>,
    value: Spanned<DeValue<'i>>,
}

impl Variant<'_> {
    /// What is wrong in a variant after the first may be right in the file as it is written.
    fn blame(&self, fault: Fault) -> Fault {
        if self.index == 0 {
            return fault;
        }
        Fault { message: format!("{} (in variant '{}')", fault.message, self.name), ..fault }
    }
}

fn variants<'i>(tree: &Spanned<DeTable<'i>>) -> Result<Vec<Variant<'i>>, Fault> {
    let default = || vec![Variant { name: "default".to_owned(), changes: Vec::new(), index: 0 }];
    let Some(list) = tree.get_ref().get("variant") else { return Ok(default()) };
    let DeValue::Array(list) = list.get_ref() else {
        // The typed reader says what is wrong with it.
        return Ok(default());
    };
    let mut all: Vec<Variant<'i>> = Vec::new();
    for entry in list.iter() {
        let DeValue::Table(table) = entry.get_ref() else { return Ok(default()) };
        let read: VariantFile = deserialize(Spanned::new(entry.span(), table.clone()))?;
        let set = match table.get("set").map(Spanned::get_ref) {
            Some(DeValue::Table(set)) => Some(set),
            _ => None,
        };
        let each: Vec<Option<&Spanned<DeValue<'i>>>> = match table.get("each").map(Spanned::get_ref) {
            Some(DeValue::Array(each)) if each.is_empty() => {
                return Err(Fault::new(
                    &entry.span(),
                    "'each' has no value; write at least one, or leave it out",
                ));
            }
            Some(DeValue::Array(each)) => each.iter().map(Some).collect(),
            _ => vec![None],
        };
        if each.len() > 1 && !read.name.value.contains("{}") {
            let message = format!(
                "the variants of '{}' would all have the same name; write {{}} where the value goes",
                read.name.value
            );
            return Err(Fault::new(&read.name.span, message));
        }
        for value in each {
            let name = match value {
                Some(value) => read.name.value.replace("{}", &literal(value.get_ref())),
                None => read.name.value.clone(),
            };
            check_name(&name, &read.name)?;
            if all.iter().any(|other| other.name == name) {
                let message = format!("there are two variants '{name}'; give each a name of its own");
                return Err(Fault::new(&read.name.span, message));
            }
            let changes = set
                .into_iter()
                .flat_map(|set| set.iter())
                .map(|(path, new)| Change {
                    path: path.get_ref().to_string(),
                    span: path.span(),
                    value: Spanned::new(new.span(), filled(new.get_ref(), value)),
                })
                .collect();
            all.push(Variant { name, changes, index: all.len() });
        }
    }
    Ok(if all.is_empty() { default() } else { all })
}

fn check_name(name: &str, written: &At<String>) -> Result<(), Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.=+:".contains(c);
    if !name.is_empty() && name.chars().all(fits) {
        return Ok(());
    }
    let message = format!("'{name}' cannot be a variant's name; write letters, digits and - _ . = + :");
    Err(Fault::new(&written.span, message))
}

/// A value as it would be written, without quotes.
fn literal(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => "value".to_owned(),
    }
}

/// A value with every `{}` in its texts replaced; a text that is nothing else becomes the value itself.
fn filled<'i>(value: &DeValue<'i>, with: Option<&Spanned<DeValue<'i>>>) -> DeValue<'i> {
    let Some(with) = with else { return value.clone() };
    match value {
        DeValue::String(text) if text == "{}" => with.get_ref().clone(),
        DeValue::String(text) => DeValue::String(text.replace("{}", &literal(with.get_ref())).into()),
        DeValue::Array(array) => {
            let mut filled_array = DeArray::new();
            for item in array.iter() {
                filled_array.push(Spanned::new(item.span(), filled(item.get_ref(), Some(with))));
            }
            DeValue::Array(filled_array)
        }
        other => other.clone(),
    }
}

/// Puts a value where the path leads. In a list, a step is the name of an entry or `*` for all; it may be left out where
/// there is one.
fn set<'i>(at: &mut Spanned<DeValue<'i>>, path: &[&str], change: &Change<'i>) -> Result<(), Fault> {
    let Some((&step, rest)) = path.split_first() else {
        let message = format!("'{}' leads to a list of tables; name a key in them", change.path);
        return Err(Fault::new(&change.span, message));
    };
    match at.get_mut() {
        DeValue::Table(table) if rest.is_empty() => {
            // Not just the value: the key's place too is that of the change.
            table.remove(step);
            table.insert(Spanned::new(change.span.clone(), step.to_owned().into()), change.value.clone());
            Ok(())
        }
        DeValue::Table(table) => {
            let known: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
            match table.get_mut(step) {
                Some(next) => set(next, rest, change),
                None => Err(lost(change, step, &known)),
            }
        }
        DeValue::Array(array) if step == "*" => {
            array.iter_mut().try_for_each(|entry| set(entry, rest, change))
        }
        DeValue::Array(array) => {
            let names: Vec<String> = array.iter().filter_map(|entry| name_of(entry.get_ref())).collect();
            match names.iter().position(|name| name == step) {
                Some(_) => {
                    let found =
                        array.iter_mut().find(|entry| name_of(entry.get_ref()).as_deref() == Some(step));
                    found.map_or(Ok(()), |entry| set(entry, rest, change))
                }
                // Left out where there is one.
                None if array.len() == 1 && leads_on(array, step, rest) => {
                    array.iter_mut().try_for_each(|entry| set(entry, path, change))
                }
                None => Err(lost(change, step, &names)),
            }
        }
        _ => {
            let message =
                format!("'{}' goes on at '{step}' below a plain value; end the path before it", change.path);
            Err(Fault::new(&change.span, message))
        }
    }
}

/// Does the path go on in the only entry: it has such a key, or gets it.
fn leads_on(array: &DeArray<'_>, step: &str, rest: &[&str]) -> bool {
    let has = |entry: &DeValue<'_>| matches!(entry, DeValue::Table(table) if table.contains_key(step));
    rest.is_empty() || array.iter().any(|entry| has(entry.get_ref()))
}

fn name_of(entry: &DeValue<'_>) -> Option<String> {
    let DeValue::Table(table) = entry else { return None };
    match table.get("name")?.get_ref() {
        DeValue::String(name) => Some(name.to_string()),
        _ => None,
    }
}

fn lost(change: &Change<'_>, step: &str, known: &[String]) -> Fault {
    let message = format!("'{}' leads nowhere: there is no '{step}'; {}", change.path, hint(step, known));
    Fault::new(&change.span, message)
}

/// What could have been meant, and what there is.
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

/// What the TOML reader found, in our words.
fn said_by_toml(error: &toml::de::Error) -> Fault {
    let span = error.span().unwrap_or(0..0);
    let said = error.message();
    let quoted = |text: &str| text.split('`').nth(1).unwrap_or_default().to_owned();
    let message = if said.starts_with("unknown field") {
        let given = quoted(said);
        let known: Vec<&str> = said.split('`').skip(3).step_by(2).collect();
        format!("there is no key '{given}' here; {}", hint(&given, &known))
    } else if said.starts_with("unknown variant") {
        let given = quoted(said);
        let known: Vec<&str> = said.split('`').skip(3).step_by(2).collect();
        format!("there is no choice '{given}' here; {}", hint(&given, &known))
    } else if said.starts_with("missing field") {
        let key = quoted(said);
        format!("the key '{key}' is missing here; add it")
    } else if let Some(mismatch) =
        said.strip_prefix("invalid type: ").or(said.strip_prefix("invalid value: "))
    {
        let (given, expected) = mismatch.split_once(", expected ").unwrap_or((mismatch, "something else"));
        let expected = match expected {
            "u8" => "a whole number from 0 to 255",
            "u16" => "a whole number from 0 to 65535",
            "u32" => "a whole number from 0 to 4294967295",
            "u64" => "a whole number, 0 or more",
            other => other,
        };
        format!("this is the {}; write {expected}", given.replace('`', "'"))
    } else if said.starts_with("duplicate key") {
        "this key was written before in the same table; keep one of the two".to_owned()
    } else {
        format!("this is not TOML: {}; see https://toml.io for how it is written", said.replace('`', "'"))
    };
    let custom =
        error.message().contains(';') && !said.starts_with("invalid") && !said.starts_with("unknown");
    Fault { span, message: if custom { said.to_owned() } else { message } }
}
