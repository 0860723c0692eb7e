//! Subtotals of virtual machines with several disks.

use super::format::{mebibytes, rate};
use headgate_api::top::{Top, TopDisk};
use headgate_model::Name;
use ratatui::style::Stylize;
use ratatui::text::Line;
use std::collections::BTreeMap;

/// A line for each, the largest rate first.
pub(super) fn lines(top: &Top, filter: &str) -> Vec<Line<'static>> {
    let mut machines: BTreeMap<&Name, Vec<&TopDisk>> = BTreeMap::new();
    for disk in top.datastores.iter().flat_map(|store| &store.disks) {
        if let Some(vm) = disk.vm.as_ref().filter(|vm| vm.as_str().contains(filter)) {
            machines.entry(vm).or_default().push(disk);
        }
    }
    let mut machines: Vec<_> = machines.into_iter().filter(|(_, disks)| disks.len() > 1).collect();
    let sum =
        |disks: &[&TopDisk], of: fn(&TopDisk) -> f64| disks.iter().map(|d| of(d)).sum::<f64>();
    let iops = |disks: &[&TopDisk]| sum(disks, |disk| disk.load.iops);
    machines.sort_by(|a, b| iops(&b.1).total_cmp(&iops(&a.1)));
    let line = |(vm, disks): (&Name, Vec<&TopDisk>)| {
        let reserved = sum(&disks, |d| d.policy.reservation.map_or(0.0, |r| r.get() as f64));
        let missed = disks.iter().filter(|disk| disk.reservation_missed).count();
        let missed = if missed > 0 { format!("  {missed} missed") } else { String::new() };
        let text = format!(
            "vm {vm}  {} disks  {} IOPS  {} MiB/s  out {}  rsrv {}{missed}",
            disks.len(),
            rate(iops(&disks)),
            mebibytes(sum(&disks, |disk| disk.load.bytes_per_sec)),
            rate(sum(&disks, |disk| disk.load.outstanding)),
            rate(reserved),
        );
        Line::from(text).cyan()
    };
    machines.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_with_several_disks_have_subtotals() {
        let load = r#"{"iops": 100.0, "normalised_iops": 100.0, "bytes_per_sec": 1048576.0, "read_fraction": 1.0,
            "outstanding": 2.0, "errors": 0, "queue_micros": null, "device_micros": null}"#;
        let disk = |name: &str, vm: &str| {
            format!(
                r#"{{"name": "{name}", "vm": "{vm}", "state": "serving", "policy": {{"reservation": 50, "shares": 100}},
                "clients": 1, "queued": 1, "in_flight": 1, "load": {load}, "reservation_achieved": null,
                "reservation_missed": true, "share_achieved": null}}"#
            )
        };
        let disks = [disk("a", "web"), disk("b", "web"), disk("c", "db")].join(", ");
        let top: Top = serde_json::from_str(&format!(
            r#"{{"interval_millis": 2000, "datastores": [{{"name": "array", "state": "serving", "scheduler": "mclock",
            "window": 32, "in_flight": 3, "queued": 3, "capacity_iops": 1600, "reserved_iops": 150,
            "overbooked_iops": 0, "load": {load}, "disks": [{disks}]}}]}}"#
        ))
        .unwrap();
        let said: Vec<String> = lines(&top, "").iter().map(ToString::to_string).collect();
        assert_eq!(said, ["vm web  2 disks  200 IOPS  2.0 MiB/s  out 4.0  rsrv 100  2 missed"]);
        assert!(lines(&top, "db").is_empty());
    }
}
