//! Requests that free or zero ranges of a file: one of a disk's at a time, and none is lost.

use super::testing::Rig;
use crate::request::{Durability, Op, Request, Unmap, ZeroSpeed};
use crate::tables::range_queue::RangeQueue;
use crate::tables::slots::{Stage, Zeroing};
use headgate_qos::window::Slots as Window;
use headgate_qos::{Config, CostModel, Policy, PriorityPolicy, SchedulerKind};
use headgate_units::{Iops, Nanos};
use proptest::prelude::*;
use std::collections::BTreeSet;

const DEPTH: u32 = 16;
const ZEROES: Op =
    Op::WriteZeroes { unmap: Unmap::May, speed: ZeroSpeed::Any, durability: Durability::Cached };

fn rig() -> Rig {
    let config = Config::for_hosts(CostModel::default());
    Rig::new(SchedulerKind::MClock, config, Window::whole(DEPTH), None)
}

/// A disk on a file, and a port of it.
fn add_file(rig: &mut Rig, policy: Policy) -> u32 {
    let disk = rig.add_disk(Nanos::ZERO, policy, PriorityPolicy::default());
    rig.tables.disks[disk as usize].ranges = RangeQueue::one_at_a_time();
    rig.add_port(disk)
}

fn request(op: Op, cookie: u64) -> Request {
    let len = if op == Op::Flush { 0 } else { 1 << 20 };
    Request { op, offset: 0, len, cookie, ioprio: 0 }
}

/// All that may go to the storage now.
fn dispatch(rig: &mut Rig, now: Nanos) -> Vec<u32> {
    std::iter::from_fn(|| rig.store.next(now, &mut rig.tables)).collect()
}

/// The window is the neighbour's, but for one place, for as long as discards take.
#[test]
fn discards_that_do_not_end_leave_the_window_to_others() {
    let mut rig = rig();
    let slow = add_file(&mut rig, Policy::default());
    let promised = Policy::default().with_reservation(Some(Iops::new(1_000).unwrap())).unwrap();
    let neighbour = add_file(&mut rig, promised);
    for cookie in 0..40 {
        rig.arrive(Nanos::ZERO, slow, request(Op::Discard, cookie));
    }
    let began = dispatch(&mut rig, Nanos::ZERO);
    assert_eq!(began.len(), 1);
    for cookie in 0..40 {
        rig.arrive(Nanos::ZERO, neighbour, request(Op::Read, cookie));
    }
    let mut reads = dispatch(&mut rig, Nanos::ZERO);
    assert_eq!(reads.len(), DEPTH as usize - 1);
    let mut served = 0;
    for ms in 1..=20 {
        served += reads.len();
        reads.drain(..).for_each(|key| rig.complete(Nanos::from_millis(ms), key));
        reads = dispatch(&mut rig, Nanos::from_millis(ms));
    }
    assert_eq!(served, 40);
    // The next goes when the first has ended, and in their order.
    rig.complete(Nanos::from_secs(1), began[0]);
    let next = dispatch(&mut rig, Nanos::from_secs(1));
    assert_eq!(
        next.iter().map(|key| rig.tables.slots[*key].request.cookie).collect::<Vec<_>>(),
        [1]
    );
}

/// Storage that takes many at a time is given them.
#[test]
fn other_storage_has_as_many_as_the_window_holds() {
    let mut rig = rig();
    let disk = rig.add_disk(Nanos::ZERO, Policy::default(), PriorityPolicy::default());
    let port = rig.add_port(disk);
    for cookie in 0..40 {
        rig.arrive(Nanos::ZERO, port, request(Op::Discard, cookie));
    }
    assert_eq!(dispatch(&mut rig, Nanos::ZERO).len(), DEPTH as usize);
}

