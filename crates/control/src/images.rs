//! Creates and removes images in a directory. A crash at any instant leaves a state that the next
//! start can complete or undo.

use crate::ControlError;
use crate::block_device::Content;
use crate::signature::Container;
use headgate_model::Name;
use headgate_model::RemovedId;
use headgate_model::{DENIED, DataPlane, PlaneError};
use headgate_model::{DiskRecord, DiskState};
use headgate_units::Bytes;
use rustix::fs::{AtFlags, OFlags, RenameFlags};
use rustix::io::Errno;
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

/// Where the images of removed disks are kept. No disk's image is in there: names are names of
/// files, and start with a letter or a digit.
pub(super) fn removed_directory(directory: &Path) -> PathBuf {
    directory.join(".removed")
}

/// The image of a removed disk.
pub(super) fn removed_path(directory: &Path, id: &RemovedId) -> PathBuf {
    removed_directory(directory).join(format!("{id}.img"))
}

/// Whether anything has this name, even a link to nothing.
fn is_taken(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn failed(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> PlaneError {
    move |e| {
        let hint = (e.kind() == io::ErrorKind::PermissionDenied).then(|| DENIED.to_owned());
        PlaneError { error: format!("cannot {doing} {}: {e}", path.display()), hint }
    }
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

/// What has the name of an image.
enum Occupant {
    Link,
    /// A directory, a pipe, a device.
    Special,
    /// A file in another format.
    Container(&'static str, Container),
    Raw,
}

fn occupant(path: &Path) -> io::Result<Occupant> {
    use std::os::unix::fs::OpenOptionsExt;
    let kind = fs::symlink_metadata(path)?.file_type();
    if !kind.is_file() {
        return Ok(if kind.is_symlink() { Occupant::Link } else { Occupant::Special });
    }
    // It may be another one by now.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(Occupant::Special);
    }
    let content = Content::read(file)?;
    let container = content.ends().container();
    Ok(container.map_or(Occupant::Raw, |(what, how)| Occupant::Container(what, how)))
}

/// What to do with a file in another format.
fn conversion(path: &Path, container: Container) -> String {
    let path = path.display();
    match container {
        Container::QemuImg(format) => format!(
            "convert it with 'mv {path} {path}.{format} && \
             qemu-img convert -f {format} -O raw {path}.{format} {path}'"
        ),
        Container::Luks => {
            format!("open it with 'cryptsetup open {path} NAME' and copy its content to a new disk")
        }
    }
}

/// Refuses what is no raw image: its bytes would be those of the disk.
pub(super) fn check_raw(path: &Path) -> Result<(), ControlError> {
    let occupant = occupant(path).map_err(|source| ControlError::Io {
        doing: format!("look at {}", path.display()),
        source,
    })?;
    let name = path.display();
    match occupant {
        Occupant::Raw => Ok(()),
        Occupant::Link => Err(ControlError::invalid(
            format!("{name} is a symbolic link, and links are not followed"),
            "the image itself, or a datastore on the directory that it is in",
        )),
        Occupant::Special => {
            Err(ControlError::invalid(format!("{name} is not a file"), "a raw image"))
        }
        Occupant::Container(what, container) => Err(ControlError::invalid(
            format!("{name} is {what}"),
            format!(
                "a raw image: {}; --format raw serves these bytes as they are, as a guest's disk \
                 that looks like this needs it",
                conversion(path, container)
            ),
        )),
    }
}

/// What to do about a file that has the name of a new disk's image.
fn way_out(path: &Path, disk: &Name) -> String {
    let others = "choose another name, or move that file away";
    match occupant(path) {
        Ok(Occupant::Raw) => {
            format!("serve the disk that is there with 'headgate disk takeover {disk}', {others}")
        }
        Ok(Occupant::Container(what, container)) => format!(
            "that is {what}: {}, and then run 'headgate disk takeover {disk}'; or {others}",
            conversion(path, container)
        ),
        Ok(Occupant::Link) => format!("that is a symbolic link, which is not served: {others}"),
        Ok(Occupant::Special) | Err(_) => others.to_owned(),
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
            Err(in_the_way(&path, disk, e))
        }
    }
}

/// That no image of this name is there, which [`create`] would refuse.
pub(super) fn check_vacant(directory: &Path, disk: &Name) -> Result<(), PlaneError> {
    let path = image_path(directory, disk);
    match is_taken(&path) {
        true => Err(in_the_way(&path, disk, rustix::io::Errno::EXIST.into())),
        false => Ok(()),
    }
}

fn in_the_way(path: &Path, disk: &Name, e: io::Error) -> PlaneError {
    let mut error = failed("create", path)(e);
    error.hint = Some(way_out(path, disk));
    error
}

/// Removes the image of a disk, and what an unfinished creation left.
pub(super) fn remove(directory: &Path, disk: &Name) -> Result<(), PlaneError> {
    remove_file(&unfinished_path(directory, disk))?;
    remove_file(&image_path(directory, disk))
}

/// Removes an image in which nothing was ever written, if that is what is there.
pub(super) fn remove_empty(directory: &Path, disk: &Name) -> Result<(), PlaneError> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = image_path(directory, disk);
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match File::options().read(true).custom_flags(flags).open(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file.map_err(failed("look at", &path))?,
    };
    if !file.metadata().map_err(failed("look at", &path))?.is_file() {
        return Ok(());
    }
    match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)) {
        Err(Errno::NXIO) => remove_file(&path),
        Ok(_) => Ok(()),
        Err(e) => Err(failed("look for data in", &path)(e.into())),
    }
}

