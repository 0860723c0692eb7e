//! What the storage gave lately, by which a stall is told from over-commitment.

use crate::cost::Cost;

/// Parts of the horizon. More forget more smoothly; each is a part of the sum.
const PARTS: usize = 8;

/// Service over busy time.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// In nanoseconds.
    busy: u64,
    /// In millionths of a reference IO.
    served: u64,
    /// The stalls that ended in it, in nanoseconds.
    stalled: u64,
}

/// Service per busy time over the last busy [`Config::debt_horizon`](crate::Config::debt_horizon).
///
/// Time is busy while a disk that may be served waits, or the window is full. Stalls are busy
/// time. Time in which nothing is queued, or all that is queued waits for limits, says nothing of
/// the storage.
#[derive(Debug)]
pub(super) struct Delivered {
    horizon: u64,
    /// An eighth of it.
    part: u64,
    past: [Part; PARTS],
    /// The oldest of them.
    oldest: usize,
    /// All of them but the oldest, summed up when a part closes.
    newer: Part,
    current: Part,
    /// From when on busy time is not yet counted; `None` outside it.
    since: Option<u64>,
    /// Busy time without a dispatch is a stall from this length on, in nanoseconds.
    stall: u64,
}

impl Delivered {
    /// `horizon` in nanoseconds; with 0 nothing is ever made good beyond the bound on debt. Busy
    /// time without a dispatch is a stall from `stall` nanoseconds on.
    pub(super) fn new(horizon: u64, stall: u64) -> Delivered {
        Delivered {
            horizon,
            part: (horizon / PARTS as u64).max(1),
            stall,
            past: [Part::default(); PARTS],
            oldest: 0,
            newer: Part::default(),
            current: Part::default(),
            since: None,
        }
    }

    /// A disk may be served from now on.
    #[inline]
    pub(super) fn begin(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    /// The window has room, and nothing may be served.
    #[inline]
    pub(super) fn pause(&mut self) {
        self.since = None;
    }

    /// A request of this cost is dispatched. Returns the busy time since the one before, in
    /// nanoseconds.
    #[inline]
    pub(super) fn note(&mut self, now: u64, cost: Cost) -> u64 {
        let busy = self.since.replace(now).map_or(0, |since| now - since);
        self.current.busy += busy;
        if self.current.busy >= self.part {
            self.turn();
        }
        self.current.served += cost.as_millionths();
        if busy > self.stall {
            self.current.stalled += busy;
        }
        busy
    }

    /// Begins a new part; a stall is many in which nothing was served.
    #[inline(never)]
    fn turn(&mut self) {
        let part = self.part;
        // More would replace all of them again.
        let most = part * (PARTS as u64 + 1);
        self.current.busy = self.current.busy.min(most + self.current.busy % part);
        while self.current.busy >= part {
            let rest = Part { busy: self.current.busy - part, served: 0, stalled: 0 };
            let full = core::mem::replace(&mut self.current, rest);
            self.past[self.oldest] = Part { busy: part, ..full };
            self.oldest = (self.oldest + 1) % PARTS;
        }
        self.newer = Part::default();
        for part in (1..PARTS).map(|after| &self.past[(self.oldest + after) % PARTS]) {
            self.newer.busy += part.busy;
            self.newer.served += part.served;
            self.newer.stalled += part.stalled;
        }
    }

    /// By how much reservations of `claimed` IOs per second in total, `behind` by so many
    /// nanoseconds, are later than [`Delivered::debt_bound`] allows. O(1), and in a shortage or
    /// where there is plenty no division.
    #[inline]
    pub(super) fn beyond(&self, behind: u64, claimed: u64, least: u64) -> u64 {
        if behind <= least || behind <= self.horizon && self.gives(behind, claimed, Oldest::None) {
            return 0;
        }
        behind.saturating_sub(self.debt_bound(claimed, least))
    }

    /// How late, in nanoseconds, reservations of `claimed` IOs per second in total may be without
    /// losing it: as late as what the storage gives beyond them makes good within the horizon,
    /// `horizon · (given/claimed - 1)`, between `least` and the horizon. O(1).
    pub(super) fn debt_bound(&self, claimed: u64, least: u64) -> u64 {
        if !self.gives(least + 1, claimed, Oldest::Whole) {
            return least;
        }
        // What began in the meantime takes the place of as much of the oldest part.
        let oldest = &self.past[self.oldest];
        let kept = u128::from(oldest.served) * u128::from(self.kept()) / u128::from(self.part);
        let served = u128::from(self.current.served + self.newer.served) + kept;
        let horizon = u128::from(self.horizon);
        // Millionths per nanosecond are thousands per second.
        let in_horizon = (horizon * served * 1_000)
            .checked_div(u128::from(self.busy()) * u128::from(claimed))
            .map_or(0, |time| time.saturating_sub(horizon).min(horizon));
        (in_horizon as u64).max(least)
    }

    /// For how many nanoseconds of the last horizon the storage stood still, with the stall that
    /// may be under way. Stalls in the oldest part count whole. O(1).
    pub(super) fn stalled(&self, now: u64) -> u64 {
        let waited = self.since.map_or(0, |since| now - since);
        let under_way = if waited > self.stall { waited } else { 0 };
        self.current.stalled + self.newer.stalled + self.past[self.oldest].stalled + under_way
    }

    /// Whether `late` nanoseconds are made good within the horizon: `horizon + late <= horizon ·
    /// given/claimed`, with so much of what the oldest part gave. Not while nothing is known.
    #[inline]
    fn gives(&self, late: u64, claimed: u64, oldest: Oldest) -> bool {
        let oldest = match oldest {
            Oldest::None => 0,
            Oldest::Whole => self.past[self.oldest].served,
        };
        let served = self.current.served + self.newer.served + oldest;
        let needed = u128::from(self.busy()) * u128::from(claimed);
        let given = u128::from(self.horizon * 1_000) * u128::from(served);
        needed > 0 && u128::from(self.horizon + late) * needed <= given
    }

    /// Busy time of the last horizon.
    #[inline]
    fn busy(&self) -> u64 {
        // A part that is over was busy for all of its time, or has never been.
        let oldest = if self.past[self.oldest].busy == 0 { 0 } else { self.kept() };
        self.current.busy + self.newer.busy + oldest
    }

    /// How much of the oldest part is within the horizon.
    #[inline]
    fn kept(&self) -> u64 {
        self.part - self.current.busy
    }
}

/// How much of the oldest part counts in an estimate.
#[derive(Clone, Copy)]
enum Oldest {
    None,
    Whole,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// So many IOs, a millisecond apart.
    fn serve(delivered: &mut Delivered, now: &mut u64, ios: u64) {
        for _ in 0..ios {
            *now += MS;
            delivered.note(*now, Cost::ONE);
        }
    }

