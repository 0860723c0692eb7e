//! Disks that are exports of another server: another daemon, nbdkit, qemu-nbd. What was
//! acknowledged is kept, promises hold, and servers that die, come late or come back as others are
//! borne.

use anyhow::{Context, ensure};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::nbd::Handshake;
use headgate_lab::process::{Process, run_to_end};
use headgate_lab::writer::Writer;
use headgate_lab::{DiskSpec, Lab, Server, tools, wait_for, with_lab};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(60);
const KILLS: u64 = 8;

/// A daemon whose datastore `far` is this server.
fn host(lab: &Lab, server: &Path) -> anyhow::Result<Headgate> {
    let host = Headgate::start_as(lab, "host", &[], &[])?;
    host.command(&["datastore", "add", "far", "--nbd", &uri(server)])?;
    Ok(host)
}

fn uri(server: &Path) -> String {
    format!("nbd+unix:///?socket={}", server.display())
}

pub fn create(host: &Headgate, disk: &str, export: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let create = ["disk", "create", disk, "--datastore", "far", "--export", export];
    host.command(&[&create, arguments].concat()).map(drop)
}

fn connection(host: &Headgate, disk: &str) -> anyhow::Result<serde_json::Value> {
    Ok(host.json(&["disk", "show", disk])?["connection"].clone())
}

pub fn wait_until(host: &Headgate, disk: &str, state: &str) -> anyhow::Result<serde_json::Value> {
    wait_for(&format!("{disk} should be {state}"), PATIENCE, || {
        let connection = connection(host, disk)?;
        Ok((connection["state"] == state).then_some(connection))
    })
}

/// `headgate load` against a disk of the host, with what `words` say.
fn load(host: &Headgate, disk: &str, words: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(headgate::binary()?);
    command.args(["load", &host.nbd_uri(disk)]).args(words.split_whitespace());
    Ok(command)
}

/// Runs it; wrong data or a failed request is an error.
pub fn load_to_end(host: &Headgate, disk: &str, words: &str) -> anyhow::Result<String> {
    let finished = run_to_end(load(host, disk, words)?, Duration::from_secs(120))?;
    ensure!(
        finished.status.success(),
        "headgate load: {}\n{}{}",
        finished.status,
        finished.stdout,
        finished.stderr
    );
    Ok(finished.stdout)
}

/// Everything that a disk can be asked for.
pub const MIXED: &str = "--verify --seconds 5 --read-percent 40 --write-zeroes-percent 15 --flush-every 64 --fua-percent 10 \
                     --block-size 512:10,4k:50,64k:30,1M:10";

/// A server of any kind that serves one file or memory.
pub struct Peer {
    command: Vec<String>,
    pub socket: PathBuf,
    log: PathBuf,
    process: Process,
}

impl Peer {
    pub fn start(lab: &Lab, command: &[&str]) -> anyhow::Result<Peer> {
        let (socket, log) = (lab.dir().join("peer.sock"), lab.dir().join("peer.log"));
        let said = socket.display().to_string();
        let command: Vec<String> =
            command.iter().map(|word| word.replace("SOCKET", &said)).collect();
        let process = launch(&command, &socket, &log)?;
        Ok(Peer { command, socket, log, process })
    }

    fn again(&mut self) -> anyhow::Result<()> {
        self.process = launch(&self.command, &self.socket, &self.log)?;
        Ok(())
    }
}

fn launch(words: &[String], socket: &Path, log: &Path) -> anyhow::Result<Process> {
    // Left by a predecessor that was killed.
    let _ = std::fs::remove_file(socket);
    let mut command = Command::new(tools::find(&words[0]).context("not installed")?);
    command.args(&words[1..]);
    let mut process = Process::spawn("the server", command, log)?;
    wait_for("the server should greet its clients", PATIENCE, || {
        process.ensure_running()?;
        Ok(Handshake::connect(socket).ok())
    })?;
    Ok(process)
}

#[test]
fn what_was_written_through_a_chain_of_daemons_is_at_its_end() {
    with_lab(&["qemu-img", "qemu-io", "nbdcopy"], |lab| {
        let mut server = Headgate::with_disks(lab, &[DiskSpec::mib("volume", 64)])?;
        let mut host = host(lab, server.nbd_socket())?;
        create(&host, "disk", "volume", &["--size", "64M"])?;
        load_to_end(&host, "disk", MIXED)?;
        load_to_end(
            &host,
            "disk",
            "--verify --seconds 3 --read-percent 50 --depth 128 --connections 4 --offset-range 0-16M",
        )?;
        tools::qemu_io(
            &host.nbd_uri("disk"),
            &[
                "write -P 7 0 1M",
                "discard 1M 1M",
                "write -z 2M 64k",
                "flush",
                "read -P 7 0 1M",
                "read -P 0 2M 64k",
            ],
        )?;
        let copy = lab.dir().join("copy");
        tools::nbdcopy(&host.nbd_uri("disk"), &copy.display().to_string())?;
        let removed = host.command(&["disk", "remove", "disk"])?;
        ensure!(removed.contains("export 'volume' keeps its data"), "{removed}");
        host.stop()?;
        let image = server.image("volume")?;
        server.stop()?;
        tools::qemu_img_compare(&copy.display().to_string(), &image.display().to_string())
    });
}

