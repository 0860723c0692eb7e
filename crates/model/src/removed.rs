//! Disks that were removed and whose content is kept for a while: the trash.

use crate::{DiskRecord, Name};
use headgate_units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Which removed disk: several may have had one name. Printed as `NAME@SECONDS`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RemovedId {
    /// The name that the disk had.
    pub name: Name,
    /// When it was removed: seconds since 1970-01-01 UTC. No two disks of one name have the same.
    pub at: u64,
}

/// A text that names no removed disk.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{given}' names no removed disk: it is NAME@SECONDS, as 'headgate disk list --removed' prints it"
)]
pub struct RemovedIdError {
    given: String,
}

impl fmt::Display for RemovedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.at)
    }
}

impl FromStr for RemovedId {
    type Err = RemovedIdError;
    fn from_str(text: &str) -> Result<RemovedId, RemovedIdError> {
        let parts = text.rsplit_once('@');
        let id = parts.and_then(|(name, at)| {
            let digits = !at.is_empty() && at.bytes().all(|b| b.is_ascii_digit());
            Some(RemovedId { name: name.parse().ok()?, at: at.parse().ok().filter(|_| digits)? })
        });
        // One text for one disk: the text is also a file name.
        id.filter(|id| id.to_string() == text)
            .ok_or_else(|| RemovedIdError { given: text.chars().take(100).collect() })
    }
}

impl TryFrom<String> for RemovedId {
    type Error = RemovedIdError;
    fn try_from(text: String) -> Result<RemovedId, RemovedIdError> {
        text.parse()
    }
}

impl From<RemovedId> for String {
    fn from(id: RemovedId) -> String {
        id.to_string()
    }
}

/// How far the work on a removed disk is. Its image is at one of two places, so that a start can
/// tell, after a crash at any instant, what is left to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedStep {
    /// The image goes from its datastore to the trash; the disk's own row is still there.
    Moving,
    /// The image is in the trash.
    Kept,
    /// The image goes back; the disk has a row again.
    Returning,
    /// The image is being deleted.
    Purging,
}

impl RemovedStep {
    /// Every step.
    pub const ALL: [RemovedStep; 4] =
        [RemovedStep::Moving, RemovedStep::Kept, RemovedStep::Returning, RemovedStep::Purging];

    /// The word in the catalog.
    pub fn as_str(self) -> &'static str {
        match self {
            RemovedStep::Moving => "moving",
            RemovedStep::Kept => "kept",
            RemovedStep::Returning => "returning",
            RemovedStep::Purging => "purging",
        }
    }
}

/// A removed disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedRecord {
    /// Which.
    pub id: RemovedId,
    /// How far the work on it is.
    pub step: RemovedStep,
    /// What its image takes of the file system.
    pub allocated: Bytes,
    /// The disk as it was; while it is [`RemovedStep::Returning`], under the name that it gets.
    pub disk: DiskRecord,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_text_and_cannot_leave_its_directory() {
        let id: RemovedId = "a.b@12".parse().unwrap();
        assert_eq!((id.name.as_str(), id.at, id.to_string().as_str()), ("a.b", 12, "a.b@12"));
        for bad in
            ["a", "a@", "@1", "a@+1", "a@01", "../a@1", "a/b@1", "a@1@2", "a@99999999999999999999"]
        {
            bad.parse::<RemovedId>().unwrap_err();
        }
    }
}
