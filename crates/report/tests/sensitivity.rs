//! What claims of the experiments depend on: one that takes little time, here, and all by `headgate
//! reproduce --all --sensitivity`.

use headgate_report::{FileTraces, Job, Reach, experiments, mismarked, run_all, try_values};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

/// With `HEADGATE_EXPERIMENTS=op,pa-08` all whose names begin so are tried instead, and told.
#[test]
fn files_say_what_holds_at_one_point_only() {
    let all = experiments().unwrap_or_else(|e| panic!("{e}"));
    let directory = std::env::var_os("HEADGATE_TRACES");
    let traces = FileTraces::within(directory.as_deref().map_or(Path::new("traces"), Path::new));
    let some = std::env::var("HEADGATE_EXPERIMENTS").ok();
    let chosen = |name: &str| match &some {
        Some(some) => some.split(',').any(|begin| name.starts_with(begin)),
        None => name == "op-02-clean",
    };
    let mut wrong = Vec::new();
    let mut claims = 0;
    for scenario in all.iter().filter(|one| chosen(&one.name)) {
        if !traces.missing(&scenario.traces).is_empty() {
            println!("{}: skipped, it replays traces: HEADGATE_TRACES=DIR", scenario.name);
            continue;
        }
        let began = Instant::now();
        let mut run = |jobs: &[Job<'_>]| run_all(jobs, &mut |_| ControlFlow::Continue(()));
        let mut tried = Vec::new();
        for one in &scenario.sensitivities {
            tried.push(try_values(scenario, one, None, &traces, &mut run).unwrap());
        }
        for one in &tried {
            claims += one.claims.len();
            let reach = |reach: Reach| format!("{} {}", one.count(reach), reach.name());
            println!("{}: {}", one.name, Reach::ALL.map(reach).join(", "));
        }
        println!("{}: {:.1} s", scenario.name, began.elapsed().as_secs_f64());
        wrong.extend(mismarked(scenario, &tried));
    }
    assert!(claims > 0, "nothing was judged");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Experiments whose parameter was found by looking are held to others.
#[test]
fn parameters_that_were_chosen_by_looking_are_varied() {
    let all = experiments().unwrap_or_else(|e| panic!("{e}"));
    for (name, parameter) in [
        ("ba-01-linearity", "stripe-unit"),
        ("ba-15-mix", "start"),
        ("ba-15-traces", "start"),
        ("mc-09-dmclock-uniform", "anticipation"),
        ("op-01-proportionality", "window"),
        ("op-02-clean", "cost-model"),
        ("op-07-mixed-and-separated", "stretch"),
        ("pa-08-capacity-loss", "shares-per-slot"),
        ("pa-12-sql", "shares-per-slot"),
    ] {
        let scenario = all.iter().find(|one| one.name == name).unwrap();
        let found = scenario.sensitivities.iter().find(|one| one.name == parameter);
        let many = found.map_or(0, |one| one.points.len());
        assert!(many >= 4, "{name} has {many} values of {parameter}");
    }
}
