use super::{Outstanding, WorkloadProfile};
use crate::{Held, Permille};
use alloc::collections::BTreeMap;
use headgate_stats::Interval;
use headgate_units::Bytes;
use serde::{Deserialize, Serialize};

/// Buckets in each doubling, as a power of two: 16, each 6.3 % of its lower edge wide at most.
const SPLIT: u32 = 4;

/// How often each value was seen, to within 6.3 %. Its size is that of its occupied buckets, some
/// tens for a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Distribution(BTreeMap<u16, u32>);

fn bucket_of(value: u64) -> u16 {
    if value < 1 << SPLIT {
        return value as u16;
    }
    let octave = value.ilog2();
    let within = (value >> (octave - SPLIT)) as u16 & ((1 << SPLIT) - 1);
    (((octave - SPLIT + 1) as u16) << SPLIT) + within
}

/// The largest value in the bucket.
fn highest_of(bucket: u16) -> u64 {
    let (octave, within) = (u32::from(bucket >> SPLIT), u64::from(bucket & ((1 << SPLIT) - 1)));
    match octave.checked_sub(1) {
        None => u64::from(bucket),
        // The last octave ends where the integers do; a damaged bucket beyond it must not panic.
        Some(shift) if shift >= 59 => u64::MAX,
        Some(shift) => (((1 << SPLIT) + within + 1) << shift) - 1,
    }
}

impl Distribution {
    fn record(&mut self, value: u64) {
        let count = self.0.entry(bucket_of(value)).or_default();
        *count = count.saturating_add(1);
    }

    fn merge(&mut self, other: &Distribution) {
        for (&bucket, &count) in &other.0 {
            let mine = self.0.entry(bucket).or_default();
            *mine = mine.saturating_add(count);
        }
    }

    fn count(&self) -> u64 {
        self.0.values().map(|&count| u64::from(count)).sum()
    }

    fn at(&self, permille: u32) -> Option<u64> {
        let rank = (self.count() * u64::from(permille.min(1_000))).div_ceil(1_000).max(1);
        let mut below = 0;
        self.0.iter().find_map(|(&bucket, &count)| {
            below += u64::from(count);
            (below >= rank).then(|| highest_of(bucket))
        })
    }
}

/// Distributions of a disk's four traits over intervals of equal length, from which its load is
/// judged.
///
/// Some hundred bytes; meters of an hour each can be merged to those of a day, so old hours can be
/// forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadMeter {
    outstanding: Distribution,
    size: Distribution,
    read: Distribution,
    random: Distribution,
}

impl WorkloadMeter {
    /// Nothing seen yet.
    pub fn new() -> WorkloadMeter {
        WorkloadMeter::default()
    }

    /// Counts an interval. One in which the disk neither read nor wrote counts as nothing
    /// outstanding, and one in which it waited and got nothing as what was outstanding; its other
    /// traits are those of the intervals that have any. O(log buckets).
    pub fn record(&mut self, interval: &Interval, held: Held) {
        self.record_traits(WorkloadProfile::of(interval, held));
    }

    /// The same for traits that are known already; `None` is an idle interval.
    pub fn record_traits(&mut self, profile: Option<WorkloadProfile>) {
        let outstanding = profile.map_or(0, |profile| profile.outstanding.as_thousandths());
        self.outstanding.record(u64::from(outstanding));
        if let Some(profile) = profile.filter(|profile| !profile.is_stalled()) {
            self.size.record(profile.size.0);
            self.read.record(u64::from(profile.read.0.min(1_000)));
            self.random.record(u64::from(profile.random.0.min(1_000)));
        }
    }

    /// Adds what `other` saw.
    pub fn merge(&mut self, other: &WorkloadMeter) {
        self.outstanding.merge(&other.outstanding);
        self.size.merge(&other.size);
        self.read.merge(&other.read);
        self.random.merge(&other.random);
    }

