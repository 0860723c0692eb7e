//! Short ways to run a scenario.

use headgate_sim::{Outcome, Quiet, Scenario, run};

pub fn scenario(text: &str) -> Scenario {
    Scenario::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

/// The outcome of the first variant.
pub fn outcome(text: &str, seed: u64) -> Outcome {
    let scenario = scenario(text);
    run(&scenario, &scenario.variants[0].name, seed, &mut Quiet).unwrap()
}

/// Within a relative tolerance.
pub fn near(value: f64, expected: f64, tolerance: f64) -> bool {
    (value - expected).abs() <= tolerance * expected.abs()
}
