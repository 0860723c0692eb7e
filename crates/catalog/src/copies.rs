//! Copies of the catalog, in a directory beside it: the newest, and one of each day before.
//!
//! A copy has its name only when it is whole: it is written under another, synchronised, checked by
//! SQLite and read by the daemon's own loader before.

use crate::error::CatalogError;
use crate::sqlite::{Inspection, Which, copy_into, inspect};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// So many of the newest copies are kept.
pub const NEWEST: usize = 8;

/// Of so many days the newest copy is kept besides.
pub const DAYS: usize = 7;

const DAY: u64 = 24 * 60 * 60;

/// A copy of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogCopy {
    /// The file.
    pub path: PathBuf,
    /// Counted from the first copy: a later one has a greater number.
    pub number: u64,
    /// When it was made: seconds since 1970-01-01 UTC, by the file's time.
    pub at: u64,
}

/// The directory of copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    directory: PathBuf,
}

/// A copy and what it is like.
pub type Inspected = (CatalogCopy, Result<Inspection, CatalogError>);

fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("catalog-")?.strip_suffix(".sqlite")?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> CatalogError {
    let path = path.to_owned();
    move |source| CatalogError::File { path, source }
}

/// The copies that are not kept: all but the [`NEWEST`], and the newest of each of the [`DAYS`]
/// last days that have one. `copies` begins with the newest.
fn surplus(copies: &[CatalogCopy]) -> Vec<&CatalogCopy> {
    let mut days = BTreeSet::new();
    let older = copies.iter().skip(NEWEST);
    older.filter(|copy| !(days.insert(copy.at / DAY) && days.len() <= DAYS)).collect()
}

impl Copies {
    /// The copies in a directory, which need not exist yet.
    pub fn new(directory: PathBuf) -> Copies {
        Copies { directory }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// All copies, the newest first.
    ///
    /// # Errors
    /// When the directory cannot be read. One that is not there has none.
    pub fn list(&self) -> Result<Vec<CatalogCopy>, CatalogError> {
        let failed = || io_error(&self.directory);
        let entries = match fs::read_dir(&self.directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed())?,
        };
        let mut copies = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed())?;
            let Some(number) = entry.file_name().to_str().and_then(number) else { continue };
            let meta = entry.metadata().map_err(failed())?;
            if meta.is_file() {
                let at = u64::try_from(meta.mtime()).unwrap_or(0);
                copies.push(CatalogCopy { path: entry.path(), number, at });
            }
        }
        copies.sort_by_key(|copy| std::cmp::Reverse(copy.number));
        Ok(copies)
    }

    /// All copies with what each is like, the newest first.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn inspected(&self) -> Result<Vec<Inspected>, CatalogError> {
        let copies = self.list()?.into_iter();
        Ok(copies
            .map(|copy| {
                let found = look(&copy.path);
                (copy, found)
            })
            .collect())
    }

    /// The newest copy that is good.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn newest_good(&self) -> Result<Option<(CatalogCopy, Inspection)>, CatalogError> {
        let mut copies = self.list()?.into_iter();
        Ok(copies.find_map(|copy| look(&copy.path).ok().map(|found| (copy, found))))
    }

    /// Makes a copy of `catalog`, which may be in use, checks it, and removes those that are not
    /// kept any more. Nothing is removed when the copy is not good.
    ///
    /// # Errors
    /// When the catalog is damaged, or the copy cannot be written or read back.
    pub fn take(&self, catalog: &Path) -> Result<CatalogCopy, CatalogError> {
        let failed = || io_error(&self.directory);
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed()(e)),
            _ => {}
        }
        let unfinished = self.directory.join(".unfinished");
        match fs::remove_file(&unfinished) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed()(e)),
            _ => {}
        }
        let number = self.list()?.first().map_or(1, |newest| newest.number.saturating_add(1));
        let path = self.directory.join(format!("catalog-{number:06}.sqlite"));
        let made = copy_into(catalog, &unfinished).and_then(|()| {
            File::open(&unfinished).and_then(|file| file.sync_all()).map_err(failed())?;
            look(&unfinished).map(drop)
        });
        if let Err(e) = made {
            // What is left of it is removed before the next one.
            let _ = fs::remove_file(&unfinished);
            return Err(e);
        }
        fs::rename(&unfinished, &path).map_err(failed())?;
        File::open(&self.directory).and_then(|dir| dir.sync_all()).map_err(failed())?;
        let copies = self.list()?;
        for old in surplus(&copies) {
            fs::remove_file(&old.path).map_err(io_error(&old.path))?;
        }
        copies
            .into_iter()
            .find(|copy| copy.number == number)
            .ok_or_else(|| CatalogError::File { path, source: io::ErrorKind::NotFound.into() })
    }
}

