//! What advice costs: `cargo bench -p headgate-placement`.

use headgate_placement::{
    Affinity, Copying, Datastore, DeviceModel, DevicePoint, Doubts, Evidence, Group, Interference,
    Mobility, Name, NewDisk, Outstanding, Permille, Pool, PoolDisk, Provisioning, Slope, State,
    WorkloadProfile, advise, place,
};
use headgate_units::{Bytes, Nanos};
use std::hint::black_box;
use std::time::Instant;

const DATASTORES: u64 = 200;
const DISKS: u64 = 10_000;
const ROUNDS: usize = 7;

fn scattered(i: u64) -> u64 {
    let mixed = i.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 27)
}

/// Median, least and greatest milliseconds.
fn measure(mut work: impl FnMut()) -> (f64, f64, f64) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            #[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    (rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1])
}

fn print(what: &str, result: &str, (median, least, greatest): (f64, f64, f64)) {
    println!("{what:<58} {median:>9.2} ms  ({least:.2} to {greatest:.2})  {result}");
}

/// Disks on the first `used` datastores.
fn pool(used: u64) -> Pool {
    let mut pool = Pool { now: Nanos::from_secs(1_000_000), ..Pool::default() };
    pool.rules.calm.most = None;
    pool.rules.copy.payback = Nanos::MAX;
    for n in 0..DATASTORES {
        let picos = 1_000_000 * (200 + scattered(n) % 2_000);
        pool.datastores.push(Datastore {
            name: format!("ds{n}").into(),
            class: None,
            spindles: None,
            capacity: Bytes::from_gib(400_000),
            foreign: Bytes(0),
            volume: None,
            provisioning: Provisioning::Thin,
            reservable: None,
            promisable: None,
            state: State::Active,
            model: Some(DeviceModel {
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
            }),
        });
    }
    for n in 0..DISKS {
        let random = scattered(n + 10_000);
        pool.disks.push(PoolDisk {
            name: format!("disk{n}").into(),
            vm: Some(format!("vm{}", n / 3).into()),
            datastore: format!("ds{}", random % used).into(),
            size: Bytes::from_gib(100),
            used: Bytes::from_gib(1 + random % 60),
            reservation: None,
            workload: Some(WorkloadProfile {
                outstanding: Outstanding::from_thousandths((random >> 20) as u32 % 16_000),
                size: Bytes::from_kib(4 << (random >> 40 & 3)),
                read: Permille((random >> 44) as u32 % 1_001),
                random: Permille((random >> 54) as u32 % 1_001),
            }),
            mobility: Mobility::Free,
            class: None,
            affinity: Affinity::None,
        });
    }
    pool
}

fn advice(what: &str, pool: &Pool) {
    #[expect(clippy::unwrap_used, reason = "the pools above are sound")]
    let once = advise(pool).unwrap();
    let result = format!(
        "{} moves, imbalance {} -> {}, {}",
        once.moves.len(),
        once.before.imbalance,
        once.after.imbalance,
        once.verdict
    );
    print(what, &result, measure(|| _ = black_box(advise(black_box(pool)))));
}

fn main() {
    println!("{DISKS} disks on {DATASTORES} datastores");
    for interference in [Interference::None, Interference::Streams] {
        println!("{interference:?}");
        advice_for(interference);
    }
    println!("either");
    others();
}

fn advice_for(interference: Interference) {
    let pool = |used| {
        let mut pool = pool(used);
        pool.rules.interference = interference;
        pool
    };
    advice("disks anywhere", &pool(DATASTORES));
    advice("on a tenth of the datastores", &pool(DATASTORES / 10));
    advice("all on one datastore", &pool(1));
    let mut ruled = pool(DATASTORES);
    for (n, disk) in ruled.disks.iter_mut().enumerate() {
        disk.class = n.is_multiple_of(7).then(|| "fast".into());
        if n.is_multiple_of(11) {
            disk.mobility = Mobility::Pinned;
        }
    }
    for (n, store) in ruled.datastores.iter_mut().enumerate() {
        store.class = n.is_multiple_of(3).then(|| "fast".into());
        store.spindles = n.is_multiple_of(5).then(|| format!("array{}", n / 10).into());
    }
    for n in 0..1_000 {
        let disks = (0..3)
            .map(|k| format!("disk{}", scattered(n * 3 + k) % DISKS).into())
            .collect::<Vec<Name>>();
        ruled.rules.anti_affinity.push(Group { name: format!("apart{n}").into(), disks });
    }
    advice("classes, shared spindles, 1,000 rules that keep apart", &ruled);
    let mut stuck = pool(DATASTORES);
    stuck.rules.copy.payback = Nanos(1);
    advice("nothing pays: every pair is tried, every disk explained", &stuck);
    let mut emptied = pool(DATASTORES);
    emptied.datastores.iter_mut().take(20).for_each(|store| store.state = State::Maintenance);
    advice("twenty datastores to empty", &emptied);
    let mut usual = pool(DATASTORES);
    usual.rules.copy = Copying::default();
    advice("disks anywhere, moves must pay within a day", &usual);
}

fn others() {
    let all = pool(DATASTORES);
    let new = NewDisk {
        name: "new".into(),
        vm: None,
        size: Bytes::from_gib(100),
        expected: None,
        reservation: None,
        workload: None,
        class: None,
        affinity: Affinity::None,
    };
    print("a new disk", "", measure(|| _ = black_box(place(black_box(&all), &new))));

    let day: Vec<DevicePoint> = (0..8_640)
        .map(|i| {
            let outstanding = 1_000 + scattered(i) as u32 % 30_000;
            DevicePoint {
                outstanding: Outstanding::from_thousandths(outstanding),
                latency: Nanos(
                    4_000_000 + u64::from(outstanding) * 1_000 + scattered(i + 7) % 4_000_000,
                ),
                size: Bytes::from_kib(8),
                random: Permille(1_000),
            }
        })
        .collect();
    print(
        "a device's model from a day of ten seconds each",
        "",
        measure(|| _ = black_box(DeviceModel::learn(&day))),
    );
}
