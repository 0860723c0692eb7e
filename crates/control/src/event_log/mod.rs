//! The log of events, in files of the state directory. Who tells one never waits for storage: a
//! thread writes them, and what is told is bounded until it has.

mod files;
#[cfg(test)]
mod tests;

pub use files::EventLogError;

use crate::clock;
use files::{Files, Left};
use headgate_events::{
    Allowance, Entry, Event, Filter, Outcome, Pace, Shelf, Stream, Subject, Verdict, Who, lines,
};
use headgate_units::{Bytes, Nanos};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;

/// Events that wait for the storage, at most.
const WAITING_MAX: usize = 2_048;

/// The last events, which are kept in memory for those who follow.
const RECENT: usize = 512;

/// How often one looks who is owed a count.
const TICK: Duration = Duration::from_secs(60);

/// How long it is until storage that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the end waits for the last events.
const PATIENCE: Duration = Duration::from_secs(2);

/// The default of what all files may take.
pub const SIZE: Bytes = Bytes::from_mib(64);

/// Some events.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// In the order of their numbers.
    pub events: Vec<Event>,
    /// Whether there are no more of them now.
    pub is_last: bool,
    /// The number of the newest event, also of those that were not asked for.
    pub newest: u64,
    /// Lines among those read that were torn or changed.
    pub damaged: u64,
}

/// What the daemon's own events are told apart by.
type Noticed = (String, Option<Subject>);

struct State {
    /// Not written yet.
    waiting: VecDeque<(Stream, Event)>,
    /// The number that was given last.
    last: u64,
    /// All up to this number are durable.
    written: u64,
    /// Told while there was no room.
    lost: u64,
    refused: Allowance<Who>,
    noticed: Allowance<Noticed>,
    recent: VecDeque<Arc<Event>>,
    /// All with larger numbers are recent.
    recent_after: u64,
    shelf: Shelf,
    trouble: Option<String>,
    is_closing: bool,
}

impl State {
    fn give(&mut self, stream: Stream, entry: Entry) -> Option<u64> {
        if self.waiting.len() >= WAITING_MAX {
            self.lost += 1;
            return None;
        }
        self.last += 1;
        let at_ms = clock::nanos_since_1970() / 1_000_000;
        self.waiting.push_back((stream, Event { id: self.last, at_ms, entry }));
        Some(self.last)
    }

    fn tell_owed(&mut self, now: Nanos) {
        for (who, unwritten) in self.refused.owed(now) {
            let why = format!("{unwritten} more requests were refused or failed");
            let entry = Entry::new(who, "requests", Outcome::Refused).because(why);
            self.give(Stream::Refused, Entry { unwritten, ..entry });
        }
        for ((operation, object), unwritten) in self.noticed.owed(now) {
            let entry = Entry::noticed(operation).because(format!("{unwritten} times more"));
            self.give(Stream::Daemon, Entry { object, unwritten, ..entry });
        }
    }
}

