//! Constants fitted to what a datastore's history has.

use super::testing::Bench;
use headgate_api::constants::ConstantsFit;
use headgate_history::testing::alone;
use headgate_history::wall_clock;
use headgate_model::Lookback;
use headgate_placement::{
    Constants, Fit, Load, Outstanding, Permille, Rules, Trait, WorkloadProfile,
};
use headgate_units::{Bytes, Nanos};

/// What the array is like.
fn truth() -> Fit {
    let constants = Constants {
        outstanding: Outstanding::whole(4),
        size: Bytes::from_kib(12),
        read: Permille(400),
        random: Permille(700),
    };
    Fit { constants, per_millisecond: Load(60_000) }
}

/// So many intervals up to now, in each of which the disk does something else. Requests go
/// anywhere, and every third interval is a tenth slower than equation 1 says.
fn observe(bench: &Bench, intervals: u64) {
    let workload = |n: u64| {
        let chance = |salt: u64, of: u64| (n * 2_654_435_761 + salt * 40_503) / 977 % of;
        let profile = WorkloadProfile {
            outstanding: Outstanding::whole(1 + chance(1, 24) as u32),
            size: Bytes::from_kib(4 << chance(2, 5)),
            read: Permille(250 * chance(3, 5) as u32),
            random: Permille::WHOLE,
        };
        let latency = truth().latency(&profile).0;
        (profile, Nanos(if n.is_multiple_of(3) { latency + latency / 10 } else { latency }))
    };
    let intervals: Vec<_> = (0..intervals).map(workload).collect();
    let samples = alone(&intervals);
    let began = wall_clock().0 - 5_000_000_000 * samples.len() as u64;
    for (sample, n) in samples.iter().zip(1..) {
        bench.control.samples().record_at(Nanos(began + n * 5_000_000_000), sample);
    }
}

fn fit(bench: &Bench, since: Lookback) -> ConstantsFit {
    bench.control.fit_constants(since).unwrap()
}

#[test]
fn constants_are_fitted_to_history_and_set_as_any_rules_are() {
    let bench = Bench::new();
    let nothing = fit(&bench, Lookback::WEEK);
    assert_eq!((nothing.fitted, nothing.now), (Constants::default(), Constants::default()));
    assert_eq!(nothing.no_gain.as_deref(), Some("the intervals tell of no factor"));
    assert!(nothing.factors.iter().all(|factor| factor.kept.is_some()), "{nothing:?}");

    observe(&bench, 200);
    let found = fit(&bench, Lookback::WEEK);
    let array = found.datastores.iter().find(|one| one.datastore.as_str() == "array").unwrap();
    assert!(array.intervals >= 195, "{found:?}");
    let told: Vec<bool> = found.factors.iter().map(|one| one.intervals.is_some()).collect();
    assert_eq!(told, [true, true, true, false], "{found:?}");
    let random = &found.factors[Trait::Random as usize];
    assert_eq!(random.kept.as_deref(), Some("nearly all intervals have 100 %; kept as it is"));
    let Constants { outstanding, size, read, random } = found.fitted;
    let near = |is: f64, should: f64| (is / should - 1.0).abs() < 0.3;
    assert!(near(outstanding.as_f64(), 4.0) && near(size.0 as f64, 12_288.0), "{found:?}");
    assert!(near(read.as_f64(), 0.4) && random == Permille(700), "{found:?}");
    assert!(found.error_fitted.held_out.0 * 2 < found.error_now.held_out.0, "{found:?}");
    assert_eq!(found.no_gain, None);

    bench.control.set_rules(Rules { constants: found.fitted, ..bench.control.rules() }).unwrap();
    let bench = bench.restart();
    let again = fit(&bench, Lookback::WEEK);
    assert_eq!((again.now, again.fitted), (found.fitted, found.fitted));
    assert!(again.no_gain.as_ref().is_some_and(|why| why.contains("held out")), "{again:?}");
}

#[test]
fn what_is_asked_for_is_what_is_kept() {
    let bench = Bench::new();
    observe(&bench, 100);
    let last: Lookback = "1min".parse().unwrap();
    let of_last = fit(&bench, last).datastores.iter().map(|one| one.intervals).sum::<usize>();
    assert!((10..=13).contains(&of_last), "{of_last}");
    let error = bench.control.fit_constants("8d".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("7 days at most"), "{error}");
}
