//! Classes and documents: many disks have what is said of them, all of them or none, whenever the
//! daemon is killed; and what is applied twice changes nothing.

use anyhow::{Context, ensure};
use headgate_lab::headgate::{self, Headgate};
use headgate_lab::process::{Process, run_to_end};
use headgate_lab::{Lab, Server, count, wait_for, with_lab};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Kills of a test, unless `HEADGATE_KILLS` says otherwise.
const KILLS: u32 = 6;
const DISKS: usize = 500;
const CLASSES: [&str; 5] = ["bronze", "copper", "gold", "iron", "silver"];
/// For what makes all disks.
const LONG: Duration = Duration::from_secs(400);
const PATIENCE: Duration = Duration::from_secs(120);

/// Documents in JSON, which is YAML: so many disks in five classes, each class with a reservation.
fn documents(reservations: [u64; 5], disks: usize) -> Value {
    let class = |(name, reservation): (&str, u64)| json!({"name": name, "policy": {"reservation": reservation, "limit_bandwidth": "200M"}});
    let classes: Vec<Value> = CLASSES.into_iter().zip(reservations).map(class).collect();
    let disk = |at: usize| {
        let mut disk = json!({"name": format!("d{at:03}"), "datastore": "array", "size": "1M", "class": CLASSES[at % 5]});
        if at.is_multiple_of(7) {
            disk["vm"] = "web".into();
        }
        if at.is_multiple_of(50) {
            disk["policy"] = json!({"shares": 7, "limit_bandwidth": "none"});
        }
        disk
    };
    let disks: Vec<Value> = (0..disks).map(disk).collect();
    json!({"classes": classes, "disks": disks})
}

fn write(lab: &Lab, name: &str, documents: &Value) -> anyhow::Result<PathBuf> {
    let path = lab.dir().join(name);
    fs::write(&path, serde_json::to_string_pretty(documents)?)?;
    Ok(path)
}

/// A daemon with an array that can promise 100,000 IOPS.
fn daemon(lab: &Lab) -> anyhow::Result<Headgate> {
    let daemon = Headgate::start(lab)?;
    daemon.command(&["datastore", "add", "array", "--emulated", "rate=100000"])?;
    Ok(daemon)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the lab's paths are text")
}

fn apply(daemon: &Headgate, path: &Path, more: &[&str]) -> anyhow::Result<String> {
    daemon.command_for(LONG, &[&["apply", text(path)], more].concat())
}

/// A command that must fail: what it says.
fn refused(daemon: &Headgate, words: &[&str]) -> anyhow::Result<(String, String)> {
    let mut command = Command::new(headgate::binary()?);
    command.args(words).env("HEADGATE_STATE_DIR", daemon.state_dir());
    let finished = run_to_end(command, PATIENCE)?;
    ensure!(!finished.status.success(), "headgate {words:?} was not refused");
    Ok((finished.stdout, finished.stderr))
}

/// Starts a command beside the test.
fn begin(lab: &Lab, daemon: &Headgate, words: &[&str]) -> anyhow::Result<Process> {
    let mut command = Command::new(headgate::binary()?);
    command.args(words).env("HEADGATE_STATE_DIR", daemon.state_dir());
    Process::spawn("command", command, &lab.dir().join("command.log"))
}

/// What there is, as documents.
fn state(daemon: &Headgate) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&daemon.command(&["get", "classes", "disks", "-o", "json"])?)?)
}

/// Of each disk that is served: its class, and the reservation in force, read back.
fn in_force(daemon: &Headgate) -> anyhow::Result<Vec<(String, u64)>> {
    let disks = daemon.json(&["disk", "list"])?;
    let of = |disk: &Value| {
        let policy = &disk["effective_policy"];
        ensure!(policy.is_object(), "not served: {disk:#}");
        let class = disk["class"].as_str().context("no class")?;
        Ok((class.to_owned(), policy["reservation"].as_u64().unwrap_or(0)))
    };
    disks.as_array().context("no list")?.iter().map(of).collect()
}

/// The reservations of the five classes, as the catalog has them.
fn said(daemon: &Headgate) -> anyhow::Result<Vec<u64>> {
    let classes = daemon.json(&["class", "list"])?;
    let rates = classes.as_array().context("no list")?.iter();
    Ok(rates.filter_map(|class| class["policy"]["reservation"].as_u64()).collect())
}

