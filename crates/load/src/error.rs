//! Errors of a load, and failures of a target during it.

use crate::journal::JournalError;
use crate::link::{LinkError, Op};
use crate::target::Target;
use headgate_units::Nanos;
use thiserror::Error;

/// Why there is no report.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The arguments make no sense.
    #[error("{0}")]
    Usage(String),
    /// A target cannot be loaded.
    #[error("{target}: {what}")]
    Target {
        /// Which.
        target: String,
        /// Why.
        what: String,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl LoadError {
    pub(crate) fn of(target: &Target, what: &str) -> LoadError {
        LoadError::Target { target: target.to_string(), what: what.to_owned() }
    }

    /// The exit code that belongs to it.
    pub fn exit_code(&self) -> u8 {
        match self {
            LoadError::Usage(_) => 2,
            LoadError::Target { .. } | LoadError::Journal(_) => 1,
        }
    }
}

/// The failure that ended the load of one target early.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the recording: {0}")]
    Recording(String),
    #[error("the server neither answers nor hangs up: {op:?} is outstanding for {waited}")]
    Hung { op: Op, waited: Nanos },
}
