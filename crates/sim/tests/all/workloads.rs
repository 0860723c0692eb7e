//! Workloads against closed formulas.

use crate::common::{near, outcome};
use headgate_sim::{Outcome, Stretch};
use headgate_units::Nanos;

/// One VM called `vm` on storage of its own, for 60 s; the window `late` leaves out the first ten.
fn alone(device: &str, workload: &str) -> Outcome {
    outcome(&scenario(device, workload), 1)
}

fn scenario(device: &str, workload: &str) -> String {
    format!(
        r#"
        name = "alone"
        title = "One workload"
        duration = "60s"
        interval = "100ms"
        windows = {{ late = "10s..60s" }}
        datastore = [{{ name = "lun", device = "{device}", queue-depth = 1024, cost-model = "unit" }}]
        vm = [{{ name = "vm", disk = [{{}}], workload = [{{ {workload} }}] }}]
        "#
    )
}

fn late(outcome: &Outcome) -> Stretch {
    outcome.subject("vm").unwrap().spans[0].clone()
}

fn latency(stretch: &Stretch) -> f64 {
    stretch.counters.mean_latency().unwrap().as_secs_f64()
}

#[test]
fn a_closed_loop_obeys_littles_law() {
    for (outstanding, think, device, rate) in [
        // Storage is the bottleneck.
        (32, 0.0, "rate=1000,latency=1ms", 1_000.0),
        // Its latency is.
        (4, 0.0, "rate=100000,latency=5ms", 800.0),
        // Thinking is.
        (10, 0.045, "rate=100000,latency=5ms", 200.0),
    ] {
        for times in ["constant", "exponential"] {
            let workload = format!(
                "kind = 'closed', outstanding = {outstanding}, think = '{}ms', times = '{times}'",
                think * 1e3
            );
            let late = late(&alone(device, &workload));
            let (n, x, r) = (f64::from(outstanding), late.iops(), latency(&late));
            assert!(near(x, rate, 0.02), "{workload} on {device}: {x}/s");
            assert!(near(x * (r + think), n, 0.02), "{workload} on {device}: {x}/s, {r} s");
            let waiting = late.counters.mean_outstanding(late.length());
            assert!(near(waiting, x * r, 0.02), "{workload}: {waiting} outstanding");
        }
    }
}

#[test]
fn open_arrivals_have_their_rate_and_their_waits() {
    let constant =
        late(&alone("rate=1000,latency=100us", "kind = 'open', rate = 700, arrivals = 'constant'"));
    assert_eq!(constant.counters.completed, 35_000);
    assert!(near(latency(&constant), 0.000_1, 1e-6), "they never meet: {}", latency(&constant));
    let poisson = late(&alone("rate=1000,latency=1ms", "kind = 'open', rate = 700"));
    assert!(near(poisson.iops(), 700.0, 0.015), "{}", poisson.iops());
    // M/D/1: waits of ρ/(2μ(1-ρ)) on top of the service.
    let expected = 0.001 + 0.7 / (2.0 * 1_000.0 * 0.3);
    assert!(near(latency(&poisson), expected, 0.06), "{} and {expected}", latency(&poisson));
}

/// A closed loop of reads and writes comes to wait with all that it has outstanding for the
/// direction that is held back: at a limit l of a part p of what it sends it gets l/p.
#[test]
fn a_limit_of_one_direction_holds_that_direction() {
    for (limit, read, rate) in [
        ("limit-write = 100", "50%", 200.0),
        ("limit-write = 100", "80%", 500.0),
        ("limit-read = 90", "90%", 100.0),
        ("limit-write-bandwidth = '400K'", "75%", 400.0),
        ("limit-write = 100, limit-read = 300, limit = 250", "50%", 200.0),
    ] {
        let workload = format!("kind = 'closed', outstanding = 64, read = '{read}', size = '4K'");
        let text = scenario("rate=1000,latency=1ms", &workload);
        let text = text.replace("disk = [{}]", &format!("disk = [{{ {limit} }}]"));
        let got = late(&outcome(&text, 1)).iops();
        assert!(near(got, rate, 0.03), "{got} of {rate} with {limit}");
    }
}

#[test]
fn an_open_workload_beyond_capacity_is_cut_off_and_counted() {
    let outcome =
        alone("rate=1000,latency=1ms", "kind = 'open', rate = 10000, arrivals = 'constant'");
    let whole = &outcome.subject("vm").unwrap().whole.counters;
    assert_eq!(whole.completed / 60, 1_000 - 1);
    assert!(whole.dropped > 0 && whole.arrived - whole.completed <= 65_536, "{whole:?}");
    assert_eq!(whole.arrived + whole.dropped, 600_000 - 1);
}

