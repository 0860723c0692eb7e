//! What a disk on servers is beside its links.

use super::loss::{Account, Era, Losses};
use super::status::Statuses;
use headgate_nbd::counters::{Received, Report};
use headgate_qos::Cost;
use headgate_qos::dmclock::{Served, Ticket, Tracker};
use headgate_stripe::Layout;
use headgate_units::{Bytes, Nanos};

/// A disk on one server, or striped over several.
pub(crate) struct Remote {
    /// By member.
    pub(super) servers: Vec<Server>,
    pub(super) losses: Losses,
    pub(super) stripe: Option<Stripe>,
}

/// One of its servers.
pub(crate) struct Server {
    /// Its URI without the export, for people.
    pub(super) name: String,
    /// Its connections, by number.
    pub(super) links: Vec<u32>,
    pub(super) account: Account,
    /// That of the connection that was made last.
    pub(super) era: Era,
}

/// What a disk over several servers has.
pub(crate) struct Stripe {
    pub(super) layout: Layout,
    tracker: Tracker<u16>,
    /// What each member has said that it gave.
    received: Vec<Received>,
    /// By member: the parts of a request that is begun; kept for its capacity.
    pub(super) scratch: Vec<Option<u32>>,
    /// Questions for block status.
    pub(super) statuses: Statuses,
}

impl Stripe {
    pub(crate) fn new(layout: Layout) -> Stripe {
        let members = usize::from(layout.members());
        Stripe {
            layout,
            tracker: Tracker::new(),
            received: vec![Received::default(); members],
            scratch: vec![None; members],
            statuses: Statuses::default(),
        }
    }

    /// A command is about to be sent: what its head says of the other servers.
    pub(super) fn report(&mut self, now: Nanos, member: u16, ioprio: u16) -> (Ticket<u16>, Report) {
        let (ticket, elsewhere) = self.tracker.send(now, member);
        let report = Report {
            delta: elsewhere.delta().as_millionths(),
            rho: elsewhere.rho().as_millionths(),
            bytes: elsewhere.bytes().0,
            ioprio,
        };
        (ticket, report)
    }

    /// A reply has come, to a command that moved so many bytes.
    pub(super) fn heard(&mut self, ticket: Ticket<u16>, received: Received, bytes: Bytes) {
        if let Some(sum) = self.received.get_mut(usize::from(ticket.server())) {
            sum.all = sum.all.saturating_add(received.all);
            sum.by_reservation = sum.by_reservation.saturating_add(received.by_reservation);
        }
        let cost = Cost::from_millionths(received.all);
        let by_reservation = Cost::from_millionths(received.by_reservation);
        self.tracker.complete(ticket, Served { cost, by_reservation, bytes });
    }

    /// What a member gave in all, as far as it has said.
    pub(super) fn received(&self, member: u16) -> Received {
        self.received.get(usize::from(member)).copied().unwrap_or_default()
    }
}
