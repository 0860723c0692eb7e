//! The files of events: written by one thread, read by anybody up to where they are durable.

use headgate_events::{Event, Segment, Shelf, Stream, encode, lines};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The file system failed.
#[derive(Debug, Error)]
#[error("cannot {doing} {}: {source}", .path.display())]
pub struct EventLogError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

pub(super) fn error(doing: &'static str, path: &Path, source: io::Error) -> EventLogError {
    EventLogError { doing, path: path.to_owned(), source }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EventLogError {
    let path = path.to_owned();
    move |source| EventLogError { doing, path, source }
}

/// What an earlier daemon left.
pub(super) struct Left {
    pub(super) files: Files,
    /// The largest number that was given, as far as that is known.
    pub(super) newest: u64,
    /// Files whose last line was torn.
    pub(super) torn: Vec<PathBuf>,
}

/// The files, as their writer has them.
pub(super) struct Files {
    dir: PathBuf,
    pub(super) shelf: Shelf,
    open: BTreeMap<Stream, (Segment, File)>,
}

impl Files {
    /// Takes over what is there. A line that was torn by a crash gets an end, and stays.
    pub(super) fn open(dir: &Path, size: u64) -> Result<Left, EventLogError> {
        DirBuilder::new().mode(0o700).recursive(true).create(dir).map_err(failed("make", dir))?;
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).map_err(failed("read", dir))? {
            let entry = entry.map_err(failed("read", dir))?;
            let name = entry.file_name();
            if let Some(segment) = name.to_str().and_then(Segment::named) {
                let size = entry.metadata().map_err(failed("look at", &entry.path()))?.len();
                found.push((segment, size));
            }
        }
        found.sort();
        let (mut newest, mut torn) = (0, Vec::new());
        let mut shelf = Shelf::new(size);
        for (at, (segment, bytes)) in found.iter().enumerate() {
            let mut bytes = *bytes;
            newest = newest.max(segment.first.saturating_sub(1));
            let is_last = found.get(at + 1).is_none_or(|(next, _)| next.stream != segment.stream);
            if is_last {
                let path = dir.join(segment.to_string());
                let content = fs::read(&path).map_err(failed("read", &path))?;
                let ids = lines(&content).filter_map(Result::ok).map(|event| event.id);
                newest = newest.max(ids.max().unwrap_or(0));
                if content.last().is_some_and(|last| *last != b'\n') {
                    end_line(&path).map_err(failed("write", &path))?;
                    bytes += 1;
                    torn.push(path);
                }
            }
            shelf.found(*segment, bytes);
        }
        let files = Files { dir: dir.to_owned(), shelf, open: BTreeMap::new() };
        Ok(Left { files, newest, torn })
    }

    /// Writes an event. It is durable after [`sync`](Self::sync).
    pub(super) fn append(&mut self, stream: Stream, event: &Event) -> Result<(), EventLogError> {
        let line = encode(event).map_err(|e| failed("write", &self.dir)(e.into()))?;
        let bytes = line.len() as u64;
        let placed = self.shelf.place(stream, event.id, bytes);
        let written = self.write(stream, placed.segment, &placed.remove, &line);
        if written.is_err() {
            self.shelf.unplace(stream, bytes);
        }
        written
    }

    fn write(
        &mut self,
        stream: Stream,
        segment: Segment,
        remove: &[Segment],
        line: &[u8],
    ) -> Result<(), EventLogError> {
        for old in remove {
            let path = self.dir.join(old.to_string());
            match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path)(e));
                }
                _ => {}
            }
        }
        let path = self.dir.join(segment.to_string());
        if self.open.get(&stream).is_none_or(|(open, _)| *open != segment) {
            // What is left open is complete once it is synced.
            self.sync()?;
            let mut options = OpenOptions::new();
            let file = options.create(true).append(true).mode(0o600).open(&path);
            let file = file.map_err(failed("open", &path))?;
            File::open(&self.dir)
                .and_then(|dir| dir.sync_all())
                .map_err(failed("sync", &self.dir))?;
            self.open.insert(stream, (segment, file));
        }
        let Some((_, file)) = self.open.get_mut(&stream) else { return Ok(()) };
        let before = file.metadata().map_err(failed("look at", &path))?.len();
        file.write_all(line).map_err(|e| {
            // Half a line, as of a full file system. If that cannot be taken back either, it is
            // read as a torn one.
            let _ = file.set_len(before);
            failed("write", &path)(e)
        })
    }

    /// Makes durable what was written.
    pub(super) fn sync(&mut self) -> Result<(), EventLogError> {
        for (segment, file) in self.open.values() {
            file.sync_data().map_err(|e| failed("sync", &self.dir.join(segment.to_string()))(e))?;
        }
        Ok(())
    }
}

fn end_line(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(b"\n")?;
    file.sync_data()
}

/// The first so many bytes of a file; `None` once it is removed.
pub(super) fn read(
    dir: &Path,
    segment: Segment,
    bytes: u64,
) -> Result<Option<Vec<u8>>, EventLogError> {
    let path = dir.join(segment.to_string());
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed("open", &path)(e)),
    };
    let mut content = Vec::new();
    file.take(bytes).read_to_end(&mut content).map_err(failed("read", &path))?;
    Ok(Some(content))
}
