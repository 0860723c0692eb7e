//! A tag on an endless line, as an exact fraction.

/// `base + sum / rate`, compared by its integer part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    pub(super) base: i128,
    pub(super) sum: i128,
    pub(super) rate: i128,
}

impl Exact {
    pub(super) fn new(base: i128, rate: u64) -> Exact {
        Exact { base, sum: 0, rate: i128::from(rate) }
    }

    pub(super) fn at(&self) -> i128 {
        self.base + self.sum / self.rate
    }

    pub(super) fn set(&mut self, at: i128) {
        *self = Exact { base: at, sum: 0, ..*self };
    }

    pub(super) fn raise_to(&mut self, bound: i128) {
        if self.at() < bound {
            self.set(bound);
        }
    }

    pub(super) fn lower_to(&mut self, bound: i128) {
        if self.at() > bound {
            self.set(bound);
        }
    }

    /// Not beyond `bound`, and not at all from there.
    pub(super) fn advance_within(&mut self, amount: i128, bound: i128) {
        if self.at() < bound {
            self.sum += amount;
            self.lower_to(bound);
        }
    }

    /// What lies ahead of `origin` is owed service and keeps its amount, up to 146 years.
    pub(super) fn change_rate(&mut self, rate: u64, origin: i128) {
        let rate = i128::from(rate);
        if rate == self.rate {
            return;
        }
        let at = if self.at() > origin {
            let owed = (self.base - origin) * self.rate + self.sum;
            origin + (owed / rate).min(1 << 62)
        } else {
            self.at()
        };
        *self = Exact { base: at, sum: 0, rate };
    }
}
