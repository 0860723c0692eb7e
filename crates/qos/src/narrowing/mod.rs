//! Narrows a window for promises that it breaks: the reservation of a disk that keeps few requests
//! outstanding, and the latency target of one that has such a target.
//!
//! # The problem
//! A scheduler decides which request enters the window. It cannot hurry what is inside. A disk
//! that keeps d requests outstanding and sends the next one when one completes gets, by Little's
//! law, `x = d / (Q + D + z)`: Q is the time in the queue, D the time in the window, z the time
//! that its client takes. With reservations due, Q is the wait for one slot. But D is the whole
//! window: where others keep M requests in flight at storage of rate T, it is M/T. With T = 1,000
//! and M = 32 a disk with one request outstanding gets 31 per second, whatever was reserved for
//! it.
//!
//! # The rule
//! Only fewer requests in flight help, so the window gives way. Once a [`PERIOD`] each reserved
//! disk that always has as many requests outstanding as it ever has is judged. If it is short of
//! its reservation r, and waits in the window rather than in the queue, the cycle d/x must become
//! d/r. All of the difference has to come from D, which is proportional to M. With F = x·D for the
//! disk's mean number in flight:
//!
//! > M ← M · (1 - (d/F)·(1 - x/r))
//!
//! M is *work*: what the requests in flight cost, where one counts for no more than about half of
//! the window (`docs/decisions/0056-window-in-cost.md`). A neighbour's requests of 1 MiB are in the
//! way for as long as four small ones each, and the window is right for them at once. Requests that
//! cost one each are as many as their work, and the rule is one for requests.
//!
//! The window becomes the least of these. The aim is 3 % above r, and a disk counts as short
//! below 98.5 % of r, as service times vary. Above it the window grows by 2 % a period, from 1.1·r
//! on by half of what is to spare, and by a quarter where nobody needs it narrow. So it finds out
//! by itself how wide it may be, also where a disk never gets more than r because of its shares.
//!
//! # The rule for latencies
//! A disk with a [`LatencyTarget`](headgate_units::LatencyTarget) is judged by what its requests
//! took from the queue to the end, as soon as so many completed that four may be late. With D the
//! quantile of the target, w what late ones waited in the queue and t the target, what is in the
//! window is to become proportional:
//!
//! > M ← M · (0.85·t - w)/(D - w)
//!
//! It grows by 2 % below 0.85·t, and faster below 0.7·t. Requests that are late because they wait
//! in the queue say nothing of the window: the disk asks for more than its reservation, or in
//! bursts. Then it grows.
//!
//! # When it does not help
//! - A reserved disk that is short *with requests queued* is short of capacity. A narrow window
//!   costs some kinds of storage throughput, so the window grows then, whoever else is short. Nor
//!   is it narrowed at once below the part of it that the reservations need of what the storage
//!   gives, as if that fell in proportion. Where it has not fallen so far, a tenth is risked to
//!   find out.
//! - What a disk gets that waits in the queue rather than in the window does not depend on the
//!   window. That it has its reservation then says nothing, and keeps no window narrow.
//! - Storage that serves requests side by side is no faster for having fewer of them. If D has not
//!   become shorter by a quarter of what M has, the window is opened and the disk's times are taken
//!   anew. The second time in a row, or where a window of its own depth is too wide still, the disk
//!   is left alone for a minute, then two, and so on up to an hour. A window is halved only once
//!   before 32 requests have shown that it helps.
//! - Storage that needs many requests in flight gives the less the narrower the window is. Once all
//!   disks have lost what they had in [`PRICE`] seconds, and targets are still missed, the one that
//!   the window was narrowed for is left alone in the same way, and those that are missed in the
//!   window as it is. What was lost is forgotten once the target is met twice in a row.
//! - When a promise is given up, the window is as wide at once as it was where it kept the promises
//!   to the others, or open.
//! - A disk's own requests are not in its way, so a window is not made narrower than the disk's
//!   depth, nor at all while nobody else is in it.
//! - A disk that is spread over servers gets a part of its reservation at each, and is not judged.
//!
//! # Bounds
//! A window is narrowed to one request at the least, whatever that costs, and never widened beyond
//! the window that the gate was given, in requests or in work. What is in flight is bounded by it
//! as by any other window.
//!
//! # Cost
//! O(1) for each event of a reserved disk, one comparison for others; O(disks) once a period.
//! Nothing is allocated but when disks are registered or get another policy. 288 bytes for a
//! reserved disk, 784 more with a latency target, 8 for others.
//!
//! # Source
//! Little's law; the rest is ours. `docs/decisions/0048-narrow-windows.md`,
//! `docs/decisions/0052-latency-targets.md` and `docs/decisions/0056-window-in-cost.md` have what
//! was dropped.

