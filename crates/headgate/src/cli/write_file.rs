//! Files that a command writes.

use super::error::CliError;
use std::path::Path;

/// Writes a whole file.
pub(super) fn write_file(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    std::fs::write(file, bytes).map_err(|source| CliError::File {
        file: file.to_owned(),
        doing: "write",
        source,
    })
}
