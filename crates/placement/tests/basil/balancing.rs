//! Section 6: pools of three arrays, BA-10 to BA-14. Moves are instantaneous, as in the paper,
//! where copies lay everywhere.

use crate::rig::*;
use headgate_devices::{ArraySpec, CachePower, Raid};
use headgate_placement::*;
use headgate_stats::Interval;
use headgate_units::{Bytes, Nanos};
use std::sync::OnceLock;

/// So many runs of an experiment, or as many as `BASIL_RUNS` says. The paper has 500, 100 and 194.
pub fn runs(few: u64) -> u64 {
    std::env::var("BASIL_RUNS").map_or(few, |n| n.parse().expect("BASIL_RUNS is a number"))
}

pub const SPINDLES: [u32; 3] = [3, 6, 9];

/// With a cache so small that it is in its steady state within a second: what is written must go to
/// the disks.
pub fn array(spindles: u32) -> ArraySpec {
    let spec = ArraySpec::new(spindles, Raid::Raid0).unwrap();
    spec.with_cache(Bytes::from_mib(8), CachePower::Battery).unwrap()
}

/// The Iometer types of table 1: workstation, Exchange server, web server, OLTP.
pub fn typed(kind: u64, outstanding: u32) -> Work {
    let (kib, read, random) =
        [(8, 80, 80), (4, 67, 100), (8, 95, 75), (8, 70, 100)][kind as usize % 4];
    Work { outstanding, kib, read, random, think: Nanos::ZERO }
}

pub fn any_work(dice: &mut Dice) -> Work {
    let outstanding = 2 << dice.roll(4);
    typed(dice.roll(4), outstanding)
}

/// Disks, and the array each is on.
#[derive(Clone)]
pub struct Pod {
    pub works: Vec<Work>,
    pub at: Vec<usize>,
}

/// What the disks of a pod did: requests per second and mean latency in milliseconds of each.
struct Measured(Vec<(f64, f64)>);

impl Measured {
    fn iops(&self) -> f64 {
        self.0.iter().map(|&(iops, _)| iops).sum()
    }

    /// Weighted by requests.
    fn latency(&self) -> f64 {
        self.0.iter().map(|&(iops, latency)| iops * latency).sum::<f64>() / self.iops()
    }
}

impl Pod {
    fn rig(&self, array_index: usize) -> (Rig, Vec<usize>) {
        let mut rig = Rig::new(&array(SPINDLES[array_index]), CAPACITY);
        let here: Vec<usize> =
            (0..self.works.len()).filter(|&disk| self.at[disk] == array_index).collect();
        for &disk in &here {
            rig.add(self.works[disk], (disk as u64 * 15 * GIB, 10 * GIB), disk as u64 + 1);
        }
        (rig, here)
    }

    fn measure(&self) -> Measured {
        let mut found = vec![(0.0, 0.0); self.works.len()];
        for index in 0..SPINDLES.len() {
            let (mut rig, here) = self.rig(index);
            rig.run(Nanos::from_secs(1));
            let before: Vec<_> =
                (0..here.len()).map(|client| rig.client_snapshot(client)).collect();
            rig.run(Nanos::from_secs(4));
            for (client, &disk) in here.iter().enumerate() {
                let interval = rig.client_snapshot(client).since(&before[client]);
                found[disk] = (interval.iops, mean_latency(&interval) / 1e6);
            }
        }
        Measured(found)
    }

    /// Lets it run for intervals of 2 s in which each disk has a fifth to all of its requests
    /// outstanding: what the daemon would have seen of datastores and disks.
    fn observe(&self, seed: u64, points: &mut [Vec<DevicePoint>], meters: &mut [WorkloadMeter]) {
        for (index, points) in points.iter_mut().enumerate() {
            let (mut rig, here) = self.rig(index);
            let mut dice = Dice::new(seed * 3 + index as u64);
            for _ in 0..60 {
                // All are busy in the same hours, more or less.
                let hour = 20 + dice.roll(81);
                for (client, &disk) in here.iter().enumerate() {
                    let most = u64::from(self.works[disk].outstanding);
                    let part = hour * (80 + dice.roll(21)) / 100;
                    rig.set_outstanding(client, (most * part).div_ceil(100) as u32);
                }
                let before: Vec<_> =
                    (0..here.len()).map(|client| rig.client_snapshot(client)).collect();
                let interval: Interval = rig.measure(Nanos::from_secs(2));
                points.extend(DevicePoint::of(&interval, Held::No, &Filters::default()));
                for (client, &disk) in here.iter().enumerate() {
                    meters[disk]
                        .record(&rig.client_snapshot(client).since(&before[client]), Held::No);
                }
            }
        }
    }

