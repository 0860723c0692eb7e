//! What is due second by second.
//!
//! A limit holds in every second: what a disk did not get of it in one, another cannot make good
//! for. And what a reservation is owed comes before anything is divided, in the seconds in which it
//! is paid. So a disk whose share is above its limit now and then is due less of a span than water
//! filling over the whole of it says, and disks without a limit are due more. Both are right: what
//! is due of a span lies between what it is due as a whole and the sum over its seconds.

use super::Span;
use crate::oracle::MADE_GOOD;
use crate::record::Record;
use crate::setup::Setup;
use headgate_units::Iops;

/// What is due of one second, in reference IOs.
pub(super) struct Dues {
    /// To each disk.
    pub(super) amounts: Vec<f64>,
    /// Of its reads and of its writes.
    pub(super) lanes: Vec<[f64; 2]>,
}

/// To each disk, of each second. What a reservation was short of in the seconds before is a part of
/// its claim.
pub(super) fn dues(setup: &Setup, record: &Record, floor: Option<u16>) -> Vec<Dues> {
    let mut owed = vec![0.0_f64; setup.disks.len()];
    let mut dues = Vec::new();
    for (from, second) in record.seconds.iter().enumerate() {
        let before = from.checked_sub(1).and_then(|before| record.seconds.get(before));
        let span = Span::new(setup, before, std::slice::from_ref(second), from);
        let Some(span) = span else { break };
        if second.into == 0 {
            owed.fill(0.0);
        }
        // A window that is full at the end is so by the stall, if there is one.
        let open = (span.seconds - span.stalled.max(span.blocked)).max(0.0);
        let mut claims = span.claims(open, span.promised());
        for ((claim, owed), disk) in claims.iter_mut().zip(&mut owed).zip(0..) {
            let policy = span.phase.disks[disk].0;
            let rate = policy.reservation().map_or(0.0, |rate| Iops::get(rate) as f64);
            let falls_due = *owed + rate * span.seconds;
            claim.reservation = falls_due.min(claim.most);
            let short = falls_due - span.got[disk];
            *owed = if span.backlogged[disk] { short.clamp(0.0, rate * MADE_GOOD) } else { 0.0 };
        }
        let due = span.divide(&claims, floor);
        let lanes = (0..setup.disks.len()).map(|disk| span.by_lane(disk, &due, open)).collect();
        dues.push(Dues { amounts: due.amounts, lanes });
    }
    dues
}
