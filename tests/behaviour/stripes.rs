//! Disks that are striped over several storage nodes, all of them daemons of their own that are
//! reached over TCP: what guests and clients see of it, and of nodes that die or are cut off.

use crate::guest;
use crate::remote::{MIXED, are_there, load_to_end, wait_until};
use anyhow::{Context, ensure};
use headgate_lab::guest::{Drive, Guest, Machine, QEMU, Start, boot_disk};
use headgate_lab::headgate::Headgate;
use headgate_lab::process;
use headgate_lab::stripes::{Gateway, Node, WIDE};
use headgate_lab::tls::both_roles;
use headgate_lab::writer::Writer;
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// How often a node is killed under load.
const KILLS: u64 = 20;

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of a test is UTF-8")
}

pub fn run(program: &str, words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(tools::find(program).context("not installed")?);
    command.args(words);
    process::run(command, MINUTE)
}

/// What clients read of a gateway's disk.
fn content(lab: &Lab, daemon: &Headgate) -> anyhow::Result<String> {
    let path = lab.dir().join("content.raw");
    if path.exists() {
        std::fs::remove_file(&path)?;
    }
    tools::nbdcopy(&daemon.nbd_uri("disk"), text(&path))?;
    tools::sha256(&path)
}

/// Nodes whose disks are files in memory, each with an export `disk` of this size.
pub fn nodes(lab: &Lab, count: usize, size: &str, words: &[&str]) -> anyhow::Result<Vec<Node>> {
    (0..count)
        .map(|n| {
            let images = lab.subdir(&format!("images{n}"))?;
            let name = format!("node{n}");
            let node = Node::start(lab, &name, words, &["--dir", text(&images)])?;
            node.disk("disk", &["--size", size])?;
            Ok(node)
        })
        .collect()
}

pub fn uris(scheme: &str, nodes: &[Node]) -> Vec<String> {
    nodes.iter().map(|node| format!("{scheme}://{}", node.address)).collect()
}

/// A gateway over these servers, with one disk over their exports `disk`.
fn gateway(lab: &Lab, servers: &[String], words: &[&str]) -> anyhow::Result<Headgate> {
    gateway_of(lab, "disk", servers, words)
}

/// A gateway over these servers, with one disk over their exports of the same name.
pub fn gateway_of(
    lab: &Lab,
    disk: &str,
    servers: &[String],
    words: &[&str],
) -> anyhow::Result<Headgate> {
    gateway_over(lab, disk, 1, servers, words)
}

/// The same with so many connections to each server.
fn gateway_over(
    lab: &Lab,
    disk: &str,
    connections: u8,
    servers: &[String],
    words: &[&str],
) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start_as(lab, &format!("gateway-{disk}"), &[], words)?;
    let add = ["datastore", "add", WIDE, "--stripe", &servers.join(","), "--stripe-unit=64K"];
    daemon.command(&[&add[..], &[&format!("--connections={connections}")]].concat())?;
    daemon.command(&["disk", "create", disk, "--datastore", WIDE, "--export", disk])?;
    Ok(daemon)
}

#[test]
fn a_guest_works_on_a_disk_over_three_nodes() {
    with_lab(&[QEMU, "nbdcopy", "qemu-img", "openssl"], |lab| {
        let dir = both_roles(lab.dir())?;
        let tls = ["--nbd-tls", text(&dir)];
        let nodes = nodes(lab, 3, "23M", &tls)?;
        let mut gateway = gateway(lab, &uris("nbds", &nodes), &tls)?;
        let drive = Drive::VhostUser { socket: gateway.vhost_socket("disk") };
        let copy = guest::works(lab, &gateway, drive)?;
        gateway.stop()?;
        // Where each byte lies, by the definition: units of 64 KiB in turn, behind the first MiB.
        let images: Vec<Vec<u8>> = (0..3)
            .map(|n| Ok(std::fs::read(lab.dir().join(format!("images{n}/disk.img")))?))
            .collect::<anyhow::Result<_>>()?;
        let content = std::fs::read(copy)?;
        for (unit, bytes) in content.chunks(64 << 10).enumerate() {
            let at = (1 << 20) + unit / 3 * (64 << 10);
            ensure!(images[unit % 3][at..][..bytes.len()] == *bytes, "unit {unit} is another");
        }
        Ok(())
    });
}

