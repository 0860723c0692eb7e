//! Hosts that meet in one etcd show each other's disks: from any of them all, those of one name
//! told apart, also while a host is down, while etcd is, and beside values that are no summaries.

use anyhow::{Context, ensure};
use headgate_fleet::{Header, HostKey, Part, PartKey, PartKind, UnixSeconds};
use headgate_lab::etcd::Etcd;
use headgate_lab::headgate::Headgate;
use headgate_lab::{Lab, Server, wait_for, with_lab};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// An answer takes no longer, whatever etcd does. Generous: the machine has other work.
const PROMPT: Duration = Duration::from_secs(5);

/// How old what a host says may become while it runs and is heard, in seconds: three periods of
/// five seconds, for disks, behind its last word.
const FRESH: f64 = 25.0;

/// A daemon on a host of this name that meets others in an etcd.
pub(super) fn start(
    lab: &Lab,
    name: &str,
    hostname: &str,
    etcd: &str,
    more: &[&str],
) -> anyhow::Result<Headgate> {
    let script = format!("hostname {hostname} && exec \"$@\"");
    let through = ["unshare", "--uts", "sh", "-c", &script, "sh"];
    Headgate::start_as(lab, name, &through, &[&["--etcd", etcd], more].concat())
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// What a daemon calls hosts, with their names and states.
fn hosts(daemon: &Headgate) -> anyhow::Result<BTreeMap<String, (String, String)>> {
    let said = daemon.json(&["host", "list"])?;
    let host = |one: &Value| {
        (
            text(one, "label").to_owned(),
            (text(one, "name").to_owned(), text(one, "state").to_owned()),
        )
    };
    Ok(list(&said, "hosts").iter().map(host).collect())
}

/// All disks that a daemon shows, as `HOST NAME`.
fn disks(daemon: &Headgate) -> anyhow::Result<BTreeSet<String>> {
    let said = daemon.json(&["disk", "list", "--all"])?;
    let disk = |one: &Value| format!("{} {}", text(one, "host"), text(one, "name"));
    Ok(list(&said, "disks").iter().map(disk).collect())
}

fn id(daemon: &Headgate) -> anyhow::Result<String> {
    let said = daemon.json(&["host", "list"])?;
    let own =
        list(&said, "hosts").iter().find(|one| one["is_this"] == true).context("no own host")?;
    Ok(text(own, "id").to_owned())
}

/// The ages of what each host said, by identity, and of the view, in seconds.
fn ages(daemon: &Headgate) -> anyhow::Result<(BTreeMap<String, f64>, Option<f64>)> {
    let begun = Instant::now();
    let said: Value = serde_json::from_str(&daemon.get("/v1/hosts")?)?;
    ensure!(begun.elapsed() < PROMPT, "the API waited {:?}", begun.elapsed());
    let age = |one: &Value| Some((text(one, "id").to_owned(), one["age_seconds"].as_f64()?));
    Ok((
        list(&said, "hosts").iter().filter_map(age).collect(),
        said["view"]["age_seconds"].as_f64(),
    ))
}

fn wait_for_states(
    daemon: &Headgate,
    wanted: &[(String, &str)],
) -> anyhow::Result<BTreeMap<String, (String, String)>> {
    let wanted: BTreeMap<&String, &str> =
        wanted.iter().map(|(label, state)| (label, *state)).collect();
    wait_for(&format!("the view should be {wanted:?}"), MINUTE, || {
        let all = hosts(daemon)?;
        let is = |(label, state): (&&String, &&str)| {
            all.get(*label).is_some_and(|(_, found)| found == *state)
        };
        Ok((all.len() == wanted.len() && wanted.iter().all(is)).then_some(all))
    })
}

/// Three hosts, the first two of one name, each with a disk `db` and one of its own.
struct Fleet {
    etcd: Etcd,
    daemons: [Headgate; 3],
    /// What they are called.
    labels: [String; 3],
}

impl Fleet {
    fn start(lab: &Lab) -> anyhow::Result<Fleet> {
        let etcd = Etcd::start(lab)?;
        let daemons = [
            start(lab, "one", "web", &etcd.url(), &[])?,
            start(lab, "two", "web", &etcd.url(), &[])?,
            start(lab, "three", "db", &etcd.url(), &[])?,
        ];
        for (n, daemon) in daemons.iter().enumerate() {
            let own = format!("own{n}");
            for disk in ["db", &own] {
                daemon.command(&[
                    "disk",
                    "create",
                    disk,
                    "--size=16M",
                    "--vm",
                    &format!("vm{n}"),
                    "--reservation=5",
                ])?;
            }
        }
        let ids = [id(&daemons[0])?, id(&daemons[1])?];
        let labels =
            [format!("web~{}", &ids[0][..4]), format!("web~{}", &ids[1][..4]), "db".to_owned()];
        Ok(Fleet { etcd, daemons, labels })
    }

    /// All disks, by what hosts are called.
    fn all_disks(&self) -> BTreeSet<String> {
        let of = |(n, label): (usize, &String)| [format!("{label} db"), format!("{label} own{n}")];
        self.labels.iter().enumerate().flat_map(of).collect()
    }

    fn each_shows_all(&self) -> anyhow::Result<()> {
        let all = self.all_disks();
        for daemon in &self.daemons {
            wait_for(&format!("it should show {all:?}"), MINUTE, || {
                Ok((disks(daemon)? == all).then_some(()))
            })?;
        }
        Ok(())
    }

    fn states<'a>(&self, states: [&'a str; 3]) -> Vec<(String, &'a str)> {
        self.labels.iter().cloned().zip(states).collect()
    }
}

