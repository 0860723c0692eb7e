//! Clients that want more than their disk may have, judged by what is left to others.
//!
//! Everything runs in virtual time: storage that serves 2,000 reference IOs per second, 16 at a
//! time, and a client on another disk that always has 16 requests outstanding. The judgement is
//! its: what it was promised, it gets, second by second.

use super::datastore::Enqueued;
use super::testing::Rig;
use crate::request::{Durability, Op, Request, Unmap, ZeroSpeed};
use crate::tables::queue_slots::QUEUE_MAX;
use crate::tables::slots::Zeroing;
use headgate_qos::window::Slots as Window;
use headgate_qos::{
    Burst, Config, CostModel, Policy, PriorityPolicy, Scheduler as _, SchedulerKind,
};
use headgate_units::{Iops, Nanos, Shares};
use std::collections::VecDeque;

const DEPTH: u32 = 16;
const RESERVATION: u64 = 1_000;
const LIMIT: u64 = 100;
/// What the storage takes for one reference IO.
const SERVICE: Nanos = Nanos::from_micros(500);
const SECOND: Nanos = Nanos::from_secs(1);
/// Promises are judged once rates have settled.
const SETTLED: usize = 2;
const SECONDS: u64 = 12;
/// Guests' ring sizes: 256 descriptors, three for each request.
const RING: u32 = 85;
const BLOCK: u64 = 4096;
/// What is moved in the time of another reference IO, as in the default cost model.
const REFERENCE: u64 = 300 << 10;

/// How often the hostile client acts.
const PACE: Nanos = Nanos::from_micros(170);

/// What the hostile client does all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// It keeps its queue full of these.
    Flood(Op, u64),
    /// It fills its ring and stops it: what is queued goes back, and comes again.
    Reset,
    /// The same on a device that sends what is queued to the storage at once.
    ResetAroundTheGate,
    /// It fills its ring and hangs up; the next connection replays what this one had in flight.
    Reconnect,
    /// It floods over so many connections.
    Connections(u32),
}

struct World {
    now: Nanos,
    rig: Rig,
    attack: Attack,
    /// The neighbour's disk and port, then the hostile client's disk and ports.
    disks: [u32; 2],
    neighbour: u32,
    hostile: Vec<u32>,
    cookie: u64,
    /// Cookies of the first hostile port's requests that are queued, the oldest first.
    queued: Vec<u64>,
    /// What the storage works on, in order, and when each is done. Without a number: not through
    /// the gate.
    storage: VecDeque<(Nanos, Option<u32>)>,
    /// What both had the storage do, in millionths of reference IOs.
    done: [u64; 2],
}

impl World {
    fn new(attack: Attack, policies: [Policy; 2]) -> World {
        let config = Config::for_hosts(CostModel::default());
        let mut rig = Rig::new(SchedulerKind::MClock, config, Window::whole(DEPTH), None);
        let disks =
            policies.map(|policy| rig.add_disk(Nanos::ZERO, policy, PriorityPolicy::default()));
        let connections = match attack {
            Attack::Connections(count) => count,
            _ => 1,
        };
        World {
            now: Nanos::ZERO,
            attack,
            neighbour: rig.add_port(disks[0]),
            hostile: (0..connections).map(|_| rig.add_port(disks[1])).collect(),
            disks,
            rig,
            cookie: 0,
            queued: Vec::new(),
            storage: VecDeque::new(),
            done: [0; 2],
        }
    }

    fn requests(&self, port: u32) -> u32 {
        self.rig.tables.ports[port as usize].requests
    }

    /// Has a port send requests until it has so many outstanding or its disk has no room for more.
    fn fill(&mut self, port: u32, (op, len): (Op, u64), most: u32) {
        for _ in 0..QUEUE_MAX {
            let state = &self.rig.tables.ports[port as usize];
            let disk = &self.rig.tables.disks[state.disk as usize];
            if state.requests >= most || disk.queue_slots.left(state.queued) == 0 {
                return;
            }
            let cookie = self.cookie;
            self.cookie += 1;
            let offset = if op == Op::Flush { 0 } else { cookie % 64 * BLOCK };
            let request = Request { op, offset, len, cookie, ioprio: 0 };
            let (key, enqueued) = self.rig.arrive(self.now, port, request);
            match enqueued {
                Enqueued::Queued if port == self.hostile[0] => self.queued.push(cookie),
                Enqueued::Queued => {}
                Enqueued::Refused => {
                    self.rig.tables.completed.clear();
                    self.rig.complete(self.now, key);
                }
            }
        }
    }

