//! Placement learns what datastores can do and what disks ask for from real clients, and its advice
//! is worth following: table 4 of the BASIL paper (FAST 2010). Eight disks with the paper's
//! workloads are on an array of six spindles; arrays of three and of nine come to it, empty and
//! unknown. The rules carry the first round of advice out, `headgate balance --apply` what follows,
//! while all clients, two of them in guests, are at full load.

mod by_rules;
mod client;
mod eighth;
mod waits;

use anyhow::{Context, bail, ensure};
use client::{CHECKED, Client, Told};
use headgate_lab::guest::{Drive, Guest, Machine, QEMU};
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::{Pace, with_paced_lab_alone};
use headgate_lab::premise::{Premises, Unmet};
use headgate_lab::sample::{Interval, Sample};
use headgate_lab::stolen::stolen;
use headgate_lab::writer::{self, Writer};
use headgate_lab::{Lab, Server};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

const SPINDLES: [u32; 3] = [3, 6, 9];

/// The Iometer types of the paper's table 1: KiB, reads and random requests in per cent.
const TYPES: [(&str, u32, u32, u32); 4] = [
    ("workstation", 8, 80, 80),
    ("exchange", 4, 67, 100),
    ("web", 8, 95, 75),
    ("oltp", 8, 70, 100),
];

/// Requests that each disk's client keeps outstanding at most.
const DEPTHS: [u32; 8] = [8, 12, 16, 12, 16, 8, 12, 12];

/// Parts of that, in per cent, one after the other: nothing can be learnt from one load.
const STEPS: [u32; 5] = [20, 40, 60, 80, 100];
const STEP: Duration = Duration::from_secs(8);

/// How often the steps are gone through at most, until all is known. On a quiet machine once is
/// enough.
const CYCLES: u32 = 3;

/// How long is measured at full load.
const LOOK: Duration = Duration::from_secs(12);

/// Disks whose clients are in guests, and those with a reservation while disks move.
const IN_GUESTS: [usize; 2] = [0, 3];
const RESERVED: [usize; 2] = [2, 4];

/// More than each of eight equal shares of what six spindles do, which is 230 IOPS on a quick
/// machine: without its reservation a disk has too little.
const RESERVATION: u32 = 300;

/// How much slower the arrays are than the model of drives has them: guests without KVM have to
/// keep up.
const SLOWER: u32 = 4;

/// Requests at each array: as many as there are, or fewer than the eight clients send, so that
/// reservations are what decides.
const WIDE: u32 = 512;
const NARROW: u32 = 64;

/// Weight of the copies. By default a move would take minutes beside eight clients at full load.
const SHARES: &str = "--move-shares=2000";

/// How long all moves of a round may take at most, on a quick machine.
const MOVED: Duration = Duration::from_secs(240);

/// The part of the time that a hypervisor may take, at the full pace. The slower it is, the less is
/// due meanwhile.
const STOLEN: f64 = 0.1;

/// Who has advice carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Whoever types `headgate balance --apply`.
    Operator,
    /// `headgate rules --automatic on`.
    Rules,
}

/// A second in which disks moved.
struct Second {
    interval: Interval,
    /// How long the reads and writes that were dispatched in it had waited for that, in seconds all
    /// together: the mean number that waited, for each of those with a reservation.
    queued: [f64; 2],
    /// How long a hypervisor took the machine's CPUs, in seconds, all of them together.
    stolen: f64,
}

struct Disk {
    name: String,
    on: String,
    client: Client,
    /// Longest wait of a request under the last load without moves, in milliseconds.
    longest: f64,
}

/// A job of fio: random requests of a type with so many outstanding, each number for a time one
/// after the other, the last of them until somebody ends it.
fn job((_, kib, read, random): (&str, u32, u32, u32), depths: &[u32], step: Duration) -> String {
    let mut jobs = format!(
        "rw=randrw\nbs={kib}k\nrwmixread={read}\npercentage_random={random}\ntime_based\n\
         random_generator=tausworthe64\nnorandommap\n"
    );
    for (turn, depth) in depths.iter().enumerate() {
        let seconds = if turn + 1 == depths.len() { 3_600 } else { step.as_secs() };
        jobs += &format!("[step{turn}]\niodepth={depth}\nruntime={seconds}\nstonewall\n");
    }
    jobs
}

