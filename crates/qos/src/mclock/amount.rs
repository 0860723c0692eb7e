//! Costs, bytes and rates as tags take them.

use crate::cost::Cost;
use core::num::NonZeroU64;

/// A cost as an amount for a tag in nanoseconds whose rate is in IOs per second.
#[inline]
pub(super) fn time_amount(cost: Cost) -> u64 {
    cost.as_millionths() * 1_000
}

/// Bytes as an amount for a tag in nanoseconds whose rate is in bytes per second.
#[inline]
pub(super) fn bandwidth_amount(bytes: u32) -> u64 {
    u64::from(bytes) * 1_000_000_000
}

/// A rate of one of the units' types, which all start at 1.
pub(super) fn rate(value: u64) -> NonZeroU64 {
    NonZeroU64::new(value).unwrap_or(NonZeroU64::MIN)
}