    fn act(&mut self) {
        let read = (Op::Read, BLOCK);
        let first = self.hostile[0];
        match self.attack {
            Attack::Flood(op, len) => self.fill(first, (op, len), u32::MAX),
            Attack::Connections(_) => {
                for n in 0..self.hostile.len() {
                    self.fill(self.hostile[n], read, u32::MAX);
                }
            }
            Attack::Reset | Attack::ResetAroundTheGate => {
                self.fill(first, read, RING);
                self.reset();
                self.fill(first, read, RING);
            }
            Attack::Reconnect => {
                self.fill(first, read, RING);
                self.hang_up();
            }
        }
    }

    fn reset(&mut self) {
        let newest_first: Vec<u64> = self.queued.drain(..).rev().collect();
        let (now, Rig { store, tables }) = (self.now, &mut self.rig);
        let count = store.take_back(now, tables, self.hostile[0], &newest_first);
        assert_eq!(count, newest_first.len(), "all that nobody had begun to serve came back");
        if self.attack == Attack::ResetAroundTheGate {
            let cost = count as u64 * 1_000_000;
            self.work(None, cost);
            self.done[1] += cost;
        }
    }

    /// The end of a port, as the shard does it. Its successor comes when the storage is done with
    /// its last request.
    fn hang_up(&mut self) {
        self.queued.clear();
        let (port, now) = (self.hostile[0], self.now);
        let Rig { store, tables } = &mut self.rig;
        store.withdraw(now, tables, port, &mut |_| true);
        if self.requests(port) == 0 {
            self.rig.tables.ports.remove(port as usize);
            self.hostile[0] = self.rig.add_port(self.disks[1]);
            self.fill(self.hostile[0], (Op::Read, BLOCK), RING);
        }
    }

    /// The storage gets a request of this cost, in millionths.
    fn work(&mut self, key: Option<u32>, cost: u64) {
        let from = self.storage.back().map_or(self.now, |(done, _)| self.now.max(*done));
        self.storage.push_back((from + Nanos(SERVICE.0 * cost / 1_000_000), key));
    }

    /// What each disk was charged so far, in millionths of reference IOs.
    fn charged(&self) -> [u64; 2] {
        let scheduler = self.rig.store.gate.scheduler();
        self.disks.map(|disk| {
            let queue = self.rig.tables.disks[disk as usize].queues.clients;
            scheduler.counters(queue).unwrap().cost.as_millionths()
        })
    }

    fn pump(&mut self) {
        while self.rig.store.is_due(self.now) {
            let before: u64 = self.charged().iter().sum();
            let Some(key) = self.rig.store.next(self.now, &mut self.rig.tables) else { return };
            let cookie = self.rig.tables.slots[key].request.cookie;
            self.queued.retain(|queued| *queued != cookie);
            let charged = self.charged().iter().sum::<u64>() - before;
            let slot = &mut self.rig.tables.slots[key];
            let cost = match slot.request.op {
                Op::WriteZeroes { unmap: Unmap::MustNot, .. } => {
                    slot.zeroing = Zeroing::Written;
                    1_000_000 + slot.request.len * 1_000_000 / REFERENCE
                }
                _ => charged,
            };
            self.done[usize::from(slot.disk == self.disks[1])] += cost;
            self.work(Some(key), cost);
        }
    }

    /// What both disks got of the storage in each second, in reference IOs.
    fn run(mut self) -> Vec<[f64; 2]> {
        let (mut seconds, mut before) = (Vec::new(), [0; 2]);
        let mut acts = Nanos::ZERO;
        while (seconds.len() as u64) < SECONDS {
            let events = [self.storage.front().map(|(done, _)| *done), self.rig.store.next_wake()];
            let next = events.into_iter().flatten().fold(acts, Nanos::min).max(self.now);
            if next >= Nanos(SECOND.0 * (seconds.len() as u64 + 1)) {
                seconds.push([0, 1].map(|n| (self.done[n] - before[n]) as f64 / 1e6));
                before = self.done;
            }
            self.now = next;
            while self.storage.front().is_some_and(|(done, _)| *done <= next) {
                if let Some((_, Some(key))) = self.storage.pop_front() {
                    self.rig.complete(next, key);
                }
            }
            if acts <= next {
                self.act();
                acts = next + PACE;
            }
            self.fill(self.neighbour, (Op::Read, BLOCK), DEPTH);
            self.pump();
        }
        seconds.split_off(SETTLED)
    }
}

/// Whether a neighbour with a reservation and a hostile client with a limit get what they may:
/// every second the one, on the whole the other. `dearest`: the cost of a request of the client.
fn judge(seconds: &[[f64; 2]], dearest: f64) -> Result<(), String> {
    let least = seconds.iter().map(|got| got[0]).fold(f64::INFINITY, f64::min);
    if least < 0.99 * RESERVATION as f64 {
        return Err(format!("a second of the neighbour's had {least} of {RESERVATION} IOs"));
    }
    let most = LIMIT as f64 * seconds.len() as f64;
    let got: f64 = seconds.iter().map(|got| got[1]).sum();
    if got > most * 1.01 + dearest {
        return Err(format!("the client got {got:.1} IOs, where its limit is {most}"));
    }
    Ok(())
}