struct Pod {
    pace: Pace,
    /// How much slower the arrays are than the model of drives has them.
    slower: u32,
    daemon: Headgate,
    disks: Vec<Disk>,
    /// Those who check what they write, on the disks that are reached over NBD.
    writers: Vec<Writer>,
}

/// What the disks did at full load.
#[derive(Clone, Debug, Default)]
struct Measured {
    /// Requests per second and their mean latency in milliseconds, by disk.
    disks: BTreeMap<String, (f64, f64)>,
    /// Reads and writes per second, all disks together.
    iops: f64,
    /// Mean latency in milliseconds, weighted by requests.
    latency: f64,
    /// The same of reads at the arrays, which is what models predict.
    reads: f64,
}

impl Pod {
    fn start(lab: &Lab, pace: Pace, slower: u32) -> anyhow::Result<Pod> {
        let mut pod = Pod::empty(lab, pace, slower)?;
        pod.add_array(6)?;
        for number in 0..DEPTHS.len() {
            pod.add_disk(lab, number)?;
        }
        Ok(pod)
    }

    /// No arrays, no disks.
    fn empty(lab: &Lab, pace: Pace, slower: u32) -> anyhow::Result<Pod> {
        let config = lab.dir().join("headgate.toml");
        std::fs::write(&config, "sample-seconds = 2\n")?;
        let config = config.display().to_string();
        let daemon = Headgate::start_as(lab, "state", &[], &["--config", &config])?;
        let (disks, writers) = (Vec::new(), Vec::new());
        let pod = Pod { pace, slower, daemon, disks, writers };
        pod.go_by_load_alone(lab)?;
        Ok(pod)
    }

    fn add_disk(&mut self, lab: &Lab, number: usize) -> anyhow::Result<()> {
        let name = format!("{}{}", TYPES[number % TYPES.len()].0, number / TYPES.len() + 1);
        let create =
            ["disk", "create", &name, "--datastore=array6", "--size=256M", "--datastore-class=pod"];
        self.daemon.command(&create)?;
        let client = if IN_GUESTS.contains(&number) {
            let drive = Drive::VhostUser { socket: self.daemon.vhost_socket(&name) };
            Client::Guest(Box::new(Guest::boot(lab, &Machine::new(&name, drive))?))
        } else {
            let (socket, seed) = (self.daemon.nbd_socket(), 1 + number as u64);
            self.writers.push(Writer::new(socket, &name, seed, CHECKED).with_depth(1));
            let (uri, dir) = (self.daemon.nbd_uri(&name), lab.subdir(&format!("client-{name}"))?);
            Client::Nbd { fio: None, uri, dir }
        };
        self.disks.push(Disk { name, on: "array6".into(), client, longest: 0.0 });
        Ok(())
    }

    /// The arrays' files share a file system with all else that is on the machine: how full that is
    /// shall not matter.
    fn go_by_load_alone(&self, lab: &Lab) -> anyhow::Result<()> {
        let rules = lab.dir().join("rules.toml");
        std::fs::write(&rules, "[space]\nfull = 1000\nrelieve = 1000\n")?;
        self.daemon.command(&["rules", "set", &rules.display().to_string()]).map(drop)
    }

    /// A cache so small that it is in its steady state within a second, and as many requests at the
    /// array as there are: nothing is learnt from those that wait for us.
    fn add_array(&self, spindles: u32) -> anyhow::Result<()> {
        let name = format!("array{spindles}");
        let model =
            format!("array={spindles},cache=8M,slowdown={}", self.slower * self.pace.factor());
        let depth = format!("--queue-depth={WIDE}");
        let add = ["datastore", "add", &name, "--emulated", &model, &depth, "--class=pod"];
        self.daemon.command(&add).map(drop)
    }

    /// Has a disk's client load it with these parts of its depth in per cent, one after the other,
    /// and stay at the last.
    fn load(&mut self, number: usize, parts: &[u32]) -> anyhow::Result<()> {
        let depths: Vec<u32> =
            parts.iter().map(|part| (DEPTHS[number] * part).div_ceil(100)).collect();
        let jobs = job(TYPES[number % TYPES.len()], &depths, self.pace.time(STEP));
        self.disks[number].client.start(&jobs)
    }

    /// Loads all disks.
    fn load_all(&mut self, parts: &[u32]) -> anyhow::Result<()> {
        (0..self.disks.len()).try_for_each(|number| self.load(number, parts))
    }

