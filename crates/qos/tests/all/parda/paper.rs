//! The published experiments (section 5), by the law as published and by the product's.

use super::cluster::*;
use headgate_qos::window::{Config, Gain, Slots};
use headgate_units::Nanos;

/// Both laws, with this threshold.
fn laws(threshold_ms: u64) -> [Config; 2] {
    let paper = published(threshold_ms);
    let product =
        Config { gain: Config::default().gain, feedback: Config::default().feedback, ..paper };
    [paper, product]
}

/// The published law with a slot per so many shares; the product's as it is.
fn slot_per(shares: u32, config: Config) -> Config {
    match config.gain {
        Gain::SharesPerSlot(_) => {
            Config { gain: Gain::SharesPerSlot(shares.try_into().unwrap()), ..config }
        }
        Gain::Excess(_) => config,
    }
}

fn even(config: Config, hosts: usize, curve: Curve, outstanding: f64) -> Cluster {
    let mut cluster = Cluster::new(curve);
    for _ in 0..hosts {
        cluster.host(config, vec![vm(1, outstanding)]);
    }
    cluster
}

/// Figure 7: seven hosts, 470 IOPS; static windows of 32, then 16 on three of them.
#[test]
fn pa3_static_windows_divide_throughput_and_latency_is_their_sum() {
    let mut cluster = even(uncontrolled(32), 7, spindles(470.0), 32.0);
    let (_, _, latency) = cluster.mean(20);
    near(latency, 476.0, 0.05);
    let mut cluster = Cluster::new(spindles(470.0));
    for host in 0..7 {
        cluster.host(uncontrolled(if host < 4 { 32 } else { 16 }), vec![vm(1, 32.0)]);
    }
    let (_, iops, latency) = cluster.mean(20);
    near(latency, 375.0, 0.05);
    in_ratio(&iops, &[2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0], 0.08);
    // What a VM sees: its 32 over its rate.
    near(32.0 / iops[6] * 1e3, 780.0, 0.05);
    near(32.0 / iops[0] * 1e3, 360.0, 0.05);
}

/// Table 3: equal shares, hosts that measure differently.
#[test]
fn pa4_equal_shares_are_equal_windows_although_hosts_measure_differently() {
    let mut before = even(uncontrolled(32), 4, spindles(3_360.0), 32.0);
    let (_, iops, latency) = before.mean(20);
    near(latency, 38.0, 0.05);
    let uncontrolled: f64 = iops.iter().sum();
    for config in laws(30) {
        let mut cluster = even(config, 4, spindles(3_360.0), 32.0);
        for (host, offset) in cluster.hosts.iter_mut().zip([1.15, 0.85, 0.95, 1.05]) {
            host.offset = offset;
        }
        cluster.noise = 0.02;
        cluster.periods(100);
        let (windows, iops, latency) = cluster.mean(200);
        in_ratio(&windows, &[1.0; 4], 0.05);
        assert!((29.5..32.0).contains(&latency), "{latency}");
        near(iops.iter().sum(), uncontrolled, 0.02);
    }
}

/// Figure 3: the same by local latency.
#[test]
fn pa13_by_their_own_latencies_alone_hosts_drift_apart() {
    for config in laws(30) {
        let mut cluster = even(config, 4, spindles(3_360.0), 64.0);
        for (host, offset) in cluster.hosts.iter_mut().zip([1.15, 0.85, 0.95, 1.05]) {
            host.offset = offset;
        }
        cluster.board = Board::LocalOnly;
        cluster.periods(300);
        let windows = cluster.windows();
        let (low, high) = (windows[0], windows[1]);
        assert!(high / low > 2.0, "{windows:?}");
    }
}

/// Figure 8: shares 1:1:2:2 at 25 ms.
#[test]
fn pa5_windows_and_throughput_are_as_shares_are() {
    for config in laws(25) {
        let mut cluster = Cluster::new(spindles(3_400.0));
        for shares in [1, 1, 2, 2] {
            cluster.host(config, vec![vm(shares, 64.0)]);
        }
        cluster.noise = 0.02;
        cluster.periods(100);
        let (windows, iops, latency) = cluster.mean(100);
        in_ratio(&windows, &[1.0, 1.0, 2.0, 2.0], 0.1);
        in_ratio(&iops, &[1.0, 1.0, 2.0, 2.0], 0.1);
        assert!((24.5..28.0).contains(&latency), "{latency}");
        near(iops.iter().sum(), 3_400.0, 0.02);
    }
}

