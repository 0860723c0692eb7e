//! What a client tells servers of each other, against a list of everything that happened.

use headgate_qos::dmclock::{Served, Ticket, Tracker};
use headgate_qos::{Cost, Phase, ServedElsewhere};
use headgate_units::{Bytes, Nanos};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MINUTE: Nanos = Nanos::from_secs(60);

fn one(phase: Phase) -> Served {
    Served::one(phase, Cost::ONE, Bytes(4_096))
}

fn ios(elsewhere: ServedElsewhere) -> (u64, u64) {
    let whole = |cost: Cost| cost.as_millionths() / Cost::ONE.as_millionths();
    (whole(elsewhere.delta()), whole(elsewhere.rho()))
}

/// Sends and drops the ticket: nothing will ever be known of it.
fn ask(tracker: &mut Tracker<usize>, now: Nanos, server: usize) -> (u64, u64) {
    ios(tracker.send(now, server).1)
}

/// Sends and completes at once.
fn serve(tracker: &mut Tracker<usize>, now: Nanos, server: usize, phase: Phase) -> (u64, u64) {
    let (ticket, elsewhere) = tracker.send(now, server);
    tracker.complete(ticket, one(phase));
    ios(elsewhere)
}

proptest! {
    /// The paper, section 3.3: with one request per server in flight, each other server is at most
    /// one request ahead of what is told.
    #[test]
    fn with_one_in_flight_per_server_delta_and_rho_are_off_by_at_most_one_per_other_server(
        servers in 1usize..=8,
        choices in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..400),
    ) {
        enum At { Idle, Asked, Served(Served) }
        let mut tracker = Tracker::new();
        let mut tickets: Vec<Option<Ticket<usize>>> = (0..servers).map(|_| None).collect();
        let mut at: Vec<At> = (0..servers).map(|_| At::Idle).collect();
        // Served by each server so far, and by its fellows when it was last asked; all and by
        // reservation.
        let mut served = vec![[0i64; 2]; servers];
        let mut before: Vec<Option<[i64; 2]>> = vec![None; servers];
        for (index, by_reservation) in choices {
            let server = index.index(servers);
            match at[server] {
                At::Idle => {
                    let (ticket, elsewhere) = tracker.send(Nanos(0), server);
                    tickets[server] = Some(ticket);
                    at[server] = At::Asked;
                    let mut others = [0i64; 2];
                    for (other, [all, reserved]) in served.iter().enumerate() {
                        if other != server {
                            others[0] += all;
                            others[1] += reserved;
                        }
                    }
                    let (delta, rho) = ios(elsewhere);
                    if let Some(last) = before[server] {
                        for (sent, (now, last)) in [delta, rho].into_iter().zip(others.iter().zip(last)) {
                            let error = (sent as i64 - (now - last)).abs();
                            prop_assert!(error < servers as i64, "{} of {} servers", error, servers);
                        }
                    } else {
                        prop_assert_eq!((delta, rho), (0, 0), "first contact");
                    }
                    before[server] = Some(others);
                }
                At::Asked => {
                    let phase = if by_reservation { Phase::Reservation } else { Phase::Weight };
                    served[server][0] += 1;
                    served[server][1] += i64::from(by_reservation);
                    at[server] = At::Served(one(phase));
                }
                At::Served(answer) => {
                    tracker.complete(tickets[server].take().unwrap(), answer);
                    at[server] = At::Idle;
                }
            }
        }
    }

    /// Any number in flight, in any order, lost ones, dead and forgotten servers, costs of any
    /// size.
    #[test]
    fn tells_every_completion_elsewhere_once_to_every_server_that_is_known(
        steps in prop::collection::vec((0u8..12, 0usize..5, any::<prop::sample::Index>(), 1u64..5_000_000), 1..300),
    ) {
        let mut tracker = Tracker::new();
        let mut now = Nanos(0);
        // Every completion: where, what.
        let mut history: Vec<(usize, Served)> = Vec::new();
        // Servers known: time of the last request, completions there are when it was sent, what was
        // lost.
        let mut known: BTreeMap<usize, (Nanos, usize, [u64; 3], u64)> = BTreeMap::new();
        let mut contacts = 0;
        let mut in_flight: Vec<(Ticket<usize>, u64)> = Vec::new();
        for (step, server, index, millionths) in steps {
            match step {
                0..=4 => {
                    let (ticket, told) = tracker.send(now, server);
                    if known.get(&server).is_some_and(|k| now.since(k.0) >= Nanos(10 * MINUTE.0)) {
                        known.remove(&server);
                    }
                    let mut expected = [0u64; 3];
                    let contact = match known.get(&server) {
                        None => {
                            contacts += 1;
                            contacts
                        }
                        Some((_, from, lost, contact)) => {
                            expected = *lost;
                            for (_, s) in history[*from..].iter().filter(|(at, _)| *at != server) {
                                expected[0] += s.cost.as_millionths();
                                expected[1] += s.by_reservation.as_millionths();
                                expected[2] += s.bytes.0;
                            }
                            *contact
                        }
                    };
                    let got = [told.delta().as_millionths(), told.rho().as_millionths(), told.bytes().0];
                    prop_assert_eq!(got, expected);
                    known.insert(server, (now, history.len(), [0; 3], contact));
                    in_flight.push((ticket, contact));
                }
                5..=8 if !in_flight.is_empty() => {
                    let (ticket, _) = in_flight.swap_remove(index.index(in_flight.len()));
                    let phase = if millionths % 3 == 0 { Phase::Reservation } else { Phase::Weight };
                    let served =
                        Served::one(phase, Cost::from_millionths(millionths), Bytes(millionths / 7));
                    history.push((ticket.server(), served));
                    tracker.complete(ticket, served);
                }
                9 if !in_flight.is_empty() => {
                    let (ticket, contact) = in_flight.swap_remove(index.index(in_flight.len()));
                    if let Some((_, _, lost, current)) = known.get_mut(&ticket.server())
                        && *current == contact
                    {
                        let carried = ticket.carried();
                        lost[0] += carried.delta().as_millionths();
                        lost[1] += carried.rho().as_millionths();
                        lost[2] += carried.bytes().0;
                    }
                    tracker.lost(ticket);
                }
                10 => {
                    tracker.forget(server);
                    known.remove(&server);
                }
                _ => now += Nanos(millionths * 60_000),
            }
            prop_assert_eq!(tracker.totals().requests, history.len() as u64);
        }
    }
}

