//! More of what hurts never makes a bound better, and no value makes it panic.

use headgate_placement::Outstanding;
use headgate_placement::latency_bound::{
    Beside, BurstMeter, PromisedDisk, ServiceRecord, Storage, Verdict, Work, judge,
};
use headgate_units::{Iops, LatencyTarget, Nanos};
use proptest::prelude::*;
use std::num::NonZeroU32;

/// A question that can be made harder.
#[derive(Clone, Debug)]
struct Asked {
    permille: u32,
    latency: u64,
    window: u32,
    least: u32,
    rate: Option<u64>,
    floor: u32,
    stall: u64,
    in_flight: u32,
    light: Vec<(u64, u64)>,
    busy: Vec<(u64, u64)>,
    own: u64,
    outstanding: Option<u32>,
    bursts: Vec<u64>,
    others: Vec<(u64, u64, u64)>,
}

impl Asked {
    fn storage(&self) -> Storage {
        let times = |pairs: &[(u64, u64)]| {
            pairs.iter().map(|&(time, count)| (Nanos(time), count)).collect::<Vec<_>>()
        };
        let beside = |n| Beside::Mean(Outstanding::whole(n));
        Storage {
            rate: self.rate.and_then(|rate| Iops::new(rate).ok()),
            window: NonZeroU32::new(self.window).unwrap_or(NonZeroU32::MIN),
            least_window: NonZeroU32::new(self.least).unwrap_or(NonZeroU32::MIN),
            floor: NonZeroU32::new(self.floor),
            light: ServiceRecord::new(beside(1), Work::ONE, times(&self.light)),
            busy: ServiceRecord::new(beside(self.in_flight), Work::ONE, times(&self.busy))
                .into_iter()
                .collect(),
            longest_stall: Nanos(self.stall),
        }
    }

    fn judge(&self) -> Verdict {
        let own = Iops::new(self.own).ok();
        let meter = own.map(|rate| {
            let mut meter = BurstMeter::new(Nanos::ZERO, rate);
            let mut now = 0u64;
            for _ in 0..60_000 / self.bursts.len().max(1) {
                for &gap in &self.bursts {
                    now = now.saturating_add(gap);
                    meter.arrived(Nanos(now), Work::ONE);
                }
            }
            meter
        });
        let mut disks = vec![PromisedDisk {
            reservation: own,
            target: target(self.permille, self.latency),
            largest: Work::ONE,
            late: Nanos::ZERO,
            outstanding: self.outstanding.and_then(NonZeroU32::new),
            bursts: meter.as_ref().filter(|_| !self.bursts.is_empty()),
        }];
        disks.extend(self.others.iter().map(|&(rate, largest, late)| PromisedDisk {
            reservation: Iops::new(rate).ok(),
            target: None,
            largest: Work::from_millionths(largest),
            late: Nanos(late),
            outstanding: None,
            bursts: None,
        }));
        judge(&self.storage(), &disks, 0)
    }

    /// The least latency that can be promised; nothing is later than everything.
    fn nearest(&self) -> Nanos {
        match (Asked { latency: LatencyTarget::MIN.0, ..self.clone() }).judge() {
            Verdict::Unlikely(refusal) | Verdict::Impossible(refusal) => {
                refusal.nearest.map_or(Nanos::MAX, LatencyTarget::latency)
            }
            Verdict::Unknown(missing) => panic!("{missing}"),
            Verdict::Kept(promise) => panic!("{promise:?}"),
        }
    }
}

/// In whole microseconds.
fn target(permille: u32, latency: u64) -> Option<LatencyTarget> {
    LatencyTarget::new(permille as u16, Nanos(latency / 1_000 * 1_000)).ok()
}

