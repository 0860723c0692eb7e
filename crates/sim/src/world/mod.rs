//! The simulation itself: everything that exists in a run, and what happens to it.
//!
//! ```text
//! workload ── issue ──> host gate ── dispatch ──> (network) ──> node ── (node gate) ──> device
//!    ^                                                                                    │
//!    └───────────── completion <── host gate: window <── (network) <──────────────────────┘
//! ```
//!
//! A *gate* is a scheduler with a window: at a host, one for each datastore that its VMs use; at a storage node, if the
//! scenario puts one there. A host's window may be controlled, as the daemon does it: once a period, by what it and the others saw. What happens at one instant is handled event by event; after each, gates that may have
//! something to send are asked, as the daemon asks once in each turn of its loop.

mod build;
mod finish;
mod gate;
mod guest;
mod route;
mod timeline;
mod told;
mod windows;

use crate::board::Board;
use crate::device::Device;
use crate::elevator::Elevator;
use crate::queue::{Lane, Queue};
use crate::random::Stream;
use crate::record::{Plan, Recorder, TransactionRecorder};
use crate::run::{Progress, RunError};
use crate::scenario::{Route, Setup};
use crate::workload::{Generator, Issue, Orders};
use gate::{Gate, Place, Room};
use headgate_devices::{DeviceIo, IoKind};
use headgate_qos::dmclock::{Served, Ticket, Tracker};
use headgate_qos::{Cost, Decision, DiskId, Dispatched, Elsewhere, Phase, Scheduler};
use headgate_units::{Bytes, Iops, Nanos, Priority};
use route::request_io;
use slab::Slab;
use told::Truth;
use windows::HostWindow;

/// More requests than these of one workload do not wait: what would come then is dropped and counted. Bounds the memory
/// of a workload that asks for more than there is.
pub(crate) const MOST_OUTSTANDING: u32 = 65_536;

/// How many events go by between two looks at [`Progress`].
const LOOK: u64 = 1 << 16;

pub(crate) struct World<'a> {
    setup: &'a Setup,
    plan: Plan,
    now: Nanos,
    queue: Queue<Event>,
    events: u64,
    requests: Slab<Request>,
    gates: Vec<Gate>,
    nodes: Vec<Node>,
    disks: Vec<Disk>,
    vms: Vec<Vm>,
    workloads: Vec<Workload>,
    /// Of hosts at datastores where they are recorded.
    windows: Vec<HostWindow>,
    /// What hosts tell each other, for each datastore.
    boards: Vec<Board>,
    /// VMs that run, for each datastore.
    running: Vec<usize>,
    /// Gates to be asked, each once.
    dirty: Vec<u32>,
    /// Nodes whose next event may have changed.
    touched: Vec<u32>,
    orders: Orders,
    failure: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Device { node: u32 },
    Wake { gate: u32 },
    Guest { disk: u32 },
    Window { window: u32 },
    AtNode { request: u32 },
    Back { request: u32 },
    Workload { workload: u32, token: u32, epoch: u32 },
    Start { vm: u32 },
    Timeline { index: u32 },
    Noise { node: u32 },
    Tick,
    Mark,
}

/// A request from its issue to its completion.
struct Request {
    disk: u32,
    workload: u32,
    epoch: u32,
    tag: u32,
    node: u32,
    kind: IoKind,
    phase: Phase,
    /// On the node's device.
    offset: u64,
    bytes: Bytes,
    arrived: Nanos,
    dispatched: Nanos,
    reached_node: Nanos,
    /// Given to the node's device.
    submitted: Nanos,
    /// In the device, or waiting for one that failed.
    inside: bool,
    /// What the node charged.
    cost: Cost,
    /// For the disk's tracker, which wants it back.
    ticket: Option<Ticket<u32>>,
}

