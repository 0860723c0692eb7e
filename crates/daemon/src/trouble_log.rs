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
    known: BTreeMap<Name, Known>,
    last: Arc<Vec<DatastoreSample>>,
}

#[derive(Debug, Default, PartialEq)]
struct Known {
    counts: ErrorCounts,
    holds: u64,
    held: Option<HoldSample>,
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
        let mut before = std::mem::take(&mut self.known);
        let last = std::mem::replace(&mut self.last, sample.clone());
        for store in sample.iter() {
            // A disk without trouble that stands still gets into none.
            let old = last.iter().find(|old| old.name == store.name && before.is_empty());
            for (place, disk) in store.disks.iter().enumerate() {
                let old = old.and_then(|old| old.disks.get(place));
                if old.is_some_and(|old| disk.stood_still_since(old)) {
                    continue;
                }
                let mut known = before.remove(&disk.name).unwrap_or_default();
                for line in known.see(disk.at(), &disk.trouble) {
                    line.write(&store.name, disk);
                }
                if known != Known::default() {
                    self.known.insert(disk.name.clone(), known);
                }
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
                *told = Told::default();
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
mod tests {
    use super::*;
    use headgate_units::Bytes;

    fn trouble(errors: u64, hold: Option<u64>) -> TroubleSample {
        let mut trouble = TroubleSample::default();
        (0..errors).for_each(|_| trouble.counts.add(ErrorOp::Write, ErrorKind::NoSpace));
        trouble.last = Some(ErrorSample {
            at: Nanos::ZERO,
            op: ErrorOp::Write,
            kind: ErrorKind::NoSpace,
            error: "full".into(),
            offset: Bytes(0),
            len: Bytes(512),
        });
        let held = |since| HoldSample {
            since: Nanos::from_secs(since),
            error: "full".into(),
            requests: 3,
            tries: 2,
        };
        trouble.hold = hold.map(held);
        trouble.holds = u64::from(hold.is_some());
        trouble
    }

    fn failing(errors: u64) -> Line {
        let (op, kind, last) = (ErrorOp::Write, ErrorKind::NoSpace, trouble(0, None).last);
        Line::Failing { op, kind, errors, last }
    }

    #[test]
    fn a_thousand_errors_are_a_line_a_minute() {
        let mut known = Known::default();
        let mut lines = Vec::new();
        for second in 1..=130 {
            lines.extend(known.see(Nanos::from_secs(second), &trouble(second * 10, None)));
        }
        assert_eq!(lines, [failing(10), failing(600), failing(600)]);
        for second in 131..=150 {
            lines.extend(known.see(Nanos::from_secs(second), &trouble(1_300, None)));
        }
        let (op, kind) = (ErrorOp::Write, ErrorKind::NoSpace);
        assert_eq!(lines[3..], [Line::NoMore { op, kind, errors: 1_300 }]);
        assert_eq!(known.see(Nanos::from_secs(160), &trouble(1_301, None)), [failing(1)]);
    }

    #[test]
    fn a_hold_is_told_when_it_begins_and_when_it_ends() {
        let mut known = Known::default();
        let now = Nanos::from_secs;
        let begin = known.see(now(10), &trouble(1, Some(9)));
        assert!(matches!(&begin[..], [Line::Failing { .. }, Line::Held(_)]), "{begin:?}");
        assert_eq!(known.see(now(40), &trouble(1, Some(9))), [], "nothing is new");
        let mut over = trouble(1, None);
        over.holds = 1;
        let end = known.see(now(50), &over);
        let goes_on = Line::GoesOn { held_for: now(41), tries: 2 };
        assert!(end.contains(&goes_on) && end.len() == 2, "{end:?}");
        over.holds = 4;
        assert_eq!(known.see(now(51), &over), [Line::WasHeld { times: 3 }]);
    }

    #[test]
    fn a_disk_that_is_opened_anew_counts_anew() {
        let mut known = Known::default();
        known.see(Nanos::from_secs(1), &trouble(50, None));
        assert_eq!(known.see(Nanos::from_secs(2), &trouble(2, None)), [failing(2)]);
    }
}
