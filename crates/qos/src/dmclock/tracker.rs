use super::ServedElsewhere;
use crate::cost::Cost;
use crate::scheduler::Phase;
use alloc::collections::BTreeMap;
use headgate_units::{Bytes, Nanos};

/// What a server says with an answer: what the disk was charged since the answer before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// All of it.
    pub cost: Cost,
    /// The part that was served by reservation; more than all of it counts as all.
    pub by_reservation: Cost,
    /// Bytes moved.
    pub bytes: Bytes,
}

impl Served {
    /// One request, as the server has dispatched it: by this
    /// [right](crate::Dispatched::phase), for this [charge](crate::Dispatched::cost).
    pub fn one(phase: Phase, cost: Cost, bytes: Bytes) -> Served {
        let by_reservation = if phase == Phase::Reservation { cost } else { Cost::default() };
        Served { cost, by_reservation, bytes }
    }
}

/// One request that was sent and not answered. Handing it back counts the answer, so no answer
/// counts twice.
///
/// Dropped when no answer will ever come: nothing waits for it and nothing is counted.
#[derive(Debug)]
#[must_use = "a request whose ticket is dropped is never counted"]
pub struct Ticket<S> {
    server: S,
    contact: u64,
    carried: ServedElsewhere,
}

impl<S: Copy> Ticket<S> {
    /// Where the request was sent.
    pub fn server(&self) -> S {
        self.server
    }

    /// What it said of other servers.
    pub fn carried(&self) -> ServedElsewhere {
        self.carried
    }
}

/// What a disk has received at all servers together, as far as its client has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Answers.
    pub requests: u64,
    /// Charged cost of all, in millionths of a reference IO.
    pub cost: u128,
    /// The part of it that was served by reservation.
    pub by_reservation: u128,
}

/// Counts that only grow; wide enough that none ends.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    delta: u128,
    rho: u128,
    bytes: u128,
}

impl Counts {
    fn add(&mut self, served: Served) {
        let cost = u128::from(served.cost.as_millionths());
        self.delta += cost;
        self.rho += cost.min(u128::from(served.by_reservation.as_millionths()));
        self.bytes += u128::from(served.bytes.0);
    }

    fn minus(self, other: Counts) -> Counts {
        Counts {
            delta: self.delta - other.delta,
            rho: self.rho - other.rho,
            bytes: self.bytes - other.bytes,
        }
    }

    /// As a request carries it.
    fn carried(self) -> ServedElsewhere {
        let count = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        let cost = |n: u128| Cost::from_millionths(count(n));
        let carried =
            ServedElsewhere::new(cost(self.delta), cost(self.rho), Bytes(count(self.bytes)));
        // Both grow by the same costs, rho by some of them only.
        carried.unwrap_or_else(|error| unreachable!("{error}"))
    }
}

#[derive(Clone, Copy, Debug)]
struct Server {
    /// Distinguishes this contact from an earlier one that was forgotten.
    contact: u64,
    /// Completed here since the first contact.
    here: Counts,
    /// Service elsewhere reported to this server up to the last request, counted from the first
    /// contact.
    told: Counts,
    /// Completed at all servers before the first contact.
    before: Counts,
    last_sent: Nanos,
}

/// The client's side of dmClock: counts completions per server and computes delta and rho. There is
/// one for each disk on each host that sends its requests to several servers. `S` names a server.
///
/// Memory is bounded by the servers used in the last fifteen minutes, whatever the number of
/// requests in flight. [`send`](Tracker::send) and [`complete`](Tracker::complete) are O(log
/// servers); about every five minutes one `send` visits all servers. Only the first contact with a
/// server allocates.
///
/// Special cases:
///
/// | | |
/// |---|---|
/// | first contact | the request carries nothing; what happened before is not counted, as the server gives no credit for it either |
/// | several in flight to one server | each carries what was completed elsewhere since the one before it was sent, nothing twice |
/// | not completed yet | not counted; it is with the first request sent after its completion |
/// | a server is not used for ten minutes | forgotten: the next request is a first contact |
/// | a server dies with requests in flight | they never count; [`forget`](Tracker::forget) it when it comes back without its tags |
/// | a request is surely lost on the way | [`lost`](Tracker::lost): the next request carries what it carried |
/// | a request may be lost, or not | sent again as a new request; if both are served both count, as the storage served both. What the lost one carried is not reported, to the disk's benefit |
/// | an answer comes twice | the ticket is gone: it counts once |
/// | several hosts use the disk | each has its tracker, and the server adds up what they say |
#[derive(Debug)]
pub struct Tracker<S> {
    servers: BTreeMap<S, Server>,
    total: Counts,
    totals: Totals,
    forget_after: Nanos,
    swept: Nanos,
    contacts: u64,
}