    pub fn pool(
        &self,
        models: &[Option<DeviceModel>],
        profile: &[Option<WorkloadProfile>],
    ) -> Pool {
        let mut pool = Pool { now: Nanos::from_secs(1_000_000), ..Pool::default() };
        pool.rules.calm =
            Calm { hold: Nanos::ZERO, no_return: Nanos::ZERO, most: None, window: Nanos::ZERO };
        pool.rules.copy.payback = Nanos::MAX;
        pool.rules.interference = Interference::None;
        pool.datastores = (0..SPINDLES.len())
            .map(|index| Datastore {
                name: format!("array{}", SPINDLES[index]).into(),
                class: None,
                spindles: None,
                capacity: Bytes::from_gib(150),
                foreign: Bytes(0),
                volume: None,
                provisioning: Provisioning::Thin,
                reservable: None,
                promisable: None,
                state: State::Active,
                model: models[index],
            })
            .collect();
        let disk = |index: usize| PoolDisk {
            name: format!("disk{index}").into(),
            vm: None,
            datastore: pool.datastores[self.at[index]].name.clone(),
            size: Bytes::from_gib(10),
            used: Bytes::from_gib(10),
            reservation: None,
            workload: profile[index],
            mobility: Mobility::Free,
            class: None,
            affinity: Affinity::None,
        };
        pool.disks = (0..self.works.len()).map(disk).collect();
        pool
    }

    pub fn apply(&mut self, pool: &Pool, advice: &Advice) {
        for step in &advice.moves {
            let disk = pool.disks.iter().position(|disk| disk.name == step.disk).unwrap();
            self.at[disk] = pool.datastores.iter().position(|store| store.name == step.to).unwrap();
        }
    }

    /// Observes, learns, moves, until nothing is advised; the moves of each round.
    fn live(&mut self) -> (Vec<usize>, Vec<Option<DeviceModel>>, Advice) {
        let mut points = vec![Vec::new(); SPINDLES.len()];
        let mut meters = vec![WorkloadMeter::new(); self.works.len()];
        let mut rounds = Vec::new();
        loop {
            self.observe(rounds.len() as u64 + 1, &mut points, &mut meters);
            let models: Vec<_> =
                points.iter().map(|points| DeviceModel::learn(points).ok()).collect();
            let profile: Vec<_> = meters.iter().map(WorkloadMeter::profile).collect();
            let pool = self.pool(&models, &profile);
            let advice = advise(&pool).unwrap();
            rounds.push(advice.moves.len());
            if advice.moves.is_empty() || rounds.len() == 8 {
                return (rounds, models, advice);
            }
            for step in &advice.moves {
                println!("  round {}: {step}", rounds.len());
            }
            self.apply(&pool, &advice);
        }
    }

    fn on(&self, array_index: usize) -> usize {
        self.at.iter().filter(|&&at| at == array_index).count()
    }
}

/// The models of the three arrays, learnt from many pods.
pub fn known_models() -> &'static [Option<DeviceModel>] {
    static MODELS: OnceLock<Vec<Option<DeviceModel>>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let mut points = vec![Vec::new(); SPINDLES.len()];
        for seed in 0..6 {
            let mut dice = Dice::new(seed);
            let works: Vec<Work> = (0..9).map(|_| any_work(&mut dice)).collect();
            let mut meters = vec![WorkloadMeter::new(); works.len()];
            let at = (0..9).map(|disk| disk % 3).collect();
            Pod { works, at }.observe(seed, &mut points, &mut meters);
        }
        points.iter().map(|points| DeviceModel::learn(points).ok()).collect()
    })
}

fn profiles(works: &[Work]) -> Vec<Option<WorkloadProfile>> {
    works.iter().map(|work| Some(work.profile())).collect()
}

/// The works of tables 2 and 4, as far as known: two of each type.
pub fn eight() -> Vec<Work> {
    [(0, 8), (1, 16), (2, 8), (3, 16), (0, 16), (1, 8), (2, 16), (3, 8)]
        .map(|(kind, n)| typed(kind, n))
        .into()
}

