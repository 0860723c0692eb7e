//! Checks of the experiments notice wrong policies: those that take little time, here, and all by
//! `headgate reproduce --all --mutate`.

use headgate_report::{FileTraces, Job, experiments, known_unbroken, run_all, try_mutants};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

/// Those that take little: together some ten seconds of a processor.
const QUICK: [&str; 10] = [
    "mc-03-limits",
    "mc-04-reservations",
    "mc-06-latency-by-reservation",
    "op-11-example",
    "tg-01-inversion",
    "tg-02-priorities",
    "tg-03-little-to-choose",
    "tg-04-linear",
    "tg-06-caps",
    "tg-08-newcomer",
];

/// With `HEADGATE_EXPERIMENTS=mc,pa-06` all whose names begin so are tried instead, and told.
#[test]
fn checks_notice_a_wrong_policy_or_are_known_not_to() {
    let all = experiments().unwrap_or_else(|e| panic!("{e}"));
    let traces = FileTraces::within(Path::new("traces"));
    let known: BTreeSet<&str> = known_unbroken().collect();
    let mut wrong = Vec::new();
    let some = std::env::var("HEADGATE_EXPERIMENTS").ok();
    let chosen = |name: &str| match &some {
        Some(some) => some.split(',').any(|begin| name.starts_with(begin)),
        None => QUICK.contains(&name),
    };
    for scenario in all.iter().filter(|one| one.traces.is_empty() && chosen(&one.name)) {
        let began = Instant::now();
        let mut run = |jobs: &[Job<'_>]| run_all(jobs, &mut |_| ControlFlow::Continue(()));
        for check in try_mutants(scenario, None, &traces, &mut run).unwrap() {
            let line = check.line();
            match (check.broken_by, known.contains(line.as_str())) {
                (None, false) => wrong.push(format!("notices no wrong policy: {line}")),
                (Some(by), true) => {
                    wrong.push(format!("notices {by}, take it from the list: {line}"))
                }
                (None, true) | (Some(_), false) => {}
            }
            println!("{}: {line}", check.broken_by.map_or("NOTHING", |by| by.name()));
        }
        println!("{}: {:.1} s", scenario.name, began.elapsed().as_secs_f64());
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A line of the list is of an experiment that there is; what it says of it is compared above and
/// by the command.
#[test]
fn what_nothing_breaks_is_of_experiments_that_there_are() {
    let all = experiments().unwrap_or_else(|e| panic!("{e}"));
    for line in known_unbroken() {
        let name = line.split(" | ").next().unwrap_or_default();
        assert!(all.iter().any(|scenario| scenario.name == name), "{line}");
    }
}
