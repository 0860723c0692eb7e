//! Clients, a window and a device in simulated time, around a scheduler of leaves.

use crate::oracle::{Due, Spec, members};
use headgate_qos::{
    Config, CostModel, Decision, DiskId, Io, MClock, MClockTree, NodeId, Policy, Scheduler,
    TreeDecision,
};
use headgate_units::{Bytes, Iops, Nanos, Shares};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub const SECOND: u64 = 1_000_000_000;
pub const MS: u64 = 1_000_000;

/// A generator of good upper bits.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        let mut dice = Dice(seed ^ 0x9e37_79b9_7f4a_7c15);
        (0..4).for_each(|_| _ = dice.below(2));
        dice
    }

    /// One of 0 to n - 1.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 >> 16) * u128::from(n)) >> 48) as u64
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// From 0 up to 1.
    pub fn part(&mut self) -> f64 {
        self.below(1 << 40) as f64 / (1u64 << 40) as f64
    }
}

/// One reference IO is so many bytes.
const UNIT: u64 = 4_096;

/// A request costs what its size says.
pub fn config() -> Config {
    Config {
        limit_slack: Nanos::from_millis(20),
        cost_model: CostModel::Chunks { reference: Bytes(UNIT) },
        ..Config::default()
    }
}

pub fn policy(spec: &Spec) -> Policy {
    let limit = if spec.limit.is_finite() { Iops::new(spec.limit as u64).ok() } else { None };
    Policy::shared(Shares::new(spec.shares as u64).unwrap())
        .with_limit(limit)
        .unwrap()
        .with_reservation(Iops::new(spec.reservation as u64).ok())
        .unwrap()
}

/// What a scheduler says.
pub enum Answer {
    /// The leaf.
    Send(usize),
    At(u64),
    Idle,
}

/// A scheduler of leaves: the product, or one that is wrong on purpose.
pub trait Subject {
    fn enqueue(&mut self, now: u64, leaf: usize, cost: u64);
    fn withdraw(&mut self, now: u64, leaf: usize) -> usize;
    fn dispatch(&mut self, now: u64) -> Answer;
    fn complete(&mut self, now: u64, leaf: usize);
    fn set(&mut self, now: u64, node: usize, spec: &Spec);
}

/// The product.
pub struct Product {
    pub tree: MClockTree<usize>,
    pub ids: Vec<NodeId>,
}

impl Product {
    pub fn new(specs: &[Spec]) -> Product {
        Product::with(specs, config())
    }

    pub fn with(specs: &[Spec], config: Config) -> Product {
        let mut tree = MClockTree::new(config).unwrap();
        let mut ids = Vec::new();
        for (node, spec) in specs.iter().enumerate() {
            let parent = spec.parent.map_or(NodeId::ROOT, |parent: usize| ids[parent]);
            let is_group = specs.iter().any(|other| other.parent == Some(node));
            let added = match is_group {
                true => tree.add_group(Nanos::ZERO, parent, policy(spec)),
                false => tree.add_leaf(Nanos::ZERO, parent, policy(spec)),
            };
            ids.push(added.unwrap());
        }
        Product { tree, ids }
    }
}

fn io(cost: u64) -> Io {
    Io { bytes: Bytes(cost * UNIT), ..Io::default() }
}

impl Subject for Product {
    fn enqueue(&mut self, now: u64, leaf: usize, cost: u64) {
        self.tree.enqueue(Nanos(now), self.ids[leaf], io(cost), leaf).unwrap();
    }

    fn withdraw(&mut self, now: u64, leaf: usize) -> usize {
        self.tree.extract(Nanos(now), self.ids[leaf], &mut |_| true).unwrap().len()
    }

    fn dispatch(&mut self, now: u64) -> Answer {
        match self.tree.dispatch(Nanos(now)) {
            TreeDecision::Dispatch(next) => {
                assert_eq!(self.ids[next.request], next.leaf, "a request of another leaf");
                Answer::Send(next.request)
            }
            TreeDecision::WaitUntil(at) => Answer::At(at.0),
            TreeDecision::Idle => Answer::Idle,
        }
    }

