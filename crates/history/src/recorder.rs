use super::account::Minutes;
use super::accountant::Accountant;
use super::alone::alone;
use super::still::StillIntervals;
use super::totals::StoreHour;
use headgate_model::Name;
use headgate_model::{DatastoreSample, LimitMode, Policy};
use headgate_placement::{
    DatastoreJudge, DeviceInterval, Held, Limits, Measurement, WorkloadMeter, WorkloadProfile,
};
use headgate_qos::window::Slots;
use headgate_units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The shortest period of samples, in seconds.
pub const PERIOD_MIN: u8 = 2;
/// The longest, in seconds.
pub const PERIOD_MAX: u8 = 10;

/// How long samples are gathered before they are written.
const GATHER: Nanos = Nanos::from_secs(300);

/// The hour in which an instant of the wall clock is, by its first second.
pub(super) fn hour_of(at: Nanos) -> i64 {
    (at.0 / 1_000_000_000 / 3_600 * 3_600).cast_signed()
}

/// An interval of a disk: what it did; `None` when it neither read nor wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DiskInterval(pub Option<WorkloadProfile>);

impl DiskInterval {
    /// Of a disk to which nothing happened.
    pub(super) const STILL: DiskInterval = DiskInterval(None);

    pub(super) fn count_in(&self, meter: &mut WorkloadMeter) {
        meter.record_traits(self.0);
    }
}

/// An interval of a datastore: what it says of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreInterval(pub DeviceInterval);

/// Intervals of one period each, one after the other without a gap.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    /// When the last of them ended, on the wall clock.
    pub ended: Nanos,
    /// How long each is.
    pub period: Nanos,
    /// A disk that came later has fewer.
    pub disks: BTreeMap<Name, Vec<DiskInterval>>,
    /// Likewise.
    pub stores: BTreeMap<Name, Vec<StoreInterval>>,
    /// Hourly totals of datastores.
    pub hours: BTreeMap<Name, BTreeMap<i64, StoreHour>>,
    /// Accounts of disks, by the minute.
    pub accounts: BTreeMap<Name, Minutes>,
    /// Of datastores, what intervals told in which one disk alone was busy, each with its end.
    pub measured: BTreeMap<Name, Vec<(Nanos, Measurement)>>,
}

impl Chunk {
    /// How many of `count` intervals ended before `from`.
    pub fn older_than(&self, from: Nanos, count: usize) -> usize {
        let younger = self.ended.since(from).0 / self.period.0.max(1) + 1;
        if self.ended < from {
            count
        } else {
            count.saturating_sub(usize::try_from(younger).unwrap_or(count))
        }
    }

    /// A datastore's intervals, each with its end.
    pub fn store_intervals(
        &self,
        datastore: &Name,
    ) -> impl Iterator<Item = (Nanos, StoreInterval)> {
        let intervals = self.stores.get(datastore).map_or(&[][..], Vec::as_slice);
        with_ends(intervals, self.ended, self.period)
    }

    /// The same time with one disk alone.
    fn of_disk(&self, disk: &Name, intervals: Vec<DiskInterval>) -> Chunk {
        let disks = BTreeMap::from([(disk.clone(), intervals)]);
        Chunk { ended: self.ended, period: self.period, disks, ..Chunk::default() }
    }

    fn is_empty(&self) -> bool {
        self.disks.is_empty() && self.stores.is_empty()
    }
}

/// Intervals with their ends, the last of which is given.
pub(super) fn with_ends<T: Copy>(
    intervals: &[T],
    ended: Nanos,
    period: Nanos,
) -> impl Iterator<Item = (Nanos, T)> {
    let count = intervals.len() as u64;
    let end = move |index: usize| ended.0.saturating_sub((count - 1 - index as u64) * period.0);
    intervals.iter().enumerate().map(move |(index, &interval)| (Nanos(end(index)), interval))
}

/// Makes intervals of samples, and gathers them.
pub(super) struct Recorder {
    period: Nanos,
    accountant: Accountant,
    last: Option<Arc<Vec<DatastoreSample>>>,
    began: Nanos,
    /// Without what `still` has of it.
    chunk: Chunk,
    /// By the places of disks in `last`.
    still: StillIntervals,
    /// Of each datastore, by the clock of the samples.
    judges: BTreeMap<Name, DatastoreJudge<Slots>>,
    /// Disks and datastores removed since the last sample.
    gone: BTreeSet<Name>,
}

