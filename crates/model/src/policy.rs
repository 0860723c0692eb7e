//! A disk's policy, as the operator sets it: in the API, in the catalog and in samples.
//!
//! It is not checked. [`Policy::for_scheduler`] makes the checked form that the scheduler takes.

use crate::{ReadErrors, WriteErrors};
use headgate_qos::{Burst, Direction, DirectionLimits, PeakTime, PolicyError};
use headgate_units::{BytesPerSec, Iops, LatencyTarget, Shares};
use serde::{Deserialize, Serialize};

/// A disk's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Least rate while it has requests, in normalised IOPS.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub reservation: Option<Iops>,
    /// Highest rate, in normalised IOPS.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit: Option<Iops>,
    /// Highest bandwidth, reads and writes together, in bytes per second.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_bandwidth: Option<BytesPerSec>,
    /// Highest rate of reads alone, in normalised IOPS.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_read: Option<Iops>,
    /// Highest rate of writes alone, discards and flushes among them, in normalised IOPS.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_write: Option<Iops>,
    /// Highest bandwidth of reads alone, in bytes per second.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_read_bandwidth: Option<BytesPerSec>,
    /// Highest bandwidth of writes alone, in bytes per second.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_write_bandwidth: Option<BytesPerSec>,
    /// When the limits bind.
    pub limit_mode: LimitMode,
    /// Rate up to which the disk may pass `limit` for a time, in normalised IOPS.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_peak: Option<Iops>,
    /// Bandwidth up to which it may pass `limit_bandwidth` for a time, in bytes per second.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub limit_peak_bandwidth: Option<BytesPerSec>,
    /// For how long a disk that has earned it may go at its peaks, in seconds, 1 to 3,600.
    pub limit_peak_time: u16,
    /// Weight against the other disks of its datastore, 1 to 1,000,000.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub shares: Shares,
    /// IOs of credit that an idle disk may spend at once, 0 to 256.
    pub burst: u16,
    /// The latency that most requests are to stay within, such as `p99=5ms`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub latency_target: Option<LatencyTarget>,
    /// What becomes of writes that the storage fails.
    pub werror: WriteErrors,
    /// What becomes of reads that the storage fails.
    pub rerror: ReadErrors,
}

/// When the limits of a disk bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LimitMode {
    /// Always.
    #[default]
    Strict,
    /// Only while another disk of the datastore has a request queued that no limit holds back.
    Soft,
}

impl LimitMode {
    /// Every mode.
    pub const ALL: [LimitMode; 2] = [LimitMode::Strict, LimitMode::Soft];

    /// The word on the command line and in the catalog.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitMode::Strict => "strict",
            LimitMode::Soft => "soft",
        }
    }
}

impl Default for Policy {
    /// No reservation, no limit, normal shares, one IO of burst credit, requests held while there
    /// is no space.
    fn default() -> Policy {
        Policy::from(headgate_qos::Policy::default())
    }
}

impl Policy {
    /// Shares alone: no reservation, no limit, no burst credit.
    pub fn of_shares(shares: Shares) -> Policy {
        Policy { shares, burst: 0, ..Policy::default() }
    }

    /// The policy as the scheduler takes it.
    ///
    /// # Errors
    /// When the reservation is above what the limits allow, a peak is not above its limit, a
    /// latency target stands without a reservation, or a value is out of range.
    pub fn for_scheduler(&self) -> Result<headgate_qos::Policy, PolicyError> {
        let Policy { reservation, limit, limit_bandwidth, limit_mode, shares, burst, .. } = *self;
        let burst = Burst::new(u64::from(burst))?;
        let mode = match limit_mode {
            LimitMode::Strict => headgate_qos::LimitMode::Strict,
            LimitMode::Soft => headgate_qos::LimitMode::Soft,
        };
        headgate_qos::Policy::new(reservation, limit, limit_bandwidth, shares, burst)
            .map(|policy| policy.with_limit_mode(mode))?
            .with_direction_limits(
                DirectionLimits { iops: self.limit_read, bandwidth: self.limit_read_bandwidth },
                DirectionLimits { iops: self.limit_write, bandwidth: self.limit_write_bandwidth },
            )?
            .with_peaks(
                self.limit_peak,
                self.limit_peak_bandwidth,
                PeakTime::from_secs(u64::from(self.limit_peak_time))?,
            )?
            .with_latency_target(self.latency_target)
    }
}

