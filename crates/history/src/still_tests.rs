//! The recorder beside a plain one that seeks every disk by its name in every sample, whatever
//! disks do and whenever somebody reads.

use crate::recorder::{Chunk, DiskInterval, Recorder, StoreInterval};
use headgate_model::{DatastoreSample, DiskSample, Name, Policy};
use headgate_placement::{DatastoreJudge, Held, Limits, WorkloadProfile};
use headgate_qos::window::Slots;
use headgate_stats::{COST_OF_ONE_IO, DiskStats, Interval, Latency, Op, Outcome, Phase};
use headgate_units::{Bytes, Nanos};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const PERIOD: Nanos = Nanos::from_secs(5);
/// A sample that comes earlier by this is not passed over.
const EARLY: Nanos = Nanos::from_millis(500);
const GATHERED_FOR: Nanos = Nanos::from_secs(300);
const DISKS: usize = 4;

type Intervals = BTreeMap<Name, Vec<DiskInterval>>;

/// By the definition: time is cut where samples are a period apart. A disk that was on one
/// datastore at both ends, and nobody forgot, has an interval of what its counters say.
#[derive(Default)]
struct Plain {
    last: Option<Arc<Vec<DatastoreSample>>>,
    began: Nanos,
    disks: Intervals,
    stores: BTreeMap<Name, Vec<StoreInterval>>,
    judges: BTreeMap<Name, DatastoreJudge<Slots>>,
    forgotten: BTreeSet<Name>,
}

/// What is read of either.
type Read = (Intervals, BTreeMap<Name, Vec<StoreInterval>>);

impl Plain {
    fn observe(&mut self, now: Nanos, sample: &Arc<Vec<DatastoreSample>>) -> Option<Read> {
        let Some(last) = self.last.clone() else {
            (self.last, self.began) = (Some(sample.clone()), now);
            return None;
        };
        if sample[0].stats.at.since(last[0].stats.at) + EARLY < PERIOD {
            return None;
        }
        self.last = Some(sample.clone());
        for (store, before) in sample.iter().zip(last.iter()) {
            if self.forgotten.contains(&store.name) {
                continue;
            }
            let mut intervals: Vec<(Name, Interval, Limits)> = Vec::new();
            for disk in &store.disks {
                let old = before.disks.iter().find(|old| old.name == disk.name);
                let Some(old) = old.filter(|_| !self.forgotten.contains(&disk.name)) else {
                    continue;
                };
                let counted = disk.counted.since_over(&old.counted, disk.at().since(old.at()));
                let limits = Limits { iops: disk.policy.limit, bandwidth: None };
                intervals.push((disk.name.clone(), counted, limits));
            }
            let whole = store.stats.since(&before.stats);
            let judge = self.judges.entry(store.name.clone()).or_default();
            let of_disks = intervals.iter().map(|(_, interval, limits)| (interval, *limits));
            let judged = judge.judge(store.stats.at, store.window, &whole, of_disks);
            self.stores.entry(store.name.clone()).or_default().push(StoreInterval(judged));
            for (name, interval, limits) in intervals {
                let held = Held::of_disk(&interval, &limits);
                let interval = DiskInterval(WorkloadProfile::of(&interval, held));
                self.disks.entry(name).or_default().push(interval);
            }
        }
        self.forgotten.clear();
        let over = now < self.began || now.since(self.began) >= GATHERED_FOR;
        (over && !(self.disks.is_empty() && self.stores.is_empty())).then(|| self.take(now))
    }

    fn take(&mut self, ended: Nanos) -> Read {
        self.began = ended;
        (std::mem::take(&mut self.disks), std::mem::take(&mut self.stores))
    }

    fn forget_datastore(&mut self, store: &Name) {
        self.stores.remove(store);
        self.judges.remove(store);
        self.forgotten.insert(store.clone());
    }
}

