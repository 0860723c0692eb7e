//! What keeping samples costs, and what placing a new disk waits for: `cargo bench -p
//! headgate-history`.

use headgate_history::Samples;
use headgate_model::{DatastoreSample, DiskSample, Name, Policy};
use headgate_placement::{
    Affinity, Datastore, DeviceModel, Mobility, NewDisk, Outstanding, Pool, PoolDisk, Provisioning,
    State, WorkloadProfile, place,
};
use headgate_qos::window::Slots;
use headgate_stats::{COST_OF_ONE_IO, DiskStats, Latency, Op, Outcome, Phase};
use headgate_units::{Bytes, Nanos};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DATASTORES: usize = 4;
/// Between samples, in seconds.
const PERIOD: u64 = 5;
/// Of each disk.
const IOPS: u64 = 20;
const HOUR: u64 = 3_600;

fn name(text: String) -> Name {
    text.parse().expect("a name")
}

/// A number that looks random.
fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20
}

/// Disks that are all busy, and their datastores.
struct Host {
    disks: Vec<(Name, DiskStats)>,
    second: u64,
}

impl Host {
    fn new(disks: usize) -> Host {
        let disks =
            (0..disks).map(|n| (name(format!("disk{n}")), DiskStats::new(Nanos::ZERO))).collect();
        Host { disks, second: 0 }
    }

    /// What the shards report a period later.
    fn go_on(&mut self) -> Arc<Vec<DatastoreSample>> {
        let began = self.second;
        self.second += PERIOD;
        let end = Nanos::from_secs(self.second);
        let policy = Policy::default();
        let mut stores: Vec<DatastoreSample> = stores()
            .into_iter()
            .map(|name| DatastoreSample {
                window: Slots::whole(32),
                stats: DiskStats::new(Nanos::ZERO).snapshot(end),
                ..DatastoreSample::fresh(name, Vec::new())
            })
            .collect();
        for (index, (disk, stats)) in self.disks.iter_mut().enumerate() {
            for n in 0..PERIOD * IOPS {
                let chance = scattered(self.second * 1_000_003 + index as u64 * 101 + n);
                let at = Nanos::from_secs(began) + Nanos(n * 1_000_000_000 / IOPS);
                let took = Nanos::from_micros(2_000 + chance % 30_000);
                let op = if chance % 10 < 7 { Op::Read } else { Op::Write };
                let bytes = Bytes::from_kib(4 << (chance % 3));
                stats.on_arrival(at, op, chance % 1_000_000 * 8_192, bytes);
                stats.on_dispatch(at, op, Nanos::ZERO, Phase::Weight, COST_OF_ONE_IO);
                let latency = Latency { device: took, total: took };
                stats.on_complete((at + took).min(end), op, bytes, latency, Outcome::Done);
            }
            let store = &mut stores[index % DATASTORES];
            let stats = stats.snapshot(end);
            store.stats.merge(&stats);
            store.disks.push(DiskSample::new(disk.clone(), policy, stats));
        }
        Arc::new(stores)
    }
}

fn stores() -> Vec<Name> {
    (0..DATASTORES).map(|n| name(format!("store{n}"))).collect()
}

/// Processor time of all threads of this process.
fn processor() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this is Linux").flatten();
    let of = |task: &Path| -> Option<u64> {
        let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(tasks.filter_map(|task| of(&task.path())).sum())
}

/// Hours of samples, which begin at the beginning of one.
fn keeping(disks: usize, hours: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("samples.sqlite");
    let samples = Samples::open(&path, Duration::from_secs(PERIOD)).expect("samples");
    let (mut host, mut spent) = (Host::new(disks), Duration::ZERO);
    let now = Nanos::from_secs(500_000 * HOUR);
    for n in 0..hours * HOUR / PERIOD {
        let sample = host.go_on();
        let before = processor();
        samples.record_at(now + Nanos::from_secs(n * PERIOD), &sample);
        // The writer has its time before the next.
        samples.settle();
        spent += processor().saturating_sub(before);
    }
    samples.flush();
    let part = spent.as_secs_f64() / (hours * HOUR) as f64 * 100.0;
    let size = std::fs::metadata(&path).map_or(0, |meta| meta.len());
    println!(
        "keeping samples of {disks} busy disks, {hours} hours: {part:.2} % of a processor, {}",
        Bytes(size)
    );
}

/// All that placing a disk does but looking at images.
fn placing(disks: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("samples.sqlite");
    let samples = Samples::open(&path, Duration::from_secs(PERIOD)).expect("samples");
    let mut host = Host::new(disks);
    let now = Nanos::from_secs(500_000 * HOUR);
    (0..30).for_each(|n| samples.record_at(now + Nanos::from_secs(n * PERIOD), &host.go_on()));
    samples.flush();
    let stores = stores();
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let began = Instant::now();
            let (workloads, models) = (samples.usual_workloads(), samples.usual_models(&stores));
            let on = workloads.iter().zip(stores.iter().cycle());
            let pool = Pool {
                datastores: stores
                    .iter()
                    .map(|store| datastore(store, models[store].model))
                    .collect(),
                disks: on.map(|((disk, profile), on)| as_disk(disk, on, *profile)).collect(),
                history: samples.known().moves.clone(),
                ..Pool::default()
            };
            black_box(place(&pool, &new_disk())).expect("a place");
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("placing a disk among {disks}: {:.2} ms", times[times.len() / 2].as_secs_f64() * 1e3);
}

fn datastore(store: &Name, model: Option<DeviceModel>) -> Datastore {
    Datastore {
        name: store.as_str().into(),
        class: None,
        spindles: None,
        capacity: Bytes::from_gib(1 << 20),
        foreign: Bytes(0),
        volume: None,
        provisioning: Provisioning::Thin,
        reservable: None,
        promisable: None,
        state: State::Active,
        model,
    }
}

fn as_disk(disk: &Name, on: &Name, profile: WorkloadProfile) -> PoolDisk {
    assert!(profile.outstanding > Outstanding::default(), "all are busy");
    PoolDisk {
        name: disk.as_str().into(),
        vm: None,
        datastore: on.as_str().into(),
        size: Bytes::from_gib(10),
        used: Bytes::from_gib(1),
        reservation: None,
        workload: Some(profile),
        mobility: Mobility::Free,
        class: None,
        affinity: Affinity::None,
    }
}

fn new_disk() -> NewDisk {
    NewDisk {
        name: "new".into(),
        vm: None,
        size: Bytes::from_gib(10),
        expected: None,
        reservation: None,
        workload: None,
        class: None,
        affinity: Affinity::None,
    }
}

fn main() {
    keeping(1_000, 3);
    placing(5_000);
}
