//! What the product does beyond the paper: reservations, foreign load, a lost board, fast storage.

use super::cluster::*;
use headgate_qos::window::{
    Bound, Cause, Config, Fraction, Gain, Held, LoadEvent, LowerBound, Slots, threshold,
};
use headgate_units::Nanos;

/// The default, at this threshold.
fn at(threshold_ms: u64) -> Config {
    Config { threshold: Nanos::from_millis(threshold_ms), ..Config::default() }
}

fn events(cluster: &mut Cluster, periods: u32) -> Vec<(usize, LoadEvent)> {
    let mut events = Vec::new();
    for _ in 0..periods {
        cluster.period();
        let new = cluster.hosts.iter().enumerate();
        events.extend(new.filter_map(|(i, host)| Some((i, host.last?.event?))));
    }
    events
}

#[test]
fn scaling_all_shares_changes_no_window() {
    let windows = |factor: u64| {
        let mut cluster = Cluster::new(spindles(3_400.0));
        for shares in [1, 2, 3] {
            cluster.host(at(25), vec![vm(shares * factor, 100.0)]);
        }
        cluster.periods(40);
        cluster.windows()
    };
    assert_eq!(windows(1), windows(10_000));
}

/// 200,000 IOPS after 80 us each: a threshold of 250 us, ten periods per second.
#[test]
fn flash_in_microseconds() {
    let curve = Curve::FixedRate { rate: 200_000.0, service: Nanos::from_micros(80) };
    let config = Config {
        threshold: Nanos::from_micros(250),
        period: Nanos::from_millis(100),
        ..Config::default()
    };
    let mut cluster = Cluster::new(curve);
    for shares in [1_000, 1_000, 2_000, 2_000] {
        cluster.host(config, vec![vm(shares, 64.0)]);
    }
    cluster.noise = 0.02;
    cluster.periods(100);
    let (windows, iops, latency) = cluster.mean(100);
    near(latency, 0.250, 0.05);
    in_ratio(&windows, &[1.0, 1.0, 2.0, 2.0], 0.1);
    near(iops.iter().sum(), 200_000.0, 0.02);
}

/// A thousand default VMs: a fixed slot per thousand shares would put the latency at ten times the
/// threshold.
#[test]
fn a_thousand_vms_do_not_move_the_latency() {
    let mut latencies = Vec::new();
    for gain in
        [Gain::Excess(Fraction::percent(20)), Gain::SharesPerSlot(1_000.try_into().unwrap())]
    {
        let mut cluster = Cluster::new(spindles(3_400.0));
        for _ in 0..4 {
            let vms = (0..250).map(|_| vm(1_000, 1.0)).collect();
            cluster.host(Config { gain, max: Slots::whole(1_024), ..at(30) }, vms);
        }
        cluster.periods(100);
        latencies.push(cluster.mean(50).2);
    }
    near(latencies[0], 30.0, 0.03);
    assert!(latencies[1] > 285.0, "{latencies:?}");
}

#[test]
fn reservations_keep_the_slots_they_need() {
    let mut cluster = Cluster::new(spindles(3_400.0));
    // By shares it would get 1/11 of 3,400 IOPS.
    let reserved = Vm { reservation: 1_500, ..vm(100, 64.0) };
    cluster.host(at(30), vec![reserved]);
    cluster.host(at(30), vec![vm(1_000, 64.0)]);
    cluster.periods(100);
    let (windows, iops, latency) = cluster.mean(50);
    near(windows[0], 45.0, 0.001);
    assert_eq!(cluster.hosts[0].last.unwrap().bound, Bound::Reservations);
    near(iops[0], 1_500.0, 0.03);
    near(latency, 30.0, 0.03);
    near(iops[1], 1_900.0, 0.03);
}

/// Somebody outside keeps the latency above the threshold: there, Σr·𝓛 slots are too few.
#[test]
fn reservations_keep_what_they_need_at_the_latency_that_there_is() {
    let mut cluster = Cluster::new(spindles(3_400.0));
    let reserved = Vm { reservation: 1_000, ..vm(100, 64.0) };
    cluster.host(at(30), vec![reserved]);
    cluster.host(at(30), vec![vm(1_000, 64.0)]);
    cluster.foreign = 100.0;
    cluster.periods(100);
    let (windows, iops, latency) = cluster.mean(50);
    assert!(latency > 40.0, "{latency}");
    near(windows[0], latency, 0.01);
    near(iops[0], 1_000.0, 0.02);
}

