//! One limit of a disk: when its next request may go.
//!
//! # Rule
//! The tag L advances by c/l at every dispatch. A request may go at t when `L <= t` and the last
//! second has room for it. How late the disk is is `D = t - L`. Before L advances, L is raised to
//! `t - H` with H = [`HORIZON`]: lateness is kept up to H, and only while the disk has requests
//! queued. One that had nothing queued and nothing in flight has none.
//!
//! Lateness says that tokens are there. How fast they may be used follows from the past. Let S be
//! the service since the start, as time at the limit, and `u(t) = t - S(t)`. Between dispatches u
//! rises like a clock, a dispatch lowers it by c/l, and lateness that is forgotten does not touch
//! it. In any time (s, t] the service is `l·((t - s) - (u(t) - u(s)))`, so to bound the service of
//! a second is to bound by how much u may be lower than a second before. A request may go when
//!
//! ```text
//! u(t)  >=  u(t - k) - (k - 1)·ε - λ      for k = 1, 2, 3, ... seconds
//!
//! λ = max(slack, min(c/l - 1 ns, 50 ms) - 4·ε),      ε = 3/8·slack
//! ```
//!
//! with the c of the request before it. So lateness up to λ is made good at once, as is more that
//! arose within the last second, and what is older at ε in a second. What a disk waits for the room
//! that it used up itself earns less lateness: an eighth of it is forgotten, and no more than F =
//! [`FORGOTTEN_MAX`] in a second. A disk that made good for a pause has to pause a second later for
//! its window's sake, and would do so again for ever. So each second it pauses for less, by ε and
//! by what is forgotten. All of the eighth would cost it up to 3 % in a second.
//!
//! # Never more
//! In any time W the disk gets at most
//!
//! ```text
//! l·(n + λ + (n - 1)·ε) + c,   n = ⌈W⌉ seconds,       and       l·(W + H) + c
//! ```
//!
//! *Proof.* Let the last dispatch be at t. W is within the n seconds (t - n, t]. What went before
//! the last is `l·(n - (u(t) - u(t - n)))`, u(t) being before it, and the rule for k = n bounds the
//! difference. For the other, let d be the first dispatch. After raising, `L >= d - H` there, and
//! `L <= t` at the last: L advances by `t - d + H` at most before it. ∎
//!
//! With a slack of 20 ms a second holds 2 % more than the limit and one request, five seconds 1 %,
//! and a minute 0.25 %, however long c/l is. Where it is longer than the slack, `λ + 4·ε` is below
//! the larger of c/l and 50 ms.
//!
//! # Never less
//! Say that the limit *holds back* a disk where its request may not go by the rule. While a disk is
//! backlogged from a to b, time is made of
//!
//! - stretches in which the limit holds it back nowhere: it gets what others leave to it; and
//! - stretches in which it gets its limit or more.
//!
//! *Proof.* Go backwards from b to the last t where the limit holds the disk back. If u(t) is below
//! what an s about k seconds before asks for, the disk got more than `l·(t - s + λ)` since s. Else
//! `L > t`. Let j be where L was last raised, or a. If L was raised to a time H before j, the disk
//! got more than `l·(t - j + H)` since j; if it never was raised, more than `l·(t - a)`. If it was
//! raised for a wait for room, it was by F at most, and the disk got more than
//! `l·(t - j - F)` since j. But at j the limit held it back for want of room, and a stretch with
//! λ to spare ends there. Go on from the beginning of the stretch. ∎
//!
//! So what a disk loses of its limit it loses in stretches in which others leave it less than l.
//! With a slack of F or more: if no such stretch is short by more than λ - F, where the next
//! ends for want of room, or H, where it ends because nothing is late, then the disk gets `l·(b -
//! a)` but for one such shortfall. A limit that forgets more than λ of lateness at once loses what
//! goes beyond in each stretch, however short it is, here about once in a second at most.
//!
//! # Soft limits
//! What a disk gets because no other disk may be served is no dispatch to its limits: neither L nor
//! u changes. So both theorems hold for a soft limit as they stand, for the dispatches that it
//! counts. While another disk may be served there are no others: a disk that L or the last second
//! holds back is served only where no disk is ready. So in any time W all that a soft disk is given
//! at instants at which another disk may be served is within the bounds of *never more*.
//!
//! # Peaks
//! A limit with a peak is a limit at the peak's rate, with the rule above, and a bucket beside it
//! that holds the disk to its limit in the long run (`bucket.rs`). What a disk waits for the bucket
//! earns no lateness here.
//!
//! # In constant memory
//! A second is 32 slots. For each, two numbers bound u in it: u at its beginning, plus the time
//! since, and the largest u in it. The lesser of both stands for `u(t - k)`. It is never too small,
//! so the bounds above hold. It rises no faster than u of a disk that waits, so a disk that may go
//! may go at any time later. With each second the numbers sink by ε, or are replaced by larger
//! ones. Where u is level, slots do not matter: what they round up is by when a pause is over.