mod bounds;
mod fit;
mod judgement;
mod latencies;
mod standing;
mod tally;
#[cfg(test)]
mod tests;
mod trial;

use crate::cost::Cost;
use crate::narrow::Narrow;
use crate::policy::Policy;
use crate::scheduler::{DiskCounters, DiskId};
use crate::window::{Slots, WorkWindow};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bounds::{GROWTH, SHRINKING, WHOLE, part};
use headgate_units::Nanos;
use judgement::{Judgement, Permission};
use tally::Tally;

pub use bounds::PERIOD;
pub use standing::{LatencyStanding, LatencyVerdict};

/// How fast the window grows under a disk that has what it needs, in thousandths a period.
const SLOWLY: u64 = 1_020;

/// How slowly it shrinks: to no more than this part a period, in thousandths, down to the next
/// whole number. A window between two of them holds as many requests as the upper one, so a disk
/// that is short by little would want no less.
const STEP: u64 = 950;

/// Where the reservations need all that the storage gives, and a narrow window was not seen to cost
/// any of it, the window shrinks to this part in a period, in thousandths: to find out.
const CAUTIOUS: u64 = 900;

/// What all disks may lose for targets that are tried for, before these are given up: what they
/// had in so many seconds of an open window. Of 32 random set-ups in which no window keeps a
/// target, the worst lost 8, 12, 18 and 23 % in 100 s with 2, 3, 4 and 6, and 84 % without a
/// bound. All 49 in which one does are kept with each.
const PRICE: u64 = 3;

const SECOND: u64 = 1_000_000_000;

/// A rate with what came to it in another period: of the last eight or so, as service varies.
fn smoothed(past: Cost, now: Cost) -> Cost {
    if past == Cost::default() {
        return now;
    }
    past.less(past.part(8)) + now.part(8)
}

/// How a window is narrowed, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrowed {
    /// The disk it was last narrowed for.
    pub disk: DiskId,
    /// And which of its promises.
    pub promise: Promise,
    /// The bound on requests in flight.
    pub window: Slots,
    /// What all disks together got per second before it was narrowed, in reference IOs.
    pub before: Cost,
    /// And in the last period.
    pub now: Cost,
}

/// What is in flight when a request has gone out, that request too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    pub(crate) requests: u32,
    /// As the window counts it, and what the request itself counts for.
    pub(crate) work: Cost,
    pub(crate) own: Cost,
}

/// What a window is narrowed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The least rate of a disk that keeps few requests outstanding.
    Reservation,
    /// A disk's [`LatencyTarget`](headgate_units::LatencyTarget).
    Latency,
}

/// Narrows one gate's window for the promises to its disks.
///
/// The [gate](crate::Gate) says what happens to requests. Times are its caller's clock; a step back
/// counts as no time.
#[derive(Clone)]
pub(crate) struct Narrowing {
    mode: Narrow,
    /// The window of the gate.
    given: WorkWindow,
    /// The bound on it; [`WorkWindow::OPEN`] while it is open.
    bound: WorkWindow,
    /// Reserved disks by their slot.
    disks: Vec<Option<Box<Tally>>>,
    reserved: u32,
    /// Those of them that have a latency target.
    aimed: u32,
    narrowed_for: Option<(DiskId, Promise)>,
    /// The end of the period; [`Nanos::MAX`] while no disk has a reservation.
    due: Nanos,
    began: Nanos,
    /// What all disks were charged in the period.
    cost: Cost,
    before: Cost,
    now: Cost,
    /// What all disks get per second in an open window, over some periods.
    usual: Cost,
    /// What all disks have gone without since targets are tried for.
    lost: Cost,
}

impl Narrowing {
    /// Leaves a window alone until told otherwise.
    pub(crate) fn new(now: Nanos, given: WorkWindow) -> Narrowing {
        Narrowing {
            mode: Narrow::Never,
            given,
            bound: WorkWindow::OPEN,
            disks: Vec::new(),
            reserved: 0,
            aimed: 0,
            narrowed_for: None,
            due: Nanos::MAX,
            began: now,
            cost: Cost::default(),
            before: Cost::default(),
            now: Cost::default(),
            usual: Cost::default(),
            lost: Cost::default(),
        }
    }

