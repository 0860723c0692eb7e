//! Random set-ups.

use crate::bench::{Disk, Load, bursts};
use crate::dice::Dice;
use crate::storage::{Asked, Kind, cost, metered, record};
use headgate_placement::latency_bound::{
    BurstMeter, LATE, PUNCTUAL, PromisedDisk, ServiceRecord, Storage, Work,
};
use headgate_units::{Bytes, Iops, LatencyTarget, Nanos};
use std::fmt;
use std::num::NonZeroU32;

/// What the other disks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They send their requests as they come, or always have some queued: they ask on time.
    Steady,
    /// They keep few outstanding, or first one and then many at once.
    Hostile,
}

/// One set-up.
#[derive(Clone)]
pub struct Setup {
    pub kind: Kind,
    rate: u64,
    pub window: u32,
    pub disks: Vec<Disk>,
    pub others: Others,
    pub permille: u32,
    pub seed: u64,
    light: ServiceRecord,
    busy: Vec<ServiceRecord>,
    arrivals: Option<BurstMeter>,
}

/// Requests that are recorded of storage and of arrivals.
fn recorded(permille: u32) -> u64 {
    200_000 / u64::from(1_000 - permille).min(10)
}

const RATES: [u64; 5] = [200, 700, 2_000, 9_000, 40_000];
pub const KINDS: [&str; 9] = [
    "constant",
    "exponential",
    "pareto",
    "stalls",
    "short stalls",
    "parallel",
    "array",
    "sized",
    "stragglers",
];

/// What is recorded of this storage: some periods of its stalls at least.
fn recorded_of(kind: &Kind, rate: u64, permille: u32) -> u64 {
    recorded(permille).max(8 * rate * kind.period().0 / 1_000_000_000)
}

fn kind(name: &'static str, dice: &mut Dice) -> (Kind, u64) {
    let rate = if name == "stalls" { dice.one_of(&RATES[..3]) } else { dice.one_of(&RATES) };
    let service = dice.one_of(&["constant", "exponential,seed=SEED"]);
    let (text, rate) = match name {
        "constant" => (format!("rate={rate},latency=0ns"), rate),
        "exponential" => (format!("rate={rate},latency=0ns,service=exponential,seed=SEED"), rate),
        "pareto" => (format!("rate={rate},latency=0ns,service=pareto,seed=SEED"), rate),
        "stalls" => {
            let (time, period) =
                dice.one_of(&[(50, 5_000), (100, 30_000), (20, 1_000), (400, 3_000)]);
            (format!("rate={rate},latency=0ns,service={service},stall={time}ms/{period}ms"), rate)
        }
        "short stalls" => {
            let (time, period) = dice.one_of(&[(5, 100), (10, 1_000), (2, 20)]);
            (format!("rate={rate},latency=0ns,service={service},stall={time}ms/{period}ms"), rate)
        }
        "parallel" => {
            let servers = dice.one_of(&[2, 4, 8, 16]);
            let latency = servers * 1_000_000 / rate;
            (format!("rate={rate},latency={latency}us,service={service}"), rate)
        }
        "array" => {
            let spindles = dice.within(1, 10);
            (format!("array={spindles},cache=0,seed=SEED"), spindles * 150)
        }
        "stragglers" => {
            let often = dice.one_of(&[50, 400, 3_000]);
            (format!("rate={rate},latency=100us,service={service},stragglers={often}:20ms"), rate)
        }
        _ => return (Kind::Sized(rate), rate),
    };
    (Kind::Model(text), rate)
}

fn load(dice: &mut Dice, rate: f64) -> Load {
    match dice.within(0, 6) {
        0 => Load::Idle,
        1 | 2 => Load::Poisson(rate * dice.between(0.2, 0.95)),
        3 => Load::Even(rate * dice.between(0.5, 1.0)),
        4 => Load::Batches(rate * dice.between(0.2, 0.8), dice.within(2, 12) as u32),
        _ => Load::Closed(dice.within(32, 100) as u32),
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { kind, window, permille, seed, .. } = self;
        writeln!(f, "{kind:?}, window {window}, p{permille}, seed {seed}")?;
        self.disks.iter().try_for_each(|disk| writeln!(f, "  {disk:?}"))
    }
}

