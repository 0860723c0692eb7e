//! Tags that advance by `amount / rate` without drift and without a division per step.

use core::num::NonZeroU64;

/// Division by a number known in advance: one multiplication, one correction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    value: NonZeroU64,
    /// `floor((2^64 - 1) / value)`.
    inverse: u64,
}

impl Divisor {
    pub(crate) const fn new(value: NonZeroU64) -> Divisor {
        Divisor { value, inverse: u64::MAX / value.get() }
    }

    pub(crate) const fn value(&self) -> u64 {
        self.value.get()
    }

    /// Quotient and remainder.
    ///
    /// With `inverse = (2^64 - e)/value`, `1 <= e <= value`, the estimate is `n/value -
    /// n·e/(value·2^64)`, so below the true quotient by less than one before, and at most one
    /// after, rounding down: one correction is enough.
    #[inline]
    pub(crate) const fn div_rem(&self, n: u64) -> (u64, u64) {
        let quotient = ((n as u128 * self.inverse as u128) >> 64) as u64;
        let rest = n - quotient * self.value();
        if rest >= self.value() { (quotient + 1, rest - self.value()) } else { (quotient, rest) }
    }
}

/// A tag on an integer scale that advances by `amount / rate`, exactly: what the integer cannot
/// hold is carried to the next step.
///
/// Tags are points on a circle of 2^64 and compared with [`before`]; live ones are within 2^63 of
/// each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    /// The tag, rounded down.
    pub(crate) at: u64,
    /// The rest, in units of `1 / rate`; below the rate.
    rest: u64,
    rate: Divisor,
}

impl Tag {
    pub(crate) const fn new(at: u64, rate: NonZeroU64) -> Tag {
        Tag { at, rest: 0, rate: Divisor::new(rate) }
    }

    #[inline]
    pub(crate) fn rate(&self) -> NonZeroU64 {
        self.rate.value
    }

    /// Advances by `amount / rate` and returns the whole steps gone. `amount` is at most 2^62.
    #[inline]
    pub(crate) fn advance(&mut self, amount: u64) -> u64 {
        let (step, rest) = self.rate.div_rem(amount + self.rest);
        self.at = self.at.wrapping_add(step);
        self.rest = rest;
        step
    }

    /// Advances by `amount / rate` and returns that, rounded down. `amount` is at most 2^62.
    #[inline]
    pub(crate) fn advance_spaced(&mut self, amount: u64) -> u64 {
        let (spacing, rest) = self.rate.div_rem(amount);
        let rest = rest + self.rest;
        let carry = u64::from(rest >= self.rate.value());
        self.at = self.at.wrapping_add(spacing + carry);
        self.rest = rest - carry * self.rate.value();
        spacing
    }

    /// Advances by `amount / rate`, but not beyond `bound`, and not at all from there. `amount` may
    /// be anything.
    pub(crate) fn advance_within(&mut self, amount: u128, bound: u64) {
        if !before(self.at, bound) {
            return;
        }
        match u64::try_from(amount) {
            Ok(amount) if amount <= 1 << 62 => _ = self.advance(amount),
            _ => {
                let (sum, rate) = (amount + u128::from(self.rest), u128::from(self.rate.value()));
                self.at = self.at.wrapping_add((sum / rate).min(MAX_AHEAD) as u64);
                self.rest = (sum % rate) as u64;
            }
        }
        self.lower_to(bound);
    }

    /// `amount / rate`, rounded down.
    #[inline]
    pub(crate) fn spacing(&self, amount: u64) -> u64 {
        self.rate.div_rem(amount).0
    }

    /// Moves the tag to `at`.
    pub(crate) fn set(&mut self, at: u64) {
        self.at = at;
        self.rest = 0;
    }

    /// Holding the tag at `bound` or later would leave nothing of it.
    pub(crate) fn is_spent(&self, bound: u64) -> bool {
        before(self.at, bound) || (self.at == bound && self.rest == 0)
    }

