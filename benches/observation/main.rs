//! What observation costs: a daemon with many busy disks, with all that looks at it and without, in
//! turns of the same process under the same load.
//!
//! *All* is: samples of all disks each second and what is made of them (conditions, who waits for
//! whom, promise accounts, history), what other hosts are told where there is an etcd, an open page
//! that asks for the live view every two seconds, and a Prometheus that scrapes every fifteen. For
//! the turns without it those threads of the daemon are stopped, each by itself, while they sleep
//! (`ptrace`), and nobody asks. What the gate does for each request it does in both;
//! `cargo bench -p headgate-qos --bench gate` has that.

mod stopped;

use anyhow::{Context, ensure};
use clap::Parser;
use headgate_lab::headgate::Headgate;
use headgate_lab::nbd::{self, Client};
use headgate_lab::process::raise_own_limit;
use headgate_lab::{Server, with_lab};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use stopped::Stopped;

/// Threads that only observe, by the beginnings of their names.
const OBSERVERS: [&str; 4] =
    ["headgate-observ", "headgate-histor", "headgate-fleet", "headgate-advice"];

const PAGE_ASKS: Duration = Duration::from_secs(2);
const PROMETHEUS_ASKS: Duration = Duration::from_secs(15);

/// Arguments.
#[derive(Clone, Parser)]
struct Args {
    /// Disks, of which each gets 1 to 10 requests a second
    #[arg(long, default_value_t = 1_000)]
    disks: usize,
    /// Turns with observation, and as many without
    #[arg(long, default_value_t = 6)]
    turns: usize,
    /// How long a turn is; what is done every five minutes counts whole in the turn that it is in
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// An etcd that the daemon tells of itself
    #[arg(long)]
    etcd: Option<String>,
}

/// Whether the daemon is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    With,
    Without,
}

/// What a turn came to.
struct Seen {
    /// Processor time of the daemon, in per cent of a core.
    cpu: f64,
    /// The same by the names of threads.
    threads: BTreeMap<String, f64>,
    /// Requests in a second.
    rate: f64,
    /// Half and 99 % of them took no longer, in microseconds.
    latencies: [u64; 2],
}

/// Clients of all disks: each asks at its own pace, whatever the daemon does.
struct Load {
    stop: Arc<AtomicBool>,
    took: Arc<Mutex<Vec<u64>>>,
    threads: Vec<thread::JoinHandle<anyhow::Result<()>>>,
}

/// Threads that ask.
const ASKERS: usize = 8;

impl Load {
    fn start(daemon: &Headgate, disks: usize) -> anyhow::Result<Load> {
        let stop = Arc::new(AtomicBool::new(false));
        let took = Arc::new(Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        for asker in 0..ASKERS {
            let mut clients = Vec::new();
            for n in (asker..disks).step_by(ASKERS) {
                let client = Client::connect(daemon.nbd_socket(), &disk(n));
                clients.push((n, client.with_context(|| disk(n))?));
            }
            let (stop, took) = (stop.clone(), took.clone());
            threads.push(thread::spawn(move || ask(clients, &stop, &took)));
        }
        Ok(Load { stop, took, threads })
    }

    fn taken(&self) -> Vec<u64> {
        std::mem::take(&mut *self.took.lock().expect("no panic"))
    }

    fn end(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    }
}

fn disk(n: usize) -> String {
    format!("d{n:04}")
}

/// Distance of a disk's requests: 1 to 10 a second.
fn distance(n: usize) -> Duration {
    Duration::from_secs(1) / (1 + n as u32 % 10)
}

/// Asks for each client when it is its time. One request in four is a write.
fn ask(
    mut clients: Vec<(usize, Client)>,
    stop: &AtomicBool,
    took: &Mutex<Vec<u64>>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let first = |n: usize| begun + distance(n) * (n as u32 % 97) / 97;
    let mut due: BTreeMap<(Instant, usize), u64> =
        clients.iter().enumerate().map(|(at, (n, _))| ((first(*n), at), 0)).collect();
    let block = [7; 4096];
    while !stop.load(Ordering::Relaxed) {
        let Some(((at, who), count)) = due.pop_first() else { return Ok(()) };
        thread::sleep(at.saturating_duration_since(Instant::now()));
        let (n, client) = &mut clients[who];
        let offset = count * 7 % 256 * 4096;
        let asked = Instant::now();
        if count % 4 == 3 {
            ensure!(client.ask((nbd::CMD_WRITE, 0), offset, 4096, &block)? == Some(0));
        } else {
            client.read(offset, 4096)?;
        }
        took.lock().expect("no panic").push(asked.elapsed().as_micros() as u64);
        due.insert((at + distance(*n), who), count + 1);
    }
    Ok(())
}

/// Looks at the daemon as a page and a Prometheus do.
fn look(daemon: &Headgate, until: Instant) -> anyhow::Result<()> {
    let now = Instant::now();
    let mut due = [(now, PAGE_ASKS, "/v1/top"), (now, PROMETHEUS_ASKS, "/metrics")];
    loop {
        due.sort();
        let (at, every, path) = &mut due[0];
        if *at >= until {
            return Ok(());
        }
        thread::sleep(at.saturating_duration_since(Instant::now()));
        daemon.get(path)?;
        *at += *every;
    }
}

/// Processor time of each thread in nanoseconds, by its number, with its name.
fn times(pid: u32) -> anyhow::Result<BTreeMap<i32, (String, u64)>> {
    let mut all = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        let number = task.file_name().and_then(|name| name.to_str()).context("no number")?;
        // A thread may end meanwhile.
        let Ok(name) = fs::read_to_string(task.join("comm")) else { continue };
        let Ok(spent) = fs::read_to_string(task.join("schedstat")) else { continue };
        let spent = spent.split_whitespace().next().context("no time")?.parse()?;
        all.insert(number.parse()?, (name.trim().to_owned(), spent));
    }
    Ok(all)
}