    /// Whether the window is narrowed from now on.
    pub(crate) fn set_mode(&mut self, now: Nanos, mode: Narrow) {
        self.mode = mode;
        self.open();
        self.window_is(now, self.window());
        self.plan(now);
    }

    /// Whether it is.
    pub(crate) fn mode(&self) -> Narrow {
        self.mode
    }

    /// A disk is served by other servers too. What it gets here is no more than a part of its
    /// reservation, so nothing is concluded from that.
    #[inline]
    pub(crate) fn served_elsewhere(&mut self, disk: DiskId) {
        if let Some(tally) = self.tally_mut(disk) {
            tally.served_elsewhere();
        }
    }

    /// Begins the first period, or plans none.
    fn plan(&mut self, now: Nanos) {
        let judges = match self.mode {
            Narrow::Never => self.aimed > 0,
            Narrow::ForReservations => self.reserved > 0,
        };
        match (judges, self.due) {
            (false, _) => self.due = Nanos::MAX,
            (true, Nanos::MAX) => self.begin(now),
            (true, _) => {}
        }
    }

    /// What may be in flight.
    pub(crate) fn window(&self) -> WorkWindow {
        self.given.min(self.bound)
    }

    /// The gate's window is another one.
    pub(crate) fn give(&mut self, given: WorkWindow) {
        self.given = given;
    }

    /// How the window is narrowed, while it is.
    pub(crate) fn narrowed(&self) -> Option<Narrowed> {
        let (disk, promise) = self.narrowed_for.filter(|_| self.is_narrowed())?;
        let window = self.window().requests;
        Some(Narrowed { disk, promise, window, before: self.before, now: self.now })
    }

    fn is_narrowed(&self) -> bool {
        self.bound.is_narrower_than(self.given)
    }

    /// The least number of requests that a disk has to keep outstanding for its reservation, where
    /// a narrow window does not help it. As of when it was last tried.
    pub(crate) fn needed_depth(&self, now: Nanos, disk: DiskId) -> Option<u32> {
        self.tally(disk)?.needed(now)
    }

    /// How a disk stands to its latency target; none where it has none or nothing was judged yet.
    pub(crate) fn latency(&self, disk: DiskId) -> Option<LatencyStanding> {
        self.tally(disk)?.standing()
    }

    /// A read or write of a disk completed that waited in the queue and then took so long.
    #[inline]
    pub(crate) fn measured(&mut self, now: Nanos, disk: DiskId, waited: Nanos, device: Nanos) {
        if self.aimed > 0
            && let Some(tally) = self.tally_mut(disk)
        {
            tally.measured(now, waited, device);
        }
    }

    /// A disk has this policy from now on. The counters say what it has outstanding.
    pub(crate) fn set_policy(
        &mut self,
        now: Nanos,
        disk: DiskId,
        policy: &Policy,
        counters: DiskCounters,
    ) {
        let slot = disk.slot as usize;
        let mut tally =
            Tally::new(now, disk.generation, policy, counters, self.window()).map(Box::new);
        if tally.is_none() && slot >= self.disks.len() {
            return;
        }
        if slot >= self.disks.len() {
            self.disks.resize_with(slot + 1, || None);
        }
        let old = self.disks[slot].take();
        let aims = |tally: &Option<Box<Tally>>| {
            u32::from(tally.as_ref().is_some_and(|tally| tally.has_target()))
        };
        self.reserved -= u32::from(old.is_some());
        self.reserved += u32::from(tally.is_some());
        self.aimed -= aims(&old);
        self.aimed += aims(&tally);
        if let (Some(tally), Some(old)) = (&mut tally, old)
            && old.generation == disk.generation
        {
            tally.adopt(&old);
        }
        self.disks[slot] = tally;
        self.plan(now);
        if self.reserved == 0 {
            self.open();
        }
    }

    /// A disk is gone.
    pub(crate) fn forget(&mut self, now: Nanos, disk: DiskId) {
        if self.tally(disk).is_some() {
            self.set_policy(now, disk, &Policy::default(), DiskCounters::default());
        }
    }

    fn tally(&self, disk: DiskId) -> Option<&Tally> {
        let tally = self.disks.get(disk.slot as usize)?.as_deref();
        tally.filter(|tally| tally.generation == disk.generation)
    }

    #[inline]
    fn tally_mut(&mut self, disk: DiskId) -> Option<&mut Tally> {
        let tally = self.disks.get_mut(disk.slot as usize)?.as_deref_mut();
        tally.filter(|tally| tally.generation == disk.generation)
    }

