//! A disk over several nodes is one gateway's at a time: another one that wants it is refused, or
//! evicts the first, which writes nothing more. What the gateways know of each other is on the
//! exports' labels and at the nodes alone.

use crate::remote::{MIXED, load_to_end};
use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::nbd::{CMD_FLUSH, CMD_WRITE, Client};
use headgate_lab::process::run;
use headgate_lab::stripes::{Node, WIDE, without_counters};
use headgate_lab::writer::Writer;
use headgate_lab::{Lab, Server, wait_for, with_lab};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;
/// As many as a disk's queue takes.
const BLOCKS: u64 = 200;
const CREATE: [&str; 6] = ["disk", "create", "disk", "--datastore=wide", "--export", "disk"];

fn nodes(lab: &Lab) -> anyhow::Result<Vec<Node>> {
    (0..2)
        .map(|n| {
            let images = lab.subdir(&format!("images{n}"))?.display().to_string();
            let node = Node::start(lab, &format!("node{n}"), &[], &["--dir", &images])?;
            node.disk("disk", &["--size=9M"])?;
            Ok(node)
        })
        .collect()
}

/// A gateway that knows these servers, and no disk.
fn gateway(lab: &Lab, name: &str, servers: &[String]) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start_as(lab, name, &[], &[])?;
    let add = ["datastore", "add", WIDE, "--stripe", &servers.join(","), "--stripe-unit=4K"];
    daemon.command(&add)?;
    Ok(daemon)
}

fn uris(nodes: &[Node]) -> Vec<String> {
    nodes.iter().map(|node| format!("nbd://{}", node.address)).collect()
}

/// What the command line says of a command that it is to refuse.
fn refused(daemon: &Headgate, words: &[&str]) -> anyhow::Result<String> {
    let error = daemon.command_for(MINUTE, words).err();
    Ok(format!("{:#}", error.with_context(|| format!("{words:?} is not refused"))?))
}

fn signal(name: &str, process: u32) -> anyhow::Result<()> {
    let mut command = Command::new("kill");
    command.args([name, &process.to_string()]);
    run(command, MINUTE).map(drop)
}

fn evicted(daemon: &Headgate) -> anyhow::Result<String> {
    wait_for("the former holder should notice", MINUTE, || {
        let disk = daemon.json(&["disk", "show", "disk"])?;
        Ok((disk["state"] == "evicted").then(|| disk["reason"].to_string()))
    })
}

/// Has every block written with this byte, and made durable.
fn fill(client: &mut Client, byte: u8) -> anyhow::Result<()> {
    for block in 0..BLOCKS {
        let offset = block * BLOCK as u64;
        let written = client.ask((CMD_WRITE, 0), offset, BLOCK as u32, &[byte; BLOCK])?;
        ensure!(written == Some(0), "block {block}: {written:?}");
    }
    ensure!(client.ask((CMD_FLUSH, 0), 0, 0, &[])? == Some(0));
    Ok(())
}

/// Blocks that do not hold this byte.
fn others(client: &mut Client, byte: u8) -> anyhow::Result<Vec<u64>> {
    let mut wrong = Vec::new();
    for block in 0..BLOCKS {
        if client.read(block * BLOCK as u64, BLOCK as u32)? != [byte; BLOCK] {
            wrong.push(block);
        }
    }
    Ok(wrong)
}

