//! The NBD clients that people use, on exports of nodes over which two gateways have striped disks
//! that are busy: plain, and over TLS. Each reads the bytes that it should, and so do the gateways.

use crate::stripes::{gateway_of, nodes, run, text, uris};
use anyhow::{Context, ensure};
use headgate_lab::ledger::splitmix;
use headgate_lab::nbd::Handshake;
use headgate_lab::process::Process;
use headgate_lab::stripes::Node;
use headgate_lab::tls::both_roles;
use headgate_lab::writer::{Writer, beside};
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const NODES: usize = 3;
const SIZE_MIB: usize = 16;
/// Of each striped disk, in blocks of 4 KiB: three servers give it 8 MiB each.
const BLOCKS: u64 = 6_144;
const PROGRAMS: [&str; 6] = ["nbdcopy", "nbdinfo", "nbdkit", "qemu-img", "fio", "openssl"];

/// A client's way to an export of a node.
struct Way<'a> {
    lab: &'a Lab,
    node: &'a Node,
    /// The client's certificates, where nodes serve over TLS.
    certificates: Option<&'a Path>,
    export: &'a str,
}

impl Way<'_> {
    /// As libnbd writes it.
    fn uri(&self) -> String {
        let Way { node, export, .. } = self;
        match self.certificates {
            None => format!("nbd://{}/{export}", node.address),
            Some(dir) => {
                format!("nbds://{}/{export}?tls-certificates={}", node.address, text(dir))
            }
        }
    }

    /// As QEMU writes it: its words for the credentials, and the image's.
    fn qemu(&self) -> anyhow::Result<(Vec<String>, String)> {
        let (host, port) = self.node.address.split_once(':').context("no port")?;
        let image = format!("driver=nbd,host={host},port={port},export={}", self.export);
        let Some(dir) = self.certificates else { return Ok((Vec::new(), image)) };
        let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", text(dir));
        Ok((vec!["--object".into(), object], format!("{image},tls-creds=tls")))
    }

    /// `qemu-img` with the credentials.
    fn qemu_img(&self, command: &str, words: &[&str]) -> anyhow::Result<String> {
        let (credentials, _) = self.qemu()?;
        let credentials: Vec<&str> = credentials.iter().map(String::as_str).collect();
        run("qemu-img", &[&[command][..], &credentials, words].concat())
    }

    /// Copies with nbdcopy there and back.
    fn nbdcopy(&self, source: &Path) -> anyhow::Result<()> {
        let back = self.lab.dir().join("back.raw");
        tools::nbdcopy(text(source), &self.uri())?;
        tools::nbdcopy(&self.uri(), text(&back))?;
        same(source, &back)
    }

    /// What the server says to nbdinfo, and QEMU.
    fn info(&self) -> anyhow::Result<()> {
        let info = tools::nbdinfo(&self.uri())?;
        let tls = info["TLS"] == true || info["TLS"] == "true";
        ensure!(tls == self.certificates.is_some(), "nbdinfo: {info}");
        ensure!(info["exports"][0]["export-size"] == SIZE_MIB << 20, "nbdinfo: {info}");
        // Counters are for who asks for them.
        let structured = &info["structured"];
        ensure!(*structured == true || *structured == "true", "nbdinfo: {info}");
        let (_, image) = self.qemu()?;
        let said = self.qemu_img("info", &["--image-opts", &image])?;
        ensure!(said.contains(&format!("{SIZE_MIB} MiB")), "qemu-img: {said}");
        Ok(())
    }

    /// Converts an image with QEMU there and back, and compares it there.
    fn convert(&self, source: &Path) -> anyhow::Result<()> {
        let (_, image) = self.qemu()?;
        let there = format!("driver=raw,file.{}", image.replace(',', ",file."));
        let back = self.lab.dir().join("back.qcow2");
        let raw = self.lab.dir().join("converted.raw");
        let words = ["-n", "-f", "raw", "--target-image-opts", text(source), &there];
        self.qemu_img("convert", &words)?;
        self.qemu_img("convert", &["--image-opts", &there, "-O", "qcow2", text(&back)])?;
        run("qemu-img", &["convert", "-f", "qcow2", "-O", "raw", text(&back), text(&raw)])?;
        same(source, &raw)
    }

    /// fio's NBD engine writes and checks. It cannot be told of certificates: nbdkit, whose client
    /// can, stands in front of the node then.
    fn fio(&self) -> anyhow::Result<()> {
        let proxy = self.certificates.map(|dir| Proxy::start(self, dir)).transpose()?;
        let uri = proxy.as_ref().map_or_else(|| self.uri(), Proxy::uri);
        let report = tools::fio_nbd(&uri, &tools::FOUR_WRITERS, 2 * MINUTE)?;
        let job = &report["jobs"][0];
        ensure!(job["error"] == 0, "fio: {report}");
        let written = job["write"]["total_ios"].as_u64();
        let verified = job["read"]["total_ios"].as_u64();
        let all = (SIZE_MIB << 20 >> 12) as u64;
        ensure!(written == Some(all) && verified == written, "fio: {report}");
        Ok(())
    }
}