/// A copy always holds something.
fn look(path: &Path) -> Result<Inspection, CatalogError> {
    let nothing = || CatalogError::Damaged { path: path.to_owned(), what: "it is empty".into() };
    inspect(path, Which::Copy)?.ok_or_else(nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Catalog, Contents, SqliteCatalog};
    use headgate_model::VmRecord;
    use std::io::{Seek, SeekFrom, Write};

    fn copy(number: u64, at: u64) -> CatalogCopy {
        CatalogCopy { path: format!("/{number}").into(), number, at }
    }

    fn vm(name: &str) -> VmRecord {
        VmRecord::unset(name.parse().unwrap())
    }

    struct Bench {
        dir: tempfile::TempDir,
        catalog: SqliteCatalog,
        copies: Copies,
    }

    impl Bench {
        fn new() -> Bench {
            let dir = tempfile::tempdir().unwrap();
            let catalog = SqliteCatalog::open(&dir.path().join("catalog.sqlite")).unwrap();
            let copies = Copies::new(dir.path().join("copies"));
            Bench { dir, catalog, copies }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("catalog.sqlite")
        }
    }

    #[test]
    fn the_newest_are_kept_and_one_of_each_day_before() {
        // A copy an hour, for twenty days; the newest is first.
        let copies: Vec<_> = (0..480).rev().map(|n| copy(n, n * 3600)).collect();
        let surplus = surplus(&copies);
        let kept: Vec<u64> =
            copies.iter().filter(|c| !surplus.contains(c)).map(|c| c.number).collect();
        let newest: Vec<u64> = (472..480).rev().collect();
        assert_eq!(kept[..NEWEST], newest);
        let days = [471, 455, 431, 407, 383, 359, 335];
        assert_eq!(kept[NEWEST..], days);
        // A clock that stands still, or goes back, keeps no more.
        let still: Vec<_> = (0..100).rev().map(|n| copy(n, 7)).collect();
        assert_eq!(still.len() - super::surplus(&still).len(), NEWEST + 1);
    }

    #[test]
    fn a_copy_holds_what_the_catalog_held_and_changes_nothing_in_it() {
        let mut bench = Bench::new();
        bench.catalog.put_vm(&vm("one")).unwrap();
        let first = bench.copies.take(&bench.path()).unwrap();
        bench.catalog.put_vm(&vm("two")).unwrap();
        let second = bench.copies.take(&bench.path()).unwrap();
        assert_eq!((first.number, second.number), (1, 2));
        let held = |copy: &CatalogCopy| look(&copy.path).unwrap().contents;
        assert_eq!(held(&first), Contents { vms: vec![vm("one")], ..Contents::default() });
        assert_eq!(held(&second), bench.catalog.load().unwrap());
        for _ in 0..20 {
            bench.copies.take(&bench.path()).unwrap();
        }
        assert!(bench.copies.list().unwrap().len() <= NEWEST + 1);
    }

    #[test]
    fn a_damaged_catalog_makes_no_copy_and_displaces_none() {
        let mut bench = Bench::new();
        for n in 0..200 {
            bench.catalog.put_vm(&vm(&format!("vm{n}"))).unwrap();
        }
        for _ in 0..NEWEST {
            bench.copies.take(&bench.path()).unwrap();
        }
        let before = bench.copies.list().unwrap();
        let path = bench.path();
        drop(bench.catalog);
        let length = fs::metadata(&path).unwrap().len();
        let mut file = File::options().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(length / 2)).unwrap();
        file.write_all(&vec![0xa5; usize::try_from(length / 2).unwrap()]).unwrap();
        let damaged = fs::read(&path).unwrap();
        let error = bench.copies.take(&path).unwrap_err();
        assert!(matches!(error, CatalogError::Damaged { .. }), "{error}");
        assert_eq!(bench.copies.list().unwrap(), before);
        inspect(&path, Which::Live).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), damaged, "looking changes nothing");
        // Of the copies too, the damaged ones are passed over.
        fs::write(&before[0].path, "x").unwrap();
        fs::write(&before[1].path, "").unwrap();
        let (good, found) = bench.copies.newest_good().unwrap().unwrap();
        assert_eq!((good.number, found.contents.vms.len()), (before[2].number, 200));
    }

    #[test]
    fn what_is_only_in_the_log_of_a_killed_daemon_is_seen() {
        let mut bench = Bench::new();
        bench.catalog.put_vm(&vm("logged")).unwrap();
        let killed = tempfile::tempdir().unwrap();
        for end in ["", "-wal"] {
            let from = format!("{}{end}", bench.path().display());
            fs::copy(from, killed.path().join(format!("catalog.sqlite{end}"))).unwrap();
        }
        let path = killed.path().join("catalog.sqlite");
        let found = inspect(&path, Which::Live).unwrap().unwrap();
        assert_eq!(found.contents.vms, [vm("logged")]);
        let copies = Copies::new(killed.path().join("copies"));
        assert_eq!(look(&copies.take(&path).unwrap().path).unwrap().contents.vms, [vm("logged")]);
    }
}
