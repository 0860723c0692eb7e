//! Copies beside a datastore's clients: what each may begin, by [`Background`].

use crate::tables::lane::Lane;
use headgate_qos::window::Admission;
use headgate_qos::{Background, Cost, Policy};
use headgate_units::{Bytes, Nanos, Shares};

/// A request that goes to the storage.
pub(crate) struct Sent {
    pub disk: u32,
    pub lane: Lane,
    pub shares: Shares,
    pub cost: Cost,
    pub bytes: Bytes,
}

/// The copies of a datastore's disks, and to them.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// By the disk.
    accounts: Vec<(u32, Background)>,
    /// Their requests at the storage.
    in_flight: u32,
}

impl Copies {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// A copy begins that may have so many steps under way. Returns what the scheduler holds it to.
    pub(crate) fn add(&mut self, now: Nanos, disk: u32, pace: Policy, most: u32) -> Policy {
        let account = Background::new(now, pace, most);
        let policy = account.policy();
        self.accounts.push((disk, account));
        policy
    }

    pub(crate) fn remove(&mut self, disk: u32) {
        self.accounts.retain(|(of, _)| *of != disk);
    }

    /// Returns what the scheduler holds it to; `None`: there is no such copy.
    pub(crate) fn set_pace(&mut self, now: Nanos, disk: u32, pace: Policy) -> Option<Policy> {
        let account = self.account(disk)?;
        account.set_pace(now, pace);
        Some(account.policy())
    }

    fn account(&mut self, disk: u32) -> Option<&mut Background> {
        self.accounts.iter_mut().find(|(of, _)| *of == disk).map(|(_, account)| account)
    }

    /// A request goes to the storage, where `in_flight` are then, with it.
    pub(crate) fn dispatched(&mut self, now: Nanos, sent: &Sent, in_flight: u32) {
        match sent.lane {
            Lane::Client | Lane::CopyBeforeWrite => {
                for (_, account) in &mut self.accounts {
                    account.client_dispatched(now, sent.disk, sent.shares, sent.cost);
                }
            }
            Lane::Copy => {
                self.in_flight += 1;
                let clients = in_flight.saturating_sub(self.in_flight);
                if let Some(account) = self.account(sent.disk) {
                    account.copy_dispatched(now, sent.cost, sent.bytes, clients);
                }
            }
        }
    }

    /// A request has ended, and `in_flight` are at the storage still. `device` is how long it was
    /// there, where that says something of the storage.
    pub(crate) fn completed(
        &mut self,
        now: Nanos,
        lane: Lane,
        disk: u32,
        device: Option<Nanos>,
        in_flight: u32,
    ) {
        match lane {
            Lane::Client | Lane::CopyBeforeWrite => {
                for (_, account) in &mut self.accounts {
                    account.client_completed(now, device);
                }
            }
            Lane::Copy => {
                self.in_flight = self.in_flight.saturating_sub(1);
                let clients = in_flight.saturating_sub(self.in_flight);
                if let Some(account) = self.account(disk) {
                    account.copy_completed(now, clients);
                }
            }
        }
    }

    /// How long a step of a copy may be now; `None`: as long as it likes.
    pub(crate) fn longest_step(&self, now: Nanos, disk: u32, in_flight: u32) -> Option<Bytes> {
        self.of(disk)?.longest_step(now, self.of_clients(in_flight))
    }

    /// Whether a copy may begin a step beside so many that are under way.
    pub(crate) fn admit(&self, now: Nanos, disk: u32, under_way: u32, in_flight: u32) -> Admission {
        let clients = self.of_clients(in_flight);
        self.of(disk).map_or(Admission::Now, |account| account.admit(now, under_way, clients))
    }

    fn of(&self, disk: u32) -> Option<&Background> {
        self.accounts.iter().find(|(of, _)| *of == disk).map(|(_, account)| account)
    }

    /// Of so many requests at the storage, those of clients.
    fn of_clients(&self, in_flight: u32) -> u32 {
        in_flight.saturating_sub(self.in_flight)
    }
}