impl Setup {
    pub fn new(seed: u64, name: &'static str, others: Others) -> Setup {
        let mut dice = Dice::new(seed);
        let (kind, rate) = kind(name, &mut dice);
        let sized = matches!(kind, Kind::Sized(_));
        let sizes: &[Bytes] = if sized { &[Bytes(4_096), Bytes(16_384)] } else { &[Bytes(4_096)] };
        let size = |dice: &mut Dice| dice.one_of(sizes);
        let window = dice.one_of(&[4u32, 8, 16, 32, 64]);
        let permille = dice.one_of(&[900, 950, 990, 990, 990, 995, 999]);
        let all = dice.between(0.2, 0.85) * rate as f64;
        let mut weights = vec![dice.between(0.2, 1.0)];
        weights.extend((0..dice.within(0, 3)).map(|_| dice.between(0.05, 1.0)));
        let sum: f64 = weights.iter().sum();
        let mut disks: Vec<Disk> = weights
            .iter()
            .map(|weight| {
                let reservation = ((all * weight / sum) as u64).max(2);
                let bytes = size(&mut dice);
                let per_second = reservation as f64 / cost(bytes);
                let shares = dice.one_of(&[10, 1_000, 10_000]);
                let load = load(&mut dice, per_second);
                Disk { reservation: Some(reservation), shares, load, bytes }
            })
            .collect();
        let own = disks[0].reservation.unwrap() as f64 / cost(disks[0].bytes);
        disks[0].load = match dice.within(0, 5) {
            0 | 1 => Load::Poisson(own * dice.between(0.1, 0.9)),
            2 => Load::Even(own * dice.between(0.3, 1.0)),
            3 => Load::Batches(own * dice.between(0.1, 0.7), dice.within(2, 8) as u32),
            4 => Load::Tides(own * dice.between(0.1, 0.5), own * dice.between(0.5, 0.9)),
            _ => Load::Closed(dice.within(1, 8) as u32),
        };
        // Somebody without a reservation fills the window.
        let bytes = size(&mut dice);
        let load = Load::Closed(dice.within(1, 80) as u32);
        disks.push(Disk { reservation: None, shares: 1_000, load, bytes });
        if others == Others::Hostile {
            for disk in &mut disks[1..] {
                if disk.reservation.is_some() {
                    let quiet = Nanos::from_millis(dice.within(100, 300));
                    let burst = Nanos::from_millis(dice.within(50, 200));
                    disk.load = match dice.within(0, 3) {
                        0 => Load::Closed(dice.within(1, 8) as u32),
                        _ => Load::Trickle(quiet, dice.within(32, 128) as u32, burst),
                    };
                }
            }
        }
        let requests = recorded_of(&kind, rate, permille);
        let pause = Nanos((dice.between(400.0, 900.0) * 1e9 / rate as f64) as u64);
        let (light, lights) =
            dice.one_of(&[(Asked::Kept(1), requests), (Asked::Paused(pause), recorded(permille))]);
        // The window alone, or each depth up to it.
        let depths = match dice.within(0, 1) {
            0 => vec![u64::from(window)],
            _ => (1..=window.ilog2()).map(|octave| 1 << octave).collect(),
        };
        Setup {
            light: record(&kind, seed + 7, light, lights, sizes),
            busy: depths
                .into_iter()
                .map(|depth| record(&kind, seed + depth, Asked::Kept(depth), requests, sizes))
                .collect(),
            arrivals: bursts(&disks[0], seed + 11, 10 * recorded(permille)),
            kind,
            rate,
            window,
            disks,
            others,
            permille,
            seed,
        }
    }

    /// The same with a record of idle storage.
    pub fn recorded_idle(self) -> Setup {
        let sizes: Vec<Bytes> = self.disks.iter().map(|disk| disk.bytes).collect();
        let pause = Asked::Paused(Nanos::from_secs(1));
        let light = record(&self.kind, self.seed + 7, pause, recorded(self.permille), &sizes);
        Setup { light, ..self }
    }

    /// The same, recorded by statistics that are taken once a second.
    pub fn metered(self) -> Setup {
        let window = self.window.into();
        let requests = recorded_of(&self.kind, self.rate, self.permille);
        let meter = metered(&self.kind, self.seed + 7, window, requests, self.rate as f64 / 4.0);
        let busy = meter.busy().map_or(self.busy, |busy| vec![busy]);
        Setup { light: meter.light().unwrap_or(self.light), busy, ..self }
    }

    /// What admission knows of the storage.
    pub fn storage(&self) -> Storage {
        Storage {
            rate: None,
            window: NonZeroU32::new(self.window).unwrap(),
            least_window: NonZeroU32::MIN,
            floor: NonZeroU32::new(100),
            light: Some(self.light.clone()),
            busy: self.busy.clone(),
            longest_stall: Nanos::ZERO,
        }
    }

    /// And of its disks. The first has the target.
    pub fn promised(&self, latency: Nanos) -> Vec<PromisedDisk<'_>> {
        // Targets are in whole microseconds.
        let latency = Nanos(latency.0.next_multiple_of(1_000)).min(LatencyTarget::MAX);
        let late = match self.others {
            Others::Steady => PUNCTUAL,
            Others::Hostile => LATE,
        };
        let promised = |(number, disk): (usize, &Disk)| PromisedDisk {
            reservation: disk.reservation.map(|rate| Iops::new(rate).unwrap()),
            target: (number == 0)
                .then(|| LatencyTarget::new(self.permille as u16, latency).unwrap()),
            largest: Work::from_millionths((cost(disk.bytes) * 1e6) as u64),
            late,
            outstanding: match disk.load {
                Load::Closed(depth) => NonZeroU32::new(depth),
                _ => None,
            },
            bursts: if number == 0 { self.arrivals.as_ref() } else { None },
        };
        self.disks.iter().enumerate().map(promised).collect()
    }
}
