//! What decides who goes next, behind a window.

use super::contest::Contest;
use super::deadlines::{Deadlines, Eligible};
use crate::setup::Suspect;
use anyhow::{Context, Result};
use headgate_qos::window::Slots;
use headgate_qos::{AnyScheduler, Cost, CostModel, Decision, DiskId, Gate, Io};
use headgate_units::{Bytes, Nanos};

/// The size of a request. It costs one reference IO, as each.
const SIZE: Bytes = Bytes::from_kib(4);

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The gate, with one of its schedulers.
    Gate(Suspect),
    /// Earliest deadline first.
    Deadline(Eligible),
}

/// A scheduler and its window, with what it sends known by a key.
pub enum Order {
    /// The gate that hosts have, and its names of the disks.
    Gate(Box<Gate<usize>>, Vec<DiskId>),
    /// Deadlines behind a window of whole requests.
    Deadline {
        /// The scheduler.
        scheduler: Deadlines<usize>,
        /// Requests that may be in flight.
        window: u32,
        /// Requests that are.
        in_flight: u32,
    },
}

impl Order {
    /// With nothing queued.
    ///
    /// # Errors
    /// The scheduler refuses the configuration.
    pub fn new(rule: Rule, contest: &Contest) -> Result<Order> {
        let policies = contest.policies();
        match rule {
            Rule::Gate(suspect) => {
                let config = suspect.config(CostModel::Unit);
                let scheduler = AnyScheduler::new(suspect.kind, config)?;
                let window = Slots::whole(contest.window);
                let mut gate =
                    Box::new(Gate::new(Nanos::ZERO, scheduler, window).without_wait_times());
                let ids = policies
                    .into_iter()
                    .map(|policy| gate.register(Nanos::ZERO, suspect.told(policy)))
                    .collect();
                Ok(Order::Gate(gate, ids))
            }
            Rule::Deadline(eligible) => {
                let reservations: Vec<_> = policies.iter().map(|p| p.reservation()).collect();
                let scheduler = Deadlines::new(eligible, &reservations);
                Ok(Order::Deadline { scheduler, window: contest.window, in_flight: 0 })
            }
        }
    }

    /// Queues a request.
    ///
    /// # Errors
    /// There is no such disk.
    pub fn enqueue(&mut self, now: Nanos, disk: usize, key: usize) -> Result<()> {
        match self {
            Order::Gate(gate, ids) => {
                let id = *ids.get(disk).context("a disk")?;
                let io = Io { bytes: SIZE, ..Io::default() };
                gate.enqueue(now, id, io, key).map_err(|error| error.reason)?;
            }
            Order::Deadline { scheduler, .. } => scheduler.enqueue(now, disk, key),
        }
        Ok(())
    }

    /// The request to send to the storage now.
    pub fn next(&mut self, now: Nanos) -> Option<usize> {
        match self {
            Order::Gate(gate, _) => {
                if !gate.is_due(now) {
                    return None;
                }
                match gate.next(now) {
                    Decision::Dispatch(sent) => Some(sent.request),
                    _ => None,
                }
            }
            Order::Deadline { scheduler, window, in_flight } => {
                if *in_flight >= *window {
                    return None;
                }
                let key = scheduler.next(now)?;
                *in_flight += 1;
                Some(key)
            }
        }
    }

    /// When to ask although nothing happened.
    pub fn next_wake(&self) -> Option<Nanos> {
        match self {
            Order::Gate(gate, _) => gate.next_wake(),
            Order::Deadline { scheduler, window, in_flight } if in_flight < window => {
                scheduler.next_wake()
            }
            Order::Deadline { .. } => None,
        }
    }

    /// A request of this disk was served.
    pub fn complete(&mut self, now: Nanos, disk: usize) {
        match self {
            Order::Gate(gate, ids) => {
                if let Some(&id) = ids.get(disk) {
                    gate.complete(now, id, Cost::ONE);
                }
            }
            Order::Deadline { in_flight, .. } => *in_flight = in_flight.saturating_sub(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::grid::{Below, Cell, Reserved};

    #[test]
    fn no_rule_sends_more_than_the_window() {
        let cell = Cell { below: Below::Constant, reserved: Reserved::Twenty, window: 8 };
        let contest = cell.contest(1, 10, 0);
        for rule in [
            Rule::Gate(Suspect::default()),
            Rule::Deadline(Eligible::AtOnce),
            Rule::Deadline(Eligible::AtStart),
        ] {
            let mut order = Order::new(rule, &contest).unwrap();
            let neighbour = contest.reserved.len();
            (0..20).for_each(|key| order.enqueue(Nanos::ZERO, neighbour, key).unwrap());
            let now = Nanos::from_millis(1);
            let sent = std::iter::from_fn(|| order.next(now)).count();
            assert_eq!(sent, 8, "{rule:?}");
            order.complete(now, neighbour);
            assert!(order.next(now).is_some() && order.next(now).is_none(), "{rule:?}");
        }
    }
}
