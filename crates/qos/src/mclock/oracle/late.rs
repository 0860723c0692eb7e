//! How late reservations may be.

use super::Oracle;

impl Oracle {
    /// Whether a disk had requests in flight until just now, of those that are not spread.
    pub(super) fn was_in_flight(&self, slot: usize) -> bool {
        let disk = self.disks[slot].as_ref().unwrap();
        let anticipation = i128::from(self.config.anticipation.0);
        let lately = disk.in_flight > 0 || self.now - disk.idle_since <= anticipation;
        lately && !disk.has_reported
    }

    /// How late a disk may be that was idle.
    pub(super) fn idle_lateness(&self) -> i128 {
        self.newcomers_lateness().max(i128::from(self.config.anticipation.0))
    }

    /// How late a disk may be whose reservation was just set: as late as the last reserved request
    /// was, if that was lately.
    pub(super) fn newcomers_lateness(&self) -> i128 {
        let most = i128::from(self.config.debt_bound.0 / 2);
        let (late, at) = self.late;
        if self.now - at <= most { late.min(most) } else { 0 }
    }

    /// How late a disk may be whose requests were all in flight, or that a limit held back.
    pub(super) fn lateness_kept(&self, slot: usize) -> i128 {
        let debt = i128::from(self.config.debt_bound.0);
        let half = debt.min(self.debt_bound()) / 2;
        let stall = self.given.longest_stall(self.now, debt / 2);
        let disk = self.disks[slot].as_ref().unwrap();
        let room = self.debt_bound() - if disk.is_limited() { 0 } else { half + stall };
        room.min(half + stall).max(half)
    }

    /// How late a disk may be that its limit held back: what the limit makes good for, too.
    pub(super) fn lateness_beside_limit(&self, slot: usize) -> i128 {
        let late = self.lateness_kept(slot);
        let disk = self.disks[slot].as_ref().unwrap();
        let (Some(reservation), Some(limit)) = (&disk.reservation, &disk.limit) else {
            return late;
        };
        let horizon = i128::from(self.config.debt_horizon.0);
        let spare = (limit.rate() - reservation.rate).max(0);
        let debt = i128::from(self.config.debt_bound.0);
        let made_good = [
            horizon * spare / reservation.rate,
            self.given.longest_stall(self.now, debt / 2) - debt,
            i128::from(self.config.anticipation.0),
            4 * i128::from(self.config.limit_slack.0),
        ];
        late.min(made_good.into_iter().max().unwrap())
    }

    /// Reserved disks that have something to wait for.
    fn claimants(&self) -> impl Iterator<Item = (i128, i128)> {
        let wait = self.disks.iter().flatten().filter(|d| d.in_flight > 0 || d.waits());
        wait.filter_map(|d| Some((d.reservation?.rate, d.peak)))
    }

    /// What the storage makes good for.
    pub(super) fn made_good(&self) -> i128 {
        let (horizon, debt) = (self.config.debt_horizon.0, self.config.debt_bound.0);
        let claims = self.claimants().map(|(rate, _)| rate).sum();
        self.given.made_good(claims, i128::from(horizon), i128::from(debt))
    }

    pub(super) fn debt_bound(&self) -> i128 {
        let horizon = i128::from(self.config.debt_horizon.0);
        let debt = i128::from(self.config.debt_bound.0);
        if horizon == 0 {
            return self.made_good();
        }
        let round = self.claimants().map(|(_, peak)| peak).sum::<i128>();
        let round = self.given.time_for(round, horizon).min(debt.max(2 * horizon));
        self.made_good().max(debt / 2 + round)
    }

    /// The end of a stall: disks with limits lose alone what is beyond the bound, as long as one of
    /// them is first.
    pub(super) fn forgive_limited(&mut self) {
        let in_flight: i128 = self.disks.iter().flatten().map(|d| d.in_flight).sum();
        let (horizon, debt) = (self.config.debt_horizon.0, self.config.debt_bound.0);
        let terms = [i128::from(horizon), i128::from(debt)];
        let latest = self.now - self.debt_bound();
        if !self.given.is_stall(self.now, terms, self.largest * (in_flight + 1)) {
            return;
        }
        while let Some((due, slot)) = self.most_overdue()
            && due < latest
        {
            let disk = self.disks[slot].as_mut().unwrap();
            if !disk.is_limited() {
                return;
            }
            disk.reservation.as_mut().unwrap().raise_to(latest);
        }
    }
}