struct Node {
    device: Device,
    /// When the device has something planned; [`Nanos::MAX`] if not.
    scheduled: Nanos,
    gate: Option<u32>,
    datastore: u32,
    /// Its own number within the datastore.
    index: usize,
    /// The rate before noise; `None` for a model that has none.
    rate: Option<Iops>,
    /// What noise makes of the rate.
    permille: u64,
    stream: Stream,
    capacity: Bytes,
    /// Requests that wait for a failed node; `None` while it works.
    held: Option<Vec<u32>>,
    /// Where nodes are of interest.
    recorder: Option<Recorder>,
}

struct Disk {
    gate: u32,
    id: DiskId,
    /// Its names at the gates of the datastore's nodes, by index of the node.
    at_nodes: Vec<Option<DiskId>>,
    /// Its nodes, and their number at the datastore.
    nodes: Vec<(u32, usize)>,
    route: Route,
    weights: u64,
    turn: usize,
    stream: Stream,
    /// Its first byte on the datastore.
    base: u64,
    size: u64,
    stripe: u64,
    /// One way between its host and its datastore.
    network: Nanos,
    /// For messages that take as long; none where they take no time.
    lane: Option<Lane>,
    /// What its host tells its nodes of each other.
    tracker: Option<Tracker<u32>>,
    /// Whether that is so; none where there is nothing to tell.
    truth: Option<Box<Truth>>,
    /// What orders its requests inside the guest.
    elevator: Option<Box<Elevator>>,
    recorder: Recorder,
}

struct Vm {
    running: bool,
    /// Its first disk.
    disks: u32,
    workloads: std::ops::Range<u32>,
}

struct Workload {
    vm: u32,
    generator: Generator,
    /// Grows with every start and stop: what was planned before no longer counts.
    epoch: u32,
    outstanding: u32,
    transactions: Option<TransactionRecorder>,
    priority: Option<Priority>,
    /// Where its VM has several.
    recorder: Option<Recorder>,
}

