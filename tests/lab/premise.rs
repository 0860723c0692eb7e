//! Premises: what must hold while a relation is measured, or the relation says nothing.
//!
//! "A disk with twice the shares gets twice the requests" holds for storage that is busy and for
//! disks whose clients always want more. On a machine that starves its guests neither is so, and
//! the division is then the machine's, not the scheduler's. A test therefore states its
//! [`Premises`]; they are measured over the very interval in which the relation is measured, from
//! counters that the daemon integrates over time. An interval without its premises is measured
//! again. If they do not hold then, the test begins anew in another way ([`pace`](crate::pace)),
//! and in the end it fails with the premise's own words: it never passes on one.

use crate::Lab;
use crate::headgate::Headgate;
use crate::sample::{Interval, Sample};
use crate::stolen::stolen;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io};

/// The part of its rate that a busy device serves at least.
const BUSY: f64 = 0.98;
/// The part of its clients' requests that a disk holds on average at least.
const BACKLOG: f64 = 0.95;
/// What a hypervisor may take, as a multiple of the time that shards may wait for a CPU. It takes
/// from whatever runs, not from shards alone, so it costs a device less of its rate.
const STOLEN: f64 = 1.5;
/// How often an interval is measured until its premises hold.
const ATTEMPTS: u32 = 3;

/// What must hold while a relation is measured.
#[derive(Clone, Debug, PartialEq)]
enum Premise {
    /// The device of a datastore serves all the requests per second that it can.
    Busy { datastore: String, rate: f64 },
    /// The clients of a disk keep so many requests outstanding.
    Backlog { disk: String, depth: f64, part: f64 },
    /// A shard that is ready to run has a CPU but for this part of the time, and a hypervisor
    /// takes no more than [`STOLEN`] times that from the machine.
    Prompt { waiting: f64 },
    /// The file system below a directory flushes within this time on average.
    Flushes { dir: PathBuf, within: Duration },
}

/// The premises of one measurement.
#[derive(Clone, Debug, Default)]
pub struct Premises(Vec<Premise>);

/// A premise that was not met, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet(pub(crate) String);

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing can be said of the relation, for its premise was not met: {}", self.0)
    }
}

impl std::error::Error for Unmet {}

impl Unmet {
    /// That a disk's clients kept so many requests outstanding on average. To be told over times
    /// that are not one interval.
    ///
    /// # Errors
    /// This, when it was less than nine and a half of ten.
    pub fn check_backlog(disk: &str, depth: u32, mean: f64) -> Result<(), Unmet> {
        let kept = mean >= BACKLOG * f64::from(depth);
        let words = || format!("disk {disk} had {mean:.2} requests outstanding, not {depth}");
        kept.then_some(()).ok_or_else(|| Unmet(words()))
    }

    /// That a hypervisor took no more than this part of the time. To be told over times that are
    /// not one interval.
    ///
    /// # Errors
    /// This, when it took more.
    pub fn check_stolen(part: f64, most: f64) -> Result<(), Unmet> {
        let words = || format!("a hypervisor took {:.1} % of the time", part * 100.0);
        (part <= most).then_some(()).ok_or_else(|| Unmet(words()))
    }
}

impl Premises {
    /// None yet.
    pub fn new() -> Premises {
        Premises::default()
    }

    /// The device of this datastore, an emulated one of a fixed rate, is busy all the time. What is
    /// missing at its rate is time in which it was idle, or in which the daemon was late.
    #[must_use]
    pub fn busy(mut self, datastore: &str, rate: f64) -> Premises {
        self.0.push(Premise::Busy { datastore: datastore.to_owned(), rate });
        self
    }

    /// The clients of this disk keep so many requests outstanding. What is missing on average are
    /// requests that a client was slow to send: by Little's law, the rate times the delay.
    #[must_use]
    pub fn backlog(self, disk: &str, depth: u32) -> Premises {
        self.backlog_of(disk, depth, BACKLOG)
    }

    /// The same, of which this part is enough.
    #[must_use]
    pub fn backlog_of(mut self, disk: &str, depth: u32, part: f64) -> Premises {
        let depth = f64::from(depth);
        self.0.push(Premise::Backlog { disk: disk.to_owned(), depth, part });
        self
    }

    /// The daemon's shards have a CPU when they need one: they wait for it for no more than this
    /// part of the time, and a hypervisor takes no more than half as much again from the machine.
    /// For devices that do not make good what a late driver costs.
    #[must_use]
    pub fn prompt(mut self, waiting: f64) -> Premises {
        self.0.push(Premise::Prompt { waiting });
        self
    }