    /// Ends all loads; answers by disk how long a request waited at most, in milliseconds.
    fn stop_all(&mut self) -> anyhow::Result<Vec<f64>> {
        Ok(self.stop_and_tell()?.into_iter().map(|told| told.longest).collect())
    }

    fn stop_and_tell(&mut self) -> anyhow::Result<Vec<Told>> {
        self.disks.iter_mut().map(|disk| disk.client.stop()).collect()
    }

    /// Lets all disks run until it is known of each array they are on how latency rises there, and
    /// answers what they did at full load.
    fn run(&mut self) -> anyhow::Result<Measured> {
        for _ in 0..CYCLES {
            let measured = self.cycle()?;
            let used: BTreeSet<&str> = self.disks.iter().map(|disk| disk.on.as_str()).collect();
            let known =
                used.into_iter().map(|on| Ok(self.model(on)?["model"]["evidence"] == "rise"));
            if known.collect::<anyhow::Result<Vec<bool>>>()?.into_iter().all(|rises| rises) {
                return Ok(measured);
            }
        }
        bail!("after {CYCLES} cycles of loads it is not known how latency rises with load")
    }

    /// Loads all disks through the steps, and measures at the last.
    fn cycle(&mut self) -> anyhow::Result<Measured> {
        self.load_all(&STEPS)?;
        sleep(self.pace.time(STEP) * (STEPS.len() as u32 - 1) + Duration::from_secs(2));
        let full = self.disks.iter().zip(DEPTHS);
        let full = full.fold(Premises::new(), |all, (disk, depth)| match disk.client {
            Client::Nbd { .. } => all.backlog(&disk.name, depth),
            // It computes on its way to its device.
            Client::Guest(_) => all.backlog_of(&disk.name, depth, 0.85),
        });
        let look = || {
            let before = self.daemon.metrics()?;
            sleep(self.pace.time(LOOK));
            Ok((before, self.daemon.metrics()?))
        };
        let ((before, after), interval) = full.measure(&self.daemon, look)?;
        let seconds = (after.at - before.at).as_secs_f64();
        let mut measured = Measured::default();
        let (mut waited, mut reads, mut read_seconds) = (0.0, 0.0, 0.0);
        for Disk { name, .. } in &self.disks {
            let count = after.ops(name)? - before.ops(name)?;
            let since = |metric: &str| -> anyhow::Result<f64> {
                Ok(after.of_disk(metric, name)? - before.of_disk(metric, name)?)
            };
            let busy = since("headgate_disk_outstanding_request_seconds_total")?;
            // Of the two directions reads come first.
            reads += since("headgate_disk_device_seconds_count")?;
            read_seconds += since("headgate_disk_device_seconds_sum")?;
            eprintln!("  {name}: {:.2} requests outstanding", interval.outstanding(name)?);
            measured.disks.insert(name.clone(), (count / seconds, busy / count * 1e3));
            measured.iops += count / seconds;
            waited += busy / seconds;
        }
        measured.latency = waited / measured.iops * 1e3;
        measured.reads = read_seconds / reads * 1e3;
        let longest = self.stop_all()?;
        self.disks.iter_mut().zip(longest).for_each(|(disk, longest)| disk.longest = longest);
        Ok(measured)
    }

    /// The pool that the disks are in, and what is advised for it.
    fn advice(&self) -> anyhow::Result<Value> {
        let report = self.daemon.json(&["advise"])?;
        let pools = report["pools"].as_array().context("no pools")?;
        pools.iter().find(|pool| pool["class"] == "pod").cloned().context("no pool of this class")
    }

