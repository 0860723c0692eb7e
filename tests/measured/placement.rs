//! Placement learns what datastores can do and what disks ask for from real clients, and its advice
//! is worth following: table 4 of the BASIL paper (FAST 2010). Eight disks with the paper's
//! workloads are on an array of six spindles; arrays of three and of nine come to it, empty and
//! unknown. Disks are moved by making them anew where the advice says, as the same disks: what is
//! on them does not matter here, what they did does.

use anyhow::{Context, bail, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::process::Process;
use headgate_lab::{Lab, Server};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
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

struct Disk {
    name: String,
    on: String,
    client: Option<Process>,
    dir: PathBuf,
}

struct Pod {
    pace: Pace,
    daemon: Headgate,
    disks: Vec<Disk>,
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
    fn start(lab: &Lab, pace: Pace) -> anyhow::Result<Pod> {
        let config = lab.dir().join("headgate.toml");
        std::fs::write(&config, "sample-seconds = 2\n")?;
        let config = config.display().to_string();
        let daemon = Headgate::start_as(lab, "state", &[], &["--config", &config])?;
        let mut pod = Pod { pace, daemon, disks: Vec::new() };
        pod.go_by_load_alone(lab)?;
        pod.add_array(6)?;
        for number in 0..DEPTHS.len() {
            let name = format!("{}{}", TYPES[number % TYPES.len()].0, number / TYPES.len() + 1);
            let dir = lab.subdir(&format!("client-{name}"))?;
            pod.disks.push(Disk { name, on: "array6".into(), client: None, dir });
            pod.create(number, &[])?;
        }
        Ok(pod)
    }

    /// The arrays' files share a file system with all else that is on the machine: how full that is
    /// shall not matter.
    fn go_by_load_alone(&self, lab: &Lab) -> anyhow::Result<()> {
        let rules = lab.dir().join("rules.toml");
        std::fs::write(&rules, "[space]\nfull = 1000\nrelieve = 1000\n")?;
        self.daemon.command(&["rules", "set", &rules.display().to_string()]).map(drop)
    }

    /// A cache so small that it is in its steady state within a second, and as many requests at the
    /// array as there are.
    fn add_array(&self, spindles: u32) -> anyhow::Result<()> {
        let name = format!("array{spindles}");
        let model = format!("array={spindles},cache=8M,slowdown={}", self.pace.factor());
        let add =
            ["datastore", "add", &name, "--emulated", &model, "--queue-depth=512", "--class=pod"];
        self.daemon.command(&add).map(drop)
    }

    fn create(&self, number: usize, more: &[&str]) -> anyhow::Result<()> {
        let Disk { name, on, .. } = &self.disks[number];
        let create = ["disk", "create", name, "--datastore", on, "--size=2G", "--class=pod"];
        self.daemon.command(&[&create[..], more].concat()).map(drop)
    }

    /// Starts a client that raises its load step by step and then stays where it is.
    fn load(&mut self, number: usize) -> anyhow::Result<()> {
        let (_, kib, read, random) = TYPES[number % TYPES.len()];
        let uri = self.daemon.nbd_uri(&self.disks[number].name);
        let mut jobs = format!(
            "[global]\nioengine=nbd\nuri={uri}\nrw=randrw\nbs={kib}k\nrwmixread={read}\npercentage_random={random}\n\
             time_based\nthread\nrandom_generator=tausworthe64\nnorandommap\n"
        );
        for (step, part) in STEPS.into_iter().enumerate() {
            let depth = (DEPTHS[number] * part).div_ceil(100);
            let seconds =
                if step + 1 == STEPS.len() { 3_600 } else { self.pace.time(STEP).as_secs() };
            write!(jobs, "[step{step}]\niodepth={depth}\nruntime={seconds}\nstonewall\n")?;
        }
        let disk = &mut self.disks[number];
        let file = disk.dir.join("load.fio");
        std::fs::write(&file, jobs)?;
        let mut command = Command::new("fio");
        command.arg("--output").arg(disk.dir.join("report")).arg(file);
        disk.client = Some(Process::spawn("fio", command, &disk.dir.join("log"))?);
        Ok(())
    }

    fn stop(&mut self, number: usize) -> anyhow::Result<()> {
        if let Some(mut client) = self.disks[number].client.take() {
            client.interrupt()?;
            client.wait(Duration::from_secs(60))?;
        }
        Ok(())
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
        (0..self.disks.len()).try_for_each(|number| self.load(number))?;
        sleep(self.pace.time(STEP) * (STEPS.len() as u32 - 1) + Duration::from_secs(2));
        let full = self.disks.iter().zip(DEPTHS);
        let full = full.fold(Premises::new(), |p, (disk, depth)| p.backlog(&disk.name, depth));
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
        (0..self.disks.len()).try_for_each(|number| self.stop(number))?;
        Ok(measured)
    }

    /// The pool that the disks are in, and what is advised for it.
    fn advice(&self) -> anyhow::Result<Value> {
        let report = self.daemon.json(&["advise"])?;
        let pools = report["pools"].as_array().context("no pools")?;
        pools.iter().find(|pool| pool["class"] == "pod").cloned().context("no pool of this class")
    }

    /// Does what is advised; answers how many disks went to each datastore.
    fn follow(&mut self, advice: &Value) -> anyhow::Result<BTreeMap<String, usize>> {
        let mut gone: BTreeMap<String, usize> = BTreeMap::new();
        for each in advice["moves"].as_array().context("no moves")? {
            let (disk, to) = (
                each["disk"].as_str().context("no disk")?,
                each["to"].as_str().context("no target")?,
            );
            let number = self
                .disks
                .iter()
                .position(|known| known.name == disk)
                .context("an unknown disk")?;
            self.daemon.command(&["disk", "remove", disk])?;
            self.disks[number].on = to.to_owned();
            self.create(number, &["--moved-from", disk])?;
            *gone.entry(to.to_owned()).or_default() += 1;
        }
        Ok(gone)
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
fn disks_on_one_array_are_advised_to_spread_over_three_and_it_pays() {
    with_paced_lab(&["fio"], |lab, pace| {
        let mut pod = Pod::start(lab, pace)?;
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
            let gone = pod.follow(advice)?;
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