/// A directory, which is not reached through a link.
pub(crate) fn open_directory(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = (OFlags::NOFOLLOW | OFlags::DIRECTORY).bits().cast_signed();
    File::options().read(true).custom_flags(flags).open(path)
}

/// The images of removed disks, if there are any: a directory, and no link to one.
fn open_trash(directory: &Path) -> io::Result<Option<File>> {
    match open_directory(&removed_directory(directory)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        trash => trash.map(Some),
    }
}

/// What a file takes of the file system; `None` when there is none.
fn allocated(directory: &File, name: &str) -> io::Result<Option<Bytes>> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        found => Ok(Some(Bytes(u64::try_from(found?.st_blocks).unwrap_or(0) * 512))),
    }
}

/// The file name of a removed disk's image.
fn kept_name(id: &RemovedId) -> String {
    format!("{id}.img")
}

/// Renames a file from one directory to another, where nothing may have its name, durably.
fn move_between(from: (&File, &str), to: (&File, &str)) -> io::Result<()> {
    let renamed = rustix::fs::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE);
    match renamed {
        // File systems without it: the check and the rename are two steps.
        Err(Errno::INVAL | Errno::NOSYS) => {
            match rustix::fs::statat(to.0, to.1, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => rustix::fs::renameat(from.0, from.1, to.0, to.1)?,
                Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
                Err(e) => return Err(e.into()),
            }
        }
        renamed => renamed?,
    }
    // The new name first: between the two, a crash leaves the image twice and not nowhere.
    to.0.sync_all()?;
    from.0.sync_all()
}

