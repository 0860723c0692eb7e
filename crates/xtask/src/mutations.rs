//! `cargo xtask mutations`: puts known defects into the code that keeps acknowledged bytes, one at
//! a time, and sees whether the test that should notice does.
//!
//! The list is `tests/mutations.toml`. It is worked on in a copy of the checkout below `target`, so
//! that a run that is cut leaves nothing behind.

use crate::tree::{self, Failure, output};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

const LIST: &str = "tests/mutations.toml";
const LOGS: &str = "target/mutations/logs";

/// Whether the checkout itself is changed, and each file put back after its test. Saves building
/// everything a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// In a copy.
    Copy,
    /// Here.
    InPlace,
}

/// One defect.
#[derive(Debug)]
struct Mutation {
    name: String,
    file: String,
    old: String,
    new: String,
    /// Arguments of `cargo test`.
    test: Vec<String>,
    /// The test runs the program, which must be built first.
    program: bool,
    /// Why no test can notice it.
    survives: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Caught,
    Survived,
    DoesNotBuild,
}

/// Runs those mutations whose names are given, or all. Answers whether all ended as they should.
pub fn run(place: Where, names: &[&str]) -> Result<bool, Failure> {
    let root = tree::root()?;
    let all = parse(&fs::read_to_string(root.join(LIST))?)?;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|one| one.name != **name)) {
        return Err(format!("no mutation is called '{unknown}'; {LIST} has the names").into());
    }
    let chosen: Vec<&Mutation> =
        all.iter().filter(|one| names.is_empty() || names.contains(&&*one.name)).collect();
    let tree = match place {
        Where::InPlace => root.clone(),
        Where::Copy => copy(&root)?,
    };
    for mutation in &chosen {
        mutated(&tree, mutation)?;
    }
    let mut tests: BTreeMap<&[String], bool> = BTreeMap::new();
    for mutation in &chosen {
        *tests.entry(&mutation.test).or_default() |= mutation.program;
    }
    // What fails without any mutation proves nothing, and keeps none of the others from running.
    let mut broken: BTreeSet<&[String]> = BTreeSet::new();
    for (n, (test, program)) in tests.into_iter().enumerate() {
        let log = format!("unchanged-{n}");
        println!("unchanged: cargo test {}", test.join(" "));
        if judge(&tree, test, program, &log)? != Verdict::Survived {
            println!("  FAILS: {LOGS}/{log}.log");
            broken.insert(test);
        }
    }
    let mut good = true;
    let mut count = BTreeMap::new();
    for mutation in chosen {
        if broken.contains(&*mutation.test) {
            good = false;
            *count.entry("NOT TRIED").or_insert(0) += 1;
            println!("{:44} NOT TRIED: its test fails without it", mutation.name);
            continue;
        }
        let started = Instant::now();
        let verdict = try_one(&tree, mutation)?;
        let (word, fine) = match (verdict, &mutation.survives) {
            (Verdict::Caught, None) => ("caught", true),
            (Verdict::Caught, Some(_)) => ("caught, and said to survive", false),
            (Verdict::Survived, None) => ("NOT CAUGHT", false),
            (Verdict::Survived, Some(_)) => ("not caught, as is said", true),
            (Verdict::DoesNotBuild, _) => ("DOES NOT BUILD", false),
        };
        good &= fine;
        *count.entry(word).or_insert(0) += 1;
        println!("{:44} {word} ({} s)", mutation.name, started.elapsed().as_secs());
    }
    let said: Vec<String> = count.iter().map(|(word, n)| format!("{n} {word}")).collect();
    println!("mutations: {}", said.join(", "));
    Ok(good)
}

/// Mutations whose text is no longer in its file.
pub fn stale(root: &Path) -> Result<Vec<String>, Failure> {
    let all = parse(&fs::read_to_string(root.join(LIST))?)?;
    let wrong = all.iter().filter_map(|one| mutated(root, one).err());
    Ok(wrong.map(|e| format!("{LIST}: {e}")).collect())
}

fn parse(text: &str) -> Result<Vec<Mutation>, Failure> {
    let document: toml::Table = text.parse()?;
    let list = document.get("mutation").and_then(|list| list.as_array()).ok_or("no mutations")?;
    list.iter().map(one).collect()
}

fn one(value: &toml::Value) -> Result<Mutation, Failure> {
    const KEYS: [&str; 7] = ["name", "file", "old", "new", "test", "program", "survives"];
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
        test: need("test")?.split_whitespace().map(str::to_owned).collect(),
        program: table.get("program").and_then(toml::Value::as_bool).unwrap_or(false),
        survives: text("survives"),
        name,
    })
}

