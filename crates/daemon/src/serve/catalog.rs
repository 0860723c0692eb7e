//! The catalog of a daemon: looked at before it is used, and copied after it was changed.

use headgate_catalog::{Copies, SqliteCatalog};
use headgate_cluster::Identity;
use headgate_control::leases::{Next, Ticker};
use headgate_control::mend::{MendError, check_before_start};
use headgate_control::records::{CatalogChanges, Recorded};
use headgate_control::{Roots, StateDir};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// How often one looks whether the changes of the catalog have paused.
const LOOK: Duration = Duration::from_secs(1);

/// After a copy that failed one waits so long.
const PAUSE: Duration = Duration::from_secs(60);

/// Opens the catalog, when it is whole or never was.
pub(super) fn open(
    dir: &StateDir,
    identity: &Identity,
    roots: &Roots,
) -> Result<Recorded<SqliteCatalog>, MendError> {
    check_before_start(dir)?;
    let catalog = SqliteCatalog::open(&dir.catalog())?;
    Ok(Recorded::new(catalog, dir.clone(), identity.host.to_string(), roots.clone()))
}

/// Makes copies of the catalog.
pub(super) struct Copier {
    catalog: PathBuf,
    copies: Copies,
    changes: CatalogChanges,
    /// The count of changes that the newest copy has.
    copied: Option<u64>,
    /// The count at the last look.
    seen: u64,
    /// No copy before this.
    not_before: Option<Instant>,
}

/// The thread that makes copies.
pub(super) struct Copying {
    thread: Ticker,
    copier: Arc<Mutex<Copier>>,
}

impl Copier {
    pub(super) fn new(dir: &StateDir, changes: CatalogChanges) -> Copier {
        Copier {
            catalog: dir.catalog(),
            copies: Copies::new(dir.catalog_copies()),
            copied: None,
            seen: changes.count(),
            not_before: None,
            changes,
        }
    }

    pub(super) fn start(self) -> io::Result<Copying> {
        let bell = self.changes.bell().clone();
        let copier = Arc::new(Mutex::new(self));
        let shared = copier.clone();
        let thread = Ticker::start_with("headgate-copies", &bell, LOOK, move || {
            shared.lock().unwrap_or_else(PoisonError::into_inner).look()
        })?;
        Ok(Copying { thread, copier })
    }

    /// Makes a copy once the changes have paused. Answers when to look again.
    fn look(&mut self) -> Next {
        let count = self.changes.count();
        let paused = std::mem::replace(&mut self.seen, count) == count;
        if paused && self.not_before.is_none_or(|not_before| Instant::now() >= not_before) {
            self.copy();
        }
        match self.copied == Some(count) {
            true => Next::WhenRung,
            false => Next::After(LOOK),
        }
    }

    fn copy(&mut self) {
        let count = self.changes.count();
        if self.copied == Some(count) {
            return;
        }
        let has_one = self.copied.is_none() && self.is_copied_already();
        let made = if has_one { Ok(()) } else { self.copies.take(&self.catalog).map(drop) };
        match made {
            Ok(()) => {
                if self.not_before.take().is_some() {
                    info!("the catalog is copied again");
                }
                self.copied = Some(count);
            }
            Err(e) => {
                let again = Instant::now() + PAUSE;
                if self.not_before.replace(again).is_none() {
                    error!(error = %e, directory = %self.copies.directory().display(),
                        "the catalog cannot be copied: an older copy is the newest");
                }
            }
        }
    }

    /// Whether the newest copy, made before this daemon began, has everything.
    fn is_copied_already(&self) -> bool {
        use headgate_catalog::{Which, inspect};
        let newest = self.copies.list().ok().and_then(|copies| copies.into_iter().next());
        let Some(newest) = newest else { return false };
        let copy = inspect(&newest.path, Which::Copy).ok().flatten();
        copy.is_some() && copy == inspect(&self.catalog, Which::Live).ok().flatten()
    }
}

impl Copying {
    /// Ends the thread, with a copy of what was changed last, and nothing left in the catalog's
    /// log: the daemon ends without closing the catalog.
    pub(super) fn finish(self) {
        drop(self.thread);
        let mut copier = self.copier.lock().unwrap_or_else(PoisonError::into_inner);
        copier.copy();
        if let Err(e) = SqliteCatalog::checkpoint(&copier.catalog) {
            warn!(error = %e, "what was changed last stays in the log beside the catalog");
        }
    }
}
