//! Where the time of disks' requests goes, and which neighbours took it: the definition and the
//! algorithm are in `docs/blame.md`.

mod entry;
mod heap;
mod neighbours;

pub use neighbours::{NEIGHBOURS, Neighbour};

use crate::cost::Cost;
use crate::scheduler::DiskId;
use crate::window::WorkWindow;
use alloc::vec::Vec;
use entry::{Clocks, Entry, Record};
use headgate_units::Nanos;
use heap::Ends;

/// A slice lasts as long at least.
const SLICE_MIN: Nanos = Nanos::from_millis(2);

/// And ends with the first event after this, however few there were.
const SLICE_MAX: Nanos = Nanos::from_millis(20);

/// Events of a slice for each busy disk, unless it ends by its length.
const EVENTS: usize = 8;

/// Disks that are named in a slice.
const NAMED: usize = 8;

/// The time of a disk's requests since it was registered, by what they waited for, in
/// request-nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitTimes {
    /// At the device, or on the way there.
    pub device: u128,
    /// Its own limits.
    pub limit: u128,
    /// Behind its own requests at the device.
    pub own: u128,
    /// A window that is narrower than the widest it was, or that is not whole.
    pub window: u128,
    /// Behind the requests of other disks at the device.
    pub neighbours: u128,
    /// The parts of those that took the most of late, at most [`NEIGHBOURS`].
    pub named: Vec<Neighbour>,
}

/// Why nothing is dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stance {
    /// It may be: the gate is to be asked.
    Passing,
    /// The window is full.
    Full,
    /// There is room, and no request may go.
    Waiting,
}

/// Counts for one gate. O(1) per event, but for what the ends of limits and of slices take.
#[derive(Clone)]
pub(crate) struct Waits {
    /// By slot of the scheduler.
    disks: Vec<Entry>,
    records: Vec<Record>,
    /// Slots of disks that had something under way in this slice.
    busy: Vec<u32>,
    ends: Ends,
    now: Nanos,
    clocks: Clocks,
    stance: Stance,
    /// Queued requests that no limit forbids.
    ready: u64,
    in_flight: u64,
    /// Costs in flight, in millionths: a whole number.
    work: f64,
    /// Of these, of disks that are gone.
    gone: f64,
    /// Those over the clock by work in this slice, less what stands now times the clock now.
    gone_at_device: f64,
    is_narrowed: bool,
    widest: WorkWindow,
    began: Nanos,
    events: usize,
}

impl Waits {
    pub(crate) fn new(now: Nanos, window: WorkWindow) -> Waits {
        Waits {
            disks: Vec::new(),
            records: Vec::new(),
            busy: Vec::new(),
            ends: Ends::default(),
            now,
            clocks: Clocks::default(),
            stance: Stance::Passing,
            ready: 0,
            in_flight: 0,
            work: 0.0,
            gone: 0.0,
            gone_at_device: 0.0,
            is_narrowed: false,
            widest: window,
            began: now,
            events: 0,
        }
    }

    /// A disk that has nothing under way. All that its requests will need is allocated here.
    pub(crate) fn register(&mut self, disk: DiskId) {
        let slot = disk.slot as usize;
        if self.disks.len() <= slot {
            self.disks.resize_with(slot + 1, Entry::default);
            self.records.resize_with(slot + 1, Record::default);
            let more = self.disks.len() - self.busy.len();
            self.busy.reserve(more);
            self.ends.reserve(2 * self.disks.len());
        }
        let is_busy = self.disks[slot].is_busy;
        let generation = disk.generation;
        self.disks[slot] = Entry { generation, is_busy, ..Entry::default() };
        self.records[slot] = Record::with_room();
    }

    /// It is gone, with all that it had queued.
    pub(crate) fn unregister(&mut self, now: Nanos, disk: DiskId) {
        let Some(slot) = self.touch(now, disk) else { return };
        let entry = &mut self.disks[slot];
        if !entry.is_limited {
            self.ready = self.ready.saturating_sub(u64::from(entry.queued));
        }
        self.gone += entry.cost;
        // What its requests at the device took of this slice is nobody's.
        self.gone_at_device += entry.at_device(&self.clocks) - entry.cost * self.clocks.by_work;
        *entry = Entry { is_busy: true, ..Entry::default() };
        self.records[slot] = Record::default();
    }