#[test]
fn other_servers_are_served_from_too() {
    with_lab(&["nbdkit", "qemu-nbd"], |lab| {
        let file = lab.dir().join("file.raw");
        tools::sparse_file(&file, 64 << 20)?;
        let file = file.display().to_string();
        let servers: [&[&str]; 5] = [
            &["nbdkit", "-f", "-U", "SOCKET", "memory", "64M"],
            &[
                "nbdkit",
                "-f",
                "-U",
                "SOCKET",
                "--filter=blocksize-policy",
                "--filter=noparallel",
                "file",
                &file,
                "blocksize-minimum=4096",
                "blocksize-preferred=4096",
                "blocksize-maximum=256k",
                "blocksize-error-policy=error",
            ],
            &[
                "nbdkit",
                "-f",
                "-U",
                "SOCKET",
                "--filter=nozero",
                "--filter=fua",
                "file",
                &file,
                "zeromode=none",
                "fuamode=emulate",
            ],
            &["qemu-nbd", "-t", "-k", "SOCKET", "-f", "raw", &file],
            &["qemu-nbd", "-t", "-e", "8", "-k", "SOCKET", "-f", "raw", &file],
        ];
        // As many as they can have: nbdkit's filter does one request at a time, and qemu-nbd has
        // one client unless it is told to share.
        let connections = [4, 4, 4, 1, 4];
        for (n, (words, connections)) in servers.iter().zip(connections).enumerate() {
            let mut server = Peer::start(lab, words)?;
            let host = Headgate::start_as(lab, &format!("host{n}"), &[], &[])?;
            let add = ["datastore", "add", "far", "--nbd", &uri(&server.socket)];
            host.command(&[&add[..], &["--connections=4"]].concat())?;
            create(&host, "disk", "", &[])?;
            are_there(&host, "disk", connections).with_context(|| words.join(" "))?;
            let mixed = if n == 1 { MIXED.replace("512:10,", "") } else { MIXED.to_owned() };
            load_to_end(&host, "disk", &mixed).with_context(|| words.join(" "))?;
            server.process.kill()?;
        }
        Ok(())
    });
}

/// Waits until a disk has so many connections to each of its servers.
pub fn are_there(host: &Headgate, disk: &str, connections: u64) -> anyhow::Result<()> {
    wait_for("connections should be there", PATIENCE, || {
        let shown = host.json(&["disk", "show", disk])?;
        let servers = shown["connection"]["servers"].as_array().context("no servers")?.clone();
        let all = servers.iter().all(|server| server["connections"] == connections);
        Ok(all.then_some(()))
    })
}

/// Kills a server under a client of a host that reaches it by this URI, over so many connections.
pub fn survives_its_server(
    lab: &Lab,
    mut server: Headgate,
    uri: &str,
    connections: u64,
    host_words: &[&str],
) -> anyhow::Result<()> {
    server.command(&["disk", "create", "volume", "--size", "64M"])?;
    let host = Headgate::start_as(lab, "host", &[], host_words)?;
    let connections = format!("--connections={connections}");
    host.command(&["datastore", "add", "far", "--nbd", uri, &connections])?;
    create(&host, "disk", "volume", &[])?;
    let words = "--verify --seconds 3600 --read-percent 50 --write-zeroes-percent 10 --block-size 4k:70,64k:30 --timeout 60";
    let log = lab.dir().join("load.log");
    let mut load = Process::spawn("headgate load", load(&host, "disk", words)?, &log)?;
    for round in 1..=KILLS {
        sleep(Duration::from_millis(100 * (round % 4) + 150));
        server.kill()?;
        wait_until(&host, "disk", "waiting")?;
        server.start_again()?;
        let connection = wait_until(&host, "disk", "connected")?;
        ensure!(connection["reconnects"].as_u64() >= Some(round), "{connection}");
    }
    load.interrupt()?;
    let status = load.wait(PATIENCE)?;
    ensure!(status.success(), "headgate load: {status}\n{}", std::fs::read_to_string(&log)?);
    let metrics = host.metrics()?;
    ensure!(metrics.of_disk("headgate_disk_connected", "disk")? == 1.0, "not connected");
    ensure!(
        metrics.of_disk("headgate_disk_reconnects_total", "disk")? >= KILLS as f64,
        "reconnects are not counted"
    );
    // Nothing was flushed, so each death may have cost acknowledged writes, and the next flush must
    // say so, once.
    let socket = host.nbd_uri("disk");
    let refused = tools::qemu_io(&socket, &["flush"]);
    ensure!(metrics.of_disk("headgate_disk_unflushed_losses_total", "disk")? >= 1.0, "{refused:?}");
    ensure!(refused.is_err(), "a flush vouched for writes that a dead server may have lost");
    tools::qemu_io(&socket, &["flush"]).map(drop)
}

