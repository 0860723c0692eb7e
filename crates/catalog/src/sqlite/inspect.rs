//! Looks at a catalog without changing it: whether it is whole, and what it holds.

use super::{Catalog, SqliteCatalog, schema};
use crate::contents::Contents;
use crate::error::CatalogError;
use rusqlite::backup::Backup;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The most findings of SQLite's own check that an error repeats.
const FINDINGS_MAX: usize = 3;

/// Pages that are copied at a time; a catalog has some hundred.
const PAGES: i32 = 4096;

/// What a catalog holds, read by the loader that the daemon has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The version of its schema.
    pub version: i64,
    /// Its contents, as this version of Headgate reads them.
    pub contents: Contents,
}

/// Which file is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The catalog itself, perhaps with changes in its write-ahead log.
    Live,
    /// A copy of it, one file.
    Copy,
}

fn open(path: &Path, which: Which) -> Result<Connection, rusqlite::Error> {
    let access = match which {
        Which::Live => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Which::Copy => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    // What may be damaged stays as it is: nothing of the log is carried into the file.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "query_only", "ON")?;
    Ok(connection)
}

/// What SQLite's own check has to say against the file.
fn findings(connection: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    let ask = |pragma: &str| -> Result<Vec<String>, rusqlite::Error> {
        connection.prepare(pragma)?.query_map([], |row| row.get(0))?.collect()
    };
    let mut found = ask("PRAGMA integrity_check(10)")?;
    found.retain(|line| line != "ok");
    let orphans = ask("PRAGMA foreign_key_check")?;
    found.extend(
        orphans.iter().map(|table| format!("a row of {table} refers to one that is not there")),
    );
    Ok(found)
}

/// Damage is told from a file that could not be read.
fn judged(path: &Path, error: rusqlite::Error) -> CatalogError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            CatalogError::Damaged { path: path.to_owned(), what: error.to_string() }
        }
        _ => CatalogError::Store { path: path.to_owned(), source: error },
    }
}

/// Reads a catalog without changing it: SQLite's own check, and then everything through the loader
/// of this version, an older schema brought up to date in memory. `None` when there is no file, or
/// one that nothing was ever written to.
///
/// # Errors
/// [`CatalogError::Damaged`] or [`CatalogError::Corrupt`] with what is wrong,
/// [`CatalogError::TooNew`], or that the file cannot be read.
pub fn inspect(path: &Path, which: Which) -> Result<Option<Inspection>, CatalogError> {
    match fs::metadata(path) {
        Ok(meta) if meta.len() == 0 => return Ok(None),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        // SQLite says it in its words.
        Err(_) => {}
    }
    let bad = |error| judged(path, error);
    let source = open(path, which).map_err(bad)?;
    let findings = findings(&source).map_err(bad)?;
    if !findings.is_empty() {
        let first: Vec<&str> = findings.iter().take(FINDINGS_MAX).map(String::as_str).collect();
        let more = if findings.len() > FINDINGS_MAX { "; and more" } else { "" };
        let what = format!("{}{more}", first.join("; ").replace('\n', " "));
        return Err(CatalogError::Damaged { path: path.to_owned(), what });
    }
    let version: i64 =
        source.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(bad)?;
    // SQLite takes a file of a few bytes for one that was never written to.
    let tables: i64 = source
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(bad)?;
    if version == 0 && tables == 0 {
        return Ok(None);
    }
    let mut copy = Connection::open_in_memory().map_err(bad)?;
    Backup::new(&source, &mut copy)
        .and_then(|backup| backup.run_to_completion(PAGES, Duration::ZERO, None))
        .map_err(bad)?;
    drop(source);
    let mut copy = SqliteCatalog { connection: copy, path: path.to_owned() };
    copy.migrate(schema::MIGRATIONS)?;
    let contents = copy.load().map_err(|error| match error {
        CatalogError::Corrupt { what } => CatalogError::Damaged { path: path.to_owned(), what },
        other => other,
    })?;
    Ok(Some(Inspection { version, contents }))
}

/// Writes everything that a catalog holds into one file, which must not exist yet, as one state
/// between two changes. It is not synchronised.
pub(crate) fn copy_into(catalog: &Path, file: &Path) -> Result<(), CatalogError> {
    let bad = |error| judged(catalog, error);
    let source = open(catalog, Which::Live).map_err(bad)?;
    // VACUUM INTO writes to the other file only.
    source.pragma_update(None, "query_only", "OFF").map_err(bad)?;
    let file = file.to_string_lossy();
    source.execute("VACUUM INTO ?1", [&*file]).map(drop).map_err(bad)
}
