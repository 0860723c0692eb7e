//! Each reason, and the sentence that it makes.

use headgate_placement::Outstanding;
use headgate_placement::latency_bound::{
    Arrivals, Beside, BurstMeter, LATE, Missing, PromisedDisk, ServiceRecord, Storage, Verdict,
    Why, Work, judge,
};
use headgate_units::{Iops, LatencyTarget, Nanos};
use std::num::NonZeroU32;

fn us(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn record(beside: Beside, times: &[(Nanos, u64)]) -> Option<ServiceRecord> {
    ServiceRecord::new(beside, Work::ONE, times.iter().copied())
}

fn in_flight(n: u32) -> Beside {
    Beside::Mean(Outstanding::whole(n))
}

/// One server of 1,000 per second behind a window of 32.
fn storage() -> Storage {
    Storage {
        rate: Some(Iops::new(1_000).unwrap()),
        window: NonZeroU32::new(32).unwrap(),
        least_window: NonZeroU32::MIN,
        floor: NonZeroU32::new(100),
        light: record(in_flight(1), &[(ms(1), 100_000)]),
        busy: record(in_flight(32), &[(ms(32), 100_000)]).into_iter().collect(),
        longest_stall: Nanos::ZERO,
    }
}

fn disk(reservation: u64) -> PromisedDisk<'static> {
    PromisedDisk {
        reservation: Iops::new(reservation).ok(),
        target: None,
        largest: Work::ONE,
        late: Nanos::ZERO,
        outstanding: None,
        bursts: None,
    }
}

