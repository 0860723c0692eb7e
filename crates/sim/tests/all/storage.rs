//! Nodes, networks, capacities that change, and failures.

use crate::common::{near, outcome};
use headgate_sim::Outcome;

fn rates(outcome: &Outcome, name: &str) -> Vec<u64> {
    outcome.subject(name).unwrap().series.iter().map(|point| point.completed).collect()
}

const THREE_NODES: &str = r#"
    name = "nodes"
    title = "Three nodes"
    duration = "20s"
    [[datastore]]
    name = "store"
    device = "rate=100000,latency=1ms"
    stripe = "64K"
    queue-depth = 256
    node = [{ name = "a" }, { name = "b" }, { name = "c" }]
    [[vm]]
    name = "vm"
    disk = [{ ROUTE }]
    workload = [{ kind = "closed", size = "64K", PATTERN }]
"#;

fn parts(route: &str, pattern: &str) -> [f64; 3] {
    let text = THREE_NODES.replace("ROUTE", route).replace("PATTERN", pattern);
    let outcome = outcome(&text, 1);
    let all = outcome.subject("vm").unwrap().whole.counters.completed as f64;
    ["store/a", "store/b", "store/c"]
        .map(|node| outcome.subject(node).unwrap().whole.counters.completed as f64 / all)
}

#[test]
fn requests_are_routed_as_told() {
    let even =
        |parts: [f64; 3], tolerance| parts.iter().all(|part| near(*part, 1.0 / 3.0, tolerance));
    assert!(even(parts("", "random = '100%'"), 0.01));
    assert!(even(parts("route = 'round-robin'", "random = '100%'"), 0.001));
    assert!(even(parts("route = 'striped'", "random = '0%'"), 0.001));
    let weighted = parts("route = 'weighted', weights = [3, 0, 1]", "random = '100%'");
    assert!(near(weighted[0], 0.75, 0.01) && weighted[1] == 0.0, "{weighted:?}");
    assert_eq!(parts("nodes = 'b'", "random = '100%'"), [0.0, 1.0, 0.0]);
}

#[test]
fn the_network_costs_a_round_trip() {
    let text = |network: &str| {
        format!(
            r#"
            name = "far"
            title = "Far away"
            duration = "10s"
            host = [{{ name = "h", network = "{network}" }}]
            datastore = [{{ name = "lun", device = "rate=100000,latency=1ms", network = "200us" }}]
            vm = [{{ name = "vm", disk = [{{}}], workload = [{{ kind = "closed", outstanding = 1 }}] }}]
            "#
        )
    };
    for (network, latency) in [("0s", 1_400_000), ("300us", 2_000_000)] {
        let outcome = outcome(&text(network), 1);
        let counters = outcome.subject("vm").unwrap().whole.counters;
        assert_eq!(counters.mean_latency().unwrap().0, latency);
        assert_eq!(
            counters.mean_device(),
            counters.mean_latency(),
            "the window sees the network, too"
        );
    }
}

#[test]
fn capacity_follows_the_timeline_and_the_number_of_vms() {
    let timeline = outcome(
        r#"
        name = "steps"
        title = "Capacity in steps"
        duration = "30s"
        event = [{ at = "10s", do = "rate", rate = 200 }, { at = "20s", do = "rate", rate = 3000 }]
        datastore = [{ name = "lun", device = "rate=1000,latency=1ms" }]
        vm = [{ name = "vm", disk = [{}], workload = [{ kind = "closed" }] }]
        "#,
        1,
    );
    for (second, count) in rates(&timeline, "vm").into_iter().enumerate().skip(1) {
        let expected = [1_000, 200, 3_000][second / 10];
        assert!(count.abs_diff(expected) <= 1 + expected / 100, "second {second}: {count}");
    }
    let by_vms = outcome(
        r#"
        name = "crowd"
        title = "Capacity by the number of VMs"
        duration = "40s"
        datastore = [{ name = "lun", device = "rate=1,latency=1ms", rate-by-vms = [1000, 800, 600] }]
        [[vm]]
        name = "a"
        disk = [{}]
        workload = [{ kind = "closed" }]
        [[vm]]
        name = "b"
        count = 3
        start = "10s"
        stop = "30s"
        disk = [{}]
        workload = [{ kind = "closed" }]
        "#,
        1,
    );
    for (second, count) in rates(&by_vms, "lun").into_iter().enumerate() {
        let expected: u64 = if (10..30).contains(&second) { 600 } else { 1_000 };
        assert!(count.abs_diff(expected) <= 35, "second {second}: {count}");
    }
}

