//! qcow2 files, by the library that knows the format.

use crate::content::{Content, Run, Sink, Source};
use crate::error::{ImageError, of_library};
use crate::format::Format;
use crate::signature::QCOW2;
use headgate_units::Bytes;
use imago::file::File as ImageFile;
use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{
    DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, FormatDriverBuilder, Mapping, Storage,
    StorageOpenOptions,
};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The most images in a chain of backing files. Each takes memory of its own.
const MOST_LAYERS: usize = 32;
/// Length of the header of version 2 in bytes; version 3 continues it.
const HEADER: usize = 72;
/// The most entries of a first table: 32 MiB, what QEMU takes.
const MOST_L1: u32 = 4 << 20;
/// The bits of an entry of the first table that say where the second one is.
const L1_OFFSET: u64 = 0x00ff_ffff_ffff_fe00;

/// Whether an image may name another file that it takes content from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// It may not: whoever made the image would choose what is read here.
    Refused,
    /// It may name an image as its backing file. An external data file is refused all the same.
    Allowed,
}

/// A qcow2 image with the images behind it.
pub(crate) struct Qcow2Source {
    image: FormatAccess<ImageFile>,
    path: PathBuf,
}

impl Qcow2Source {
    /// `file` was opened under `path`, for reading.
    pub(crate) fn new(file: File, path: &Path, backing: Backing) -> Result<Self, ImageError> {
        let mut seen = Vec::new();
        let image = open(file, path, Format::Qcow2, backing, &mut seen)?;
        Ok(Qcow2Source { image, path: path.to_owned() })
    }

    /// What the range holds, where the files hold what they say.
    fn mapped(&self, offset: u64, len: u64) -> io::Result<Vec<Run>> {
        let (mut runs, mut at) = (Vec::new(), offset);
        // A bound on the answer, not on the range: each cluster may be a run of its own.
        while at < offset + len && runs.len() < 1024 {
            let (mapping, run) = self.image.get_mapping(at, offset + len - at)?;
            let content = match mapping {
                Mapping::Zero { .. } => Content::Zeroes,
                Mapping::Raw { storage, offset, .. } => {
                    let (end, size) = (offset.saturating_add(run), storage.size()?);
                    if end > size {
                        return Err(io::Error::other(format!(
                            "it is truncated: data at byte {offset}, and the file ends at {size}"
                        )));
                    }
                    Content::Data
                }
                _ => Content::Data,
            };
            if run == 0 {
                return Err(io::Error::other(format!("byte {at} is nowhere")));
            }
            runs.push(Run { len: run, content });
            at += run;
        }
        Ok(runs)
    }
}

impl Source for Qcow2Source {
    fn size(&self) -> Bytes {
        Bytes(self.image.size())
    }

    fn status(&self, offset: u64, len: u64) -> Result<Vec<Run>, ImageError> {
        guarded(&self.path, || self.mapped(offset, len))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        guarded(&self.path, || {
            // Beyond the end of a file the library finds zeroes.
            let mut at = 0;
            while at < into.len() as u64 {
                let runs = self.mapped(offset + at, into.len() as u64 - at)?;
                at += runs.iter().map(|run| run.len).sum::<u64>();
            }
            self.image.read(into, offset)
        })
    }
}

/// Calls the library. What it did not expect of an image ends in a panic there, and in an error
/// here.
fn guarded<T>(path: &Path, call: impl FnOnce() -> io::Result<T>) -> Result<T, ImageError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|e| of_library(path, Format::Qcow2, &e)),
        Err(_) => Err(ImageError::unfit(path, "reading it as qcow2 failed in an unforeseen way")),
    }
}

/// Opens an image and those behind it. `seen` are the files that have been opened.
fn open(
    file: File,
    path: &Path,
    format: Format,
    backing: Backing,
    seen: &mut Vec<(u64, u64)>,
) -> Result<FormatAccess<ImageFile>, ImageError> {
    let meta = file.metadata().map_err(|e| ImageError::file("read", path, e))?;
    let which = (meta.dev(), meta.ino());
    if seen.contains(&which) {
        return Err(ImageError::unfit(path, "it is its own backing file, at one or more removes"));
    }
    if seen.len() >= MOST_LAYERS {
        let why = format!("more than {MOST_LAYERS} images are chained as backing files");
        return Err(ImageError::foreign(path, why));
    }
    seen.push(which);
    if format == Format::Qcow2 {
        check_header(&file, path)?;
    }
    let options = StorageOpenOptions::new().filename(path);
    let storage = guarded(path, || ImageFile::from_open_file(file, options))?;
    if format == Format::Raw {
        return guarded(path, || Ok(FormatAccess::new(Raw::open_image(storage, false)?)));
    }
    // This opens nothing else.
    let mut image = guarded(path, || Qcow2::<ImageFile>::open_image(storage, false))?;
    if image.requires_external_data_file() {
        return Err(ImageError::foreign(path, "its data is in another file"));
    }
    image.set_data_file(None);
    let names = image.implicit_backing_file().cloned();
    let behind = match (names, backing) {
        (None, _) => None,
        (Some(names), Backing::Refused) => {
            return Err(ImageError::NamesAnother { file: path.to_owned(), names });
        }
        (Some(names), Backing::Allowed) => {
            let said = image.implicit_backing_format().cloned();
            Some(open_behind(path, &names, said.as_deref(), seen)?)
        }
    };
    image.set_backing(behind);
    Ok(FormatAccess::new(image))
}

