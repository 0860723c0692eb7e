//! What the view of all hosts costs: so many hosts with their disks in one process, each with a
//! publisher, a watch and a view of its own, against one real etcd.
//!
//! The disks' loads change all the time, each by a random walk. Everything but what a host has is
//! the product's: `headgate-fleet` and the etcd side of `headgate-cluster`.

use anyhow::Context;
use clap::Parser;
use headgate_cluster::{Endpoint, EtcdWords, KeyChange, Servers};
use headgate_fleet::{
    Behind, DatastoreWord, DiskWord, Found, Header, HostKey, HostState, HostWord, KEPT, PREFIX,
    PartKey, Promise, Publisher, Rate, Running, Service, Space, Summary, Thousandths, UnixSeconds,
    View, Waits, Workload, Write, period,
};
use headgate_units::{Bytes, Nanos};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Arguments.
#[derive(Parser)]
struct Args {
    /// The etcd
    #[arg(long)]
    etcd: Endpoint,
    /// Its process, to measure
    #[arg(long)]
    etcd_pid: u32,
    /// Hosts
    #[arg(long, default_value_t = 200)]
    hosts: usize,
    /// Disks of all of them
    #[arg(long, default_value_t = 10_000)]
    disks: usize,
    /// Part of the disks whose load changes, in per cent
    #[arg(long, default_value_t = 50)]
    busy_percent: usize,
    /// How long it is measured
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// What all hosts count together.
#[derive(Default)]
struct Counts {
    transactions: AtomicU64,
    puts: AtomicU64,
    value_bytes: AtomicU64,
    events: AtomicU64,
    failures: AtomicU64,
    delays_micros: Mutex<Vec<u64>>,
    first_views_micros: Mutex<Vec<u64>>,
}

/// A random walk.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

struct Host {
    key: HostKey,
    name: String,
    random: Random,
    loads: Vec<u64>,
    busy: usize,
}

impl Host {
    fn new(n: usize, disks: usize, busy_percent: usize) -> Host {
        let mut key = [0x5a; 16];
        key[..8].copy_from_slice(&(n as u64 * 0x9e37_79b9_7f4a_7c15).to_be_bytes());
        let random = Random(n as u64 * 7_919 + 1);
        let (name, busy) = (format!("host-{n:03}.example"), disks * busy_percent / 100);
        Host { key: HostKey(key), name, random, loads: vec![800; disks], busy }
    }

    /// Loads go up and down by up to a fifth.
    fn walk(&mut self) {
        for load in &mut self.loads[..self.busy] {
            let step = self.random.next() % 41;
            *load = (*load * (80 + step) / 100).clamp(50, 20_000);
        }
    }

    fn summary(&self, period: Nanos, stamp: Nanos) -> Summary {
        let disk = |(n, load): (usize, &u64)| DiskWord {
            name: format!("disk-{n:04}"),
            vm: Some(format!("machine-{:03}", n / 2)),
            datastore: if n % 2 == 0 { "fast".into() } else { "slow".into() },
            service: Service::Serving,
            size: Bytes::from_gib(100),
            reservation: Some(Rate(500)),
            limit: None,
            shares: 1_000,
            received: Rate(*load),
            bandwidth: Rate(load * 8_192),
            promise: Promise::Kept,
            queued: load / 100,
            latency: Some(Nanos::from_micros(load * 3)),
            waits: Some(Waits {
                cause: headgate_fleet::Cause::Neighbours,
                part: Thousandths(400),
                behind: Some(Behind { disk: "disk-0001".into(), part: Thousandths(400) }),
            }),
            workload: Some(Workload {
                outstanding: Thousandths(12_000),
                size: Bytes(8_192),
                read: Thousandths(700),
                random: Thousandths(900),
            }),
        };
        let disks: Vec<DiskWord> = self.loads.iter().enumerate().map(disk).collect();
        let total = disks.iter().map(|disk| disk.received.0).sum();
        let store = |name: &str| DatastoreWord {
            name: name.into(),
            service: Service::Serving,
            storage: Some(format!("directory {name}")),
            received: Rate(total / 2),
            bandwidth: Rate(total * 4_096),
            latency: Some(Nanos::from_micros(900)),
            window: Thousandths(32_000),
            in_flight: 20,
            queued: 30,
            capacity: Some(Rate(100_000)),
            reserved: Rate(500 * disks.len() as u64 / 2),
            overbooked: Rate(0),
            disks: disks.len() as u64 / 2,
            space: Some(Space { size: Bytes::from_gib(10_000), free: Bytes::from_gib(4_000) }),
            model: None,
        };
        Summary {
            host: HostWord {
                name: self.name.clone(),
                version: "0.1.0".into(),
                api: Some(format!("https://{}:7440/{}", self.name, stamp.0)),
                running: Running::Yes,
                period,
                datastore_chunks: 0,
                disk_chunks: 0,
                disks: disks.len() as u64,
                failed: 0,
                missed: 0,
                received: Rate(total),
                bandwidth: Rate(total * 8_192),
                queued: 10,
            },
            datastores: vec![store("fast"), store("slow")],
            disks,
            advice: Vec::new(),
        }
    }
}

fn header(instance: u64) -> Header {
    let mut bytes = [1; 16];
    bytes[..8].copy_from_slice(&instance.to_be_bytes());
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Header { instance: bytes, epoch: 1, at: UnixSeconds(at) }
}

/// One host's thread, as the daemon's is.
struct Member {
    host: Host,
    words: EtcdWords,
    view: View,
    publisher: Publisher,
    counts: Arc<Counts>,
    begun: Instant,
}

impl Member {
    fn now(&self) -> Nanos {
        Nanos::from(self.begun.elapsed()) + Nanos::from_secs(1_000)
    }