    /// A request was queued. `until` is until when limits forbid all that the disk has queued.
    #[inline]
    pub(crate) fn queued(&mut self, now: Nanos, disk: DiskId, until: Option<Nanos>) {
        let Some(slot) = self.touch(now, disk) else { return };
        let entry = &mut self.disks[slot];
        if !entry.is_limited {
            self.ready += 1;
        }
        entry.queue(&self.clocks);
        self.limit(slot, until);
        if self.stance == Stance::Waiting {
            self.stance = Stance::Passing;
        }
        self.end_event();
    }

    /// One was dispatched at this cost.
    #[inline]
    pub(crate) fn dispatched(
        &mut self,
        now: Nanos,
        disk: DiskId,
        cost: Cost,
        until: Option<Nanos>,
    ) {
        let Some(slot) = self.touch(now, disk) else { return };
        let cost = cost.as_millionths() as f64;
        let entry = &mut self.disks[slot];
        if !entry.is_limited {
            self.ready = self.ready.saturating_sub(1);
        }
        entry.dispatch(&self.clocks, cost);
        self.in_flight += 1;
        self.work += cost;
        self.limit(slot, until);
        self.stance = Stance::Passing;
        self.end_event();
    }

    /// The gate was asked and dispatches nothing.
    #[inline]
    pub(crate) fn answered(&mut self, now: Nanos, stance: Stance) {
        if self.stance != stance {
            self.advance(now);
            self.stance = stance;
        }
    }

