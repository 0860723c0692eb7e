//! Subtotals of tenants, and of virtual machines with several disks.

use super::format::{mebibytes, rate};
use headgate_api::top::{Top, TopDisk, TopTenant};
use headgate_model::Name;
use ratatui::style::Stylize;
use ratatui::text::Line;
use std::collections::BTreeMap;

/// A line for each tenant and for each machine with several disks, the largest rate first.
pub(super) fn lines(top: &Top, filter: &str) -> Vec<Line<'static>> {
    let disks = || top.datastores.iter().flat_map(|store| &store.disks);
    let of_tenant = |tenant: &'_ TopTenant| {
        let is_its = |vm: &Name| tenant.vms.contains(vm);
        disks().filter(|disk| disk.vm.as_ref().is_some_and(is_its)).collect::<Vec<_>>()
    };
    let shown = top.tenants.iter().filter(|tenant| tenant.name.as_str().contains(filter));
    let tenants = shown.map(|tenant| ("tenant", &tenant.name, of_tenant(tenant)));
    let mut machines: BTreeMap<&Name, Vec<&TopDisk>> = BTreeMap::new();
    for disk in disks() {
        if let Some(vm) = disk.vm.as_ref().filter(|vm| vm.as_str().contains(filter)) {
            machines.entry(vm).or_default().push(disk);
        }
    }
    let machines = machines.into_iter().filter(|(_, disks)| disks.len() > 1);
    let machines = machines.map(|(vm, disks)| ("vm", vm, disks));
    let all = [tenants.collect::<Vec<_>>(), machines.collect()];
    all.into_iter().flat_map(by_rate).map(|(kind, name, disks)| line(kind, name, &disks)).collect()
}

type Group<'a> = (&'static str, &'a Name, Vec<&'a TopDisk>);

fn sum(disks: &[&TopDisk], of: fn(&TopDisk) -> f64) -> f64 {
    disks.iter().map(|disk| of(disk)).sum()
}

fn iops(disks: &[&TopDisk]) -> f64 {
    sum(disks, |disk| disk.load.iops)
}

fn by_rate(mut groups: Vec<Group<'_>>) -> Vec<Group<'_>> {
    groups.retain(|(_, _, disks)| !disks.is_empty());
    groups.sort_by(|a, b| iops(&b.2).total_cmp(&iops(&a.2)));
    groups
}

fn line(kind: &str, name: &Name, disks: &[&TopDisk]) -> Line<'static> {
    let reserved = sum(disks, |d| d.policy.reservation.map_or(0.0, |r| r.get() as f64));
    let missed = disks.iter().filter(|disk| disk.reservation_missed).count();
    let missed = if missed > 0 { format!("  {missed} missed") } else { String::new() };
    let text = format!(
        "{kind} {name}  {} disks  {} IOPS  {} MiB/s  out {}  rsrv {}{missed}",
        disks.len(),
        rate(iops(disks)),
        mebibytes(sum(disks, |disk| disk.load.bytes_per_sec)),
        rate(sum(disks, |disk| disk.load.outstanding)),
        rate(reserved),
    );
    Line::from(text).cyan()
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
            "overbooked_iops": 0, "load": {load}, "disks": [{disks}]}}],
            "tenants": [{{"name": "red", "vms": ["db", "web"]}}, {{"name": "blue", "vms": ["none"]}}]}}"#
        ))
        .unwrap();
        let said: Vec<String> = lines(&top, "").iter().map(ToString::to_string).collect();
        let red = "tenant red  3 disks  300 IOPS  3.0 MiB/s  out 6.0  rsrv 150  3 missed";
        assert_eq!(
            said,
            [red, "vm web  2 disks  200 IOPS  2.0 MiB/s  out 4.0  rsrv 100  2 missed"]
        );
        assert!(lines(&top, "db").is_empty());
    }
}
