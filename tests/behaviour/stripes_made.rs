//! Striped disks are made of exports, and made anew on more of them: what a gateway that is killed
//! meanwhile leaves is taken up again, and no byte of another disk, nor of this one, is lost.

use crate::remote::{MIXED, load_to_end};
use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::nbd::{CMD_FLUSH, CMD_WRITE, Client};
use headgate_lab::stripes::{Node, Turnstile, WIDE};
use headgate_lab::writer::{Progress, Writer};
use headgate_lab::{Lab, Server, wait_for, with_lab};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const BLOCK: u32 = 4096;

fn node(lab: &Lab, name: &str, disks: &[&str]) -> anyhow::Result<Node> {
    let images = lab.subdir(&format!("images-{name}"))?.display().to_string();
    let node = Node::start(lab, name, &[], &["--dir", &images])?;
    disks.iter().try_for_each(|disk| node.disk(disk, &["--size=9M"]))?;
    Ok(node)
}

fn gateway(lab: &Lab, addresses: &[&str]) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start_as(lab, "gateway", &[], &[])?;
    let servers: Vec<String> = addresses.iter().map(|at| format!("nbd://{at}")).collect();
    let add = ["datastore", "add", WIDE, "--stripe", &servers.join(","), "--stripe-unit=4K"];
    daemon.command(&add)?;
    Ok(daemon)
}

fn create(disk: &str) -> [String; 6] {
    ["disk", "create", disk, "--datastore=wide", "--export", disk].map(str::to_owned)
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// Has the first blocks written with this byte, and made durable.
fn fill(client: &mut Client, byte: u8) -> anyhow::Result<()> {
    for block in 0..64_u64 {
        let content = [byte; BLOCK as usize];
        let written = client.ask((CMD_WRITE, 0), block * u64::from(BLOCK), BLOCK, &content)?;
        ensure!(written == Some(0), "block {block}: {written:?}");
    }
    ensure!(client.ask((CMD_FLUSH, 0), 0, 0, &[])? == Some(0));
    Ok(())
}

fn holds(daemon: &Headgate, disk: &str, byte: u8) -> anyhow::Result<()> {
    let mut client = Client::connect(daemon.nbd_socket(), disk)?;
    for block in 0..64_u64 {
        let found = client.read(block * u64::from(BLOCK), BLOCK)?;
        ensure!(found == [byte; BLOCK as usize], "block {block} of disk {disk}");
    }
    Ok(())
}

/// Each member is looked at, labelled as one of a disk that is being made, and labelled as one of a
/// disk that is made, over a connection each. The gateway dies before each of these.
#[test]
fn a_gateway_that_dies_while_it_makes_a_disk_makes_it_again() {
    with_lab(&[], |lab| {
        let deaths = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)];
        let disks: Vec<String> = (0..deaths.len()).map(|n| format!("disk{n}")).collect();
        let all: Vec<&str> = disks.iter().map(String::as_str).chain(["other"]).collect();
        let nodes = [node(lab, "node0", &all)?, node(lab, "node1", &all)?];
        let gates = [Turnstile::start(&nodes[0].address)?, Turnstile::start(&nodes[1].address)?];
        let mut gateway = gateway(lab, &[&gates[0].address, &gates[1].address])?;
        gateway.command(&words(&create("other")))?;
        fill(&mut Client::connect(gateway.nbd_socket(), "other")?, 7)?;
        for (disk, (member, connections)) in disks.iter().zip(deaths) {
            let create = create(disk);
            gates[member].admit(connections);
            thread::scope(|scope| {
                let creation = scope.spawn(|| gateway.command_for(MINUTE, &words(&create)));
                let held = wait_for("the creation should come to the node", MINUTE, || {
                    Ok((gates[member].holds() || creation.is_finished()).then_some(()))
                });
                ensure!(held.is_ok() && !creation.is_finished(), "{disk} was made");
                signal_kill(gateway.pid())?;
                ensure!(creation.join().is_ok_and(|made| made.is_err()), "{disk} was made");
                Ok(())
            })
            .with_context(|| format!("{disk}: member {member}, connection {connections}"))?;
            gates[member].admit(u64::MAX);
            gateway.start_again()?;
            let known = wait_for("the other disk should be back", MINUTE, || {
                let known = gateway.json(&["disk", "list"])?;
                let known = known.as_array().context("no list")?.clone();
                let serves =
                    |name: &str| known.iter().any(|d| d["name"] == name && d["state"] == "serving");
                let is_gone = known.iter().all(|one| one["name"] != disk.as_str());
                Ok((serves("other") && is_gone).then_some(known))
            })?;
            ensure!(known.iter().all(|one| one["state"] == "serving"), "{known:?}");
            holds(&gateway, "other", 7)?;
            gateway.command_for(MINUTE, &words(&create))?;
            holds(&gateway, disk, 0)?;
            fill(&mut Client::connect(gateway.nbd_socket(), disk)?, 9)?;
            holds(&gateway, disk, 9)?;
        }
        holds(&gateway, &disks[0], 9)?;
        gateway.stop()
    });
}

