//! Section 4: the device model, BA-6 to BA-9.

use crate::rig::*;
use headgate_devices::{ArraySpec, CachePower, DiskKind, Raid};
use headgate_placement::*;
use headgate_stats::Interval;
use headgate_units::{Bytes, Nanos};

fn array(spindles: u32) -> ArraySpec {
    ArraySpec::new(spindles, Raid::Raid5)
        .unwrap()
        .with_cache(Bytes::from_gib(16), CachePower::Battery)
        .unwrap()
}

const RANDOM_READS: Work =
    Work { outstanding: 8, kib: 8, read: 100, random: 100, think: Nanos::ZERO };

/// Intervals of 2 s in which the number of random reads outstanding varies.
fn reads_of_all_depths(spec: &ArraySpec, depths: (u64, u64)) -> Vec<Interval> {
    let mut rig = Rig::new(spec, CAPACITY);
    rig.add(RANDOM_READS, (0, 100 * GIB), 1);
    let mut dice = Dice::new(7);
    (0..60)
        .map(|_| {
            rig.set_outstanding(0, (depths.0 + dice.roll(depths.1 - depths.0)) as u32);
            rig.measure(Nanos::from_secs(2))
        })
        .collect()
}

fn learn(intervals: &[Interval]) -> DeviceModel {
    let points = intervals
        .iter()
        .filter_map(|interval| DevicePoint::of(interval, Held::No, &Filters::default()).ok());
    DeviceModel::learn(&points.collect::<Vec<_>>()).unwrap()
}

/// BA-6, figure 6.
#[test]
fn the_slope_is_inverse_to_the_number_of_disks() {
    let models =
        [4, 8, 12, 16].map(|disks| (disks, learn(&reads_of_all_depths(&array(disks), (8, 65)))));
    models.iter().for_each(|(disks, model)| println!("{disks} disks: {model}"));
    let products: Vec<f64> = models
        .iter()
        .map(|(disks, model)| f64::from(*disks) * model.slope.as_millis_f64())
        .collect();
    let mean = products.iter().sum::<f64>() / 4.0;
    assert!(products.iter().all(|product| (product / mean - 1.0).abs() < 0.15), "{products:?}");
    assert!(models.windows(2).all(|pair| pair[0].1.slope > pair[1].1.slope));
    assert!(models.iter().all(|(_, model)| model.evidence == Evidence::Rise));
}

/// BA-7, figure 7: abilities are as what the disks can do.
#[test]
fn faster_disks_have_a_smaller_slope() {
    let of = |kind| {
        let spec = array(7).with_disk(kind);
        let busiest =
            alone(&spec, Work { outstanding: 64, ..RANDOM_READS }, 100 * GIB, Nanos::from_secs(10));
        (learn(&reads_of_all_depths(&spec, (8, 65))), busiest.iops)
    };
    let ((fc, fc_rate), (sata, sata_rate)) = (of(DiskKind::Fc15k), of(DiskKind::Sata7k));
    println!("FC: {fc}, {fc_rate:.0} IOPS\nSATA: {sata}, {sata_rate:.0} IOPS");
    let (abilities, rates) = (fc.slope.ability() / sata.slope.ability(), fc_rate / sata_rate);
    assert!((abilities / rates - 1.0).abs() < 0.15, "{abilities} and {rates}");
}

/// A database that reads, and now and then writes a lot at once into the cache.
fn database(spindles: u32) -> Vec<Interval> {
    let mut rig = Rig::new(&array(spindles), CAPACITY);
    rig.add(RANDOM_READS, (0, 100 * GIB), 1);
    rig.add(Work { outstanding: 0, read: 0, ..RANDOM_READS }, (100 * GIB, 10 * GIB), 2);
    let mut dice = Dice::new(3);
    (0..60)
        .map(|_| {
            rig.set_outstanding(0, 8 + dice.roll(33) as u32);
            let before = rig.snapshot();
            if dice.roll(2) == 0 {
                rig.set_outstanding(1, 64);
                rig.run(Nanos::from_millis(400));
                rig.set_outstanding(1, 0);
            }
            rig.run(Nanos::from_millis(if rig.snapshot().at.0 > before.at.0 {
                1_600
            } else {
                2_000
            }));
            rig.snapshot().since(&before)
        })
        .collect()
}

/// BA-8 and BA-9, figures 8 and 9.
#[test]
fn cached_writes_turn_the_slope_around_and_reads_alone_turn_it_back() {
    let models = [4, 8].map(|spindles| {
        let intervals = database(spindles);
        let all = |interval: &Interval| {
            (interval.reads.at_device + interval.writes.at_device, mean_latency(interval) / 1e6)
        };
        let (slope, _) = line(&intervals.iter().map(all).collect::<Vec<_>>());
        let raw: Vec<DevicePoint> = intervals
            .iter()
            .map(|interval| DevicePoint {
                outstanding: Outstanding::of(all(interval).0),
                latency: Nanos((all(interval).1 * 1e6) as u64),
                size: Bytes::from_kib(8),
                random: Permille(1_000),
            })
            .collect();
        let refused = DeviceModel::learn(&raw);
        println!("{spindles} disks, all requests: {slope:.2} ms for each outstanding; {refused:?}");
        assert!(
            slope < 0.0 && matches!(refused, Err(Refusal::Falls { .. })),
            "{slope} {refused:?}"
        );
        let model = learn(&intervals);
        println!("{spindles} disks, reads: {model}");
        model
    });
    let ratio = models[0].slope.as_millis_f64() / models[1].slope.as_millis_f64();
    assert!((ratio / 2.0 - 1.0).abs() < 0.3, "{ratio}");
}

/// The filters of section 4.2, and ours.
#[test]
fn intervals_that_say_nothing_of_the_device_are_left_out() {
    let interval = |work: Work| alone(&array(4), work, 100 * GIB, Nanos::from_secs(2));
    let point = |work, held| DevicePoint::of(&interval(work), held, &Filters::default());
    let busy = Work { outstanding: 16, ..RANDOM_READS };
    let taken = point(busy, Held::No);
    assert!(
        matches!(taken, Ok(p) if p.outstanding.as_f64().round() == 16.0 && p.random > Permille(950)),
        "{taken:?}"
    );
    let mut totals = Totals::default();
    for (work, held, why) in [
        (busy, Held::ByLimit, LeftOut::Limited),
        (busy, Held::ByWindow, LeftOut::Windowed),
        (Work { read: 0, ..busy }, Held::No, LeftOut::FewReads),
        (Work { kib: 128, ..busy }, Held::No, LeftOut::Large),
        (Work { random: 0, outstanding: 1, ..busy }, Held::No, LeftOut::Sequential),
    ] {
        let left_out = point(work, held);
        totals.count_why(left_out.err());
        assert_eq!(left_out, Err(why), "{work:?}");
    }
    totals.count_why(taken.err());
    assert_eq!((totals.taken, totals.left_out), (1, [1; 5]));
    assert!(
        totals
            .to_string()
            .starts_with("1 intervals; left out: 1 (requests waited for a disk's limit), 1 (")
    );
}