fn turn(daemon: &Headgate, load: &Load, turn: Turn, length: Duration) -> anyhow::Result<Seen> {
    let pid = daemon.pid();
    let is_observer = |name: &str| OBSERVERS.iter().any(|one| name.starts_with(one));
    let stopped = match turn {
        Turn::With => None,
        Turn::Without => {
            let all = times(pid)?;
            let observers = all.iter().filter(|(_, (name, _))| is_observer(name));
            Some(Stopped::stop(observers.map(|(number, _)| *number))?)
        }
    };
    load.taken();
    let (before, begun) = (times(pid)?, Instant::now());
    if turn == Turn::With {
        look(daemon, begun + length)?;
    }
    thread::sleep((begun + length).saturating_duration_since(Instant::now()));
    let (after, seconds) = (times(pid)?, begun.elapsed().as_secs_f64());
    let mut took = load.taken();
    drop(stopped);
    let mut threads: BTreeMap<String, f64> = BTreeMap::new();
    for (number, (name, spent)) in after {
        let old = before.get(&number).map_or(0, |(_, spent)| *spent);
        *threads.entry(name).or_default() += (spent - old) as f64 / seconds / 1e7;
    }
    took.sort_unstable();
    let at = |permille: usize| took.get(took.len() * permille / 1_000).copied().unwrap_or(0);
    Ok(Seen {
        cpu: threads.values().sum(),
        threads,
        rate: took.len() as f64 / seconds,
        latencies: [at(500), at(990)],
    })
}

/// Disks in one document, which are made by one command.
fn documents(disks: usize) -> String {
    let one = |n: usize| {
        json!({"name": disk(n), "datastore": "ram", "size": "1M", "vm": format!("vm{}", n / 4),
            "policy": {"reservation": 1}})
    };
    json!({ "disks": (0..disks).map(one).collect::<Vec<_>>() }).to_string()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

fn report(with: &[Seen], without: &[Seen]) {
    let cpu = |all: &[Seen]| all.iter().map(|seen| seen.cpu).collect::<Vec<_>>();
    let pairs = with.iter().zip(without).map(|(with, without)| with.cpu - without.cpu);
    let pairs: Vec<f64> = pairs.collect();
    println!("processor time of the daemon, in per cent of a core, mean of turns:");
    println!("  with observation {:.2}, without {:.2}", mean(&cpu(with)), mean(&cpu(without)));
    println!(
        "  observation: mean {:.2}, median {:.2} of {pairs:.2?}",
        mean(&pairs),
        median(pairs.clone())
    );
    let names: Vec<&String> = with.iter().flat_map(|seen| seen.threads.keys()).collect();
    let names: std::collections::BTreeSet<&String> = names.into_iter().collect();
    for name in names {
        let of = |all: &[Seen]| {
            let each = all.iter().map(|seen| seen.threads.get(name).copied().unwrap_or(0.0));
            mean(&each.collect::<Vec<_>>())
        };
        let (with, without) = (of(with), of(without));
        if with >= 0.005 || without >= 0.005 {
            println!("  {name:<16} {with:>6.2} {without:>6.2}");
        }
    }
    for (what, all) in [("with", with), ("without", without)] {
        let rate = mean(&all.iter().map(|seen| seen.rate).collect::<Vec<_>>());
        let at = |n: usize| median(all.iter().map(|seen| seen.latencies[n] as f64).collect());
        println!("{what}: {rate:.0} requests/s, p50 {:.0} us, p99 {:.0} us", at(0), at(1));
    }
}

fn main() {
    let args = Args::parse();
    raise_own_limit();
    with_lab(&[], |lab| {
        // A shard that polls takes time for that, and not for what it does.
        let mut words = vec!["--waiting=plain"];
        if let Some(etcd) = &args.etcd {
            words.extend(["--etcd", etcd]);
        }
        let mut daemon = Headgate::start_as(lab, "state", &[], &words)?;
        daemon.command(&["datastore", "add", "ram", "--memory", "4G"])?;
        let path = lab.dir().join("disks.yaml");
        fs::write(&path, documents(args.disks))?;
        let path = path.display().to_string();
        daemon.command_for(Duration::from_secs(600), &["apply", &path])?;
        let load = Load::start(&daemon, args.disks)?;
        thread::sleep(Duration::from_secs(10));
        let length = Duration::from_secs(args.seconds);
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for n in 0..args.turns {
            let both = [Turn::With, Turn::Without];
            let in_order = if n % 2 == 0 { both } else { [both[1], both[0]] };
            for which in in_order {
                let seen = turn(&daemon, &load, which, length)?;
                eprintln!("{which:?}: {:.2} % of a core, {:.0} requests/s", seen.cpu, seen.rate);
                match which {
                    Turn::With => with.push(seen),
                    Turn::Without => without.push(seen),
                }
            }
        }
        report(&with, &without);
        load.end()?;
        daemon.stop()
    });
}
