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

/// Puts a whole file in the place of what is there: a reader finds the old one or the new one.
pub(super) fn replace_file(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    // A pipe or a terminal is written to.
    if file.metadata().is_ok_and(|meta| !meta.is_file()) {
        return write_file(file, bytes);
    }
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    write_file(Path::new(&new), bytes)?;
    std::fs::rename(&new, file).map_err(|source| CliError::File {
        file: file.to_owned(),
        doing: "write",
        source,
    })
}
