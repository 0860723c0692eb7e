//! What is found of disks in the directories of datastores.

use crate::records::{datastore_records, image_directory, read_record, record_path};
use crate::{StateDir, images, start};
use headgate_catalog::Contents;
use headgate_cluster::lease::FileLease;
use headgate_model::{
    DatastoreRecord, DiskRecord, ExportRecord, MoveRecord, Name, RemovedId, RemovedRecord,
};
use headgate_units::Bytes;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Which images become disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Those that this host had last.
    Own,
    /// Those of other hosts too: of one that is gone with its state directory.
    All,
}

/// Everything that was found.
#[derive(Debug)]
pub(super) struct Gathered {
    /// What belongs to no image, and what was known of images.
    pub(super) base: Contents,
    pub(super) directories: Vec<Directory>,
    pub(super) claim: Claim,
    pub(super) notes: Vec<String>,
}

/// A directory with images.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) datastore: DatastoreRecord,
    pub(super) images: Vec<Image>,
    pub(super) removed: Vec<Removed>,
}

/// What an image was last known as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    This,
    /// Another host, by its name.
    Other(String),
}

/// An image.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) path: PathBuf,
    /// The name of its disk; `None` when it is none.
    pub(super) name: Option<Name>,
    pub(super) size: Bytes,
    /// Why its bytes are not a disk's.
    pub(super) unfit: Option<String>,
    pub(super) owner: Owner,
    /// What its record says; `Err` with what is wrong with that.
    pub(super) record: Result<Option<(DiskRecord, Vec<ExportRecord>)>, String>,
    /// Its record says that it is the target of this move.
    pub(super) mark: Option<MoveRecord>,
}

/// The image of a removed disk.
#[derive(Debug)]
pub(super) struct Removed {
    pub(super) path: PathBuf,
    pub(super) id: Option<RemovedId>,
    pub(super) size: Bytes,
    pub(super) allocated: Bytes,
    pub(super) record: Option<RemovedRecord>,
}

/// The directories of a state directory that images may be in.
pub(super) fn own_directories(dir: &StateDir) -> Vec<PathBuf> {
    let mut directories = vec![dir.root().join(crate::disks::DEFAULT_DATASTORE)];
    if let Ok(entries) = fs::read_dir(dir.root().join("emulated")) {
        directories.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    directories.sort();
    directories
}

/// The files that have the name of an image.
pub(super) fn image_names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if let Some(name) = name.to_str().filter(|n| n.ends_with(".img") && !n.starts_with('.')) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Why a file's bytes are not those of a disk.
fn unfit(path: &Path) -> Option<String> {
    images::check_raw(path).err().map(|e| match e.expected() {
        Some(expected) => format!("{e}; expected {expected}"),
        None => e.to_string(),
    })
}

fn image(directory: &Path, file: &str, host: Option<&str>, inside: Inside) -> Image {
    let path = directory.join(file);
    let size = fs::symlink_metadata(&path).map_or(0, |meta| meta.len());
    let read = read_record(&record_path(&path));
    let by = read.as_ref().ok().and_then(|record| Some(record.as_ref()?.host.clone()));
    let mut mark = None;
    let record = match read {
        Ok(Some(record)) => {
            let Contents { mut disks, exports, mut moves, .. } = record.contents;
            mark = moves.pop();
            Ok(disks.pop().map(|disk| (disk, exports)))
        }
        Ok(None) => Ok(None),
        Err(e) => Err(e.to_string()),
    };
    let holder = FileLease::holder(&FileLease::path_of(&path)).ok().flatten();
    let owner = match (inside, holder, by) {
        (Inside::StateDirectory, ..) | (_, None, None) => Owner::This,
        (_, Some(holder), _) if Some(holder.host.as_str()) == host => Owner::This,
        (_, Some(holder), _) => Owner::Other(holder.to_string()),
        (_, None, Some(by)) if Some(by.as_str()) == host => Owner::This,
        (_, None, Some(by)) => Owner::Other(format!("host {by}")),
    };
    Image {
        name: file.strip_suffix(".img").and_then(|name| name.parse().ok()),
        size: Bytes(size),
        unfit: unfit(&path),
        owner,
        record,
        mark,
        path,
    }
}

/// Whether a directory is the state directory's own, which no other host uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    StateDirectory,
    Elsewhere,
}

