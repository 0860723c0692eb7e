//! The floor belongs to disks without a reservation, whatever the shares of the others.

use crate::common::*;
use headgate_qos::{Config, Floor, SchedulerKind};

/// A device that serves 1,000 per second where 1,500 are reserved.
fn shortage(config: Config, reserved: u64) -> Bench {
    let mut bench = Bench::new(SchedulerKind::MClock, config, 1_000);
    bench.busy(policy(reserved, 800, 0));
    bench.busy(policy(reserved, 700, 0));
    bench
}

#[test]
fn shares_of_reserved_disks_take_nothing_of_it() {
    for reserved in [1, 10, 30, 100, 1_000, 100_000, 1_000_000] {
        for jitter in [false, true] {
            let mut bench = shortage(unit(), reserved);
            if jitter {
                bench = bench.jitter();
            }
            let other = bench.busy(policy(1, 0, 0));
            bench.run(secs(10));
            let got = bench.run(secs(100));
            // A part in 101 of what the device served.
            let due = got.iter().sum::<u64>() / 101;
            assert!(got[other].abs_diff(due) <= 2, "weight {reserved}: {got:?}");
            assert!((got[0] * 7).abs_diff(got[1] * 8) <= 32, "weight {reserved}: {got:?}");
        }
    }
}

#[test]
fn it_is_divided_by_the_shares_of_those_that_have_no_reservation() {
    for reserved in [1, 1_000_000] {
        let mut bench = shortage(Config { floor: Floor::OneIn(9), ..unit() }, reserved);
        let others = [1, 3, 6].map(|shares| bench.busy(policy(shares, 0, 0)));
        bench.run(secs(10));
        let got = bench.run(secs(100));
        for (other, due) in others.into_iter().zip([1_000u64, 3_000, 6_000]) {
            assert!(got[other].abs_diff(due) <= due / 100, "{got:?}");
        }
    }
}

/// What the floor gave in a shortage, and what reservations took, is not paid back afterwards.
#[test]
fn a_shortage_leaves_no_memory_in_shares() {
    for reserved in [1, 10, 1_000, 100_000] {
        for minutes in [1, 60] {
            let mut bench = shortage(unit(), reserved);
            let one = bench.busy(policy(reserved, 0, 0));
            let many = bench.busy(policy(10 * reserved, 0, 0));
            bench.run(secs(60 * minutes));
            // Enough for all: by shares 1:1:1:10, and no reservation is above its share.
            bench.set_rate(13_000);
            // The debt of a quarter of a second, and a second more.
            bench.run(millis(1_500));
            let got = bench.run(secs(1));
            for (disk, due) in [(0, 1_000u64), (1, 1_000), (one, 1_000), (many, 10_000)] {
                assert!(got[disk].abs_diff(due) <= due / 50, "{reserved}, {minutes}: {got:?}");
            }
        }
    }
}

/// Shares that dwarf those of the others: what a reserved disk was behind by is forgotten when its
/// reservation is next due, not paid back for as long as the shortage lasted.
#[test]
fn a_reserved_disk_with_most_shares_is_owed_no_more_than_the_lead() {
    let mut bench = Bench::mclock(1_000).window(8);
    let small = bench.busy(policy(1_000, 10, 0));
    let large = bench.busy(policy(1, 20_000, 0));
    let other = bench.busy(policy(1, 0, 0));
    bench.run(secs(600));
    bench.set(large, policy(1, 0, 0));
    bench.run(secs(2));
    let got = bench.run(secs(10));
    // By shares 1,000:1:1 of 10,000.
    assert!(got[small] >= 9_900, "{got:?}");
    assert!(got[other].abs_diff(10) <= 2 && got[large].abs_diff(10) <= 2, "{got:?}");
}
