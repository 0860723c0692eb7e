//! A real Prometheus scrapes two daemons: what contrib/ has for it and for Grafana holds, and an
//! alert names the disk whose reservation is missed, its machine and its tenant, and nobody else.

use anyhow::{Context, ensure};
use headgate_lab::etcd::Etcd;
use headgate_lab::headgate::Headgate;
use headgate_lab::load::Client;
use headgate_lab::prometheus::{Prometheus, check_metrics, contrib, free_address, promtool};
use headgate_lab::tools::{nbdcopy, qemu_io};
use headgate_lab::{Lab, Server, wait_for, with_lab};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

const ALERTS: &str = "prometheus/headgate-alerts.yml";
const ALERT_TESTS: [&str; 2] =
    ["prometheus/headgate-alerts.test.yml", "prometheus/headgate-alerts-days.test.yml"];
const BOARD: &str = "grafana/headgate.json";

const MISSED: &str = "HeadgateReservationMissed";
const ERRORS: &str = "HeadgateStorageErrors";

fn text(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(contrib(path)).with_context(|| path.to_owned())
}

/// Every metric of ours that a text names, as Prometheus has it.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !is_name(c)).filter(|word| word.starts_with("headgate_"));
    words.map(str::to_owned).collect()
}

/// The alerts, which wait for seconds instead of a minute.
pub(super) fn hasty_alerts(lab: &Lab) -> anyhow::Result<PathBuf> {
    let path = lab.dir().join("alerts.yml");
    let patient = text(ALERTS)?;
    ensure!(patient.contains("for: 1m\n"), "no alert waits for a minute");
    fs::write(&path, patient.replace("for: 1m\n", "for: 2s\n"))?;
    Ok(path)
}

/// An expression of the board for Prometheus itself: Grafana puts in what is chosen.
fn chosen(expression: &str) -> String {
    let pairs = [("$job", "headgate"), ("$instance", ".*"), ("$datastore", ".*"), ("$vm", ".*")];
    let chosen =
        pairs.iter().fold(expression.to_owned(), |all, (name, any)| all.replace(name, any));
    chosen.replace("$__rate_interval", "10s")
}

/// Titles and expressions of the board's panels.
fn panels() -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let board: Value = serde_json::from_str(&text(BOARD)?)?;
    let panels = board["panels"].as_array().context("no panels")?;
    let graphs = panels.iter().filter(|panel| panel["type"] != "row");
    let of = |panel: &Value| {
        let targets = panel["targets"].as_array().context("no targets")?;
        let each = targets.iter().map(|target| target["expr"].as_str().map(str::to_owned));
        let title = panel["title"].as_str().context("no title")?.to_owned();
        Ok((title, each.collect::<Option<_>>().context("no expression")?))
    };
    graphs.map(of).collect()
}

/// Two hosts: one whose array gives a fifth of what its disk was promised, and a quiet one.
struct Scene {
    busy: Headgate,
    quiet: Headgate,
    addresses: [SocketAddr; 2],
    _etcd: Etcd,
}

impl Scene {
    fn new(lab: &Lab) -> anyhow::Result<Scene> {
        let etcd = Etcd::start(lab)?;
        let addresses = [free_address()?, free_address()?];
        let [busy, quiet] = addresses.map(|address| format!("--metrics-listen={address}"));
        let busy = Headgate::start_as(lab, "busy", &[], &[&busy, "--etcd", &etcd.url()])?;
        let quiet = Headgate::start_as(lab, "quiet", &[], &[&quiet])?;
        let board = format!("--board={}", lab.subdir("board")?.display());
        let array = ["datastore", "add", "array", "--emulated", "rate=100", "--capacity=1000"];
        let window = ["--latency-threshold=20ms", "--window-period=1s", &board];
        busy.command(&[&array[..], &window].concat())?;
        let disk = ["disk", "create", "--datastore=array", "--size=32M", "--vm"];
        busy.command(&["class", "set", "gold", "--reservation=500"])?;
        busy.command(&[&disk[..], &["shop", "db", "--class=gold"]].concat())?;
        busy.command(&[&disk[..], &["batch", "log"]].concat())?;
        busy.command(&["vm", "set", "shop", "--socket-user=nobody"])?;
        quiet.command(&["disk", "create", "calm", "--size=64M", "--reservation=100"])?;
        let server = format!("nbd+unix:///?socket={}", quiet.nbd_socket().display());
        busy.command(&["datastore", "add", "far", "--nbd", &server, "--capacity=500"])?;
        let remote = ["disk", "create", "remote", "--datastore=far", "--export=calm"];
        let promise = ["--reservation=50", "--latency-target=p99=10s"];
        busy.command(&[&remote[..], &promise].concat())?;
        busy.command(&["disk", "create", "mover", "--size=64M"])?;
        let faulty = ["datastore", "add", "faulty", "--emulated", "rate=1000", "--layer"];
        busy.command(&[&faulty[..], &["error=100%,on=write,count=2"]].concat())?;
        busy.command(&["disk", "create", "bad", "--size=32M", "--datastore=faulty"])?;
        Ok(Scene { busy, quiet, addresses, _etcd: etcd })
    }
}

