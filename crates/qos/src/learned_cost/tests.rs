//! The learner beside devices whose costs are known: each stretch is made from the definition, the
//! sum of what its requests take.

use super::*;
use core::ops::Range;
use headgate_units::Bytes;
use proptest::prelude::*;

/// What a device takes for a request and for a KiB of it, by class, in microseconds.
#[derive(Clone, Copy)]
struct Truth {
    request: [f64; 5],
    kib: [f64; 5],
}

/// Some requests of one class and size.
#[derive(Clone, Copy, Debug)]
struct Lot {
    class: IoClass,
    requests: u32,
    kib: u64,
}

const fn lot(class: IoClass, requests: u32, kib: u64) -> Lot {
    Lot { class, requests, kib }
}

/// Random writes take eight times as long as random reads.
const DEAR_WRITES: Truth = Truth { request: [500.0, 50.0, 4_000.0, 100.0, 900.0], kib: [3.0; 5] };

impl Truth {
    fn time(&self, lots: &[Lot]) -> f64 {
        let of = |lot: &Lot| {
            let class = lot.class.index();
            f64::from(lot.requests) * (self.request[class] + self.kib[class] * lot.kib as f64)
        };
        1_000.0 * lots.iter().map(of).sum::<f64>()
    }

    /// A request's time as a part of that of a random read of 4 KiB.
    fn cost(&self, class: IoClass, kib: u64) -> f64 {
        self.time(&[lot(class, 1, kib)]) / self.time(&[lot(IoClass::ReadRandom, 1, 4)])
    }
}

fn sample(lots: &[Lot], busy: f64) -> Sample {
    let mut sent =
        Sample { busy: Nanos(busy as u64), requests: [0; 5], bytes: [0; 5], squares: [0; 5] };
    for lot in lots {
        let class = lot.class.index();
        sent.requests[class] += lot.requests;
        sent.bytes[class] += u64::from(lot.requests) * (lot.kib << 10);
        sent.squares[class] += u64::from(lot.requests) * (lot.kib / 4) * (lot.kib / 4);
    }
    sent
}

fn learner() -> CostLearner {
    CostLearner::new(Nanos::ZERO, Bytes::from_kib(300))
}

fn small(learner: &CostLearner, class: IoClass) -> f64 {
    learner.report().classes[class.index()].small.as_millionths() as f64 / 1e6
}

fn large(learner: &CostLearner, class: IoClass) -> f64 {
    learner.report().classes[class.index()].large.as_millionths() as f64 / 1e6
}

fn near(value: f64, expected: f64, part: f64) -> bool {
    (value - expected).abs() <= part * expected
}

/// A second of busy time in which each kind of request has this part of it.
fn second(truth: &Truth, parts: &[(IoClass, u64, f64)]) -> Vec<Lot> {
    let requests = |(class, kib, part): &(IoClass, u64, f64)| {
        let each = truth.time(&[lot(*class, 1, *kib)]);
        lot(*class, (part * 1e9 / each) as u32, *kib)
    };
    parts.iter().map(requests).collect()
}

