//! The modules of a crate, and which file uses what another one defines.

use crate::source::{self, Module, Segments, Source};
use crate::tree::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How many re-exports are followed to the file that defines a name.
const REEXPORTS_MAX: usize = 16;

/// All production modules below one root file.
pub struct Modules {
    /// The files, the root first.
    pub files: Vec<(PathBuf, Source)>,
    /// File and index within the file of the module at a path; the root's is empty.
    by_path: BTreeMap<Segments, (usize, usize)>,
}

impl Modules {
    /// Reads `root` and what its `mod` declarations lead to. Fails on files that cannot be read or
    /// parsed.
    pub fn read(root: &Path) -> Result<Self, Failure> {
        let mut modules = Self { files: Vec::new(), by_path: BTreeMap::new() };
        let dir = root.parent().ok_or("a root file without a directory")?;
        modules.add(root, dir, Vec::new())?;
        Ok(modules)
    }

    /// `children` is where the files of child modules stand.
    fn add(&mut self, file: &Path, children: &Path, path: Segments) -> Result<(), Failure> {
        let said = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
        let text = std::fs::read_to_string(file).map_err(|e| said(&e))?;
        let source = source::read(&text).map_err(|e| said(&e))?;
        let index = self.files.len();
        let mut next = Vec::new();
        for (nth, module) in source.modules.iter().enumerate() {
            let here: Segments = path.iter().chain(&module.below).cloned().collect();
            let dir: PathBuf = std::iter::once(children.to_owned())
                .chain(module.below.iter().map(PathBuf::from))
                .collect();
            for (name, given) in &module.files {
                let mut below = here.clone();
                below.push(name.clone());
                let found = match given {
                    // Relative to the directory of the file itself, not of its children.
                    Some(given) => file.with_file_name(given),
                    None => module_file(&dir, name),
                };
                next.push((found, dir.join(name), below));
            }
            self.by_path.insert(here, (index, nth));
        }
        self.files.push((file.to_owned(), source));
        for (file, children, path) in next {
            self.add(&file, &children, path)?;
        }
        Ok(())
    }

    /// For each file, the other files that define what it names.
    pub fn edges(&self) -> Vec<BTreeSet<usize>> {
        self.uses().into_iter().map(|uses| uses.into_keys().collect()).collect()
    }

    /// For each file, the other files that define what it names, and the paths that lead there.
    pub fn uses(&self) -> Vec<BTreeMap<usize, BTreeSet<String>>> {
        let mut uses = vec![BTreeMap::<_, BTreeSet<_>>::new(); self.files.len()];
        for (at, &(file, nth)) in &self.by_path {
            let module = &self.files[file].1.modules[nth];
            for (path, _) in &module.paths {
                let target = self.absolute(at, module, path).and_then(|p| self.defines(&p, 0));
                if let Some(target) = target.filter(|&target| target != file) {
                    uses[file].entry(target).or_default().insert(path.join("::"));
                }
            }
        }
        uses
    }

    fn module(&self, path: &[String]) -> Option<&Module> {
        self.by_path.get(path).map(|&(file, nth)| &self.files[file].1.modules[nth])
    }

