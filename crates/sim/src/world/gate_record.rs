//! The events at a gate and its decisions, as records.

use headgate_qos::window::{Observation, Slots};
use headgate_qos::{Cost, DiskId, Io, Phase, Policy, PriorityPolicy};
use headgate_units::{Nanos, Priority};

/// One thing that happened at the gate, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct GateRecord {
    /// The simulated time. It never falls from one record to the next.
    pub at: Nanos,
    /// The event or decision.
    pub step: GateStep,
}

/// What happened at the gate. Requests have the simulator's keys, which are used again after the
/// request's completion.
#[derive(Clone, Debug, PartialEq)]
pub enum GateStep {
    /// A disk was there before the first event.
    Disk {
        /// The gate's name for it.
        disk: DiskId,
        /// Its policy.
        policy: Policy,
        /// What its priorities are worth.
        priorities: PriorityPolicy,
    },
    /// A request arrived.
    Arrived {
        /// Of this disk.
        disk: DiskId,
        /// The request.
        request: u32,
        /// The service elsewhere that the request reports.
        io: Io,
    },
    /// A dispatched request completed.
    Completed {
        /// The request.
        request: u32,
    },
    /// The policy of a disk changed.
    Policy {
        /// Of this disk.
        disk: DiskId,
        /// From now on.
        policy: Policy,
    },
    /// The window changed.
    Window {
        /// From now on.
        window: Slots,
    },
    /// A period of the latency meter ended.
    Latency {
        /// What the meter had seen.
        seen: Option<Observation>,
    },
    /// The gate is asked what to send. Its answers follow.
    Asked,
    /// An answer: this request goes.
    Dispatched {
        /// The request.
        request: u32,
        /// By which right.
        phase: Phase,
        /// What its disk is charged.
        cost: Cost,
        /// What it counts for among its disk's requests.
        priority: Priority,
    },
    /// The last answer: nothing goes, and this is when to ask again if nothing happens before.
    /// A gate that was asked without need answers only this.
    Rests {
        /// `None`: only an event brings it back.
        wake: Option<Nanos>,
    },
}
