//! A scenario file of any bytes: no panic, a mistake has a place in the file, and what is accepted
//! runs.

use headgate_sim::{Progress, Scenario, run as simulate};
use headgate_units::Nanos;
use std::ops::ControlFlow;
use std::path::Path;

pub(super) const WORDS: &[&str] = &[
    "name = ",
    "duration = \"1s\"",
    "[[vm]]",
    "[[expect]]",
    "disk = [{ }]",
    "limit = ",
    "0",
    "-1",
    "1e308",
    "nan",
    "\"18446744073709551615ns\"",
    "shares = 0",
    "workload = []",
    "{}",
    "[]",
    "\"\"",
    "kind = \"closed\"",
    "outstanding = ",
    "rate=1",
    "latency=0ms",
    "stop",
    "at = \"0s\"",
    "%",
];

/// The published experiments, as far as they are short.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .expect("the experiments are in the repository")
        .map(|entry| entry.expect("a directory can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    let texts = paths.iter().map(|path| std::fs::read(path).expect("a file can be read"));
    texts.filter(|text| text.len() <= 3_000).collect()
}

/// Some ten thousand events are enough to set everything up.
struct FirstSteps;

impl Progress for FirstSteps {
    fn step(&mut self, _: Nanos, _: Nanos, _: u64) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

pub(super) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let scenario = match Scenario::parse("fuzz.toml", &text) {
        Ok(scenario) => scenario,
        Err(error) => {
            assert!(error.line >= 1 && error.column >= 1, "{error}");
            assert!(error.line <= text.lines().count() + 1, "{error}");
            assert!(!error.message.is_empty());
            return;
        }
    };
    let Some(variant) = scenario.variants.first() else { panic!("no variant") };
    // What does not run says why; the type makes sure of that.
    let _ = simulate(&scenario, &variant.name, 1, &mut FirstSteps);
}
