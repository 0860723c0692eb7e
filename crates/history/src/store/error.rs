//! Why samples cannot be kept or read.

use super::schema::VERSION;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

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
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}
