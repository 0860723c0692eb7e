//! What an adversary can do, and the storage that it does it to.

use headgate_qos::{Config, Policy};
use headgate_units::Nanos;
use std::collections::VecDeque;

/// A step of an adversary. Sizes are reference IOs, times nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// So many requests at once.
    Send { disk: usize, count: u32, cost: u64 },
    /// From now on so many requests outstanding, a new one for each that completes; 0: no more.
    Keep { disk: usize, outstanding: u32, cost: u64 },
    /// The client takes back what is queued.
    Withdraw { disk: usize },
    /// Time passes.
    Wait(u64),
    /// The disk gets an entry of the menu of policies.
    Policy { disk: usize, entry: usize },
    /// Requests whose service begins from now on take so long for each reference IO.
    Pace(u64),
    /// The storage stands still, as far as the set-up allows.
    Stall(u64),
}

/// What a scheduler behind a window says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Send { disk: usize, request: u32 },
    At(Nanos),
    Idle,
}

/// A scheduler with a window: the product, or one that is wrong on purpose.
pub trait Subject {
    fn register(&mut self, now: Nanos, policy: Policy);
    fn set_policy(&mut self, now: Nanos, disk: usize, policy: Policy);
    fn enqueue(&mut self, now: Nanos, disk: usize, cost: u64, request: u32);
    fn withdraw(&mut self, now: Nanos, disk: usize) -> usize;
    fn is_due(&self, now: Nanos) -> bool;
    fn wake(&self) -> Option<Nanos>;
    fn next(&mut self, now: Nanos) -> Answer;
    fn complete(&mut self, now: Nanos, disk: usize, cost: u64);
}

/// In which order the storage serves what is in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    FirstIn,
    LastIn,
}

/// A token bucket for the arrivals of disk 0: those that do not conform are not sent.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Reference IOs per second.
    pub rate: u64,
    /// Reference IOs.
    pub burst: u64,
}

/// What stands at the beginning.
#[derive(Clone, Debug)]
pub struct Setup {
    pub config: Config,
    pub window: u32,
    /// Nanoseconds of service for each reference IO.
    pub pace: u64,
    pub order: Order,
    /// All stalls together, in nanoseconds.
    pub stalls: u64,
    pub shape: Option<Shape>,
    pub policies: Vec<Policy>,
    pub menu: Vec<Policy>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Arrived {
        disk: usize,
    },
    Sent {
        disk: usize,
        cost: u64,
    },
    Done {
        disk: usize,
        cost: u64,
        arrived: u64,
    },
    /// The scheduler sends nothing for now.
    Held,
    Withdrawn {
        disk: usize,
    },
    Policy {
        disk: usize,
        before: Policy,
    },
    Pace {
        before: u64,
    },
    Stalled(u64),
    /// The last event.
    End,
}

/// What stands after an event.
pub struct View<'a> {
    pub now: u64,
    /// Requests queued, by disk.
    pub queued: &'a [u32],
    pub policies: &'a [Policy],
    pub in_flight: u32,
    pub window: u32,
    /// The largest request so far, by disk.
    pub largest: &'a [u64],
    pub pace: u64,
}

/// A measure of violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The worst that was seen.
    pub found: i128,
    /// The most that may be, of the same unit.
    pub bound: i128,
}

impl Verdict {
    pub fn is_broken(&self) -> bool {
        self.found > self.bound
    }

    /// How near the worst comes to the bound: 1 is on it.
    pub fn ratio(&self) -> f64 {
        match self.bound {
            0 => self.found as f64,
            bound => self.found as f64 / bound as f64,
        }
    }

    /// The one nearer to its bound.
    pub fn or(self, other: Verdict) -> Verdict {
        if other.ratio() > self.ratio() { other } else { self }
    }
}

/// Looks on, and says at the end how near the bound was.
pub trait Observer {
    fn see(&mut self, event: Event, view: &View);
    fn verdict(&self) -> Verdict;
}

#[derive(Clone, Copy)]
struct Request {
    disk: usize,
    cost: u64,
    arrived: u64,
}

#[derive(Clone, Copy, Default)]
struct Client {
    outstanding: u32,
    keeps: u32,
    cost: u64,
}

/// A scheduler, its clients, and storage that serves one request after another.
pub struct World<'a> {
    setup: &'a Setup,
    subject: Box<dyn Subject>,
    observer: Box<dyn Observer>,
    now: u64,
    policies: Vec<Policy>,
    queued: Vec<u32>,
    largest: Vec<u64>,
    clients: Vec<Client>,
    requests: Vec<Request>,
    in_flight: u32,
    /// At the storage, and not begun.
    waiting: VecDeque<u32>,
    served: Option<(u32, u64)>,
    /// When the storage goes on.
    blocked: u64,
    pace: u64,
    stalls: u64,
    /// Billionths of a reference IO, and when they were counted.
    tokens: (u64, u64),
}

