//! What the record of one second costs whoever samples disks: `cargo bench -p headgate-history
//! --bench recording`, with `-- idle` or `-- busy` for one of the two. Writing is not in it, which
//! a thread of its own does every five minutes.

use headgate_history::Samples;
use headgate_model::{DatastoreSample, DiskSample, Name, Policy};
use headgate_qos::window::Slots;
use headgate_stats::{COST_OF_ONE_IO, DiskStats, Latency, Op, Outcome, Phase};
use headgate_units::{Bytes, Nanos};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DISKS: usize = 1_000;
/// So many seconds are recorded. Ten minutes have two chunks and ten minutes of accounts.
const SECONDS: u64 = 600;

/// More than the caches hold: in a second between two records others use them.
const OTHERS: usize = 64 << 20;

/// What the disks do in each second.
#[derive(Clone, Copy)]
enum Load {
    /// Nothing: samples share what is told of them.
    Idle,
    /// One read each.
    Busy,
}

/// Disks on one datastore, every other one with a reservation.
struct Host {
    load: Load,
    disks: Vec<DiskStats>,
    told: Vec<DiskSample>,
    second: u64,
}

impl Host {
    fn new(load: Load) -> Host {
        let disks: Vec<DiskStats> = (0..DISKS).map(|_| DiskStats::new(Nanos::ZERO)).collect();
        let told = disks.iter().enumerate().map(|(n, stats)| {
            let name: Name = format!("disk{n:04}").parse().expect("a name");
            let reserving = r#"{"reservation": 100}"#;
            let policy = match n % 2 {
                0 => serde_json::from_str(reserving).expect("a policy"),
                _ => Policy::default(),
            };
            DiskSample::new(name, policy, stats.snapshot(Nanos::ZERO))
        });
        let told = told.collect();
        Host { load, disks, told, second: 0 }
    }

    /// What the shard reports a second later.
    fn go_on(&mut self) -> Arc<Vec<DatastoreSample>> {
        let (began, end) = (Nanos::from_secs(self.second), Nanos::from_secs(self.second + 1));
        self.second += 1;
        for (stats, told) in self.disks.iter_mut().zip(&mut self.told) {
            if let Load::Busy = self.load {
                let took = Nanos::from_micros(2_000 + self.second * 7_919 % 9_000);
                let latency = Latency { device: took, total: took };
                stats.on_arrival(began, Op::Read, (self.second * 8_191) << 20, Bytes(4_096));
                stats.on_dispatch(began, Op::Read, Nanos::ZERO, Phase::Weight, COST_OF_ONE_IO);
                stats.on_complete(began + took, Op::Read, Bytes(4_096), latency, Outcome::Done);
                told.counted = Arc::new(stats.snapshot(end));
            }
            told.set_at(end);
        }
        let mut store = DatastoreSample::fresh("store".parse().expect("a name"), self.told.clone());
        store.window = Slots::whole(32);
        store.stats = DiskStats::new(Nanos::ZERO).snapshot(end);
        Arc::new(vec![store])
    }
}

fn recording(load: Load) -> Duration {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("samples.sqlite");
    let samples = Samples::open(&path, Duration::from_secs(5)).expect("samples");
    let (mut host, mut spent) = (Host::new(load), Duration::ZERO);
    let now = Nanos::from_secs(1_800_000_000);
    let mut others = vec![0_u8; OTHERS];
    for second in 0..SECONDS {
        let sample = host.go_on();
        others.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
        black_box(&others);
        let began = Instant::now();
        samples.record_at(now + Nanos::from_secs(second), &sample);
        spent += began.elapsed();
        // The writer has its time before the next.
        samples.settle();
    }
    spent
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    for (name, load) in [("idle", Load::Idle), ("busy", Load::Busy)] {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            let each = recording(load).as_secs_f64() / SECONDS as f64;
            let part = each * 100.0;
            println!(
                "one second of {DISKS} {name} disks: {:.1} us, {part:.4} % of a core",
                each * 1e6
            );
        }
    }
}
