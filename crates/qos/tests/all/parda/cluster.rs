//! Hosts that share an array, period by period: closed-loop VMs, an array whose latency follows
//! from what is in flight.

use crate::common::Dice;
use headgate_qos::window::{
    BoardView, Config, Controller, Demand, HostReport, Observation, Peer, Rank, Slots, Update,
};
use headgate_units::{Iops, Nanos, Shares};
use std::collections::VecDeque;
use std::num::NonZeroU32;

/// How latency follows from the number of requests in flight.
#[derive(Clone, Copy, Debug)]
pub enum Curve {
    /// At most `rate` IOPS, no request faster than `service`.
    FixedRate { rate: f64, service: Nanos },
    /// One server with exponential times, `rate` IOPS, and `way` there and back: mean value
    /// analysis.
    Exponential { rate: f64, way: Nanos },
}

impl Curve {
    /// Seconds.
    pub fn latency(self, in_flight: f64) -> f64 {
        match self {
            Curve::FixedRate { rate, service } => (in_flight / rate).max(service.as_secs_f64()),
            Curve::Exponential { rate, way } => {
                let way = way.as_secs_f64();
                let (mut queue, mut before, mut time) = (0.0, 0.0, 1.0 / rate + way);
                for n in 1..=in_flight.ceil() as u32 {
                    before = time;
                    time = (1.0 + queue) / rate + way;
                    queue = f64::from(n) * (1.0 - way / time);
                }
                let missing = in_flight.ceil() - in_flight;
                before * missing + time * (1.0 - missing)
            }
        }
    }
}

#[derive(Clone, Debug)]
pub struct Vm {
    pub shares: u64,
    pub reservation: u64,
    /// Requests it keeps outstanding.
    pub outstanding: f64,
}

/// A VM with so many shares and requests outstanding.
pub fn vm(shares: u64, outstanding: f64) -> Vm {
    Vm { shares, reservation: 0, outstanding }
}

/// What the slots of a host do, of all that it has in flight.
#[derive(Clone, Copy, Debug)]
pub struct SlotsDo {
    /// So many times what others' do.
    pub times: f64,
    /// Its rate is as this power of its number in flight, relative to the mean of all hosts.
    pub power: f64,
    /// IOPS at most.
    pub at_most: f64,
}

impl SlotsDo {
    pub const ALIKE: SlotsDo = SlotsDo { times: 1.0, power: 1.0, at_most: f64::INFINITY };
}

#[derive(Clone, Debug)]
pub struct Host {
    pub controller: Controller,
    pub vms: Vec<Vm>,
    /// What it measures, relative to the mean.
    pub offset: f64,
    /// What its slots do.
    pub slots_do: SlotsDo,
    /// What its last update said.
    pub last: Option<Update>,
    /// IOPS in the last period.
    pub iops: f64,
}

impl Host {
    fn in_flight(&self) -> f64 {
        let wanted: f64 = self.vms.iter().map(|vm| vm.outstanding).sum();
        wanted.min(self.controller.window().as_f64())
    }

    fn demands(&self) -> Vec<Demand> {
        self.vms
            .iter()
            .map(|vm| Demand {
                shares: Shares::new(vm.shares).unwrap(),
                reservation: Iops::new(vm.reservation).ok(),
                outstanding: Slots::from_millionths((vm.outstanding * 1e6) as u64),
            })
            .collect()
    }

    pub fn window(&self) -> f64 {
        self.controller.window().as_f64()
    }
}

/// What hosts know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Board {
    /// Reports of so many periods ago.
    Delayed(usize),
    /// Nothing, and they do not miss it: each acts by its own latency.
    LocalOnly,
    /// Nothing, and they know.
    Lost,
}

pub struct Cluster {
    pub hosts: Vec<Host>,
    pub curve: Curve,
    pub board: Board,
    /// Requests that somebody outside keeps in flight.
    pub foreign: f64,
    /// Latencies of a period differ by up to so much from those of the curve, for all hosts and for
    /// each.
    pub noise: f64,
    dice: Dice,
    /// The newest first.
    reports: VecDeque<Vec<HostReport>>,
    /// Seconds, in the last period.
    pub latency: f64,
}

impl Cluster {
    pub fn new(curve: Curve) -> Cluster {
        Cluster {
            hosts: Vec::new(),
            curve,
            board: Board::Delayed(1),
            foreign: 0.0,
            noise: 0.0,
            dice: Dice::new(1),
            reports: VecDeque::new(),
            latency: 0.0,
        }
    }

    pub fn seed(&mut self, seed: u64) {
        self.dice = Dice::new(seed);
    }

    pub fn host(&mut self, config: Config, vms: Vec<Vm>) -> usize {
        let controller = Controller::new(config).unwrap();
        self.hosts.push(Host {
            controller,
            vms,
            offset: 1.0,
            slots_do: SlotsDo::ALIKE,
            last: None,
            iops: 0.0,
        });
        self.hosts.len() - 1
    }

