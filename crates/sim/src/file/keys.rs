//! Keys that depend on other keys of the same table. The rules are data; one function applies them
//! to the TOML tree, which knows the position of every value.

use super::text::list;
use crate::values::Fault;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A rule about keys of one table.
enum Rule {
    /// Each of these keys belongs to some values of another key, which is `usual` where missing.
    Only {
        by: &'static str,
        usual: &'static str,
        keys: &'static [(&'static str, &'static [&'static str])],
    },
    /// Each key but these belongs to one value of another key.
    Rest { by: &'static str, of: &'static str, but: &'static [&'static str] },
    /// Each of these keys needs one of others; `add` is an example.
    Needs { keys: &'static [&'static str], one_of: &'static [&'static str], add: &'static str },
    /// The first of these keys excludes each of the others.
    Excludes(&'static str, &'static [&'static str]),
    /// These keys need a `[pool]`.
    Pool(&'static [&'static str]),
}

/// Which tables have which rules; a path leads through tables and lists of tables.
const RULES: &[(&[&str], Rule)] = &[
    (
        &["vm", "workload"],
        Rule::Only {
            by: "kind",
            usual: "",
            keys: &[
                ("outstanding", &["closed", "on-off", "replay"]),
                ("outstanding-of", &["closed"]),
                ("types", &["closed"]),
                ("think", &["closed", "oltp"]),
                ("times", &["closed", "on-off", "oltp"]),
                ("requests", &["burst"]),
                ("every", &["burst"]),
                ("pacing", &["burst"]),
                ("rate", &["open"]),
                ("arrivals", &["open"]),
                ("on", &["on-off"]),
                ("off", &["on-off"]),
                ("terminals", &["oltp"]),
                ("reads", &["oltp"]),
                ("writes", &["oltp"]),
                ("cpu", &["oltp"]),
                ("processors", &["oltp"]),
                ("log-disk", &["oltp"]),
                ("log-size", &["oltp"]),
                ("trace", &["replay"]),
                ("timing", &["replay"]),
                ("speed", &["replay"]),
                ("repeat", &["replay"]),
                ("read", &["closed", "burst", "open", "on-off"]),
                ("random", &["closed", "burst", "open", "on-off", "oltp"]),
                ("hot", &["closed", "burst", "open", "on-off", "oltp"]),
                ("size", &["closed", "burst", "open", "on-off", "oltp"]),
                ("extent", &["closed", "burst", "open", "on-off", "oltp"]),
                ("offset", &["closed", "burst", "open", "on-off", "oltp"]),
            ],
        },
    ),
    (
        &["vm", "workload"],
        Rule::Only { by: "timing", usual: "recorded", keys: &[("speed", &["recorded"])] },
    ),
    (&["vm", "workload"], Rule::Excludes("outstanding-of", &["outstanding"])),
    (&["vm", "workload"], Rule::Excludes("types", &["size", "read", "random"])),
    (
        &["event"],
        Rule::Only {
            by: "do",
            usual: "",
            keys: &[
                ("vm", &["start", "stop", "policy"]),
                ("disk", &["policy"]),
                ("datastore", &["rate", "queue-depth", "fail", "return"]),
                ("node", &["rate", "fail", "return"]),
                ("rate", &["rate"]),
                ("queue-depth", &["queue-depth"]),
            ],
        },
    ),
    (
        &["event"],
        Rule::Rest {
            by: "do",
            of: "policy",
            but: &["at", "do", "vm", "disk", "datastore", "node", "rate", "queue-depth"],
        },
    ),
    (&["datastore"], Rule::Needs { keys: &["batch-span"], one_of: &["batch"], add: "batch = 8" }),
    (
        &["datastore", "node"],
        Rule::Needs { keys: &["queue-depth"], one_of: &["scheduler"], add: "scheduler = 'mclock'" },
    ),
    (
        &["vm", "disk"],
        Rule::Needs { keys: &["elevator-depth"], one_of: &["elevator"], add: "elevator = 'noop'" },
    ),
    (
        &["vm", "disk"],
        Rule::Only { by: "route", usual: "uniform", keys: &[("weights", &["weighted"])] },
    ),
    (&["vm", "disk"], Rule::Pool(&["listed", "pinned", "with-vm", "used", "class", "place"])),
    (&["vm", "disk"], Rule::Excludes("datastore", &["place"])),
    (
        &["sweep"],
        Rule::Needs { keys: &["k5"], one_of: &["constants-of"], add: "constants-of = 'a sweep'" },
    ),
    (&["expect"], Rule::Excludes("of", &["each"])),
    (&["expect"], Rule::Excludes("per", &["less"])),
    (&["expect"], Rule::Excludes("water-fill", &["equals"])),
    (&["expect"], Rule::Excludes("in-seeds", &["quantile"])),
    (&["expect"], Rule::Excludes("off-paper", &["differs"])),
    (&["expect"], Rule::Excludes("at-one-point", &["differs"])),
    (&["expect"], Rule::Needs { keys: &["off-paper"], one_of: &["paper"], add: "paper = 1.5" }),
    (
        &["expect"],
        Rule::Needs { keys: &["capacity"], one_of: &["water-fill"], add: "water-fill = true" },
    ),
    (
        &["expect"],
        Rule::Needs {
            keys: &["within", "slack"],
            one_of: &["equals", "water-fill"],
            add: "equals or water-fill",
        },
    ),
];

