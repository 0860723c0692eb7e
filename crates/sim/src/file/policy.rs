//! A disk's policy: its keys, wherever they stand, and what they come to.

use crate::values::{At, Fault, MaybeBandwidth, MaybeIops, MaybeLatency, Weight};
use headgate_qos::{Burst, Direction, DirectionLimits, LimitMode, PeakTime, Policy};
use serde::Deserialize;

/// A table that has the keys of a policy besides its own. (serde cannot flatten a table that
/// refuses unknown keys, and would lose where each value stands.)
macro_rules! with_policy {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($own:tt)* }) => {
        $(#[$meta])*
        $vis struct $name {
            $($own)*
            /// The minimum in normalised IOs per second, or 'none'.
            reservation: Option<$crate::values::At<$crate::values::MaybeIops>>,
            /// The maximum in normalised IOs per second, or 'none'.
            limit: Option<$crate::values::At<$crate::values::MaybeIops>>,
            /// The maximum in bytes per second, such as '50M', or 'none'.
            limit_bandwidth: Option<$crate::values::MaybeBandwidth>,
            /// The maximum of reads alone in normalised IOs per second, or 'none'.
            limit_read: Option<$crate::values::At<$crate::values::MaybeIops>>,
            /// The maximum of all else, or 'none'.
            limit_write: Option<$crate::values::At<$crate::values::MaybeIops>>,
            /// The maximum of reads alone in bytes per second, or 'none'.
            limit_read_bandwidth: Option<$crate::values::MaybeBandwidth>,
            /// The maximum of writes alone in bytes per second, or 'none'.
            limit_write_bandwidth: Option<$crate::values::MaybeBandwidth>,
            /// When the limits bind; strict by default.
            limit_mode: Option<$crate::file::policy::LimitModeFile>,
            /// The rate up to which the disk may pass its limit for a time, or 'none'.
            limit_peak: Option<$crate::values::At<$crate::values::MaybeIops>>,
            /// The same in bytes per second, such as '50M', or 'none'.
            limit_peak_bandwidth: Option<$crate::values::MaybeBandwidth>,
            /// For how many seconds, 1 to 3600; 1 by default.
            limit_peak_time: Option<$crate::values::At<u64>>,
            /// The weight, 1 to 1000000; 1000 by default.
            shares: Option<$crate::values::Weight>,
            /// The IOs that it may send ahead of its share after idle time, 0 to 256; 1 by default.
            burst: Option<$crate::values::At<u64>>,
            /// The latency that most requests are to stay within, such as 'p99=5ms', or 'none'.
            latency_target: Option<$crate::values::At<$crate::values::MaybeLatency>>,
        }

        impl $name {
            /// The keys of the policy.
            $vis fn policy_keys(&self) -> $crate::file::policy::PolicyKeys<'_> {
                $crate::file::policy::PolicyKeys {
                    reservation: self.reservation.as_ref(),
                    limit: self.limit.as_ref(),
                    limit_bandwidth: self.limit_bandwidth,
                    limit_read: self.limit_read.as_ref(),
                    limit_write: self.limit_write.as_ref(),
                    limit_read_bandwidth: self.limit_read_bandwidth,
                    limit_write_bandwidth: self.limit_write_bandwidth,
                    limit_mode: self.limit_mode,
                    limit_peak: self.limit_peak.as_ref(),
                    limit_peak_bandwidth: self.limit_peak_bandwidth,
                    limit_peak_time: self.limit_peak_time.as_ref(),
                    shares: self.shares,
                    burst: self.burst.as_ref(),
                    latency_target: self.latency_target.as_ref(),
                }
            }
        }
    };
}
pub(super) use with_policy;

/// When the limits of a disk bind.
#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum LimitModeFile {
    /// Always.
    Strict,
    /// Only while another disk of the datastore has a request queued that no limit holds back.
    Soft,
}

/// The keys of a policy, wherever they stand.
pub(super) struct PolicyKeys<'a> {
    pub(super) reservation: Option<&'a At<MaybeIops>>,
    pub(super) limit: Option<&'a At<MaybeIops>>,
    pub(super) limit_bandwidth: Option<MaybeBandwidth>,
    pub(super) limit_read: Option<&'a At<MaybeIops>>,
    pub(super) limit_write: Option<&'a At<MaybeIops>>,
    pub(super) limit_read_bandwidth: Option<MaybeBandwidth>,
    pub(super) limit_write_bandwidth: Option<MaybeBandwidth>,
    pub(super) limit_mode: Option<LimitModeFile>,
    pub(super) limit_peak: Option<&'a At<MaybeIops>>,
    pub(super) limit_peak_bandwidth: Option<MaybeBandwidth>,
    pub(super) limit_peak_time: Option<&'a At<u64>>,
    pub(super) shares: Option<Weight>,
    pub(super) burst: Option<&'a At<u64>>,
    pub(super) latency_target: Option<&'a At<MaybeLatency>>,
}

impl PolicyKeys<'_> {
    /// The old policy with these keys in place of its own.
    pub(super) fn apply(&self, old: Policy) -> Result<Policy, Fault> {
        let reservation = self.reservation.map_or(old.reservation(), |key| key.0);
        let limit = self.limit.map_or(old.limit(), |key| key.0);
        let bandwidth = self.limit_bandwidth.map_or(old.limit_bandwidth(), |key| key.0);
        let mode = match self.limit_mode {
            Some(LimitModeFile::Strict) => LimitMode::Strict,
            Some(LimitModeFile::Soft) => LimitMode::Soft,
            None => old.limit_mode(),
        };
        let shares = self.shares.map_or(old.shares(), |key| key.0);
        let burst = match self.burst {
            Some(key) => Burst::new(key.value)
                .map_err(|error| key.fault(format!("{error}; write a number in that range")))?,
            None => old.burst(),
        };
        let peak = self.limit_peak.map_or(old.peak(), |key| key.0);
        let peak_bandwidth = self.limit_peak_bandwidth.map_or(old.peak_bandwidth(), |key| key.0);
        let time = match self.limit_peak_time {
            Some(key) => PeakTime::from_secs(key.value)
                .map_err(|error| key.fault(format!("{error}; write a number in that range")))?,
            None => old.peak_time(),
        };
        let [read, write] = Direction::BOTH.map(|direction| old.direction_limits(direction));
        let read = DirectionLimits {
            iops: self.limit_read.map_or(read.iops, |key| key.0),
            bandwidth: self.limit_read_bandwidth.map_or(read.bandwidth, |key| key.0),
        };
        let write = DirectionLimits {
            iops: self.limit_write.map_or(write.iops, |key| key.0),
            bandwidth: self.limit_write_bandwidth.map_or(write.bandwidth, |key| key.0),
        };
        let target = self.latency_target.map_or(old.latency_target(), |key| key.0);
        let spans =
            [self.reservation, self.limit_peak, self.limit, self.limit_read, self.limit_write];
        let span = self.latency_target.map(|key| &key.span);
        let span = spans.into_iter().flatten().map(|key| &key.span).next().or(span);
        Policy::new(reservation, limit, bandwidth, shares, burst)
            .map(|policy| policy.with_limit_mode(mode))
            .and_then(|policy| policy.with_direction_limits(read, write))
            .and_then(|policy| policy.with_peaks(peak, peak_bandwidth, time))
            .and_then(|policy| policy.with_latency_target(target))
            .map_err(|error| Fault::new(span.unwrap_or(&(0..0)), error))
    }
}
