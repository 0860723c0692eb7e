//! The paper's Figure 6 through a running engine: the wiring must give what the algorithm gives in
//! simulated time.

#[allow(dead_code, reason = "the other program uses the rest")]
#[path = "all/support/closed.rs"]
mod closed;

use closed::Closed;
use headgate_engine::request::Op;
use headgate_engine::{BackendSpec, Caching, DatastoreSpec, DiskSpec, Engine, EngineConfig, Image};
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::{Bytes, Iops, Shares};
use std::time::Duration;

const SIZE: u64 = 8 << 20;
/// What the emulated device serves, in IOs per second.
const RATE: f64 = 1_320.0;

/// Runs five disks, weights 1:1:2:2:2 and reservations 300 and 250, on 1,320 IOPS; returns each
/// one's IOPS.
fn figure_6(scheduler: SchedulerKind) -> Vec<f64> {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap();
    let model = format!("rate={RATE}").parse().unwrap();
    let ds = DatastoreSpec {
        name: "array".into(),
        backend: BackendSpec::Emulated(model, Bytes(5 * SIZE)),
        layers: Vec::new(),
        scheduler,
        queue_depth: 32,
        // The emulated device takes as long for every size, so every request costs the same.
        qos: headgate_qos::Config {
            cost_model: headgate_qos::CostModel::Unit,
            ..Default::default()
        },
    };
    let ds = engine.add_datastore(ds).unwrap();
    for (n, (shares, reservation)) in
        [(1, 300), (1, 250), (2, 0), (2, 0), (2, 0)].into_iter().enumerate()
    {
        let path = dir.path().join(format!("{n}.raw"));
        Image::create(&path, Bytes(SIZE)).unwrap();
        let image = Image::open(&path, Caching::Buffered, Duration::ZERO).unwrap();
        let policy = Policy::shared(Shares::new(shares).unwrap())
            .with_reservation(Iops::new(reservation).ok())
            .unwrap();
        let disk = engine.open_disk(ds, DiskSpec { name: n.to_string(), image, policy }).unwrap();
        let port = Closed::new(32, SIZE, n as u64, |_| Op::Read);
        engine.attach(disk, move |_| Box::new(port)).unwrap();
    }
    let counted = || {
        let (_, mut snapshot) = engine.snapshot().unwrap().remove(0);
        snapshot.disks.sort_by(|a, b| a.name.cmp(&b.name));
        snapshot.disks
    };
    std::thread::sleep(Duration::from_secs(1));
    let before = counted();
    std::thread::sleep(Duration::from_secs(4));
    let after = counted();
    engine.shutdown(Duration::from_secs(10)).unwrap();
    before.iter().zip(&after).map(|(b, a)| a.stats.since(&b.stats).iops).collect()
}

/// The same, measured while the device was busy: a machine that starves the shard breaks that
/// premise, and the division is then the machine's.
fn figure_6_on_a_busy_device(scheduler: SchedulerKind) -> Vec<f64> {
    let mut served = Vec::new();
    for _ in 0..6 {
        let iops = figure_6(scheduler);
        let sum: f64 = iops.iter().sum();
        if sum >= 0.985 * RATE {
            return iops;
        }
        served.push(sum);
    }
    panic!("premise: the device serves {RATE} a second, and did {served:.0?} in six attempts");
}

#[test]
fn reservations_hold_under_mclock_and_are_missed_under_sfq() {
    let mclock = figure_6_on_a_busy_device(SchedulerKind::MClock);
    let sfq = figure_6_on_a_busy_device(SchedulerKind::Sfq);
    eprintln!("IOPS under mClock {mclock:.1?}, under SFQ(32) {sfq:.1?}");
    assert!(mclock[0] >= 0.97 * 300.0 && mclock[1] >= 0.97 * 250.0, "{mclock:?}");
    let rest = mclock[2..].iter().sum::<f64>() / 3.0;
    assert!(mclock[2..].iter().all(|iops| (iops / rest - 1.0).abs() < 0.03), "{mclock:?}");
    let one = sfq.iter().sum::<f64>() / 8.0;
    for (iops, shares) in sfq.iter().zip([1.0, 1.0, 2.0, 2.0, 2.0]) {
        assert!((iops / (one * shares) - 1.0).abs() < 0.03, "{sfq:?}");
    }
    assert!(sfq[0] < 200.0 && sfq[1] < 200.0, "{sfq:?}");
}
