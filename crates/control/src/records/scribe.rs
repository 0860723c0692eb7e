//! Threads that write records, one for each directory: storage that hangs holds up its own alone.

use super::file::{Note, sweep};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// What is to be done, at most one thing for each path.
#[derive(Default)]
struct Todo {
    notes: BTreeMap<PathBuf, Note>,
    sweeps: BTreeSet<PathBuf>,
    at_work: bool,
    /// Somebody waited in vain, and nothing was done since.
    late: bool,
    ended: bool,
}

impl Todo {
    fn is_done(&self) -> bool {
        self.notes.is_empty() && self.sweeps.is_empty() && !self.at_work
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
}

/// One directory's writer.
pub(super) struct Scribe {
    shared: Arc<Shared>,
}

enum Work {
    Note(Note),
    Sweep(PathBuf),
}

impl Scribe {
    /// Its thread begins with the first note.
    pub(super) fn new(host: String) -> Scribe {
        let shared = Arc::new(Shared { todo: Mutex::default(), turned: Condvar::new() });
        let worker = shared.clone();
        let started = thread::Builder::new()
            .name("headgate-records".into())
            .spawn(move || work(&worker, &host));
        if let Err(e) = started {
            warn!(error = %e, "no records are written: no thread");
            shared.todo().ended = true;
        }
        Scribe { shared }
    }

    pub(super) fn add(&self, note: Note) {
        let mut todo = self.shared.todo();
        if !todo.ended {
            todo.notes.insert(note.path.clone(), note);
            self.shared.turned.notify_all();
        }
    }

    pub(super) fn sweep(&self, directory: PathBuf) {
        let mut todo = self.shared.todo();
        if !todo.ended {
            todo.sweeps.insert(directory);
            self.shared.turned.notify_all();
        }
    }

    /// Waits until everything is done, but not again for a writer that let somebody wait in vain.
    pub(super) fn wait(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut todo = self.shared.todo();
        while !todo.is_done() && !todo.late {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                todo.late = true;
                let path = todo.notes.keys().next().map(|path| path.display().to_string());
                warn!(
                    next = path,
                    "records wait for their storage: the catalog has the change, and they follow"
                );
                return;
            }
            let woken = self.shared.turned.wait_timeout(todo, left);
            todo = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        self.wait(super::PATIENCE);
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
            None => todo.sweeps.pop_first().map(Work::Sweep),
        };
        if work.is_some() {
            todo.at_work = true;
            return work;
        }
        if todo.ended {
            return None;
        }
        todo = shared.turned.wait(todo).unwrap_or_else(PoisonError::into_inner);
    }
}

fn work(shared: &Shared, host: &str) {
    let mut failing = false;
    while let Some(work) = next(shared) {
        let (path, done): (PathBuf, io::Result<()>) = match work {
            Work::Note(note) => (note.path.clone(), note.carry_out(host)),
            Work::Sweep(directory) => (directory.clone(), sweep(&directory, host)),
        };
        shared.todo().late = false;
        match done {
            Ok(()) if failing => {
                failing = false;
                info!(record = %path.display(), "records are written again");
            }
            // Said once: what is wrong with one record is wrong with all of this directory.
            Err(e) if !failing => {
                failing = true;
                warn!(record = %path.display(), error = %e,
                    "a record cannot be written: the catalog has the change, 'headgate catalog \
                     rebuild' would not");
            }
            _ => {}
        }
    }
}
