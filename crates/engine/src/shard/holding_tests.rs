//! Disks that hold what their storage fails, judged by the other disks, and that none is lost.

use super::datastore::Enqueued;
use super::holding::Verdict;
use super::testing::Rig;
use crate::request::{Durability, IoError, Op, Request, Unmap, ZeroSpeed};
use crate::tables::range_queue::RangeQueue;
use crate::tables::slots::Stage;
use crate::trouble::{HoldReads, HoldWrites, TroublePolicy};
use headgate_qos::window::Slots as Window;
use headgate_qos::{Config, CostModel, Policy, PriorityPolicy, SchedulerKind};
use headgate_stats::{ErrorKind, ErrorOp};
use headgate_units::{Iops, Nanos};
use proptest::prelude::*;
use std::collections::BTreeSet;

const DEPTH: u32 = 8;
const WRITE: Op = Op::Write(Durability::Cached);
const FULL: TroublePolicy = TroublePolicy { writes: HoldWrites::NoSpace, reads: HoldReads::Never };
const ALL: TroublePolicy = TroublePolicy { writes: HoldWrites::Always, reads: HoldReads::Always };
const EIO: Result<(), IoError> = Err(IoError::Backend(libc::EIO));
const NO_SPACE: Result<(), IoError> = Err(IoError::NoSpace);

fn rig() -> Rig {
    let config = Config::for_hosts(CostModel::Unit);
    Rig::new(SchedulerKind::MClock, config, Window::whole(DEPTH), None)
}

fn add(rig: &mut Rig, trouble: TroublePolicy, reservation: Option<u64>) -> (u32, u32) {
    let reservation = reservation.map(|iops| Iops::new(iops).unwrap());
    let policy = Policy::default().with_reservation(reservation).unwrap();
    let disk = rig.add_disk(Nanos::ZERO, policy, PriorityPolicy::default());
    rig.store.set_trouble(Nanos::ZERO, &mut rig.tables, disk, trouble).unwrap();
    (disk, rig.add_port(disk))
}

fn request(op: Op, cookie: u64) -> Request {
    let len = if op == Op::Flush { 0 } else { 4096 };
    Request { op, offset: cookie * 4096, len, cookie, ioprio: 0 }
}

/// All that may go to the storage now.
fn dispatch(rig: &mut Rig, now: Nanos) -> Vec<u32> {
    std::iter::from_fn(|| rig.store.next(now, &mut rig.tables)).collect()
}

/// The storage is done with a request. What is answered leaves.
fn end(rig: &mut Rig, now: Nanos, key: u32, result: Result<(), IoError>) -> Verdict {
    rig.tables.slots[key].result = result;
    let verdict = rig.store.judge(now, &mut rig.tables, key);
    if verdict == Verdict::Answered {
        rig.complete(now, key);
    }
    verdict
}

/// Cookies of what was answered without the storage, with the results.
fn answered(rig: &mut Rig, now: Nanos) -> Vec<(u64, Result<(), IoError>)> {
    let keys = std::mem::take(&mut rig.tables.completed);
    let answer = |key| {
        let slot = &rig.tables.slots[key];
        let answer = (slot.request.cookie, slot.result);
        assert_eq!(rig.store.judge(now, &mut rig.tables, key), Verdict::Answered);
        rig.complete(now, key);
        answer
    };
    keys.into_iter().map(answer).collect()
}

fn cookies(rig: &Rig, keys: &[u32]) -> Vec<u64> {
    keys.iter().map(|key| rig.tables.slots[*key].request.cookie).collect()
}

