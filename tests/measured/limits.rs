//! Limits that do not bind all the time: soft limits, which yield where nobody else may be served,
//! and peaks, which a disk has earned by staying below its limit.

use crate::stores::{Disk, start, stop};
use anyhow::{Context, ensure};
use headgate_lab::headgate::Headgate;
use headgate_lab::pace::{Pace, with_paced_lab};
use headgate_lab::premise::Premises;
use headgate_lab::sample::{Interval, Sample};
use headgate_lab::{Lab, Server};
use std::cell::Cell;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What the storage below soft limits serves per second, and the limits on it.
const RATE: u32 = 1_000;
const SOFT: u32 = 100;
const STRICT: u32 = 300;

/// The part of the time for which the daemon may wait for a CPU. What it dispatches late because of
/// that, limits make good for.
const WAITING: f64 = 0.3;

/// What each of these disks got per second, once a new neighbour's first requests are served.
fn after_a_change(
    daemon: &Headgate,
    pace: Pace,
    premises: &Premises,
    what: &str,
    due: &[(&str, u32)],
) -> anyhow::Result<()> {
    sleep(pace.time(Duration::from_secs(1)));
    let interval = premises.watch(daemon, pace.time(Duration::from_secs(4)))?;
    for (disk, due) in due {
        let (got, due) = (interval.iops(disk)?, f64::from(pace.rate(*due)));
        eprintln!("  {what}: {disk} {got:.1} per second of {due} due");
        ensure!((0.95 * due..=1.03 * due).contains(&got), "{what}: {disk} {got:.1} of {due}");
    }
    Ok(())
}

#[test]
fn a_soft_limit_yields_to_nobody_but_the_idle() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = Headgate::start(lab)?;
        let model = format!("rate={}", pace.rate(RATE));
        // By shares alone it would get nearly all.
        let soft = format!("--limit={} --limit-mode=soft --shares=10000", pace.rate(SOFT));
        let soft = Disk::new("soft", soft);
        let strict = Disk::new("strict", format!("--limit={} --shares=1000", pace.rate(STRICT)));
        let busy = Disk::new("busy", "--shares=100".to_owned());
        let mut clients = start(lab, &daemon, "array", &[&model], std::slice::from_ref(&soft))?;
        for disk in [&strict, &busy] {
            disk.create(&daemon, "array")?;
        }
        // What the storage serves is what is asked here, so that it is busy is no premise.
        let premises = soft.backlog(Premises::new().prompt(WAITING));
        let after = |premises: &Premises, what: &str, due: &[(&str, u32)]| {
            after_a_change(&daemon, pace, premises, what, due)
        };
        after(&premises, "alone", &[("soft", RATE)])?;

        clients.push(strict.load(lab, &daemon)?);
        let premises = strict.backlog(premises);
        let beside = [("soft", RATE - STRICT), ("strict", STRICT)];
        after(&premises, "beside one at its limit", &beside)?;

        let neighbour = busy.load(lab, &daemon)?;
        let contended = busy.backlog(premises.clone());
        let rest = RATE - STRICT - SOFT;
        let due = [("soft", SOFT), ("strict", STRICT), ("busy", rest)];
        after(&contended, "beside a busy one", &due)?;

        stop(vec![neighbour])?;
        after(&premises, "when it has gone", &beside)?;
        stop(clients)?;
        daemon.stop()
    });
}

/// A limit, its peak, and for how many seconds.
const LIMIT: u32 = 100;
const PEAK: u32 = 400;
const TIME: u32 = 3;

/// How long a disk is watched from its first request on, how long it then sleeps, and how long it
/// is watched again.
const FIRST: Duration = Duration::from_secs(5);
const SLEEP: Duration = Duration::from_secs(3);
const SECOND: Duration = Duration::from_secs(3);

/// What a disk had got at an instant of the daemon's clock: seconds and requests since the first.
type Point = (f64, f64);

/// What disks get, while a client of one comes, goes and comes again.
struct Course {
    samples: Vec<Sample>,
    /// How many of them there were when the client went.
    gone: usize,
}

impl Course {
    fn points(&self, disk: &str) -> anyhow::Result<Vec<Point>> {
        let points = self.samples.iter().map(|to| {
            let interval = Interval { from: self.samples[0].clone(), to: to.clone() };
            interval.completed(disk).map(|(seconds, count)| (seconds, count as f64))
        });
        points.collect()
    }
}