/// More is promised than there is: each asks for more at the latency that the others make, up to
/// what is configured.
#[test]
fn reservations_beyond_the_storage_do_not_drive_each_other_up() {
    let mut cluster = Cluster::new(spindles(1_000.0));
    for _ in 0..4 {
        cluster.host(at(30), vec![Vm { reservation: 1_000, ..vm(100, 1_000.0) }]);
    }
    cluster.periods(100);
    assert_eq!(cluster.windows(), [64.0; 4]);
}

#[test]
fn what_was_promised_goes_before_what_was_configured() {
    let mut cluster = Cluster::new(spindles(10_000.0));
    let config = Config { max: Slots::whole(8), ..at(30) };
    cluster.host(config, vec![Vm { reservation: 2_000, ..vm(100, 100.0) }]);
    cluster.periods(5);
    assert_eq!(cluster.windows(), [60.0]);
}

/// Nobody on the board answers for most of the load. Windows stop at their lower bounds, by shares,
/// every host says so once, and all is as before when it is over.
#[test]
fn foreign_load_is_reported_and_windows_do_not_collapse() {
    let mut cluster = Cluster::new(spindles(3_150.0));
    let shares = [2_000, 2_000, 1_000, 1_000, 1_000];
    for shares in shares {
        cluster.host(at(30), vec![vm(shares, 64.0)]);
    }
    assert_eq!(events(&mut cluster, 60), []);
    let before = cluster.windows();
    cluster.foreign = 400.0;
    let began = events(&mut cluster, 60);
    assert_eq!(began.len(), 5, "{began:?}");
    for (_, event) in began {
        let LoadEvent::Began(what) = event else { panic!("{event:?}") };
        assert_eq!(what.cause, Cause::ForeignLoad);
        assert!(what.latency > what.threshold && what.windows < Slots::whole(21), "{what}");
    }
    let windows = cluster.windows();
    near(windows.iter().sum(), 20.0, 0.01);
    in_ratio(&windows, &shares.map(|s| s as f64), 0.01);
    cluster.foreign = 0.0;
    let ended = events(&mut cluster, 40);
    assert_eq!(ended.len(), 5);
    assert!(ended.iter().all(|(_, event)| *event == LoadEvent::Ended), "{ended:?}");
    for (after, before) in cluster.windows().iter().zip(before) {
        near(*after, before, 0.05);
    }
}

/// The same load where the bound is the same for all: no shares any more.
#[test]
fn with_equal_lower_bounds_foreign_load_takes_the_shares_away() {
    let mut cluster = Cluster::new(spindles(3_150.0));
    for shares in [2_000, 1_000] {
        cluster.host(Config { lower_bound: LowerBound::Alike, ..at(30) }, vec![vm(shares, 64.0)]);
    }
    cluster.foreign = 400.0;
    cluster.periods(60);
    assert_eq!(cluster.windows(), [4.0, 4.0]);
}

#[test]
fn a_threshold_that_is_too_low_is_named_as_such() {
    let mut cluster = Cluster::new(spindles(3_150.0));
    cluster.host(at(3), vec![vm(1_000, 64.0)]);
    let events = events(&mut cluster, 60);
    let [(0, LoadEvent::Began(what))] = events[..] else { panic!("{events:?}") };
    assert_eq!(what.cause, Cause::NeverBelow { lowest: Nanos::from_millis(5) });
    assert_eq!(cluster.windows(), [4.0]);
}

/// Hosts that lose the board keep their windows, and go on where they were when it is back.
#[test]
fn a_lost_board_moves_no_window() {
    let mut cluster = Cluster::new(spindles(3_400.0));
    for shares in [1, 1, 2, 2] {
        cluster.host(at(25), vec![vm(shares, 64.0)]);
    }
    cluster.noise = 0.02;
    cluster.periods(100);
    let before = cluster.windows();
    cluster.board = Board::Lost;
    cluster.periods(50);
    assert_eq!(cluster.windows(), before);
    assert!(
        cluster.hosts.iter().all(|host| host.last.unwrap().held == Some(Held::BoardUnreachable))
    );
    cluster.board = Board::Delayed(1);
    cluster.periods(3);
    let after = cluster.windows();
    assert!(cluster.hosts.iter().all(|host| host.last.unwrap().held.is_none()));
    in_ratio(&after, &[1.0, 1.0, 2.0, 2.0], 0.1);
    near(after.iter().sum(), before.iter().sum(), 0.1);
}

