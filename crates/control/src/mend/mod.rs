//! Mends a catalog that is damaged or gone, while no daemon runs: from a copy of it, or from the
//! records that are beside the images.

mod gather;
mod install;
mod plan;

pub use gather::Claim;

use crate::{StateDir, StateDirError, StateDirLock, records};
use gather::Gathered;
use headgate_catalog::{
    Catalog, CatalogCopy, CatalogError, Contents, Copies, Inspection, PolicyChange, SqliteCatalog,
    Which, inspect,
};
use headgate_cluster::HostId;
use headgate_model::{DiskRecord, MoveRecord, MoveStep, Name};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a catalog cannot be used or mended.
#[derive(Debug, Error)]
pub enum MendError {
    /// The state directory cannot be used; a daemon may be running.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// There is no state directory.
    #[error("there is no state directory {}", .0.display())]
    NoStateDir(PathBuf),
    /// There is no catalog, and there was one.
    #[error("the catalog {} is missing, and the state directory is not new: {}", .path.display(), .traces.join(", "))]
    Missing {
        /// Where it should be.
        path: PathBuf,
        /// What is there of its time.
        traces: Vec<String>,
        /// The newest good copy, if there is one.
        copy: Option<CatalogCopy>,
    },
    /// The catalog cannot be read.
    #[error("{source}")]
    Unusable {
        /// What is wrong.
        source: Box<CatalogError>,
        /// The newest good copy, if there is one.
        copy: Option<CatalogCopy>,
    },
    /// There is a catalog, and it is good.
    #[error("the catalog {} is good, with {disks} disk(s): nothing needs to be mended", .path.display())]
    Good {
        /// The catalog.
        path: PathBuf,
        /// How many disks it has.
        disks: usize,
    },
    /// None of the copies can be used.
    #[error("{}", no_copy(.directory, .reasons))]
    NoCopy {
        /// Where copies are.
        directory: PathBuf,
        /// What is wrong with each.
        reasons: Vec<String>,
    },
    /// A copy that was named cannot be used.
    #[error("{} cannot be restored: {reason}", .path.display())]
    BadCopy {
        /// The copy.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A catalog operation failed.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The file system failed.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl MendError {
    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        let rebuild = "'headgate catalog rebuild' makes a new one from what images and datastores \
                       say of themselves";
        let ways = |copy: &Option<CatalogCopy>| match copy {
            Some(copy) => format!(
                "'headgate catalog restore' takes the newest good copy, {}; {rebuild}",
                copy.path.display()
            ),
            None => format!("there is no good copy of it; {rebuild}"),
        };
        match self {
            MendError::StateDir(StateDirError::Locked { .. }) => {
                Some("stop the daemon first: a catalog is mended while nobody uses it".into())
            }
            MendError::NoStateDir(_) => Some("give the daemon's directory to --state-dir".into()),
            MendError::Missing { copy, .. } => Some(format!(
                "{}; 'headgate catalog create' makes an empty one and leaves the images alone",
                ways(copy)
            )),
            MendError::Unusable { source, .. }
                if matches!(**source, CatalogError::TooNew { .. } | CatalogError::Store { .. }) =>
            {
                None
            }
            MendError::Unusable { copy, .. } => Some(ways(copy)),
            MendError::Good { .. } => {
                Some("give --replace to put another in its place; it is kept aside".into())
            }
            MendError::NoCopy { .. } | MendError::BadCopy { .. } => Some(rebuild.into()),
            _ => None,
        }
    }
}

fn no_copy(directory: &Path, reasons: &[String]) -> String {
    let directory = directory.display();
    match reasons {
        [] => format!("there is no copy in {directory}"),
        reasons => format!("no copy in {directory} can be used: {}", reasons.join("; ")),
    }
}

pub(crate) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> MendError {
    let path = path.to_owned();
    move |source| MendError::Io { doing, path, source }
}

/// Whether a good catalog may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// No: it is an error.
    Never,
    /// Yes: it is kept aside.
    Good,
}

/// A state directory that no daemon uses, and none can use meanwhile.
pub struct Mender {
    dir: StateDir,
    copies: Copies,
    _lock: StateDirLock,
}

