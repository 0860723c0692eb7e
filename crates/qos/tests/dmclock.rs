//! dmClock on several servers: the paper's evaluation (OSDI 2010, section 5.4), and what the totals of a disk
//! over all servers are promised.
mod common;

use common::cluster::*;
use common::*;

const SEEDS: [u64; 3] = [1, 2, 3];

#[track_caller]
fn assert_ratio(a: u64, b: u64, ideal: (u64, u64), percent: u64) {
    let (got, wanted) = (a * ideal.1 * 100, b * ideal.0 * 100);
    assert!(got.abs_diff(wanted) <= b * ideal.0 * percent, "{a}:{b} is not {ideal:?} within {percent} %");
}

/// Figure 9a: three clients, three servers, uniform routing, shares alone.
#[test]
fn figure_9a_shares_are_of_totals() {
    for seed in SEEDS {
        let mut cluster = Cluster::new(unit(), &[1_800; 3], seed);
        for shares in [1, 4, 6] {
            cluster.busy(policy(shares, 0, 0), Route::uniform(3), 64);
        }
        cluster.run(secs(5));
        let got = cluster.rates(20);
        println!("seed {seed}: {got:?}");
        assert_ratio(got[1], got[0], (4, 1), 5);
        assert_ratio(got[2], got[0], (6, 1), 5);
        let total: u64 = got.iter().sum();
        assert!(total >= 5_400 * 98 / 100, "seed {seed}: {got:?}");
    }
}

fn figure_9b(route: &Route, outstanding: usize, seed: u64) -> (Vec<u64>, [u64; 3]) {
    let mut cluster = Cluster::new(unit(), &[1_800; 3], seed);
    for (shares, reservation) in [(1, 800), (4, 1_000), (6, 100)] {
        cluster.busy(policy(shares, reservation, 0), route.clone(), outstanding);
    }
    cluster.run(secs(10));
    let phases = [0, 1, 2].map(|c| cluster.by_reservation(c));
    let nodes = [0, 1, 2].map(|s| cluster.served_at(s));
    let got = cluster.rates(20);
    let phases = [0, 1, 2].map(|c| (cluster.by_reservation(c) - phases[c]) / 20);
    let nodes = [0, 1, 2].map(|s| (cluster.served_at(s) - nodes[s]) / 20);
    println!(
        "{route:?}, {outstanding} outstanding, seed {seed}: {got:?}, by reservation {phases:?}, {nodes:?}"
    );
    let mean = nodes.iter().sum::<u64>() / 3;
    assert_rates(&nodes, &[mean; 3], 3);
    (got, phases)
}

/// Figure 9b: the same with reservations, of which one is above its share. Uniform by striping and by chance.
///
/// Service varies from nothing to twice the mean, so a server runs empty at times, and what it would leave idle
/// goes by weight: to the first client too, and some of what is reserved for all of them.
#[test]
fn figure_9b_reservations_are_of_totals() {
    for seed in SEEDS {
        for (route, outstanding) in
            [(Route::InTurn(vec![0, 1, 2]), 64), (Route::uniform(3), 64), (Route::uniform(3), 512)]
        {
            let (got, phases) = figure_9b(&route, outstanding, seed);
            assert_rates(&got[..1], &[800], 3);
            assert_ratio(got[1], got[2], (2, 3), 5);
            assert_rates(&phases[1..], &[1_000, 100], 8);
            assert!(phases[0] * 100 >= got[0] * 84, "{phases:?} of {got:?}");
        }
    }
}

fn figure_10(reservations: [u64; 2], tell: Tell, seed: u64) -> Vec<u64> {
    let mut cluster = Cluster::new(unit(), &[1_500; 2], seed).tell(tell);
    cluster.busy(policy(1, reservations[0], 0), Route::Random(vec![1, 0]), 64);
    cluster.run(secs(5));
    let alone = cluster.rates(10);
    assert_rates(&alone, &[1_500], 2);
    cluster.busy(policy(4, reservations[1], 0), Route::uniform(2), 64);
    cluster.run(secs(5));
    cluster.rates(20)
}

/// Figure 10: one client uses one server, the other both.
#[test]
fn figure_10_a_reservation_holds_against_a_client_of_more_servers() {
    for seed in SEEDS {
        let got = figure_10([800, 1_000], Tell::DmClock, seed);
        let by_weight = figure_10([0, 0], Tell::DmClock, seed);
        println!("seed {seed}: {got:?}, by weight alone {by_weight:?}");
        assert_rates(&got[..1], &[800], 5);
        assert_rates(&got[1..], &[1_400], 8);
        assert!(by_weight[0] * 100 < 800 * 65, "{by_weight:?}");
        assert_ratio(by_weight[1], by_weight[0], (4, 1), 5);
    }
}
