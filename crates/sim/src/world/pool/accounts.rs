//! Copies beside the clients of their gates, as the daemon holds them: who pays whom, and what each
//! may begin.

use headgate_qos::window::Admission;
use headgate_qos::{Background, Policy};
use headgate_units::{Bytes, Nanos};

/// The accounts of all copies under way.
#[derive(Default)]
pub(super) struct Beside {
    gates: Vec<(u32, Accounts)>,
}

/// The accounts at one gate.
#[derive(Default)]
pub(super) struct Accounts {
    /// By the number of the move.
    pub(super) of: Vec<(usize, Background)>,
    /// Their requests at the storage.
    pub(super) in_flight: u32,
}

impl Accounts {
    pub(super) fn clients(&self, in_flight: u32) -> u32 {
        in_flight.saturating_sub(self.in_flight)
    }

    pub(super) fn account(&mut self, number: usize) -> Option<&mut Background> {
        self.of.iter_mut().find(|(of, _)| *of == number).map(|(_, account)| account)
    }
}

impl Beside {
    pub(super) fn is_empty(&self) -> bool {
        self.gates.is_empty()
    }

    pub(super) fn at(&mut self, gate: u32) -> Option<&mut Accounts> {
        self.gates.iter_mut().find(|(at, _)| *at == gate).map(|(_, accounts)| accounts)
    }

    /// A copy begins that may have so many steps under way.
    pub(super) fn add(&mut self, now: Nanos, gate: u32, number: usize, pace: Policy, most: u32) {
        if self.at(gate).is_none() {
            self.gates.push((gate, Accounts::default()));
        }
        if let Some(accounts) = self.at(gate) {
            accounts.of.push((number, Background::new(now, pace, most)));
        }
    }

    /// A copy is over that has nothing under way.
    pub(super) fn remove(&mut self, gate: u32, number: usize) {
        if let Some(accounts) = self.at(gate) {
            accounts.of.retain(|(of, _)| *of != number);
        }
        self.gates.retain(|(_, accounts)| !accounts.of.is_empty());
    }

    /// Whether a copy may begin a step beside so many that are under way, where so many requests
    /// are at the storage.
    pub(super) fn admit(
        &self,
        now: Nanos,
        (gate, in_flight): (u32, u32),
        number: usize,
        under_way: u32,
    ) -> Admission {
        let accounts = self.gates.iter().find(|(at, _)| *at == gate);
        let Some((_, accounts)) = accounts else { return Admission::Now };
        let account = accounts.of.iter().find(|(of, _)| *of == number);
        let clients = accounts.clients(in_flight);
        account.map_or(Admission::Now, |(_, account)| account.admit(now, under_way, clients))
    }

    /// How long a step of a copy may be; `None`: as long as it likes.
    pub(super) fn longest_step(
        &self,
        now: Nanos,
        (gate, in_flight): (u32, u32),
        number: usize,
    ) -> Option<Bytes> {
        let (_, accounts) = self.gates.iter().find(|(at, _)| *at == gate)?;
        let (_, account) = accounts.of.iter().find(|(of, _)| *of == number)?;
        account.longest_step(now, accounts.clients(in_flight))
    }
}
