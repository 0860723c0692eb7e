//! What a disk knows of the trouble of its storage, and the requests that it holds for it.

use crate::request::{Access, Durability, IoError, Op, Step};
use crate::snapshot::{HoldSnapshot, LastError, TroubleSnapshot};
use crate::trouble::{HoldReads, HoldWrites, TroublePolicy};
use headgate_stats::{ErrorCounts, ErrorKind, ErrorOp};
use headgate_units::{Bytes, Nanos};
use std::collections::VecDeque;

/// From the first failure to the first try.
const FIRST_TRY: Nanos = Nanos::from_millis(500);

/// The longest that a disk waits between two tries: how late it goes on, at most, when nobody tells
/// it that the trouble is over.
const LONGEST_WAIT: Nanos = Nanos::from_secs(16);

/// The trouble of a disk.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    pub policy: TroublePolicy,
    /// What is held. Boxed, for hardly a disk ever is.
    pub hold: Option<Box<Hold>>,
    counts: ErrorCounts,
    last: Option<LastError>,
    /// When a client was last told of an error.
    pub reported: Option<Nanos>,
    holds: u64,
}

/// Requests that a disk holds, by their slots.
#[derive(Debug)]
pub(crate) struct Hold {
    pub since: Nanos,
    /// Of the request that began it.
    pub error: IoError,
    /// Those that the storage failed, in order of arrival. They are in no queue and no window.
    pub failed: VecDeque<u32>,
    /// Those that were not at the storage, in order of arrival. They count in the disk's queue.
    pub waiting: VecDeque<u32>,
    /// The one that is tried.
    pub trying: Option<u32>,
    next_try: Nanos,
    wait: Nanos,
    tries: u64,
}

impl Hold {
    /// A request failed, and its disk is to hold.
    pub(crate) fn new(now: Nanos, error: IoError) -> Hold {
        Hold {
            since: now,
            error,
            failed: VecDeque::new(),
            waiting: VecDeque::new(),
            trying: None,
            next_try: now + FIRST_TRY,
            wait: FIRST_TRY,
            tries: 0,
        }
    }

    /// When to try the next; `None` while one is tried.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.trying.is_none().then_some(self.next_try)
    }

    /// Takes the oldest that failed out, to be tried.
    pub(crate) fn begin_try(&mut self) -> Option<u32> {
        self.trying = self.failed.pop_front();
        self.trying
    }

    /// The one that was tried failed: the next try is later.
    pub(crate) fn try_failed(&mut self, now: Nanos) {
        self.trying = None;
        self.tries += 1;
        self.wait = Nanos(self.wait.0.saturating_mul(2)).min(LONGEST_WAIT);
        self.next_try = now + self.wait;
    }

    /// The one that was tried is gone without an answer.
    pub(crate) fn try_withdrawn(&mut self) {
        self.trying = None;
    }

    /// Somebody says that the trouble is over: the next try is now.
    pub(crate) fn hurry(&mut self, now: Nanos) {
        (self.wait, self.next_try) = (FIRST_TRY, now);
    }

    /// Whether nothing is left that the storage failed: there is nothing to hold for.
    pub(crate) fn is_over(&self) -> bool {
        self.failed.is_empty() && self.trying.is_none()
    }
}

/// What failed, for [`Trouble::holds`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub op: Op,
    pub step: Step,
    pub error: IoError,
    pub access: Access,
}

impl Trouble {
    /// The storage failed a request.
    pub(crate) fn note(&mut self, at: Nanos, op: ErrorOp, kind: ErrorKind, error: LastError) {
        self.counts.add(op, kind);
        self.last = Some(LastError { at, ..error });
    }

    /// The disk begins to hold.
    pub(crate) fn begin(&mut self, now: Nanos, error: IoError) -> &mut Hold {
        self.holds += 1;
        self.hold.insert(Box::new(Hold::new(now, error)))
    }

    /// Whether a failed request is to be held.
    ///
    /// What is held is tried again, so only what may be repeated is. The end of a synchronisation
    /// is not: it tells once that data which was acknowledged before is lost, and the next one
    /// succeeds. So a flush always fails to its client, and so does a write through (FUA), whose
    /// error may be that of its synchronisation. Where nothing is cached, want of space can only
    /// be that of the write itself.
    pub(crate) fn holds(&self, failure: Failure) -> bool {
        let Failure { op, step, error, access } = failure;
        let Some(kind) = error.kind() else { return false };
        let through = match op {
            Op::Read | Op::Splice => return self.policy.reads == HoldReads::Always,
            Op::Flush | Op::BlockStatus | Op::Cache | Op::Share => return false,
            Op::Discard | Op::PlacedWrite => false,
            Op::Write(durability) | Op::WriteZeroes { durability, .. } => {
                durability == Durability::Fua
            }
        };
        let no_space = kind == ErrorKind::NoSpace;
        let may_repeat = !through || no_space && access == Access::Direct && step != Step::Sync;
        may_repeat
            && match self.policy.writes {
                HoldWrites::Never => false,
                HoldWrites::NoSpace => no_space,
                HoldWrites::Always => true,
            }
    }