/// What happens next; a number is a disk's.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// So many seconds, and a sample then.
    Passes(u64),
    /// It reads a little.
    Reads(usize),
    /// It reads as much as its limit allows, and waits.
    Waits(usize),
    /// Something is told of it that is no request.
    IsTold(usize),
    /// It is not there, or there again.
    LeavesOrComes(usize),
    /// Another name at the same place.
    IsRenamed(usize),
    /// It is on the other datastore.
    Moves(usize),
    /// It is removed: the next of its name is another.
    IsForgotten(usize),
    /// The datastore is.
    StoreIsForgotten(usize),
    /// Somebody reads all.
    AllIsRead,
    /// Somebody continues a disk under another name.
    IsContinued(usize),
    /// All is written.
    IsWritten,
    /// The wall clock is set back by an hour.
    ClockIsSetBack,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let disk = || 0..DISKS;
    let event = prop_oneof![
        24 => (1u64..8).prop_map(Event::Passes),
        4 => disk().prop_map(Event::Reads),
        2 => disk().prop_map(Event::Waits),
        1 => disk().prop_map(Event::IsTold),
        1 => disk().prop_map(Event::LeavesOrComes),
        1 => disk().prop_map(Event::IsRenamed),
        1 => disk().prop_map(Event::Moves),
        1 => disk().prop_map(Event::IsForgotten),
        1 => (0usize..2).prop_map(Event::StoreIsForgotten),
        2 => Just(Event::AllIsRead),
        1 => disk().prop_map(Event::IsContinued),
        1 => Just(Event::IsWritten),
        1 => Just(Event::ClockIsSetBack),
    ];
    prop::collection::vec(event, 1..160)
}

