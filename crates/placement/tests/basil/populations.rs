//! For which workloads random places are bad, and how much better places can be (figure 10): every
//! placement of eight disks on three arrays is tried, for several ways to draw the workloads.
//!
//! `BASIL_RUNS=12 cargo test --release -p headgate-placement --test basil populations --
//! --nocapture`

use crate::balancing::{SPINDLES, array, known_models, typed};
use crate::rig::*;
use headgate_devices::{ArraySpec, Raid};
use headgate_placement::*;
use headgate_units::{Bytes, Nanos};

/// How workloads are drawn, and what the arrays are.
struct Population {
    name: &'static str,
    draw: fn(&mut Dice) -> Work,
    array: fn(u32) -> ArraySpec,
}

/// 2^0 to 2^6, evenly on a logarithmic scale.
fn up_to_64(dice: &mut Dice) -> u32 {
    1 << dice.roll(7)
}

fn raid5(spindles: u32) -> ArraySpec {
    let spec = ArraySpec::new(spindles, Raid::Raid5).unwrap();
    spec.with_cache(Bytes::from_mib(8), headgate_devices::CachePower::Battery).unwrap()
}

const POPULATIONS: [Population; 7] = [
    Population {
        name: "table 1, 2 to 16 outstanding",
        draw: |dice| typed(dice.roll(4), 2 << dice.roll(4)),
        array,
    },
    Population {
        name: "table 1, 4 to 32 outstanding",
        draw: |dice| typed(dice.roll(4), 4 << dice.roll(4)),
        array,
    },
    Population {
        name: "table 1, 1 to 64 outstanding",
        draw: |dice| typed(dice.roll(4), up_to_64(dice)),
        array,
    },
    Population {
        name: "the same on RAID-5",
        draw: |dice| typed(dice.roll(4), up_to_64(dice)),
        array: raid5,
    },
    Population {
        name: "1 to 64 outstanding, 4 to 512 KiB, any mix",
        draw: |dice| Work {
            outstanding: up_to_64(dice),
            kib: 4 << dice.roll(8),
            read: 25 * dice.roll(5) as u32,
            random: 25 * dice.roll(5) as u32,
            think: Nanos::ZERO,
        },
        array,
    },
    Population {
        name: "table 1 and streams of 64 KiB, 1 to 64 outstanding",
        draw: |dice| match dice.roll(4) {
            0 => Work {
                outstanding: up_to_64(dice),
                kib: 64,
                read: 100,
                random: 0,
                think: Nanos::ZERO,
            },
            _ => typed(dice.roll(4), up_to_64(dice)),
        },
        array,
    },
    Population {
        name: "table 1, 1 to 64 users who think 50 ms",
        draw: |dice| Work { think: Nanos::from_millis(50), ..typed(dice.roll(4), up_to_64(dice)) },
        array,
    },
];

/// What each set of disks does on each array: requests per second, and requests that wait on
/// average.
pub struct Table(pub Vec<Vec<(f64, f64)>>);

const DISKS: usize = 8;

pub fn measure(works: &[Work], array: fn(u32) -> ArraySpec) -> Table {
    let of = |spindles: u32, set: usize| {
        let mut rig = Rig::new(&array(spindles), CAPACITY);
        for disk in (0..DISKS).filter(|disk| set >> disk & 1 == 1) {
            rig.add(works[disk], (disk as u64 * 15 * GIB, 10 * GIB), disk as u64 + 1);
        }
        rig.run(Nanos::from_millis(500));
        let interval = rig.measure(Nanos::from_millis(1_500));
        let iops = interval.iops;
        if set == 0 { (0.0, 0.0) } else { (iops, iops * mean_latency(&interval) / 1e9) }
    };
    Table(SPINDLES.map(|spindles| (0..1 << DISKS).map(|set| of(spindles, set)).collect()).into())
}

