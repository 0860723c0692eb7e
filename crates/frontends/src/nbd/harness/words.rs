//! How a test says what its disk does.

use headgate_engine::request::IoError;

/// Does the disk lend its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splicing {
    /// As an image in memory does.
    On,
    /// As any other.
    Off,
}

/// Is there space for a write to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Yes.
    Left,
    /// No.
    Full,
}

/// How the disk answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As asked.
    Served,
    /// With an error, and nothing done.
    Failed(IoError),
}
