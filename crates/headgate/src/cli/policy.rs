//! Options of a disk's policy, and its words.

use super::values::{OrNone, Word, one_of};
use clap::Args;
use headgate_api::types::DiskPatch;
use headgate_model::{LimitMode, Policy, PolicyField, PolicyPart, ReadErrors, WriteErrors};
use headgate_units::{BytesPerSec, Iops, LatencyTarget, Shares};

const MODES: &[Word<LimitMode>] = &[
    Word("strict", LimitMode::Strict, "Always"),
    Word(
        "soft",
        LimitMode::Soft,
        "Only while another disk of the datastore has a request queued that no limit holds back",
    ),
];

const WRITE_ERRORS: &[Word<WriteErrors>] = &[
    Word("report", WriteErrors::Report, "The client gets the error"),
    Word(
        "enospc",
        WriteErrors::Enospc,
        "The disk holds its requests while there is no space, and reports any other error",
    ),
    Word("stop", WriteErrors::Stop, "The disk holds its requests until the storage takes them"),
];

const READ_ERRORS: &[Word<ReadErrors>] = &[
    Word("report", ReadErrors::Report, "The client gets the error"),
    Word("stop", ReadErrors::Stop, "The disk holds its requests until the storage gives the data"),
];

/// Options of a disk's policy.
#[derive(Clone, Debug, Args)]
pub(super) struct PolicyArgs {
    /// Guaranteed minimum in IOs per second, 1 to 1000000000, or 'none'
    #[arg(long, value_name = "IOPS")]
    reservation: Option<OrNone<Iops>>,
    /// Maximum in IOs per second, 1 to 1000000000, or 'none'
    #[arg(long, value_name = "IOPS")]
    limit: Option<OrNone<Iops>>,
    /// Maximum bandwidth of reads plus writes in bytes per second, such as 50M, or 'none'
    #[arg(long, value_name = "BYTES")]
    limit_bandwidth: Option<OrNone<BytesPerSec>>,
    /// Maximum of reads alone in IOs per second, or 'none'
    #[arg(long, value_name = "IOPS")]
    limit_read: Option<OrNone<Iops>>,
    /// Maximum of writes alone, discards and flushes among them, in IOs per second, or 'none'
    #[arg(long, value_name = "IOPS")]
    limit_write: Option<OrNone<Iops>>,
    /// Maximum bandwidth of reads alone in bytes per second, or 'none'
    #[arg(long, value_name = "BYTES")]
    limit_read_bandwidth: Option<OrNone<BytesPerSec>>,
    /// Maximum bandwidth of writes alone in bytes per second, or 'none'
    #[arg(long, value_name = "BYTES")]
    limit_write_bandwidth: Option<OrNone<BytesPerSec>>,
    /// When the limits bind [default: strict]
    #[arg(long, value_name = "MODE", value_parser = one_of(MODES))]
    limit_mode: Option<LimitMode>,
    /// Rate up to which the disk may pass --limit, for --limit-peak-time, or 'none'
    #[arg(long, value_name = "IOPS")]
    limit_peak: Option<OrNone<Iops>>,
    /// Bandwidth up to which the disk may pass --limit-bandwidth, for --limit-peak-time, or 'none'
    #[arg(long, value_name = "BYTES")]
    limit_peak_bandwidth: Option<OrNone<BytesPerSec>>,
    /// Seconds for which a disk that stayed below its limit may go at its peak, 1 to 3600 [default:
    /// 1]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..=3600))]
    limit_peak_time: Option<u16>,
    /// Weight among the disks of the datastore, 1 to 1000000 [default: 1000]
    #[arg(long, value_name = "N")]
    shares: Option<Shares>,
    /// IOs that a disk may send ahead of its share after it was idle, 0 to 256 [default: 1]
    #[arg(long, value_name = "IOS", value_parser = clap::value_parser!(u16).range(0..=256))]
    burst: Option<u16>,
    /// Latency that so many per cent of the reads and writes are to stay within while the disk asks
    /// for no more than its reservation, such as p99=5ms, or 'none'
    #[arg(long, value_name = "pN=TIME")]
    latency_target: Option<OrNone<LatencyTarget>>,
    /// What becomes of writes that the storage fails; flushes are always reported [default: enospc]
    #[arg(long, value_name = "ACTION", value_parser = one_of(WRITE_ERRORS))]
    werror: Option<WriteErrors>,
    /// What becomes of reads that the storage fails [default: report]
    #[arg(long, value_name = "ACTION", value_parser = one_of(READ_ERRORS))]
    rerror: Option<ReadErrors>,
}

