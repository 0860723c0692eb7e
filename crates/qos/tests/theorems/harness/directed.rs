//! Two disks of an adversary that are the reads and the writes of one.
//!
//! Their policies are those of the directions: the limit of each is that of its direction, and the
//! disk has the shares and the reservations of both. So whatever holds for a disk and its limit is
//! to hold for each of the two.

use super::world::{Answer, Setup, Subject};
use super::{SECOND, policy};
use headgate_qos::window::Slots;
use headgate_qos::{
    AnyScheduler, Cost, Decision, Direction, DirectionLimits, DiskId, Gate, Io, IoKind, LimitMode,
    Policy, SchedulerKind,
};
use headgate_units::{Bytes, Nanos};
use std::collections::VecDeque;

/// Where requests of a direction wait that is at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// In the scheduler, each direction for itself: the product.
    Lanes,
    /// Before the scheduler, each direction for itself. What is let go waits again.
    HoldingStage,
    /// Before the scheduler, behind each other.
    OneQueue,
}

struct Directed {
    design: Design,
    /// Of the first disk of the adversary.
    first: Direction,
    gate: Gate<u32>,
    disks: Vec<DiskId>,
    policies: Vec<Policy>,
    /// Disks and costs of all requests.
    requests: Vec<(usize, u64)>,
    /// Before the scheduler, and when the next of each direction may go.
    held: [VecDeque<u32>; 2],
    tags: [u64; 2],
}

pub fn directed(design: Design, first: Direction) -> impl Fn(&Setup) -> Box<dyn Subject> {
    move |setup| {
        let scheduler = AnyScheduler::new(SchedulerKind::MClock, setup.config).unwrap();
        Box::new(Directed {
            design,
            first,
            gate: Gate::new(Nanos::ZERO, scheduler, Slots::whole(setup.window)),
            disks: Vec::new(),
            policies: Vec::new(),
            requests: Vec::new(),
            held: [VecDeque::new(), VecDeque::new()],
            tags: [0; 2],
        })
    }
}

impl Directed {
    /// The policy of a disk of the scheduler.
    fn policy(&self, disk: usize) -> Policy {
        if disk > 0 {
            return self.policies[disk];
        }
        let both = [self.policies[0], self.policies[1]];
        let shares = both.iter().map(|p| p.shares().get()).sum();
        let reserved = both.iter().filter_map(|p| Some(p.reservation()?.get())).sum();
        let soft = both.iter().any(|p| p.limit_mode() == LimitMode::Soft);
        let mode = if soft { LimitMode::Soft } else { LimitMode::Strict };
        let [first, second] = both.map(|p| match self.design {
            Design::Lanes => DirectionLimits { iops: p.limit(), bandwidth: None },
            _ => DirectionLimits::NONE,
        });
        let (read, write) = match self.first {
            Direction::Read => (first, second),
            Direction::Write => (second, first),
        };
        let whole = policy(shares, reserved, 0).with_limit_mode(mode);
        whole.with_direction_limits(read, write).unwrap()
    }

    fn queue(&self, disk: usize) -> usize {
        if self.design == Design::OneQueue { 0 } else { disk }
    }

    fn send(&mut self, now: Nanos, request: u32) {
        let (disk, cost) = self.requests[request as usize];
        let kind = match (disk, self.first) {
            (0, Direction::Write) | (1, Direction::Read) => IoKind::Write,
            _ => IoKind::Read,
        };
        let io = Io { bytes: Bytes::from_kib(4 * cost), kind, ..Io::default() };
        self.gate.enqueue(now, self.disks[disk.max(1) - 1], io, request).unwrap();
    }

    /// When the next request of a queue before the scheduler may go.
    fn due(&self, queue: usize) -> Option<u64> {
        let (disk, _) = self.requests[*self.held[queue].front()? as usize];
        Some(self.tags[disk])
    }

    fn release(&mut self, now: Nanos) {
        for queue in 0..2 {
            while self.due(queue).is_some_and(|due| due <= now.0) {
                let request = self.held[queue].pop_front().unwrap();
                let (disk, cost) = self.requests[request as usize];
                if let Some(limit) = self.policies[disk].limit() {
                    self.tags[disk] = self.tags[disk].max(now.0) + cost * SECOND / limit.get();
                }
                self.send(now, request);
            }
        }
    }
}

impl Subject for Directed {
    fn register(&mut self, now: Nanos, policy: Policy) {
        self.policies.push(policy);
        match self.policies.len() {
            1 => {}
            2 => self.disks.push(self.gate.register(now, self.policy(0))),
            _ => self.disks.push(self.gate.register(now, policy)),
        }
    }

    fn set_policy(&mut self, now: Nanos, disk: usize, policy: Policy) {
        self.policies[disk] = policy;
        let disk = disk.max(1) - 1;
        let policy = if disk == 0 { self.policy(0) } else { policy };
        self.gate.set_policy(now, self.disks[disk], policy).unwrap();
    }

    fn enqueue(&mut self, now: Nanos, disk: usize, cost: u64, request: u32) {
        assert_eq!(self.requests.len(), request as usize);
        self.requests.push((disk, cost));
        if self.design == Design::Lanes || disk > 1 {
            self.send(now, request);
        } else {
            let queue = self.queue(disk);
            self.held[queue].push_back(request);
        }
    }

    fn withdraw(&mut self, now: Nanos, disk: usize) -> usize {
        let requests = &self.requests;
        let is_wanted = |request: &u32| requests[*request as usize].0 == disk;
        let id = self.disks[disk.max(1) - 1];
        let mut taken = self.gate.extract(now, id, &mut { is_wanted }).unwrap().len();
        for queue in &mut self.held {
            let before = queue.len();
            queue.retain(|request| !is_wanted(request));
            taken += before - queue.len();
        }
        taken
    }

    fn is_due(&self, now: Nanos) -> bool {
        let due = |queue| self.due(queue).is_some_and(|due| due <= now.0);
        self.gate.is_due(now) || due(0) || due(1)
    }

    fn wake(&self) -> Option<Nanos> {
        let due = |queue| self.due(queue).map(Nanos);
        [self.gate.next_wake(), due(0), due(1)].into_iter().flatten().min()
    }

    fn next(&mut self, now: Nanos) -> Answer {
        self.release(now);
        match self.gate.next(now) {
            Decision::Dispatch(sent) => {
                Answer::Send { disk: self.requests[sent.request as usize].0, request: sent.request }
            }
            Decision::WaitUntil(at) => Answer::At(at),
            Decision::Idle => Answer::Idle,
        }
    }

    fn complete(&mut self, now: Nanos, disk: usize, cost: u64) {
        self.gate.complete(now, self.disks[disk.max(1) - 1], Cost::from_ios(cost));
    }
}
