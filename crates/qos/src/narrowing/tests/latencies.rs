//! Latency targets: kept where a window keeps them, given up where none does, and said why.

use super::*;
use crate::narrowing::{LatencyVerdict, Promise};
use headgate_units::LatencyTarget;

fn aimed(shares: u64, reservation: u64, target: &str) -> Policy {
    let target: LatencyTarget = target.parse().unwrap();
    policy(shares, reservation, 0).with_latency_target(Some(target)).unwrap()
}

/// The latency in milliseconds that so many thousandths of a bench's requests stayed within.
fn quantile(took: &[Nanos], thousandths: usize) -> f64 {
    let mut took = took.to_vec();
    took.sort_unstable();
    let late = took.len() * (1_000 - thousandths) / 1_000;
    took[took.len() - 1 - late].0 as f64 / 1e6
}

impl Bench {
    fn verdict(&self) -> Option<LatencyVerdict> {
        self.gate.latency(self.clients[0].1).map(|standing| standing.verdict)
    }
}

/// 1,000 per second, a window of 32: each request takes 32 ms or more beside a neighbour that fills
/// the window. A guest that asks for 83 per second of the 300 that it has is to see 10.
#[test]
fn a_window_gives_way_to_a_latency_target() {
    for storage in [serial(1_000), exponential(1_000)] {
        let clients = [client(aimed(1, 300, "p99=10ms"), 0), client(policy(10, 0, 0), 64)];
        let mut open = Bench::new(storage, 32, Narrow::Never, &clients);
        open.run(secs(30));
        assert!(quantile(&open.took, 990) > 32.0, "{storage:?}");
        assert_eq!(
            (open.verdict(), open.narrowest),
            (Some(LatencyVerdict::Window), Slots::whole(32))
        );

        let mut bench = Bench::new(storage, 32, Narrow::ForReservations, &clients);
        bench.run(secs(30));
        let got = bench.run(secs(120));
        let p99 = quantile(&bench.took, 990);
        assert!(p99 <= 11.0, "{storage:?}: {p99}");
        assert!(got[0] + got[1] >= 950, "{storage:?}: {got:?}");
        let standing = bench.gate.latency(bench.clients[0].1).unwrap();
        assert_eq!(standing.target.to_string(), "p99=10ms");
        assert!(standing.requests >= 400, "{standing:?}");
        let narrowed = bench.gate.narrowed().unwrap();
        assert_eq!((narrowed.disk, narrowed.promise), (bench.clients[0].1, Promise::Latency));
    }
}

/// No narrower than need be: with constant service, ten requests take ten milliseconds.
#[test]
fn a_window_is_as_wide_as_the_latency_allows() {
    let clients = [client(aimed(1, 300, "p99=20ms"), 0), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(60));
    bench.in_flight();
    bench.run(secs(120));
    let mean = bench.in_flight();
    assert!((14.0..19.0).contains(&mean), "{mean}");
    assert_eq!(bench.verdict(), Some(LatencyVerdict::Met));

    let clients = [client(aimed(1, 300, "p99=40ms"), 0), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(60));
    assert_eq!(bench.narrowest, Slots::whole(32));
}

#[test]
fn it_grows_again_when_the_disk_asks_for_nothing() {
    let clients = [client(aimed(1, 20, "p99=10ms"), 1), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(20));
    assert!(bench.gate.window() < Slots::whole(12), "{}", bench.gate.window());
    bench.stop(0);
    bench.run(secs(30));
    assert_eq!((bench.gate.narrowed(), bench.gate.window()), (None, Slots::whole(32)));
    assert_eq!(bench.verdict(), None);
}

/// The window grows by 2 % each period for a shallow disk's reservation. Meanwhile the target of
/// another disk is judged, and that of the same.
#[test]
fn a_target_is_judged_while_a_reservation_moves_the_window() {
    let clients = [
        client(aimed(1, 300, "p99=10ms"), 1),
        client(policy(1, 0, 0), 64),
        client(aimed(1, 20, "p90=20ms"), 0),
    ];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(60));
    for index in [0, 2] {
        let standing = bench.gate.latency(bench.clients[index].1).unwrap();
        assert_eq!(standing.verdict, LatencyVerdict::Met, "{standing:?}");
    }
}

