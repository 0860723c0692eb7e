mod accounts;
mod departed;
mod error;
mod measured;
mod moves;
mod read;
mod row;
mod schema;
#[cfg(test)]
mod tests;
mod write;

pub(super) use departed::{Departed, set_aside_name};
pub use error::SamplesError;
pub(super) use measured::KEPT;

use row::seconds;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use schema::VERSION;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::warn;

/// Samples in one SQLite file, apart from the catalog: it is written often, and may be lost.
pub(super) struct SamplesFile {
    connection: Connection,
    path: PathBuf,
    /// So often it was read or changed.
    #[cfg(any(test, feature = "testing"))]
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
        connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
            .map_err(store)?;
        // The daemon may have no other directory to write to.
        connection.pragma_update(None, "temp_store", "MEMORY").map_err(store)?;
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
            #[cfg(any(test, feature = "testing"))]
            visits: 0,
        })
    }

    fn change<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, SamplesError> {
        self.run(TransactionBehavior::Immediate, work)
    }

    /// Runs a query in a read transaction, which does not wait for the writer.
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
        #[cfg(any(test, feature = "testing"))]
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
    name.push(format!(".damaged-{}", seconds(crate::clock::wall_clock())));
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
