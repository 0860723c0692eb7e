//! What the storage gives while it works, by which a stall is told from over-commitment.

use super::claims::Claims;
use crate::cost::Cost;

/// Parts of the horizon. More forget more smoothly; each is a part of the sum.
const PARTS: usize = 8;

/// Service over time at work.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Busy time without stalls, in nanoseconds.
    worked: u64,
    /// In millionths of a reference IO.
    served: u64,
    /// The longest stall that ended in it, in nanoseconds.
    stall: u64,
}

/// Service per time at work over the last [`Config::debt_horizon`](crate::Config::debt_horizon) of
/// it.
///
/// Time is busy while a disk that may be served waits, or the window is full. Time in which nothing
/// is queued, or all that is queued waits for limits, says nothing of the storage. Busy time
/// without a dispatch is a stall where it is longer than half of the bound on debt, and than twice
/// what the storage takes for all that is in flight if every request cost as much as the largest
/// lately. The rest is time at work.
#[derive(Clone, Debug)]
pub(super) struct Delivered {
    horizon: u64,
    /// The bound on debt of storage that gives just what is reserved.
    debt: u64,
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
    /// What the storage took for a thousandth of a reference IO in the parts that are full, in
    /// nanoseconds with [`FRACTION`] bits behind the point; 0 before the first is.
    pace: u64,
}

const FRACTION: u32 = 16;