use super::bucket::{Bucket, Fill, Rates};
use super::mark::Mark;
use crate::rate::Tag;
use alloc::boxed::Box;

/// Lateness that is kept, in nanoseconds. Less loses more of the limit where others take the
/// storage for long, more makes the disks that share it with limited ones wait for longer.
pub(super) const HORIZON: u64 = 250_000_000;

/// A limit makes good for a dispatch that came late by up to just under one charge at once, but not
/// for more than this, in nanoseconds. With the slack of hosts five seconds then hold 1 % and one
/// request more than the limit.
pub(super) const LATENESS_MAX: u64 = 50_000_000;

/// What is forgotten of a wait for room: an eighth,
pub(super) const FORGOTTEN: u64 = 8;

/// and no more than this in a second, in nanoseconds: 1 % of five seconds is 50 ms.
pub(super) const FORGOTTEN_MAX: u64 = 8_000_000;

/// Slots of a second.
pub(super) const SLOTS: u64 = 32;

/// A slot, in nanoseconds.
pub(super) const SLOT: u64 = 1_000_000_000 / SLOTS;

/// By how much less the service of further seconds is bounded, in nanoseconds: ε.
#[inline]
pub(super) fn fade(slack: u64) -> u64 {
    slack / 8 * 3
}

/// What a disk did while it had nothing queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// Nothing.
    Idle,
    /// It had requests in flight, or at other servers.
    Busy,
}

/// The limit clock. Times are inner nanoseconds. Two cache lines hold what every dispatch reads.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(super) struct Limit {
    tag: Tag,
    open: u64,
    /// By how much lateness was forgotten in all: the tag without it is service alone.
    forgotten: u64,
    /// How much of it since the last dispatch, for waits that lie ahead: no service is owed for it.
    waited: u64,
    /// λ.
    patience: u64,
    /// No mark is above it.
    highest: i64,
    /// The slot of the latest note, counted from the clock's beginning, and what it holds so far.
    slot: u64,
    current: Mark,
    /// How much of a wait for room may be forgotten now.
    forgettable: u64,
    slack: u64,
    /// Beside a peak.
    bucket: Option<Box<Bucket>>,
    rates: Rates,
    /// Of the second before that slot's end.
    past: [Mark; SLOTS as usize],
}

const _: () = assert!(core::mem::offset_of!(Limit, rates) <= 128, "a dispatch reads two lines");

impl Limit {
    /// Of a disk that had no limit. Allocates.
    pub(super) fn new(now: u64, rates: Rates, fill: Fill, slack: u64) -> Box<Limit> {
        let bucket = rates.depth(HORIZON).map(|depth| match fill {
            Fill::Full => Box::new(Bucket::full(now, rates.limit, depth)),
            Fill::Empty => Box::new(Bucket::owing(Tag::new(now, rates.limit), depth)),
        });
        let mut limit = Box::new(Limit {
            tag: Tag::new(now, rates.highest()),
            rates,
            bucket,
            forgotten: 0,
            waited: 0,
            open: now,
            patience: slack,
            highest: i64::MIN,
            forgettable: 0,
            slack,
            slot: 0,
            current: Mark::NONE,
            past: [Mark::NONE; SLOTS as usize],
        });
        limit.begin(now);
        limit
    }