#[test]
fn each_host_shows_all_also_while_one_is_down() {
    with_lab(&["unshare", "hostname"], |lab| {
        let mut fleet = Fleet::start(lab)?;
        fleet.each_shows_all()?;
        let running = fleet.states(["running"; 3]);
        for daemon in &fleet.daemons {
            let all = wait_for_states(daemon, &running)?;
            ensure!(all[&fleet.labels[0]].0 == "web", "the name stands beside the label: {all:?}");
        }
        let shown = fleet.daemons[2].command(&["top", "--all", "--once"])?;
        for label in &fleet.labels {
            ensure!(shown.contains(label.as_str()), "{label} is missing: {shown}");
        }
        let told = fleet.daemons[2].json(&["disk", "list", "--all"])?;
        let one = list(&told, "disks").iter().find(|one| text(one, "name") == "own0");
        let one = one.context("no disk of the first host")?;
        ensure!(text(one, "vm") == "vm0" && one["reservation"] == 5, "{one}");
        ensure!(one["age_seconds"].as_f64().is_some_and(|age| age < FRESH), "{one}");

        // Killed, it is shown with what it said last, by the others and by one that is new.
        let last = fleet.daemons[0].pid();
        fleet.daemons[0].kill()?;
        let down = fleet.states(["silent", "running", "running"]);
        wait_for_states(&fleet.daemons[1], &down)?;
        let list_of = fleet.daemons[2].command(&["host", "list"])?;
        ensure!(list_of.contains("silent, last seen"), "{list_of}");
        ensure!(disks(&fleet.daemons[1])? == fleet.all_disks(), "what it had is forgotten");
        fleet.daemons[1].stop()?;
        fleet.daemons[1].start_again()?;
        wait_for_states(&fleet.daemons[1], &down)?;
        ensure!(disks(&fleet.daemons[1])? == fleet.all_disks(), "a new daemon does not know it");

        // It comes back, with a disk less; and one stops in good order.
        fleet.daemons[0].start_again()?;
        ensure!(fleet.daemons[0].pid() != last, "it is another process");
        fleet.daemons[0].command(&["disk", "remove", "own0"])?;
        wait_for_states(&fleet.daemons[2], &running)?;
        let gone = format!("{} own0", fleet.labels[0]);
        wait_for("the removed disk should go", MINUTE, || {
            Ok((!disks(&fleet.daemons[2])?.contains(&gone)).then_some(()))
        })?;
        fleet.daemons[2].stop()?;
        wait_for_states(&fleet.daemons[0], &fleet.states(["running", "running", "stopped"]))?;
        fleet.daemons[..2].iter_mut().try_for_each(Server::stop)
    });
}

