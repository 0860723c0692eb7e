//! Puts a new catalog in the place of the old one, so that a crash at any instant leaves the old
//! one, the new one, or none: without one no daemon starts, and the command can be given again.

use super::{MendError, failed};
use crate::StateDir;
use crate::crash;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where a catalog is written that is not in its place yet.
pub(super) fn unfinished(dir: &StateDir) -> PathBuf {
    dir.root().join("catalog.sqlite.new")
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

fn remove(path: &Path) -> Result<(), MendError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Makes a place for a new catalog, free of what an earlier try left, and writes it.
pub(super) fn write_new(
    new: &Path,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), MendError> {
    for end in ["", "-wal", "-shm"] {
        remove(&with_end(new, end))?;
    }
    write(new).map_err(failed("write", new))
}

/// The first free name for what is kept aside. A log whose catalog is aside already goes there.
fn aside(catalog: &Path) -> PathBuf {
    let taken = |path: &Path| fs::symlink_metadata(path).is_ok();
    let name = |n: u32| with_end(catalog, &format!(".aside-{n}"));
    let first_free = (1..u32::MAX).find(|&n| !taken(&name(n))).unwrap_or(u32::MAX);
    let before = name(first_free.saturating_sub(1));
    if !taken(catalog) && taken(&before) && !taken(&with_end(&before, "-wal")) {
        return before;
    }
    name(first_free)
}

/// Moves a file, if it is there, durably.
fn move_to(from: &Path, to: &Path) -> Result<bool, MendError> {
    match fs::rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        moved => moved.map_err(failed("move", from))?,
    }
    if let Some(parent) = from.parent() {
        File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed("sync", parent))?;
    }
    Ok(true)
}

/// Gives a file to the owner of the state directory, and to nobody else: the command may be given
/// by root, and the daemon is another user.
fn hand_over(dir: &StateDir, file: &Path) -> Result<(), MendError> {
    dir.give_to_owner(file).map_err(failed("give away", file))?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))
        .map_err(failed("set the mode of", file))
}

/// Replaces the catalog by the one at `new`. Returns where the former one is.
///
/// The catalog goes first and its log second: a log without its catalog is thrown away when a
/// catalog is made, and a catalog without its log would be an older one.
pub(super) fn install(dir: &StateDir, new: &Path) -> Result<Option<PathBuf>, MendError> {
    let catalog = dir.catalog();
    hand_over(dir, new)?;
    File::open(new).and_then(|file| file.sync_all()).map_err(failed("sync", new))?;
    crash::point("new catalog written");
    let aside = aside(&catalog);
    let was_there = move_to(&catalog, &aside)?;
    crash::point("old catalog aside");
    let log_was_there = move_to(&with_end(&catalog, "-wal"), &with_end(&aside, "-wal"))?;
    crash::point("old log aside");
    remove(&with_end(&catalog, "-shm"))?;
    crash::point("old index of the log removed");
    move_to(new, &catalog)?;
    crash::point("new catalog in place");
    Ok((was_there || log_was_there).then_some(aside))
}
