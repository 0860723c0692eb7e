//! A port that goes to another shard.

use super::*;
use headgate_engine::port::Rest;
use headgate_engine::sole_client::TURNS;

impl Rig {
    /// The port is on another shard, where nothing of it is polled yet.
    fn arrive(&mut self) {
        assert!(self.io.submitted.is_empty());
        (self.io.polled, self.io.cancelled, self.io.room) = (vec![], vec![], 100);
        self.port.on_arrive(&mut self.io);
        self.turn();
    }
}

#[test]
fn what_is_at_the_disk_is_waited_for_and_the_rest_stays_in_the_rings() {
    let mut rig = Rig::started();
    rig.offer(0);
    rig.kick(0);
    assert_eq!(rig.port.come_to_rest(&mut rig.io), Rest::Busy);
    let keys = [RECALL_KEY, rig.guests[0].key, rig.guests[1].key];
    assert_eq!(rig.io.cancelled, keys);
    rig.offer(0);
    rig.offer(1);
    rig.kick(0);
    for key in keys {
        rig.port.on_event(&mut rig.io, PortEvent { key, result: -libc::ECANCELED, more: false });
    }
    let polls = rig.io.polled.len();
    rig.port.on_event(&mut rig.io, PortEvent { key: keys[1], result: 1, more: false });
    rig.turn();
    assert_eq!((rig.submitted(), rig.io.polled.len()), (vec![0], polls));
    rig.complete(0);
    assert_eq!(rig.port.come_to_rest(&mut rig.io), Rest::Ready);
    assert_eq!(rig.back(0), 1);
    rig.arrive();
    assert_eq!(rig.io.polled, keys);
    assert_eq!(rig.submitted(), [1, 2], "no kick tells of them");
    // A kick is heard again.
    rig.offer(1);
    rig.kick(1);
    assert_eq!(rig.submitted(), [1, 2, 3]);
}

#[test]
fn a_ring_that_waits_for_room_waits_on_until_the_port_has_arrived() {
    let mut rig = Rig::started();
    rig.io.room = 0;
    rig.offer(0);
    rig.kick(0);
    assert_eq!(rig.port.come_to_rest(&mut rig.io), Rest::Ready);
    rig.io.room = 9;
    rig.port.on_room(&mut rig.io);
    rig.turn();
    assert!(rig.submitted().is_empty());
    rig.arrive();
    assert_eq!(rig.submitted(), [0]);
}

#[test]
fn answers_that_were_kept_back_are_given_and_the_ring_is_not_polled_any_more() {
    let mut rig = Rig::started();
    rig.io.poll_mode = PollMode::Held;
    (0..=TURNS).for_each(|_| rig.kick(0));
    (0..8).for_each(|_| rig.offer(0));
    rig.guests[0].driver.enable_calls();
    rig.port.on_poll(&mut rig.io);
    rig.turn();
    rig.submitted().into_iter().for_each(|sector| rig.complete_as(sector, Ok(())));
    rig.turn();
    assert_eq!(rig.back(0), 4, "half of them wait");
    assert_eq!(rig.port.come_to_rest(&mut rig.io), Rest::Ready);
    assert_eq!(rig.back(0), 4);
    rig.io.poll_mode = PollMode::Events;
    rig.arrive();
    rig.add(0);
    assert_eq!(rig.port.poll(), PollResult::Idle);
    assert!(rig.guests[0].driver.publish(), "a kick is wanted");
}

#[test]
fn a_ring_that_starts_meanwhile_comes_to_rest_too() {
    let mut rig = Rig::new();
    assert_eq!(rig.port.come_to_rest(&mut rig.io), Rest::Ready);
    rig.offer(0);
    rig.start(0);
    let key = rig.guests[0].key;
    assert!(rig.submitted().is_empty() && rig.io.polled.contains(&key));
    rig.port.come_to_rest(&mut rig.io);
    assert!(rig.io.cancelled.contains(&key));
    rig.arrive();
    assert_eq!(rig.submitted(), [0]);
}

#[test]
fn what_a_former_process_left_is_replayed_on_the_other_shard() {
    let mut rig = Rig::started();
    rig.offer(0);
    rig.kick(0);
    rig.crash();
    assert_eq!(rig.port.come_to_rest(&mut rig.io), Rest::Ready);
    rig.start(0);
    assert!(rig.submitted().is_empty());
    rig.port.come_to_rest(&mut rig.io);
    rig.arrive();
    assert_eq!(rig.submitted(), [0]);
}

#[test]
fn a_ring_that_stops_meanwhile_says_where_it_was() {
    let mut rig = Rig::started();
    rig.port.come_to_rest(&mut rig.io);
    rig.offer(0);
    assert_eq!(rig.stop(0).try_recv(), Ok(0));
    rig.arrive();
    assert!(rig.submitted().is_empty());
    rig.start(0);
    assert_eq!(rig.submitted(), [0]);
}

#[test]
fn a_port_that_drains_goes_nowhere() {
    let mut rig = Rig::started();
    rig.offer(0);
    rig.kick(0);
    rig.port.on_detach(&mut rig.io, Detach::Drain);
    assert_eq!(rig.port.come_to_rest(&mut rig.io), Rest::Busy);
    rig.complete(0);
    assert!(rig.io.closed);
}
