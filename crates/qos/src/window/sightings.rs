//! Which hosts on a board are alive and how old their reports are, by the reader's clock alone.

use alloc::collections::BTreeMap;
use headgate_units::Nanos;

/// A host that has not changed its report for this many periods is no longer alive.
pub const ALIVE_PERIODS: u64 = super::history::OLDEST;

/// What it means that a host's report is missing from the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The host has left or died: the board loses nothing, and drops the reports of dead hosts
    /// (etcd).
    Left,
    /// The board may have lost the report (a shared file): the host is remembered until its last
    /// change is three periods old.
    Lost,
}

/// A report as it stands on the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted<K, R> {
    /// Whose it is.
    pub host: K,
    /// Grows with each report that the host posts.
    pub sequence: u64,
    /// What it says.
    pub report: R,
}

/// A host that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alive<'a, K, R> {
    /// Which.
    pub host: &'a K,
    /// Its newest report.
    pub report: &'a R,
    /// The age of that report.
    pub age: Nanos,
}

/// What one host has read of a board so far.
///
/// A report carries no time, because the clocks of two hosts may be hours apart. So a report counts
/// from the moment in which it was first seen to *change*: a report that somebody left years ago
/// never counts. A change is dated in the middle between the reading that shows it and the one
/// before, which is wrong by half of the time between the two at most.
///
/// `K` names a host and `R` is its report.
#[derive(Clone, Debug)]
pub struct Sightings<K, R> {
    absence: Absence,
    seen: BTreeMap<K, Sighting<R>>,
    /// The first and the last reading.
    read: Option<(Nanos, Nanos)>,
}

#[derive(Clone, Debug)]
struct Sighting<R> {
    sequence: u64,
    report: R,
    /// When it was read first.
    first: Nanos,
    /// When it changed last, if it ever did.
    changed: Option<Nanos>,
    /// Whether it was on the board at the last reading.
    present: bool,
}

impl<K: Ord, R> Sightings<K, R> {
    /// Nothing read yet of a board on which absence means this.
    pub fn new(absence: Absence) -> Sightings<K, R> {
        Sightings { absence, seen: BTreeMap::new(), read: None }
    }

    /// Takes in all reports that were on the board at `now`, in periods of `period`.
    /// O(n log n) for n hosts.
    ///
    /// After three periods without a reading no report is known to be fresh, and the view has to
    /// settle anew. A report with a smaller sequence number than one before is from a copy of an
    /// older board, and does not count.
    pub fn observe(
        &mut self,
        now: Nanos,
        period: Nanos,
        board: impl IntoIterator<Item = Posted<K, R>>,
    ) {
        let oldest = Nanos(period.0.saturating_mul(ALIVE_PERIODS));
        let (first, last) =
            self.read.filter(|(_, last)| now.since(*last) <= oldest).unwrap_or((now, now));
        let between = last + Nanos(now.since(last).0 / 2);
        self.read = Some((first, now));
        self.seen.values_mut().for_each(|sighting| sighting.present = false);
        for Posted { host, sequence, report } in board {
            let Some(sighting) = self.seen.get_mut(&host) else {
                let new = Sighting { sequence, report, first: now, changed: None, present: true };
                self.seen.insert(host, new);
                continue;
            };
            sighting.present = true;
            if sequence > sighting.sequence {
                (sighting.sequence, sighting.report) = (sequence, report);
                sighting.changed = Some(between);
            }
        }
        let keep = match self.absence {
            Absence::Lost => oldest,
            Absence::Left => Nanos::ZERO,
        };
        let is_remembered =
            |s: &Sighting<R>| s.changed.is_some_and(|changed| now.since(changed) < keep);
        self.seen.retain(|_, sighting| sighting.present || is_remembered(sighting));
    }

    /// Forgets a host that said farewell. O(log n).
    pub fn forget(&mut self, host: &K) {
        self.seen.remove(host);
    }