#[test]
fn a_disk_that_holds_leaves_the_window_and_the_reservation_to_others() {
    let mut rig = rig();
    let (full, writer) = add(&mut rig, FULL, None);
    let (_, neighbour) = add(&mut rig, FULL, Some(1_000));
    for cookie in 0..100 {
        rig.arrive(Nanos::ZERO, writer, request(WRITE, cookie));
    }
    for key in dispatch(&mut rig, Nanos::ZERO) {
        assert_eq!(end(&mut rig, Nanos::ZERO, key, NO_SPACE), Verdict::Held);
    }
    assert!(dispatch(&mut rig, Nanos::ZERO).is_empty(), "it sends nothing more");
    assert_eq!((rig.store.gate.in_flight(), rig.store.gate.queued()), (0, 0));
    // What comes later is held, too.
    assert_eq!(rig.arrive(Nanos::ZERO, writer, request(WRITE, 100)).1, Enqueued::Queued);
    let trouble = rig.tables.disks[full as usize].trouble.snapshot();
    assert_eq!(trouble.hold.unwrap().requests, 101);
    assert_eq!(trouble.counts.get(ErrorOp::Write, ErrorKind::NoSpace), u64::from(DEPTH));
    assert_eq!(rig.tables.disks[full as usize].stats.outstanding(), 0);
    let mut served = 0;
    for ms in 1..=100 {
        let now = Nanos::from_millis(ms);
        for cookie in 0..u64::from(DEPTH) {
            rig.arrive(now, neighbour, request(WRITE, cookie));
        }
        let sent = dispatch(&mut rig, now);
        assert_eq!(sent.len() as u32, DEPTH, "the whole window is its");
        for key in sent {
            assert_eq!(end(&mut rig, now, key, Ok(())), Verdict::Answered);
            served += 1;
        }
    }
    assert_eq!(served, 100 * DEPTH);
    // One is tried; when the storage takes it, all go on in order.
    let now = rig.store.next_wake().unwrap();
    rig.store.try_held(now, &mut rig.tables);
    let tried = dispatch(&mut rig, now);
    assert_eq!(cookies(&rig, &tried), [0]);
    assert_eq!(end(&mut rig, now, tried[0], Ok(())), Verdict::Answered);
    let mut order = Vec::new();
    loop {
        let sent = dispatch(&mut rig, now);
        if sent.is_empty() {
            break;
        }
        order.extend(cookies(&rig, &sent));
        sent.into_iter().for_each(|key| {
            end(&mut rig, now, key, Ok(()));
        });
    }
    assert_eq!(order, (1..=100).collect::<Vec<u64>>());
    assert_eq!(rig.tables.ports[writer as usize].requests, 0);
    assert!(rig.tables.disks[full as usize].trouble.hold.is_none());
}

#[test]
fn a_try_that_fails_keeps_all_and_the_next_comes_later() {
    let mut rig = rig();
    let (disk, port) = add(&mut rig, ALL, None);
    for cookie in 0..3 {
        rig.arrive(Nanos::ZERO, port, request(Op::Read, cookie));
    }
    for key in dispatch(&mut rig, Nanos::ZERO).into_iter().rev() {
        assert_eq!(end(&mut rig, Nanos::ZERO, key, EIO), Verdict::Held);
    }
    let mut tries = Vec::new();
    for _ in 0..3 {
        let now = rig.store.next_wake().unwrap();
        tries.push(now.0 / 1_000_000);
        rig.store.try_held(now, &mut rig.tables);
        let tried = dispatch(&mut rig, now);
        assert_eq!(cookies(&rig, &tried), [0], "the oldest");
        assert_eq!(end(&mut rig, now, tried[0], EIO), Verdict::Held);
        assert!(dispatch(&mut rig, now).is_empty());
    }
    assert_eq!(tries, [500, 1_500, 3_500]);
    let now = Nanos::from_secs(4);
    assert!(rig.store.hurry(now, &mut rig.tables, disk));
    let tried = dispatch(&mut rig, now);
    assert_eq!(tried.len(), 1, "told that it is over, it tries at once");
    end(&mut rig, now, tried[0], Ok(()));
    assert_eq!(dispatch(&mut rig, now).len(), 2);
    assert!(!rig.store.hurry(now, &mut rig.tables, disk), "nothing is held");
}

