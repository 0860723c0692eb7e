use crate::config::Adjustment;
use crate::cost::{Cost, Io};
use crate::dmclock::ServedElsewhere;
use crate::learned_cost::QueuedSize;
use crate::policy::Policy;
use crate::priority::PriorityPolicy;
use alloc::vec::Vec;
use headgate_units::{Nanos, Priority};
use thiserror::Error;

/// A registered disk. Never reused: the id of a disk that was unregistered stays unknown, it never
/// becomes another disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The id names no registered disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the scheduler knows no disk {}.{}: it was unregistered", .0.slot, .0.generation)]
pub struct UnknownDisk(pub DiskId);

/// A request that was not queued, handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the request was not queued: {reason}")]
pub struct Rejected<R> {
    /// Why.
    pub reason: UnknownDisk,
    /// The request.
    pub request: R,
}

/// The tag that decided a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The disk was due by its reservation.
    Reservation,
    /// By shares, out of what reservations leave.
    Weight,
}

/// A request to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatched<R> {
    /// The disk that sent it.
    pub disk: DiskId,
    /// The queued request.
    pub request: R,
    /// The tag that decided.
    pub phase: Phase,
    /// What the disk was charged.
    pub cost: Cost,
    /// The effective priority: given or inherited, and at most the VM's maximum.
    pub priority: Priority,
    /// As it was queued.
    pub(crate) size: QueuedSize,
}

/// What to do now: of a scheduler, or of a [gate](crate::Gate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<R> {
    /// Send this request, then ask again if the window has room.
    Dispatch(Dispatched<R>),
    /// All queued requests wait for limits, or for a fractional window. Ask again at this time,
    /// which is later than now, or earlier if anything changes.
    WaitUntil(Nanos),
    /// Nothing is queued, or the window is full. Ask again after the next event.
    Idle,
}

/// What a disk has received since it was registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Requests dispatched by reservation.
    pub by_reservation: u64,
    /// Requests dispatched by shares.
    pub by_weight: u64,
    /// Charges of all of them.
    pub cost: Cost,
    /// Requests queued now.
    pub queued: usize,
    /// Requests dispatched and not completed.
    pub in_flight: usize,
}

/// How far reservations are behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationDebt {
    /// How late the most overdue disk with a reservation is now. Near zero while the storage
    /// delivers all reservations, at [`Config::debt_bound`](crate::Config::debt_bound) while it
    /// does not, and up to [`Config::debt_horizon`](crate::Config::debt_horizon) after a stall.
    pub behind: Nanos,
    /// Lateness forgiven since the start. In a stretch of shortage it grows by `1 -
    /// delivered/reserved` per second.
    pub forgiven: Nanos,
}

/// Divides one datastore among its disks.
///
/// The caller owns the window: it calls [`dispatch`](Scheduler::dispatch) while fewer requests are
/// in flight than it wants, after every event that may change the answer (a request queued, one
/// completed, a policy changed, the time of [`Decision::WaitUntil`] reached). Costs are per
/// decision: O(log n) in the disks that have requests queued.
pub trait Scheduler<R> {
    /// Takes a disk in. Amortised O(1).
    fn register(&mut self, now: Nanos, policy: Policy) -> DiskId;

    /// Gives a disk another policy. In force at the next decision, for requests already queued too.
    /// O(log n).
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered.
    fn set_policy(&mut self, now: Nanos, disk: DiskId, policy: Policy) -> Result<(), UnknownDisk>;

    /// The disk's policy.
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered.
    fn policy(&self, disk: DiskId) -> Result<Policy, UnknownDisk>;

    /// Says what the priorities are worth that the disk's guest gives. In force at the next
    /// decision, for requests already queued too. O(queued of the disk); a change forgets which of
    /// the disk's streams was ahead of the others, the same policy again changes nothing.
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered.
    fn set_priorities(
        &mut self,
        now: Nanos,
        disk: DiskId,
        policy: PriorityPolicy,
    ) -> Result<(), UnknownDisk>;

    /// The priority policy of a disk; the default policy until one is set.
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered.
    fn priorities(&self, disk: DiskId) -> Result<PriorityPolicy, UnknownDisk>;

    /// Changes what can be changed while disks are served. Schedulers without streams have no plug,
    /// and those that do not know where requests lie have no batches: it does nothing there.
    fn adjust(&mut self, _adjustment: Adjustment) {}

    /// Lets a disk go. Its queued requests come back, each stream's in order; completions of those
    /// in flight are ignored from now on.
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered before.
    fn unregister(&mut self, now: Nanos, disk: DiskId) -> Result<Vec<R>, UnknownDisk>;

    /// Takes those queued requests of a disk that `wanted` picks out of the queue, each stream's in
    /// order, the highest priority first, and uncharged. O(queued of the disk).
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered.
    fn extract(
        &mut self,
        now: Nanos,
        disk: DiskId,
        wanted: &mut dyn FnMut(&R) -> bool,
    ) -> Result<Vec<R>, UnknownDisk>;

    /// Queues a request behind the others of its disk and final priority. O(log n) in the disks,
    /// and linear in the disk's streams, 254 at most, if it has several.
    ///
    /// # Errors
    /// [`Rejected`] returns the request when the disk was unregistered.
    fn enqueue(&mut self, now: Nanos, disk: DiskId, io: Io, request: R) -> Result<(), Rejected<R>>;

    /// The disk received service at other servers (dmClock). In force at the next decision, for
    /// requests already queued too. O(log n); nothing for [`ServedElsewhere::NONE`].
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered.
    fn served_elsewhere(
        &mut self,
        now: Nanos,
        disk: DiskId,
        elsewhere: ServedElsewhere,
    ) -> Result<(), UnknownDisk>;

    /// Queues a request that says what its disk received at other servers, both at once.
    ///
    /// # Errors
    /// [`Rejected`] returns the request when the disk was unregistered.
    fn enqueue_dmclock(
        &mut self,
        now: Nanos,
        disk: DiskId,
        io: Io,
        elsewhere: ServedElsewhere,
        request: R,
    ) -> Result<(), Rejected<R>> {
        match self.served_elsewhere(now, disk, elsewhere) {
            Ok(()) => self.enqueue(now, disk, io, request),
            Err(reason) => Err(Rejected { reason, request }),
        }
    }

    /// The next request to send, if any may go now.
    fn dispatch(&mut self, now: Nanos) -> Decision<R>;

    /// A dispatched request of the disk finished. Unknown disks are ignored: the disk may have gone
    /// in between.
    fn complete(&mut self, now: Nanos, disk: DiskId);

    /// Requests queued, all disks.
    fn queued(&self) -> usize;

    /// Requests queued by a disk, 0 for one that is unknown.
    fn queued_of(&self, disk: DiskId) -> usize {
        self.counters(disk).map_or(0, |c| c.queued)
    }

    /// What the disk has received.
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered.
    fn counters(&self, disk: DiskId) -> Result<DiskCounters, UnknownDisk>;

    /// Until when limits forbid every request that the disk has queued: at the earliest, as it
    /// stands. `None` where they do not. O(1).
    fn limited_until(&self, _disk: DiskId) -> Option<Nanos> {
        None
    }

    /// How far reservations are behind, as of the last call with a time. Zero without reservations.
    fn reservation_debt(&self) -> ReservationDebt {
        ReservationDebt::default()
    }

    /// How often two disks' tags were compared since the start: what decisions have cost, whatever
    /// the machine. O(1).
    fn comparisons(&self) -> u64 {
        0
    }
}