/// What the catalog is like, with its copies and records.
#[derive(Debug)]
pub struct Checkup {
    /// The catalog's path.
    pub path: PathBuf,
    /// The catalog: what it holds, or what is wrong; `None` when there is none.
    pub catalog: Option<Result<Inspection, CatalogError>>,
    /// Its copies, the newest first.
    pub copies: Vec<(CatalogCopy, Result<Inspection, CatalogError>)>,
    /// Differences between the catalog, or else the newest good copy, and the records.
    pub differences: Vec<String>,
}

/// What was put in the place of a catalog.
#[derive(Debug, PartialEq, Eq)]
pub struct Mended {
    /// The copy that it was made from, if it was one.
    pub from: Option<CatalogCopy>,
    /// Where the former catalog is, if there was one.
    pub aside: Option<PathBuf>,
    /// What it holds.
    pub contents: Contents,
    /// What the operator should look at.
    pub notes: Vec<String>,
}

/// What a directory without a catalog holds of an earlier daemon.
fn traces(dir: &StateDir, copies: &Copies) -> Vec<String> {
    let mut traces = Vec::new();
    for directory in gather::own_directories(dir) {
        let images = gather::image_names(&directory).unwrap_or_default().len();
        if images > 0 {
            traces.push(format!("{} has {images} image(s)", directory.display()));
        }
    }
    // A record of nothing but the first datastore says nothing of disks.
    if let Ok(Some(record)) = records::read_record(&dir.records()) {
        let Contents { datastores, disks, .. } = record.contents;
        let others =
            datastores.iter().filter(|one| one.name.as_str() != crate::disks::DEFAULT_DATASTORE);
        let count = others.count();
        if count + disks.len() > 0 {
            traces.push(format!(
                "{} names {count} datastore(s) and {} disk(s)",
                dir.records().display(),
                disks.len()
            ));
        }
    }
    let copies = copies.list().map_or(0, |copies| copies.len());
    if copies > 0 {
        traces.push(format!("there are {copies} copies of the catalog"));
    }
    traces
}

/// Checks, before a daemon uses the catalog, that it is whole, or that there never was one. The
/// caller holds the state directory's lock.
///
/// # Errors
/// [`MendError::Missing`] or [`MendError::Unusable`], with the command that mends it.
pub fn check_before_start(dir: &StateDir) -> Result<(), MendError> {
    let copies = Copies::new(dir.catalog_copies());
    let newest = || copies.newest_good().ok().flatten().map(|(copy, _)| copy);
    match inspect(&dir.catalog(), Which::Live) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => match traces(dir, &copies) {
            none if none.is_empty() => Ok(()),
            traces => Err(MendError::Missing { path: dir.catalog(), traces, copy: newest() }),
        },
        Err(e) => Err(MendError::Unusable { source: Box::new(e), copy: newest() }),
    }
}

impl Mender {
    /// Locks the state directory.
    ///
    /// # Errors
    /// When a daemon has it, or it is not there.
    pub fn new(dir: StateDir) -> Result<Mender, MendError> {
        if !dir.root().is_dir() {
            return Err(MendError::NoStateDir(dir.root().to_owned()));
        }
        let lock = dir.lock()?;
        let copies = Copies::new(dir.catalog_copies());
        Ok(Mender { dir, copies, _lock: lock })
    }

    fn host(&self) -> Option<String> {
        HostId::of_state_dir(self.dir.root()).map(|host| host.to_string())
    }

    fn gather(&self, base: Contents, further: &[PathBuf], claim: Claim) -> Gathered {
        gather::gather(&self.dir, self.host().as_deref(), base, further, claim)
    }

    /// Looks at the catalog, its copies and the records, and changes nothing.
    ///
    /// # Errors
    /// When the directory of copies cannot be read.
    pub fn check(&self) -> Result<Checkup, MendError> {
        let path = self.dir.catalog();
        let catalog = inspect(&path, Which::Live).transpose();
        let copies = self.copies.inspected()?;
        let best = match &catalog {
            Some(Ok(found)) => Some(found),
            _ => copies.iter().find_map(|(_, found)| found.as_ref().ok()),
        };
        let differences = best.map_or_else(Vec::new, |best| self.differences(&best.contents));
        Ok(Checkup { path, catalog, copies, differences })
    }