/// Figure 9 and table 4: six hosts at 30 ms, three of which leave.
#[test]
fn pa6_windows_grow_as_load_leaves_and_latency_stays() {
    for config in laws(30) {
        // No more outstanding than the window at the end.
        let mut cluster = even(config, 6, spindles(3_150.0), 32.0);
        let beta = if config == published(30) { 1.0 } else { 0.0 };
        // Started at 32 each, they first have to agree.
        cluster.periods(72);
        for left in [6, 5, 4] {
            let hosts = f64::from(left);
            // 20 s after each stop, those that stay have settled.
            let (windows, iops, latency) = cluster.mean(27);
            let windows = &windows[..left as usize];
            near(windows[0], (3_150.0 * 0.030 + beta * hosts) / hosts, 0.05);
            assert!((29.5..33.0).contains(&latency), "{latency}");
            near(iops.iter().sum(), 3_150.0, 0.02);
            cluster.hosts[left as usize - 1].vms[0].outstanding = 0.0;
            cluster.periods(10);
        }
        // Three hosts are left with 32 outstanding each.
        cluster.periods(60);
        let (windows, _, latency) = cluster.mean(1);
        if beta > 0.0 {
            // Less than X·𝓛 + Σβ: the windows drift up.
            near(latency, 30.5, 0.01);
            assert!(windows[0] > 32.0, "{windows:?}");
        } else {
            // More than X·𝓛: the windows hold.
            near(latency, 30.0, 0.01);
            near(windows[0], 31.5, 0.01);
        }
    }
}

/// Section 5.3: shares 2:1, thresholds of 40 ms, the high ones pinned at 32.
#[test]
fn pa7_a_clamped_class_does_not_push_the_latency_up() {
    for config in laws(40) {
        let config = Config { max: Slots::whole(32), ..config };
        let mut cluster = Cluster::new(spindles(3_700.0));
        for shares in [2, 1, 2, 1, 2, 1] {
            cluster.host(config, vec![vm(shares, 64.0)]);
        }
        cluster.periods(150);
        let (windows, _, latency) = cluster.mean(50);
        near(windows[0], 32.0, 0.001);
        assert!((16.0..22.0).contains(&windows[1]), "{windows:?}");
        near(latency, 40.0, 0.1);
    }
}

/// Figure 11: five hosts 2:2:1:1:1 at 30 ms; a sixth, uncontrolled one begins.
#[test]
fn pa8_an_uncontrolled_host_takes_capacity_and_shares_stay() {
    for config in laws(30) {
        let mut cluster = Cluster::new(spindles(3_150.0));
        let shares = [2, 2, 1, 1, 1];
        for shares in shares {
            cluster.host(slot_per(2, config), vec![vm(shares, 64.0)]);
        }
        let ratio = shares.map(|s| s as f64);
        cluster.periods(115);
        in_ratio(&cluster.windows(), &ratio, 0.1);
        cluster.foreign = 32.0;
        // 30 s.
        cluster.periods(15);
        let (windows, iops, latency) = cluster.mean(50);
        near(latency, 30.0, 0.1);
        in_ratio(&windows, &ratio, 0.1);
        let managed: f64 = iops.iter().sum();
        near(1.0 - managed / 3_150.0, 32.0 / (32.0 + windows.iter().sum::<f64>()), 0.05);
    }
}

