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
    /// A class that disks have, or one that disks shall have and that is not there.
    #[error("a class of disks is in use and goes, or is not there")]
    ClassInUse,
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
    /// The file is not what was written.
    #[error("the catalog {} is damaged: {what}", .path.display())]
    Damaged {
        /// The catalog file, or a copy of it.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file of the catalog could not be read or written.
    #[error("cannot use {}: {source}", .path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A value that no version writes.
    #[error("the catalog holds {what}, which no version of headgate writes")]
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
