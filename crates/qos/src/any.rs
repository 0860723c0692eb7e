use crate::config::{Adjustment, Config, ConfigError};
use crate::cost::Io;
use crate::dmclock::ServedElsewhere;
use crate::fifo::Fifo;
use crate::learned_cost::Charging;
use crate::mclock::MClock;
use crate::narrow::Narrow;
use crate::policy::Policy;
use crate::priority::PriorityPolicy;
use crate::scheduler::{
    Decision, DiskCounters, DiskId, Rejected, ReservationDebt, Scheduler, UnknownDisk,
};
use crate::sfq::Sfq;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use headgate_units::Nanos;
use thiserror::Error;

/// Which scheduler a datastore uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchedulerKind {
    /// [`MClock`].
    #[default]
    MClock,
    /// [`Sfq`].
    Sfq,
    /// [`Fifo`].
    Fifo,
}

/// No scheduler of that name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not a scheduler: expected mclock, sfq or fifo")]
pub struct UnknownScheduler(String);

impl FromStr for SchedulerKind {
    type Err = UnknownScheduler;
    fn from_str(name: &str) -> Result<SchedulerKind, UnknownScheduler> {
        match name {
            "mclock" => Ok(SchedulerKind::MClock),
            "sfq" => Ok(SchedulerKind::Sfq),
            "fifo" => Ok(SchedulerKind::Fifo),
            _ => Err(UnknownScheduler(name.to_owned())),
        }
    }
}

/// Prints the name that parses.
impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SchedulerKind::MClock => "mclock",
            SchedulerKind::Sfq => "sfq",
            SchedulerKind::Fifo => "fifo",
        })
    }
}

/// A scheduler chosen at run time.
// Sizes differ by a few hundred bytes and there is one per datastore: a box would cost an
// indirection per call.
#[allow(clippy::large_enum_variant)]
pub enum AnyScheduler<R> {
    /// Reservations, limits, shares.
    MClock(MClock<R>),
    /// Shares.
    Sfq(Sfq<R>),
    /// Arrival order.
    Fifo(Fifo<R>),
}

impl<R> AnyScheduler<R> {
    /// An empty scheduler of the kind.
    ///
    /// # Errors
    /// The configuration is out of range.
    pub fn new(kind: SchedulerKind, config: Config) -> Result<AnyScheduler<R>, ConfigError> {
        Ok(match kind {
            SchedulerKind::MClock => AnyScheduler::MClock(MClock::new(config)?),
            SchedulerKind::Sfq => AnyScheduler::Sfq(Sfq::new(config)?),
            SchedulerKind::Fifo => AnyScheduler::Fifo(Fifo::new(config)?),
        })
    }

    /// Whether the window in front is to give way to reservations. Never where none are kept.
    pub(crate) fn narrow(&self) -> Narrow {
        match self {
            AnyScheduler::MClock(mclock) => mclock.config.narrow,
            AnyScheduler::Sfq(_) | AnyScheduler::Fifo(_) => Narrow::Never,
        }
    }

    /// Which it is.
    pub fn kind(&self) -> SchedulerKind {
        match self {
            AnyScheduler::MClock(_) => SchedulerKind::MClock,
            AnyScheduler::Sfq(_) => SchedulerKind::Sfq,
            AnyScheduler::Fifo(_) => SchedulerKind::Fifo,
        }
    }
}

macro_rules! each {
    ($self:ident, $scheduler:ident => $call:expr) => {
        match $self {
            AnyScheduler::MClock($scheduler) => $call,
            AnyScheduler::Sfq($scheduler) => $call,
            AnyScheduler::Fifo($scheduler) => $call,
        }
    };
}

impl<R> AnyScheduler<R> {
    /// How it charges.
    pub(crate) fn charging(&mut self) -> &mut Charging {
        each!(self, s => s.charging())
    }
}

impl<R> Scheduler<R> for AnyScheduler<R> {
    fn register(&mut self, now: Nanos, policy: Policy) -> DiskId {
        each!(self, s => s.register(now, policy))
    }

    fn set_policy(&mut self, now: Nanos, disk: DiskId, policy: Policy) -> Result<(), UnknownDisk> {
        each!(self, s => s.set_policy(now, disk, policy))
    }

    fn policy(&self, disk: DiskId) -> Result<Policy, UnknownDisk> {
        each!(self, s => s.policy(disk))
    }

    fn set_priorities(
        &mut self,
        now: Nanos,
        disk: DiskId,
        policy: PriorityPolicy,
    ) -> Result<(), UnknownDisk> {
        each!(self, s => s.set_priorities(now, disk, policy))
    }

    fn priorities(&self, disk: DiskId) -> Result<PriorityPolicy, UnknownDisk> {
        each!(self, s => s.priorities(disk))
    }

    fn adjust(&mut self, adjustment: Adjustment) {
        each!(self, s => Scheduler::<R>::adjust(s, adjustment))
    }

    fn unregister(&mut self, now: Nanos, disk: DiskId) -> Result<Vec<R>, UnknownDisk> {
        each!(self, s => s.unregister(now, disk))
    }

    fn extract(
        &mut self,
        now: Nanos,
        disk: DiskId,
        wanted: &mut dyn FnMut(&R) -> bool,
    ) -> Result<Vec<R>, UnknownDisk> {
        each!(self, s => s.extract(now, disk, wanted))
    }

    fn enqueue(&mut self, now: Nanos, disk: DiskId, io: Io, request: R) -> Result<(), Rejected<R>> {
        each!(self, s => s.enqueue(now, disk, io, request))
    }

    fn served_elsewhere(
        &mut self,
        now: Nanos,
        disk: DiskId,
        elsewhere: ServedElsewhere,
    ) -> Result<(), UnknownDisk> {
        each!(self, s => s.served_elsewhere(now, disk, elsewhere))
    }

    fn dispatch(&mut self, now: Nanos) -> Decision<R> {
        each!(self, s => s.dispatch(now))
    }

    fn complete(&mut self, now: Nanos, disk: DiskId) {
        each!(self, s => s.complete(now, disk))
    }

    fn queued(&self) -> usize {
        each!(self, s => s.queued())
    }

    fn counters(&self, disk: DiskId) -> Result<DiskCounters, UnknownDisk> {
        each!(self, s => s.counters(disk))
    }

    #[inline]
    fn limited_until(&self, disk: DiskId) -> Option<Nanos> {
        match self {
            AnyScheduler::MClock(mclock) => mclock.limited_until(disk),
            AnyScheduler::Sfq(_) | AnyScheduler::Fifo(_) => None,
        }
    }

    fn reservation_debt(&self) -> ReservationDebt {
        each!(self, s => s.reservation_debt())
    }

    fn comparisons(&self) -> u64 {
        each!(self, s => s.comparisons())
    }
}