impl<S: Ord + Copy> Default for Tracker<S> {
    fn default() -> Tracker<S> {
        Tracker::new()
    }
}

impl<S: Ord + Copy> Tracker<S> {
    /// Forgets servers after ten minutes.
    pub fn new() -> Tracker<S> {
        Tracker::with_memory(Nanos::from_secs(600))
    }

    /// Forgets servers to which nothing was sent for `forget_after`. With zero every request is a
    /// first contact and carries nothing.
    pub fn with_memory(forget_after: Nanos) -> Tracker<S> {
        Tracker {
            servers: BTreeMap::new(),
            total: Counts::default(),
            totals: Totals::default(),
            forget_after,
            swept: Nanos::ZERO,
            contacts: 0,
        }
    }

    /// A request is about to be sent to `server`: what it shall carry. `now` is the caller's clock;
    /// a step back makes servers be remembered for longer, a leap forward makes them be forgotten.
    pub fn send(&mut self, now: Nanos, server: S) -> (Ticket<S>, ServedElsewhere) {
        self.sweep(now);
        let (total, forget_after) = (self.total, self.forget_after);
        let contacts = &mut self.contacts;
        let mut meet = || {
            *contacts += 1;
            Server {
                contact: *contacts,
                here: Counts::default(),
                told: Counts::default(),
                before: total,
                last_sent: now,
            }
        };
        let known = self.servers.entry(server).or_insert_with(&mut meet);
        if now.since(known.last_sent) >= forget_after {
            *known = meet();
        }
        known.last_sent = now;
        let elsewhere = total.minus(known.before).minus(known.here);
        let carried = elsewhere.minus(known.told).carried();
        known.told = elsewhere;
        (Ticket { server, contact: known.contact, carried }, carried)
    }

    /// The request was served.
    pub fn complete(&mut self, ticket: Ticket<S>, served: Served) {
        self.total.add(served);
        self.totals = Totals {
            requests: self.totals.requests + 1,
            cost: self.total.delta,
            by_reservation: self.total.rho,
        };
        // For a server forgotten meanwhile it counts as service before the next first contact.
        if let Some(known) = self.servers.get_mut(&ticket.server) {
            known.here.add(served);
        }
    }

    /// The request never reached the server and never will: what it carried goes with the next one.
    pub fn lost(&mut self, ticket: Ticket<S>) {
        let Some(known) = self.servers.get_mut(&ticket.server) else { return };
        if known.contact != ticket.contact {
            return;
        }
        known.told = known.told.minus(Counts {
            delta: u128::from(ticket.carried.delta().as_millionths()),
            rho: u128::from(ticket.carried.rho().as_millionths()),
            bytes: u128::from(ticket.carried.bytes().0),
        });
    }

    /// The server has lost its tags, or is gone: the next request to it is a first contact.
    pub fn forget(&mut self, server: S) {
        self.servers.remove(&server);
    }

    /// How many servers are remembered.
    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// What the disk has received at all servers, forgotten ones included.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn sweep(&mut self, now: Nanos) {
        if now.since(self.swept) < Nanos(self.forget_after.0 / 2) {
            return;
        }
        self.swept = now;
        let forget_after = self.forget_after;
        self.servers.retain(|_, server| now.since(server.last_sent) < forget_after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(phase: Phase) -> Served {
        Served::one(phase, Cost::ONE, Bytes(4_096))
    }

    #[test]
    fn memory_is_bounded_by_the_servers_of_the_last_quarter_of_an_hour() {
        let mut tracker = Tracker::new();
        for n in 0..10_000u64 {
            let (ticket, _) = tracker.send(Nanos::from_secs(n), n);
            tracker.complete(ticket, served(Phase::Weight));
            assert!(tracker.servers() <= 900, "{} at {n} s", tracker.servers());
        }
        assert_eq!(tracker.totals().requests, 10_000);
        let (_ticket, _) = tracker.send(Nanos::from_secs(20_000), 0);
        assert_eq!(tracker.servers(), 1);
    }

    #[test]
    fn counts_do_not_end() {
        let mut tracker = Tracker::new();
        let cost = Cost::from_millionths(u64::MAX);
        for _ in 0..10 {
            let (ticket, _) = tracker.send(Nanos(0), 'a');
            tracker.complete(ticket, Served::one(Phase::Reservation, cost, Bytes(u64::MAX)));
        }
        let _ = tracker.send(Nanos(0), 'b');
        let (ticket, _) = tracker.send(Nanos(0), 'a');
        tracker.complete(ticket, served(Phase::Weight));
        let (_, elsewhere) = tracker.send(Nanos(0), 'b');
        assert_eq!((elsewhere.delta(), elsewhere.rho()), (Cost::ONE, Cost::default()));
        assert_eq!(tracker.totals().cost, 10 * u128::from(u64::MAX) + 1_000_000);
    }
}