/// An etcd that stands still answers nothing and closes nothing; one that is killed refuses.
#[test]
fn without_etcd_the_view_grows_old_and_nobody_waits() {
    with_lab(&["unshare", "hostname"], |lab| {
        let mut fleet = Fleet::start(lab)?;
        fleet.each_shows_all()?;
        let other = id(&fleet.daemons[1])?;
        let pid = rustix::process::Pid::from_raw(i32::try_from(fleet.etcd.pid())?);
        let pid = pid.context("no process")?;
        for stops in [Stop::Stands, Stop::Dies] {
            match stops {
                Stop::Stands => {
                    rustix::process::kill_process(pid, rustix::process::Signal::STOP)?;
                }
                Stop::Dies => fleet.etcd.kill()?,
            }
            let old = wait_for("what others said should grow old", MINUTE, || {
                let (hosts, view) = ages(&fleet.daemons[0])?;
                let age = *hosts.get(&other).context("it is forgotten")?;
                Ok((age > 25.0 && view.is_some_and(|view| view > 20.0)).then_some(age))
            })?;
            let own = id(&fleet.daemons[0])?;
            let (hosts, _) = ages(&fleet.daemons[0])?;
            ensure!(hosts[&own] < FRESH, "what it says of itself needs no etcd: {hosts:?}");
            let said: Value = serde_json::from_str(&fleet.daemons[0].get("/v1/hosts")?)?;
            ensure!(!text(&said["view"], "error").is_empty(), "nothing is said of etcd: {said}");
            let state =
                |one: &Value| (text(one, "id") == other).then(|| text(one, "state").to_owned());
            let state = list(&said, "hosts").iter().find_map(state);
            ensure!(state.as_deref() == Some("unknown"), "{state:?}: nobody knows that it is down");
            let begun = Instant::now();
            fleet.daemons[0].command(&["disk", "create", "meanwhile", "--size=8M"])?;
            fleet.daemons[0].command(&["disk", "remove", "meanwhile"])?;
            ensure!(begun.elapsed() < 2 * PROMPT, "a change waited {:?}", begun.elapsed());
            match stops {
                Stop::Stands => {
                    rustix::process::kill_process(pid, rustix::process::Signal::CONT)?;
                }
                Stop::Dies => fleet.etcd.start_again()?,
            }
            for daemon in &fleet.daemons {
                wait_for("ages should fall again", MINUTE, || {
                    let (hosts, view) = ages(daemon)?;
                    let fresh = |age: &f64| *age < old.min(15.0);
                    let is_whole = hosts.len() == 3 && hosts.values().all(fresh);
                    Ok((is_whole && view.is_some_and(|age| fresh(&age))).then_some(()))
                })?;
                let said: Value = serde_json::from_str(&daemon.get("/v1/hosts")?)?;
                ensure!(said["view"]["error"].is_null(), "{}", said["view"]);
            }
        }
        fleet.each_shows_all()?;
        fleet.daemons.iter_mut().try_for_each(Server::stop)
    });
}

/// What etcd does.
#[derive(Clone, Copy)]
enum Stop {
    Stands,
    Dies,
}

/// Whoever can write to etcd can say what he likes.
#[test]
fn values_that_are_no_summaries_harm_nobody_and_are_named() {
    with_lab(&["unshare", "hostname"], |lab| {
        let mut fleet = Fleet::start(lab)?;
        fleet.each_shows_all()?;
        let strange = "00112233445566778899aabbccddeeff";
        let victim = id(&fleet.daemons[0])?;
        let huge = vec![b'x'; 1_200_000];
        let newer = [&b"HGFLEET2"[..], &[0; 40]].concat();
        for (key, value, why) in [
            (format!("{strange}/host"), &b"garbage"[..], "it is no summary of a host"),
            (format!("{strange}/disks-000"), &huge, "1200000 bytes"),
            (format!("{strange}/advice"), &newer, "version 2, and this daemon reads version 1"),
            ("nonsense\u{1b}[2J".to_owned(), &b""[..], "it has no key of a summary"),
            // In the place of what a host said: it says it again.
            (format!("{victim}/disks-000"), &b"gone"[..], ""),
        ] {
            fleet.etcd.put(&format!("/headgate/fleet/{key}"), value)?;
            if why.is_empty() {
                continue;
            }
            for daemon in &fleet.daemons {
                wait_for(&format!("'{why}' should be said of {key}"), MINUTE, || {
                    let said = daemon.command(&["host", "list"])?;
                    ensure!(!said.contains('\u{1b}'), "{said:?}");
                    Ok(said.contains(why).then_some(()))
                })?;
            }
        }
        fleet.each_shows_all()?;
        // A daemon that reads it all anew is as well off.
        fleet.daemons[1].kill()?;
        fleet.daemons[1].start_again()?;
        fleet.each_shows_all()?;
        let said = fleet.daemons[1].json(&["host", "list"])?;
        wait_for("the host's own word should be back", MINUTE, || {
            let said = fleet.daemons[1].json(&["host", "list"])?;
            Ok((said["view"]["unreadable"] == 4).then_some(()))
        })
        .with_context(|| said.to_string())?;
        for daemon in &mut fleet.daemons {
            daemon.ensure_running()?;
        }
        fleet.daemons.iter_mut().try_for_each(Server::stop)
    });
}