    /// The machine's own disk flushes a block within this time on average: an emulated disk is not
    /// flushed before its image is.
    #[must_use]
    pub fn flushes(mut self, lab: &Lab, within: Duration) -> Premises {
        self.0.push(Premise::Flushes { dir: lab.dir().to_owned(), within });
        self
    }

    /// The directories whose file systems have to flush in time.
    fn flushed(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter_map(|premise| match premise {
            Premise::Flushes { dir, .. } => Some(dir.as_path()),
            _ => None,
        })
    }

    /// What was not as it must be in this interval.
    fn unmet(&self, interval: &Interval, machine: &Machine) -> anyhow::Result<Vec<String>> {
        let mut unmet = Vec::new();
        for premise in &self.0 {
            unmet.extend(premise.unmet(interval, machine)?);
        }
        Ok(unmet)
    }

    /// Measures until the premises hold: runs `work`, which takes as long as is to be measured, and
    /// returns its result with the interval that it took.
    ///
    /// # Errors
    /// [`Unmet`] when the premises held in no attempt; and whatever `work` fails with.
    pub fn measure<T>(
        &self,
        daemon: &Headgate,
        work: impl FnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Interval)> {
        let (result, mut intervals) = measure(&[(daemon, self)], work)?;
        Ok((result, intervals.remove(0)))
    }

    /// Measures for this long.
    ///
    /// # Errors
    /// [`Unmet`] when the premises held in no attempt.
    pub fn watch(&self, daemon: &Headgate, length: Duration) -> anyhow::Result<Interval> {
        let rest = || {
            std::thread::sleep(length);
            Ok(())
        };
        Ok(self.measure(daemon, rest)?.1)
    }
}

/// Measures on several daemons at once, as [`Premises::measure`] does on one; each has an interval.
///
/// # Errors
/// [`Unmet`] when in no attempt all premises held; and whatever `work` fails with.
pub fn measure<T>(
    subjects: &[(&Headgate, &Premises)],
    mut work: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Vec<Interval>)> {
    let mut words = String::new();
    for _ in 0..ATTEMPTS {
        let began = Instant::now();
        let stolen_before = stolen()?;
        let before: Vec<(Duration, Sample)> = subjects
            .iter()
            .map(|(daemon, _)| Ok((daemon.shard_wait()?, Sample::read(daemon)?)))
            .collect::<anyhow::Result<_>>()?;
        let flushed = subjects.iter().find_map(|(_, premises)| premises.flushed().next());
        let (result, flush) = match flushed {
            Some(dir) => timing_flushes(dir, &mut work)?,
            None => (work()?, Duration::ZERO),
        };
        let part = |time: Duration| time.as_secs_f64() / began.elapsed().as_secs_f64();
        let stolen = part(stolen()?.saturating_sub(stolen_before));
        let (mut unmet, mut intervals) = (Vec::new(), Vec::new());
        for ((daemon, premises), (waits, from)) in subjects.iter().zip(before) {
            let interval = Interval { from, to: Sample::read(daemon)? };
            let waited = part(daemon.shard_wait()?.saturating_sub(waits));
            unmet.extend(premises.unmet(&interval, &Machine { waited, stolen, flush })?);
            intervals.push(interval);
        }
        if unmet.is_empty() {
            return Ok((result, intervals));
        }
        words = unmet.join("; ");
        eprintln!("  premise not met, measuring again: {words}");
    }
    Err(Unmet(words).into())
}

/// What the machine did to a daemon over an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Machine {
    /// The part of the time for which its shards waited for a CPU.
    waited: f64,
    /// The part for which a hypervisor had the machine's CPUs wait, the sum over them.
    stolen: f64,
    /// How long its disk took to flush a block, on average.
    flush: Duration,
}

/// Works, and meanwhile flushes a block of a file in `dir` now and then: how long that took on
/// average.
fn timing_flushes<T>(
    dir: &Path,
    work: &mut impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Duration)> {
    const EVERY: Duration = Duration::from_millis(100);
    let file = std::fs::File::create(dir.join("flushed"))?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flushing = scope.spawn(|| -> io::Result<Duration> {
            let (mut count, mut time) = (0, Duration::ZERO);
            while !done.load(Ordering::Relaxed) || count == 0 {
                let began = Instant::now();
                file.write_all_at(&[count as u8; 4096], 0)?;
                file.sync_data()?;
                (count, time) = (count + 1, time + began.elapsed());
                std::thread::sleep(EVERY);
            }
            Ok(time / count)
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        let mean = flushing.join().expect("flushing does not panic")?;
        Ok((result?, mean))
    })
}

