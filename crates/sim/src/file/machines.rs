//! Virtual machines with their disks and workloads, from the keys of a file.

use super::names::{find_all, in_turn, plain_name, unique};
use super::schema::ScenarioFile;
use super::vm::{DiskFile, VmFile, numbered};
use crate::scenario::{
    Action, Datastore, DiskSpec, Event, Host, IoSchedulerSpec, Pool, Route, Vm, Workload,
};
use crate::values::{At, Fault};
use headgate_qos::Policy;
use headgate_units::{Bytes, Nanos};
use std::collections::BTreeSet;

/// The input from which VMs are built: the file, and the parts built before.
pub(super) struct Builder<'a> {
    pub(super) file: &'a ScenarioFile,
    pub(super) datastores: &'a [Datastore],
    pub(super) hosts: &'a [Host],
}

impl Builder<'_> {
    /// All VMs, and the events of their ends.
    pub(super) fn vms(&self, names: &mut BTreeSet<String>) -> Result<(Vec<Vm>, Vec<Event>), Fault> {
        let (mut vms, mut stops) = (Vec::new(), Vec::new());
        for file in &self.file.vm {
            plain_name(&file.name, "a VM")?;
            let some = !file.disk.is_empty();
            file.name.check(some, "the VM has no disk; add disk = [{}] or a [[vm.disk]]")?;
            for (turn, name) in numbered(&file.name, file.count).into_iter().enumerate() {
                unique(names, &name, &file.name.span)?;
                if let Some(stop) = &file.stop {
                    stops.push(Event { at: stop.0, action: Action::Stop { vm: vms.len() } });
                }
                vms.push(self.vm(file, name, turn)?);
            }
        }
        Ok((vms, stops))
    }

    /// `turn` counts VMs that are alike.
    fn vm(&self, file: &VmFile, name: String, turn: usize) -> Result<Vm, Fault> {
        let known = self.hosts.iter().map(|host| host.name.as_str());
        let host = in_turn(file.host.as_ref(), turn, &file.name.span, "host", known)?;
        let mut disks: Vec<DiskSpec> = Vec::new();
        let mut disk_names = BTreeSet::new();
        for key in &file.disk {
            let disk = self.disk(key, turn)?;
            let span = key.name.as_ref().map_or(&key.span, |name| &name.span);
            unique(&mut disk_names, &disk.name, span)?;
            disks.push(disk);
        }
        let mut workloads: Vec<Workload> = Vec::new();
        let mut workload_names = BTreeSet::new();
        for key in &file.workload {
            let workload = key.workload(&disks, &file.disk, &self.file.types)?;
            key.check_time_passes(&workload, &disks, &self.hosts[host], self.datastores)?;
            let span = key.name.as_ref().map_or(&key.span, |name| &name.span);
            unique(&mut workload_names, &workload.name, span)?;
            workloads.push(workload);
        }
        let start = file.start.map_or(Some(Nanos::ZERO), |start| start.0);
        if let Some(stop) = &file.stop {
            let later = start.is_none_or(|start| stop.0 > start);
            stop.check(
                later,
                "the VM stops before it starts; set the one later or the other earlier",
            )?;
        }
        if disks.len() > 1
            && workloads.len() > 1
            && let Some(both) = workload_names.intersection(&disk_names).next()
        {
            return Err(file.name.fault(format!(
                "a disk and a workload are both called '{both}', so '{name}/{both}' is ambiguous; rename one"
            )));
        }
        Ok(Vm { name, host, disks, workloads, start, priorities: file.priorities() })
    }

    fn disk(&self, file: &At<DiskFile>, turn: usize) -> Result<DiskSpec, Fault> {
        if let Some(name) = &file.name {
            plain_name(name, "a disk")?;
        }
        let names = self.datastores.iter().map(|store| store.name.as_str());
        let datastore = match (&file.place, &self.file.pool) {
            // The disk has no datastore until its VM starts; it will be on one of the pool's.
            (Some(_), Some(pool)) => match &pool.datastores {
                Some(some) => in_turn(Some(some), 0, &file.span, "datastore", names)?,
                None => 0,
            },
            _ => in_turn(file.datastore.as_ref(), turn, &file.span, "datastore", names)?,
        };
        let store = &self.datastores[datastore];
        let nodes: Vec<usize> = match &file.nodes {
            Some(names) => {
                find_all(names, "node", store.nodes.iter().map(|node| node.name.as_str()))?
            }
            None => (0..store.nodes.len()).collect(),
        };
        let size = file.size.map_or(Bytes::from_gib(10), |size| size.0);
        let io_scheduler = file.elevator.map(|kind| IoSchedulerSpec {
            kind,
            depth: file.elevator_depth.map_or(128, |depth| depth.0),
        });
        Ok(DiskSpec {
            name: file.name.as_ref().map_or("disk".to_owned(), |name| name.value.clone()),
            datastore,
            policy: file.policy_keys().apply(Policy::default())?,
            size,
            route: file.route(nodes.len())?,
            nodes,
            io_scheduler,
            place: file.place.as_ref().map(|place| place.value),
            membership: file.membership(size),
        })
    }
}

/// Rejects disks that a pool cannot manage.
pub(super) fn check_members(
    file: &ScenarioFile,
    pool: Option<&Pool>,
    vms: &[Vm],
) -> Result<(), Fault> {
    for disk in file.vm.iter().flat_map(|vm| &vm.disk).filter(|disk| disk.listed == Some(false)) {
        if let Some(place) = &disk.place {
            return Err(place
                .fault("a pool does not place disks that it does not list; name the datastore"));
        }
    }
    let Some(pool) = pool else { return Ok(()) };
    for vm in vms {
        let mut inside = vm.disks.iter().filter(|disk| pool.datastores.contains(&disk.datastore));
        let uniform = inside.all(|disk| matches!(disk.route, Route::Uniform));
        let message =
            format!("a disk of '{}' has a route, which a pool has no use for; remove it", vm.name);
        file.name.check(uniform, message)?;
    }
    Ok(())
}
