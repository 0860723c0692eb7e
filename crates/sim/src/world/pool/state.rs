//! A pool: its disks and where they are, what is known of its datastores, and what was done.

use super::copies::Copies;
use crate::outcome::pool::{PoolMove, ReadsOfInterval, Round};
use crate::random::Stream;
use crate::record::Recorder;
use crate::scenario;
use headgate_placement::{
    DatastoreJudge, DeviceInterval, DeviceModel, Done, Name, PastMove, Refusal, Totals,
    WorkloadMeter,
};
use headgate_qos::DiskId;
use headgate_qos::window::Slots;
use headgate_stats::{DiskSnapshot, DiskStats};
use headgate_units::Nanos;
use std::collections::BTreeMap;
use std::ops::Range;

/// Host and datastore of each gate.
pub(in crate::world) type HostGates = BTreeMap<(usize, usize), u32>;

/// A pool under way.
pub(in crate::world) struct Pool<'a> {
    pub(in crate::world) spec: &'a scenario::Pool,
    pub(super) members: Vec<Member>,
    pub(super) stores: Vec<Store>,
    pub(super) history: Vec<PastMove>,
    pub(super) rounds: Vec<Round>,
    pub(super) moves: Vec<PoolMove>,
    /// When the present interval of statistics began.
    pub(super) began: Nanos,
    pub(super) violations: u64,
    pub(super) copies: Copies,
    pub(super) trials: Trials,
    /// Since the run was last doubled.
    pub(super) attached: Vec<Attached>,
}

/// A disk on one of the pool's datastores.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) disk: u32,
    pub(super) vm: usize,
    /// Its index among the VM's disks.
    pub(super) index: usize,
    pub(super) name: Name,
    /// For each of the pool's datastores; only its own for a disk that is not the pool's.
    pub(super) placements: Vec<Option<Placement>>,
    /// Where it is; none before it is placed.
    pub(super) at: Option<usize>,
    /// Where it was first.
    pub(super) first: Option<usize>,
    pub(super) meter: WorkloadMeter,
    pub(super) place: Stream,
}

/// A disk is somewhere else from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attached {
    /// The number of the event in which it came there.
    pub(super) event: u64,
    pub(super) member: usize,
    pub(super) store: usize,
}

/// A disk's placement on one datastore: its gate, node and first byte, and its statistics there.
#[derive(Clone)]
pub(super) struct Placement {
    pub(super) gate: u32,
    pub(super) id: DiskId,
    pub(super) node: u32,
    pub(super) base: u64,
    pub(super) stats: DiskStats,
    pub(super) before: DiskSnapshot,
}

/// One of the pool's datastores.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) datastore: usize,
    pub(super) recorder: Recorder,
    /// The gates of its hosts.
    pub(super) gates: Vec<u32>,
    pub(super) judge: DatastoreJudge<Vec<Slots>>,
    pub(super) intervals: Vec<DeviceInterval>,
    /// All requests: how many were at the device, and their mean latency, in nanoseconds.
    pub(super) raw: Vec<(f64, f64)>,
    pub(super) reads: Vec<ReadsOfInterval>,
    pub(super) totals: Totals,
    pub(super) model: Option<DeviceModel>,
    pub(super) refused: Option<Refusal>,
    /// Whether a copy went on in the present interval.
    pub(super) copied: bool,
}

impl<'a> Pool<'a> {
    /// Another in the same state, of which this is said; `None` while disks are copied.
    pub(in crate::world) fn fork(&self, spec: &'a scenario::Pool) -> Option<Pool<'a>> {
        Some(Pool {
            spec,
            members: self.members.clone(),
            stores: self.stores.clone(),
            history: self.history.clone(),
            rounds: self.rounds.clone(),
            moves: self.moves.clone(),
            began: self.began,
            violations: self.violations,
            copies: self.copies.fork()?,
            trials: self.trials.clone(),
            attached: Vec::new(),
        })
    }
}

impl Store {
    pub(super) fn new(datastore: usize, record: scenario::Record) -> Store {
        Store {
            datastore,
            recorder: Recorder::new(record),
            gates: Vec::new(),
            judge: DatastoreJudge::default(),
            intervals: Vec::new(),
            raw: Vec::new(),
            reads: Vec::new(),
            totals: Totals::default(),
            model: None,
            refused: None,
            copied: false,
        }
    }
}

impl Placement {
    pub(super) fn new(gate: u32, id: DiskId, node: u32, base: u64) -> Placement {
        let (stats, before) = (DiskStats::new(Nanos::ZERO), DiskSnapshot::default());
        Placement { gate, id, node, base, stats, before }
    }
}

/// What datastores did, and the moves that are on trial.
#[derive(Clone, Default)]
pub(super) struct Trials {
    /// What each datastore did in an interval in which nothing was copied, and when that ended.
    pub(super) seen: Vec<(Nanos, Vec<Done>)>,
    /// Moves of one advice that are not judged yet, as indices of the pool's moves.
    pub(super) open: Range<usize>,
}

impl Trials {
    pub(super) fn saw(&mut self, at: Nanos, did: Vec<Done>) {
        self.seen.push((at, did));
    }

    /// New moves are on trial.
    pub(super) fn begin(&mut self, moves: Range<usize>) {
        self.open = moves;
    }
}

/// A disk that shall move.
pub(super) struct Step {
    pub(super) member: usize,
    pub(super) to: usize,
    pub(super) why: String,
    pub(super) taken_back: bool,
}
