use crate::direction::{Direction, DirectionLimits};
use headgate_units::{BytesPerSec, Iops, LatencyTarget, Shares};
use thiserror::Error;

/// What a disk is promised: a minimum, a maximum and a share of the rest.
///
/// Always consistent: the reservation is never above what limits together allow, a peak is above
/// its limit, and a latency target stands beside a reservation. The default is no reservation, no
/// limit, strict if one is set, normal shares, a burst credit of one IO and no latency target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    reservation: Option<Iops>,
    limit: Option<Iops>,
    limit_bandwidth: Option<BytesPerSec>,
    directions: [DirectionLimits; 2],
    limit_mode: LimitMode,
    peak: Option<Iops>,
    peak_bandwidth: Option<BytesPerSec>,
    peak_time: PeakTime,
    shares: Shares,
    burst: Burst,
    latency_target: Option<LatencyTarget>,
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
    /// All that a disk sends is a read or a write, and both are limited.
    #[error(
        "a reservation of {reservation} IOPS is above the limits of {read} IOPS for reads and {write} IOPS for writes together: lower the one or raise the others"
    )]
    ReservationAboveDirections {
        /// The minimum asked for.
        reservation: Iops,
        /// The maximum of reads.
        read: Iops,
        /// The maximum of writes.
        write: Iops,
    },
    /// A peak raises a limit, and there is none.
    #[error("a peak in {unit} raises a limit in {unit}, and the disk has none")]
    PeakWithoutLimit {
        /// Of which limit.
        unit: &'static str,
    },
    /// It is no peak, or so high that it takes weeks to earn.
    #[error(
        "a peak of {peak} {unit} must be above the limit of {limit} {unit}, and at most {} times it",
        Policy::PEAK_MAX
    )]
    Peak {
        /// Of which limit.
        unit: &'static str,
        /// As asked for.
        peak: u64,
        /// The limit.
        limit: u64,
    },
    /// Too short or too long.
    #[error("a peak lasts for 1 to 3600 seconds, not {0}")]
    PeakTime(u64),
    /// Without a reservation, how long a request waits is up to the shares of others.
    #[error(
        "a latency target of {target} needs a reservation: without one, how long a request waits is up to other disks"
    )]
    TargetWithoutReservation {
        /// The target asked for.
        target: LatencyTarget,
    },
    /// More idle credit than the algorithm stays fair with.
    #[error("a burst credit must be 0 to 256 IOs, not {0}")]
    Burst(u64),
}

impl Policy {
    /// How many times its limit a peak is at most.
    pub const PEAK_MAX: u64 = 500;

