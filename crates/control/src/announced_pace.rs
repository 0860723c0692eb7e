//! How often peers may change policies: each change is made durable, and what one peer has written
//! others wait for.

use headgate_units::Nanos;
use std::collections::HashMap;

/// So many changes of a peer may come at once.
const BURST: u64 = 20;

/// From one change of a peer to the next, in the long run.
const STEP: Nanos = Nanos::from_millis(100);

/// The longest that a change is held back: less than its peer waits for the answer.
const LONGEST: Nanos = Nanos::from_secs(2);

/// When a change may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// After so long.
    After(Nanos),
    /// Not: the peer's changes come faster than they may. It may ask again after so long.
    TooFast(Nanos),
}

/// The changes of all peers, by the name in the certificate. A peer of which nothing is remembered
/// may have a burst.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When what a peer has changed would be through, one change after the other.
    through: HashMap<String, Nanos>,
}

impl Pace {
    /// A peer wants to change something. O(1) amortised, with as many peers as have changed
    /// something within seconds.
    pub(crate) fn turn(&mut self, peer: &str, now: Nanos) -> Turn {
        let through = self.through.get(peer).map_or(now, |through| (*through).max(now));
        let free = Nanos(now.0.saturating_add(STEP.0 * (BURST - 1)));
        let wait = Nanos(through.0.saturating_sub(free.0));
        if wait > LONGEST {
            return Turn::TooFast(Nanos(wait.0 - LONGEST.0));
        }
        if !self.through.contains_key(peer) {
            self.through.retain(|_, through| *through > now);
        }
        self.through.insert(peer.to_owned(), Nanos(through.0.saturating_add(STEP.0)));
        Turn::After(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    #[test]
    fn a_burst_goes_at_once_the_next_ones_wait_and_more_are_refused() {
        let mut pace = Pace::default();
        for _ in 0..BURST {
            assert_eq!(pace.turn("a", at(0)), Turn::After(at(0)));
        }
        for waiting in 1..=20 {
            assert_eq!(pace.turn("a", at(0)), Turn::After(at(100 * waiting)));
        }
        assert_eq!(pace.turn("a", at(0)), Turn::TooFast(at(100)));
        // Another peer has nothing to do with it, and a refusal costs nothing.
        assert_eq!(pace.turn("b", at(0)), Turn::After(at(0)));
        assert_eq!(pace.turn("a", at(100)), Turn::After(at(2000)));
        // One that rested has its burst again, and no more.
        for _ in 0..BURST {
            assert_eq!(pace.turn("a", at(60_000)), Turn::After(at(0)));
        }
        assert_eq!(pace.turn("a", at(60_000)), Turn::After(at(100)));
    }

    #[test]
    fn peers_that_rest_are_forgotten() {
        let mut pace = Pace::default();
        for peer in 0..1_000_u64 {
            pace.turn(&peer.to_string(), at(peer * 100));
        }
        assert!(pace.through.len() <= 2, "{}", pace.through.len());
    }

    proptest! {
        /// Whatever comes when, no span has more changes than a burst and what the rate gives, and
        /// nobody waits longer than is said.
        #[test]
        fn no_span_has_more_than_the_rate_gives(gaps in prop::collection::vec(0..300_u64, 1..200)) {
            let (mut pace, mut now, mut made) = (Pace::default(), 0, Vec::new());
            for gap in gaps {
                now += gap;
                if let Turn::After(wait) = pace.turn("a", at(now)) {
                    prop_assert!(wait <= LONGEST);
                    made.push(at(now).0 + wait.0);
                }
            }
            prop_assert!(made.is_sorted());
            for (first, from) in made.iter().enumerate() {
                for (n, to) in (1..).zip(&made[first..]) {
                    prop_assert!(n <= BURST + (to - from) / STEP.0, "{n} within {}", to - from);
                }
            }
        }
    }
}
