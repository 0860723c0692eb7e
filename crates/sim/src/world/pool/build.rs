//! Puts a pool together, and places its disks when their VMs start.

use super::copies::Copies;
use super::state::{Attached, HostGates, Member, Placement, Pool, Store, Trials};
use crate::progress::RunError;
use crate::random::Stream;
use crate::record::Recorder;
use crate::scenario::{self, Chooser, Moves, disk_name};
use crate::world::event::Event;
use crate::world::state::{SimDisk, World};
use headgate_placement::WorkloadMeter;
use headgate_qos::DiskId;
use headgate_units::Nanos;

impl<'a> World<'a> {
    /// The pool, once all disks are registered where the file says.
    pub(in crate::world) fn add_pool(
        &mut self,
        seed: u64,
        first_nodes: &[usize],
        gates: &mut HostGates,
    ) -> Result<(), RunError> {
        let setup = self.setup;
        let Some(spec) = &setup.pool else { return Ok(()) };
        let mut stores: Vec<Store> =
            spec.datastores.iter().map(|&datastore| Store::new(datastore, setup.record)).collect();
        let mut used = vec![0u64; stores.len()];
        let mut members = Vec::new();
        let disks = setup.vms.iter().enumerate();
        let disks = disks.flat_map(|(vm, of)| (0..of.disks.len()).map(move |index| (vm, index)));
        for (key, (vm_index, index)) in disks.enumerate() {
            let (vm, disk) = (&setup.vms[vm_index], &setup.vms[vm_index].disks[index]);
            let own = spec.datastores.iter().position(|&store| store == disk.datastore);
            let Some(own) = own else { continue };
            let mut placements = Vec::new();
            for (turn, store) in stores.iter().enumerate() {
                if turn != own && !disk.membership.listed {
                    placements.push(None);
                    continue;
                }
                let registered = &self.disks[key];
                let (gate, id) = match turn == own {
                    true => (registered.gate, registered.id),
                    false => {
                        let gate = self.gate_of(seed, vm.host, store.datastore, gates)?;
                        (gate, self.register_elsewhere(gate, vm, disk))
                    }
                };
                // Every datastore keeps room for it, so that its position there does not depend on
                // the moves of others.
                let end = used[turn].saturating_add(disk.size.0);
                let fits = end <= setup.datastores[store.datastore].capacity.0;
                let base = if fits { std::mem::replace(&mut used[turn], end) } else { 0 };
                let node = first_nodes[store.datastore] as u32;
                placements.push(Some(Placement::new(gate, id, node, base)));
            }
            let name = disk_name(vm, disk);
            self.disks[key].member = Some(members.len() as u32);
            if let Some(placement) = &placements[own] {
                attach(&mut self.disks[key], own, placement);
            }
            members.push(Member {
                disk: key as u32,
                vm: vm_index,
                index,
                at: disk.place.is_none().then_some(own),
                first: disk.place.is_none().then_some(own),
                placements,
                meter: WorkloadMeter::new(),
                place: Stream::new(seed, &format!("place {name}")),
                name: name.into(),
            });
        }
        list_gates(&mut stores, &members);
        self.pool = Some(Box::new(Pool {
            spec,
            members,
            stores,
            history: Vec::new(),
            rounds: Vec::new(),
            moves: Vec::new(),
            began: Nanos::ZERO,
            violations: 0,
            copies: Copies::default(),
            trials: Trials::default(),
            attached: Vec::new(),
        }));
        if let Moves::Copy(copying) = spec.moves {
            self.add_copiers(copying);
        }
        self.queue.push_first(spec.sample, Event::Sample);
        for &at in &spec.advice {
            self.queue.push(at, Event::Advise);
        }
        Ok(())
    }

    /// Registers a disk at a gate where it may move later.
    fn register_elsewhere(
        &mut self,
        gate: u32,
        vm: &scenario::Vm,
        disk: &scenario::DiskSpec,
    ) -> DiskId {
        self.gates[gate as usize].register(disk.policy, vm.priorities)
    }

    fn gate_of(
        &mut self,
        seed: u64,
        host: usize,
        datastore: usize,
        gates: &mut HostGates,
    ) -> Result<u32, RunError> {
        if let Some(&gate) = gates.get(&(host, datastore)) {
            return Ok(gate);
        }
        let gate = self.add_host_gate(seed, host, datastore)?;
        gates.insert((host, datastore), gate);
        Ok(gate)
    }

    pub(in crate::world) fn pool_recorders(&mut self) -> impl Iterator<Item = &mut Recorder> {
        self.pool
            .iter_mut()
            .flat_map(|pool| pool.stores.iter_mut().map(|store| &mut store.recorder))
    }

    /// A VM starts: its disks that have no place yet get one.
    pub(in crate::world) fn place_disks(&mut self, vm: usize) {
        let Some(mut pool) = self.pool.take() else { return };
        for member in 0..pool.members.len() {
            if pool.members[member].vm != vm || pool.members[member].at.is_some() {
                continue;
            }
            let disk = &self.setup.vms[vm].disks[pool.members[member].index];
            let chooser = disk.place.unwrap_or(Chooser::Load);
            match pool.choose(self.setup, self.now, member, chooser) {
                Ok(store) => self.attach_at(&mut pool, member, store),
                Err(why) => self.failure = Some(why),
            }
            pool.violations += pool.broken(self.setup);
        }
        self.pool = Some(pool);
    }

    /// From now on the disk's requests go there.
    pub(super) fn attach_at(&mut self, pool: &mut Pool<'_>, member: usize, store: usize) {
        pool.attached.push(Attached { event: self.events, member, store });
        let member = &mut pool.members[member];
        member.at = Some(store);
        member.first.get_or_insert(store);
        if let Some(placement) = &member.placements[store] {
            attach(&mut self.disks[member.disk as usize], store, placement);
        }
    }
}

/// Each datastore knows through which gates its members' requests come.
fn list_gates(stores: &mut [Store], members: &[Member]) {
    for member in members {
        for (store, placement) in stores.iter_mut().zip(&member.placements) {
            let gate = placement.as_ref().map(|placement| placement.gate);
            store.gates.extend(gate.filter(|gate| !store.gates.contains(gate)));
        }
    }
}

/// The disk is there now.
fn attach(disk: &mut SimDisk, store: usize, placement: &Placement) {
    disk.store = store as u32;
    disk.gate = placement.gate;
    disk.id = placement.id;
    disk.base = placement.base;
    disk.nodes = vec![(placement.node, 0)];
}
