//! Disks move without an operator, as rules say: in their hours, so many at once, and no more when
//! a prediction proved wrong. Clients work on them and check all they wrote.

use anyhow::{Context, ensure};
use headgate_history::Samples;
use headgate_lab::headgate::Headgate;
use headgate_lab::writer::{self, Writer};
use headgate_lab::{Lab, Server, tools, wait_for, with_lab};
use headgate_model::{DatastoreSample, DiskSample, Policy};
use headgate_qos::window::Slots;
use headgate_stats::{COST_OF_ONE_IO, DiskStats, Latency, Op, Outcome, Phase};
use headgate_units::{Bytes, Nanos};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PATIENCE: Duration = Duration::from_secs(180);
const BLOCKS: u64 = 2048;
const DAY: u64 = 24 * 3_600;

/// A file that the daemon's wall clock follows, within a second.
struct Clock {
    file: PathBuf,
    /// The day that its days count from.
    first: u64,
}

impl Clock {
    fn new(lab: &Lab) -> anyhow::Result<Clock> {
        Ok(Clock { file: lab.dir().join("clock"), first: today()? + 1 })
    }

    /// It is so much after the midnight of a day, in seconds since 1970.
    fn set(&self, day: u64, hour: u64, minute: u64) -> anyhow::Result<u64> {
        let to = (self.first + day) * DAY + hour * 3_600 + minute * 60;
        std::fs::write(&self.file, format!("+{}\n", to.saturating_sub(now()?)))?;
        Ok(to)
    }

    /// What goes before a program that is to follow it. The library alone: the program of its name
    /// stays between us and the daemon.
    fn words(&self) -> anyhow::Result<Vec<String>> {
        let library = tools::library("faketime/libfaketime.so.1")?;
        Ok(vec![
            "env".into(),
            format!("LD_PRELOAD={}", library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.file.display()),
            "FAKETIME_CACHE_DURATION=1".into(),
            "DONT_FAKE_MONOTONIC=1".into(),
        ])
    }
}

fn now() -> anyhow::Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

fn today() -> anyhow::Result<u64> {
    Ok(now()? / DAY)
}

fn start(lab: &Lab, clock: &Clock) -> anyhow::Result<Headgate> {
    let config = lab.dir().join("headgate.toml");
    std::fs::write(&config, "shards = 1\nsample-seconds = 2\n")?;
    let (words, config) = (clock.words()?, config.display().to_string());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Headgate::start_as(lab, "state", &words, &["--config", &config])
}

/// No two of these disks on one datastore, however full the machine's file system is. Whether disks
/// move without an operator is set apart, and stays.
fn keep_apart(lab: &Lab, daemon: &Headgate, groups: &[&[&str]]) -> anyhow::Result<()> {
    let automatic = daemon.json(&["rules", "show"])?["automatic"].clone();
    let mut text = String::new();
    for (number, disks) in groups.iter().enumerate() {
        text += &format!("[[anti-affinity]]\nname = \"g{number}\"\ndisks = {disks:?}\n");
    }
    text += "[space]\nfull = 1000\nrelieve = 1000\n[automatic]\n";
    let fields = automatic.as_object().context("rules have a mode")?;
    for (key, value) in fields.iter().filter(|(key, _)| !["since", "stopped"].contains(&&***key)) {
        text += &format!("{key} = {value}\n");
    }
    let file = lab.dir().join("rules.toml");
    std::fs::write(&file, text)?;
    daemon.command(&["rules", "set", &file.display().to_string()]).map(drop)
}

fn on(daemon: &Headgate, disk: &str) -> anyhow::Result<String> {
    let shown = daemon.json(&["disk", "show", disk])?;
    Ok(shown["datastore"].as_str().context("a disk is somewhere")?.to_owned())
}

fn places(daemon: &Headgate, disks: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    disks.iter().map(|disk| on(daemon, disk)).collect()
}

/// Disks that move now.
fn moving(daemon: &Headgate) -> anyhow::Result<Vec<String>> {
    let all = daemon.json(&["disk", "moves"])?;
    let all = all.as_array().context("no list")?;
    let copies = all.iter().filter(|one| one["state"] == "copying");
    Ok(copies.filter_map(|one| one["disk"].as_str().map(str::to_owned)).collect())
}

/// How the moves of the run stand, in their order.
fn states(daemon: &Headgate) -> anyhow::Result<Vec<String>> {
    let run = daemon.json(&["balance"])?["run"].clone();
    ensure!(run.is_null() || run["by"] == "automatic", "{run}");
    let moves = run["moves"].as_array().cloned().unwrap_or_default();
    Ok(moves.iter().map(|one| one["state"].as_str().unwrap_or("?").to_owned()).collect())
}

