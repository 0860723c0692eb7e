//! The rules that `house.toml` states: which crate may know which, and which ones are pure.

use crate::tree::{Failure, Workspace};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The rules as they are shipped with this tool.
const RULES: &str = include_str!("../house.toml");

/// What each crate may do.
pub struct House {
    /// By the crate's name.
    pub crates: BTreeMap<String, Rules>,
}

/// What one crate may do.
#[derive(Debug, Default)]
pub struct Rules {
    /// Crates of this workspace that it may depend on. Nothing: any.
    pub knows: Option<Vec<String>>,
    /// Third-party packages that it may depend on. Nothing: any.
    pub uses: Option<Vec<String>>,
    /// Whether it needs no clock, file, socket, thread, process, environment or entropy.
    pub pure: bool,
    /// Whether its root must say `no_std`.
    pub no_std: bool,
}

impl House {
    /// The rules of this repository.
    pub fn shipped() -> Result<Self, Failure> {
        Self::parse(RULES)
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let table: Table = text.parse()?;
        let crates = table.get("crates").and_then(Value::as_table).ok_or("no table [crates]")?;
        let mut house = Self { crates: BTreeMap::new() };
        for (name, value) in crates {
            let said = |key: &str| format!("house.toml: crates.{name}: what is {key}?");
            let mut rules = Rules::default();
            for (key, value) in value.as_table().ok_or_else(|| said("this"))? {
                match key.as_str() {
                    "knows" => rules.knows = Some(strings(value).ok_or_else(|| said(key))?),
                    "uses" => rules.uses = Some(strings(value).ok_or_else(|| said(key))?),
                    "pure" => rules.pure = value.as_bool().ok_or_else(|| said(key))?,
                    "no-std" => rules.no_std = value.as_bool().ok_or_else(|| said(key))?,
                    _ => return Err(said(key).into()),
                }
            }
            house.crates.insert(name.clone(), rules);
        }
        Ok(house)
    }

    /// The pure crates that the workspace has.
    pub fn pure<'a>(&'a self, workspace: &'a Workspace) -> impl Iterator<Item = &'a str> {
        let pure = self.crates.iter().filter(|(_, rules)| rules.pure);
        pure.map(|(name, _)| name.as_str()).filter(|name| workspace.crates.contains_key(*name))
    }

    /// What the workspace's dependencies do that the rules forbid, a line each.
    pub fn arrows(&self, workspace: &Workspace) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, package) in &workspace.crates {
            let Some(rules) = self.crates.get(name) else {
                wrong.push(format!(
                    "{name}: house.toml does not say what this crate may depend on; add it"
                ));
                continue;
            };
            let list =
                [("knows", &package.knows, &rules.knows), ("uses", &package.uses, &rules.uses)];
            for (verb, has, may) in list {
                let Some(may) = may else { continue };
                for other in has.iter().filter(|other| !may.contains(other)) {
                    wrong.push(format!("{name}: {verb} {other}, which house.toml does not allow"));
                }
            }
        }
        wrong
    }
}

fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Package;

    fn workspace(crates: &[(&str, &[&str], &[&str])]) -> Workspace {
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let package = |knows: &[&str], uses: &[&str]| Package {
            package: String::new(),
            dir: "".into(),
            roots: Vec::new(),
            knows: set(knows),
            uses: set(uses),
        };
        let crates = crates.iter().map(|(n, k, u)| ((*n).to_owned(), package(k, u))).collect();
        Workspace { root: "".into(), crates }
    }

    const TWO: &str = "[crates]\nlow = { knows = [], uses = ['serde'], pure = true }\n\
                       high = { knows = ['low'] }\n";

    #[test]
    fn an_arrow_upward_is_wrong() {
        let house = House::parse(TWO).unwrap();
        assert!(house.arrows(&workspace(&[("low", &[], &[]), ("high", &["low"], &[])])).is_empty());
        let wrong = house.arrows(&workspace(&[("low", &["high"], &[]), ("high", &[], &[])]));
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].starts_with("low: knows high"), "{wrong:?}");
    }

    #[test]
    fn a_third_party_package_is_wrong_only_where_they_are_listed() {
        let house = House::parse(TWO).unwrap();
        let wrong = house.arrows(&workspace(&[("low", &[], &["rand"]), ("high", &[], &["rand"])]));
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].starts_with("low: uses rand"), "{wrong:?}");
    }

    #[test]
    fn a_crate_without_a_rule_is_wrong() {
        let wrong = House::parse(TWO).unwrap().arrows(&workspace(&[("new", &[], &[])]));
        assert!(wrong[0].starts_with("new: house.toml does not say"), "{wrong:?}");
    }

    #[test]
    fn a_misspelt_rule_is_refused() {
        assert!(House::parse("[crates]\na = { know = [] }").is_err());
    }

    #[test]
    fn the_shipped_rules_have_no_arrow_upward_among_pure_crates() {
        let house = House::shipped().unwrap();
        for (name, rules) in house.crates.iter().filter(|(_, rules)| rules.pure) {
            for other in rules.knows.as_ref().expect("a pure crate lists what it knows") {
                assert!(house.crates[other].pure, "{name} is pure and may know {other}");
            }
            assert!(rules.uses.is_some(), "{name} is pure and lists no packages");
        }
    }
}