#[test]
fn noise_varies_the_rate_and_keeps_its_mean() {
    let outcome = outcome(
        r#"
        name = "noise"
        title = "Noise"
        duration = "200s"
        interval = "100ms"
        datastore = [{ name = "lun", device = "rate=2000,latency=1ms", noise = { within = "30%", every = "100ms" } }]
        vm = [{ name = "vm", disk = [{}], workload = [{ kind = "closed" }] }]
        "#,
        1,
    );
    let counts = rates(&outcome, "lun");
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    assert!(near(mean, 200.0, 0.02), "{mean}");
    let (low, high) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!((139..150).contains(low) && (250..262).contains(high), "{low} to {high}");
}

#[test]
fn a_failed_node_stands_still_and_serves_everything_after_its_return() {
    for front in ["", "scheduler = 'mclock', queue-depth = 4"] {
        let text = format!(
            r#"
            name = "failure"
            title = "One of two nodes fails"
            duration = "30s"
            event = [
                {{ at = "10s", do = "fail", node = "a" }},
                {{ at = "15s", do = "fail", node = "a" }},
                {{ at = "20s", do = "return", node = "a" }},
            ]
            [[datastore]]
            name = "store"
            device = "rate=500,latency=1ms"
            queue-depth = 256
            network = "1ms"
            node = [{{ name = "a", {front} }}, {{ name = "b" }}]
            [[vm]]
            name = "on-a"
            disk = [{{ nodes = "a" }}]
            workload = [{{ kind = "closed", outstanding = 8 }}]
            [[vm]]
            name = "on-b"
            disk = [{{ nodes = "b" }}]
            workload = [{{ kind = "closed", outstanding = 8 }}]
            [[vm]]
            name = "paced"
            disk = [{{ nodes = "a" }}]
            workload = [{{ kind = "open", rate = 10, arrivals = "constant" }}]
            "#
        );
        let outcome = outcome(&text, 1);
        let (a, b) = (rates(&outcome, "on-a"), rates(&outcome, "on-b"));
        assert!(a[11..20].iter().all(|&count| count == 0), "{front}: {a:?}");
        assert!(a[21..].iter().all(|&count| count > 400), "{front}: {a:?}");
        assert!(b[1..].iter().all(|&count| count > 490), "{front}: {b:?}");
        let paced = outcome.subject("paced").unwrap();
        assert!(paced.whole.counters.completed >= 298, "{front}: nothing is lost");
        assert!(paced.whole.latency.at_permille(1_000).unwrap().as_secs_f64() > 9.5, "{front}");
    }
}

#[test]
fn an_array_serves_streams_faster_than_random_reads_and_near_ones_faster_than_far_ones() {
    let rate = |random: &str, capacity: &str| {
        let text = format!(
            r#"
            name = "array"
            title = "An array"
            duration = "20s"
            datastore = [{{ name = "lun", device = "array=5,raid=0", capacity = "{capacity}" }}]
            vm = [{{ name = "vm", disk = [{{}}], workload = [{{ kind = "closed", random = "{random}", size = "64K" }}] }}]
            "#
        );
        outcome(&text, 1).subject("vm").unwrap().whole.iops()
    };
    let (streams, random, near) = (rate("0%", "10G"), rate("100%", "10G"), rate("100%", "4T"));
    assert!(streams > 3.0 * random, "{streams} and {random}");
    assert!(near > 1.2 * random && near < streams, "{near} and {random}");
}
