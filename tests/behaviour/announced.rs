//! A striped disk's policy is set at its gateway, and its nodes keep it: as far as the gateway's
//! certificate reaches, also where a node was away, and for nobody who may not say so.

use crate::remote::{MIXED, load_to_end};
use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::stripes::{Node, WIDE};
use headgate_lab::tls::{Inside, certificates, issue};
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// What nodes let gateways have promised.
const RULES: &str = r#"
[[allow]]
peer = "gw1.example"
disks = ["disk", "more"]
policy = { reservation = 600, shares = 500 }

[[allow]]
peer = "gw2.example"
disks = ["*"]
"#;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of a test is UTF-8")
}

/// Certificates of nodes, with rules, and of two gateways.
fn pki(lab: &Lab) -> anyhow::Result<[PathBuf; 3]> {
    let [authority, node, one, two] =
        ["authority", "node", "gw1", "gw2"].map(|at| lab.dir().join(at));
    certificates(&["init", text(&authority)])?;
    issue(&authority, "server", "127.0.0.1", &node)?;
    issue(&authority, "client", "gw1.example", &one)?;
    issue(&authority, "client", "gw2.example", &two)?;
    std::fs::write(node.join("allow.toml"), RULES)?;
    Ok([node, one, two])
}

fn nodes(lab: &Lab, tls: &Path) -> anyhow::Result<Vec<Node>> {
    (0..3)
        .map(|n| {
            let words = ["--nbd-tls", text(tls)];
            let array = ["--emulated=rate=900,depth=16", "--capacity=900"];
            let node = Node::start(lab, &format!("node{n}"), &words, &array)?;
            for disk in ["disk", "more", "third"] {
                node.disk(disk, &["--size=32M", "--shares=10"])?;
            }
            Ok(node)
        })
        .collect()
}

fn gateway(lab: &Lab, name: &str, tls: &Path, nodes: &[Node]) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start_as(lab, name, &[], &["--nbd-tls", text(tls)])?;
    let servers: Vec<String> = nodes.iter().map(|n| format!("nbds://{}", n.address)).collect();
    daemon.command(&["datastore", "add", WIDE, "--stripe", &servers.join(",")])?;
    Ok(daemon)
}

fn create(gateway: &Headgate, disk: &str, policy: &[&str]) -> anyhow::Result<String> {
    let create = ["disk", "create", disk, "--datastore", WIDE, "--export", disk];
    gateway.command(&[&create[..], policy].concat())
}

/// A node's reservation and shares of a disk, and who has set them.
fn promised(node: &Node, disk: &str) -> anyhow::Result<(Option<u64>, u64, Option<String>)> {
    let shown = node.daemon.json(&["disk", "show", disk])?;
    let policy = &shown["policy"];
    let shares = policy["shares"].as_u64().context("no shares")?;
    let by = shown["set_by"]["peer"].as_str().map(str::to_owned);
    Ok((policy["reservation"].as_u64(), shares, by))
}

fn all_promise(nodes: &[Node], disk: &str, reservation: u64, shares: u64) -> anyhow::Result<()> {
    let due = (Some(reservation), shares, Some("gw1.example".to_owned()));
    nodes.iter().try_for_each(|node| {
        wait_for("a node should take the policy", MINUTE, || {
            let promised = promised(node, disk)?;
            Ok((promised == due).then_some(()))
        })
    })
}

/// What the servers say to a disk's policy, as its gateway shows it.
fn answers(gateway: &Headgate, disk: &str) -> anyhow::Result<Vec<serde_json::Value>> {
    let shown = gateway.json(&["disk", "show", disk])?;
    let servers = shown["connection"]["servers"].as_array().context("no servers")?;
    Ok(servers.iter().map(|server| server["policy"].clone()).collect())
}