fn report(what: &str, pod: &Pod, before: &Measured, after: &Measured) -> (f64, f64, usize) {
    let better = before.0.iter().zip(&after.0).filter(|(before, after)| after.0 > before.0).count();
    let (iops, latency) = (after.iops() / before.iops(), after.latency() / before.latency());
    println!(
        "{what}: {:.0} -> {:.0} IOPS ({:+.0} %), {:.1} -> {:.1} ms ({:+.0} %), {better} of {} better; now {} {} {}",
        before.iops(),
        after.iops(),
        (iops - 1.0) * 100.0,
        before.latency(),
        after.latency(),
        (latency - 1.0) * 100.0,
        pod.works.len(),
        pod.on(0),
        pod.on(1),
        pod.on(2),
    );
    (iops, latency, better)
}

/// Models as of the arrays' spindles.
fn check_abilities(models: &[Option<DeviceModel>]) {
    for (model, spindles) in models.iter().zip(SPINDLES) {
        println!("  {spindles} disks: {}", model.unwrap());
    }
    let each: Vec<f64> = models
        .iter()
        .zip(SPINDLES)
        .map(|(model, n)| model.unwrap().slope.ability() / f64::from(n))
        .collect();
    let mean = each.iter().sum::<f64>() / 3.0;
    assert!(each.iter().all(|each| (each / mean - 1.0).abs() < 0.15), "{each:?}");
}

/// BA-10, tables 2 and 3: as many disks on each as may be.
#[test]
fn what_looks_balanced_by_count_is_balanced_by_load() {
    let mut pod = Pod { works: eight(), at: vec![0, 1, 2, 0, 0, 1, 2, 1] };
    let before = pod.measure();
    let (rounds, models, last) = pod.live();
    let (iops, latency, better) = report("balanced by count", &pod, &before, &pod.measure());
    check_abilities(&models);
    println!(
        "  moves by round {rounds:?}, imbalance at last {}, {}",
        last.after.imbalance, last.verdict
    );
    assert!(rounds.len() <= 5 && *rounds.last().unwrap() == 0, "{rounds:?}");
    // What the pod gains is with few of its disks: the last move of round 1 is taken back.
    assert!(iops > 1.05 && latency < 0.95 && better >= 3, "{iops} {latency} {better}");
}

/// BA-11, tables 4 and 5: all on one array, then two new ones.
#[test]
fn new_arrays_are_learnt_by_one_disk_and_then_filled() {
    let mut pod = Pod { works: eight(), at: vec![1; 8] };
    let before = pod.measure();
    let (rounds, models, last) = pod.live();
    let (iops, latency, better) = report("all on six disks", &pod, &before, &pod.measure());
    for (model, spindles) in models.iter().zip(SPINDLES) {
        println!("  {spindles} disks: {}", model.unwrap());
    }
    println!(
        "  moves by round {rounds:?}, imbalance at last {}, {}",
        last.after.imbalance, last.verdict
    );
    assert!(rounds[0] == 2 && *rounds.last().unwrap() == 0 && rounds.len() <= 5, "{rounds:?}");
    assert!(iops >= 1.8 && latency <= 0.6 && better >= 6, "{iops} {latency} {better}");
    assert!(pod.on(0) < pod.on(1) && pod.on(1) <= pod.on(2));
}

/// BA-12, figure 10: 500 random pods (`BASIL_RUNS=500`).
#[test]
fn random_pods_get_better() {
    let (mut iops, mut latency) = (Vec::new(), Vec::new());
    let mut most_rounds = 0;
    for seed in 0..runs(40) {
        let mut dice = Dice::new(seed + 1_000);
        let works: Vec<Work> = (0..8).map(|_| any_work(&mut dice)).collect();
        let at = (0..8).map(|_| dice.roll(3) as usize).collect();
        let mut pod = Pod { works, at };
        let before = pod.measure();
        let mut rounds = 0;
        loop {
            let pool = pod.pool(known_models(), &profiles(&pod.works));
            let advice = advise(&pool).unwrap();
            if advice.moves.is_empty() {
                break;
            }
            pod.apply(&pool, &advice);
            rounds += 1;
            assert!(rounds <= 6, "seed {seed}: still moving");
        }
        most_rounds = rounds.max(most_rounds);
        let after = pod.measure();
        iops.push((after.iops() / before.iops() - 1.0) * 100.0);
        latency.push((1.0 - after.latency() / before.latency()) * 100.0);
    }
    println!(
        "{} pods, at most {most_rounds} rounds; percentiles: IOPS gained, latency saved, %",
        iops.len()
    );
    for percent in [0, 1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100] {
        println!(
            "  {percent:>3}  {:>6.1}  {:>6.1}",
            percentile(&iops, percent),
            percentile(&latency, percent)
        );
    }
    let not_worse = iops.iter().filter(|&&gain| gain >= -2.0).count();
    println!("  {} lost more than 2 % of IOPS", iops.len() - not_worse);
    assert!(not_worse * 10 >= iops.len() * 9, "{not_worse} of {}", iops.len());
    assert!(
        percentile(&iops, 0) > -15.0
            && percentile(&iops, 50) > 8.0
            && percentile(&latency, 50) > 8.0
    );
}

