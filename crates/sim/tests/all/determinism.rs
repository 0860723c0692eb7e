//! The same run twice is the same, to the byte.

use crate::common::{outcome, scenario};
use headgate_sim::{Outcome, Progress, Quiet, RunError, SubjectKind, run};
use headgate_units::Nanos;
use std::ops::ControlFlow;

/// Everything that draws random numbers or keeps a map, in five seconds.
const BUSY: &str = r#"
    name = "busy"
    title = "Everything at once"
    duration = "5s"
    windows = { late = "2s..5s", all = "0s..5s" }
    host = [{ name = "h", count = 3, network = "50us" }]
    event = [
        { at = "1s", do = "policy", vm = "mixed-2", disk = "data", limit = 150 },
        { at = "2s", do = "fail", datastore = "rate", node = "b" },
        { at = "2500ms", do = "return", datastore = "rate", node = "b" },
        { at = "3s", do = "rate", datastore = "rate", rate = 2000 },
        { at = "3s", do = "stop", vm = "bursts" },
        { at = "4s", do = "start", vm = "bursts" },
    ]
    [[datastore]]
    name = "rate"
    device = "rate=4000,latency=1ms"
    noise = { within = "20%", every = "50ms" }
    queue-depth = 16
    node = [
        { name = "a", scheduler = "mclock", queue-depth = 8 },
        { name = "b", scheduler = "sfq", queue-depth = 8 },
        { name = "c" },
    ]
    [[datastore]]
    name = "disks"
    device = "array=5,raid=5"
    network = "100us"
    [[vm]]
    name = "mixed"
    count = 4
    host = "*"
    disk = [
        { name = "data", datastore = "rate", reservation = 100, route = "weighted", weights = [3, 2, 1] },
        { name = "log", datastore = "disks", size = "2G" },
    ]
    workload = [
        { name = "oltp", kind = "oltp", disk = "data", terminals = 5, reads = 3, writes = 2, cpu = "2ms",
          processors = 1, think = "10ms", times = "exponential", log-disk = "log" },
        { name = "noise", kind = "open", disk = "data", rate = 200, size = { 4K = 3, 64K = 1 }, read = "60%" },
    ]
    [[vm]]
    name = "bursts"
    host = "h-1"
    disk = [{ datastore = "rate", burst = 64, route = "striped", limit-bandwidth = "20M" }]
    workload = [
        { name = "a", kind = "burst", requests = 20, every = "100ms" },
        { name = "b", kind = "on-off", outstanding = 4, on = "100ms", off = "200ms", times = "exponential" },
    ]
"#;

fn written(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let first = written(&outcome(BUSY, 7));
    assert_eq!(first, written(&outcome(BUSY, 7)));
    assert_ne!(first, written(&outcome(BUSY, 8)));
}

#[test]
fn a_vm_more_on_other_storage_changes_nothing_for_the_others() {
    let more = BUSY.to_owned()
        + r#"
        [[datastore]]
        name = "other"
        device = "rate=100"
        [[vm]]
        name = "aaa"
        host = "h-2"
        disk = [{ datastore = "other" }]
        workload = [{ kind = "closed" }]
    "#;
    let (without, with) = (outcome(BUSY, 1), outcome(&more, 1));
    for subject in without.subjects.iter().filter(|subject| subject.kind != SubjectKind::Host) {
        assert_eq!(Some(subject), with.subject(&subject.name));
    }
}

#[test]
fn nothing_is_lost_on_the_way() {
    let outcome = outcome(BUSY, 3);
    for subject in &outcome.subjects {
        let mut sum = headgate_sim::Counters::default();
        subject.series.iter().for_each(|point| sum = sum.plus(point));
        assert_eq!(sum, subject.whole.counters, "{}: the series adds up", subject.name);
        assert_eq!(
            subject.whole.counters, subject.spans[0].counters,
            "{}: all is all",
            subject.name
        );
        assert!(sum.completed > 0 && sum.completed <= sum.arrived, "{}: {sum:?}", subject.name);
        assert_eq!(subject.whole.latency.count(), sum.completed, "{}", subject.name);
        assert_eq!(subject.whole.latency.sum(), u128::from(sum.latency), "{}", subject.name);
    }
    let of = |name: &str| outcome.subject(name).unwrap().whole.counters;
    let nodes = ["rate/a", "rate/b", "rate/c"].map(of);
    let served: u64 = nodes.iter().map(|node| node.completed).sum();
    assert!(served >= of("rate").completed && served <= of("rate").completed + 200);
    assert!(
        of("mixed-1/log").completed
            <= outcome.application("mixed-1/oltp").unwrap().whole.counters.completed + 5
    );
}

#[test]
fn a_run_can_be_cancelled() {
    struct Impatient;
    impl Progress for Impatient {
        fn step(&mut self, at: Nanos, _: Nanos, _: u64) -> ControlFlow<()> {
            if at < Nanos::from_secs(1) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        }
    }
    let result = run(&scenario(BUSY), "default", 1, &mut Impatient);
    assert!(matches!(result, Err(RunError::Cancelled { at }) if at >= Nanos::from_secs(1)));
    let unknown = run(&scenario(BUSY), "none", 1, &mut Quiet).unwrap_err();
    assert_eq!(unknown.to_string(), "the scenario has no variant 'none'; its variants are default");
}