    /// Has what is advised carried out while all clients are at full load; answers how many disks
    /// went to each datastore.
    fn follow(&mut self, by: By) -> anyhow::Result<BTreeMap<String, usize>> {
        self.load_all(&[100])?;
        self.promise(NARROW, &self.pace.rate(RESERVATION).to_string())?;
        self.disks.iter_mut().try_for_each(|disk| disk.client.begin_checks())?;
        sleep(self.pace.time(Duration::from_secs(2)));
        let (mut writers, patience) = (std::mem::take(&mut self.writers), self.pace.time(MOVED));
        let watched = writer::beside(&mut writers, patience, || self.balance(by));
        self.writers = writers;
        let (watched, routes) = watched?;
        self.disks.iter_mut().try_for_each(|disk| disk.client.end_checks(patience))?;
        let longest = self.stop_all()?;
        for (disk, longest) in self.disks.iter().zip(longest) {
            let (name, without) = (&disk.name, disk.longest);
            eprintln!("  {name}: the longest wait was {longest:.0} ms, {without:.0} without moves");
        }
        self.promise(WIDE, "none")?;
        self.held(&watched)?;
        let mut gone: BTreeMap<String, usize> = BTreeMap::new();
        for disk in &mut self.disks {
            let shown = self.daemon.json(&["disk", "show", &disk.name])?;
            let now = shown["datastore"].as_str().context("a disk is somewhere")?;
            let due = routes.get(&disk.name).unwrap_or(&disk.on);
            ensure!(now == due, "{} is on {now}, and should be on {due}", disk.name);
            if disk.on != now {
                disk.on = now.to_owned();
                *gone.entry(now.to_owned()).or_default() += 1;
            }
        }
        Ok(gone)
    }

    /// Reservations, and arrays that they need: what waits for us, for them too, says nothing of
    /// the arrays to who learns.
    fn promise(&self, depth: u32, reservation: &str) -> anyhow::Result<()> {
        for number in RESERVED {
            let set = ["disk", "set", &self.disks[number].name, "--reservation", reservation];
            self.daemon.command(&set)?;
        }
        let depth = format!("--queue-depth={depth}");
        SPINDLES.into_iter().try_for_each(|spindles| {
            let set = ["datastore", "set", &format!("array{spindles}"), &depth];
            self.daemon.command(&set).map(drop)
        })
    }

    fn carried_by_hand(&self) -> anyhow::Result<Value> {
        let within = self.pace.time(MOVED);
        let said = self.daemon.command_for(within, &["balance", "--apply", SHARES, "--json"])?;
        Ok(serde_json::from_str::<Value>(&said)?["run"].clone())
    }

