//! Hosts and their reports.
#![allow(dead_code)] // Every test binary uses its own part.

use headgate_cluster::{HostId, HostName, Identity, InstanceId};
use headgate_qos::window::{ActiveShares, Bound, HostReport, Slots};
use headgate_units::Nanos;

pub fn secs(n: u64) -> Nanos {
    Nanos::from_secs(n)
}

pub fn host(host: u8, instance: u8) -> Identity {
    Identity {
        host: HostId([host; 16]),
        instance: InstanceId([instance; 16]),
        epoch: 1,
        name: HostName::new(&format!("host{host}")).unwrap(),
    }
}

/// A report of so many IOs, with a period of 4 s.
pub fn report(ios: u64) -> HostReport {
    HostReport {
        latency: Nanos::from_millis(31),
        ios,
        work: ios * 1_000_000,
        window: Slots::whole(26),
        bound: Bound::Free,
        shares: ActiveShares::from_millionths(1_500_000_000),
        threshold: Nanos::from_millis(30),
        period: secs(4),
        follows: None,
    }
}
