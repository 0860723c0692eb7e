//! The requests of a worker and their times: drawn at random, or recorded.

use crate::link::Op;
use crate::pace::{Arrivals, Pace};
use crate::replay::{Player, Replayed};
use crate::workload::Workload;
use headgate_units::Nanos;

#[allow(clippy::large_enum_variant, reason = "there is one for each thread")]
pub(crate) enum Demand {
    Drawn { workload: Workload, arrivals: Arrivals, pace: Pace },
    Recorded(Box<Player>),
}

impl Demand {
    pub(crate) fn drawn(workload: Workload, arrivals: Arrivals) -> Demand {
        Demand::Drawn { workload, arrivals, pace: Pace::new(arrivals, Nanos::ZERO) }
    }

    /// The first request is due at `start`, or as long after it as was recorded. Begins anew when
    /// drawn.
    pub(crate) fn start(&mut self, start: Nanos) {
        match self {
            Demand::Drawn { arrivals, pace, .. } => *pace = Pace::new(*arrivals, start),
            Demand::Recorded(player) => player.start(start),
        }
    }

    /// May a request start at `now`: answers when it should have started. Every answer is one
    /// request of [`next_op`](Self::next_op).
    pub(crate) fn poll(&mut self, now: Nanos, outstanding: usize) -> Option<Nanos> {
        match self {
            Demand::Drawn { pace, .. } => pace.poll(now, outstanding),
            Demand::Recorded(player) => player.due().filter(|due| *due <= now),
        }
    }

    /// When [`poll`](Self::poll) has to be asked again; `None`: only a completion matters.
    pub(crate) fn next_at(&mut self) -> Option<Nanos> {
        match self {
            Demand::Drawn { pace, .. } => pace.next_at(),
            Demand::Recorded(player) => player.due(),
        }
    }

    /// A request. Drawn ones may be drawn again; of recorded ones each comes once.
    pub(crate) fn next_op(&mut self) -> Option<Op> {
        match self {
            Demand::Drawn { workload, .. } => Some(workload.next_op()),
            Demand::Recorded(player) => player.next_op(),
        }
    }

    /// There are no more requests; an error when there should be.
    pub(crate) fn end(&mut self) -> Option<Result<(), String>> {
        match self {
            Demand::Drawn { .. } => None,
            Demand::Recorded(player) => player.end(),
        }
    }

    /// Statistics of the replay.
    pub(crate) fn replayed(&self) -> Option<Replayed> {
        match self {
            Demand::Drawn { .. } => None,
            Demand::Recorded(player) => Some(player.replayed()),
        }
    }
}