/// nbdkit as a client over TLS, for clients that are given no certificates.
struct Proxy {
    socket: PathBuf,
    _process: Process,
}

impl Proxy {
    fn start(way: &Way<'_>, certificates: &Path) -> anyhow::Result<Proxy> {
        let socket = way.lab.dir().join("proxy.sock");
        let _ = fs::remove_file(&socket);
        let (host, port) = way.node.address.split_once(':').context("no port")?;
        let mut command = Command::new(tools::find("nbdkit").context("not installed")?);
        command.args(["-f", "-U", text(&socket), "nbd", "tls=require"]);
        command.args([format!("hostname={host}"), format!("port={port}")]);
        command.arg(format!("export={}", way.export));
        command.arg(format!("tls-certificates={}", text(certificates)));
        let mut process = Process::spawn("nbdkit", command, &way.lab.dir().join("proxy.log"))?;
        wait_for("nbdkit should greet its clients", MINUTE, || {
            process.ensure_running()?;
            Ok(Handshake::connect(&socket).ok())
        })?;
        Ok(Proxy { socket, _process: process })
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", text(&self.socket))
    }
}

/// Two files have the same bytes.
fn same(one: &Path, other: &Path) -> anyhow::Result<()> {
    let [one, other] = [one, other].map(fs::read);
    ensure!(one? == other?, "other bytes came back");
    Ok(())
}

/// Bytes of a disk that no other source has.
fn source(lab: &Lab, name: &str, seed: u64) -> anyhow::Result<PathBuf> {
    let path = lab.dir().join(name);
    let words = (0..(SIZE_MIB as u64) << 17).map(|n| splitmix(seed << 32 | n));
    fs::write(&path, words.flat_map(u64::to_le_bytes).collect::<Vec<_>>())?;
    Ok(path)
}

/// All clients on all nodes.
fn all_clients(lab: &Lab, nodes: &[Node], certificates: Option<&Path>) -> anyhow::Result<()> {
    for (node, seed) in nodes.iter().zip(1..) {
        let way = |export| Way { lab, node, certificates, export };
        let first = source(lab, "first.raw", seed)?;
        let second = source(lab, "second.raw", seed + 100)?;
        way("plain").nbdcopy(&first).context("nbdcopy")?;
        way("plain").info()?;
        way("image").convert(&second).context("qemu-img")?;
        way("scratch").fio().context("fio")?;
        // Nobody has written to the others' exports meanwhile.
        let back = lab.dir().join("late.raw");
        tools::nbdcopy(&node.daemon.nbd_uri("plain"), text(&back))?;
        same(&first, &back).context("late")?;
        tools::nbdcopy(&node.daemon.nbd_uri("image"), text(&back))?;
        same(&second, &back).context("late")?;
    }
    Ok(())
}

/// Two gateways' disks are busy, and all that is written there is checked, while clients do all
/// they do.
fn beside_gateways(lab: &Lab, scheme: &str, certificates: Option<&Path>) -> anyhow::Result<()> {
    let tls = certificates.map(|dir| ["--nbd-tls", text(dir)]);
    let words = tls.as_ref().map_or(&[][..], |words| words);
    let mut nodes = nodes(lab, NODES, "9M", words)?;
    for node in &nodes {
        node.disk("other", &["--size=9M"])?;
        for export in ["plain", "image", "scratch"] {
            node.disk(export, &[&format!("--size={SIZE_MIB}M")])?;
        }
    }
    let servers = uris(scheme, &nodes);
    let mut gateways = ["disk", "other"]
        .into_iter()
        .map(|disk| Ok((disk, gateway_of(lab, disk, &servers, words)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut writers: Vec<Writer> = gateways
        .iter()
        .zip(21..)
        .map(|((disk, gateway), seed)| Writer::new(gateway.nbd_socket(), disk, seed, BLOCKS))
        .collect();
    let progress: Vec<_> = writers.iter().map(Writer::progress).collect();
    beside(&mut writers, MINUTE, || all_clients(lab, &nodes, certificates))?;
    let writes: Vec<u64> = progress.iter().map(|one| one.writes.load(Ordering::Relaxed)).collect();
    eprintln!("  {scheme}: gateways had {writes:?} writes acknowledged, and checked, meanwhile");
    for (disk, gateway) in &mut gateways {
        let shown = gateway.json(&["disk", "show", disk])?;
        let servers = shown["connection"]["servers"].as_array().context("no servers")?;
        // It was never away, and nodes counted for it while others asked for no counters.
        let counted = |server: &serde_json::Value| {
            server["received"]["ios"].as_f64().is_some_and(|ios| ios > 100.0)
        };
        ensure!(servers.len() == NODES && servers.iter().all(counted), "{shown}");
        gateway.stop()?;
    }
    nodes.iter_mut().try_for_each(|node| node.daemon.stop())
}

#[test]
fn the_clients_that_people_use_are_served_beside_gateways() {
    with_lab(&PROGRAMS, |lab| beside_gateways(lab, "nbd", None));
}

#[test]
fn so_they_are_over_tls() {
    with_lab(&PROGRAMS, |lab| {
        let dir = both_roles(lab.dir())?;
        beside_gateways(lab, "nbds", Some(&dir))
    });
}
