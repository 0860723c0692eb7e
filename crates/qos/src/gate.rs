//! The gate: scheduler, pacer and latency meter of one datastore.

use crate::any::{AnyScheduler, SchedulerKind};
use crate::blame::{Stance, WaitTimes, Waits};
use crate::config::Adjustment;
use crate::cost::{Cost, Io};
use crate::dmclock::ServedElsewhere;
use crate::learned_cost::{CostLearner, LearnedCosts};
use crate::mclock::grouped::{Groups, GroupsError};
use crate::narrow::Narrow;
use crate::narrowing::{Beside, LatencyStanding, Narrowed, Narrowing};
use crate::policy::Policy;
use crate::priority::PriorityPolicy;
use crate::scheduler::{Decision, DiskCounters, DiskId, Rejected, Scheduler, UnknownDisk};
use crate::window::{Admission, LatencyMeter, Observation, Pacer, Slots, WorkWindow};
use alloc::boxed::Box;
use alloc::vec::Vec;
use headgate_units::{Bytes, Nanos};

/// A [scheduler](AnyScheduler), the [pacer](Pacer) that keeps what it dispatches within a window,
/// and, where wanted, a [meter](LatencyMeter) of what the storage behind takes.
///
/// The daemon has one for each datastore, the simulator one for each datastore of each host and one
/// for each storage node that schedules. Both drive it the same way.
///
/// # Contract
/// - Events come in with the time at which they happened: [`enqueue`](Gate::enqueue),
///   [`complete`](Gate::complete), [`set_window`](Gate::set_window), changes of policies and disks.
///   Times are the caller's monotonic clock. A step back counts as no time.
/// - After one event or several, while [`is_due`](Gate::is_due) holds, the caller asks
///   [`next`](Gate::next) until it no longer says [`Decision::Dispatch`]. It may break off earlier and
///   go on later: the gate stays due until it has said that there is nothing to send.
/// - Each dispatched request ends in exactly one [`complete`](Gate::complete), also when it failed,
///   and also when its disk was unregistered in between. The caller gives back the cost that the
///   request was [dispatched](crate::Dispatched::cost) at. Before or after, it may
///   [`measure`](Gate::measure) the request.
/// - [`next_wake`](Gate::next_wake) is the time of the last [`Decision::WaitUntil`]. It holds until
///   `next` is asked again, and no other call changes it. A gate that is due needs no timer: it
///   is to be asked now. Waking a gate early or without need costs a call and changes nothing.
///
/// The window bounds what is dispatched and not completed, in requests and in work: a request may
/// go while fewer are in flight than the window, and less work than that of as many requests of
/// 1 MiB, by the scheduler's cost model, where none counts for more than about half of it
/// (`docs/decisions/0056-window-in-cost.md`). So a window of 32 requests is just that for requests
/// of up to 1 MiB, and larger ones are fewer. Under
/// [`CostModel::Unit`](crate::CostModel::Unit) work is the number of requests, and nothing else
/// counts.
///
/// A whole window needs no timer; a fractional one does: see [`Pacer`]. While nothing is queued the
/// gate asks for no timer, whatever the pacer owes: a request that arrives makes the gate due.
///
/// # Complexity
/// Nothing allocates beyond what the scheduler's queues need. [`next`](Gate::next) and
/// [`enqueue`](Gate::enqueue) are O(log n) in the disks with queued requests, and
/// [`complete`](Gate::complete), [`measure`](Gate::measure) and [`set_window`](Gate::set_window)
/// O(1).
#[derive(Clone)]
pub struct Gate<R> {
    scheduler: AnyScheduler<R>,
    pacer: Pacer,
    /// As it was set.
    given: Slots,
    meter: Option<LatencyMeter>,
    narrowing: Narrowing,
    /// As it was set.
    narrow: Narrow,
    /// Where the scheduler charges by what is learned.
    learner: Option<Box<CostLearner>>,
    /// Where the time of requests goes; none where nobody asks.
    waits: Option<Waits>,
    /// Of the last answer.
    wake: Option<Nanos>,
    /// An event came after the last answer, or the last answer was a request.
    changed: bool,
}

/// What a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// From when it was queued until it was dispatched.
    pub queued: Nanos,
    /// From then on until it completed.
    pub device: Nanos,
}

impl<R> Gate<R> {
    /// A gate without requests in flight. Its window gives way to reservations as the scheduler's
    /// [configuration](crate::Config::narrow) says. It measures nothing until [`Gate::set_meter`].
    pub fn new(now: Nanos, mut scheduler: AnyScheduler<R>, window: Slots) -> Gate<R> {
        let learn = |reference| Box::new(CostLearner::new(now, reference));
        let learner = scheduler.charging().learns_from().map(learn);
        let (given, window) = (window, WorkWindow::new(window, scheduler.charging().slot()));
        let pacer = Pacer::new(now, window);
        let mut narrowing = Narrowing::new(now, window);
        let narrow = scheduler.narrow();
        narrowing.set_mode(now, narrow);
        Gate {
            scheduler,
            pacer,
            given,
            meter: None,
            narrowing,
            narrow,
            learner,
            waits: Some(Waits::new(now, window)),
            wake: None,
            changed: false,
        }
    }