    fn tell(&mut self) -> Nanos {
        self.host.walk();
        let now = self.now();
        let period = period(self.view.running(now));
        let header = header(u64::from_be_bytes([2; 8]));
        let summary = self.host.summary(period, now);
        let (mut remove, mut put) = (Vec::new(), Vec::new());
        for write in self.publisher.turn(now, header, summary) {
            match write {
                Write::Put(key, value) => {
                    self.counts.puts.fetch_add(1, Ordering::Relaxed);
                    let bytes = (key.to_string().len() + value.len()) as u64;
                    self.counts.value_bytes.fetch_add(bytes, Ordering::Relaxed);
                    let _ = self.view.put_own(now, key.kind, &value);
                    put.push((key.to_string(), value));
                }
                Write::RemoveFrom(key) => remove.push((key.to_string(), key.end_of_kind())),
            }
        }
        self.counts.transactions.fetch_add(1, Ordering::Relaxed);
        match self.words.write(now, &remove, put) {
            Ok(()) => self.publisher.told(),
            Err(_) => drop(self.counts.failures.fetch_add(1, Ordering::Relaxed)),
        }
        now + period
    }

    fn read(&mut self) {
        let now = self.now();
        let begun = Instant::now();
        let wall = header(0).at;
        self.view.begin_reading();
        let view = &mut self.view;
        if self.words.read(|key, value| view.put(now, Found::Read(wall), key, value)).is_ok() {
            self.view.end_reading();
            let took = begun.elapsed().as_micros() as u64;
            self.counts.first_views_micros.lock().expect("no panic").push(took);
        } else {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn listen(&mut self, within: Duration) {
        let Ok(changes) = self.words.next(within) else {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let now = self.now();
        for change in changes {
            self.counts.events.fetch_add(1, Ordering::Relaxed);
            match change {
                KeyChange::Put { key, value } => {
                    self.view.put(now, Found::Told, &key, &value);
                    self.note_delay(now, &key);
                }
                KeyChange::Gone { key } => self.view.remove(&key),
            }
            self.view.heard(now);
        }
    }

    /// How long ago a host said what has just come.
    fn note_delay(&self, now: Nanos, key: &[u8]) {
        let key = std::str::from_utf8(key).ok().and_then(|key| key.parse::<PartKey>().ok());
        let Some(key) = key.filter(|key| key.kind == headgate_fleet::PartKind::Host) else {
            return;
        };
        // A sample: to look a host up costs what the daemon never does.
        if !now.0.is_multiple_of(16) {
            return;
        }
        let host = self.view.hosts(now).find(|host| host.host == key.host);
        let stamp = host.and_then(|host| host.word.api.as_ref()?.rsplit_once('/')?.1.parse().ok());
        if let Some(stamp) = stamp {
            let delay = now.since(Nanos(stamp)).0 / 1_000;
            self.counts.delays_micros.lock().expect("no panic").push(delay);
        }
    }
}

/// CPU seconds and resident KiB of a process.
fn usage(pid: u32) -> anyhow::Result<(f64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').context("no stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib = line.trim().trim_end_matches(" kB").parse()?;
    Ok((ticks as f64 / 100.0, kib))
}

fn permille(list: &mut [u64], permille: usize) -> f64 {
    list.sort_unstable();
    list.get(list.len().saturating_sub(1) * permille / 1_000)
        .map_or(0.0, |micros| *micros as f64 / 1e3)
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let servers = Servers::new(vec![args.etcd.clone()], None, None)?;
    let counts = Arc::new(Counts::default());
    let begun = Instant::now();
    let barrier = Arc::new(Barrier::new(args.hosts + 1));
    let each = args.disks / args.hosts;
    let settle = Duration::from_secs(45);
    for n in 0..args.hosts {
        let host = Host::new(n, each, args.busy_percent);
        let words = EtcdWords::new(&servers, PREFIX, KEPT.into(), Duration::from_secs(10))?;
        let (view, publisher) = (View::new(host.key), Publisher::new(host.key));
        let counts = counts.clone();
        let mut member = Member { host, words, view, publisher, counts, begun };
        let barrier = barrier.clone();
        thread::Builder::new().stack_size(512 << 10).spawn(move || {
            // Hosts do not start in one instant.
            thread::sleep(Duration::from_millis(20_000 * n as u64 / 200));
            let mut due = member.tell();
            loop {
                if !member.words.is_watching() {
                    member.read();
                }
                let left = Duration::from(due.since(member.now())).min(Duration::from_millis(250));
                member.listen(left.max(Duration::from_millis(1)));
                if member.now() >= due {
                    due = member.tell();
                }
                if member.begun.elapsed() > settle + Duration::from_secs(args.seconds) {
                    break;
                }
            }
            let now = member.now();
            let running = member.view.hosts(now).filter(|host| host.state == HostState::Running);
            let seen = running.map(|host| host.disks().count()).sum::<usize>();
            barrier.wait();
            (member.view.count(), seen)
        })?;
    }
    thread::sleep(settle);
    let own = std::process::id();
    let read = || {
        let counts = [&counts.transactions, &counts.puts, &counts.value_bytes, &counts.events]
            .map(|count| count.load(Ordering::Relaxed));
        Ok::<_, anyhow::Error>((counts, usage(args.etcd_pid)?, usage(own)?))
    };
    counts.delays_micros.lock().expect("no panic").clear();
    let (before, etcd_before, own_before) = read()?;
    thread::sleep(Duration::from_secs(args.seconds) - Duration::from_millis(500));
    let (after, etcd_after, own_after) = read()?;
    let seconds = args.seconds as f64 - 0.5;
    let rate = |n: usize| (after[n] - before[n]) as f64 / seconds;
    let mut delays = counts.delays_micros.lock().expect("no panic").clone();
    let mut views = counts.first_views_micros.lock().expect("no panic").clone();
    let hosts = args.hosts as f64;
    println!(
        "hosts {} disks {} period {} s: {:.1} transactions/s, {:.1} puts/s, {:.1} KiB/s of keys and \
         values to etcd, {:.0} events/s to all watches; etcd {:.1} % of a CPU, {} MiB; each host \
         {:.3} % of a CPU, {:.2} MiB; told to heard p50 {:.1} ms p99 {:.1} ms; a view read p50 {:.0} ms \
         p99 {:.0} ms; {} failures",
        args.hosts,
        each * args.hosts,
        period(args.hosts).0 / 1_000_000_000,
        rate(0),
        rate(1),
        rate(2) / 1024.0,
        rate(3),
        (etcd_after.0 - etcd_before.0) / seconds * 100.0,
        etcd_after.1 / 1024,
        (own_after.0 - own_before.0) / seconds * 100.0 / hosts,
        own_after.1 as f64 / 1024.0 / hosts,
        permille(&mut delays, 500),
        permille(&mut delays, 990),
        permille(&mut views, 500),
        permille(&mut views, 990),
        counts.failures.load(Ordering::Relaxed),
    );
    barrier.wait();
    Ok(())
}