/// All that the guest is comes from the disk: its boot loader, its kernel, its first programs.
#[test]
fn a_guest_boots_from_a_disk_over_three_nodes() {
    let programs = [QEMU, "syslinux", "mcopy", "mkfs.vfat", "nbdcopy", "openssl"];
    with_lab(&programs, |lab| {
        let dir = both_roles(lab.dir())?;
        let tls = ["--nbd-tls", text(&dir)];
        let mut nodes = nodes(lab, 3, "49M", &tls)?;
        let mut gateway = gateway(lab, &uris("nbds", &nodes), &tls)?;
        let image = boot_disk(lab, 128)?;
        tools::nbdcopy(text(&image), &gateway.nbd_uri("disk"))?;
        let drive = Drive::VhostUser { socket: gateway.vhost_socket("disk") };
        let machine = Machine { start: Start::Disk, ..Machine::new("guest", drive) };
        let mut guest = Guest::boot(lab, &machine)?;
        let said = guest.run("cat /proc/cmdline", MINUTE)?;
        ensure!(said.contains("BOOT_IMAGE=vmlinuz"), "it did not boot from the disk: {said}");
        // A node dies and comes back under the running guest, which waits.
        nodes[1].daemon.kill()?;
        nodes[1].daemon.start_again()?;
        let check = "head -c 134217728 /dev/vda | sha256sum";
        let said = guest.run(check, 3 * MINUTE)?;
        ensure!(said.contains(&tools::sha256(&image)?), "the guest reads another disk: {said}");
        guest.power_off()?;
        gateway.stop()
    });
}

#[test]
fn nodes_killed_again_and_again_lose_nothing_that_was_flushed() {
    with_lab(&["openssl"], |lab| {
        let dir = both_roles(lab.dir())?;
        let tls = ["--nbd-tls", text(&dir)];
        let mut nodes = nodes(lab, 3, "9M", &tls)?;
        let gateway = gateway_over(lab, "disk", 3, &uris("nbds", &nodes), &tls)?;
        are_there(&gateway, "disk", 3)?;
        let writer = Writer::new(gateway.nbd_socket(), "disk", 3, 4096).with_refused_flushes();
        let progress = writer.progress();
        thread::scope(|scope| {
            let writer = scope.spawn(|| writer.run());
            let more = |what: &str| {
                let than = progress.flushes.load(Ordering::Relaxed);
                wait_for(what, MINUTE, || {
                    let now = progress.flushes.load(Ordering::Relaxed);
                    Ok((now > than + 2 || writer.is_finished()).then_some(()))
                })
            };
            let outcome = (0..KILLS).try_for_each(|round| {
                more("the writer should get on")?;
                let node = &mut nodes[(round % 3) as usize].daemon;
                node.kill()?;
                wait_until(&gateway, "disk", "waiting")?;
                node.start_again()?;
                wait_until(&gateway, "disk", "connected").map(drop)
            });
            let outcome = outcome.and_then(|()| more("the writer should get on in the end"));
            progress.stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer does not panic")?;
            outcome
        })?;
        let [writes, flushes, refused, crashes] =
            [&progress.writes, &progress.flushes, &progress.refused, &progress.crashes]
                .map(|count| count.load(Ordering::Relaxed));
        eprintln!("  {writes} writes and {flushes} flushes acknowledged, {refused} refused");
        ensure!(crashes == 0, "the gateway's client was disconnected");
        ensure!(refused >= KILLS / 2, "flushes vouched for writes that dead nodes may have lost");
        Ok(())
    });
}

