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

    /// How late a disk may be whose requests were all in flight: by what the storage stood still,
    /// if that can be made good for.
    pub(super) fn lateness_in_flight(&self) -> i128 {
        let half = i128::from(self.config.debt_bound.0 / 2);
        let stalled = self.given.stalled(self.now, half);
        (half + stalled).min(self.debt_bound() - half)
    }

    pub(super) fn debt_bound(&self) -> i128 {
        let disks = self.disks.iter().flatten();
        let has_to_wait = disks.filter(|d| match d.standing {
            Standing::Ready | Standing::Pending => true,
            Standing::Blocked => false,
            // Its requests are all in flight, or its next one has just come.
            Standing::Empty => d.in_flight > 0 || d.waits(),
        });
        let reserved = has_to_wait.filter_map(|d| Some(d.reservation?.rate)).sum();
        let (horizon, least) = (self.config.debt_horizon.0, self.config.debt_bound.0);
        self.given.debt_bound(reserved, i128::from(horizon), i128::from(least))
    }
}