    /// Holds the tag at `bound` or later.
    #[inline]
    pub(crate) fn raise_to(&mut self, bound: u64) {
        if before(self.at, bound) {
            self.at = bound;
            self.rest = 0;
        }
    }

    /// Holds the tag at `bound` or earlier.
    #[inline]
    pub(crate) fn lower_to(&mut self, bound: u64) {
        if before(bound, self.at) {
            self.at = bound;
            self.rest = 0;
        }
    }

    /// Changes the rate. The part of the tag that lies after `origin` is service not yet paid for:
    /// it is kept as service, so it takes longer at a lower rate and shorter at a higher one. The
    /// same rate changes nothing.
    pub(crate) fn change_rate(&mut self, rate: NonZeroU64, origin: u64) {
        if rate == self.rate() {
            return;
        }
        if before(origin, self.at) {
            let ahead = u128::from(self.at.wrapping_sub(origin)) * u128::from(self.rate.value());
            let scaled = (ahead + u128::from(self.rest)) / u128::from(rate.get());
            self.at = origin.wrapping_add(scaled.min(MAX_AHEAD) as u64);
        }
        self.rest = 0;
        self.rate = Divisor::new(rate);
    }
}

/// No tag runs further ahead than this, so that the circle's order holds: 2^62 (in nanoseconds, 146
/// years).
const MAX_AHEAD: u128 = 1 << 62;

/// Is `a` earlier than `b` on the circle.
#[inline]
pub(crate) const fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn divisor(value: u64) -> Divisor {
        Divisor::new(NonZeroU64::new(value).unwrap())
    }

    fn tag(at: u64, rate: u64) -> Tag {
        Tag::new(at, NonZeroU64::new(rate).unwrap())
    }

    fn change(tag: &mut Tag, rate: u64, origin: u64) {
        tag.change_rate(NonZeroU64::new(rate).unwrap(), origin);
    }

    proptest! {
        #[test]
        fn a_prepared_divisor_divides_exactly(n: u64, value in 1u64.., small in 1u64..1_000_000) {
            for d in [value, small] {
                prop_assert_eq!(divisor(d).div_rem(n), (n / d, n % d));
            }
        }

        #[test]
        fn a_tag_never_drifts(
            rate in prop_oneof![1u64..10, 1u64..2_000_000],
            amounts in prop::collection::vec(0u64..1 << 40, 0..50),
        ) {
            let mut tags = [tag(u64::MAX - 1_000, rate); 2];
            let mut total = 0u128;
            for amount in amounts {
                tags[0].advance(amount);
                prop_assert_eq!(tags[1].advance_spaced(amount), amount / rate);
                total += u128::from(amount);
                let exact = u128::from(u64::MAX - 1_000) + total / u128::from(rate);
                prop_assert_eq!(tags.map(|tag| tag.at), [exact as u64; 2]);
            }
        }
    }

    #[test]
    fn extreme_divisors() {
        for d in [1, 2, 3, u64::MAX, u64::MAX - 1, 1 << 63] {
            for n in [0, 1, d - 1, d, u64::MAX] {
                assert_eq!(divisor(d).div_rem(n), (n / d, n % d), "{n} / {d}");
            }
        }
    }

    #[test]
    fn seven_per_second_is_seven_per_second_after_a_year() {
        const SECOND: u64 = 1_000_000_000;
        let mut tag = tag(0, 7);
        for _ in 0..7 * 3_600 {
            tag.advance(SECOND);
        }
        assert_eq!(tag.at, 3_600 * SECOND);
        for _ in 0..7 * 365 * 24 {
            tag.advance(SECOND * 3_600);
        }
        assert_eq!(tag.at, (3_600 + 365 * 24 * 3_600) * SECOND);
    }

    #[test]
    fn changing_the_rate_keeps_the_service_owed() {
        let mut tag = tag(1_000, 10);
        change(&mut tag, 100, 0);
        assert_eq!(tag.at, 100);
        change(&mut tag, 1, 0);
        assert_eq!(tag.at, 10_000);
        change(&mut tag, 7, 20_000);
        assert_eq!(tag.at, 10_000, "what lies before the origin stays");
    }
}
