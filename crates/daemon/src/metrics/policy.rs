//! Metrics of the policies in force.

use super::{Labels, Scrape, Writer};
use headgate_model::{LimitMode, Policy};
use std::fmt;

type Read = fn(&Policy) -> Option<f64>;

const GAUGES: [(&str, &str, Read); 12] = [
    ("disk_reservation_iops", "Reservation in force; absent without one", |p| {
        Some(p.reservation?.get() as f64)
    }),
    ("disk_limit_iops", "Limit in force; absent without one", |p| Some(p.limit?.get() as f64)),
    ("disk_limit_bytes_per_second", "Bandwidth limit in force; absent without one", |p| {
        Some(p.limit_bandwidth?.get() as f64)
    }),
    ("disk_limit_read_iops", "Limit of reads in force; absent without one", |p| {
        Some(p.limit_read?.get() as f64)
    }),
    ("disk_limit_write_iops", "Limit of writes in force; absent without one", |p| {
        Some(p.limit_write?.get() as f64)
    }),
    (
        "disk_limit_read_bytes_per_second",
        "Bandwidth limit of reads in force; absent without one",
        |p| Some(p.limit_read_bandwidth?.get() as f64),
    ),
    (
        "disk_limit_write_bytes_per_second",
        "Bandwidth limit of writes in force; absent without one",
        |p| Some(p.limit_write_bandwidth?.get() as f64),
    ),
    (
        "disk_limit_soft",
        "1 where limits bind only beside other disks with requests, 0 where always; absent without",
        |p| {
            let iops = [p.limit, p.limit_read, p.limit_write];
            let bytes = [p.limit_bandwidth, p.limit_read_bandwidth, p.limit_write_bandwidth];
            let is_limited = iops.iter().any(Option::is_some) || bytes.iter().any(Option::is_some);
            is_limited.then_some(f64::from(p.limit_mode == LimitMode::Soft))
        },
    ),
    (
        "disk_limit_peak_iops",
        "Rate up to which the limit may be passed for a time; absent without one",
        |p| Some(p.limit_peak?.get() as f64),
    ),
    (
        "disk_limit_peak_bytes_per_second",
        "Bandwidth up to which its limit may be passed for a time; absent without one",
        |p| Some(p.limit_peak_bandwidth?.get() as f64),
    ),
    ("disk_latency_target_seconds", "Latency target in force; absent without one", |p| {
        Some(p.latency_target?.latency().as_secs_f64())
    }),
    ("disk_shares", "Shares in force", |p| Some(p.shares.get() as f64)),
];

impl Scrape {
    pub(super) fn encode_policies(&self, out: &mut Writer<'_>) -> fmt::Result {
        for (name, help, read) in GAUGES {
            let of_disks = self.disks.iter().filter_map(|disk| {
                let labels: Labels = vec![
                    ("datastore", disk.datastore.to_string()),
                    ("disk", disk.name.to_string()),
                ];
                Some((labels, read(disk.effective_policy.as_ref()?)?))
            });
            out.gauges(name, help, &of_disks.collect::<Vec<_>>())?;
        }
        Ok(())
    }
}