    fn complete(&mut self, now: u64, leaf: usize) {
        self.tree.complete(Nanos(now), self.ids[leaf]);
    }

    fn set(&mut self, now: u64, node: usize, spec: &Spec) {
        self.tree.set_policy(Nanos(now), self.ids[node], policy(spec)).unwrap();
    }
}

/// Wrong on purpose: the flat scheduler, which knows leaves alone.
pub struct Flat {
    scheduler: MClock<usize>,
    disks: Vec<Option<DiskId>>,
}

impl Flat {
    /// Each leaf with its own reservation and limit, and the shares that this says.
    pub fn new(specs: &[Spec], shares: impl Fn(usize) -> f64) -> Flat {
        let mut scheduler = MClock::new(config()).unwrap();
        let disks = (0..specs.len()).map(|node| {
            let is_group = specs.iter().any(|other| other.parent == Some(node));
            let spec = Spec { shares: shares(node), ..specs[node] };
            (!is_group).then(|| scheduler.register(Nanos::ZERO, policy(&spec)))
        });
        let disks = disks.collect();
        Flat { scheduler, disks }
    }
}

impl Subject for Flat {
    fn enqueue(&mut self, now: u64, leaf: usize, cost: u64) {
        self.scheduler.enqueue(Nanos(now), self.disks[leaf].unwrap(), io(cost), leaf).unwrap();
    }

    fn withdraw(&mut self, now: u64, leaf: usize) -> usize {
        let disk = self.disks[leaf].unwrap();
        self.scheduler.extract(Nanos(now), disk, &mut |_| true).unwrap().len()
    }

    fn dispatch(&mut self, now: u64) -> Answer {
        match self.scheduler.dispatch(Nanos(now)) {
            Decision::Dispatch(next) => Answer::Send(next.request),
            Decision::WaitUntil(at) => Answer::At(at.0),
            Decision::Idle => Answer::Idle,
        }
    }

    fn complete(&mut self, now: u64, leaf: usize) {
        self.scheduler.complete(Nanos(now), self.disks[leaf].unwrap());
    }

    fn set(&mut self, now: u64, node: usize, spec: &Spec) {
        if let Some(disk) = self.disks[node] {
            self.scheduler.set_policy(Nanos(now), disk, policy(spec)).unwrap();
        }
    }
}

/// How the client of a leaf asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Client {
    Idle,
    /// Keeps so many requests outstanding.
    Closed {
        outstanding: usize,
        cost: u64,
    },
    /// Sends so many per second, whatever completes.
    Open {
        rate: f64,
    },
}

/// How long the device takes for one reference IO, in parts of the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Constant,
    /// Between nothing and twice the mean.
    Uniform,
    Exponential,
}

/// A device that serves requests one after another, behind a window.
#[derive(Clone, Debug)]
pub struct Device {
    /// Reference IOs per second.
    pub rate: f64,
    pub service: Service,
    pub window: usize,
    /// Stands still from such a time for so long.
    pub stalls: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Complete { leaf: usize },
    Arrive { leaf: usize, turn: u32 },
    Wake,
}

/// A dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: u64,
    pub leaf: usize,
    pub cost: u64,
    /// When the device began with it, and was done.
    pub served: (u64, u64),
}

pub struct World<S> {
    pub subject: S,
    pub now: u64,
    pub device: Device,
    clients: Vec<Client>,
    /// Which of a leaf's clients it is, so that arrivals of those before count for nothing.
    turns: Vec<u32>,
    queues: Vec<VecDeque<u64>>,
    outstanding: Vec<usize>,
    free_at: u64,
    in_flight: usize,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    wake: u64,
    dice: Dice,
    pub sent: Vec<Sent>,
    /// Of each leaf: requests that came.
    pub asked: Vec<u64>,
    /// Nodes from each leaf up.
    ways: Vec<Vec<usize>>,
    /// Which nodes have a limit.
    limited: Vec<bool>,
}