/// Waits for an alert, and says for what it fires.
fn fires(prometheus: &Prometheus, alert: &str) -> anyhow::Result<Vec<Value>> {
    wait_for(alert, 2 * MINUTE, || {
        let firing = prometheus.firing()?.into_iter().filter(|(name, _)| name == alert);
        let labels: Vec<Value> = firing.map(|(_, labels)| labels).collect();
        Ok((!labels.is_empty()).then_some(labels))
    })
}

#[test]
fn prometheus_accepts_the_metrics_and_the_alerts_and_they_fire_as_their_tests_say() {
    with_lab(&["curl"], |lab| {
        let path = |name: &str| contrib(name).display().to_string();
        promtool(&["check", "rules", &path(ALERTS)])?;
        promtool(&["test", "rules", &path(ALERT_TESTS[0]), &path(ALERT_TESTS[1])])?;
        let named = |text: &str| -> BTreeSet<String> {
            let lines = text.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
            lines.map(str::to_owned).collect()
        };
        let (alerts, tests) =
            (named(&text(ALERTS)?), text(ALERT_TESTS[0])? + &text(ALERT_TESTS[1])?);
        ensure!(alerts.len() > 10, "{alerts:?}");
        let untested: Vec<&String> = alerts
            .iter()
            .filter(|alert| !tests.contains(&format!("alertname: {alert}\n")))
            .collect();
        ensure!(untested.is_empty(), "nothing makes these fire: {untested:?}");

        let address = free_address()?;
        let listen = format!("--metrics-listen={address}");
        let mut daemon = Headgate::start_as(lab, "state", &[], &[&listen])?;
        daemon.command(&["disk", "create", "db", "--size=16M", "--vm=shop"])?;
        check_metrics(address)?;
        daemon.stop()
    });
}

#[test]
fn an_alert_names_the_disk_that_is_short_and_every_graph_has_something_to_show() {
    with_lab(&["curl", "fio", "nbdcopy", "qemu-img"], |lab| {
        let mut scene = Scene::new(lab)?;
        let [busy, quiet] = scene.addresses;
        let prometheus =
            Prometheus::start(lab, &[("busy", busy), ("quiet", quiet)], &hasty_alerts(lab)?)?;
        let calm = prometheus.firing()?;
        ensure!(calm.is_empty(), "before anything is wrong: {calm:#?}");
        let refused = qemu_io(&scene.busy.nbd_uri("bad"), &["write -P 9 0 4k"]);
        ensure!(refused.is_err(), "the storage failed no write");
        let fired = fires(&prometheus, ERRORS)?;
        let named = |alert: &Value| alert["disk"] == "bad" && alert["op"] == "write";
        ensure!(fired.iter().all(named), "{fired:#?}");

        let mut clients = Vec::new();
        for disk in ["db", "log", "remote"] {
            let mut client = Client::nbd(lab, &scene.busy, disk)?;
            client.start()?;
            clients.push(client);
        }
        let content = lab.dir().join("content");
        fs::write(&content, vec![7; 8 << 20])?;
        nbdcopy(&content.display().to_string(), &scene.busy.nbd_uri("mover"))?;
        let slowly = ["disk", "migrate", "mover", "--to=array", "--move-limit=2", "--detach"];
        scene.busy.command(&slowly)?;
        for alert in fires(&prometheus, MISSED)? {
            let is = |label: &str, value: &str| alert[label] == value;
            let named = is("disk", "db") && is("vm", "shop") && is("tenant", "nobody");
            ensure!(is("instance", "busy") && named, "{alert:#}");
        }
        let gold = prometheus.query("headgate_disk_info{class=\"gold\"}")?;
        ensure!(gold.len() == 1 && gold[0]["metric"]["disk"] == "db", "{gold:#?}");

        let shown = panels()?;
        ensure!(shown.len() > 15, "{shown:?}");
        let mut last = String::new();
        let told = wait_for("every graph should show something", MINUTE, || {
            let mut empty = Vec::new();
            for (title, expressions) in &shown {
                for expression in expressions {
                    if prometheus.query(&chosen(expression))?.is_empty() {
                        empty.push(title.as_str());
                    }
                }
            }
            last = format!("{empty:?}");
            Ok(empty.is_empty().then_some(()))
        });
        told.with_context(|| format!("these are empty: {last}"))?;

        let seen: BTreeSet<String> = prometheus.names()?.into_iter().collect();
        let named = metrics_in(&(text(ALERTS)? + &text(BOARD)?));
        let unknown: Vec<&String> = named.difference(&seen).collect();
        ensure!(unknown.is_empty(), "no daemon has these: {unknown:?}");

        for client in clients {
            client.stop()?;
        }
        wait_for("no reservation should be missed without load", 2 * MINUTE, || {
            let firing = prometheus.firing()?;
            Ok(firing.iter().all(|(name, _)| name != MISSED).then_some(()))
        })?;
        let others: Vec<_> =
            prometheus.firing()?.into_iter().filter(|(name, _)| name != ERRORS).collect();
        ensure!(others.is_empty(), "{others:#?}");
        scene.busy.stop()?;
        scene.quiet.stop()
    });
}
