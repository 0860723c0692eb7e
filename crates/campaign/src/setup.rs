//! What runs: disks with policies and loads, on storage of a kind, in phases.

use crate::class::Class;
use headgate_devices::{ServiceTime, Stall};
use headgate_qos::{Burst, Config, CostModel, Floor, Policy, SchedulerKind};
use headgate_units::{Bytes, Iops, Nanos, Shares};

/// One run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The family that it belongs to.
    pub class: Class,
    /// What it was drawn from.
    pub seed: u64,
    /// The gate's window, in requests.
    pub window: u32,
    /// How a size becomes IOs, for the scheduler, the storage and the oracle.
    pub cost_model: CostModel,
    /// How service times of the storage vary.
    pub service: ServiceTime,
    /// Whether it stands still now and then.
    pub stall: Option<Stall>,
    /// Whole seconds after the start of a phase that are not judged.
    pub settle: usize,
    /// The disks.
    pub disks: Vec<DiskSetup>,
    /// What happens, in order.
    pub phases: Vec<Phase>,
}

/// What holds for a disk all of the run.
#[derive(Clone, Copy, Debug)]
pub struct DiskSetup {
    /// Its requests.
    pub sizes: Sizes,
    /// How its client behaves.
    pub conduct: Conduct,
}

/// A stretch of a run without changes.
#[derive(Clone, Debug)]
pub struct Phase {
    /// How long it lasts.
    pub seconds: usize,
    /// Reference IOs that the storage serves per second.
    pub rate: Iops,
    /// Policy and load of each disk.
    pub disks: Vec<(Policy, Load)>,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Nothing.
    Idle,
    /// So many requests in the queue, always.
    Queued(u32),
    /// So many requests queued or in flight, always: a closed loop.
    Outstanding(u32),
    /// Requests that arrive at random (Poisson), so many per second.
    Open(f64),
}

/// Sizes of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All alike.
    Fixed(Bytes),
    /// Powers of two from the one to the other, as often each.
    Mixed(Bytes, Bytes),
}

impl Sizes {
    /// The largest.
    pub fn largest(self) -> Bytes {
        match self {
            Sizes::Fixed(size) | Sizes::Mixed(_, size) => size,
        }
    }
}

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// It sends requests.
    Honest,
    /// It takes all its requests back and sends them again.
    Extracts,
    /// It leaves and comes back.
    Registers,
    /// Its policy is set again, with and without burst credit.
    SetsPolicy,
    /// Each of its requests has another priority.
    FloodsPriorities,
    /// It empties its queue and fills it again.
    Flaps,
}

impl Conduct {
    /// What a client can do to others as long as its disk stays.
    pub const HOSTILE: [Conduct; 4] =
        [Conduct::Extracts, Conduct::SetsPolicy, Conduct::FloodsPriorities, Conduct::Flaps];

    /// Whether the client asks for as much as its load says all the time.
    pub fn is_steady(self) -> bool {
        matches!(self, Conduct::Honest | Conduct::SetsPolicy | Conduct::FloodsPriorities)
    }
}

/// Which part of the definition the scheduler is not told, so that a check can be seen to fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Withheld {
    /// It knows everything.
    #[default]
    Nothing,
    /// It knows no limits.
    Limits,
    /// All shares are alike.
    Shares,
    /// It knows no reservations.
    Reservations,
    /// It keeps no floor.
    Floor,
    /// It takes half of each limit for the limit.
    HalfOfLimits,
}

/// The scheduler under judgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suspect {
    /// Which scheduler.
    pub kind: SchedulerKind,
    /// What it is not told.
    pub withheld: Withheld,
}

