//! The intervals of a disk, one by one.

use crate::known::lock;
use crate::recorder::with_ends;
use crate::{DiskInterval, Samples, SamplesError};
use headgate_model::Name;
use headgate_units::Nanos;
use std::ops::Range;

impl Samples {
    /// A disk's intervals that ended within a time of the last 24 hours, in nanoseconds since 1970:
    /// each with its end, in the order of time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn disk_intervals(
        &self,
        disk: &Name,
        within: Range<Nanos>,
    ) -> Result<Vec<(Nanos, DiskInterval)>, SamplesError> {
        self.writer.settle();
        let mut found = lock(&self.file).disk_intervals(disk, &within)?;
        let mut recorder = lock(&self.recorder);
        let chunk = recorder.chunk();
        let lately = chunk.disks.get(disk).map_or(&[][..], Vec::as_slice);
        if !lately.is_empty() {
            let ends = with_ends(lately, chunk.ended, chunk.period);
            found.extend(ends.filter(|(at, _)| within.contains(at)));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::sample;
    use crate::{Samples, wall_clock};
    use headgate_model::Name;
    use headgate_units::Nanos;
    use std::time::Duration;

    #[test]
    fn intervals_are_those_that_were_written_and_those_that_are_not_yet() {
        let dir = tempfile::tempdir().unwrap();
        let samples =
            Samples::open(&dir.path().join("samples.sqlite"), Duration::from_secs(5)).unwrap();
        let (now, disk) = (wall_clock(), "a".parse::<Name>().unwrap());
        let at = |second: u64| Nanos(now.0 - 1_000_000_000 * (100 - second));
        let within = |from, to| samples.disk_intervals(&disk, at(from)..at(to)).unwrap();
        for second in (1..=46).step_by(5) {
            samples.record_at(at(second), &sample(second, &[("a", 100), ("b", 7)]));
        }
        let ends = |found: Vec<(Nanos, _)>| found.iter().map(|found| found.0).collect::<Vec<_>>();
        let all: Vec<Nanos> = (6..=46).step_by(5).map(at).collect();
        assert_eq!(ends(within(0, 100)), all);
        samples.flush();
        assert_eq!(ends(within(0, 100)), all, "they are in the file now");
        for second in (51..=61).step_by(5) {
            samples.record_at(at(second), &sample(second, &[("a", 100)]));
        }
        assert_eq!(ends(within(41, 57)), [41, 46, 51, 56].map(at), "the end is not within");
        let outstanding = |n: usize| within(0, 100)[n].1.0.unwrap().outstanding.as_f64();
        assert!((outstanding(0) - 0.2).abs() < 0.01 && (outstanding(9) - 0.2).abs() < 0.01);
        assert!(samples.disk_intervals(&"c".parse().unwrap(), at(0)..at(99)).unwrap().is_empty());
    }
}
