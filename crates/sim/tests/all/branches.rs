//! Runs that share their beginning: each is, to the byte, what it is alone.

use crate::common::scenario;
use headgate_sim::{
    Branch, NoTraces, Outcome, Progress, Quiet, RunError, Scenario, run, run_branches, run_with,
};
use headgate_units::Nanos;
use std::ops::ControlFlow;

/// Disks of all kinds of loads on two arrays and a datastore of a fixed rate, from two hosts. Some
/// are placed by load, at 12 s and 16 s; advice is taken at 20 s, 26 s and 32 s.
const POD: &str = r#"
    name = "pod"
    title = "Three datastores"
    duration = "40s"
    windows = { before = "13s..19s", after = "34s..40s" }
    host = [{ name = "one" }, { name = "two", network = "70us" }]
    [pool]
    sample = "500ms"
    advice = ["20s", "26s", "32s"]
    start = "2%"
    hold = "0s"
    most = 100
    payback = "10000h"
    [tide]
    low = "10%"
    every = "500ms"
    during = ["0s..12s"]
    [[datastore]]
    name = "small"
    device = "array=3,cache=8M"
    capacity = "150G"
    queue-depth = 64
    [[datastore]]
    name = "large"
    device = "array=6,raid=5,cache=8M,readahead=128K"
    capacity = "150G"
    queue-depth = 64
    [[datastore]]
    name = "even"
    device = "rate=700,latency=3ms"
    capacity = "150G"
    queue-depth = 64
    [[vm]]
    name = "known"
    count = 4
    host = "*"
    disk = [{ datastore = "small", size = "5G", reservation = 20, limit = 400 }]
    workload = [
        { name = "reads", kind = "closed", outstanding = 6, size = "8K", read = "70%" },
        { name = "batch", kind = "on-off", outstanding = 4, on = "2s", off = "1s", times = "exponential", size = "64K", random = "20%" },
    ]
    [[vm]]
    name = "terminals"
    host = "one"
    disk = [{ datastore = "large", size = "5G", elevator = "cfq" }]
    workload = [{ kind = "oltp", terminals = 10, reads = 3, writes = 2, cpu = "2ms", think = "50ms", times = "exponential" }]
    [[vm]]
    name = "early"
    host = "two"
    start = "12s"
    disk = [{ place = "load", size = "5G" }]
    workload = [{ kind = "closed", outstanding-of = [4, 8, 16], size = "16K", read = "50%" }]
    [[vm]]
    name = "late"
    host = "one"
    start = "16s"
    disk = [{ place = "load", size = "5G" }]
    workload = [{ kind = "open", rate = 150, size = "8K", read = "60%" }]

    [[variant]]
    name = "load"
    [[variant]]
    name = "off"
    set = { "pool.balance" = "off" }
    [[variant]]
    name = "count"
    set = { "pool.balance" = "count" }
    [[variant]]
    name = "random"
    set = { "pool.balance" = "random" }
    [[variant]]
    name = "watched"
    set = { "pool.take-back" = "1%" }
    [[variant]]
    name = "calm"
    set = { "pool.start" = "90%" }
    [[variant]]
    name = "alone"
    set = { "pool.interference" = "none" }
    [[variant]]
    name = "late-anywhere"
    set = { "vm.late.disk.place" = "random" }
    [[variant]]
    name = "early-by-space"
    set = { "vm.early.disk.place" = "space" }
    [[variant]]
    name = "copied"
    set = { "pool.moves" = "copy" }
    [[variant]]
    name = "faster"
    set = { "datastore.even.device" = "rate=800,latency=3ms" }
"#;

/// Streams and random requests where streams are taken to suffer nothing from their neighbours: the
/// moves of 25 s do harm, and are taken back at 31 s. The two are one run until then.
const HARM: &str = r#"
    name = "harm"
    title = "Streams are moved to where others are"
    duration = "36s"
    windows = { after = "32s..36s" }
    [pool]
    interference = "none"
    sample = "500ms"
    advice = ["25s", "31s"]
    start = "5%"
    hold = "0s"
    most = 100
    payback = "10000h"
    [tide]
    low = "10%"
    every = "500ms"
    during = ["0s..16s"]
    [[datastore]]
    name = "small"
    device = "array=3,cache=8M"
    capacity = "150G"
    queue-depth = 256
    [[datastore]]
    name = "large"
    device = "array=9,cache=8M"
    capacity = "150G"
    queue-depth = 256
    [[type]]
    name = "stream"
    size = "128K"
    read = "100%"
    random = "0%"
    [[type]]
    name = "any"
    size = "8K"
    read = "50%"
    random = "100%"
    [[vm]]
    name = "calibrate"
    stop = "16s"
    disk = [
        { name = "s", datastore = "small", size = "30G", listed = false },
        { name = "l", datastore = "large", size = "30G", listed = false },
    ]
    workload = [
        { name = "few", kind = "closed", disk = "s", outstanding = 24, size = "8K", read = "75%" },
        { name = "many", kind = "closed", disk = "l", outstanding = 72, size = "8K", read = "75%" },
    ]
    [[vm]]
    name = "vm"
    count = 6
    start = "16s"
    disk = [{ place = "random", size = "10G" }]
    workload = [{ kind = "closed", outstanding-of = [8, 16, 32], types = ["stream", "any"] }]

    [[variant]]
    name = "watched"
    set = { "pool.take-back" = "1%" }
    [[variant]]
    name = "watched-less"
    set = { "pool.take-back" = "2%" }
    [[variant]]
    name = "load"
"#;

/// Those that begin as all others do.
const ALIKE: usize = 9;

