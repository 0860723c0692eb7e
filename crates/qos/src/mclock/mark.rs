//! What a limit remembers of its past.

/// Bounds u in one slot, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// At its beginning.
    pub(super) first: i64,
    /// Anywhere in it.
    pub(super) most: i64,
}

impl Mark {
    /// Nothing went before.
    pub(super) const NONE: Mark = Mark { first: i64::MIN / 2, most: i64::MIN / 2 };

    /// Sinks.
    pub(super) fn fade(self, by: u64) -> Mark {
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        Mark { first: self.first.saturating_sub(by), most: self.most.saturating_sub(by) }
    }

    pub(super) fn max(self, other: Mark) -> Mark {
        Mark { first: self.first.max(other.first), most: self.most.max(other.most) }
    }
}