#[test]
fn a_gateway_killed_again_and_again_loses_nothing_that_was_flushed() {
    with_lab(&[], |lab| {
        let nodes = nodes(lab, 3, "9M", &[])?;
        let mut gateway = gateway(lab, &uris("nbd", &nodes), &[])?;
        let writer = Writer::new(gateway.nbd_socket(), "disk", 5, 4096);
        let progress = writer.progress();
        thread::scope(|scope| {
            let writer = scope.spawn(|| writer.run());
            let outcome = (1..=KILLS / 2).try_for_each(|round| {
                let flushes = progress.flushes.load(Ordering::Relaxed);
                wait_for("the writer should get on", MINUTE, || {
                    let now = progress.flushes.load(Ordering::Relaxed);
                    Ok((now > flushes + round % 4 || writer.is_finished()).then_some(()))
                })?;
                gateway.kill()?;
                gateway.start_again()
            });
            progress.stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer does not panic")?;
            outcome
        })
    });
}

/// A network of its own, with a wire to this one.
struct Island {
    name: String,
    wire: String,
}

impl Island {
    fn new(tag: u32) -> anyhow::Result<Island> {
        let island = Island { name: format!("hg-isle{tag}"), wire: format!("hg-wire{tag}") };
        let (name, wire) = (&island.name, &island.wire);
        run("ip", &["netns", "add", name])?;
        let far = ["link", "add", wire, "type", "veth", "peer", "name", "far", "netns", name];
        run("ip", &far)?;
        run("ip", &["address", "add", "169.254.77.1/30", "dev", wire])?;
        run("ip", &["link", "set", wire, "up"])?;
        let inside = ["netns", "exec", name, "ip"];
        let address = ["address", "add", "169.254.77.2/30", "dev", "far"];
        run("ip", &[&inside[..], &address].concat())?;
        run("ip", &[&inside[..], &["link", "set", "far", "up"]].concat())?;
        Ok(island)
    }

    fn cut(&self) -> anyhow::Result<()> {
        run("ip", &["link", "set", &self.wire, "down"]).map(drop)
    }

    fn join(&self) -> anyhow::Result<()> {
        run("ip", &["link", "set", &self.wire, "up"]).map(drop)
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        // The wire goes with it.
        if let Err(error) = run("ip", &["netns", "del", &self.name]) {
            eprintln!("network {} is left: {error:#}", self.name);
        }
    }
}

#[test]
fn a_node_that_is_cut_off_for_a_minute_is_waited_for_and_others_go_on() {
    with_lab(&["ip"], |lab| {
        let island = match Island::new(std::process::id() % 10_000) {
            Err(error) if format!("{error:#}").contains("not permitted") => {
                eprintln!("SKIPPED: no network namespaces here: {error:#}");
                return Ok(());
            }
            other => other?,
        };
        let mut nodes = nodes(lab, 2, "9M", &[])?;
        let images = lab.subdir("images-island")?;
        let listen = ["--nbd-listen", "169.254.77.2:10809"];
        let through = ["ip", "netns", "exec", &island.name];
        let daemon = Headgate::start_as(lab, "island", &through, &listen)?;
        daemon.command(&["datastore", "add", "array", "--dir", text(&images)])?;
        let far = Node { daemon, address: "169.254.77.2:10809".into() };
        far.disk("disk", &["--size=9M"])?;
        nodes.insert(1, far);
        let gateway = gateway_over(lab, "disk", 2, &uris("nbd", &nodes), &[])?;
        // As guests' disks are set whose users would rather wait than see an error.
        gateway.command(&["disk", "set", "disk", "--werror=stop", "--rerror=stop"])?;
        gateway.command(&["disk", "create", "near", "--size=16M"])?;
        let writer = Writer::new(gateway.nbd_socket(), "disk", 9, 4096)
            .with_refused_flushes()
            .with_patience(3 * MINUTE);
        let progress = writer.progress();
        thread::scope(|scope| {
            let writer = scope.spawn(|| writer.run());
            let done =
                |progress: &headgate_lab::writer::Progress| progress.writes.load(Ordering::Relaxed);
            let more = |than: u64| {
                wait_for("the writer should get on", MINUTE, || {
                    Ok((done(&progress) > than + 100 || writer.is_finished()).then_some(()))
                })
            };
            let outcome = more(0).and_then(|()| {
                island.cut()?;
                let cut = std::time::Instant::now();
                wait_until(&gateway, "disk", "waiting")
                    .or_else(|_| wait_until(&gateway, "disk", "failing"))?;
                // Who has nothing there is served as ever.
                load_to_end(&gateway, "near", MIXED)?;
                thread::sleep(Duration::from_secs(62).saturating_sub(cut.elapsed()));
                ensure!(!writer.is_finished(), "the writer saw an error");
                let before = done(&progress);
                island.join()?;
                wait_until(&gateway, "disk", "connected")?;
                more(before)
            });
            progress.stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer does not panic")?;
            outcome
        })?;
        ensure!(progress.crashes.load(Ordering::Relaxed) == 0, "its client was disconnected");
        Ok(())
    });
}