/// A flush is never repeated: the first one's error is the only word of what was lost.
#[test]
fn a_flush_that_fails_is_answered_also_beside_what_is_held() {
    let mut rig = rig();
    let (_, port) = add(&mut rig, ALL, None);
    for (cookie, op) in [(0, Op::Flush), (1, WRITE), (2, Op::Write(Durability::Fua))] {
        rig.arrive(Nanos::ZERO, port, request(op, cookie));
    }
    let sent = dispatch(&mut rig, Nanos::ZERO);
    let verdicts: Vec<Verdict> =
        sent.iter().map(|&key| end(&mut rig, Nanos::ZERO, key, EIO)).collect();
    assert_eq!(verdicts, [Verdict::Answered, Verdict::Held, Verdict::Answered]);
    // One that comes meanwhile waits for the writes before it.
    rig.arrive(Nanos::ZERO, port, request(Op::Flush, 3));
    let now = rig.store.next_wake().unwrap();
    rig.store.try_held(now, &mut rig.tables);
    let tried = dispatch(&mut rig, now);
    assert_eq!(cookies(&rig, &tried), [1]);
    end(&mut rig, now, tried[0], Ok(()));
    let flush = dispatch(&mut rig, now);
    assert_eq!(cookies(&rig, &flush), [3]);
    assert_eq!(end(&mut rig, now, flush[0], EIO), Verdict::Answered);
}

#[test]
fn a_policy_that_holds_no_more_fails_what_is_held() {
    let mut rig = rig();
    let (disk, port) = add(&mut rig, ALL, None);
    for cookie in 0..3 {
        rig.arrive(Nanos::ZERO, port, request(WRITE, cookie));
    }
    let sent = dispatch(&mut rig, Nanos::ZERO);
    let (first, rest) = sent.split_first().unwrap();
    end(&mut rig, Nanos::ZERO, *first, EIO);
    end(&mut rig, Nanos::ZERO, rest[0], NO_SPACE);
    rig.arrive(Nanos::ZERO, port, request(Op::Read, 3));
    let set = |rig: &mut Rig, policy| {
        rig.store.set_trouble(Nanos::ZERO, &mut rig.tables, disk, policy).unwrap();
        answered(rig, Nanos::ZERO)
    };
    assert_eq!(set(&mut rig, FULL), [(0, EIO)]);
    assert!(dispatch(&mut rig, Nanos::ZERO).is_empty(), "want of space is held still");
    assert_eq!(set(&mut rig, TroublePolicy::default()), [(1, NO_SPACE)]);
    let read = dispatch(&mut rig, Nanos::ZERO);
    assert_eq!(cookies(&rig, &read), [3]);
}

/// A port that ends waits for nothing that is held; one that has answered a later request cannot
/// take an earlier one back.
#[test]
fn what_is_held_is_taken_back_or_given_up() {
    let mut rig = rig();
    let (disk, port) = add(&mut rig, FULL, None);
    for cookie in 0..3 {
        rig.arrive(Nanos::ZERO, port, request(WRITE, cookie));
    }
    let sent = dispatch(&mut rig, Nanos::ZERO);
    end(&mut rig, Nanos::ZERO, sent[0], NO_SPACE);
    end(&mut rig, Nanos::ZERO, sent[1], Ok(()));
    end(&mut rig, Nanos::ZERO, sent[2], NO_SPACE);
    rig.arrive(Nanos::ZERO, port, request(WRITE, 3));
    assert_eq!(rig.store.held_of(&rig.tables, port), 3);
    let taken = rig.store.take_back(Nanos::ZERO, &mut rig.tables, port, &[3, 2]);
    assert_eq!((taken, rig.store.held_of(&rig.tables, port)), (2, 1));
    rig.store.give_up(Nanos::ZERO, &mut rig.tables, port, &[0, 7]);
    assert_eq!(answered(&mut rig, Nanos::ZERO), [(0, NO_SPACE)]);
    assert!(rig.tables.disks[disk as usize].trouble.hold.is_none());
    assert_eq!(rig.tables.ports[port as usize].requests, 0);
}