    /// The same gate without [`wait_times`](Gate::wait_times), which cost each request some 25 ns:
    /// for a simulation that does not ask.
    #[must_use]
    pub fn without_wait_times(self) -> Gate<R> {
        Gate { waits: None, ..self }
    }

    /// The scheduler, to read from.
    #[inline]
    pub fn scheduler(&self) -> &AnyScheduler<R> {
        &self.scheduler
    }

    /// The window in force: the one that was set, or less while it is
    /// [narrowed](Gate::narrowed).
    pub fn window(&self) -> Slots {
        self.pacer.window().requests
    }

    /// The same in work: what is in flight costs less when a request goes. Never less than the
    /// window, counted in reference IOs.
    pub fn work_window(&self) -> Cost {
        self.pacer.window().work
    }

    /// How the window is narrowed for a reservation, while it is.
    pub fn narrowed(&self) -> Option<Narrowed> {
        self.narrowing.narrowed()
    }

    /// The least number of requests that this disk has to keep outstanding to get its reservation,
    /// where it keeps fewer and a narrow window did not help when that was last tried.
    pub fn needed_depth(&self, now: Nanos, disk: DiskId) -> Option<u32> {
        self.narrowing.needed_depth(now, disk)
    }

    /// Whether the window is [narrowed](Narrow) for reservations from now on. Schedulers without
    /// reservations never have it so, nor have gates that measure latencies: their windows follow
    /// those, together with other hosts.
    pub fn set_narrow(&mut self, now: Nanos, narrow: Narrow) {
        self.narrow = narrow;
        let keeps = self.scheduler.kind() == SchedulerKind::MClock && self.meter.is_none();
        let mode = if keeps { narrow } else { Narrow::Never };
        if mode != self.narrowing.mode() {
            self.narrowing.set_mode(now, mode);
            self.follow_narrowing(now);
        }
    }

    fn follow_narrowing(&mut self, now: Nanos) {
        self.changed = true;
        let window = self.narrowing.window();
        if window != self.pacer.window() {
            if let Some(waits) = &mut self.waits {
                waits.set_window(now, window);
            }
            self.pacer.set_window(now, window);
        }
    }

