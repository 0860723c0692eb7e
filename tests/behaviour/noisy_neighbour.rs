//! A neighbour floods a datastore on one of three hosts: the view of another host, both hosts'
//! pages, the command line, the alert of a real Prometheus and the report name it, each with the
//! part of every victim's waiting that it took, as the load clients' own counts have it.

use super::{fleet, monitoring, page};
use anyhow::{Context as _, bail, ensure};
use headgate_lab::browser::{Browser, CHROMIUM};
use headgate_lab::etcd::Etcd;
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::Process;
use headgate_lab::prometheus::{Prometheus, free_address};
use headgate_lab::{Lab, Server, count, tools, wait_for, with_lab};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// How long the flood is at least, unless `HEADGATE_FLOOD_SECONDS` says otherwise.
const FLOOD_SECONDS: u32 = 30;

const ALERT: &str = "HeadgateNoisyNeighbour";

const FLOODER: &str = "flooder";

/// Victims, their machines, and the requests that each keeps outstanding.
const VICTIMS: [(&str, &str, u32); 2] = [("db", "shop", 6), ("web", "front", 12)];

const FLOOD_DEPTH: u32 = 64;

/// Requests at the device.
const WINDOW: f64 = 4.0;

/// How far a figure may be from what the clients' counts say, as a part of a disk's waiting.
const OFF: f64 = 0.05;

/// The same of what other hosts show: they are told what has changed by more than a twentieth.
const OFF_TOLD: f64 = 0.1;

/// A client that keeps requests outstanding until it is told to end.
struct Load {
    process: Process,
    report: PathBuf,
}

impl Load {
    fn start(lab: &Lab, daemon: &Headgate, disk: &str, depth: u32) -> anyhow::Result<Load> {
        let report = lab.dir().join(format!("load-{disk}.json"));
        let mut command = Command::new(headgate::binary()?);
        command.args(["load", &daemon.nbd_uri(disk), "--json", "--random", "--read-percent=100"]);
        command.args(["--block-size=4k", "--seconds=3600", "--timeout=120"]);
        command.arg(format!("--depth={depth}"));
        Ok(Load { process: Process::spawn("headgate load", command, &report)?, report })
    }

    /// Ends it, which must have seen no error: how many requests it has seen completed.
    fn end(mut self) -> anyhow::Result<f64> {
        self.process.interrupt()?;
        let status = self.process.wait(MINUTE)?;
        let said = std::fs::read_to_string(&self.report)?;
        ensure!(status.success(), "headgate load: {status}\n{said}");
        tools::json_in(&said)?["total"]["ios"].as_f64().with_context(|| said.clone())
    }
}

/// Three hosts, of which the first has an array that gives 400 where 1,000 were believed.
struct Scene {
    daemons: [Headgate; 3],
    metrics: [SocketAddr; 3],
    pages: [SocketAddr; 3],
    _etcd: Etcd,
}

impl Scene {
    fn new(lab: &Lab) -> anyhow::Result<Scene> {
        let etcd = Etcd::start(lab)?;
        let metrics = [free_address()?, free_address()?, free_address()?];
        let pages = [free_address()?, free_address()?, free_address()?];
        let start = |n: usize, name: &str| {
            let served = page::served_at(lab, pages[n])?;
            let more = [format!("--metrics-listen={}", metrics[n]), served.join("\n")];
            let more: Vec<&str> = more.iter().flat_map(|words| words.split('\n')).collect();
            fleet::start(lab, name, name, &etcd.url(), &more)
        };
        let daemons = [start(0, "one")?, start(1, "two")?, start(2, "three")?];
        let busy = &daemons[0];
        let array = ["datastore", "add", "array", "--emulated", "rate=400", "--capacity=1000"];
        busy.command(&[&array[..], &["--queue-depth=4"]].concat())?;
        busy.command(&["tenant", "set", "red"])?;
        let disk = ["disk", "create", "--datastore=array", "--size=32M", "--vm"];
        for (name, vm, _) in VICTIMS {
            busy.command(&[&disk[..], &[vm, name, "--reservation=100"]].concat())?;
        }
        busy.command(&[&disk[..], &["batch", FLOODER, "--reservation=600"]].concat())?;
        busy.command(&["vm", "set", "batch", "--tenant=red"])?;
        // A disk of the same name elsewhere has nothing to do with it.
        daemons[1].command(&["disk", "create", FLOODER, "--size=16M", "--vm=other"])?;
        Ok(Scene { daemons, metrics, pages, _etcd: etcd })
    }

