//! Files with a defect are put back: at the end of each test, after a signal, and by the next run
//! if this one is killed.

use super::list::Mutated;
use crate::tree::Failure;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file that has a defect for as long as this lives.
pub struct Defect {
    what: Mutated,
    note: PathBuf,
}

impl Defect {
    /// Puts the defect into the file. A note in the file `note` says first how it was.
    pub fn put(what: Mutated, note: &Path) -> Result<Defect, Failure> {
        let said = json!({ "path": what.path, "before": what.before, "after": what.after });
        let half = note.with_extension("half");
        fs::write(&half, said.to_string())?;
        fs::rename(&half, note)?;
        let defect = Defect { what, note: note.to_owned() };
        fs::write(&defect.what.path, &defect.what.after)?;
        Ok(defect)
    }
}

impl Drop for Defect {
    fn drop(&mut self) {
        let path = self.what.path.display();
        match fs::write(&self.what.path, &self.what.before) {
            Ok(()) => drop(fs::remove_file(&self.note)),
            Err(e) => eprintln!("error: {path} is left with a defect: {e}"),
        }
    }
}

/// Puts back what a run left that was killed, and says so. A file that is not as that run left it
/// was changed by somebody since, and stays.
pub fn put_back(note: &Path) -> Result<(), Failure> {
    let said: Value = match fs::read(note) {
        Ok(said) => serde_json::from_slice(&said)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let text =
        |key: &str| said[key].as_str().ok_or_else(|| format!("{}: no {key}", note.display()));
    let (path, before, after) = (text("path")?, text("before")?, text("after")?);
    if fs::read_to_string(path).is_ok_and(|now| now == after) {
        fs::write(path, before)?;
        println!("{path}: a run that was killed had left a defect here; it is put back");
    }
    fs::remove_file(note)?;
    Ok(())
}

/// What properties keep of their failures, as it was: a failure under a defect is none to keep.
pub struct Regressions {
    root: PathBuf,
    before: BTreeMap<PathBuf, Vec<u8>>,
}

impl Regressions {
    /// Those below `root` as they are now; they are so again when this goes.
    pub fn of(root: &Path) -> Result<Regressions, Failure> {
        Ok(Regressions { root: root.to_owned(), before: kept(root)? })
    }

    fn restore(&self) -> Result<(), Failure> {
        for (file, bytes) in kept(&self.root)? {
            match self.before.get(&file) {
                Some(before) if *before == bytes => {}
                Some(before) => fs::write(file, before)?,
                None => fs::remove_file(file)?,
            }
        }
        Ok(())
    }
}

impl Drop for Regressions {
    fn drop(&mut self) {
        if let Err(e) = self.restore() {
            eprintln!("error: what properties found with a defect is kept: {e}");
        }
    }
}

fn kept(root: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, Failure> {
    let mut kept = BTreeMap::new();
    let mut dirs = vec![root.join("crates"), root.join("tests"), root.join("fuzz")];
    while let Some(dir) = dirs.pop() {
        let Ok(inside) = fs::read_dir(&dir) else { continue };
        for entry in inside {
            let (path, kind) = {
                let entry = entry?;
                (entry.path(), entry.file_type()?)
            };
            if kind.is_dir() {
                dirs.push(path);
            } else if path.to_string_lossy().contains("regressions") {
                let bytes = fs::read(&path)?;
                kept.insert(path, bytes);
            }
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutated(dir: &Path) -> Mutated {
        let path = dir.join("f");
        fs::write(&path, "right").unwrap();
        Mutated { path, before: "right".to_owned(), after: "wrong".to_owned() }
    }

    #[test]
    fn a_file_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let (file, note) = (dir.path().join("f"), dir.path().join("note"));
        let defect = Defect::put(mutated(dir.path()), &note).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "wrong");
        drop(defect);
        assert_eq!(fs::read_to_string(&file).unwrap(), "right");
        assert!(!note.exists());
    }

    #[test]
    fn what_a_killed_run_left_is_put_back_unless_somebody_changed_it() {
        let dir = tempfile::tempdir().unwrap();
        let (file, note) = (dir.path().join("f"), dir.path().join("note"));
        for (found, then) in [("wrong", "right"), ("mended by hand", "mended by hand")] {
            std::mem::forget(Defect::put(mutated(dir.path()), &note).unwrap());
            fs::write(&file, found).unwrap();
            put_back(&note).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), then);
            assert!(!note.exists());
        }
        put_back(&note).unwrap();
    }

    #[test]
    fn what_properties_found_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let tests = dir.path().join("crates/x/proptest-regressions");
        fs::create_dir_all(&tests).unwrap();
        let (old, new) = (tests.join("old.txt"), tests.join("new.txt"));
        fs::write(&old, "cc 1").unwrap();
        let regressions = Regressions::of(dir.path()).unwrap();
        fs::write(&old, "cc 1\ncc 2").unwrap();
        fs::write(&new, "cc 3").unwrap();
        drop(regressions);
        assert_eq!(fs::read_to_string(&old).unwrap(), "cc 1");
        assert!(!new.exists());
    }
}