/// A number from 0 to 1 that follows from n.
fn dice(n: u64) -> f64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    z = (z ^ (z >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (z >> 11) as f64 / (1u64 << 53) as f64
}

/// Mixes that differ from second to second, with so much noise.
fn mixed(truth: &Truth, seconds: Range<u64>, noise: f64, learner: &mut CostLearner) {
    use IoClass::*;
    for n in seconds {
        let part = |k: u64| 0.05 + dice(8 * n + k);
        let parts = [
            (ReadRandom, 4, part(0)),
            (ReadRandom, 256, part(1)),
            (ReadSequential, 64, part(2)),
            (WriteRandom, 4, part(3)),
            (WriteRandom, 64, part(4)),
            (WriteSequential, 128, part(5)),
            (NoData, 0, part(6)),
        ];
        let all: f64 = parts.iter().map(|p| p.2).sum();
        let lots = second(truth, &parts.map(|(class, kib, part)| (class, kib, part / all)));
        let factor = 1.0 + noise * (2.0 * dice(8 * n + 7) - 1.0);
        learner.learn(&sample(&lots, truth.time(&lots) * factor));
    }
}

#[test]
fn costs_become_what_the_device_takes() {
    for (seconds, noise, part) in [(200, 0.0, 0.03), (600, 0.15, 0.08)] {
        let mut learner = learner();
        mixed(&DEAR_WRITES, 0..seconds, noise, &mut learner);
        for class in [IoClass::ReadRandom, IoClass::WriteRandom] {
            let (four, sixty) = (small(&learner, class), large(&learner, class));
            assert!(near(four, DEAR_WRITES.cost(class, 4), part), "{class:?} {four}");
            assert!(near(sixty, DEAR_WRITES.cost(class, 64), part), "{class:?} {sixty}");
        }
        let read = large(&learner, IoClass::ReadSequential);
        assert!(near(read, DEAR_WRITES.cost(IoClass::ReadSequential, 64), 0.1), "{read}");
        let flush = small(&learner, IoClass::NoData);
        assert!(near(flush, DEAR_WRITES.cost(IoClass::NoData, 0), 2.0 * part), "{flush}");
        let time = learner.report().reference;
        assert!(near(time.0 as f64, 512_000.0, part), "{time}");
    }
}

#[test]
fn what_cannot_be_told_apart_stays_as_declared() {
    let mut learner = learner();
    let lots = [lot(IoClass::ReadRandom, 700, 4), lot(IoClass::WriteRandom, 140, 64)];
    for n in 0..5_000 {
        let factor = 1.0 + 0.1 * (dice(n) - 0.5);
        learner.learn(&sample(&lots, DEAR_WRITES.time(&lots) * factor));
    }
    let table = CostTable::declared(Bytes::from_kib(300));
    for class in IoClass::ALL {
        let declared = table.cost_of(class, Bytes::from_kib(64)).as_millionths() as f64 / 1e6;
        let cost = large(&learner, class);
        assert!(near(cost, declared, 0.25), "{class:?}: {cost}, declared {declared}");
    }
}

#[test]
fn one_kind_of_request_changes_no_cost_whatever_the_device_does() {
    let mut learner = learner();
    let lots = [lot(IoClass::WriteRandom, 500, 64)];
    for n in 0..2_000 {
        learner.learn(&sample(&lots, 1e9 * (0.2 + 5.0 * dice(n))));
    }
    let declared = CostTable::declared(Bytes::from_kib(300));
    let of = |class| declared.cost_of(class, Bytes::from_kib(4)).as_millionths() as f64 / 1e6;
    for class in [IoClass::ReadRandom, IoClass::WriteSequential, IoClass::WriteRandom] {
        assert!(near(small(&learner, class), of(class), 0.01), "{class:?}");
    }
}

#[test]
fn what_was_learned_of_a_class_stays_while_nobody_sends_such() {
    let mut learner = learner();
    mixed(&DEAR_WRITES, 0..300, 0.05, &mut learner);
    let before = small(&learner, IoClass::WriteRandom);
    for n in 0..3_600 {
        let lots = second(
            &DEAR_WRITES,
            &[(IoClass::ReadRandom, 4, 0.2 + 0.6 * dice(n)), (IoClass::ReadRandom, 256, 0.3)],
        );
        let factor = 1.0 + 0.1 * (dice(n + 9_000) - 0.5);
        learner.learn(&sample(&lots, DEAR_WRITES.time(&lots) * factor));
    }
    let after = small(&learner, IoClass::WriteRandom);
    assert!(near(after, before, 0.05), "{before} became {after}");
}

#[test]
fn a_stall_is_no_cost_of_what_was_sent_beside_it() {
    let mut learner = learner();
    mixed(&DEAR_WRITES, 0..300, 0.05, &mut learner);
    let before = small(&learner, IoClass::WriteRandom);
    let lots = second(&DEAR_WRITES, &[(IoClass::WriteRandom, 4, 1.0)]);
    learner.learn(&sample(&lots, 15e9));
    let after = small(&learner, IoClass::WriteRandom);
    assert!(near(after, before, 0.03), "{before} became {after}");
    mixed(&DEAR_WRITES, 300..320, 0.05, &mut learner);
    assert!(near(small(&learner, IoClass::WriteRandom), before, 0.05));
}

#[test]
fn storage_that_becomes_slower_for_all_keeps_its_costs() {
    let mut learner = learner();
    mixed(&DEAR_WRITES, 0..300, 0.05, &mut learner);
    let before = small(&learner, IoClass::WriteRandom);
    let slower = Truth {
        request: DEAR_WRITES.request.map(|t| 4.0 * t),
        kib: DEAR_WRITES.kib.map(|t| 4.0 * t),
    };
    for n in 50..60 {
        mixed(&slower, 6 * n..6 * n + 6, 0.05, &mut learner);
        let after = small(&learner, IoClass::WriteRandom);
        assert!(near(after, before, 0.25), "{before} became {after}");
    }
    let after = small(&learner, IoClass::WriteRandom);
    assert!(near(after, before, 0.1), "{before} became {after}");
    assert!(near(learner.report().reference.0 as f64, 2_048_000.0, 0.1));
}

#[test]
fn a_class_that_becomes_dear_is_found_out() {
    let mut learner = learner();
    let cheap = Truth { request: [500.0, 50.0, 150.0, 100.0, 900.0], ..DEAR_WRITES };
    mixed(&cheap, 0..600, 0.05, &mut learner);
    assert!(small(&learner, IoClass::WriteRandom) < 0.4);
    mixed(&DEAR_WRITES, 600..660, 0.05, &mut learner);
    let soon = small(&learner, IoClass::WriteRandom);
    assert!(soon > 1.0, "{soon} after a minute");
    mixed(&DEAR_WRITES, 660..900, 0.05, &mut learner);
    let found = small(&learner, IoClass::WriteRandom);
    assert!(near(found, 7.84, 0.2), "{found}");
}

#[test]
fn a_cost_rises_by_a_tenth_and_falls_by_a_twentieth_in_a_stretch() {
    let mut learner = learner();
    let mut before = [1.0; 5];
    let mut most = (1.0f64, 1.0f64);
    for n in 0..400 {
        let truth = if n < 200 {
            DEAR_WRITES
        } else {
            Truth { request: [500.0, 50.0, 150.0, 100.0, 900.0], ..DEAR_WRITES }
        };
        mixed(&truth, n..n + 1, 0.05, &mut learner);
        let now: [f64; 5] = core::array::from_fn(|class| learner.base[class]);
        if n > 0 {
            for class in 0..5 {
                let ratio = now[class] / before[class];
                most = (most.0.max(ratio), most.1.min(ratio));
            }
        }
        before = now;
    }
    assert!(most.0 <= 1.1 + 1e-9 && most.0 > 1.05, "{most:?}");
    assert!(most.1 >= 0.95 - 1e-9 && most.1 < 0.97, "{most:?}");
}

proptest! {
    #[test]
    fn no_course_of_events_leaves_the_bounds(
        stretches in prop::collection::vec(
            (0u64..u64::MAX, prop::array::uniform5(0u32..), prop::array::uniform5(0u64..)),
            1..60,
        ),
        shift in 0u32..40,
        reference in 512u64..1 << 32,
    ) {
        let mut learner = CostLearner::new(Nanos::ZERO, Bytes(reference));
        for (busy, requests, bytes) in stretches {
            let bytes = bytes.map(|b| b >> shift);
            let squares = bytes.map(|b| b >> 10);
            let requests = requests.map(|n| n >> (shift / 2));
            let table = learner.learn(&Sample {
                busy: Nanos(busy >> shift), requests, bytes, squares,
            });
            for class in IoClass::ALL {
                let cost = |bytes| table.cost_of(class, Bytes(bytes));
                prop_assert!(cost(0) >= CostTable::LEAST);
                prop_assert!(cost(u64::MAX) <= Cost::MAX);
                prop_assert!(cost(65_536) <= Cost::from_ios(200), "{:?} {}", class, cost(65_536));
                prop_assert!(cost(4_096) <= cost(65_536));
            }
            let one = table.cost_of(IoClass::ReadRandom, REFERENCE).as_millionths();
            prop_assert!(one.abs_diff(1_000_000) <= 2, "{one}");
        }
    }
}

/// Costs decide what is sent, so a run that is repeated elsewhere has to have the same to the bit.
/// The figures are of an x86-64; another machine has to come to them as well.
#[test]
fn arithmetic_is_the_same_on_every_machine() {
    let mut learner = learner();
    mixed(&DEAR_WRITES, 0..100, 0.2, &mut learner);
    let table = learner.table();
    let of = |class: IoClass| table.cost_of(class, Bytes::from_kib(64)).as_millionths();
    assert_eq!(IoClass::ALL.map(of), [1_508_680, 547_551, 7_475_523, 947_553, 2_142_233]);
}
