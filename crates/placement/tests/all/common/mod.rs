//! Pools made up for tests.

use headgate_placement::*;
use headgate_units::{Bytes, Iops, Nanos};
use proptest::prelude::ProptestConfig;
use proptest::test_runner::FileFailurePersistence;

/// 300 cases of a property, or as many as `PROPTEST_CASES` says. A failure prints its seed and
/// keeps it in a file beside the test, from which the next run replays it.
pub fn cases() -> ProptestConfig {
    let said = std::env::var("PROPTEST_CASES").ok();
    let cases = said.map_or(300, |n| n.parse().expect("PROPTEST_CASES is a number"));
    let kept = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(kept)), ..ProptestConfig::default() }
}

/// A small generator of scattered numbers.
pub struct Dice(pub u64);

impl Dice {
    /// 0 to `n` - 1.
    pub fn roll(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % n.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }
}

pub const HOUR: u64 = 3_600;

pub fn gib(n: u64) -> Bytes {
    Bytes::from_gib(n)
}

/// Random reads of 8 KiB.
pub fn profile(outstanding: u32) -> WorkloadProfile {
    WorkloadProfile {
        outstanding: Outstanding::whole(outstanding),
        size: Bytes::from_kib(8),
        read: Permille(1_000),
        random: Permille(1_000),
    }
}

/// A model that is sure to within 2 %.
pub fn model(slope_micros: u64) -> DeviceModel {
    let picos = slope_micros * 1_000_000;
    DeviceModel {
        slope: Slope::from_picos(picos),
        low: picos - picos / 50,
        high: picos + picos / 50,
        base: 3_000_000,
        floor: Nanos::from_millis(4),
        explained: Permille(980),
        points: 1_000,
        evidence: Evidence::Rise,
        size: Bytes::from_kib(8),
        random: Permille(1_000),
        doubts: Doubts::default(),
    }
}

pub fn datastore(name: &str, slope_micros: u64) -> Datastore {
    Datastore {
        name: name.into(),
        class: None,
        spindles: None,
        volume: None,
        capacity: gib(10_000),
        foreign: Bytes(0),
        provisioning: Provisioning::Thin,
        reservable: None,
        promisable: None,
        state: State::Active,
        model: Some(model(slope_micros)),
    }
}

pub fn disk(name: &str, datastore: &str, outstanding: u32) -> PoolDisk {
    PoolDisk {
        name: name.into(),
        vm: None,
        datastore: datastore.into(),
        size: gib(40),
        used: gib(20),
        reservation: None,
        workload: Some(profile(outstanding)),
        mobility: Mobility::Free,
        class: None,
        affinity: Affinity::None,
    }
}

pub fn new_disk(name: &str) -> NewDisk {
    NewDisk {
        name: name.into(),
        vm: None,
        size: gib(20),
        expected: None,
        reservation: None,
        workload: None,
        class: None,
        affinity: Affinity::None,
    }
}

/// Nothing that holds moves up but that they must help.
pub fn restless() -> Calm {
    Calm { hold: Nanos::ZERO, no_return: Nanos::ZERO, most: None, window: Nanos::ZERO }
}

/// Datastores whose disks take all of their size, and some that share their space.
fn divide_space(pool: &mut Pool, mut dice: Dice) {
    for store in &mut pool.datastores {
        if dice.one_in(5) {
            store.provisioning = Provisioning::Thick;
        }
        store.volume = dice.one_in(3).then(|| format!("fs{}", dice.roll(2)).into());
    }
}

/// Reservations, and datastores that cannot keep more.
fn promise(pool: &mut Pool, mut dice: Dice) {
    pool.rules.interference =
        if dice.one_in(3) { Interference::None } else { Interference::Streams };
    for store in &mut pool.datastores {
        store.reservable = dice.one_in(2).then(|| dice.roll(3_000));
    }
    for disk in &mut pool.disks {
        disk.reservation = if dice.one_in(4) { Iops::new(1 + dice.roll(1_000)).ok() } else { None };
    }
}