/// # Errors
/// The first key that breaks a rule. The tree must have been read without errors before, so that
/// all tables have their shape.
pub(super) fn check(root: &DeTable<'_>) -> Result<(), Fault> {
    for (path, rule) in RULES {
        for table in tables(root, path) {
            rule.check(table, root)?;
        }
    }
    Ok(())
}

fn tables<'a, 'i>(at: &'a DeTable<'i>, path: &[&str]) -> Vec<&'a DeTable<'i>> {
    let Some((first, rest)) = path.split_first() else { return vec![at] };
    let entries: Vec<&DeTable<'i>> = match at.get(*first).map(Spanned::get_ref) {
        Some(DeValue::Table(table)) => vec![table],
        Some(DeValue::Array(list)) => list
            .iter()
            .filter_map(|entry| match entry.get_ref() {
                DeValue::Table(table) => Some(table),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    entries.into_iter().flat_map(|entry| tables(entry, rest)).collect()
}

/// Where a key's value stands; none where the key is missing or `false`.
fn span(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let value = table.get(key)?;
    (!matches!(value.get_ref(), DeValue::Boolean(false))).then(|| value.span())
}

fn only_for(key: &str, by: &str, value: &str, values: &[&str], at: &Range<usize>) -> Fault {
    let values = list(values);
    Fault::new(
        at,
        format!(
            "'{key}' means nothing for {by} = '{value}', only for {values}; remove it or change '{by}'"
        ),
    )
}

impl Rule {
    fn check(&self, table: &DeTable<'_>, root: &DeTable<'_>) -> Result<(), Fault> {
        match self {
            Rule::Only { by, usual, keys } => {
                let value = match table.get(*by).map(Spanned::get_ref) {
                    Some(DeValue::String(value)) => value.as_ref(),
                    _ => usual,
                };
                for (key, values) in *keys {
                    if let Some(at) = table.get(*key).filter(|_| !values.contains(&value)) {
                        return Err(only_for(key, by, value, values, &at.span()));
                    }
                }
            }
            Rule::Rest { by, of, but } => {
                let value = match table.get(*by).map(Spanned::get_ref) {
                    Some(DeValue::String(value)) if value != of => value.as_ref(),
                    _ => return Ok(()),
                };
                let mut rest =
                    table.iter().filter(|(key, _)| !but.contains(&key.get_ref().as_ref()));
                if let Some((key, at)) = rest.next() {
                    return Err(only_for(key.get_ref(), by, value, &[of], &at.span()));
                }
            }
            Rule::Needs { keys, one_of, add } => {
                if one_of.iter().any(|other| span(table, other).is_some()) {
                    return Ok(());
                }
                if let Some((key, at)) = keys.iter().find_map(|key| Some((key, span(table, key)?)))
                {
                    let message = format!(
                        "'{key}' means nothing without '{}'; add {add}",
                        one_of.join("' or '")
                    );
                    return Err(Fault::new(&at, message));
                }
            }
            Rule::Excludes(key, others) => {
                let both = others.iter().find_map(|other| Some((other, span(table, other)?)));
                if let (Some(_), Some((other, at))) = (span(table, key), both) {
                    let message = format!("'{key}' and '{other}' exclude each other; keep one");
                    return Err(Fault::new(&at, message));
                }
            }
            Rule::Pool(keys) => {
                let found = keys.iter().find_map(|key| Some((key, table.get(*key)?.span())));
                if let (None, Some((key, at))) = (root.get("pool"), found) {
                    let message =
                        format!("'{key}' means nothing without a pool; remove it, or add a [pool]");
                    return Err(Fault::new(&at, message));
                }
            }
        }
        Ok(())
    }
}