    fn wobble(&mut self) -> f64 {
        1.0 + self.noise * (self.dice.below(2_001) as f64 / 1_000.0 - 1.0)
    }

    pub fn period(&mut self) {
        let in_flight: f64 = self.hosts.iter().map(Host::in_flight).sum::<f64>() + self.foreign;
        self.latency = self.curve.latency(in_flight) * self.wobble();
        let mean = self.hosts.iter().map(Host::in_flight).sum::<f64>() / self.hosts.len() as f64;
        let mut seen = Vec::new();
        for i in 0..self.hosts.len() {
            let wobble = self.wobble();
            let host = &mut self.hosts[i];
            let seconds = host.controller.config().period.as_secs_f64();
            let SlotsDo { times, power, at_most } = host.slots_do;
            let in_flight = host.in_flight();
            let alike = in_flight / self.latency;
            host.iops = (alike * times * (in_flight / mean).powf(power - 1.0)).min(at_most);
            let ios = (host.iops * seconds) as u64;
            let took = in_flight / host.iops.max(f64::MIN_POSITIVE);
            let latency = Nanos((took * host.offset * wobble * 1e9) as u64);
            seen.push((ios > 0).then_some(Observation { latency, ios, work: ios * 1_000_000 }));
        }
        if self.board == Board::Delayed(0) {
            // What each will report depends on nobody else, but for its new window and bound.
            let mut hosts = self.hosts.clone();
            let reports = hosts.iter_mut().zip(&seen).map(|(host, own)| {
                let demands = host.demands();
                host.controller.update(*own, &demands, BoardView::Alone).report
            });
            self.reports.push_front(reports.collect());
        }
        let known = match self.board {
            Board::Delayed(periods) => self.reports.get(periods.saturating_sub(1)).cloned(),
            _ => None,
        };
        let mut new = Vec::new();
        for (i, host) in self.hosts.iter_mut().enumerate() {
            let age = match self.board {
                Board::Delayed(periods) => {
                    Nanos(host.controller.config().period.0 * periods as u64)
                }
                _ => Nanos::ZERO,
            };
            let others = known.iter().flatten().enumerate().filter(|(peer, _)| *peer != i);
            let peers: Vec<Peer> = others
                .map(|(_, report)| Peer { report: *report, age, rank: Rank::After })
                .collect();
            let view = match self.board {
                Board::Delayed(_) => BoardView::Shared(&peers),
                Board::LocalOnly => BoardView::Alone,
                Board::Lost => BoardView::Unreachable,
            };
            let demands = host.demands();
            let update = host.controller.update(seen[i], &demands, view);
            new.push(update.report);
            host.last = Some(update);
        }
        self.reports.push_front(new);
        self.reports.truncate(4);
    }

    pub fn periods(&mut self, n: u32) {
        for _ in 0..n {
            self.period();
        }
    }

    pub fn windows(&self) -> Vec<f64> {
        self.hosts.iter().map(Host::window).collect()
    }

    pub fn throughput(&self) -> f64 {
        self.hosts.iter().map(|host| host.iops).sum()
    }

    /// Means over `n` periods: windows, IOPS of the hosts, latency in milliseconds.
    pub fn mean(&mut self, n: u32) -> (Vec<f64>, Vec<f64>, f64) {
        let (mut windows, mut iops, mut latency) =
            (vec![0.0; self.hosts.len()], vec![0.0; self.hosts.len()], 0.0);
        for _ in 0..n {
            self.period();
            for (i, host) in self.hosts.iter().enumerate() {
                windows[i] += host.window() / f64::from(n);
                iops[i] += host.iops / f64::from(n);
            }
            latency += self.latency * 1e3 / f64::from(n);
        }
        (windows, iops, latency)
    }
}

/// The paper's constants, with a slot per share.
pub fn published(threshold_ms: u64) -> Config {
    Config::published(Nanos::from_millis(threshold_ms), NonZeroU32::MIN)
}

/// The same window whatever happens.
pub fn uncontrolled(window: u32) -> Config {
    let window = Slots::whole(window);
    Config { min: window, max: window, initial: window, ..published(30) }
}

pub fn spindles(rate: f64) -> Curve {
    Curve::FixedRate { rate, service: Nanos::from_millis(5) }
}

#[track_caller]
pub fn near(value: f64, expected: f64, tolerance: f64) {
    assert!(
        (value / expected - 1.0).abs() <= tolerance,
        "{value:.3}, expected {expected:.3} within {tolerance}"
    );
}

/// The values are as the weights are.
#[track_caller]
pub fn in_ratio(values: &[f64], weights: &[f64], tolerance: f64) {
    let unit = values.iter().sum::<f64>() / weights.iter().sum::<f64>();
    for (value, weight) in values.iter().zip(weights) {
        assert!(
            (value / weight / unit - 1.0).abs() <= tolerance,
            "{values:.2?}, expected {weights:?} within {tolerance}"
        );
    }
}
