//! Why the data path did not do something.

use thiserror::Error;

/// Why the data path did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{error}")]
pub struct PlaneError {
    /// The error.
    pub error: String,
    /// What the user can do.
    pub hint: Option<String>,
}

impl PlaneError {
    /// An error without advice.
    pub fn new(error: impl std::fmt::Display) -> PlaneError {
        PlaneError { error: error.to_string(), hint: None }
    }
}

/// What the user can do when the kernel does not let the daemon open a file.
pub const DENIED: &str = "the daemon's user must be allowed to open it; where Landlock confines the \
    daemon ('headgate serve --landlock'), start the daemon again for what was mounted or made since \
    it started";
