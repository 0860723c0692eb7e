//! Collects the outcome of a run.

use super::host_window::HostWindow;
use super::state::World;
use crate::outcome::{Application, Cached, HostWindow as RecordedWindow, Outcome, SubjectKind};
use crate::record::{Plan, TransactionRecorder, merge};
use crate::scenario::Setup;

impl World<'_> {
    /// What was measured.
    pub(crate) fn finish(mut self, scenario: &str, variant: &str, seed: u64) -> Outcome {
        let sweeps = self.finish_sweeps();
        let moved_pages = self.moved_pages();
        let caches = self.caches();
        let (pool, mut of_stores) =
            self.finish_pool().map_or_else(Default::default, |(pool, of)| (Some(pool), of));
        let World { setup, plan, disks, nodes, workloads, windows, events, .. } = self;
        let mut disks = disks.into_iter();
        let mut of_disks = Vec::new();
        for (vm_index, vm) in setup.vms.iter().enumerate() {
            for disk in &vm.disks {
                let Some(recorded) = disks.next() else { break };
                let name = format!("{}/{}", vm.name, disk.name);
                let subject = recorded.recorder.finish(SubjectKind::Disk, name, &plan);
                of_disks.push((vm_index, disk.datastore, subject));
            }
        }
        let mut subjects = Vec::new();
        let (mut of_workloads, mut transactions) = (Vec::new(), Vec::new());
        for workload in workloads {
            of_workloads.push(workload.recorder);
            transactions.push(workload.transactions);
        }
        let mut of_workloads = of_workloads.into_iter();
        for (index, vm) in setup.vms.iter().enumerate() {
            let parts: Vec<_> = of_disks.iter().filter(|d| d.0 == index).map(|d| &d.2).collect();
            subjects.push(merge(SubjectKind::Vm, vm.name.clone(), &parts, &plan));
            if parts.len() > 1 {
                subjects.extend(parts.into_iter().cloned());
            }
            for workload in &vm.workloads {
                let Some(recorder) = of_workloads.next().flatten() else { continue };
                let name = format!("{}/{}", vm.name, workload.name);
                subjects.push(recorder.finish(SubjectKind::Workload, name, &plan));
            }
        }
        let mut nodes = nodes.into_iter().peekable();
        for (index, store) in setup.datastores.iter().enumerate() {
            let parts: Vec<_> = of_disks.iter().filter(|d| d.1 == index).map(|d| &d.2).collect();
            // Disks of a pool come and go.
            subjects.push(match of_stores.remove(&index) {
                Some(recorder) => {
                    recorder.finish(SubjectKind::Datastore, store.name.clone(), &plan)
                }
                None => merge(SubjectKind::Datastore, store.name.clone(), &parts, &plan),
            });
            while let Some(node) = nodes.next_if(|node| node.datastore as usize == index) {
                let name = format!("{}/{}", store.name, store.nodes[node.index].name);
                subjects.extend(node.recorder.map(|r| r.finish(SubjectKind::Node, name, &plan)));
            }
        }
        if setup.hosts.len() > 1 {
            for (index, host) in setup.hosts.iter().enumerate() {
                let mine = of_disks.iter().filter(|d| setup.vms[d.0].host == index);
                let parts: Vec<_> = mine.map(|d| &d.2).collect();
                subjects.push(merge(SubjectKind::Host, host.name.clone(), &parts, &plan));
            }
        }
        let applications = applications(setup, transactions, &plan);
        let issue_windows = issue_windows(setup, windows, &plan);
        Outcome {
            scenario: scenario.to_owned(),
            variant: variant.to_owned(),
            seed,
            duration: setup.duration,
            interval: setup.interval,
            events,
            subjects,
            applications,
            issue_windows,
            moved_pages,
            pool,
            caches,
            sweeps,
        }
    }

    /// What the caches of each datastore answered, all its nodes together.
    fn caches(&self) -> Vec<Cached> {
        let answered = |store: usize| {
            let own = self.nodes.iter().filter(|node| node.datastore as usize == store);
            let cached: Vec<u64> = own.filter_map(|node| node.device.by_cache()).collect();
            (!cached.is_empty()).then(|| cached.iter().sum())
        };
        let stores = self.setup.datastores.iter().enumerate();
        stores
            .filter_map(|(index, store)| {
                Some(Cached { datastore: store.name.clone(), requests: answered(index)? })
            })
            .collect()
    }
}

/// The transactions of each OLTP workload; `recorders` has one entry for each workload.
fn applications(
    setup: &Setup,
    recorders: Vec<Option<TransactionRecorder>>,
    plan: &Plan,
) -> Vec<Application> {
    let mut recorders = recorders.into_iter();
    let mut applications = Vec::new();
    for vm in &setup.vms {
        for workload in &vm.workloads {
            let Some(recorder) = recorders.next().flatten() else { continue };
            let name = match vm.workloads.len() {
                1 => vm.name.clone(),
                _ => format!("{}/{}", vm.name, workload.name),
            };
            applications.push(recorder.finish(name, plan));
        }
    }
    applications
}

/// The recorded windows, by `HOST` or `HOST/DATASTORE`.
fn issue_windows(setup: &Setup, windows: Vec<HostWindow>, plan: &Plan) -> Vec<RecordedWindow> {
    let several = setup.hosts_with_several_windows();
    let recorded = |window: HostWindow| {
        let host = &setup.hosts[window.host].name;
        let name = match several {
            true => format!("{host}/{}", setup.datastores[window.datastore].name),
            false => host.clone(),
        };
        window.recorder.finish(name, plan)
    };
    windows.into_iter().map(recorded).collect()
}
