//! Disks with a promise beside requests that cost more than theirs, or less.

use super::*;
use crate::narrowing::Beside;
use crate::narrowing::judgement::Judgement;
use crate::narrowing::tally::Tally;
use crate::narrowing::trial::Flight;
use crate::scheduler::DiskCounters;
use crate::window::WorkWindow;

/// Beside a neighbour that keeps 64 requests of this size outstanding, a window of 32.
fn beside(storage: Storage, first: Client, size: Bytes) -> Bench {
    let clients = [first, client(policy(10, 0, 0), 64)];
    let sizes = vec![Bytes(4_096), size];
    let narrow = Narrow::ForReservations;
    Bench::with_sizes(storage, 32, narrow, &clients, CostModel::default(), sizes)
}

/// 1,000 reference IOs per second, of which a request of 1 MiB is 4.4: at 10 ms for each request of
/// the first disk, ten are in front of it.
#[test]
fn a_window_is_narrowed_to_the_work_that_leaves_the_reservation() {
    for storage in [serial(1_000), exponential(1_000)] {
        let mut bench = beside(storage, client(policy(1, 100, 0), 1), Bytes::from_mib(1));
        assert_eq!(bench.run(secs(3))[0], 7, "32 requests of 4.4 reference IOs take 141 ms");
        bench.run(secs(12));
        let got = bench.run(secs(60));
        assert!((98..125).contains(&got[0]), "{storage:?}: {got:?}");
        // The rest of the storage is 200 of these.
        assert!(got[1] >= 190, "{storage:?}: {got:?}");
    }
}

/// What is said of a disk that sends 40 requests of this cost, one at a time, each of which takes
/// 100 ms beside as much.
fn judged(policy: &Policy, cost: Cost, beside: Beside) -> Judgement {
    let window = WorkWindow::new(Slots::whole(32), Cost::from_millionths(4_413_333));
    let mut tally = Tally::new(Nanos::ZERO, 0, policy, DiskCounters::default(), window).unwrap();
    let mut now = Nanos::ZERO;
    for _ in 0..40 {
        tally.queued(now);
        tally.dispatched(now, cost.as_millionths(), beside);
        now += Nanos::from_millis(100);
        tally.completed(now);
    }
    tally.judge(now)
}

/// Its own work is not what a disk waits for, and is as much as the window counts of it: of 64 MiB
/// some 70 reference IOs.
#[test]
fn a_disk_of_large_requests_waits_for_what_others_send() {
    let (policy, cost) = (policy(1, 3_000, 0), Cost::from_ios(219));
    let own = Cost::from_ios(70);
    let alone = Beside { requests: 2, work: Cost::from_millionths(70_400_000), own };
    assert_eq!(judged(&policy, cost, alone), Judgement::Kept);
    let others = Beside { requests: 2, work: Cost::from_ios(140), own };
    let Judgement::Short(wanted) = judged(&policy, cost, others) else { panic!("as much again") };
    assert!(wanted.work >= own && wanted.work < Cost::from_ios(140), "{wanted:?}");
}

/// 100 ms each, one at a time, beside 31 requests of 141 reference IOs in all: 10 per second of 100
/// are a tenth of what is to be, so a tenth of the work may be in flight. A window of so many
/// requests would be three of them.
#[test]
fn what_is_in_the_way_is_work_and_not_requests() {
    let beside = Beside { requests: 32, work: Cost::from_ios(142), own: Cost::ONE };
    let judgement = judged(&policy(1, 100, 0), Cost::ONE, beside);
    let Judgement::Short(wanted) = judgement else { panic!("it has a tenth of it") };
    // The aim is 103, and no step is longer than to a quarter.
    assert!((13.0..14.2).contains(&wanted.requests.as_f64()), "{wanted:?}");
    assert_eq!(wanted.work, Cost::from_millionths(35_500_000));
}

/// Of requests of 64 MiB one is 219 ms at this rate, and no window makes that less. But where
/// nothing helps, a disk waits for two of them and not for 32.
#[test]
fn nobody_waits_for_more_than_two_requests_of_64_mib() {
    let mut bench = beside(serial(1_000), client(policy(1, 0, 0), 1), Bytes::from_mib(64));
    let got = bench.run(secs(60));
    assert!(got[0] >= 2, "{got:?}");
    let longest = bench.took.iter().max().unwrap();
    assert!(*longest < Nanos::from_millis(700), "{longest:?}");
}

/// One that takes 11 ms for 16 MiB and is to give 40 per second to a disk that keeps one
/// outstanding: two are in front of it.
#[test]
fn a_reservation_beside_requests_of_16_mib_is_there_within_seconds() {
    let first = client(policy(1, 40, 0), 1);
    let mut bench = beside(exponential(5_000), first, Bytes::from_mib(16));
    bench.run(secs(10));
    let got = bench.run(secs(50));
    assert!(got[0] >= 39, "{got:?}");
    // 55.6 reference IOs each.
    assert!(got[1] >= 80, "{got:?}");
}

/// A sixteenth of a reference IO each, as sequential requests may cost: half of the work is half of
/// the requests, and not as many as reference IOs.
#[test]
fn a_window_of_cheap_requests_holds_more_of_them_than_reference_ios() {
    let flight = Flight { company: 2_000, crowd: 32_000, time: 0, requests: 1, own: 0 };
    let kept = flight.kept(500);
    assert_eq!((kept.requests, kept.work), (Slots::whole(16), Cost::ONE));
    let flight = Flight { company: 140_000, ..flight };
    let kept = flight.kept(500);
    assert_eq!((kept.requests, kept.work), (Slots::whole(70), Cost::from_ios(70)));
    // To a tenth of the requests, and to no less than a quarter of the work at once.
    let kept = flight.kept(100);
    assert_eq!((kept.requests, kept.work), (Slots::whole(14), Cost::from_ios(35)));
}