impl<'a> World<'a> {
    pub fn new(
        setup: &'a Setup,
        mut subject: Box<dyn Subject>,
        observer: Box<dyn Observer>,
    ) -> World<'a> {
        let now = 1_000 * super::SECOND;
        for policy in &setup.policies {
            subject.register(Nanos(now), *policy);
        }
        let disks = setup.policies.len();
        World {
            subject,
            observer,
            now,
            policies: setup.policies.clone(),
            queued: vec![0; disks],
            largest: vec![0; disks],
            clients: vec![Client::default(); disks],
            requests: Vec::new(),
            in_flight: 0,
            waiting: VecDeque::new(),
            served: None,
            blocked: 0,
            pace: setup.pace,
            stalls: setup.stalls,
            tokens: (setup.shape.map_or(0, |s| s.burst * super::SECOND), now),
            setup,
        }
    }

    /// Plays all actions, then waits for `tail`.
    pub fn play(mut self, actions: &[Action], tail: u64) -> Verdict {
        for action in actions {
            self.act(*action);
        }
        self.run(self.now + tail);
        self.tell(Event::End);
        self.observer.verdict()
    }

    fn tell(&mut self, event: Event) {
        let view = View {
            now: self.now,
            queued: &self.queued,
            policies: &self.policies,
            in_flight: self.in_flight,
            window: self.setup.window,
            largest: &self.largest,
            pace: self.pace,
        };
        self.observer.see(event, &view);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Wait(time) => self.run(self.now + time),
            Action::Send { disk, count, cost } => {
                for _ in 0..count {
                    self.arrive(disk, cost);
                }
            }
            Action::Keep { disk, outstanding, cost } => {
                self.clients[disk].keeps = outstanding;
                self.clients[disk].cost = cost;
                self.refill(disk);
            }
            Action::Withdraw { disk } => {
                let taken = self.subject.withdraw(Nanos(self.now), disk);
                assert_eq!(taken, self.queued[disk] as usize);
                self.clients[disk].outstanding -= self.queued[disk];
                self.clients[disk].keeps = 0;
                self.queued[disk] = 0;
                self.tell(Event::Withdrawn { disk });
            }
            Action::Policy { disk, entry } => {
                let before = std::mem::replace(&mut self.policies[disk], self.setup.menu[entry]);
                self.subject.set_policy(Nanos(self.now), disk, self.setup.menu[entry]);
                self.tell(Event::Policy { disk, before });
            }
            Action::Pace(pace) => {
                let before = std::mem::replace(&mut self.pace, pace);
                self.tell(Event::Pace { before });
            }
            Action::Stall(time) => {
                let time = time.min(self.stalls);
                self.stalls -= time;
                match &mut self.served {
                    Some((_, end)) => *end += time,
                    None => self.blocked = self.blocked.max(self.now) + time,
                }
                self.tell(Event::Stalled(time));
            }
        }
        self.pump();
    }

    /// Whether the arrivals of a shaped disk have room for the request; if so it is taken.
    fn conforms(&mut self, disk: usize, cost: u64) -> bool {
        let Some(shape) = self.setup.shape.filter(|_| disk == 0) else { return true };
        let full = shape.burst * super::SECOND;
        let have = (self.tokens.0 + (self.now - self.tokens.1) * shape.rate).min(full);
        let left = have.checked_sub(cost * super::SECOND);
        self.tokens = (left.unwrap_or(have), self.now);
        left.is_some()
    }

    fn arrive(&mut self, disk: usize, cost: u64) -> bool {
        if !self.conforms(disk, cost) {
            return false;
        }
        let request = self.requests.len() as u32;
        self.requests.push(Request { disk, cost, arrived: self.now });
        self.clients[disk].outstanding += 1;
        self.queued[disk] += 1;
        self.largest[disk] = self.largest[disk].max(cost);
        self.subject.enqueue(Nanos(self.now), disk, cost, request);
        self.tell(Event::Arrived { disk });
        true
    }

    fn refill(&mut self, disk: usize) {
        let Client { keeps, cost, .. } = self.clients[disk];
        while self.clients[disk].outstanding < keeps && self.arrive(disk, cost) {}
    }

    fn pump(&mut self) {
        while self.subject.is_due(Nanos(self.now)) {
            match self.subject.next(Nanos(self.now)) {
                Answer::Send { disk, request } => {
                    assert!(self.in_flight < self.setup.window, "the window is exceeded");
                    let Request { disk: of, cost, .. } = self.requests[request as usize];
                    assert_eq!(disk, of);
                    self.in_flight += 1;
                    self.queued[disk] -= 1;
                    self.waiting.push_back(request);
                    self.tell(Event::Sent { disk, cost });
                }
                Answer::At(at) => {
                    assert!(at.0 > self.now, "a wait that is over");
                    self.tell(Event::Held);
                    break;
                }
                Answer::Idle => {
                    self.tell(Event::Held);
                    break;
                }
            }
        }
        self.begin();
    }

    /// The storage takes up the next request if it is free.
    fn begin(&mut self) {
        if self.served.is_some() || self.blocked > self.now {
            return;
        }
        let next = match self.setup.order {
            Order::FirstIn => self.waiting.pop_front(),
            Order::LastIn => self.waiting.pop_back(),
        };
        if let Some(request) = next {
            let cost = self.requests[request as usize].cost;
            self.served = Some((request, self.now + cost * self.pace));
        }
    }

    fn run(&mut self, until: u64) {
        loop {
            let end = self.served.map(|(_, end)| end);
            let go = (self.served.is_none() && !self.waiting.is_empty()).then_some(self.blocked);
            let wake = self.subject.wake().map(|at| at.0);
            let next = [end, go, wake].into_iter().flatten().min().unwrap_or(u64::MAX);
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            if let Some((request, end)) = self.served
                && end <= self.now
            {
                self.served = None;
                let Request { disk, cost, arrived } = self.requests[request as usize];
                self.in_flight -= 1;
                self.clients[disk].outstanding -= 1;
                self.subject.complete(Nanos(self.now), disk, cost);
                self.tell(Event::Done { disk, cost, arrived });
                self.refill(disk);
            }
            self.pump();
        }
    }
}
