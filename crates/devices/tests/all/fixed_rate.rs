//! What a device of a fixed rate promises.

use crate::common::{ClosedLoop, READ_4K, completion_times};
use headgate_devices::{DeviceIo, DeviceModel, FixedRate, IoKind, ModelSpec, Null};
use headgate_units::{Bytes, Iops, Nanos};
use proptest::prelude::*;
use std::num::NonZeroU32;

fn device(rate: u64, latency: Nanos, depth: u32) -> FixedRate {
    FixedRate::new(Iops::new(rate).unwrap(), latency, NonZeroU32::new(depth).unwrap())
}

const START: Nanos = Nanos::from_secs(1_000);

#[test]
fn a_busy_device_serves_exactly_its_rate_in_every_second() {
    for rate in [1, 7, 1_600, 99_991] {
        let mut loaded = ClosedLoop::new(device(rate, Nanos::ZERO, 64), START, 32);
        loaded.run_until(START + Nanos::from_millis(500));
        for second in 1..3 {
            let before = loaded.completed;
            loaded.run_until(START + Nanos::from_millis(500) + Nanos::from_secs(second));
            assert_eq!(loaded.completed - before, rate, "second {second}");
        }
    }
}

#[test]
fn ten_hours_at_seven_iops_loses_nothing() {
    let mut loaded = ClosedLoop::new(device(7, Nanos::ZERO, 4), START, 2);
    loaded.run_until(START + Nanos::from_secs(36_000));
    assert_eq!(loaded.completed, 7 * 36_000 + 1, "one at once, then seven in every second");
}

#[test]
fn an_idle_device_answers_after_its_latency() {
    let mut idle = device(1_000, Nanos::from_millis(3), 32);
    for at in [START, START + Nanos::from_secs(1)] {
        idle.submit(at, 1, READ_4K);
        assert_eq!(idle.next_event(), Some(at + Nanos::from_millis(3)));
        assert_eq!(idle.poll(at + Nanos(2_999_999)), None);
        assert_eq!(idle.poll(at + Nanos::from_millis(3)), Some(1));
        assert_eq!(idle.next_event(), None);
    }
}

#[test]
fn littles_law_holds_below_and_above_saturation() {
    // (rate, latency ms, depth, outstanding) -> IOPS
    for (rate, latency, depth, outstanding, expected) in [
        (1_600, 5, 32, 32, 1_600),
        (1_600, 5, 32, 4, 800),
        (1_000_000, 2, 8, 64, 4_000),
        (1_600, 0, 1, 1, 1_600),
    ] {
        let mut loaded =
            ClosedLoop::new(device(rate, Nanos::from_millis(latency), depth), START, outstanding);
        loaded.run_until(START + Nanos::from_secs(10));
        let iops = loaded.completed / 10;
        assert!(iops.abs_diff(expected) <= expected / 200, "{iops} instead of {expected}");
        let waited = loaded.mean_latency();
        let by_little = Nanos(outstanding as u64 * 1_000_000_000 / expected);
        assert!(
            waited.0.abs_diff(by_little.0) <= by_little.0 / 100,
            "{waited} instead of {by_little}"
        );
    }
}

#[test]
fn a_late_driver_still_gets_the_rate() {
    // Late by 20 to 84 us each time; every 100 ms somebody else has the processor for a while.
    const STOLEN_8_MS: fn(Nanos, u64) -> Nanos = |now, random| late(now, random, 8_000_000);
    const STOLEN_2_MS: fn(Nanos, u64) -> Nanos = |now, random| late(now, random, 2_000_000);
    fn late(now: Nanos, random: u64, stolen: u64) -> Nanos {
        let stolen = if now.0 % 100_000_000 < 200_000 { stolen } else { 0 };
        Nanos(20_000 + random % 64_000 + stolen)
    }
    for (rate, late) in
        [(500, STOLEN_8_MS), (1_600, STOLEN_8_MS), (20_000, STOLEN_8_MS), (100_000, STOLEN_2_MS)]
    {
        for latency in [Nanos::ZERO, Nanos::from_micros(100)] {
            let mut loaded = ClosedLoop::new(device(rate, latency, 64), START, 32);
            loaded.late = late;
            loaded.think = Nanos::from_micros(10);
            loaded.run_until(START + Nanos::from_secs(2));
            let expected = rate * 2;
            let error = loaded.completed.abs_diff(expected) * 10_000 / expected;
            assert!(
                error <= 50,
                "rate {rate}, latency {latency}: {} instead of {expected}",
                loaded.completed
            );
        }
    }
}

