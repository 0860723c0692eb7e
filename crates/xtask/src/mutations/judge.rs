//! Whether a test notices what is in the code: its programs are built, and run.
//!
//! Cargo chooses features by the packages that it is asked for. `unified` is asked for with each of
//! them, which has the features that all packages together have: nothing is built a second time
//! with others, and of `unified` itself nothing is built. It also tells apart what only the
//! compiler's own helpers need from what programs need, too, and this program needs some of both:
//! it is built with each, and is there already.

use super::list::{Program, Test};
use super::process::{self, End, Interrupted};
use super::wrapper::Wrapper;
use crate::tree::{Failure, Workspace};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What the package of the end-to-end tests is called. They run the program.
const END_TO_END: &str = "headgate-tests";
/// The same cases of each property as in `tests/run`.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "20261126");

/// What a test said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It failed: this one of its cases first, if any was named.
    Failed(Option<String>),
    /// It did not end in its time.
    Hung,
    /// It passed.
    Passed,
    /// There was nothing to run.
    NotBuilt,
    /// Nothing in its programs has such a name.
    NoTest,
}

/// Where tests are built and run, and where their words are kept.
pub struct Judge<'a> {
    pub workspace: Workspace,
    pub logs: PathBuf,
    pub wrapper: Wrapper,
    pub interrupted: &'a Interrupted,
}

/// What is run for a test.
struct Built {
    /// The directory of the test's package.
    dir: PathBuf,
    programs: Vec<PathBuf>,
    /// What the end-to-end tests run.
    daemon: Option<PathBuf>,
}

impl Judge<'_> {
    /// Builds and runs a test on the code as it is. What was said is kept by the name `name`. Fails
    /// when a signal came, and where the test cannot be run at all.
    pub fn ask(&self, test: &Test, patience: Duration, name: &str) -> Result<Verdict, Failure> {
        let Some(built) = self.build(test, name)? else { return Ok(Verdict::NotBuilt) };
        let log = self.log(name);
        let mut tests = 0;
        for program in &built.programs {
            let said = File::create(&log)?;
            let mut command = Command::new(program);
            command.args(&test.words).current_dir(&built.dir);
            command.env("CARGO_MANIFEST_DIR", &built.dir).env("HEADGATE_LAB", "require");
            if std::env::var_os(SEED.0).is_none() {
                command.env(SEED.0, SEED.1);
            }
            if let Some(daemon) = &built.daemon {
                command.env("HEADGATE_BIN", daemon);
            }
            command.stdout(said.try_clone()?).stderr(said);
            let end = process::run(&mut command, patience, self.interrupted)?;
            let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
            tests += begun(&said);
            match end {
                End::TooLong => return Ok(Verdict::Hung),
                End::Exited(status) if !status.success() => {
                    return Ok(Verdict::Failed(first_failure(&said)));
                }
                End::Exited(_) => {}
            }
        }
        Ok(if tests == 0 { Verdict::NoTest } else { Verdict::Passed })
    }

    /// Where the words of a test are.
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    fn build(&self, test: &Test, name: &str) -> Result<Option<Built>, Failure> {
        let mut command = Command::new("cargo");
        if test.package == END_TO_END {
            // A target of `tests` is asked for, so features are those of tests here, too.
            command.args(["build", "-p", "headgate", "--bin", "headgate"]);
        } else {
            command.args(["test", "--no-run"]);
        }
        command.args(["--message-format", "json-render-diagnostics"]);
        command.args(["-p", "unified", "-p", "xtask", "--bin", "xtask"]);
        command.args(["-p", &test.package]).args(test.programs.iter().flat_map(Program::words));
        // Warnings of a mutation are no errors.
        command.current_dir(&self.workspace.root).env("RUSTFLAGS", "");
        self.wrapper.set(&mut command);
        let messages = self.logs.join("cargo.json");
        command.stdout(File::create(&messages)?).stderr(File::create(self.log(name))?);
        match process::run(&mut command, Duration::MAX, self.interrupted)? {
            End::Exited(status) if status.success() => {}
            _ => return Ok(None),
        }
        self.programs(test, &fs::read_to_string(messages)?).map(Some)
    }

    /// Finds in what cargo says of its artifacts what is to be run.
    fn programs(&self, test: &Test, messages: &str) -> Result<Built, Failure> {
        let artifacts: Vec<Value> =
            messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let dir = self.dir(&test.package)?;
        let mut programs = Vec::new();
        for program in &test.programs {
            let found = match program {
                Program::Lib => executable(&artifacts, dir, "lib", None),
                Program::Test(name) => executable(&artifacts, dir, "test", Some(name)),
            };
            programs.push(found.ok_or_else(|| format!("cargo built no program of '{test}'"))?);
        }
        let daemon = match test.package == END_TO_END {
            true => executable(&artifacts, self.dir("headgate")?, "bin", Some("headgate")),
            false => None,
        };
        Ok(Built { dir: dir.to_owned(), programs, daemon })
    }

    fn dir(&self, package: &str) -> Result<&Path, Failure> {
        let found = self.workspace.crates.values().find(|one| one.package == package);
        Ok(&found.ok_or_else(|| format!("no package is called '{package}'"))?.dir)
    }
}

/// The program that cargo made of a target: of the package in `dir`, of such a kind, and of this
/// name where the package has several.
fn executable(artifacts: &[Value], dir: &Path, kind: &str, name: Option<&str>) -> Option<PathBuf> {
    let manifest = dir.join("Cargo.toml");
    let is_it = |one: &&Value| {
        one["reason"] == "compiler-artifact"
            && one["manifest_path"].as_str().is_some_and(|path| Path::new(path) == manifest)
            && one["target"]["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == kind))
            && name.is_none_or(|name| one["target"]["name"] == name)
            && one["executable"].is_string()
    };
    artifacts.iter().find(is_it).and_then(|one| one["executable"].as_str()).map(PathBuf::from)
}

/// How many tests a program said that it runs.
fn begun(said: &str) -> usize {
    let count = |line: &str| line.strip_prefix("running ")?.split(' ').next()?.parse().ok();
    said.lines().filter_map(count).next().unwrap_or(0)
}

fn first_failure(said: &str) -> Option<String> {
    let failed = |line: &str| {
        let name = line.strip_prefix("test ")?.split(" ... ").next()?;
        line.ends_with(" ... FAILED").then(|| name.trim_end_matches(" - should panic").to_owned())
    };
    said.lines().find_map(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_understood() {
        let said = "\nrunning 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\n";
        assert_eq!((begun(said), first_failure(said).as_deref()), (2, Some("a::c")));
        assert_eq!((begun("running 0 tests\n"), first_failure("test a ... ok")), (0, None));
        assert_eq!(begun("error: no such option"), 0);
    }

    #[test]
    fn a_program_is_found_among_artifacts() {
        let artifact = |dir: &str, kind: &str, name: &str, executable: Option<&str>| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": format!("{dir}/Cargo.toml"),
                "target": { "kind": [kind], "name": name },
                "executable": executable,
            })
        };
        let all = [
            artifact("/a", "lib", "a", None),
            artifact("/a", "lib", "a", Some("a-lib")),
            artifact("/b", "test", "all", Some("b-all")),
            artifact("/a", "test", "other", Some("a-other")),
            artifact("/a", "test", "all", Some("a-all")),
        ];
        let find = |kind, name| executable(&all, Path::new("/a"), kind, name);
        assert_eq!(find("lib", None), Some("a-lib".into()));
        assert_eq!(find("test", Some("all")), Some("a-all".into()));
        assert_eq!(find("test", Some("none")), None);
    }
}