fn signal_kill(process: u32) -> anyhow::Result<()> {
    let mut command = std::process::Command::new("kill");
    command.args(["-KILL", &process.to_string()]);
    headgate_lab::process::run(command, MINUTE).map(drop)
}

/// Waits until the writer has got on behind so many deaths of its server.
fn more(progress: &Progress, deaths: u64) -> anyhow::Result<()> {
    let seen = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let came = |enough: &dyn Fn() -> bool| {
        wait_for("the writer should get on", 2 * MINUTE, || Ok(enough().then_some(())))
    };
    came(&|| seen(&progress.crashes) >= deaths)?;
    let before = seen(&progress.writes);
    came(&|| seen(&progress.writes) >= before + 200)
}

/// A datastore has a server more, and its disk goes over to it while a client writes; the gateway
/// dies in the middle once, and behind the switch.
#[test]
fn a_disk_goes_over_to_a_server_more_of_its_datastore_under_a_writer() {
    with_lab(&[], |lab| {
        let both = ["disk", "wider"];
        let nodes = [node(lab, "node0", &both)?, node(lab, "node1", &both)?];
        let third = node(lab, "third", &["wider"])?;
        let mut gateway = gateway(lab, &[&nodes[0].address, &nodes[1].address])?;
        let create = create("disk");
        gateway.command(&[&words(&create)[..], &["--size=12M"]].concat())?;
        let migrate = ["disk", "migrate", "disk", "--to=wide"];
        let refused = |gateway: &Headgate, more: &[&str], says: &str| -> anyhow::Result<()> {
            let error = gateway.command(&[&migrate[..], more].concat()).err();
            let error = format!("{:#}", error.context("it is not refused")?);
            ensure!(error.contains(says), "{error}");
            Ok(())
        };
        refused(&gateway, &["--export=wider"], "lies on all servers of datastore 'wide' already")?;
        let server = format!("nbd://{}", third.address);
        gateway.command(&["datastore", "set", WIDE, "--add-server", &server])?;
        // A third of 12 MiB, and the label's MiB.
        refused(&gateway, &[], "a new export by, of 5242880 bytes")?;
        refused(&gateway, &["--export=disk"], "is disk 'disk' already")?;
        let writer = Writer::new(gateway.nbd_socket(), "disk", 11, 3072);
        let progress = writer.progress();
        thread::scope(|scope| {
            let writer = scope.spawn(|| writer.run());
            let outcome = move_and_die(&mut gateway, &progress, &migrate);
            progress.stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer does not panic")?;
            outcome
        })?;
        let shown = gateway.json(&["disk", "show", "disk"])?;
        let servers = shown["connection"]["servers"].as_array().context("no servers")?;
        ensure!(servers.len() == 3 && shown["datastore"] == WIDE, "{shown}");
        ensure!(progress.crashes.load(Ordering::Relaxed) == 2, "its client was disconnected");
        load_to_end(&gateway, "disk", MIXED)?;
        gateway.stop()
    });
}

fn move_and_die(
    gateway: &mut Headgate,
    progress: &Progress,
    migrate: &[&str],
) -> anyhow::Result<()> {
    more(progress, 0)?;
    let slow = ["--export=wider", "--move-bandwidth=1M", "--detach"];
    gateway.command(&[migrate, &slow].concat())?;
    more(progress, 0)?;
    // What is scraped names each disk of a datastore once.
    let text = gateway.get("/metrics")?;
    let mut series: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.rsplit_once(' ')?.0))
        .collect();
    let all = series.len();
    series.sort_unstable();
    series.dedup();
    ensure!(series.len() == all, "{} series are there twice", all - series.len());
    gateway.kill()?;
    gateway.start_again()?;
    more(progress, 1)?;
    let shown = gateway.json(&["disk", "show", "disk"])?;
    let servers = shown["connection"]["servers"].as_array().context("no servers")?;
    ensure!(servers.len() == 2, "it was not to be through: {shown}");
    wait_for("the move should be over", MINUTE, || {
        let moves = gateway.json(&["disk", "moves"])?;
        let ended = |one: &serde_json::Value| one["state"] == "ended";
        Ok(moves.as_array().is_none_or(|all| all.iter().all(ended)).then_some(()))
    })?;
    // To the same exports: they hold a part of the disk, and their labels.
    gateway.command_for(2 * MINUTE, &[migrate, &["--export=wider"]].concat())?;
    more(progress, 1)?;
    gateway.kill()?;
    gateway.start_again()?;
    more(progress, 2)
}