#[test]
fn bursts_come_when_they_should() {
    // 20 requests take 20 ms at 1 ms each.
    let busy = |outcome: &Outcome| -> Vec<usize> {
        let points = outcome.subject("vm").unwrap().series.iter().enumerate();
        points.filter(|(_, point)| point.arrived > 0).map(|(index, _)| index).collect()
    };
    let fixed = alone("rate=1000,latency=1ms", "kind = 'burst', requests = 20, every = '300ms'");
    assert_eq!(busy(&fixed)[..4], [0, 3, 6, 9], "a burst every 300 ms");
    assert_eq!(late(&fixed).counters.arrived, 20 * 166, "at 10.2 s, 10.5 s and so on");
    // Mean of 1 ms to 20 ms.
    assert!(near(latency(&late(&fixed)), 0.0105, 1e-3), "{}", latency(&late(&fixed)));
    let after = "kind = 'burst', requests = 20, every = '280ms', pacing = 'after-completion'";
    let after = alone("rate=1000,latency=1ms", after);
    assert_eq!(busy(&after)[..4], [0, 3, 6, 9], "280 ms of pause after 20 ms of work");
    // Overlapping bursts pile up only without the wait: half of the demand is served.
    let slow = |pacing: &str| {
        let workload =
            format!("kind = 'burst', requests = 200, every = '100ms', pacing = '{pacing}'");
        late(&alone("rate=1000,latency=1ms", &workload)).counters
    };
    assert_eq!(slow("fixed").arrived, 50 * 2_000);
    assert!(near(slow("after-completion").arrived as f64, 50.0 / 0.3 * 200.0, 0.02));
}

#[test]
fn on_and_off_take_turns() {
    let constant =
        alone("rate=1000,latency=1ms", "kind = 'on-off', outstanding = 8, on = '1s', off = '3s'");
    let points = &constant.subject("vm").unwrap().series;
    let busy: Vec<bool> = points.iter().map(|point| point.arrived > 8).collect();
    for (index, busy) in busy.iter().enumerate() {
        assert_eq!(*busy, index % 40 < 10, "point {index}");
    }
    let random =
        "kind = 'on-off', outstanding = 8, on = '100ms', off = '300ms', times = 'exponential'";
    let random = late(&alone("rate=1000,latency=1ms", random));
    // A quarter of the time, and the 8 that are left when it becomes quiet.
    assert!(near(random.iops(), 250.0 + 8.0 / 0.4, 0.15), "{}", random.iops());
}

#[test]
fn transactions_obey_the_interactive_response_time_law() {
    // Response = terminals / throughput - think time, whatever the bottleneck is.
    for (workload, bottleneck) in [
        ("terminals = 50, reads = 4, writes = 2, think = '100ms'", 1_000.0 / 6.0),
        ("terminals = 50, reads = 1, cpu = '10ms', processors = 2, think = '100ms'", 200.0),
        ("terminals = 5, reads = 1, cpu = '9ms', think = '90ms'", 50.0),
    ] {
        let outcome = alone("rate=1000,latency=1ms", &format!("kind = 'oltp', {workload}"));
        let app = &outcome.application("vm").unwrap().spans[0];
        let throughput = app.counters.completed as f64 / 50.0;
        let think = if workload.contains("90ms") { 0.09 } else { 0.1 };
        let terminals = if workload.contains("50") { 50.0 } else { 5.0 };
        let response = app.response.mean().unwrap().as_secs_f64();
        assert!(near(throughput, bottleneck, 0.03), "{workload}: {throughput}/s");
        assert!(near(response, terminals / throughput - think, 0.03), "{workload}: {response} s");
    }
}

#[test]
fn a_log_write_ends_each_transaction() {
    let outcome = outcome(
        r#"
        name = "log"
        title = "A database and its log"
        duration = "10s"
        datastore = [{ name = "lun", device = "rate=1000,latency=1ms" }]
        [[vm]]
        name = "db"
        disk = [{ name = "data" }, { name = "log", size = "1G" }]
        workload = [{ kind = "oltp", disk = "data", terminals = 10, reads = 2, writes = 1, log-disk = "log" }]
        "#,
        1,
    );
    let transactions = outcome.application("db").unwrap().whole.counters.completed;
    let of = |name: &str| outcome.subject(name).unwrap().whole.counters.completed;
    assert_eq!(of("db/log"), transactions);
    assert!(of("db/data").abs_diff(3 * transactions) <= 30);
    assert_eq!(of("db"), of("db/log") + of("db/data"));
}

#[test]
fn a_vm_runs_from_its_start_to_its_stop() {
    let text = scenario("rate=1000,latency=1ms", "kind = 'closed', outstanding = 4")
        .replace("disk = [{}]", "start = '20s', stop = '30s', disk = [{}]")
        .replace("duration", "event = [{ at = '40s', do = 'start', vm = 'vm' }]\nduration");
    let outcome = outcome(&text, 1);
    for (index, point) in outcome.subject("vm").unwrap().series.iter().enumerate() {
        let (from, to) = outcome.point(index);
        let runs = from >= Nanos::from_secs(20) && to <= Nanos::from_secs(30)
            || from >= Nanos::from_secs(40);
        assert_eq!(point.arrived > 0, runs, "{from} to {to}: {point:?}");
    }
}