#[test]
fn lateness_is_not_saved_up_by_an_idle_device() {
    let mut device = device(1_000, Nanos::ZERO, 32);
    for i in 0..1_000 {
        let at = START + Nanos::from_millis(20 * i);
        device.submit(at, i, READ_4K);
        assert_eq!(device.poll(at + Nanos::from_millis(10)), Some(i));
    }
    let now = START + Nanos::from_secs(100);
    (0..100).for_each(|id| device.submit(now, id, READ_4K));
    let times = completion_times(&mut device, now);
    // The last lateness, 10 ms, is forgiven once; the other 90 requests are 1 ms apart.
    assert!(times.last().unwrap().1 >= now + Nanos::from_millis(89), "{:?}", times.last());
}

#[test]
fn a_new_rate_holds_from_the_next_completion_on() {
    let mut loaded = ClosedLoop::new(device(1, Nanos::ZERO, 32), START, 32);
    let mut now = START + Nanos::from_millis(100);
    loaded.run_until(now);
    for rate in [1_000, 10, 250_000, 1_600] {
        loaded.device.set_rate(now, Iops::new(rate).unwrap());
        assert!(loaded.device.next_event().unwrap() >= now, "nothing completes in the past");
        let before = loaded.completed;
        now += Nanos::from_secs(1);
        loaded.run_until(now);
        assert!(
            (loaded.completed - before).abs_diff(rate) <= 1,
            "{} at {rate}",
            loaded.completed - before
        );
    }
}

