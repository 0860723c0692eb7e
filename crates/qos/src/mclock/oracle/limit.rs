//! The limit clock: all that ever went, and every slot asked anew.

use super::exact::Exact;
use crate::mclock::limit::{FORGOTTEN, HORIZON, LATENESS_MAX, SLOT, SLOTS};
use std::collections::BTreeMap;

#[derive(Clone)]
pub(super) struct Limit {
    tag: Exact,
    pub(super) open: i128,
    slack: i128,
    patience: i128,
    forgotten: i128,
    noted: i128,
    /// u at the beginning and the largest u of each slot, but for slots in which u only rose and
    /// which are more than a second before the next dispatch.
    slots: BTreeMap<i128, (i128, i128)>,
}

impl Limit {
    pub(super) fn new(now: i128, rate: u64, slack: i128) -> Limit {
        let mut limit = Limit {
            tag: Exact::new(now, rate),
            open: now,
            slack,
            patience: slack,
            forgotten: 0,
            noted: now,
            slots: BTreeMap::new(),
        };
        limit.see(now / i128::from(SLOT), now);
        limit
    }

    pub(super) fn changed(mut self, rate: u64, now: i128) -> Limit {
        if self.tag.rate == i128::from(rate) {
            return self;
        }
        self.tag.change_rate(rate, now);
        self.tag.raise_to(now);
        let (open, patience, tag) = (self.tag.at(), self.patience, self.tag);
        let mut fresh = Limit::new(now, rate, self.slack);
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
        self.open = self.opens(now);
    }

    pub(super) fn charge(&mut self, amount: i128, now: i128) {
        self.note(now);
        self.forget(now - i128::from(HORIZON));
        let own = (amount / self.tag.rate - 1).min(i128::from(LATENESS_MAX));
        self.patience = (own - 4 * self.fade()).max(self.slack);
        self.tag.sum += amount;
        self.open = self.opens(now);
        let wait = self.open - self.tag.at().max(now);
        self.forget(self.tag.at() + wait / i128::from(FORGOTTEN));
    }

    pub(super) fn wait_for_other(&mut self, until: i128, now: i128) {
        self.forget(self.tag.at() + (until - self.open.max(now)).max(0));
    }

    pub(super) fn charge_elsewhere(&mut self, amount: i128, bound: i128, now: i128) {
        let before = self.tag.at();
        self.tag.advance_within(amount, bound);
        self.forgotten += self.tag.at() - before;
        self.open = self.opens(now);
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