#[test]
fn a_policy_is_set_at_the_gateway_and_kept_by_the_nodes() {
    with_lab(&["openssl"], |lab| {
        let [node_tls, tls, _] = pki(lab)?;
        let mut nodes = nodes(lab, &node_tls)?;
        let mut gateway = gateway(lab, "gateway", &tls, &nodes)?;
        create(&gateway, "disk", &["--reservation=300", "--shares=200"])?;
        all_promise(&nodes, "disk", 300, 200)?;
        ensure!(answers(&gateway, "disk")?.iter().all(|said| said == "taken"));
        // A third of it counts at each.
        let store = nodes[0].daemon.json(&["datastore", "show", "array"])?;
        ensure!(store["reserved_iops"] == 100, "{store}");

        // A change while a node is away: it hears of it before the next request.
        nodes[1].daemon.kill()?;
        gateway.command(&["disk", "set", "disk", "--reservation=450", "--shares=300"])?;
        nodes[1].daemon.start_again()?;
        all_promise(&nodes, "disk", 450, 300)?;
        // A node's catalog and a gateway's are there after a restart.
        nodes[2].daemon.stop()?;
        nodes[2].daemon.start_again()?;
        gateway.stop()?;
        gateway.start_again()?;
        all_promise(&nodes, "disk", 450, 300)?;

        // At the node it is the gateway's matter.
        let error = nodes[0].daemon.command(&["disk", "set", "disk", "--shares=7"]).err();
        let error = format!("{:#}", error.context("it is not refused")?);
        ensure!(error.contains("set by gateway 'gw1.example'"), "{error}");
        let shown = nodes[0].daemon.command(&["disk", "show", "disk"])?;
        ensure!(shown.contains("gw1.example"), "{shown}");
        gateway.stop()
    });
}

#[test]
fn a_gateway_gets_no_more_promised_than_its_certificate_says() {
    with_lab(&["openssl"], |lab| {
        let [node_tls, tls, other_tls] = pki(lab)?;
        let nodes = nodes(lab, &node_tls)?;
        let mut gateway_one = gateway(lab, "gateway", &tls, &nodes)?;
        create(&gateway_one, "disk", &["--reservation=300", "--shares=200"])?;
        all_promise(&nodes, "disk", 300, 200)?;
        // Beyond what all of its disks may have, and what each may have.
        create(&gateway_one, "more", &["--reservation=300", "--shares=100"])?;
        all_promise(&nodes, "more", 300, 100)?;
        for (policy, words) in [
            ("--reservation=301", "may have 600 IOPS reserved in all, has 300, and asks for 301"),
            ("--shares=501", "may give a disk 500 shares at most, and asks for 501"),
        ] {
            let said = gateway_one.command(&["disk", "set", "more", policy])?;
            ensure!(said.contains(words), "{said}");
            for node in &nodes {
                let promised = promised(node, "more")?;
                ensure!((promised.0, promised.1) == (Some(300), 100), "{promised:?}");
            }
            let refused = answers(&gateway_one, "more")?;
            let refused = refused.iter().all(|said| said["refused"].is_string());
            ensure!(refused, "the gateway does not show it");
            gateway_one.command(&["disk", "set", "more", "--reservation=300", "--shares=100"])?;
        }
        // One that may use a disk, and not say what it is promised.
        let mut other = gateway(lab, "other", &other_tls, &nodes)?;
        create(&other, "third", &["--shares=900"])?;
        for node in &nodes {
            ensure!(promised(node, "third")? == (None, 10, None), "it was taken");
            let log = node.daemon.log()?;
            ensure!(log.contains("an announced policy is refused"), "{log}");
        }
        let said = answers(&other, "third")?;
        let words = |said: &serde_json::Value| {
            said["refused"].as_str().is_some_and(|why| why.contains("allow.toml"))
        };
        ensure!(said.iter().all(words), "{said:?}");
        gateway_one.stop()?;
        other.stop()
    });
}

