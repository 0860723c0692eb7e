//! What is learnt of known arrays where all intervals are second choice: under a window or a limit
//! that always binds, and of large requests only.

use crate::rig::*;
use headgate_devices::{ArraySpec, CachePower, DiskKind, Raid};
use headgate_placement::*;
use headgate_stats::Interval;
use headgate_units::{Bytes, Nanos};

const READS: Work = Work { outstanding: 8, kib: 8, read: 100, random: 100, think: Nanos::ZERO };
const INTERVAL: Nanos = Nanos::from_secs(2);

fn array(spindles: u32, disk: DiskKind) -> ArraySpec {
    let spec = ArraySpec::new(spindles, Raid::Raid5).unwrap().with_disk(disk);
    spec.with_cache(Bytes::from_gib(16), CachePower::Battery).unwrap()
}

/// One client that keeps 8 to 64 outstanding, another number in each interval.
fn varied(spec: &ArraySpec, work: Work) -> Vec<Interval> {
    let mut rig = Rig::new(spec, CAPACITY);
    rig.add(work, (0, 100 * GIB), 1);
    let mut dice = Dice::new(7);
    (0..60)
        .map(|_| {
            rig.set_outstanding(0, 8 + dice.roll(57) as u32);
            rig.measure(INTERVAL)
        })
        .collect()
}

fn sort(intervals: &[Interval], held: Held) -> Vec<DeviceInterval> {
    intervals
        .iter()
        .map(|interval| DeviceInterval::of(interval, held, &Filters::default()))
        .collect()
}

/// What the array can do, learnt with nothing in the way.
fn truth(spec: &ArraySpec) -> DeviceModel {
    DeviceModel::learn_from(&sort(&varied(spec, READS), Held::No)).unwrap()
}

/// How far a slope is from another.
fn ratio(model: &DeviceModel, truth: &DeviceModel) -> f64 {
    model.slope.as_millis_f64() / truth.slope.as_millis_f64()
}

/// Its clients always want more than the window lets through: the device is always at one load.
#[test]
fn under_a_window_that_always_binds_an_array_is_as_good_as_its_throughput() {
    let learnt = [4, 8].map(|spindles| {
        let spec = array(spindles, DiskKind::Fc15k);
        let mut rig = Rig::new(&spec, CAPACITY);
        rig.add(READS, (0, 100 * GIB), 1);
        rig.set_outstanding(0, 32);
        let intervals: Vec<Interval> = (0..60).map(|_| rig.measure(INTERVAL)).collect();
        let held = sort(&intervals, Held::ByWindow);
        assert_eq!(
            DevicePoint::of(&intervals[0], Held::ByWindow, &Filters::default()),
            Err(LeftOut::Windowed)
        );
        let (model, truth) = (DeviceModel::learn_from(&held).unwrap(), truth(&spec));
        println!("{spindles} disks: {model}\n  instead of {truth}");
        assert_eq!((model.evidence, model.doubts.held, model.low), (Evidence::Steady, 60, 0));
        assert!((0.9..1.8).contains(&ratio(&model, &truth)), "{model} instead of {truth}");
        model
    });
    let abilities = learnt[1].slope.ability() / learnt[0].slope.ability();
    assert!((abilities / 2.0 - 1.0).abs() < 0.3, "{abilities}");
}

/// A window that its operator sets anew now and then, and that binds each time.
#[test]
fn windows_that_differ_show_how_latency_rises() {
    let spec = array(4, DiskKind::Fc15k);
    let held = sort(&varied(&spec, READS), Held::ByWindow);
    let (model, truth) = (DeviceModel::learn_from(&held).unwrap(), truth(&spec));
    assert_eq!((model.slope, model.doubts.held), (truth.slope, 60), "the device saw the same");
}

/// A disk's requests are let through one by one, as fast as its limit says; another rate in each
/// interval.
#[test]
fn under_limits_that_always_bind_the_slope_is_that_of_the_device() {
    let spec = array(4, DiskKind::Fc15k);
    let mut rig = Rig::new(&spec, CAPACITY);
    rig.add(Work { outstanding: 0, ..READS }, (0, 50 * GIB), 1);
    rig.add(READS, (50 * GIB, 50 * GIB), 2);
    let mut dice = Dice::new(11);
    let intervals: Vec<Interval> = (0..60)
        .map(|_| {
            let (rate, other) = (100 + dice.roll(300), 4 + dice.roll(28) as u32);
            rig.set_outstanding(1, other);
            let before = rig.snapshot();
            for _ in 0..rate * 2 {
                rig.issue_one(0);
                rig.run(Nanos(1_000_000_000 / rate));
            }
            rig.snapshot().since(&before)
        })
        .collect();
    let (model, truth) =
        (DeviceModel::learn_from(&sort(&intervals, Held::ByLimit)).unwrap(), truth(&spec));
    println!("{model}\n  instead of {truth}");
    assert_eq!((model.evidence, model.doubts.held), (Evidence::Rise, 60));
    assert!((ratio(&model, &truth) - 1.0).abs() < 0.2, "{model} instead of {truth}");
}

/// Requests above 32 KiB only. Equation 1 brings them to 8 KiB: within two fifths of what 8 KiB
/// show, and always within what the model admits.
#[test]
fn large_requests_tell_the_slope_of_small_ones_within_what_is_admitted() {
    for (spindles, disk) in [(4, DiskKind::Fc15k), (4, DiskKind::Sata7k), (8, DiskKind::Fc15k)] {
        let spec = array(spindles, disk);
        let truth = truth(&spec);
        for kib in [64, 128, 256] {
            let large = sort(&varied(&spec, Work { kib, ..READS }), Held::No);
            assert!(large.iter().all(|interval| interval.why() == Some(LeftOut::Large)));
            let model = DeviceModel::learn_from(&large).unwrap();
            println!("{spindles} disks, {kib} KiB: {model}\n  instead of {truth}");
            assert_eq!(model.doubts.large, 60);
            assert!(
                (ratio(&model, &truth) - 1.0).abs() < 0.45,
                "{kib} KiB: {model} instead of {truth}"
            );
            let slope = truth.slope.as_picos();
            assert!(
                model.low <= slope && slope <= model.high,
                "{kib} KiB: {model} instead of {truth}"
            );
        }
    }
}

/// The intervals of a day become hours; the line is still there.
#[test]
fn hours_have_the_line_of_their_intervals() {
    let spec = array(4, DiskKind::Fc15k);
    let intervals = sort(&varied(&spec, READS), Held::No);
    let hours: Vec<Coarse> =
        intervals.chunks(20).map(|hour| Coarse::of(hour.iter().copied())).collect();
    let (model, truth) = (DeviceModel::learn_coarsely(&hours).unwrap(), truth(&spec));
    println!("{model}\n  instead of {truth}");
    assert!((ratio(&model, &truth) - 1.0).abs() < 0.05, "{model} instead of {truth}");
    assert!(model.low < truth.low && truth.high < model.high, "{model} instead of {truth}");
}
