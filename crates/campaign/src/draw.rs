//! Set-ups out of a class and a seed.

use crate::class::Class;
use crate::rng::Rng;
use crate::setup::{Conduct, DiskSetup, Load, Mix, Phase, Setup, Sizes, policy};
use crate::targets;
use headgate_devices::{ServiceTime, Stall};
use headgate_qos::{CostModel, Direction, DirectionLimits, Policy};
use headgate_units::{Bytes, BytesPerSec, Iops, Nanos};

/// Policy and load of a disk.
type Asked = (Policy, Load);

/// What a class draws its policies from.
struct Ranges {
    /// Disks.
    disks: (u64, u64),
    /// Reference IOs per second.
    rate: (f64, f64),
    /// Sum of the reservations, in parts of the rate.
    reserved: (f64, f64),
    /// Probability that a disk has a reservation.
    some: f64,
    /// Shares.
    shares: f64,
    /// Limits, in parts of the rate over the number of disks.
    limits: (f64, f64),
}

const USUAL: Ranges = Ranges {
    disks: (2, 50),
    rate: (500.0, 5_000.0),
    reserved: (0.0, 0.9),
    some: 0.5,
    shares: 1_000.0,
    limits: (0.25, 8.0),
};

fn ranges(class: Class) -> Ranges {
    match class {
        Class::Shortage => Ranges { reserved: (1.05, 4.0), some: 0.7, ..USUAL },
        Class::Brim => Ranges { reserved: (0.97, 1.0), ..USUAL },
        Class::Weights => Ranges { shares: 1_000_000.0, ..USUAL },
        Class::HeavyTail => Ranges { reserved: (0.0, 0.7), ..USUAL },
        Class::Stall => Ranges { reserved: (0.0, 0.6), ..USUAL },
        Class::LongStall => Ranges { reserved: (0.0, 0.5), rate: (500.0, 2_000.0), ..USUAL },
        Class::LargeSizes => Ranges { disks: (2, 12), reserved: (0.0, 0.6), ..USUAL },
        Class::Latency => Ranges { disks: (2, 20), reserved: (0.1, 0.8), some: 0.7, ..USUAL },
        _ => USUAL,
    }
}

/// The set-up of a class and a seed.
pub fn draw(class: Class, seed: u64) -> Setup {
    if class == Class::LatencyTarget {
        return targets::draw::setup(seed);
    }
    let mut rng = Rng::new(class.name(), seed);
    let ranges = ranges(class);
    let count = rng.within(ranges.disks.0, ranges.disks.1) as usize;
    let rate = rng.scale(ranges.rate.0, ranges.rate.1) as u64;
    let window = rng.scale(1.0, 65.0) as u32;
    let mut first: Vec<Asked> = policies(class, &ranges, &mut rng, rate, count)
        .into_iter()
        .map(|policy| (policy, Load::Queued(rng.scale(4.0, 64.0) as u32)))
        .collect();
    loads(class, &mut rng, &mut first);
    let mut phases = phases(class, &ranges, &mut rng, rate, first);
    let mut disks = disks(class, &mut rng, count);
    if class == Class::Directions {
        directions(&mut rng, rate as f64 / count as f64, &mut phases, &mut disks);
    }
    let service = match class {
        Class::Exponential => ServiceTime::Exponential { seed: rng.number() },
        Class::Directions if rng.chance(0.5) => ServiceTime::Exponential { seed: rng.number() },
        Class::HeavyTail => ServiceTime::Pareto { seed: rng.number() },
        _ => ServiceTime::Constant,
    };
    let stall = stall(class, &mut rng);
    Setup {
        class,
        seed,
        window,
        cost_model: match class {
            Class::Sizes | Class::LargeSizes => CostModel::default(),
            _ => CostModel::Unit,
        },
        latency: Nanos::ZERO,
        service,
        stall,
        settle: settle(class, stall),
        disks,
        phases,
    }
}

/// Seconds of a phase that are not judged. Until the first stall is over nothing is owed, and who
/// does not know when it comes cannot give in advance what it will cost.
fn settle(class: Class, stall: Option<Stall>) -> usize {
    let whole_periods = stall.map_or(0, |stall| stall.period().as_secs_f64().round() as usize);
    match class {
        Class::LargeSizes => 4,
        _ => 1 + whole_periods,
    }
}

fn policies(class: Class, ranges: &Ranges, rng: &mut Rng, rate: u64, count: usize) -> Vec<Policy> {
    let sum = rng.between(ranges.reserved.0, ranges.reserved.1) * rate as f64;
    let mut parts: Vec<f64> = (0..count)
        .map(|_| if rng.chance(ranges.some) { rng.exponential(1.0) + 0.05 } else { 0.0 })
        .collect();
    if class == Class::Latency && parts.iter().all(|&part| part == 0.0) {
        parts[0] = 1.0;
    }
    let whole: f64 = parts.iter().sum();
    let fair = rate as f64 / count as f64;
    parts
        .into_iter()
        .map(|part| {
            let shares = rng.scale(1.0, ranges.shares + 0.5) as u64;
            let limit = match rng.chance(0.33) {
                true => (fair * rng.scale(ranges.limits.0, ranges.limits.1)).max(1.0) as u64,
                false => 0,
            };
            if class == Class::Tiny {
                let (least, most) = (rng.within(0, 5), rng.within(1, 5));
                return policy(least, if rng.chance(0.5) { most } else { 0 }, shares);
            }
            let reservation = if part > 0.0 { (sum * part / whole).max(1.0) as u64 } else { 0 };
            let limit = if class == Class::Latency { 0 } else { limit };
            policy(reservation, limit, shares)
        })
        .collect()
}

