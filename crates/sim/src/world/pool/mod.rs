//! A pool at work: its disks and where they are, what is learnt of them and of the datastores, and advice.

mod advice;
mod books;
mod copy;
mod learn;
mod trial;

use super::{Event, Request, World};
use crate::outcome::pool::{PoolMove, PoolOutcome, PooledDisk, Round};
use crate::random::Stream;
use crate::record::Recorder;
use crate::run::RunError;
use crate::scenario::{self, Chooser, Moves, disk_name};
use crate::workload::Issue;
use headgate_devices::IoKind;
use headgate_placement::{DeviceModel, DevicePoint, Name, PastMove, Refusal, Tally, WorkloadMeter};
use headgate_qos::{DiskId, Phase, Scheduler as _};
use headgate_stats::{DiskSnapshot, DiskStats, Latency, Op};
use headgate_units::Nanos;
use std::collections::BTreeMap;

/// Host and datastore of each gate.
pub(super) type HostGates = BTreeMap<(usize, usize), u32>;

/// What a request is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A guest's own.
    Guest,
    /// A piece of a disk that is copied: read from where it is.
    CopyRead,
    /// The same: written to where it will be.
    CopyWrite,
    /// A guest's write, written a second time where the disk will be.
    Mirror,
}

pub(super) struct Pool<'a> {
    spec: &'a scenario::Pool,
    members: Vec<Member>,
    stores: Vec<Store>,
    history: Vec<PastMove>,
    rounds: Vec<Round>,
    moves: Vec<PoolMove>,
    /// When the present interval of statistics began.
    began: Nanos,
    violations: u64,
    copies: copy::Copies,
    trials: trial::Trials,
}

/// A disk on one of the pool's datastores.
struct Member {
    disk: u32,
    vm: usize,
    /// Its index among the VM's disks.
    index: usize,
    name: Name,
    /// For each of the pool's datastores; only its own for a disk that is not the pool's.
    seats: Vec<Option<Seat>>,
    /// Where it is; none before it is placed.
    at: Option<usize>,
    /// Where it was first.
    first: Option<usize>,
    meter: WorkloadMeter,
    place: Stream,
}

/// A disk's place on a datastore.
struct Seat {
    gate: u32,
    id: DiskId,
    node: u32,
    base: u64,
    stats: DiskStats,
    before: DiskSnapshot,
}

/// One of the pool's datastores.
struct Store {
    datastore: usize,
    recorder: Recorder,
    points: Vec<DevicePoint>,
    /// All requests: how many were at the device, and their mean latency, in nanoseconds.
    raw: Vec<(f64, f64)>,
    tally: Tally,
    model: Option<DeviceModel>,
    refused: Option<Refusal>,
    /// Whether a copy went on in the present interval.
    copied: bool,
}