    /// Requests that the daemon has completed, by disk.
    fn completed(&self) -> anyhow::Result<BTreeMap<&'static str, f64>> {
        let metrics = self.daemons[0].metrics()?;
        let disks = VICTIMS.iter().map(|(name, ..)| *name).chain([FLOODER]);
        let of = |disk| Ok((disk, metrics.of_disk("headgate_disk_read_ops_total", disk)?));
        disks.map(of).collect()
    }
}

/// What a disk's waiting consists of, by the definition, where all requests cost the same and the
/// device takes them in turn: who is at the device is in proportion to what it receives, so of the
/// window's places disk j has `p[j]`. One of `depth` requests waits behind the others at the
/// device, unless it is there itself; requests there are drawn one by one.
struct Due {
    flooder: f64,
    neighbours: f64,
}

fn due(received: &BTreeMap<&'static str, f64>, disk: &str, depth: u32) -> anyhow::Result<Due> {
    let all: f64 = received.values().sum();
    let part = |disk: &str| Ok::<f64, anyhow::Error>(received.get(disk).context("a count")? / all);
    let own = part(disk)?;
    let queued = 1.0 - (WINDOW - 1.0) * own / f64::from(depth);
    Ok(Due { flooder: queued * part(FLOODER)?, neighbours: queued * (1.0 - own) })
}

/// The part that a text gives the flooder: `flooder 61 %`.
fn said_in(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once(&format!("{FLOODER} "))?;
    let (percent, _) = rest.split_once(" %")?;
    Some(percent.parse::<f64>().ok()? / 100.0)
}

/// The part that the line of a disk gives it.
fn said_of(text: &str, disk: &str) -> anyhow::Result<f64> {
    let is_of = |line: &&str| line.split_whitespace().take(2).any(|word| word == disk);
    let found = text.lines().filter(is_of).find_map(said_in);
    found.with_context(|| format!("nothing of {FLOODER} in the line of {disk}: {text}"))
}

fn blamed(blame: &Value) -> anyhow::Result<f64> {
    let neighbours = blame["neighbours"].as_array().context("no neighbours")?;
    let first = neighbours.first().filter(|first| first["disk"] == FLOODER);
    first.and_then(|first| first["part"].as_f64()).with_context(|| blame.to_string())
}

fn rows(browser: &mut Browser, table: &str) -> anyhow::Result<String> {
    let script = format!(
        "[...document.querySelectorAll('{table} tbody tr')] \
         .map((row) => [...row.cells].map((cell) => cell.textContent).join(' ')).join('\\n')"
    );
    Ok(browser.evaluate(&script)?.as_str().context("no text")?.to_owned())
}

/// The rows of a page's table, once each victim's names the flooder.
fn shown(
    browser: &mut Browser,
    address: SocketAddr,
    view: &str,
    table: &str,
) -> anyhow::Result<String> {
    page::open(browser, address, view)?;
    let mut last = String::new();
    let shown = wait_for("the page should name the flooder", MINUTE, || {
        last = rows(browser, table)?;
        let is_whole = VICTIMS.iter().all(|(victim, ..)| said_of(&last, victim).is_ok());
        Ok(is_whole.then(|| last.clone()))
    });
    shown.with_context(|| last)
}

/// A figure of one of the ways, for one victim.
struct Figure {
    way: &'static str,
    victim: &'static str,
    part: f64,
    /// How far off it may be.
    off: f64,
}

