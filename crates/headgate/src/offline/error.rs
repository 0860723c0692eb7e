//! Why a recorded pool cannot be used or written.

use headgate_placement::PoolError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// The file that says what is in the directory.
pub(crate) const POOL: &str = "pool.toml";

/// Why a pool on disk cannot be used or written.
#[derive(Debug, Error)]
pub(crate) enum RecordedError {
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: String },
    #[error("{}, line {line}: {error}", .path.display())]
    Line { path: PathBuf, line: usize, error: String },
    #[error("datastore '{datastore}': {error}")]
    Replay { datastore: String, error: String },
    #[error("the pool contradicts itself: {0}")]
    Pool(#[from] PoolError),
}
