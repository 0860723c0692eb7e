//! The files and crates of a checkout, as git and cargo list them.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An error with its own words; these tools only print it.
pub type Failure = Box<dyn Error>;

/// A workspace as `cargo metadata` describes it.
pub struct Workspace {
    /// Its directory.
    pub root: PathBuf,
    /// Its packages, by directory name for those in `crates/`, else by package name.
    pub crates: BTreeMap<String, Package>,
}

/// One package.
pub struct Package {
    /// The name cargo knows it by.
    pub package: String,
    /// The directory of its manifest.
    pub dir: PathBuf,
    /// Root files of its library and binaries. Tests, examples and benches are not production code.
    pub roots: Vec<PathBuf>,
    /// Crates of this workspace that its normal dependencies name, in the words of `crates`.
    pub knows: BTreeSet<String>,
    /// Third-party packages that its normal dependencies name.
    pub uses: BTreeSet<String>,
}

/// The root of the checkout that the current directory lies in.
pub fn root() -> Result<PathBuf, Failure> {
    let out = output(Command::new("git").args(["rev-parse", "--show-toplevel"]))?;
    Ok(PathBuf::from(out.trim_end()))
}

/// The tracked files below `root`, relative to it. Deleted files that are still tracked are left
/// out.
pub fn tracked(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let out = output(Command::new("git").arg("-C").arg(root).args(list))?;
    let mut files: Vec<PathBuf> = out.split_terminator('\0').map(PathBuf::from).collect();
    files.retain(|f| root.join(f).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

/// The packages of the workspace at `root`.
pub fn workspace(root: &Path) -> Result<Workspace, Failure> {
    let list = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let out = output(Command::new("cargo").current_dir(root).args(list))?;
    let metadata: Value = serde_json::from_str(&out)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let short: BTreeMap<&str, String> =
        packages.iter().map(|p| (text(&p["name"]), short_name(p))).collect();
    let crates = packages.iter().map(|p| (short_name(p), package(p, &short))).collect();
    Ok(Workspace { root: root.to_owned(), crates })
}

fn package(package: &Value, short: &BTreeMap<&str, String>) -> Package {
    let normal: Vec<&Value> =
        list(&package["dependencies"]).iter().filter(|d| d["kind"].is_null()).collect();
    let is_production = |target: &&Value| {
        list(&target["kind"]).iter().any(|k| matches!(text(k), "lib" | "bin" | "proc-macro"))
    };
    Package {
        package: text(&package["name"]).to_owned(),
        dir: manifest_dir(package),
        roots: list(&package["targets"])
            .iter()
            .filter(is_production)
            .map(|t| PathBuf::from(text(&t["src_path"])))
            .collect(),
        knows: normal.iter().filter_map(|d| short.get(text(&d["name"])).cloned()).collect(),
        uses: normal
            .iter()
            .map(|d| text(&d["name"]).to_owned())
            .filter(|name| !short.contains_key(name.as_str()))
            .collect(),
    }
}

fn manifest_dir(package: &Value) -> PathBuf {
    let mut dir = PathBuf::from(text(&package["manifest_path"]));
    dir.pop();
    dir
}

fn short_name(package: &Value) -> String {
    let dir = manifest_dir(package);
    let in_crates = dir.parent().is_some_and(|p| p.ends_with("crates"));
    match dir.file_name().filter(|_| in_crates) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => text(&package["name"]).to_owned(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Runs a command and returns what it prints; fails with its words if it fails.
pub fn output(command: &mut Command) -> Result<String, Failure> {
    let out = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        return Err(format!("{command:?} failed: {}", said.trim_end()).into());
    }
    Ok(String::from_utf8(out.stdout)?)
}