#[test]
fn a_striped_disk_is_one_gateways_until_another_evicts_it() {
    with_lab(&[], |lab| {
        let nodes = nodes(lab)?;
        let [mut one, mut two] =
            [gateway(lab, "gw1", &uris(&nodes))?, gateway(lab, "gw2", &uris(&nodes))?];
        one.command(&CREATE)?;
        let shown = one.json(&["disk", "show", "disk"])?;
        let lease = &shown["lease"];
        ensure!(lease["place"] == "labels" && lease["number"] == 1, "{lease}");
        load_to_end(&one, "disk", MIXED)?;
        let error = refused(&two, &CREATE)?;
        ensure!(error.contains("held by host '") && error.contains("(lease 1)"), "{error}");
        ensure!(error.contains("--evict"), "{error}");

        // A client of the first one is served until then, and disconnected.
        let mut client = Client::connect(one.nbd_socket(), "disk")?;
        fill(&mut client, 1)?;
        two.command_for(MINUTE, &[&CREATE[..], &["--evict"]].concat())?;
        let why = evicted(&one)?;
        ensure!(why.contains("lease 2"), "{why}");
        let written = client.ask((CMD_WRITE, 0), 0, 512, &[9; 512]);
        ensure!(!matches!(written, Ok(Some(0))), "it writes still");
        let mut other = Client::connect(two.nbd_socket(), "disk")?;
        ensure!(others(&mut other, 1)?.is_empty(), "the disk has other content");
        let text = one.command(&["disk", "list"])?;
        ensure!(text.contains("evicted"), "{text}");

        // It does not come back by itself, and not without being asked to evict.
        one.stop()?;
        one.start_again()?;
        evicted(&one)?;
        let error = refused(&one, &["disk", "takeover", "disk"])?;
        ensure!(error.contains("(lease 2), as its exports say"), "{error}");
        fill(&mut other, 2)?;
        one.command_for(MINUTE, &["disk", "takeover", "disk", "--evict"])?;
        evicted(&two)?;
        let mut client = Client::connect(one.nbd_socket(), "disk")?;
        ensure!(others(&mut client, 2)?.is_empty(), "the disk has other content");
        drop(client);

        // What is given back is taken without eviction.
        one.command(&["disk", "remove", "disk", "--yes", "--keep-image"])?;
        two.command_for(MINUTE, &["disk", "takeover", "disk"])?;
        let lease = two.json(&["disk", "show", "disk"])?["lease"]["number"].clone();
        ensure!(lease == 4, "{lease}");
        load_to_end(&two, "disk", MIXED)?;
        one.stop()?;
        two.stop()
    });
}

/// A gateway stands still with writes that wait at it, or at the nodes; another one evicts it and
/// writes over everything; the first goes on.
#[test]
fn a_gateway_that_stood_still_writes_nothing_more() {
    with_lab(&[], |lab| {
        let nodes = nodes(lab)?;
        let servers = uris(&nodes);
        let mut gateways = [gateway(lab, "gw1", &servers)?, gateway(lab, "gw2", &servers)?];
        gateways[0].command(&CREATE)?;
        for round in 0..4_u8 {
            let [one, two] = [round % 2, (round + 1) % 2].map(|n| &gateways[usize::from(n)]);
            let at_nodes = round < 2;
            let slow = |limit: &str| -> anyhow::Result<()> {
                let set = ["disk", "set", "disk", limit];
                match at_nodes {
                    true => nodes.iter().try_for_each(|node| node.daemon.command(&set).map(drop)),
                    false => one.command(&set).map(drop),
                }
            };
            slow("--limit=50")?;
            let mut old = Client::connect(one.nbd_socket(), "disk")?;
            let [theirs, ours] = [2 * round + 1, 2 * round + 2];
            for block in 0..BLOCKS {
                let offset = block * BLOCK as u64;
                old.send((CMD_WRITE, 0), block, offset, BLOCK as u32, &[theirs; BLOCK])?;
            }
            old.reply()?.context("the first gateway hung up")?;
            signal("-STOP", one.pid())?;
            let take = match round {
                0 => [&CREATE[..], &["--evict"]].concat(),
                _ => vec!["disk", "takeover", "disk", "--evict"],
            };
            let taken = two.command_for(MINUTE, &take);
            let mut new = taken.and_then(|_| Client::connect(two.nbd_socket(), "disk"));
            if at_nodes {
                slow("--limit=none")?;
            }
            let filled = new.as_mut().map(|new| fill(new, ours));
            signal("-CONT", one.pid())?;
            slow("--limit=none")?;
            filled.map_err(|e| anyhow::anyhow!("{e:#}"))??;
            evicted(one)?;
            while old.reply()?.is_some() {}
            let wrong = others(&mut new?, ours)?;
            ensure!(wrong.is_empty(), "round {round}: the former holder wrote blocks {wrong:?}");
        }
        gateways.iter_mut().try_for_each(Server::stop)
    });
}

