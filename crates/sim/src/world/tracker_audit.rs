//! Audits dmClock's trackers: compares the service elsewhere that requests report with the truth,
//! which only the simulator knows.

use headgate_qos::{Cost, Phase, ServedElsewhere};

/// What each node has served of a disk, all and by reservation, in millionths of IOs.
type Served = [u64; 2];

/// The truth about one disk.
#[derive(Debug)]
pub(super) struct Truth {
    /// By node.
    served: Vec<Served>,
    /// What the other nodes had served when the node was last sent to.
    at_last_send: Vec<Option<Served>>,
    /// Nodes that the disk uses besides the one that gets a report.
    others: u64,
}

/// How far a request's report is from the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Error {
    /// Of δ, in millionths of IOs.
    pub delta: u64,
    /// Whether δ or ρ is off by more than one IO for each other node.
    pub beyond_bound: bool,
}

impl Truth {
    pub(super) fn new(nodes: usize, used: usize) -> Truth {
        Truth {
            served: vec![[0; 2]; nodes],
            at_last_send: vec![None; nodes],
            others: used.saturating_sub(1) as u64,
        }
    }

    /// A node has completed a request.
    pub(super) fn on_served(&mut self, node: usize, phase: Phase, cost: Cost) {
        let [all, reserved] = &mut self.served[node];
        *all += cost.as_millionths();
        if phase == Phase::Reservation {
            *reserved += cost.as_millionths();
        }
    }

    /// A request is sent with this report. `None` at the first contact, which has nothing to
    /// report.
    pub(super) fn on_send(&mut self, node: usize, report: ServedElsewhere) -> Option<Error> {
        let mut elsewhere = [0; 2];
        for (_, served) in self.served.iter().enumerate().filter(|(other, _)| *other != node) {
            elsewhere[0] += served[0];
            elsewhere[1] += served[1];
        }
        let last = self.at_last_send[node].replace(elsewhere)?;
        let off = |told: Cost, now: u64, last: u64| told.as_millionths().abs_diff(now - last);
        let delta = off(report.delta(), elsewhere[0], last[0]);
        let rho = off(report.rho(), elsewhere[1], last[1]);
        let bound = self.others * Cost::ONE.as_millionths();
        Some(Error { delta, beyond_bound: delta.max(rho) > bound })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::Bytes;

    fn report(delta: u64, rho: u64) -> ServedElsewhere {
        ServedElsewhere::new(Cost::from_ios(delta), Cost::from_ios(rho), Bytes(0)).unwrap()
    }

    #[test]
    fn reports_are_held_against_what_the_other_nodes_served_since_the_last_one() {
        let mut truth = Truth::new(3, 3);
        assert_eq!(truth.on_send(0, ServedElsewhere::NONE), None, "first contact");
        truth.on_served(0, Phase::Reservation, Cost::ONE);
        truth.on_served(1, Phase::Reservation, Cost::ONE);
        truth.on_served(2, Phase::Weight, Cost::ONE);
        let none = Some(Error { delta: 0, beyond_bound: false });
        assert_eq!(truth.on_send(0, report(2, 1)), none);
        assert_eq!(truth.on_send(0, ServedElsewhere::NONE), none, "nothing since");
        (0..3).for_each(|_| truth.on_served(1, Phase::Reservation, Cost::ONE));
        let error = truth.on_send(0, report(1, 1));
        assert_eq!(
            error,
            Some(Error { delta: 2_000_000, beyond_bound: false }),
            "two others, two IOs"
        );
        (0..3).for_each(|_| truth.on_served(2, Phase::Reservation, Cost::ONE));
        assert_eq!(
            truth.on_send(0, report(3, 0)),
            Some(Error { delta: 0, beyond_bound: true }),
            "of rho"
        );
    }
}
