//! How fast the share clock goes.

/// Parts of the horizon. More forget more smoothly.
const PARTS: usize = 8;

/// By how much V rose over the last busy horizon, as [`Delivered`](super::delivered::Delivered)
/// counts busy time.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    part: u64,
    /// V when a part began, the oldest at `oldest`.
    past: [u128; PARTS],
    oldest: usize,
    /// Busy nanoseconds of the part that has begun.
    busy: u64,
}

impl Pace {
    /// `horizon` in nanoseconds; V is at `at`.
    pub(super) fn new(horizon: u64, at: u128) -> Pace {
        Pace { part: (horizon / PARTS as u64).max(1), past: [at; PARTS], oldest: 0, busy: 0 }
    }

    /// So many busy nanoseconds have passed. `at` is V.
    #[inline]
    pub(super) fn note(&mut self, busy: u64, at: u128) {
        self.busy = self.busy.saturating_add(busy);
        if self.busy >= self.part {
            self.turn(at);
        }
    }

    fn turn(&mut self, at: u128) {
        let parts = self.busy / self.part;
        self.busy %= self.part;
        // More would replace all of them again.
        for _ in 0..parts.min(PARTS as u64) {
            self.past[self.oldest] = at;
            self.oldest = (self.oldest + 1) % PARTS;
        }
    }

    /// By how much V has risen, to `at`. O(1).
    pub(super) fn risen(&self, at: u128) -> u128 {
        at.saturating_sub(self.past[self.oldest])
    }
}