fn loads(class: Class, rng: &mut Rng, disks: &mut [Asked]) {
    for (policy, load) in disks {
        match (class, policy.reservation()) {
            (Class::Depth, _) => *load = Load::Outstanding(rng.scale(1.0, 257.0) as u32),
            (Class::Latency, Some(reservation)) => {
                *load = Load::Open(reservation.get() as f64 * 0.8);
            }
            _ => {}
        }
    }
}

fn phases(
    class: Class,
    ranges: &Ranges,
    rng: &mut Rng,
    rate: u64,
    first: Vec<Asked>,
) -> Vec<Phase> {
    let iops = |rate: u64| Iops::new(rate.max(1)).unwrap_or(RATE);
    let phase = |seconds, rate, disks| Phase { seconds, rate: iops(rate), disks };
    let changed = |change: &mut dyn FnMut(&mut [Asked])| {
        let mut disks = first.clone();
        let mut phases = Vec::new();
        for _ in 0..4 {
            phases.push(phase(9, rate, disks.clone()));
            disks = first.clone();
            change(&mut disks);
        }
        phases
    };
    match class {
        Class::Swing => {
            [rate, rate / 10, rate, rate / 3].map(|rate| phase(9, rate, first.clone())).to_vec()
        }
        Class::OnOff => changed(&mut |disks| {
            for (_, load) in disks.iter_mut() {
                if rng.chance(0.4) {
                    *load = Load::Idle;
                }
            }
        }),
        Class::LivePolicy => changed(&mut |disks| {
            let others = policies(class, ranges, rng, rate, disks.len());
            for ((policy, _), other) in disks.iter_mut().zip(others) {
                *policy = other;
            }
        }),
        Class::LongStall => vec![phase(81, rate, first)],
        _ => vec![phase(31, rate, first)],
    }
}

const RATE: Iops = match Iops::new(1_000) {
    Ok(rate) => rate,
    Err(_) => panic!("in range"),
};

fn disks(class: Class, rng: &mut Rng, count: usize) -> Vec<DiskSetup> {
    let small = Bytes::from_kib(4);
    let most = match class {
        Class::Sizes => Bytes::from_mib(1),
        Class::LargeSizes => Bytes::from_mib(64),
        _ => small,
    };
    let hostile = rng.within(1, 3) as usize;
    (0..count)
        .map(|number| {
            let largest = Bytes(small.0 << rng.within(0, u64::from((most.0 / small.0).ilog2())));
            let sizes = match rng.chance(0.5) {
                true => Sizes::Fixed(largest),
                false => Sizes::Mixed(small, largest),
            };
            let conduct = match class {
                Class::Hostile if number < hostile => {
                    rng.one_of(&Conduct::HOSTILE).unwrap_or(Conduct::Extracts)
                }
                Class::Registration if number < hostile => Conduct::Registers,
                _ => Conduct::Honest,
            };
            DiskSetup { sizes, mix: Mix::Reads, conduct }
        })
        .collect()
}

/// Which requests write, and limits of one direction, in parts of the rate over the number of
/// disks. Requests of a disk have one size, so that a limit in bytes is one in IOs.
fn directions(rng: &mut Rng, fair: f64, phases: &mut [Phase], disks: &mut [DiskSetup]) {
    let Some(phase) = phases.first_mut() else { return };
    for (disk, (policy, _)) in disks.iter_mut().zip(&mut phase.disks) {
        let size = Bytes::from_kib(rng.one_of(&[4, 16, 64]).unwrap_or(4));
        let writes = match rng.chance(0.2) {
            true => f64::from(u8::from(rng.chance(0.5))),
            false => rng.unit(),
        };
        disk.sizes = Sizes::Fixed(size);
        disk.mix = if rng.chance(0.5) { Mix::Apart(writes) } else { Mix::Random(writes) };
        if rng.chance(0.15) {
            let least = policy.reservation().map_or(1, Iops::get);
            let most = ((fair * rng.scale(0.25, 8.0)) as u64).max(least);
            *policy = policy.with_limit_bandwidth(BytesPerSec::new(most * size.0).ok());
        }
        let [reads, writes] = Direction::BOTH.map(|_| {
            let rate = (fair * rng.scale(0.1, 4.0)).max(1.0) as u64;
            match (rng.chance(0.5), rng.chance(0.5)) {
                (false, _) => DirectionLimits::NONE,
                (true, true) => DirectionLimits { iops: Iops::new(rate).ok(), bandwidth: None },
                (true, false) => {
                    let bandwidth = BytesPerSec::new(rate * size.0).ok();
                    DirectionLimits { iops: None, bandwidth }
                }
            }
        });
        // Refused where the reservation is above both.
        *policy = policy.with_direction_limits(reads, writes).unwrap_or(*policy);
    }
}

fn stall(class: Class, rng: &mut Rng) -> Option<Stall> {
    let ms = |ms: f64| Nanos::from_millis(ms as u64);
    match class {
        Class::Stall => {
            let period = rng.one_of(&[1_000.0, 2_500.0, 5_000.0])?;
            Stall::new(ms(rng.between(0.1, 0.4) * period), ms(period))
        }
        Class::LongStall => {
            let period = rng.one_of(&[10_000.0, 20_000.0])?;
            Stall::new(ms(rng.between(2_000.0, 5_000.0)), ms(period))
        }
        Class::Collection => {
            let period = rng.one_of(&[100.0, 250.0, 500.0])?;
            Stall::new(ms(rng.between(5.0, 50.0)), ms(period))
        }
        _ => None,
    }
}
