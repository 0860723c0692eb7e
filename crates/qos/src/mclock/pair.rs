//! Two limits that hold at once, in IOs and in bytes per second.

use super::amount::{bandwidth_amount, time_amount};
use super::bucket::{Fill, Rates};
use super::limit::{Asker, Limit};
use crate::cost::Cost;
use alloc::boxed::Box;

/// A limit that may be set.
pub(super) type Slot = Option<Box<Limit>>;

/// From when on both let the next request go; 0 where none is set.
#[inline]
pub(super) fn open(limit: &Slot, bandwidth: &Slot) -> u64 {
    let until = |limit: &Slot| limit.as_ref().map_or(0, |limit| limit.open());
    until(limit).max(until(bandwidth))
}

/// Charges both for a dispatch. What one waits for the other earns no lateness.
#[inline]
pub(super) fn charge(limit: &mut Slot, bandwidth: &mut Slot, cost: Cost, bytes: u32, now: u64) {
    if let Some(limit) = limit {
        limit.charge(time_amount(cost), now);
    }
    if let Some(bandwidth) = bandwidth {
        bandwidth.charge(bandwidth_amount(bytes), now);
        if let Some(limit) = limit {
            let until = limit.open().max(bandwidth.open());
            limit.wait_for_other(until, now);
            bandwidth.wait_for_other(until, now);
        }
    }
}

/// Tells both that a request comes to an empty queue.
pub(super) fn ask(limit: &mut Slot, bandwidth: &mut Slot, now: u64, asker: Asker) {
    for limit in [limit, bandwidth].into_iter().flatten() {
        limit.ask(now, asker);
    }
}

/// So long, until now, something else held the disk back: that earned no lateness.
pub(super) fn forget_wait(limit: &mut Slot, bandwidth: &mut Slot, wait: u64) {
    for limit in [limit, bandwidth].into_iter().flatten() {
        limit.forget_wait(wait);
    }
}

/// A limit after a change of policy. One that is lifted leaves nothing behind.
pub(super) fn change(limit: &mut Slot, rates: Option<Rates>, now: u64, slack: u64) {
    match (limit, rates) {
        (limit, None) => *limit = None,
        (Some(limit), Some(rates)) => limit.change_rates(rates, now),
        (limit @ None, Some(rates)) => *limit = Some(Limit::new(now, rates, Fill::Empty, slack)),
    }
}