fn reserved() -> Policy {
    Policy::default().with_reservation(Some(Iops::new(RESERVATION).unwrap())).unwrap()
}

/// A limit, and all else that could make a disk greedy.
fn limited() -> Policy {
    let greedy = Policy::shared(Shares::new(100_000).unwrap()).with_burst(Burst::MAX);
    greedy.with_limit(Some(Iops::new(LIMIT).unwrap())).unwrap()
}

fn attacks() -> Vec<(&'static str, Attack, f64)> {
    let written = Op::WriteZeroes {
        unmap: Unmap::MustNot,
        speed: ZeroSpeed::Any,
        durability: Durability::Fua,
    };
    let zeroes =
        Op::WriteZeroes { unmap: Unmap::May, speed: ZeroSpeed::Any, durability: Durability::Fua };
    let segments = 126 * BLOCK;
    vec![
        ("reads", Attack::Flood(Op::Read, BLOCK), 1.0),
        ("resets", Attack::Reset, 1.0),
        ("reconnects", Attack::Reconnect, 1.0),
        ("connections", Attack::Connections(40), 1.0),
        ("flushes", Attack::Flood(Op::Flush, 0), 1.0),
        ("zeroes", Attack::Flood(zeroes, 1 << 40), 1.0),
        ("written zeroes", Attack::Flood(written, 32 << 20), 17.0 * 111.0),
        ("discards", Attack::Flood(Op::Discard, 1 << 40), 1.0),
        ("questions", Attack::Flood(Op::BlockStatus, 1 << 32), 1.0),
        ("segments", Attack::Flood(Op::Write(Durability::Fua), segments), 2.7),
        ("large", Attack::Flood(Op::Read, 32 << 20), 111.0),
        ("nothing", Attack::Flood(Op::Read, 0), 0.0),
        ("discards of nothing", Attack::Flood(Op::Discard, 0), 1.0),
    ]
}

#[test]
fn a_reservation_and_a_limit_hold_whatever_a_client_does() {
    for (name, attack, dearest) in attacks() {
        let seconds = World::new(attack, [reserved(), limited()]).run();
        judge(&seconds, dearest).unwrap_or_else(|e| panic!("{name}: {e}: {seconds:?}"));
        // What the client may not have is the neighbour's.
        let total: f64 = seconds.iter().flatten().sum();
        assert!(total > 0.99 * 2_000.0 * seconds.len() as f64, "{name}: idle: {seconds:?}");
    }
}

#[test]
fn shares_hold_whatever_a_client_does() {
    let shared = |shares| Policy::shared(Shares::new(shares).unwrap());
    for (name, attack, _) in attacks() {
        if name == "nothing" {
            continue;
        }
        let seconds = World::new(attack, [shared(300), shared(100)]).run();
        let neighbour: f64 = seconds.iter().map(|got| got[0]).sum();
        let least = 0.99 * 1_500.0 * seconds.len() as f64;
        assert!(neighbour >= least, "{name}: {neighbour} of {least}: {seconds:?}");
    }
}

/// The judgement finds a device that lets a stopping ring pass the gate.
#[test]
fn a_stop_that_sends_around_the_gate_is_found_out() {
    let seconds = World::new(Attack::ResetAroundTheGate, [reserved(), limited()]).run();
    let verdict = judge(&seconds, 1.0);
    assert!(verdict.is_err_and(|e| e.contains("neighbour")), "{seconds:?}");
}

/// What was taken before a request that is at the storage stays, though it is queued.
#[test]
fn what_is_taken_back_ends_at_the_first_that_is_not_queued() {
    let mut world = World::new(Attack::Reset, [reserved(), limited()]);
    let port = world.hostile[0];
    world.fill(port, (Op::Read, BLOCK), 3);
    let key = world.rig.store.next(world.now, &mut world.rig.tables).expect("it may go");
    assert_eq!(world.rig.tables.slots[key].request.cookie, 0);
    let (now, Rig { store, tables }) = (world.now, &mut world.rig);
    assert_eq!(store.take_back(now, tables, port, &[0, 2, 1]), 0);
    assert_eq!(store.take_back(now, tables, port, &[2, 0, 1]), 1);
    assert_eq!(tables.ports[port as usize].queued, 1);
    assert_eq!(store.take_back(now, tables, port, &[2, 1]), 0, "it is gone already");
    assert_eq!(store.take_back(now, tables, port, &[1, 0]), 1);
}
