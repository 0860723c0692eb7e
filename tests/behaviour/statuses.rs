//! Holes of disks on other servers: what was never written is told so to clients, and stays a hole
//! in copies, moves and exports of the disk; what was written is data.

use crate::remote::{Peer, create};
use crate::stripes::{gateway_of, nodes, run, text, uris};
use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::stripes::without_counters;
use headgate_lab::{Lab, Server, tools, with_lab};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What is written, and what holes are multiples of: whole units of the stripes.
const UNIT: u64 = 64 << 10;
/// Units that are written first, of a disk of more than 16 MiB.
const FIRST: [u64; 6] = [0, 1, 16, 17, 18, 200];
/// One in a hole.
const LATER: u64 = 100;

/// Which units of a range are data by these extents: their beginning, length, and whether they are.
/// All of the range must be told of, in whole units.
fn units(
    extents: impl Iterator<Item = (u64, u64, bool)>,
    size: u64,
) -> anyhow::Result<BTreeSet<u64>> {
    let (mut at, mut data) = (0, BTreeSet::new());
    for (begin, len, is_data) in extents {
        ensure!(begin == at && begin % UNIT == 0, "an extent begins at {begin} behind {at}");
        at += len;
        if is_data {
            data.extend(begin / UNIT..at.div_ceil(UNIT));
        }
    }
    ensure!(at == size, "{at} bytes of {size} are told of");
    Ok(data)
}

fn number(value: &serde_json::Value) -> anyhow::Result<u64> {
    value.as_u64().with_context(|| format!("no number: {value}"))
}

/// The size of a host's disk, and which units of it are data: by libnbd and by QEMU.
fn data_of(host: &Headgate) -> anyhow::Result<(u64, BTreeSet<u64>)> {
    let uri = host.nbd_uri("disk");
    let size = number(&tools::nbdinfo(&uri)?["exports"][0]["export-size"])?;
    let map = tools::nbdinfo_map(&uri)?;
    let extents = map.as_array().context("no list")?.iter().map(|extent| {
        Ok((number(&extent["offset"])?, number(&extent["length"])?, extent["type"] == 0))
    });
    let by_libnbd = units(extents.collect::<anyhow::Result<Vec<_>>>()?.into_iter(), size)?;
    let said = run("qemu-img", &["map", "--output=json", "-f", "raw", &uri])?;
    let map: serde_json::Value = serde_json::from_str(&said)?;
    let extents = map.as_array().context("no list")?.iter().map(|extent| {
        Ok((number(&extent["start"])?, number(&extent["length"])?, extent["zero"] == false))
    });
    let by_qemu = units(extents.collect::<anyhow::Result<Vec<_>>>()?.into_iter(), size)?;
    ensure!(by_libnbd == by_qemu, "libnbd says {by_libnbd:?}, QEMU says {by_qemu:?}");
    Ok((size, by_libnbd))
}

fn write(host: &Headgate, units: &[u64]) -> anyhow::Result<()> {
    let commands: Vec<String> =
        units.iter().map(|unit| format!("write -P {} {} {UNIT}", unit + 1, unit * UNIT)).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    tools::qemu_io(&host.nbd_uri("disk"), &commands).map(drop)
}

fn ensure_data(host: &Headgate, expected: &[u64], when: &str) -> anyhow::Result<()> {
    let found = data_of(host)?.1;
    ensure!(found.iter().eq(expected), "{when}: {found:?} is data, and {expected:?} was written");
    Ok(())
}

/// A copy on the host's own storage has the disk's bytes, and takes this part of it.
fn ensure_copy(lab: &Lab, file: &Path, content: &str, least: u64, most: u64) -> anyhow::Result<()> {
    ensure!(tools::sha256(file)? == content, "{} is another disk", file.display());
    let allocated = std::fs::metadata(file)?.blocks() * 512;
    let named = file.strip_prefix(lab.dir()).unwrap_or(file).display();
    ensure!((least..=most).contains(&allocated), "{named} takes {allocated} bytes");
    Ok(())
}

/// The disk's bytes, as a plain client reads them.
fn content(lab: &Lab, host: &Headgate) -> anyhow::Result<String> {
    let file = lab.dir().join("content.raw");
    let _ = std::fs::remove_file(&file);
    tools::nbdcopy(&host.nbd_uri("disk"), text(&file))?;
    tools::sha256(&file)
}

