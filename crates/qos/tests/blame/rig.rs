//! A gate before a device in simulated time, with the truth beside it.

use crate::truth::{Answer, Times, Truth};
use headgate_qos::window::Slots;
use headgate_qos::{
    AnyScheduler, Config, Cost, CostModel, Decision, DiskId, Gate, Io, Policy, Scheduler,
    SchedulerKind, WaitTimes,
};
use headgate_units::{Bytes, Iops, Nanos, Shares};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Numbers from a seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A disk and what its client does: keeps `depth` requests outstanding, each of which comes after
/// `think` nanoseconds on average, while it is on.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    pub depth: u64,
    pub bytes: u64,
    pub think: u64,
    /// On for so long, then off for so long, in nanoseconds; always on where the second is 0.
    pub phases: (u64, u64),
    pub shares: u64,
    pub reservation: Option<u64>,
    pub limit: Option<u64>,
}

impl Client {
    pub const STEADY: Client = Client {
        depth: 16,
        bytes: 4_096,
        think: 0,
        phases: (1, 0),
        shares: 1_000,
        reservation: None,
        limit: None,
    };
}

/// A device of several servers, each of which takes one request after the other.
#[derive(Clone, Debug)]
pub struct Device {
    pub servers: usize,
    /// Nanoseconds for a reference IO.
    pub each: u64,
    /// A service takes up to so much more or less of that.
    pub variance: f64,
    /// It stands still for the second every first nanoseconds.
    pub stalls: Option<(u64, u64)>,
}

pub struct SetUp {
    pub seed: u64,
    pub clients: Vec<Client>,
    pub device: Device,
    /// From these nanoseconds on.
    pub windows: Vec<(u64, u32)>,
    pub scheduler: SchedulerKind,
    /// In nanoseconds.
    pub length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Window(u32),
    Complete { id: u64, disk: usize, cost: u64 },
    Arrive { disk: usize },
    Wake,
}

struct Rig<'a> {
    set_up: &'a SetUp,
    random: Random,
    gate: Gate<u64>,
    disks: Vec<DiskId>,
    truth: Truth,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    serial: u64,
    free: Vec<u64>,
    ids: Vec<usize>,
}

/// What the gate says of each disk, and what is true.
pub fn run(set_up: &SetUp) -> Vec<(WaitTimes, Times)> {
    let mut rig = Rig::new(set_up);
    let mut windows = set_up.windows.iter().skip(1).copied();
    for (at, window) in windows.by_ref() {
        rig.at(at, Event::Window(window));
    }
    for disk in 0..set_up.clients.len() {
        for _ in 0..set_up.clients[disk].depth {
            rig.think(0, disk);
        }
    }
    while let Some(Reverse((at, _, event))) = rig.events.pop()
        && at < set_up.length
    {
        rig.step(at, event);
    }
    let end = Nanos(set_up.length);
    rig.truth.pass(end);
    let told = rig.disks.iter().map(|disk| rig.gate.wait_times(end, *disk).expect("it is there"));
    told.zip(rig.truth.times).collect()
}

/// The disks' ids in the order of the clients.
pub fn ids(set_up: &SetUp) -> Vec<DiskId> {
    Rig::new(set_up).disks
}

impl Rig<'_> {
    fn new(set_up: &SetUp) -> Rig<'_> {
        let window = set_up.windows[0].1;
        let scheduler =
            AnyScheduler::new(set_up.scheduler, Config::for_hosts(CostModel::default())).unwrap();
        let mut gate = Gate::new(Nanos::ZERO, scheduler, Slots::whole(window));
        gate.set_narrow(Nanos::ZERO, headgate_qos::Narrow::Never);
        let disks = set_up.clients.iter().map(|client| {
            let policy = Policy::shared(Shares::new(client.shares).unwrap())
                .with_limit(client.limit.map(|limit| Iops::new(limit).unwrap()))
                .unwrap()
                .with_reservation(client.reservation.map(|iops| Iops::new(iops).unwrap()))
                .unwrap();
            gate.register(Nanos::ZERO, policy)
        });
        let disks = disks.collect();
        let truth = Truth::new(set_up.clients.len(), sizes(&gate));
        Rig {
            set_up,
            random: Random::new(set_up.seed),
            gate,
            disks,
            truth,
            events: BinaryHeap::new(),
            serial: 0,
            free: vec![0; set_up.device.servers],
            ids: Vec::new(),
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial, event)));
    }

    /// A client's next request comes.
    fn think(&mut self, now: u64, disk: usize) {
        let client = self.set_up.clients[disk];
        let mut at = now + (client.think as f64 * 2.0 * self.random.unit()) as u64;
        let (on, off) = client.phases;
        if off > 0 && at % (on + off) >= on {
            at = at / (on + off) * (on + off) + on + off;
        }
        self.at(at, Event::Arrive { disk });
    }

    fn step(&mut self, at: u64, event: Event) {
        let now = Nanos(at);
        self.truth.pass(now);
        match event {
            Event::Wake => {}
            Event::Window(window) => {
                self.gate.set_window(now, Slots::whole(window));
                self.truth.set_window(sizes(&self.gate));
            }
            Event::Arrive { disk } => {
                let id = self.ids.len() as u64;
                self.ids.push(disk);
                let bytes = Bytes(self.set_up.clients[disk].bytes);
                let io = Io { bytes, ..Io::default() };
                self.truth.arrive(id, disk);
                self.gate.enqueue(now, self.disks[disk], io, id).unwrap();
                self.ask_limit(disk);
            }
            Event::Complete { id, disk, cost } => {
                self.truth.complete(id);
                self.gate.complete(now, self.disks[disk], Cost::from_millionths(cost));
                self.think(at, disk);
            }
        }
        loop {
            match self.gate.next(now) {
                Decision::Dispatch(sent) => {
                    let cost = sent.cost.as_millionths();
                    self.truth.dispatch(sent.request, cost);
                    let end = self.serve(at, cost);
                    let disk = self.ids[sent.request as usize];
                    self.at(end, Event::Complete { id: sent.request, disk, cost });
                    self.ask_limit(disk);
                }
                Decision::WaitUntil(until) => {
                    self.at(until.0, Event::Wake);
                    return self.truth.answered(Answer::Room);
                }
                Decision::Idle => {
                    let full = self.gate.queued() > 0;
                    let answer = if full { Answer::Full } else { Answer::Room };
                    return self.truth.answered(answer);
                }
            }
        }
    }

    fn ask_limit(&mut self, disk: usize) {
        let until = self.gate.scheduler().limited_until(self.disks[disk]);
        self.truth.limited(disk, until);
    }

    /// When the device has served a request of this cost.
    fn serve(&mut self, now: u64, cost: u64) -> u64 {
        let device = &self.set_up.device;
        let spread = 1.0 + device.variance * (2.0 * self.random.unit() - 1.0);
        let takes = (device.each as f64 * cost as f64 / 1e6 * spread) as u64;
        let server = (0..self.free.len()).min_by_key(|n| self.free[*n]).unwrap();
        let mut end = self.free[server].max(now);
        let mut left = takes.max(1);
        if let Some((every, length)) = device.stalls {
            loop {
                let into = end % every;
                if into < length {
                    end += length - into;
                }
                let room = every - end % every;
                if left <= room {
                    break;
                }
                left -= room;
                end += room;
            }
        }
        self.free[server] = end + left;
        end + left
    }
}

/// A gate's window in requests and in millionths of a reference IO.
fn sizes(gate: &Gate<u64>) -> (f64, f64) {
    (gate.window().as_f64(), gate.work_window().as_millionths() as f64)
}
