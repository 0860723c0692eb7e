//! Threads that write records, one for each directory: storage that hangs holds up its own alone,
//! and nobody waits for them but the end of the daemon, for a while.

use super::file::{Note, Part, sweep};
use crate::{ControlError, Roots, StateDir};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// After what time a record is tried again that could not be written.
const RETRY: Duration = Duration::from_secs(5);

/// Who writes, and where that may be.
pub(super) struct Author {
    pub(super) host: String,
    pub(super) dir: StateDir,
    pub(super) roots: Roots,
}

impl Author {
    /// The directory as it may be used now: its path has no links, and is an allowed one.
    fn real(&self, directory: &Path) -> io::Result<PathBuf> {
        self.roots.real_directory(&self.dir, directory).map_err(|e| match e {
            ControlError::Io { source, .. } => source,
            refused => io::Error::new(io::ErrorKind::PermissionDenied, refused.to_string()),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sweep {
    No,
    Due,
}

/// What is to be done, at most one thing for each file.
struct Todo {
    notes: BTreeMap<(Part, String), Note>,
    /// What could not be written, and is tried again.
    failed: BTreeMap<(Part, String), Note>,
    sweep: Sweep,
    at_work: bool,
    ended: bool,
}

impl Todo {
    fn is_done(&self) -> bool {
        self.notes.is_empty() && self.sweep == Sweep::No && !self.at_work
    }
}

struct Shared {
    todo: Mutex<Todo>,
    /// There is something to do, or everything is done.
    turned: Condvar,
}

impl Shared {
    fn todo(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything is done; answers how many notes are left when there is no more time.
    fn wait(&self, until: Instant) -> usize {
        let mut todo = self.todo();
        while !todo.is_done() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return todo.notes.len() + usize::from(todo.at_work);
            }
            let woken = self.turned.wait_timeout(todo, left);
            todo = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        0
    }
}

/// One directory's writer.
pub(super) struct Scribe {
    shared: Arc<Shared>,
}

enum Work {
    Note(Note),
    Sweep,
}

impl Scribe {
    /// Starts its thread. `directory` is as the catalog has it.
    pub(super) fn new(author: Arc<Author>, directory: PathBuf) -> Scribe {
        let todo = Todo {
            notes: BTreeMap::new(),
            failed: BTreeMap::new(),
            sweep: Sweep::No,
            at_work: false,
            ended: false,
        };
        let shared = Arc::new(Shared { todo: Mutex::new(todo), turned: Condvar::new() });
        let worker = shared.clone();
        let started = thread::Builder::new()
            .name("headgate-records".into())
            .spawn(move || work(&worker, &author, &directory));
        if let Err(e) = started {
            warn!(error = %e, "no records are written: no thread");
            shared.todo().ended = true;
        }
        Scribe { shared }
    }

    /// Has a note written, in the place of an earlier one of the same file. Does not wait.
    pub(super) fn add(&self, note: Note) {
        let mut todo = self.shared.todo();
        if !todo.ended {
            todo.failed.remove(&note.key());
            todo.notes.insert(note.key(), note);
            self.shared.turned.notify_all();
        }
    }

    /// Has what a crash left removed. Does not wait.
    pub(super) fn sweep(&self) {
        let mut todo = self.shared.todo();
        if !todo.ended {
            todo.sweep = Sweep::Due;
            self.shared.turned.notify_all();
        }
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        self.shared.wait(Instant::now() + super::PATIENCE);
        // A thread that hangs ends with its storage, or with the process.
        self.shared.todo().ended = true;
        self.shared.turned.notify_all();
    }
}

fn next(shared: &Shared) -> Option<Work> {
    let mut todo = shared.todo();
    todo.at_work = false;
    if todo.is_done() {
        shared.turned.notify_all();
    }
    loop {
        let work = match todo.notes.pop_first() {
            Some((_, note)) => Some(Work::Note(note)),
            None if todo.sweep == Sweep::Due => {
                todo.sweep = Sweep::No;
                Some(Work::Sweep)
            }
            None => None,
        };
        if work.is_some() {
            todo.at_work = true;
            return work;
        }
        if todo.ended {
            return None;
        }
        if todo.failed.is_empty() {
            todo = shared.turned.wait(todo).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let woken = shared.turned.wait_timeout(todo, RETRY);
        let (woken, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
        todo = woken;
        if timeout.timed_out() {
            let mut again = std::mem::take(&mut todo.failed);
            // What was noted since is newer.
            again.append(&mut todo.notes);
            todo.notes = again;
        }
    }
}

/// Keeps a note that could not be written, unless there is a newer one.
fn keep(shared: &Shared, work: Work) {
    let mut todo = shared.todo();
    if let Work::Note(note) = work
        && !todo.notes.contains_key(&note.key())
    {
        todo.failed.insert(note.key(), note);
    }
}

fn work(shared: &Shared, author: &Author, directory: &Path) {
    let mut failing = false;
    while let Some(work) = next(shared) {
        let real = author.real(directory);
        let (what, done) = match (&work, real) {
            (Work::Note(note), Ok(real)) => (&*note.name, note.carry_out(&real, &author.host)),
            (Work::Sweep, Ok(real)) => ("", sweep(&real, &author.host)),
            // Nothing is there that says something old.
            (Work::Sweep, Err(e)) if e.kind() == io::ErrorKind::NotFound => ("", Ok(())),
            (Work::Note(Note { says: None, .. }), Err(e))
                if e.kind() == io::ErrorKind::NotFound =>
            {
                ("", Ok(()))
            }
            (Work::Note(note), Err(e)) => (&*note.name, Err(e)),
            (Work::Sweep, Err(e)) => ("", Err(e)),
        };
        let path = author.dir.resolve(directory).join(what);
        match done {
            Ok(()) if failing && shared.todo().failed.is_empty() => {
                failing = false;
                info!(record = %path.display(), "records are written again");
            }
            Ok(()) => {}
            Err(e) => {
                keep(shared, work);
                // Said once: what is wrong with one record is wrong with all of this directory.
                if !std::mem::replace(&mut failing, true) {
                    warn!(record = %path.display(), error = %e,
                        "a record cannot be written, and is tried again: the catalog has the \
                         change, 'headgate catalog rebuild' would not");
                }
            }
        }
    }
}

/// The writers of all directories, and of the state directory.
pub(super) struct Scribes {
    author: Arc<Author>,
    of: Mutex<BTreeMap<PathBuf, Scribe>>,
}

impl Scribes {
    pub(super) fn new(author: Author) -> Scribes {
        Scribes { author: Arc::new(author), of: Mutex::default() }
    }

    pub(super) fn author(&self) -> &Author {
        &self.author
    }

    /// Does something with the writer of a directory, as the catalog has it.
    pub(super) fn with(&self, directory: PathBuf, work: impl FnOnce(&Scribe)) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let author = &self.author;
        let scribe = of
            .entry(directory)
            .or_insert_with_key(|directory| Scribe::new(author.clone(), directory.clone()));
        work(scribe);
    }

    /// Waits until what is to be in one directory is written, or cannot be now.
    pub(super) fn wait_for(&self, directory: &Path, until: Instant) {
        let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = of.get(directory).map(|scribe| scribe.shared.clone());
        drop(of);
        if let Some(shared) = shared {
            shared.wait(until);
        }
    }

    /// Waits until everything is written, all directories together for `patience`; answers how
    /// many notes are not.
    pub(super) fn wait(&self, patience: Duration) -> usize {
        let until = Instant::now() + patience;
        let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<Arc<Shared>> = of.values().map(|scribe| scribe.shared.clone()).collect();
        // Others may add to them meanwhile.
        drop(of);
        all.iter().map(|shared| shared.wait(until)).sum()
    }
}