    /// A request that was dispatched at this cost ended.
    #[inline]
    pub(crate) fn completed(&mut self, now: Nanos, disk: DiskId, cost: Cost) {
        let cost = cost.as_millionths() as f64;
        match self.touch(now, disk) {
            Some(slot) if self.disks[slot].in_flight > 0 => {
                self.disks[slot].complete(&self.clocks, cost);
            }
            Some(_) => return,
            None => {
                self.advance(now);
                self.gone_at_device += self.gone.min(cost) * self.clocks.by_work;
                self.gone = (self.gone - cost).max(0.0);
            }
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        self.work = (self.work - cost).max(0.0);
        self.stance = Stance::Passing;
        self.end_event();
    }

    /// A disk's queue or its limits are others than before, for another reason.
    pub(crate) fn changed(
        &mut self,
        now: Nanos,
        disk: DiskId,
        queued: usize,
        until: Option<Nanos>,
    ) {
        let Some(slot) = self.touch(now, disk) else { return };
        let entry = &mut self.disks[slot];
        if !entry.is_limited {
            self.ready = self.ready.saturating_sub(u64::from(entry.queued)) + queued as u64;
        }
        entry.change(&self.clocks, |entry| entry.queued = queued as u32);
        self.limit(slot, until);
        self.stance = Stance::Passing;
    }

    /// The window is another.
    pub(crate) fn set_window(&mut self, now: Nanos, window: WorkWindow) {
        self.advance(now);
        self.widest = self.widest.max(window);
        self.is_narrowed = window != self.widest;
        self.stance = Stance::Passing;
    }

    /// The times of a disk up to now.
    pub(crate) fn of(&mut self, now: Nanos, disk: DiskId) -> Option<WaitTimes> {
        self.advance(now);
        if self.now > self.began || self.events > 0 {
            self.end_slice();
        }
        let slot = self.known(disk)?;
        Some(self.records[slot].read())
    }

    fn known(&self, disk: DiskId) -> Option<usize> {
        let slot = disk.slot as usize;
        (self.disks.get(slot)?.generation == disk.generation).then_some(slot)
    }

    /// Brings the clocks and the disk up to now, before it changes.
    #[inline]
    fn touch(&mut self, now: Nanos, disk: DiskId) -> Option<usize> {
        let slot = self.known(disk)?;
        self.advance(now);
        let entry = &mut self.disks[slot];
        if !entry.is_busy {
            entry.is_busy = true;
            self.busy.push(slot as u32);
        }
        Some(slot)
    }

    #[inline]
    fn advance(&mut self, now: Nanos) {
        if now <= self.now {
            return;
        }
        while let Some((end, slot)) = self.ends.first()
            && end <= now
        {
            self.ends.pop();
            self.end_limit(end, slot as usize);
        }
        self.run(now);
    }

    /// Nothing changes until then.
    #[inline]
    fn run(&mut self, now: Nanos) {
        let passed = now.since(self.now).0 as f64;
        self.now = self.now.max(now);
        let windows_part = self.windows_part();
        let clocks = &mut self.clocks;
        clocks.passed += passed;
        match self.stance {
            Stance::Passing => clocks.passing += passed,
            Stance::Waiting => clocks.window += passed,
            Stance::Full => {
                let behind = (1.0 - windows_part) * passed;
                clocks.window += windows_part * passed;
                clocks.behind += behind;
                clocks.by_work += behind / self.work.max(1.0);
            }
        }
    }

    /// The part of a full window's waiting that it has for being narrower than the widest.
    #[inline]
    fn windows_part(&self) -> f64 {
        if self.in_flight == 0 {
            return 1.0;
        }
        if !self.is_narrowed || self.ready == 0 {
            return 0.0;
        }
        let (n, work) = (self.in_flight as f64, self.work.max(1.0));
        let slots = self.widest.requests.as_f64() - n;
        let by_work = n * (self.widest.work.as_millionths() as f64 - work) / work;
        (slots.min(by_work).max(0.0) / self.ready as f64).min(1.0)
    }

    /// Limits forbid all that a disk has queued until then, or do not.
    #[inline]
    fn limit(&mut self, slot: usize, until: Option<Nanos>) {
        let entry = &mut self.disks[slot];
        let until = until.filter(|until| *until > self.now && entry.queued > 0);
        if until.is_none() && !entry.is_limited {
            return;
        }
        let queued = u64::from(entry.queued);
        match (entry.is_limited, until.is_some()) {
            (false, true) => self.ready = self.ready.saturating_sub(queued),
            (true, false) => self.ready += queued,
            _ => {}
        }
        entry.change(&self.clocks, |entry| entry.is_limited = until.is_some());
        entry.until = until.unwrap_or(Nanos::ZERO);
        if let Some(until) = until
            && until < entry.awaited
        {
            entry.awaited = until;
            self.ends.push(until, slot as u32);
        }
    }

    /// An instant has come for which a disk's limit was to end.
    fn end_limit(&mut self, end: Nanos, slot: usize) {
        let entry = &self.disks[slot];
        if entry.awaited != end {
            return;
        }
        let (limited, until) = (entry.is_limited, entry.until);
        if limited && until > end {
            self.disks[slot].awaited = until;
            self.ends.push(until, slot as u32);
            return;
        }
        if limited {
            self.run(end);
            let entry = &mut self.disks[slot];
            entry.change(&self.clocks, |entry| entry.is_limited = false);
            self.ready += u64::from(entry.queued);
        }
        self.disks[slot].awaited = Nanos::MAX;
    }

    #[inline]
    fn end_event(&mut self) {
        self.events += 1;
        let length = self.now.since(self.began);
        if length >= SLICE_MIN && (self.events >= EVENTS * self.busy.len() || length >= SLICE_MAX) {
            self.end_slice();
        }
    }

    /// Divides what each disk waited behind others in this slice among them. O(busy).
    #[inline(never)]
    fn end_slice(&mut self) {
        let clocks = core::mem::take(&mut self.clocks);
        let mut all = core::mem::take(&mut self.gone_at_device) + self.gone * clocks.by_work;
        let mut top = Top::default();
        for &slot in &self.busy {
            let entry = &self.disks[slot as usize];
            let at_device = entry.at_device(&clocks);
            all += at_device;
            if at_device > top.least()
                && let Some(disk) = entry.disk(slot)
            {
                top.enter(disk, at_device);
            }
        }
        let (disks, records) = (&mut self.disks, &mut self.records);
        self.busy.retain(|&slot| {
            let entry = &mut disks[slot as usize];
            let slice = entry.end_slice(&clocks);
            if let Some(disk) = entry.disk(slot) {
                records[slot as usize].add(disk, &slice, all, &top);
            }
            entry.is_busy = entry.queued > 0 || entry.in_flight > 0;
            entry.is_busy
        });
        self.began = self.now;
        self.events = 0;
    }
}

/// Who was at the device most in a slice, the most first.
#[derive(Clone, Default)]
struct Top {
    named: [Option<(DiskId, f64)>; NAMED],
    count: usize,
}

impl Top {
    #[inline]
    fn least(&self) -> f64 {
        self.named[NAMED - 1].map_or(0.0, |(_, part)| part)
    }

    fn enter(&mut self, disk: DiskId, part: f64) {
        let before = self.named[..self.count].iter().flatten();
        let place = before.take_while(|(_, other)| *other >= part).count();
        self.count = (self.count + 1).min(NAMED);
        self.named[place..self.count].rotate_right(1);
        self.named[place] = Some((disk, part));
    }

    fn iter(&self) -> impl Iterator<Item = (DiskId, f64)> + '_ {
        self.named[..self.count].iter().flatten().copied()
    }
}