#[test]
fn plain_clients_use_a_node_beside_gateways() {
    with_lab(&["nbdcopy", "qemu-img", "nbdinfo"], |lab| {
        let nodes = nodes(lab, 3, "9M", &[])?;
        for node in &nodes {
            node.disk("plain", &["--size=16M"])?;
            node.disk("other", &["--size=9M"])?;
        }
        let servers = uris("nbd", &nodes);
        let mut one = gateway(lab, &servers, &[])?;
        let mut other = Gateway::start(lab, "other", &servers)?;
        other.load(16)?;
        let source = lab.dir().join("source.raw");
        std::fs::write(&source, (0..16_u32 << 18).flat_map(u32::to_le_bytes).collect::<Vec<_>>())?;
        for (node, server) in nodes.iter().zip(&servers) {
            let uri = format!("{server}/plain");
            tools::nbdcopy(text(&source), &uri)?;
            tools::qemu_img_compare(text(&source), &uri)?;
            let said = run("nbdinfo", &["--size", &uri])?;
            ensure!(said.trim() == (16 << 20).to_string(), "{said}");
            load_to_end(&node.daemon, "plain", MIXED)?;
        }
        load_to_end(&one, "disk", MIXED)?;
        other.idle()?;
        let received = other.received()?;
        let counts = received.iter().flatten().all(|[ios, _]| *ios > 100.0);
        ensure!(counts && received.iter().flatten().count() == 3, "{received:?}");
        nodes_are_shown(&one, &nodes)?;
        one.stop()
    });
}

/// A node's window is that of its datastore, as of its last answer.
fn windows_are_shown(gateway: &Headgate, nodes: &[Node]) -> anyhow::Result<()> {
    let windows = || -> anyhow::Result<BTreeMap<String, u64>> {
        let shown = gateway.json(&["node", "list"])?;
        let shown = shown.as_array().context("no list")?.clone();
        let window = |node: &serde_json::Value| {
            let said = node["disks"][0]["connection"]["window_thousandths"].as_u64();
            ensure!(said == node["window_thousandths"].as_u64(), "{node}");
            let server = node["server"].as_str().context("no server")?;
            Ok((server.to_owned(), said.context("no window")?))
        };
        shown.iter().map(window).collect()
    };
    for node in nodes {
        let depth = node.daemon.json(&["datastore", "show", "array"])?["queue_depth"].as_u64();
        let said = windows()?.get(&format!("nbd://{}/", node.address)).copied();
        ensure!(said == depth.map(|depth| depth * 1_000), "{said:?} of {depth:?}");
    }
    let depths = [7_u64, 90, 33];
    for (node, depth) in nodes.iter().zip(depths) {
        let depth = format!("--queue-depth={depth}");
        node.daemon.command(&["datastore", "set", "array", &depth])?;
    }
    load_to_end(gateway, "disk", "--verify --seconds 1 --read-percent 50 --block-size 64k")?;
    let expected: BTreeMap<String, u64> = nodes
        .iter()
        .zip(depths)
        .map(|(node, depth)| (format!("nbd://{}/", node.address), depth * 1_000))
        .collect();
    ensure!(windows()? == expected, "{:?}", windows()?);
    let text = gateway.command(&["node", "show", &format!("nbd://{}", nodes[0].address)])?;
    ensure!(text.contains("7.0 requests"), "{text}");
    Ok(())
}

