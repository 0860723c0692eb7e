//! `cargo xtask tidy`: the house rules.

use crate::columns::{COLUMNS_MAX, machine_paths, too_wide};
use crate::functions::{LINES_MAX, Long};
use crate::house::House;
use crate::links::{self, Missing};
use crate::modules::Modules;
use crate::mutations;
use crate::paths;
use crate::promises;
use crate::ratchet::{self, Mode, Ratchets};
use crate::tree::{self, Failure, Workspace};
use crate::{cycles, features, functions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The longest Rust file, in lines.
const FILE_LINES_MAX: usize = 600;

/// The largest cycle of files that may stand: a module and its parent.
pub const CYCLE_FILES_MAX: usize = 2;

/// What is read of a crate.
pub struct Crate {
    /// Its name in `house.toml`.
    pub name: String,
    /// The modules below each root of its production code.
    pub roots: Vec<Modules>,
}

/// Checks the checkout and prints what is wrong; returns whether nothing is.
pub fn run(mode: Mode) -> Result<bool, Failure> {
    let root = tree::root()?;
    let workspace = tree::workspace(&root)?;
    let crates = read(&workspace)?;
    let house = House::shipped()?;
    let mut wrong = texts(&root)?;
    wrong.extend(links(&root)?);
    wrong.extend(mutations::stale(&root)?);
    wrong.extend(features::differ(&root)?);
    let promises = std::fs::read_to_string(root.join(promises::DOCUMENT))?;
    wrong.extend(promises::broken(&promises, |file| std::fs::read_to_string(root.join(file)).ok()));
    wrong.extend(house.arrows(&workspace));
    wrong.extend(purity(&root, &house, &crates));
    wrong.extend(ratchets(&root, &crates, mode)?);
    for line in &wrong {
        println!("{line}");
    }
    match wrong.len() {
        0 => println!("tidy: nothing to mend in {} crates", crates.len()),
        n => println!("tidy: {n} to mend"),
    }
    Ok(wrong.is_empty())
}

/// Reads the production code of all crates in `crates/`.
pub fn read(workspace: &Workspace) -> Result<Vec<Crate>, Failure> {
    let inside = workspace.root.join("crates");
    let mut crates = Vec::new();
    for (name, package) in workspace.crates.iter().filter(|(_, p)| p.dir.starts_with(&inside)) {
        let roots = package.roots.iter().map(|r| Modules::read(r)).collect::<Result<_, _>>()?;
        crates.push(Crate { name: name.clone(), roots });
    }
    Ok(crates)
}

/// What is wrong with the texts of tracked files, whatever their language.
fn texts(root: &Path) -> Result<Vec<String>, Failure> {
    let mut wrong = Vec::new();
    for file in tree::tracked(root)? {
        // What is no text, such as a corpus of a fuzzer, has no lines.
        let Ok(text) = std::fs::read_to_string(root.join(&file)) else { continue };
        let shown = file.display();
        for (line, width) in too_wide(&file, &text) {
            wrong.push(format!("{shown}:{line}: {width} columns; at most {COLUMNS_MAX}"));
        }
        for line in machine_paths(&text) {
            wrong.push(format!("{shown}:{line}: names a directory of one machine"));
        }
    }
    Ok(wrong)
}

/// Links of documents to files and headings that do not exist.
fn links(root: &Path) -> Result<Vec<String>, Failure> {
    let mut documents = BTreeMap::new();
    for file in
        tree::tracked(root)?.into_iter().filter(|f| f.extension().is_some_and(|e| e == "md"))
    {
        let text = std::fs::read_to_string(root.join(&file))?;
        documents.insert(file, text);
    }
    let broken = links::broken(&documents, |file| root.join(file).exists());
    let line = |broken: &links::Broken| {
        let what = match broken.missing {
            Missing::File => "file",
            Missing::Heading => "heading",
        };
        format!("{}:{}: no such {what}: {}", broken.file.display(), broken.line, broken.target)
    };
    Ok(broken.iter().map(line).collect())
}

/// What pure crates do that needs an operating system.
fn purity(root: &Path, house: &House, crates: &[Crate]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (krate, rules) in crates.iter().filter_map(|c| Some((c, house.crates.get(&c.name)?))) {
        for modules in &krate.roots {
            let (file, source) = &modules.files[0];
            if rules.no_std && !source.no_std {
                wrong.push(format!("{}: must say #![no_std]", shown(root, file)));
            }
            for found in paths::forbidden(modules).iter().filter(|_| rules.pure) {
                wrong.push(format!(
                    "{}:{}: {} in a pure crate: time and events come in as arguments",
                    shown(root, &found.file),
                    found.line,
                    found.name
                ));
            }
        }
    }
    wrong
}

/// What became worse than the ratchets allow.
fn ratchets(root: &Path, crates: &[Crate], mode: Mode) -> Result<Vec<String>, Failure> {
    let mut kept = Ratchets::read(root)?;
    let long = long_functions(crates);
    let files = long_files(root)?;
    let cycles = cycles_by_crate(crates);
    let now = Ratchets {
        functions: long.iter().map(|(key, f)| (key.clone(), f.lines)).collect(),
        files,
        cycles: cycles.iter().map(|(key, c)| (key.clone(), c.iter().map(Vec::len).sum())).collect(),
    };
    let mut wrong = Vec::new();
    for (key, bound) in ratchet::above(&now.functions, &kept.functions, LINES_MAX) {
        let f = &long[&key];
        let at = shown(root, &f.file);
        wrong.push(format!("{at}:{}: {key}: {} lines; at most {bound}", f.line, f.lines));
    }
    for (key, bound) in ratchet::above(&now.files, &kept.files, FILE_LINES_MAX) {
        let lines = now.files[&key];
        wrong.push(format!("{key}: {lines} lines; at most {bound}, one subject a file"));
    }
    for (key, bound) in ratchet::above(&now.cycles, &kept.cycles, 0) {
        wrong.push(format!(
            "{key}: {} files in cycles of more than {CYCLE_FILES_MAX}; at most {bound}:",
            now.cycles[&key]
        ));
        for cycle in &cycles[&key] {
            let names: Vec<_> = cycle.iter().map(|file| shown(root, file)).collect();
            wrong.push(format!("    {}", names.join(" ")));
        }
    }
    if mode == Mode::Tighten {
        kept.tighten(&now);
        kept.write(root)?;
    }
    let slack = ratchet::slack(&now, &kept);
    if slack > 0 {
        println!("note: {slack} ratchets can be lowered: cargo xtask tidy --tighten");
    }
    Ok(wrong)
}

/// The Rust files that are too long, by the last two names of their path.
fn long_files(root: &Path) -> Result<ratchet::Figures, Failure> {
    let mut long = ratchet::Figures::new();
    for file in tree::tracked(root)?.iter().filter(|f| f.extension().is_some_and(|e| e == "rs")) {
        let lines = std::fs::read_to_string(root.join(file))?.lines().count();
        if lines > FILE_LINES_MAX {
            let names: Vec<_> = file.iter().map(|n| n.to_string_lossy()).collect();
            long.insert(names[names.len().saturating_sub(2)..].join("/"), lines);
        }
    }
    Ok(long)
}

/// The functions that are too long, of all crates.
pub fn long_functions(crates: &[Crate]) -> BTreeMap<String, Long> {
    crates.iter().flat_map(|c| &c.roots).flat_map(functions::long).collect()
}

/// The cycles of files that are too large, by crate; crates without one are left out.
pub fn cycles_by_crate(crates: &[Crate]) -> BTreeMap<String, Vec<Vec<PathBuf>>> {
    let mut by_crate = BTreeMap::new();
    for krate in crates {
        let mut all = Vec::new();
        for modules in &krate.roots {
            for cycle in cycles::components(&modules.edges(), CYCLE_FILES_MAX) {
                all.push(cycle.iter().map(|&i| modules.files[i].0.clone()).collect());
            }
        }
        if !all.is_empty() {
            by_crate.insert(krate.name.clone(), all);
        }
    }
    by_crate
}

/// A path as it is printed: relative to the root.
fn shown(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}