    /// Intervals seen, idle ones included.
    pub fn intervals(&self) -> u64 {
        self.outstanding.count()
    }

    /// The 90th percentile of each trait by itself, as the paper has it: moves take hours, and a
    /// disk should fit where it goes in its busier ones. At most 6.3 % too high, never too low.
    /// `None` before the first interval.
    pub fn profile(&self) -> Option<WorkloadProfile> {
        self.traits_at(Permille(900))
    }

    /// The same for another percentile, 0 to 1,000.
    pub fn traits_at(&self, permille: Permille) -> Option<WorkloadProfile> {
        let part = |d: &Distribution| Permille(d.at(permille.0).unwrap_or(0).min(1_000) as u32);
        let outstanding = self.outstanding.at(permille.0)?;
        Some(WorkloadProfile {
            outstanding: Outstanding::from_thousandths(
                u32::try_from(outstanding).unwrap_or(u32::MAX),
            ),
            size: Bytes(self.size.at(permille.0).unwrap_or(0)),
            read: part(&self.read),
            random: part(&self.random),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_range_in_order() {
        for value in (0..2_000).chain((11..63).flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 1])) {
            let highest = highest_of(bucket_of(value));
            assert!(
                highest >= value && (highest - value) * 16 <= value,
                "{value} in a bucket up to {highest}"
            );
            assert!(
                bucket_of(highest) == bucket_of(value)
                    && bucket_of(highest + 1) == bucket_of(value) + 1
            );
        }
        assert_eq!(highest_of(bucket_of(u64::MAX)), u64::MAX);
        assert_eq!(highest_of(u16::MAX), u64::MAX);
    }

    #[test]
    fn bursts_of_a_tenth_of_the_time_count_and_rarer_ones_do_not() {
        let busy = WorkloadProfile {
            outstanding: Outstanding::whole(32),
            size: Bytes::from_kib(8),
            read: Permille(700),
            random: Permille(1_000),
        };
        let with_bursts = |busy_intervals: usize| {
            let mut meter = WorkloadMeter::new();
            (0..100).for_each(|i| meter.record_traits((i < busy_intervals).then_some(busy)));
            meter.profile().unwrap()
        };
        assert!(with_bursts(11).outstanding >= busy.outstanding);
        assert_eq!(with_bursts(9).outstanding, Outstanding::default());
        assert!(with_bursts(9).read >= busy.read, "what it does when it does something is known");
        assert_eq!(WorkloadMeter::new().profile(), None);
    }

    #[test]
    fn a_disk_that_starves_keeps_its_outstanding_requests() {
        let seen = WorkloadProfile {
            outstanding: Outstanding::whole(4),
            size: Bytes::from_kib(64),
            read: Permille(500),
            random: Permille(1_000),
        };
        let stalled =
            WorkloadProfile { outstanding: Outstanding::whole(4), ..WorkloadProfile::default() };
        let (mut starving, mut served) = (WorkloadMeter::new(), WorkloadMeter::new());
        for i in 0..100 {
            starving.record_traits(Some(if i < 5 { seen } else { stalled }));
            served.record_traits(Some(seen));
        }
        assert_eq!(starving.profile(), served.profile());
    }

    #[test]
    fn hours_make_a_day() {
        let profile = |n| WorkloadProfile {
            outstanding: Outstanding::whole(n),
            ..WorkloadProfile::default()
        };
        let (mut all, mut day) = (WorkloadMeter::new(), WorkloadMeter::new());
        for hour in 0..24 {
            let mut meter = WorkloadMeter::new();
            for n in 0..50 {
                meter.record_traits(Some(profile(n * hour)));
                all.record_traits(Some(profile(n * hour)));
            }
            day.merge(&meter);
        }
        assert_eq!(day, all);
        assert_eq!(day.intervals(), 1_200);
        let written = serde_json::to_string(&day).unwrap();
        assert_eq!(serde_json::from_str::<WorkloadMeter>(&written).unwrap(), day);
    }
}