impl Suspect {
    /// What the scheduler is told of a policy.
    pub fn told(self, policy: Policy) -> Policy {
        let honest = Ok(policy);
        match self.withheld {
            Withheld::Nothing | Withheld::Floor => honest,
            Withheld::Limits => policy.with_limit(None),
            Withheld::Shares => Ok(policy.with_shares(Shares::default())),
            Withheld::HalfOfLimits => {
                let half = policy.limit().and_then(|limit| Iops::new(limit.get() / 2).ok());
                let least = policy.reservation().max(half);
                policy.with_limit(policy.limit().and(least))
            }
            Withheld::Reservations => policy.with_reservation(None),
        }
        .unwrap_or(policy)
    }

    /// The configuration: that of hosts.
    pub fn config(self, cost_model: CostModel) -> Config {
        let config = Config::for_hosts(cost_model);
        match self.withheld {
            Withheld::Floor => Config { floor: Floor::Nothing, ..config },
            _ => config,
        }
    }
}

impl Setup {
    /// What a request of this size costs, in reference IOs: mClock, section 3.2.2, equation 5. No
    /// set-up has costs learned: they begin with that.
    pub fn cost(&self, bytes: Bytes) -> f64 {
        match self.cost_model {
            CostModel::Unit => 1.0,
            CostModel::Affine { reference } | CostModel::Learned { reference } => {
                1.0 + bytes.0 as f64 / reference.0 as f64
            }
            CostModel::Chunks { reference } => (bytes.0 as f64 / reference.0 as f64).max(1.0),
        }
    }

    /// Cost of the largest request of each disk.
    pub fn grains(&self) -> Vec<f64> {
        self.disks.iter().map(|disk| self.cost(disk.sizes.largest())).collect()
    }

    /// How long all phases take.
    pub fn seconds(&self) -> usize {
        self.phases.iter().map(|phase| phase.seconds).sum()
    }

    /// Time between `from` and `to` in which the storage stands still.
    pub fn stalled(&self, from: Nanos, to: Nanos) -> f64 {
        let Some(stall) = self.stall else { return 0.0 };
        let (period, time) = (stall.period().0, stall.time().0);
        let until = |at: u64| at / period * time + (at % period).saturating_sub(period - time);
        (until(to.0) - until(from.0)) as f64 / 1e9
    }
}

/// A policy out of plain numbers; 0 stands for none. The limit is raised to the reservation.
pub fn policy(reservation: u64, limit: u64, shares: u64) -> Policy {
    let rate = |rate: u64| Iops::new(rate).ok();
    let limit = if limit == 0 { None } else { rate(limit.max(reservation)) };
    let shares = Shares::new(shares.clamp(1, 1_000_000)).unwrap_or_default();
    Policy::new(rate(reservation), limit, None, shares, Burst::default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::draw;

    #[test]
    fn time_in_stalls_is_counted_to_the_nanosecond() {
        let stall = Stall::new(Nanos::from_secs(1), Nanos::from_secs(5));
        let setup = Setup { stall, ..draw(Class::Constant, 0) };
        let stalled = |from, to| setup.stalled(Nanos::from_millis(from), Nanos::from_millis(to));
        for (from, to, expected) in [
            (0, 4_000, 0.0),
            (0, 4_500, 0.5),
            (4_250, 4_750, 0.5),
            (4_500, 5_500, 0.5),
            (4_500, 9_500, 1.0),
            (0, 50_000, 10.0),
        ] {
            assert_eq!(stalled(from, to), expected, "{from} to {to} ms");
        }
        assert_eq!(draw(Class::Constant, 0).stalled(Nanos::ZERO, Nanos::from_secs(9)), 0.0);
    }

    #[test]
    fn a_suspect_is_told_the_policy_without_what_is_withheld() {
        let whole = policy(100, 300, 7);
        let told = |withheld| Suspect { withheld, ..Suspect::default() }.told(whole);
        assert_eq!(told(Withheld::Nothing), whole);
        assert_eq!(told(Withheld::Limits), policy(100, 0, 7));
        assert_eq!(told(Withheld::Reservations), policy(0, 300, 7));
        assert_eq!(told(Withheld::HalfOfLimits), policy(100, 150, 7));
        assert_eq!(told(Withheld::Shares).shares(), Shares::default());
    }
}