struct Disk {
    stats: DiskStats,
    told: DiskSample,
    store: usize,
    is_there: bool,
    names: [Name; 2],
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Two datastores and their disks.
struct World {
    now: Nanos,
    disks: Vec<Disk>,
    stores: [(Name, DiskStats); 2],
}

impl World {
    fn new() -> World {
        let disk = |n: usize| {
            let stats = DiskStats::new(Nanos::ZERO);
            let names = [name(&format!("disk{n}")), name(&format!("other{n}"))];
            let policy: Policy = serde_json::from_str(r#"{"limit": 5}"#).unwrap();
            let told = DiskSample::new(names[0].clone(), policy, stats.snapshot(Nanos::ZERO));
            Disk { stats, told, store: n % 2, is_there: true, names }
        };
        let store = |text| (name(text), DiskStats::new(Nanos::ZERO));
        let stores = [store("array"), store("flash")];
        World { now: Nanos::from_secs(1), disks: (0..DISKS).map(disk).collect(), stores }
    }

    fn read(&mut self, disk: usize, wait: Nanos) {
        let disk = &mut self.disks[disk];
        for n in 0..40 {
            let (at, took) = (self.now, Nanos::from_millis(2));
            for stats in [&mut disk.stats, &mut self.stores[disk.store].1] {
                stats.on_arrival(at, Op::Read, (n * 7_919 % 100) << 20, Bytes(4_096));
                stats.on_dispatch(at + wait, Op::Read, wait, Phase::Weight, COST_OF_ONE_IO);
                let latency = Latency { device: took, total: wait + took };
                stats.on_complete(
                    at + latency.total,
                    Op::Read,
                    Bytes(4_096),
                    latency,
                    Outcome::Done,
                );
            }
            self.now += wait + took;
        }
        disk.told.counted = Arc::new(disk.stats.snapshot(self.now));
    }

    fn sample(&mut self) -> Arc<Vec<DatastoreSample>> {
        let now = self.now;
        let store = |(at, (name, stats)): (usize, &(Name, DiskStats))| {
            let there = self.disks.iter().filter(|disk| disk.is_there && disk.store == at);
            let told = there.map(|disk| {
                let mut told = disk.told.clone();
                told.set_at(now);
                told
            });
            let fresh = DatastoreSample::fresh(name.clone(), told.collect());
            DatastoreSample { window: Slots::whole(32), stats: stats.snapshot(now), ..fresh }
        };
        Arc::new(self.stores.iter().enumerate().map(store).collect())
    }
}

fn of_chunk(chunk: &Chunk) -> Read {
    (chunk.disks.clone(), chunk.stores.clone())
}

/// Runs both, and compares all that is read of them.
fn compare(events: &[Event]) -> Result<usize, TestCaseError> {
    let (mut world, mut plain) = (World::new(), Plain::default());
    let mut recorder = Recorder::new(Duration::from_nanos(PERIOD.0));
    let (mut base, mut still) = (Nanos::from_secs(1_790_000_000), 0);
    for &event in events {
        match event {
            Event::Passes(seconds) => {
                world.now += Nanos::from_secs(seconds);
                let (now, sample) = (base + world.now, world.sample());
                let handed = recorder.observe(now, &sample);
                let expected = plain.observe(now, &sample);
                prop_assert_eq!(handed.as_ref().map(of_chunk), expected);
                prop_assert!(handed.is_none_or(|chunk| chunk.ended == now));
            }
            Event::Reads(disk) => world.read(disk, Nanos::ZERO),
            Event::Waits(disk) => world.read(disk, Nanos::from_millis(40)),
            Event::IsTold(disk) => world.disks[disk].told.clients += 1,
            Event::LeavesOrComes(disk) => world.disks[disk].is_there ^= true,
            Event::IsRenamed(disk) => {
                let disk = &mut world.disks[disk];
                disk.names.reverse();
                disk.told.name = disk.names[0].clone();
            }
            Event::Moves(disk) => world.disks[disk].store ^= 1,
            Event::IsForgotten(disk) => {
                let disk = &mut world.disks[disk];
                let rest = recorder.forget_disk(&disk.names[0]);
                let mut rest = rest.map(|chunk| chunk.disks);
                let expected = plain.disks.remove(&disk.names[0]);
                plain.forgotten.insert(disk.names[0].clone());
                let rest = rest.as_mut().and_then(|rest| rest.remove(&disk.names[0]));
                prop_assert_eq!(rest, expected);
                // One of its name is made at once, with counters of its own.
                disk.stats = DiskStats::new(world.now);
                disk.told.counted = Arc::new(disk.stats.snapshot(world.now));
            }
            Event::StoreIsForgotten(store) => {
                recorder.forget_datastore(&world.stores[store].0);
                plain.forget_datastore(&world.stores[store].0);
            }
            Event::AllIsRead => {
                let read = of_chunk(recorder.chunk());
                still +=
                    read.0.values().flatten().filter(|one| **one == DiskInterval::STILL).count();
                prop_assert_eq!(read, (plain.disks.clone(), plain.stores.clone()));
            }
            Event::IsContinued(disk) => {
                let (disk, other) = (&world.disks[disk].names[0], name("copy"));
                let copied = recorder.as_of(disk, &other).map(|chunk| chunk.disks);
                let expected = plain.disks.get(disk);
                prop_assert_eq!(copied.as_ref().map(|copied| &copied[&other]), expected);
            }
            Event::IsWritten => {
                let written = of_chunk(&recorder.take());
                let ended = recorder.chunk().ended;
                prop_assert_eq!(written, plain.take(ended));
            }
            Event::ClockIsSetBack => base = Nanos(base.0 - 3_600_000_000_000),
        }
    }
    prop_assert_eq!(of_chunk(recorder.chunk()), (plain.disks, plain.stores));
    Ok(still)
}

proptest! {
    #[test]
    fn what_is_read_is_what_a_recorder_has_that_seeks_every_disk(events in events()) {
        compare(&events)?;
    }
}

/// Disks that stand still for ten minutes, are read, wake up and sleep again.
#[test]
fn disks_that_stand_still_are_compared_too() {
    let mut events = vec![Event::Passes(5); 30];
    events.extend([Event::AllIsRead, Event::Reads(0), Event::Waits(3)]);
    events.extend([Event::Passes(5); 5]);
    events.extend([Event::AllIsRead, Event::LeavesOrComes(1)]);
    events.extend([Event::Passes(5); 90]);
    events.push(Event::AllIsRead);
    assert!(compare(&events).unwrap() > 4 * 29 + 4 * 30);
}
