//! What is counted of one disk.

use super::neighbours::Neighbours;
use super::{Top, WaitTimes};
use crate::scheduler::DiskId;
use headgate_units::Nanos;

/// The datastore's clocks, from the beginning of the slice on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clocks {
    pub(super) passed: f64,
    /// Time for which queued requests wait behind those at the device.
    pub(super) behind: f64,
    /// The same over the work at the device.
    pub(super) by_work: f64,
    /// Time for which they wait for the window.
    pub(super) window: f64,
    /// Time for which they wait for the next look at the queue.
    pub(super) passing: f64,
}

/// What a slot without a disk has.
const NONE: u32 = u32::MAX;

/// One disk, or a slot without: what each event reads and writes. Two cache lines.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Entry {
    /// Of the disk that has the slot.
    pub(super) generation: u32,
    pub(super) queued: u32,
    pub(super) in_flight: u32,
    pub(super) is_busy: bool,
    /// Whether limits forbid all that is queued.
    pub(super) is_limited: bool,
    /// What is in flight costs, in millionths: a whole number.
    pub(super) cost: f64,
    /// Of this slice: integrals over the clocks, less what stands now times the clocks now.
    pub(super) slice: Sums,
    /// Until when limits forbid all that is queued, where they do.
    pub(super) until: Nanos,
    /// The instant that stands for it among the ends of limits.
    pub(super) awaited: Nanos,
}

const _: () = assert!(size_of::<Entry>() <= 128, "an event reads two cache lines");

/// Request-nanoseconds of a slice, and `cost` over [`Clocks::by_work`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) at_device: f64,
    device: f64,
    limit: f64,
    window: f64,
    behind: f64,
    own: f64,
}

/// One disk's times since it was registered, in request-nanoseconds.
#[derive(Clone, Default)]
pub(super) struct Record {
    times: WaitTimes,
    neighbours: Neighbours,
}

impl Default for Entry {
    fn default() -> Entry {
        Entry {
            generation: NONE,
            queued: 0,
            in_flight: 0,
            is_busy: false,
            is_limited: false,
            cost: 0.0,
            slice: Sums::default(),
            until: Nanos::ZERO,
            awaited: Nanos::MAX,
        }
    }
}

impl Entry {
    /// The disk of this slot, if there is one.
    #[inline]
    pub(super) fn disk(&self, slot: u32) -> Option<DiskId> {
        (self.generation != NONE).then_some(DiskId { slot, generation: self.generation })
    }

    /// Queued requests that no limit forbids.
    #[inline]
    fn ready(&self) -> f64 {
        if self.is_limited { 0.0 } else { f64::from(self.queued) }
    }

    /// Takes what stands out of the integrals, or puts it in: between the two it may change.
    #[inline]
    fn hang(&mut self, clocks: &Clocks, sign: f64) {
        let (ready, at_device) = (self.ready() * sign, f64::from(self.in_flight) * sign);
        let held = f64::from(self.queued) * sign - ready;
        let by_work = self.cost * clocks.by_work;
        let sums = &mut self.slice;
        sums.at_device += sign * by_work;
        sums.device += at_device * clocks.passed + ready * clocks.passing;
        sums.limit += held * clocks.passed;
        sums.window += ready * clocks.window;
        sums.behind += ready * clocks.behind;
        sums.own += ready * by_work;
    }

    /// One request more is queued; or one less, where the sign is negative.
    ///
    /// `∫ R dB` is `R·B` at the end less `ΔR·B` at each change: nothing needs to be known of when
    /// the last one was.
    #[inline]
    fn count_queued(&mut self, clocks: &Clocks, sign: f64) {
        let sums = &mut self.slice;
        if self.is_limited {
            sums.limit -= sign * clocks.passed;
            return;
        }
        sums.device -= sign * clocks.passing;
        sums.window -= sign * clocks.window;
        sums.behind -= sign * clocks.behind;
        sums.own -= sign * (self.cost * clocks.by_work);
    }

    /// One request more at the device of this cost, or one less.
    #[inline]
    fn count_at_device(&mut self, clocks: &Clocks, sign: f64, cost: f64) {
        let by_work = sign * (cost * clocks.by_work);
        let ready = self.ready();
        let sums = &mut self.slice;
        sums.device -= sign * clocks.passed;
        sums.at_device -= by_work;
        sums.own -= ready * by_work;
        self.cost += sign * cost;
    }

    #[inline]
    pub(super) fn queue(&mut self, clocks: &Clocks) {
        self.count_queued(clocks, 1.0);
        self.queued += 1;
    }

    #[inline]
    pub(super) fn dispatch(&mut self, clocks: &Clocks, cost: f64) {
        self.count_queued(clocks, -1.0);
        self.queued = self.queued.saturating_sub(1);
        self.count_at_device(clocks, 1.0, cost);
        self.in_flight += 1;
    }

    #[inline]
    pub(super) fn complete(&mut self, clocks: &Clocks, cost: f64) {
        self.count_at_device(clocks, -1.0, cost);
        self.in_flight -= 1;
    }

    /// Changes anything of what the disk has under way.
    pub(super) fn change(&mut self, clocks: &Clocks, change: impl FnOnce(&mut Entry)) {
        self.hang(clocks, 1.0);
        change(self);
        self.hang(clocks, -1.0);
    }

    /// What a slice came to that ends now. What stands goes on in the next.
    pub(super) fn end_slice(&mut self, clocks: &Clocks) -> Sums {
        self.hang(clocks, 1.0);
        core::mem::take(&mut self.slice)
    }

    /// So long its requests were at the device so far, in this slice.
    pub(super) fn at_device(&self, clocks: &Clocks) -> f64 {
        self.slice.at_device + self.cost * clocks.by_work
    }
}

impl Record {
    pub(super) fn with_room() -> Record {
        Record { times: WaitTimes::default(), neighbours: Neighbours::with_room() }
    }

    /// Adds a disk's slice, in which all disks together were `all` at the device.
    pub(super) fn add(&mut self, disk: DiskId, slice: &Sums, all: f64, top: &Top) {
        let own = slice.own.min(slice.behind);
        let others = slice.behind - own;
        let times = &mut self.times;
        times.device += slice.device as u128;
        times.limit += slice.limit as u128;
        times.window += slice.window as u128;
        times.own += own as u128;
        times.neighbours += others as u128;
        let rest = all - slice.at_device;
        if others < 1.0 || rest <= 0.0 {
            return;
        }
        let each = others / rest;
        let named = top.iter().filter(|(other, _)| *other != disk);
        for (place, (other, part)) in named.enumerate() {
            self.neighbours.add(place, other, (each * part).min(others));
        }
    }

    pub(super) fn read(&mut self) -> WaitTimes {
        WaitTimes { named: self.neighbours.read(), ..self.times.clone() }
    }
}