/// The tracked files as they are now. What is the same stays, so that cargo builds little anew.
fn copy(root: &Path) -> Result<PathBuf, Failure> {
    let tree = root.join("target/mutations/tree");
    let files = output(Command::new("git").args(["ls-files"]).current_dir(root))?;
    for file in files.lines() {
        let (from, to) = (root.join(file), tree.join(file));
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().ok_or("a file has a directory")?)?;
        // With its mode: scripts are run.
        fs::copy(from, to)?;
    }
    Ok(tree)
}

/// The file with the defect.
fn mutated(tree: &Path, mutation: &Mutation) -> Result<(PathBuf, String, String), Failure> {
    let path = tree.join(&mutation.file);
    let before = fs::read_to_string(&path)
        .map_err(|e| format!("{}: {}: {e}", mutation.name, path.display()))?;
    match before.matches(&mutation.old).count() {
        1 => {}
        n => {
            let (name, file) = (&mutation.name, &mutation.file);
            return Err(format!("{name}: 'old' stands {n} times in {file}, not once").into());
        }
    }
    let after = before.replace(&mutation.old, &mutation.new);
    Ok((path, before, after))
}

/// Puts the file back when it goes.
struct Restored {
    path: PathBuf,
    before: String,
}

impl Drop for Restored {
    fn drop(&mut self) {
        if let Err(e) = fs::write(&self.path, &self.before) {
            eprintln!("error: {} is left with a defect: {e}", self.path.display());
        }
    }
}

fn try_one(tree: &Path, mutation: &Mutation) -> Result<Verdict, Failure> {
    let (path, before, after) = mutated(tree, mutation)?;
    let restored = Restored { path, before };
    fs::write(&restored.path, after)?;
    judge(tree, &mutation.test, mutation.program, &mutation.name)
}

/// Builds and runs a test. What it says is kept in a file.
fn judge(tree: &Path, test: &[String], program: bool, name: &str) -> Result<Verdict, Failure> {
    let logs = tree::root()?.join(LOGS);
    fs::create_dir_all(&logs)?;
    let cargo = |words: &[&str]| -> Result<Output, Failure> {
        let mut command = Command::new("cargo");
        command.args(words).current_dir(tree).env("HEADGATE_LAB", "require");
        // Warnings of a mutation are no errors.
        command.env("RUSTFLAGS", "");
        let out = command.output()?;
        let said = [&out.stdout[..], &out.stderr[..]].concat();
        fs::write(logs.join(format!("{name}.log")), said)?;
        Ok(out)
    };
    let words: Vec<&str> = test.iter().map(String::as_str).collect();
    if program && !cargo(&["build", "-p", "headgate"])?.status.success() {
        return Ok(Verdict::DoesNotBuild);
    }
    if !cargo(&[&["test", "--no-run"], &words[..]].concat())?.status.success() {
        return Ok(Verdict::DoesNotBuild);
    }
    let passed = cargo(&[&["test"], &words[..]].concat())?;
    let ran = String::from_utf8_lossy(&passed.stdout)
        .lines()
        .any(|line| line.strip_prefix("running ").is_some_and(|rest| !rest.starts_with("0 ")));
    if !ran {
        return Err(format!("cargo test {} runs no test", test.join(" ")).into());
    }
    Ok(if passed.status.success() { Verdict::Survived } else { Verdict::Caught })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "[[mutation]]\nname = 'n'\nfile = 'f'\nold = 'a'\nnew = 'b'\ntest = '-p x'\n";

    #[test]
    fn a_list_is_read_and_its_mistakes_are_named() {
        let list = parse(GOOD).unwrap();
        assert_eq!((list[0].name.as_str(), list[0].test.len()), ("n", 2));
        let error = parse(&GOOD.replace("old", "olt")).unwrap_err().to_string();
        assert_eq!(error, "n: unknown key 'olt'");
        let error = parse(&GOOD.replace("file = 'f'\n", "")).unwrap_err().to_string();
        assert_eq!(error, "n: no 'file'");
    }

    #[test]
    fn what_is_replaced_must_stand_once() {
        let dir = tempfile::tempdir().unwrap();
        let list = parse(GOOD).unwrap();
        for (content, right) in [("xay", true), ("xy", false), ("aa", false)] {
            fs::write(dir.path().join("f"), content).unwrap();
            assert_eq!(mutated(dir.path(), &list[0]).is_ok(), right, "{content}");
        }
    }

    #[test]
    fn a_file_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "mutated").unwrap();
        drop(Restored { path: path.clone(), before: "before".into() });
        assert_eq!(fs::read_to_string(path).unwrap(), "before");
    }
}
