//! The device's process dies between any two of its stores to shared memory. No request is lost,
//! none comes back twice.

use super::*;
use crate::memory::crash_point;
use proptest::prelude::*;

struct World {
    rig: Rig,
    region: Arc<HeapMapping>,
    taken: Vec<(u64, Completion)>,
    /// Per request number: was it served since the guest last saw nothing of it.
    served: Vec<bool>,
    /// Head to request number, for those the guest waits for.
    waiting: std::collections::HashMap<u16, u64>,
    next: u64,
    finished: u64,
}

/// A request's number is its sector.
fn number(operation: Operation) -> u64 {
    match operation {
        Operation::Read { offset, .. } => offset.0 / 512,
        _ => panic!("only reads are offered"),
    }
}

impl World {
    fn new(size: u16, used_before: u16) -> World {
        let mut rig = Rig::new(size, ALL);
        for _ in 0..used_before {
            rig.offer_read(0, 0x8000);
            rig.serve_all();
            rig.driver.poll_used().unwrap().unwrap();
        }
        let region = Arc::new(HeapMapping::new(InflightRegion::bytes(size)));
        let mut world = World {
            rig,
            region,
            taken: Vec::new(),
            served: Vec::new(),
            waiting: Default::default(),
            next: 0,
            finished: 0,
        };
        world.restart();
        world
    }

    /// A new process: nothing survives but shared memory.
    fn restart(&mut self) {
        self.taken.clear();
        let region = InflightRegion::new(self.region.clone(), 0, self.rig.layout.size).unwrap();
        // The base that a front-end falls back to after a crash is wrong on purpose: it must not
        // matter.
        self.rig.device = DeviceQueue::start(
            Arc::clone(&self.rig.memory),
            &self.rig.layout,
            self.rig.features,
            0xdead,
            Some(region),
        )
        .unwrap();
    }

    fn replay_all(&mut self) -> Vec<u64> {
        let mut replayed = Vec::new();
        while let Some(Fetched::Request(request)) =
            self.rig.device.next_replay(&mut self.rig.scratch).unwrap()
        {
            let n = number(request.operation);
            replayed.push(n);
            self.taken.push((n, request.completion));
        }
        replayed
    }

    fn offer(&mut self) {
        let n = self.next;
        // A place of its own for each header in flight: there are far fewer than this.
        let at = 0x8000 + (n % 4096) * 0x20;
        let header = self.rig.header(at, RequestType::In as u32, n);
        let chain = [header, writable(HIGH, 512), writable(at + 0x10, 1)];
        let Ok(head) = self.rig.driver.add(&chain, Placement::Direct) else { return };
        self.rig.driver.publish();
        assert!(self.waiting.insert(head, n).is_none());
        self.served.push(false);
        self.next += 1;
    }

    fn take(&mut self) {
        if let Some(Fetched::Request(request)) =
            self.rig.device.next_request(&mut self.rig.scratch).unwrap()
        {
            self.taken.push((number(request.operation), request.completion));
        }
    }

    fn complete(&mut self, which: usize) {
        if self.taken.is_empty() {
            return;
        }
        let which = which % self.taken.len();
        let (n, completion) = self.taken.swap_remove(which);
        self.served[n as usize] = true;
        self.rig.device.complete(completion, Status::Ok, 512);
    }

    /// Puts up to `count` chains back, newest first, as far as the ring takes them.
    fn put_back(&mut self, count: usize) {
        for _ in 0..count {
            let next = self.rig.device.next_available();
            let last = |(_, c): &(u64, Completion)| c.position() == Some(next.wrapping_sub(1));
            let Some(which) = self.taken.iter().position(last) else { return };
            let (_, completion) = self.taken.swap_remove(which);
            self.rig.device.put_back(completion).expect("the newest is taken back");
        }
    }

    /// The guest looks at the used ring: `BadUsed` if anything came twice.
    fn poll(&mut self) {
        while let Some(used) = self.rig.driver.poll_used().unwrap() {
            let n = self.waiting.remove(&used.head).expect("given back once");
            assert!(self.served[n as usize], "request {n} came back unserved");
            self.finished += 1;
        }
    }

