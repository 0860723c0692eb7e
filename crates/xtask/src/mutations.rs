//! `cargo xtask mutations`: puts known defects into the code that keeps acknowledged bytes, one at
//! a time, and sees whether the test that should notice does.
//!
//! The list is `tests/mutations.toml`. It is worked on in a copy of the checkout below `target`, or
//! in the checkout itself, where each file is put back after its test.

mod judge;
mod list;
mod process;
mod undo;
pub mod wrapper;

use crate::tree::{self, Failure, output};
use judge::{Judge, Verdict};
use list::{LIST, Mutation, Test};
use process::Interrupted;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use wrapper::Wrapper;

/// Below the target directory of the checkout.
const DIR: &str = "target/mutations";

/// Whether the checkout itself is changed, and each file put back after its test. Saves building
/// everything a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// In a copy.
    Copy,
    /// Here.
    InPlace,
}

/// What came of a mutation. The order is that of the last table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Caught,
    /// The test did not end. That is noticed, too.
    Hung,
    /// As the list says that it must.
    SurvivedAsSaid,
    Survived,
    /// And was said to survive.
    CaughtAgainstWord,
    DoesNotBuild,
    /// The test's name fits none.
    NoTest,
    /// The test fails without it.
    NotTried,
}

impl Outcome {
    fn of(verdict: &Verdict, mutation: &Mutation) -> Outcome {
        match (verdict, &mutation.survives) {
            (Verdict::Failed(_), None) => Outcome::Caught,
            (Verdict::Hung, None) => Outcome::Hung,
            (Verdict::Failed(_) | Verdict::Hung, Some(_)) => Outcome::CaughtAgainstWord,
            (Verdict::Passed, None) => Outcome::Survived,
            (Verdict::Passed, Some(_)) => Outcome::SurvivedAsSaid,
            (Verdict::NotBuilt, _) => Outcome::DoesNotBuild,
            (Verdict::NoTest, _) => Outcome::NoTest,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Outcome::Caught => "caught",
            Outcome::Hung => "caught: the test did not end",
            Outcome::SurvivedAsSaid => "survived, as is said",
            Outcome::Survived => "SURVIVED",
            Outcome::CaughtAgainstWord => "CAUGHT, and said to survive",
            Outcome::DoesNotBuild => "DID NOT BUILD",
            Outcome::NoTest => "TEST DID NOT RUN: none has its name",
            Outcome::NotTried => "NOT TRIED: the test fails without it",
        }
    }

    fn is_good(self) -> bool {
        matches!(self, Outcome::Caught | Outcome::Hung | Outcome::SurvivedAsSaid)
    }
}

/// Runs those mutations whose names are given, or all. Answers whether all ended as they should.
pub fn run(place: Where, names: &[&str]) -> Result<bool, Failure> {
    let root = tree::root()?;
    let dir = root.join(DIR);
    let logs = dir.join("logs");
    fs::create_dir_all(&logs)?;
    let _alone = alone(&dir)?;
    let note = dir.join("defect.json");
    undo::put_back(&note)?;
    let all = list::read(&root)?;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|one| one.name != **name)) {
        return Err(format!("no mutation is called '{unknown}'; {LIST} has the names").into());
    }
    let mut chosen: Vec<&Mutation> =
        all.iter().filter(|one| names.is_empty() || names.contains(&&*one.name)).collect();
    // What is built for one is there for the next one.
    chosen.sort_by_key(|one| (&one.test.package, &one.file));
    let tree = match place {
        Where::InPlace => root.clone(),
        Where::Copy => copy(&root)?,
    };
    for mutation in &chosen {
        mutation.apply(&tree)?;
    }
    let interrupted = Interrupted::watch()?;
    let workspace = tree::workspace(&tree)?;
    let wrapper = Wrapper::new(&tree.join(DIR))?;
    let judge = Judge { workspace, logs, wrapper, interrupted: &interrupted };
    let started = Instant::now();
    let mut table: BTreeMap<Outcome, Vec<&str>> = BTreeMap::new();
    let mut packages = chosen.chunk_by(|a, b| a.test.package == b.test.package);
    let done = packages.try_for_each(|of_package| {
        let unchanged = unchanged(&judge, of_package)?;
        of_package.iter().try_for_each(|mutation| {
            let outcome = one(&judge, mutation, unchanged[&mutation.test], &note)?;
            table.entry(outcome).or_default().push(&mutation.name);
            Ok::<(), Failure>(())
        })
    });
    print_table(&table, chosen.len(), started.elapsed());
    done?;
    Ok(table.keys().all(|outcome| outcome.is_good()))
}

