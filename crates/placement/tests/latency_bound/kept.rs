//! What is promised is kept.

use crate::bench::{Bench, Window};
use crate::dice::Dice;
use crate::draw::{KINDS, Others, Setup};
use headgate_placement::latency_bound::{Promise, Verdict, judge};
use headgate_units::{LatencyTarget, Nanos};

/// The least target that is promised in a set-up: the verdict on one that no storage keeps names
/// it.
fn least_promise(setup: &Setup) -> Result<Promise, Verdict> {
    let storage = setup.storage();
    let refused = judge(&storage, &setup.promised(LatencyTarget::MIN), 0);
    let (Verdict::Unlikely(refusal) | Verdict::Impossible(refusal)) = refused else {
        return Err(refused);
    };
    let Some(nearest) = refusal.nearest else { return Err(refused) };
    match judge(&storage, &setup.promised(nearest.latency()), 0) {
        Verdict::Kept(promise) => Ok(promise),
        other => panic!("{nearest} could be kept, and then: {other} ({setup:?})"),
    }
}

/// The promise of a target that is no harder than the least.
fn promise_of(setup: &Setup, latency: Nanos) -> Option<Promise> {
    match judge(&setup.storage(), &setup.promised(latency), 0) {
        Verdict::Kept(promise) => Some(promise),
        other => panic!("an easier target is not kept: {other} ({setup:?})"),
    }
}

/// How a run compares with a promise.
struct Compared {
    /// The bound over what was measured at the quantile.
    loose: f64,
    /// Requests that took longer than promised, over as many as may.
    over: f64,
    /// The standard error of that.
    error: f64,
    broken: bool,
}

/// Parts of a run, to see how much chance there is in it: requests that take long come together.
const PARTS: usize = 25;

fn compare(setup: &Setup, promise: &Promise) -> Compared {
    let requests = 60_000 / (1_000 - setup.permille as usize).min(10);
    let window = Window::Fixed(promise.window.get());
    let bench = Bench::new(&setup.kind, &setup.disks, window, setup.seed + 1_000);
    let mut latencies = bench.run(requests, Nanos(30 * setup.kind.period().0));
    let exempt = f64::from(1_000 - setup.permille) / 1e3;
    let late = |part: &[u64]| {
        let over = part.iter().filter(|&&l| l > promise.target.latency().0).count();
        over as f64 / part.len() as f64 / exempt
    };
    let parts: Vec<f64> = latencies.chunks(latencies.len().div_ceil(PARTS)).map(late).collect();
    let over = late(&latencies);
    let squares: f64 = parts.iter().map(|part| (part - over) * (part - over)).sum();
    let error = (squares / (parts.len() * (parts.len() - 1)) as f64).sqrt();
    latencies.sort_unstable();
    let rank = (latencies.len() * setup.permille as usize).div_ceil(1_000).max(1) - 1;
    Compared {
        loose: promise.bound.0 as f64 / latencies[rank].max(1) as f64,
        over,
        error,
        broken: over > 1.0 + 3.0 * error,
    }
}

fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((values.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}

/// How many set-ups of each kind of storage; `HEADGATE_SEARCH=large` tries more.
fn seeds() -> u64 {
    match std::env::var("HEADGATE_SEARCH").as_deref() {
        Ok("large") => 60,
        _ => 3,
    }
}

fn campaign(name: &str, draw: impl Fn(u64, &'static str) -> Setup, kinds: &[&'static str]) -> u64 {
    let mut broken = 0;
    for (number, &kind) in kinds.iter().enumerate() {
        let (mut loose, mut refused, mut over) = (Vec::new(), 0, 0f64);
        for seed in 0..seeds() {
            let setup = draw(seed * 100 + number as u64, kind);
            let promise = match least_promise(&setup) {
                Ok(promise) => promise,
                Err(_) => {
                    refused += 1;
                    continue;
                }
            };
            let (mut wide, easier) = (vec![promise], Dice::new(seed).between(1.1, 4.0));
            wide.extend(promise_of(&setup, Nanos((promise.bound.0 as f64 * easier) as u64)));
            for promise in wide {
                let compared = compare(&setup, &promise);
                over = over.max(compared.over);
                loose.push(compared.loose);
                if compared.broken {
                    broken += 1;
                    println!("broken, {:.2} ± {:.2}: {promise:?}", compared.over, compared.error);
                    println!("{setup:?}");
                }
            }
        }
        println!(
            "{name} {kind}: {} promised, {refused} never; bound over measured {:.2}, {:.2}, \
             {:.2} (median, p90, most), exceeded {over:.2} of what may be",
            loose.len(),
            quantile(&mut loose.clone(), 0.5),
            quantile(&mut loose.clone(), 0.9),
            quantile(&mut loose, 1.0 - 1e-9),
        );
    }
    broken
}

#[test]
fn a_promise_beside_steady_disks_is_kept() {
    let draw = |seed, kind| Setup::new(seed, kind, Others::Steady);
    assert_eq!(campaign("steady", draw, &KINDS), 0);
}

#[test]
fn a_promise_beside_hostile_disks_is_kept() {
    let draw = |seed, kind| Setup::new(seed, kind, Others::Hostile);
    assert_eq!(campaign("hostile", draw, &KINDS), 0);
}

/// The statistics know one size only.
#[test]
fn a_promise_from_a_datastores_statistics_is_kept() {
    let kinds = KINDS.map(|kind| if kind == "sized" { "constant" } else { kind });
    let draw = |seed, kind| Setup::new(seed + 70, kind, Others::Steady).metered();
    assert_eq!(campaign("metered", draw, &kinds), 0);
}