    fn finish(&mut self) {
        self.replay_all();
        loop {
            self.take();
            if self.taken.is_empty() {
                break;
            }
            while !self.taken.is_empty() {
                self.complete(0);
            }
            self.rig.device.publish();
        }
        self.poll();
        assert!(self.waiting.is_empty(), "lost: {:?}", self.waiting);
        assert_eq!(self.finished, self.next);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Offer,
    Take,
    Complete(usize),
    PutBack(usize),
    Publish,
    Poll,
    /// From here on, so many stores reach memory; then the process is dead.
    DieAfter(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Offer),
        6 => Just(Step::Take),
        6 => any::<usize>().prop_map(Step::Complete),
        2 => (1usize..20).prop_map(Step::PutBack),
        3 => Just(Step::Publish),
        3 => Just(Step::Poll),
        1 => (0u32..40).prop_map(Step::DieAfter),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 300 }))]

    #[test]
    fn death_between_any_two_stores_loses_nothing_and_repeats_nothing(
        steps in prop::collection::vec(step(), 1..300),
        used_before in 0u16..5,
        die_in_recovery in prop::option::of(0u32..8),
    ) {
        let mut world = World::new(64, used_before);
        let mut budget: Option<u32> = None;
        for step in steps {
            // Only the device's stores count.
            crash_point::set(budget);
            match step {
                Step::Take => world.take(),
                Step::Complete(which) => world.complete(which),
                Step::PutBack(count) => world.put_back(count),
                Step::Publish => world.rig.device.publish(),
                _ => {}
            }
            budget = crash_point::left();
            crash_point::set(None);
            match step {
                Step::Offer => world.offer(),
                Step::Poll => world.poll(),
                Step::DieAfter(stores) => budget = budget.or(Some(stores)),
                _ => {}
            }
            if budget == Some(0) {
                crash_point::set(die_in_recovery);
                world.restart();
                crash_point::set(None);
                if die_in_recovery.is_some() {
                    world.restart();
                }
                let replayed = world.replay_all();
                // Requests are taken in the order of their numbers, and replayed in that order.
                prop_assert!(replayed.is_sorted(), "{:?}", replayed);
                budget = None;
            }
        }
        crash_point::set(None);
        world.restart();
        world.finish();
    }
}

#[test]
fn nothing_is_cleared_when_nothing_completed_before_the_restart() {
    for used_before in [0, 1, 3] {
        let mut world = World::new(64, used_before);
        for _ in 0..4 {
            world.offer();
            world.take();
        }
        world.restart();
        assert_eq!(world.replay_all(), [0, 1, 2, 3]);
        world.restart();
        world.finish();
    }
}

#[test]
fn the_batch_is_counted_across_the_wrap_of_the_used_index() {
    let mut world = World::new(64, 0);
    let rounds: u32 = if cfg!(miri) { 20 } else { 65_536 - 3 };
    for _ in 0..rounds {
        let head = world.rig.offer_read(0, 0x8000);
        world.rig.serve_all();
        assert_eq!(world.rig.driver.poll_used().unwrap().unwrap().head, head);
    }
    for _ in 0..6 {
        world.offer();
        world.take();
    }
    // Five are given back out of order; death comes after the used index moved, before any mark is
    // gone.
    for which in [5, 0, 1, 2, 1] {
        world.complete(which);
    }
    crash_point::set(Some(1));
    world.rig.device.publish();
    crash_point::set(None);
    world.restart();
    world.poll();
    assert_eq!(world.finished, 5);
    let replayed = world.replay_all();
    assert_eq!(replayed.len(), 1, "{replayed:?}");
    world.finish();
}

/// A driver that resets writes its available ring anew: what was read of it before counts no more.
#[test]
fn what_was_put_back_is_read_anew() {
    let mut rig = Rig::new(16, ALL);
    let take = |rig: &mut Rig| match rig.device.next_request(&mut rig.scratch).unwrap() {
        Some(Fetched::Request(request)) => Some(request.completion),
        Some(other) => panic!("{other:?}"),
        None => None,
    };
    (0..2).for_each(|n| _ = rig.offer_read(n, 0x8000 + n * 0x1000));
    let [first, second] = [0, 1].map(|_| take(&mut rig).expect("two were offered"));
    rig.device.put_back(second).unwrap();
    rig.device.put_back(first).unwrap();
    rig.driver.raw().set_available_index(1);
    let only = take(&mut rig).expect("one is offered now");
    rig.device.complete(only, Status::Ok, 512);
    assert!(take(&mut rig).is_none(), "a chain that is offered no more was taken");
}