impl Delivered {
    /// `horizon` and the bound on debt in nanoseconds; with a horizon of 0 nothing is ever made
    /// good beyond the bound.
    pub(super) fn new(horizon: u64, debt: u64) -> Delivered {
        Delivered {
            horizon,
            debt,
            part: (horizon / PARTS as u64).max(1),
            stall: debt / 2,
            past: [Part::default(); PARTS],
            oldest: 0,
            newer: Part::default(),
            current: Part::default(),
            since: None,
            pace: 0,
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

    /// A request of this cost is dispatched, beside what is in flight. Returns the busy time since
    /// the one before, in nanoseconds.
    #[inline]
    pub(super) fn note(&mut self, now: u64, cost: Cost, flight: Flight) -> u64 {
        let busy = self.since.replace(now).map_or(0, |since| now - since);
        if busy > self.stall && self.is_stall(busy, flight) {
            self.current.stall = self.current.stall.max(busy);
        } else {
            self.current.worked += busy;
            if self.current.worked >= self.part {
                self.turn();
            }
        }
        self.current.served += cost.as_millionths();
        busy
    }

    /// Whether so long a time without a dispatch is none that the storage worked in.
    #[inline(never)]
    fn is_stall(&self, busy: u64, flight: Flight) -> bool {
        let served = self.current.served + self.newer.served + self.past[self.oldest].served;
        let largest = u128::from(flight.largest.as_millionths()) * flight.requests.max(1) as u128;
        u128::from(busy) * u128::from(served) > 2 * largest * u128::from(self.worked())
    }

    /// Begins a new part. A request that takes long fills many.
    #[inline(never)]
    fn turn(&mut self) {
        let part = self.part;
        // More would replace all of them again.
        let most = part * (PARTS as u64 + 1);
        self.current.worked = self.current.worked.min(most + self.current.worked % part);
        while self.current.worked >= part {
            let rest = Part { worked: self.current.worked - part, served: 0, stall: 0 };
            let full = core::mem::replace(&mut self.current, rest);
            self.past[self.oldest] = Part { worked: part, ..full };
            self.oldest = (self.oldest + 1) % PARTS;
        }
        self.newer = Part::default();
        for part in (1..PARTS).map(|after| &self.past[(self.oldest + after) % PARTS]) {
            self.newer.worked += part.worked;
            self.newer.served += part.served;
            self.newer.stall = self.newer.stall.max(part.stall);
        }
        let oldest = &self.past[self.oldest];
        let worked = (u128::from(self.newer.worked + oldest.worked) * 1_000) << FRACTION;
        let served = u128::from(self.newer.served + oldest.served);
        self.pace = u64::try_from(worked / served.max(1)).unwrap_or(u64::MAX);
    }

    /// Whether a stall ends with the next dispatch.
    #[inline]
    pub(super) fn ends_stall(&self, now: u64, flight: Flight) -> bool {
        let busy = self.since.map_or(0, |since| now - since);
        busy > self.stall && self.is_stall(busy, flight)
    }

    /// By how much reservations that are `behind` by so many nanoseconds are later than
    /// [`Delivered::debt_bound`] allows. O(1), and in a shortage or where there is plenty no
    /// division.
    #[inline]
    pub(super) fn beyond(&self, behind: u64, claims: Claims) -> u64 {
        if behind <= self.least() {
            return 0;
        }
        let least = self.least_with_round(claims);
        if behind <= least || self.allows(behind, claims.rate, Oldest::None) {
            return 0;
        }
        behind.saturating_sub(self.made_good(claims.rate).max(least))
    }

    /// How late, in nanoseconds, reservations may be without losing it: what the storage makes good
    /// for, and b/2 and a round at the least, which is as late as one request of each makes them
    /// where they all fall due at once. O(1).
    pub(super) fn debt_bound(&self, claims: Claims) -> u64 {
        self.made_good(claims.rate).max(self.least_with_round(claims))
    }

    /// The bound in over-commitment: with what the storage takes for one request of each disk,
    /// which counts up to the bound where there is plenty.
    #[inline]
    fn least_with_round(&self, claims: Claims) -> u64 {
        let round = (u128::from(claims.round) * u128::from(self.pace)) >> FRACTION;
        let most = if self.horizon == 0 { 0 } else { self.most() };
        self.least() + round.min(u128::from(most)) as u64
    }

    /// Storage that gives more than `claimed` IOs per second makes good for `horizon ·
    /// (given/claimed - 1)` within the horizon, and b at the least. On storage that gives less that
    /// sinks by as much as is missing in a horizon, to b/2. In nanoseconds. O(1).
    fn made_good(&self, claimed: u64) -> u64 {
        let (least, most) = (self.least(), self.most());
        let (worked, horizon) = (self.worked(), u128::from(self.horizon));
        if worked == 0 || claimed == 0 {
            return self.debt;
        }
        if !self.allows(least + 1, claimed, Oldest::Whole) {
            return least;
        }
        // What began in the meantime takes the place of as much of the oldest part.
        let oldest = &self.past[self.oldest];
        let kept = u128::from(oldest.served) * u128::from(self.kept()) / u128::from(self.part);
        let served = u128::from(self.current.served + self.newer.served) + kept;
        // Millionths per nanosecond are thousands per second.
        let given = horizon * served * 1_000 / (u128::from(worked) * u128::from(claimed));
        let bound = match given.checked_sub(horizon) {
            Some(spare) => spare.max(u128::from(self.debt)),
            None => (given + u128::from(self.debt)).saturating_sub(horizon),
        };
        (bound.min(u128::from(most)) as u64).max(least)
    }

    /// Whether the storage gives less than is reserved. O(1), no division where there is plenty.
    #[inline]
    pub(super) fn is_short(&self, claimed: u64) -> bool {
        !self.allows(self.debt, claimed, Oldest::None) && self.made_good(claimed) < self.debt
    }

    /// How late reservations may be that do not wait all the time: half of b, or of the bound where
    /// that is less, and the longest stall as far as the bound has room.
    pub(super) fn lateness_kept(&self, now: u64, claims: Claims, room: Room) -> u64 {
        let stall = self.longest_stall(now);
        if stall == 0 && self.allows(self.debt, claims.rate, Oldest::None) {
            return self.debt / 2;
        }
        let bound = self.debt_bound(claims);
        let half = self.debt.min(bound) / 2;
        let most = match room {
            Room::OneStall => bound,
            Room::TwoStalls => (bound - half).saturating_sub(stall),
        };
        most.clamp(half, half + stall)
    }

    /// The bound where there is plenty: room for a stall of a horizon while another is not yet paid
    /// to those that their limits hold back.
    #[inline]
    fn most(&self) -> u64 {
        self.debt.max(2 * self.horizon)
    }

    /// The bound in over-commitment where requests take no time.
    #[inline]
    fn least(&self) -> u64 {
        if self.horizon == 0 { self.debt } else { self.debt / 2 }
    }

    /// The longest stall of the last horizon of work, with the one that may be under way, in
    /// nanoseconds; 0 if there was none. One in the oldest part counts. O(1).
    pub(super) fn longest_stall(&self, now: u64) -> u64 {
        let waited = self.since.map_or(0, |since| now - since);
        let under_way = if waited > self.stall { waited } else { 0 };
        let past = self.newer.stall.max(self.past[self.oldest].stall);
        self.current.stall.max(past).max(under_way)
    }

    /// Whether `late` nanoseconds are within the bound, with so much of what the oldest part gave.
    /// Not while nothing is known.
    #[inline]
    fn allows(&self, late: u64, claimed: u64, oldest: Oldest) -> bool {
        let oldest = match oldest {
            Oldest::None => 0,
            Oldest::Whole => self.past[self.oldest].served,
        };
        let served = self.current.served + self.newer.served + oldest;
        let needed = u128::from(self.worked()) * u128::from(claimed);
        let given = u128::from(self.horizon * 1_000) * u128::from(served);
        let free = if late <= self.debt { self.debt } else { 0 };
        let asked = u128::from((self.horizon + late).saturating_sub(free));
        late <= self.most() && needed > 0 && asked * needed <= given
    }

    /// Time at work in the last horizon.
    #[inline]
    fn worked(&self) -> u64 {
        // A part that is over was worked in for all of its time, or has never been.
        let oldest = if self.past[self.oldest].worked == 0 { 0 } else { self.kept() };
        self.current.worked + self.newer.worked + oldest
    }

    /// How much of the oldest part is within the horizon.
    #[inline]
    fn kept(&self) -> u64 {
        self.part - self.current.worked
    }
}

/// What is in flight beside a dispatch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    /// With the one that is dispatched.
    pub(super) requests: usize,
    /// The largest cost of requests lately.
    pub(super) largest: Cost,
}

/// For how much lateness the bound must have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// That of a stall.
    OneStall,
    /// That of a stall, and of the next before it is paid.
    TwoStalls,
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
    const ALONE: Flight = Flight { requests: 1, largest: Cost::ONE };