/// A directory that two hosts have is one datastore, with what both have on it.
#[test]
fn a_datastore_of_two_hosts_is_one() {
    with_lab(&["unshare", "hostname"], |lab| {
        let mut fleet = Fleet::start(lab)?;
        let shared = lab.subdir("shared")?;
        let other = lab.subdir("other")?;
        for (n, daemon) in fleet.daemons.iter().enumerate() {
            let (name, directory): (&str, &Path) = match n {
                0 => ("fast", &shared),
                1 => ("quick", &shared),
                _ => ("fast", &other),
            };
            let directory = directory.display().to_string();
            daemon.command(&["datastore", "add", name, "--dir", &directory])?;
            let disk = format!("shared{n}");
            daemon.command(&[
                "disk",
                "create",
                &disk,
                "--size=16M",
                "--datastore",
                name,
                "--reservation=10",
            ])?;
        }
        for daemon in &fleet.daemons {
            let together = wait_for("two hosts should have one datastore", MINUTE, || {
                let said = daemon.json(&["datastore", "list", "--all"])?;
                let several = |one: &&Value| list(one, "hosts").len() > 1;
                let all: Vec<Value> =
                    list(&said, "datastores").iter().filter(several).cloned().collect();
                let is_whole = all.first().is_some_and(|one| one["disks"] == 2);
                Ok((all.len() == 1 && is_whole).then(|| all[0].clone()))
            })?;
            let names: BTreeSet<&str> =
                list(&together, "hosts").iter().map(|one| text(one, "name")).collect();
            ensure!(names == BTreeSet::from(["fast", "quick"]), "{together}");
            ensure!(together["reserved_iops"] == 20, "{together}");
        }
        // The advice of one counts the other's disk, which nobody moves from here.
        let name = format!("{}/shared1", fleet.labels[1]);
        wait_for("advice should count the other host's disk", MINUTE, || {
            let advice = fleet.daemons[0].command(&["advise", "--json"])?;
            Ok(advice.contains(&name).then_some(()))
        })?;
        fleet.daemons.iter_mut().try_for_each(Server::stop)
    });
}

/// A clone of a host's state directory tells things in its name.
#[test]
fn a_second_daemon_of_one_identity_is_named() {
    with_lab(&["unshare", "hostname"], |lab| {
        let mut fleet = Fleet::start(lab)?;
        fleet.each_shows_all()?;
        let own = id(&fleet.daemons[0])?;
        let double = || fleet.daemons[0].metrics()?.plain("headgate_fleet_duplicate_identity");
        ensure!(double()? == 0.0, "nobody has told anything in its name");
        let mut key = [0; 16];
        for (byte, at) in key.iter_mut().zip((0..32).step_by(2)) {
            *byte = u8::from_str_radix(&own[at..at + 2], 16)?;
        }
        let key = PartKey { host: HostKey(key), kind: PartKind::Advice };
        let header = Header { instance: [0xab; 16], epoch: 1, at: UnixSeconds(1_800_000_000) };
        let said = Part::Advice(Vec::new()).encode(header);
        fleet.etcd.put(&key.to_string(), &said)?;
        wait_for("the clone should be named", MINUTE, || {
            let said = fleet.daemons[0].json(&["host", "list"])?;
            let own = list(&said, "hosts").iter().find(|one| one["is_this"] == true);
            let named = own.is_some_and(|one| text(one, "duplicate") == "ab".repeat(16));
            Ok(named.then_some(()))
        })?;
        ensure!(double()? == 1.0, "metrics know nothing of it");
        let shown = fleet.daemons[0].command(&["host", "show", &own])?;
        ensure!(shown.contains(&format!("daemon {}, too", "ab".repeat(16))), "{shown}");
        for other in &fleet.daemons[1..] {
            let said = other.json(&["host", "list"])?;
            let named = list(&said, "hosts").iter().any(|one| !one["duplicate"].is_null());
            ensure!(!named, "each host speaks of itself: {said}");
        }
        // It says again what it has to say, and goes on serving.
        fleet.each_shows_all()?;
        fleet.daemons.iter_mut().try_for_each(Server::stop)
    });
}