impl PolicyArgs {
    /// What is said of the policy.
    pub(super) fn part(self) -> PolicyPart {
        self.patch().policy()
    }

    /// What is to change.
    pub(super) fn patch(self) -> DiskPatch {
        DiskPatch {
            reservation: OrNone::change(self.reservation),
            limit: OrNone::change(self.limit),
            limit_bandwidth: OrNone::change(self.limit_bandwidth),
            limit_read: OrNone::change(self.limit_read),
            limit_write: OrNone::change(self.limit_write),
            limit_read_bandwidth: OrNone::change(self.limit_read_bandwidth),
            limit_write_bandwidth: OrNone::change(self.limit_write_bandwidth),
            limit_mode: self.limit_mode,
            limit_peak: OrNone::change(self.limit_peak),
            limit_peak_bandwidth: OrNone::change(self.limit_peak_bandwidth),
            limit_peak_time: self.limit_peak_time,
            shares: self.shares,
            burst: self.burst,
            latency_target: OrNone::change(self.latency_target),
            werror: self.werror,
            rerror: self.rerror,
            ..DiskPatch::default()
        }
    }

    /// The policy of a new disk, or none where nothing was given.
    pub(super) fn policy_if_given(self) -> Option<Policy> {
        let patch = self.patch();
        (patch != DiskPatch::default()).then(|| patch.policy().apply(Policy::default()))
    }
}

/// A part of a policy in words: what it says, and nothing else.
pub(super) fn part(part: &PolicyPart) -> String {
    if part.is_empty() {
        return "nothing".into();
    }
    let Ok(serde_json::Value::Object(said)) = serde_json::to_value(part) else {
        return String::new();
    };
    let unit = |name: &str| match name {
        "limit_peak_time" => " s",
        "burst" => " IOs",
        "reservation" | "limit" | "limit_read" | "limit_write" | "limit_peak" => " IOPS",
        _ => "",
    };
    let words = PolicyField::all().filter_map(|field| {
        let (name, value) = (field.as_str(), said.get(field.as_str())?);
        let shown = match value {
            serde_json::Value::Null => "none".to_owned(),
            serde_json::Value::Number(n) if name.ends_with("bandwidth") => {
                let bytes = n.as_u64().and_then(|bytes| BytesPerSec::new(bytes).ok());
                bytes.map(|bytes| bytes.to_string())?
            }
            serde_json::Value::String(text) => text.clone(),
            other => format!("{other}{}", unit(name)),
        };
        Some(format!("{} {shown}", name.replace('_', " ")))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// A policy in words.
pub(super) fn policy(policy: &Policy) -> String {
    let mut parts = Vec::new();
    parts.extend(policy.reservation.map(|r| format!("reservation {r} IOPS")));
    parts.extend(policy.limit.map(|l| format!("limit {l} IOPS")));
    parts.extend(policy.limit_bandwidth.map(|b| format!("limit {b}")));
    for (what, iops, bandwidth) in [
        ("reads", policy.limit_read, policy.limit_read_bandwidth),
        ("writes", policy.limit_write, policy.limit_write_bandwidth),
    ] {
        parts.extend(iops.map(|l| format!("limit of {what} {l} IOPS")));
        parts.extend(bandwidth.map(|b| format!("limit of {what} {b}")));
    }
    let seconds = policy.limit_peak_time;
    parts.extend(policy.limit_peak.map(|p| format!("peak {p} IOPS for {seconds} s")));
    parts.extend(policy.limit_peak_bandwidth.map(|p| format!("peak {p} for {seconds} s")));
    if policy.limit_mode != LimitMode::Strict {
        parts.push(format!("limits {}", policy.limit_mode.as_str()));
    }
    parts.push(format!("shares {}", policy.shares));
    parts.push(format!("burst {} IOs", policy.burst));
    parts.extend(policy.latency_target.map(|target| format!("latency {target}")));
    if policy.werror != WriteErrors::default() {
        parts.push(format!("write errors {}", policy.werror.as_str()));
    }
    if policy.rerror != ReadErrors::default() {
        parts.push(format!("read errors {}", policy.rerror.as_str()));
    }
    parts.join(", ")
}
