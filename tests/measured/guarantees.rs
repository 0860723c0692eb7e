//! Every disk gets what it was promised, through the real daemon, on real guests and NBD clients.
//!
//! The set-ups of the mClock paper (USENIX OSDI 2010), Figures 5 and 6, at half their rates:
//! emulated guests share two CPUs with the daemon. Clients arrive one by one. Rates come out of the
//! daemon's per-disk counters; at the end each client's own count must agree with them.

use headgate_lab::allocation::{Promise, divide, ensure_divided};
use headgate_lab::guest::{Drive, Guest, Machine};
use headgate_lab::headgate::Headgate;
use headgate_lab::load::{self, Client};
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::sample::{Interval, Sample};
use headgate_lab::{DiskSpec, Lab, Server, wait_for};
use std::thread::sleep;
use std::time::Duration;

/// From the first reads of a newcomer to the measurement.
const SETTLE: Duration = Duration::from_secs(3);
/// A stage is measured for this long, in samples that far apart.
const SAMPLES: usize = 20;
const SAMPLE: Duration = Duration::from_millis(500);
/// Promises are checked over so many samples, which are five seconds at full pace.
const WINDOW: usize = 10;

struct SetUp {
    /// Reads per second that the emulated array serves.
    rate: u32,
    scheduler: &'static str,
    /// In order of arrival. The first two are guests, the others NBD clients on the host.
    disks: &'static [(&'static str, Promise)],
}

const FIGURE_5: SetUp = SetUp {
    rate: 800,
    scheduler: "mclock",
    disks: &[
        ("vm1", Promise::shares(100)),
        ("vm2", Promise { reservation: 0, limit: Some(200), shares: 100 }),
        ("vm3", Promise { reservation: 0, limit: Some(250), shares: 200 }),
    ],
};

const FIGURE_6: SetUp = SetUp {
    rate: 660,
    scheduler: "mclock",
    disks: &[
        ("vm1", Promise { reservation: 150, limit: None, shares: 100 }),
        ("vm2", Promise { reservation: 125, limit: None, shares: 100 }),
        ("vm3", Promise::shares(200)),
        ("vm4", Promise::shares(200)),
        ("vm5", Promise::shares(200)),
    ],
};

/// The samples of one stage, during which the first `active` disks are loaded.
struct Stage {
    active: usize,
    samples: Vec<Sample>,
}

impl Stage {
    /// The array is busy meanwhile, and every client keeps its requests outstanding.
    fn measure(
        daemon: &Headgate,
        setup: &SetUp,
        pace: Pace,
        active: usize,
    ) -> anyhow::Result<Stage> {
        let busy = Premises::new().busy("array", pace.rate(setup.rate).into());
        let disks = setup.disks[..active].iter();
        let premises = disks.fold(busy, |premises, (disk, _)| premises.backlog(disk, load::DEPTH));
        let sampled = premises.measure(daemon, || {
            let mut samples = vec![Sample::read(daemon)?];
            for _ in 0..SAMPLES {
                sleep(pace.time(SAMPLE));
                samples.push(Sample::read(daemon)?);
            }
            Ok(samples)
        })?;
        Ok(Stage { active, samples: sampled.0 })
    }

    fn rate_between(&self, disk: &str, from: &Sample, to: &Sample) -> anyhow::Result<f64> {
        Interval { from: from.clone(), to: to.clone() }.iops(disk)
    }

    /// A disk's rate over the whole stage.
    fn rate(&self, disk: &str) -> anyhow::Result<f64> {
        self.rate_between(disk, &self.samples[0], &self.samples[SAMPLES])
    }

    /// A disk's rates over every window of [`WINDOW`] samples.
    fn windows(&self, disk: &str) -> anyhow::Result<Vec<f64>> {
        let window = |samples: &[Sample]| self.rate_between(disk, &samples[0], &samples[WINDOW]);
        self.samples.windows(WINDOW + 1).map(window).collect()
    }
}