/// A write that is held will be done, so a part of its block is not changed before it. What waits
/// for that change waits for the storage too.
#[test]
fn a_block_is_nobodys_while_a_write_to_it_is_held() {
    let mut rig = rig();
    let (disk, port) = add(&mut rig, FULL, None);
    let other = rig.add_port(disk);
    rig.tables.disks[disk as usize].ports = vec![port, other];
    rig.arrive(Nanos::ZERO, port, request(WRITE, 0));
    let sent = dispatch(&mut rig, Nanos::ZERO);
    end(&mut rig, Nanos::ZERO, sent[0], NO_SPACE);
    let Request { offset, len, .. } = request(WRITE, 0);
    rig.tables.disks[disk as usize].locks.ask(other, offset, len);
    rig.tables.grant_locks(disk, None);
    assert!(rig.tables.granted.is_empty(), "the write before it is held");
    rig.arrive(Nanos::ZERO, port, request(WRITE, 1));
    assert_eq!(rig.store.held_of(&rig.tables, port), 2);
    rig.store.give_up(Nanos::ZERO, &mut rig.tables, port, &[1]);
    assert_eq!(answered(&mut rig, Nanos::ZERO), [(1, NO_SPACE)]);
    assert!(rig.store.hurry(Nanos::ZERO, &mut rig.tables, disk));
    let tried = dispatch(&mut rig, Nanos::ZERO);
    assert_eq!(end(&mut rig, Nanos::ZERO, tried[0], Ok(())), Verdict::Answered);
    assert_eq!(rig.tables.granted, [other]);
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(usize, Op),
    Dispatch,
    Complete(usize, Result<(), IoError>),
    Try,
    Hurry,
    Set(TroublePolicy),
    /// What can go back into the ring does, from the newest on; what is held of the rest ends.
    Stop(usize),
    HangUp(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let zeroes = Op::WriteZeroes {
        unmap: Unmap::May,
        speed: ZeroSpeed::Any,
        durability: Durability::Cached,
    };
    let op = prop::sample::select(vec![Op::Read, WRITE, WRITE, Op::Flush, Op::Discard, zeroes]);
    let result = prop::sample::select(vec![Ok(()), Ok(()), NO_SPACE, EIO]);
    let policy = prop::sample::select(vec![FULL, ALL, ALL, TroublePolicy::default()]);
    prop_oneof![
        10 => (0..2usize, op).prop_map(|(port, op)| Event::Arrive(port, op)),
        5 => Just(Event::Dispatch),
        8 => (any::<usize>(), result).prop_map(|(n, result)| Event::Complete(n, result)),
        4 => Just(Event::Try),
        1 => Just(Event::Hurry),
        1 => policy.prop_map(Event::Set),
        1 => (0..2usize).prop_map(Event::Stop),
        1 => (0..2usize).prop_map(Event::HangUp),
    ]
}

/// A disk with two ports, and what is at its storage.
struct World {
    rig: Rig,
    disk: u32,
    ports: [u32; 2],
    storage: Vec<u32>,
    /// Cookies of requests that have not left, by port.
    inside: [BTreeSet<u64>; 2],
    now: Nanos,
}

impl World {
    fn new() -> World {
        let mut rig = rig();
        let (disk, first) = add(&mut rig, ALL, None);
        rig.tables.disks[disk as usize].ranges = RangeQueue::one_at_a_time();
        let second = rig.add_port(disk);
        rig.tables.disks[disk as usize].ports = vec![first, second];
        World {
            rig,
            disk,
            ports: [first, second],
            storage: Vec::new(),
            inside: Default::default(),
            now: Nanos::ZERO,
        }
    }

    fn leave(&mut self, port: u32, cookie: u64) {
        let at = self.ports.iter().position(|p| *p == port).unwrap();
        assert!(self.inside[at].remove(&cookie), "{cookie} leaves twice");
    }

    fn take_answers(&mut self) {
        while let Some(key) = self.rig.tables.completed.pop() {
            let slot = &self.rig.tables.slots[key];
            let (port, cookie) = (slot.port, slot.request.cookie);
            assert!(slot.result.is_err(), "nobody served it");
            self.leave(port, cookie);
            assert_eq!(
                self.rig.store.judge(self.now, &mut self.rig.tables, key),
                Verdict::Answered
            );
            self.rig.complete(self.now, key);
        }
    }

    fn complete(&mut self, key: u32, result: Result<(), IoError>) {
        let slot = &self.rig.tables.slots[key];
        let (port, cookie, op) = (slot.port, slot.request.cookie, slot.request.op);
        match end(&mut self.rig, self.now, key, result) {
            Verdict::Answered => self.leave(port, cookie),
            Verdict::Held => assert!(result.is_err() && op != Op::Flush),
        }
    }

    /// Cookies of a port's requests that are at the storage.
    fn at_storage(&self, port: u32) -> BTreeSet<u64> {
        let slots = self.storage.iter().map(|key| &self.rig.tables.slots[*key]);
        slots.filter(|slot| slot.port == port).map(|slot| slot.request.cookie).collect()
    }

    fn step(&mut self, cookie: u64, event: Event) {
        self.now += Nanos::from_millis(100);
        let (now, rig) = (self.now, &mut self.rig);
        match event {
            Event::Arrive(port, op) => {
                rig.arrive(now, self.ports[port], request(op, cookie));
                self.inside[port].insert(cookie);
            }
            Event::Dispatch => self.storage.extend(dispatch(rig, now)),
            Event::Complete(which, result) if !self.storage.is_empty() => {
                let key = self.storage.swap_remove(which % self.storage.len());
                self.complete(key, result);
            }
            Event::Complete(..) => {}
            Event::Try => rig.store.try_held(now, &mut rig.tables),
            Event::Hurry => drop(rig.store.hurry(now, &mut rig.tables, self.disk)),
            Event::Set(policy) => {
                rig.store.set_trouble(now, &mut rig.tables, self.disk, policy).unwrap();
            }
            Event::Stop(at) => {
                let port = self.ports[at];
                let newest: Vec<u64> = self.inside[at].iter().rev().copied().collect();
                let rig = &mut self.rig;
                let count = rig.store.take_back(now, &mut rig.tables, port, &newest);
                newest[..count].iter().for_each(|cookie| self.leave(port, *cookie));
                let rig = &mut self.rig;
                rig.store.give_up(now, &mut rig.tables, port, &newest[count..]);
                self.take_answers();
                assert_eq!(self.rig.store.held_of(&self.rig.tables, port), 0);
            }
            Event::HangUp(at) => {
                let port = self.ports[at];
                rig.store.withdraw(now, &mut rig.tables, port, &mut |_| true);
                self.inside[at] = self.at_storage(port);
            }
        }
        self.take_answers();
        self.check();
    }

    fn check(&self) {
        let Rig { store, tables } = &self.rig;
        let disk = &tables.disks[self.disk as usize];
        for (port, inside) in self.ports.iter().zip(&self.inside) {
            assert_eq!(tables.ports[*port as usize].requests as usize, inside.len());
        }
        assert_eq!(store.gate.in_flight() as usize, self.storage.len());
        assert_eq!(disk.in_flight as usize, self.storage.len());
        assert!(self.storage.iter().all(|key| tables.slots[*key].stage == Stage::Dispatched));
        let held = self.ports.iter().map(|port| store.held_of(tables, *port)).sum::<usize>();
        if let Some(hold) = &disk.trouble.hold {
            assert!(!hold.is_over(), "it holds for nothing");
            assert_eq!(store.holding_disks(), [self.disk]);
            let queued = store.gate.queued();
            assert!(queued <= usize::from(hold.trying.is_some()), "only what is tried is sent");
        } else {
            assert!(held == 0 && store.holding_disks().is_empty());
            assert_eq!(store.holding.next_try(), None);
        }
        let inside: usize = self.inside.iter().map(BTreeSet::len).sum();
        let ranges = disk.ranges.waiting().count();
        let in_hold = if disk.trouble.hold.is_some() { held - ranges } else { 0 };
        assert_eq!(disk.stats.outstanding() as usize, inside - in_hold);
    }
}

proptest! {
    /// Whatever comes in whatever order: each request leaves once, nothing but the try of a disk
    /// that holds is sent, and when the trouble is over nothing is left behind.
    #[test]
    fn none_is_lost(events in prop::collection::vec(event(), 1..250)) {
        let mut world = World::new();
        for (cookie, event) in (0u64..).zip(events) {
            world.step(cookie, event);
        }
        let mut rounds = 0;
        while world.inside.iter().any(|inside| !inside.is_empty()) {
            world.step(0, Event::Dispatch);
            while !world.storage.is_empty() {
                world.step(0, Event::Complete(0, Ok(())));
            }
            world.now += Nanos::from_secs(20);
            world.step(0, Event::Try);
            rounds += 1;
            prop_assert!(rounds < 1_000, "{:?} wait for nothing", world.inside);
        }
        let tables = &world.rig.tables;
        prop_assert!(world.ports.iter().all(|port| tables.ports[*port as usize].queued == 0));
        prop_assert_eq!(tables.disks[world.disk as usize].queue_slots.queued(), 0);
        prop_assert_eq!(tables.disks[world.disk as usize].stats.outstanding(), 0);
    }
}
