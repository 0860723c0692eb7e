//! What the storage gave: all that it ever gave, as a list.

/// Busy nanoseconds and millionths of IOs, an entry for each eighth of the horizon.
#[derive(Default)]
pub(super) struct Given {
    entries: Vec<(i128, i128)>,
    since: Option<i128>,
    /// In which entry each busy time without a dispatch ended, and how long it was.
    gaps: Vec<(usize, i128)>,
}

impl Given {
    pub(super) fn begin(&mut self, now: i128) {
        self.since = self.since.or(Some(now));
    }

    pub(super) fn pause(&mut self) {
        self.since = None;
    }

    /// Returns the busy time since the last note.
    pub(super) fn note(&mut self, now: i128, cost: i128, horizon: i128) -> i128 {
        let busy = self.since.map_or(0, |since| now - since);
        self.since = Some(now);
        if self.entries.is_empty() {
            self.entries.push((0, 0));
        }
        let part = (horizon / 8).max(1);
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
        self.gaps.push((self.entries.len() - 1, busy));
        busy
    }

    /// For how long the storage stood still lately, in stalls longer than this.
    pub(super) fn stalled(&self, now: i128, longer: i128) -> i128 {
        // The entry that is being filled and eight before it.
        let first = self.entries.len().saturating_sub(9);
        let lately = self.gaps.iter().filter(|(entry, _)| *entry >= first).map(|(_, gap)| *gap);
        let under_way = self.since.map_or(0, |since| now - since);
        lately.chain([under_way]).filter(|gap| *gap > longer).sum()
    }

    pub(super) fn debt_bound(&self, reserved: i128, horizon: i128, least: i128) -> i128 {
        let part = (horizon / 8).max(1);
        let mut last: Vec<_> = self.entries.iter().rev().take(9).copied().collect();
        if let [now, _, _, _, _, _, _, _, oldest] = &mut last[..] {
            let kept = part - now.0;
            *oldest = (oldest.0 * kept / part, oldest.1 * kept / part);
        }
        let busy: i128 = last.iter().map(|entry| entry.0).sum();
        let served: i128 = last.iter().map(|entry| entry.1).sum();
        if busy * reserved == 0 {
            return least;
        }
        let made_good_in = horizon * served * 1_000 / (busy * reserved) - horizon;
        made_good_in.clamp(0, horizon).max(least)
    }
}