impl<'a> World<'a> {
    /// The pool, once all disks are registered where the file says.
    pub(super) fn add_pool(
        &mut self,
        seed: u64,
        first_nodes: &[usize],
        gates: &mut HostGates,
    ) -> Result<(), RunError> {
        let setup = self.setup;
        let Some(spec) = &setup.pool else { return Ok(()) };
        let new_store = |&datastore: &usize| Store {
            datastore,
            recorder: Recorder::new(setup.record),
            points: Vec::new(),
            raw: Vec::new(),
            tally: Tally::default(),
            model: None,
            refused: None,
            copied: false,
        };
        let stores: Vec<Store> = spec.datastores.iter().map(new_store).collect();
        let mut used = vec![0u64; stores.len()];
        let mut members = Vec::new();
        let mut next = 0u32;
        for (vm_index, vm) in setup.vms.iter().enumerate() {
            for (index, disk) in vm.disks.iter().enumerate() {
                let key = next;
                next += 1;
                let Some(own) = spec.datastores.iter().position(|&store| store == disk.datastore) else {
                    continue;
                };
                let mut seats = Vec::new();
                for (turn, store) in stores.iter().enumerate() {
                    if turn != own && !disk.membership.listed {
                        seats.push(None);
                        continue;
                    }
                    let registered = &self.disks[key as usize];
                    let (gate, id) = match turn == own {
                        true => (registered.gate, registered.id),
                        false => {
                            let gate = self.gate_of(seed, vm.host, store.datastore, gates)?;
                            let scheduler = &mut self.gates[gate as usize].scheduler;
                            let id = scheduler.register(Nanos::ZERO, disk.policy);
                            let known = scheduler.set_priorities(Nanos::ZERO, id, vm.priorities);
                            debug_assert!(known.is_ok());
                            (gate, id)
                        }
                    };
                    // Room is kept for it everywhere, so that where it lies on a datastore does not depend on the others' moves.
                    let end = used[turn].saturating_add(disk.size.0);
                    let fits = end <= setup.datastores[store.datastore].capacity.0;
                    let base = if fits { std::mem::replace(&mut used[turn], end) } else { 0 };
                    seats.push(Some(Seat {
                        gate,
                        id,
                        node: first_nodes[store.datastore] as u32,
                        base,
                        stats: DiskStats::new(Nanos::ZERO),
                        before: DiskSnapshot::default(),
                    }));
                }
                let name = disk_name(vm, disk);
                members.push(Member {
                    disk: key,
                    vm: vm_index,
                    index,
                    at: disk.place.is_none().then_some(own),
                    first: disk.place.is_none().then_some(own),
                    seats,
                    meter: WorkloadMeter::new(),
                    place: Stream::new(seed, &format!("place {name}")),
                    name: name.into(),
                });
                let member = members.len() - 1;
                self.disks[key as usize].member = Some(member as u32);
                if let Some(seat) = &members[member].seats[own] {
                    sit(&mut self.disks[key as usize], own, seat);
                }
            }
        }
        self.pool = Some(Box::new(Pool {
            spec,
            members,
            stores,
            history: Vec::new(),
            rounds: Vec::new(),
            moves: Vec::new(),
            began: Nanos::ZERO,
            violations: 0,
            copies: copy::Copies::default(),
            trials: trial::Trials::default(),
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

    pub(super) fn pool_recorders(&mut self) -> impl Iterator<Item = &mut Recorder> {
        self.pool.iter_mut().flat_map(|pool| pool.stores.iter_mut().map(|store| &mut store.recorder))
    }

    /// A VM starts: its disks that have no place yet get one.
    pub(super) fn place_disks(&mut self, vm: usize) {
        let Some(mut pool) = self.pool.take() else { return };
        for member in 0..pool.members.len() {
            if pool.members[member].vm != vm || pool.members[member].at.is_some() {
                continue;
            }
            let disk = &self.setup.vms[vm].disks[pool.members[member].index];
            let chooser = disk.place.unwrap_or(Chooser::Load);
            match pool.choose(self.setup, self.now, member, chooser) {
                Ok(store) => self.seat(&mut pool, member, store),
                Err(why) => self.failure = Some(why),
            }
            pool.violations += pool.broken(self.setup);
        }
        self.pool = Some(pool);
    }

    /// From now on the disk's requests go there.
    fn seat(&mut self, pool: &mut Pool<'_>, member: usize, store: usize) {
        let member = &mut pool.members[member];
        member.at = Some(store);
        member.first.get_or_insert(store);
        if let Some(seat) = &member.seats[store] {
            sit(&mut self.disks[member.disk as usize], store, seat);
        }
    }

    /// What the pool leaves behind; the recorders of its datastores apart.
    pub(super) fn finish_pool(&mut self) -> Option<(PoolOutcome, BTreeMap<usize, Recorder>)> {
        let mut pool = self.pool.take()?;
        pool.learn();
        let last = pool.outlook(self.setup, self.now);
        let name = |store: usize| self.setup.datastores[pool.stores[store].datastore].name.clone();
        let disks = pool
            .members
            .iter()
            .filter(|member| pool.listed(self.setup, member))
            .map(|member| PooledDisk {
                name: member.name.to_string(),
                first: member.first.map(name),
                last: member.at.map(name),
                traits: member.meter.traits(),
            })
            .collect();
        let on = |store: usize| {
            pool.members
                .iter()
                .filter(|member| member.at == Some(store) && pool.listed(self.setup, member))
                .count()
        };
        let disks_on: Vec<usize> = (0..pool.stores.len()).map(on).collect();
        let names: Vec<String> = (0..pool.stores.len()).map(name).collect();
        let Pool { stores, rounds, moves, violations, copies, .. } = *pool;
        let mut recorders = BTreeMap::new();
        let mut datastores = Vec::new();
        for ((store, name), disks) in stores.into_iter().zip(names).zip(disks_on) {
            recorders.insert(store.datastore, store.recorder);
            datastores.push(learn::outcome(
                name,
                disks as u32,
                store.model,
                store.refused,
                store.tally,
                &store.points,
                &store.raw,
            ));
        }
        let copied = copies.copied;
        Some((PoolOutcome { rounds, moves, last, datastores, disks, copied, violations }, recorders))
    }
}

/// The disk is there now.
fn sit(disk: &mut super::Disk, store: usize, seat: &Seat) {
    disk.seat = store as u32;
    disk.gate = seat.gate;
    disk.id = seat.id;
    disk.base = seat.base;
    disk.nodes = vec![(seat.node, 0)];
}

fn op(kind: IoKind) -> Op {
    match kind {
        IoKind::Read => Op::Read,
        IoKind::Write => Op::Write,
        IoKind::Flush => Op::Flush,
        IoKind::Discard => Op::Discard,
    }
}

impl Pool<'_> {
    /// What the daemon's statistics are told, and when.
    #[inline]
    pub(super) fn on_arrival(&mut self, now: Nanos, member: u32, seat: u32, issue: &Issue) {
        self.stores[seat as usize].recorder.on_arrival(now);
        if let Some(Some(seat)) = self.members[member as usize].seats.get_mut(seat as usize) {
            seat.stats.on_arrival(now, op(issue.kind), issue.offset, issue.bytes);
        }
    }

    #[inline]
    pub(super) fn on_dispatch(&mut self, now: Nanos, member: u32, request: &Request, cost: u64) {
        let queue = now - request.arrived;
        self.stores[request.seat as usize].recorder.on_dispatch(queue, request.phase, cost);
        if let Some(Some(seat)) = self.members[member as usize].seats.get_mut(request.seat as usize) {
            let phase = match request.phase {
                Phase::Reservation => headgate_stats::Phase::Reservation,
                Phase::Weight => headgate_stats::Phase::Weight,
            };
            seat.stats.on_dispatch(now, op(request.kind), queue, phase, cost);
        }
    }

    #[inline]
    pub(super) fn on_complete(&mut self, now: Nanos, member: u32, request: &Request) {
        let (queue, device) = (request.dispatched - request.arrived, now - request.dispatched);
        self.stores[request.seat as usize].recorder.on_complete(now, request.bytes, queue, device);
        if let Some(Some(seat)) = self.members[member as usize].seats.get_mut(request.seat as usize) {
            let latency = Latency { device, total: queue + device };
            let done = headgate_stats::Outcome::Done;
            seat.stats.on_complete(now, op(request.kind), request.bytes, latency, done);
        }
    }

    /// Another policy holds wherever the disk may go.
    pub(super) fn gates_of(&self, member: u32) -> impl Iterator<Item = (u32, DiskId)> + '_ {
        self.members[member as usize].seats.iter().flatten().map(|seat| (seat.gate, seat.id))
    }

    /// Whether a disk is in the pool's books.
    fn listed(&self, setup: &scenario::Setup, member: &Member) -> bool {
        setup.vms[member.vm].disks[member.index].membership.listed
    }
}