    /// Checks a whole policy at once. Its limits are strict, of both directions together, and have
    /// no peaks, and it has no latency target.
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
        let limits = Policy { limit, limit_bandwidth, ..Policy::default() };
        Ok(Policy { reservation, shares, burst, ..limits })
    }

    /// Shares alone.
    pub fn shared(shares: Shares) -> Policy {
        Policy { shares, ..Policy::default() }
    }

    /// The same policy with another minimum.
    ///
    /// # Errors
    /// [`PolicyError::ReservationAboveLimit`], [`PolicyError::ReservationAboveDirections`],
    /// [`PolicyError::TargetWithoutReservation`].
    pub fn with_reservation(self, reservation: Option<Iops>) -> Result<Policy, PolicyError> {
        let Policy { limit, limit_bandwidth, shares, burst, latency_target, .. } = self;
        Policy::new(reservation, limit, limit_bandwidth, shares, burst)?;
        Policy { reservation, ..self }.checked_directions()?.with_latency_target(latency_target)
    }

    /// The same policy with another latency target.
    ///
    /// # Errors
    /// [`PolicyError::TargetWithoutReservation`].
    pub fn with_latency_target(self, target: Option<LatencyTarget>) -> Result<Policy, PolicyError> {
        match target {
            Some(target) if self.reservation.is_none() => {
                Err(PolicyError::TargetWithoutReservation { target })
            }
            latency_target => Ok(Policy { latency_target, ..self }),
        }
    }

    /// For one that went through [`Policy::with_latency_target`] before.
    pub(crate) fn with_checked_target(self, latency_target: Option<LatencyTarget>) -> Policy {
        Policy { latency_target, ..self }
    }

    /// The same policy with another maximum, without a peak.
    ///
    /// # Errors
    /// [`PolicyError::ReservationAboveLimit`].
    pub fn with_limit(self, limit: Option<Iops>) -> Result<Policy, PolicyError> {
        let Policy { reservation, limit_bandwidth, shares, burst, .. } = self;
        Policy::new(reservation, limit, limit_bandwidth, shares, burst)?;
        Ok(Policy { limit, peak: None, ..self })
    }

    /// The same policy with another maximum in bytes per second, without a peak.
    pub fn with_limit_bandwidth(self, limit_bandwidth: Option<BytesPerSec>) -> Policy {
        Policy { limit_bandwidth, peak_bandwidth: None, ..self }
    }

    /// The same policy with maxima of its reads alone and of its writes alone, which hold beside
    /// those of both together.
    ///
    /// # Errors
    /// [`PolicyError::ReservationAboveDirections`].
    pub fn with_direction_limits(
        self,
        read: DirectionLimits,
        write: DirectionLimits,
    ) -> Result<Policy, PolicyError> {
        self.with_checked_directions([read, write]).checked_directions()
    }

    /// For a pair that went through [`Policy::with_direction_limits`] before.
    pub(crate) fn with_checked_directions(self, directions: [DirectionLimits; 2]) -> Policy {
        Policy { directions, ..self }
    }

    fn checked_directions(self) -> Result<Policy, PolicyError> {
        let [read, write] = self.directions;
        match (self.reservation, read.iops, write.iops) {
            (Some(reservation), Some(read), Some(write))
                if reservation.get() > read.get().saturating_add(write.get()) =>
            {
                Err(PolicyError::ReservationAboveDirections { reservation, read, write })
            }
            _ => Ok(self),
        }
    }

    /// The same policy with limits that a disk may pass, up to a peak, for so long.
    ///
    /// # Errors
    /// [`PolicyError::PeakWithoutLimit`], [`PolicyError::Peak`].
    pub fn with_peaks(
        self,
        peak: Option<Iops>,
        peak_bandwidth: Option<BytesPerSec>,
        peak_time: PeakTime,
    ) -> Result<Policy, PolicyError> {
        let check = |unit, peak: Option<u64>, limit: Option<u64>| match (peak, limit) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(PolicyError::PeakWithoutLimit { unit }),
            (Some(peak), Some(limit)) => {
                let most = limit.saturating_mul(Policy::PEAK_MAX);
                let fits = limit < peak && peak <= most;
                if fits { Ok(()) } else { Err(PolicyError::Peak { unit, peak, limit }) }
            }
        };
        check("IOPS", peak.map(Iops::get), self.limit.map(Iops::get))?;
        let limit = self.limit_bandwidth.map(BytesPerSec::get);
        check("bytes per second", peak_bandwidth.map(BytesPerSec::get), limit)?;
        Ok(self.with_checked_peaks(peak, peak_bandwidth, peak_time))
    }

    /// For peaks that went through [`Policy::with_peaks`] before.
    pub(crate) fn with_checked_peaks(
        self,
        peak: Option<Iops>,
        peak_bandwidth: Option<BytesPerSec>,
        peak_time: PeakTime,
    ) -> Policy {
        Policy { peak, peak_bandwidth, peak_time, ..self }
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

    /// The maxima of reads alone, or of writes alone.
    pub fn direction_limits(&self, direction: Direction) -> DirectionLimits {
        self.directions[direction.index()]
    }

    /// Whether any limit is of one direction alone.
    pub fn limits_directions(&self) -> bool {
        self.directions.iter().any(|limits| !limits.is_none())
    }

    /// The most requests per second that the limits together allow without a peak, where they bound
    /// them at all.
    pub fn highest(&self) -> Option<Iops> {
        let [read, write] = self.directions;
        let both = read.iops.zip(write.iops);
        let sum = both.and_then(|(r, w)| Iops::new(r.get().saturating_add(w.get())).ok());
        [self.limit, sum].into_iter().flatten().min()
    }

    /// Up to which rate the disk may pass its maximum for [`Policy::peak_time`].
    pub fn peak(&self) -> Option<Iops> {
        self.peak
    }

    /// The same in bytes per second.
    pub fn peak_bandwidth(&self) -> Option<BytesPerSec> {
        self.peak_bandwidth
    }

    /// For how long a disk that has earned it may go at its peaks.
    pub fn peak_time(&self) -> PeakTime {
        self.peak_time
    }

    /// Whether the limits bind always.
    pub fn limit_mode(&self) -> LimitMode {
        self.limit_mode
    }

    /// The weight among disks that are neither at their minimum nor at their maximum.
    pub fn shares(&self) -> Shares {
        self.shares
    }

    /// The latency that most requests are to stay within, while the disk asks for no more than its
    /// reservation. The scheduler does nothing for it; the [gate](crate::Gate)'s window does.
    pub fn latency_target(&self) -> Option<LatencyTarget> {
        self.latency_target
    }

    /// The credit that the disk may earn by being idle.
    pub fn burst(&self) -> Burst {
        self.burst
    }
}

