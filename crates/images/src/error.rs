//! Why content cannot be copied.

use crate::Format;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why content cannot be read, written or copied.
#[derive(Debug, Error)]
pub enum ImageError {
    /// A file cannot be opened, read or written.
    #[error("cannot {doing} {}: {source}", file.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// Which file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file is no image that can be read.
    #[error("{}: {why}", file.display())]
    Unfit {
        /// Which file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do, if that is known.
        hint: Option<String>,
    },
    /// An image takes its content from another file, and the caller allows none.
    #[error("{} takes what it does not hold itself from the file '{names}'", file.display())]
    NamesAnother {
        /// The image.
        file: PathBuf,
        /// What it names.
        names: String,
    },
    /// A file is there already.
    #[error("{} exists", .0.display())]
    Exists(PathBuf),
    /// An NBD server cannot be reached, breaks off, or fails a request.
    #[error("{server}: {why}")]
    Nbd {
        /// What the operator calls it.
        server: String,
        /// What happened.
        why: String,
    },
    /// The source says something impossible about its own content.
    #[error("the source says that {0} bytes follow where there is more or nothing")]
    BadRun(u64),
    /// The content does not fit.
    #[error("{needed} bytes do not fit into {size}")]
    TooSmall {
        /// Bytes that the source has.
        needed: u64,
        /// Bytes that the target has.
        size: u64,
    },
    /// The caller ended the copy.
    #[error("interrupted")]
    Cancelled,
}

impl ImageError {
    pub(crate) fn file(doing: &'static str, file: &Path, source: io::Error) -> ImageError {
        ImageError::File { doing, file: file.to_owned(), source }
    }

    pub(crate) fn unfit(file: &Path, why: impl Into<String>) -> ImageError {
        ImageError::Unfit { file: file.to_owned(), why: why.into(), hint: None }
    }

    /// An image that only other programs can read.
    pub(crate) fn foreign(file: &Path, why: impl Into<String>) -> ImageError {
        let hint = "convert it: qemu-img convert -O qcow2 IMAGE COPY; then import the copy".into();
        ImageError::Unfit { file: file.to_owned(), why: why.into(), hint: Some(hint) }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ImageError::Unfit { hint, .. } => hint.clone(),
            ImageError::NamesAnother { .. } => Some(
                "if you trust the image, allow that it has other files read: --allow-backing"
                    .into(),
            ),
            ImageError::Exists(_) => Some("--overwrite replaces it".into()),
            _ => None,
        }
    }
}

/// What is wrong with an image of a format, by the library that reads it.
pub(crate) fn of_library(file: &Path, format: Format, error: &io::Error) -> ImageError {
    let why = format!("it cannot be read as {format}: {error}");
    let hint = "qemu-img check says more about a qcow2 image".into();
    ImageError::Unfit { file: file.to_owned(), why, hint: Some(hint) }
}
