//! How much of a disk's service is by reservation.

use crate::cost::Cost;
use crate::dmclock::ServedElsewhere;

/// By how much service elsewhere may have been by reservation more than service here is, before it
/// is charged as if it were not.
pub(super) const SURPLUS: i64 = 256 * Cost::ONE.as_millionths() as i64;

/// How much of a disk's service is by reservation, here and elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// Dispatches here up to the last report.
    by_reservation: u64,
    by_weight: u64,
    /// Those of about the last 64 reports, in 1,024ths.
    reserved: u64,
    all: u64,
    /// Millionths of IOs elsewhere that should have been by reservation and were not.
    missing: i64,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts { by_reservation: 0, by_weight: 0, reserved: 0, all: 0, missing: -SURPLUS }
    }
}

impl Parts {
    /// What should have been served by reservation elsewhere beyond what a report says, at the part
    /// that is by reservation here.
    pub(super) fn missing_elsewhere(
        &mut self,
        by_reservation: u64,
        by_weight: u64,
        elsewhere: ServedElsewhere,
    ) -> Cost {
        let reserved = by_reservation - self.by_reservation;
        let all = reserved + (by_weight - self.by_weight);
        (self.by_reservation, self.by_weight) = (by_reservation, by_weight);
        self.reserved = self.reserved - self.reserved / 64 + (reserved << 10);
        self.all = self.all - self.all / 64 + (all << 10);
        let [delta, rho] = [elsewhere.delta(), elsewhere.rho()].map(Cost::as_millionths);
        let expected = u128::from(delta) * u128::from(self.reserved) / u128::from(self.all.max(1));
        self.missing += (expected as u64).min(delta) as i64 - rho as i64;
        let more = self.missing.clamp(0, (delta - rho) as i64);
        self.missing = (self.missing - more).clamp(-SURPLUS, SURPLUS);
        Cost::from_millionths(more as u64)
    }
}
