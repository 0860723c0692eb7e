//! Tells the accounts of copies what happens at their gates.

use super::copies::Stirred;
use super::state::Pool;
use crate::world::request::{Request, Role};
use crate::world::state::World;
use headgate_devices::IoKind;
use headgate_qos::Cost;
use headgate_units::{Bytes, Nanos, Shares};

/// What the accounts hear of a request.
struct Heard {
    gate: u32,
    /// The move of a copy's request.
    copy: Option<usize>,
    disk: u32,
    /// Data that it moves.
    bytes: Bytes,
    cost: Cost,
}

impl Heard {
    fn of(request: &Request) -> Heard {
        let copy = match request.role {
            Role::Guest | Role::Twin | Role::Left(_) => None,
            Role::Step(..) | Role::LastFlush => Some(request.tag as usize),
        };
        let bytes = match request.kind {
            IoKind::Read | IoKind::Write => request.bytes,
            IoKind::Flush | IoKind::Discard => Bytes(0),
        };
        let Request { gate, disk, charged: cost, .. } = *request;
        Heard { gate, copy, disk, bytes, cost }
    }
}

impl Pool<'_> {
    fn saw_dispatch(&mut self, now: Nanos, heard: &Heard, shares: Shares, in_flight: u32) {
        let Some(accounts) = self.copies.beside.at(heard.gate) else { return };
        self.copies.stirred = Stirred::Yes;
        match heard.copy {
            None => {
                for (_, account) in &mut accounts.of {
                    account.client_dispatched(now, heard.disk, shares, heard.cost);
                }
            }
            Some(number) => {
                accounts.in_flight += 1;
                let clients = accounts.clients(in_flight);
                if let Some(account) = accounts.account(number) {
                    account.copy_dispatched(now, heard.cost, heard.bytes, clients);
                }
            }
        }
    }

    fn saw_completion(&mut self, now: Nanos, heard: &Heard, took: Nanos, in_flight: u32) {
        let Some(accounts) = self.copies.beside.at(heard.gate) else { return };
        self.copies.stirred = Stirred::Yes;
        match heard.copy {
            None => {
                let device = (heard.bytes.0 > 0).then_some(took);
                for (_, account) in &mut accounts.of {
                    account.client_completed(now, device);
                }
            }
            Some(number) => {
                accounts.in_flight = accounts.in_flight.saturating_sub(1);
                let clients = accounts.clients(in_flight);
                if let Some(account) = accounts.account(number) {
                    account.copy_completed(now, clients);
                }
            }
        }
    }
}

impl World<'_> {
    /// A host let a request go.
    #[inline]
    pub(in crate::world) fn copies_saw_dispatch(&mut self, key: u32) {
        let Some(pool) = &mut self.pool else { return };
        if pool.copies.beside.is_empty() {
            return;
        }
        let request = &self.requests[key as usize];
        let gate = &self.gates[request.gate as usize];
        let shares = gate.policy(request.id).map_or(Shares::default(), |policy| policy.shares());
        pool.saw_dispatch(self.now, &Heard::of(request), shares, gate.in_flight());
    }

    /// A request is back at its host, and has left the gate.
    #[inline]
    pub(in crate::world) fn copies_saw_completion(&mut self, request: &Request) {
        let Some(pool) = &mut self.pool else { return };
        if pool.copies.beside.is_empty() {
            return;
        }
        let in_flight = self.gates[request.gate as usize].in_flight();
        let took = self.now - request.dispatched;
        pool.saw_completion(self.now, &Heard::of(request), took, in_flight);
    }
}