/// Runs a set-up; returns a stage per arrival. `first` is the number of clients in the first stage
/// measured.
fn run(lab: &Lab, pace: Pace, setup: &SetUp, first: usize) -> anyhow::Result<Vec<Stage>> {
    let mut daemon = Headgate::start(lab)?;
    let model = format!("rate={},depth=32", pace.rate(setup.rate));
    let scheduler = format!("--scheduler={}", setup.scheduler);
    daemon.command(&[
        "datastore",
        "add",
        "array",
        "--emulated",
        &model,
        &scheduler,
        "--queue-depth=32",
    ])?;
    for (disk, promise) in setup.disks {
        let DiskSpec { name, size } = DiskSpec::mib(disk, 256);
        let size = size.to_string();
        let mut arguments = vec!["disk", "create", &name, "--datastore", "array", "--size", &size];
        // A set-up whose reservations nobody keeps is the point of the comparison.
        arguments.push("--force");
        let promise = promise.at(pace).arguments();
        arguments.extend(promise.iter().map(String::as_str).filter(|a| !a.ends_with("=none")));
        daemon.command(&arguments)?;
    }
    let mut clients = Vec::new();
    for (i, (disk, _)) in setup.disks.iter().enumerate() {
        clients.push(if i < 2 {
            let drive = Drive::VhostUser { socket: daemon.vhost_socket(disk) };
            Client::Guest(Box::new(Guest::boot(lab, &Machine::new(disk, drive))?))
        } else {
            Client::nbd(lab, &daemon, disk)?
        });
    }
    let before = daemon.metrics()?;
    let mut stages = Vec::new();
    for (i, client) in clients.iter_mut().enumerate() {
        let disk = setup.disks[i].0;
        let served = daemon.metrics()?.ops(disk)?;
        client.start()?;
        wait_for("the newcomer should be served", Duration::from_secs(30), || {
            Ok((daemon.metrics()?.ops(disk)? > served + 32.0).then_some(()))
        })?;
        if i + 1 >= first {
            sleep(pace.time(SETTLE));
            stages.push(Stage::measure(&daemon, setup, pace, i + 1)?);
        }
    }
    for (client, (disk, _)) in clients.into_iter().zip(setup.disks) {
        let said = client.stop()? as f64;
        let counted = daemon.metrics()?.ops(disk)? - before.ops(disk)?;
        // A guest's kernel merges some neighbouring reads, and a client leaves some under way.
        let agree = (counted - said).abs() <= 64.0 + said / 100.0;
        anyhow::ensure!(agree, "{disk}: the client counts {said} reads, the daemon {counted}");
    }
    daemon.stop()?;
    Ok(stages)
}

/// Checks a stage against the promises and prints what it saw.
fn check(setup: &SetUp, pace: Pace, stage: &Stage) -> anyhow::Result<()> {
    let active = &setup.disks[..stage.active];
    let promises: Vec<_> = active.iter().map(|(disk, promise)| (*disk, promise.at(pace))).collect();
    let (first, last) = (&stage.samples[0], &stage.samples[SAMPLES]);
    let all = Interval { from: first.clone(), to: last.clone() };
    ensure_divided(&all, &promises, 0.03)?;
    for (disk, promise) in promises {
        let windows = stage.windows(disk)?;
        let (least, most) =
            windows.iter().fold((f64::INFINITY, 0.0_f64), |(lo, hi), w| (lo.min(*w), hi.max(*w)));
        eprintln!("  {disk}: over any 5 s {least:.1} to {most:.1}");
        let reservation = f64::from(promise.reservation);
        anyhow::ensure!(
            least >= 0.97 * reservation,
            "{disk}: reservation {reservation} missed: {least:.1} over 5 s"
        );
        if let Some(limit) = promise.limit.map(f64::from) {
            anyhow::ensure!(
                most <= 1.02 * limit,
                "{disk}: limit {limit} exceeded: {most:.1} over 5 s"
            );
        }
    }
    Ok(())
}

#[test]
fn limits_hold_as_clients_arrive() {
    with_paced_lab(&load::PROGRAMS, |lab, pace| {
        for stage in run(lab, pace, &FIGURE_5, 1)? {
            eprintln!("Figure 5 at half its rates, {} clients", stage.active);
            check(&FIGURE_5, pace, &stage)?;
        }
        Ok(())
    });
}

#[test]
fn reservations_hold_as_clients_arrive() {
    with_paced_lab(&load::PROGRAMS, |lab, pace| {
        for stage in run(lab, pace, &FIGURE_6, 1)? {
            eprintln!("Figure 6 at half its rates, {} clients", stage.active);
            check(&FIGURE_6, pace, &stage)?;
        }
        Ok(())
    });
}

#[test]
fn fair_queueing_alone_misses_the_reservations() {
    with_paced_lab(&load::PROGRAMS, |lab, pace| {
        let setup = SetUp { scheduler: "sfq", ..FIGURE_6 };
        let stages = run(lab, pace, &setup, setup.disks.len())?;
        let last = stages.last().expect("one stage");
        let rates =
            setup.disks.iter().map(|(d, _)| last.rate(d)).collect::<anyhow::Result<Vec<f64>>>()?;
        eprintln!("Figure 6 under SFQ(D): {rates:.1?}");
        let shares: Vec<Promise> =
            setup.disks.iter().map(|(_, p)| Promise::shares(p.shares)).collect();
        for (rate, due) in rates.iter().zip(divide(rates.iter().sum(), &shares)) {
            anyhow::ensure!(
                (rate / due - 1.0).abs() <= 0.03,
                "{rate:.1} IOPS where the share is {due:.1}"
            );
        }
        for ((disk, promise), rate) in setup.disks.iter().zip(&rates).take(2) {
            let reservation = f64::from(promise.at(pace).reservation);
            anyhow::ensure!(
                *rate < 0.9 * reservation,
                "{disk} got its reservation of {reservation}: {rate:.1}"
            );
        }
        Ok(())
    });
}