    /// Whether the board has been read for so long that every living host must have been seen to
    /// change. Until then the board is to be treated as unreadable.
    pub fn is_settled(&self, period: Nanos) -> bool {
        let settled = match self.absence {
            // A report may have been lost and be written again a period late.
            Absence::Lost => Nanos(period.0.saturating_mul(2)),
            // Two readings a period apart; threads may be late by an eighth of it.
            Absence::Left => Nanos(period.0 / 8 * 7),
        };
        self.read.is_some_and(|(first, last)| last.since(first) >= settled)
    }

    /// All hosts that were seen to change, however long ago, in the order of `K`. O(n).
    pub fn alive(&self, now: Nanos) -> impl Iterator<Item = Alive<'_, K, R>> {
        self.seen.iter().filter_map(move |(host, sighting)| {
            let age = now.since(sighting.changed?);
            Some(Alive { host, report: &sighting.report, age })
        })
    }

    /// For how long a host's report has been seen not to change; zero for a host that was not
    /// seen. O(log n).
    pub fn silent(&self, now: Nanos, host: &K) -> Nanos {
        let sighting = self.seen.get(host);
        sighting.map_or(Nanos::ZERO, |s| now.since(s.changed.unwrap_or(s.first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: Nanos = Nanos::from_secs(4);

    fn s(seconds: u64) -> Nanos {
        Nanos::from_secs(seconds)
    }

    fn posted(host: u8, sequence: u64) -> Posted<u8, u64> {
        Posted { host, sequence, report: 100 * sequence }
    }

    fn ages(sightings: &Sightings<u8, u64>, now: Nanos) -> Vec<(u8, u64, Nanos)> {
        sightings.alive(now).map(|alive| (*alive.host, *alive.report, alive.age)).collect()
    }

    #[test]
    fn a_report_that_was_never_seen_to_change_does_not_count() {
        let mut sightings = Sightings::new(Absence::Lost);
        for at in [0, 4, 8, 12] {
            sightings.observe(s(at), PERIOD, [posted(1, at), posted(2, 7), posted(3, 100 + at)]);
        }
        // Changed between 8 and 12.
        assert_eq!(ages(&sightings, s(13)), [(1, 1_200, s(3)), (3, 11_200, s(3))]);
        assert_eq!(sightings.silent(s(13), &2), s(13));
        assert_eq!(sightings.silent(s(13), &3), s(3));
        assert_eq!(sightings.silent(s(13), &9), Nanos::ZERO);
    }

    #[test]
    fn a_host_that_stops_grows_old_and_an_older_board_brings_nobody_back() {
        let mut sightings = Sightings::new(Absence::Lost);
        for (at, sequence) in [(0, 10), (4, 11), (8, 5), (12, 6)] {
            sightings.observe(s(at), PERIOD, [posted(2, sequence)]);
        }
        assert_eq!(ages(&sightings, s(12)), [(2, 1_100, s(10))]);
    }

    #[test]
    fn where_a_board_loses_reports_a_host_is_remembered_for_three_periods() {
        let mut sightings = Sightings::new(Absence::Lost);
        sightings.observe(s(0), PERIOD, [posted(2, 10)]);
        sightings.observe(s(4), PERIOD, [posted(2, 11)]);
        sightings.observe(s(8), PERIOD, []);
        sightings.observe(s(13), PERIOD, []);
        assert_eq!(ages(&sightings, s(13)), [(2, 1_100, s(11))]);
        let mut left = sightings.clone();
        sightings.observe(s(14), PERIOD, []);
        assert_eq!(ages(&sightings, s(14)), [], "its last change is dated at 2 s");
        left.forget(&2);
        assert_eq!(ages(&left, s(13)), []);
    }

    #[test]
    fn where_a_board_loses_nothing_an_absent_host_has_left() {
        let mut sightings = Sightings::new(Absence::Left);
        sightings.observe(s(0), PERIOD, [posted(2, 10), posted(3, 1)]);
        sightings.observe(s(4), PERIOD, [posted(2, 11), posted(3, 2)]);
        sightings.observe(s(8), PERIOD, [posted(3, 3)]);
        assert_eq!(ages(&sightings, s(8)), [(3, 300, s(2))]);
        // It comes back, and has to be seen to change again.
        sightings.observe(s(12), PERIOD, [posted(2, 12)]);
        assert_eq!(ages(&sightings, s(12)), []);
    }

    #[test]
    fn a_view_settles_as_soon_as_no_living_host_can_be_missing() {
        let settled = |absence, readings: &[u64]| {
            let mut sightings = Sightings::<u8, u64>::new(absence);
            readings.iter().for_each(|&ms| sightings.observe(Nanos::from_millis(ms), PERIOD, []));
            sightings.is_settled(PERIOD)
        };
        assert!(!settled(Absence::Left, &[]) && !settled(Absence::Lost, &[]));
        assert!(!settled(Absence::Left, &[0, 3_499]) && settled(Absence::Left, &[0, 3_500]));
        assert!(!settled(Absence::Lost, &[0, 4_000, 7_999]));
        assert!(settled(Absence::Lost, &[0, 4_000, 8_000]));
    }

    #[test]
    fn after_a_long_time_without_a_reading_the_view_settles_anew() {
        let mut sightings = Sightings::new(Absence::Lost);
        for (now, settled) in
            [(0, false), (4, false), (8, true), (20, true), (33, false), (37, false), (41, true)]
        {
            sightings.observe(s(now), PERIOD, [posted(2, now)]);
            assert_eq!(sightings.is_settled(PERIOD), settled, "at {now} s");
        }
    }

    /// When a host posts: its first report, the time to the next, and its last moment, in ms.
    #[derive(Clone, Debug)]
    struct Host {
        first: u64,
        every: u64,
        stops: u64,
    }

    impl Host {
        /// The number of its newest report at this time, and when that was posted.
        fn posted(&self, at: u64) -> Option<(u64, u64)> {
            let at = at.min(self.stops);
            let number = at.checked_sub(self.first)? / self.every;
            Some((number + 1, self.first + number * self.every))
        }
    }

    proptest! {
        /// Against what the hosts really did: an age is wrong by half the time between readings at
        /// most, no dead host's old report counts, and no living host is missing from a settled
        /// view.
        #[test]
        fn ages_are_near_the_truth_and_a_settled_view_is_whole(
            hosts in prop::collection::vec((0u64..8_000, 3_500u64..4_500, 0u64..60_000), 1..6),
            gaps in prop::collection::vec(3_600u64..4_400, 2..14),
            late in 0u64..20_000,
            left in any::<bool>(),
        ) {
            let hosts: Vec<Host> = hosts
                .into_iter()
                .map(|(first, every, stops)| Host { first, every, stops: first + stops })
                .collect();
            let mut sightings =
                Sightings::new(if left { Absence::Left } else { Absence::Lost });
            let (start, mut now) = (late, late);
            let mut gap_of = vec![0u64; hosts.len()];
            let mut known = vec![None; hosts.len()];
            for gap in gaps {
                now += gap;
                let board = hosts.iter().zip(0u8..).filter_map(|(host, key)| {
                    let (sequence, _) = host.posted(now)?;
                    Some(Posted { host: key, sequence, report: sequence })
                });
                sightings.observe(Nanos::from_millis(now), PERIOD, board);
                let alive: Vec<_> = sightings.alive(Nanos::from_millis(now)).collect();
                for (key, host) in hosts.iter().enumerate() {
                    let Some((sequence, at)) = host.posted(now) else { continue };
                    if known[key].replace(sequence) != Some(sequence) {
                        gap_of[key] = gap;
                    }
                    let found = alive.iter().find(|alive| usize::from(*alive.host) == key);
                    let Some(found) = found else {
                        let lives = host.first < start && host.stops > now;
                        let settled = sightings.is_settled(PERIOD) && !left;
                        prop_assert!(!(settled && lives), "{host:?} is missing at {now}");
                        continue;
                    };
                    prop_assert!(host.stops >= start, "{host:?} died before the first reading");
                    prop_assert_eq!(*found.report, sequence);
                    let (age, truth) = (found.age.0 / 1_000_000, now - at);
                    prop_assert!(
                        age.abs_diff(truth) <= gap_of[key] / 2 + 1,
                        "{} ms for {} at {}", age, truth, now
                    );
                }
            }
        }
    }
}
