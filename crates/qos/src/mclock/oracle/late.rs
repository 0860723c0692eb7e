//! How late reservations may be.

use super::Oracle;
use super::disk::Standing;

impl Oracle {
    /// Whether a disk had requests in flight until just now, of those that are not spread.
    pub(super) fn was_in_flight(&self, slot: usize) -> bool {
        let disk = self.disks[slot].as_ref().unwrap();
        let anticipation = i128::from(self.config.anticipation.0);
        let lately = disk.in_flight > 0 || self.now - disk.idle_since <= anticipation;
        lately && !disk.has_reported
    }

    /// How late a disk may be that was idle: as late as the last reserved request was, if that was
    /// lately.
    pub(super) fn newcomers_lateness(&self) -> i128 {
        let most = i128::from(self.config.debt_bound.0 / 2);
        let (late, at) = self.late;
        let late = if self.now - at <= most { late.min(most) } else { 0 };
        late.max(i128::from(self.config.anticipation.0))
    }

    /// How late a disk may be whose requests were all in flight, or that a limit held back.
    pub(super) fn lateness_kept(&self, slot: usize) -> i128 {
        let own = self.disks[slot].as_ref().and_then(|d| Some(d.reservation?.rate)).unwrap_or(0);
        let (claims, debt) = (self.claims(slot) + own, i128::from(self.config.debt_bound.0));
        let horizon = i128::from(self.config.debt_horizon.0);
        let bound = self.given.debt_bound(claims, horizon, debt);
        self.given.lateness_kept(bound, debt, self.now)
    }

    /// The reservations of the disks that have to wait, but for one.
    fn claims(&self, but: usize) -> i128 {
        let disks = self.disks.iter().enumerate().filter(|(slot, _)| *slot != but);
        let has_to_wait = disks.filter_map(|(_, d)| d.as_ref()).filter(|d| match d.standing {
            Standing::Ready | Standing::Pending => true,
            Standing::Blocked => false,
            // Its requests are all in flight, or its next one has just come.
            Standing::Empty => d.in_flight > 0 || d.waits(),
        });
        has_to_wait.filter_map(|d| Some(d.reservation?.rate)).sum()
    }

    pub(super) fn debt_bound(&self) -> i128 {
        let (horizon, debt) = (self.config.debt_horizon.0, self.config.debt_bound.0);
        self.given.debt_bound(self.claims(usize::MAX), i128::from(horizon), i128::from(debt))
    }
}