#[test]
fn a_single_server_is_told_nothing() {
    let mut tracker = Tracker::new();
    let mut in_flight = Vec::new();
    for n in 0..1_000u64 {
        let (ticket, elsewhere) = tracker.send(Nanos(n), 7usize);
        assert!(elsewhere.is_none());
        in_flight.push(ticket);
        if n % 3 == 0 {
            tracker.complete(
                in_flight.swap_remove(n as usize % in_flight.len()),
                one(Phase::Reservation),
            );
        }
    }
    assert_eq!(tracker.totals().by_reservation, 334_000_000);
}

#[test]
fn several_in_flight_to_one_server_tell_nothing_twice() {
    let mut tracker = Tracker::new();
    assert_eq!(ask(&mut tracker, Nanos(0), 0), (0, 0));
    for _ in 0..3 {
        serve(&mut tracker, Nanos(0), 1, Phase::Reservation);
    }
    serve(&mut tracker, Nanos(0), 2, Phase::Weight);
    let told: Vec<_> = (0..3).map(|_| ask(&mut tracker, Nanos(0), 0)).collect();
    assert_eq!(told, [(4, 3), (0, 0), (0, 0)]);
}

#[test]
fn a_request_in_flight_elsewhere_is_told_after_its_completion() {
    let mut tracker = Tracker::new();
    ask(&mut tracker, Nanos(0), 0);
    let (ticket, _) = tracker.send(Nanos(0), 1);
    assert_eq!(ask(&mut tracker, Nanos(0), 0), (0, 0));
    tracker.complete(ticket, one(Phase::Weight));
    assert_eq!(ask(&mut tracker, Nanos(0), 0), (1, 0));
}

#[test]
fn a_server_is_forgotten_after_ten_minutes_and_not_before() {
    let mut tracker = Tracker::new();
    ask(&mut tracker, Nanos(0), 0);
    for n in 0..4u64 {
        serve(&mut tracker, Nanos(n * 3 * MINUTE.0), 1, Phase::Weight);
    }
    let almost = Nanos(10 * MINUTE.0 - 1);
    assert_eq!(ask(&mut tracker, almost, 0), (4, 0), "remembered");
    serve(&mut tracker, almost, 1, Phase::Weight);
    assert_eq!(ask(&mut tracker, almost + Nanos(10 * MINUTE.0), 0), (0, 0), "a first contact");
    serve(&mut tracker, almost + Nanos(10 * MINUTE.0), 1, Phase::Weight);
    assert_eq!(ask(&mut tracker, almost + Nanos(11 * MINUTE.0), 0), (1, 0));
    // A clock that steps back forgets nobody.
    serve(&mut tracker, Nanos(0), 1, Phase::Weight);
    assert_eq!(ask(&mut tracker, Nanos(0), 0), (1, 0));
}

