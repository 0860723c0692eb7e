//! The limit clock: all that ever went, and every slot asked anew.

use super::exact::Exact;
use crate::mclock::limit::{FORGOTTEN, FORGOTTEN_MAX, HORIZON, LATENESS_MAX, SLOT, SLOTS};
use crate::policy::Policy;
use std::collections::BTreeMap;

/// What the bucket holds, as time at the limit.
fn depth((limit, peak, seconds): (u64, u64, u64)) -> Option<i128> {
    let tokens = (i128::from(peak) - i128::from(limit)) * i128::from(seconds);
    (peak > 0).then(|| (tokens * 1_000_000_000 / i128::from(limit)).max(i128::from(HORIZON)))
}

/// The limits of a policy as it takes them.
pub(super) fn rates(policy: &Policy) -> [Option<(u64, u64, u64)>; 2] {
    let time = u64::from(policy.peak_time().as_secs());
    let peak = policy.peak().map_or(0, |peak| peak.get());
    let bytes = policy.peak_bandwidth().map_or(0, |peak| peak.get());
    let limit = policy.limit().map(|limit| (limit.get(), peak, if peak > 0 { time } else { 0 }));
    let bandwidth = policy.limit_bandwidth();
    [limit, bandwidth.map(|b| (b.get(), bytes, if bytes > 0 { time } else { 0 }))]
}

#[derive(Clone)]
pub(super) struct Limit {
    tag: Exact,
    pub(super) open: i128,
    /// Limit, peak (0: none), seconds.
    rates: (u64, u64, u64),
    bucket: Option<(Exact, i128)>,
    slack: i128,
    patience: i128,
    forgotten: i128,
    /// Ahead, since the last dispatch.
    waited: i128,
    noted: i128,
    /// What may be forgotten of waits for room.
    forgettable: i128,
    /// u at the beginning and the largest u of each slot, but for slots in which u only rose and
    /// which are more than a second before the next dispatch.
    slots: BTreeMap<i128, (i128, i128)>,
}

impl Limit {
    /// IOs per second in the long run.
    pub(super) fn rate(&self) -> i128 {
        i128::from(self.rates.0)
    }

    pub(super) fn new(now: i128, rates: (u64, u64, u64), slack: i128) -> Limit {
        let (rate, peak, _) = rates;
        let mut limit = Limit {
            tag: Exact::new(now, rate.max(peak)),
            rates,
            bucket: depth(rates).map(|depth| (Exact::new(now - depth, rate), depth)),
            open: now,
            slack,
            patience: slack,
            forgotten: 0,
            waited: 0,
            noted: now,
            forgettable: i128::from(FORGOTTEN_MAX),
            slots: BTreeMap::new(),
        };
        limit.see(now / i128::from(SLOT), now);
        limit
    }

    /// What a limit becomes when a policy is set.
    pub(super) fn after(
        limit: Option<Limit>,
        rates: Option<(u64, u64, u64)>,
        now: i128,
        slack: i128,
    ) -> Option<Limit> {
        rates.map(|rates| match limit {
            Some(limit) => limit.changed(rates, now),
            None => Limit::empty(now, rates, slack),
        })
    }

    /// One that a disk gets which was there before.
    fn empty(now: i128, rates: (u64, u64, u64), slack: i128) -> Limit {
        let mut limit = Limit::new(now, rates, slack);
        if let Some((tag, _)) = &mut limit.bucket {
            tag.raise_to(now);
        }
        limit
    }

    fn changed(mut self, rates: (u64, u64, u64), now: i128) -> Limit {
        if self.rates == rates {
            return self;
        }
        self.tag.base -= self.waited;
        let mut owed = self.bucket.map_or(self.tag, |(tag, _)| tag);
        owed.change_rate(rates.0, now);
        owed.raise_to(now);
        self.tag.change_rate(rates.0.max(rates.1), now);
        self.tag.raise_to(now);
        if rates.1 == 0 && owed.at() > self.tag.at() {
            self.tag = owed;
        }
        let (patience, tag) = (self.patience, self.tag);
        let open = if rates.1 == 0 { tag.at() } else { tag.at().max(owed.at()) };
        let mut fresh = Limit::new(now, rates, self.slack);
        fresh.bucket = depth(rates).map(|depth| (owed, depth));
        (fresh.tag, fresh.open, fresh.patience) = (tag, open, patience);
        fresh.slots.clear();
        fresh.see(now / i128::from(SLOT), now);
        fresh
    }

