//! The product: a gate with the scheduler of any kind.

use super::world::{Answer, Setup, Subject};
use headgate_qos::window::Slots;
use headgate_qos::{AnyScheduler, Cost, Decision, DiskId, Gate, Io, Policy, SchedulerKind};
use headgate_units::{Bytes, Nanos};

struct Product {
    gate: Gate<u32>,
    disks: Vec<DiskId>,
}

/// A gate. Its configuration must charge by chunks of 4 KiB, so that costs are whole numbers.
pub fn product(kind: SchedulerKind) -> impl Fn(&Setup) -> Box<dyn Subject> {
    move |setup| {
        let scheduler = AnyScheduler::new(kind, setup.config).unwrap();
        let gate = Gate::new(Nanos::ZERO, scheduler, Slots::whole(setup.window));
        Box::new(Product { gate, disks: Vec::new() })
    }
}

impl Product {
    fn number(&self, id: DiskId) -> usize {
        self.disks.iter().position(|d| *d == id).unwrap()
    }
}

impl Subject for Product {
    fn register(&mut self, now: Nanos, policy: Policy) {
        let id = self.gate.register(now, policy);
        self.disks.push(id);
    }

    fn set_policy(&mut self, now: Nanos, disk: usize, policy: Policy) {
        self.gate.set_policy(now, self.disks[disk], policy).unwrap();
    }

    fn enqueue(&mut self, now: Nanos, disk: usize, cost: u64, request: u32) {
        let io = Io { bytes: Bytes::from_kib(4 * cost), ..Io::default() };
        self.gate.enqueue(now, self.disks[disk], io, request).unwrap();
    }

    fn withdraw(&mut self, now: Nanos, disk: usize) -> usize {
        self.gate.extract(now, self.disks[disk], &mut |_| true).unwrap().len()
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.gate.is_due(now)
    }

    fn wake(&self) -> Option<Nanos> {
        self.gate.next_wake()
    }

    fn next(&mut self, now: Nanos) -> Answer {
        match self.gate.next(now) {
            Decision::Dispatch(sent) => {
                Answer::Send { disk: self.number(sent.disk), request: sent.request }
            }
            Decision::WaitUntil(at) => Answer::At(at),
            Decision::Idle => Answer::Idle,
        }
    }

    fn complete(&mut self, now: Nanos, disk: usize, cost: u64) {
        self.gate.complete(now, self.disks[disk], Cost::from_ios(cost));
    }
}