#[test]
fn null_completes_at_once_in_order() {
    let mut null = Null::new();
    (0..5).for_each(|id| null.submit(START, id, READ_4K));
    assert_eq!((null.in_flight(), null.next_event()), (5, Some(START)));
    assert_eq!(std::iter::from_fn(|| null.poll(START)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!((null.in_flight(), null.next_event()), (0, None));
}

proptest! {
    /// The definition of the type's documentation, computed over the whole history.
    #[test]
    fn completions_are_those_of_the_definition(
        gaps in prop::collection::vec(prop_oneof![Just(0u64), 0..3_000_000u64, 0..50_000_000u64], 1..200),
        rate in 1..5_000u64,
        latency in 0..20_000_000u64,
        depth in 1..10u32,
    ) {
        let mut device = device(rate, Nanos(latency), depth);
        let (mut now, mut arrivals, mut times) = (START, Vec::new(), Vec::new());
        for (id, gap) in gaps.into_iter().enumerate() {
            let target = now + Nanos(gap);
            while let Some(next) = device.next_event().filter(|&next| next <= target) {
                now = next;
                while let Some(id) = device.poll(now) {
                    times.push((id, now));
                }
            }
            now = target;
            device.submit(now, id as u64, READ_4K);
            arrivals.push(now);
        }
        times.extend(completion_times(&mut device, now));

        let mut expected: Vec<u64> = Vec::new();
        for (i, arrival) in arrivals.iter().enumerate() {
            let freed = i.checked_sub(depth as usize).map_or(0, |j| expected[j]);
            let paced = expected.last().map_or(0, |last| last + 1_000_000_000 / rate);
            let at = (arrival.0.max(freed) + latency).max(paced);
            // Remainders are carried: each step may be one nanosecond longer than the rounded one.
            let (id, got) = times[i];
            prop_assert_eq!(id, i as u64);
            prop_assert!(got.0 == at || got.0 == at + 1, "{} instead of {}", got.0, at);
            expected.push(got.0);
        }
    }

    /// However late the driver is: what was lost may be caught up, but never more than 20 ms of it
    /// at once.
    #[test]
    fn no_window_ever_holds_more_than_its_rate_and_what_may_be_owed(
        turns in prop::collection::vec((prop_oneof![0..200_000u64, 0..60_000_000u64], 1..20u64), 1..80),
        rate in 100..20_000u64,
        latency in 0..2_000_000u64,
        depth in 1..40u32,
    ) {
        let mut device = device(rate, Nanos(latency), depth);
        let (mut now, mut id, mut times) = (START, 0, Vec::new());
        for (late, submissions) in turns {
            for _ in 0..submissions {
                device.submit(now, id, READ_4K);
                id += 1;
            }
            now = device.next_event().map_or(now, |next| now.max(next)) + Nanos(late);
            while let Some(at) = device.next_event().filter(|&at| at <= now) {
                device.poll(now);
                times.push(at.0);
            }
        }
        prop_assert!(times.is_sorted());
        for (first, from) in times.iter().enumerate() {
            for (last, to) in times.iter().enumerate().skip(first) {
                let most = u128::from(rate) * u128::from(to - from + 20_000_000) / 1_000_000_000 + 2;
                prop_assert!((last - first) as u128 <= most, "{} within {} ns", last - first, to - from);
            }
        }
    }
}

#[test]
fn stragglers_come_late_and_out_of_order_but_all_come() {
    let mut model = "rate=1000,latency=1ms,depth=8,stragglers=4:20ms"
        .parse::<ModelSpec>()
        .unwrap()
        .build(Bytes::from_gib(1));
    let io = DeviceIo { kind: IoKind::Read, offset: 0, bytes: Bytes(4096) };
    (0..8).for_each(|id| model.submit(Nanos::ZERO, id, io));
    let (mut now, mut order) = (Nanos::ZERO, Vec::new());
    while model.in_flight() > 0 {
        now = model.next_event().unwrap();
        order.extend(std::iter::from_fn(|| model.poll(now)));
    }
    assert_eq!(order, [0, 1, 2, 4, 5, 6, 3, 7]);
    // The eighth was served after 8 ms.
    assert_eq!(now, Nanos::from_millis(28));
}

fn completions(model: &str, seconds: u64) -> u64 {
    let device = model.parse::<ModelSpec>().unwrap().build(Bytes::from_gib(1));
    let mut loaded = ClosedLoop::new(device, START, 16);
    loaded.run_until(START + Nanos::from_secs(seconds));
    loaded.completed
}

#[test]
fn random_service_times_have_the_rate_as_their_mean() {
    // Five standard deviations of the mean of 400,000 times: 5 x sqrt(variance / 400,000).
    for (service, tolerance) in [("exponential", 0.008), ("pareto", 0.025)] {
        let served = completions(&format!("rate=2000,service={service},seed=5"), 200) as f64;
        assert!((served / 400_000.0 - 1.0).abs() < tolerance, "{service}: {served}");
        assert_ne!(served, 400_000.0, "{service} is random");
    }
}

#[test]
fn a_stall_takes_its_part_of_the_rate_and_no_more_than_what_was_under_way_comes_back() {
    // 4 s of 5 at 1,000 per second, and the 16 under way in each stall.
    let served = completions("rate=1000,latency=0s,stall=1s/5s", 100);
    assert!((80_000..=80_000 + 20 * 17).contains(&served), "{served}");
    let paused = completions("rate=1000,latency=0s,stall=20ms/500ms", 100);
    assert!((96_000..=96_000 + 200 * 17).contains(&paused), "{paused}");
}
