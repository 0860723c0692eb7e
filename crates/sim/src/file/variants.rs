//! Variants: changes of the TOML tree before it is read.

use super::text::{deserialize, hint};
use crate::values::{At, Fault};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// One way to run the scenario.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct VariantFile {
    /// The name: letters, digits, -, _, . and =. With 'each', {} in it stands for the value.
    pub(super) name: At<String>,
    /// The changes: a path of keys and names, such as 'datastore.lun.scheduler' or
    /// 'vm.*.disk.burst', and the value there. With 'each', {} in a text stands for the value.
    #[serde(default)]
    #[expect(dead_code, reason = "read from the tree; here for the schema and for unknown keys")]
    pub(super) set: BTreeMap<String, Anything>,
    /// Makes one variant for each of these values.
    #[serde(default)]
    #[expect(dead_code, reason = "read from the tree; here for the schema and for unknown keys")]
    pub(super) each: Vec<Anything>,
}

/// Any value.
#[derive(Clone, Deserialize)]
#[serde(from = "serde::de::IgnoredAny")]
pub(super) struct Anything;

impl From<serde::de::IgnoredAny> for Anything {
    fn from(_: serde::de::IgnoredAny) -> Anything {
        Anything
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Anything {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Anything".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}

/// A name, and what it changes in the tree.
pub(super) struct Changes<'i> {
    pub(super) name: String,
    changes: Vec<Change<'i>>,
}

/// A new value at a path.
struct Change<'i> {
    path: String,
    span: Range<usize>,
    value: Spanned<DeValue<'i>>,
}

/// Says in which variant a mistake is.
pub(super) fn blame(fault: Fault, variant: &str) -> Fault {
    Fault { message: format!("{} (in variant '{variant}')", fault.message), ..fault }
}

impl<'i> Changes<'i> {
    /// Those of a table with `set`, for one value; named as the value is written.
    pub(super) fn of(table: &DeTable<'i>, value: &Spanned<DeValue<'i>>) -> Changes<'i> {
        Changes { name: literal(value.get_ref()), changes: changes(table, Some(value)) }
    }

    /// The tree with these changes.
    pub(super) fn apply(&self, tree: Spanned<DeTable<'i>>) -> Result<Spanned<DeTable<'i>>, Fault> {
        let mut root = Spanned::new(tree.span(), DeValue::Table(tree.into_inner()));
        for change in &self.changes {
            set(&mut root, &change.path.split('.').collect::<Vec<_>>(), change)?;
        }
        let span = root.span();
        match root.into_inner() {
            DeValue::Table(table) => Ok(Spanned::new(span, table)),
            _ => Err(Fault::new(&span, "a variant replaces the whole file; name a key in it")),
        }
    }
}

/// All variants of a file, at least one. Where the list of variants has a wrong shape, the typed
/// reader of the file says so.
pub(super) fn variants<'i>(tree: &Spanned<DeTable<'i>>) -> Result<Vec<Changes<'i>>, Fault> {
    let mut all: Vec<Changes<'i>> = Vec::new();
    let list = match tree.get_ref().get("variant").map(Spanned::get_ref) {
        Some(DeValue::Array(list)) => list.iter().collect(),
        _ => Vec::new(),
    };
    for entry in list {
        let DeValue::Table(table) = entry.get_ref() else { break };
        let file: VariantFile = deserialize(Spanned::new(entry.span(), table.clone()))?;
        for value in values(entry, table, &file)? {
            let name = match value {
                Some(value) => file.name.replace("{}", &literal(value.get_ref())),
                None => file.name.value.clone(),
            };
            check_name(&name, &file.name)?;
            let known = all.iter().any(|other| other.name == name);
            let message = format!("there are two variants '{name}'; give each a name of its own");
            file.name.check(!known, message)?;
            all.push(Changes { name, changes: changes(table, value) });
        }
    }
    if all.is_empty() {
        all.push(Changes { name: "default".to_owned(), changes: Vec::new() });
    }
    Ok(all)
}