/// What the scheduler does not have is as by default.
impl From<headgate_qos::Policy> for Policy {
    fn from(policy: headgate_qos::Policy) -> Policy {
        let [read, write] = Direction::BOTH.map(|direction| policy.direction_limits(direction));
        Policy {
            reservation: policy.reservation(),
            limit: policy.limit(),
            limit_bandwidth: policy.limit_bandwidth(),
            limit_read: read.iops,
            limit_write: write.iops,
            limit_read_bandwidth: read.bandwidth,
            limit_write_bandwidth: write.bandwidth,
            limit_mode: match policy.limit_mode() {
                headgate_qos::LimitMode::Strict => LimitMode::Strict,
                headgate_qos::LimitMode::Soft => LimitMode::Soft,
            },
            limit_peak: policy.peak(),
            limit_peak_bandwidth: policy.peak_bandwidth(),
            limit_peak_time: policy.peak_time().as_secs(),
            shares: policy.shares(),
            // At most 256.
            burst: u16::try_from(policy.burst().get()).unwrap_or(u16::MAX),
            latency_target: policy.latency_target(),
            werror: WriteErrors::default(),
            rerror: ReadErrors::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy {
            reservation: Iops::new(250).ok(),
            limit: Iops::new(1000).ok(),
            limit_bandwidth: BytesPerSec::new(50 << 20).ok(),
            limit_read: Iops::new(900).ok(),
            limit_write: Iops::new(300).ok(),
            limit_read_bandwidth: BytesPerSec::new(40 << 20).ok(),
            limit_write_bandwidth: BytesPerSec::new(20 << 20).ok(),
            limit_mode: LimitMode::Soft,
            limit_peak: Iops::new(5000).ok(),
            limit_peak_bandwidth: BytesPerSec::new(60 << 20).ok(),
            limit_peak_time: 60,
            shares: Shares::new(200).unwrap(),
            burst: 8,
            latency_target: "p99.9=20ms".parse().ok(),
            werror: WriteErrors::Stop,
            rerror: ReadErrors::Stop,
        }
    }

    #[test]
    fn a_policy_survives_the_scheduler_and_json() {
        let scheduled = Policy::from(policy().for_scheduler().unwrap());
        let Policy { werror, rerror, .. } = policy();
        assert_eq!(Policy { werror, rerror, ..scheduled }, policy());
        let json = serde_json::to_string(&policy()).unwrap();
        assert_eq!(
            json,
            concat!(
                r#"{"reservation":250,"limit":1000,"limit_bandwidth":52428800,"#,
                r#""limit_read":900,"limit_write":300,"limit_read_bandwidth":41943040,"#,
                r#""limit_write_bandwidth":20971520,"limit_mode":"soft","#,
                r#""limit_peak":5000,"limit_peak_bandwidth":62914560,"limit_peak_time":60,"#,
                r#""shares":200,"burst":8,"latency_target":"p99.9=20ms","#,
                r#""werror":"stop","rerror":"stop"}"#
            )
        );
        assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy());
        assert_eq!(serde_json::from_str::<Policy>("{}").unwrap(), Policy::default());
        serde_json::from_str::<Policy>(r#"{"limitt":1}"#).unwrap_err();
        let error = serde_json::from_str::<Policy>(r#"{"latency_target":"5ms"}"#).unwrap_err();
        assert!(error.to_string().contains("write pN=TIME"), "{error}");
    }

    #[test]
    fn the_default_is_one_io_of_burst_and_normal_shares() {
        let Policy { reservation, limit, limit_bandwidth, limit_mode, shares, burst, .. } =
            Policy::default();
        assert_eq!((reservation, limit, limit_bandwidth), (None, None, None));
        assert_eq!(Policy::default().limit_peak_time, 1);
        assert_eq!(limit_mode, LimitMode::Strict);
        assert_eq!((shares, burst), (Shares::default(), 1));
    }

    #[test]
    fn values_that_contradict_each_other_do_not_reach_the_scheduler() {
        let low = Policy { limit: Iops::new(5000).ok(), ..policy() };
        assert!(matches!(low.for_scheduler(), Err(PolicyError::Peak { .. })));
        let long = Policy { limit_peak_time: 3_601, ..policy() };
        assert_eq!(long.for_scheduler(), Err(PolicyError::PeakTime(3_601)));
        let low = Policy { limit: Iops::new(100).ok(), ..policy() };
        assert!(matches!(low.for_scheduler(), Err(PolicyError::ReservationAboveLimit { .. })));
        let [limit_read, limit_write] = [100, 149].map(|n| Iops::new(n).ok());
        let low = Policy { limit_read, limit_write, ..policy() };
        assert!(matches!(low.for_scheduler(), Err(PolicyError::ReservationAboveDirections { .. })));
        assert_eq!(Policy { burst: 257, ..policy() }.for_scheduler(), Err(PolicyError::Burst(257)));
        let unreserved = Policy { reservation: None, ..policy() }.for_scheduler();
        assert!(matches!(unreserved, Err(PolicyError::TargetWithoutReservation { .. })));
    }
}