/// What the ways say that are of the host itself, and what other hosts and the page show.
fn figures(
    scene: &Scene,
    browser: &mut Browser,
    prometheus: &Prometheus,
) -> anyhow::Result<Vec<Figure>> {
    let [busy, _, other] = &scene.daemons;
    let page_here = shown(browser, scene.pages[0], "disks", "#disk-table")?;
    let page_there = shown(browser, scene.pages[2], "hosts", "#fleet-disk-table")?;
    let top_there = other.command(&["top", "--all", "--once"])?;
    let report = busy.json(&["report", "--since=2h"])?;
    let report_text = busy.command(&["report", "--since=2h"])?;
    let mut figures = Vec::new();
    for (victim, vm, _) in VICTIMS {
        let mut add = |way, part, off| figures.push(Figure { way, victim, part, off });
        let blame = serde_json::from_str(&busy.get(&format!("/v1/disks/{victim}/blame"))?)?;
        add("blame", blamed(&blame)?, OFF);
        let shown = busy.command(&["disk", "show", victim])?;
        let waits = shown.lines().find(|line| line.starts_with("waits for:"));
        add("disk show", waits.and_then(said_in).context(shown.clone())?, OFF);
        add("page", said_of(&page_here, victim)?, OFF);

        let told: Value = serde_json::from_str(&other.get(&format!("/v1/fleet/disks?vm={vm}"))?)?;
        let waits = &told["disks"][0]["waits"];
        ensure!(waits["behind"] == FLOODER && told["disks"][0]["host"] == "one", "{told}");
        add("fleet", waits["behind_part"].as_f64().context("no part")?, OFF_TOLD);
        add("top --all", said_of(&top_there, victim)?, OFF_TOLD);
        add("page of another host", said_of(&page_there, victim)?, OFF_TOLD);

        let alert = alert(prometheus, victim)?.context("the alert is over")?;
        add("alert", alert["value"].as_str().context("no value")?.parse()?, OFF);

        let lines = report["disks"].as_array().context("no disks")?;
        let line = lines.iter().find(|line| line["name"] == victim).context("no line")?;
        let waits = line["promise"]["short_waits"].as_object().context("no waits")?;
        let all: f64 = waits.values().filter_map(Value::as_f64).sum();
        let took = line["promise"]["short_neighbours"][FLOODER].as_f64();
        add("report", took.with_context(|| line.to_string())? / all, OFF);
        add("report in words", said_of(&report_text, victim)?, OFF);
    }
    Ok(figures)
}

/// The alert for a victim, if it fires: it names the flooder, whose it is and where.
fn alert(prometheus: &Prometheus, victim: &str) -> anyhow::Result<Option<Value>> {
    let firing = prometheus
        .alerts()?
        .into_iter()
        .filter(|alert| alert["labels"]["alertname"] == ALERT && alert["labels"]["disk"] == victim);
    let mut all: Vec<Value> = firing.collect();
    ensure!(all.len() < 2, "{all:#?}");
    let Some(alert) = all.pop() else { return Ok(None) };
    let is = |label: &str, value: &str| alert["labels"][label] == value;
    let named = is("neighbour", FLOODER) && is("neighbour_vm", "batch");
    ensure!(named && is("neighbour_tenant", "red") && is("instance", "one"), "{alert:#}");
    Ok(Some(alert))
}

/// Seconds of waiting of a disk for others, and for anything, as Prometheus has added them up.
fn waited(prometheus: &Prometheus, disk: &str) -> anyhow::Result<[f64; 2]> {
    let sum = |more: &str| -> anyhow::Result<f64> {
        let series = format!("headgate_disk_waiting_seconds_total{{disk=\"{disk}\"{more}}}");
        let found = prometheus.query(&format!("sum({series})"))?;
        let value = found.first().and_then(|one| one["value"][1].as_str()).context(series)?;
        Ok(value.parse()?)
    };
    Ok([sum(",cause=\"neighbours\"")?, sum("")?])
}

/// Victims alone beside each other, which get what they should.
fn begin(lab: &Lab, scene: &Scene) -> anyhow::Result<BTreeMap<&'static str, Load>> {
    let mut loads = BTreeMap::new();
    for (victim, _, depth) in VICTIMS {
        loads.insert(victim, Load::start(lab, &scene.daemons[0], victim, depth)?);
    }
    wait_for("both should be served", MINUTE, || {
        let counts = scene.completed()?;
        Ok(VICTIMS.iter().all(|(victim, ..)| counts[victim] > 500.0).then_some(()))
    })?;
    Ok(loads)
}