impl<S: Subject> World<S> {
    pub fn new(subject: S, specs: &[Spec], device: Device, seed: u64) -> World<S> {
        let count = specs.len();
        let way =
            |leaf| std::iter::successors(Some(leaf), |node: &usize| specs[*node].parent).collect();
        World {
            subject,
            now: 0,
            device,
            clients: vec![Client::Idle; count],
            turns: vec![0; count],
            queues: vec![VecDeque::new(); count],
            outstanding: vec![0; count],
            free_at: 0,
            in_flight: 0,
            events: BinaryHeap::new(),
            count: 0,
            wake: u64::MAX,
            dice: Dice::new(seed),
            sent: Vec::new(),
            asked: vec![0; count],
            ways: (0..count).map(way).collect(),
            limited: specs.iter().map(|spec| spec.limit.is_finite()).collect(),
        }
    }

    /// From now on a leaf has this client. What the one before had queued is taken back.
    pub fn client(&mut self, leaf: usize, client: Client) {
        if client == self.clients[leaf] {
            return;
        }
        self.clients[leaf] = client;
        self.turns[leaf] += 1;
        let taken = self.subject.withdraw(self.now, leaf);
        assert_eq!(taken, self.queues[leaf].len(), "all that is queued comes back");
        self.queues[leaf].clear();
        self.outstanding[leaf] -= taken;
        match client {
            Client::Idle => {}
            Client::Closed { outstanding, cost } => {
                while self.outstanding[leaf] < outstanding {
                    self.ask(leaf, cost);
                }
            }
            Client::Open { .. } => {
                self.at(self.now, Event::Arrive { leaf, turn: self.turns[leaf] });
            }
        }
        self.pump();
    }

    fn ask(&mut self, leaf: usize, cost: u64) {
        self.asked[leaf] += 1;
        self.outstanding[leaf] += 1;
        self.queues[leaf].push_back(cost);
        self.subject.enqueue(self.now, leaf, cost);
    }

    fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    pub fn run_until(&mut self, end: u64) {
        while let Some(Reverse((time, _, event))) = self.events.peek().copied()
            && time <= end
        {
            self.events.pop();
            self.now = time;
            match event {
                Event::Wake if time == self.wake => self.wake = u64::MAX,
                Event::Wake => continue,
                Event::Complete { leaf } => {
                    self.in_flight -= 1;
                    self.outstanding[leaf] -= 1;
                    self.subject.complete(time, leaf);
                    if let Client::Closed { outstanding, cost } = self.clients[leaf]
                        && self.outstanding[leaf] < outstanding
                    {
                        self.ask(leaf, cost);
                    }
                }
                Event::Arrive { leaf, turn } => {
                    if let Client::Open { rate } = self.clients[leaf]
                        && turn == self.turns[leaf]
                    {
                        self.ask(leaf, 1);
                        let gap = SECOND as f64 / rate * (0.5 + self.dice.part());
                        self.at(time + gap as u64, event);
                    }
                }
            }
            self.pump();
        }
        self.now = end;
    }

    fn pump(&mut self) {
        while self.in_flight < self.device.window {
            match self.subject.dispatch(self.now) {
                Answer::Send(leaf) => self.serve(leaf),
                Answer::At(at) => {
                    assert!(at > self.now, "a wait for {at} at {}", self.now);
                    for leaf in (0..self.queues.len()).filter(|n| !self.queues[*n].is_empty()) {
                        let limited = self.ways[leaf].iter().any(|node| self.limited[*node]);
                        assert!(limited, "leaf {leaf} waits without a limit");
                    }
                    if at < self.wake {
                        self.wake = at;
                        self.at(at, Event::Wake);
                    }
                    return;
                }
                Answer::Idle => {
                    let queued = self.queues.iter().any(|queue| !queue.is_empty());
                    assert!(!queued, "idle with requests queued");
                    return;
                }
            }
        }
    }

