//! Many clients: a thousand are served, and whoever holds what he may keeps nobody else out.

use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::nbd::{self, Client, Handshake};
use headgate_lab::process::raise_own_limit;
use headgate_lab::{Lab, Server, wait_for, with_lab};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// `NBD_REP_ERR_POLICY`.
const REP_ERR_POLICY: u32 = (1 << 31) + 2;

fn daemon(
    lab: &Lab,
    through: &[&str],
    serve: &[&str],
    disks: &[String],
) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start_as(lab, "state", through, serve)?;
    daemon.command(&["datastore", "add", "ram", "--memory", "2G"])?;
    for disk in disks {
        daemon.command(&["disk", "create", disk, "--size", "4M", "--datastore", "ram"])?;
    }
    Ok(daemon)
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n}")).collect()
}

/// What a client hears that asks for a disk: `None` for yes.
fn refusal(daemon: &Headgate, disk: &str) -> anyhow::Result<Option<(u32, String)>> {
    let mut handshake = Handshake::connect(daemon.nbd_socket())?;
    handshake.flags(nbd::CLIENT_FLAGS)?;
    let request = nbd::go_request(disk.as_bytes());
    handshake.option(nbd::OPT_GO, request.len() as u32, &request)?;
    let reply = handshake.reply()?.context("hung up instead of an answer")?;
    let refused = reply.kind >> 31 == 1;
    Ok(refused.then(|| (reply.kind, String::from_utf8_lossy(&reply.data).into_owned())))
}

#[test]
fn a_thousand_clients_are_served_over_twenty_disks() {
    with_lab(&[], |lab| {
        raise_own_limit();
        let disks = names("disk", 20);
        let mut daemon = daemon(lab, &[], &[], &disks)?;
        let mut clients = Vec::new();
        for n in 0..1000 {
            let disk = &disks[n % disks.len()];
            clients
                .push(Client::connect(daemon.nbd_socket(), disk).context(format!("client {n}"))?);
        }
        for (n, client) in clients.iter_mut().enumerate() {
            let block = [n as u8; 4096];
            let offset = (n / disks.len()) as u64 * 4096;
            ensure!(client.ask((nbd::CMD_WRITE, 0), offset, 4096, &block)? == Some(0));
            ensure!(client.read(offset, 4096)? == block, "client {n} read something else");
        }
        let metrics = daemon.metrics()?;
        ensure!(metrics.plain("headgate_nbd_connections")? == 1000.0);
        ensure!(metrics.plain("headgate_nbd_refused_total")? == 0.0);
        drop(clients);
        daemon.ensure_running()?;
        daemon.stop()
    });
}

/// The head of a vhost-user message: `GET_FEATURES`, version 1, nothing follows.
const GET_FEATURES: [u8; 12] = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// Asks what the device offers.
fn features(mut front_end: &UnixStream) -> anyhow::Result<u64> {
    front_end.write_all(&GET_FEATURES)?;
    let mut answer = [0; 20];
    front_end.read_exact(&mut answer)?;
    Ok(u64::from_le_bytes(answer[12..].try_into()?))
}

#[test]
fn two_hundred_front_ends_that_are_silent_take_no_thread_each() {
    with_lab(&[], |lab| {
        let disks = names("disk", 200);
        let mut daemon = daemon(lab, &[], &[], &disks)?;
        let before = daemon.threads()?;
        let connect = |disk: &String| -> anyhow::Result<UnixStream> {
            let front_end = UnixStream::connect(daemon.vhost_socket(disk))?;
            front_end.set_read_timeout(Some(PATIENCE))?;
            Ok(front_end)
        };
        let front_ends: Vec<UnixStream> = disks.iter().map(connect).collect::<Result<_, _>>()?;
        for front_end in &front_ends {
            ensure!(features(front_end)? != 0);
        }
        // Those that handled messages end when there are none.
        wait_for("threads should end", PATIENCE, || {
            Ok((daemon.threads()? <= before + 5).then_some(()))
        })?;
        // Whoever says half a word holds up a thread, and nobody else.
        let (slow, quick) = front_ends.split_at(50);
        for mut front_end in slow {
            front_end.write_all(&GET_FEATURES[..5])?;
        }
        for front_end in quick {
            ensure!(features(front_end)? != 0);
        }
        for mut front_end in slow {
            front_end.write_all(&GET_FEATURES[5..])?;
            front_end.read_exact(&mut [0; 20])?;
        }
        drop(front_ends);
        daemon.ensure_running()?;
        daemon.stop()
    });
}