/// Ends the clients: what they counted is what the daemon counted.
fn end(scene: &Scene, loads: BTreeMap<&'static str, Load>) -> anyhow::Result<()> {
    let mut clients = BTreeMap::new();
    for (disk, load) in loads {
        clients.insert(disk, load.end()?);
    }
    let counted = scene.completed()?;
    for (disk, ios) in &clients {
        // Those that were under way when the client ended may be in one of the counts.
        let under_way = f64::from(FLOOD_DEPTH);
        ensure!((counted[disk] - ios).abs() <= under_way, "{disk}: {ios}, {counted:?}");
    }
    Ok(())
}

#[test]
fn who_floods_is_named_everywhere_with_the_part_that_it_took() {
    with_lab(&[CHROMIUM, "curl", "unshare", "hostname"], |lab| {
        let mut scene = Scene::new(lab)?;
        let daemons: Vec<(&str, SocketAddr)> =
            ["one", "two", "three"].into_iter().zip(scene.metrics).collect();
        let prometheus = Prometheus::start(lab, &daemons, &monitoring::hasty_alerts(lab)?)?;
        let mut loads = begin(lab, &scene)?;
        let calm = prometheus.firing()?;
        ensure!(calm.is_empty(), "before the flood: {calm:#?}");

        loads.insert(FLOODER, Load::start(lab, &scene.daemons[0], FLOODER, FLOOD_DEPTH)?);
        let begun = Instant::now();
        for (victim, ..) in VICTIMS {
            wait_for("an alert should name the flooder", 2 * MINUTE, || {
                alert(&prometheus, victim)
            })?;
        }
        let alerted = begun.elapsed();
        let mut browser = Browser::start(lab)?;
        let before = scene.completed()?;
        let waits = |disk: &str| waited(&prometheus, disk);
        let waited_before = VICTIMS.map(|(victim, ..)| waits(victim));
        let length = Duration::from_secs(count("HEADGATE_FLOOD_SECONDS", FLOOD_SECONDS)?.into());
        std::thread::sleep(length.saturating_sub(begun.elapsed()));
        let after = scene.completed()?;
        let received: BTreeMap<&str, f64> =
            after.iter().map(|(disk, count)| (*disk, count - before[disk])).collect();
        let waited_after = VICTIMS.map(|(victim, ..)| waits(victim));
        let figures = figures(&scene, &mut browser, &prometheus)?;
        eprintln!("alerts after {alerted:.1?}; completed since then {received:?}");
        let mut wrong = Vec::new();
        for (n, (victim, _, depth)) in VICTIMS.into_iter().enumerate() {
            let due = due(&received, victim, depth)?;
            let mut check = |way: &str, part: f64, due: f64, off: f64| {
                eprintln!("  {victim}, {way}: {part:.3}, due {due:.3}");
                if (part - due).abs() > off {
                    wrong.push(format!("{victim}, {way}: {part:.3}, and {due:.3} is due"));
                }
            };
            for figure in figures.iter().filter(|figure| figure.victim == victim) {
                check(figure.way, figure.part, due.flooder, figure.off);
            }
            let (Ok(before), Ok(after)) = (&waited_before[n], &waited_after[n]) else {
                bail!("Prometheus has no waiting of {victim}");
            };
            let [others, all] = [0, 1].map(|of| after[of] - before[of]);
            check("all neighbours, in Prometheus", others / all, due.neighbours, OFF);
        }
        ensure!(wrong.is_empty(), "{wrong:#?}");

        end(&scene, loads)?;
        wait_for("the alert should end with the flood", MINUTE, || {
            let firing = prometheus.firing()?;
            Ok(firing.iter().all(|(name, _)| name != ALERT).then_some(()))
        })?;
        browser.ensure_content()?;
        scene.daemons.iter_mut().try_for_each(Server::stop)
    });
}