fn watch(daemon: &Headgate, length: Duration, into: &mut Vec<Sample>) -> anyhow::Result<()> {
    let end = Instant::now() + length;
    while Instant::now() < end {
        into.push(Sample::read(daemon)?);
        sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A disk that was not there before is asked for all that it may have, sleeps, and is asked again.
/// Meanwhile the peak of the disk `changed`, which is always asked, has just been set.
fn run(lab: &Lab, daemon: &Headgate, disk: &Disk, peak: &str) -> anyhow::Result<Course> {
    disk.create(daemon, "array")?;
    daemon.command(&["disk", "set", "changed", "--limit-peak=none"])?;
    let time = format!("--limit-peak-time={TIME}");
    daemon.command(&["disk", "set", "changed", peak, &time])?;
    let mut samples = vec![Sample::read(daemon)?];
    let client = disk.load(lab, daemon)?;
    watch(daemon, FIRST, &mut samples)?;
    stop(vec![client])?;
    samples.push(Sample::read(daemon)?);
    let gone = samples.len();
    sleep(SLEEP);
    let client = disk.load(lab, daemon)?;
    watch(daemon, SECOND, &mut samples)?;
    stop(vec![client])?;
    Ok(Course { samples, gone })
}

/// Limit, peak, what a full bucket holds, and by how much what completed may differ from what was
/// dispatched: what a limit makes good for at once, as after a pause of the machine.
struct Promise {
    limit: f64,
    peak: f64,
    bucket: f64,
    around: f64,
}

impl Promise {
    fn new(pace: Pace) -> Promise {
        let (limit, peak) = (f64::from(pace.rate(LIMIT)), f64::from(pace.rate(PEAK)));
        let bucket = (peak - limit) * f64::from(TIME);
        Promise { limit, peak, bucket, around: 1.0 + peak * 0.02 }
    }

    /// The most in any time so long: what the limit and a full bucket allow, and a limit of the
    /// peak's rate.
    fn most(&self, time: f64) -> f64 {
        let seconds = time.ceil();
        let peak = (seconds + 0.02 + 0.0075 * (seconds - 1.0)).min(time + 0.15);
        (self.limit * time + self.bucket).min(self.peak * peak) + 1.0 + self.around
    }

    fn never_more(&self, points: &[Point]) -> anyhow::Result<()> {
        for (from, (begin, before)) in points.iter().enumerate() {
            for (end, after) in &points[from..] {
                let (time, got, most) = (end - begin, after - before, self.most(end - begin));
                ensure!(
                    got <= most,
                    "{got} in {time:.2} s from {begin:.2} s on: {most:.1} at most"
                );
            }
        }
        Ok(())
    }

    /// From the first request on, the disk goes at its peak until it has had what it `earned`
    /// beyond its limit, and gets all of that in the end. What it got before it was first seen to
    /// get something, it got at its peak too: so the peak is looked for in four fifths of its time.
    fn never_less(&self, points: &[Point], earned: f64) -> anyhow::Result<()> {
        let first = points.iter().find(|(_, count)| *count > points[0].1).context("no request")?;
        let last = points.last().context("no points")?;
        let lasts = earned / (self.peak - self.limit);
        let end =
            points.iter().rfind(|(at, _)| at - first.0 <= 0.8 * lasts).context("no points")?;
        let (burst, rate) = (end.0 - first.0, (end.1 - first.1) / (end.0 - first.0));
        let (time, got) = (last.0 - first.0, last.1 - points[0].1);
        let due = earned + self.limit * time;
        eprintln!("  {rate:.1} per second for {burst:.2} s, {got} of {due:.1} in {time:.2} s");
        ensure!(rate >= 0.9 * self.peak, "{rate:.1} per second of {} for {lasts} s", self.peak);
        ensure!(got >= 0.97 * due, "{got} of {due:.1} in {time:.2} s");
        Ok(())
    }
}

#[test]
fn a_peak_is_for_as_long_as_it_was_earned() {
    with_paced_lab(&[], |lab, pace| {
        let mut daemon = Headgate::start(lab)?;
        let model = format!("rate={}", pace.rate(2_000));
        let promise = Promise::new(pace);
        let limit = format!("--limit={}", promise.limit);
        let peak = format!("--limit-peak={}", promise.peak);
        let changed = [Disk::new("changed", limit.clone())];
        let clients = start(lab, &daemon, "array", &[&model], &changed)?;
        let premises = changed[0].backlog(Premises::new().prompt(WAITING));
        // A disk that was asked before has less than a full bucket.
        let attempt = Cell::new(0);
        let (course, _) = premises.measure(&daemon, || {
            attempt.set(attempt.get() + 1);
            let policy = format!("{limit} {peak} --limit-peak-time={TIME}");
            let disk = Disk::new(&format!("web-{}", attempt.get()), policy);
            run(lab, &daemon, &disk, &peak)
        })?;
        stop(clients)?;

        let points = course.points(&format!("web-{}", attempt.get()))?;
        promise.never_more(&points)?;
        promise.never_less(&points[..course.gone], promise.bucket)?;
        let (slept, woke) = (points[course.gone - 1].0, points[course.gone].0);
        promise.never_less(&points[course.gone - 1..], promise.limit * (woke - slept))?;

        let points = course.points("changed")?;
        let (time, got) = points[points.len() - 1];
        let due = promise.limit * time;
        eprintln!("  with a peak that was just set {got} of {due:.1} in {time:.2} s");
        ensure!(got <= 1.01 * due + 0.15 * promise.limit + promise.around, "{got} of {due:.1}");
        ensure!(got >= 0.97 * due, "{got} of {due:.1}");
        daemon.stop()
    });
}
