//! Errors of the catalog.

use headgate_model::Name;
use std::path::PathBuf;
use thiserror::Error;

/// What went wrong in the catalog.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// The name is taken.
    #[error("{kind} '{name}' exists already")]
    Exists {
        /// "datastore", "disk" or "export".
        kind: &'static str,
        /// The name.
        name: Name,
    },
    /// Nothing has this name.
    #[error("there is no {kind} '{name}'")]
    Missing {
        /// "datastore", "disk" or "export".
        kind: &'static str,
        /// The name.
        name: Name,
    },
    /// A datastore that still has disks.
    #[error("datastore '{name}' still has disks")]
    InUse {
        /// The datastore.
        name: Name,
    },
    /// Written by a later version.
    #[error(
        "{path} has catalog version {found}, this headgate knows versions up to {known}: start the newer headgate that wrote it"
    )]
    TooNew {
        /// The catalog file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The latest version known here.
        known: i64,
    },
    /// A value that no version writes.
    #[error(
        "the catalog holds {what}, which no version of headgate writes: restore the file from a backup"
    )]
    Corrupt {
        /// The value and where it is.
        what: String,
    },
    /// The store failed.
    #[error("the catalog {path} failed: {source}")]
    Store {
        /// The catalog file.
        path: PathBuf,
        /// The store's answer.
        source: rusqlite::Error,
    },
}

pub(crate) fn corrupt(table: &str, what: impl std::fmt::Display) -> CatalogError {
    CatalogError::Corrupt { what: format!("in {table}: {what}") }
}
