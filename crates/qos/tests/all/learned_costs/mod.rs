//! What disks get of a device's time where costs are learned, beside the declared models in the
//! same set-ups. The device is one server, so its time has no other owner than the request in it.

mod bench;

use bench::{Bench, Device, Load, Request, SECOND, affine, is_write};
use headgate_qos::IoClass;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const READS: Load = Load::reads(32, 4);
const WRITES: Load = Load::writes(32, 64);

/// A random read of 4 KiB takes 512 us, a random write eight times as long.
fn dear_writes() -> impl Fn(&Request, u64) -> f64 {
    affine((500.0, 3.0), (4_000.0, 3.0))
}

/// What the first disk gets of the device, in thousandths, in the span after so many seconds.
fn first(model: &str, device: Device, loads: &[Load], after: u64, span: u64) -> u64 {
    let mut bench = Bench::new(model, 32, device, loads);
    bench.run(after);
    bench.run(span)[0]
}

#[test]
fn disks_with_equal_shares_get_equal_time() {
    type Row = ([Load; 2], (f64, f64), (f64, f64), u64);
    // Reads and writes: us for a request and for a KiB. The last is how far from a half learned
    // costs may leave it.
    let rows: [Row; 5] = [
        ([READS, WRITES], (500.0, 3.0), (4_000.0, 3.0), 30),
        ([READS, WRITES], (500.0, 3.0), (500.0, 3.0), 50),
        ([READS, Load::writes(32, 4)], (100.0, 1.0), (300.0, 1.0), 30),
        ([READS, Load::reads(32, 256)], (100.0, 10.0), (100.0, 1.0), 30),
        ([READS, Load::reads(32, 64).in_order()], (5_000.0, 10.0), (1.0, 1.0), 100),
    ];
    for (loads, read, write, bound) in rows {
        let of = |model| first(model, Device::new(affine(read, write)), &loads, 180, 120);
        let (unit, declared, learned) = (of("unit"), of("affine=300K"), of("learned"));
        println!("{loads:?}: unit {unit}, affine {declared}, learned {learned}");
        assert!(learned.abs_diff(500) <= bound, "{loads:?}: {learned}, unit {unit}");
        if unit.abs_diff(500) > 2 * bound {
            assert!(declared.abs_diff(500) > 2 * learned.abs_diff(500), "{loads:?}: {declared}");
        }
    }
}

#[test]
fn shares_divide_the_time() {
    use headgate_qos::Policy;
    use headgate_units::{Nanos, Shares};
    let mut bench = Bench::new("learned", 32, Device::new(dear_writes()), &[READS, WRITES]);
    let three = Policy::shared(Shares::new(3_000).unwrap());
    bench.gate.set_policy(Nanos::ZERO, bench.disks[1], three).unwrap();
    bench.run(180);
    let got = bench.run(120);
    assert!(got[0].abs_diff(250) <= 20, "{got:?}");
}

#[test]
fn phases_of_one_kind_and_then_the_other_are_enough_to_know_both() {
    let mut bench = Bench::new("learned", 32, Device::new(dear_writes()), &[READS, WRITES]);
    for phase in 0..6 {
        bench.loads = vec![READS, WRITES];
        bench.loads[phase % 2].outstanding = 0;
        bench.run(20);
    }
    bench.loads = vec![READS, WRITES];
    let got = bench.run(10);
    assert!(got[0].abs_diff(500) <= 40, "{got:?}");
    let writes = bench.costs().classes[IoClass::WriteRandom.index()];
    assert!((7_000_000..9_000_000).contains(&writes.large.as_millionths()), "{writes:?}");
}

#[test]
fn a_device_that_is_not_busy_teaches_nothing() {
    let few = [Load::reads(4, 4), Load::writes(4, 64)];
    let mut bench = Bench::new("learned", 32, Device::new(dear_writes()), &few);
    let before = bench.costs();
    bench.run(60);
    assert_eq!(bench.costs(), before);
}

#[test]
fn stalls_are_nobodys_cost() {
    for (long, every, bound) in [(SECOND, 5 * SECOND, 60), (3 * SECOND, 60 * SECOND, 40)] {
        let device = || Device { stall: Some((long, every)), ..Device::new(dear_writes()) };
        let of = |model| first(model, device(), &[READS, WRITES], 120, 240);
        let (unit, learned) = (of("unit"), of("learned"));
        assert!(learned.abs_diff(500) <= bound && unit < 150, "{learned}, unit {unit}");
    }
}