impl Premise {
    fn unmet(&self, interval: &Interval, machine: &Machine) -> anyhow::Result<Option<String>> {
        let words = match self {
            Premise::Busy { datastore, rate } => {
                let part = interval.throughput(datastore)? / rate;
                (part < BUSY).then(|| {
                    format!(
                        "datastore {datastore} was idle {:.1} % of the time: only {:.1} of {rate:.0} requests per second \
                         reached it",
                        (1.0 - part) * 100.0,
                        part * rate
                    )
                })
            }
            Premise::Backlog { disk, depth, part } => {
                let mean = interval.outstanding(disk)?;
                // The shortfall is the rate times the delay of one request.
                let delay = (depth - mean) / interval.iops(disk)?.max(1.0) * 1e3;
                (mean < part * depth).then(|| {
                    format!(
                        "the clients of disk {disk} could not keep {depth:.0} requests outstanding: {mean:.2} on average, \
                         each sent {delay:.1} ms late"
                    )
                })
            }
            Premise::Prompt { waiting } => {
                let late = machine.waited > *waiting || machine.stolen > STOLEN * waiting;
                late.then(|| {
                    format!(
                        "the daemon's shards waited for a CPU for {:.1} % of the time, and a \
                         hypervisor took {:.1} % from the machine",
                        machine.waited * 100.0,
                        machine.stolen * 100.0
                    )
                })
            }
            Premise::Flushes { within, .. } => (machine.flush > *within).then(|| {
                format!(
                    "the machine's own disk took {:.1?} to flush a block, not {within:.1?}",
                    machine.flush
                )
            }),
        };
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two seconds in which a disk with 32 requests outstanding at best had so many per second, and
    /// so many outstanding.
    fn interval(iops: u64, outstanding: u64) -> Interval {
        Interval { from: Sample::made(0, 0, 0), to: Sample::made(2, iops, outstanding) }
    }

    fn premises() -> Premises {
        Premises::new().busy("array", 400.0).backlog("disk", 32).prompt(0.1)
    }

    #[test]
    fn a_disk_whose_clients_send_too_little_has_no_backlog() {
        assert_eq!(Unmet::check_backlog("a", 16, 15.2), Ok(()));
        let said = Unmet::check_backlog("a", 16, 15.1).unwrap_err().to_string();
        assert!(said.contains("disk a had 15.10 requests outstanding, not 16"), "{said}");
    }

    #[test]
    fn a_machine_that_gives_its_cpus_to_others_is_told_of() {
        assert_eq!(Unmet::check_stolen(0.05, 0.05), Ok(()));
        let said = Unmet::check_stolen(0.06, 0.05).unwrap_err().to_string();
        assert!(said.ends_with("a hypervisor took 6.0 % of the time"), "{said}");
    }

    #[test]
    fn each_premise_says_what_was_wrong() {
        let unmet_of = |iops, outstanding, waited, stolen| {
            let machine = Machine { waited, stolen, flush: Duration::ZERO };
            premises().unmet(&interval(iops, outstanding), &machine).unwrap().join("; ")
        };
        let unmet = |iops, outstanding, waited| unmet_of(iops, outstanding, waited, 0.0);
        assert_eq!(unmet(400, 32, 0.0), "");
        assert_eq!(unmet(393, 31, 0.09), "", "these are the tolerances");
        assert_eq!(
            unmet(358, 32, 0.0),
            "datastore array was idle 10.5 % of the time: only 358.0 of 400 requests per second reached it"
        );
        assert_eq!(
            unmet(400, 28, 0.0),
            "the clients of disk disk could not keep 32 requests outstanding: 28.00 on average, each sent 10.0 ms late"
        );
        assert_eq!(
            unmet(400, 32, 0.25),
            "the daemon's shards waited for a CPU for 25.0 % of the time, and a hypervisor took 0.0 % from \
             the machine"
        );
        assert_eq!(unmet_of(400, 32, 0.1, 0.15), "", "neither is more than it may be");
        assert_eq!(
            unmet_of(400, 32, 0.04, 0.16),
            "the daemon's shards waited for a CPU for 4.0 % of the time, and a hypervisor took 16.0 % from \
             the machine"
        );
    }

    #[test]
    fn flushes_of_the_machines_own_disk_are_timed_beside_the_work() {
        let dir = tempfile::tempdir().unwrap();
        let ((), flush) = timing_flushes(dir.path(), &mut || Ok(())).unwrap();
        assert!(flush > Duration::ZERO);
        let within = flush - Duration::from_nanos(1);
        let premise = Premise::Flushes { dir: dir.path().to_owned(), within };
        let unmet =
            premise.unmet(&interval(0, 0), &Machine { flush, ..Machine::default() }).unwrap();
        assert!(unmet.is_some_and(|words| words.contains("flush a block")));
    }
}
