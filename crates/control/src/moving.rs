//! A disk that has two copies, or may have.

use headgate_api::moves::MoveOutcome;
use headgate_mirror::{Outcome, Side};
use headgate_model::{MoveRecord, MoveStep, Name, RemoteRecord};

/// Who has the copies of a disk that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The copy is being made.
    Preparing,
    /// The data path copies.
    UnderWay,
    /// The data path has ended it, and has both copies open yet.
    Ended(Verdict),
    /// The data path has said nothing more, and may have both copies open yet.
    Lost(Verdict),
    /// Nobody has the copy open that does not count.
    Closed(Verdict),
    /// It was found in the catalog, and nothing else is known of it.
    Found,
}

/// How a move ended, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) outcome: MoveOutcome,
    pub(crate) reason: Option<String>,
}

impl Verdict {
    pub(crate) fn of(outcome: Outcome) -> Verdict {
        match outcome {
            Outcome::Switched => Verdict { outcome: MoveOutcome::Switched, reason: None },
            Outcome::Cancelled => Verdict { outcome: MoveOutcome::Cancelled, reason: None },
            Outcome::Failed(reason) => {
                Verdict { outcome: MoveOutcome::Failed, reason: Some(reason.to_string()) }
            }
        }
    }

    /// Of a move that ended otherwise than by an end that was told.
    pub(crate) fn cut(step: MoveStep, reason: &str) -> Verdict {
        let outcome = match step {
            MoveStep::Preparing | MoveStep::Started => MoveOutcome::Interrupted,
            MoveStep::Switched => MoveOutcome::Switched,
        };
        Verdict { outcome, reason: Some(reason.to_owned()) }
    }
}

/// A disk that has two copies, or may have.
#[derive(Clone, Debug)]
pub(crate) struct Moving {
    pub(crate) record: MoveRecord,
    /// The export that the disk becomes, on an NBD server.
    pub(crate) remote: Option<RemoteRecord>,
    pub(crate) phase: Phase,
    /// Why the copy is there still that is to be reclaimed.
    pub(crate) trouble: Option<String>,
}

impl Moving {
    /// One of the catalog, which a daemon before this one left.
    pub(crate) fn found(record: MoveRecord) -> (Name, Moving) {
        let disk = record.disk.clone();
        (disk, Moving { record, remote: None, phase: Phase::Found, trouble: None })
    }

    /// The side that does not count.
    pub(crate) fn reclaimed(&self) -> Side {
        self.record.step.recovery().reclaim
    }

    /// The datastore that the disk is on its way to.
    pub(crate) fn arrives_at(&self) -> Option<&Name> {
        let arrives = !self.is_within() && self.record.step != MoveStep::Switched;
        arrives.then_some(&self.record.target)
    }

    /// Whether the disk stays on its datastore, and moves to other servers of it.
    pub(crate) fn is_within(&self) -> bool {
        self.record.source == self.record.target
    }

    /// Whether nothing but a copy is left of it.
    pub(crate) fn is_over(&self) -> bool {
        !matches!(self.phase, Phase::Preparing | Phase::UnderWay)
    }
}