struct Shared {
    dir: PathBuf,
    state: Mutex<State>,
    /// Something waits, or the end has come.
    told: Condvar,
    /// More is durable.
    kept: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log.
pub struct EventLog(Arc<Shared>);

impl EventLog {
    /// Takes over what earlier daemons left in a directory, which it makes, and begins to write.
    /// All files together take so many bytes at most.
    ///
    /// # Errors
    /// When the directory or its files cannot be read, or there is no thread.
    pub fn open(dir: &Path, size: Bytes) -> Result<EventLog, EventLogError> {
        let Left { files, newest, torn } = Files::open(dir, size.0)?;
        let state = State {
            waiting: VecDeque::new(),
            last: newest,
            written: newest,
            lost: 0,
            refused: Allowance::new(Pace::REFUSED),
            noticed: Allowance::new(Pace::NOTICED),
            recent: VecDeque::new(),
            recent_after: newest,
            shelf: files.shelf.clone(),
            trouble: None,
            is_closing: false,
        };
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            state: Mutex::new(state),
            told: Condvar::new(),
            kept: Condvar::new(),
        });
        let its = shared.clone();
        let thread = std::thread::Builder::new().name("headgate-events".into());
        thread
            .spawn(move || write(&its, files))
            .map_err(|e| files::error("start the writer of", dir, e))?;
        let log = EventLog(shared);
        for path in torn {
            warn!(path = %path.display(), "the last line of events was torn by a crash");
            let why = format!("the last line of {} was torn by a crash", path.display());
            log.tell(Stream::Daemon, Entry::noticed("events damaged").because(why));
        }
        Ok(log)
    }

    /// Tells an event, and never waits. Its number; `None`: it is counted only, or there is no
    /// room.
    pub fn tell(&self, stream: Stream, entry: Entry) -> Option<u64> {
        let (mut entry, now) = (entry.fit(), clock::now());
        let mut state = self.0.lock();
        let verdict = match stream {
            Stream::Changes | Stream::Tenants => Verdict::Write { unwritten: 0 },
            Stream::Refused => state.refused.ask(now, &entry.by.without_instance()),
            Stream::Daemon => {
                state.noticed.ask(now, &(entry.operation.clone(), entry.object.clone()))
            }
        };
        let Verdict::Write { unwritten } = verdict else { return None };
        entry.unwritten = unwritten;
        let id = state.give(stream, entry);
        self.0.told.notify_one();
        id
    }

    /// Waits until an event and all before it are durable. `false`: that took too long.
    pub fn settle(&self, id: u64, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.0.lock();
        while state.written < id {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.0.kept.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The number that was given last; its event may not be durable yet.
    pub fn last(&self) -> u64 {
        self.0.lock().last
    }

    /// The number of the newest event that is durable.
    pub fn newest(&self) -> u64 {
        self.0.lock().written
    }

    /// What keeps it from writing.
    pub fn trouble(&self) -> Option<String> {
        let state = self.0.lock();
        let why = state.trouble.as_ref()?;
        let (waiting, lost) = (state.waiting.len(), state.lost);
        Some(format!("events are not kept: {why}; {waiting} wait, {lost} are lost"))
    }

    /// The first so many of those that are durable.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(&self, filter: &Filter, limit: usize) -> Result<Page, EventLogError> {
        let (shelf, newest) = {
            let state = self.0.lock();
            if filter.after >= state.recent_after {
                let mut found = state.recent.iter().filter(|event| filter.takes(event));
                let events = found.by_ref().take(limit).map(|event| Event::clone(event)).collect();
                let (is_last, newest) = (found.next().is_none(), state.written);
                return Ok(Page { events, is_last, newest, damaged: 0 });
            }
            (state.shelf.clone(), state.written)
        };
        let (mut events, mut damaged) = (Vec::new(), 0);
        for stream in Stream::ALL {
            let all: Vec<_> = shelf.of(stream).collect();
            let mut found = 0;
            for (at, (segment, bytes)) in all.iter().enumerate() {
                let next = all.get(at + 1).map(|(next, _)| next.first);
                if next.is_some_and(|next| next <= filter.after.saturating_add(1)) {
                    continue;
                }
                // One more says that there are more.
                if found > limit {
                    break;
                }
                let Some(content) = files::read(&self.0.dir, *segment, *bytes)? else { continue };
                for line in lines(&content) {
                    match line {
                        // What is written meanwhile is no part of this answer.
                        Ok(event) if event.id > newest || !filter.takes(&event) => {}
                        Ok(event) => {
                            found += 1;
                            events.push(event);
                        }
                        Err(_) => damaged += 1,
                    }
                }
            }
        }
        events.sort_by_key(|event| event.id);
        // One whose storage failed at the last moment was written again.
        events.dedup_by_key(|event| event.id);
        let is_last = events.len() <= limit;
        events.truncate(limit);
        Ok(Page { events, is_last, newest, damaged })
    }

    /// Writes what was told, for a bounded time, and ends.
    pub fn close(&self) {
        let last = self.last();
        if !self.settle(last, PATIENCE) {
            warn!("the last events are not kept: their storage does not answer");
        }
        self.end();
    }

    fn end(&self) {
        self.0.lock().is_closing = true;
        self.0.told.notify_one();
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        // The thread is not waited for: its storage may hang.
        self.end();
    }
}

/// The thread that writes.
fn write(shared: &Shared, mut files: Files) {
    let mut ticked = Instant::now();
    loop {
        let mut state = shared.lock();
        tick(&mut state, &mut ticked);
        while state.waiting.is_empty() && !state.is_closing {
            let waited = shared.told.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            tick(&mut state, &mut ticked);
        }
        if state.waiting.is_empty() {
            return;
        }
        // They stay where they are: nobody else takes any out.
        let batch: Vec<(Stream, Event)> = state.waiting.iter().cloned().collect();
        drop(state);
        let (done, failed) = write_batch(&mut files, &batch);
        let mut state = shared.lock();
        for (_, event) in state.waiting.drain(..done).collect::<Vec<_>>() {
            state.written = event.id;
            state.recent.push_back(Arc::new(event));
        }
        while state.recent.len() > RECENT {
            if let Some(old) = state.recent.pop_front() {
                state.recent_after = old.id;
            }
        }
        state.shelf = files.shelf.clone();
        shared.kept.notify_all();
        match failed {
            None => tell_recovered(&mut state),
            Some(e) => {
                let why = e.to_string();
                if state.trouble.as_ref() != Some(&why) {
                    warn!(error = %e, "events are not kept: this is tried again");
                }
                state.trouble = Some(why);
                if state.is_closing {
                    return;
                }
                drop(state);
                std::thread::sleep(AGAIN);
            }
        }
    }
}

fn tick(state: &mut State, ticked: &mut Instant) {
    if ticked.elapsed() >= TICK {
        *ticked = Instant::now();
        state.tell_owed(clock::now());
    }
}

fn tell_recovered(state: &mut State) {
    let lost = std::mem::take(&mut state.lost);
    if state.trouble.take().is_some() || lost > 0 {
        let why = format!("{lost} events are lost: their storage failed, or was too slow");
        state.give(Stream::Daemon, Entry::noticed("events kept again").because(why));
    }
}

/// Writes from the first on. How many are durable, and what failed then.
fn write_batch(files: &mut Files, batch: &[(Stream, Event)]) -> (usize, Option<EventLogError>) {
    let (mut done, mut failed) = (0, None);
    for (stream, event) in batch {
        if let Err(e) = files.append(*stream, event) {
            failed = Some(e);
            break;
        }
        done += 1;
    }
    match files.sync() {
        Ok(()) => (done, failed),
        // They may be there twice then, with the same numbers.
        Err(e) => (0, Some(e)),
    }
}