/// Moves the image of a disk to those of removed disks. Returns what it takes of the file system,
/// or `None` when there is no image. Done already is done.
pub(super) fn keep(
    directory: &Path,
    disk: &Name,
    id: &RemovedId,
) -> Result<Option<Bytes>, PlaneError> {
    let (image, kept) = (format!("{disk}.img"), kept_name(id));
    let keep = || {
        use std::os::unix::fs::DirBuilderExt;
        let from = open_directory(directory)?;
        if let Some(trash) = open_trash(directory)?
            && let Some(allocated) = allocated(&trash, &kept)?
        {
            return Ok(Some(allocated));
        }
        if allocated(&from, &image)?.is_none() {
            return Ok(None);
        }
        let trash = removed_directory(directory);
        match fs::DirBuilder::new().mode(0o700).create(&trash) {
            Ok(()) => from.sync_all()?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
        let to = open_directory(&trash)?;
        move_between((&from, &image), (&to, &kept))?;
        allocated(&to, &kept)
    };
    keep().map_err(|e| not_kept(e, directory, disk))
}

/// The first that is kept in a directory takes a block of the file system.
fn not_kept(e: io::Error, directory: &Path, disk: &Name) -> PlaneError {
    let hint = (e.kind() == io::ErrorKind::StorageFull).then(|| {
        format!(
            "make room for a directory there, or delete the content at once, which needs none: \
             'headgate disk remove {disk} --purge'"
        )
    });
    let error = failed("keep", &image_path(directory, disk))(e);
    PlaneError { hint: hint.or(error.hint), ..error }
}

/// Moves the image of a removed disk back, under the name of a disk. Done already is done.
pub(super) fn bring_back(directory: &Path, id: &RemovedId, disk: &Name) -> Result<(), PlaneError> {
    let (image, kept) = (format!("{disk}.img"), kept_name(id));
    let bring = || {
        let to = open_directory(directory)?;
        let from = open_trash(directory)?;
        let there = from.as_ref().map(|from| allocated(from, &kept)).transpose()?.flatten();
        match (from, there) {
            (Some(from), Some(_)) => move_between((&from, &kept), (&to, &image)),
            _ if allocated(&to, &image)?.is_some() => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    };
    bring().map_err(|e| {
        let exists = e.kind() == io::ErrorKind::AlreadyExists;
        let mut error = failed("bring back", &removed_path(directory, id))(e);
        error.hint = exists.then(|| way_out(&image_path(directory, disk), disk));
        error
    })
}

/// Whether a removed disk's image is still among those.
pub(super) fn is_kept(directory: &Path, id: &RemovedId) -> Result<bool, PlaneError> {
    let look = || match open_trash(directory)? {
        Some(trash) => Ok(allocated(&trash, &kept_name(id))?.is_some()),
        None => Ok(false),
    };
    look().map_err(failed("look for", &removed_path(directory, id)))
}

/// Deletes the image of a removed disk.
pub(super) fn purge(directory: &Path, id: &RemovedId) -> Result<(), PlaneError> {
    let purge = || {
        let Some(trash) = open_trash(directory)? else { return Ok(()) };
        match rustix::fs::unlinkat(&trash, kept_name(id), AtFlags::empty()) {
            Err(Errno::NOENT) => {}
            done => done?,
        }
        trash.sync_all()
    };
    purge().map_err(failed("remove", &removed_path(directory, id)))
}

/// The action that the start of the daemon takes for a disk's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// It is as it was.
    Keep,
    /// The image had been made: the disk becomes ready.
    Finish,
    /// The image had not been made, or was not filled: what there is goes, and the row.
    Undo,
    /// The removal had begun: image and row go.
    Remove,
}

/// Decides by the row and by the image that is there.
pub(super) fn recovery(record: &DiskRecord, directory: &Path) -> Recovery {
    match record.state {
        DiskState::Ready | DiskState::Resizing => Recovery::Keep,
        DiskState::Removing => Recovery::Remove,
        DiskState::Creating => match fs::symlink_metadata(image_path(directory, &record.name)) {
            // A file of another size was there before, and the creation was about to fail.
            Ok(meta) if meta.is_file() && meta.len() == record.size.0 => Recovery::Finish,
            _ => Recovery::Undo,
        },
        DiskState::Copying => Recovery::Undo,
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
pub(crate) struct Space {
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
    fn who_has_no_room_to_keep_a_disk_is_told_how_to_do_without() {
        let disk = "db0".parse().unwrap();
        let told = |kind: io::ErrorKind| not_kept(kind.into(), Path::new("/x"), &disk).hint;
        let hint = told(io::ErrorKind::StorageFull).unwrap();
        assert!(hint.contains("headgate disk remove db0 --purge"), "{hint}");
        assert_eq!(told(io::ErrorKind::PermissionDenied).as_deref(), Some(DENIED));
        assert_eq!(told(io::ErrorKind::NotFound), None);
    }

    #[test]
    fn free_space_is_told_or_the_reason_why_not() {
        assert!(free_space(Path::new("/")).unwrap().0 > 0);
        assert!(
            free_space(Path::new("/nonexistent")).unwrap_err().to_string().contains("/nonexistent")
        );
    }
}
