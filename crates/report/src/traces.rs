//! Traces that scenarios replay, from files.

use headgate_devices::IoKind;
use headgate_sim::{TraceRecord, Traces};
use headgate_trace::{Format, Kind, Options, TraceError, TraceReader};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Addresses beyond are mistakes of the trace: 1 EiB.
const LARGEST: u64 = 1 << 60;

/// Traces in files, by paths relative to a directory. `FILE#DISK` is one disk of a trace.
#[derive(Clone, Debug)]
pub struct FileTraces {
    directory: PathBuf,
    /// Files in the place of traces, by what scenarios call these.
    own: BTreeMap<String, String>,
}

impl FileTraces {
    /// Traces beside the scenario in `file`.
    pub fn beside(file: &Path) -> FileTraces {
        FileTraces::within(file.parent().unwrap_or(Path::new("")))
    }

    /// Traces in a directory.
    pub fn within(directory: &Path) -> FileTraces {
        FileTraces { directory: directory.to_owned(), own: BTreeMap::new() }
    }

    /// The same with another file, or one disk of it, in the place of the trace that scenarios call
    /// `name`. Its path is not relative to the directory.
    pub fn with_file(mut self, name: &str, file: &str) -> FileTraces {
        self.own.insert(name.to_owned(), file.to_owned());
        self
    }

    /// Of some files, with or without the name of a disk behind, those that are not there. One that
    /// another takes the place of is not looked for.
    pub fn missing<'a>(&self, names: &'a [String]) -> Vec<&'a str> {
        let file = |name: &'a String| name.split_once('#').map_or(name.as_str(), |(file, _)| file);
        let looked_for = names.iter().filter(|name| !self.own.contains_key(*name));
        looked_for.map(file).filter(|file| !self.directory.join(file).is_file()).collect()
    }

    /// Whether a trace can be read, and has a request, as far as its first one says.
    ///
    /// # Errors
    /// What is wrong, and what was expected.
    pub fn check(&self, name: &str) -> Result<(), String> {
        match self.open(name)?.next() {
            Some(first) => first.map(drop),
            None => Err(format!("{} has no request", self.named(name))),
        }
    }

    /// What stands for a trace: a path in the directory, or another's.
    fn named<'a>(&'a self, name: &'a str) -> &'a str {
        self.own.get(name).map_or(name, String::as_str)
    }
}

impl Traces for FileTraces {
    fn open(
        &self,
        name: &str,
    ) -> Result<Box<dyn Iterator<Item = Result<TraceRecord, String>>>, String> {
        let (place, name) = match self.own.get(name) {
            Some(file) => (Path::new(""), file.as_str()),
            None => (self.directory.as_path(), name),
        };
        let whole = place.join(name);
        // A file may have such a sign in its name.
        let (path, disk) = match name.rsplit_once('#') {
            Some((file, disk)) if !whole.exists() => (place.join(file), Some(disk.to_owned())),
            _ => (whole, None),
        };
        let shown = path.display().to_string();
        let file = File::open(&path).map_err(|e| format!("cannot read the trace {shown}: {e}"))?;
        let reader =
            TraceReader::new(file, Options::default()).map_err(|e| unreadable(&shown, &e))?;
        Ok(Box::new(Requests { reader, shown, disk, found: false }))
    }
}

/// What was expected of a trace that cannot be begun.
fn unreadable(shown: &str, error: &TraceError) -> String {
    match error {
        TraceError::UnknownFormat { .. } | TraceError::Empty => {
            let known: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
            format!("{shown}: {error}; expected a trace as {}", known.join(", "))
        }
        TraceError::Packed { unpack, .. } => {
            let first = unpack.split(" | ").next().unwrap_or(unpack);
            format!("{shown}: {error}; unpack it first: {first} > TRACE")
        }
        _ => format!("{shown}: {error}"),
    }
}

/// The requests of a trace, or of one disk of it.
struct Requests {
    reader: TraceReader<File>,
    shown: String,
    disk: Option<String>,
    found: bool,
}

impl Iterator for Requests {
    type Item = Result<TraceRecord, String>;

