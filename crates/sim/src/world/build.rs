//! Builds everything as it is before the first instant.

use super::event::Event;
use super::gate::{Gate, GateSite};
use super::pool::state::HostGates;
use super::state::{Node, SimDisk, Vm, Workload, World};
use super::tracker_audit::Truth;
use crate::device::Device;
use crate::io_scheduler::IoScheduler;
use crate::progress::RunError;
use crate::queue::Queue;
use crate::random::Stream;
use crate::record::{Plan, Recorder, TransactionRecorder};
use crate::scenario::{self, Coordination, Route, Variant, WorkloadKind};
use crate::workload::{Generator, Orders, Player, Traces};
use headgate_devices::ModelSpec;
use headgate_qos::dmclock::Tracker;
use headgate_qos::window::Slots;
use headgate_units::Nanos;
use slab::Slab;

impl<'a> World<'a> {
    /// Everything as it is before the first instant.
    pub(crate) fn new(
        variant: &'a Variant,
        spans: &[scenario::Span],
        seed: u64,
        traces: &dyn Traces,
    ) -> Result<World<'a>, RunError> {
        let setup = &variant.setup;
        let mut world = World {
            setup,
            plan: Plan::new(setup.duration, spans),
            now: Nanos::ZERO,
            queue: Queue::new(),
            events: 0,
            requests: Slab::new(),
            gates: Vec::new(),
            nodes: Vec::new(),
            disks: Vec::new(),
            vms: Vec::new(),
            workloads: Vec::new(),
            windows: Vec::new(),
            boards: Vec::new(),
            running: vec![0; setup.datastores.len()],
            dirty: Vec::new(),
            touched: Vec::new(),
            orders: Orders::default(),
            failure: None,
            seed,
            pool: None,
            tide: None,
            sweeps: Vec::new(),
        };
        world.add_boards();
        let first_nodes = world.add_nodes(seed)?;
        let mut gates = world.add_vms(seed, &first_nodes, traces)?;
        world.add_pool(seed, &first_nodes, &mut gates)?;
        world.add_tide(seed);
        world.add_sweeps();
        (0..world.nodes.len()).try_for_each(|node| world.tell_device(node))?;
        world.plan_start();
        Ok(world)
    }

    /// The nodes of all datastores; returns the first of each.
    fn add_nodes(&mut self, seed: u64) -> Result<Vec<usize>, RunError> {
        let setup = self.setup;
        let mut first = Vec::new();
        for (store_index, store) in setup.datastores.iter().enumerate() {
            first.push(self.nodes.len());
            for (index, node) in store.nodes.iter().enumerate() {
                let number = self.nodes.len() as u32;
                let gate = match node.front {
                    Some(front) => Some(self.push_gate(
                        front.scheduler,
                        store,
                        Slots::whole(front.queue_depth),
                        GateSite::Node { node: number },
                    )?),
                    None => None,
                };
                let rate = match &node.device {
                    ModelSpec::Rate(spec) => Some(spec.rate),
                    _ => None,
                };
                self.nodes.push(Node {
                    device: Device::new(&node.device, store.capacity),
                    scheduled: Nanos::MAX,
                    gate,
                    datastore: store_index as u32,
                    index,
                    rate,
                    permille: 1_000,
                    stream: Stream::new(seed, &format!("node {}/{}", store.name, node.name)),
                    capacity: store.capacity,
                    held: None,
                    recorder: (store.nodes.len() > 1 || gate.is_some())
                        .then(|| Recorder::new(setup.record)),
                });
                if let Some(&rate) = store.rate_by_vms.first() {
                    self.set_rates(store_index, Some(index), rate);
                }
                if store.noise.is_some() {
                    self.queue.push(Nanos::ZERO, Event::Noise { node: number });
                }
            }
        }
        Ok(first)
    }

    fn add_vms(
        &mut self,
        seed: u64,
        first_nodes: &[usize],
        traces: &dyn Traces,
    ) -> Result<HostGates, RunError> {
        let setup = self.setup;
        let mut gates = HostGates::new();
        let mut used = vec![0u64; setup.datastores.len()];
        for vm in &setup.vms {
            let first = self.disks.len() as u32;
            for disk in &vm.disks {
                let store = &setup.datastores[disk.datastore];
                let gate = match gates.get(&(vm.host, disk.datastore)) {
                    Some(&gate) => gate,
                    None => {
                        let gate = self.add_host_gate(seed, vm.host, disk.datastore)?;
                        gates.insert((vm.host, disk.datastore), gate);
                        gate
                    }
                };
                let register = |gates: &mut [Gate], gate: u32| {
                    gates[gate as usize].register(disk.policy, vm.priorities)
                };
                let id = register(&mut self.gates, gate);
                let at_nodes = (0..store.nodes.len())
                    .map(|index| {
                        let gate = self.nodes[first_nodes[disk.datastore] + index].gate?;
                        let uses = disk.nodes.contains(&index);
                        uses.then(|| register(&mut self.gates, gate))
                    })
                    .collect();
                let network = store.network + setup.hosts[vm.host].network;
                let weights = match &disk.route {
                    Route::Weighted(weights) => weights.iter().map(|&w| u64::from(w)).sum(),
                    _ => 0,
                };
                // As the daemon does: one that does not fit begins at the beginning.
                let end = used[disk.datastore].saturating_add(disk.size.0);
                let mut base = 0;
                if end <= store.capacity.0 {
                    base = std::mem::replace(&mut used[disk.datastore], end);
                }
                self.count_disk(gate, self.disks.len() as u32);
                let several = disk.nodes.len() > 1;
                let numbered =
                    |&index: &usize| ((first_nodes[disk.datastore] + index) as u32, index);
                self.disks.push(SimDisk {
                    gate,
                    id,
                    at_nodes,
                    nodes: disk.nodes.iter().map(numbered).collect(),
                    route: disk.route.clone(),
                    weights,
                    turn: 0,
                    stream: Stream::new(seed, &format!("route {}/{}", vm.name, disk.name)),
                    base,
                    size: disk.size.0.max(1),
                    shares: disk.policy.shares(),
                    stripe: store.stripe.0.max(1),
                    network,
                    lane: (network > Nanos::ZERO).then(|| self.queue.lane(network)),
                    // On one node dmClock is mClock, and there is nothing to tell.
                    tracker: (store.coordination == Coordination::Dmclock && several)
                        .then(Tracker::new),
                    truth: (several
                        && disk.nodes.iter().all(|&node| store.nodes[node].front.is_some()))
                    .then(|| Box::new(Truth::new(store.nodes.len(), disk.nodes.len()))),
                    io_scheduler: disk
                        .io_scheduler
                        .map(|e| Box::new(IoScheduler::new(e.kind, e.depth))),
                    recorder: Recorder::new(setup.record),
                    member: None,
                    store: 0,
                });
            }
            self.add_workloads(vm, first, seed, traces)?;
        }
        Ok(gates)
    }

    fn add_workloads(
        &mut self,
        vm: &scenario::Vm,
        disks: u32,
        seed: u64,
        traces: &dyn Traces,
    ) -> Result<(), RunError> {
        let index = self.vms.len() as u32;
        let first = self.workloads.len() as u32;
        for workload in &vm.workloads {
            let player = match &workload.kind {
                WorkloadKind::Replay(replay) => {
                    let records = traces.open(&replay.trace).map_err(RunError::Trace)?;
                    Some(Player::new(workload.disk, replay, records))
                }
                _ => None,
            };
            let stream = Stream::new(seed, &format!("workload {}/{}", vm.name, workload.name));
            let mut drawn = Stream::new(seed, &format!("draw {}/{}", vm.name, workload.name));
            let pattern = drawn.one_of(&workload.patterns).unwrap_or(&workload.pattern);
            let kind = match (&workload.kind, drawn.one_of(&workload.outstanding)) {
                (&WorkloadKind::Closed { think, .. }, Some(&outstanding)) => {
                    WorkloadKind::Closed { outstanding, think }
                }
                (kind, _) => kind.clone(),
            };
            let generator = Generator::new(workload.disk, &kind, pattern, stream, player);
            let transactions =
                matches!(workload.kind, WorkloadKind::Oltp(_)).then(TransactionRecorder::default);
            self.workloads.push(Workload {
                vm: index,
                generator,
                delay: workload.delay,
                epoch: 0,
                outstanding: 0,
                transactions,
                priority: workload.priority,
                recorder: (vm.workloads.len() > 1).then(|| Recorder::new(self.setup.record)),
            });
        }
        let workloads = first..self.workloads.len() as u32;
        self.vms.push(Vm { running: false, disks, workloads });
        Ok(())
    }

    fn plan_start(&mut self) {
        for index in 0..self.plan.marks.len() {
            let at = self.plan.marks[index];
            self.queue.push_first(at, Event::Mark);
        }
        self.queue.push_first(self.setup.interval, Event::Tick);
        for (index, vm) in self.setup.vms.iter().enumerate() {
            if let Some(at) = vm.start {
                self.queue.push(at, Event::Start { vm: index as u32 });
            }
        }
        for (index, event) in self.setup.timeline.iter().enumerate() {
            self.queue.push(event.at, Event::Timeline { index: index as u32 });
        }
    }
}