/// Stands in front of an etcd, and says of its size what a test wants; all else is etcd's word.
struct Liar {
    address: SocketAddr,
    /// Whether it says that etcd stores two gigabytes.
    is_full: Arc<AtomicBool>,
}

impl Liar {
    fn start(etcd: &Etcd) -> anyhow::Result<Liar> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let behind = etcd.url().trim_start_matches("http://").to_owned();
        let is_full = Arc::new(AtomicBool::new(true));
        let lies = is_full.clone();
        // It ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&behind) else { continue };
                let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { continue };
                std::thread::spawn(move || pass(from, to, |_| {}));
                let lies = lies.clone();
                let lie = move |answer: &mut [u8]| {
                    if lies.load(Ordering::Relaxed) {
                        enlarge(answer);
                    }
                };
                std::thread::spawn(move || pass(server, client, lie));
            }
        });
        Ok(Liar { address, is_full })
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut [u8])) {
    let mut buffer = [0; 64 << 10];
    while let Ok(read) = from.read(&mut buffer)
        && read > 0
    {
        change(&mut buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Puts another body of the same length into an answer that says how much etcd stores.
fn enlarge(answer: &mut [u8]) {
    let find = |what: &[u8]| answer.windows(what.len()).position(|found| found == what);
    let (Some(_), Some(head)) = (find(b"\"dbSizeInUse\""), find(b"\r\n\r\n")) else { return };
    let body = &mut answer[head + 4..];
    let said = b"{\"dbSizeInUse\":\"2000000000\"}";
    body.fill(b' ');
    body[..said.len()].copy_from_slice(said);
}

/// Leases need an etcd that takes writes: the view gives way long before it takes none.
#[test]
fn nothing_is_told_while_etcd_stores_too_much() {
    with_lab(&["unshare", "hostname"], |lab| {
        let etcd = Etcd::start(lab)?;
        let liar = Liar::start(&etcd)?;
        let through = format!("http://{}", liar.address);
        let mut full = start(lab, "full", "full", &through, &[])?;
        let mut other = start(lab, "other", "other", &etcd.url(), &[])?;
        let running = |label: &str| (label.to_owned(), "running");
        // It says why, hears the other, and tells nobody of itself.
        wait_for_states(&full, &[running("full"), running("other")])?;
        let said = full.command(&["host", "list"])?;
        ensure!(said.contains("this host tells nothing more beyond 1 GiB"), "{said}");
        ensure!(said.contains("--auto-compaction-retention"), "what helps is missing: {said}");
        ensure!(full.metrics()?.plain("headgate_fleet_view_up")? == 0.0, "metrics say nothing");
        wait_for_states(&other, &[running("other")])?;
        // It asks once a minute.
        liar.is_full.store(false, Ordering::Relaxed);
        wait_for("the other should hear of it", 3 * MINUTE, || {
            Ok((hosts(&other)?.len() == 2).then_some(()))
        })?;
        wait_for("nothing should be wrong any more", MINUTE, || {
            let up = full.metrics()?.plain("headgate_fleet_view_up")?;
            Ok((up == 1.0).then_some(()))
        })?;
        full.stop()?;
        other.stop()
    });
}
