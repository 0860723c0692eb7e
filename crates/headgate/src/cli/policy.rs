//! Options of a disk's policy, and its words.

use super::values::{OrNone, Word, one_of};
use clap::Args;
use headgate_model::{LimitMode, Policy};
use headgate_units::{BytesPerSec, Iops, Shares};

const MODES: &[Word<LimitMode>] = &[
    Word("strict", LimitMode::Strict, "Always"),
    Word(
        "soft",
        LimitMode::Soft,
        "Only while another disk of the datastore has a request queued that no limit holds back",
    ),
];

/// Options of a disk's policy.
#[derive(Debug, Args)]
pub(super) struct PolicyArgs {
    /// Guaranteed minimum in IOs per second, 1 to 1000000000, or 'none'
    #[arg(long, value_name = "IOPS")]
    pub(super) reservation: Option<OrNone<Iops>>,
    /// Maximum in IOs per second, 1 to 1000000000, or 'none'
    #[arg(long, value_name = "IOPS")]
    pub(super) limit: Option<OrNone<Iops>>,
    /// Maximum bandwidth of reads plus writes in bytes per second, such as 50M, or 'none'
    #[arg(long, value_name = "BYTES")]
    pub(super) limit_bandwidth: Option<OrNone<BytesPerSec>>,
    /// When the limits bind [default: strict]
    #[arg(long, value_name = "MODE", value_parser = one_of(MODES))]
    pub(super) limit_mode: Option<LimitMode>,
    /// Rate up to which the disk may pass --limit, for --limit-peak-time, or 'none'
    #[arg(long, value_name = "IOPS")]
    pub(super) limit_peak: Option<OrNone<Iops>>,
    /// Bandwidth up to which the disk may pass --limit-bandwidth, for --limit-peak-time, or 'none'
    #[arg(long, value_name = "BYTES")]
    pub(super) limit_peak_bandwidth: Option<OrNone<BytesPerSec>>,
    /// Seconds for which a disk that stayed below its limit may go at its peak, 1 to 3600 [default:
    /// 1]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub(super) limit_peak_time: Option<u16>,
    /// Weight among the disks of the datastore, 1 to 1000000 [default: 1000]
    #[arg(long, value_name = "N")]
    pub(super) shares: Option<Shares>,
    /// IOs that a disk may send ahead of its share after it was idle, 0 to 256 [default: 1]
    #[arg(long, value_name = "IOS", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub(super) burst: Option<u16>,
}

impl PolicyArgs {
    pub(super) fn policy(self) -> Policy {
        let default = Policy::default();
        Policy {
            reservation: OrNone::value(self.reservation),
            limit: OrNone::value(self.limit),
            limit_bandwidth: OrNone::value(self.limit_bandwidth),
            limit_mode: self.limit_mode.unwrap_or_default(),
            limit_peak: OrNone::value(self.limit_peak),
            limit_peak_bandwidth: OrNone::value(self.limit_peak_bandwidth),
            limit_peak_time: self.limit_peak_time.unwrap_or(default.limit_peak_time),
            shares: self.shares.unwrap_or(default.shares),
            burst: self.burst.unwrap_or(default.burst),
        }
    }

    pub(super) fn says_nothing(&self) -> bool {
        let PolicyArgs { reservation, limit, limit_bandwidth, limit_mode, shares, burst, .. } =
            self;
        let PolicyArgs { limit_peak, limit_peak_bandwidth, limit_peak_time, .. } = self;
        reservation.is_none()
            && limit.is_none()
            && limit_bandwidth.is_none()
            && limit_mode.is_none()
            && limit_peak.is_none()
            && limit_peak_bandwidth.is_none()
            && limit_peak_time.is_none()
            && shares.is_none()
            && burst.is_none()
    }
}

/// A policy in words.
pub(super) fn policy(policy: &Policy) -> String {
    let mut parts = Vec::new();
    parts.extend(policy.reservation.map(|r| format!("reservation {r} IOPS")));
    parts.extend(policy.limit.map(|l| format!("limit {l} IOPS")));
    parts.extend(policy.limit_bandwidth.map(|b| format!("limit {b}")));
    let seconds = policy.limit_peak_time;
    parts.extend(policy.limit_peak.map(|p| format!("peak {p} IOPS for {seconds} s")));
    parts.extend(policy.limit_peak_bandwidth.map(|p| format!("peak {p} for {seconds} s")));
    if policy.limit_mode != LimitMode::Strict {
        parts.push(format!("limits {}", policy.limit_mode.as_str()));
    }
    parts.push(format!("shares {}", policy.shares));
    parts.push(format!("burst {} IOs", policy.burst));
    parts.join(", ")
}