    /// Has the advice carried out; answers what the disks did meanwhile, second by second, and
    /// which disk went where.
    fn balance(&self, by: By) -> anyhow::Result<(Vec<Second>, BTreeMap<String, String>)> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watching = scope.spawn(|| -> anyhow::Result<Vec<Second>> {
                let now = || -> anyhow::Result<_> {
                    Ok((Sample::read(&self.daemon)?, self.queued()?, stolen()?))
                };
                let (mut seen, mut before) = (Vec::new(), now()?);
                while !over.load(Ordering::Relaxed) {
                    sleep(self.pace.time(Duration::from_secs(1)));
                    let (to, queued, since) = now()?;
                    let (from, earlier, until) =
                        std::mem::replace(&mut before, (to.clone(), queued, since));
                    let queued = [0, 1].map(|n| queued[n] - earlier[n]);
                    let stolen = since.saturating_sub(until).as_secs_f64();
                    seen.push(Second { interval: Interval { from, to }, queued, stolen });
                }
                Ok(seen)
            });
            let run = match by {
                By::Operator => self.carried_by_hand(),
                By::Rules => self.carried_by_rules(),
            };
            over.store(true, Ordering::Relaxed);
            let seen = watching.join().expect("nobody panics")?;
            // Not always what was advised before: the clients have gone on since, and a move is
            // made if it still stands when its turn comes.
            let run = run?;
            let moves = run["moves"].as_array().cloned().unwrap_or_default();
            let is = |one: &Value, state: &str| one["state"] == state;
            ensure!(moves.iter().all(|one| is(one, "moved") || is(one, "skipped")), "{run}");
            let route =
                |one: &Value| ["disk", "to"].map(|key| one[key].as_str().map(str::to_owned));
            let routes = moves
                .iter()
                .filter(|one| is(one, "moved"))
                .map(route)
                .map(|[disk, to]| disk.zip(to));
            Ok((seen, routes.collect::<Option<_>>().context("a move without a disk")?))
        })
    }

    /// How long the reads and writes of those with a reservation have waited for their dispatch, in
    /// seconds. Of a disk that has moved it begins anew.
    fn queued(&self) -> anyhow::Result<[f64; 2]> {
        let metrics = self.daemon.metrics()?;
        let of = |number: usize| {
            metrics.sum_of_disk("headgate_disk_queue_seconds_sum", &self.disks[number].name)
        };
        Ok([of(RESERVED[0])?, of(RESERVED[1])?])
    }

    /// Every reservation was held in these seconds together, and in each: 1 % may be missing, and
    /// one request, and what was due while a hypervisor ran others. It is counted in normalised
    /// IOs, as it is promised, and as the scheduler gives them: how long the array takes is not its
    /// choice. A disk of which nothing waits is given all that it asks for.
    fn held(&self, seconds: &[Second]) -> anyhow::Result<()> {
        for (turn, number) in RESERVED.into_iter().enumerate() {
            let disk = &self.disks[number].name;
            // But for the second in which it was switched over.
            let stayed = seconds.iter().filter(|second| second.interval.stayed(disk));
            let stayed: Vec<_> = stayed.collect();
            ensure!(stayed.len() + 2 >= seconds.len() && !stayed.is_empty(), "{disk} is not seen");
            // Nothing is promised to a disk whose client sends too little.
            let all: f64 = stayed.iter().map(|second| second.interval.seconds()).sum();
            let outstanding: Vec<f64> = stayed
                .iter()
                .map(|second| {
                    let interval = &second.interval;
                    Ok(interval.outstanding(disk)? * interval.seconds() / all)
                })
                .collect::<anyhow::Result<_>>()?;
            let outstanding: f64 = outstanding.iter().sum();
            eprintln!("  {disk}: {outstanding:.2} requests outstanding while disks moved");
            Unmet::check_backlog(disk, DEPTHS[number], outstanding)?;
            let stolen: f64 = stayed.iter().map(|second| second.stolen).sum();
            let most = STOLEN * f64::from(self.pace.factor());
            Unmet::check_stolen(stolen / all, most.min(0.5))?;
            let (mut least, mut length, mut given, mut waited) = (f64::INFINITY, 0.0, 0.0, 0);
            for second in stayed {
                let (seconds, now) = second.interval.given(disk)?;
                let due = f64::from(self.pace.rate(RESERVATION)) * seconds;
                let waiting = second.queued[turn] / seconds;
                if waiting >= 1.0 {
                    (least, waited) = (least.min(now / due), waited + 1);
                    let late = f64::from(self.pace.rate(RESERVATION)) * second.stolen;
                    ensure!(
                        now + 2.0 + late >= 0.99 * due,
                        "{disk} was given {now:.1} normalised IOs of {due:.1} in {seconds:.2} s, \
                         while {waiting:.1} of its requests waited and a hypervisor took {:.3} s",
                        second.stolen
                    );
                }
                (length, given) = (length + seconds, given + now);
            }
            let all = given / (f64::from(self.pace.rate(RESERVATION)) * length);
            eprintln!(
                "  {disk}: {all:.3} of its reservation in {length:.0} s; {least:.3} in the worst of \
                 {waited} s in which requests of it waited; a hypervisor took {stolen:.2} s"
            );
            ensure!(all >= 0.99, "{disk} had {all:.3} of its reservation while disks moved");
        }
        Ok(())
    }

    /// How many moves of disks of the pool are known, none of which moved twice: a disk that has
    /// moved is left in peace.
    fn known_moves(&self, found: &Value) -> anyhow::Result<usize> {
        let history = found["pool"]["history"].as_array().context("no history")?;
        let ours = history.iter().filter_map(|moved| moved["disk"].as_str());
        let mut disks: Vec<&str> =
            ours.filter(|disk| self.disks.iter().any(|known| known.name == *disk)).collect();
        disks.sort_unstable();
        ensure!(disks.windows(2).all(|pair| pair[0] != pair[1]), "a disk moved twice: {disks:?}");
        Ok(disks.len())
    }

    /// What an array did is there by the hour.
    fn check_history(&self, datastore: &str) -> anyhow::Result<()> {
        let store = self.daemon.json(&["datastore", "show", datastore, "--history"])?;
        let hours = store["history"].as_array().context("no history")?;
        let sum = |what: &str| hours.iter().filter_map(|hour| hour[what].as_f64()).sum::<f64>();
        ensure!(sum("reads") > 0.0 && sum("seen_seconds") > 0.0, "no reads in {hours:?}");
        ensure!(sum("intervals") > 0.0, "none to learn from in {hours:?}");
        let slowest = hours.iter().filter_map(|hour| hour["device_micros"]["p99"].as_f64());
        ensure!(slowest.fold(0.0, f64::max) > 1_000.0, "spindles take milliseconds: {hours:?}");
        Ok(())
    }

    fn model(&self, datastore: &str) -> anyhow::Result<Value> {
        let store = self.daemon.json(&["datastore", "show", datastore])?;
        eprintln!(
            "  {datastore}: {}, {} intervals",
            store["model"]["text"], store["model"]["intervals"]
        );
        Ok(store["model"].clone())
    }
}

