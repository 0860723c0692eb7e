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
mod flash;
mod flow;
mod gate;
mod guest;
mod pool;
mod route;
mod sweep;
mod tide;
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
use headgate_qos::{Cost, DiskId, Phase, Scheduler};
use headgate_units::{Bytes, Iops, Nanos, Priority, Shares};
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
    seed: u64,
    pool: Option<Box<pool::Pool<'a>>>,
    tide: Option<tide::State>,
    sweeps: Vec<sweep::State>,
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
    Begin { workload: u32, epoch: u32 },
    Start { vm: u32 },
    Timeline { index: u32 },
    Noise { node: u32 },
    Tick,
    Mark,
    Sample,
    Advise,
    Tide,
    Sweep { sweep: u32 },
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
    /// The host's gate that it goes through, and its disk's name there: those of its disk when it came.
    gate: u32,
    id: DiskId,
    /// In a pool: which of its datastores it goes to.
    seat: u32,
    role: pool::Role,
    /// A write that is written to a copy, too, which has not been done yet.
    mirrored: bool,
    /// It has left its gate.
    released: bool,
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
    /// What it is worth to devices that treat disks apart.
    shares: Shares,
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
    /// Its number in the pool, where it is on one of the pool's datastores, and the number of that among them.
    member: Option<u32>,
    seat: u32,
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
    /// From its VM's start until it begins.
    delay: Nanos,
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
            Event::Begin { workload, epoch } => {
                if self.workloads[workload as usize].epoch == epoch {
                    self.drive(workload, |generator, orders| generator.start(now, orders));
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
            Event::Sample => self.sample(),
            Event::Advise => self.take_advice(),
            Event::Tide => self.turn_tide(),
            Event::Sweep { sweep } => self.go_on_with_sweep(sweep),
            Event::Mark => {
                self.count_flash();
                self.disks.iter_mut().for_each(|disk| disk.recorder.mark(now));
                self.nodes.iter_mut().filter_map(|n| n.recorder.as_mut()).for_each(|r| r.mark(now));
                self.workloads.iter_mut().filter_map(|w| w.transactions.as_mut()).for_each(|t| t.mark());
                self.workloads.iter_mut().filter_map(|w| w.recorder.as_mut()).for_each(|r| r.mark(now));
                self.windows.iter_mut().for_each(|window| window.recorder.mark(now));
                self.pool_recorders().for_each(|r| r.mark(now));
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

    fn tick(&mut self) {
        let now = self.now;
        self.count_flash();
        self.disks.iter_mut().for_each(|disk| disk.recorder.tick(now));
        self.nodes.iter_mut().filter_map(|node| node.recorder.as_mut()).for_each(|r| r.tick(now));
        self.workloads.iter_mut().filter_map(|w| w.transactions.as_mut()).for_each(|t| t.tick());
        self.workloads.iter_mut().filter_map(|w| w.recorder.as_mut()).for_each(|r| r.tick(now));
        self.windows.iter_mut().for_each(|window| window.recorder.tick(now));
        self.pool_recorders().for_each(|r| r.tick(now));
    }
}