/// Figures 12 and 13: β = 6:4:4:2; a VM of 10 shares on host 1 stops at 140 s and starts again at
/// 310 s.
#[test]
fn pa11_an_idle_vm_leaves_its_slots_to_all_hosts() {
    for config in laws(25) {
        let mut cluster = Cluster::new(spindles(4_313.0));
        // Table 6.
        let config = slot_per(5, config);
        for vms in [vec![20, 10], vec![10, 10], vec![20], vec![10]] {
            cluster.host(config, vms.into_iter().map(|shares| vm(shares, 64.0)).collect());
        }
        cluster.periods(70);
        in_ratio(&cluster.windows(), &[6.0, 4.0, 4.0, 2.0], 0.1);
        let before = cluster.hosts[0].iops;
        let beta = cluster.hosts[0].last.unwrap().beta.as_f64();
        cluster.hosts[0].vms[1].outstanding = 0.0;
        cluster.periods(2);
        // The total of shares shrinks too where β is relative to it.
        let left = cluster.hosts[0].last.unwrap().beta.as_f64() / beta;
        assert!((0.63..0.82).contains(&left), "{left}");
        cluster.periods(78);
        in_ratio(&cluster.windows(), &[4.0, 4.0, 4.0, 2.0], 0.1);
        // The neighbour has what it had and its part of what was left, no more.
        near(cluster.hosts[0].iops, cluster.hosts[1].iops, 0.1);
        assert!(cluster.hosts[0].iops < before);
        cluster.periods(5);
        cluster.hosts[0].vms[1].outstanding = 64.0;
        cluster.periods(75);
        in_ratio(&cluster.windows(), &[6.0, 4.0, 4.0, 2.0], 0.1);
    }
}

/// Table 7: shares 1:4 at 15 ms, but the second VM cannot fill its window: its β falls, and the
/// first takes the slack.
#[test]
fn pa12_who_cannot_fill_its_window_does_not_keep_it() {
    for config in laws(15) {
        let mut cluster = Cluster::new(spindles(1_200.0));
        cluster.host(config, vec![vm(1, 64.0)]);
        cluster.host(config, vec![vm(4, 12.0)]);
        cluster.periods(200);
        let (_, iops, _) = cluster.mean(100);
        assert!((1.4..4.0).contains(&(iops[1] / iops[0])), "{iops:?}");
        near(iops.iter().sum(), 1_200.0, 0.02);
        let active = cluster.hosts[1].last.unwrap().report.shares.as_millionths();
        assert!(active < 4_000_000, "{active}");
    }
}

/// A threshold that no latency can meet: windows of one, and throughput is lost.
#[test]
fn a_threshold_below_the_unloaded_latency_collapses_the_published_windows() {
    let mut cluster = even(published(4), 4, spindles(3_400.0), 32.0);
    cluster.periods(200);
    let windows = cluster.windows();
    // β against (1 - 𝓛/5 ms)·w.
    assert!(windows.iter().all(|w| *w < 5.5), "{windows:?}");
    near(cluster.throughput(), windows.iter().sum::<f64>() / 0.005, 0.1);
    assert!(cluster.throughput() < 0.9 * 3_400.0 * 1.2);
    let mut cluster = even(published(1), 4, spindles(3_400.0), 32.0);
    cluster.periods(200);
    assert!(cluster.throughput() < 0.3 * 3_400.0, "{}", cluster.throughput());
}

/// A threshold that is never met: all windows at their maximum, and shares mean nothing.
#[test]
fn all_windows_at_their_maximum_know_no_shares() {
    for config in laws(500) {
        let mut cluster = Cluster::new(spindles(3_400.0));
        for shares in [1, 4] {
            cluster.host(config, vec![vm(shares, 100.0)]);
        }
        cluster.periods(100);
        assert_eq!(cluster.windows(), [64.0, 64.0]);
        in_ratio(&[cluster.hosts[0].iops, cluster.hosts[1].iops], &[1.0, 1.0], 0.01);
    }
}

/// Section 5.4: a higher threshold never means less throughput, nor less latency.
#[test]
fn pa14_latency_and_throughput_rise_with_the_threshold() {
    let curve = Curve::Exponential { rate: 3_400.0, way: Nanos::from_millis(5) };
    for law in 0..2 {
        let (mut latencies, mut totals) = (Vec::new(), Vec::new());
        for threshold in [15, 20, 25, 30, 40, 50, 60] {
            let mut cluster = even(laws(threshold)[law], 4, curve, 64.0);
            cluster.periods(150);
            let (_, iops, latency) = cluster.mean(50);
            latencies.push(latency);
            totals.push(iops.iter().sum::<f64>());
        }
        assert!(latencies.is_sorted_by(|a, b| a < b), "{latencies:?}");
        assert!(totals.windows(2).all(|pair| pair[1] >= pair[0] * 0.999), "{totals:?}");
        near(totals[6], totals[3], 0.02);
    }
}