    pub(super) fn rates(&self) -> Rates {
        self.rates
    }

    /// From when on the next request may go.
    #[inline]
    pub(super) fn open(&self) -> u64 {
        self.open
    }

    /// Other rates. What is not yet paid for is kept as service; what the disk was late by, what it
    /// got under the old rates, and what a bucket held is forgotten. The same rates change nothing.
    pub(super) fn change_rates(&mut self, rates: Rates, now: u64) {
        if rates == self.rates {
            return;
        }
        self.tag.at -= self.waited;
        self.waited = 0;
        let mut owed = self.bucket.as_ref().map_or(self.tag, |bucket| bucket.tag());
        owed.change_rate(rates.limit, now);
        owed.raise_to(now);
        self.rates = rates;
        self.tag.change_rate(rates.highest(), now);
        self.tag.raise_to(now);
        self.bucket = rates.depth(HORIZON).map(|depth| Box::new(Bucket::owing(owed, depth)));
        if self.bucket.is_none() && self.tag.at < owed.at {
            self.tag = owed;
        }
        self.begin(now);
        self.set_open(self.tag.at);
    }

    /// The rule lets the next request go then, and the bucket may later.
    #[inline]
    fn set_open(&mut self, open: u64) {
        self.open = self.bucket.as_ref().map_or(open, |bucket| open.max(bucket.open()));
    }

    /// A request comes to an empty queue.
    pub(super) fn ask(&mut self, now: u64, asker: Asker) {
        self.note(now);
        self.forget(match asker {
            Asker::Idle => now,
            Asker::Busy => now - self.patience,
        });
        let open = self.opens(now);
        self.set_open(open);
    }

    /// A dispatch.
    #[inline]
    pub(super) fn charge(&mut self, amount: u64, now: u64) {
        self.note(now);
        self.forget(now - HORIZON);
        let own = self.tag.advance_spaced(amount).saturating_sub(1).min(LATENESS_MAX);
        self.patience = own.saturating_sub(4 * fade(self.slack)).max(self.slack);
        self.waited = 0;
        self.open = self.opens(now);
        let wait = self.open - self.tag.at.max(now);
        let forgotten = (wait / FORGOTTEN).min(self.forgettable);
        self.forgettable -= forgotten;
        self.forget_ahead(forgotten);
        if let Some(bucket) = &mut self.bucket {
            bucket.charge(amount, now);
            let until = bucket.open();
            self.wait_for_other(until, now);
            self.set_open(self.open);
        }
    }

    /// The disk's other limit lets it go then: that wait earns no lateness.
    pub(super) fn wait_for_other(&mut self, until: u64, now: u64) {
        let wait = until.saturating_sub(self.open.max(now));
        self.forget_ahead(wait);
    }

    /// So long, until now, something else held the disk back: that wait earned no lateness.
    pub(super) fn forget_wait(&mut self, wait: u64) {
        self.forget(self.tag.at + wait);
    }

    /// Service at other servers: charges `amount`, but no further than `bound`. It uses up
    /// lateness, not the room of a second: when it went is not known.
    pub(super) fn charge_elsewhere(&mut self, amount: u128, bound: u64, now: u64) {
        let before = self.tag.at;
        self.tag.advance_within(amount, bound);
        self.forgotten += self.tag.at - before;
        if let Some(bucket) = &mut self.bucket {
            bucket.charge_elsewhere(amount, bound, now);
        }
        let open = self.opens(now);
        self.set_open(open);
    }

    /// Nothing went before.
    fn begin(&mut self, now: u64) {
        self.past = [Mark::NONE; SLOTS as usize];
        self.forgettable = FORGOTTEN_MAX;
        self.slot = now / SLOT;
        self.current = Mark { first: self.u(self.slot * SLOT), most: self.u(now) };
        self.highest = self.current.most;
    }

