use super::*;
use crate::any::SchedulerKind;
use crate::config::Config;
use crate::cost::CostModel;
use crate::window::{Fraction, Smoothing};
use headgate_units::Iops;
use proptest::prelude::*;

const MS: Nanos = Nanos(1_000_000);

fn gate(kind: SchedulerKind, window: Slots) -> (Gate<u32>, DiskId) {
    let config = Config { cost_model: CostModel::Unit, ..Config::default() };
    let scheduler = AnyScheduler::new(kind, config).unwrap();
    let mut gate = Gate::new(Nanos::ZERO, scheduler, window);
    let disk = gate.register(Nanos::ZERO, Policy::default());
    (gate, disk)
}

fn io() -> Io {
    Io { bytes: Bytes(4096), ..Io::default() }
}

fn request(next: Decision<u32>) -> u32 {
    match next {
        Decision::Dispatch(dispatched) => dispatched.request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_go_while_the_window_has_room() {
    let (mut gate, disk) = gate(SchedulerKind::Fifo, Slots::whole(2));
    assert!(!gate.is_due(Nanos::ZERO));
    for key in 0..3 {
        gate.enqueue(Nanos::ZERO, disk, io(), key).unwrap();
    }
    assert_eq!(request(gate.next(Nanos::ZERO)), 0);
    assert!(gate.is_due(Nanos::ZERO), "it was not asked to the end");
    assert_eq!(request(gate.next(Nanos::ZERO)), 1);
    assert_eq!(gate.next(Nanos::ZERO), Decision::Idle);
    assert!(!gate.is_due(Nanos(u64::MAX)));
    assert_eq!((gate.in_flight(), gate.queued(), gate.next_wake()), (2, 1, None));
    gate.complete(MS, disk, Cost::ONE);
    assert!(gate.is_due(MS));
    assert_eq!(request(gate.next(MS)), 2);
}

#[test]
fn a_limit_wakes_the_gate_when_it_is_over() {
    let (mut gate, disk) = gate(SchedulerKind::MClock, Slots::whole(32));
    let limit = Policy::default().with_limit(Some(Iops::new(100).unwrap())).unwrap();
    gate.set_policy(Nanos::ZERO, disk, limit).unwrap();
    for key in 0..2 {
        gate.enqueue(Nanos::ZERO, disk, io(), key).unwrap();
    }
    assert_eq!(request(gate.next(Nanos::ZERO)), 0);
    let Decision::WaitUntil(at) = gate.next(Nanos::ZERO) else { panic!("no wait") };
    assert_eq!((at, gate.next_wake()), (Nanos::from_millis(10), Some(at)));
    assert!(!gate.is_due(at - Nanos(1)));
    assert!(gate.is_due(at));
    assert_eq!(request(gate.next(at)), 1);
    assert_eq!((gate.next(at), gate.next_wake()), (Decision::Idle, None));
}

#[test]
fn a_fractional_window_wakes_the_gate_only_while_something_is_queued() {
    let (mut gate, disk) = gate(SchedulerKind::Fifo, Slots::from_millionths(500_000));
    gate.enqueue(Nanos::ZERO, disk, io(), 0).unwrap();
    assert_eq!(request(gate.next(Nanos::ZERO)), 0);
    assert_eq!(gate.next(Nanos::ZERO), Decision::Idle);
    gate.complete(MS, disk, Cost::ONE);
    // The next may go at 2 ms, but there is none.
    assert_eq!((gate.next(MS), gate.next_wake()), (Decision::Idle, None));
    gate.enqueue(MS, disk, io(), 1).unwrap();
    assert!(gate.is_due(MS));
    assert_eq!(gate.next(MS), Decision::WaitUntil(Nanos::from_millis(2)));
    assert_eq!(request(gate.next(Nanos::from_millis(2))), 1);
}

#[test]
fn a_disk_that_left_gives_its_slot_back() {
    let (mut gate, disk) = gate(SchedulerKind::MClock, Slots::ONE);
    gate.enqueue(Nanos::ZERO, disk, io(), 0).unwrap();
    assert_eq!(request(gate.next(Nanos::ZERO)), 0);
    assert!(gate.unregister(Nanos::ZERO, disk).unwrap().is_empty());
    let other = gate.register(Nanos::ZERO, Policy::default());
    gate.enqueue(Nanos::ZERO, other, io(), 1).unwrap();
    assert_eq!(gate.next(Nanos::ZERO), Decision::Idle);
    gate.complete(MS, disk, Cost::ONE);
    assert_eq!(request(gate.next(MS)), 1);
}

#[test]
fn latencies_are_measured_where_somebody_asks() {
    let (mut gate, disk) = gate(SchedulerKind::Fifo, Slots::ONE);
    gate.measure(MS, disk, Took { device: MS, ..Took::default() }, Bytes(4096));
    assert_eq!(gate.take_latency(), None);
    let smoothing = Smoothing::PerPeriod { past: Fraction::percent(0) };
    gate.set_meter(MS, Some(LatencyMeter::new(CostModel::Unit, smoothing).unwrap()));
    gate.measure(MS, disk, Took { device: MS, ..Took::default() }, Bytes(4096));
    assert_eq!(gate.take_latency(), Some(Observation { latency: MS, ios: 1, work: 1_000_000 }));
}

proptest! {
    /// A whole window is a counter: the pacer never asks for a timer and never holds a request
    /// back that a counter would let go, however the window changed before.
    #[test]
    fn a_whole_window_is_a_counter(
        steps in prop::collection::vec((0u64..5_000_000, 0u32..4, 1u32..6), 1..200)
    ) {
        let (mut gate, disk) = gate(SchedulerKind::Fifo, Slots::whole(3));
        let (mut now, mut size, mut in_flight, mut queued) = (Nanos::ZERO, 3, 0, 0u32);
        for (passed, event, depth) in steps {
            now += Nanos(passed);
            match event {
                0 if in_flight > 0 => {
                    gate.complete(now, disk, Cost::ONE);
                    in_flight -= 1;
                }
                1 => {
                    gate.set_window(now, Slots::whole(depth));
                    size = depth;
                }
                _ => {
                    gate.enqueue(now, disk, io(), 0).unwrap();
                    queued += 1;
                }
            }
            while let Decision::Dispatch(_) = gate.next(now) {
                in_flight += 1;
                queued -= 1;
            }
            prop_assert_eq!(gate.next_wake(), None);
            prop_assert_eq!(gate.in_flight(), in_flight);
            prop_assert!(queued == 0 || in_flight >= size);
        }
    }
}

/// Two disks of a group that its limit holds back wait for that limit, whichever of them was served
/// last, and not for each other.
#[test]
fn a_group_that_its_limit_holds_back_is_the_limit_of_all_its_disks() {
    use crate::mclock::grouped::{Group, GroupId, Groups};
    let (mut gate, a) = gate(SchedulerKind::MClock, Slots::ONE);
    let b = gate.register(Nanos::ZERO, Policy::default());
    let limited = Policy::default().with_limit(Iops::new(100).ok()).unwrap();
    let group = Group { id: GroupId(7), parent: None, policy: limited };
    let members = vec![(a, GroupId(7)), (b, GroupId(7))];
    gate.set_groups(Nanos::ZERO, &Groups { groups: vec![group], members }).unwrap();
    for disk in [a, b] {
        (0..5).for_each(|key| gate.enqueue(Nanos::ZERO, disk, io(), key).unwrap());
    }
    let mut flying = None;
    for ms in 0..2_000 {
        let now = Nanos::from_millis(ms);
        if let Some(disk) = flying.take() {
            gate.complete(now, disk, Cost::ONE);
            gate.enqueue(now, disk, io(), 0).unwrap();
        }
        if let Decision::Dispatch(next) = gate.next(now) {
            flying = Some(next.disk);
            assert!(!matches!(gate.next(now), Decision::Dispatch(_)));
        }
    }
    let now = Nanos::from_millis(2_000);
    for disk in [a, b] {
        let times = gate.wait_times(now, disk).unwrap();
        let named = times.named.len() as u128;
        let all = times.device + times.limit + times.own + times.window + times.neighbours;
        // The device is busy for one of ten milliseconds.
        assert!(times.limit * 100 > all * 85, "{named} named, {times:?}");
        assert!(times.neighbours * 100 < all * 10, "{times:?}");
    }
    // Without the group nothing holds them back.
    gate.set_groups(now, &Groups::default()).unwrap();
    let before = gate.wait_times(now, a).unwrap().limit;
    assert_eq!(gate.wait_times(now + MS, a).unwrap().limit, before);
}
