//! What disks cost that nobody uses, or uses a little: a daemon with 1, 100, 1,000 and 10,000 of
//! them, one after the other.
//!
//! Of each number: processor time with nothing to do, memory, threads and descriptors. Up to
//! `--attached` of the disks have a client, connected over NBD. `--rate` has each of these ask so
//! often, and the first request after a time of idleness is measured beside the ones right after
//! it, which have everything in the caches. At the end all is told as a table, with what each disk
//! adds from one number to the next.

use anyhow::Context;
use clap::Parser;
use headgate_lab::headgate::Headgate;
use headgate_lab::nbd::Client;
use headgate_lab::process::raise_own_limit;
use headgate_lab::{Lab, Server, with_lab};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Arguments.
#[derive(Clone, Parser)]
struct Args {
    /// Numbers of disks
    #[arg(long = "disks", default_values_t = [1, 100, 1_000, 10_000])]
    disks: Vec<usize>,
    /// The most disks that have a client
    #[arg(long, default_value_t = 1_000)]
    attached: usize,
    /// Requests a second of each client, while those are measured; 0: they are not
    #[arg(long, default_value_t = 1)]
    rate: u32,
    /// How long is measured
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Shards; the default is the daemon's
    #[arg(long)]
    shards: Option<usize>,
}

fn disk(n: usize) -> String {
    format!("d{n:05}")
}

/// Disks in one document, every other one with a reservation.
fn documents(disks: usize) -> String {
    let one = |n: usize| {
        let reservation = (n % 2) as u64;
        let policy = if reservation > 0 { json!({"reservation": 1}) } else { json!({}) };
        json!({"name": disk(n), "datastore": "ram", "size": "1M", "vm": format!("vm{}", n / 4),
            "policy": policy})
    };
    json!({ "disks": (0..disks).map(one).collect::<Vec<_>>() }).to_string()
}

/// What a process is at one instant.
struct Look {
    at: Instant,
    /// Processor time of each thread in nanoseconds, by its number, with its name.
    times: BTreeMap<i32, (String, u64)>,
    resident_kib: u64,
    descriptors: usize,
    /// Times that threads went to sleep.
    sleeps: u64,
}

