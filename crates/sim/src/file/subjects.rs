//! The names that expectations can measure.

use super::text::hint;
use crate::scenario::{Measure, POOL, Scenario, Setup, WorkloadKind};
use crate::values::{At, Fault, Names};

/// All names of all variants, by what can be measured of them.
#[derive(Default)]
pub(super) struct Subjects {
    /// Subjects with requests: VMs, disks, workloads, datastores, nodes, hosts.
    requests: Vec<String>,
    /// Subjects with shares: VMs, and disks of VMs with several.
    holders: Vec<String>,
    applications: Vec<String>,
    issue_windows: Vec<String>,
    /// Datastores of a pool.
    pooled: Vec<String>,
    pools: Vec<String>,
    sweeps: Vec<String>,
}

impl Subjects {
    pub(super) fn of(scenario: &Scenario) -> Subjects {
        let mut all = Subjects::default();
        scenario.variants.iter().for_each(|variant| all.add(&variant.setup));
        all.requests.extend_from_slice(&all.holders);
        let Subjects { requests, holders, applications, issue_windows, pooled, pools, sweeps } =
            &mut all;
        for list in [requests, holders, applications, issue_windows, pooled, pools, sweeps] {
            list.sort_unstable();
            list.dedup();
        }
        all
    }

    fn add(&mut self, setup: &Setup) {
        self.issue_windows.extend(setup.issue_window_names());
        self.sweeps.extend(setup.sweeps.iter().map(|sweep| sweep.name.clone()));
        if let Some(pool) = &setup.pool {
            self.pools.push(POOL.to_owned());
            let names = pool.datastores.iter().map(|&store| setup.datastores[store].name.clone());
            self.pooled.extend(names);
        }
        for vm in &setup.vms {
            let part = |name: &str| format!("{}/{name}", vm.name);
            self.holders.push(vm.name.clone());
            if vm.disks.len() > 1 {
                self.holders.extend(vm.disks.iter().map(|disk| part(&disk.name)));
            }
            if vm.workloads.len() > 1 {
                self.requests.extend(vm.workloads.iter().map(|workload| part(&workload.name)));
            }
            let oltp = vm.workloads.iter().filter(|w| matches!(w.kind, WorkloadKind::Oltp(_)));
            self.applications.extend(oltp.map(|workload| match vm.workloads.len() {
                1 => vm.name.clone(),
                _ => part(&workload.name),
            }));
        }
        for store in &setup.datastores {
            self.requests.push(store.name.clone());
            if store.nodes.len() > 1 || store.nodes.iter().any(|node| node.front.is_some()) {
                let names = store.nodes.iter().map(|node| format!("{}/{}", store.name, node.name));
                self.requests.extend(names);
            }
        }
        if setup.hosts.len() > 1 {
            self.requests.extend(setup.hosts.iter().map(|host| host.name.clone()));
        }
    }

    /// The names, all of which must have the measure.
    pub(super) fn check(&self, group: &At<Names>, measure: Measure) -> Result<Vec<String>, Fault> {
        let (what, known) = match measure {
            measure if measure.of_applications() => ("oltp workload", &self.applications),
            measure if measure.of_the_pool() => ("pool", &self.pools),
            measure if measure.of_pooled_datastores() => ("datastore of a pool", &self.pooled),
            measure if measure.of_sweeps() => ("sweep", &self.sweeps),
            measure if measure.of_shares() => ("VM or disk of a VM with several", &self.holders),
            measure if measure.of_windows() => {
                ("host with VMs at a datastore that has an issue-window", &self.issue_windows)
            }
            _ => ("VM, disk, workload, datastore, node or host", &self.requests),
        };
        for name in &group.0 {
            let message = || format!("there is no {what} '{name}'; {}", hint(name, known));
            if !known.contains(name) {
                return Err(group.fault(message()));
            }
        }
        Ok(group.0.clone())
    }
}
