//! The list of defects, `tests/mutations.toml`, and the text of each file with its defect.

use crate::tree::Failure;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the list stands, from the root of the checkout.
pub const LIST: &str = "tests/mutations.toml";

/// One defect.
#[derive(Debug)]
pub struct Mutation {
    pub name: String,
    pub file: String,
    old: String,
    new: String,
    pub test: Test,
    /// Why no test can notice it.
    pub survives: Option<String>,
}

/// The test that must notice, in the words of `cargo test`:
/// `-p PACKAGE [--lib] [--test PROGRAM]... [FILTER] [-- WORD...]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    pub package: String,
    pub programs: Vec<Program>,
    /// What each program is called with.
    pub words: Vec<String>,
}

/// A test program of a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// The tests inside its library.
    Lib,
    /// One of `tests`.
    Test(String),
}

impl Program {
    /// What cargo is told.
    pub fn words(&self) -> Vec<&str> {
        match self {
            Program::Lib => vec!["--lib"],
            Program::Test(name) => vec!["--test", name],
        }
    }
}

impl Test {
    fn parse(text: &str) -> Result<Test, Failure> {
        let mut words = text.split_whitespace();
        let (Some("-p"), Some(package)) = (words.next(), words.next()) else {
            return Err("a test begins with '-p PACKAGE'".into());
        };
        let mut test =
            Test { package: package.to_owned(), programs: Vec::new(), words: Vec::new() };
        while let Some(word) = words.next() {
            match word {
                "--lib" => test.programs.push(Program::Lib),
                "--test" => {
                    let name = words.next().ok_or("'--test' wants a name")?;
                    test.programs.push(Program::Test(name.to_owned()));
                }
                "--" => test.words.extend(words.by_ref().map(str::to_owned)),
                option if option.starts_with('-') => {
                    return Err(format!("a test takes no '{option}'").into());
                }
                filter => test.words.push(filter.to_owned()),
            }
        }
        if test.programs.is_empty() {
            return Err("a test names its programs: '--lib' or '--test NAME'".into());
        }
        Ok(test)
    }
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let programs = self.programs.iter().flat_map(Program::words);
        let words: Vec<&str> = programs.chain(self.words.iter().map(String::as_str)).collect();
        write!(f, "-p {} {}", self.package, words.join(" "))
    }
}

/// Reads the list of the checkout at `root`.
pub fn read(root: &Path) -> Result<Vec<Mutation>, Failure> {
    parse(&fs::read_to_string(root.join(LIST))?)
}

fn parse(text: &str) -> Result<Vec<Mutation>, Failure> {
    let document: toml::Table = text.parse()?;
    let list = document.get("mutation").and_then(|list| list.as_array()).ok_or("no mutations")?;
    list.iter().map(one).collect()
}

fn one(value: &toml::Value) -> Result<Mutation, Failure> {
    const KEYS: [&str; 6] = ["name", "file", "old", "new", "test", "survives"];
    let table = value.as_table().ok_or("a mutation is a table")?;
    let text = |key: &str| table.get(key).and_then(|value| value.as_str()).map(str::to_owned);
    let name = text("name").ok_or("a mutation without a name")?;
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("{name}: unknown key '{key}'").into());
    }
    let need = |key: &str| text(key).ok_or_else(|| format!("{name}: no '{key}'"));
    Ok(Mutation {
        file: need("file")?,
        old: need("old")?,
        new: need("new")?,
        test: Test::parse(&need("test")?).map_err(|e| format!("{name}: {e}"))?,
        survives: text("survives"),
        name,
    })
}

/// A file as it is, and with a defect.
#[derive(Debug)]
pub struct Mutated {
    pub path: PathBuf,
    pub before: String,
    pub after: String,
}

impl Mutation {
    /// The file below `tree` with the defect. Fails where its text does not stand exactly once.
    pub fn apply(&self, tree: &Path) -> Result<Mutated, Failure> {
        let path = tree.join(&self.file);
        let before = fs::read_to_string(&path)
            .map_err(|e| format!("{}: {}: {e}", self.name, path.display()))?;
        match before.matches(&self.old).count() {
            1 => {}
            n => {
                let (name, file) = (&self.name, &self.file);
                return Err(format!("{name}: 'old' stands {n} times in {file}, not once").into());
            }
        }
        let after = before.replace(&self.old, &self.new);
        Ok(Mutated { path, before, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "[[mutation]]\nname = 'n'\nfile = 'f'\nold = 'a'\nnew = 'b'\ntest = '-p x --lib'\n";

    #[test]
    fn a_list_is_read_and_its_mistakes_are_named() {
        let list = parse(GOOD).unwrap();
        assert_eq!((list[0].name.as_str(), list[0].test.package.as_str()), ("n", "x"));
        let error = |from: &str, to: &str| parse(&GOOD.replace(from, to)).unwrap_err().to_string();
        assert_eq!(error("old", "olt"), "n: unknown key 'olt'");
        assert_eq!(error("file = 'f'\n", ""), "n: no 'file'");
        assert_eq!(
            error(" --lib", " filter"),
            "n: a test names its programs: '--lib' or '--test NAME'"
        );
        assert_eq!(error("-p x", "--workspace"), "n: a test begins with '-p PACKAGE'");
        assert_eq!(error("--lib", "--lib --release"), "n: a test takes no '--release'");
    }

    #[test]
    fn a_test_has_programs_and_words() {
        let test = Test::parse("-p x --lib --test a one:: -- --exact two").unwrap();
        assert_eq!(test.programs, [Program::Lib, Program::Test("a".to_owned())]);
        assert_eq!(test.words, ["one::", "--exact", "two"]);
        assert_eq!(test.to_string(), "-p x --lib --test a one:: --exact two");
    }

    #[test]
    fn what_is_replaced_must_stand_once() {
        let dir = tempfile::tempdir().unwrap();
        let list = parse(GOOD).unwrap();
        for (content, right) in [("xay", true), ("xy", false), ("aa", false)] {
            fs::write(dir.path().join("f"), content).unwrap();
            assert_eq!(list[0].apply(dir.path()).is_ok(), right, "{content}");
        }
    }
}