    /// Of disks whose requests are small.
    fn of(rate: u64) -> Claims {
        Claims { rate, round: 0 }
    }

    fn five_seconds() -> (Delivered, u64) {
        let mut delivered = Delivered::new(5_000 * MS, 250 * MS);
        delivered.begin(7);
        (delivered, 7)
    }

    /// So many IOs, a millisecond apart.
    fn serve(delivered: &mut Delivered, now: &mut u64, ios: u64) {
        for _ in 0..ios {
            *now += MS;
            delivered.note(*now, Cost::ONE, ALONE);
        }
    }

    #[test]
    fn what_the_storage_gives_beyond_reservations_makes_good_for_stalls() {
        let (mut delivered, mut now) = five_seconds();
        assert_eq!(delivered.debt_bound(of(400)), 250 * MS, "nothing is known yet");
        serve(&mut delivered, &mut now, 4_000);
        for (stall, of_1_010) in [(0, 200), (999 * MS, 201), (4_000 * MS, 202)] {
            now += stall;
            serve(&mut delivered, &mut now, 1);
            assert_eq!(delivered.debt_bound(of(400)) / (10 * MS), 750);
            // Up to 2 IOs more than a second's work gave: those that ended stalls.
            assert_eq!(delivered.debt_bound(of(800)) / (5 * MS), 250);
            assert_eq!(delivered.debt_bound(of(1_000)) / (5 * MS), 50);
            assert_eq!(delivered.debt_bound(of(1_010)) / MS, of_1_010);
            assert_eq!(delivered.debt_bound(of(1_500)), 125 * MS);
        }
        assert_eq!(delivered.longest_stall(now), 4_001 * MS);
    }