fn count(states: &[String], state: &str) -> usize {
    states.iter().filter(|one| *one == state).count()
}

/// The most moves that were under way at once, by the log from this byte on, and how many began.
fn at_once(daemon: &Headgate, from: usize) -> anyhow::Result<(usize, usize)> {
    let log = daemon.log()?;
    let (mut now, mut most, mut begun) = (0_usize, 0, 0);
    for line in log[from..].lines() {
        if line.contains("an advised move begins") {
            (now, begun) = (now + 1, begun + 1);
            most = most.max(now);
        } else if line.contains("an advised move is over") {
            now = now.saturating_sub(1);
        }
    }
    Ok((most, begun))
}

/// Waits until so many moves of the rules are under way, and has them crawl.
fn hold(daemon: &Headgate, wanted: usize) -> anyhow::Result<Vec<String>> {
    let moving = wait_for("disks should move by themselves", PATIENCE, || {
        let moving = moving(daemon)?;
        for disk in &moving {
            // It may be over by now.
            let _ = daemon.command(&["disk", "migrate", disk, "--move-bandwidth", "64K"]);
        }
        Ok((moving.len() == wanted).then_some(moving))
    })?;
    Ok(moving)
}

fn let_go(daemon: &Headgate, disks: &[String]) -> anyhow::Result<()> {
    disks.iter().try_for_each(|disk| {
        daemon.command(&["disk", "migrate", disk, "--move-bandwidth", "none"]).map(drop)
    })
}

fn is_over(daemon: &Headgate) -> anyhow::Result<()> {
    wait_for("the run should end", PATIENCE, || {
        let run = daemon.json(&["balance"])?["run"].clone();
        Ok(run["ended"].is_u64().then_some(()))
    })
}

#[test]
fn disks_move_in_their_hours_and_so_many_at_once_until_it_is_switched_off() {
    with_lab(&["faketime"], |lab| {
        let clock = Clock::new(lab)?;
        clock.set(0, 12, 0)?;
        let mut daemon = start(lab, &clock)?;
        let disks = ["d1", "d2", "d3", "d4", "d5"];
        for store in ["s1", "s2", "s3", "s4", "s5"] {
            let emulated = ["--emulated=rate=1500,depth=32", "--class=pod"];
            daemon.command(&[&["datastore", "add", store], &emulated[..]].concat())?;
        }
        for disk in disks {
            let place = ["--datastore=s1", "--datastore-class=pod", "--size=16M"];
            daemon.command(&[&["disk", "create", disk], &place[..]].concat())?;
        }
        keep_apart(lab, &daemon, &[&disks])?;
        let writer = |(disk, seed): (&&str, u64)| {
            Writer::new(daemon.nbd_socket(), disk, seed, BLOCKS).with_depth(2)
        };
        let mut writers: Vec<Writer> = disks.iter().zip(1..).map(writer).collect();
        let automatic = ["rules", "--automatic=on", "--move-hours=22:00-06:00"];
        let said = daemon.command(
            &[&automatic[..], &["--moves-at-once=2", "--moves-per-datastore=2"]].concat(),
        )?;
        ensure!(said.contains("on, 22:00-06:00 UTC, 2 at once, 2 of a datastore"), "{said}");

        // By day it looks, and nothing begins.
        writer::beside(&mut writers, PATIENCE, || {
            wait_for("the rules should look", PATIENCE, || {
                Ok(daemon.log()?.contains("advised moves wait for their hours").then_some(()))
            })
        })?;
        ensure!(places(&daemon, &disks)?.len() == 1 && moving(&daemon)?.is_empty());
        ensure!(at_once(&daemon, 0)? == (0, 0), "a move began by day");

        // A restart keeps it. At night disks move, two at once; at six no further one begins.
        daemon.stop()?;
        clock.set(0, 23, 30)?;
        daemon.start_again()?;
        writer::beside(&mut writers, PATIENCE, || {
            let two = hold(&daemon, 2)?;
            ensure!(states(&daemon)?.len() == 4, "{:?}", states(&daemon)?);
            clock.set(1, 6, 5)?;
            wait_for("the rest should be given up", PATIENCE, || {
                let states = states(&daemon)?;
                Ok((count(&states, "waiting") == 0).then_some(()))
            })?;
            let now = states(&daemon)?;
            ensure!(count(&now, "skipped") > 0 && count(&now, "moving") > 0, "{now:?}");
            let_go(&daemon, &two)?;
            is_over(&daemon)
        })?;
        let first = states(&daemon)?;
        let moved = count(&first, "moved");
        ensure!(count(&first, "skipped") == 4 - moved && moved >= 2, "{first:?}");
        ensure!(places(&daemon, &disks)?.len() == 1 + moved);
        let (most, begun) = at_once(&daemon, 0)?;
        ensure!((most, begun) == (2, moved), "{begun} moves, {most} at once; {first:?}");
        eprintln!("the first night: {moved} moves, {most} at once");

        // Another night, one at once. It is switched off in the middle, and stays off.
        if moved < 4 {
            let from = daemon.log()?.len();
            daemon.command(&["rules", "--moves-at-once=1"])?;
            daemon.stop()?;
            clock.set(1, 23, 0)?;
            daemon.start_again()?;
            writer::beside(&mut writers, PATIENCE, || {
                let one = hold(&daemon, 1)?;
                daemon.command(&["rules", "--automatic=off"])?;
                wait_for("nothing should be to come", PATIENCE, || {
                    Ok((count(&states(&daemon)?, "waiting") == 0).then_some(()))
                })?;
                let_go(&daemon, &one)?;
                is_over(&daemon)
            })?;
            let second = states(&daemon)?;
            eprintln!("the second night: {second:?}");
            ensure!(at_once(&daemon, from)? == (1, count(&second, "moved")), "{second:?}");
        }
        daemon.stop()?;
        daemon.start_again()?;
        ensure!(daemon.json(&["rules", "show"])?["automatic"]["mode"] == "off");
        let (from, before) = (daemon.log()?.len(), places(&daemon, &disks)?);
        writer::beside(&mut writers, PATIENCE, || Ok(()))?;
        ensure!(places(&daemon, &disks)? == before && at_once(&daemon, from)? == (0, 0));
        // Switched on again it does what is left.
        daemon.command(&["rules", "--automatic=on"])?;
        writer::beside(&mut writers, PATIENCE, || {
            wait_for("all should be apart", PATIENCE, || {
                Ok((places(&daemon, &disks)?.len() == 5).then_some(()))
            })
        })?;
        daemon.stop()
    });
}

