//! Set-ups with latency targets.

use crate::class::Class;
use crate::rng::Rng;
use crate::setup::{Conduct, DiskSetup, Load, Mix, Phase, Setup, Sizes, policy};
use headgate_devices::ServiceTime;
use headgate_qos::{CostModel, Policy};
use headgate_units::{Bytes, Iops, LatencyTarget, Nanos};

/// Seconds before targets are judged. A disk is judged every 10 s or more often; its first step is
/// a half of the window at most, and the ones after that go where they aim (decision 52).
const SETTLE: usize = 30;

/// Seconds after that.
const JUDGED: usize = 90;

/// Requests that may be late, so that what is measured at the quantile says something.
const LATE: f64 = 20.0;

/// One or two disks with a target, whose clients think, beside one to four that saturate.
pub fn setup(seed: u64) -> Setup {
    let class = Class::LatencyTarget;
    let mut rng = Rng::new(class.name(), seed);
    let rate = rng.scale(200.0, 1_000.0).round();
    let window = rng.scale(4.0, 65.0) as u32;
    // Storage that reaches its rate with no more than half of the window.
    let latency = match rng.chance(0.5) {
        true => rng.scale(1.0, f64::from(window) / 2.0) / rate,
        false => 0.0,
    };
    let mut disks = neighbours(&mut rng, rate);
    let count = if rng.chance(0.3) { 2u8 } else { 1 };
    let (most, alone) = (0.4 / f64::from(count), latency.max(1.0 / rate));
    disks.extend((0..count).map(|_| aimed(&mut rng, rate, most, window, alone)));
    let disk = DiskSetup {
        sizes: Sizes::Fixed(Bytes::from_kib(4)),
        mix: Mix::Reads,
        conduct: Conduct::Honest,
    };
    Setup {
        class,
        seed,
        window,
        cost_model: CostModel::Unit,
        latency: Nanos((latency * 1e9) as u64),
        service: match rng.chance(0.5) {
            true => ServiceTime::Exponential { seed: rng.number() },
            false => ServiceTime::Constant,
        },
        stall: None,
        settle: SETTLE,
        disks: vec![disk; disks.len()],
        phases: Iops::new(rate as u64)
            .map(|rate| Phase { seconds: SETTLE + JUDGED, rate, disks })
            .into_iter()
            .collect(),
    }
}

/// Disks that always have requests queued, some with reservations: 40 % of the rate at most.
fn neighbours(rng: &mut Rng, rate: f64) -> Vec<(Policy, Load)> {
    let count = rng.within(1, 4);
    (0..count)
        .map(|_| {
            let reserved = if rng.chance(0.4) { rng.between(0.0, 0.4) / count as f64 } else { 0.0 };
            let shares = rng.scale(1.0, 1_000.5) as u64;
            let load = Load::Queued(rng.scale(16.0, 129.0) as u32);
            (policy((rate * reserved) as u64, 0, shares), load)
        })
        .collect()
}

/// A disk that asks for 5 to 50 % of its reservation, which is a tenth to `most` of the rate. Its
/// target lies between less than one request takes alone and more than it takes behind the whole
/// window.
fn aimed(rng: &mut Rng, rate: f64, most: f64, window: u32, alone: f64) -> (Policy, Load) {
    let reservation = (rate * rng.between(0.1, most)).max(1.0);
    let shares = rng.scale(1.0, 1_000.5) as u64;
    let asked = reservation * rng.scale(0.05, 0.5);
    let clients = rng.scale(1.0, 17.0) as u32;
    let wide = (f64::from(window + 1) / rate * 1.5).max(alone * 2.0);
    let latency = Nanos((rng.scale(0.4 * alone, wide) * 1e6).max(10.0) as u64 * 1_000);
    let enough = |&part: &u16| {
        f64::from(1_000 - part) / 1_000.0 * asked * JUDGED as f64 >= LATE || part == 500
    };
    let quantiles: Vec<u16> = [500, 900, 950, 990].into_iter().filter(enough).collect();
    let quantile = rng.one_of(&quantiles).unwrap_or(500);
    let policy = policy(reservation as u64, 0, shares);
    let target = LatencyTarget::new(quantile, latency).ok();
    let policy = policy.with_latency_target(target).unwrap_or(policy);
    (policy, Load::Thinking { clients, rate: asked })
}
