//! What was measured of datastores while one disk alone was busy on them.

use crate::known::lock;
use crate::{Samples, SamplesError, store, wall_clock};
use headgate_model::{Lookback, Name};
use headgate_placement::Measurement;
use headgate_units::Nanos;

impl Samples {
    /// How long measurements are kept.
    pub const MEASURED_FOR: Nanos = store::KEPT;

    /// What was measured of a datastore within the look-back before now, in the order of time: one
    /// measurement for each interval in which one disk alone was busy there, for 7 days at most.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn measured(
        &self,
        datastore: &Name,
        window: Lookback,
    ) -> Result<Vec<Measurement>, SamplesError> {
        let from = window.from(wall_clock());
        self.writer.settle();
        let mut measured = lock(&self.file).measured(datastore, from)?;
        let mut recorder = lock(&self.recorder);
        let lately = recorder.chunk().measured.get(datastore).into_iter().flatten();
        measured.extend(lately.filter(|(at, _)| *at >= from).map(|(_, measured)| *measured));
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{sample, waiting};
    use headgate_placement::{Permille, WorkloadProfile};
    use headgate_qos::window::Slots;
    use rusqlite::Connection;
    use std::time::Duration;

    fn samples(dir: &tempfile::TempDir) -> Samples {
        Samples::open(&dir.path().join("samples.sqlite"), Duration::from_secs(5)).unwrap()
    }

    fn array() -> Name {
        "array".parse().unwrap()
    }

    /// Seconds of the daemon's life from one to another, the last of which ends `ago`.
    fn observe(samples: &Samples, seconds: std::ops::Range<u64>, disks: &[(&str, u64)], ago: u64) {
        let end = wall_clock().0 - ago * 1_000_000_000;
        for second in seconds.clone().step_by(5) {
            let at = Nanos(end - (seconds.end - second) * 1_000_000_000);
            samples.record_at(at, &sample(second, disks));
        }
    }

    fn measured(samples: &Samples, window: &str) -> Vec<Measurement> {
        samples.measured(&array(), window.parse().unwrap()).unwrap()
    }

    #[test]
    fn who_is_alone_on_a_datastore_measures_it_and_who_is_not_does_not() {
        let found = |disks: &[(&str, u64)]| {
            let dir = tempfile::tempdir().unwrap();
            let samples = samples(&dir);
            observe(&samples, 1..52, disks, 0);
            measured(&samples, "1h")
        };
        let alone = found(&[("a", 100), ("b", 0)]);
        assert_eq!(alone.len(), 10);
        for Measurement { profile, latency } in &alone {
            assert_eq!(*latency, Nanos::from_millis(2));
            let WorkloadProfile { outstanding, size, read, .. } = profile;
            assert!((outstanding.as_f64() - 0.2).abs() < 0.01, "{profile:?}");
            assert_eq!((size.0, *read), (4_096, Permille::WHOLE));
        }
        assert_eq!(found(&[("a", 100), ("b", 100)]).len(), 0);
        assert_eq!(found(&[("a", 100), ("b", 5)]).len(), 0);
        assert_eq!(found(&[("a", 100), ("b", 1)]).len(), 10, "a guest that does nothing");
        assert_eq!(found(&[("a", 1)]).len(), 0, "five requests have a mean that is chance");
    }

    #[test]
    fn what_waited_for_us_says_nothing_of_the_device() {
        let dir = tempfile::tempdir().unwrap();
        let samples = samples(&dir);
        for second in (1..52).step_by(5) {
            let at = Nanos(wall_clock().0 - (100 - second) * 1_000_000_000);
            let waiting = waiting(second, &[("a", 100)], Nanos::from_millis(8), Slots::whole(32));
            samples.record_at(at, &waiting);
        }
        assert_eq!(measured(&samples, "1h"), []);
    }

    #[test]
    fn measurements_are_kept_for_a_week_and_go_with_their_datastore() {
        let dir = tempfile::tempdir().unwrap();
        let (day, before) = (24 * 3_600, samples(&dir));
        observe(&before, 1..102, &[("a", 100)], 8 * day);
        before.flush();
        assert_eq!(measured(&before, "30d").len(), 20);
        drop(before);
        let before = samples(&dir);
        observe(&before, 1..57, &[("a", 100)], 6 * day);
        before.flush();
        drop(before);
        let after = samples(&dir);
        observe(&after, 1..52, &[("a", 100)], 0);
        after.flush();
        assert_eq!(measured(&after, "30d").len(), 11 + 10, "those of eight days ago are gone");
        assert_eq!((measured(&after, "7d").len(), measured(&after, "1h").len()), (11 + 10, 10));
        after.forget_datastore(&array());
        assert_eq!(measured(&after, "7d"), []);
    }

    /// What version 3 wrote is read as before, and what is new is added to it.
    #[test]
    fn a_file_of_the_version_before_keeps_what_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let before = samples(&dir);
        observe(&before, 1..52, &[("a", 100)], 60);
        before.flush();
        let known = before.known();
        drop(before);
        let file = Connection::open(dir.path().join("samples.sqlite")).unwrap();
        file.execute_batch("DROP TABLE measurements; PRAGMA user_version = 3").unwrap();
        drop(file);
        let after = samples(&dir);
        assert_eq!(after.known(), known);
        assert_eq!(measured(&after, "7d"), []);
        let now = wall_clock();
        let intervals = after.disk_intervals(&"a".parse().unwrap(), Nanos::ZERO..now).unwrap();
        assert_eq!(intervals.len(), 10);
        observe(&after, 1..52, &[("a", 100)], 0);
        after.flush();
        assert_eq!(measured(&after, "7d").len(), 10);
    }
}
