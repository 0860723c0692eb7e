//! Pools so small that every placement can be tried.

mod common;

use common::*;
use headgate_placement::*;
use headgate_units::{Bytes, Nanos};

fn small_pool(seed: u64) -> Pool {
    let mut dice = Dice(seed ^ 0x05AC1E);
    let mut pool = Pool { now: Nanos::from_secs(1_000 * HOUR), ..Pool::default() };
    let stores = 2 + seed % 3;
    for n in 0..stores {
        pool.datastores.push(datastore(&format!("ds{n}"), 200 + dice.roll(2_000)));
    }
    for n in 0..5 + dice.roll(4) {
        let at = format!("ds{}", dice.roll(stores));
        let mut disk = disk(&format!("disk{n}"), &at, 1 + dice.roll(32) as u32);
        disk.used = Bytes::from_gib(1 + dice.roll(60));
        pool.disks.push(disk);
    }
    pool.rules.calm = restless();
    pool
}

/// The least imbalance of all placements.
fn best(pool: &Pool) -> f64 {
    let stores = pool.datastores.len();
    let slopes: Vec<f64> =
        pool.datastores.iter().map(|store| store.model.unwrap().slope.as_millis_f64()).collect();
    let loads: Vec<f64> = pool.disks.iter().map(|disk| disk.load(&pool.rules).unwrap().as_f64()).collect();
    let imbalance = |mut code: usize| {
        let mut on = vec![0.0; stores];
        for load in &loads {
            on[code % stores] += load;
            code /= stores;
        }
        let normalised: Vec<f64> = on.iter().zip(&slopes).map(|(load, slope)| load * slope).collect();
        let mean = normalised.iter().sum::<f64>() / stores as f64;
        (normalised.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / stores as f64).sqrt() / mean
    };
    (0..stores.pow(loads.len() as u32)).map(imbalance).min_by(f64::total_cmp).unwrap()
}

/// Ours moves from what there is, disks as few as possible; the oracle begins anew. The gap between the two is bounded.
#[test]
fn small_pools_come_near_the_best_of_all_placements() {
    let mut found: Vec<(f64, f64, f64)> = (0..300)
        .map(|seed| {
            let mut pool = small_pool(seed);
            let before = imbalance(&pool);
            loop {
                let advice = advise(&pool).unwrap();
                if advice.moves.is_empty() {
                    break;
                }
                apply(&mut pool, &advice, Nanos::ZERO);
            }
            (before, imbalance(&pool), best(&pool))
        })
        .collect();
    let mean = |pick: fn(&(f64, f64, f64)) -> f64| found.iter().map(pick).sum::<f64>() / found.len() as f64;
    let (before, ours, best) = (mean(|f| f.0), mean(|f| f.1), mean(|f| f.2));
    found.sort_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)));
    let gap = |at: usize| found[at].1 - found[at].2;
    println!("imbalance: {before:.3} before, {ours:.3} ours, {best:.3} best");
    println!("gap to the best: median {:.3}, 90 % {:.3}, greatest {:.3}", gap(150), gap(270), gap(299));
    assert!(found.iter().all(|&(before, ours, best)| best <= ours + 1e-9 && ours <= before + 1e-9));
    assert!(gap(150) < 0.07 && gap(270) < 0.2 && gap(299) < 0.5);
    assert!(ours < before / 4.0);
}

/// The least of the greatest normalised loads that result, in naive arithmetic.
#[test]
fn a_new_disk_goes_where_the_busiest_datastore_is_least_busy() {
    for seed in 0..500 {
        let mut pool = small_pool(seed);
        let new = pool.disks.pop().unwrap();
        let chosen = place(&pool, &NewDisk { workload: new.workload, ..new_disk("new") }).unwrap().datastore;
        let greatest = |datastore: &Name| {
            let mut with = pool.clone();
            with.disks.push(Disk { datastore: datastore.clone(), ..new.clone() });
            let normalised = |store: &Datastore| {
                let on = with.disks.iter().filter(|disk| disk.datastore == store.name);
                let load = on.filter_map(|disk| disk.load(&with.rules)).sum::<Load>();
                load.as_f64() * store.model.unwrap().slope.as_millis_f64()
            };
            with.datastores.iter().map(normalised).max_by(f64::total_cmp).unwrap()
        };
        let least = pool.datastores.iter().map(|store| greatest(&store.name)).min_by(f64::total_cmp).unwrap();
        assert!(greatest(&chosen) <= least * (1.0 + 1e-9), "seed {seed}: {chosen}");
    }
}