/// The values of `each`, or none once.
fn values<'a, 'i>(
    entry: &Spanned<DeValue<'i>>,
    table: &'a DeTable<'i>,
    file: &VariantFile,
) -> Result<Vec<Option<&'a Spanned<DeValue<'i>>>>, Fault> {
    let Some(DeValue::Array(each)) = table.get("each").map(Spanned::get_ref) else {
        return Ok(vec![None]);
    };
    if each.is_empty() {
        let message = "'each' has no value; write at least one, or leave it out";
        return Err(Fault::new(&entry.span(), message));
    }
    file.name.check(
        each.len() == 1 || file.name.contains("{}"),
        format!(
            "the variants of '{}' would all have the same name; write {{}} where the value goes",
            file.name.value
        ),
    )?;
    Ok(each.iter().map(Some).collect())
}

/// The changes of one variant, for one value of `each`.
fn changes<'i>(table: &DeTable<'i>, value: Option<&Spanned<DeValue<'i>>>) -> Vec<Change<'i>> {
    let Some(DeValue::Table(set)) = table.get("set").map(Spanned::get_ref) else {
        return Vec::new();
    };
    let change = |(path, new): (&Spanned<_>, &Spanned<DeValue<'i>>)| Change {
        path: AsRef::<str>::as_ref(path.get_ref()).to_owned(),
        span: path.span(),
        value: Spanned::new(new.span(), filled(new.get_ref(), value)),
    };
    set.iter().map(change).collect()
}

fn check_name(name: &str, written: &At<String>) -> Result<(), Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.=+:".contains(c);
    let message =
        format!("'{name}' cannot be a variant's name; write letters, digits and - _ . = + :");
    written.check(!name.is_empty() && name.chars().all(fits), message)
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

/// A value with every `{}` in its texts replaced; a text that is nothing else becomes the value
/// itself.
fn filled<'i>(value: &DeValue<'i>, with: Option<&Spanned<DeValue<'i>>>) -> DeValue<'i> {
    let Some(with) = with else { return value.clone() };
    match value {
        DeValue::String(text) if text == "{}" => with.get_ref().clone(),
        DeValue::String(text) => {
            DeValue::String(text.replace("{}", &literal(with.get_ref())).into())
        }
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

/// Puts a value where the path leads. In a list, a step is the name of an entry or `*` for all; it
/// may be left out where there is only one entry.
fn set<'i>(at: &mut Spanned<DeValue<'i>>, path: &[&str], change: &Change<'i>) -> Result<(), Fault> {
    let Some((&step, rest)) = path.split_first() else {
        let message = format!("'{}' leads to a list of tables; name a key in them", change.path);
        return Err(Fault::new(&change.span, message));
    };
    match at.get_mut() {
        DeValue::Table(table) if rest.is_empty() => {
            // Not just the value: the key's place too is that of the change.
            table.remove(step);
            table.insert(
                Spanned::new(change.span.clone(), step.to_owned().into()),
                change.value.clone(),
            );
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
            let names: Vec<String> =
                array.iter().filter_map(|entry| name_of(entry.get_ref())).collect();
            if array.len() == 1
                && !names.iter().any(|name| name == step)
                && leads_on(array, step, rest)
            {
                return array.iter_mut().try_for_each(|entry| set(entry, path, change));
            }
            let mut entries = array.iter_mut();
            match entries.find(|entry| name_of(entry.get_ref()).as_deref() == Some(step)) {
                Some(entry) => set(entry, rest, change),
                None => Err(lost(change, step, &names)),
            }
        }
        _ => {
            let message = format!(
                "'{}' goes on at '{step}' below a plain value; end the path before it",
                change.path
            );
            Err(Fault::new(&change.span, message))
        }
    }
}

/// Whether the path continues in the only entry: it has such a key, or gets it.
fn leads_on(array: &DeArray<'_>, step: &str, rest: &[&str]) -> bool {
    let has =
        |entry: &DeValue<'_>| matches!(entry, DeValue::Table(table) if table.contains_key(step));
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
    let message =
        format!("'{}' leads nowhere: there is no '{step}'; {}", change.path, hint(step, known));
    Fault::new(&change.span, message)
}
