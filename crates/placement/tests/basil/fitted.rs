//! Section 3.1: what constants bring that are fitted to a pool by what its disks did, interval by
//! interval, each alone on its array for a while.

use crate::rig::*;
use headgate_devices::{ArraySpec, CachePower, Raid};
use headgate_placement::*;
use headgate_stats::Interval;
use headgate_units::{Bytes, Nanos};

/// An interval of history.
const PERIOD: Nanos = Nanos::from_secs(5);

fn any_work(dice: &mut Dice) -> Work {
    let mut one_of = |all: &[u32]| all[dice.roll(all.len() as u64) as usize];
    Work {
        outstanding: one_of(&[1, 2, 4, 8, 12, 16, 24, 32]),
        kib: one_of(&[4, 8, 16, 32, 64, 128]),
        read: one_of(&[20, 50, 70, 90, 100]),
        random: one_of(&[25, 50, 75, 100]),
        think: Nanos::ZERO,
    }
}

/// Disks of which each has the array for itself for an interval.
fn intervals(spec: &ArraySpec, count: usize, seed: u64) -> Vec<Interval> {
    let mut dice = Dice::new(seed);
    (0..count).map(|_| alone(spec, any_work(&mut dice), 100 * GIB, PERIOD)).collect()
}

fn measured(intervals: &[Interval]) -> Vec<Measurement> {
    intervals.iter().filter_map(|interval| Measurement::of(interval, Held::No)).collect()
}

/// How far equation 1 is off, as a median, on intervals of arrays of which others made K5: from
/// the definition, in floating point.
fn error(k: &Constants, known: &[Vec<Measurement>], unseen: &[Vec<Measurement>]) -> f64 {
    let load = |Measurement { profile, .. }: &Measurement| {
        (k.outstanding.as_f64() + profile.outstanding.as_f64())
            * (k.size.0 + profile.size.0) as f64
            * (k.read.as_f64() + profile.read.as_f64())
            * (k.random.as_f64() + profile.random.as_f64())
    };
    let mut errors = Vec::new();
    for (known, unseen) in known.iter().zip(unseen) {
        let k5 = median(known.iter().map(|one| load(one) / one.latency.0 as f64).collect());
        errors.extend(unseen.iter().map(|one| (load(one) / k5 / one.latency.0 as f64 - 1.0).abs()));
    }
    median(errors)
}

struct Outcome {
    fit: PoolFit,
    before: f64,
    after: f64,
}

/// A pool of two arrays: constants are fitted to what was seen, and tried on what comes later.
fn pool(what: &str, specs: [ArraySpec; 2]) -> Outcome {
    let all = specs.each_ref().map(|spec| measured(&intervals(spec, 180, 11)));
    let [known, unseen] = [0..120, 120..180]
        .map(|range| all.each_ref().map(|of_array| of_array[range.clone()].to_vec()).to_vec());
    let fit = fit_pool(&Constants::default(), &known);
    let before = error(&Constants::default(), &known, &unseen);
    let after = error(&fit.constants, &known, &unseen);
    let Constants { outstanding, size, read, random } = fit.constants;
    println!(
        "{what}: K1 {:.2}, K2 {size}, K3 {read}, K4 {random}; off by {:.1} % before and {:.1} % \
         after, held out {} and {}",
        outstanding.as_f64(),
        before * 100.0,
        after * 100.0,
        fit.before.held_out,
        fit.after.held_out
    );
    Outcome { fit, before, after }
}

fn array(spindles: u32, cache: Bytes) -> ArraySpec {
    let spec = ArraySpec::new(spindles, Raid::Raid0).unwrap();
    spec.with_cache(cache, CachePower::Battery).unwrap()
}

/// Writes are as slow as reads there, which the constants of the paper's array do not know.
#[test]
fn constants_of_a_pool_without_caches_predict_it_better_than_those_of_an_array_with_one() {
    let Outcome { fit, before, after } =
        pool("no cache", [4, 8].map(|spindles| array(spindles, Bytes(0))));
    assert!(fit.told.iter().all(Result::is_ok), "{:?}", fit.told);
    assert_eq!(fit.gain(), Ok(()));
    assert!(after <= 0.4 * before, "{before} and {after}");
    assert!(fit.constants.read >= Permille(5_000), "reads hardly matter: {:?}", fit.constants);
    // What the fit says of itself is true.
    let said = fit.after.held_out.as_f64();
    assert!((said / after - 1.0).abs() < 0.35, "{said} and {after}");
    // Twice the disks do not do twice as much by themselves, but more.
    let [few, many] = [0, 1].map(|at| fit.per_millisecond[at].unwrap().as_f64());
    assert!(many > 1.3 * few, "{few} and {many}");
}

/// Writes into a cache: equation 1 has the form, if not the constants.
#[test]
fn constants_of_a_pool_whose_caches_take_all_writes_predict_it_better_than_the_papers() {
    let cache = Bytes::from_gib(16);
    let Outcome { fit, before, after } =
        pool("with caches", [4, 8].map(|spindles| array(spindles, cache)));
    assert!(after <= 0.4 * before, "{before} and {after}");
    assert!(fit.constants.read <= Permille(500), "reads take the time: {:?}", fit.constants);
}