/// What two datastores did in hours of a day, as a daemon that ran then would have written it: so
/// many requests of each a second, each of which took so many milliseconds.
fn write_history(state: &Path, hours: &[(u64, u64)]) -> anyhow::Result<()> {
    const IOPS: u64 = 2;
    const PERIOD: u64 = 600;
    let samples = Samples::open(&state.join("samples.sqlite"), Duration::from_secs(PERIOD))?;
    let mut stats = DiskStats::new(Nanos::ZERO);
    let mut at = 0;
    for &(hour, millis) in hours {
        for period in 0..=3_600 / PERIOD {
            let snapshot = stats.snapshot(Nanos::from_secs(at));
            let store = |name: &str| -> anyhow::Result<DatastoreSample> {
                let disk = format!("of-{name}").parse()?;
                Ok(DatastoreSample {
                    name: name.parse()?,
                    window: Slots::whole(32),
                    narrowed: None,
                    in_flight: 0,
                    queued: 0,
                    stats: snapshot.clone(),
                    disks: vec![DiskSample::new(disk, Policy::default(), snapshot.clone())],
                    flash: None,
                    costs: None,
                })
            };
            let sample = Arc::new(vec![store("a")?, store("b")?]);
            // The last period of an hour ends a second before the next one begins.
            let end = (hour + period * PERIOD).min(hour + 3_599);
            samples.record_at(Nanos::from_secs(end), &sample);
            for n in 0..PERIOD * IOPS {
                let begun = Nanos(at * 1_000_000_000 + n * 1_000_000_000 / IOPS);
                let took = Nanos::from_millis(millis);
                stats.on_arrival(begun, Op::Read, n * 7919 % 1_000 * (1 << 20), Bytes(4096));
                stats.on_dispatch(begun, Op::Read, Nanos::ZERO, Phase::Weight, COST_OF_ONE_IO);
                let latency = Latency { device: took, total: took };
                stats.on_complete(begun + took, Op::Read, Bytes(4096), latency, Outcome::Done);
            }
            at += PERIOD;
        }
    }
    samples.flush();
    Ok(())
}