    #[test]
    fn what_is_to_spare_makes_good_for_a_stall() {
        let (mut delivered, mut now) = (Delivered::new(5_000 * MS, 125 * MS), 7);
        delivered.begin(now);
        assert_eq!(delivered.debt_bound(400, 250 * MS), 250 * MS, "nothing is known yet");
        serve(&mut delivered, &mut now, 4_000);
        assert_eq!(delivered.debt_bound(400, 250 * MS), 5_000 * MS);
        now += 999 * MS;
        serve(&mut delivered, &mut now, 1);
        // 4,001 in 5 s: 800.2 per second.
        assert_eq!(delivered.debt_bound(400, 250 * MS), 5_000 * MS);
        assert_eq!(delivered.debt_bound(750, 250 * MS) / MS, 334);
        assert_eq!(delivered.debt_bound(790, 250 * MS), 250 * MS);
        assert_eq!(delivered.debt_bound(1_500, 250 * MS), 250 * MS);
    }

    #[test]
    fn a_stall_is_forgotten_after_the_horizon() {
        let (mut delivered, mut now) = (Delivered::new(5_000 * MS, 125 * MS), 7);
        delivered.begin(now);
        serve(&mut delivered, &mut now, 4_000);
        now += 5_000 * MS;
        serve(&mut delivered, &mut now, 1);
        assert_eq!(delivered.debt_bound(600, 0), 0);
        serve(&mut delivered, &mut now, 5_700);
        assert!(delivered.debt_bound(600, 0) > 3_000 * MS);
    }

    #[test]
    fn time_without_requests_says_nothing() {
        let (mut delivered, mut now) = (Delivered::new(5_000 * MS, 125 * MS), 7);
        for _ in 0..10 {
            delivered.begin(now);
            serve(&mut delivered, &mut now, 100);
            delivered.pause();
            now += 10_000 * MS;
        }
        assert_eq!(delivered.debt_bound(500, 0), 5_000 * MS);
    }
}