/// Zeroes that are written are writes like others, as soon as that was seen.
#[test]
fn zeroes_that_are_written_do_not_wait_for_each_other() {
    let mut rig = rig();
    let port = add_file(&mut rig, Policy::default());
    rig.arrive(Nanos::ZERO, port, request(ZEROES, 0));
    let first = dispatch(&mut rig, Nanos::ZERO)[0];
    rig.tables.slots[first].zeroing = Zeroing::Written;
    rig.complete(Nanos::ZERO, first);
    for cookie in 1..4 {
        rig.arrive(Nanos::ZERO, port, request(ZEROES, cookie));
    }
    assert_eq!(dispatch(&mut rig, Nanos::ZERO).len(), 3);
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(Op),
    Dispatch,
    Complete(usize),
    /// What is queued goes back into the ring, from the newest on.
    Stop,
    HangUp,
}

fn event() -> impl Strategy<Value = Event> {
    let op = prop::sample::select(vec![
        Op::Read,
        Op::Flush,
        Op::Discard,
        Op::Discard,
        Op::Write(Durability::Cached),
        ZEROES,
    ]);
    prop_oneof![
        8 => op.prop_map(Event::Arrive),
        4 => Just(Event::Dispatch),
        4 => any::<usize>().prop_map(Event::Complete),
        1 => Just(Event::Stop),
        1 => Just(Event::HangUp),
    ]
}

proptest! {
    /// Whatever comes in whatever order: never two at the storage, each request leaves once, and
    /// at the end nothing is left behind.
    #[test]
    fn one_at_a_time_and_none_is_lost(events in prop::collection::vec(event(), 1..200)) {
        let mut rig = rig();
        let port = add_file(&mut rig, Policy::default());
        let (mut now, mut storage) = (Nanos::ZERO, Vec::new());
        let mut inside = BTreeSet::new();
        for (cookie, event) in (0u64..).zip(events) {
            now += Nanos::from_millis(1);
            match event {
                Event::Arrive(op) => {
                    rig.arrive(now, port, request(op, cookie));
                    inside.insert(cookie);
                }
                Event::Dispatch => storage.extend(dispatch(&mut rig, now)),
                Event::Complete(which) if !storage.is_empty() => {
                    let key: u32 = storage.swap_remove(which % storage.len());
                    prop_assert!(inside.remove(&rig.tables.slots[key].request.cookie));
                    rig.complete(now, key);
                }
                Event::Complete(_) => {}
                Event::Stop => {
                    let at_storage: BTreeSet<u64> =
                        storage.iter().map(|key| rig.tables.slots[*key].request.cookie).collect();
                    let newest: Vec<u64> = inside.iter().rev().filter(|c| !at_storage.contains(c)).copied().collect();
                    let count = rig.store.take_back(now, &mut rig.tables, port, &newest);
                    prop_assert_eq!(count, newest.len(), "all that nobody had begun to serve");
                    inside = at_storage;
                }
                Event::HangUp => {
                    rig.store.withdraw(now, &mut rig.tables, port, &mut |_| true);
                    inside = storage.iter().map(|key| rig.tables.slots[*key].request.cookie).collect();
                }
            }
            let is_range = |key: &&u32| {
                matches!(rig.tables.slots[**key].request.op, Op::Discard | Op::WriteZeroes { .. })
            };
            prop_assert!(storage.iter().filter(is_range).count() <= 1);
            prop_assert!(storage.iter().all(|key| rig.tables.slots[*key].stage == Stage::Dispatched));
            prop_assert_eq!(rig.tables.ports[port as usize].requests as usize, inside.len());
        }
        while !inside.is_empty() {
            now += Nanos::from_millis(1);
            storage.extend(dispatch(&mut rig, now));
            prop_assert!(!storage.is_empty(), "{} wait for nothing", inside.len());
            for key in storage.drain(..) {
                inside.remove(&rig.tables.slots[key].request.cookie);
                rig.complete(now, key);
            }
        }
        prop_assert_eq!(rig.tables.ports[port as usize].queued, 0);
    }
}