#[test]
fn a_server_forgotten_with_requests_in_flight_is_met_anew_and_its_answers_count_for_others() {
    let mut tracker = Tracker::new();
    let (late, _) = tracker.send(Nanos(0), 0);
    let (later, _) = tracker.send(Nanos(0), 0);
    ask(&mut tracker, Nanos(0), 1);
    tracker.forget(0);
    tracker.complete(late, one(Phase::Reservation));
    assert_eq!(ask(&mut tracker, Nanos(0), 1), (1, 1));
    assert_eq!(ask(&mut tracker, Nanos(0), 0), (0, 0));
    // An answer from before the new acquaintance is service at that server, not elsewhere.
    tracker.complete(later, one(Phase::Weight));
    assert_eq!(ask(&mut tracker, Nanos(0), 0), (0, 0));
    assert_eq!(ask(&mut tracker, Nanos(0), 1), (1, 0));
}

#[test]
fn a_server_that_died_with_requests_in_flight_holds_nothing_up() {
    let mut tracker = Tracker::new();
    let tickets: Vec<_> = (0..32).map(|_| tracker.send(Nanos(0), 0).0).collect();
    ask(&mut tracker, Nanos(0), 1);
    drop(tickets);
    assert_eq!(ask(&mut tracker, Nanos(0), 1), (0, 0));
    assert_eq!(tracker.totals().requests, 0);
    serve(&mut tracker, Nanos(0), 2, Phase::Weight);
    assert_eq!(ask(&mut tracker, Nanos(0), 1), (1, 0));
}

#[test]
fn what_a_lost_request_carried_goes_with_the_next_one_once() {
    let mut tracker = Tracker::new();
    ask(&mut tracker, Nanos(0), 0);
    serve(&mut tracker, Nanos(0), 1, Phase::Reservation);
    let (lost, elsewhere) = tracker.send(Nanos(0), 0);
    assert_eq!(ios(elsewhere), (1, 1));
    serve(&mut tracker, Nanos(0), 1, Phase::Weight);
    tracker.lost(lost);
    assert_eq!(ask(&mut tracker, Nanos(0), 0), (2, 1));
    assert_eq!(ask(&mut tracker, Nanos(0), 0), (0, 0));
    // Not to a server met anew since: it gives no credit for what was before.
    serve(&mut tracker, Nanos(0), 1, Phase::Weight);
    let (lost, _) = tracker.send(Nanos(0), 0);
    tracker.forget(0);
    ask(&mut tracker, Nanos(0), 0);
    tracker.lost(lost);
    assert_eq!(ask(&mut tracker, Nanos(0), 0), (0, 0));
}

#[test]
fn a_request_sent_again_and_served_twice_counts_twice_and_an_answer_once() {
    let mut tracker = Tracker::new();
    ask(&mut tracker, Nanos(0), 1);
    let (first, _) = tracker.send(Nanos(0), 0);
    let (again, _) = tracker.send(Nanos(0), 0);
    tracker.complete(first, one(Phase::Weight));
    // The ticket is gone: a second copy of the same answer has nothing to be counted with.
    assert_eq!(ask(&mut tracker, Nanos(0), 1), (1, 0));
    tracker.complete(again, one(Phase::Weight));
    assert_eq!(ask(&mut tracker, Nanos(0), 1), (1, 0));
}

#[test]
fn costs_and_bytes_are_told_in_full() {
    let mut tracker = Tracker::new();
    ask(&mut tracker, Nanos(0), 0);
    // Six gibibytes: more than 32 bits.
    for phase in [Phase::Weight, Phase::Reservation] {
        let (ticket, _) = tracker.send(Nanos(0), 1);
        tracker
            .complete(ticket, Served::one(phase, Cost::from_millionths(4_413_333), Bytes(3 << 30)));
    }
    let (_, told) = tracker.send(Nanos(0), 0);
    assert_eq!(told.delta(), Cost::from_millionths(8_826_666));
    assert_eq!(told.rho(), Cost::from_millionths(4_413_333));
    assert_eq!(told.bytes(), Bytes(6 << 30));
}
