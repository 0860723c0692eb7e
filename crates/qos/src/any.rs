use crate::config::{Adjustment, Config, ConfigError};
use crate::cost::Io;
use crate::dmclock::ServedElsewhere;
use crate::fifo::Fifo;
use crate::learned_cost::{Charging, CostTable};
use crate::mclock::MClock;
use crate::mclock::grouped::{Grouped, Groups, GroupsError, without_rule};
use crate::narrow::Narrow;
use crate::policy::Policy;
use crate::priority::PriorityPolicy;
use crate::scheduler::{
    Decision, DiskCounters, DiskId, Rejected, ReservationDebt, Scheduler, UnknownDisk,
};
use crate::sfq::Sfq;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
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
#[derive(Clone)]
#[allow(clippy::large_enum_variant)]
pub enum AnyScheduler<R> {
    /// Reservations, limits, shares.
    MClock(MClock<R>),
    /// Shares.
    Sfq(Sfq<R>),
    /// Arrival order.
    Fifo(Fifo<R>),
    /// Reservations, limits and shares, of disks and of groups of them.
    Grouped(Box<Grouped<R>>),
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
            AnyScheduler::Grouped(grouped) => grouped.flat().config.narrow,
            AnyScheduler::Sfq(_) | AnyScheduler::Fifo(_) => Narrow::Never,
        }
    }

    /// Which it is.
    pub fn kind(&self) -> SchedulerKind {
        match self {
            AnyScheduler::MClock(_) | AnyScheduler::Grouped(_) => SchedulerKind::MClock,
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
            AnyScheduler::Grouped($scheduler) => $call,
        }
    };
}

impl<R> AnyScheduler<R> {
    /// How it charges.
    pub(crate) fn charging(&mut self) -> &mut Charging {
        each!(self, s => s.charging())
    }

    /// Charges by this table from now on, where costs are learned.
    pub(crate) fn set_costs(&mut self, table: CostTable) {
        match self {
            AnyScheduler::Grouped(grouped) => grouped.set_costs(table),
            other => other.charging().set_table(table),
        }
    }

    /// Makes the groups of disks what is said: none of them, and the scheduler is flat. All that
    /// is queued, in flight, owed and owing goes along, as [`Grouped`] says.
    ///
    /// # Errors
    /// [`GroupsError`]. Nothing was changed then.
    pub fn set_groups(&mut self, now: Nanos, groups: &Groups) -> Result<(), GroupsError> {
        match self {
            AnyScheduler::MClock(flat) => {
                if groups.groups.is_empty() {
                    return groups.check();
                }
                Grouped::check(flat, groups)?;
                let tree = Grouped::tree_for(flat)?;
                let AnyScheduler::MClock(flat) = self.take()? else { return Ok(()) };
                let mut grouped = Grouped::of_flat(now, flat, tree);
                let done = grouped.regroup(now, groups);
                *self = AnyScheduler::Grouped(Box::new(grouped));
                done
            }
            AnyScheduler::Grouped(grouped) if !groups.groups.is_empty() => {
                grouped.regroup(now, groups)
            }
            AnyScheduler::Grouped(_) => {
                groups.check()?;
                if let AnyScheduler::Grouped(grouped) = self.take()? {
                    *self = AnyScheduler::MClock(grouped.into_flat(now));
                }
                Ok(())
            }
            AnyScheduler::Sfq(_) | AnyScheduler::Fifo(_) if groups.groups.is_empty() => Ok(()),
            AnyScheduler::Sfq(_) | AnyScheduler::Fifo(_) => Err(GroupsError::NotMClock),
        }
    }

    /// Itself, with an empty one left in its place.
    fn take(&mut self) -> Result<AnyScheduler<R>, GroupsError> {
        let config = Config::default();
        let empty = Fifo::new(config).map_err(|_| GroupsError::NotMClock)?;
        Ok(core::mem::replace(self, AnyScheduler::Fifo(empty)))
    }

    /// All disks of mClock.
    pub(crate) fn disks(&self) -> Vec<DiskId> {
        match self {
            AnyScheduler::MClock(flat) => flat.ids(),
            AnyScheduler::Grouped(grouped) => grouped.all().collect(),
            AnyScheduler::Sfq(_) | AnyScheduler::Fifo(_) => Vec::new(),
        }
    }

    /// What a policy says that disks beside groups cannot have; `None`: they can have all of it, or
    /// there are no groups.
    pub fn cannot_have(&self, policy: Policy) -> Option<&'static str> {
        match self {
            AnyScheduler::Grouped(_) => without_rule(policy),
            AnyScheduler::MClock(_) | AnyScheduler::Sfq(_) | AnyScheduler::Fifo(_) => None,
        }
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
        match self {
            AnyScheduler::MClock(s) => Scheduler::<R>::adjust(s, adjustment),
            AnyScheduler::Grouped(s) => Scheduler::<R>::adjust(&mut **s, adjustment),
            // They have neither a plug nor batches.
            AnyScheduler::Sfq(_) | AnyScheduler::Fifo(_) => {}
        }
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

    #[inline]
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

    #[inline]
    fn dispatch(&mut self, now: Nanos) -> Decision<R> {
        each!(self, s => s.dispatch(now))
    }

    #[inline]
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
            AnyScheduler::Grouped(grouped) => grouped.limited_until(disk),
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