impl Recorder {
    pub fn new(period: Duration) -> Recorder {
        let period = Nanos(u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
        Recorder {
            period,
            accountant: Accountant::default(),
            last: None,
            began: Nanos::ZERO,
            chunk: Chunk { period, ..Chunk::default() },
            still: StillIntervals::default(),
            judges: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    /// Takes a sample if it is due, by the clock of the samples; answers what was gathered when
    /// that is long enough. O(disks · buckets), with little for each disk that stands still.
    pub fn observe(&mut self, now: Nanos, sample: &Arc<Vec<DatastoreSample>>) -> Option<Chunk> {
        self.accountant.see(now, sample, &mut self.chunk.accounts);
        let Some(last) = &self.last else {
            self.still.begin(sample);
            (self.last, self.began) = (Some(sample.clone()), now);
            return None;
        };
        if !is_due(last, sample, self.period) {
            return None;
        }
        let last = self.last.replace(sample.clone())?;
        self.still.follow(&last, sample, &mut self.chunk.disks);
        let gone = std::mem::take(&mut self.gone);
        for (place, store) in sample.iter().enumerate() {
            let before =
                last.iter().find(|old| old.name == store.name && old.stats.at < store.stats.at);
            if let Some(before) = before.filter(|_| !gone.contains(&store.name)) {
                self.take_in(now, (place, store), before, &gone);
            }
        }
        self.chunk.ended = now;
        // A wall clock that was set back must not keep them for ever.
        if now >= self.began && now.since(self.began) < GATHER {
            return None;
        }
        let is_empty = self.chunk().is_empty();
        (!is_empty).then(|| self.take())
    }

    /// Takes in the interval of a datastore, at its place in a sample, and those of its disks.
    fn take_in(
        &mut self,
        now: Nanos,
        (place, store): (usize, &DatastoreSample),
        before: &DatastoreSample,
        gone: &BTreeSet<Name>,
    ) {
        let mut moved = Vec::new();
        for (at, disk) in store.disks.iter().enumerate() {
            let old = store.earlier(at, before).filter(|old| old.at() < disk.at());
            let Some(old) = old else { continue };
            if !gone.is_empty() && gone.contains(&disk.name) {
                continue;
            }
            // What stood still neither waited nor reached a limit: nobody else need hear of it.
            match disk.stood_still_since(old) {
                true => self.still.count(place, at),
                false => moved.push((at, disk.since(old), limits(&disk.policy))),
            }
        }
        let difference = store.stats.difference(&before.stats);
        let whole = difference.since_start(before.stats.at);
        let judge = self.judges.entry(store.name.clone()).or_default();
        let of_disks = moved.iter().map(|(_, interval, limits)| (interval, *limits));
        let interval = judge.judge(store.stats.at, store.window, &whole, of_disks);
        let hours = self.chunk.hours.entry(store.name.clone()).or_default();
        hours.entry(hour_of(now)).or_default().count(&difference, &whole, interval.why());
        self.chunk.stores.entry(store.name.clone()).or_default().push(StoreInterval(interval));
        let of_disks = moved.iter().map(|(_, interval, limits)| (interval, *limits));
        if let Some(measured) = alone(of_disks) {
            self.chunk.measured.entry(store.name.clone()).or_default().push((now, measured));
        }
        for (at, interval, limits) in moved {
            let Some(disk) = store.disks.get(at) else { continue };
            self.still.gather(place, at, &disk.name, &mut self.chunk.disks);
            let held = Held::of_disk(&interval, &limits);
            let interval = DiskInterval(WorkloadProfile::of(&interval, held));
            match self.chunk.disks.get_mut(&disk.name) {
                Some(all) => all.push(interval),
                None => _ = self.chunk.disks.insert(disk.name.clone(), vec![interval]),
            }
        }
    }

    /// What was gathered and not handed out yet; of accounts see [`Recorder::accounts`].
    pub fn chunk(&mut self) -> &Chunk {
        if let Some(last) = &self.last {
            self.still.gather_all(last, &mut self.chunk.disks);
        }
        &self.chunk
    }

    /// The accounts that were not handed out yet, up to now.
    pub fn accounts(&mut self) -> &BTreeMap<Name, Minutes> {
        self.accountant.settle(&mut self.chunk.accounts);
        &self.chunk.accounts
    }

    /// Hands it out.
    pub fn take(&mut self) -> Chunk {
        self.chunk();
        self.accountant.settle(&mut self.chunk.accounts);
        let empty = Chunk { period: self.period, ended: self.chunk.ended, ..Chunk::default() };
        self.began = self.chunk.ended;
        std::mem::replace(&mut self.chunk, empty)
    }

    /// The next of its name is another. Answers what was gathered of it.
    pub fn forget_disk(&mut self, disk: &Name) -> Option<Chunk> {
        self.gone.insert(disk.clone());
        self.chunk();
        let intervals = self.chunk.disks.remove(disk)?;
        Some(self.chunk.of_disk(disk, intervals))
    }

    /// The gathered intervals of a disk, under another name.
    pub fn as_of(&mut self, disk: &Name, other: &Name) -> Option<Chunk> {
        let chunk = self.chunk();
        Some(chunk.of_disk(other, chunk.disks.get(disk)?.clone()))
    }

    /// The next of its name is another.
    pub fn forget_datastore(&mut self, datastore: &Name) {
        self.chunk.stores.remove(datastore);
        self.chunk.hours.remove(datastore);
        self.chunk.measured.remove(datastore);
        self.judges.remove(datastore);
        self.gone.insert(datastore.clone());
    }
}

/// Whether a period has passed between two samples.
fn is_due(last: &[DatastoreSample], now: &[DatastoreSample], period: Nanos) -> bool {
    let at = |sample: &[DatastoreSample]| sample.iter().map(|store| store.stats.at).max();
    match (at(last), at(now)) {
        // Samples are taken a second apart; half of one is what threads may be late.
        (Some(before), Some(now)) => now.since(before) + Nanos::from_millis(500) >= period,
        _ => true,
    }
}

/// The limits for which a disk's requests wait, whatever the datastore could do.
fn limits(policy: &Policy) -> Limits {
    match policy.limit_mode {
        LimitMode::Strict => {
            // The sum, where both directions are limited.
            let highest = policy.for_scheduler().map(|policy| policy.highest());
            let iops = highest.unwrap_or(policy.limit);
            Limits { iops, bandwidth: policy.limit_bandwidth }
        }
        // They wait only while the datastore has others to serve.
        LimitMode::Soft => Limits::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{sample, waiting};
    use super::*;
    use headgate_placement::LeftOut;
    use headgate_units::{Bytes, BytesPerSec, Iops};

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn recorder() -> Recorder {
        Recorder::new(Duration::from_secs(5))
    }

    /// On the wall clock, which is far from the other.
    fn wall(second: u64) -> Nanos {
        Nanos::from_secs(1_790_000_000 + second)
    }

    #[test]
    fn samples_a_period_apart_become_intervals_and_others_are_passed_over() {
        let mut recorder = recorder();
        for second in 1..=21 {
            assert!(
                recorder.observe(wall(second), &sample(second, &[("a", 100), ("b", 50)])).is_none()
            );
        }
        let chunk = recorder.chunk();
        assert_eq!((chunk.ended, chunk.disks.len()), (wall(21), 2));
        let a: Vec<f64> = chunk.disks[&name("a")]
            .iter()
            .map(|interval| interval.0.unwrap().outstanding.as_f64())
            .collect();
        assert_eq!(a.len(), 4);
        assert!(a.iter().all(|outstanding| (outstanding - 0.2).abs() < 0.01), "{a:?}");
        let array: Vec<_> = chunk.store_intervals(&name("array")).collect();
        assert_eq!(array.iter().map(|&(at, _)| at).collect::<Vec<_>>(), [6, 11, 16, 21].map(wall));
        let DeviceInterval::Point(point) = array[0].1.0 else { panic!("nothing held it back") };
        assert!(
            (point.outstanding.as_f64() - 0.3).abs() < 0.01
                && point.latency == Nanos::from_millis(2),
            "{point:?}"
        );
    }

    #[test]
    fn what_was_gathered_for_five_minutes_is_handed_out_once() {
        let mut recorder = recorder();
        let chunks: Vec<Chunk> = (0..=610)
            .step_by(5)
            .filter_map(|s| recorder.observe(wall(s), &sample(s + 1, &[("a", 1)])))
            .collect();
        assert_eq!(
            chunks.iter().map(|chunk| chunk.ended).collect::<Vec<_>>(),
            [wall(300), wall(600)]
        );
        assert!(chunks.iter().all(|chunk| chunk.disks[&name("a")].len() == 60));
        assert_eq!(recorder.chunk().disks[&name("a")].len(), 2);
    }

    #[test]
    fn a_disk_of_the_same_name_is_another() {
        let mut recorder = recorder();
        recorder.observe(wall(1), &sample(1, &[("a", 100)]));
        recorder.observe(wall(6), &sample(6, &[("a", 100)]));
        let before = recorder.forget_disk(&name("a")).expect("one interval was gathered");
        assert_eq!(
            (before.ended, before.disks[&name("a")].len(), before.stores.len()),
            (wall(6), 1, 0)
        );
        assert!(!recorder.chunk().disks.contains_key(&name("a")));
        // It is made again before the next sample, and its counters have begun anew.
        recorder.observe(wall(11), &sample(11, &[("a", 7)]));
        assert!(
            !recorder.chunk().disks.contains_key(&name("a")),
            "half of the interval was the other's"
        );
        recorder.observe(wall(16), &sample(16, &[("a", 7)]));
        assert_eq!(recorder.chunk().disks[&name("a")].len(), 1);
    }

    #[test]
    fn a_disk_that_is_idle_is_seen_to_be() {
        let mut recorder = recorder();
        recorder.observe(wall(1), &sample(1, &[("a", 0)]));
        recorder.observe(wall(6), &sample(6, &[("a", 0)]));
        assert_eq!(recorder.chunk().disks[&name("a")], [DiskInterval(None)]);
        assert_eq!(
            recorder.chunk().stores[&name("array")],
            [StoreInterval(DeviceInterval::Nothing(LeftOut::FewReads))]
        );
    }

    #[test]
    fn what_waited_for_a_window_tells_of_the_device_once_the_window_has_been_still() {
        let kinds = |window: fn(u64) -> Slots| -> Vec<bool> {
            let mut recorder = recorder();
            for second in (1..=96).step_by(5) {
                let sample = waiting(second, &[("a", 20)], Nanos::from_millis(8), window(second));
                assert!(recorder.observe(wall(second), &sample).is_none());
            }
            let array = name("array");
            let intervals = recorder.chunk().store_intervals(&array);
            let doubtful = |fine: StoreInterval| match fine.0 {
                DeviceInterval::Doubtful(_, LeftOut::Windowed) => true,
                DeviceInterval::Nothing(LeftOut::Windowed) => false,
                other => panic!("{other:?}"),
            };
            intervals.map(|(_, fine)| doubtful(fine)).collect()
        };
        let still = kinds(|_| Slots::whole(32));
        // The first interval ends at 6 s; a minute later it is known that nobody moves the window.
        assert_eq!(still, (0..19).map(|n| n >= 12).collect::<Vec<bool>>());
        assert!(!kinds(|second| Slots::whole(8 + second as u32 / 30)).contains(&true));
    }

    #[test]
    fn what_waited_for_its_disks_limit_is_held_by_that() {
        // Each of 20 a second waits 100 ms: of the two outstanding on average, all but 0.04 wait.
        let of = |policy: Policy| {
            let mut recorder = recorder();
            for second in [1, 6] {
                let wait = Nanos::from_millis(100);
                let sample = waiting(second, &[("a", 20)], wait, Slots::whole(32));
                let mut stores = sample.as_ref().clone();
                stores[0].disks[0].policy = policy;
                recorder.observe(wall(second), &Arc::new(stores));
            }
            let chunk = recorder.chunk();
            (chunk.stores[&name("array")][0].0.why(), chunk.disks[&name("a")][0].0.unwrap())
        };
        let limit = |iops| Policy { limit: Iops::new(iops).ok(), ..Policy::default() };
        let bytes = Policy { limit_bandwidth: BytesPerSec::new(20 * 4096).ok(), ..limit(1_000) };
        let (why, profile) = of(limit(20));
        assert_eq!((why, profile.outstanding.as_thousandths()), (Some(LeftOut::Limited), 40));
        assert_eq!(of(bytes).0, Some(LeftOut::Limited));
        let (why, profile) = of(limit(40));
        assert_eq!(why, Some(LeftOut::Windowed));
        assert!(profile.outstanding.as_thousandths() >= 40);
        let each = Iops::new(10).ok();
        let directed = Policy { limit_read: each, limit_write: each, ..Policy::default() };
        assert_eq!(of(directed).0, of(limit(20)).0);
        // What waits for a soft limit waits because the datastore serves others.
        assert_eq!(of(Policy { limit_mode: LimitMode::Soft, ..limit(20) }), (why, profile));
    }

    #[test]
    fn a_datastore_of_the_same_name_is_another() {
        let mut recorder = recorder();
        let at = |recorder: &mut Recorder, second| {
            let wait = Nanos::from_millis(8);
            let sample = waiting(second, &[("a", 20)], wait, Slots::whole(32));
            recorder.observe(wall(second), &sample);
            recorder.chunk().stores.get(&name("array")).map(|all| *all.last().unwrap())
        };
        (1..=91).step_by(5).for_each(|second| _ = at(&mut recorder, second));
        let doubtful = at(&mut recorder, 96).map(|interval| interval.0.any_point().is_some());
        assert_eq!(doubtful, Some(true), "its window has been still for long");
        recorder.forget_datastore(&name("array"));
        assert_eq!(at(&mut recorder, 101), None);
        let nothing = DeviceInterval::Nothing(LeftOut::Windowed);
        assert_eq!(at(&mut recorder, 106), Some(StoreInterval(nothing)), "nobody knows of its own");
    }

    #[test]
    fn hours_begin_by_the_wall_clock_and_count_what_was_done() {
        let mut recorder = recorder();
        // The wall clock's hour ends between two samples.
        let to_the_hour = 3_600 - 1_790_000_000 % 3_600;
        for second in [0, 5, 10] {
            recorder.observe(
                wall(to_the_hour - 7 + second),
                &sample(second + 1, &[("a", 100), ("b", 20)]),
            );
        }
        let hours = &recorder.chunk().hours[&name("array")];
        let begin = (1_790_000_000 + to_the_hour).cast_signed();
        assert_eq!(hours.keys().copied().collect::<Vec<i64>>(), [begin - 3_600, begin]);
        for hour in hours.values() {
            assert_eq!(
                (hour.seen, hour.reads.count, hour.totals.taken),
                (Nanos::from_secs(5), 600, 1)
            );
            assert_eq!((hour.reads.bytes, hour.writes.count), (Bytes(600 * 4096), 0));
            let (p50, p99) =
                (hour.device.at_permille(500).unwrap(), hour.total.at_permille(990).unwrap());
            assert!(
                p50 == p99 && p50 >= Nanos::from_millis(2) && p50 < Nanos::from_micros(2_200),
                "{p50}"
            );
            assert!((hour.mean_outstanding() - 0.24).abs() < 0.01, "{}", hour.mean_outstanding());
        }
        recorder.forget_datastore(&name("array"));
        assert!(recorder.chunk().hours.is_empty());
    }

    #[test]
    fn a_wall_clock_that_jumps_loses_nothing() {
        let mut recorder = recorder();
        recorder.observe(wall(1_000), &sample(1, &[("a", 1)]));
        let chunk =
            recorder.observe(wall(10), &sample(6, &[("a", 1)])).expect("set back: written at once");
        assert_eq!(chunk.disks[&name("a")].len(), 1);
        assert!(recorder.observe(wall(15), &sample(11, &[("a", 1)])).is_none());
    }

    #[test]
    fn the_part_of_a_chunk_before_a_window_is_known() {
        let chunk = Chunk { ended: wall(100), period: Nanos::from_secs(5), ..Chunk::default() };
        // Intervals end at 60, 65, ..., 100.
        assert_eq!(chunk.older_than(wall(60), 9), 0);
        assert_eq!(chunk.older_than(wall(61), 9), 1);
        assert_eq!(chunk.older_than(wall(0), 9), 0);
        assert_eq!(chunk.older_than(wall(100), 9), 8);
        assert_eq!(chunk.older_than(wall(101), 9), 9);
    }
}