#[test]
fn three_hundred_connections_to_one_disk_keep_no_other_out() {
    with_lab(&[], |lab| {
        let serve = ["--nbd-connections", "100", "--nbd-connections-per-disk", "400"];
        let mut daemon = daemon(lab, &[], &serve, &names("disk", 2))?;
        let mut held = Vec::new();
        let mut refused = 0;
        for _ in 0..300 {
            match refusal(&daemon, "disk0")? {
                None => held.push(Client::connect(daemon.nbd_socket(), "disk0")),
                Some((kind, text)) => {
                    ensure!(kind == REP_ERR_POLICY && text.contains("--nbd-connections"), "{text}");
                    refused += 1;
                }
            }
        }
        ensure!(refused > 0, "300 connections where 100 may be");
        let mut first = Client::connect(daemon.nbd_socket(), "disk1")?;
        first.read(0, 4096)?;
        ensure!(daemon.metrics()?.plain("headgate_nbd_refused_total")? >= f64::from(refused));
        drop(held);
        daemon.stop()
    });
}

#[test]
fn clients_that_collect_nothing_leave_memory_for_others() {
    with_lab(&[], |lab| {
        let serve = ["--nbd-memory", "16M"];
        let mut daemon = daemon(lab, &[], &serve, &[])?;
        // Not in memory, from where long reads go out without buffers.
        for disk in ["hog", "neighbour"] {
            daemon.command(&["disk", "create", disk, "--size", "64M", "--datastore", "default"])?;
        }
        let before = daemon.memory_kib()?;
        let mut hogs = Vec::new();
        for n in 0..30 {
            let mut hog = Client::connect(daemon.nbd_socket(), "hog")?;
            for handle in 0..64 {
                if n % 2 == 0 {
                    hog.send((nbd::CMD_READ, 0), handle, 0, 1 << 20, &[])?;
                }
            }
            if n % 2 == 1 {
                hog.send((nbd::CMD_WRITE, 0), 1, 0, 32 << 20, &[1; 32 << 10])?;
            }
            hogs.push(hog);
        }
        wait_for("clients should hold what they may", PATIENCE, || {
            Ok((daemon.metrics()?.plain("headgate_nbd_memory_denied_total")? > 0.0).then_some(()))
        })?;
        let mut neighbour = Client::connect(daemon.nbd_socket(), "neighbour")?;
        for length in [4096, 1 << 20, 32 << 20] {
            let data = vec![7; length as usize];
            ensure!(neighbour.ask((nbd::CMD_WRITE, 0), 0, length, &data)? == Some(0));
            ensure!(neighbour.read(0, length)? == data);
        }
        let held = daemon.memory_kib()?.saturating_sub(before);
        // The budget, 64 KiB and an inbox for each, and what the allocator keeps.
        ensure!(held < (16 << 10) + 31 * 128 + (16 << 10), "{held} KiB more");
        drop(hogs);
        wait_for("memory should come back", PATIENCE, || {
            Ok((daemon.metrics()?.plain("headgate_nbd_memory_bytes")? == 0.0).then_some(()))
        })?;
        daemon.stop()
    });
}

#[test]
fn without_file_descriptors_running_clients_go_on_and_new_ones_come_back() {
    with_lab(&[], |lab| {
        raise_own_limit();
        let through = ["prlimit", "--nofile=256:256"];
        let mut daemon = daemon(lab, &through, &[], &names("disk", 2))?;
        let mut running = Client::connect(daemon.nbd_socket(), "disk0")?;
        let silent: Vec<_> =
            (0..600).map_while(|_| UnixStream::connect(daemon.nbd_socket()).ok()).collect();
        running.read(0, 4096)?;
        // Those that say nothing left for one who speaks, and the operator gets in.
        let mut late = Client::connect(daemon.nbd_socket(), "disk1")?;
        late.read(0, 4096)?;
        daemon.command(&["disk", "list"])?;
        running.read(0, 4096)?;
        drop(silent);
        Client::connect(daemon.nbd_socket(), "disk1")?.read(0, 4096)?;
        daemon.ensure_running()?;
        daemon.stop()
    });
}

#[test]
fn idle_connections_to_the_api_leave_for_the_operator() {
    with_lab(&[], |lab| {
        raise_own_limit();
        let mut daemon = daemon(lab, &[], &[], &names("disk", 1))?;
        let socket = daemon.state_dir().join("headgate.sock");
        let mut idle = Vec::new();
        for _ in 0..4000 {
            idle.push(UnixStream::connect(&socket)?);
        }
        daemon.command(&["disk", "list"])?;
        let oldest = &mut idle[0];
        oldest.set_read_timeout(Some(PATIENCE))?;
        ensure!(oldest.read(&mut [0; 1]).unwrap_or(0) == 0, "the oldest connection is still there");
        drop(idle);
        daemon.stop()
    });
}