/// That each disk has in force what its class says.
fn ensure_follows(daemon: &Headgate, classes: &[u64]) -> anyhow::Result<usize> {
    let disks = in_force(daemon)?;
    for (class, rate) in &disks {
        let at = CLASSES.iter().position(|name| name == class).context("an unknown class")?;
        let says = classes.get(at).copied();
        ensure!(says == Some(*rate), "a disk of {class} has {rate}, and its class says {says:?}");
    }
    Ok(disks.len())
}

#[test]
fn five_hundred_disks_in_five_classes_are_applied_once() {
    with_lab(&[], |lab| {
        let mut daemon = daemon(lab)?;
        let site = write(lab, "site.json", &documents([10, 20, 30, 40, 50], DISKS))?;
        let dry = apply(&daemon, &site, &["--dry-run"])?;
        ensure!(dry.contains("+ class gold: limit_bandwidth 200M, reservation 30"), "{dry}");
        ensure!(dry.contains("datastore array: 0 -> 15000 of 100000 IOPS reserved"), "{dry}");
        // Like disks are in one line: the difference of 505 things is read at a glance.
        ensure!(dry.lines().count() <= 60, "{} lines", dry.lines().count());
        ensure!(dry.contains("and 79 more") && dry.ends_with("the promises fit\n"), "{dry}");
        ensure!(
            state(&daemon)? == json!({"classes": [], "disks": []}),
            "a dry run changes nothing"
        );

        let done = apply(&daemon, &site, &[])?;
        ensure!(done.ends_with("applied: 5 change(s), 500 disk(s) created, 0 removed\n"), "{done}");
        ensure!(ensure_follows(&daemon, &[10, 20, 30, 40, 50])? == DISKS);
        let as_documents = state(&daemon)?;
        for _ in 0..2 {
            let again = apply(&daemon, &site, &[])?;
            ensure!(
                again
                    == "nothing to change: 5 class(es), 0 datastore(s) and 500 disk(s) are as the documents say\n",
                "{again}"
            );
            daemon.kill()?;
            daemon.start_again()?;
        }
        ensure!(state(&daemon)? == as_documents, "a restart changes nothing");
        // What there is, in both forms, is what there is.
        for form in ["yaml", "json"] {
            let file = lab.dir().join(format!("got.{form}"));
            fs::write(&file, daemon.command(&["get", "-o", form])?)?;
            let same = apply(&daemon, &file, &["--set", "other", "--prune-disks"])?;
            ensure!(same.starts_with("nothing to change: 5 class(es)"), "{form}: {same}");
        }
        // A class changes 100 disks in one line; a disk of its own is another.
        let more = write(lab, "more.json", &documents([10, 20, 35, 40, 50], DISKS))?;
        let changed = apply(&daemon, &more, &[])?;
        ensure!(changed.contains("~ class gold: reservation 30 -> 35\n"), "{changed}");
        ensure!(changed.contains("~ 100 disks: reservation 30 -> 35\n"), "{changed}");
        ensure!(changed.contains("datastore array: 15000 -> 15500 of 100000"), "{changed}");
        ensure!(ensure_follows(&daemon, &[10, 20, 35, 40, 50])? == DISKS);

        // What does not fit is refused with figures, in dry runs too, and changes nothing.
        let greedy = write(lab, "greedy.json", &documents([10, 20, 2_000, 40, 50], DISKS))?;
        let before = state(&daemon)?;
        for words in [&["apply", text(&greedy)][..], &["apply", text(&greedy), "--dry-run"]] {
            let (_, why) = refused(&daemon, words)?;
            let figures = "can promise 100000 IOPS, has promised 15500, and would have promised 212000: 112000 too many";
            ensure!(why.contains(figures) && why.contains("'d002' (+1965)"), "{why}");
            ensure!(state(&daemon)? == before);
        }
        let (_, why) = refused(&daemon, &["class", "remove", "gold"])?;
        ensure!(why.contains("100 disk(s) have class 'gold': d002"), "{why}");
        Ok(())
    });
}