    /// A request was queued.
    #[inline]
    pub(crate) fn queued(&mut self, now: Nanos, disk: DiskId) {
        if let Some(tally) = self.tally_mut(disk) {
            tally.queued(now);
        }
    }

    /// Queued requests were taken back.
    pub(crate) fn taken_back(&mut self, now: Nanos, disk: DiskId, requests: usize) {
        if let Some(tally) = self.tally_mut(disk) {
            tally.taken_back(now, u32::try_from(requests).unwrap_or(u32::MAX));
        }
    }

    /// A request went out at this cost.
    #[inline]
    pub(crate) fn dispatched(&mut self, now: Nanos, disk: DiskId, cost: Cost, beside: Beside) {
        self.cost += cost;
        if let Some(tally) = self.tally_mut(disk) {
            tally.dispatched(now, cost.as_millionths(), beside);
        }
    }

    /// A request completed. Whether the window may have changed.
    #[inline]
    pub(crate) fn completed(&mut self, now: Nanos, disk: DiskId) -> bool {
        if let Some(tally) = self.tally_mut(disk) {
            tally.completed(now);
        }
        let ends = now >= self.due;
        if ends {
            self.end_period(now);
        }
        ends
    }

    fn begin(&mut self, now: Nanos) {
        (self.began, self.due, self.cost) = (now, now + PERIOD, Cost::default());
    }

    fn open(&mut self) {
        self.bound = WorkWindow::OPEN;
        self.narrowed_for = None;
        for tally in self.disks.iter_mut().flatten() {
            tally.forget_before();
        }
    }

    #[cold]
    fn end_period(&mut self, now: Nanos) {
        if self.mode == Narrow::Never {
            for tally in self.disks.iter_mut().flatten() {
                tally.judge_latency(now, Permission::LeaveAlone);
            }
            return self.begin(now);
        }
        let elapsed = now.since(self.began).0.max(1);
        let rate = u128::from(self.cost.as_millionths()) * 1_000_000_000 / u128::from(elapsed);
        self.now = Cost::from_millionths(u64::try_from(rate).unwrap_or(u64::MAX));
        let width = self.window();
        if !self.is_narrowed() {
            (self.before, self.usual) = (self.now, smoothed(self.usual, self.now));
        }
        let least = self.kept_for_reservations(now);
        let mut verdict = self.verdict(now);
        if self.costs_too_much(now, elapsed) {
            self.give_up_targets(now);
            verdict = Verdict::Back;
        }
        self.bound = match verdict {
            Verdict::Keep => self.bound,
            // As wide as it was where it did for those that still need it narrow.
            Verdict::Back => {
                let kept = self.disks.iter().flatten().filter_map(|tally| tally.fitting());
                kept.fold(WorkWindow::OPEN, WorkWindow::min).max(width)
            }
            Verdict::Grow(part) => width.scaled(part, WHOLE),
            Verdict::Narrow(wanted, disk, promise) => {
                self.narrowed_for = Some((disk, promise));
                narrower(width, wanted, least)
            }
        }
        .max(WorkWindow::ONE);
        if !self.is_narrowed() {
            self.open();
        }
        if self.window() != width {
            self.window_is(now, self.window());
        }
        self.begin(now);
    }

    /// How narrow the window may become at once, in thousandths of what it is. Storage may give the
    /// less the narrower the window is, in proportion at the worst, and reservations come first.
    fn kept_for_reservations(&mut self, now: Nanos) -> u64 {
        let tallies = self.disks.iter_mut().flatten();
        let claimed = tallies.fold(Cost::default(), |sum, tally| sum + tally.claim(now));
        let kept = part(claimed.as_millionths(), self.now.as_millionths());
        // Where nothing was lost so far, little is lost next.
        let is_whole = self.now >= self.usual.less(self.usual.part(20));
        kept.min(if is_whole { CAUTIOUS } else { WHOLE })
    }

    /// Leaves the target alone that the window was narrowed for, and those that are missed in the
    /// window as it is. Others may be met where it is wider.
    fn give_up_targets(&mut self, now: Nanos) {
        self.lost = Cost::default();
        let narrowed_for = self.narrowed_for.map(|(disk, _)| disk);
        let mut given_up = false;
        for (slot, tally) in self.disks.iter_mut().enumerate() {
            let Some(tally) = tally else { continue };
            let disk = DiskId { slot: slot as u32, generation: tally.generation };
            let is_behind_it = narrowed_for == Some(disk) || tally.misses_target_now();
            if is_behind_it && tally.is_tried(now) {
                tally.give_up_target(now);
                given_up = true;
            }
        }
        if !given_up {
            let tallies = self.disks.iter_mut().flatten();
            tallies.filter(|t| t.is_tried(now)).for_each(|t| t.give_up_target(now));
        }
    }