/// For how long a disk may go at its peak: 1 to 3,600 s.
///
/// A disk earns by staying below its limit. In any time t it gets `l·t + (p - l)·T` at most, for a
/// limit l, a peak p and this time T.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeakTime(u16);

impl PeakTime {
    /// Checks the range.
    ///
    /// # Errors
    /// [`PolicyError::PeakTime`].
    pub const fn from_secs(seconds: u64) -> Result<PeakTime, PolicyError> {
        if seconds == 0 || seconds > 3_600 {
            return Err(PolicyError::PeakTime(seconds));
        }
        Ok(PeakTime(seconds as u16))
    }

    /// In seconds.
    pub const fn as_secs(self) -> u16 {
        self.0
    }
}

impl Default for PeakTime {
    /// One second.
    fn default() -> PeakTime {
        PeakTime(1)
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
    fn a_reservation_is_refused_where_no_mix_of_reads_and_writes_could_have_it() {
        let iops = |n| Iops::new(n).ok();
        let limits = |n| DirectionLimits { iops: iops(n), bandwidth: None };
        let policy = Policy::default().with_reservation(iops(100)).unwrap();
        for (read, write, fits) in
            [(60, 40, true), (60, 39, false), (0, 1, true), (1, 0, true), (1_000_000, 1, true)]
        {
            let limited = policy.with_direction_limits(limits(read), limits(write));
            assert_eq!(limited.is_ok(), fits, "{read} and {write}");
        }
        let both = Policy::default().with_direction_limits(limits(60), limits(39)).unwrap();
        assert_eq!(
            both.with_reservation(iops(100)).unwrap_err().to_string(),
            "a reservation of 100 IOPS is above the limits of 60 IOPS for reads and 39 IOPS for writes together: lower the one or raise the others"
        );
        assert_eq!(both.highest(), iops(99));
        assert_eq!(both.with_limit(iops(50)).unwrap().highest(), iops(50));
        assert_eq!(policy.with_direction_limits(limits(7), limits(0)).unwrap().highest(), None);
    }

    #[test]
    fn a_peak_is_above_its_limit() {
        let iops = |n| Iops::new(n).ok();
        let limited = Policy::default().with_limit(iops(100)).unwrap();
        let time = PeakTime::from_secs(60).unwrap();
        for (peak, fits) in [(100, false), (101, true), (50_000, true), (50_001, false)] {
            assert_eq!(limited.with_peaks(iops(peak), None, time).is_ok(), fits, "{peak}");
        }
        let error = limited.with_peaks(iops(200), BytesPerSec::new(5).ok(), time).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a peak in bytes per second raises a limit in bytes per second, and the disk has none"
        );
        let peak = limited.with_peaks(iops(200), None, time).unwrap();
        assert_eq!(peak.with_limit(iops(300)).unwrap().peak(), None);
        assert_eq!(peak.with_reservation(iops(30)).unwrap().peak(), iops(200));
        assert_eq!(PeakTime::from_secs(0), Err(PolicyError::PeakTime(0)));
        assert_eq!(PeakTime::from_secs(3_601), Err(PolicyError::PeakTime(3_601)));
    }

    #[test]
    fn a_latency_target_needs_a_reservation() {
        let target = "p99=5ms".parse().ok();
        let error = Policy::default().with_latency_target(target).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a latency target of p99=5ms needs a reservation: without one, how long a request waits is up to other disks"
        );
        let reserved = Policy::default().with_reservation(Iops::new(100).ok()).unwrap();
        let aimed = reserved.with_latency_target(target).unwrap();
        assert_eq!(aimed.latency_target(), target);
        assert_eq!(aimed.with_reservation(None), Err(error));
        assert!(aimed.with_latency_target(None).unwrap().with_reservation(None).is_ok());
    }

    #[test]
    fn burst_credit_is_at_most_256() {
        assert_eq!(Burst::new(256).map(Burst::get), Ok(256));
        assert_eq!(Burst::new(257), Err(PolicyError::Burst(257)));
    }
}