/// A disk goes over to more nodes while a client writes, as when a datastore has a server more: its
/// disks stay where they are until then.
#[test]
fn a_disk_moves_to_more_nodes_under_a_writer() {
    with_lab(&[], |lab| {
        let nodes = nodes(lab)?;
        for node in &nodes {
            node.disk("wider", &["--size=9M"])?;
        }
        let images = lab.subdir("images-third")?.display().to_string();
        let third = Node::start(lab, "third", &[], &["--dir", &images])?;
        third.disk("wider", &["--size=9M"])?;
        let mut gateway = gateway(lab, "gw1", &uris(&nodes))?;
        gateway.command(&[&CREATE[..], &["--size=12M"]].concat())?;
        let all = [&uris(&nodes)[..], &[format!("nbd://{}", third.address)]].concat().join(",");
        gateway.command(&["datastore", "add", "wider", "--stripe", &all])?;
        let writer = Writer::new(gateway.nbd_socket(), "disk", 11, 3072);
        let progress = writer.progress();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| writer.run());
            let moved = wait_for("the writer should get on", MINUTE, || {
                let writes = progress.writes.load(Ordering::Relaxed);
                Ok((writes > 200 || writer.is_finished()).then_some(()))
            })
            .and_then(|()| {
                let migrate = ["disk", "migrate", "disk", "--to=wider", "--export=wider"];
                gateway.command_for(2 * MINUTE, &migrate)
            });
            let before = progress.writes.load(Ordering::Relaxed);
            let more = wait_for("the writer should go on", MINUTE, || {
                let writes = progress.writes.load(Ordering::Relaxed);
                Ok((writes > before + 200 || writer.is_finished()).then_some(()))
            });
            progress.stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer does not panic")?;
            moved.and(more)
        })?;
        let shown = gateway.json(&["disk", "show", "disk"])?;
        let servers = shown["connection"]["servers"].as_array().context("no servers")?;
        ensure!(servers.len() == 3 && shown["datastore"] == "wider", "{shown}");
        ensure!(progress.crashes.load(Ordering::Relaxed) == 0, "its client was disconnected");
        load_to_end(&gateway, "disk", MIXED)?;
        gateway.stop()
    });
}

/// A server that knows no leases cannot end a former holder's connections: who evicts there has to
/// say that the former holder has stopped.
#[test]
fn where_nodes_know_no_leases_eviction_takes_force() {
    with_lab(&[], |lab| {
        let nodes = nodes(lab)?;
        let servers: Vec<String> = nodes
            .iter()
            .map(|node| Ok(format!("nbd://{}", without_counters(&node.address)?)))
            .collect::<anyhow::Result<_>>()?;
        let [mut one, mut two] = [gateway(lab, "gw1", &servers)?, gateway(lab, "gw2", &servers)?];
        one.command(&CREATE)?;
        let evict = [&CREATE[..], &["--evict"]].concat();
        let error = refused(&two, &evict)?;
        ensure!(error.contains("cannot end the connections of host '"), "{error}");
        one.stop()?;
        two.command_for(MINUTE, &[&evict[..], &["--force"]].concat())?;
        load_to_end(&two, "disk", MIXED)?;
        // The labels tell the first one.
        one.start_again()?;
        evicted(&one)?;
        load_to_end(&two, "disk", MIXED)?;
        one.stop()?;
        two.stop()
    });
}