fn look(pid: u32) -> anyhow::Result<Look> {
    let (mut times, mut sleeps) = (BTreeMap::new(), 0);
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        let number = task.file_name().and_then(|name| name.to_str()).context("no number")?;
        // A thread may end meanwhile.
        let Ok(name) = fs::read_to_string(task.join("comm")) else { continue };
        let Ok(spent) = fs::read_to_string(task.join("schedstat")) else { continue };
        let Ok(status) = fs::read_to_string(task.join("status")) else { continue };
        let spent = spent.split_whitespace().next().context("no time")?.parse()?;
        sleeps += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
        times.insert(number.parse()?, (name.trim().to_owned(), spent));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
    let resident_kib = field(&status, "VmRSS:").context("no memory")?;
    Ok(Look { at: Instant::now(), times, resident_kib, descriptors, sleeps })
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Per cent of a core by the names of threads, those with the most first.
fn spent(before: &Look, after: &Look) -> (f64, Vec<(String, f64)>) {
    let seconds = (after.at - before.at).as_secs_f64();
    let mut threads: BTreeMap<&str, f64> = BTreeMap::new();
    for (number, (name, spent)) in &after.times {
        let old = before.times.get(number).map_or(0, |(_, spent)| *spent);
        *threads.entry(name).or_default() += (spent - old) as f64 / seconds / 1e7;
    }
    let all = threads.values().sum();
    let mut threads: Vec<(String, f64)> =
        threads.into_iter().map(|(name, part)| (name.to_owned(), part)).collect();
    threads.sort_by(|a, b| b.1.total_cmp(&a.1));
    threads.truncate(3);
    (all, threads)
}

/// Each client asks so often, spread over the second, until then.
fn ask(clients: &mut [Client], rate: u32, until: Instant) -> anyhow::Result<u64> {
    let gap = Duration::from_secs(1) / rate / clients.len().max(1) as u32;
    let (mut next, mut asked) = (Instant::now(), 0);
    while next < until {
        for client in clients.iter_mut() {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            client.read(asked % 256 * 4096, 4096)?;
            (next, asked) = (next + gap, asked + 1);
        }
    }
    Ok(asked)
}

fn timed(client: &mut Client, offset: u64) -> anyhow::Result<u64> {
    let asked = Instant::now();
    client.read(offset, 4096)?;
    Ok(asked.elapsed().as_nanos() as u64 / 1_000)
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}

/// What a number of disks costs.
struct Row {
    disks: usize,
    attached: usize,
    /// In per cent of a core.
    idle: f64,
    sleeps: f64,
    look: Look,
    /// In microseconds: the first request after idleness, and the next.
    requests: [u64; 2],
    /// Requests per second, and per cent of a core.
    busy: Option<(f64, f64)>,
}

impl Row {
    fn mib(&self) -> f64 {
        self.look.resident_kib as f64 / 1024.0
    }
}

/// Prints what was measured as a table in Markdown.
fn print_table(rows: &[Row]) {
    println!(
        "\n| disks | with a client | idle, % of a core | sleeps/s | requests/s | with these, % | \
         MiB | threads | descriptors | first request, next |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    for row in rows {
        let busy = row.busy.map(|(rate, all)| format!("{rate:.0} | {all:.2}"));
        println!(
            "| {} | {} | {:.3} | {:.1} | {} | {:.0} | {} | {} | {}, {} us |",
            row.disks,
            row.attached,
            row.idle,
            row.sleeps,
            busy.unwrap_or_else(|| " | ".into()),
            row.mib(),
            row.look.times.len(),
            row.look.descriptors,
            row.requests[0],
            row.requests[1]
        );
    }
    for (few, many) in rows.iter().zip(rows.iter().skip(1)) {
        let more = (many.disks - few.disks) as f64;
        // A per cent of a core is 10 ms in a second.
        let micros = |part: f64| part * 10_000.0 / more;
        let busy = few.busy.zip(many.busy).map(|(few, many)| micros(many.1 - few.1));
        println!(
            "from {} to {}: {:.3} us a second idle, {} with requests, {:.1} KiB and {:.2} \
             descriptors for each",
            few.disks,
            many.disks,
            micros(many.idle - few.idle),
            busy.map_or_else(|| "unknown".into(), |busy| format!("{busy:.1} us")),
            (many.mib() - few.mib()) * 1024.0 / more,
            (many.look.descriptors as f64 - few.look.descriptors as f64) / more
        );
    }
}

fn measure(lab: &Lab, args: &Args, disks: usize) -> anyhow::Result<Row> {
    let shards = args.shards.map(|n| format!("--shards={n}"));
    // A shard that polls takes time for that, and not for what it does.
    let mut words = vec!["--waiting=plain"];
    words.extend(shards.as_deref());
    let mut daemon = Headgate::start_as(lab, &format!("state{disks}"), &[], &words)?;
    daemon.command(&["datastore", "add", "ram", "--memory", "16G"])?;
    let path = lab.dir().join("disks.yaml");
    fs::write(&path, documents(disks))?;
    let path = path.display().to_string();
    daemon.command_for(Duration::from_secs(3_600), &["apply", &path])?;
    let attached = disks.min(args.attached);
    let mut clients = Vec::new();
    for n in 0..attached {
        clients.push(Client::connect(daemon.nbd_socket(), &disk(n)).with_context(|| disk(n))?);
    }
    let length = Duration::from_secs(args.seconds);
    // What a start leaves behind is done by then.
    thread::sleep(Duration::from_secs(15));
    let before = look(daemon.pid())?;
    thread::sleep(length);
    let idle = look(daemon.pid())?;
    let (all, threads) = spent(&before, &idle);
    let sleeps = (idle.sleeps - before.sleeps) as f64 / (idle.at - before.at).as_secs_f64();
    println!(
        "{disks} disks, {attached} attached: idle {all:.3} % of a core ({threads:.3?}), {sleeps:.0} \
         sleeps/s, {:.1} MiB, {} threads, {} descriptors",
        idle.resident_kib as f64 / 1024.0,
        idle.times.len(),
        idle.descriptors
    );
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for client in &mut clients {
        first.push(timed(client, 0)?);
        second.push(timed(client, 0)?);
    }
    let requests = [first, second].map(median);
    println!("  first request {} us, the next {} us", requests[0], requests[1]);
    let mut row = Row { disks, attached, idle: all, sleeps, look: idle, requests, busy: None };
    if args.rate > 0 {
        let before = look(daemon.pid())?;
        let asked = ask(&mut clients, args.rate, before.at + length)?;
        let after = look(daemon.pid())?;
        let (all, threads) = spent(&before, &after);
        let each = asked as f64 / (after.at - before.at).as_secs_f64();
        println!("  {each:.0} requests/s: {all:.3} % of a core ({threads:.3?})");
        row.busy = Some((each, all));
    }
    drop(clients);
    daemon.stop()?;
    Ok(row)
}

fn main() {
    let args = Args::parse();
    raise_own_limit();
    with_lab(&[], |lab| {
        let rows = args.disks.iter().map(|disks| measure(lab, &args, *disks));
        let rows = rows.collect::<anyhow::Result<Vec<Row>>>()?;
        print_table(&rows);
        Ok(())
    });
}
