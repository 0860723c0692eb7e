//! Hosts whose slots do not do alike: work is divided by shares, and not slots.

use super::cluster::*;
use headgate_qos::window::{Config, Division, Slots};
use headgate_units::Nanos;

const SHARES: [u64; 4] = [1_000, 1_000, 2_000, 2_000];
const BY_SHARES: [f64; 4] = [1.0, 1.0, 2.0, 2.0];

fn at(threshold_ms: u64) -> Config {
    Config { threshold: Nanos::from_millis(threshold_ms), ..Config::default() }
}

/// Four hosts that want more than they get.
fn hosts(config: Config, slots_do: [SlotsDo; 4]) -> Cluster {
    let mut cluster = Cluster::new(spindles(3_400.0));
    for (shares, slots_do) in SHARES.into_iter().zip(slots_do) {
        let host = cluster.host(config, vec![vm(shares, 200.0)]);
        cluster.hosts[host].slots_do = slots_do;
    }
    cluster
}

fn times(times: f64) -> SlotsDo {
    SlotsDo { times, ..SlotsDo::ALIKE }
}

/// The greatest deviation from what is due by shares, of the IOPS over 30 periods.
fn off(cluster: &mut Cluster) -> f64 {
    let (_, iops, _) = cluster.mean(30);
    let sum: f64 = iops.iter().sum();
    let due = |i: usize| BY_SHARES[i] / 6.0 * sum;
    iops.iter().enumerate().map(|(i, x)| (x / due(i) - 1.0).abs()).fold(0.0, f64::max)
}

#[test]
fn work_is_by_shares_whatever_a_slot_does() {
    let unlike = [times(0.5), times(1.0), times(1.0), times(2.5)];
    let mut cluster = hosts(at(25), unlike);
    cluster.periods(60);
    assert!(off(&mut cluster) < 0.01);
    let (_, _, latency) = cluster.mean(10);
    near(latency, 25.0, 0.35);
    let by_slots = Config { division: Division::Slots, ..at(25) };
    let mut cluster = hosts(by_slots, unlike);
    cluster.periods(60);
    assert!(off(&mut cluster) > 0.5, "slots by shares are not work by shares");
}

/// What 200 periods of a cluster with these powers, reports so old and 3 % of noise come to.
#[test]
fn it_rests_however_work_depends_on_the_window() {
    for power in [0.5, 1.0, 2.0, 3.0] {
        for delay in 0..4 {
            let slots_do = |times| SlotsDo { times, power, ..SlotsDo::ALIKE };
            let mut cluster =
                hosts(at(25), [slots_do(0.8), slots_do(1.0), slots_do(1.3), slots_do(1.0)]);
            cluster.board = Board::Delayed(delay);
            cluster.periods(200);
            let before = cluster.windows();
            let mut most = 0.0f64;
            for _ in 0..40 {
                cluster.period();
                let now = cluster.windows();
                let moved = now.iter().zip(&before).map(|(now, before)| (now / before - 1.0).abs());
                most = most.max(moved.fold(0.0, f64::max));
            }
            assert!(most < 0.01, "power {power}, delay {delay}: moves by {most:.3}");
            assert!(off(&mut cluster) < 0.02, "power {power}, delay {delay}");
            cluster.noise = 0.03;
            cluster.periods(40);
            assert!(off(&mut cluster) < 0.10, "power {power}, delay {delay}, with noise");
        }
    }
}

/// Two hosts measure 15 % too much and too little, as in section 3.2 of the paper: what a host has
/// in flight and gets done it counts, so that little of it is left.
#[test]
fn who_measures_wrongly_gets_no_more() {
    let mut cluster = hosts(at(25), [SlotsDo::ALIKE; 4]);
    cluster.hosts[0].offset = 1.15;
    cluster.hosts[3].offset = 0.85;
    cluster.periods(60);
    let off = off(&mut cluster);
    assert!(off < 0.02, "{off:.3}");
}

/// A host behind a link of 100 IOPS gets nothing more done with more slots. It holds no more of
/// them than the leash allows, and the others have theirs by shares, of no less than three quarters
/// of what there is where slots are divided.
#[test]
fn who_gets_no_more_done_does_not_fill_the_queue() {
    let slow = SlotsDo { at_most: 100.0, ..SlotsDo::ALIKE };
    let run = |division| {
        let config = Config { division, max: Slots::whole(1_024), ..at(25) };
        let mut cluster = hosts(config, [slow, times(1.0), times(1.0), times(1.0)]);
        cluster.periods(100);
        let (windows, iops, _) = cluster.mean(30);
        (windows, iops)
    };
    let (windows, iops) = run(Division::Service);
    let leash = f64::from(Division::LEASH) * windows[1];
    assert!(windows[0] <= leash * 1.05, "{windows:?}");
    near(iops[0], 100.0, 0.01);
    near(iops[2] / iops[1], 2.0, 0.02);
    near(iops[3] / iops[1], 2.0, 0.02);
    let by_slots: f64 = run(Division::Slots).1.iter().sum();
    let by_work: f64 = iops.iter().sum();
    assert!(by_work > 0.75 * by_slots, "{by_work:.0} of {by_slots:.0}");
}
