//! The same file at several values of a free parameter.

use super::names::{plain_name, unique};
use super::text::{deserialize, hint, list, position};
use super::variants::{Anything, Changes};
use crate::scenario::{Expectation, Scenario};
use crate::sensitivity::{Claims, Origin, Point, Sensitivity};
use crate::values::{At, Fault, Names, Seeds};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The same expectations at several values of a parameter that nothing but a choice gave its own.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SensitivityFile {
    /// The parameter's name: letters, digits, - and _.
    name: At<String>,
    /// What it is, and where its own value is from.
    #[serde(default)]
    about: String,
    /// The changes, as those of a variant: a path of keys and names, and the value there; {} in a
    /// text stands for the value. A variant that sets the same key keeps its own.
    #[expect(dead_code, reason = "read from the tree; here for the schema and for unknown keys")]
    set: BTreeMap<String, Anything>,
    /// The values. The file's own is tried too, if it is none of them.
    #[expect(dead_code, reason = "read from the tree; here for the schema and for unknown keys")]
    values: Vec<Anything>,
    /// The seeds, or their number; those of the file by default.
    seeds: Option<Seeds>,
    /// The names of the expectations that are judged; by default all with 'paper'.
    expect: Option<At<Names>>,
    /// Whether each of them is a claim, which is the default, or all together are one.
    #[serde(default)]
    claims: Claims,
}

/// What a parameter may be: keys of what runs. What is expected stays what it is.
const VARIED: [&str; 10] = [
    "datastore",
    "duration",
    "event",
    "host",
    "interval",
    "pool",
    "sweep",
    "tide",
    "vm",
    "windows",
];

/// All sensitivities of a file. `read` reads a changed tree, and `scenario` is the file's own.
pub(super) fn sensitivities<'i>(
    text: &str,
    tree: &Spanned<DeTable<'i>>,
    scenario: &Scenario,
    read: &dyn Fn(&Spanned<DeTable<'i>>) -> Result<Scenario, Fault>,
) -> Result<Vec<Sensitivity>, Fault> {
    let mut names = BTreeSet::new();
    let mut all = Vec::new();
    for entry in tables(tree, "sensitivity") {
        let table: DeTable<'i> = (*entry.get_ref()).clone();
        let file: SensitivityFile = deserialize(Spanned::new(entry.span(), table))?;
        plain_name(&file.name, "a sensitivity")?;
        unique(&mut names, &file.name, &file.name.span)?;
        let reader = Reader { tree, scenario, read };
        all.push(Sensitivity {
            name: file.name.value.clone(),
            about: file.about.trim().to_owned(),
            line: position(text, entry.span().start).0,
            seeds: file.seeds.as_ref().map_or_else(|| scenario.seeds.clone(), |s| s.0.clone()),
            judged: judged(&file, scenario)?,
            claims: file.claims,
            points: reader.points(&file.name, &entry)?,
        });
    }
    check_marks(tree, scenario, &all)?;
    Ok(all)
}

/// The tables of a list of tables, as far as it is one.
fn tables<'a, 'i>(tree: &'a Spanned<DeTable<'i>>, key: &str) -> Vec<Spanned<&'a DeTable<'i>>> {
    let Some(DeValue::Array(array)) = tree.get_ref().get(key).map(Spanned::get_ref) else {
        return Vec::new();
    };
    let table = |entry: &'a Spanned<DeValue<'i>>| match entry.get_ref() {
        DeValue::Table(table) => Some(Spanned::new(entry.span(), table)),
        _ => None,
    };
    array.iter().filter_map(table).collect()
}

/// Which expectations are judged: their lines.
fn judged(file: &SensitivityFile, scenario: &Scenario) -> Result<Vec<usize>, Fault> {
    let Some(names) = &file.expect else {
        let published = scenario.expectations.iter().filter(|one| one.paper.is_some());
        let lines: Vec<usize> = published.map(|one| one.line).collect();
        let message = "no expectation has 'paper', so none would be judged; \
                       add expect = ['NAME'], and name = 'NAME' to the expectation";
        file.name.check(!lines.is_empty(), message)?;
        return Ok(lines);
    };
    let known: Vec<&str> =
        scenario.expectations.iter().filter_map(|one| one.name.as_deref()).collect();
    let line_of = |name: &String| {
        let is_it = |one: &&Expectation| one.name.as_deref() == Some(name.as_str());
        let found = scenario.expectations.iter().find(is_it);
        found.map(|one| one.line).ok_or_else(|| {
            names.fault(format!(
                "there is no expectation '{name}', which would have name = '{name}'; {}",
                hint(name, &known)
            ))
        })
    };
    names.0.iter().map(line_of).collect()
}

