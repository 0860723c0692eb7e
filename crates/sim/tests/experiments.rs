//! The experiments in `experiments/`: all are read, run with all their seeds, and come out as
//! expected.

use headgate_sim::{Judgement, Quiet, Scenario, judge, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
}

#[test]
fn every_experiment_comes_out_as_expected() {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Not in one statement: the lock would be held while the experiment runs.
                    let found = failures_of(path);
                    failures.lock().unwrap().extend(found);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Runs an experiment with all its seeds and says what is not as expected.
fn failures_of(path: &Path) -> Vec<String> {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(path).unwrap();
    let scenario = Scenario::parse(&name, &text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(format!("{}.toml", scenario.name), name, "a scenario is named like its file");
    assert!(scenario.all_seeds.len() >= 3 && !scenario.expectations.is_empty(), "{name}");
    if !scenario.traces.is_empty() {
        println!(
            "{name}: skipped, it replays traces: headgate reproduce {} --traces DIR",
            scenario.name
        );
        return Vec::new();
    }
    let mut outcomes = Vec::new();
    for variant in &scenario.variants {
        for &seed in &scenario.seeds {
            outcomes.push(run(&scenario, &variant.name, seed, &mut Quiet).unwrap());
        }
    }
    let verdicts = judge(&scenario, &outcomes);
    let red =
        verdicts.iter().filter(|v| matches!(v.judgement, Judgement::Fails | Judgement::NotRun));
    let mut failures: Vec<String> =
        red.map(|verdict| format!("{name}:{}: {verdict}", verdict.line)).collect();
    // A deviation that is said to be known must be one.
    for known in verdicts.iter().filter(|v| v.differs.is_some() && v.judgement == Judgement::Holds)
    {
        failures.push(format!("{name}:{}: {known}: remove 'differs'", known.line));
    }
    failures
}

/// To make it anew: `HEADGATE_WRITE_SCHEMA=1 cargo test -p headgate-sim --test experiments`.
#[test]
fn the_schema_for_editors_is_current() {
    let path = directory().join("scenario.schema.json");
    let current = serde_json::to_string_pretty(&headgate_sim::schema()).unwrap() + "\n";
    if std::env::var_os("HEADGATE_WRITE_SCHEMA").is_some() {
        fs::write(&path, &current).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == current,
        "experiments/scenario.schema.json is not what the types say; write it anew, see above"
    );
}
