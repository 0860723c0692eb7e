//! Names of the standard library that a pure crate may not use.

use crate::modules::Modules;
use crate::source::Module;
use std::path::PathBuf;

/// What needs an operating system, or differs from run to run.
const FORBIDDEN: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::time::Instant",
    "std::time::SystemTime",
    // Seeded by the operating system: the order of a map would differ from run to run.
    "std::collections::HashMap::default",
    "std::collections::HashMap::from",
    "std::collections::HashMap::new",
    "std::collections::HashMap::with_capacity",
    "std::collections::HashSet::default",
    "std::collections::HashSet::from",
    "std::collections::HashSet::new",
    "std::collections::HashSet::with_capacity",
    "std::collections::hash_map::RandomState",
    "std::hash::RandomState",
    "getrandom",
    "rand",
    "dbg",
    "eprint",
    "eprintln",
    "print",
    "println",
];

/// One use of a forbidden name.
pub struct Use {
    /// The file.
    pub file: PathBuf,
    /// The line.
    pub line: usize,
    /// The name, in full.
    pub name: String,
}

/// Every use of a forbidden name.
pub fn forbidden(modules: &Modules) -> Vec<Use> {
    let mut found = Vec::new();
    for (file, source) in &modules.files {
        for module in &source.modules {
            for (path, line) in &module.paths {
                let name = full_name(module, path);
                if FORBIDDEN.iter().any(|f| is_or_is_below(&name, f)) {
                    found.push(Use { file: file.clone(), line: *line, name });
                }
            }
        }
    }
    found
}

/// The path with the import of its first segment put in.
fn full_name(module: &Module, path: &[String]) -> String {
    let (first, rest) = path.split_first().expect("a path has a segment");
    let import = module.imports.get(first).filter(|import| import.first() != Some(first));
    match import {
        Some(import) => import.iter().chain(rest).cloned().collect::<Vec<_>>().join("::"),
        None => path.join("::"),
    }
}

fn is_or_is_below(name: &str, parent: &str) -> bool {
    name.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(text: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("lib.rs");
        fs::write(&root, text).unwrap();
        forbidden(&Modules::read(&root).unwrap()).into_iter().map(|u| u.name).collect()
    }

    #[test]
    fn a_clock_is_found_however_it_is_named() {
        assert_eq!(names("fn f() { std::time::Instant::now(); }"), ["std::time::Instant::now"]);
        assert_eq!(names("use std::{fmt, time::Instant};"), ["std::time::Instant"]);
        let renamed = "use std::time as t; fn f() { t::SystemTime::now(); }";
        assert_eq!(names(renamed), ["std::time::SystemTime::now"]);
        assert_eq!(names("fn f() { format!(\"{:?}\", std::env::args()); }"), ["std::env::args"]);
    }

    #[test]
    fn a_map_with_a_seed_of_the_system_is_found() {
        let text = "use std::collections::HashMap; fn f() { HashMap::<u8, u8>::new(); }";
        assert_eq!(names(text), ["std::collections::HashMap::new"]);
        let seeded = "use std::collections::HashMap; fn f() { HashMap::with_hasher(S); }";
        assert!(names(seeded).is_empty());
    }

    #[test]
    fn what_is_harmless_passes() {
        let text = "use std::time::Duration; use std::io::Read; use std::fmt; fn environment() {}";
        assert!(names(text).is_empty());
    }

    #[test]
    fn output_is_found() {
        assert_eq!(names("fn f() { println!(\"x\"); }"), ["println"]);
    }
}
