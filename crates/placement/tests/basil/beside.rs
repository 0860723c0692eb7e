//! BASIL beside rules of thumb and beside the best there is: BA-10 to BA-13 with every placement of
//! eight disks on three arrays tried.
//!
//! `BASIL_RUNS=30 cargo test --release -p headgate-placement --test basil beside -- --nocapture`

use crate::balancing::{Pod, SPINDLES, any_work, array, best_place, eight, runs};
use crate::populations::{Table, advised, measure, placement};
use crate::rig::*;
use headgate_placement::*;

/// From where most disks are to where fewest are, until they differ by one at most.
fn by_count(mut at: Vec<usize>) -> Vec<usize> {
    loop {
        let on = |array: usize| at.iter().filter(|&&at| at == array).count();
        let order = |&array: &usize| (on(array), array);
        let most = (0..SPINDLES.len()).max_by_key(order).unwrap();
        let fewest = (0..SPINDLES.len()).min_by_key(order).unwrap();
        if on(most) <= on(fewest) + 1 {
            return at;
        }
        let first = at.iter().position(|&at| at == most).unwrap();
        at[first] = fewest;
    }
}

fn best(table: &Table) -> (Vec<usize>, (f64, f64)) {
    let all = (0..SPINDLES.len().pow(8)).map(placement);
    let rated = all.map(|at| (table.of(&at), at));
    let (gains, at) = rated.max_by(|a, b| a.0.0.total_cmp(&b.0.0)).unwrap();
    (at, gains)
}

fn show(who: &str, at: &[usize], works: &[Work], now: (f64, f64), before: (f64, f64)) {
    let on = |array: usize| -> (usize, u32) {
        let here = at.iter().zip(works).filter(|(at, _)| **at == array);
        here.fold((0, 0), |sum, (_, work)| (sum.0 + 1, sum.1 + work.outstanding))
    };
    println!(
        "  {who:<12} {:>6.0} IOPS {:+5.0} %, {:>5.1} ms {:+4.0} %; disks, outstanding: {:?} {:?} {:?}",
        now.0,
        (now.0 / before.0 - 1.0) * 100.0,
        now.1 * 1e3,
        (now.1 / before.1 - 1.0) * 100.0,
        on(0),
        on(1),
        on(2)
    );
}

#[test]
fn the_sample_set_ups_beside_all_placements() {
    let works = eight();
    let profile: Vec<_> = works.iter().map(|work| Some(work.profile())).collect();
    let table = measure(&works, array);
    for (what, at) in [("BA-10", vec![0, 1, 2, 0, 0, 1, 2, 1]), ("BA-11", vec![1; 8])] {
        println!("{what}:");
        let before = table.of(&at);
        show("before", &at, &works, before, before);
        let counted = by_count(at.clone());
        show("count", &counted, &works, table.of(&counted), before);
        let (best, most) = best(&table);
        for (who, by) in [("equation 1", Interference::None), ("streams", Interference::Streams)] {
            let ours = advised(&works, &at, &profile, by);
            show(who, &ours, &works, table.of(&ours), before);
            assert!(table.of(&ours).0 > 0.85 * most.0, "{who} is far from the best");
        }
        show("best", &best, &works, most, before);
    }
}

#[test]
fn random_pods_beside_all_placements() {
    let mut found: Vec<(&str, Vec<(f64, f64)>)> = vec![
        ("random", vec![]),
        ("count", vec![]),
        ("placed", vec![]),
        ("equation 1", vec![]),
        ("streams", vec![]),
    ];
    for seed in 0..runs(3) {
        let mut dice = Dice::new(seed + 70_000);
        let works: Vec<Work> = (0..8).map(|_| any_work(&mut dice)).collect();
        let profile: Vec<_> = works.iter().map(|work| Some(work.profile())).collect();
        let table = measure(&works, array);
        let most = best(&table).1;
        let at: Vec<usize> = works.iter().map(|_| dice.roll(3) as usize).collect();
        let mut placed = Pod { works: Vec::new(), at: Vec::new() };
        for &work in &works {
            placed.at.push(best_place(&placed, work));
            placed.works.push(work);
        }
        let of: [Vec<usize>; 5] = [
            at.clone(),
            by_count(at.clone()),
            placed.at,
            advised(&works, &at, &profile, Interference::None),
            advised(&works, &at, &profile, Interference::Streams),
        ];
        for ((_, parts), at) in found.iter_mut().zip(of) {
            let now = table.of(&at);
            parts.push((now.0 / most.0, now.1 / most.1));
        }
    }
    println!("parts of the best of 6,561 placements: IOPS at 10, 50 %, latency at 50, 90 %");
    for (who, parts) in &found {
        let iops: Vec<f64> = parts.iter().map(|part| part.0).collect();
        let latency: Vec<f64> = parts.iter().map(|part| part.1).collect();
        println!(
            "  {who:<12} {:.3} {:.3}; {:.3} {:.3}",
            percentile(&iops, 10),
            percentile(&iops, 50),
            percentile(&latency, 50),
            percentile(&latency, 90)
        );
    }
    let mean = |who: usize| {
        found[who].1.iter().map(|part| part.0).sum::<f64>() / found[who].1.len() as f64
    };
    let [random, count, placed, published, streams] = [0, 1, 2, 3, 4].map(mean);
    assert!(published > random && published > count && streams > random && streams > count);
    assert!(placed > random, "{placed} {random}");
}
