//! Production functions that are longer than the house allows.

use crate::modules::Modules;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The longest function that needs no entry in the ratchet, in lines.
pub const LINES_MAX: usize = 80;

/// A function that is too long.
pub struct Long {
    /// Its file.
    pub file: PathBuf,
    /// The line of its signature.
    pub line: usize,
    /// Its length in lines.
    pub lines: usize,
}

/// The functions above `LINES_MAX`, by `FILE.rs:NAME`. The directory is left out, so that a file
/// may move; of two functions of one name in one file, or in two files of one name, the longer
/// counts.
pub fn long(modules: &Modules) -> BTreeMap<String, Long> {
    let mut found: BTreeMap<String, Long> = BTreeMap::new();
    for (file, source) in &modules.files {
        for f in source.functions.iter().filter(|f| f.lines > LINES_MAX) {
            let key = format!("{}:{}", name_in_crate(file), f.name);
            let new = Long { file: file.clone(), line: f.line, lines: f.lines };
            match found.get(&key) {
                Some(old) if old.lines >= new.lines => {}
                _ => drop(found.insert(key, new)),
            }
        }
    }
    found
}

/// `simulate.rs`, or `pool/mod.rs` for a file whose own name says nothing.
fn name_in_crate(file: &std::path::Path) -> String {
    let name = |p: &std::path::Path| {
        p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
    };
    match name(file).as_str() {
        own @ ("mod.rs" | "lib.rs" | "main.rs") => {
            format!("{}/{own}", file.parent().map(name).unwrap_or_default())
        }
        own => own.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_function_above_the_bound_is_found_and_one_at_it_is_not() {
        let body = |lines: usize| "\n".repeat(lines - 1);
        let text = format!("fn short() {{{}}}\nfn long() {{{}}}\n", body(80), body(81));
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("lib.rs");
        fs::write(&root, text).unwrap();
        let found = long(&Modules::read(&root).unwrap());
        let key = format!("{}/lib.rs:long", dir.path().file_name().unwrap().to_string_lossy());
        assert_eq!(found.keys().collect::<Vec<_>>(), [&key]);
        assert_eq!((found[&key].line, found[&key].lines), (81, 81));
    }
}