#[test]
fn a_server_killed_again_and_again_under_load_loses_nothing() {
    with_lab(&["qemu-io"], |lab| {
        let server = Headgate::start(lab)?;
        let uri = uri(server.nbd_socket());
        survives_its_server(lab, server, &uri, 1, &[])
    });
}

#[test]
fn over_tcp_too() {
    with_lab(&["qemu-io"], |lab| {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let server = Headgate::start_as(lab, "server", &[], &["--nbd-listen", &address])?;
        survives_its_server(lab, server, &format!("nbd://{address}"), 3, &[])
    });
}

#[test]
fn a_server_that_is_not_there_keeps_nobody_from_starting() {
    with_lab(&[], |lab| {
        let mut server = Headgate::with_disks(lab, &[DiskSpec::mib("volume", 64)])?;
        let mut host = host(lab, server.nbd_socket())?;
        create(&host, "disk", "volume", &[])?;
        host.command(&["disk", "create", "near", "--size", "64M"])?;
        load_to_end(&host, "disk", "--verify --ios 1000 --read-percent 0 --flush-every 100")?;
        server.kill()?;
        host.stop()?;
        host.start_again()?;
        wait_until(&host, "disk", "waiting")?;
        let health = host.get("/healthz")?;
        ensure!(health.contains("no connection to its server"), "{health}");
        load_to_end(&host, "near", "--verify --ios 1000 --read-percent 50")?;
        // It waits for its server meanwhile.
        let words = "--verify --ios 5000 --read-percent 50 --timeout 60";
        let mut waiting = Process::spawn(
            "headgate load",
            load(&host, "disk", words)?,
            &lab.dir().join("load.log"),
        )?;
        sleep(Duration::from_secs(1));
        server.start_again()?;
        let status = waiting.wait(PATIENCE)?;
        ensure!(status.success(), "headgate load: {status}");
        let connection = connection(&host, "disk")?;
        ensure!(
            connection["state"] == "connected" && connection["reconnects"] == 0,
            "{connection}"
        );
        host.stop()
    });
}

#[test]
fn a_host_killed_again_and_again_keeps_what_was_flushed() {
    with_lab(&[], |lab| {
        let server = Headgate::with_disks(lab, &[DiskSpec::mib("volume", 16)])?;
        let mut host = host(lab, server.nbd_socket())?;
        create(&host, "disk", "volume", &[])?;
        let writer = Writer::new(host.nbd_socket(), "disk", 1, 1024);
        let progress = writer.progress();
        thread::scope(|scope| {
            let writer = scope.spawn(|| writer.run());
            let outcome = (1..=KILLS).try_for_each(|round| {
                let more = |counter: &AtomicU64, than: u64| {
                    wait_for("the writer should get on", PATIENCE, || {
                        let now = counter.load(Ordering::Relaxed);
                        Ok((now > than || writer.is_finished()).then_some(()))
                    })
                };
                let flushes = progress.flushes.load(Ordering::Relaxed);
                more(&progress.flushes, flushes + round % 5)?;
                host.kill()?;
                host.start_again()?;
                more(&progress.crashes, round - 1)
            });
            progress.stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer does not panic")?;
            outcome
        })?;
        let crashes = progress.crashes.load(Ordering::Relaxed);
        ensure!(crashes >= KILLS, "only {crashes} crashes were noticed");
        Ok(())
    });
}