fn millis(nanos: &Value) -> f64 {
    nanos.as_f64().unwrap_or(f64::NAN) / 1e6
}

#[test]
fn disks_on_one_array_are_spread_over_three_under_load_and_it_pays() {
    with_paced_lab_alone(&["fio", QEMU], |lab, pace| {
        let mut pod = Pod::start(lab, pace, SLOWER)?;
        let first = pod.run()?;
        let (mut last, mut moved) = (first.clone(), 0);
        pod.add_array(3)?;
        pod.add_array(9)?;
        for round in 1.. {
            let found = pod.advice()?;
            eprintln!("{}", pod.daemon.command(&["advise"])?);
            let advice = &found["advice"];
            ensure!(
                pod.known_moves(&found)? == moved,
                "{moved} disks have moved, not {}",
                found["pool"]["history"]
            );
            if advice["moves"].as_array().is_some_and(Vec::is_empty) {
                eprintln!("round {round}: {}", advice["verdict"]);
                break;
            }
            ensure!(round <= 4, "the advice does not come to an end");
            let unknown: Vec<String> = found["pool"]["datastores"]
                .as_array()
                .context("no datastores")?
                .iter()
                .filter(|store| store["model"].is_null())
                .filter_map(|store| store["name"].as_str().map(str::to_owned))
                .collect();
            // The first round without an operator.
            let by = if round == 1 { By::Rules } else { By::Operator };
            let gone = pod.follow(by)?;
            ensure!(round > 1 || !gone.is_empty(), "the rules have moved nothing");
            if gone.is_empty() {
                eprintln!("round {round}: under load no move is advised");
                break;
            }
            moved += gone.values().sum::<usize>();
            for (name, count) in &gone {
                ensure!(
                    !unknown.contains(name) || *count == 1,
                    "{count} disks at once to {name}, which is not known"
                );
            }
            last = pod.run()?;
            eprintln!(
                "round {round}: {gone:?}; {:.0} IOPS, {:.1} ms; reads {:.1} ms, predicted {:.1} ms",
                last.iops,
                last.latency,
                last.reads,
                millis(&advice["after"]["latency"])
            );
        }
        SPINDLES
            .into_iter()
            .try_for_each(|spindles| pod.check_history(&format!("array{spindles}")))?;
        // P for each spindle: the least, the likely, the most (95 %).
        let each: Vec<[f64; 3]> = SPINDLES
            .into_iter()
            .map(|spindles| {
                let model = pod.model(&format!("array{spindles}"))?;
                let slope = |key: &str| {
                    model[key].as_f64().with_context(|| format!("no model of array{spindles}"))
                };
                let slopes = [slope("slope_high_ns")?, slope("slope_ns")?, slope("slope_low_ns")?];
                Ok(slopes.map(|nanos| 1e6 / nanos / f64::from(spindles)))
            })
            .collect::<anyhow::Result<_>>()?;
        let mean = each.iter().map(|[_, likely, _]| likely).sum::<f64>() / 3.0;
        eprintln!("P per spindle {each:.3?}, mean {mean:.3}");
        eprintln!(
            "before {:.0} IOPS, {:.1} ms; after {:.0} IOPS, {:.1} ms",
            first.iops, first.latency, last.iops, last.latency
        );
        let better = first.disks.iter().filter(|(name, was)| last.disks[*name].0 > was.0).count();
        for (name, (iops, latency)) in &first.disks {
            let now = last.disks[name];
            eprintln!("  {name}: {iops:.0} -> {:.0} IOPS, {latency:.1} -> {:.1} ms", now.0, now.1);
        }
        // Within 15 %, as far as a few minutes of measurements can tell: each slope is known to
        // some 7 %.
        ensure!(
            each.iter().all(|[least, _, most]| *least <= 1.15 * mean && *most >= 0.85 * mean),
            "P is not as the spindles: {each:.3?}"
        );
        ensure!(last.iops >= 1.8 * first.iops, "throughput rose by too little");
        ensure!(last.latency <= 0.6 * first.latency, "latency fell by too little");
        ensure!(better >= 6, "only {better} of 8 disks are better off");
        pod.daemon.stop()
    });
}
