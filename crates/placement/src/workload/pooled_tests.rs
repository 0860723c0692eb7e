use super::*;
use crate::workload::fit::tests::any_measurement;
use crate::workload::spread::{LEAST, Trait};
use crate::{Outstanding, WorkloadProfile};
use headgate_units::Bytes;
use proptest::prelude::*;

/// A generator of scattered numbers.
struct Dice(u64);

impl Dice {
    /// 0 to `n` - 1.
    fn roll(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % n
    }
}

fn any_workload(dice: &mut Dice) -> WorkloadProfile {
    WorkloadProfile {
        outstanding: Outstanding::from_thousandths(500 + dice.roll(32_000) as u32),
        size: Bytes::from_kib(4 << dice.roll(7)),
        read: Permille(dice.roll(1_001) as u32),
        random: Permille(dice.roll(1_001) as u32),
    }
}

/// Latencies of workloads on a device, of which each is off by up to `noise` per cent.
fn measured(
    truth: &Fit,
    count: usize,
    noise: u64,
    seed: u64,
    workload: impl Fn(&mut Dice) -> WorkloadProfile,
) -> Vec<Measurement> {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    (0..count)
        .map(|_| {
            let profile = workload(&mut dice);
            let off = 100 + dice.roll(2 * noise + 1) - noise;
            let latency = Nanos(truth.latency(&profile).0 / 100 * off);
            Measurement { profile, latency }
        })
        .collect()
}

fn constants(outstanding: u32, kib: u64, read: u32, random: u32) -> Constants {
    Constants {
        outstanding: Outstanding::from_thousandths(outstanding),
        size: Bytes::from_kib(kib),
        read: Permille(read),
        random: Permille(random),
    }
}

fn device(constants: Constants, per_millisecond: u64) -> Fit {
    Fit { constants, per_millisecond: Load(per_millisecond) }
}

fn near(got: f64, wanted: f64, part: f64) -> bool {
    (got - wanted).abs() <= part * wanted + 0.05
}

fn untold(fit: &PoolFit, of: Trait) -> alloc::string::String {
    fit.told[of as usize].unwrap_err().to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Two devices of different ability, workloads as they come, an error of a tenth either way.
    #[test]
    fn the_constants_of_a_pool_are_found(
        outstanding in 300u32..4_000, kib in 8u64..200, read in 300u32..3_000,
        random in 300u32..3_000, ability in 20_000u64..400_000, seed: u64,
    ) {
        let truth = constants(outstanding, kib, read, random);
        let devices = [ability, ability * 3].map(|ability| {
            measured(&device(truth, ability), 900, 10, seed ^ ability, any_workload)
        });
        let fit = fit_pool(&Constants::default(), &devices);
        prop_assert!(fit.told.iter().all(Result::is_ok), "{fit:?}");
        // The loads that they give are what counts, and those are as sure as the measurements.
        let scales: Vec<f64> =
            fit.per_millisecond.iter().map(|k| k.unwrap().0 as f64).collect();
        prop_assert!(near(scales[1] / scales[0], 3.0, 0.06), "{fit:?}");
        let mut dice = Dice(seed | 1);
        for _ in 0..40 {
            let profile = any_workload(&mut dice);
            let [is, should] = [device(fit.constants, scales[0] as u64), device(truth, ability)]
                .map(|fit| fit.latency(&profile).0 as f64);
            prop_assert!(near(is / 1e6, should / 1e6, 0.12), "{profile:?} {fit:?}");
        }
        prop_assert!(fit.after.held_out <= Permille(65), "{fit:?}");
    }

    #[test]
    fn any_measurements_are_survived(
        points in prop::collection::vec(any_measurement(), 0..90),
        outstanding: u32, size: u64, read: u32, random: u32,
    ) {
        let now = Constants {
            outstanding: Outstanding::from_thousandths(outstanding),
            size: Bytes(size),
            read: Permille(read),
            random: Permille(random),
        };
        let half = points.len() / 2;
        let fit = fit_pool(&now, &[points[..half].to_vec(), points[half..].to_vec()]);
        let _ = fit.gain();
    }
}