/// Any pool: rules, states, classes, shared spindles and space, tight space, missing models and
/// workloads, a history.
pub fn any_pool(seed: u64) -> Pool {
    let mut dice = Dice(seed);
    let mut pool = Pool { now: Nanos::from_secs(1_000 * HOUR), ..Pool::default() };
    let tight = dice.one_in(3);
    for n in 0..1 + dice.roll(7) {
        let mut store = datastore(&format!("ds{n}"), 100 + dice.roll(3_000));
        store.capacity = gib(if tight { 100 + dice.roll(400) } else { 500 + dice.roll(2_000) });
        store.foreign = gib(if dice.one_in(4) { dice.roll(100) } else { 0 });
        store.class =
            [None, Some("fast".into()), Some("cheap".into())][dice.roll(3) as usize].clone();
        store.spindles = dice.one_in(4).then(|| format!("array{}", dice.roll(2)).into());
        store.state = match dice.roll(10) {
            0 => State::Maintenance,
            1 => State::Closed,
            _ => State::Active,
        };
        match dice.roll(8) {
            0 => store.model = None,
            1 => store.model.iter_mut().for_each(|model| {
                model.evidence = Evidence::Flat;
                model.low = 0;
            }),
            _ => {}
        }
        pool.datastores.push(store);
    }
    let stores = pool.datastores.len() as u64;
    let crowded = dice.one_in(3);
    for n in 0..dice.roll(30) {
        let at = if crowded && !dice.one_in(4) { 0 } else { dice.roll(stores) };
        let mut disk = disk(&format!("disk{n}"), &format!("ds{at}"), 0);
        disk.size = gib(1 + dice.roll(80));
        disk.used = Bytes(disk.size.0 / (1 + dice.roll(4)));
        disk.workload = (!dice.one_in(10)).then(|| WorkloadProfile {
            outstanding: Outstanding::from_thousandths(dice.roll(32_000) as u32),
            size: Bytes::from_kib(4 << dice.roll(6)),
            read: Permille(dice.roll(1_001) as u32),
            random: Permille(dice.roll(1_001) as u32),
        });
        disk.vm = dice.one_in(2).then(|| format!("vm{}", dice.roll(8)).into());
        if dice.one_in(3) {
            disk.affinity = Affinity::Vm;
        }
        if dice.one_in(12) {
            disk.mobility = Mobility::Pinned;
        }
        if dice.one_in(12) {
            disk.class = Some(["fast", "cheap"][dice.roll(2) as usize].into());
        }
        if dice.one_in(8) {
            pool.history.push(PastMove {
                disk: disk.name.clone(),
                from: format!("ds{}", dice.roll(stores + 1)).into(),
                at: pool.now - Nanos::from_secs(dice.roll(200) * HOUR),
            });
        }
        pool.disks.push(disk);
    }
    let any = |dice: &mut Dice| Name::from(format!("disk{}", dice.roll(32)));
    for n in 0..dice.roll(3) {
        let disks = (0..2 + dice.roll(2)).map(|_| any(&mut dice)).collect();
        pool.rules.affinity.push(Group { name: format!("together{n}").into(), disks });
    }
    for n in 0..dice.roll(4) {
        let disks = (0..2 + dice.roll(3)).map(|_| any(&mut dice)).collect();
        pool.rules.anti_affinity.push(Group { name: format!("apart{n}").into(), disks });
    }
    for datastore in &mut pool.datastores {
        if dice.one_in(6) {
            datastore.promisable = Some(gib(50 + dice.roll(4_000)));
        }
    }
    if dice.one_in(4) {
        pool.rules.space.overcommit = Some(Permille(500 + dice.roll(2_000) as u32));
    }
    if dice.one_in(3) {
        pool.rules.calm = restless();
    }
    if dice.one_in(3) {
        pool.rules.copy.payback = Nanos::MAX;
    }
    let mut keep = Dice(seed ^ 0x7f4a_7c15);
    pool.rules.space.keep = gib(keep.roll(40));
    promise(&mut pool, Dice(seed ^ 0x5bd1_e995));
    divide_space(&mut pool, Dice(seed ^ 0x1b87_3593));
    pool
}

/// Makes the moves, as the daemon would by the time of the next advice.
pub fn apply(pool: &mut Pool, advice: &Advice, later: Nanos) {
    pool.now += later;
    for step in &advice.moves {
        let disk = pool
            .disks
            .iter_mut()
            .find(|disk| disk.name == step.disk)
            .expect("advice is about disks of the pool");
        assert_eq!(disk.datastore, step.from);
        disk.datastore = step.to.clone();
        pool.history.push(PastMove {
            disk: step.disk.clone(),
            from: step.from.clone(),
            at: pool.now,
        });
    }
}

/// Whether a move is for load or space, and so held up by what keeps a pool calm.
pub fn is_voluntary(step: &Move) -> bool {
    matches!(step.why, Why::Load | Why::Exchange(_) | Why::Throughput(_) | Why::Space(_))
}

/// The imbalance of a pool in which each datastore has spindles and a model of its own, from first
/// principles.
pub fn imbalance(pool: &Pool) -> f64 {
    let normalised = |store: &Datastore| {
        let on = pool.disks.iter().filter(|disk| disk.datastore == store.name);
        let load: f64 = on.filter_map(|disk| disk.load(&pool.rules)).map(Load::as_f64).sum();
        load / store.model.unwrap().slope.ability()
    };
    let all: Vec<f64> = pool.datastores.iter().map(normalised).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let variance = all.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / all.len() as f64;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}