    /// All of it.
    pub(crate) fn snapshot(&self) -> TroubleSnapshot {
        let hold = |hold: &Hold| HoldSnapshot {
            since: hold.since,
            error: hold.error,
            requests: hold.failed.len() + hold.waiting.len() + usize::from(hold.trying.is_some()),
            tries: hold.tries,
        };
        TroubleSnapshot {
            policy: self.policy,
            counts: self.counts,
            last: self.last,
            reported: self.reported,
            hold: self.hold.as_deref().map(hold),
            holds: self.holds,
        }
    }

    /// Requests of the disk's queue that it holds.
    pub(crate) fn waiting(&self) -> u32 {
        // A disk's queue holds some hundred.
        self.hold.as_ref().map_or(0, |hold| hold.waiting.len() as u32)
    }
}

/// What is known of a failure, but when.
pub(crate) fn last_error(op: ErrorOp, error: IoError, offset: u64, len: u64) -> LastError {
    LastError { at: Nanos::ZERO, op, error, offset: Bytes(offset), len: Bytes(len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Unmap, ZeroSpeed};

    fn held(policy: TroublePolicy, op: Op, error: IoError, access: Access) -> bool {
        let trouble = Trouble { policy, ..Trouble::default() };
        trouble.holds(Failure { op, step: Step::Main, error, access })
    }

    const ALL: TroublePolicy =
        TroublePolicy { writes: HoldWrites::Always, reads: HoldReads::Always };
    const FULL: TroublePolicy =
        TroublePolicy { writes: HoldWrites::NoSpace, reads: HoldReads::Never };
    const EIO: IoError = IoError::Backend(libc::EIO);

    #[test]
    fn a_policy_holds_what_it_names() {
        let write = Op::Write(Durability::Cached);
        for access in [Access::Direct, Access::Cached] {
            for op in [write, Op::PlacedWrite, Op::Discard] {
                assert!(held(FULL, op, IoError::NoSpace, access), "{op:?}");
                assert!(!held(FULL, op, EIO, access), "{op:?}");
                assert!(held(ALL, op, EIO, access), "{op:?}");
                assert!(!held(TroublePolicy::default(), op, IoError::NoSpace, access));
            }
            for op in [Op::Read, Op::Splice] {
                assert!(held(ALL, op, EIO, access) && !held(FULL, op, EIO, access));
            }
        }
        for error in [IoError::Invalid, IoError::Unsupported, IoError::Cancelled] {
            assert!(!held(ALL, write, error, Access::Direct), "{error}");
        }
    }

    #[test]
    fn what_may_tell_of_lost_data_is_never_tried_again() {
        for access in [Access::Direct, Access::Cached] {
            for op in [Op::Flush, Op::BlockStatus, Op::Cache, Op::Share] {
                assert!(!held(ALL, op, EIO, access) && !held(ALL, op, IoError::NoSpace, access));
            }
        }
        let zeroes = |durability| Op::WriteZeroes {
            unmap: Unmap::MustNot,
            speed: ZeroSpeed::Any,
            durability,
        };
        for op in [Op::Write(Durability::Fua), zeroes(Durability::Fua)] {
            assert!(!held(ALL, op, EIO, Access::Direct), "a device's cache may have lost more");
            assert!(!held(ALL, op, IoError::NoSpace, Access::Cached), "of an earlier write");
            assert!(held(ALL, op, IoError::NoSpace, Access::Direct));
            let trouble = Trouble { policy: ALL, ..Trouble::default() };
            let (error, access) = (IoError::NoSpace, Access::Direct);
            assert!(!trouble.holds(Failure { op, step: Step::Sync, error, access }));
        }
        assert!(held(ALL, zeroes(Durability::Cached), EIO, Access::Cached));
    }

    #[test]
    fn tries_are_further_and_further_apart_until_somebody_hurries() {
        let mut hold = Hold::new(Nanos::ZERO, EIO);
        hold.failed.push_back(7);
        let mut waits = Vec::new();
        let mut now = Nanos::ZERO;
        for _ in 0..8 {
            let at = hold.next_event().unwrap();
            waits.push((at - now).0 / 1_000_000);
            now = at;
            assert_eq!(hold.begin_try(), Some(7));
            assert_eq!(hold.next_event(), None);
            hold.try_failed(now);
            hold.failed.push_front(7);
        }
        assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 16_000, 16_000]);
        hold.hurry(now);
        assert_eq!(hold.next_event(), Some(now));
    }
}