    /// What the records say that `contents` does not, and the other way round.
    fn differences(&self, contents: &Contents) -> Vec<String> {
        let base = self.base(Some(contents.clone())).0;
        let gathered = self.gather(base, &[], Claim::Own);
        plan::differences(contents, &plan::plan(gathered).contents)
    }

    /// Fails for a good catalog unless it may be replaced.
    fn may_replace(&self, replace: Replace) -> Result<(), MendError> {
        let path = self.dir.catalog();
        match inspect(&path, Which::Live) {
            Ok(Some(found)) if replace == Replace::Never => {
                Err(MendError::Good { path, disks: found.contents.disks.len() })
            }
            // Not damaged: a later headgate can read it.
            Err(e @ CatalogError::TooNew { .. }) if replace == Replace::Never => {
                Err(MendError::Unusable { source: Box::new(e), copy: None })
            }
            _ => Ok(()),
        }
    }

    /// Puts a copy in the place of the catalog: the one at `path`, or the newest good one.
    ///
    /// # Errors
    /// When no copy is good, or the catalog is good and may not be replaced. Nothing is changed
    /// then.
    pub fn restore(&self, path: Option<&Path>, replace: Replace) -> Result<Mended, MendError> {
        self.may_replace(replace)?;
        let (copy, found) = match path {
            Some(path) => self.named(path)?,
            None => self.newest()?,
        };
        let new = install::unfinished(&self.dir);
        install::write_new(&new, |new| fs::copy(&copy.path, new).map(drop))?;
        let (contents, switched) = self.switched_since(found.contents);
        let mut notes = Vec::new();
        if !switched.is_empty() {
            let mut catalog = SqliteCatalog::open(&new)?;
            for (row, disk) in &switched {
                catalog.put_move(row, Some(disk))?;
                let MoveRecord { disk, target, .. } = row;
                notes.push(format!(
                    "disk '{disk}' had moved to datastore '{target}' since that copy was made"
                ));
            }
            catalog.into_one_file()?;
        }
        let aside = install::install(&self.dir, &new)?;
        notes.extend(self.differences(&contents));
        Ok(Mended { from: Some(copy), aside, contents, notes })
    }

    /// Disks that were on their way when a copy was made, and whose records say that they arrived:
    /// what they left may be there still, and is older.
    fn switched_since(&self, mut copy: Contents) -> (Contents, Vec<(MoveRecord, DiskRecord)>) {
        let base = self.base(Some(copy.clone())).0;
        let now = plan::plan(self.gather(base, &[], Claim::Own)).contents;
        let mut switched = Vec::new();
        for row in &mut copy.moves {
            let arrived =
                |disk: &&DiskRecord| disk.name == row.disk && disk.datastore == row.target;
            let known = copy.disks.iter_mut().find(|disk| disk.name == row.disk);
            if let (Some(known), Some(arrived)) = (known, now.disks.iter().find(arrived))
                && row.step != MoveStep::Switched
            {
                *known = arrived.clone();
                row.step = MoveStep::Switched;
                switched.push((row.clone(), arrived.clone()));
            }
        }
        (copy, switched)
    }

    fn named(&self, path: &Path) -> Result<(CatalogCopy, Inspection), MendError> {
        // A bare file name is one of ours.
        let ours = self.copies.directory().join(path);
        let path = if path.is_absolute() || !ours.exists() { path } else { &ours };
        let bad = |reason: String| MendError::BadCopy { path: path.to_owned(), reason };
        match inspect(path, Which::Copy) {
            Ok(Some(found)) => {
                let copy = CatalogCopy { path: path.to_owned(), number: 0, at: 0 };
                Ok((copy, found))
            }
            Ok(None) => Err(bad("it does not exist, or is empty".into())),
            Err(e) => Err(bad(e.to_string())),
        }
    }

    fn newest(&self) -> Result<(CatalogCopy, Inspection), MendError> {
        let mut reasons = Vec::new();
        for (copy, found) in self.copies.inspected()? {
            match found {
                Ok(found) => return Ok((copy, found)),
                Err(e) => reasons.push(e.to_string()),
            }
        }
        let directory = self.copies.directory().to_owned();
        Err(MendError::NoCopy { directory, reasons })
    }