/// Two runs in one checkout would judge each other's defects.
fn alone(dir: &Path) -> Result<File, Failure> {
    let lock = File::create(dir.join("lock"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err("mutations run in this checkout already".into()),
        Err(TryLockError::Error(e)) => Err(e.into()),
    }
}

/// How long each test takes without any mutation. One that does not pass proves nothing, has no
/// time, and keeps none of the others from running.
fn unchanged(
    judge: &Judge<'_>,
    chosen: &[&Mutation],
) -> Result<BTreeMap<Test, Option<Duration>>, Failure> {
    let mut times = BTreeMap::new();
    for mutation in chosen {
        let test = &mutation.test;
        if times.contains_key(test) {
            continue;
        }
        let name = format!("unchanged-{}-{}", test.package, times.len());
        let started = Instant::now();
        let verdict = judge.ask(test, Duration::from_secs(3600), &name)?;
        let took = started.elapsed();
        let passed = verdict == Verdict::Passed;
        println!("unchanged: {test} ({} s)", took.as_secs());
        if !passed {
            println!("  DOES NOT PASS: {verdict:?}: {}", judge.log(&name).display());
        }
        times.insert(test.clone(), passed.then_some(took));
    }
    Ok(times)
}

/// Tries one mutation whose test takes so long without it, and says what came of it.
fn one(
    judge: &Judge<'_>,
    mutation: &Mutation,
    unchanged: Option<Duration>,
    note: &Path,
) -> Result<Outcome, Failure> {
    let started = Instant::now();
    let (outcome, by) = match unchanged {
        None => (Outcome::NotTried, None),
        Some(time) => {
            let mutated = mutation.apply(&judge.workspace.root)?;
            let _defect = undo::Defect::put(mutated, note)?;
            let _properties = undo::Regressions::of(&judge.workspace.root)?;
            // Machines are slow now and then, and a test that fails may say more than one that
            // passes.
            let patience = time * 10 + Duration::from_secs(120);
            let verdict = judge.ask(&mutation.test, patience, &mutation.name)?;
            (Outcome::of(&verdict, mutation), by(verdict))
        }
    };
    let by = by.map(|test| format!(" by {test}")).unwrap_or_default();
    println!("{:44} {}{by} ({} s)", mutation.name, outcome.words(), started.elapsed().as_secs());
    Ok(outcome)
}

fn by(verdict: Verdict) -> Option<String> {
    match verdict {
        Verdict::Failed(by) => by,
        Verdict::Hung | Verdict::Passed | Verdict::NotBuilt | Verdict::NoTest => None,
    }
}

fn print_table(table: &BTreeMap<Outcome, Vec<&str>>, chosen: usize, time: Duration) {
    let tried: usize = table.values().map(Vec::len).sum();
    println!("\nmutations: {tried} of {chosen} in {} s", time.as_secs());
    for (outcome, names) in table {
        println!("{:>5} {}", names.len(), outcome.words());
        for name in names.iter().filter(|_| !outcome.is_good()) {
            println!("        {name}");
        }
    }
}

/// Mutations whose text is no longer in its file.
pub fn stale(root: &Path) -> Result<Vec<String>, Failure> {
    let all = list::read(root)?;
    let wrong = all.iter().filter_map(|one| one.apply(root).err());
    Ok(wrong.map(|e| format!("{LIST}: {e}")).collect())
}

/// The tracked files as they are now. What is the same stays, so that cargo builds little anew.
fn copy(root: &Path) -> Result<PathBuf, Failure> {
    let tree = root.join(DIR).join("tree");
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