/// Who lies on which server, in words, in numbers and as metrics; and one more server.
fn nodes_are_shown(gateway: &Headgate, nodes: &[Node]) -> anyhow::Result<()> {
    let shown = gateway.json(&["node", "list"])?;
    let shown = shown.as_array().context("no list")?;
    ensure!(shown.len() == 3, "{shown:?}");
    let received = |node: &serde_json::Value| node["received"]["ios"].as_u64();
    for node in shown {
        let busy = received(node) > Some(100) && node["latency_ns"].as_u64() > Some(1_000);
        ensure!(busy && node["state"] == "connected", "{node}");
        ensure!(node["disks"][0]["disk"] == "disk" && node["disks"][0]["members"] == 3, "{node}");
    }
    let others: u64 = shown[1..].iter().filter_map(received).sum();
    ensure!(shown[0]["disks"][0]["elsewhere"]["ios"] == others, "{}", shown[0]);
    let text = gateway.command(&["node", "show", &format!("nbd://{}", nodes[0].address)])?;
    ensure!(text.contains("connected") && text.contains("0 of 3"), "{text}");
    windows_are_shown(gateway, nodes)?;
    let unknown = gateway.command(&["node", "show", "nbd://nobody"]).err().context("shown")?;
    ensure!(format!("{unknown:#}").contains(&nodes[0].address), "{unknown:#}");
    let metrics = gateway.metrics()?;
    for metric in [
        "headgate_disk_server_connected",
        "headgate_disk_server_latency_seconds",
        "headgate_disk_server_received_total",
        "headgate_disk_server_window_requests",
    ] {
        ensure!(metrics.of_disk(metric, "disk")? > 0.0, "{metric}");
    }
    let more = ["datastore", "set", WIDE, "--add-server", "nbd://127.0.0.1:1"];
    gateway.command(&more)?;
    let shown = gateway.json(&["node", "list"])?;
    ensure!(shown.as_array().map(Vec::len) == Some(4), "{shown}");
    Ok(())
}

/// What the command line refuses, with what was expected.
#[test]
fn exports_that_are_not_those_of_one_disk_are_refused() {
    with_lab(&["nbdcopy"], |lab| {
        let nodes = nodes(lab, 3, "9M", &[])?;
        let servers = uris("nbd", &nodes);
        let mut daemon = gateway(lab, &servers, &[])?;
        load_to_end(&daemon, "disk", MIXED)?;
        let before = content(lab, &daemon)?;
        daemon.command(&["disk", "remove", "disk", "--yes", "--keep-image"])?;
        let add = |name: &str, servers: &[&String]| {
            let servers: Vec<&str> = servers.iter().map(|server| server.as_str()).collect();
            daemon.command(&["datastore", "add", name, "--stripe", &servers.join(",")])
        };
        add("mixed", &[&servers[1], &servers[0], &servers[2]])?;
        add("fewer", &[&servers[0], &servers[1]])?;
        let create = |store: &str, further: &[&str]| {
            let words = ["disk", "create", "disk", "--datastore", store, "--export", "disk"];
            daemon.command(&[&words[..], further].concat())
        };
        for (store, further, expected) in [
            ("mixed", &[][..], "member 1"),
            ("fewer", &[], "on 3 servers"),
            (WIDE, &["--size=4M"], "4194304 were asked for"),
        ] {
            let error = format!("{:#}", create(store, further).err().context("it is refused")?);
            ensure!(error.contains(expected), "{store}: {error}");
        }
        create(WIDE, &[])?;
        ensure!(content(lab, &daemon)? == before, "the disk has other content");
        daemon.stop()
    });
}
