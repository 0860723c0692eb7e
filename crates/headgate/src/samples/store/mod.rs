mod moves;
mod read;
mod schema;
#[cfg(test)]
mod tests;
mod write;

pub(super) use moves::{Departed, set_aside_name};

use headgate_units::Nanos;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use schema::VERSION;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;
use tracing::warn;

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// Why samples cannot be kept or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SamplesError {
    /// Written by a later version.
    #[error("{} has samples of version {found}, this headgate knows version {VERSION}: start the newer headgate that wrote it, or move the file away", .path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// The store failed.
    #[error("the samples in {} failed: {source}", .path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// The store's answer.
        source: rusqlite::Error,
    },
    /// A damaged file cannot be put aside.
    #[error("the samples in {} are damaged, and cannot be put aside: {source}", .path.display())]
    Aside {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no thread to be had.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// Intervals of one length, one after the other.
#[derive(Serialize, Deserialize)]
struct Row<T> {
    /// When the last ended.
    ended: Nanos,
    period: Nanos,
    intervals: Vec<T>,
}

/// Samples in one SQLite file, apart from the catalog: it is written often, and may be lost.
pub(super) struct SamplesFile {
    connection: Connection,
    path: PathBuf,
    /// So often it was read or changed.
    #[cfg(test)]
    pub visits: u64,
}

impl SamplesFile {
    pub fn open(path: &Path) -> Result<SamplesFile, SamplesError> {
        match SamplesFile::try_open(path) {
            Err(SamplesError::Store { source, .. }) if is_damaged(&source) => {
                let aside = put_aside(path)
                    .map_err(|source| SamplesError::Aside { path: path.to_owned(), source })?;
                warn!(error = %source, kept = %aside.display(), "the file with samples was damaged: learning begins anew");
                SamplesFile::try_open(path)
            }
            other => other,
        }
    }

    fn try_open(path: &Path) -> Result<SamplesFile, SamplesError> {
        let store = |source| SamplesError::Store { path: path.to_owned(), source };
        let mut connection = Connection::open(path).map_err(store)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(store)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(store)?;
        // What is lost in a power cut is the last five minutes.
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(store)?;
        let make = |connection: &mut Connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let found: i64 = tx.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            if found < VERSION {
                schema::bring_up(&tx, found)?;
            }
            tx.commit()?;
            Ok(found)
        };
        let found = make(&mut connection).map_err(store)?;
        if found > VERSION {
            return Err(SamplesError::TooNew { path: path.to_owned(), found });
        }
        Ok(SamplesFile {
            connection,
            path: path.to_owned(),
            #[cfg(test)]
            visits: 0,
        })
    }

    fn change<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, SamplesError> {
        self.run(TransactionBehavior::Immediate, work)
    }

    /// Who reads does not wait for who writes.
    fn read<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, SamplesError> {
        self.run(TransactionBehavior::Deferred, work)
    }

    fn run<T>(
        &mut self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, SamplesError> {
        #[cfg(test)]
        {
            self.visits += 1;
        }
        let run = || {
            let tx = self.connection.transaction_with_behavior(behavior)?;
            let result = work(&tx)?;
            tx.commit()?;
            Ok(result)
        };
        run().map_err(|source| SamplesError::Store { path: self.path.clone(), source })
    }
}

fn is_damaged(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error, rusqlite::Error::SqliteFailure(e, _) if matches!(e.code, DatabaseCorrupt | NotADatabase))
}

fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".damaged-{}", seconds(super::wall_clock())));
    let aside = PathBuf::from(name);
    std::fs::rename(path, &aside)?;
    for end in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        match std::fs::remove_file(PathBuf::from(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(aside)
}

fn seconds(at: Nanos) -> i64 {
    (at.0 / SECOND).cast_signed()
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("samples are plain data")
}

/// What does not decode was not written by us, and counts as not there.
fn decode<T: DeserializeOwned>(blob: &[u8]) -> Option<T> {
    postcard::from_bytes(blob).ok()
}
