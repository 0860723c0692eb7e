//! The plug: holds a dispatch back briefly for a request of a better stream.
//!
//! With few requests outstanding the better stream is often at its application when there is room.
//! With [`Config::plug`](crate::Config::plug) the request that is next by shares then waits, while requests of other
//! streams are in flight: until a better one comes, or for four times as long as it takes them to
//! come on average, never longer than the plug. Where fewer than an eighth of the waits end well,
//! 1,000 requests go before a few more are tried. Reservations never wait.

use headgate_units::Nanos;

/// After a hit or a miss the hit rate moves by this part of the way.
const WEIGHT: u32 = 16;

/// A hit rate of one.
const CERTAIN: u32 = 1 << 16;

/// The lowest hit rate at which waiting pays.
const WORTH: u32 = CERTAIN / 8;

/// The hit rate with which it is tried again: enough for a few misses in a row.
const HOPE: u32 = CERTAIN / 6;

/// Decisions without waiting before it is tried again.
const PAUSE: u32 = 1_000;

/// Whether to send a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlugDecision {
    Go,
    Wait { until: u64 },
}

/// What would be sent: a disk's slot and the priority of its front.
pub(super) type Candidate = (u32, u8);

#[derive(Clone, Copy, Debug)]
struct Hold {
    candidate: Candidate,
    since: u64,
    until: u64,
}

/// Decides, for one datastore, whether and how long a request waits for a better one. All times are
/// inner nanoseconds. O(1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Plug {
    most: u64,
    hold: Option<Hold>,
    hit_rate: u32,
    /// Mean time until a better request comes, over the waits that ended with one.
    mean: u64,
    pause: u32,
}

impl Plug {
    pub(super) fn new(most: Nanos) -> Plug {
        Plug { most: most.0, hold: None, hit_rate: CERTAIN, mean: most.0 / 8, pause: 0 }
    }

    pub(super) fn is_off(&self) -> bool {
        self.most == 0
    }

    /// The candidate is next by shares, `rivals` requests of other streams are with the storage.
    pub(super) fn decide(&mut self, now: u64, candidate: Candidate, rivals: usize) -> PlugDecision {
        if let Some(hold) = self.hold {
            if candidate != hold.candidate {
                self.note(Some(now - hold.since));
                return PlugDecision::Go;
            }
            if now < hold.until && rivals > 0 {
                return PlugDecision::Wait { until: hold.until };
            }
            self.note(None);
            return PlugDecision::Go;
        }
        // No better stream has a request that could come back, and idle storage must not wait.
        if rivals == 0 {
            return PlugDecision::Go;
        }
        if self.hit_rate < WORTH {
            if self.pause > 0 {
                self.pause -= 1;
                return PlugDecision::Go;
            }
            self.pause = PAUSE;
            self.hit_rate = HOPE;
            self.mean = self.most / 8;
        }
        let until = now + self.mean.saturating_mul(4).min(self.most);
        self.hold = Some(Hold { candidate, since: now, until });
        PlugDecision::Wait { until }
    }

    fn note(&mut self, hit_after: Option<u64>) {
        self.hold = None;
        self.hit_rate -= self.hit_rate / WEIGHT;
        if let Some(after) = hit_after {
            self.hit_rate += CERTAIN / WEIGHT;
            self.mean = (self.mean * 7 + after) / 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Candidate = (0, 10);
    const B: Candidate = (1, 200);

    fn plug() -> Plug {
        Plug::new(Nanos::from_millis(1))
    }

    #[test]
    fn a_better_one_that_comes_in_time_goes_at_once() {
        let mut plug = plug();
        assert_eq!(plug.decide(1_000, A, 3), PlugDecision::Wait { until: 501_000 });
        assert_eq!(plug.decide(2_000, A, 2), PlugDecision::Wait { until: 501_000 });
        assert_eq!(plug.decide(3_000, B, 2), PlugDecision::Go);
    }

    #[test]
    fn nobody_waits_longer_than_the_most_and_never_for_idle_storage() {
        let mut plug = plug();
        assert_eq!(plug.decide(0, A, 0), PlugDecision::Go);
        assert_eq!(plug.decide(0, A, 1), PlugDecision::Wait { until: 500_000 });
        assert_eq!(plug.decide(500_000, A, 1), PlugDecision::Go);
        assert_eq!(plug.decide(500_000, A, 1), PlugDecision::Wait { until: 1_000_000 });
        assert_eq!(plug.decide(500_001, A, 0), PlugDecision::Go);
    }

    #[test]
    fn waiting_in_vain_ends_and_is_tried_again_now_and_then() {
        let (mut plug, mut now, mut waits) = (plug(), 0, 0);
        for _ in 0..10_000 {
            if let PlugDecision::Wait { until } = plug.decide(now, A, 1) {
                (now, waits) = (until, waits + 1);
                assert_eq!(plug.decide(now, A, 1), PlugDecision::Go);
            }
        }
        assert!((60..=100).contains(&waits), "{waits} of 10,000 decisions waited");
        // As soon as it pays again it is done again.
        waits = 0;
        for _ in 0..10_000 {
            if let PlugDecision::Wait { .. } = plug.decide(now, A, 1) {
                (now, waits) = (now + 1_000, waits + 1);
                assert_eq!(plug.decide(now, B, 1), PlugDecision::Go);
            }
        }
        assert!(waits > 8_900, "{waits} of 10,000");
    }

    #[test]
    fn waiting_becomes_as_short_as_it_may_be() {
        let (mut plug, mut now) = (plug(), 0);
        for _ in 0..100 {
            if let PlugDecision::Wait { .. } = plug.decide(now, A, 1) {
                now += 20_000;
                assert_eq!(plug.decide(now, B, 1), PlugDecision::Go);
            }
        }
        assert!(
            matches!(plug.decide(now, A, 1), PlugDecision::Wait { until } if until - now <= 90_000)
        );
    }
}