#[test]
fn a_device_that_changes_is_learned_anew() {
    let slower = || {
        let before = dear_writes();
        Device::new(move |request, now| {
            before(request, now) * if now > 200 * SECOND { 4.0 } else { 1.0 }
        })
    };
    let learned = first("learned", slower(), &[READS, WRITES], 200, 120);
    assert!(learned.abs_diff(500) <= 60, "slower for all: {learned}");
    let dearer = || {
        let before = dear_writes();
        Device::new(move |request, now| {
            before(request, now) * if is_write(request) && now > 200 * SECOND { 2.0 } else { 1.0 }
        })
    };
    let at_once = first("learned", dearer(), &[READS, WRITES], 200, 60);
    let later = first("learned", dearer(), &[READS, WRITES], 440, 120);
    let unit = first("unit", dearer(), &[READS, WRITES], 440, 120);
    assert!(at_once > 300 && later > 430 && unit < 70, "{at_once}, {later}, unit {unit}");
}

/// A guest sends writes that cost little until they are cheap, and then some that cost much.
#[test]
fn who_was_cheap_and_becomes_dear_gains_for_two_minutes() {
    let device = || {
        let (cheap, dear) = (affine((500.0, 3.0), (60.0, 0.0)), dear_writes());
        Device::new(move |request, now| match now < 600 * SECOND {
            true => cheap(request, now),
            false => dear(request, now),
        })
    };
    let mut bench = Bench::new("learned", 32, device(), &[READS, WRITES]);
    bench.run(600);
    let cost = bench.costs().classes[IoClass::WriteRandom.index()].small;
    assert!(cost.as_millionths() >= 250_000, "a quarter at the least: {cost}");
    let course: Vec<u64> = (0..4).map(|_| bench.run(60)[0]).collect();
    println!("the reader, minute by minute: {course:?}");
    let unit = first("unit", device(), &[READS, WRITES], 600, 240);
    assert!(course[0] >= 25 && unit < 150, "{course:?}, unit {unit}");
    assert!(course[2] > 400 && course[3] > 450, "{course:?}");
}

/// Writes leave work behind that reads have to wait for, in every other two seconds.
#[test]
fn work_that_is_put_off_gains_no_more_than_under_declared_costs_by_much() {
    let device = || {
        let debt = Rc::new(Cell::new(0.0f64));
        Device::new(move |request, now| {
            if is_write(request) {
                debt.set(debt.get() + 3_500_000.0);
                return 500_000.0;
            }
            let pays = match now / (2 * SECOND) % 2 {
                0 => 0.0,
                _ => debt.get().min(2_000_000.0),
            };
            debt.set(debt.get() - pays);
            500_000.0 + pays
        })
    };
    let rate = |model| {
        let mut bench = Bench::new(model, 32, device(), &[READS, WRITES]);
        bench.run(120);
        let before = bench.done[0];
        bench.run(240);
        bench.done[0] - before
    };
    let (declared, learned) = (rate("affine=300K"), rate("learned"));
    println!("reads: declared {declared}, learned {learned}");
    assert!(learned * 10 >= declared * 8, "declared {declared}, learned {learned}");
}

/// The writer sees how fast it is served, takes that for the sign of the variation, and sends
/// writes that cost less while it is served faster, so that more of them seem to cost nothing.
#[test]
fn who_leans_against_the_variation_gains_little() {
    let device = || {
        let before = dear_writes();
        let gaps = Rc::new(RefCell::new((0u64, 0.0f64, 0.0f64)));
        Device::new(move |request, now| {
            let takes = before(request, now);
            if !is_write(request) {
                return takes;
            }
            let mut gaps = gaps.borrow_mut();
            let gap = (now - std::mem::replace(&mut gaps.0, now)) as f64;
            gaps.1 += (gap - gaps.1) / 30.0;
            gaps.2 += (gap - gaps.2) / 600.0;
            takes * if gaps.1 < gaps.2 { 0.85 } else { 1.15 }
        })
    };
    let learned = first("learned", device(), &[READS, WRITES], 240, 600);
    let unit = first("unit", device(), &[READS, WRITES], 240, 600);
    assert!((380..620).contains(&learned) && unit < 150, "{learned}, unit {unit}");
}

#[test]
fn a_flood_of_huge_requests_and_of_none_breaks_nothing() {
    let loads = [READS, Load::writes(64, 4 << 20), Load::reads(64, 0)];
    let mut bench = Bench::new("learned", 32, Device::new(dear_writes()), &loads);
    bench.run(120);
    let costs = bench.costs();
    assert!(costs.classes.iter().all(|class| class.large.as_millionths() <= 200_000_000));
    assert!(bench.done[0] > 0, "the reader is served");
}

#[test]
fn the_same_events_give_the_same_costs() {
    let run = || {
        let mut bench = Bench::new("learned", 32, Device::new(dear_writes()), &[READS, WRITES]);
        bench.run(60);
        (bench.costs(), bench.done)
    };
    assert_eq!(run(), run());
}