    /// A path from the crate's root, or nothing if it leads out of the crate.
    fn absolute(&self, at: &[String], module: &Module, path: &[String]) -> Option<Segments> {
        let (first, rest) = path.split_first()?;
        let join = |start: &[String]| Some(start.iter().chain(rest).cloned().collect());
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => join(at),
            "super" => {
                let ups = path.iter().take_while(|s| *s == "super").count();
                let base = &at[..at.len().checked_sub(ups)?];
                Some(base.iter().chain(&path[ups..]).cloned().collect())
            }
            name => {
                let mut child = at.to_vec();
                child.push(name.to_owned());
                if self.by_path.contains_key(&child) {
                    return join(&child);
                }
                // An imported name alone is seen at its import already.
                let import = module.imports.get(name).filter(|_| !rest.is_empty())?;
                (import.first() != Some(first)).then_some(())?;
                join(&self.absolute(at, module, import)?)
            }
        }
    }

    /// The file that defines the item at an absolute path; nothing for a module itself.
    fn defines(&self, path: &[String], depth: usize) -> Option<usize> {
        let mut known = 0;
        while known < path.len() && self.by_path.contains_key(&path[..=known]) {
            known += 1;
        }
        let name = path.get(known)?;
        let at = &path[..known];
        let module = self.module(at)?;
        let here = self.by_path.get(at).map(|&(file, _)| file);
        if depth == REEXPORTS_MAX || module.items.contains(name) {
            return here;
        }
        if let Some(import) = module.imports.get(name) {
            let Some(target) = self.absolute(at, module, import) else { return here };
            return self.defines(&target, depth + 1).or(here);
        }
        let globs = module.globs.iter().filter_map(|g| self.absolute(at, module, g));
        globs.into_iter().find_map(|g| self.defined_below(&g, name, depth + 1)).or(here)
    }

    /// The file that defines `name` for those who import all of the module at `at`.
    fn defined_below(&self, at: &[String], name: &String, depth: usize) -> Option<usize> {
        let module = self.module(at)?;
        let named = module.items.contains(name) || module.imports.contains_key(name);
        let path: Segments = at.iter().chain([name]).cloned().collect();
        named.then(|| self.defines(&path, depth)).flatten()
    }
}

/// `dir/name.rs`, or `dir/name/mod.rs` where that is not there.
fn module_file(dir: &Path, name: &str) -> PathBuf {
    let name = name.strip_prefix("r#").unwrap_or(name);
    let flat = dir.join(format!("{name}.rs"));
    if flat.is_file() { flat } else { dir.join(name).join("mod.rs") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn modules(files: &[(&str, &str)]) -> (tempfile::TempDir, Modules) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let modules = Modules::read(&dir.path().join("lib.rs")).unwrap();
        (dir, modules)
    }

    fn edges(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let (_dir, modules) = modules(files);
        let name = |i: usize| {
            let path = &modules.files[i].0;
            path.file_stem().unwrap().to_string_lossy().into_owned()
        };
        let edges = modules.edges();
        let pairs =
            edges.iter().enumerate().flat_map(|(from, to)| to.iter().map(move |t| (from, *t)));
        pairs.map(|(from, to)| (name(from), name(to))).collect()
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn an_import_is_an_edge_to_the_file_that_defines_the_name() {
        let lib = ("lib.rs", "mod a; mod b;");
        let a = ("a.rs", "use crate::b::Thing;");
        let b = ("b.rs", "pub struct Thing;");
        assert_eq!(edges(&[lib, a, b]), [pair("a", "b")]);
    }

    #[test]
    fn a_reexport_is_followed() {
        let lib = ("lib.rs", "mod a; mod b; pub use b::Thing;");
        let a = ("a.rs", "fn f(_: crate::Thing) {}");
        let b = ("b.rs", "pub struct Thing;");
        assert_eq!(edges(&[lib, a, b]), [pair("lib", "b"), pair("a", "b")]);
    }

    #[test]
    fn a_glob_reexport_is_followed() {
        let lib = ("lib.rs", "mod a; mod b; pub use b::*;");
        let a = ("a.rs", "use crate::Thing;");
        let b = ("b.rs", "pub struct Thing;");
        assert_eq!(edges(&[lib, a, b]), [pair("a", "b")]);
    }

    #[test]
    fn an_imported_module_is_used_through_its_paths() {
        let lib = ("lib.rs", "mod a; mod b;");
        let a = ("a.rs", "use crate::b; fn f() { b::c::g(); }");
        let files = [lib, a, ("b/mod.rs", "pub mod c;"), ("b/c.rs", "pub fn g() {}")];
        assert_eq!(edges(&files), [pair("a", "c")]);
    }

    #[test]
    fn super_leads_to_the_parent() {
        let lib = ("lib.rs", "mod a; struct Thing;");
        assert_eq!(edges(&[lib, ("a.rs", "use super::Thing;")]), [pair("a", "lib")]);
    }

    #[test]
    fn modules_of_tests_are_not_read() {
        let (_dir, modules) = modules(&[("lib.rs", "#[cfg(test)] mod missing;")]);
        assert_eq!(modules.files.len(), 1);
    }
}
