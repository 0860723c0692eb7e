use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Opens a file, and fails with `ELOOP` where any part of its path is a link: who can write to a
/// datastore's directory, or to one above it, shall not choose among files elsewhere.
///
/// It goes from directory to directory, each held open. `openat2` would do the same in one call,
/// but is not there under the `RestrictSUIDSGID=` of systemd.
pub(super) fn open_without_links(path: &Path, flags: OFlags) -> io::Result<File> {
    let mode = match flags.contains(OFlags::CREATE) {
        true => Mode::RUSR | Mode::WUSR,
        false => Mode::empty(),
    };
    let mut way: Vec<&Path> = path.components().map(|part| part.as_os_str().as_ref()).collect();
    let name = way.pop().ok_or(Errno::NOENT)?;
    let mut directory: Option<OwnedFd> = None;
    for part in way {
        let here = directory.as_ref().map_or(CWD, AsFd::as_fd);
        directory = Some(step(here, part)?);
    }
    let here = directory.as_ref().map_or(CWD, AsFd::as_fd);
    let file = openat(here, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)?;
    Ok(File::from(file))
}

/// One directory further.
fn step(here: impl AsFd, part: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(here.as_fd(), part, flags, Mode::empty()).map_err(|e| {
        // The kernel says of a link only that it is no directory.
        let is_link = e == Errno::NOTDIR
            && statat(here, part, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink);
        if is_link { Errno::LOOP } else { e }.into()
    })
}
