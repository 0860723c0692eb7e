//! Who must be woken, and when.

use super::*;

const FLAGS: QueueFeatures =
    QueueFeatures { event_index: EventIndex::Off, indirect: IndirectTables::Allowed };

#[test]
fn the_first_decision_always_calls() {
    let mut rig = Rig::new(8, ALL);
    assert!(rig.device.needs_call(), "a predecessor may have died before its call");
    assert!(!rig.device.needs_call());
}

#[test]
fn a_driver_that_waits_for_the_third_request_is_called_at_the_third() {
    let mut rig = Rig::new(16, ALL);
    rig.device.needs_call();
    for at in [0x8000, 0x9000, 0xa000] {
        rig.offer_read(0, at);
    }
    // Wants a call when index 2 is passed, that is at the third element.
    let areas = crate::layout::Areas::new(&rig.memory, &rig.layout).unwrap();
    areas.set_used_event(2);
    let mut calls = Vec::new();
    for _ in 0..3 {
        let Some(Fetched::Request(request)) = rig.device.next_request(&mut rig.scratch).unwrap()
        else {
            panic!()
        };
        rig.device.complete(request.completion, Status::Ok, 512);
        rig.device.publish();
        calls.push(rig.device.needs_call());
    }
    assert_eq!(calls, [false, false, true]);
}

#[test]
fn flags_rule_without_event_index() {
    let mut rig = Rig::new(8, FLAGS);
    rig.device.needs_call();
    rig.driver.disable_calls();
    rig.offer_read(0, 0x8000);
    assert_eq!(rig.serve_all(), 1);
    assert!(!rig.device.needs_call());
    rig.driver.enable_calls();
    rig.offer_read(0, 0x9000);
    assert_eq!(rig.serve_all(), 1);
    assert!(rig.device.needs_call());
}

#[test]
fn kicks_stop_while_disabled_and_none_is_lost_when_enabled() {
    for features in [ALL, FLAGS] {
        let mut rig = Rig::new(64, features);
        assert_eq!(rig.device.enable_kicks(), Kicks::Armed);
        let publish = |rig: &mut Rig, at: u64| {
            let header = rig.header(at, 0, 0);
            rig.driver
                .add(&[header, writable(at + 512, 512), writable(at + 1024, 1)], Placement::Direct)
                .unwrap();
            rig.driver.publish()
        };
        assert!(publish(&mut rig, 0x8000), "armed: the driver kicks");
        rig.device.disable_kicks();
        assert!(!publish(&mut rig, 0x9000), "{features:?}: kicks are off");
        assert_eq!(rig.serve_all(), 2);
        assert!(!publish(&mut rig, 0xa000));
        assert_eq!(rig.device.enable_kicks(), Kicks::MissedSome);
        assert_eq!(rig.serve_all(), 1);
        assert_eq!(rig.device.enable_kicks(), Kicks::Armed);
        assert!(publish(&mut rig, 0xb000));
    }
}

#[test]
fn a_driver_that_polls_is_not_called() {
    let mut rig = Rig::new(8, ALL);
    rig.device.needs_call();
    let mut calls = 0;
    for round in 0..1000u64 {
        rig.driver.disable_calls();
        rig.offer_read(round, 0x8000);
        assert_eq!(rig.serve_all(), 1);
        calls += u32::from(rig.device.needs_call());
        assert!(rig.driver.poll_used().unwrap().is_some());
    }
    assert_eq!(calls, 0);
}

#[test]
fn indices_wrap_after_65536_requests() {
    let mut rig = Rig::new(8, ALL);
    for round in 0..70_000u64 {
        let kick = {
            let header = rig.header(0x8000, 0, round);
            rig.driver
                .add(&[header, writable(0x8200, 512), writable(0x8400, 1)], Placement::Direct)
                .unwrap();
            rig.driver.publish()
        };
        assert!(kick || round == 0, "round {round}");
        assert_eq!(rig.serve_all(), 1);
        assert_eq!(rig.device.enable_kicks(), Kicks::Armed);
        assert_eq!(rig.driver.poll_used().unwrap().unwrap().written, 1);
        rig.driver.enable_calls();
        if cfg!(miri) && round == 50 {
            break;
        }
    }
}
