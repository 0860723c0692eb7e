use super::config::ConfigError;
use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use headgate_units::Nanos;

/// Millionths.
pub(super) const MILLION: u64 = 1_000_000;

/// A number of requests in flight, in millionths: windows and what follows from them are not whole.
///
/// Sums saturate and differences stop at zero.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots(u64);

impl Slots {
    /// None.
    pub const ZERO: Slots = Slots(0);
    /// One request.
    pub const ONE: Slots = Slots(MILLION);
    /// The largest window: 65,536 requests.
    pub const WINDOW_MAX: Slots = Slots::whole(65_536);

    /// `n` requests.
    pub const fn whole(n: u32) -> Slots {
        Slots(n as u64 * MILLION)
    }

    /// Millionths of a request.
    pub const fn from_millionths(millionths: u64) -> Slots {
        Slots(millionths)
    }

    /// Millionths of a request.
    pub const fn as_millionths(self) -> u64 {
        self.0
    }

    /// Whole requests, rounded down.
    pub const fn floor(self) -> u32 {
        let whole = self.0 / MILLION;
        if whole > u32::MAX as u64 { u32::MAX } else { whole as u32 }
    }

    /// Whole requests, rounded up.
    pub const fn ceil(self) -> u32 {
        let whole = self.0.div_ceil(MILLION);
        if whole > u32::MAX as u64 { u32::MAX } else { whole as u32 }
    }

    /// As a float, for reports only.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / MILLION as f64
    }

    /// `self · numerator / denominator`, to the nearest millionth; saturates. Nothing divided by
    /// nothing is nothing.
    pub(crate) fn scaled(self, numerator: u64, denominator: u64) -> Slots {
        Slots(ratio(self.0, numerator, denominator))
    }
}

/// How many requests in flight a rate needs, when each takes so long (Little's law): `rate ·
/// latency`.
///
/// `rate` is in millionths of requests per second. Saturates.
pub(super) fn little(rate: u64, latency: Nanos) -> Slots {
    Slots(ratio(rate, latency.0, 1_000_000_000))
}

/// `a · b / c` to the nearest, saturating; 0 if `c` is.
pub(super) fn ratio(a: u64, b: u64, c: u64) -> u64 {
    let (product, c) = (u128::from(a) * u128::from(b), u128::from(c));
    let nearest = (product + c / 2).checked_div(c).unwrap_or(0);
    u64::try_from(nearest).unwrap_or(u64::MAX)
}

impl Add for Slots {
    type Output = Slots;
    fn add(self, other: Slots) -> Slots {
        Slots(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Slots {
    fn add_assign(&mut self, other: Slots) {
        *self = *self + other;
    }
}

impl Sub for Slots {
    type Output = Slots;
    fn sub(self, other: Slots) -> Slots {
        Slots(self.0.saturating_sub(other.0))
    }
}

/// Prints hundredths: `15.20`.
impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = self.0.saturating_add(MILLION / 200) / (MILLION / 100);
        write!(f, "{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A part of a whole, 0 to 1 in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fraction(u32);

impl Fraction {
    /// Nothing.
    pub const ZERO: Fraction = Fraction(0);
    /// The whole.
    pub const ONE: Fraction = Fraction(MILLION as u32);

    /// Millionths of the whole.
    ///
    /// # Errors
    /// [`ConfigError::Fraction`] above 1,000,000.
    pub const fn from_millionths(millionths: u32) -> Result<Fraction, ConfigError> {
        if millionths > Fraction::ONE.0 {
            return Err(ConfigError::Fraction(millionths));
        }
        Ok(Fraction(millionths))
    }

    /// So many per cent; more than 100 are 100.
    pub const fn percent(percent: u8) -> Fraction {
        let percent = if percent > 100 { 100 } else { percent };
        Fraction(percent as u32 * 10_000)
    }

    /// A fifth of it, rounded down.
    pub(super) const fn fifth(self) -> Fraction {
        Fraction(self.0 / 5)
    }

    /// Millionths of the whole.
    pub const fn as_millionths(self) -> u32 {
        self.0
    }

    /// This part of `whole`, to the nearest.
    pub(super) fn of(self, whole: u64) -> u64 {
        ratio(whole, u64::from(self.0), MILLION)
    }

    /// What is missing to the whole.
    pub(super) const fn rest(self) -> Fraction {
        Fraction(Fraction::ONE.0 - self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_round_to_the_nearest_and_never_wrap() {
        assert_eq!(Slots::whole(10).scaled(2, 3), Slots::from_millionths(6_666_667));
        assert_eq!(Slots::from_millionths(u64::MAX).scaled(3, 1), Slots::from_millionths(u64::MAX));
        assert_eq!(Slots::ONE.scaled(0, 0), Slots::ZERO);
        assert_eq!((Slots::whole(3) - Slots::whole(4), Slots::whole(4).floor()), (Slots::ZERO, 4));
        assert_eq!(Slots::from_millionths(4_000_001).ceil(), 5);
        assert_eq!(Slots::from_millionths(15_196_000).to_string(), "15.20");
        assert_eq!(Slots::from_millionths(u64::MAX).ceil(), u32::MAX);
    }

    #[test]
    fn littles_law() {
        assert_eq!(little(320 * MILLION, Nanos::from_millis(25)), Slots::whole(8));
        assert_eq!(little(492_307_692, Nanos::from_millis(65)), Slots::whole(32));
        assert_eq!(little(u64::MAX, Nanos::MAX), Slots::from_millionths(u64::MAX));
    }

    #[test]
    fn fractions_are_at_most_one() {
        assert_eq!(Fraction::percent(200), Fraction::ONE);
        assert!(Fraction::from_millionths(1_000_001).is_err());
        assert_eq!(Fraction::percent(80).of(10), 8);
        assert_eq!(Fraction::percent(80).rest(), Fraction::percent(20));
    }
}
