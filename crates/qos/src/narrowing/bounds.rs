//! What narrowing judges a disk by. Parts are counted in thousandths.

use headgate_units::Nanos;

/// How often a window is judged.
pub const PERIOD: Nanos = Nanos::from_millis(500);

/// A whole, in its parts.
pub(super) const WHOLE: u64 = 1_000;

/// So many millionths of a reference IO are one of the parts that work is counted in.
pub(super) const MILLIONTHS: u64 = 1_000_000 / WHOLE;

/// What is aimed at, in thousandths of the reservation.
pub(super) const AIM: u64 = 1_030;

/// From here on the window may grow fast, in thousandths of the reservation.
pub(super) const ROOMY: u64 = 1_100;

/// Below this a disk is short, in thousandths of the reservation.
pub(super) const SHORT: u64 = 985;

/// A disk that gets this is not given up, in thousandths of the reservation.
pub(super) const HOPELESS: u64 = 900;

/// How fast it grows, in thousandths a period.
pub(super) const GROWTH: u64 = 1_250;

/// How fast it shrinks: to no less than this part a period, in thousandths.
pub(super) const SHRINKING: u64 = 250;

/// `a` in thousandths of `b`, rounded down; saturates.
pub(super) fn part(a: u64, b: u64) -> u64 {
    let part = u128::from(a) * u128::from(WHOLE) / u128::from(b.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}