/// An expectation that is said to hold at one point only must be tried at others.
fn check_marks(
    tree: &Spanned<DeTable<'_>>,
    scenario: &Scenario,
    all: &[Sensitivity],
) -> Result<(), Fault> {
    for (one, table) in scenario.expectations.iter().zip(tables(tree, "expect")) {
        let Some(key) = table.get_ref().get("at-one-point") else { continue };
        if !all.iter().any(|sensitivity| sensitivity.judged.contains(&one.line)) {
            let message = "no [[sensitivity]] judges this expectation, so nobody knows; \
                           name it in the 'expect' of one, or remove the key";
            return Err(Fault::new(&key.span(), message));
        }
    }
    Ok(())
}

/// What a sensitivity is read with.
struct Reader<'a, 'i> {
    tree: &'a Spanned<DeTable<'i>>,
    scenario: &'a Scenario,
    read: &'a dyn Fn(&Spanned<DeTable<'i>>) -> Result<Scenario, Fault>,
}

impl<'i> Reader<'_, 'i> {
    /// The scenario at each value, and at the file's own.
    fn points(
        &self,
        name: &At<String>,
        entry: &Spanned<&DeTable<'i>>,
    ) -> Result<Vec<Point>, Fault> {
        self.check_paths(entry)?;
        let values = match entry.get_ref().get("values").map(Spanned::get_ref) {
            Some(DeValue::Array(values)) => &values[..],
            _ => &[],
        };
        name.check(!values.is_empty(), "'values' is empty; write at least one value")?;
        let mut points: Vec<Point> = Vec::new();
        for value in values {
            let changes = Changes::of(entry.get_ref(), value);
            let shown = changes.name.clone();
            let mut scenario = changes
                .apply(self.tree.clone())
                .and_then(|changed| (self.read)(&changed))
                .map_err(|fault| Fault {
                    message: format!(
                        "{} (in sensitivity '{}' at {shown})",
                        fault.message, name.value
                    ),
                    ..fault
                })?;
            let known = points.iter().any(|other| runs_alike(&other.scenario, &scenario));
            if known {
                let message = format!("{shown} is the same as a value before it; keep one of them");
                return Err(Fault::new(&value.span(), message));
            }
            let origin = match runs_alike(&scenario, self.scenario) {
                true => Origin::File,
                false => Origin::Other,
            };
            forget_what_is_known(&mut scenario);
            points.push(Point { value: shown, origin, scenario });
        }
        self.with_own(name, points)
    }

    fn with_own(&self, name: &At<String>, mut points: Vec<Point>) -> Result<Vec<Point>, Fault> {
        name.check(
            points.iter().any(|point| point.origin == Origin::Other),
            "its values change nothing in any variant; \
             set a key that the variants leave as it is, to other values",
        )?;
        if points.iter().all(|point| point.origin == Origin::Other) {
            let mut scenario = self.scenario.clone();
            forget_what_is_known(&mut scenario);
            points.insert(0, Point { value: "as it is".into(), origin: Origin::File, scenario });
        }
        Ok(points)
    }

    /// Paths must lead to what runs, and have a place for the value.
    fn check_paths(&self, entry: &Spanned<&DeTable<'i>>) -> Result<(), Fault> {
        let Some(DeValue::Table(set)) = entry.get_ref().get("set").map(Spanned::get_ref) else {
            return Ok(());
        };
        for path in set.keys() {
            let text: &str = path.get_ref().as_ref();
            let (first, rest) = text.split_once('.').unwrap_or((text, ""));
            if !VARIED.contains(&first) {
                let message = format!(
                    "'{text}' is nothing that a sensitivity varies; begin the path with one of {}",
                    list(&VARIED)
                );
                return Err(Fault::new(&path.span(), message));
            }
            // Another name would be a new window, which nothing looks at.
            let spans: Vec<&str> = self.scenario.spans.iter().map(|s| s.name.as_str()).collect();
            if first == "windows" && !spans.contains(&rest) {
                let message = format!("there is no window '{rest}'; {}", hint(rest, &spans));
                return Err(Fault::new(&path.span(), message));
            }
        }
        let takes = set.values().any(|value| takes_value(value.get_ref()));
        let span = entry.get_ref().get("set").map_or(entry.span(), Spanned::span);
        let message = "nothing in 'set' takes the value; write {} where it goes";
        if takes { Ok(()) } else { Err(Fault::new(&span, message)) }
    }
}

fn takes_value(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::String(text) => text.contains("{}"),
        DeValue::Array(array) => array.iter().any(|item| takes_value(item.get_ref())),
        _ => false,
    }
}

/// Whether two readings of a file run the same and look at the same stretches of time.
fn runs_alike(one: &Scenario, other: &Scenario) -> bool {
    let setups = |scenario: &Scenario| -> Vec<String> {
        scenario.variants.iter().map(|variant| format!("{:?}", variant.setup)).collect()
    };
    one.spans == other.spans && setups(one) == setups(other)
}

/// At other values nothing is known yet: an expectation holds there or does not.
fn forget_what_is_known(scenario: &mut Scenario) {
    for expectation in &mut scenario.expectations {
        expectation.differs = None;
        expectation.at_one_point = None;
    }
}
