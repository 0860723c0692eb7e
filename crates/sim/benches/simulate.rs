//! Events per second: `cargo bench -p headgate-sim`. With `-- --day`, also a day of 1,000 VMs on 50
//! hosts and 20 arrays; with `-- array` and the like, that scenario alone; with `-- none --day`,
//! the day alone. HEADGATE_SIM_HOURS says how long the day is, HEADGATE_SIM_DEVICE what the arrays
//! are, for instance "array=10,raid=5" for spindles.
//!
//! An event is something that happens to a request (issued, dispatched by a scheduler, completed),
//! a message, a timer.

use headgate_sim::{Quiet, Scenario, run};
use std::time::Instant;

/// What the bar is for: one array, a handful of VMs.
const PAPER: &str = r#"
    name = "paper"
    title = "Five VMs on one array for 300 s"
    duration = "300s"
    [[datastore]]
    name = "lun"
    device = "rate=1600,latency=5ms"
    [[vm]]
    name = "vm"
    count = 5
    disk = [{ reservation = 200, limit = 1000 }]
    workload = [{ kind = "closed", size = "16K", read = "75%" }]
"#;

/// The hot loop alone: a fast device and many requests.
const FAST: &str = r#"
    name = "fast"
    title = "Sixteen VMs on a device of 500,000 IOPS for 10 s"
    duration = "10s"
    [[datastore]]
    name = "lun"
    device = "rate=500000,latency=20us"
    [[vm]]
    name = "vm"
    count = 16
    disk = [{ reservation = 10000 }]
    workload = [{ kind = "closed" }]
"#;

/// dmClock on three nodes behind a network.
const NODES: &str = r#"
    name = "nodes"
    title = "Six VMs on three storage nodes with dmClock for 60 s"
    duration = "60s"
    [[datastore]]
    name = "store"
    device = "rate=5000,latency=1ms"
    scheduler = "fifo"
    queue-depth = 512
    network = "100us"
    [[datastore.node]]
    name = "a"
    scheduler = "mclock"
    [[datastore.node]]
    name = "b"
    scheduler = "mclock"
    [[datastore.node]]
    name = "c"
    scheduler = "mclock"
    [[vm]]
    name = "vm"
    count = 6
    disk = [{ reservation = 1000 }]
    workload = [{ kind = "closed", outstanding = 64 }]
"#;

/// Spindles with elevators: most of the time goes into the device model.
const ARRAY: &str = r#"
    name = "array"
    title = "Five VMs on an array of ten spindles for 300 s"
    duration = "300s"
    [[datastore]]
    name = "lun"
    device = "array=10,raid=5"
    [[vm]]
    name = "vm"
    count = 5
    disk = [{}]
    workload = [{ kind = "closed", size = "16K", read = "75%" }]
"#;

/// An operator's estate.
const DAY: &str = r#"
    name = "day"
    title = "1,000 VMs on 50 hosts and 20 arrays"
    duration = "DURATION"
    interval = "5m"
    host = [{ name = "host", count = 50, network = "50us" }]
STORES
    [[vm]]
    name = "web"
    count = 500
    host = "*"
    disk = [{ datastore = "*", limit = 500 }]
    workload = [{ kind = "open", rate = 10, read = "70%", size = { 4K = 3, 16K = 1 } }]
    [[vm]]
    name = "db"
    count = 300
    host = "*"
    disk = [{ datastore = "*", reservation = 30 }]
    workload = [{ kind = "oltp", terminals = 10, reads = 3, writes = 2, cpu = "2ms", think = "2s", times = "exponential" }]
    [[vm]]
    name = "batch"
    count = 200
    host = "*"
    disk = [{ datastore = "*", shares = 200, limit = 100 }]
    workload = [{ kind = "on-off", outstanding = 8, on = "30s", off = "5m", times = "exponential", size = "64K", random = "20%" }]
"#;

fn main() {
    let (flags, wanted): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    for (name, text, times) in
        [("paper", PAPER, 5), ("fast", FAST, 3), ("nodes", NODES, 3), ("array", ARRAY, 3)]
    {
        if wanted.is_empty() || wanted.iter().any(|it| it == name) {
            measure(text, times);
        }
    }
    if flags.iter().any(|flag| flag == "--day") {
        let device = std::env::var("HEADGATE_SIM_DEVICE")
            .unwrap_or_else(|_| "rate=2000,latency=2ms".to_owned());
        let stores: String = (1..=20)
            .map(|n| {
                format!("[[datastore]]\nname = \"array-{n}\"\ndevice = \"{device}\"\nnetwork = \"50us\"\n")
            })
            .collect();
        let hours = std::env::var("HEADGATE_SIM_HOURS").unwrap_or_else(|_| "24".to_owned());
        measure(&DAY.replace("STORES", &stores).replace("DURATION", &format!("{hours}h")), 1);
        println!("peak memory {} MiB", peak_memory() >> 20);
    }
}

#[allow(clippy::disallowed_methods)] // A bench measures real time.
fn measure(text: &str, times: u32) {
    let scenario = match Scenario::parse("bench.toml", text) {
        Ok(scenario) => scenario,
        Err(error) => return println!("{error}"),
    };
    let (mut best, mut events, mut requests) = (f64::MAX, 0, 0);
    for seed in 0..u64::from(times) {
        let began = Instant::now();
        match run(&scenario, "default", seed, &mut Quiet) {
            Ok(outcome) => {
                best = best.min(began.elapsed().as_secs_f64());
                events = outcome.events;
                requests = outcome
                    .subjects
                    .iter()
                    .map(|subject| subject.whole.counters.completed)
                    .sum::<u64>()
                    / 2;
            }
            Err(error) => return println!("{error}"),
        }
    }
    println!(
        "{:<62} {best:>8.3} s {:>7.2} million events/s {:>6.0} ns/request",
        scenario.title,
        events as f64 / best / 1e6,
        best * 1e9 / requests.max(1) as f64
    );
}

/// Bytes, from the kernel; 0 where it does not say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}