    /// u at a time since the last dispatch, or what it would have been.
    #[inline]
    fn u(&self, at: u64) -> i64 {
        at.wrapping_sub(self.tag.at).wrapping_add(self.forgotten) as i64
    }

    /// Holds the tag at `bound` or later. The rest stays, so that service is exact.
    #[inline]
    fn forget(&mut self, bound: u64) {
        if self.tag.at < bound {
            self.forgotten += bound - self.tag.at;
            self.tag.at = bound;
        }
    }

    /// Holds the tag so much later.
    #[inline]
    fn forget_ahead(&mut self, wait: u64) {
        self.waited += wait;
        self.forget(self.tag.at + wait);
    }

    /// Brings the marks up to now, before the tag advances.
    #[inline]
    fn note(&mut self, now: u64) {
        let slot = now / SLOT;
        if slot > self.slot {
            self.turn(slot);
        }
        // Nor are slots that were closed above it: u has only risen since.
        self.current.most = self.current.most.max(self.u(now));
        self.highest = self.highest.max(self.current.most);
    }

    /// Closes slots up to this one. Of several seconds without a dispatch the last is the largest.
    #[inline(never)]
    fn turn(&mut self, slot: u64) {
        let closed = self.slot;
        let more = (slot - closed).min(SLOTS) * (FORGOTTEN_MAX / SLOTS);
        self.forgettable = FORGOTTEN_MAX.min(self.forgettable + more);
        let most = self.current.most.max(self.u((closed + 1) * SLOT));
        self.close(closed, 1, Mark { most, ..self.current });
        for next in (closed + 1).max(slot.saturating_sub(SLOTS))..slot {
            let mark = Mark { first: self.u(next * SLOT), most: self.u((next + 1) * SLOT) };
            self.close(next, (next - closed).div_ceil(SLOTS), mark);
        }
        let first = self.u(slot * SLOT);
        self.slot = slot;
        self.current = Mark { first, most: first };
    }

    fn close(&mut self, slot: u64, seconds: u64, mark: Mark) {
        let past = &mut self.past[(slot % SLOTS) as usize];
        *past = past.fade(seconds * fade(self.slack)).max(mark);
    }

    /// From when on the next request may go, if nothing goes before.
    #[inline]
    fn opens(&mut self, now: u64) -> u64 {
        let at = self.tag.at.max(now);
        // No second has less room than that.
        if self.highest - self.patience as i64 <= self.u(at) {
            return at;
        }
        self.first_with_room(at)
    }

    /// The first time from `at` on at which every second before has room.
    #[inline(never)]
    fn first_with_room(&mut self, mut at: u64) -> u64 {
        let past = self.past.iter().map(|mark| mark.most).max().unwrap_or(i64::MIN);
        self.highest = past.max(self.current.most);
        // No mark is above what u is then.
        let latest = self.tag.at + HORIZON;
        if at >= latest {
            return at;
        }
        while at < latest {
            let slot = at / SLOT;
            let floor = self.least(slot, at - slot * SLOT);
            let short = floor.saturating_sub(self.u(at));
            if short <= 0 {
                return at;
            }
            let level = at + (self.level(slot) - self.u(at)) as u64;
            let next = (slot + 1) * SLOT;
            if level < next {
                return level.min(latest);
            }
            at = next;
        }
        latest
    }

    /// The least u so long after the beginning of a slot.
    fn least(&self, slot: u64, into: u64) -> i64 {
        let mark = self.mark(slot);
        mark.most.min(mark.first.saturating_add(into as i64)) - self.patience as i64
    }

    /// The least u that is enough everywhere in a slot.
    fn level(&self, slot: u64) -> i64 {
        self.mark(slot).most - self.patience as i64
    }

