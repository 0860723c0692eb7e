//! Which datastores stand still, and what is known of their storage from when they last answered.

use crate::images::Space;
use crate::workers::{Hang, wall_seconds_ago};
use headgate_model::{DatastoreSample, Name};
use headgate_stats::DiskSnapshot;
use headgate_units::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A datastore that has requests and has answered none of them for so long hangs.
const HUNG: Duration = Duration::from_secs(10);

/// What a datastore's storage said when it was last asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The number of its file system.
    pub device: Option<u64>,
    /// Its file system's space, or why that is not known.
    pub space: Option<Result<Space, String>>,
    /// What images take, where that was asked for.
    pub allocated: BTreeMap<Name, Bytes>,
}

/// How far a datastore's requests have come.
#[derive(Clone, Copy, Debug)]
struct Progress {
    ended: u64,
    /// Failures that disks saw, which are answers too; `None`: not looked at, for nothing was at
    /// the device.
    failures: Option<u64>,
    /// Since when no request has ended, or there has been none.
    since: Instant,
}

/// What is known of all datastores.
#[derive(Debug, Default)]
pub(crate) struct Hangs {
    progress: BTreeMap<Name, Progress>,
    facts: BTreeMap<Name, Facts>,
    /// When what could not be opened is to be tried again, and after how long the time after that.
    retries: BTreeMap<(Name, Option<Name>), (Instant, Duration)>,
}

/// The first pause between two attempts to open something, which doubles.
const RETRY_MIN: Duration = Duration::from_secs(2);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Requests that have ended, well or not.
fn ended(stats: &DiskSnapshot) -> u64 {
    let (reads, writes) = (stats.reads.counts, stats.writes.counts);
    let kinds = [reads, writes, stats.flushes, stats.discards, stats.write_zeroes, stats.others];
    kinds.iter().map(|kind| kind.done + kind.errors).sum()
}

/// Requests that the storage failed, told or held. O(disks).
fn failures(store: &DatastoreSample) -> u64 {
    let counts = store.disks.iter().flat_map(|disk| disk.trouble.counts.iter());
    counts.fold(0, |sum: u64, (.., n)| sum.wrapping_add(n))
}

impl Hangs {
    /// Takes a sample of the data path, of every second or so.
    pub(crate) fn see(&mut self, now: Instant, sample: &[DatastoreSample]) {
        self.progress.retain(|name, _| sample.iter().any(|store| store.name == *name));
        for store in sample {
            // A failure is an answer, also one that its disk holds and nobody was told of.
            let failures = (store.in_flight > 0).then(|| failures(store));
            let fresh = Progress { ended: ended(&store.stats), failures, since: now };
            let known = self.progress.entry(store.name.clone()).or_insert(fresh);
            let answered = known.failures.is_some() && known.failures != failures;
            if store.in_flight == 0 || known.ended != fresh.ended || answered {
                *known = fresh;
            }
            known.failures = failures;
        }
    }

    /// Whether a datastore has requests and answers none.
    pub(crate) fn hang(&self, now: Instant, datastore: &Name) -> Option<Hang> {
        let lasted = now.saturating_duration_since(self.progress.get(datastore)?.since);
        (lasted >= HUNG).then(|| Hang {
            since: wall_seconds_ago(lasted),
            lasted,
            doing: "requests of its disks".into(),
        })
    }

    /// What a datastore's storage said last.
    pub(crate) fn facts(&self, datastore: &Name) -> Option<&Facts> {
        self.facts.get(datastore)
    }

    pub(crate) fn put_facts(&mut self, datastore: &Name, facts: Facts) {
        self.facts.insert(datastore.clone(), facts);
    }

    /// Whether a datastore, or a disk of it, is to be tried again.
    pub(crate) fn is_due(&self, now: Instant, datastore: &Name, disk: Option<&Name>) -> bool {
        let key = (datastore.clone(), disk.cloned());
        self.retries.get(&key).is_none_or(|(at, _)| *at <= now)
    }

    /// It was tried in vain.
    pub(crate) fn failed(&mut self, now: Instant, datastore: &Name, disk: Option<&Name>) {
        let key = (datastore.clone(), disk.cloned());
        let pause =
            self.retries.get(&key).map_or(RETRY_MIN, |(_, pause)| (*pause * 2).min(RETRY_MAX));
        self.retries.insert(key, (now + pause, pause));
    }

    /// It was tried, and serves.
    pub(crate) fn succeeded(&mut self, datastore: &Name, disk: Option<&Name>) {
        self.retries.remove(&(datastore.clone(), disk.cloned()));
    }

    /// Forgets a datastore that is no more.
    pub(crate) fn forget(&mut self, datastore: &Name) {
        self.facts.remove(datastore);
        self.progress.remove(datastore);
        self.retries.retain(|(of, _), _| of != datastore);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_model::{DiskSample, Policy};
    use headgate_stats::{ErrorKind, ErrorOp};

    fn sample(in_flight: u32, ended: u64) -> Vec<DatastoreSample> {
        let mut stats = DiskSnapshot::default();
        stats.others.done = ended;
        let fresh = DatastoreSample::fresh("a".parse().unwrap(), Vec::new());
        vec![DatastoreSample { in_flight, stats, ..fresh }]
    }

    #[test]
    fn requests_that_do_not_end_are_a_hang_and_none_is_none() {
        let (mut hangs, start, name) = (Hangs::default(), Instant::now(), "a".parse().unwrap());
        let at = |seconds| start + Duration::from_secs(seconds);
        hangs.see(at(0), &sample(3, 5));
        hangs.see(at(9), &sample(4, 5));
        assert_eq!(hangs.hang(at(9), &name), None);
        hangs.see(at(10), &sample(4, 5));
        assert_eq!(hangs.hang(at(12), &name).unwrap().lasted, Duration::from_secs(12));
        hangs.see(at(13), &sample(4, 6));
        assert_eq!(hangs.hang(at(13), &name), None, "one has ended");
        for second in 14..60 {
            hangs.see(at(second), &sample(0, 6));
        }
        assert_eq!(hangs.hang(at(60), &name), None, "there are none");
    }

    #[test]
    fn failures_that_a_disk_holds_are_answers_too() {
        let (mut hangs, start, name) = (Hangs::default(), Instant::now(), "a".parse().unwrap());
        let mut disk =
            DiskSample::new("d".parse().unwrap(), Policy::default(), DiskSnapshot::default());
        for second in 0..60 {
            disk.trouble.counts.add(ErrorOp::Write, ErrorKind::NoSpace);
            let mut sample = sample(1, 5);
            sample[0].disks.push(disk.clone());
            let now = start + Duration::from_secs(second);
            hangs.see(now, &sample);
            assert_eq!(hangs.hang(now, &name), None, "after {second} s");
        }
    }

    #[test]
    fn pauses_between_attempts_double_up_to_a_bound() {
        let (mut hangs, start, name) = (Hangs::default(), Instant::now(), "a".parse().unwrap());
        assert!(hangs.is_due(start, &name, None));
        for _ in 0..20 {
            hangs.failed(start, &name, None);
        }
        assert!(!hangs.is_due(start + RETRY_MAX / 2, &name, None));
        assert!(hangs.is_due(start + RETRY_MAX, &name, None));
        assert!(hangs.is_due(start, &name, Some(&"d".parse().unwrap())), "another thing");
    }
}
