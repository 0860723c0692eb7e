//! The log of storage trouble: a line when a disk's storage begins to fail, one a minute while it
//! goes on, and one when it is over; the same of disks that hold requests.
//!
//! It compares samples, off the shards: their threads wait for no log.

use headgate_model::{DatastoreSample, DiskSample, ErrorSample, HoldSample, Name, TroubleSample};
use headgate_stats::{ErrorCounts, ErrorKind, ErrorOp};
use headgate_units::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;
use tracing::{info, warn};

/// A trouble that goes on is told again after so long.
const AGAIN: Nanos = Nanos::from_secs(60);

/// What was said of the disks.
#[derive(Debug, Default)]
pub(crate) struct TroubleLog {
    /// Of disks that have seen any.
    known: BTreeMap<Name, (Place, Known)>,
    last: Arc<Vec<DatastoreSample>>,
}

/// Where a disk was in the last sample.
#[derive(Debug)]
struct Place {
    datastore: Name,
    disk: usize,
}

#[derive(Debug, Default, PartialEq)]
struct Known {
    counts: ErrorCounts,
    holds: u64,
    held: Option<HoldSample>,
    /// Of those that are not over.
    kinds: BTreeMap<(ErrorOp, ErrorKind), Told>,
}

/// Errors of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Told {
    /// When it was told last.
    at: Nanos,
    /// When the last was seen.
    seen: Nanos,
    /// Not told yet.
    untold: u64,
    all: u64,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Failing {
        op: ErrorOp,
        kind: ErrorKind,
        errors: u64,
        last: Option<ErrorSample>,
    },
    NoMore {
        op: ErrorOp,
        kind: ErrorKind,
        errors: u64,
    },
    Held(HoldSample),
    /// It was, between two samples.
    WasHeld {
        times: u64,
    },
    GoesOn {
        held_for: Nanos,
        tries: u64,
    },
}

impl TroubleLog {
    /// Writes what is new in a sample.
    pub(crate) fn see(&mut self, sample: &Arc<Vec<DatastoreSample>>) {
        self.look(sample, |store, disk, line| line.write(&store.name, disk));
    }

    /// Tells each line that is new. O(disks): without a look at the memory of those that stood
    /// still, but for the few that have seen trouble, for which time passes.
    fn look(
        &mut self,
        sample: &Arc<Vec<DatastoreSample>>,
        mut tell: impl FnMut(&DatastoreSample, &DiskSample, Line),
    ) {
        let mut before = std::mem::take(&mut self.known);
        let last = std::mem::replace(&mut self.last, sample.clone());
        let mut look = |store: &DatastoreSample, place: usize, mut known: Known| {
            let Some(disk) = store.disks.get(place) else { return };
            let lines = known.see(disk.at(), &disk.trouble);
            lines.into_iter().for_each(|line| tell(store, disk, line));
            if known != Known::default() {
                let at = Place { datastore: store.name.clone(), disk: place };
                self.known.insert(disk.name.clone(), (at, known));
            }
        };
        for store in sample.iter() {
            let old = last.iter().find(|old| old.name == store.name);
            for (place, disk) in store.disks.iter().enumerate() {
                let old = old.and_then(|old| old.disks.get(place));
                if old.is_some_and(|old| disk.stood_still_since(old)) {
                    continue;
                }
                let known = before.remove(&disk.name).map(|(_, known)| known);
                look(store, place, known.unwrap_or_default());
            }
        }
        // What is left stood still, or is gone.
        for (name, (at, known)) in before {
            let store = sample.iter().find(|store| store.name == at.datastore);
            if let Some(store) = store
                && store.disks.get(at.disk).is_some_and(|disk| disk.name == name)
            {
                look(store, at.disk, known);
            }
        }
    }
}

impl Known {
    fn see(&mut self, now: Nanos, trouble: &TroubleSample) -> Vec<Line> {
        let mut lines = Vec::new();
        // A disk that was opened anew counts anew.
        if trouble.counts.iter().any(|(op, kind, n)| n < self.counts.get(op, kind)) {
            *self = Known::default();
        }
        for (op, kind, count) in trouble.counts.iter() {
            let new = count - self.counts.get(op, kind);
            // Most disks have seen no error of any kind, and nothing is to be known of them.
            if new == 0 && !self.kinds.contains_key(&(op, kind)) {
                continue;
            }
            let told = self.kinds.entry((op, kind)).or_default();
            if new > 0 {
                told.untold += new;
                told.all += new;
                told.seen = now;
            }
            let quiet = now.since(told.seen) >= headgate_model::FAILING;
            if told.untold > 0 && (told.at == Nanos::ZERO || now.since(told.at) >= AGAIN) {
                let last = trouble.last.clone().filter(|last| (last.op, last.kind) == (op, kind));
                lines.push(Line::Failing { op, kind, errors: told.untold, last });
                (told.untold, told.at) = (0, now.max(Nanos(1)));
            } else if quiet && told.all > 0 && trouble.hold.is_none() {
                lines.push(Line::NoMore { op, kind, errors: told.all });
                self.kinds.remove(&(op, kind));
            }
        }
        self.counts = trouble.counts;
        let begun = trouble.holds.saturating_sub(self.holds);
        match (&self.held, &trouble.hold) {
            (None, Some(hold)) => lines.push(Line::Held(hold.clone())),
            (Some(held), None) => {
                let (held_for, tries) = (now.since(held.since), held.tries);
                lines.push(Line::GoesOn { held_for, tries });
            }
            (None, None) if begun > 0 => lines.push(Line::WasHeld { times: begun }),
            _ => {}
        }
        (self.held, self.holds) = (trouble.hold.clone(), trouble.holds);
        lines
    }
}

impl Line {
    fn write(&self, datastore: &Name, disk: &DiskSample) {
        let disk = &disk.name;
        match self {
            Line::Failing { op, kind, errors, last } => {
                let (op, kind) = (op.as_str(), kind.as_str());
                let of = |last: &ErrorSample| (last.error.clone(), last.offset.0, last.len.0);
                let (error, offset, length) = last.as_ref().map(of).unwrap_or_default();
                warn!(%disk, %datastore, op, kind, errors, error, offset, length, "the storage fails requests");
            }
            Line::NoMore { op, kind, errors } => {
                let (op, kind) = (op.as_str(), kind.as_str());
                info!(%disk, %datastore, op, kind, errors, "the storage fails no more of them");
            }
            Line::Held(hold) => {
                let HoldSample { error, requests, .. } = hold;
                warn!(%disk, %datastore, error, requests, "the disk holds its requests until the storage takes them");
            }
            Line::WasHeld { times } => {
                info!(%disk, %datastore, times, "the disk held its requests for a moment");
            }
            Line::GoesOn { held_for, tries } => {
                let seconds = held_for.0 / 1_000_000_000;
                info!(%disk, %datastore, seconds, tries, "the disk goes on");
            }
        }
    }
}

#[cfg(test)]
#[path = "trouble_log_tests.rs"]
mod tests;