/// BA-13, figure 11: disks placed one by one, at random, and where the fewest are, which is where
/// most space is (`BASIL_RUNS=100`).
#[test]
fn placement_beats_chance() {
    let (mut iops, mut latency, mut over_count) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 0..runs(30) {
        let mut dice = Dice::new(seed + 5_000);
        let works: Vec<Work> = (0..8).map(|_| any_work(&mut dice)).collect();
        let by_chance: Vec<usize> = works.iter().map(|_| dice.roll(3) as usize).collect();
        let mut placed = Pod { works: Vec::new(), at: Vec::new() };
        for &work in &works {
            placed.at.push(best_place(&placed, work));
            placed.works.push(work);
        }
        let in_turn = (0..works.len()).map(|disk| disk % 3).collect();
        let counted = Pod { works: works.clone(), at: in_turn }.measure();
        let (ours, chance) = (placed.measure(), Pod { works, at: by_chance }.measure());
        over_count.push((ours.iops() / counted.iops() - 1.0) * 100.0);
        iops.push((ours.iops() / chance.iops() - 1.0) * 100.0);
        latency.push((1.0 - ours.latency() / chance.latency()) * 100.0);
    }
    let better = iops.iter().filter(|&&gain| gain > 0.0).count();
    let mean = iops.iter().sum::<f64>() / iops.len() as f64;
    println!(
        "{} pods: {better} better than by chance; IOPS gained: worst {:.0} %, median {:.0} %, mean {mean:.0} %, best {:.0} %; latency saved: \
         median {:.0} %",
        iops.len(),
        percentile(&iops, 0),
        percentile(&iops, 50),
        percentile(&iops, 100),
        percentile(&latency, 50)
    );
    println!(
        "  against the fewest disks: {} better, median {:.0} %",
        over_count.iter().filter(|&&gain| gain > 0.0).count(),
        percentile(&over_count, 50)
    );
    assert!(percentile(&over_count, 50) > 0.0);
    // Chance is often as good while no array is busy, and then a little better; where it is bad, it
    // is bad by far.
    assert!(better * 2 >= iops.len() && mean > 8.0 && percentile(&iops, 0) > -20.0);
}

pub fn best_place(pod: &Pod, work: Work) -> usize {
    let pool = pod.pool(known_models(), &profiles(&pod.works));
    let new = NewDisk {
        name: "new".into(),
        vm: None,
        size: Bytes::from_gib(10),
        expected: None,
        reservation: None,
        workload: Some(work.profile()),
        class: None,
        affinity: Affinity::None,
    };
    let chosen = place(&pool, &new).unwrap().datastore;
    pool.datastores.iter().position(|store| store.name == chosen).unwrap()
}

/// BA-14: the eighth disk, tried everywhere (`BASIL_RUNS=194`).
#[test]
fn the_place_is_the_best_one_or_nearly() {
    let (mut best, mut among_two, count) = (0, 0, runs(30));
    for seed in 0..count {
        let mut dice = Dice::new(seed + 9_000);
        let works: Vec<Work> = (0..8).map(|_| any_work(&mut dice)).collect();
        let at: Vec<usize> = (0..7).map(|_| dice.roll(3) as usize).collect();
        let seven = Pod { works: works[..7].to_vec(), at: at.clone() };
        let chosen = best_place(&seven, works[7]);
        let mut tried: Vec<(f64, usize)> = (0..3)
            .map(|place| {
                let at = at.iter().copied().chain([place]).collect();
                (Pod { works: works.clone(), at }.measure().latency(), place)
            })
            .collect();
        tried.sort_by(|a, b| a.0.total_cmp(&b.0));
        match tried.iter().position(|&(_, place)| place == chosen) {
            Some(0) => (best, among_two) = (best + 1, among_two + 1),
            Some(1) => among_two += 1,
            _ => {}
        }
    }
    println!("of {count}: the best place {best}, one of the best two {among_two}");
    assert!(best * 10 >= count * 6 && among_two * 5 >= count * 4, "{best} {among_two} of {count}");
}