#[test]
fn a_trait_that_did_not_vary_keeps_its_constant_and_says_so() {
    let truth = device(constants(3_000, 10, 500, 2_000), 100_000);
    let points = measured(&truth, 600, 10, 7, |dice| WorkloadProfile {
        size: Bytes::from_kib(4),
        ..any_workload(dice)
    });
    let now = Constants::default();
    let fit = fit_pool(&now, &[points]);
    assert_eq!(fit.constants.size, now.size);
    assert_eq!(untold(&fit, Trait::Size), "nearly all intervals have 4.0 KiB; kept as it is");
    assert_eq!(fit.told[Trait::Read as usize], Ok(600));
    assert!(near(fit.constants.outstanding.as_f64(), 3.0, 0.25), "{fit:?}");
    assert!(near(fit.constants.read.as_f64(), 0.5, 0.25), "{fit:?}");
    assert_eq!(fit.gain(), Ok(()));
}

/// Small reads and large writes: nobody can say which of the two makes the difference.
#[test]
fn traits_that_vary_together_only_are_not_told_apart() {
    let truth = device(constants(3_000, 10, 500, 2_000), 100_000);
    let points = measured(&truth, 600, 10, 11, |dice| {
        let writes = dice.roll(2) == 0;
        WorkloadProfile {
            size: Bytes::from_kib(if writes { 64 } else { 4 } + dice.roll(2)),
            read: Permille(if writes { 0 } else { 990 } + dice.roll(10) as u32),
            ..any_workload(dice)
        }
    });
    let fit = fit_pool(&Constants::default(), &[points]);
    let reads = "it varies only together with reads; kept as it is";
    assert_eq!(untold(&fit, Trait::Size), reads);
    assert_eq!(
        untold(&fit, Trait::Read),
        "it varies only together with request size; kept as it is"
    );
    assert_eq!(fit.told[Trait::Outstanding as usize], Ok(600));
    let Constants { size, read, .. } = Constants::default();
    assert_eq!((fit.constants.size, fit.constants.read), (size, read));
}

/// What differs between devices is K5's.
#[test]
fn a_trait_that_differs_from_device_to_device_only_is_not_told() {
    let truth = constants(3_000, 10, 500, 2_000);
    let devices = [4, 64].map(|kib| {
        measured(&device(truth, 100_000 * kib), 300, 10, kib, |dice| WorkloadProfile {
            size: Bytes::from_kib(kib),
            ..any_workload(dice)
        })
    });
    let fit = fit_pool(&Constants::default(), &devices);
    assert!(untold(&fit, Trait::Size).starts_with("nearly all intervals have"), "{fit:?}");
    assert_eq!(fit.told[Trait::Random as usize], Ok(600));
}

#[test]
fn a_few_intervals_tell_nothing() {
    let truth = device(constants(3_000, 10, 500, 2_000), 100_000);
    let few = measured(&truth, LEAST - 1, 0, 5, any_workload);
    let fit = fit_pool(&Constants::default(), &[few, Vec::new()]);
    assert_eq!(
        untold(&fit, Trait::Outstanding),
        "no datastore has more than 39 intervals, 40 are needed; kept as it is"
    );
    assert_eq!((fit.constants, fit.gain()), (Constants::default(), Err(NoGain::NothingTold)));
    assert_eq!(fit.per_millisecond[1], None);
    let nothing = fit_pool(&Constants::default(), &[]);
    assert_eq!((nothing.constants, nothing.per_millisecond.len()), (Constants::default(), 0));
}

/// Whoever has the right constants already is not told to change them.
#[test]
fn constants_that_are_right_are_kept() {
    let now = Constants::default();
    for seed in 1..=20 {
        let points = measured(&device(now, 50_000), 900, 15, seed, any_workload);
        let fit = fit_pool(&now, &[points]);
        let Err(NoGain::NoBetter(before, after)) = fit.gain() else { panic!("{fit:?}") };
        assert!(after.held_out.0 <= before.held_out.0 + 5, "{fit:?}");
    }
}

/// Half of the time is of another device than the other half: what is fitted to one half does not
/// predict the other, and the error that counts says so.
#[test]
fn what_is_held_out_is_not_what_was_fitted() {
    let before = device(constants(1_300, 51, 1_400, 700), 50_000);
    let slow = device(constants(1_300, 51, 1_400, 700), 5_000);
    let mut points = Vec::new();
    for part in 0..PARTS as u64 {
        let truth = if part % 2 == 0 { &before } else { &slow };
        points.extend(measured(truth, 60, 5, part + 1, any_workload));
    }
    let fit = fit_pool(&Constants::default(), &[points]);
    assert!(fit.after.held_out >= Permille(850), "{fit:?}");
    assert!(fit.after.fitted.0 + 100 < fit.after.held_out.0, "{fit:?}");
    assert!(fit.gain().is_err(), "{fit:?}");
}
