//! How often what anybody can cause is written down: each peer has a budget, and all together have
//! one. What is not written down is counted, and the next one that is tells how many.

use headgate_units::Nanos;
use std::collections::BTreeMap;

/// A budget: so many at once, and one more in each interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    burst: u32,
    interval: Nanos,
}

/// The budgets of each and of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    each: Budget,
    all: Budget,
}

impl Pace {
    /// Of what is refused, for each peer: 20 at once and one a minute. In all: 200 at once and one
    /// a second.
    pub const REFUSED: Pace = Pace {
        each: Budget { burst: 20, interval: Nanos::from_secs(60) },
        all: Budget { burst: 200, interval: Nanos::from_secs(1) },
    };

    /// Of what the daemon notices, for each thing that it notices: the same.
    pub const NOTICED: Pace = Pace {
        each: Budget { burst: 20, interval: Nanos::from_secs(60) },
        all: Budget { burst: 1_000, interval: Nanos::from_millis(100) },
    };
}

/// Those who are remembered, at most.
const PEERS_MAX: usize = 4_096;

/// What may be taken of a budget.
#[derive(Clone, Copy, Debug)]
struct Purse {
    left: u32,
    /// When it had the last one added.
    at: Nanos,
}

impl Purse {
    fn full(budget: Budget, now: Nanos) -> Purse {
        Purse { left: budget.burst, at: now }
    }

    fn fill(&mut self, budget: Budget, now: Nanos) {
        let new = now.since(self.at).0 / budget.interval.0;
        let room = u64::from(budget.burst - self.left);
        if new >= room {
            *self = Purse::full(budget, now);
        } else {
            self.left += new as u32;
            self.at = Nanos(self.at.0 + new * budget.interval.0);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    purse: Purse,
    unwritten: u64,
}

/// What becomes of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is written down, and how many of the same peer were not since the last one.
    Write {
        /// So many.
        unwritten: u64,
    },
    /// It is counted.
    Count,
}

/// The budgets, and what is left of them. `K` is what a peer is known by.
#[derive(Debug)]
pub struct Allowance<K> {
    pace: Pace,
    all: Purse,
    peers: BTreeMap<K, Peer>,
    /// Of those for whom there was no place.
    strangers: u64,
    /// When one looked last who can be forgotten.
    forgot: Option<Nanos>,
}

impl<K: Ord + Clone> Allowance<K> {
    /// Nobody has taken anything yet.
    pub fn new(pace: Pace) -> Allowance<K> {
        let all = Purse::full(pace.all, Nanos::ZERO);
        Allowance { pace, all, peers: BTreeMap::new(), strangers: 0, forgot: None }
    }

    /// Whether one of this peer's is written down now.
    pub fn ask(&mut self, now: Nanos, peer: &K) -> Verdict {
        self.all.fill(self.pace.all, now);
        if !self.peers.contains_key(peer) && !self.has_place(now) {
            if self.all.left == 0 {
                self.strangers += 1;
                return Verdict::Count;
            }
            self.all.left -= 1;
            return Verdict::Write { unwritten: std::mem::take(&mut self.strangers) };
        }
        let Pace { each, .. } = self.pace;
        let known = self
            .peers
            .entry(peer.clone())
            .or_insert_with(|| Peer { purse: Purse::full(each, now), unwritten: 0 });
        known.purse.fill(each, now);
        if known.purse.left == 0 || self.all.left == 0 {
            known.unwritten += 1;
            return Verdict::Count;
        }
        known.purse.left -= 1;
        self.all.left -= 1;
        Verdict::Write { unwritten: std::mem::take(&mut known.unwritten) }
    }

    /// Those who are owed a count, and may have something written down: they are not heard of any
    /// more, perhaps. Their counts begin anew.
    pub fn owed(&mut self, now: Nanos) -> Vec<(K, u64)> {
        let owing: Vec<K> = self
            .peers
            .iter()
            .filter(|(_, known)| known.unwritten > 0)
            .map(|(peer, _)| peer.clone())
            .collect();
        let mut owed = Vec::new();
        for peer in owing {
            if let Verdict::Write { unwritten } = self.ask(now, &peer) {
                owed.push((peer, unwritten));
            } else if let Some(known) = self.peers.get_mut(&peer) {
                // To be asked is no request of theirs.
                known.unwritten -= 1;
            }
        }
        owed
    }

    /// Whether one more can be remembered, if need be for those whose budgets are full and who are
    /// owed nothing. That is looked at once in an interval.
    fn has_place(&mut self, now: Nanos) -> bool {
        let Pace { each, all } = self.pace;
        if self.peers.len() < PEERS_MAX {
            return true;
        }
        if self.forgot.is_some_and(|at| now.since(at) < all.interval) {
            return false;
        }
        self.forgot = Some(now);
        self.peers.retain(|_, known| {
            known.purse.fill(each, now);
            known.purse.left < each.burst || known.unwritten > 0
        });
        self.peers.len() < PEERS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(allowance: &mut Allowance<u32>, now: Nanos, peer: u32) -> Option<u64> {
        match allowance.ask(now, &peer) {
            Verdict::Write { unwritten } => Some(unwritten),
            Verdict::Count => None,
        }
    }

    #[test]
    fn a_flood_is_counted_and_told_with_the_next() {
        let mut allowance = Allowance::new(Pace::REFUSED);
        let at = Nanos::from_secs;
        let first: Vec<_> = (0..500).filter_map(|_| written(&mut allowance, at(1), 7)).collect();
        assert_eq!(first, [0; 20]);
        assert_eq!(written(&mut allowance, at(30), 7), None);
        assert_eq!(written(&mut allowance, at(61), 7), Some(481));
        assert_eq!(written(&mut allowance, at(62), 8), Some(0), "another's is another's");
        assert_eq!(written(&mut allowance, at(62), 7), None);
    }

    #[test]
    fn who_is_silent_after_a_flood_is_told_of_once() {
        let mut allowance = Allowance::new(Pace::REFUSED);
        for _ in 0..25 {
            allowance.ask(Nanos::from_secs(1), &7);
        }
        assert_eq!(allowance.owed(Nanos::from_secs(2)), [], "its budget is spent");
        assert_eq!(allowance.owed(Nanos::from_secs(62)), [(7, 5)]);
        assert_eq!(allowance.owed(Nanos::from_secs(1_000)), []);
    }

    #[test]
    fn many_peers_share_a_budget_and_little_memory() {
        let mut allowance = Allowance::new(Pace::REFUSED);
        let now = Nanos::from_secs(5);
        let all = (0..100_000).filter_map(|peer| written(&mut allowance, now, peer)).count();
        assert_eq!(all, 200);
        assert!(allowance.peers.len() <= PEERS_MAX);
        // Whoever came first is not forgotten for those who come later.
        let mut allowance = Allowance::new(Pace::REFUSED);
        for _ in 0..30 {
            allowance.ask(now, &1);
        }
        for peer in 100..10_000 {
            allowance.ask(now, &peer);
        }
        assert_eq!(written(&mut allowance, now, 1), None, "its budget is still spent");
    }

    #[test]
    fn a_clock_that_jumps_breaks_nothing() {
        let mut allowance = Allowance::new(Pace::REFUSED);
        for now in [u64::MAX, 0, u64::MAX / 2, 1] {
            allowance.ask(Nanos(now), &1);
        }
    }
}
