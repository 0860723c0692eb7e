//! What reservations claim of the storage.

use super::disk::{DiskTags, Peak};

/// Reservations of the disks that have something to wait for: requests queued, or in flight. That a
/// limit holds one back does not make its claim less: over time it takes its reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Claims {
    /// In IOs per second.
    pub(super) rate: u64,
    /// One request of each, as large as its largest lately, in thousandths of a reference IO.
    pub(super) round: u64,
}

impl Claims {
    /// Those of one disk; nothing without a reservation.
    #[inline]
    pub(super) fn of(disk: &DiskTags) -> Claims {
        match &disk.reservation {
            Some(tag) => Claims { rate: tag.rate().get(), round: disk.peak.thousandths() },
            None => Claims::default(),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, other: Claims) {
        self.rate += other.rate;
        self.round += other.round;
    }

    /// The largest request lately of a disk among them is another one.
    #[inline]
    pub(super) fn change_peak(&mut self, from: Peak, to: Peak) {
        self.round = self.round + to.thousandths() - from.thousandths();
    }

    #[inline]
    pub(super) fn subtract(&mut self, other: Claims) {
        self.rate -= other.rate;
        self.round -= other.round;
    }
}