fn removed(directory: &Path) -> io::Result<Vec<Removed>> {
    let trash = images::removed_directory(directory);
    // A link would lead to images that are not this datastore's.
    if !fs::symlink_metadata(&trash).is_ok_and(|meta| meta.is_dir()) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for file in image_names(&trash)? {
        let path = trash.join(&file);
        let meta = fs::symlink_metadata(&path)?;
        let record = read_record(&record_path(&path)).ok().flatten();
        found.push(Removed {
            id: file.strip_suffix(".img").and_then(|id| id.parse().ok()),
            size: Bytes(meta.len()),
            allocated: Bytes(meta.blocks() * 512),
            record: record.and_then(|mut record| record.contents.removed.pop()),
            path,
        });
    }
    Ok(found)
}

fn directory(
    datastore: DatastoreRecord,
    path: &Path,
    host: Option<&str>,
    inside: Inside,
) -> io::Result<Directory> {
    let names = image_names(path)?;
    let images = names.iter().map(|file| image(path, file, host, inside)).collect();
    Ok(Directory { datastore, images, removed: removed(path)? })
}

/// The datastore that a directory says it is.
fn named_by(path: &Path, host: Option<&str>, claim: Claim) -> Result<DatastoreRecord, String> {
    let records = datastore_records(path).map_err(|e| format!("it cannot be read: {e}"))?;
    let mut read: Vec<_> =
        records.iter().filter_map(|file| read_record(file).ok().flatten()).collect();
    let own = read.iter().position(|record| Some(record.host.as_str()) == host);
    let chosen = match (own, claim, read.len()) {
        (Some(own), ..) => read.swap_remove(own),
        (None, Claim::All, 1) => read.remove(0),
        (None, Claim::All, 2..) => {
            return Err(
                "several hosts had it as a datastore: add it with 'headgate datastore add' \
                        and take its disks over one by one"
                    .into(),
            );
        }
        (None, Claim::Own, 1..) => {
            return Err("it is another host's datastore: if that host is gone, or was this one, \
                        give --claim"
                .into());
        }
        (None, _, 0) => {
            return Err(
                "nothing in it says which datastore it is: add it with 'headgate datastore \
                        add' and take its disks over one by one"
                    .into(),
            );
        }
    };
    let datastore = chosen.contents.datastores.into_iter().next();
    datastore.ok_or_else(|| "its record names no datastore".into())
}

/// Looks into the directories of all datastores, and into `further` ones.
pub(super) fn gather(
    dir: &StateDir,
    host: Option<&str>,
    mut base: Contents,
    further: &[PathBuf],
    claim: Claim,
) -> Gathered {
    let mut notes = Vec::new();
    let known = |base: &Contents, path: &Path| {
        base.datastores
            .iter()
            .any(|one| image_directory(dir, &one.backend).as_deref() == Some(path))
    };
    for path in own_directories(dir) {
        if known(&base, &path) || !path.is_dir() {
            continue;
        }
        let first = start::default_datastore().filter(|first| {
            image_directory(dir, &first.backend).as_deref() == Some(&path)
                && base.datastores.iter().all(|one| one.name != first.name)
        });
        match first {
            Some(first) => base.datastores.push(first),
            None => notes.push(format!(
                "{} is passed over: no record names the device model of its datastore",
                path.display()
            )),
        }
    }
    for path in further {
        if known(&base, path) {
            continue;
        }
        match named_by(path, host, claim) {
            Ok(datastore) if base.datastores.iter().any(|one| one.name == datastore.name) => {
                notes.push(format!(
                    "{} is passed over: there is a datastore '{}' already",
                    path.display(),
                    datastore.name
                ));
            }
            Ok(mut datastore) => {
                // It may have another path than when it was written.
                datastore.backend = headgate_model::Backend::Dir { path: path.clone() };
                base.datastores.push(datastore);
            }
            Err(why) => notes.push(format!("{} is passed over: {why}", path.display())),
        }
    }
    let mut directories = Vec::new();
    for datastore in &base.datastores {
        let Some(path) = image_directory(dir, &datastore.backend) else { continue };
        let inside =
            if path.starts_with(dir.root()) { Inside::StateDirectory } else { Inside::Elsewhere };
        match directory(datastore.clone(), &path, host, inside) {
            Ok(found) => directories.push(found),
            Err(e) => notes.push(format!(
                "the disks of datastore '{}' are not found: {}: {e}",
                datastore.name,
                path.display()
            )),
        }
    }
    Gathered { base, directories, claim, notes }
}