/// Kills the daemon while documents are applied, at instants spread over all of it.
#[test]
fn documents_that_are_cut_by_kills_come_to_the_same_end() {
    with_lab(&[], |lab| {
        let mut daemon = daemon(lab)?;
        let kills = count("HEADGATE_KILLS", KILLS)?;
        let wanted = [10, 20, 30, 40, 50];
        let site = write(lab, "site.json", &documents(wanted, DISKS))?;
        let mut seen = BTreeSet::new();
        for kill in 0..kills {
            let mut command = begin(lab, &daemon, &["apply", text(&site)])?;
            // Before anything, and then after ever more disks.
            let enough = DISKS * kill as usize / kills as usize;
            let images = daemon.state_dir().join("emulated/array");
            wait_for("disks should be made", PATIENCE, || {
                let entries = fs::read_dir(&images)?.filter_map(Result::ok);
                let made = entries.filter(|one| one.path().extension().is_some_and(|e| e == "img"));
                Ok((made.count() >= enough).then_some(()))
            })?;
            std::thread::sleep(Duration::from_millis(u64::from(kill % 5) * 3));
            daemon.kill()?;
            command.wait(PATIENCE)?;
            daemon.start_again()?;
            // Its classes are all there, or none; and no disk has anything else.
            let classes = said(&daemon)?;
            ensure!(classes.is_empty() || classes == wanted, "{classes:?}");
            let made = ensure_follows(&daemon, &classes)?;
            // What is recorded and not made is promised to nobody else.
            let store = daemon.json(&["datastore", "show", "array"])?;
            let promised = if classes.is_empty() { 0 } else { 15_000 };
            ensure!(store["reserved_iops"] == promised, "{made} disks: {store:#}");
            seen.insert(made);
        }
        eprintln!("{kills} kills while documents were applied, after {seen:?} disks");
        let last = apply(&daemon, &site, &[])?;
        ensure!(last.contains("0 removed") || last.contains("nothing to change"), "{last}");
        ensure!(ensure_follows(&daemon, &wanted)? == DISKS);
        let got = state(&daemon)?;
        ensure!(got == documents(wanted, DISKS), "the end is not what was asked for: {got:#}");
        let again = apply(&daemon, &site, &[])?;
        ensure!(again.starts_with("nothing to change"), "{again}");
        Ok(())
    });
}

/// Kills the daemon around the instant at which 500 disks change together.
#[test]
fn a_change_of_500_disks_is_made_at_all_of_them_or_at_none() {
    with_lab(&[], |lab| {
        let mut daemon = daemon(lab)?;
        let kills = count("HEADGATE_KILLS", KILLS)?;
        let mut rates = [10, 20, 30, 40, 50];
        let site = write(lab, "site.json", &documents(rates, DISKS))?;
        apply(&daemon, &site, &[])?;
        // How long such a change takes here: instants are chosen by it, and nothing is judged.
        let began = Instant::now();
        daemon.command(&["class", "set", "gold", "--reservation", "31"])?;
        let usual = began.elapsed();
        rates[2] = 31;
        let (mut old, mut new) = (0, 0);
        for kill in 0..kills {
            let mut next = rates;
            let gold = (rates[2] + 1).to_string();
            let words = match kill % 2 {
                0 => {
                    next[2] += 1;
                    vec!["class", "set", "gold", "--reservation", &gold]
                }
                _ => {
                    next = next.map(|rate| rate + 1);
                    write(lab, "next.json", &documents(next, DISKS))?;
                    vec!["apply", "next.json"]
                }
            };
            let path = lab.dir().join("next.json");
            let words: Vec<&str> = words
                .iter()
                .map(|word| if *word == "next.json" { text(&path) } else { word })
                .collect();
            let mut command = begin(lab, &daemon, &words)?;
            std::thread::sleep(usual * (kill + 1) / kills);
            daemon.kill()?;
            command.wait(PATIENCE)?;
            daemon.start_again()?;
            let classes = said(&daemon)?;
            ensure!(classes == rates || classes == next, "{classes:?} of {rates:?} or {next:?}");
            ensure!(ensure_follows(&daemon, &classes)? == DISKS, "disks are missing");
            if classes == next {
                new += 1
            } else {
                old += 1
            }
            rates = classes.try_into().ok().context("five classes")?;
        }
        eprintln!("{kills} kills around changes of 500 disks: {old} old, {new} new");
        Ok(())
    });
}

