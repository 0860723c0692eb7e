//! What names stand for, in labels, for joins with what is measured.

use super::{Labels, Scrape, Writer};
use headgate_api::types::{Disk, Vm};
use headgate_model::Name;
use std::collections::HashMap;
use std::fmt;

/// The tenant of a machine; of one that has none, the user whose processes may connect to its
/// disks, or else the group.
fn tenant(vm: &Vm) -> Option<&str> {
    let user = || vm.sockets.socket_user.as_deref().or(vm.sockets.socket_group.as_deref());
    vm.tenant.as_ref().map(|name| name.as_str()).or_else(user)
}

impl Scrape {
    /// The labels of a disk and of whom it belongs to. To Prometheus an empty label is none.
    fn belongs(disk: &Disk, vms: &HashMap<&Name, &Vm>) -> Labels {
        let vm = disk.vm.as_ref();
        let record = vm.and_then(|name| vms.get(name).copied());
        let text = |of: Option<&str>| of.unwrap_or_default().to_owned();
        vec![
            ("datastore", disk.datastore.to_string()),
            ("disk", disk.name.to_string()),
            ("vm", text(vm.map(|name| name.as_str()))),
            ("tenant", text(record.and_then(tenant))),
            ("class", text(disk.class.as_ref().map(|name| name.as_str()))),
        ]
    }

    pub(super) fn encode_info(&self, out: &mut Writer<'_>) -> fmt::Result {
        let vms: HashMap<&Name, &Vm> = self.vms.iter().map(|vm| (&vm.name, vm)).collect();
        let disks: Vec<(Labels, f64)> =
            self.disks.iter().map(|disk| (Scrape::belongs(disk, &vms), 1.0)).collect();
        let help = "Whose the disk is, in labels: its virtual machine, its tenant or else the user or group that may connect to it, and its class";
        out.gauges("disk_info", help, &disks)?;
        let datastores: Vec<(Labels, f64)> = self
            .datastores
            .iter()
            .map(|store| {
                let class = store.placement.class.as_ref();
                let labels = vec![
                    ("datastore", store.name.to_string()),
                    ("class", class.map(ToString::to_string).unwrap_or_default()),
                    ("scheduler", store.scheduler.as_str().to_owned()),
                ];
                (labels, 1.0)
            })
            .collect();
        let help =
            "What the datastore is, in labels: its class of placement, and how it is divided";
        out.gauges("datastore_info", help, &datastores)
    }

    /// What waits for an operator.
    pub(super) fn encode_balance(&self, out: &mut Writer<'_>) -> fmt::Result {
        let count = self.moves_waiting as f64;
        let help = "Moves that were advised and wait for 'headgate balance --apply'; 0 where the rules do not ask";
        out.gauges("balance_waiting_moves", help, &[(Vec::new(), count)])?;
        let stopped = if self.has_stopped { 1.0 } else { 0.0 };
        let help = "1 while automatic moves have stopped, because one made things worse";
        out.gauges("balance_stopped", help, &[(Vec::new(), stopped)])
    }
}
