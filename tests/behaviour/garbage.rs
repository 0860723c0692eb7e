//! Clients that agree on counters and then break the protocol: each loses its own connection, the
//! log says why, and nobody else notices. Plain, and over TLS with a certificate that is good.
//!
//! Another connection of the same disk stays open and is served after each attack. A client of
//! another disk writes, and checks all that it wrote.

use anyhow::{Context, ensure};
use headgate_lab::counted::{BLOCK, Says, connect, request, told};
use headgate_lab::headgate::Headgate;
use headgate_lab::ledger::splitmix;
use headgate_lab::nbd::{CMD_READ, CMD_WRITE, Client, REQUEST_MAGIC};
use headgate_lab::tls::{Inside, certificates, issue};
use headgate_lab::writer::{Progress, Writer, beside};
use headgate_lab::{DiskSpec, Lab, Server, wait_for, with_lab};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const MIB: u64 = 16;
/// Connections that send noise: plain, and over TLS, where each is a process of its own.
const NOISY: u64 = 10_000;
const NOISY_INSIDE: u64 = 200;
/// Lines that all of this may write. Each connection writing one would be many times as much.
const LINES: usize = 200;
/// File descriptors that the daemon may hold for who is just leaving.
const LEAVING: usize = 16;
/// `NBD_CMD_DISC`
const CMD_DISC: u16 = 2;

const OUT_OF_STEP: &str = "out of step";
const MALFORMED: &str = "counters are malformed";

/// How an attack goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// It is cut off without another byte.
    CutOff,
    /// What it asked for before may have been answered when it is cut off.
    AfterAnswers,
    /// It is not known for broken before it leaves.
    Leaves,
}

/// What is sent after a good request, in words; and what the log says of it, where the client has
/// broken the protocol in no other way before.
struct Attack(&'static str, How, Option<&'static str>, fn() -> Vec<Vec<u8>>);

const ATTACKS: &[Attack] = &[
    Attack("garbage for a head", How::CutOff, Some(OUT_OF_STEP), no_head),
    Attack("rho above delta", How::CutOff, Some(MALFORMED), contradictions),
    Attack("half a report, and the next head", How::CutOff, None, half_and_on),
    Attack("half a report, and the end", How::Leaves, None, half),
    Attack("what is to be zero", How::CutOff, None, not_zero),
    Attack("a report after the disconnection", How::CutOff, None, after_the_end),
    Attack("requests, and garbage behind them", How::AfterAnswers, None, behind_requests),
];

fn read(says: Says) -> Vec<u8> {
    request(0xc0de_c0de_c0de_c0de, CMD_READ, 0, BLOCK, says)
}

fn no_head() -> Vec<Vec<u8>> {
    vec![vec![0x5a; 28], vec![0; 60]]
}

fn contradictions() -> Vec<Vec<u8>> {
    [(0, 1), (1_000_000, 1_000_001), (0, u64::MAX), (u64::MAX - 1, u64::MAX)]
        .map(|(delta, rho)| read(Says { delta, rho, ..Says::default() }))
        .to_vec()
}

fn half_and_on() -> Vec<Vec<u8>> {
    let whole = read(Says::default());
    vec![[&whole[..28 + 16], &whole].concat()]
}

fn half() -> Vec<Vec<u8>> {
    let whole = read(Says { delta: u64::MAX, ..Says::default() });
    [1, 16, 31].map(|part| whole[..28 + part].to_vec()).to_vec()
}

fn not_zero() -> Vec<Vec<u8>> {
    let spoilt = |(at, bit): (usize, u32)| {
        let mut message = read(Says::default());
        message[28 + 26 + at] = 1 << bit;
        message
    };
    [(0, 7), (1, 0), (5, 0)].map(spoilt).to_vec()
}

fn after_the_end() -> Vec<Vec<u8>> {
    let end = request(1, CMD_DISC, 0, 0, Says { delta: u64::MAX, rho: 1, ..Says::default() });
    vec![[end, read(Says::default())].concat()]
}

fn behind_requests() -> Vec<Vec<u8>> {
    let requests = read(Says { delta: 1, ..Says::default() }).repeat(16);
    vec![[&requests[..], &[0x5a; 60]].concat()]
}

/// Noise that comes as far as the seed says: it is cut off at once, at its report, or in the middle
/// of a payload.
fn noise(seed: u64) -> Vec<u8> {
    let dice = |n: u64| splitmix(seed << 12 | n);
    let noise: Vec<u8> = (0..1 + dice(0) % 512).map(|n| dice(n + 1) as u8).collect();
    let head = |command: u16, says: Says| request(seed, command, 0, BLOCK, says);
    let begin = match seed % 4 {
        // Openssl would take some letters for its own.
        0 => vec![dice(4000) as u8 | 0x80],
        1 => REQUEST_MAGIC.to_be_bytes().to_vec(),
        2 => head(CMD_READ, Says::default())[..28].to_vec(),
        _ => head(CMD_WRITE, Says { delta: dice(4001), ..Says::default() }),
    };
    [begin, noise].concat()
}

/// Reads a block as one that counts.
fn one_good_read(client: &mut Client) -> anyhow::Result<()> {
    client.stream.write_all(&request(7, CMD_READ, 0, BLOCK, Says::default()))?;
    let reply = client.reply()?.context("it was hung up on")?;
    ensure!(reply == (0, 7), "an answer {reply:?}");
    told(client)?;
    client.stream.read_exact(&mut [0; BLOCK as usize])?;
    Ok(())
}