/// A gateway whose catalog comes from a backup announces what was in force long ago: nodes keep the
/// later policy, and say so, until the disk is set once more.
#[test]
fn a_policy_of_an_old_epoch_is_refused() {
    with_lab(&["openssl"], |lab| {
        let [node_tls, tls, _] = pki(lab)?;
        let nodes = nodes(lab, &node_tls)?;
        let mut gateway = gateway(lab, "gateway", &tls, &nodes)?;
        create(&gateway, "disk", &["--reservation=300", "--shares=200"])?;
        all_promise(&nodes, "disk", 300, 200)?;
        gateway.stop()?;
        let [catalog, backup] =
            [gateway.state_dir().join("catalog.sqlite"), lab.dir().join("catalog.backup")];
        std::fs::copy(&catalog, &backup).context("the catalog")?;
        gateway.start_again()?;
        gateway.command(&["disk", "set", "disk", "--reservation=450"])?;
        all_promise(&nodes, "disk", 450, 200)?;
        gateway.stop()?;
        std::fs::copy(&backup, &catalog)?;
        gateway.start_again()?;
        let refused = |said: &serde_json::Value| {
            said["refused"].as_str().is_some_and(|why| why.contains("a later policy"))
        };
        wait_for("all nodes should refuse the old policy", MINUTE, || {
            Ok(answers(&gateway, "disk")?.iter().all(refused).then_some(()))
        })?;
        all_promise(&nodes, "disk", 450, 200)?;
        let log = nodes[0].daemon.log()?;
        ensure!(log.contains("an announced policy is refused"), "{log}");
        gateway.command(&["disk", "set", "disk", "--reservation=310"])?;
        all_promise(&nodes, "disk", 310, 200)?;
        gateway.stop()
    });
}

/// Which servers a disk lies on changes under its policy: a move that is cancelled, and one that is
/// not.
#[test]
fn a_policy_follows_a_disk_that_moves() {
    with_lab(&["openssl", "qemu-io"], |lab| {
        let [node_tls, tls, _] = pki(lab)?;
        let nodes = nodes(lab, &node_tls)?;
        let mut gateway = gateway(lab, "gateway", &tls, &nodes)?;
        let fewer: Vec<String> =
            nodes[..2].iter().map(|node| format!("nbds://{}", node.address)).collect();
        gateway.command(&["datastore", "add", "fewer", "--stripe", &fewer.join(",")])?;
        create(&gateway, "disk", &["--size=48M", "--reservation=200", "--shares=200"])?;
        all_promise(&nodes, "disk", 200, 200)?;
        // Holes are not copied: without data a move would be over at once, and not cancelled.
        tools::qemu_io(&gateway.nbd_uri("disk"), &["write -P 7 0 48M"])?;

        let migrate = ["disk", "migrate", "disk", "--to=fewer", "--export=more"];
        gateway.command(&[&migrate[..], &["--move-limit=1", "--detach"]].concat())?;
        gateway.command(&["disk", "set", "disk", "--reservation=210"])?;
        all_promise(&nodes, "disk", 210, 200)?;
        all_promise(&nodes[..2], "more", 210, 200)?;
        gateway.command_for(MINUTE, &["disk", "migrate", "disk", "--cancel"])?;
        gateway.command(&["disk", "set", "disk", "--reservation=220"])?;
        all_promise(&nodes, "disk", 220, 200)?;

        gateway.command_for(MINUTE, &migrate)?;
        gateway.command(&["disk", "set", "disk", "--reservation=230"])?;
        all_promise(&nodes[..2], "more", 230, 200)?;
        ensure!(answers(&gateway, "disk")?.iter().all(|said| said == "taken"));
        ensure!(promised(&nodes[2], "disk")?.0 == Some(220), "it is not told any more");
        gateway.stop()
    });
}