    #[test]
    fn a_stall_is_kept_for_a_horizon_of_work_and_one_under_way_counts() {
        let (mut delivered, mut now) = five_seconds();
        serve(&mut delivered, &mut now, 4_000);
        now += 1_999 * MS;
        assert_eq!(delivered.longest_stall(now), 1_999 * MS);
        serve(&mut delivered, &mut now, 1);
        serve(&mut delivered, &mut now, 4_000);
        assert_eq!(delivered.longest_stall(now), 2_000 * MS);
        serve(&mut delivered, &mut now, 2_000);
        assert_eq!(delivered.longest_stall(now), 0);
    }

    #[test]
    fn a_request_that_takes_long_is_work() {
        let (mut delivered, mut now) = five_seconds();
        let large = Cost::from_ios(200);
        for _ in 0..20 {
            now += 200 * MS;
            delivered.note(now, large, Flight { requests: 1, largest: large });
        }
        assert_eq!((delivered.longest_stall(now), delivered.debt_bound(of(1_000))), (0, 250 * MS));
        // Two of them in flight may end together, and twice as late.
        now += 700 * MS;
        assert_eq!(delivered.longest_stall(now), 700 * MS);
        delivered.note(now, large, Flight { requests: 2, largest: large });
        assert_eq!(delivered.longest_stall(now), 0);
        now += 1_200 * MS;
        delivered.note(now, large, Flight { requests: 2, largest: large });
        assert_eq!(delivered.longest_stall(now), 1_200 * MS);
    }

    #[test]
    fn less_work_is_a_shortage() {
        let (mut delivered, mut now) = five_seconds();
        serve(&mut delivered, &mut now, 5_000);
        for _ in 0..1_000 {
            now += 5 * MS;
            delivered.note(now, Cost::ONE, ALONE);
        }
        assert_eq!(delivered.debt_bound(of(190)) / (10 * MS), 26);
        assert_eq!(delivered.debt_bound(of(600)), 125 * MS);
    }

    #[test]
    fn time_without_requests_says_nothing() {
        let (mut delivered, mut now) = five_seconds();
        for _ in 0..10 {
            delivered.begin(now);
            serve(&mut delivered, &mut now, 100);
            delivered.pause();
            now += 10_000 * MS;
        }
        assert_eq!(delivered.debt_bound(of(300)), 10_000 * MS);
        assert_eq!(delivered.longest_stall(now), 0);
    }

    #[test]
    fn a_round_of_requests_is_no_lateness_that_is_lost() {
        let (mut delivered, mut now) = five_seconds();
        for _ in 0..1_000 {
            now += 20 * MS;
            delivered.note(now, Cost::ONE, ALONE);
        }
        // At 20 ms each, twenty requests fill 400 ms, and 51 per second are a shortage.
        let claims = |round| Claims { rate: 51, round };
        assert_eq!(delivered.debt_bound(claims(0)) / (25 * MS), 6);
        assert_eq!(delivered.debt_bound(claims(20_000)), (125 + 400) * MS);
        assert_eq!(delivered.beyond(600 * MS, claims(20_000)), 75 * MS);
        assert_eq!(delivered.beyond(525 * MS, claims(20_000)), 0);
        assert!(delivered.is_short(51), "a round makes no plenty");
        assert_eq!(delivered.debt_bound(claims(u64::MAX / 2)), 10_125 * MS, "never beyond that");
    }

    #[test]
    fn a_disk_with_a_limit_needs_room_for_one_stall_and_others_for_the_next_too() {
        let (mut delivered, mut now) = five_seconds();
        serve(&mut delivered, &mut now, 5_000);
        now += 1_500 * MS;
        delivered.note(now, Cost::ONE, ALONE);
        let kept = |rate, room| delivered.lateness_kept(now, of(rate), room) / (25 * MS);
        // A bound of 5 s has room for both, one of 2 s for one, and one of 1 s for none.
        assert_eq!((kept(500, Room::OneStall), kept(500, Room::TwoStalls)), (65, 65));
        assert_eq!((kept(714, Room::OneStall), kept(714, Room::TwoStalls)), (65, 15));
        assert_eq!((kept(833, Room::OneStall), kept(833, Room::TwoStalls)), (40, 5));
    }
}