    fn next(&mut self) -> Option<Result<TraceRecord, String>> {
        loop {
            let record = match self.reader.next() {
                Some(Ok(record)) => record,
                Some(Err(e)) => {
                    let advice =
                        "'headgate trace convert --lenient' leaves out what cannot be read";
                    return Some(Err(format!("{}: {e}; {advice}", self.shown)));
                }
                None => return self.nothing(),
            };
            let disk = self.reader.disks().name(record.disk);
            if self.disk.as_deref().is_some_and(|wanted| wanted != disk) {
                continue;
            }
            self.found = true;
            if record.offset.saturating_add(record.bytes.0) > LARGEST {
                return Some(Err(format!(
                    "{}: a request goes beyond 1 EiB: {}",
                    self.shown, record.offset
                )));
            }
            let kind = match record.kind {
                Kind::Read => IoKind::Read,
                Kind::Write => IoKind::Write,
                Kind::Flush => IoKind::Flush,
                Kind::Discard => IoKind::Discard,
            };
            return Some(Ok(TraceRecord {
                at: record.at,
                kind,
                offset: record.offset,
                bytes: record.bytes,
            }));
        }
    }
}

impl Requests {
    /// At the end: a disk that is not there is an error, once.
    fn nothing(&mut self) -> Option<Result<TraceRecord, String>> {
        let wanted = self.disk.take().filter(|_| !self.found)?;
        let known: Vec<&str> = self.reader.disks().names().take(20).collect();
        Some(Err(format!(
            "{} has no disk '{wanted}'; its disks are {}",
            self.shown,
            known.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::{Bytes, Nanos};

    const TRACE: &str =
        "at_ns,disk,op,offset,bytes,latency_ns\n5,a,R,0,4096,\n7,b,W,512,512,\n9,a,F,0,0,\n";

    fn read(name: &str) -> Vec<Result<TraceRecord, String>> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("t.csv"), TRACE).unwrap();
        std::fs::write(dir.path().join("bad.csv"), format!("{TRACE}nonsense\n")).unwrap();
        let traces = FileTraces::beside(&dir.path().join("scenario.toml"));
        match traces.open(name) {
            Ok(records) => records.collect(),
            Err(e) => vec![Err(e)],
        }
    }

    #[test]
    fn a_trace_is_read_whole_or_one_disk_of_it() {
        assert_eq!(read("t.csv").len(), 3);
        let b = TraceRecord { at: Nanos(2), kind: IoKind::Write, offset: 512, bytes: Bytes(512) };
        assert_eq!(read("t.csv#b"), [Ok(b)]);
        assert_eq!(read("t.csv#a").len(), 2);
    }

    #[test]
    fn another_file_takes_the_place_of_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own.csv").display().to_string();
        std::fs::write(&own, TRACE).unwrap();
        std::fs::write(dir.path().join("empty.csv"), TRACE.lines().next().unwrap()).unwrap();
        std::fs::write(dir.path().join("notes.txt"), "to do\n").unwrap();
        let within = || FileTraces::within(Path::new("/nonexistent"));
        let traces = within().with_file("web.csv", &format!("{own}#a"));
        assert_eq!(traces.check("web.csv"), Ok(()));
        assert_eq!(traces.open("web.csv").unwrap().count(), 2, "one disk of it");
        let names = ["web.csv", "mail.csv"].map(str::to_owned);
        assert_eq!(traces.missing(&names), ["mail.csv"]);
        let said = |file: &str| {
            let file = dir.path().join(file).display().to_string();
            within().with_file("web.csv", &file).check("web.csv").unwrap_err()
        };
        assert!(said("own.csv#c").contains("has no disk 'c'; its disks are a, b"));
        assert!(said("no.csv").contains("cannot read the trace"));
        assert!(said("empty.csv").ends_with("empty.csv has no request"), "{}", said("empty.csv"));
        let notes = said("notes.txt");
        assert!(notes.contains("begins with 'to do'; expected a trace as csv, "), "{notes}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let said = |name: &str| read(name).pop().and_then(Result::err).unwrap();
        assert!(said("t.csv#c").contains("has no disk 'c'; its disks are a, b"));
        assert!(said("no.csv").contains("cannot read the trace"));
        assert!(said("bad.csv").contains("line 5: the line is 'nonsense'"));
    }
}
