use headgate_units::{BytesPerSec, Iops, Shares};
use thiserror::Error;

/// What a disk is promised: a minimum, a maximum and a share of the rest.
///
/// Always consistent: the reservation is never above the limit. The default is no reservation, no
/// limit, strict if one is set, normal shares and a burst credit of one IO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    reservation: Option<Iops>,
    limit: Option<Iops>,
    limit_bandwidth: Option<BytesPerSec>,
    limit_mode: LimitMode,
    shares: Shares,
    burst: Burst,
}

/// Values that contradict each other or are out of range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// The disk would be promised more than it may have.
    #[error(
        "a reservation of {reservation} IOPS is above the limit of {limit} IOPS: lower the one or raise the other"
    )]
    ReservationAboveLimit {
        /// The minimum asked for.
        reservation: Iops,
        /// The maximum asked for.
        limit: Iops,
    },
    /// More idle credit than the algorithm stays fair with.
    #[error("a burst credit must be 0 to 256 IOs, not {0}")]
    Burst(u64),
}

impl Policy {
    /// Checks a whole policy at once. Its limits are strict.
    ///
    /// # Errors
    /// [`PolicyError::ReservationAboveLimit`].
    pub fn new(
        reservation: Option<Iops>,
        limit: Option<Iops>,
        limit_bandwidth: Option<BytesPerSec>,
        shares: Shares,
        burst: Burst,
    ) -> Result<Policy, PolicyError> {
        if let (Some(reservation), Some(limit)) = (reservation, limit)
            && reservation > limit
        {
            return Err(PolicyError::ReservationAboveLimit { reservation, limit });
        }
        let limit_mode = LimitMode::Strict;
        Ok(Policy { reservation, limit, limit_bandwidth, limit_mode, shares, burst })
    }

    /// Shares alone.
    pub fn shared(shares: Shares) -> Policy {
        Policy { shares, ..Policy::default() }
    }

    /// The same policy with another minimum.
    ///
    /// # Errors
    /// [`PolicyError::ReservationAboveLimit`].
    pub fn with_reservation(self, reservation: Option<Iops>) -> Result<Policy, PolicyError> {
        let Policy { limit, limit_bandwidth, shares, burst, .. } = self;
        Policy::new(reservation, limit, limit_bandwidth, shares, burst)?;
        Ok(Policy { reservation, ..self })
    }

    /// The same policy with another maximum.
    ///
    /// # Errors
    /// [`PolicyError::ReservationAboveLimit`].
    pub fn with_limit(self, limit: Option<Iops>) -> Result<Policy, PolicyError> {
        let Policy { reservation, limit_bandwidth, shares, burst, .. } = self;
        Policy::new(reservation, limit, limit_bandwidth, shares, burst)?;
        Ok(Policy { limit, ..self })
    }

    /// The same policy with another maximum in bytes per second.
    pub fn with_limit_bandwidth(self, limit_bandwidth: Option<BytesPerSec>) -> Policy {
        Policy { limit_bandwidth, ..self }
    }

    /// The same policy with limits that bind always, or only where another disk could be served.
    pub fn with_limit_mode(self, limit_mode: LimitMode) -> Policy {
        Policy { limit_mode, ..self }
    }

    /// The same policy with other shares.
    pub fn with_shares(self, shares: Shares) -> Policy {
        Policy { shares, ..self }
    }

    /// The same policy with another burst credit.
    pub fn with_burst(self, burst: Burst) -> Policy {
        Policy { burst, ..self }
    }

    /// For a pair that went through [`Policy::new`] before.
    pub(crate) fn with_rates(self, reservation: Option<Iops>, limit: Option<Iops>) -> Policy {
        Policy { reservation, limit, ..self }
    }

    /// The minimum, in normalised IOs per second.
    pub fn reservation(&self) -> Option<Iops> {
        self.reservation
    }

    /// The maximum, in normalised IOs per second.
    pub fn limit(&self) -> Option<Iops> {
        self.limit
    }

    /// The maximum in bytes per second, reads and writes together.
    pub fn limit_bandwidth(&self) -> Option<BytesPerSec> {
        self.limit_bandwidth
    }

    /// Whether the limits bind always.
    pub fn limit_mode(&self) -> LimitMode {
        self.limit_mode
    }

    /// The weight among disks that are neither at their minimum nor at their maximum.
    pub fn shares(&self) -> Shares {
        self.shares
    }

    /// The credit that the disk may earn by being idle.
    pub fn burst(&self) -> Burst {
        self.burst
    }
}

/// When the limits of a disk bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LimitMode {
    /// Always.
    #[default]
    Strict,
    /// Only while another disk of the datastore has a request queued that may be served: one that
    /// has no limit, or whose limit has room. What is left then is divided by shares among the
    /// disks with soft limits. What they get of it counts in no limit, so that they neither owe it
    /// nor have less of their limit for it.
    Soft,
}

/// The paper's σ (section 3.2.1): how many IOs a disk that was idle may send ahead of its share, 0
/// to 256.
///
/// Spent out of spare capacity only: reservations and limits of others do not feel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Burst(u16);

impl Burst {
    /// No credit at all: an idle disk returns exactly at the point where the others are.
    pub const NONE: Burst = Burst(0);
    /// The most that still leaves shares and the latency of others intact.
    pub const MAX: Burst = Burst(256);

    /// Checks the range.
    ///
    /// # Errors
    /// [`PolicyError::Burst`].
    pub const fn new(ios: u64) -> Result<Burst, PolicyError> {
        if ios > Burst::MAX.0 as u64 {
            return Err(PolicyError::Burst(ios));
        }
        Ok(Burst(ios as u16))
    }

    /// The number of IOs.
    pub const fn get(self) -> u64 {
        self.0 as u64
    }
}

impl Default for Burst {
    /// One IO, as in the paper's experiments.
    fn default() -> Burst {
        Burst(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_above_the_limit_cannot_exist() {
        let iops = |n| Some(Iops::new(n).unwrap());
        let error = Policy::default()
            .with_limit(iops(100))
            .unwrap()
            .with_reservation(iops(101))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "a reservation of 101 IOPS is above the limit of 100 IOPS: lower the one or raise the other"
        );
        assert!(
            Policy::default().with_reservation(iops(101)).unwrap().with_limit(iops(100)).is_err()
        );
        assert!(
            Policy::default().with_reservation(iops(100)).unwrap().with_limit(iops(100)).is_ok()
        );
    }

    #[test]
    fn burst_credit_is_at_most_256() {
        assert_eq!(Burst::new(256).map(Burst::get), Ok(256));
        assert_eq!(Burst::new(257), Err(PolicyError::Burst(257)));
    }
}