/// Counts the stretches of 65,536 events that were simulated.
struct Stretches(usize);

impl Progress for Stretches {
    fn step(&mut self, at: Nanos, end: Nanos, _: u64) -> ControlFlow<()> {
        self.0 += usize::from(at < end);
        ControlFlow::Continue(())
    }
}

fn together(
    scenario: &Scenario,
    variants: &[&str],
    seed: u64,
    progress: &mut dyn Progress,
) -> Vec<Result<Outcome, RunError>> {
    let branches: Vec<Branch<'_>> = variants.iter().map(|&variant| (scenario, variant)).collect();
    let mut ended: Vec<Option<Result<Outcome, RunError>>> = vec![None; variants.len()];
    run_branches(&branches, seed, progress, &NoTraces, &mut |index, result| {
        assert!(ended[index].replace(result).is_none(), "each ends once");
    });
    ended.into_iter().map(|one| one.expect("all end")).collect()
}

#[test]
fn each_branch_is_what_it_is_alone() {
    let scenario = scenario(POD);
    let names: Vec<&str> = scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
    let trunks: Vec<Option<String>> =
        scenario.variants.iter().map(|variant| variant.setup.trunk()).collect();
    assert!(trunks[0].is_some() && trunks[..ALIKE].iter().all(|trunk| *trunk == trunks[0]));
    assert!(trunks[ALIKE..].iter().all(|trunk| *trunk != trunks[0]), "these differ from the start");
    for seed in 1..4 {
        let (mut shared, mut alone) = (Stretches(0), Stretches(0));
        let all = together(&scenario, &names[..ALIKE], seed, &mut shared);
        let mut distinct: Vec<Outcome> = Vec::new();
        for (name, outcome) in names.iter().zip(&all) {
            let expected = run_with(&scenario, name, seed, &mut alone, &NoTraces);
            assert_eq!(*outcome, expected, "{name} of seed {seed}");
            let mut outcome = expected.unwrap();
            outcome.variant.clear();
            if !distinct.contains(&outcome) {
                distinct.push(outcome);
            }
        }
        assert!(distinct.len() >= 6, "only {} of them differ", distinct.len());
        assert!(shared.0 * 4 < alone.0 * 3, "{} of {} were simulated", shared.0, alone.0);
    }
}

/// `calm` asks for more than any move gains, `off` for none. Both place by load at 12 s and 16 s,
/// with rules of their own, and take advice three times.
#[test]
fn runs_that_decide_the_same_are_one_run() {
    let scenario = scenario(POD);
    for seed in 1..3 {
        let (mut shared, mut alone) = (Stretches(0), Stretches(0));
        for outcome in together(&scenario, &["off", "calm"], seed, &mut shared) {
            let outcome = outcome.unwrap();
            let expected = run_with(&scenario, &outcome.variant, seed, &mut alone, &NoTraces);
            let pool = outcome.pool.as_ref().unwrap();
            assert_eq!((pool.moves.len(), pool.rounds.len()), (0, 3));
            let advised = pool.rounds.iter().filter(|round| round.verdict.is_some()).count();
            assert_eq!(advised, if outcome.variant == "calm" { 3 } else { 0 });
            assert_eq!(expected, Ok(outcome));
        }
        assert!(shared.0 > 0 && shared.0 * 2 <= alone.0, "{} of {}", shared.0, alone.0);
    }
}

#[test]
fn moves_on_trial_are_known_to_all_that_made_them() {
    let scenario = scenario(HARM);
    let mut taken_back = [0, 0];
    for seed in 1..6 {
        let all = together(&scenario, &["watched", "watched-less", "load"], seed, &mut Quiet);
        for (index, outcome) in all.into_iter().enumerate() {
            let outcome = outcome.unwrap();
            assert_eq!(run(&scenario, &outcome.variant, seed, &mut Quiet), Ok(outcome.clone()));
            let moves = outcome.pool.iter().flat_map(|pool| &pool.moves);
            let back = moves.filter(|step| step.taken_back).count();
            match taken_back.get_mut(index) {
                Some(sum) => *sum += back,
                None => assert_eq!(back, 0, "nobody watches"),
            }
        }
    }
    assert!(taken_back.iter().all(|&back| back > 0), "nothing is taken back: {taken_back:?}");
}

#[test]
fn what_cannot_be_doubled_is_simulated_again() {
    // The copies of the one advice go on when the next one is taken, where `watched` is another.
    let copied = POD.replace("[pool]", "[pool]\n    moves = 'copy'");
    let scenario = scenario(&copied);
    for outcome in together(&scenario, &["load", "watched", "off"], 1, &mut Quiet) {
        let outcome = outcome.unwrap();
        assert_eq!(run(&scenario, &outcome.variant, 1, &mut Quiet), Ok(outcome));
    }
}

#[test]
fn branches_fail_as_runs_do() {
    let scenario = scenario(POD);
    let failed = together(&scenario, &["load", "nosuch", "off"], 1, &mut Quiet);
    assert!(matches!(failed[1], Err(RunError::UnknownVariant { .. })));
    assert!(failed[0].is_ok() && failed[2].is_ok());

    struct Until(Nanos);
    impl Progress for Until {
        fn step(&mut self, at: Nanos, _: Nanos, _: u64) -> ControlFlow<()> {
            if at < self.0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
    }
    for until in [Nanos::ZERO, Nanos::from_secs(25)] {
        let cut = together(&scenario, &["load", "count", "off"], 1, &mut Until(until));
        assert!(cut.iter().all(|one| matches!(one, Err(RunError::Cancelled { .. }))), "{cut:?}");
    }
}