impl World<'_> {
    /// Simulates until the end.
    pub(crate) fn run(&mut self, progress: &mut dyn Progress) -> Result<(), RunError> {
        let end = self.setup.duration;
        let mut look = LOOK;
        while let Some((at, event)) = self.queue.pop_before(end) {
            self.now = at;
            self.handle(event);
            self.settle();
            if let Some(why) = self.failure.take() {
                return Err(RunError::Trace(why));
            }
            if self.events >= look {
                look = self.events + LOOK;
                if progress.step(at, end, self.events).is_break() {
                    return Err(RunError::Cancelled { at });
                }
            }
        }
        self.now = end;
        self.tick();
        match progress.step(end, end, self.events) {
            std::ops::ControlFlow::Continue(()) => Ok(()),
            std::ops::ControlFlow::Break(()) => Err(RunError::Cancelled { at: end }),
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
        self.events += 1;
        match event {
            Event::Device { node } => self.device(node),
            Event::Wake { gate } => {
                // Else it has asked for another time since.
                if self.gates[gate as usize].wake == now {
                    self.gates[gate as usize].wake = Nanos::MAX;
                    self.ask(gate);
                }
            }
            Event::Window { window } => self.end_period(window),
            Event::Guest { disk } => self.settle_guest(disk),
            Event::AtNode { request } => self.at_node(request),
            Event::Back { request } => self.back(request),
            Event::Workload { workload, token, epoch } => {
                if self.workloads[workload as usize].epoch == epoch {
                    self.drive(workload, |generator, orders| generator.timer(now, token, orders));
                }
            }
            Event::Start { vm } => self.start(vm),
            Event::Timeline { index } => {
                let action = self.setup.timeline[index as usize].action.clone();
                self.act(action);
            }
            Event::Noise { node } => self.draw_noise(node),
            Event::Tick => {
                self.tick();
                self.queue.push_first(now + self.setup.interval, event);
            }
            Event::Mark => {
                self.disks.iter_mut().for_each(|disk| disk.recorder.mark(now));
                self.nodes.iter_mut().filter_map(|n| n.recorder.as_mut()).for_each(|r| r.mark(now));
                self.workloads.iter_mut().filter_map(|w| w.transactions.as_mut()).for_each(|t| t.mark());
                self.workloads.iter_mut().filter_map(|w| w.recorder.as_mut()).for_each(|r| r.mark(now));
                self.windows.iter_mut().for_each(|window| window.recorder.mark(now));
            }
        }
    }

    /// Asks all gates that may have something to send, and plans for the devices that got something.
    fn settle(&mut self) {
        let mut next = 0;
        while let Some(&gate) = self.dirty.get(next) {
            next += 1;
            self.pump(gate);
        }
        self.dirty.clear();
        while let Some(node) = self.touched.pop() {
            self.plan_device(node);
        }
    }

    #[inline]
    fn ask(&mut self, gate: u32) {
        let asked = &mut self.gates[gate as usize].dirty;
        if !*asked {
            *asked = true;
            self.dirty.push(gate);
        }
    }

    fn pump(&mut self, index: u32) {
        let now = self.now;
        loop {
            let gate = &mut self.gates[index as usize];
            gate.dirty = false;
            match gate.room(now) {
                Room::Now => {}
                Room::None => return,
                Room::At(at) => return self.wake_gate(index, at),
            }
            match gate.scheduler.dispatch(now) {
                Decision::Dispatch(choice) => {
                    gate.dispatched(now);
                    match gate.place {
                        Place::Host { .. } => {
                            let comparisons = gate.scheduler.comparisons();
                            let more = comparisons - gate.compared;
                            gate.compared = comparisons;
                            self.send(choice, more);
                        }
                        Place::Node { node } => self.serve(node, choice),
                    }
                }
                Decision::WaitUntil(at) => return self.wake_gate(index, at),
                Decision::Idle => return,
            }
        }
    }

    fn wake_gate(&mut self, index: u32, at: Nanos) {
        let (gate, at) = (&mut self.gates[index as usize], at.max(self.now));
        if gate.wake != at {
            gate.wake = at;
            self.queue.push(at, Event::Wake { gate: index });
        }
    }

    /// A host lets a request go.
    fn send(&mut self, choice: Dispatched<u32>, comparisons: u64) {
        let now = self.now;
        self.events += 1;
        let request = &mut self.requests[choice.request as usize];
        request.dispatched = now;
        request.phase = choice.phase;
        let disk = &mut self.disks[request.disk as usize];
        disk.recorder.on_dispatch(now - request.arrived, choice.phase, choice.cost.as_millionths());
        disk.recorder.on_comparisons(comparisons);
        if let Some(recorder) = &mut self.workloads[request.workload as usize].recorder {
            recorder.on_dispatch(now - request.arrived, choice.phase, choice.cost.as_millionths());
        }
        if let (Some(tracker), Some(_)) = (&mut disk.tracker, self.nodes[request.node as usize].gate) {
            request.ticket = Some(tracker.send(now, request.node).0);
        }
        if let Some(truth) = &mut disk.truth {
            let report = request.ticket.as_ref().map_or(Elsewhere::NONE, Ticket::carried);
            if let Some(error) = truth.on_send(self.nodes[request.node as usize].index, report) {
                disk.recorder.on_told(error.delta, error.beyond_bound);
            }
        }
        match disk.lane {
            None => self.at_node(choice.request),
            Some(lane) => {
                self.queue.push_lane(lane, now + disk.network, Event::AtNode { request: choice.request });
            }
        }
    }

    fn at_node(&mut self, key: u32) {
        let now = self.now;
        let request = &mut self.requests[key as usize];
        request.reached_node = now;
        let index = request.node;
        let node = &mut self.nodes[index as usize];
        if let Some(recorder) = &mut node.recorder {
            recorder.on_arrival(now);
        }
        let Some(gate) = node.gate else { return self.submit(index, key) };
        let priority = self.workloads[request.workload as usize].priority;
        let io = request_io(request.kind, request.bytes, request.offset, priority);
        let Some(id) = self.disks[request.disk as usize].at_nodes[node.index] else { return };
        // Disks stay registered for the whole run, so nothing is ever handed back.
        let elsewhere = request.ticket.as_ref().map_or(Elsewhere::NONE, Ticket::carried);
        let queued = self.gates[gate as usize].scheduler.enqueue_dmclock(now, id, io, elsewhere, key);
        debug_assert!(queued.is_ok());
        self.ask(gate);
    }

    /// A node lets a request go.
    fn serve(&mut self, node: u32, choice: Dispatched<u32>) {
        self.events += 1;
        let request = &mut self.requests[choice.request as usize];
        let recorder = &mut self.disks[request.disk as usize].recorder;
        recorder.correct_phase(request.phase, choice.phase);
        if let Some(recorder) = &mut self.workloads[request.workload as usize].recorder {
            recorder.correct_phase(request.phase, choice.phase);
        }
        request.phase = choice.phase;
        request.cost = choice.cost;
        if let Some(recorder) = &mut self.nodes[node as usize].recorder {
            let queue = self.now - request.reached_node;
            recorder.on_dispatch(queue, choice.phase, choice.cost.as_millionths());
        }
        self.submit(node, choice.request);
    }

    fn submit(&mut self, index: u32, key: u32) {
        let request = &mut self.requests[key as usize];
        request.submitted = self.now;
        request.inside = true;
        let node = &mut self.nodes[index as usize];
        match &mut node.held {
            Some(held) => held.push(key),
            None => {
                let io = DeviceIo { kind: request.kind, offset: request.offset, bytes: request.bytes };
                node.device.submit(self.now, u64::from(key), io);
                self.touched.push(index);
            }
        }
    }

    fn plan_device(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        match node.device.next_event() {
            Some(at) if node.held.is_none() => {
                let at = at.max(self.now);
                if at != node.scheduled {
                    node.scheduled = at;
                    self.queue.push(at, Event::Device { node: index });
                }
            }
            _ => node.scheduled = Nanos::MAX,
        }
    }

    fn device(&mut self, index: u32) {
        // Else the device has planned something else since.
        if self.nodes[index as usize].scheduled != self.now {
            return;
        }
        self.nodes[index as usize].scheduled = Nanos::MAX;
        while let Some(key) = self.nodes[index as usize].device.poll(self.now) {
            self.served(index, key as u32);
        }
        self.touched.push(index);
    }

    /// A device completed a request.
    fn served(&mut self, index: u32, key: u32) {
        let now = self.now;
        let node = &mut self.nodes[index as usize];
        let request = &mut self.requests[key as usize];
        request.inside = false;
        if let Some(recorder) = &mut node.recorder {
            let queue = request.submitted - request.reached_node;
            recorder.on_complete(now, request.bytes, queue, now - request.submitted);
        }
        let disk = &mut self.disks[request.disk as usize];
        let (lane, network) = (disk.lane, disk.network);
        if let Some(truth) = &mut disk.truth {
            truth.on_served(node.index, request.phase, request.cost);
        }
        if let (Some(gate), Some(id)) = (node.gate, disk.at_nodes[node.index]) {
            self.leave(gate, id);
        }
        match lane {
            None => self.back(key),
            Some(lane) => self.queue.push_lane(lane, now + network, Event::Back { request: key }),
        }
    }

    /// A request of a gate completed.
    #[inline]
    fn leave(&mut self, index: u32, id: DiskId) {
        let gate = &mut self.gates[index as usize];
        gate.completed(self.now);
        gate.scheduler.complete(self.now, id);
        self.ask(index);
    }

    /// A completion reaches its host.
    fn back(&mut self, key: u32) {
        let now = self.now;
        self.events += 1;
        let request = self.requests.remove(key as usize);
        let disk = &mut self.disks[request.disk as usize];
        let device = now - request.dispatched;
        disk.recorder.on_complete(now, request.bytes, request.dispatched - request.arrived, device);
        if let (Some(tracker), Some(ticket)) = (&mut disk.tracker, request.ticket) {
            let Request { phase, cost, bytes, .. } = request;
            tracker.complete(ticket, Served { phase, cost, bytes });
        }
        let (gate, id) = (disk.gate, disk.id);
        if let Some(elevator) = &mut disk.elevator {
            elevator.completed(now, request.workload, request.kind);
            self.settle_guest(request.disk);
        }
        self.gates[gate as usize].measure(request.kind, device, request.bytes);
        self.leave(gate, id);
        let workload = &mut self.workloads[request.workload as usize];
        workload.outstanding -= 1;
        if let Some(recorder) = &mut workload.recorder {
            recorder.on_complete(now, request.bytes, request.dispatched - request.arrived, device);
        }
        if workload.epoch == request.epoch {
            self.drive(request.workload, |generator, orders| generator.completed(now, request.tag, orders));
        }
    }

    /// Lets a workload say what to do, and does it.
    fn drive(&mut self, index: u32, say: impl FnOnce(&mut Generator, &mut Orders)) {
        let mut orders = std::mem::take(&mut self.orders);
        let workload = &mut self.workloads[index as usize];
        say(&mut workload.generator, &mut orders);
        let epoch = workload.epoch;
        for (at, token) in orders.timers.drain(..) {
            self.queue.push(at, Event::Workload { workload: index, token, epoch });
        }
        if let (Some(response), Some(recorder)) = (orders.transaction.take(), &mut workload.transactions) {
            recorder.record(response);
        }
        self.failure = self.failure.take().or(orders.failure.take());
        for issue in orders.issues.drain(..) {
            self.issue(index, issue);
        }
        self.orders = orders;
    }

    fn issue(&mut self, index: u32, issue: Issue) {
        let now = self.now;
        self.events += 1;
        let workload = &mut self.workloads[index as usize];
        let key = self.vms[workload.vm as usize].disks + issue.disk as u32;
        let disk = &mut self.disks[key as usize];
        if workload.outstanding >= MOST_OUTSTANDING {
            disk.recorder.on_drop();
            if let Some(recorder) = &mut workload.recorder {
                recorder.on_drop();
            }
            return;
        }
        workload.outstanding += 1;
        disk.recorder.on_arrival(now);
        if let Some(recorder) = &mut workload.recorder {
            recorder.on_arrival(now);
        }
        let (node, offset) = disk.route(issue.offset);
        let request = self.requests.insert(Request {
            disk: key,
            workload: index,
            epoch: workload.epoch,
            tag: issue.tag,
            node,
            kind: issue.kind,
            phase: Phase::Weight,
            offset,
            bytes: issue.bytes,
            arrived: now,
            dispatched: now,
            reached_node: now,
            submitted: now,
            inside: false,
            cost: Cost::default(),
            ticket: None,
        });
        match disk.elevator {
            Some(_) => self.order_in_guest(request as u32, index, issue),
            None => self.arrive(request as u32, issue.offset),
        }
    }

    /// A request reaches its host, with its place on the virtual disk.
    #[inline]
    fn arrive(&mut self, key: u32, position: u64) {
        let request = &self.requests[key as usize];
        let priority = self.workloads[request.workload as usize].priority;
        let io = request_io(request.kind, request.bytes, position, priority);
        let disk = &self.disks[request.disk as usize];
        let (gate, id) = (disk.gate, disk.id);
        // Disks stay registered for the whole run, so nothing is ever handed back.
        let queued = self.gates[gate as usize].scheduler.enqueue(self.now, id, io, key);
        debug_assert!(queued.is_ok());
        self.ask(gate);
    }

    fn tick(&mut self) {
        let now = self.now;
        self.disks.iter_mut().for_each(|disk| disk.recorder.tick(now));
        self.nodes.iter_mut().filter_map(|node| node.recorder.as_mut()).for_each(|r| r.tick(now));
        self.workloads.iter_mut().filter_map(|w| w.transactions.as_mut()).for_each(|t| t.tick());
        self.workloads.iter_mut().filter_map(|w| w.recorder.as_mut()).for_each(|r| r.tick(now));
        self.windows.iter_mut().for_each(|window| window.recorder.tick(now));
    }
}