/// Says it on a new connection, and waits for the end.
fn say(socket: &Path, message: &[u8], how: How) -> anyhow::Result<()> {
    let mut client = connect(socket, "victim")?;
    one_good_read(&mut client)?;
    // The server may hang up at any byte.
    let _ = client.stream.write_all(message);
    if how == How::Leaves {
        client.stream.shutdown(Shutdown::Write)?;
    }
    let answer = ended(client)?;
    ensure!(how == How::AfterAnswers || answer.is_empty(), "an answer: {answer:x?}");
    Ok(())
}

/// What a client is sent before the server hangs up on it.
fn ended(mut client: Client) -> anyhow::Result<Vec<u8>> {
    let mut rest = Vec::new();
    match client.stream.read_to_end(&mut rest) {
        Err(e) if e.kind() != ErrorKind::ConnectionReset => {
            Err(e).context("the connection does not end")
        }
        _ => Ok(rest),
    }
}

fn descriptors(daemon: &Headgate) -> anyhow::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", daemon.pid()))?.count())
}

/// Each attack, and then noise.
fn attack(daemon: &Headgate, socket: &Path, progress: &Progress, noisy: u64) -> anyhow::Result<()> {
    let mut bystander = connect(socket, "victim")?;
    let health = daemon.health()?["status"].clone();
    let mut others = |words: &str| -> anyhow::Result<()> {
        one_good_read(&mut bystander).with_context(|| format!("another connection: {words}"))?;
        let flushes = progress.flushes.load(Ordering::Relaxed);
        wait_for("the innocent client should get on", MINUTE, || {
            Ok((progress.flushes.load(Ordering::Relaxed) > flushes + 1).then_some(()))
        })?;
        let now = daemon.health()?;
        ensure!(now["status"] == health, "{words}: {now}");
        Ok(())
    };
    for Attack(words, how, says, messages) in ATTACKS {
        for message in messages() {
            say(socket, &message, *how).with_context(|| (*words).to_owned())?;
        }
        if let Some(says) = says {
            let log = daemon.log()?;
            let named = log.lines().any(|line| line.contains(says) && line.contains("\"victim\""));
            ensure!(named, "{words}: the log does not say '{says}'\n{log}");
        }
        others(words)?;
    }
    for seed in 0..noisy {
        let mut client = connect(socket, "victim")?;
        let _ = client.stream.write_all(&noise(seed));
        let _ = client.stream.shutdown(Shutdown::Write);
        ended(client).with_context(|| format!("noise {seed}"))?;
        if seed.is_multiple_of(noisy / 10) {
            others("noise")?;
        }
    }
    others("noise")
}

/// Attacks what clients find at this socket, beside the innocent.
fn withstands(daemon: &mut Headgate, socket: &Path, noisy: u64) -> anyhow::Result<()> {
    let writer = Writer::new(daemon.nbd_socket(), "innocent", 11, (MIB << 20) / 4096);
    let progress = writer.progress();
    let before = descriptors(daemon)?;
    beside(&mut [writer], MINUTE, || attack(daemon, socket, &progress, noisy))?;
    wait_for("what clients held should come back", MINUTE, || {
        Ok((descriptors(daemon)? <= before + LEAVING).then_some(()))
    })?;
    // What is left out of the log is counted in it.
    wait_for("the log should say how often", MINUTE, || {
        let log = daemon.log()?;
        Ok(log.lines().any(|line| line.contains(" more in the last ")).then_some(()))
    })?;
    let lines = daemon.log()?.lines().count();
    eprintln!("  {noisy} noisy connections, {lines} lines in the log");
    ensure!(lines < LINES, "{lines} lines in the log");
    daemon.ensure_running()?;
    daemon.stop()
}

fn disks() -> [DiskSpec; 2] {
    [DiskSpec::mib("innocent", MIB), DiskSpec::mib("victim", MIB)]
}

#[test]
fn clients_that_count_and_break_the_protocol_lose_their_own_connection() {
    with_lab(&[], |lab| {
        let mut daemon = Headgate::with_disks(lab, &disks())?;
        let socket = daemon.nbd_socket().to_owned();
        withstands(&mut daemon, &socket, NOISY)
    });
}

/// A daemon that serves over TLS, and a socket whose clients are inside.
fn secure(lab: &Lab) -> anyhow::Result<(Headgate, Inside)> {
    let [authority, dir] = ["authority", "tls"].map(|at| lab.dir().join(at));
    let text = |path: &Path| path.to_str().map(str::to_owned).context("no UTF-8");
    certificates(&["init", &text(&authority)?])?;
    issue(&authority, "server", "127.0.0.1", &dir)?;
    issue(&authority, "client", "gw1.example", &dir)?;
    let words = ["--nbd-listen", "127.0.0.1:0", "--nbd-tls", &text(&dir)?];
    let daemon = Headgate::start_as(lab, "state", &[], &words)?;
    for disk in disks() {
        daemon.command(&["disk", "create", &disk.name, "--size", &disk.size.to_string()])?;
    }
    let attachment = daemon.json(&["disk", "attach", "victim"])?;
    let uri = attachment["nbd_tcp_uri"].as_str().context("no URI over TCP")?;
    let address = uri.strip_prefix("nbds://").and_then(|rest| rest.strip_suffix("/victim"));
    let address = address.with_context(|| uri.to_owned())?;
    let inside = Inside::start(&lab.dir().join("inside.sock"), address, &dir)?;
    Ok((daemon, inside))
}

#[test]
fn so_they_do_over_tls_with_a_certificate() {
    with_lab(&["openssl"], |lab| {
        let (mut daemon, inside) = secure(lab)?;
        withstands(&mut daemon, &inside.socket, NOISY_INSIDE)
    });
}
