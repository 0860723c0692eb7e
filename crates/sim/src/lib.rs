//! A deterministic discrete-event simulator that runs Headgate's own schedulers, and the scenario
//! files it runs.
//!
//! ```
//! use headgate_sim::{Quiet, Scenario, judge, run};
//!
//! let scenario = Scenario::parse("two.toml", r#"
//!     name = "two"
//!     title = "Two VMs share 1,000 IOPS one to three"
//!     duration = "20s"
//!     windows = { steady = "10s..20s" }
//!     datastore = [{ name = "lun", device = "rate=1000,latency=1ms" }]
//!     vm = [
//!         { name = "small", disk = [{ shares = 100 }], workload = [{ kind = "closed", outstanding = 16 }] },
//!         { name = "large", disk = [{ shares = 300 }], workload = [{ kind = "closed", outstanding = 16 }] },
//!     ]
//!     [[expect]]
//!     measure = "iops"
//!     of = "large"
//!     window = "steady"
//!     equals = 750
//!     within = "2%"
//! "#).unwrap();
//! let outcomes = [run(&scenario, "default", 1, &mut Quiet).unwrap()];
//! for finding in judge(&scenario, &outcomes) {
//!     println!("{finding}");
//! }
//! ```
//!
//! # What is simulated
//! - *Hosts* with the schedulers of [`headgate_qos`], one for each datastore that their VMs use,
//!   and an [`IssueWindow`] behind it: fixed, or controlled as [`headgate_qos::window`] does it,
//!   over a board where hosts read each other's reports.
//! - The *network*: a delay each way.
//! - *Datastores* of one or several nodes. Each node is a device model of [`headgate_devices`],
//!   perhaps with a scheduler and window of its own in front. Disks are routed over nodes.
//! - *VMs* with disks and workloads ([`WorkloadKind`]).
//! - A *timeline* of starts, stops, changes of policy and of capacity, failures.
//!
//! # Determinism
//! The same scenario, variant and seed give the same [`Outcome`], to the byte, on every machine.
//! Time is integer nanoseconds; what happens at the same time happens in the order in which it was
//! planned; every workload, route and device has random numbers of its own, seeded by the run's
//! seed and its name, so a VM more does not change what the others ask for; no map with a random
//! order is ever walked.

mod board;
mod branches;
mod decisions;
mod device;
mod explain;
mod file;
mod io_scheduler;
mod judge;
mod levels;
mod mutation;
mod outcome;
mod progress;
mod queue;
mod random;
mod record;
mod run;
mod scenario;
mod sensitivity;
mod values;
pub mod what_if;
mod workload;
mod world;

pub use branches::{Branch, run_branches};
pub use decisions::record_gate;
pub use explain::{Allocation, Clamp, explain};
pub use file::ScenarioError;
#[cfg(feature = "schema")]
pub use file::schema;
pub use judge::{Closeness, Finding, Judgement, PaperInBound, Published, Reading, Standing, judge};
pub use levels::Level;
pub use mutation::{Mutant, Mutation};
pub use outcome::pool::{PoolMove, PoolOutcome, PooledDatastore, PooledDisk, Round};
pub use outcome::sweep::{SweepOutcome, SweepPoint};
pub use outcome::{
    Application, Cached, Counters, FlashTotals, HostWindow, MovedPages, Outcome, Stretch, Subject,
    SubjectKind, TransactionStretch, Transactions, WindowCounters, WindowStretch,
};
pub use progress::{Progress, Quiet, RunError};
pub use run::{run, run_with};
pub use scenario::{
    Action, Arrivals, Balancing, Chooser, Control, Coordination, Copying, Datastore, DiskSpec,
    Event, Expectation, Front, Host, IssueWindow, Knowledge, Mark, Membership, Moves, Node, Noise,
    Oltp, Pacing, Pattern, Pool, Record, Replay, ReplayTiming, Route, Scenario, Setup, Span,
    Stretches, Summary, Sweep, Tide, TimeDistribution, Unit, Variant, Vm, Workload, WorkloadKind,
};
pub use sensitivity::{Claims, Origin, Point, Sensitivity};
pub use workload::{NoTraces, TraceRecord, Traces};
pub use world::{GateRecord, GateStep};

/// The JSON schema of scenario files, for editors. A test holds it to the types that read them.
pub const SCHEMA: &str = include_str!("../../../experiments/scenario.schema.json");