    /// What belongs to no image: from the record in the state directory, or else from `copy`.
    fn base(&self, copy: Option<Contents>) -> (Contents, Vec<String>) {
        let mut notes = Vec::new();
        let path = self.dir.records();
        let record = match records::read_record(&path) {
            Ok(Some(record)) => Some(record.contents),
            Ok(None) => None,
            Err(e) => {
                notes.push(format!("{} is passed over: {e}", path.display()));
                None
            }
        };
        let copy = copy.unwrap_or_default();
        let base = match record {
            // Of disks with images, the copy knows what their records may have lost.
            Some(record) => {
                let named: Vec<Name> = record.disks.iter().map(|disk| disk.name.clone()).collect();
                let mut base = record;
                base.disks.extend(copy.disks.into_iter().filter(|d| !named.contains(&d.name)));
                base.exports.extend(copy.exports);
                base.removed = copy.removed;
                base.moves = copy.moves;
                base
            }
            None => copy,
        };
        (base, notes)
    }

    /// Makes a catalog from what the images and datastores say of themselves. `further`
    /// directories are looked into besides those that are known.
    ///
    /// # Errors
    /// When it cannot be written, or the catalog is good and may not be replaced. Nothing is
    /// changed then.
    pub fn rebuild(
        &self,
        further: &[PathBuf],
        claim: Claim,
        replace: Replace,
        keep: Keep,
    ) -> Result<Mended, MendError> {
        self.may_replace(replace)?;
        let copy = self.copies.newest_good()?;
        let (base, mut notes) = self.base(copy.map(|(_, found)| found.contents));
        let plan = plan::plan(self.gather(base, further, claim));
        notes.extend(plan.notes);
        let contents = plan.contents;
        if keep == Keep::Nothing {
            return Ok(Mended { from: None, aside: None, contents, notes });
        }
        let new = install::unfinished(&self.dir);
        install::write_new(&new, |_| Ok(()))?;
        fill(&new, &contents)?;
        match inspect(&new, Which::Copy)? {
            Some(found) if found.contents == contents => {}
            _ => {
                let what = "what was written is not what is read".to_owned();
                return Err(CatalogError::Damaged { path: new, what }.into());
            }
        }
        let aside = install::install(&self.dir, &new)?;
        Ok(Mended { from: None, aside, contents, notes })
    }

    /// Makes an empty catalog: the operator says that nothing is to be known.
    ///
    /// # Errors
    /// When there is one already.
    pub fn create(&self) -> Result<Mended, MendError> {
        self.may_replace(Replace::Never)?;
        let new = install::unfinished(&self.dir);
        install::write_new(&new, |_| Ok(()))?;
        fill(&new, &Contents::default())?;
        let aside = install::install(&self.dir, &new)?;
        Ok(Mended { from: None, aside, contents: Contents::default(), notes: Vec::new() })
    }
}

/// Whether a rebuilt catalog is kept, or only told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It takes the catalog's place.
    Catalog,
    /// Nothing is written.
    Nothing,
}

/// Writes contents into a new catalog, all of it in its one file.
fn fill(path: &Path, contents: &Contents) -> Result<(), CatalogError> {
    let mut catalog = SqliteCatalog::open(path)?;
    contents.datastores.iter().try_for_each(|one| catalog.insert_datastore(one))?;
    let (classes, tenants) = (contents.classes.clone(), contents.tenants.clone());
    catalog.change_policies(&PolicyChange { classes, tenants, ..PolicyChange::default() })?;
    contents.disks.iter().try_for_each(|one| catalog.insert_disk(one))?;
    contents.vms.iter().try_for_each(|one| catalog.put_vm(one))?;
    contents.exports.iter().try_for_each(|one| catalog.insert_export(one))?;
    catalog.put_rules(&contents.rules)?;
    for removed in &contents.removed {
        use headgate_catalog::{DiskChange, RemovedChange};
        catalog.change_removed(DiskChange::None, RemovedChange::Put(removed))?;
    }
    contents.moves.iter().try_for_each(|one| catalog.put_move(one, None))?;
    catalog.into_one_file()
}

#[cfg(test)]
mod tests;
