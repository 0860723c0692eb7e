//! Ten thousand clients that begin a handshake over TLS and do not end it take nothing from a
//! disk's reservation, and keep nobody out.

use crate::neighbour::{DEPTH, RATE, RESERVATION};
use anyhow::{Context, ensure};
use headgate_lab::fleet::{end, load};
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::{Pace, with_paced_lab_alone};
use headgate_lab::premise::Premises;
use headgate_lab::process::{Process, run_to_end};
use headgate_lab::tls::{Hello, Stops, certificates, issue};
use headgate_lab::{Lab, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Clients that are there at a time: most of them without knowing that they were sent away.
const CLIENTS: u32 = 10_000;
const THREADS: u32 = 4;
/// How many begin each second: all of them while it is measured.
const RATE_OF_CLIENTS: u32 = 2_000;
const MEASURED: Duration = Duration::from_secs(6);
const MINUTE: Duration = Duration::from_secs(60);
/// How often a client with a certificate connects meanwhile.
const ATTEMPTS: u32 = 20;

/// A disk with a reservation, and one beside it with a hundred times its shares.
fn disks(daemon: &Headgate, pace: Pace) -> anyhow::Result<()> {
    let model = format!("rate={},depth={DEPTH}", pace.rate(RATE));
    let depth = format!("--queue-depth={DEPTH}");
    daemon.command(&["datastore", "add", "array", "--emulated", &model, &depth])?;
    let reservation = format!("--reservation={}", pace.rate(RESERVATION));
    for (disk, policy) in [
        ("neighbour", &[&reservation, "--force", "--shares=10"][..]),
        ("greedy", &["--shares=1000"]),
    ] {
        let create = ["disk", "create", disk, "--datastore", "array", "--size", "64M"];
        daemon.command(&[&create, policy].concat())?;
    }
    Ok(())
}

/// A daemon that serves over TLS, where it does so, and the certificates of a client.
fn secure(lab: &Lab) -> anyhow::Result<(Headgate, String, PathBuf)> {
    let [authority, server, client] =
        ["authority", "server", "client"].map(|name| lab.dir().join(name));
    let text = |path: &Path| path.to_str().map(str::to_owned).context("no UTF-8");
    certificates(&["init", &text(&authority)?])?;
    issue(&authority, "server", "127.0.0.1", &server)?;
    issue(&authority, "client", "gw1.example", &client)?;
    let words = ["--nbd-listen", "127.0.0.1:0", "--nbd-tls", &text(&server)?];
    let daemon = Headgate::start_as(lab, "state", &[], &words)?;
    daemon.command(&["disk", "create", "reached", "--size", "8M"])?;
    let attachment = daemon.json(&["disk", "attach", "reached"])?;
    let uri = attachment["nbd_tcp_uri"].as_str().context("no URI over TCP")?;
    let address = uri.strip_prefix("nbds://").and_then(|rest| rest.strip_suffix("/reached"));
    let address = address.with_context(|| uri.to_owned())?.to_owned();
    Ok((daemon, address, client))
}

/// Begins handshakes until told to stop, and keeps the last of them; counts how many it began.
fn attack(hello: &Hello, address: &str, over: &AtomicBool, begun: &AtomicU32) {
    let mut kept = VecDeque::new();
    let pause = Duration::from_secs(1) * THREADS / RATE_OF_CLIENTS;
    for stops in Stops::ALL.into_iter().cycle() {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let next = Instant::now() + pause;
        match hello.begin(address, stops) {
            Ok(stream) => kept.push_back(stream),
            // This machine has no port left for it: it did not begin.
            Err(e) if e.kind() == ErrorKind::AddrNotAvailable => {
                sleep(pause);
                continue;
            }
            // One that is sent away before it has said all has begun, too.
            Err(_) => {}
        }
        begun.fetch_add(1, Ordering::Relaxed);
        if kept.len() as u32 >= CLIENTS / THREADS {
            kept.pop_front();
        }
        sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// How many of so many attempts of a client with a certificate are served.
fn served(uri: &str, attempts: u32) -> anyhow::Result<u32> {
    let mut served = 0;
    for _ in 0..attempts {
        let mut command = Command::new("nbdinfo");
        command.args(["--size", uri]);
        served += u32::from(run_to_end(command, MINUTE)?.status.success());
    }
    Ok(served)
}

fn measure(lab: &Lab, pace: Pace) -> anyhow::Result<()> {
    let hello = Hello::of_openssl()?;
    let (mut daemon, address, client) = secure(lab)?;
    disks(&daemon, pace)?;
    let clients: Vec<Process> = ["neighbour", "greedy"]
        .into_iter()
        .map(|disk| load(lab.dir(), disk, &daemon.nbd_uri(disk), DEPTH))
        .collect::<anyhow::Result<_>>()?;
    let premises = Premises::new()
        .busy("array", pace.rate(RATE).into())
        .backlog("neighbour", DEPTH)
        .backlog("greedy", DEPTH);
    let (over, begun) = (AtomicBool::new(false), AtomicU32::new(0));
    let uri = format!("nbds://{address}/reached?tls-certificates={}", client.display());
    let (interval, served) = thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| attack(&hello, &address, &over, &begun));
        }
        let measured = (|| {
            sleep(pace.time(Duration::from_secs(1)));
            let interval = premises.watch(&daemon, pace.time(MEASURED))?;
            let served = served(&uri, ATTEMPTS)?;
            let until = Instant::now() + MINUTE;
            while begun.load(Ordering::Relaxed) < CLIENTS && Instant::now() < until {
                sleep(Duration::from_millis(100));
            }
            anyhow::Ok((interval, served))
        })();
        over.store(true, Ordering::Relaxed);
        measured
    })?;
    let begun = begun.into_inner();
    let (got, other) = (interval.completions("neighbour")?, interval.completions("greedy")?);
    let due = f64::from(pace.rate(RESERVATION));
    eprintln!(
        "  {begun} handshakes begun: the neighbour {got:.1} of {due}, the other {other:.1}; a \
         client with a certificate was served {served} times of {ATTEMPTS}"
    );
    ensure!(begun >= CLIENTS, "only {begun} of them could begin");
    ensure!(got >= 0.99 * due, "{got:.1} of the reservation {due}");
    ensure!(served >= ATTEMPTS / 2, "served {served} times of {ATTEMPTS}");
    ensure!(got <= 1.05 * due, "{got:.1} where {due} are reserved: the other disk asks for more");
    clients.into_iter().try_for_each(end)?;
    daemon.stop()
}

#[test]
fn ten_thousand_half_open_handshakes_take_nothing_from_a_reservation() {
    let most = getrlimit(Resource::Nofile);
    let enough = Some(u64::from(CLIENTS) * 2);
    let raised = Rlimit { current: most.maximum.min(enough).or(enough), ..most };
    setrlimit(Resource::Nofile, raised).expect("a process may raise its own soft limit");
    with_paced_lab_alone(&["nbdinfo", "openssl"], measure);
}