    /// Whether all disks have lost as much for targets that are missed as the storage gives in
    /// [`PRICE`]. `elapsed` is what the period took, in nanoseconds.
    fn costs_too_much(&mut self, now: Nanos, elapsed: u64) -> bool {
        let for_target = matches!(self.narrowed_for, Some((_, Promise::Latency)));
        let tried = self.disks.iter().flatten().any(|tally| tally.is_tried(now));
        let in_doubt = self.disks.iter().flatten().any(|tally| tally.is_in_doubt());
        if !for_target || !(tried || in_doubt) || !self.is_narrowed() {
            self.lost = Cost::default();
            return false;
        }
        if !tried {
            return false;
        }
        // A twentieth less is scatter. What is more than that in one period makes up for less in
        // another.
        let due = self.usual.less(self.usual.part(20));
        let in_period = |rate: Cost| {
            let work = u128::from(rate.as_millionths()) * u128::from(elapsed) / u128::from(SECOND);
            Cost::from_millionths(u64::try_from(work).unwrap_or(u64::MAX))
        };
        self.lost = (self.lost + in_period(due)).less(in_period(self.now));
        self.lost > self.usual.times(PRICE)
    }

    fn window_is(&mut self, now: Nanos, window: WorkWindow) {
        self.disks.iter_mut().flatten().for_each(|tally| tally.window_is(now, window));
    }

    /// What all disks together say. Capacity comes first, then who is short, then who is content.
    fn verdict(&mut self, now: Nanos) -> Verdict {
        let (mut least, mut growth) = (None::<(WorkWindow, DiskId, Promise)>, GROWTH);
        let (mut starved, mut kept, mut pending) = (false, false, false);
        let mut useless = false;
        for (slot, tally) in self.disks.iter_mut().enumerate() {
            let Some(tally) = tally else { continue };
            let disk = DiskId { slot: slot as u32, generation: tally.generation };
            let latency = tally.judge_latency(now, Permission::Narrow);
            let reservation = tally.judge(now);
            for (judgement, promise) in
                [(reservation, Promise::Reservation), (latency, Promise::Latency)]
            {
                match judgement {
                    Judgement::None => {}
                    Judgement::Pending => pending = true,
                    Judgement::Kept => kept = true,
                    Judgement::Starved => starved = true,
                    Judgement::Useless | Judgement::GivenUp => useless = true,
                    Judgement::Roomy(part) => {
                        growth = growth.min((part + WHOLE) / 2);
                    }
                    Judgement::Short(wanted) => {
                        if least.is_none_or(|(least, ..)| wanted.requests < least.requests) {
                            least = Some((wanted, disk, promise));
                        }
                    }
                }
            }
        }
        match least {
            _ if starved => Verdict::Grow(GROWTH),
            Some((wanted, disk, promise)) => Verdict::Narrow(wanted, disk, promise),
            None if useless => Verdict::Back,
            None if pending => Verdict::Keep,
            None if kept => Verdict::Grow(SLOWLY),
            None => Verdict::Grow(growth),
        }
    }
}

/// The window that follows one of this width where another is wanted: not much less at once, and
/// not next to nothing less. It holds no fewer reference IOs than requests, and no less than `kept`
/// thousandths of the width.
fn narrower(width: WorkWindow, wanted: WorkWindow, kept: u64) -> WorkWindow {
    if kept >= WHOLE {
        return width;
    }
    let most = width.scaled(STEP, WHOLE).max(width.floor());
    let least = width.scaled(SHRINKING.max(kept), WHOLE).min(most);
    let requests = wanted.requests.clamp(least.requests, most.requests);
    let work = wanted.work.min(most.work).max(WorkWindow::new(requests, Cost::ONE).work);
    WorkWindow { requests, work, most: Cost::from_millionths(work.as_millionths() / 2) }
}

/// What becomes of the bound.
enum Verdict {
    Keep,
    /// To where it was before it was narrowed for a promise that is given up.
    Back,
    /// To so many thousandths.
    Grow(u64),
    /// For this promise to this disk.
    Narrow(WorkWindow, DiskId, Promise),
}
