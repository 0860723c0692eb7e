//! What applications get by their priorities, and what nobody loses by them.
mod common;

use common::*;
use headgate_qos::Policy;

/// Within one request of the ideal division of what they got in all.
fn divided(got: &[u64], by: &[u64]) {
    let (total, sum): (u64, u64) = (got.iter().sum(), by.iter().sum());
    for (i, (got, priority)) in got.iter().zip(by).enumerate() {
        let ideal = total * priority / sum;
        assert!(got.abs_diff(ideal) <= 2, "application {i}: {got} of {total}, not {ideal}");
    }
}

#[test]
fn priorities_divide_what_a_disk_gets() {
    let mut bench = Bench::mclock(1_000).window(8);
    let disk = bench.deep(policy(1_000, 0, 0), 0);
    bench.busy(policy(3_000, 0, 0));
    let priorities = [12, 10, 8, 6, 4, 2];
    for priority in priorities {
        bench.application(disk, priority, 32);
    }
    bench.run(secs(1));
    let got = bench.run(secs(100));
    divided(&got[2..], &priorities);
    assert_eq!(got[1], 75_000, "the other disk's share is what it was");
}

#[test]
fn priorities_divide_what_a_reservation_and_a_limit_give() {
    let mut bench = Bench::mclock(1_000).window(8);
    let disk = bench.deep(policy(1, 300, 300), 0);
    bench.busy(policy(1_000_000, 0, 0));
    for priority in [200, 100] {
        bench.application(disk, priority, 8);
    }
    bench.run(secs(1));
    let got = bench.run(secs(100));
    divided(&got[2..], &[200, 100]);
    assert!(got[1].abs_diff(70_000) < 100, "{got:?}");
}

#[test]
fn across_vms_applications_compete_by_priority_alone() {
    // TG-2: six applications of three VMs, whose shares say something else.
    let mut bench = Bench::mclock(1_000).window(8);
    let priorities = [12, 10, 8, 6, 4, 2];
    for (vm, pair) in priorities.chunks(2).enumerate() {
        let disk = bench.across(policy([1, 10, 1_000][vm], 0, 0), 254);
        for priority in pair {
            bench.application(disk, *priority, 8);
        }
    }
    bench.run(secs(1));
    let got = bench.run(secs(100));
    let got: Vec<u64> = [1, 2, 4, 5, 7, 8].iter().map(|i| got[*i]).collect();
    divided(&got, &priorities);
}

#[test]
fn across_vms_reservations_and_limits_bind() {
    let mut bench = Bench::mclock(1_000).window(8);
    let reserved = bench.across(policy(1, 400, 0), 254);
    let limited = bench.across(policy(1, 0, 100), 254);
    let free = bench.across(Policy::default(), 254);
    let within = bench.busy(policy(1_000, 0, 0));
    let low = bench.application(reserved, 10, 8);
    let lowest = bench.application(reserved, 5, 8);
    let high = bench.application(limited, 200, 8);
    let same = bench.application(free, 100, 8);
    bench.run(secs(2));
    let got = bench.run(secs(100));
    divided(&[got[low], got[lowest]], &[2, 1]);
    assert!((got[low] + got[lowest]).abs_diff(40_000) < 200, "{got:?}");
    assert!(got[high].abs_diff(10_000) < 10, "{got:?}");
    assert!(got[same].abs_diff(25_000) < 200, "{got:?}");
    assert!(got[within].abs_diff(25_000) < 200, "1,000 shares weigh as much as priority 100: {got:?}");
}
