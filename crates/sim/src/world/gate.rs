//! A gate as the simulation holds it.

use super::gate_record::{GateRecord, GateStep};
use headgate_qos::window::{LatencyMeter, Observation, Slots};
use headgate_qos::{
    AnyScheduler, Cost, Decision, DiskId, Io, Policy, PriorityPolicy, Scheduler as _,
    ServedElsewhere, Took,
};
use headgate_units::{Bytes, Nanos};

/// The gate that the daemon has, where it stands, and which event wakes it.
#[derive(Clone)]
pub(super) struct Gate {
    gate: headgate_qos::Gate<u32>,
    /// Comparisons already counted.
    compared: u64,
    /// The time of the event that wakes it; [`Nanos::MAX`] if none is planned.
    pub(super) planned: Nanos,
    /// It is among the gates that are asked after this event.
    pub(super) listed: bool,
    pub(super) site: GateSite,
    /// What the host measures of each latency, in per cent, where it measures.
    seen: Option<u32>,
    /// The record of events and decisions, if it is wanted.
    records: Option<Vec<GateRecord>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GateSite {
    Host { datastore: u32 },
    Node { node: u32 },
}

impl Gate {
    pub(super) fn new(scheduler: AnyScheduler<u32>, window: Slots, site: GateSite) -> Gate {
        Gate {
            gate: headgate_qos::Gate::new(Nanos::ZERO, scheduler, window).without_wait_times(),
            compared: 0,
            planned: Nanos::MAX,
            listed: false,
            site,
            seen: None,
            records: None,
        }
    }

    #[inline]
    fn note(&mut self, at: Nanos, step: impl FnOnce() -> GateStep) {
        if self.records.is_some() {
            self.record(at, step());
        }
    }

    #[cold]
    fn record(&mut self, at: Nanos, step: GateStep) {
        self.records.get_or_insert_default().push(GateRecord { at, step });
    }

    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.gate.is_due(now)
    }

    /// Disks stay registered for the whole run, so this is the disk's policy.
    pub(super) fn policy(&self, disk: DiskId) -> Option<Policy> {
        self.gate.scheduler().policy(disk).ok()
    }

    /// Comparisons since the last call.
    #[inline]
    pub(super) fn comparisons(&mut self) -> u64 {
        let all = self.gate.scheduler().comparisons();
        all - std::mem::replace(&mut self.compared, all)
    }

    pub(super) fn register(&mut self, policy: Policy, priorities: PriorityPolicy) -> DiskId {
        let disk = self.gate.register(Nanos::ZERO, policy);
        let known = self.gate.set_priorities(Nanos::ZERO, disk, priorities);
        debug_assert!(known.is_ok());
        disk
    }

    pub(super) fn set_policy(&mut self, now: Nanos, disk: DiskId, policy: Policy) {
        self.note(now, || GateStep::Policy { disk, policy });
        let known = self.gate.set_policy(now, disk, policy);
        debug_assert!(known.is_ok());
    }

    /// Requests that it let go and that are not complete.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.gate.in_flight()
    }

    pub(super) fn window(&self) -> Slots {
        self.gate.window()
    }

    pub(super) fn set_window(&mut self, now: Nanos, window: Slots) {
        self.note(now, || GateStep::Window { window });
        self.gate.set_window(now, window);
    }

    /// Has latencies measured, each as so many per cent of what it is.
    pub(super) fn set_meter(&mut self, meter: LatencyMeter, seen: u32) {
        self.gate.set_meter(Nanos::ZERO, Some(meter));
        self.seen = Some(seen);
    }

    pub(super) fn take_latency(&mut self, now: Nanos) -> Option<Observation> {
        let seen = self.gate.take_latency();
        self.note(now, || GateStep::Latency { seen });
        seen
    }

    #[inline]
    pub(super) fn measure(&mut self, now: Nanos, disk: DiskId, took: Took, bytes: Bytes) {
        let percent = u128::from(self.seen.unwrap_or(100));
        let seen = u128::from(took.device.0) * percent / 100;
        let device = Nanos(u64::try_from(seen).unwrap_or(u64::MAX));
        self.gate.measure(now, disk, Took { device, ..took }, bytes);
    }

    #[inline]
    pub(super) fn enqueue(&mut self, now: Nanos, disk: DiskId, io: Io, request: u32) {
        self.note(now, || GateStep::Arrived { disk, request, io });
        let queued = self.gate.enqueue(now, disk, io, request);
        debug_assert!(queued.is_ok());
    }

    #[inline]
    pub(super) fn enqueue_dmclock(
        &mut self,
        now: Nanos,
        disk: DiskId,
        io: Io,
        elsewhere: ServedElsewhere,
        request: u32,
    ) {
        self.note(now, || GateStep::Arrived { disk, request, io });
        let queued = self.gate.enqueue_dmclock(now, disk, io, elsewhere, request);
        debug_assert!(queued.is_ok());
    }

    #[inline]
    pub(super) fn complete(&mut self, now: Nanos, disk: DiskId, request: u32, cost: Cost) {
        self.note(now, || GateStep::Completed { request });
        self.gate.complete(now, disk, cost);
    }

    #[inline]
    pub(super) fn next(&mut self, now: Nanos) -> Decision<u32> {
        let decision = self.gate.next(now);
        let wake = self.gate.next_wake();
        self.note(now, || match &decision {
            Decision::Dispatch(choice) => GateStep::Dispatched {
                request: choice.request,
                phase: choice.phase,
                cost: choice.cost,
                priority: choice.priority,
            },
            Decision::WaitUntil(_) | Decision::Idle => GateStep::Rests { wake },
        });
        decision
    }

    /// From now on what happens here is recorded, after these records.
    pub(super) fn record_after(&mut self, records: Vec<GateRecord>) {
        self.records = Some(records);
    }

    pub(super) fn take_records(&mut self) -> Vec<GateRecord> {
        self.records.take().unwrap_or_default()
    }

    pub(super) fn priorities(&self, disk: DiskId) -> Option<PriorityPolicy> {
        self.gate.scheduler().priorities(disk).ok()
    }

    /// The driver begins to ask.
    #[inline]
    pub(super) fn on_asked(&mut self, now: Nanos) {
        self.listed = false;
        self.note(now, || GateStep::Asked);
    }
}