impl Table {
    /// Requests per second, and their mean latency in seconds.
    pub fn of(&self, at: &[usize]) -> (f64, f64) {
        let mut sets = [0usize; SPINDLES.len()];
        at.iter().enumerate().for_each(|(disk, &array)| sets[array] |= 1 << disk);
        let sum = sets.iter().zip(&self.0).map(|(&set, on)| on[set]);
        let (iops, waiting) = sum.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (iops, waiting / iops)
    }
}

pub fn placement(mut code: usize) -> Vec<usize> {
    let mut digit = || {
        let digit = code % SPINDLES.len();
        code /= SPINDLES.len();
        digit
    };
    (0..DISKS).map(|_| digit()).collect()
}

pub fn advised(
    works: &[Work],
    at: &[usize],
    profile: &[Option<WorkloadProfile>],
    interference: Interference,
) -> Vec<usize> {
    let mut pod = crate::balancing::Pod { works: works.to_vec(), at: at.to_vec() };
    for _ in 0..6 {
        let mut pool = pod.pool(known_models(), profile);
        pool.rules.interference = interference;
        let advice = advise(&pool).unwrap();
        if advice.moves.is_empty() {
            break;
        }
        pod.apply(&pool, &advice);
    }
    pod.at
}

/// With think times less is outstanding than there are users: what the slowest array shows.
fn traits_of(work: Work, array: fn(u32) -> ArraySpec) -> WorkloadProfile {
    let interval = alone(&array(SPINDLES[0]), work, 10 * GIB, Nanos::from_secs(2));
    WorkloadProfile { outstanding: Outstanding::of(interval.outstanding), ..work.profile() }
}

#[test]
fn populations_differ_in_what_there_is_to_gain() {
    let pods: u64 =
        std::env::var("BASIL_RUNS").map_or(1, |n| n.parse().expect("BASIL_RUNS is a number"));
    for population in &POPULATIONS {
        // IOPS gained and latency left, by the best placement and by ours, over all pods and places
        // at first.
        let (mut best, mut published, mut ours) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..pods {
            let mut dice = Dice::new(seed + 20_000);
            let works: Vec<Work> = (0..DISKS).map(|_| (population.draw)(&mut dice)).collect();
            let profile: Vec<_> =
                works.iter().map(|&work| Some(traits_of(work, population.array))).collect();
            let table = measure(&works, population.array);
            let all = (0..SPINDLES.len().pow(DISKS as u32)).map(|code| table.of(&placement(code)));
            let most = all.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
            for _ in 0..200 {
                let at: Vec<usize> = (0..DISKS).map(|_| dice.roll(3) as usize).collect();
                let before = table.of(&at);
                best.push((most.0 / before.0, most.1 / before.1));
                for (by, gains) in
                    [(Interference::None, &mut published), (Interference::Streams, &mut ours)]
                {
                    let after = table.of(&advised(&works, &at, &profile, by));
                    gains.push((after.0 / before.0, after.1 / before.1));
                }
            }
        }
        println!("{}:", population.name);
        for (who, gains) in [("best", &best), ("equation 1", &published), ("streams", &ours)] {
            let part = |test: &dyn Fn(&(f64, f64)) -> bool| {
                gains.iter().filter(|gain| test(gain)).count() * 100 / gains.len()
            };
            let iops: Vec<f64> = gains.iter().map(|gain| (gain.0 - 1.0) * 100.0).collect();
            let latency: Vec<f64> = gains.iter().map(|gain| (gain.1 - 1.0) * 100.0).collect();
            println!(
                "  {who}: IOPS {:+.0} {:+.0} {:+.0} %, a quarter more in {} %, 2 % lost in {} %; latency {:+.0} {:+.0} {:+.0} %, a quarter less in {} %",
                percentile(&iops, 10),
                percentile(&iops, 50),
                percentile(&iops, 90),
                part(&|gain| gain.0 >= 1.25),
                part(&|gain| gain.0 < 0.98),
                percentile(&latency, 10),
                percentile(&latency, 50),
                percentile(&latency, 90),
                part(&|gain| gain.1 <= 0.75),
            );
        }
        assert!(best.iter().zip(&ours).all(|(best, ours)| ours.0 <= best.0 + 1e-9));
    }
}
