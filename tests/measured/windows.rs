//! Hosts that share an array divide it by shares, with latency as the only signal: the experiments
//! of the PARDA paper (FAST
//! 2009) on real daemons, a real congestion board and real clients. The array is one more daemon,
//!       which serves in order of arrival: 1,600 requests per second, 2 ms each at least.

use anyhow::Context;
use headgate_lab::etcd::Etcd;
use headgate_lab::fleet::{self, Array, Host, SHARED, Seen, end, in_ratio, near, settle, watch};
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::{Lab, Server, tools, wait_for};
use std::thread::sleep;
use std::time::Duration;

/// What the array does at most, and how long it takes at least.
const RATE: u32 = 1_600;
const LATENCY: Duration = Duration::from_millis(2);
/// The latency threshold of most tests, and the period in which windows follow it.
const THRESHOLD: Duration = Duration::from_millis(25);
const PERIOD: Duration = Duration::from_millis(300);
/// The same where a threshold follows: a trial is some three hundred of them.
const TRIAL_PERIOD: Duration = Duration::from_millis(20);
/// How long is looked.
const LOOK: Duration = Duration::from_secs(6);
/// How long a division may take to come about on a busy machine.
const SETTLE: Duration = Duration::from_secs(120);

struct Fleet {
    pace: Pace,
    array: Array,
    hosts: Vec<Host>,
    /// The disks of each host, and each disk's shares.
    disks: Vec<Vec<(&'static str, u32)>>,
}

impl Fleet {
    /// Hosts with these disks, each disk loaded with 64 reads.
    fn start(lab: &Lab, pace: Pace, disks: &[&[(&'static str, u32)]]) -> anyhow::Result<Fleet> {
        let mut fleet = Fleet::empty(lab, pace)?;
        for (n, disks) in disks.iter().enumerate() {
            fleet.add(lab, &format!("h{}", n + 1), disks, &[], &[])?;
        }
        Ok(fleet)
    }

    fn empty(lab: &Lab, pace: Pace) -> anyhow::Result<Fleet> {
        let array = Array::start(lab, pace.rate(RATE), pace.time(LATENCY))?;
        Ok(Fleet { pace, array, hosts: Vec::new(), disks: Vec::new() })
    }

    fn add(
        &mut self,
        lab: &Lab,
        name: &str,
        disks: &[(&'static str, u32)],
        through: &[&str],
        serve: &[&str],
    ) -> anyhow::Result<()> {
        let mut host = Host::start(lab, name, &self.array, through, serve)?;
        for (disk, shares) in disks {
            host.disk(&self.array, disk, &[&format!("--shares={shares}")])?;
            host.load(disk, 64)?;
        }
        self.hosts.push(host);
        self.disks.push(disks.to_vec());
        Ok(())
    }

    fn control(&self, board: &str) -> anyhow::Result<()> {
        let millis = |time: Duration| format!("{}ms", self.pace.time(time).as_millis());
        let threshold = format!("--latency-threshold={}", millis(THRESHOLD));
        let period = format!("--window-period={}", millis(PERIOD));
        let arguments = [&threshold, &period, "--board", board];
        self.hosts.iter().try_for_each(|host| host.set(&arguments))
    }

    fn names(&self) -> Vec<Vec<&str>> {
        self.disks.iter().map(|disks| disks.iter().map(|(name, _)| *name).collect()).collect()
    }

    fn shares(&self) -> Vec<f64> {
        self.disks
            .iter()
            .map(|disks| disks.iter().map(|(_, shares)| f64::from(*shares)).sum())
            .collect()
    }

    fn all(&self) -> Vec<&Host> {
        self.hosts.iter().collect()
    }

    /// Watches the first `count` hosts.
    fn settle(
        &self,
        count: usize,
        wanted: impl Fn(&[Seen]) -> Result<(), String>,
    ) -> anyhow::Result<Vec<Seen>> {
        let (hosts, disks) = (self.all(), self.names());
        let (look, within) = (self.pace.time(LOOK), self.pace.time(SETTLE));
        settle(&self.array, &hosts[..count], &disks[..count], look, within, wanted)
    }

    /// Watches all hosts, once.
    fn watch(&self) -> anyhow::Result<Vec<Seen>> {
        watch(&self.array, &self.all(), &self.names(), self.pace.time(LOOK))
    }

    /// Are windows as the shares are, within 10 %, and the latency within 10 % of the threshold on
    /// every host.
    fn divided(&self, seen: &[Seen], shares: &[f64]) -> Result<(), String> {
        let threshold = self.pace.time(THRESHOLD).as_secs_f64();
        in_ratio(&windows(seen), shares, 0.10)?;
        seen.iter().try_for_each(|host| near("the latency", host.latency, threshold, 0.10))
    }

    /// Is the total what the array can do, within 2 %.
    fn all_is_served(&self, seen: &[Seen]) -> Result<(), String> {
        near("the total", total(seen), self.pace.rate(RATE).into(), 0.02)
    }

    fn stop(mut self) -> anyhow::Result<()> {
        for host in &mut self.hosts {
            host.idle_all()?;
            host.daemon.stop()?;
        }
        self.array.daemon.stop()
    }
}

fn windows(seen: &[Seen]) -> Vec<f64> {
    seen.iter().map(|host| host.window).collect()
}

fn total(seen: &[Seen]) -> f64 {
    seen.iter().flat_map(|host| &host.iops).sum()
}

/// When a log begins: the minute of the day.
fn minute_of(log: &str) -> anyhow::Result<i32> {
    let (_, time) = log.split_once('T').context("no time in the log")?;
    let number = |from: usize| -> anyhow::Result<i32> {
        Ok(time.get(from..from + 2).context("no time in the log")?.parse()?)
    };
    Ok(number(0)? * 60 + number(3)?)
}

fn board(lab: &Lab) -> anyhow::Result<String> {
    Ok(lab.subdir("board")?.display().to_string())
}

#[test]
fn hosts_divide_an_array_by_shares_also_when_one_leaves_and_comes_back() {
    with_paced_lab(&[], |lab, pace| {
        let mut fleet =
            Fleet::start(lab, pace, &[&[("a", 100)], &[("a", 100)], &[("a", 200)], &[("a", 200)]])?;
        let all = 4;
        let before = fleet.settle(all, |seen| fleet.all_is_served(seen))?;
        eprintln!("uncontrolled, depth 64 each: {before:.2?}");
        // Without control each host gets the same, whatever its shares.
        let rates = |seen: &[Seen]| -> Vec<f64> { seen.iter().map(|host| host.iops[0]).collect() };
        in_ratio(&rates(&before), &[1.0; 4], 0.10).map_err(anyhow::Error::msg)?;

        fleet.control(&board(lab)?)?;
        let shares = fleet.shares();
        let after = fleet.settle(all, |seen| fleet.divided(seen, &shares))?;
        eprintln!("PA-5, 25 ms: {after:.3?}");
        near("the total beside the uncontrolled one", total(&after), total(&before), 0.02)
            .and_then(|()| in_ratio(&rates(&after), &shares, 0.20))
            .map_err(anyhow::Error::msg)?;

        // A host without load leaves its slots to all others.
        fleet.hosts[3].idle("a")?;
        let three = fleet.settle(3, |seen| fleet.divided(seen, &shares[..3]))?;
        eprintln!("PA-6, the fourth host idle: {three:.3?}");
        for (three, four) in three.iter().zip(&after) {
            let grown = three.window / four.window;
            anyhow::ensure!(
                grown > 1.3,
                "a window grew from {:.1} to {:.1} only",
                four.window,
                three.window
            );
        }
        fleet.hosts[3].load("a", 64)?;
        let back = fleet.settle(all, |seen| fleet.divided(seen, &shares))?;
        eprintln!("PA-6, the fourth host back: {back:.3?}");

        // A killed host's word counts for three periods and no longer; nobody waits for it.
        fleet.hosts[3].kill()?;
        let three = fleet.settle(3, |seen| fleet.divided(seen, &shares[..3]))?;
        eprintln!("the fourth host killed: {three:.3?}");
        fleet.hosts[3].daemon.start_again()?;
        fleet.hosts[3].load("a", 64)?;
        let back = fleet.settle(all, |seen| fleet.divided(seen, &shares))?;
        eprintln!("the fourth host started again: {back:.3?}");
        fleet.stop()
    });
}

#[test]
fn foreign_load_shrinks_the_windows_in_proportion_and_is_told_of_when_they_cannot_shrink_further() {
    with_paced_lab(&[], |lab, pace| {
        let fleet = Fleet::start(lab, pace, &[&[("a", 200)], &[("a", 100)], &[("a", 100)]])?;
        fleet.control(&board(lab)?)?;
        let shares = fleet.shares();
        let before = fleet.settle(3, |seen| fleet.divided(seen, &shares))?;
        eprintln!("PA-8 before: {before:.3?}");
        fleet.array.volume("foreign")?;
        let uri = fleet.array.daemon.nbd_uri("foreign");
        let foreign = fleet::load(lab.dir(), "foreign", &uri, 16)?;
        let with = fleet.settle(3, |seen| fleet.divided(seen, &shares))?;
        eprintln!("PA-8 with 16 foreign requests: {with:.3?}");
        // By Little's law, at any pace.
        let slots = f64::from(RATE) * THRESHOLD.as_secs_f64();
        near("the slots left", windows(&with).iter().sum(), slots - 16.0, 0.15)
            .map_err(anyhow::Error::msg)?;
        end(foreign)?;

        // More than the windows can make room for: they stay at their lower bounds, in proportion,
        // and it is said why.
        let foreign = fleet::load(lab.dir(), "foreign", &uri, 96)?;
        let told =
            |host: &Host| -> anyhow::Result<bool> { Ok(host.now()?["unmanaged_load"].is_string()) };
        for host in &fleet.hosts {
            wait_for("unmanaged load should be told of", SETTLE, || Ok(told(host)?.then_some(())))?;
        }
        let held = fleet.settle(3, |seen| {
            in_ratio(&windows(seen), &shares, 0.10)?;
            near("the windows", windows(seen).iter().sum(), 12.0, 0.10)
        })?;
        eprintln!("96 foreign requests: {held:.3?}");
        let host = &fleet.hosts[0];
        let said = host.daemon.log()?;
        anyhow::ensure!(said.contains("something else loads it"), "not in the log:\n{said}");
        let metrics = host.daemon.get("/metrics")?;
        let metric = format!("headgate_datastore_unmanaged_load{{datastore=\"{SHARED}\"}} 1");
        anyhow::ensure!(metrics.contains(&metric), "no {metric}");
        anyhow::ensure!(host.daemon.command(&["top", "--once"])?.contains("UNMANAGED LOAD"));
        end(foreign)?;
        for host in &fleet.hosts {
            wait_for("its end should be told of", SETTLE, || Ok((!told(host)?).then_some(())))?;
        }
        let after = fleet.settle(3, |seen| fleet.divided(seen, &shares))?;
        eprintln!("PA-8 after: {after:.3?}");
        fleet.stop()
    });
}

#[test]
fn what_a_disk_gets_does_not_depend_on_its_host() {
    with_paced_lab(&[], |lab, pace| {
        let disks: [&[(&str, u32)]; 4] =
            [&[("a", 200), ("b", 100)], &[("a", 100), ("b", 100)], &[("a", 200)], &[("a", 100)]];
        let fleet = Fleet::start(lab, pace, &disks)?;
        let per_host = |seen: &[Seen]| -> Vec<f64> {
            seen.iter().map(|host| host.iops.iter().sum()).collect()
        };
        let before = fleet.settle(4, |seen| in_ratio(&per_host(seen), &[1.0; 4], 0.10))?;
        eprintln!("PA-9, uncontrolled: {before:.1?}");
        fleet.control(&board(lab)?)?;
        let shares: Vec<f64> =
            disks.iter().flat_map(|host| host.iter().map(|(_, s)| f64::from(*s))).collect();
        let after = fleet.settle(4, |seen| {
            fleet.divided(seen, &fleet.shares())?;
            let each: Vec<f64> = seen.iter().flat_map(|host| host.iops.clone()).collect();
            in_ratio(&each, &shares, 0.12)
        })?;
        eprintln!("PA-10: {after:.2?}");
        near("the total", total(&after), total(&before), 0.02).map_err(anyhow::Error::msg)?;
        fleet.stop()
    });
}

#[test]
fn nothing_that_happens_to_the_board_stops_a_disk() {
    with_paced_lab(&["faketime"], |lab, pace| {
        let mut fleet = Fleet::start(lab, pace, &[&[("a", 100)], &[("a", 100)]])?;
        // Its clock is an hour ahead of the others'. The library alone: the program of its name
        // stays between us and the daemon.
        let library =
            format!("LD_PRELOAD={}", tools::library("faketime/libfaketime.so.1")?.display());
        let ahead = ["env", &library, "FAKETIME=+1h", "DONT_FAKE_MONOTONIC=1"];
        fleet.add(lab, "h3", &[("a", 200)], &ahead, &[])?;
        let minutes = |host: &Host| minute_of(&host.daemon.log()?);
        let between = (minutes(&fleet.hosts[2])? - minutes(&fleet.hosts[0])?).rem_euclid(24 * 60);
        anyhow::ensure!((59..=62).contains(&between), "{between} minutes between their clocks");
        let place = board(lab)?;
        fleet.control(&place)?;
        let shares = fleet.shares();
        let settled = fleet.settle(3, |seen| fleet.divided(seen, &shares))?;
        eprintln!("one clock an hour ahead: {settled:.3?}");
        let file = std::fs::read_dir(&place)?.next().expect("a board")?.path();
        let length = file.metadata()?.len();
        let truncate = |to: u64| std::fs::OpenOptions::new().write(true).open(&file)?.set_len(to);
        let spoil: [(&str, &dyn Fn() -> std::io::Result<()>); 4] = [
            ("truncated to nothing", &|| truncate(0)),
            ("truncated in the middle of a block", &|| truncate(length / 2 + 100)),
            ("overwritten", &|| {
                std::fs::write(&file, vec![0xa5; usize::try_from(length).unwrap_or(0)])
            }),
            ("deleted", &|| std::fs::remove_file(&file)),
        ];
        for (what, spoil) in spoil {
            spoil()?;
            sleep(pace.time(3 * PERIOD));
            let seen = fleet.watch()?;
            fleet.divided(&seen, &shares).and_then(|()| fleet.all_is_served(&seen)).map_err(
                |why| {
                    anyhow::anyhow!(
                        "the board was {what}, and three periods later {why}: {seen:.3?}"
                    )
                },
            )?;
        }
        // Out of reach: the windows stay, and it is said.
        std::fs::rename(&place, lab.dir().join("away"))?;
        std::fs::write(&place, "no directory")?;
        let held = |host: &Host| -> anyhow::Result<bool> {
            let now = host.now()?;
            Ok(now["board"] == "unreachable" && now["held"] == "board")
        };
        for host in &fleet.hosts {
            wait_for("the board should be missed", SETTLE, || Ok(held(host)?.then_some(())))?;
        }
        let seen = fleet.watch()?;
        in_ratio(&windows(&seen), &shares, 0.10)
            .and_then(|()| fleet.all_is_served(&seen))
            .map_err(anyhow::Error::msg)?;
        eprintln!("the board out of reach: {seen:.3?}");
        std::fs::remove_file(&place)?;
        std::fs::rename(lab.dir().join("away"), &place)?;
        let back = fleet.settle(3, |seen| fleet.divided(seen, &shares))?;
        eprintln!("the board back: {back:.3?}");
        anyhow::ensure!(
            fleet.hosts.iter().all(|host| host.now().is_ok_and(|now| now["board"] == "read"))
        );
        fleet.stop()
    });
}

#[test]
fn hosts_meet_in_etcd_as_well_which_may_die_under_load() {
    with_paced_lab(&[], |lab, pace| {
        let mut etcd = Etcd::start(lab)?;
        let mut fleet = Fleet::empty(lab, pace)?;
        for (name, shares) in [("h1", 100), ("h2", 100), ("h3", 200), ("h4", 200)] {
            fleet.add(lab, name, &[("a", shares)], &[], &["--etcd", &etcd.url()])?;
        }
        fleet.control("etcd=array")?;
        let shares = fleet.shares();
        let settled = fleet.settle(4, |seen| fleet.divided(seen, &shares))?;
        eprintln!("in etcd: {settled:.3?}");
        for round in 1..=3 {
            etcd.kill()?;
            for host in &fleet.hosts {
                wait_for("the board should be missed", SETTLE, || {
                    let now = host.now()?;
                    Ok((now["board"] == "unreachable" && now["held"] == "board").then_some(()))
                })?;
            }
            let seen = fleet.watch()?;
            in_ratio(&windows(&seen), &shares, 0.10)
                .and_then(|()| fleet.all_is_served(&seen))
                .map_err(anyhow::Error::msg)?;
            eprintln!("etcd killed, {round}: {seen:.3?}");
            etcd.start_again()?;
            let periods = fleet.hosts[0].now()?["periods"].as_u64().unwrap_or(0);
            for host in &fleet.hosts {
                wait_for("the board should be back", SETTLE, || {
                    Ok((host.now()?["held"].is_null()).then_some(()))
                })?;
            }
            let took = fleet.hosts[0].now()?["periods"].as_u64().unwrap_or(0) - periods;
            let seen = fleet.watch()?;
            fleet.divided(&seen, &shares).map_err(anyhow::Error::msg)?;
            eprintln!("etcd back, windows set again after {took} periods: {seen:.3?}");
            anyhow::ensure!(
                took <= 3,
                "windows were set again only {took} periods after etcd was back"
            );
        }
        // A host that dies takes its word with it.
        fleet.hosts[3].kill()?;
        let three = fleet.settle(3, |seen| fleet.divided(seen, &shares[..3]))?;
        eprintln!("the fourth host killed: {three:.3?}");
        fleet.hosts[3].daemon.start_again()?;
        fleet.hosts[3].load("a", 64)?;
        fleet.settle(4, |seen| fleet.divided(seen, &shares))?;
        fleet.stop()
    });
}

#[test]
fn a_reservation_holds_while_the_load_of_other_hosts_comes_and_goes() {
    with_paced_lab(&[], |lab, pace| {
        let mut fleet =
            Fleet::start(lab, pace, &[&[("a", 100), ("b", 100)], &[("a", 300)], &[("a", 300)]])?;
        fleet.hosts[0].daemon.command(&[
            "disk",
            "set",
            "a",
            &format!("--reservation={}", pace.rate(400)),
        ])?;
        fleet.control(&board(lab)?)?;
        let threshold = pace.time(THRESHOLD).as_secs_f64();
        fleet.settle(3, |seen| near("the latency", seen[0].latency, threshold, 0.10))?;
        // Without the reservation its part would be 1,600 x 100 / 800 = 200.
        let mut worst = f64::INFINITY;
        let mut slices = Vec::new();
        for round in 0..24 {
            match round {
                4 => fleet.hosts[1].idle("a")?,
                8 => fleet.hosts[2].idle("a")?,
                12 => fleet.hosts[1].load("a", 64)?,
                16 => fleet.hosts[2].load("a", 256)?,
                _ => {}
            }
            let second = pace.time(Duration::from_secs(1));
            let slice = Premises::new().backlog("a", 64).watch(&fleet.hosts[0].daemon, second)?;
            slices.push((slice.iops("a")? * slice.seconds(), slice.seconds()));
            if let Some(last) = slices.last_chunk::<5>() {
                let (ios, seconds) =
                    last.iter().fold((0.0, 0.0), |sum, slice| (sum.0 + slice.0, sum.1 + slice.1));
                worst = worst.min(ios / seconds);
            }
        }
        let each: Vec<String> =
            slices.iter().map(|(ios, seconds)| format!("{:.0}", ios / seconds)).collect();
        // Reservations are in normalised IOs: one of 8 KiB counts as 1 + 8/300.
        let reserved = f64::from(pace.rate(400));
        let due = reserved / (1.0 + 8.0 / 300.0);
        eprintln!(
            "{reserved} reserved, {due:.1} of this size; second by second: {}",
            each.join(" ")
        );
        eprintln!("the worst 5 s: {worst:.1}");
        anyhow::ensure!(worst >= due * 0.97, "the worst 5 s had {worst:.1} of {due:.1} IOPS");
        fleet.stop()
    });
}

/// What one host finds out all go by, also one that was killed. The array does no more for 30 ms
/// than for a few, so the threshold falls.
#[test]
fn an_automatic_threshold_follows_the_storage_on_all_hosts_and_over_a_kill() {
    with_paced_lab(&[], |lab, pace| {
        let mut fleet = Fleet::start(lab, pace, &[&[("a", 100)], &[("a", 100)]])?;
        let period = format!("--window-period={}ms", pace.time(TRIAL_PERIOD).as_millis());
        let board = board(lab)?;
        let set = ["--latency-threshold=auto", &period, "--board", &board];
        fleet.hosts.iter().try_for_each(|host| host.set(&set))?;
        let of = |host: &Host| {
            host.now()?["following"]["threshold_ns"].as_u64().context("nothing follows")
        };
        let agreed = |hosts: &[Host], most: u64| -> anyhow::Result<Option<u64>> {
            let [a, b] = [of(&hosts[0])?, of(&hosts[1])?];
            Ok((a == b && a <= most).then_some(a))
        };
        let within = pace.time(SETTLE);
        let first = wait_for("a lower threshold", within, || agreed(&fleet.hosts, 29_000_000))?;
        eprintln!("30 ms became {first} ns");
        let daemon = &fleet.hosts[0].daemon;
        wait_for("a threshold that is kept", within, || {
            let window = daemon.json(&["datastore", "show", SHARED])?["window"].clone();
            let kept = window["followed"]["threshold"].as_u64();
            Ok(kept.filter(|kept| *kept <= first))
        })?;
        let events = daemon.command(&["events"])?;
        anyhow::ensure!(events.contains("latency threshold changed"), "{events}");
        fleet.hosts[0].kill()?;
        fleet.hosts[0].daemon.start_again()?;
        fleet.hosts[0].load("a", 64)?;
        anyhow::ensure!(of(&fleet.hosts[0])? <= first, "it began with {}", of(&fleet.hosts[0])?);
        let second = wait_for("a step more", within, || agreed(&fleet.hosts, first - 1))?;
        eprintln!("and {second} ns after a kill");
        fleet.stop()
    });
}