/// What is told of automatic moves, in each place.
fn says_that_it_stopped(daemon: &Headgate) -> anyhow::Result<()> {
    let rules = daemon.json(&["rules", "show"])?;
    let why = rules["automatic"]["stopped"]["why"].as_str().unwrap_or_default();
    ensure!(why.contains("the prediction for disk 'd2' proved wrong"), "{rules}");
    let health = daemon.health()?.to_string();
    let balance = daemon.command(&["balance"])?;
    let (advice, log) = (daemon.command(&["advise"])?, daemon.log()?);
    eprintln!("{advice}\n{balance}");
    for (place, text) in [("health", health), ("balance", balance), ("advise", advice)] {
        ensure!(text.contains("proved wrong") && text.contains("d2"), "{place}: {text}");
    }
    ensure!(log.contains("automatic moves stop"));
    let events = daemon.command(&["events", "--json"])?;
    ensure!(events.contains("automatic moves stop"), "{events}");
    Ok(())
}

#[test]
fn a_review_that_finds_harm_stops_moves_until_an_operator_sets_them_again() {
    with_lab(&["faketime"], |lab| {
        let clock = Clock::new(lab)?;
        let moved_at = clock.set(0, 10, 20)?;
        let mut daemon = start(lab, &clock)?;
        for store in ["a", "b"] {
            let path = lab.subdir(&format!("on-{store}"))?.display().to_string();
            let spindles = format!("--spindles={store}");
            daemon.command(&["datastore", "add", store, "--dir", &path, &spindles])?;
        }
        daemon.command(&["datastore", "set", "default", "--placement=closed"])?;
        for disk in ["d1", "d2", "d3", "d4"] {
            daemon.command(&["disk", "create", disk, "--size=16M", "--datastore=a"])?;
        }
        daemon.command(&["disk", "set", "d1", "--mobility=pinned"])?;
        let writer =
            |(disk, seed): (&&str, u64)| Writer::new(daemon.nbd_socket(), disk, seed, BLOCKS);
        let mut writers: Vec<Writer> = ["d2", "d3"].iter().zip(1..).map(writer).collect();
        daemon.command(&["rules", "--automatic=on"])?;
        writer::beside(&mut writers, PATIENCE, || {
            keep_apart(lab, &daemon, &[&["d1", "d2"]])?;
            wait_for("d2 should move by itself", PATIENCE, || {
                Ok((on(&daemon, "d2")? == "b").then_some(()))
            })
        })?;
        daemon.stop()?;

        // A day later by the clock: requests took 10 ms in these hours of the day before, and take
        // 16 ms since.
        let hour = moved_at / 3_600 * 3_600;
        let of = |from: u64, millis: u64| (1..=6).map(move |n| (from + n * 3_600, millis));
        let hours: Vec<_> = of(hour - DAY, 10).chain(of(hour, 16)).collect();
        write_history(daemon.state_dir(), &hours)?;
        clock.set(0, 17, 30)?;
        daemon.start_again()?;
        wait_for("the rules should stop", PATIENCE, || {
            let rules = daemon.json(&["rules", "show"])?;
            Ok(rules["automatic"]["stopped"]["why"].is_string().then_some(()))
        })
        .with_context(|| daemon.json(&["advise"]).unwrap_or(Value::Null).to_string())?;
        says_that_it_stopped(&daemon)?;

        // What is advised from now on is shown, and nobody carries it out: also after a restart,
        // and where somebody sets rules of the same mode.
        let from = daemon.log()?.len();
        writer::beside(&mut writers, PATIENCE, || {
            keep_apart(lab, &daemon, &[&["d1", "d2"], &["d1", "d3"]])?;
            let plan = daemon.json(&["balance"])?["plan"]["moves"].to_string();
            ensure!(plan.contains("d3"), "{plan}");
            Ok(())
        })?;
        daemon.stop()?;
        daemon.start_again()?;
        writer::beside(&mut writers, PATIENCE, || says_that_it_stopped(&daemon))?;
        ensure!(on(&daemon, "d3")? == "a" && at_once(&daemon, from)? == (0, 0));
        // Who sets it again has looked.
        daemon.command(&["rules", "--automatic=on"])?;
        writer::beside(&mut writers, PATIENCE, || {
            wait_for("d3 should move by itself", PATIENCE, || {
                Ok((on(&daemon, "d3")? == "b").then_some(()))
            })
        })?;
        let rules = daemon.json(&["rules", "show"])?;
        ensure!(rules["automatic"]["stopped"].is_null(), "{rules}");
        daemon.stop()
    });
}