#[test]
fn without_ios_nothing_moves() {
    let mut cluster = Cluster::new(spindles(3_400.0));
    cluster.host(at(25), vec![vm(1_000, 64.0)]);
    cluster.periods(30);
    let before = cluster.windows();
    cluster.hosts[0].vms[0].outstanding = 0.0;
    cluster.periods(100);
    assert_eq!(cluster.windows(), before);
    assert_eq!(cluster.hosts[0].last.unwrap().held, Some(Held::NoIos));
}

/// While it is idle, the others use what it had; when it is back, it has its part of it within half
/// a minute.
#[test]
fn an_idle_host_makes_room_and_comes_back() {
    let mut cluster = Cluster::new(spindles(3_400.0));
    for _ in 0..4 {
        cluster.host(at(30), vec![vm(1_000, 64.0)]);
    }
    cluster.periods(60);
    in_ratio(&cluster.windows(), &[1.0; 4], 0.02);
    cluster.hosts[3].vms[0].outstanding = 0.0;
    cluster.periods(60);
    let (windows, _, latency) = cluster.mean(10);
    near(windows[0], 3_400.0 * 0.030 / 3.0, 0.03);
    near(latency, 30.0, 0.03);
    assert_eq!(cluster.hosts[3].window(), 4.0);
    cluster.hosts[3].vms[0].outstanding = 64.0;
    cluster.periods(8);
    assert!(cluster.hosts[3].iops > 0.5 * cluster.hosts[0].iops, "{:?}", cluster.windows());
    cluster.periods(30);
    in_ratio(&cluster.windows(), &[1.0; 4], 0.05);
}

/// A host that is told another threshold follows the others' if that is lower, and all are told
/// that they differ.
#[test]
fn hosts_that_differ_act_by_the_lowest_threshold() {
    let mut cluster = Cluster::new(spindles(3_400.0));
    for threshold in [25, 25, 60] {
        cluster.host(at(threshold), vec![vm(1_000, 64.0)]);
    }
    cluster.periods(80);
    let (windows, _, latency) = cluster.mean(20);
    near(latency, 25.0, 0.03);
    in_ratio(&windows, &[1.0; 3], 0.05);
    let differing: Vec<u32> =
        cluster.hosts.iter().map(|host| host.last.unwrap().differing).collect();
    assert_eq!(differing, [1, 1, 2]);
}

/// The threshold that is found is one under which the windows divide the storage and lose nothing
/// of it.
#[test]
fn a_found_threshold_divides_and_costs_nothing() {
    for curve in [
        Curve::Exponential { rate: 3_400.0, way: Nanos::from_millis(5) },
        spindles(1_600.0),
        Curve::FixedRate { rate: 200_000.0, service: Nanos::from_micros(80) },
    ] {
        let mut search = threshold::Search::new(threshold::SHARE_OF_PEAK, 1_024).unwrap();
        let found = loop {
            match search.next() {
                threshold::Step::Found(found) => break found,
                threshold::Step::Measure(outstanding) => {
                    let latency = curve.latency(f64::from(outstanding));
                    let iops = (f64::from(outstanding) / latency) as u64;
                    let latency = Nanos((latency * 1e9) as u64);
                    search.record(threshold::Sample { outstanding, iops, latency }).unwrap();
                }
            }
        };
        let mut cluster = Cluster::new(curve);
        let config = Config { threshold: found.threshold, min: Slots::ONE, ..Config::default() };
        for shares in [1, 3] {
            cluster.host(config, vec![vm(shares, 64.0)]);
        }
        cluster.noise = 0.02;
        cluster.periods(100);
        let (windows, iops, _) = cluster.mean(100);
        in_ratio(&windows, &[1.0, 3.0], 0.1);
        assert!(iops.iter().sum::<f64>() > 0.88 * found.peak as f64, "{found:?} {iops:?}");
    }
}