    /// Requests dispatched and not completed.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.pacer.in_flight()
    }

    /// What they cost together.
    #[inline]
    pub fn work_in_flight(&self) -> Cost {
        self.pacer.work()
    }

    /// Requests queued, all disks.
    #[inline]
    pub fn queued(&self) -> usize {
        self.scheduler.queued()
    }

    /// Whether [`next`](Gate::next) may have something new to say: an event came since it was last
    /// asked, it was not asked to the end, or its timer has run out.
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.changed || self.wake.is_some_and(|at| at <= now)
    }

    /// When to ask [`next`](Gate::next) although nothing happened.
    #[inline]
    pub fn next_wake(&self) -> Option<Nanos> {
        self.wake
    }

    /// What to do now. [`Decision::Idle`] also where the window is full: ask again after the next
    /// event.
    #[inline]
    pub fn next(&mut self, now: Nanos) -> Decision<R> {
        self.changed = false;
        self.wake = None;
        match self.pacer.admit(now) {
            Admission::Now => {}
            Admission::None => {
                self.note_full(now);
                self.note_answer(now, Stance::Full);
                return Decision::Idle;
            }
            Admission::At(_) if self.scheduler.queued() == 0 => return Decision::Idle,
            Admission::At(at) => {
                self.note_full(now);
                self.note_answer(now, Stance::Full);
                self.wake = Some(at);
                return Decision::WaitUntil(at);
            }
        }
        let decision = self.scheduler.dispatch(now);
        if let Some(learner) = &mut self.learner {
            learner.decided(now, &decision);
        }
        match decision {
            Decision::Dispatch(ref sent) => {
                self.pacer.dispatched(now, sent.cost);
                let beside = Beside {
                    requests: self.pacer.in_flight(),
                    work: self.pacer.work(),
                    own: self.pacer.counts(sent.cost),
                };
                self.narrowing.dispatched(now, sent.disk, sent.cost, beside);
                if let Some(waits) = &mut self.waits {
                    let until = self.scheduler.limited_until(sent.disk);
                    waits.dispatched(now, sent.disk, sent.cost, until);
                    if let AnyScheduler::Grouped(grouped) = &self.scheduler {
                        for (disk, queued) in grouped.held_with(sent.disk) {
                            waits.changed(now, disk, queued, grouped.limited_until(disk));
                        }
                    }
                }
                self.changed = true;
            }
            Decision::WaitUntil(at) => {
                self.note_answer(now, Stance::Waiting);
                self.wake = Some(at);
            }
            Decision::Idle => self.note_answer(now, Stance::Waiting),
        }
        decision
    }

    #[inline]
    fn note_answer(&mut self, now: Nanos, stance: Stance) {
        if let Some(waits) = &mut self.waits {
            waits.answered(now, stance);
        }
    }

    #[inline]
    fn note_full(&mut self, now: Nanos) {
        if let Some(learner) = &mut self.learner
            && let Some(costs) = learner.filled(now, self.pacer.in_flight())
        {
            self.scheduler.set_costs(costs);
            self.give();
            if self.narrowing.window() != self.pacer.window() {
                self.follow_narrowing(now);
            }
        }
    }

    /// What was learned of the costs of requests; `None` where they are declared
    /// ([`Config::cost_model`](crate::Config::cost_model)).
    pub fn learned_costs(&self) -> Option<LearnedCosts> {
        self.learner.as_ref().map(|learner| learner.report())
    }

    /// Queues a request: see [`Scheduler::enqueue`].
    ///
    /// # Errors
    /// [`Rejected`] returns the request when the disk was unregistered.
    #[inline]
    pub fn enqueue(
        &mut self,
        now: Nanos,
        disk: DiskId,
        io: Io,
        request: R,
    ) -> Result<(), Rejected<R>> {
        self.changed = true;
        self.scheduler.enqueue(now, disk, io, request)?;
        self.note_queued(now, disk);
        Ok(())
    }

    /// The disk received service at other servers: see [`Scheduler::served_elsewhere`].
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered.
    pub fn served_elsewhere(
        &mut self,
        now: Nanos,
        disk: DiskId,
        elsewhere: ServedElsewhere,
    ) -> Result<(), UnknownDisk> {
        if elsewhere.is_none() {
            return Ok(());
        }
        self.changed = true;
        self.scheduler.served_elsewhere(now, disk, elsewhere)?;
        self.narrowing.served_elsewhere(disk);
        self.note_changed(now, disk);
        Ok(())
    }

    /// Queues a request that says what its disk received at other servers: see
    /// [`Scheduler::enqueue_dmclock`].
    ///
    /// # Errors
    /// [`Rejected`] returns the request when the disk was unregistered.
    #[inline]
    pub fn enqueue_dmclock(
        &mut self,
        now: Nanos,
        disk: DiskId,
        io: Io,
        elsewhere: ServedElsewhere,
        request: R,
    ) -> Result<(), Rejected<R>> {
        self.changed = true;
        self.scheduler.enqueue_dmclock(now, disk, io, elsewhere, request)?;
        if !elsewhere.is_none() {
            self.narrowing.served_elsewhere(disk);
        }
        self.note_queued(now, disk);
        Ok(())
    }

    #[inline]
    fn note_queued(&mut self, now: Nanos, disk: DiskId) {
        self.narrowing.queued(now, disk);
        if let Some(waits) = &mut self.waits {
            waits.queued(now, disk, self.scheduler.limited_until(disk));
        }
    }

    /// The disk's queue, or what its limits say of it, is another.
    fn note_changed(&mut self, now: Nanos, disk: DiskId) {
        let Some(waits) = &mut self.waits else { return };
        let (queued, until) = (self.scheduler.queued_of(disk), self.scheduler.limited_until(disk));
        waits.changed(now, disk, queued, until);
    }

    /// Where the time of a disk's requests went since it was registered: see `docs/blame.md`.
    /// `None` when it was unregistered, or nothing is counted. The first call at an instant is O(n)
    /// in the busy disks, the others O(1).
    pub fn wait_times(&mut self, now: Nanos, disk: DiskId) -> Option<WaitTimes> {
        self.waits.as_mut()?.of(now, disk)
    }

    /// A request of the disk that was dispatched at this cost ended, well or not. A disk that was
    /// unregistered in between counts in the window all the same. What requests cost may have
    /// changed meanwhile: the cost is what [`Decision::Dispatch`] said.
    #[inline]
    pub fn complete(&mut self, now: Nanos, disk: DiskId, cost: Cost) {
        self.changed = true;
        self.pacer.completed(now, cost);
        if let Some(waits) = &mut self.waits {
            waits.completed(now, disk, cost);
        }
        self.scheduler.complete(now, disk);
        if self.narrowing.completed(now, disk) {
            self.follow_narrowing(now);
        }
    }

    /// Records what a read or write that succeeded took: the time in the queue, and that from
    /// dispatch to completion. The meter, where there is one, goes by the latter alone, and a
    /// disk's [latency target](Policy::latency_target) by both.
    #[inline]
    pub fn measure(&mut self, now: Nanos, disk: DiskId, took: Took, bytes: Bytes) {
        if let Some(meter) = &mut self.meter {
            meter.record(took.device, bytes);
        }
        self.narrowing.measured(now, disk, took.queued, took.device);
    }

    /// How a disk stands to its latency target; none where it has none, asks for nothing, or has
    /// not been judged yet.
    pub fn latency(&self, disk: DiskId) -> Option<LatencyStanding> {
        self.narrowing.latency(disk)
    }

    /// Has latencies measured from now on, or no more. Forgets what was measured so far.
    pub fn set_meter(&mut self, now: Nanos, meter: Option<LatencyMeter>) {
        self.meter = meter;
        self.set_narrow(now, self.narrow);
    }

    /// Ends a period of the meter: see [`LatencyMeter::take`]. `None` where there is no meter or
    /// nothing was measured.
    pub fn take_latency(&mut self) -> Option<Observation> {
        self.meter.as_mut().and_then(LatencyMeter::take)
    }

    /// Changes the window from the next answer on. Requests in flight stay so. While the window is
    /// narrowed it stays as narrow.
    pub fn set_window(&mut self, now: Nanos, window: Slots) {
        self.given = window;
        self.give();
        self.follow_narrowing(now);
    }

    fn give(&mut self) {
        let slot = self.scheduler.charging().slot();
        self.narrowing.give(WorkWindow::new(self.given, slot));
    }

    /// Adds a disk: see [`Scheduler::register`].
    pub fn register(&mut self, now: Nanos, policy: Policy) -> DiskId {
        let disk = self.scheduler.register(now, policy);
        self.narrowing.set_policy(now, disk, &policy, DiskCounters::default());
        if let Some(waits) = &mut self.waits {
            waits.register(disk);
        }
        disk
    }

    /// Removes a disk: see [`Scheduler::unregister`].
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered before.
    pub fn unregister(&mut self, now: Nanos, disk: DiskId) -> Result<Vec<R>, UnknownDisk> {
        self.narrowing.forget(now, disk);
        self.follow_narrowing(now);
        if let Some(waits) = &mut self.waits {
            waits.unregister(now, disk);
        }
        self.scheduler.unregister(now, disk)
    }

    /// Takes queued requests out of the queue: see [`Scheduler::extract`].
    ///
    /// # Errors
    /// [`UnknownDisk`] when the disk was unregistered.
    pub fn extract(
        &mut self,
        now: Nanos,
        disk: DiskId,
        wanted: &mut dyn FnMut(&R) -> bool,
    ) -> Result<Vec<R>, UnknownDisk> {
        self.changed = true;
        let taken = self.scheduler.extract(now, disk, wanted)?;
        self.narrowing.taken_back(now, disk, taken.len());
        self.note_changed(now, disk);
        Ok(taken)
    }

    /// Changes a disk's policy: see [`Scheduler::set_policy`].
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered.
    pub fn set_policy(
        &mut self,
        now: Nanos,
        disk: DiskId,
        policy: Policy,
    ) -> Result<(), UnknownDisk> {
        self.scheduler.set_policy(now, disk, policy)?;
        let counters = self.scheduler.counters(disk)?;
        self.narrowing.set_policy(now, disk, &policy, counters);
        self.follow_narrowing(now);
        self.note_changed(now, disk);
        Ok(())
    }

    /// Changes what a disk's priorities are worth: see [`Scheduler::set_priorities`].
    ///
    /// # Errors
    /// [`UnknownDisk`] when it was unregistered.
    pub fn set_priorities(
        &mut self,
        now: Nanos,
        disk: DiskId,
        policy: PriorityPolicy,
    ) -> Result<(), UnknownDisk> {
        self.changed = true;
        self.scheduler.set_priorities(now, disk, policy)?;
        self.note_changed(now, disk);
        Ok(())
    }

    /// Makes the groups of disks what is said: see [`AnyScheduler::set_groups`]. O(n log n) in
    /// groups and disks, and in the requests queued of disks whose place is another.
    ///
    /// # Errors
    /// [`GroupsError`]. Nothing was changed then.
    pub fn set_groups(&mut self, now: Nanos, groups: &Groups) -> Result<(), GroupsError> {
        self.changed = true;
        self.scheduler.set_groups(now, groups)?;
        for disk in self.scheduler.disks() {
            self.note_changed(now, disk);
        }
        Ok(())
    }

    /// Changes what can be changed while disks are served: see [`Scheduler::adjust`].
    pub fn adjust(&mut self, adjustment: Adjustment) {
        self.changed = true;
        self.scheduler.adjust(adjustment);
    }
}

#[cfg(test)]
mod tests;
