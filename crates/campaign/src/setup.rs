//! What runs: disks with policies and loads, on storage of a kind, in phases.

use crate::class::Class;
use headgate_devices::{ServiceTime, Stall};
use headgate_qos::{
    Burst, Config, CostModel, Direction, DirectionLimits, Floor, Policy, SchedulerKind,
};
use headgate_units::{Bytes, BytesPerSec, Iops, Nanos, Shares};

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
    /// The least that the storage takes for a request, however fast it is otherwise; of unit costs.
    pub latency: Nanos,
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
    /// Which of them write.
    pub mix: Mix,
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
    /// Clients that send one request each and think before the next ([`crate::thinking`]).
    Thinking {
        /// How many.
        clients: u32,
        /// Requests per second that they would send if they were answered at once.
        rate: f64,
    },
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

/// Which requests of a disk write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// None.
    Reads,
    /// One application sends both: each request writes with this probability. Where one direction
    /// is held back, the client's queue fills with it.
    Random(f64),
    /// One application reads and one writes: this part of the load is the writer's.
    Apart(f64),
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
    /// It knows no limits of reads or of writes.
    Directions,
    /// It takes the limits of reads for those of writes, and those of writes for those of reads.
    SwappedDirections,
    /// It knows no latency targets.
    Targets,
    /// It may have one request in flight, and not as many as the window says.
    Window,
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
            Withheld::Nothing | Withheld::Floor | Withheld::Window => honest,
            Withheld::Targets => policy.with_latency_target(None),
            Withheld::Limits => policy.with_limit(None),
            Withheld::Shares => Ok(policy.with_shares(Shares::default())),
            Withheld::HalfOfLimits => {
                let half = policy.limit().and_then(|limit| Iops::new(limit.get() / 2).ok());
                let least = policy.reservation().max(half);
                policy.with_limit(policy.limit().and(least)).and_then(|policy| {
                    let [read, write] = Direction::BOTH.map(|d| halved(policy.direction_limits(d)));
                    policy.with_direction_limits(read, write)
                })
            }
            Withheld::Directions => {
                policy.with_direction_limits(DirectionLimits::NONE, DirectionLimits::NONE)
            }
            Withheld::SwappedDirections => {
                let [read, write] = Direction::BOTH.map(|d| policy.direction_limits(d));
                policy.with_direction_limits(write, read)
            }
            Withheld::Reservations => policy.with_reservation(None),
        }
        .unwrap_or(policy)
    }

    /// How many requests it may have in flight, of a window of so many.
    pub fn window(self, window: u32) -> u32 {
        if self.withheld == Withheld::Window { 1 } else { window }
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

fn halved(limits: DirectionLimits) -> DirectionLimits {
    DirectionLimits {
        iops: limits.iops.and_then(|rate| Iops::new(rate.get() / 2).ok()),
        bandwidth: limits.bandwidth.and_then(|rate| BytesPerSec::new(rate.get() / 2).ok()),
    }
}

/// The most that a disk may have, in reference IOs per second; infinite where nothing binds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Most {
    /// Of reads and writes together.
    pub both: f64,
    /// Of reads, of writes.
    pub each: [f64; 2],
}

impl Setup {
    /// What a policy's limits leave to a disk. Limits in bytes count where all requests of the disk
    /// have one size; set-ups give them to no others.
    pub fn most(&self, disk: usize, policy: &Policy) -> Most {
        let size = match self.disks.get(disk).map(|disk| disk.sizes) {
            Some(Sizes::Fixed(size)) => Some(size),
            _ => None,
        };
        let of = |iops: Option<Iops>, bandwidth: Option<BytesPerSec>| {
            let iops = iops.map_or(f64::INFINITY, |rate| rate.get() as f64);
            let bytes = bandwidth.zip(size).map_or(f64::INFINITY, |(rate, size)| {
                rate.get() as f64 / size.0 as f64 * self.cost(size)
            });
            iops.min(bytes)
        };
        Most {
            both: of(policy.limit(), policy.limit_bandwidth()),
            each: Direction::BOTH.map(|direction| {
                let limits = policy.direction_limits(direction);
                of(limits.iops, limits.bandwidth)
            }),
        }
    }

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

    #[test]
    fn what_a_disk_may_have_counts_bytes_as_requests() {
        let limits = |iops, bandwidth: Bytes| DirectionLimits {
            iops: Iops::new(iops).ok(),
            bandwidth: BytesPerSec::new(bandwidth.0).ok(),
        };
        let policy = policy(0, 500, 1)
            .with_direction_limits(limits(0, Bytes::from_mib(1)), limits(40, Bytes::from_mib(1)))
            .unwrap();
        let mut setup = draw(Class::Constant, 0);
        setup.disks[0].sizes = Sizes::Fixed(Bytes::from_kib(16));
        let most = Most { both: 500.0, each: [64.0, 40.0] };
        assert_eq!(setup.most(0, &policy), most);
        let told = |withheld| Suspect { withheld, ..Suspect::default() }.told(policy);
        assert_eq!(setup.most(0, &told(Withheld::HalfOfLimits)).each, [32.0, 20.0]);
        assert_eq!(setup.most(0, &told(Withheld::SwappedDirections)).each, [40.0, 64.0]);
        assert_eq!(setup.most(0, &told(Withheld::Directions)).each, [f64::INFINITY; 2]);
    }
}
