//! Hosts that share storage, and the control of their windows.

use crate::common::{near, outcome};
use headgate_sim::{HostWindow, Outcome};
use headgate_units::Nanos;

/// Two hosts, shares 1:3.
const TWO: &str = r#"
    name = "two"
    title = "Two hosts"
    duration = "60s"
    windows = { late = "30s..60s" }
    host = [{ name = "a" }, { name = "b", OWN }]
    [[datastore]]
    name = "lun"
    device = "rate=2000,latency=1ms"
    queue-depth = 24
    issue-window = { threshold = "10ms", period = "500ms", KEYS }
    [[vm]]
    name = "small"
    host = "a"
    disk = [{ shares = 1000 }]
    workload = [{ kind = "closed", outstanding = 64 }]
    [[vm]]
    name = "large"
    host = "b"
    disk = [{ shares = 3000 }]
    workload = [{ kind = "closed", outstanding = 64 }]
"#;

fn two(own: &str, keys: &str) -> Outcome {
    outcome(&TWO.replace("OWN", own).replace("KEYS", keys), 1)
}

fn late(outcome: &Outcome, host: &str) -> f64 {
    let HostWindow { spans, .. } = outcome.issue_window(host).unwrap();
    spans[0].counters.mean_window(spans[0].to - spans[0].from)
}

fn rate(outcome: &Outcome, host: &str) -> f64 {
    outcome.subject(host).unwrap().spans[0].iops()
}

#[test]
fn windows_hold_the_latency_at_the_threshold_and_follow_shares() {
    let outcome = two("", "min = 1");
    let (a, b) = (late(&outcome, "a"), late(&outcome, "b"));
    assert!(near(a, 5.0, 0.03) && near(b, 15.0, 0.03), "{a} {b}");
    assert!(near(rate(&outcome, "a"), 500.0, 0.03) && near(rate(&outcome, "b"), 1500.0, 0.03));
    let device = outcome.subject("lun").unwrap().spans[0].counters.mean_device().unwrap();
    assert!(near(device.as_secs_f64(), 0.010, 0.02), "{device}");
    let seen = outcome.issue_window("a").unwrap().spans[0].counters.mean_latency().unwrap();
    assert!(near(seen.as_secs_f64(), 0.010, 0.02), "{seen}");
}

#[test]
fn windows_need_not_be_whole() {
    let outcome = two("", "min = 0.25, max = 0.5, initial = 0.25");
    // Each gets a request in two milliseconds out and then waits as long: the storage is idle most
    // of the time.
    assert!(near(late(&outcome, "b"), 0.5, 1e-6), "{}", late(&outcome, "b"));
    assert!(near(rate(&outcome, "b"), 500.0, 0.02), "{}", rate(&outcome, "b"));
}

#[test]
fn a_host_with_a_depth_of_its_own_takes_no_part() {
    let outcome = two("queue-depth = 40", "min = 1");
    assert_eq!(late(&outcome, "b"), 40.0);
    // Nothing it does brings the latency down, so it has no more than the least.
    assert!(near(late(&outcome, "a"), 1.0, 0.01), "{}", late(&outcome, "a"));
    let alarmed =
        outcome.issue_window("a").unwrap().spans[0].counters.unmanaged_part(Nanos::from_secs(30));
    assert_eq!(alarmed, 1.0);
}

#[test]
fn fixed_windows_are_recorded_and_change_by_event() {
    let text = TWO.replace("OWN", "").replace("KEYS", "law = 'fixed'");
    let text = text.replace(
        "[[datastore]]",
        "event = [{ at = '45s', do = 'queue-depth', queue-depth = 8 }]\n[[datastore]]",
    );
    let outcome = outcome(&text, 1);
    assert_eq!(late(&outcome, "a"), 16.0);
    assert_eq!(rate(&outcome, "a").round(), 1000.0);
    assert_eq!(outcome.issue_window("a").unwrap().spans[0].counters.mean_latency(), None);
}

#[test]
fn a_scheduler_of_its_own_is_for_that_host() {
    let text = r#"
        name = "own"
        title = "One host by shares, the other by arrival"
        duration = "20s"
        windows = { late = "5s..20s" }
        host = [{ name = "a" }, { name = "b", scheduler = "fifo" }]
        datastore = [{ name = "lun", device = "rate=1000,latency=1ms", queue-depth = 4 }]
        [[vm]]
        name = "small"
        count = 2
        host = "*"
        disk = [{ shares = 1000 }]
        workload = [{ kind = "closed", outstanding = 64 }]
        [[vm]]
        name = "large"
        count = 2
        host = "*"
        disk = [{ shares = 3000 }]
        workload = [{ kind = "closed", outstanding = 64 }]
    "#;
    let outcome = outcome(text, 1);
    let ratio = |n| rate(&outcome, &format!("large-{n}")) / rate(&outcome, &format!("small-{n}"));
    assert!(near(ratio(1), 3.0, 0.02) && near(ratio(2), 1.0, 0.02), "{} {}", ratio(1), ratio(2));
}

#[test]
fn the_same_seed_gives_the_same_windows_and_another_seed_other_phases() {
    let text = TWO.replace("OWN", "").replace("KEYS", "min = 1, report-delay = '200ms'");
    let windows = |seed| {
        let outcome = outcome(&text, seed);
        serde_json::to_string(&outcome.issue_windows).unwrap()
    };
    assert_eq!(windows(5), windows(5));
    assert_ne!(windows(5), windows(6));
}

#[test]
fn how_long_it_takes_to_settle_is_measured_from_the_beginning_of_the_window() {
    let text = TWO.replace("OWN", "").replace("KEYS", "law = 'fixed'")
        + r#"
        [[event]]
        at = "34s"
        do = "rate"
        rate = 1000
        [[expect]]
        measure = "iops"
        of = "lun"
        window = "late"
        settles-within = "5%"
        equals = "4s"
        slack = "0.001s"
        [[expect]]
        measure = "issue-window"
        of = "a"
        window = "late"
        settles-within = "5%"
        at-most = "0s"
    "#;
    let scenario = crate::common::scenario(&text);
    let outcomes = [headgate_sim::run(&scenario, "default", 1, &mut headgate_sim::Quiet).unwrap()];
    for verdict in headgate_sim::judge(&scenario, &outcomes) {
        assert_eq!(verdict.judgement, headgate_sim::Judgement::Holds, "{verdict}");
    }
}