    fn u(&self, at: i128) -> i128 {
        at - self.tag.at() + self.forgotten
    }

    fn see(&mut self, slot: i128, at: i128) {
        let (first, now) = (self.u(slot * i128::from(SLOT)), self.u(at));
        let seen = self.slots.entry(slot).or_insert((first, first));
        seen.1 = seen.1.max(now);
    }

    fn note(&mut self, now: i128) {
        let length = i128::from(SLOT);
        let (from, to) = (self.noted / length, now / length);
        for slot in from..to {
            if slot == from || slot >= to - i128::from(SLOTS) {
                self.see(slot, (slot + 1) * length);
            }
        }
        self.see(to, now);
        let most = i128::from(FORGOTTEN_MAX);
        self.forgettable = most.min(self.forgettable + (to - from) * (most / i128::from(SLOTS)));
        self.noted = now;
    }

    fn forget(&mut self, bound: i128) {
        let by = (bound - self.tag.at()).max(0);
        self.tag.base += by;
        self.forgotten += by;
    }

    fn fade(&self) -> i128 {
        self.slack / 8 * 3
    }

    pub(super) fn ask(&mut self, now: i128, idle: bool) {
        self.note(now);
        self.forget(if idle { now } else { now - self.patience });
        self.open = self.opens(now).max(self.bucket_opens());
    }

    fn bucket_opens(&self) -> i128 {
        self.bucket.map_or(0, |(tag, _)| tag.at())
    }

    pub(super) fn charge(&mut self, amount: i128, now: i128) {
        self.note(now);
        self.forget(now - i128::from(HORIZON));
        let own = (amount / self.tag.rate - 1).min(i128::from(LATENESS_MAX));
        self.patience = (own - 4 * self.fade()).max(self.slack);
        self.tag.sum += amount;
        self.waited = 0;
        self.open = self.opens(now);
        let wait = self.open - self.tag.at().max(now);
        let forgotten = (wait / i128::from(FORGOTTEN)).min(self.forgettable);
        self.forgettable -= forgotten;
        self.waited += forgotten;
        self.forget(self.tag.at() + forgotten);
        if let Some((tag, depth)) = &mut self.bucket {
            tag.raise_to(now - *depth);
            tag.sum += amount;
            self.wait_for_other(self.bucket_opens(), now);
            self.open = self.open.max(self.bucket_opens());
        }
    }

    pub(super) fn wait_for_other(&mut self, until: i128, now: i128) {
        let wait = (until - self.open.max(now)).max(0);
        self.waited += wait;
        self.forget(self.tag.at() + wait);
    }

    /// Until now.
    pub(super) fn waits(&mut self, wait: i128) {
        self.forget(self.tag.at() + wait.max(0));
    }

    pub(super) fn charge_elsewhere(&mut self, amount: i128, bound: i128, now: i128) {
        let before = self.tag.at();
        self.tag.advance_within(amount, bound);
        self.forgotten += self.tag.at() - before;
        if let Some((tag, depth)) = &mut self.bucket {
            tag.raise_to(now - *depth);
            tag.advance_within(amount, bound);
        }
        self.open = self.opens(now).max(self.bucket_opens());
    }

    /// The first time, of those at which a slot begins and those at which u is the least that a
    /// whole slot asks for, that the rule allows.
    fn opens(&self, now: i128) -> i128 {
        let (length, second) = (i128::from(SLOT), i128::from(SLOTS));
        let from = self.tag.at().max(now);
        let latest = self.tag.at() + i128::from(HORIZON);
        if from >= latest {
            return from;
        }
        for slot in from / length..=latest / length {
            let (mut first, mut most) = (i128::MIN / 2, i128::MIN / 2);
            for (&before, seen) in self.slots.range(..slot) {
                if (slot - before) % second == 0 {
                    let fade = ((slot - before) / second - 1) * self.fade();
                    (first, most) = (first.max(seen.0 - fade), most.max(seen.1 - fade));
                }
            }
            let begin = from.max(slot * length);
            let floor = most.min(first + begin - slot * length) - self.patience;
            if self.u(begin) >= floor {
                return begin;
            }
            let level = begin + most - self.patience - self.u(begin);
            if level < (slot + 1) * length {
                return level.min(latest);
            }
        }
        latest
    }
}