    fn serve(&mut self, leaf: usize) {
        let cost = self.queues[leaf].pop_front().expect("a request of a leaf that has none");
        self.in_flight += 1;
        let factor = match self.device.service {
            Service::Constant => 1.0,
            Service::Uniform => 2.0 * self.dice.part(),
            Service::Exponential => -(1.0 - self.dice.part()).ln(),
        };
        let mut start = self.free_at.max(self.now);
        for (at, length) in &self.device.stalls {
            if (*at..at + length).contains(&start) {
                start = at + length;
            }
        }
        let time = SECOND as f64 / self.device.rate * cost as f64 * factor;
        self.free_at = start + time as u64;
        self.sent.push(Sent { at: self.now, leaf, cost, served: (start, self.free_at) });
        self.at(self.free_at, Event::Complete { leaf });
    }

    pub fn set(&mut self, node: usize, spec: &Spec) {
        self.limited[node] = spec.limit.is_finite();
        self.subject.set(self.now, node, spec);
        self.pump();
    }

    /// Nodes are in other groups from now on.
    pub fn regroup(&mut self, specs: &[Spec]) {
        let way =
            |leaf| std::iter::successors(Some(leaf), |node: &usize| specs[*node].parent).collect();
        self.ways = (0..specs.len()).map(way).collect();
    }

    /// What each node was sent from one time to another, in reference IOs.
    pub fn got(&self, from: u64, to: u64) -> Vec<f64> {
        let mut got = vec![0.0; self.ways.len()];
        let first = self.sent.partition_point(|sent| sent.at < from);
        for sent in self.sent[first..].iter().take_while(|sent| sent.at < to) {
            for node in &self.ways[sent.leaf] {
                got[*node] += sent.cost as f64;
            }
        }
        got
    }

    /// What the device gives per second while it works, as it turned out in this time.
    pub fn pace(&self, from: u64, to: u64) -> f64 {
        let (mut worked, mut done) = (0.0, 0.0);
        for Sent { served: (start, end), cost, .. } in &self.sent {
            let inside = end.min(&to).saturating_sub(*start.max(&from)) as f64;
            if inside > 0.0 {
                worked += inside;
                done += *cost as f64 * inside / (end - start) as f64;
            }
        }
        done / worked * SECOND as f64
    }

    /// How many requests a leaf has queued.
    pub fn queued(&self, leaf: usize) -> usize {
        self.queues[leaf].len()
    }
}

/// How far a node may be off.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Of what it is due.
    pub own: f64,
    /// Of what its group is due.
    pub of_group: f64,
    /// Reference IOs.
    pub ios: f64,
}

/// Which members are further off than that in so many seconds, of what their group had; `None` if
/// none is.
pub fn off(
    specs: &[Spec],
    due: &Due,
    got: &[f64],
    seconds: f64,
    allowed: Allowed,
) -> Option<String> {
    let mut wrong = Vec::new();
    let Allowed { own, of_group, ios } = allowed;
    for group in (0..specs.len()).map(Some).chain([None]) {
        let inside = members(specs, group);
        let (total, root): (f64, f64) = inside
            .iter()
            .map(|node| (got[*node], due.due[*node] * seconds))
            .fold((0.0, 0.0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        let total = if group.is_some() { total } else { root };
        for (node, due) in inside.iter().zip(due.of_group(specs, &inside, total / seconds)) {
            let (due, got) = (due * seconds, got[*node]);
            if (got - due).abs() > own * due + of_group * total + ios {
                wrong.push(format!("node {node}: {got:.0} of {due:.1} and {total:.0}"));
            }
        }
    }
    if wrong.is_empty() { None } else { Some(wrong.join(", ")) }
}
