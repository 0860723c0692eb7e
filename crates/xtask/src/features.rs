//! Whether the package `unified` has the features that all packages together have.

use crate::tree::{Failure, output};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Features of packages, by their names and versions. A package may be built several times.
type Features = BTreeMap<String, BTreeSet<String>>;

/// What cargo chooses otherwise for `unified` than for the whole workspace.
pub fn differ(root: &Path) -> Result<Vec<String>, Failure> {
    let [all, unified] = [&["--workspace"][..], &["--package", "unified"]].map(|which| {
        let mut cargo = Command::new("cargo");
        cargo.args(["tree", "--offline", "--edges", "normal,build,dev", "--prefix", "none"]);
        cargo.args(["--format", "{p}\t{f}"]).args(which).current_dir(root);
        output(&mut cargo).map(|said| read(&said))
    });
    Ok(missing(&all?, &unified?))
}

fn read(tree: &str) -> Features {
    let mut features = Features::new();
    for line in tree.lines() {
        let line = line.trim_end().trim_end_matches("(*)").trim_end();
        let (package, has) = line.split_once('\t').unwrap_or((line, ""));
        features.entry(package.to_owned()).or_default().insert(has.trim_end().to_owned());
    }
    features
}

fn missing(all: &Features, unified: &Features) -> Vec<String> {
    let differs = |(package, has): (&String, &BTreeSet<String>)| {
        let wanted = all.get(package).filter(|wanted| !has.is_subset(wanted))?;
        Some(format!(
            "crates/unified: {package} has the features {has:?} there, and {wanted:?} in the \
             workspace: add what is missing"
        ))
    };
    unified.iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_is_missing_is_named() {
        let all = read("a v1 (/a)\tone,two\na v1 (/a)\t\nb v2\tthree\n");
        assert_eq!(missing(&all, &read("a v1 (/a)\tone,two (*)\nc v1\tfour\n")), [""; 0]);
        let wrong = missing(&all, &read("a v1 (/a)\tone\nb v2\tthree"));
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("a v1"), "{wrong:?}");
    }
}
