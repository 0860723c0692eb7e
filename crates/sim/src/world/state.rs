//! Everything that exists in a run. What happens to it is in the files beside this one.

use super::event::Event;
use super::gate::Gate;
use super::host_window::HostWindow;
use super::pool::state::Pool;
use super::request::Request;
use super::tracker_audit::Truth;
use crate::board::Board;
use crate::device::Device;
use crate::io_scheduler::IoScheduler;
use crate::outcome::Counters;
use crate::outcome::sweep::SweepPoint;
use crate::queue::{Lane, Queue};
use crate::random::Stream;
use crate::record::{Plan, Recorder, TransactionRecorder};
use crate::scenario::{Route, Setup};
use crate::workload::{Generator, Orders};
use headgate_qos::DiskId;
use headgate_qos::dmclock::Tracker;
use headgate_units::{Bytes, Iops, Nanos, Priority, Shares};
use slab::Slab;

/// A run: its setup, its clock, and all that the setup names.
pub(crate) struct World<'a> {
    pub(super) setup: &'a Setup,
    pub(super) plan: Plan,
    pub(super) now: Nanos,
    pub(super) queue: Queue<Event>,
    pub(super) events: u64,
    pub(super) requests: Slab<Request>,
    pub(super) gates: Vec<Gate>,
    pub(super) nodes: Vec<Node>,
    pub(super) disks: Vec<SimDisk>,
    pub(super) vms: Vec<Vm>,
    pub(super) workloads: Vec<Workload>,
    /// Of hosts at datastores where they are recorded.
    pub(super) windows: Vec<HostWindow>,
    /// The congestion board of each datastore.
    pub(super) boards: Vec<Board>,
    /// VMs that run, for each datastore.
    pub(super) running: Vec<usize>,
    /// Gates to be asked, each once.
    pub(super) dirty: Vec<u32>,
    /// Nodes whose next event may have changed.
    pub(super) touched: Vec<u32>,
    pub(super) orders: Orders,
    pub(super) failure: Option<String>,
    pub(super) seed: u64,
    pub(super) pool: Option<Box<Pool<'a>>>,
    pub(super) tide: Option<TideState>,
    pub(super) sweeps: Vec<SweepState>,
}

/// A storage node and its device.
pub(super) struct Node {
    pub(super) device: Device,
    /// When the device has something planned; [`Nanos::MAX`] if not.
    pub(super) scheduled: Nanos,
    pub(super) gate: Option<u32>,
    pub(super) datastore: u32,
    /// Its own number within the datastore.
    pub(super) index: usize,
    /// The rate before noise; `None` for a model that has none.
    pub(super) rate: Option<Iops>,
    /// What noise makes of the rate.
    pub(super) permille: u64,
    pub(super) stream: Stream,
    pub(super) capacity: Bytes,
    /// Requests that wait for a failed node; `None` while it works.
    pub(super) held: Option<Vec<u32>>,
    /// Where nodes are of interest.
    pub(super) recorder: Option<Recorder>,
}

/// A virtual disk.
pub(super) struct SimDisk {
    pub(super) gate: u32,
    pub(super) id: DiskId,
    /// Its names at the gates of the datastore's nodes, by index of the node.
    pub(super) at_nodes: Vec<Option<DiskId>>,
    /// Its nodes, and their number at the datastore.
    pub(super) nodes: Vec<(u32, usize)>,
    pub(super) route: Route,
    pub(super) weights: u64,
    pub(super) turn: usize,
    pub(super) stream: Stream,
    /// Its first byte on the datastore.
    pub(super) base: u64,
    pub(super) size: u64,
    /// Its weight for devices that divide themselves between disks.
    pub(super) shares: Shares,
    pub(super) stripe: u64,
    /// One way between its host and its datastore.
    pub(super) network: Nanos,
    /// For messages that take as long; none where they take no time.
    pub(super) lane: Option<Lane>,
    /// Counts its completions per node, for delta and rho; none on one node.
    pub(super) tracker: Option<Tracker<u32>>,
    /// Compares the tracker's reports with the truth; none where there are no reports.
    pub(super) truth: Option<Box<Truth>>,
    /// The guest's IO scheduler before it.
    pub(super) io_scheduler: Option<Box<IoScheduler>>,
    pub(super) recorder: Recorder,
    /// Its number in the pool, where it is on one of the pool's datastores, and the number of that
    /// among them.
    pub(super) member: Option<u32>,
    pub(super) store: u32,
}

/// A virtual machine.
#[derive(Clone)]
pub(super) struct Vm {
    pub(super) running: bool,
    /// Its first disk.
    pub(super) disks: u32,
    pub(super) workloads: std::ops::Range<u32>,
}

/// A workload of a virtual machine.
pub(super) struct Workload {
    pub(super) vm: u32,
    pub(super) generator: Generator,
    /// From its VM's start until it begins.
    pub(super) delay: Nanos,
    /// Grows with every start and stop: what was planned before no longer counts.
    pub(super) epoch: u32,
    pub(super) outstanding: u32,
    pub(super) transactions: Option<TransactionRecorder>,
    pub(super) priority: Option<Priority>,
    /// Where its VM has several.
    pub(super) recorder: Option<Recorder>,
}

/// A sweep under way.
pub(super) struct SweepState {
    pub(super) next: usize,
    pub(super) phase: SweepPhase,
    pub(super) points: Vec<SweepPoint>,
}

/// Where a sweep is with its present combination.
pub(super) enum SweepPhase {
    /// Requests of the one before still end.
    Ending,
    /// It runs, and is measured from the next step on.
    Settling,
    Measuring {
        before: Counters,
    },
}

/// Where a tide is.
#[derive(Clone)]
pub(super) struct TideState {
    pub(super) stream: Stream,
    /// Whether all have what they say.
    pub(super) high: bool,
}

impl Node {
    /// Another in the same state.
    pub(super) fn fork(&self) -> Option<Node> {
        Some(Node {
            device: self.device.fork()?,
            stream: self.stream.clone(),
            held: self.held.clone(),
            recorder: self.recorder.clone(),
            ..*self
        })
    }
}

impl SimDisk {
    /// Another in the same state; `None` where it counts what nodes did for it.
    pub(super) fn fork(&self) -> Option<SimDisk> {
        if self.tracker.is_some() || self.truth.is_some() {
            return None;
        }
        Some(SimDisk {
            at_nodes: self.at_nodes.clone(),
            nodes: self.nodes.clone(),
            route: self.route.clone(),
            stream: self.stream.clone(),
            tracker: None,
            truth: None,
            io_scheduler: self.io_scheduler.clone(),
            recorder: self.recorder.clone(),
            ..*self
        })
    }
}

impl Workload {
    /// Another in the same state; `None` where it replays a trace.
    pub(super) fn fork(&self) -> Option<Workload> {
        Some(Workload {
            generator: self.generator.fork()?,
            transactions: self.transactions.clone(),
            recorder: self.recorder.clone(),
            ..*self
        })
    }
}
