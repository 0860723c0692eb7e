//! What is impossible is not kept by any window.

use crate::bench::{Bench, Load, Window};
use crate::dice::Dice;
use crate::draw::{Others, Setup};
use headgate_placement::latency_bound::{Verdict, Why, judge};
use headgate_units::{LatencyTarget, Nanos};

/// A latency that is impossible in the set-up, if its records show one: a tenth to all of what one
/// request takes alone.
fn impossible(setup: &Setup) -> Option<Nanos> {
    let storage = setup.storage();
    let verdict = judge(&storage, &setup.promised(LatencyTarget::MIN), 0);
    let Verdict::Impossible(refusal) = verdict else { return None };
    let Why::Storage { alone } = refusal.why else { panic!("{verdict}") };
    let mut dice = Dice::new(setup.seed);
    let tried = (0..8).map(|_| Nanos((alone.0 as f64 * dice.between(0.1, 1.05)) as u64));
    let found = |latency: &Nanos| {
        matches!(judge(&storage, &setup.promised(*latency), 0), Verdict::Impossible(_))
    };
    tried.filter(found).max()
}

/// The part of the requests that take longer, over what may.
fn late(setup: &Setup, latency: Nanos, window: Window) -> f64 {
    let requests = 20_000 / (1_000 - setup.permille as usize).min(10);
    let bench = Bench::new(&setup.kind, &setup.disks, window, setup.seed + 2_000);
    let latencies = bench.run(requests, Nanos(30 * setup.kind.period().0));
    let over = latencies.iter().filter(|&&l| l > latency.0).count() as f64;
    over / latencies.len() as f64 / (f64::from(1_000 - setup.permille) / 1e3)
}

#[test]
fn what_is_impossible_is_not_kept_by_any_window_or_alone() {
    let (mut found, mut least) = (0, f64::INFINITY);
    let kinds = ["parallel", "array", "sized", "stragglers", "stalls", "short stalls"];
    for (number, name) in kinds.into_iter().enumerate() {
        for seed in 0..10 {
            let seed = seed * 100 + number as u64 + 50;
            let setup = Setup::new(seed, name, Others::Steady).recorded_idle();
            let Some(latency) = impossible(&setup) else { continue };
            found += 1;
            let mut alone = setup.clone();
            alone.disks.iter_mut().skip(1).for_each(|disk| disk.load = Load::Idle);
            let windows = [1, 2, 3, setup.window / 2, setup.window].map(Window::Fixed);
            for window in windows.into_iter().chain([Window::Narrowed(setup.window)]) {
                for setup in [&setup, &alone] {
                    let late = late(setup, latency, window);
                    least = least.min(late);
                    assert!(late > 1.0, "{late:.2} with {window:?} at {latency}: {setup:?}");
                }
            }
        }
    }
    println!("{found} impossible targets; at least {least:.2} of what may be took longer");
    assert!(found > 20, "only {found} were impossible");
}
