//! A ring that is polled instead of kicked, and answers that are kept back from a driver that is
//! being woken.

use super::*;
use headgate_engine::sole_client::TURNS;

/// A rig whose first queue has had the shard to itself for long.
fn polled() -> Rig {
    let mut rig = Rig::started();
    rig.io.poll_mode = PollMode::Held;
    (0..=TURNS).for_each(|_| rig.kick(0));
    rig
}

impl Rig {
    /// What the shard does while it busy-polls.
    fn poll(&mut self) -> PollResult {
        let result = self.port.poll();
        if result == PollResult::Ready {
            self.port.on_poll(&mut self.io);
            self.turn();
        }
        result
    }

    /// Serves all that is at the engine, in one turn.
    fn serve(&mut self) {
        self.submitted().into_iter().for_each(|sector| self.complete_as(sector, Ok(())));
        self.turn();
    }

    /// Offers so many requests, as a driver does that wants to be called for the first answer and
    /// looks for none itself.
    fn offer_and_sleep(&mut self, requests: usize) {
        (0..requests).for_each(|_| self.offer(0));
        self.guests[0].driver.enable_calls();
    }

    /// Half of the answers to eight requests was given, and half is kept back.
    fn with_four_kept_back() -> Rig {
        let mut rig = polled();
        rig.offer_and_sleep(8);
        rig.poll();
        signals(&rig.guests[0].call);
        rig.serve();
        assert_eq!((rig.back(0), signals(&rig.guests[0].call)), (4, 1));
        assert_eq!(rig.poll(), PollResult::Idle, "it sleeps");
        rig
    }
}

#[test]
fn a_polled_ring_needs_no_kick_until_polling_is_disarmed() {
    let mut rig = polled();
    assert_eq!(rig.poll(), PollResult::Idle);
    (0..3).for_each(|_| rig.offer(0));
    assert!(!rig.guests[0].driver.publish(), "nobody asked for a kick");
    assert_eq!(rig.poll(), PollResult::Ready);
    assert_eq!(rig.submitted(), [0, 1, 2]);
    rig.offer(0);
    assert_eq!(rig.port.disarm_poll(), PollResult::Ready, "what came meanwhile is found");
    rig.port.on_poll(&mut rig.io);
    rig.io.poll_mode = PollMode::Events;
    rig.turn();
    assert_eq!(rig.submitted(), [0, 1, 2, 3]);
    assert_eq!(rig.port.poll(), PollResult::Idle);
}

#[test]
fn two_busy_rings_are_kicked() {
    let mut rig = polled();
    assert!(rig.port.rings[0].as_ref().unwrap().polled);
    for _ in 0..=TURNS {
        rig.kick(1);
        rig.kick(0);
    }
    assert!(rig.port.rings.iter().flatten().all(|ring| !ring.polled));
}

#[test]
fn nothing_is_kept_back_unless_the_shard_asks_for_it() {
    let mut rig = polled();
    rig.io.poll_mode = PollMode::Polled;
    rig.kick(0);
    rig.offer_and_sleep(8);
    rig.poll();
    rig.serve();
    assert_eq!(rig.back(0), 8);
}

#[test]
fn what_is_kept_back_is_given_when_the_driver_offers() {
    let mut rig = Rig::with_four_kept_back();
    rig.offer(0);
    assert_eq!(rig.poll(), PollResult::Ready);
    assert_eq!((rig.back(0), rig.submitted().len()), (4, 1));
}

#[test]
fn a_driver_that_asks_to_be_called_is_called_and_left_alone() {
    let mut rig = Rig::with_four_kept_back();
    rig.guests[0].driver.enable_calls();
    assert_eq!(rig.poll(), PollResult::Ready);
    assert_eq!((rig.back(0), signals(&rig.guests[0].call)), (4, 1));
    rig.offer_and_sleep(8);
    rig.poll();
    rig.serve();
    assert_eq!(rig.back(0), 8);
}

#[test]
fn nothing_is_kept_back_for_good() {
    type End = fn(&mut Rig);
    let ends: [(&str, End); 5] = [
        ("the shard sleeps", |rig| _ = rig.port.disarm_poll()),
        ("a kick", |rig| rig.kick(0)),
        ("the ring stops", |rig| _ = rig.stop(0)),
        ("the disk is drained", |rig| {
            rig.port.on_detach(&mut rig.io, Detach::Drain);
            rig.turn();
        }),
        ("the disk goes", |rig| rig.port.on_detach(&mut rig.io, Detach::Now)),
    ];
    for (name, end) in ends {
        let mut rig = Rig::with_four_kept_back();
        end(&mut rig);
        assert_eq!(rig.back(0), 4, "{name}");
    }
}

#[test]
fn what_is_kept_back_when_the_process_dies_is_replayed() {
    let mut rig = Rig::with_four_kept_back();
    rig.crash();
    rig.io.poll_mode = PollMode::Events;
    rig.start(0);
    assert_eq!(rig.submitted(), [4, 5, 6, 7]);
    rig.serve();
    assert_eq!(rig.back(0), 4);
}
