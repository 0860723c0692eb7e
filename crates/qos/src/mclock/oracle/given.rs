//! What the storage gave: all that it ever gave, as a list.

/// Nanoseconds at work and millionths of IOs, an entry for each eighth of the horizon.
#[derive(Default)]
pub(super) struct Given {
    entries: Vec<(i128, i128)>,
    since: Option<i128>,
    /// In which entry each stall ended, and how long it was.
    stalls: Vec<(usize, i128)>,
}

impl Given {
    pub(super) fn begin(&mut self, now: i128) {
        self.since = self.since.or(Some(now));
    }

    pub(super) fn pause(&mut self) {
        self.since = None;
    }

    /// Returns the busy time since the last note. `debt` is the bound on debt, `flight` what all
    /// that is in flight costs at most.
    pub(super) fn note(
        &mut self,
        now: i128,
        cost: i128,
        [horizon, debt]: [i128; 2],
        flight: i128,
    ) -> i128 {
        let busy = self.since.map_or(0, |since| now - since);
        let is_stall = self.is_stall(now, [horizon, debt], flight);
        self.since = Some(now);
        if self.entries.is_empty() {
            self.entries.push((0, 0));
        }
        let part = (horizon / 8).max(1);
        if is_stall {
            self.stalls.push((self.entries.len() - 1, busy));
            self.entries.last_mut().unwrap().1 += cost;
            return busy;
        }
        self.entries.last_mut().unwrap().0 += busy;
        // Twenty parts without service are as good as any more.
        for _ in 0..20 {
            let last = self.entries.last_mut().unwrap();
            let rest = last.0 - part;
            if rest >= 0 {
                last.0 = part;
                self.entries.push((rest, 0));
            }
        }
        let last = self.entries.last_mut().unwrap();
        *last = (last.0 % part, last.1 + cost);
        busy
    }

    /// The longest time for which the storage stood still lately, if longer than this.
    pub(super) fn longest_stall(&self, now: i128, longer: i128) -> i128 {
        // The entry that is being filled and eight before it.
        let first = self.entries.len().saturating_sub(9);
        let lately = self.stalls.iter().filter(|(entry, _)| *entry >= first).map(|(_, gap)| *gap);
        let under_way = self.since.map_or(0, |since| now - since);
        lately.chain([under_way]).filter(|gap| *gap > longer).max().unwrap_or(0)
    }

    /// Time at work and service of the last horizon.
    fn lately(&self, part: i128, oldest: Oldest) -> (i128, i128) {
        let mut last: Vec<_> = self.entries.iter().rev().take(9).copied().collect();
        if let [now, _, _, _, _, _, _, _, first] = &mut last[..] {
            let kept = part - now.0;
            let served = match oldest {
                Oldest::Whole => first.1,
                Oldest::Kept => first.1 * kept / part,
            };
            *first = (first.0 * kept / part, served);
        }
        (last.iter().map(|entry| entry.0).sum(), last.iter().map(|entry| entry.1).sum())
    }

    /// Whether there is a stall until now, all in flight costing so much at most.
    pub(super) fn is_stall(&self, now: i128, [horizon, debt]: [i128; 2], flight: i128) -> bool {
        let busy = self.since.map_or(0, |since| now - since);
        let (worked, served) = self.lately((horizon / 8).max(1), Oldest::Whole);
        busy > debt / 2 && busy * served > 2 * flight * worked
    }

    /// What so many thousandths of an IO take by the last eight full entries, rounded as the
    /// scheduler does.
    pub(super) fn time_for(&self, thousandths: i128, horizon: i128) -> i128 {
        let full = self.entries.iter().rev().skip(1).take(8);
        let (parts, served) = full.fold((0, 0), |(n, sum), entry| (n + 1, sum + entry.1));
        let pace = parts * (horizon / 8).max(1) * 65_536_000 / served.max(1);
        thousandths * pace.min(i128::from(u64::MAX)) / 65_536
    }

    pub(super) fn made_good(&self, reserved: i128, horizon: i128, debt: i128) -> i128 {
        let (worked, served) = self.lately((horizon / 8).max(1), Oldest::Kept);
        if worked * reserved == 0 {
            return debt;
        }
        let made_good = horizon * served * 1_000 / (worked * reserved) - horizon;
        let least = if horizon == 0 { debt } else { debt / 2 };
        let bound = if made_good < 0 { debt + made_good } else { made_good.max(debt) };
        bound.clamp(least, debt.max(2 * horizon))
    }
}

/// How much of the oldest part's service counts.
#[derive(Clone, Copy)]
enum Oldest {
    Whole,
    Kept,
}