/// Without a region, the base is all that the next device knows.
#[test]
fn what_was_put_back_is_taken_again_from_the_base() {
    let mut rig = Rig::new(16, ALL);
    let take = |rig: &mut Rig| match rig.device.next_request(&mut rig.scratch).unwrap() {
        Some(Fetched::Request(request)) => request.completion,
        other => panic!("{other:?}"),
    };
    (0..5).for_each(|n| _ = rig.offer_read(n, 0x8000 + n * 0x1000));
    let mut taken: Vec<_> = (0..4).map(|_| take(&mut rig)).collect();
    assert_eq!(rig.device.enable_kicks(), Kicks::MissedSome);
    let heads: Vec<_> = taken.iter().map(Completion::head).collect();
    let oldest = taken.remove(0);
    let oldest = rig.device.put_back(oldest).expect_err("later ones are taken");
    while let Some(last) = taken.pop() {
        rig.device.put_back(last).unwrap();
    }
    assert_eq!((rig.device.next_available(), rig.device.in_flight()), (1, 1));
    rig.device.complete(oldest, Status::Ok, 512);
    rig.device.publish();
    let base = rig.device.next_available();
    rig.device = DeviceQueue::start(Arc::clone(&rig.memory), &rig.layout, ALL, base, None).unwrap();
    let again: Vec<_> = (0..3).map(|_| take(&mut rig)).collect();
    assert_eq!(again.iter().map(Completion::head).collect::<Vec<_>>(), heads[1..]);
    // The driver was told that it need not kick before what it had offered is passed.
    assert!(rig.device.has_new());
}

/// A driver that was told "kick me behind the fourth" kicks for its fifth, whatever was put back.
#[test]
fn the_driver_still_kicks_after_chains_were_put_back() {
    for event_index in [EventIndex::On, EventIndex::Off] {
        let features = QueueFeatures { event_index, indirect: IndirectTables::Allowed };
        let mut rig = Rig::new(16, features);
        (0..4).for_each(|n| _ = rig.offer_read(n, 0x8000 + n * 0x1000));
        let mut taken = Vec::new();
        while let Some(Fetched::Request(request)) =
            rig.device.next_request(&mut rig.scratch).unwrap()
        {
            taken.push(request.completion);
        }
        assert_eq!(rig.device.enable_kicks(), Kicks::Armed);
        while let Some(last) = taken.pop() {
            rig.device.put_back(last).unwrap();
        }
        let header = rig.header(0xd000, RequestType::In as u32, 4);
        rig.driver
            .add(&[header, writable(0xd200, 512), writable(0xd400, 1)], Placement::Direct)
            .unwrap();
        assert!(rig.driver.publish(), "{event_index:?}: no kick");
    }
}

#[test]
fn a_replay_is_not_put_back() {
    let mut world = World::new(64, 0);
    (0..3).for_each(|_| world.offer());
    (0..2).for_each(|_| world.take());
    // The second is done: the one in flight is not the one before the next to take.
    world.complete(1);
    world.rig.device.publish();
    world.restart();
    assert_eq!(world.replay_all(), [0]);
    let (n, replay) = world.taken.pop().unwrap();
    let replay = world.rig.device.put_back(replay).expect_err("nobody knows its position");
    world.taken.push((n, replay));
    world.finish();
}

#[test]
fn a_region_of_another_size_or_version_is_refused() {
    let rig = Rig::new(8, ALL);
    let mapping = Arc::new(HeapMapping::new(4096));
    let start = |size: u16, descriptors: u16| {
        let (layout, _) = QueueLayout::contiguous(GuestAddress(0), size).unwrap();
        let region = InflightRegion::new(mapping.clone(), 0, descriptors).unwrap();
        DeviceQueue::start(Arc::clone(&rig.memory), &layout, ALL, 0, Some(region)).err()
    };
    let inflight = |error| Some(StartError::Inflight(error));
    assert_eq!(start(8, 16), None, "a region may be larger than its queue");
    assert_eq!(start(16, 8), inflight(InflightError::Size { region: 8, expected: 16 }));
    assert_eq!(start(8, 8), inflight(InflightError::Size { region: 16, expected: 8 }));
    let area = crate::memory::SharedArea::new(mapping.clone(), 0, 1024, 8).unwrap();
    area.store_u8(16 + 16 * 9, 1);
    assert_eq!(start(8, 16), inflight(InflightError::Head { head: 9, queue: 8 }));
    area.store_u16(8, 2);
    assert_eq!(start(8, 16), inflight(InflightError::Version(2)));
    assert!(InflightRegion::new(mapping.clone(), 4096 - 64, 8).is_err(), "does not fit");
}
