//! A striped disk's policy is set at its gateway, and its nodes keep it: as far as the gateway's
//! certificate reaches, also where a node was away, and for nobody who may not say so.

use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::stripes::{Node, WIDE};
use headgate_lab::tls::{certificates, issue};
use headgate_lab::{Lab, Server, wait_for, with_lab};
use std::path::{Path, PathBuf};
use std::time::Duration;

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
                node.disk(disk, &["--size=9M", "--shares=10"])?;
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
    with_lab(&["openssl"], |lab| {
        let [node_tls, tls, _] = pki(lab)?;
        let nodes = nodes(lab, &node_tls)?;
        let mut gateway = gateway(lab, "gateway", &tls, &nodes)?;
        let fewer: Vec<String> =
            nodes[..2].iter().map(|node| format!("nbds://{}", node.address)).collect();
        gateway.command(&["datastore", "add", "fewer", "--stripe", &fewer.join(",")])?;
        create(&gateway, "disk", &["--size=12M", "--reservation=200", "--shares=200"])?;
        all_promise(&nodes, "disk", 200, 200)?;

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
