//! Creates and removes images in a directory. A crash at any instant leaves a state that the next
//! start can complete or undo.

use headgate_model::Name;
use headgate_model::{DataPlane, PlaneError};
use headgate_model::{DiskRecord, DiskState};
use headgate_units::Bytes;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The image of a disk.
pub(super) fn image_path(directory: &Path, disk: &Name) -> PathBuf {
    directory.join(format!("{disk}.img"))
}

/// The image while it is being made. No disk's image has such a name: names start with a letter or
/// a digit.
fn unfinished_path(directory: &Path, disk: &Name) -> PathBuf {
    directory.join(format!(".{disk}.img.unfinished"))
}

/// Whether anything has this name, even a link to nothing.
fn is_taken(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn failed(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> PlaneError {
    move |e| PlaneError::new(format!("cannot {doing} {}: {e}", path.display()))
}

/// Removes a file and makes that durable; one that is not there is fine.
fn remove_file(path: &Path) -> Result<(), PlaneError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("remove", path)(e)),
        _ => {}
    }
    match path.parent().map(sync) {
        Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => {
            Err(failed("sync the directory of", path)(e))
        }
        _ => Ok(()),
    }
}

/// Makes the image of a disk: whole under its name, or not there.
pub(super) fn create(
    plane: &dyn DataPlane,
    directory: &Path,
    disk: &Name,
    size: Bytes,
) -> Result<PathBuf, PlaneError> {
    let (path, unfinished) = (image_path(directory, disk), unfinished_path(directory, disk));
    // Left by a creation that was cut and whose row is gone; the row of this one says the name is
    // ours.
    remove_file(&unfinished)?;
    plane.create_image(&unfinished, size)?;
    let publish = || {
        // Unlike a rename, a link never replaces a file that is there already.
        fs::hard_link(&unfinished, &path).or_else(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => Err(e),
            // File systems without hard links: the check and the rename are two steps.
            _ if is_taken(&path) => Err(io::ErrorKind::AlreadyExists.into()),
            _ => fs::rename(&unfinished, &path),
        })
    };
    match publish() {
        Ok(()) => {
            remove_file(&unfinished)?;
            Ok(path)
        }
        Err(e) => {
            remove_file(&unfinished)?;
            let mut error = failed("create", &path)(e);
            error.hint = Some(format!(
                "serve the disk that is there with 'headgate disk takeover {disk}', choose another name, or move that file away"
            ));
            Err(error)
        }
    }
}

/// Removes the image of a disk, and what an unfinished creation left.
pub(super) fn remove(directory: &Path, disk: &Name) -> Result<(), PlaneError> {
    remove_file(&unfinished_path(directory, disk))?;
    remove_file(&image_path(directory, disk))
}

/// The action that the start of the daemon takes for a disk's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// It is as it was.
    Keep,
    /// The image had been made: the disk becomes ready.
    Finish,
    /// The image had not been made: the row goes.
    Undo,
    /// The removal had begun: image and row go.
    Remove,
}

/// Decides by the row and by the image that is there.
pub(super) fn recovery(record: &DiskRecord, directory: &Path) -> Recovery {
    match record.state {
        DiskState::Ready => Recovery::Keep,
        DiskState::Removing => Recovery::Remove,
        DiskState::Creating => match fs::symlink_metadata(image_path(directory, &record.name)) {
            // A file of another size was there before, and the creation was about to fail.
            Ok(meta) if meta.is_file() && meta.len() == record.size.0 => Recovery::Finish,
            _ => Recovery::Undo,
        },
    }
}

/// Removes what an undone creation may have left; never the image itself.
pub(super) fn discard_unfinished(directory: &Path, disk: &Name) -> Result<(), PlaneError> {
    remove_file(&unfinished_path(directory, disk))
}

/// The disk that calibration measures on; no disk of an operator's has such a name.
pub fn scratch_path(directory: &Path) -> PathBuf {
    directory.join(".calibration.scratch")
}

/// Removes what a calibration that was cut left.
pub(super) fn discard_scratch(directory: &Path) -> Result<(), PlaneError> {
    let path = scratch_path(directory);
    if is_taken(&path) { remove_file(&path) } else { Ok(()) }
}

/// Free space of the file system that a directory is on.
///
/// # Errors
/// When the file system does not say.
pub fn free_space(directory: &Path) -> Result<Bytes, PlaneError> {
    Ok(space(directory)?.free)
}

/// The space of a file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    /// All of it.
    pub capacity: Bytes,
    /// Free space for users other than root.
    pub free: Bytes,
}

/// The space of the file system that a directory is on.
pub(super) fn space(directory: &Path) -> Result<Space, PlaneError> {
    let found = rustix::fs::statvfs(directory)
        .map_err(|error| failed("measure", directory)(error.into()))?;
    let bytes = |blocks: u64| Bytes(blocks.saturating_mul(found.f_frsize));
    Ok(Space { capacity: bytes(found.f_blocks), free: bytes(found.f_bavail) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_told_or_the_reason_why_not() {
        assert!(free_space(Path::new("/")).unwrap().0 > 0);
        assert!(
            free_space(Path::new("/nonexistent")).unwrap_err().to_string().contains("/nonexistent")
        );
    }
}