#[test]
fn a_host_that_restarts_while_its_server_is_away_fails_nothing() {
    with_lab(&[], |lab| {
        let disks = ["one", "two"];
        let mut server = Headgate::with_disks(lab, &disks.map(|disk| DiskSpec::mib(disk, 64)))?;
        let config = lab.dir().join("host.toml");
        std::fs::write(&config, "drain-seconds = 1\n")?;
        let config = config.display().to_string();
        let mut host = Headgate::start_as(lab, "host", &[], &["--config", &config])?;
        host.command(&["datastore", "add", "far", "--nbd", &uri(server.nbd_socket())])?;
        let mut loads = Vec::new();
        for disk in disks {
            create(&host, disk, disk, &[])?;
            let target = if disk == "one" {
                host.nbd_uri(disk)
            } else {
                host.vhost_socket(disk).display().to_string()
            };
            let mut command = Command::new(headgate::binary()?);
            command.args(["load", &target, "--verify", "--read-percent=50", "--seconds=3600"]);
            command.args(["--reconnect=60", "--timeout=60"]);
            let log = lab.dir().join(format!("load-{disk}.log"));
            loads.push((Process::spawn("headgate load", command, &log)?, log));
        }
        let done = |host: &Headgate| -> anyhow::Result<f64> {
            let metrics = host.metrics()?;
            disks.iter().try_fold(f64::MAX, |least, disk| Ok(least.min(metrics.ops(disk)?)))
        };
        let gets_on = |host: &Headgate| {
            wait_for("both disks should get on", PATIENCE, || {
                Ok((done(host)? > 1000.0).then_some(()))
            })
        };
        gets_on(&host)?;
        server.kill()?;
        wait_until(&host, "one", "waiting")?;
        host.stop()?;
        host.start_again()?;
        sleep(Duration::from_millis(500));
        server.start_again()?;
        gets_on(&host)?;
        for (mut load, log) in loads {
            load.interrupt()?;
            let status = load.wait(PATIENCE)?;
            ensure!(
                status.success(),
                "headgate load: {status}\n{}",
                std::fs::read_to_string(&log)?
            );
        }
        Ok(())
    });
}

#[test]
fn what_cannot_be_is_refused_with_what_was_expected() {
    with_lab(&["nbdkit"], |lab| {
        let mut server = Peer::start(lab, &["nbdkit", "-f", "-U", "SOCKET", "memory", "64M"])?;
        let host = host(lab, &server.socket)?;
        let refused = |words: &[&str], parts: &[&str]| {
            let error = host.command(words).expect_err("it was not refused").to_string();
            parts.iter().try_for_each(|part| {
                ensure!(error.contains(part), "'{part}' is not in: {error}");
                Ok(())
            })
        };
        refused(
            &["datastore", "add", "x", "--nbd", "/run/x"],
            &["'/run/x' is no NBD URI", "nbd+unix:///?socket=/PATH"],
        )?;
        refused(
            &["datastore", "add", "x", "--nbd", "nbd://h/e"],
            &["names an export", "disk create --export"],
        )?;
        let on_far = ["disk", "create", "d", "--datastore", "far"];
        refused(&on_far, &["no export of it is named", "--export NAME"])?;
        refused(
            &[&on_far[..], &["--export", "", "--size", "1M"]].concat(),
            &["1048576 bytes", "67108864 bytes"],
        )?;
        let an_export = ["disk", "create", "d", "--size", "1M", "--export", "x"];
        refused(&an_export, &["no datastore is given", "--datastore with the server"])?;
        let here = ["--datastore", "default"];
        refused(&[&an_export[..], &here].concat(), &["'default' is no NBD server"])?;
        create(&host, "d", "", &[])?;
        refused(
            &["disk", "create", "e", "--datastore", "far", "--export", ""],
            &["is disk 'd' already"],
        )?;
        refused(
            &["datastore", "calibrate", "far"],
            &["there is none to measure on", "--capacity IOPS"],
        )?;

        server.process.kill()?;
        *server.command.last_mut().context("no size")? = "32M".into();
        server.again()?;
        let connection = wait_until(&host, "d", "failing")?;
        let reason = connection["reason"].as_str().unwrap_or_default();
        ensure!(reason.contains("33554432") && reason.contains("67108864"), "{connection}");
        ensure!(load_to_end(&host, "d", "--ios 10").is_err(), "another export was read from");
        server.process.kill()?;
        *server.command.last_mut().context("no size")? = "64M".into();
        server.again()?;
        wait_until(&host, "d", "connected")?;
        load_to_end(&host, "d", "--verify --ios 1000 --read-percent 50").map(drop)
    });
}

#[test]
fn an_export_that_the_server_does_not_have_is_refused() {
    with_lab(&[], |lab| {
        let mut server = Headgate::with_disks(lab, &[DiskSpec::mib("volume", 64)])?;
        let host = host(lab, server.nbd_socket())?;
        let error = create(&host, "d", "valume", &[]).expect_err("it was not refused").to_string();
        ensure!(error.contains("refuses export 'valume'"), "{error}");
        server.stop()?;
        let error = create(&host, "d", "volume", &[]).expect_err("nobody is there").to_string();
        ensure!(error.contains("cannot connect to nbd+unix:///?socket="), "{error}");
        ensure!(
            host.json(&["disk", "list"])?.as_array().is_some_and(Vec::is_empty),
            "a disk was made"
        );
        Ok(())
    });
}