#[test]
fn documents_that_are_wrong_say_where_and_change_nothing() {
    with_lab(&[], |lab| {
        let daemon = daemon(lab)?;
        let file = lab.dir().join("site.yaml");
        for (text_of, line, words) in [
            ("classes:\n  - name: gold\n    policy:\n      limit: 5 IOPS\n", 4, "'5 IOPS'"),
            ("classes:\n  - name: gold\n    polcy: {}\n", 3, "has no field 'polcy'"),
            (
                "disks:\n- {name: a, datastore: array, size: 1M}\n- {name: a, datastore: array, size: 1M}\n",
                3,
                "is there twice",
            ),
            (
                "disks:\n\n- {name: a, datastore: array, size: 1M, class: gold}\n",
                3,
                "class 'gold', which is nowhere",
            ),
            (
                "disks:\n- {name: a, datastore: nowhere, size: 1M}\n",
                2,
                "'nowhere', which is nowhere",
            ),
            ("disks:\n- {name: a, datastore: array, size: 1000}\n", 2, "a multiple of 4096"),
            (
                "classes:\n- {name: gold, reservation_per_gb: 5, policy: {reservation: 5}}\n",
                2,
                "5 for each GiB",
            ),
            ("classes:\n- {name: gold, policy: {reservation: 50, limit: 5}}\n", 2, "above"),
            ("classes: [\n", 2, "site.yaml"),
        ] {
            fs::write(&file, text_of)?;
            let (_, why) = refused(&daemon, &["apply", text(&file)])?;
            ensure!(why.contains(&format!("site.yaml:{line}: ")), "{text_of}: {why}");
            ensure!(why.contains(words) && why.contains("expected: "), "{text_of}: {why}");
            ensure!(state(&daemon)? == json!({"classes": [], "disks": []}), "{text_of}");
        }
        Ok(())
    });
}

#[test]
fn what_documents_made_is_pruned_when_they_say_so() {
    with_lab(&[], |lab| {
        let daemon = daemon(lab)?;
        daemon.command(&["disk", "create", "mine", "--size", "1M", "--datastore", "array"])?;
        let site = write(lab, "site.json", &documents([1, 2, 3, 4, 5], 10))?;
        apply(&daemon, &site, &[])?;
        let less = write(lab, "less.json", &documents([1, 2, 3, 4, 5], 8))?;
        ensure!(apply(&daemon, &less, &[])?.starts_with("nothing to change"), "pruned unasked");
        let (_, why) = refused(&daemon, &["apply", text(&less), "--prune"])?;
        ensure!(
            why.contains("2 disk(s) are in the documents no more, and may hold data: d008, d009"),
            "{why}"
        );
        let other = apply(&daemon, &less, &["--prune-disks", "--set", "other"])?;
        ensure!(other.starts_with("nothing to change"), "{other}");
        let pruned = apply(&daemon, &less, &["--prune-disks"])?;
        ensure!(pruned.contains("- 2 disks\n    d008, d009\n"), "{pruned}");
        let left = daemon.json(&["disk", "list"])?;
        let names: Vec<&str> = left
            .as_array()
            .context("no list")?
            .iter()
            .filter_map(|one| one["name"].as_str())
            .collect();
        ensure!(names.len() == 9 && names.contains(&"mine"), "{names:?}");
        // What they held is kept as that of any removed disk.
        daemon.command(&["disk", "restore", "d009"])?;
        Ok(())
    });
}

#[test]
fn a_disk_says_whence_its_policy_is() {
    with_lab(&[], |lab| {
        let daemon = daemon(lab)?;
        daemon.command(&["class", "set", "gold", "--limit", "500", "--reservation-per-gb", "3"])?;
        let place = ["--datastore", "array", "--size", "2G"];
        daemon.command(
            &[&["disk", "create", "a", "--class", "gold", "--shares", "7"], &place[..]].concat(),
        )?;
        let shown = daemon.command(&["disk", "show", "a"])?;
        ensure!(shown.contains("reservation 6 IOPS, limit 500 IOPS, shares 7"), "{shown}");
        let whence =
            "the disk itself: shares; its class: limit; its class by its size: reservation";
        ensure!(shown.contains(whence), "{shown}");
        daemon.command(&["disk", "set", "a", "--limit", "none", "--inherit", "shares"])?;
        let disk = daemon.json(&["disk", "show", "a"])?;
        ensure!(disk["effective_policy"]["limit"].is_null(), "{disk:#}");
        ensure!(disk["effective_policy"]["shares"] == 1000, "{disk:#}");
        daemon.command(&["disk", "set", "a", "--class", "none"])?;
        let disk = daemon.json(&["disk", "show", "a"])?;
        ensure!(disk["effective_policy"]["reservation"].is_null(), "{disk:#}");
        daemon.command(&["class", "remove", "gold"])?;
        let told = daemon.json(&["events"])?;
        let told: Vec<&str> = told["events"]
            .as_array()
            .context("no list")?
            .iter()
            .filter_map(|event| event["operation"].as_str())
            .collect();
        let wanted = ["class set", "disk create", "disk set", "disk set", "class remove"];
        ensure!(told[told.len() - 5..] == wanted, "{told:?}");
        Ok(())
    });
}
