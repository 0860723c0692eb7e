//! What takes longer to find out: which storage datastores are, and what is advised.

use super::foreign::elsewhere;
use super::shared::{Shared, lock, now};
use headgate_control::{Control, ControlError};
use headgate_fleet::{ADVICE_MAX, AdviceWord, NOTE_MAX, clipped};
use headgate_model::{Lookback, Name};
use headgate_placement::Move;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How often storage is asked for that is new.
const LOOK: Duration = Duration::from_secs(5);

/// How often advice is asked for: it reads the samples of a day.
const ADVICE: Duration = Duration::from_secs(300);

/// Storage that did not say which it is, or is nobody else's, is asked again so late.
const AGAIN: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Found {
    storages: BTreeMap<Name, Storage>,
    advice: Vec<AdviceWord>,
}

struct Storage {
    name: Option<String>,
    asked: Instant,
}

/// What was found last.
#[derive(Default)]
pub(super) struct Slow(Mutex<Found>);

impl Slow {
    fn lock(&self) -> MutexGuard<'_, Found> {
        lock(&self.0)
    }

    /// Which storage a datastore is, as far as that is known.
    pub(super) fn storage(&self, datastore: &Name) -> Option<String> {
        self.lock().storages.get(datastore).and_then(|storage| storage.name.clone())
    }

    /// What is advised.
    pub(super) fn advice(&self) -> Vec<AdviceWord> {
        self.lock().advice.clone()
    }

    /// Looks until told to stop. Waits for storage, for a bounded time each.
    pub(super) fn run(&self, control: &Control, shared: &Shared, stopped: &Receiver<()>) {
        let mut advised: Option<Instant> = None;
        loop {
            self.look_at_storages(control);
            if advised.is_none_or(|at| at.elapsed() >= ADVICE) {
                advised = Some(Instant::now());
                match advice(control, shared) {
                    Ok(advice) => self.lock().advice = advice,
                    // It is asked for again; whoever asks for it here hears why.
                    Err(e) => tracing::debug!(error = %e, "no advice for the view of all hosts"),
                }
            }
            if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn look_at_storages(&self, control: &Control) {
        let names: Vec<Name> = control.datastores().into_iter().map(|one| one.name).collect();
        self.lock().storages.retain(|name, _| names.contains(name));
        for name in names {
            let is_known = self.lock().storages.get(&name).is_some_and(|storage| {
                storage.name.is_some() && storage.asked.elapsed() < ADVICE
                    || storage.asked.elapsed() < AGAIN
            });
            if is_known {
                continue;
            }
            let asked = Instant::now();
            let found = control.storage_of(&name);
            let name_of = match found {
                Ok(found) => found.map(|text| clipped(&text, NOTE_MAX)),
                // It stays what it was.
                Err(e) => {
                    tracing::debug!(datastore = %name, error = %e, "it is not known which storage it is");
                    self.storage(&name)
                }
            };
            self.lock().storages.insert(name, Storage { name: name_of, asked });
        }
    }
}

/// What this host advises: moves between its datastores, and those to storage that only others
/// have, of disks that have no better place here.
fn advice(control: &Control, shared: &Shared) -> Result<Vec<AdviceWord>, ControlError> {
    let report = control.advice(Lookback::DAY)?;
    let here = report.pools.into_iter().flat_map(|pool| pool.advice.moves);
    let mut moves: Vec<Move> = here.collect();
    let elsewhere = elsewhere(&shared.lock().view, shared.own, now());
    for one in control.advice_elsewhere(&elsewhere)? {
        if moves.iter().all(|here| here.disk != one.disk) {
            moves.push(one);
        }
    }
    let word = |one: &Move| AdviceWord {
        disk: one.disk.to_string(),
        from: one.from.to_string(),
        to: clipped(one.to.as_str(), NOTE_MAX),
        why: clipped(&one.why.to_string(), NOTE_MAX),
    };
    Ok(moves.iter().take(ADVICE_MAX).map(word).collect())
}