/// The option by which a gateway says a policy, as `docs/nbd-counters.md` has it: by one lease.
fn announcement(epoch: u64, shares: u64) -> Vec<u8> {
    let policy = format!("{{\"shares\": {shares}}}");
    let data = [
        &[0, 1][..],
        &[7; 16],
        &1_u64.to_be_bytes(),
        &[9; 16],
        &epoch.to_be_bytes(),
        &[0, 3, 0, 4],
        b"more",
        policy.as_bytes(),
    ]
    .concat();
    let len = data.len() as u32;
    [b"IHAVEOPT", &0x4847_0002_u32.to_be_bytes()[..], &len.to_be_bytes(), &data].concat()
}

/// What came of what a peer announced.
#[derive(Default)]
struct Heard {
    taken: AtomicU64,
    too_fast: AtomicU64,
    stop: AtomicBool,
}

/// Announces another policy again and again over one connection, as fast as it is answered.
fn announce(socket: &Path, epochs: &AtomicU64, heard: &Heard) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(MINUTE))?;
    stream.read_exact(&mut [0; 18])?;
    stream.write_all(&[0, 0, 0, 3])?;
    while !heard.stop.load(Ordering::Relaxed) {
        let epoch = epochs.fetch_add(1, Ordering::Relaxed);
        stream.write_all(&announcement(epoch, epoch % 400 + 1))?;
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let mut text = vec![0; u32::from_be_bytes(head[16..].try_into()?) as usize];
        stream.read_exact(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        match head[12..16] {
            [0, 0, 0, 1] => heard.taken.fetch_add(1, Ordering::Relaxed),
            // Of two that come at once the later one holds.
            _ if text.contains("a later policy") => 0,
            _ => {
                ensure!(text.contains("changes policies faster"), "{head:x?}: {text}");
                heard.too_fast.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
    Ok(())
}

/// A peer changes a policy over many connections as fast as it can: its changes are held to a rate,
/// and the node's other users are served.
#[test]
fn a_peer_that_changes_policies_all_the_time_has_few_of_them_written() {
    with_lab(&["openssl"], |lab| {
        let [node_tls, tls, _] = pki(lab)?;
        let nodes = nodes(lab, &node_tls)?;
        let node = &nodes[0];
        let inside = Inside::start(&lab.dir().join("inside.sock"), &node.address, &tls)?;
        let (epochs, heard, begin) = (AtomicU64::new(1), Heard::default(), Instant::now());
        thread::scope(|scope| {
            let peers: Vec<_> = (0..28)
                .map(|_| scope.spawn(|| announce(&inside.socket, &epochs, &heard)))
                .collect();
            let others = wait_for("the peer should be too fast", MINUTE, || {
                let refused = heard.too_fast.load(Ordering::Relaxed) > 50;
                Ok((refused || peers.iter().any(|peer| peer.is_finished())).then_some(()))
            })
            .and_then(|()| {
                // The node's operator, and a guest of another disk.
                for shares in 1..20 {
                    node.daemon.command(&[
                        "disk",
                        "set",
                        "third",
                        &format!("--shares={shares}"),
                    ])?;
                }
                load_to_end(&node.daemon, "disk", MIXED)
            });
            heard.stop.store(true, Ordering::Relaxed);
            for peer in peers {
                peer.join().expect("a peer does not panic")?;
            }
            others
        })?;
        let (taken, seconds) = (heard.taken.load(Ordering::Relaxed), begin.elapsed().as_secs_f64());
        let too_fast = heard.too_fast.load(Ordering::Relaxed);
        eprintln!("{taken} changes in {seconds:.1} s, {too_fast} refused");
        // A burst, and so many a second.
        ensure!(taken as f64 <= 21.0 + 10.0 * seconds, "{taken} changes in {seconds:.1} s");
        ensure!(taken > 20 && too_fast > 50, "{taken} changes, {too_fast} refused");
        ensure!(promised(node, "third")?.1 == 19, "the operator's change is lost");
        Ok(())
    });
}