    /// What bounds u in a slot from now on.
    fn mark(&self, slot: u64) -> Mark {
        let past = self.past[(slot % SLOTS) as usize];
        let ahead = slot - self.slot;
        let seconds = ahead / SLOTS;
        let past = past.fade(seconds * fade(self.slack));
        if seconds > 0 && ahead.is_multiple_of(SLOTS) {
            past.max(self.current.fade((seconds - 1) * fade(self.slack)))
        } else {
            past
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::num::NonZeroU64;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;
    const START: u64 = 1 << 52;
    const IO: u64 = SECOND;

    fn rates(limit: u64) -> Rates {
        Rates { limit: NonZeroU64::new(limit).unwrap(), peak: None }
    }

    fn limit(rate: u64, slack: u64) -> Box<Limit> {
        Limit::new(START, rates(rate), Fill::Full, slack)
    }

    /// Dispatches at the times that others leave, and when the limit held it back although they
    /// left one.
    fn drive(limit: &mut Limit, left: impl Iterator<Item = u64>) -> (Vec<u64>, Vec<u64>) {
        let (mut sent, mut held) = (Vec::new(), Vec::new());
        for now in left {
            if limit.open() <= now {
                limit.charge(IO, now);
                sent.push(now);
            } else {
                held.push(now);
            }
        }
        (sent, held)
    }

    /// More in some time than the theorem allows.
    fn excess(sent: &[u64], rate: u64, slack: u64) -> Option<(u64, u64, usize)> {
        let own = (SECOND / rate).saturating_sub(1).min(50 * MS);
        let lambda = own.saturating_sub(slack * 3 / 2).max(slack);
        for (n, &from) in sent.iter().enumerate() {
            for (count, &to) in sent[n..].iter().enumerate() {
                // The shortest time that holds both.
                let time = to - from + 1;
                let seconds = time.div_ceil(SECOND);
                let by_second = seconds * SECOND + lambda + (seconds - 1) * (slack * 3 / 8);
                let most = by_second.min(time + HORIZON) as u128 * u128::from(rate);
                if (count as u128) > most / u128::from(SECOND) {
                    return Some((from - START, to - START, count + 1));
                }
            }
        }
        None
    }

    /// A time at which the limit held the disk back although it had not had its limit since any
    /// time before.
    fn short(sent: &[u64], held: &[u64], rate: u64) -> Option<u64> {
        held.iter().copied().find(|&now| {
            let before = sent.iter().take_while(|&&at| at <= now).count();
            // Of an instant before the dispatch, and what may have been forgotten of a wait for
            // room.
            let got = |n: usize| (before - n) as u64 * SECOND;
            let due = |from: u64| (now - from).saturating_sub(8 * MS) * rate;
            (0..before).all(|n| got(n) < due(sent[n])) && got(0) < due(START)
        })
    }

    /// Gaps of up to some length, of which a part is long.
    fn gaps() -> impl Strategy<Value = Vec<u64>> {
        let gap = prop_oneof![
            20 => 1..5 * MS,
            4 => 1..60 * MS,
            1 => 1..400 * MS,
        ];
        prop::collection::vec(gap, 1..600)
    }

    fn times(gaps: Vec<u64>) -> impl Iterator<Item = u64> {
        gaps.into_iter().scan(START, |now, gap| {
            *now += gap;
            Some(*now)
        })
    }

    proptest! {
        /// The two theorems, from the lists of what went and of what was held back.
        #[test]
        fn never_more_and_never_less(
            gaps in gaps(),
            rate in prop_oneof![1u64..20, 20u64..1_000],
            slack in prop::sample::select(vec![0, MS, 20 * MS, 100 * MS]),
        ) {
            let (sent, held) = drive(&mut limit(rate, slack), times(gaps));
            prop_assert_eq!(excess(&sent, rate, slack), None);
            prop_assert_eq!(short(&sent, &held, rate), None);
        }

        /// What no mark is above decides for all of them.
        #[test]
        fn the_highest_mark_answers_for_all(
            gaps in gaps(),
            rate in prop_oneof![1u64..20, 20u64..1_000],
            slack in prop::sample::select(vec![0, MS, 20 * MS, 100 * MS]),
            wait in 0..2 * SECOND,
        ) {
            let mut limit = limit(rate, slack);
            for now in times(gaps) {
                if limit.open() > now {
                    continue;
                }
                limit.charge(IO, now);
                let marks = limit.past.iter().chain([&limit.current]);
                let highest = limit.highest;
                prop_assert!(marks.into_iter().all(|mark| mark.most <= highest));
                // Where the highest mark begins to let it go, and just before.
                let edge = now + (highest - limit.patience as i64 - limit.u(now)).max(1) as u64;
                for at in [now, now + wait, edge, edge - 1] {
                    let answer = limit.opens(at);
                    prop_assert_eq!(answer, limit.first_with_room(limit.tag.at.max(at)));
                    limit.highest = highest;
                }
            }
        }

        /// Once a request may go it may go later.
        #[test]
        fn who_may_go_may_wait(gaps in gaps(), rate in 1u64..1_000, wait in 0..2 * SECOND) {
            let mut limit = limit(rate, 20 * MS);
            let (sent, _) = drive(&mut limit, times(gaps));
            let now = sent.last().copied().unwrap_or(START);
            let open = limit.open().max(now);
            prop_assert!(limit.opens(open) <= open);
            prop_assert!(limit.opens(open + wait) <= open + wait);
        }
    }

    /// A dispatch each millisecond but in a pause of 100 ms in each second, anywhere: nothing is
    /// lost, and no second holds more than 2 % over the limit.
    #[test]
    fn pauses_are_made_good_for() {
        let mut limit = limit(300, 20 * MS);
        let left = (0..30_000u64).filter(|ms| {
            let pause = ms / 1_000 * 377 % 900;
            !(pause..pause + 100).contains(&(ms % 1_000))
        });
        let (sent, _) = drive(&mut limit, left.map(|ms| START + ms * MS));
        assert!(sent.len() >= 30 * 300 * 98 / 100, "{} of 9,000", sent.len());
        assert_eq!(excess(&sent, 300, 20 * MS), None);
    }

    /// After one pause the pace is even again, and does not stop and go for ever.
    #[test]
    fn one_pause_fades() {
        let mut limit = limit(300, 20 * MS);
        let left = (0..20_000u64).filter(|ms| !(5_000..5_140).contains(ms));
        let (sent, _) = drive(&mut limit, left.map(|ms| START + ms * MS));
        let longest = |from: u64| {
            let late = sent.windows(2).filter(|pair| pair[0] >= START + from * SECOND);
            late.map(|pair| pair[1] - pair[0]).max().unwrap()
        };
        assert!(longest(6) > 50 * MS, "a second later its window has no room");
        assert!(longest(14) <= 10 * MS, "{}", longest(14));
    }

    /// Others let a disk go more and more often for 0.4 s, and then always. It waits for room in
    /// each second after that, briefly and many times, and loses less than 1 % of five.
    #[test]
    fn many_short_waits_lose_little() {
        let mut limit = limit(300, 20 * MS);
        let left = (0..8_000u64).filter(|ms| *ms >= 400 || ms % (1 + (400 - ms) / 30) == 0);
        let (sent, _) = drive(&mut limit, left.map(|ms| START + ms * MS));
        for from in 1..=3 {
            let span = START + from * SECOND..START + (from + 5) * SECOND;
            let count = sent.iter().filter(|at| span.contains(at)).count();
            assert!(count >= 1_485, "{count} of 1,500 from {from} s");
        }
    }

    #[test]
    fn who_slept_is_not_late() {
        let mut limit = limit(1, MS);
        limit.charge(IO, START);
        limit.ask(START + 10 * SECOND, Asker::Idle);
        limit.charge(IO, START + 10 * SECOND);
        assert_eq!(limit.open(), START + 11 * SECOND);
    }

    #[test]
    fn another_rate_keeps_what_is_owed_and_forgets_lateness() {
        let mut limit = limit(10, MS);
        limit.charge(10 * IO, START);
        limit.change_rates(rates(100), START);
        assert_eq!(limit.open(), START + SECOND / 10);
        let late = START + SECOND / 4;
        limit.change_rates(rates(10), late);
        limit.charge(IO, late);
        assert_eq!(limit.open(), late + SECOND / 10);
    }
}
