//! Rings and ports that end while their disk holds requests.

use super::*;

impl Rig {
    /// The disk holds the requests of these sectors, from now on.
    fn hold(&mut self, sectors: &[u64]) {
        self.io.held = sectors.to_vec();
        self.io.dispatched.retain(|sector| !sectors.contains(sector));
        self.port.on_held(&mut self.io);
        self.turn();
        self.end_given_up();
    }

    /// The shard ends what was given up, a turn later.
    fn end_given_up(&mut self) {
        for sector in std::mem::take(&mut self.io.given_up) {
            self.complete_as(sector, Err(IoError::NoSpace));
        }
        self.turn();
    }
}

#[test]
fn a_ring_that_stops_takes_back_what_is_held() {
    let mut rig = Rig::started();
    (0..3).for_each(|_| rig.offer(0));
    rig.kick(0);
    rig.hold(&[0, 1, 2]);
    assert_eq!(rig.back(0), 0, "it waits");
    assert_eq!(rig.stop(0).try_recv(), Ok(0), "at once, and nothing was used");
    rig.start(0);
    assert_eq!(rig.submitted(), [0, 1, 2], "a front-end that goes on has them taken again");
}

#[test]
fn a_ring_that_stops_gives_up_what_is_held_before_an_answered_request() {
    let mut rig = Rig::started();
    (0..3).for_each(|_| rig.offer(0));
    rig.offer(1);
    rig.kick(0);
    rig.kick(1);
    rig.io.dispatched = vec![0, 1, 2];
    rig.complete(1);
    rig.hold(&[0, 2, 3]);
    let wait = rig.stop(0);
    rig.end_given_up();
    assert_eq!(wait.try_recv(), Ok(2), "the third goes back, the first cannot");
    assert_eq!(rig.back(0), 2);
    assert_eq!(rig.submitted(), [3], "the other ring's is held still");
}

#[test]
fn a_ring_that_is_stopping_does_not_wait_for_what_is_held_only_then() {
    let mut rig = Rig::started();
    (0..2).for_each(|_| rig.offer(0));
    rig.kick(0);
    rig.io.dispatched = vec![0, 1];
    let wait = rig.stop(0);
    assert_eq!(wait.try_recv(), Err(TryRecvError::Empty), "they are at the storage");
    rig.hold(&[0, 1]);
    assert_eq!(wait.try_recv(), Ok(0));
}

#[test]
fn a_port_that_drains_leaves_what_is_held_to_its_successor() {
    let mut rig = Rig::started();
    (0..2).for_each(|_| rig.offer(0));
    rig.kick(0);
    rig.io.dispatched = vec![0, 1];
    rig.io.held = vec![0];
    rig.port.on_detach(&mut rig.io, Detach::Drain);
    rig.turn();
    assert!(!rig.io.closed, "the other one is at the storage");
    rig.complete(1);
    assert!(rig.io.closed);
    assert_eq!(rig.back(0), 1);
    rig.crash();
    rig.io.held.clear();
    rig.start(0);
    assert_eq!(rig.submitted(), [0], "replayed");
}