fn with_target(disk: PromisedDisk<'_>, latency: Nanos) -> PromisedDisk<'_> {
    PromisedDisk { target: LatencyTarget::new(990, latency).ok(), ..disk }
}

#[test]
fn a_target_with_room_is_kept_behind_a_window_that_it_needs() {
    let disks = [with_target(disk(100), ms(20)), disk(0)];
    let Verdict::Kept(promise) = judge(&storage(), &disks, 0) else { panic!() };
    // What is left of one request, the unreserved disk's, and the window.
    assert!((14..=18).contains(&promise.window.get()), "{promise:?}");
    assert_eq!(promise.arrivals, Arrivals::Assumed);
    let said = Verdict::Kept(promise).to_string();
    assert!(said.starts_with("p99=20ms is kept: "), "{said}");
    assert!(said.contains("while no request comes more than"), "{said}");
    let sum = promise.parts.burst + promise.parts.others + promise.parts.window;
    let sum = sum + promise.parts.variation;
    assert!(promise.bound.since(sum) < Nanos(10), "{promise:?}");
}

#[test]
fn storage_that_takes_longer_alone_makes_it_impossible() {
    let light = record(Beside::Idle(Work::ONE), &[(us(6_100), 50_000), (us(6_200), 50_000)]);
    let storage = Storage { light, ..storage() };
    let verdict = judge(&storage, &[with_target(disk(100), ms(5)), disk(0)], 0);
    let said = verdict.to_string();
    assert!(matches!(verdict, Verdict::Impossible(_)), "{said}");
    let due = "p99=5ms cannot be kept: the storage takes 6.20 ms for one request alone; p99=";
    assert!(said.starts_with(due) && said.ends_with(" could be kept"), "{said}");
    // A disk whose requests come when they come meets what half of them met.
    let light = record(Beside::Idle(Work::ONE), &[(us(900), 50_000), (us(6_200), 50_000)]);
    let half = Storage { light, ..storage.clone() };
    let mut meter = BurstMeter::new(Nanos::ZERO, Iops::new(100).unwrap());
    (0..9_000).for_each(|n| meter.arrived(ms(n * 20), Work::ONE));
    let open = PromisedDisk { bursts: Some(&meter), ..disk(100) };
    for (disk, impossible) in [(open, true), (disk(100), false)] {
        let verdict = judge(&half, &[with_target(disk, ms(5))], 0);
        assert_eq!(matches!(verdict, Verdict::Impossible(_)), impossible, "{verdict}");
    }
    // What was recorded beside others says no such thing.
    let light = record(in_flight(1), &[(us(900), 50_000), (us(6_200), 50_000)]);
    let storage = Storage { light, ..storage };
    let verdict = judge(&storage, &[with_target(disk(100), ms(5)), disk(0)], 0);
    assert!(matches!(verdict, Verdict::Unlikely(r) if matches!(r.why, Why::Storage { .. })));
}

#[test]
fn stalls_count_by_the_time_that_they_take() {
    // 50 ms in each second: 0.16 % of the requests, and 5 % of the time.
    let busy = record(in_flight(32), &[(ms(32), 968_000), (ms(82), 32_000)]);
    let busy = busy.into_iter().collect();
    let light = record(in_flight(1), &[(ms(1), 999_000), (ms(51), 1_000)]);
    let storage = Storage { light, busy, ..storage() };
    let verdict = judge(&storage, &[with_target(disk(100), ms(20)), disk(0)], 0);
    let Verdict::Unlikely(refusal) = verdict else { panic!("{verdict}") };
    let Why::Stalls { part, exempt, longest } = refusal.why else { panic!("{verdict}") };
    assert!(part > 25_000 && exempt == 10_000 && longest == ms(82), "{verdict}");
    let nearest = refusal.nearest.unwrap().latency();
    assert!(nearest > ms(50) && nearest < ms(80), "{verdict}");
}

#[test]
fn a_stall_that_no_record_contains_counts_once() {
    let judged = |longest_stall| {
        let storage = Storage { longest_stall, ..storage() };
        judge(&storage, &[with_target(disk(100), ms(20)), disk(0)], 0)
    };
    // 100,000 requests are 100 s.
    assert!(matches!(judged(ms(300)), Verdict::Kept(_)));
    let Verdict::Unlikely(refusal) = judged(ms(3_000)) else { panic!() };
    assert!(matches!(refusal.why, Why::Stalls { .. }), "{refusal}");
}

#[test]
fn reservations_that_take_all_leave_no_slack() {
    let disks = [with_target(disk(100), ms(20)), disk(895)];
    let verdict = judge(&storage(), &disks, 0);
    assert_eq!(
        verdict.to_string(),
        "p99=20ms cannot be promised: reservations and the floor take 1005 of the 1000 IOPS \
         that the storage gives behind a window of 32"
    );
    // Less than all, and too much for storage that varies.
    let light = record(in_flight(1), &[(us(100), 50_000), (us(1_900), 50_000)]);
    let varied = Storage { light, ..storage() };
    for (others, kept) in [(300, true), (850, false)] {
        let verdict = judge(&varied, &[with_target(disk(100), ms(20)), disk(others)], 0);
        match verdict {
            Verdict::Kept(_) => assert!(kept, "{verdict}"),
            Verdict::Unlikely(refusal) => {
                let why = Why::NoSlack { reserved: 960, rate: 1_000, window: 1 };
                assert!(!kept && refusal.why == why, "{verdict}");
            }
            _ => panic!("{verdict}"),
        }
    }
}

#[test]
fn bursts_wait_at_the_rate_of_the_reservation() {
    let mut meter = BurstMeter::new(Nanos::ZERO, Iops::new(100).unwrap());
    (0..2_000).for_each(|n| {
        (0..10).for_each(|_| meter.arrived(ms(n * 200), Work::ONE));
    });
    let bursty = PromisedDisk { bursts: Some(&meter), ..disk(100) };
    let verdict = judge(&storage(), &[with_target(bursty, ms(20)), disk(0)], 0);
    let Verdict::Unlikely(refusal) = verdict else { panic!("{verdict}") };
    // Nine requests before the last, an eighth of a doubling more.
    let Why::Burst { wait } = refusal.why else { panic!("{verdict}") };
    assert!(wait >= ms(90) && wait < ms(102), "{verdict}");
    let needed = refusal.reservation.unwrap();
    let more = PromisedDisk { reservation: Some(needed), ..bursty };
    let verdict = judge(&storage(), &[with_target(more, ms(20)), disk(0)], 0);
    assert!(matches!(verdict, Verdict::Kept(_)), "{verdict}");
    // The same of a disk that keeps ten outstanding.
    let deep = PromisedDisk { outstanding: NonZeroU32::new(10), ..disk(100) };
    let verdict = judge(&storage(), &[with_target(deep, ms(20)), disk(0)], 0);
    assert!(matches!(verdict, Verdict::Unlikely(r) if r.why == Why::Burst { wait: ms(100) }));
}

#[test]
fn others_that_ask_late_or_send_large_requests_go_first() {
    let late = PromisedDisk { late: LATE, ..disk(500) };
    let verdict = judge(&storage(), &[with_target(disk(100), ms(20)), late], 0);
    let Verdict::Unlikely(refusal) = verdict else { panic!("{verdict}") };
    assert!(matches!(refusal.why, Why::Late { wait } if wait > ms(60)), "{verdict}");
    let crowd = [with_target(disk(100), ms(20))].into_iter().chain([disk(10); 30]);
    let verdict = judge(&storage(), &crowd.collect::<Vec<_>>(), 0);
    let Verdict::Unlikely(refusal) = verdict else { panic!("{verdict}") };
    assert!(matches!(refusal.why, Why::Others { wait } if wait > ms(30)), "{verdict}");
}

#[test]
fn a_window_that_is_not_narrowed_far_enough_is_named() {
    let storage = Storage { least_window: NonZeroU32::new(24).unwrap(), ..storage() };
    let verdict = judge(&storage, &[with_target(disk(100), ms(20)), disk(0)], 0);
    let said = verdict.to_string();
    assert!(said.contains("the window would have to be below 24: so many requests in"), "{said}");
}

#[test]
fn a_disk_without_a_reservation_has_no_bound_and_hears_of_the_one_it_needs() {
    let verdict = judge(&storage(), &[with_target(disk(0), ms(20)), disk(0)], 0);
    let said = verdict.to_string();
    assert!(said.contains("the disk has no reservation; it could with a reservation of"), "{said}");
}

#[test]
fn what_is_not_recorded_is_named() {
    let disks = [with_target(disk(100), ms(20)), disk(0)];
    let said = |storage: &Storage| judge(storage, &disks, 0).to_string();
    let nothing = Storage { light: None, busy: Vec::new(), ..storage() };
    assert!(said(&nothing).ends_with("how long the storage takes for a request"));
    let few = Storage { light: record(in_flight(1), &[(ms(1), 100)]), ..storage() };
    assert!(said(&few).contains("100 requests of the storage are recorded, and 5000 are needed"));
    let verdict = judge(&storage(), &disks, 1);
    assert_eq!(verdict, Verdict::Unknown(Missing::Target));
    assert_eq!(judge(&storage(), &disks, 7), Verdict::Unknown(Missing::Target));
    let meter = BurstMeter::new(Nanos::ZERO, Iops::new(100).unwrap());
    let disks = [with_target(PromisedDisk { bursts: Some(&meter), ..disk(100) }, ms(20))];
    let need = Missing::Arrivals { have: 0, need: 5_000 };
    assert_eq!(judge(&storage(), &disks, 0), Verdict::Unknown(need));
}

#[test]
fn a_newcomer_does_not_break_the_target_of_another() {
    let tight = with_target(disk(100), ms(9));
    let newcomer = with_target(disk(50), ms(30));
    let alone = judge(&storage(), &[disk(0), newcomer], 1);
    let beside = judge(&storage(), &[disk(0), newcomer, tight], 1);
    let (Verdict::Kept(alone), Verdict::Kept(beside)) = (alone, beside) else {
        panic!("{alone} {beside}")
    };
    assert!(beside.window < alone.window && beside.window.get() <= 6, "{alone:?} {beside:?}");
    // One that no window leaves enough to.
    let large = PromisedDisk { largest: Work::from_ios(20), ..newcomer };
    let verdict = judge(&storage(), &[with_target(large, ms(900)), tight], 0);
    let Verdict::Unlikely(refusal) = verdict else { panic!("{verdict}") };
    assert_eq!(refusal.why, Why::Target { disk: 1 }, "{verdict}");
    // What could not be kept before is no reason.
    let hopeless = with_target(disk(100), us(10));
    let verdict = judge(&storage(), &[newcomer, hopeless], 0);
    assert!(matches!(verdict, Verdict::Kept(_)), "{verdict}");
}

/// Twice as fast with 32 in it as with one. How fast it is with some in it is not known.
#[test]
fn storage_that_sorts_its_requests_is_judged_by_records_of_as_many_in_flight() {
    let light = record(in_flight(1), &[(ms(4), 100_000)]);
    let busy = |records: &[(u32, u64)]| {
        let record = |&(n, time)| record(in_flight(n), &[(ms(time), 100_000)]);
        records.iter().filter_map(record).collect()
    };
    let sorts = Storage { rate: None, light, busy: busy(&[(32, 64)]), ..storage() };
    let window = |storage: &Storage, target| match judge(
        storage,
        &[with_target(disk(50), ms(target)), disk(0)],
        0,
    ) {
        Verdict::Kept(promise) => promise.window.get(),
        verdict => panic!("{verdict}"),
    };
    assert_eq!((window(&sorts, 60), window(&sorts, 140)), (1, 32));
    let more = Storage { busy: busy(&[(8, 24), (32, 64)]), ..sorts };
    assert_eq!((window(&more, 60), window(&more, 140)), (8, 32));
}