fn asked() -> impl Strategy<Value = Asked> {
    let times = || prop::collection::vec((100_000u64..3_000_000, 50_000u64..500_000), 1..5);
    let others =
        prop::collection::vec((0u64..200, 1_000_000u64..4_000_000, 0u64..20_000_000), 0..4);
    let storage = (times(), 2u32..40, 1u32..24, 1u32..4, 20u32..200);
    let demand = (20u64..300, prop::option::of(1u32..6), others, 500u32..999);
    let gaps = prop::collection::vec(0u64..60_000_000, 0..12);
    (storage, demand, gaps).prop_map(|(storage, demand, bursts)| {
        let (light, in_flight, window, least, floor) = storage;
        let (own, outstanding, others, permille) = demand;
        let deeper = |&(time, count): &(u64, u64)| (time * u64::from(in_flight), count);
        let busy = light.iter().map(deeper).collect();
        let (rate, latency, stall) = (None, 5_000_000, 0);
        Asked {
            permille,
            latency,
            window,
            least,
            rate,
            floor,
            stall,
            in_flight,
            light,
            busy,
            own,
            outstanding,
            bursts,
            others,
        }
    })
}

/// One thing made harder, by its number.
fn harder(asked: &Asked, what: usize, by: u64) -> Asked {
    let mut harder = asked.clone();
    let all = |pairs: &mut Vec<(u64, u64)>| pairs.iter_mut().for_each(|p| p.0 += p.0 * by / 64);
    match what {
        0 => all(&mut harder.light),
        1 => all(&mut harder.busy),
        2 => harder.others.push((by, 1_000_000, 0)),
        3 => harder.others.iter_mut().for_each(|other| other.0 += by),
        4 => harder.others.iter_mut().for_each(|other| other.1 += by * 100_000),
        5 => harder.others.iter_mut().for_each(|other| other.2 += by * 1_000_000),
        6 => harder.floor = (harder.floor - (by as u32).min(harder.floor - 1)).max(1),
        7 => harder.permille = (harder.permille + by as u32).min(999),
        8 => harder.least += by as u32 / 8,
        9 => harder.window -= (harder.window - 1).min(by as u32),
        10 => harder.stall = by * 10_000_000,
        11 => harder.outstanding = harder.outstanding.map(|n| n + by as u32),
        12 => harder.bursts.iter_mut().for_each(|gap| *gap -= *gap * by.min(63) / 64),
        _ => harder.rate = Some(by * 20),
    }
    harder
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn nothing_that_hurts_makes_a_bound_better(
        asked in asked(), what in 0usize..14, by in 1u64..64,
    ) {
        let harder = harder(&asked, what, by);
        // A least window above the window is the window.
        prop_assume!(harder.least <= harder.window || what != 9);
        let (easy, hard) = (asked.nearest(), harder.nearest());
        prop_assert!(hard >= easy, "{what}: {hard} after {easy}\n{asked:?}\n{harder:?}");
    }

    #[test]
    fn a_verdict_goes_by_the_nearest_target(asked in asked(), part in 1u64..2_000) {
        let nearest = asked.nearest();
        prop_assume!(nearest != Nanos::MAX);
        let latency = (u128::from(nearest.0) * u128::from(part) / 1_000) as u64 / 1_000 * 1_000;
        prop_assume!(target(asked.permille, latency).is_some());
        let verdict = Asked { latency, ..asked }.judge();
        match verdict {
            Verdict::Kept(promise) => {
                prop_assert!(latency >= nearest.0 && promise.bound.0 <= latency, "{verdict}");
            }
            _ => prop_assert!(latency < nearest.0, "{verdict}"),
        }
    }

    #[test]
    fn no_value_panics(
        numbers in prop::array::uniform8(prop_oneof![
            0u64..3, any::<u64>(), 1u64..1_000_000_000, (u64::MAX - 3)..=u64::MAX
        ]),
        times in prop::collection::vec((any::<u64>(), any::<u64>()), 0..4),
        others in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..3),
        window in 0u32..300, least in any::<u32>(), in_flight in any::<u32>(),
        permille in 0u32..1_200, outstanding in prop::option::of(any::<u32>()),
    ) {
        let [latency, rate, stall, own, first, second, gap, floor] = numbers;
        let asked = Asked {
            permille,
            latency,
            window,
            least,
            rate: Some(rate),
            floor: floor as u32,
            stall,
            in_flight,
            light: vec![(first, second)],
            busy: times,
            own: own.min(1_000_000_000),
            outstanding,
            bursts: vec![gap],
            others,
        };
        let verdict = asked.judge();
        prop_assert!(!verdict.to_string().is_empty());
        if let Verdict::Kept(promise) = verdict {
            prop_assert!(promise.bound.0 <= latency);
        }
    }
}
