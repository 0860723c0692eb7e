//! Blocks that a port changes a part of, among requests from everywhere.

use super::testing::Rig;
use crate::request::{Durability, Op, Request};
use headgate_qos::window::Slots as Window;
use headgate_qos::{Config, CostModel, Policy, PriorityPolicy, SchedulerKind};
use headgate_units::Nanos;
use proptest::prelude::*;

const BLOCK: u64 = 4096;

fn rig() -> (Rig, [u32; 3]) {
    let config = Config::for_hosts(CostModel::default());
    let mut rig = Rig::new(SchedulerKind::MClock, config, Window::whole(4), None);
    let disk = rig.add_disk(Nanos::ZERO, Policy::default(), PriorityPolicy::default());
    let ports = [(); 3].map(|()| rig.add_port(disk));
    (rig, ports)
}

fn write(block: u64, cookie: u64) -> Request {
    let op = Op::Write(Durability::Cached);
    Request { op, offset: block * BLOCK, len: BLOCK, cookie, ioprio: 0 }
}

fn lock(rig: &mut Rig, port: u32, block: u64) {
    let disk = rig.tables.ports[port as usize].disk;
    rig.tables.disks[disk as usize].locks.ask(port, block * BLOCK, BLOCK);
    rig.tables.grant_locks(disk, None);
}

fn unlock(rig: &mut Rig, now: Nanos, port: u32) {
    let disk = rig.tables.ports[port as usize].disk;
    for key in rig.tables.disks[disk as usize].locks.release(port) {
        rig.store.enqueue_held(now, &mut rig.tables, key);
    }
    rig.tables.grant_locks(disk, None);
}

fn dispatch(rig: &mut Rig, now: Nanos) -> Vec<u32> {
    std::iter::from_fn(|| rig.store.next(now, &mut rig.tables)).collect()
}

#[test]
fn a_block_is_given_after_the_writes_before_it_and_writes_after_it_wait() {
    let (mut rig, [one, two, _]) = rig();
    let now = Nanos::ZERO;
    let (before, _) = rig.arrive(now, two, write(7, 0));
    assert_eq!(dispatch(&mut rig, now), [before]);
    lock(&mut rig, one, 7);
    assert!(rig.tables.granted.is_empty(), "a write is at the storage");
    let (after, _) = rig.arrive(now, two, write(7, 1));
    let (aside, _) = rig.arrive(now, two, write(8, 2));
    assert_eq!(dispatch(&mut rig, now), [aside]);
    rig.complete(now, before);
    assert_eq!(rig.tables.granted, [one]);
    let (own, _) = rig.arrive(now, one, write(7, 3));
    assert_eq!(dispatch(&mut rig, now), [own], "its owner writes it back");
    rig.complete(now, own);
    unlock(&mut rig, now, one);
    assert_eq!(dispatch(&mut rig, now), [after]);
    rig.complete(now, after);
    rig.complete(now, aside);
}

#[test]
fn a_client_that_hangs_up_leaves_nothing_that_waits_for_its_block() {
    let (mut rig, [one, two, _]) = rig();
    let now = Nanos::ZERO;
    lock(&mut rig, one, 0);
    let (held, _) = rig.arrive(now, two, write(0, 0));
    rig.store.withdraw(now, &mut rig.tables, two, &mut |_| true);
    assert_eq!(rig.tables.ports[two as usize].requests, 0, "slot {held} is free");
    unlock(&mut rig, now, one);
    assert!(dispatch(&mut rig, now).is_empty());
    let disk = rig.tables.ports[one as usize].disk;
    assert!(rig.tables.disks[disk as usize].locks.is_unused());
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Write {
        port: usize,
        block: u64,
    },
    Lock {
        port: usize,
        block: u64,
    },
    /// The owner of a block writes it back and gives it up, once that is done.
    WriteBack {
        port: usize,
    },
    Complete(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let (port, block) = (0..3usize, 0..3u64);
    prop_oneof![
        4 => (port.clone(), block.clone()).prop_map(|(port, block)| Event::Write { port, block }),
        2 => (port.clone(), block).prop_map(|(port, block)| Event::Lock { port, block }),
        2 => port.prop_map(|port| Event::WriteBack { port }),
        4 => any::<usize>().prop_map(Event::Complete),
    ]
}

proptest! {
    /// Whatever happens: nobody else's write is at the storage while a port has the block, no
    /// block is two ports' own, and everything ends.
    #[test]
    fn a_block_is_one_ports_and_nothing_waits_for_ever(
        events in prop::collection::vec(event(), 1..150),
    ) {
        let (mut rig, ports) = rig();
        let (mut now, mut storage) = (Nanos::ZERO, Vec::new());
        // What each port has asked for, whether it has it, and the write that gives it back.
        let mut asked: [Option<(u64, bool, Option<u64>)>; 3] = [None; 3];
        let mut cookie = 0;
        let end = (0..2_000).map(|n| match n % 2 {
            0 => Event::Complete(0),
            _ => Event::WriteBack { port: n / 2 % 3 },
        });
        for event in events.into_iter().chain(end) {
            now += Nanos::from_millis(1);
            cookie += 1;
            match event {
                Event::Write { port, block } if asked[port].is_none() => {
                    rig.arrive(now, ports[port], write(block, cookie));
                }
                Event::Lock { port, block } if asked[port].is_none() => {
                    asked[port] = Some((block, false, None));
                    lock(&mut rig, ports[port], block);
                }
                Event::WriteBack { port } => {
                    if let Some((block, true, back @ None)) = &mut asked[port] {
                        *back = Some(cookie);
                        rig.arrive(now, ports[port], write(*block, cookie));
                    }
                }
                Event::Complete(which) if !storage.is_empty() => {
                    let key: u32 = storage.swap_remove(which % storage.len());
                    let done = rig.tables.slots[key].request.cookie;
                    rig.complete(now, key);
                    for port in 0..3 {
                        if asked[port].is_some_and(|(_, _, back)| back == Some(done)) {
                            asked[port] = None;
                            unlock(&mut rig, now, ports[port]);
                        }
                    }
                }
                _ => {}
            }
            for port in std::mem::take(&mut rig.tables.granted) {
                let port = ports.iter().position(|one| *one == port).unwrap();
                let (block, has, _) = asked[port].as_mut().unwrap();
                prop_assert!(!std::mem::replace(has, true), "told twice");
                let block = *block;
                let twice = asked.iter().flatten().filter(|(b, has, _)| *b == block && *has);
                prop_assert_eq!(twice.count(), 1);
            }
            storage.extend(dispatch(&mut rig, now));
            for &key in &storage {
                let slot = &rig.tables.slots[key];
                for port in 0..3 {
                    if let Some((block, true, _)) = asked[port]
                        && slot.port != ports[port]
                    {
                        prop_assert_ne!(slot.request.offset, block * BLOCK);
                    }
                }
            }
        }
        prop_assert!(asked.iter().all(Option::is_none), "{asked:?} wait for ever");
        prop_assert!(storage.is_empty());
        prop_assert!(ports.iter().all(|port| rig.tables.ports[*port as usize].requests == 0));
    }
}