/// A host whose disk `disk` was never written: its holes are told, and kept.
fn keeps_holes(lab: &Lab, host: &Headgate) -> anyhow::Result<()> {
    ensure_data(host, &[], "before the first write")?;
    write(host, &FIRST)?;
    ensure_data(host, &FIRST, "after writes")?;
    write(host, &[LATER])?;
    let mut all = FIRST.to_vec();
    all.insert(5, LATER);
    ensure_data(host, &all, "after a write into a hole")?;
    let content = content(lab, host)?;
    let written = all.len() as u64 * UNIT;
    // What its file system needs besides is some blocks.
    let most = written + UNIT;
    host.command(&["disk", "copy", "disk", "copy", "--datastore", "default"])?;
    ensure_copy(lab, &host.image("copy")?, &content, written, most)?;
    let exported = lab.dir().join("exported.raw");
    let _ = std::fs::remove_file(&exported);
    host.command(&["disk", "export", "disk", text(&exported), "--format", "raw"])?;
    ensure_copy(lab, &exported, &content, written, most)?;
    host.command(&["disk", "migrate", "disk", "--to", "default"])?;
    ensure_copy(lab, &host.image("disk")?, &content, written, most)
}

#[test]
fn holes_of_other_servers_are_told_and_kept() {
    with_lab(&["nbdkit", "qemu-nbd", "qemu-img", "qemu-io", "nbdinfo", "nbdcopy"], |lab| {
        let servers: [&[&str]; 4] = [
            &["nbdkit", "-f", "-U", "SOCKET", "memory", "24M"],
            &["nbdkit", "-f", "-U", "SOCKET", "file", "FILE"],
            &["qemu-nbd", "-t", "-k", "SOCKET", "-f", "raw", "FILE"],
            &["qemu-nbd", "-t", "-k", "SOCKET", "-f", "qcow2", "FILE"],
        ];
        for (n, words) in servers.iter().enumerate() {
            let file = lab.dir().join(format!("far{n}"));
            match words.contains(&"qcow2") {
                true => drop(run("qemu-img", &["create", "-f", "qcow2", text(&file), "24M"])?),
                false => tools::sparse_file(&file, 24 << 20)?,
            }
            let words: Vec<&str> =
                words.iter().map(|word| if *word == "FILE" { text(&file) } else { word }).collect();
            let server = Peer::start(lab, &words)?;
            let host = Headgate::start_as(lab, &format!("host{n}"), &[], &[])?;
            let uri = format!("nbd+unix:///?socket={}", server.socket.display());
            host.command(&["datastore", "add", "far", "--nbd", &uri])?;
            create(&host, "disk", "", &[])?;
            keeps_holes(lab, &host).with_context(|| words.join(" "))?;
        }
        Ok(())
    });
}

#[test]
fn holes_of_a_disk_over_three_nodes_are_told_and_kept() {
    with_lab(&["qemu-img", "qemu-io", "nbdinfo", "nbdcopy"], |lab| {
        let nodes = nodes(lab, 3, "9M", &[])?;
        let gateway = gateway_of(lab, "disk", &uris("nbd", &nodes), &[])?;
        keeps_holes(lab, &gateway)
    });
}

/// Nodes that know no counters answer with structured replies, labels too.
#[test]
fn holes_of_a_disk_over_nodes_without_counters_are_told_and_kept() {
    with_lab(&["qemu-img", "qemu-io", "nbdinfo", "nbdcopy"], |lab| {
        let nodes = nodes(lab, 3, "9M", &[])?;
        let mut servers = uris("nbd", &nodes);
        for (server, node) in servers.iter_mut().zip(&nodes).skip(1) {
            *server = format!("nbd://{}", without_counters(&node.address)?);
        }
        let gateway = gateway_of(lab, "disk", &servers, &[])?;
        keeps_holes(lab, &gateway)
    });
}

/// A server of before, without structured replies, and one that does not look.
#[test]
fn a_server_that_tells_no_holes_has_data_everywhere() {
    with_lab(&["nbdkit", "qemu-img", "qemu-io", "nbdinfo", "nbdcopy"], |lab| {
        for (n, without) in ["--no-sr", "--filter=noextents"].into_iter().enumerate() {
            let server =
                Peer::start(lab, &["nbdkit", "-f", "-U", "SOCKET", without, "memory", "16M"])?;
            let host = Headgate::start_as(lab, &format!("host{n}"), &[], &[])?;
            let uri = format!("nbd+unix:///?socket={}", server.socket.display());
            host.command(&["datastore", "add", "far", "--nbd", &uri])?;
            create(&host, "disk", "", &[])?;
            let all: Vec<u64> = (0..(16 << 20) / UNIT).collect();
            ensure_data(&host, &all, without)?;
            write(&host, &FIRST)?;
            ensure_data(&host, &all, without)?;
            let content = content(lab, &host)?;
            host.command(&["disk", "migrate", "disk", "--to", "default"])?;
            ensure!(tools::sha256(&host.image("disk")?)? == content, "it is another disk");
        }
        Ok(())
    });
}