/// Opens the backing file of an image.
fn open_behind(
    path: &Path,
    names: &str,
    format: Option<&str>,
    seen: &mut Vec<(u64, u64)>,
) -> Result<FormatAccess<ImageFile>, ImageError> {
    let Some(format) = format else {
        // What a guest wrote into a raw image would decide which files are read.
        return Err(ImageError::Unfit {
            file: path.to_owned(),
            why: format!("it does not say in which format its backing file '{names}' is"),
            hint: Some("say it: qemu-img rebase -u -b BACKING -F FORMAT IMAGE".into()),
        });
    };
    let known = Format::named(format).ok_or_else(|| {
        ImageError::foreign(path, format!("its backing file '{names}' has format '{format}'"))
    })?;
    let behind = path.parent().unwrap_or(Path::new("")).join(names);
    let file = crate::source::open_file(&behind)?;
    open(file, &behind, known, Backing::Allowed, seen)
}

/// Checks what the library does not: that content is not encrypted, and that the tables lie within
/// the file. It would read what is not there as zeroes.
fn check_header(file: &File, path: &Path) -> Result<(), ImageError> {
    let mut header = [0; HEADER];
    let told = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => {
            ImageError::unfit(path, "it is truncated within its header")
        }
        _ => ImageError::file("read", path, e),
    };
    file.read_exact_at(&mut header, 0).map_err(told)?;
    let be32 = |at: usize| headgate_nbd::wire::be32(&header, at).unwrap_or(0);
    let be64 = |at: usize| headgate_nbd::wire::be64(&header, at).unwrap_or(0);
    if header[..4] != QCOW2 {
        return Err(ImageError::unfit(path, "it is no qcow2 image"));
    }
    let (cluster_bits, size, crypt, l1_entries, l1) =
        (be32(20), be64(24), be32(32), be32(36), be64(40));
    if crypt != 0 {
        return Err(ImageError::foreign(path, "it is encrypted"));
    }
    let unfit = |why: String| Err(ImageError::unfit(path, why));
    if !(9..=21).contains(&cluster_bits) {
        return unfit(format!("its clusters have 2^{cluster_bits} bytes"));
    }
    // A second table has one cluster of entries of 8 bytes.
    let covered = 1_u128 << (2 * cluster_bits - 3);
    if l1_entries > MOST_L1 || u128::from(l1_entries) * covered < u128::from(size) {
        return unfit(format!("its size of {size} bytes does not fit its table of {l1_entries}"));
    }
    let length = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0));
    let length = length.map_err(|e| ImageError::file("read", path, e.into()))?;
    let cluster = 1_u64 << cluster_bits;
    let ends = |from: u64, len: u64| from.checked_add(len).is_none_or(|end| end > length);
    if ends(l1, u64::from(l1_entries) * 8) {
        return unfit(format!("it is truncated: its table at byte {l1} lies behind its end"));
    }
    let (mut buffer, mut left, mut at) = (vec![0; 64 << 10], u64::from(l1_entries) * 8, l1);
    while left > 0 {
        let part = &mut buffer[..left.min(64 << 10) as usize];
        file.read_exact_at(part, at).map_err(told)?;
        for entry in part.as_chunks::<8>().0 {
            let second = u64::from_be_bytes(*entry) & L1_OFFSET;
            if second != 0 && ends(second, cluster) {
                let why = "it is truncated: its table at byte";
                return unfit(format!("{why} {second} lies behind its end"));
            }
        }
        (left, at) = (left - part.len() as u64, at + part.len() as u64);
    }
    Ok(())
}

/// A new qcow2 file.
pub(crate) struct Qcow2Sink {
    image: FormatAccess<ImageFile>,
    path: PathBuf,
}

impl Qcow2Sink {
    /// `file` is empty, and open for reading and writing.
    pub(crate) fn new(file: File, path: PathBuf, size: u64) -> Result<Qcow2Sink, ImageError> {
        let options = StorageOpenOptions::new().filename(&path).write(true);
        let made = ImageFile::from_open_file(file, options).and_then(|storage| {
            let new = Qcow2::<ImageFile>::create_builder(storage).size(size);
            new.create_open(DenyImplicitOpenGate::default(), |storage| {
                Ok(Qcow2::builder(storage).backing(None).write(true))
            })
        });
        let image = made.map_err(|e| ImageError::file("write", &path, e))?;
        Ok(Qcow2Sink { image: FormatAccess::new(image), path })
    }
}

impl Sink for Qcow2Sink {
    fn size(&self) -> Bytes {
        Bytes(self.image.size())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
        let written = self.image.write(bytes, offset);
        written.map_err(|e| ImageError::file("write", &self.path, e))
    }

    /// It has no cluster.
    fn zero(&self, _offset: u64, _len: u64) -> Result<(), ImageError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), ImageError> {
        let flushed = self.image.flush().and_then(|()| self.image.sync());
        flushed.map_err(|e| ImageError::file("write", &self.path, e))
    }
}