/// Storage that serves side by side takes 10 ms however few requests it has.
#[test]
fn what_the_storage_does_not_give_is_not_paid_for() {
    let storage = Storage::Parallel { latency: Nanos::from_millis(10) };
    let clients = [client(aimed(1, 300, "p99=5ms"), 0), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(storage, 32, Narrow::ForReservations, &clients);
    let mut open = Bench::new(storage, 32, Narrow::Never, &clients);
    let (got, most) = (bench.run(secs(60)), open.run(secs(60)));
    assert!(got[1] * 100 >= most[1] * 94, "{got:?} of {most:?}");
    let (got, most) = (bench.run(secs(3_600)), open.run(secs(3_600)));
    assert!(got[1] * 1_000 >= most[1] * 980, "{got:?} of {most:?}");
    assert_eq!(bench.verdict(), Some(LatencyVerdict::Storage));
}

/// The same for a disk whose reservation has room to spare, and a target that is near: the window
/// opens for the one promise although the other would have it grow slowly.
#[test]
fn a_target_that_is_given_up_opens_the_window_at_once() {
    let storage = Storage::Parallel { latency: Nanos::from_millis(20) };
    let clients = [client(aimed(100_000, 20, "p90=15ms"), 1), client(policy(100, 0, 0), 64)];
    let mut bench = Bench::new(storage, 32, Narrow::ForReservations, &clients);
    bench.run(secs(16));
    let got = bench.run(secs(4));
    assert!(got[1] >= 1_500, "{got:?}");
    assert_eq!(bench.verdict(), Some(LatencyVerdict::Storage));
}

/// Storage that serves side by side gives the less the narrower the window is. A reserved neighbour
/// has what it is promised all the same.
#[test]
fn what_is_tried_for_a_target_takes_nothing_from_a_reservation() {
    let storage = Storage::Parallel { latency: Nanos::from_millis(20) };
    let clients = [
        client(aimed(1, 100, "p90=5ms"), 1),
        client(policy(1, 600, 0), 64),
        client(policy(50, 0, 0), 64),
    ];
    let mut bench = Bench::new(storage, 32, Narrow::ForReservations, &clients);
    for _ in 0..24 {
        let got = bench.run(secs(5));
        assert!(got[1] >= 594, "{got:?}");
    }
    assert!(bench.narrowest < Slots::whole(20), "it was tried: {}", bench.narrowest);
    assert_eq!(bench.verdict(), Some(LatencyVerdict::Storage));
}

/// A disk that waits in the queue gets what its shares say in any window. That this is its
/// reservation is no reason to keep one narrow.
#[test]
fn who_waits_in_the_queue_keeps_no_window_narrow() {
    for (latency, target) in [(20, "p90=15ms"), (2, "p99=1ms")] {
        let storage = Storage::Parallel { latency: Nanos::from_millis(latency) };
        let clients = [
            client(aimed(159, 178, target), 0),
            client(policy(1, 9, 0), 64),
            client(policy(350, 0, 0), 64),
        ];
        let mut bench = Bench::new(storage, 32, Narrow::ForReservations, &clients);
        bench.run(secs(20));
        let got = bench.run(secs(30)).iter().sum::<u64>();
        assert!(got * latency >= 31_000, "{latency} ms: {got}");
    }
}

/// Two targets, of which a window of some twenty keeps the one, and none the other.
#[test]
fn a_target_that_is_given_up_takes_no_other_with_it() {
    let storage = Storage::Far { rate: 500, latency: Nanos::from_millis(7) };
    for think in [40, 150] {
        let slow =
            |aim, depth, think| Client { think: Nanos::from_millis(think), ..client(aim, depth) };
        let kept = slow(aimed(1, 60, "p90=60ms"), 8, 900);
        let missed = slow(aimed(1, 60, "p50=5ms"), 1, think);
        let clients = [kept, missed, client(policy(10, 0, 0), 64)];
        let mut bench = Bench::new(storage, 62, Narrow::ForReservations, &clients);
        bench.run(secs(35));
        let got = bench.run(secs(25));
        let p90 = quantile(&bench.took, 900);
        assert!(p90 <= 60.0 && got.iter().sum::<u64>() >= 475, "{p90}: {got:?}");
    }
}

/// Storage that stands still for 30 ms in each second. What three in a hundred requests wait for
/// then, no window makes shorter, although it does so for all others.
#[test]
fn what_stalls_take_is_not_paid_for() {
    let service = Service::Stalling(Nanos::from_millis(30));
    let storage = Storage::Serial { rate: 1_000, service };
    let clients = [client(aimed(1, 300, "p99=10ms"), 0), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(storage, 32, Narrow::ForReservations, &clients);
    bench.run(secs(600));
    bench.in_flight();
    bench.run(secs(3_600));
    let mean = bench.in_flight();
    assert!(mean >= 29.0, "{mean}");
    assert_eq!(bench.verdict(), Some(LatencyVerdict::Storage));

    // A target that allows for them is met.
    let clients = [client(aimed(1, 300, "p90=10ms"), 0), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(storage, 32, Narrow::ForReservations, &clients);
    bench.run(secs(60));
    bench.run(secs(180));
    assert!(quantile(&bench.took, 900) <= 10.5);
}

/// One target is beyond what stalls allow and is given up time and again. Another allows for them.
#[test]
fn a_target_that_is_given_up_opens_no_window_that_another_needs() {
    let service = Service::Stalling(Nanos::from_millis(30));
    let storage = Storage::Serial { rate: 1_000, service };
    let clients = [
        client(aimed(1, 300, "p90=10ms"), 0),
        client(policy(1, 0, 0), 64),
        client(aimed(1, 300, "p99=10ms"), 0),
    ];
    let mut bench = Bench::new(storage, 32, Narrow::ForReservations, &clients);
    bench.run(secs(60));
    let mut open = 0;
    for _ in 0..1_200 {
        bench.run(secs(1));
        open += u32::from(bench.gate.window() == Slots::whole(32));
    }
    assert_eq!(open, 0, "seconds with an open window");
}

/// Who asks for more than is reserved waits in the queue. No window makes that shorter.
#[test]
fn who_asks_for_too_much_narrows_no_window() {
    let clients = [client(aimed(1, 100, "p99=40ms"), 64), client(policy(100, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.run(secs(60));
    assert_eq!(bench.narrowest, Slots::whole(32));
    assert_eq!(bench.verdict(), Some(LatencyVerdict::Queue));
}

#[test]
fn who_is_alone_narrows_no_window() {
    let clients = [client(aimed(1, 100, "p99=1ms"), 8), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::ForReservations, &clients);
    bench.stop(1);
    bench.run(secs(60));
    assert_eq!(bench.narrowest, Slots::whole(32));
    assert_eq!(bench.verdict(), Some(LatencyVerdict::Alone));
}

/// A reservation that the storage does not give, and a latency: the one comes first.
#[test]
fn capacity_comes_before_latency() {
    let clients = [client(aimed(1, 900, "p99=10ms"), 0), client(policy(1, 600, 0), 256)];
    let mut bench = Bench::new(serial(500), 32, Narrow::ForReservations, &clients);
    bench.run(secs(60));
    let got = bench.run(secs(30));
    assert!(got[0] + got[1] >= 495, "{got:?}");
    assert!(bench.gate.window() >= Slots::whole(16), "{}", bench.gate.window());
}

/// The policy is the same but for its shares: how the disk stands is known on.
#[test]
fn another_policy_with_the_same_target_keeps_what_is_known() {
    let clients = [client(aimed(1, 300, "p99=10ms"), 1), client(policy(1, 0, 0), 64)];
    let mut bench = Bench::new(serial(1_000), 32, Narrow::Never, &clients);
    bench.run(secs(20));
    let (disk, now) = (bench.clients[0].1, bench.now);
    let standing = bench.gate.latency(disk).unwrap();
    bench.gate.set_policy(now, disk, aimed(5, 300, "p99=10ms")).unwrap();
    assert_eq!(bench.gate.latency(disk), Some(standing));
    bench.gate.set_policy(now, disk, aimed(5, 300, "p99=11ms")).unwrap();
    assert_eq!(bench.gate.latency(disk), None);
    bench.gate.set_policy(now, disk, policy(5, 300, 0)).unwrap();
    assert_eq!(bench.gate.latency(disk), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// On storage that serves one after another, beside any number of neighbours' requests: a
    /// target of some services' time is met by a disk that asks for less than its reservation. That
    /// is nearly all of the storage, so that the disk's own bursts hardly wait in the queue.
    #[test]
    fn targets_are_met_wherever_a_window_meets_them(
        rate in 400u64..5_000,
        window in 2u32..128,
        services in 12u64..60,
        quantile_of in prop::sample::select(vec![900usize, 950, 990]),
        shares in 1u64..1_000,
        random in any::<bool>(),
    ) {
        let storage = if random { exponential(rate) } else { serial(rate) };
        let micros = services * 1_000_000 / rate;
        let target = format!("p{}={micros}us", quantile_of / 10);
        let clients = [
            client(aimed(1, rate * 9 / 10, &target), 0),
            client(policy(shares, 0, 0), 256),
        ];
        let mut bench = Bench::new(storage, window, Narrow::ForReservations, &clients);
        bench.run(secs(60));
        let got = bench.run(secs(180));
        let at = quantile(&bench.took, quantile_of) * 1_000.0;
        prop_assert!(at <= micros as f64 * 1.1, "{at} of {micros}");
        prop_assert!((got[0] + got[1]) * 100 >= rate * 90, "{:?}", got);
    }
}

/// Storage that takes 20 ms for each request, and a guest that sends few: by their number it takes
/// a minute to see that no window helps. Its neighbour pays no more than five seconds' work for
/// each attempt, and has the whole window in between.
#[test]
fn a_target_of_a_slow_guest_costs_its_neighbour_little() {
    let storage = Storage::Parallel { latency: Nanos::from_millis(20) };
    let slow = Client { think: Nanos::from_millis(300), ..client(aimed(100, 20, "p99=15ms"), 1) };
    let clients = [slow, client(policy(100, 0, 0), 64)];
    let rate = |narrow, seconds| {
        let mut bench = Bench::new(storage, 32, narrow, &clients);
        bench.run(secs(seconds))[1] as f64
    };
    // It rests for one, two, four minutes.
    for (seconds, attempts) in [(50, 1.0), (100, 2.0), (400, 3.0), (3_600, 6.0)] {
        let (open, got) = (rate(Narrow::Never, seconds), rate(Narrow::ForReservations, seconds));
        let lost = (open - got) / open * seconds as f64;
        assert!(lost <= 5.0 * attempts, "{lost} s of {seconds} lost");
    }
}
