//! Section 3: the workload model, BA-1 to BA-5.

use crate::rig::*;
use headgate_devices::{ArraySpec, CachePower, Raid};
use headgate_placement::*;
use headgate_units::{Bytes, Nanos};
use std::collections::BTreeMap;
use std::sync::OnceLock;

const OUTSTANDING: [u32; 5] = [4, 8, 16, 32, 64];
const SIZES: [u32; 6] = [8, 16, 32, 128, 256, 512];
const PERCENT: [u32; 5] = [0, 25, 50, 75, 100];

/// An array whose cache takes all writes of an experiment.
fn cached(spindles: u32) -> ArraySpec {
    let spec = ArraySpec::new(spindles, Raid::Raid5).unwrap();
    spec.with_cache(Bytes::from_gib(16), CachePower::Battery).unwrap()
}

fn four_disks() -> &'static [Point] {
    static POINTS: OnceLock<Vec<Point>> = OnceLock::new();
    POINTS.get_or_init(|| sweep(&cached(4)))
}

struct Point {
    work: Work,
    /// Milliseconds.
    latency: f64,
}

impl Point {
    /// Where the model is known to be poor.
    fn is_corner(&self) -> bool {
        self.work.random == 0 || self.work.read == 0
    }

    fn error(&self, fit: &Fit) -> f64 {
        (fit.latency(&self.work.profile()).0 as f64 / 1e6 / self.latency - 1.0).abs()
    }
}

/// 750 configurations, each alone on the array for some seconds.
fn sweep(spec: &ArraySpec) -> Vec<Point> {
    let mut points = Vec::new();
    for outstanding in OUTSTANDING {
        for kib in SIZES {
            for read in PERCENT {
                for random in PERCENT {
                    let work = Work { outstanding, kib, read, random, think: Nanos::ZERO };
                    let interval = alone(spec, work, 100 * GIB, Nanos::from_secs(2));
                    points.push(Point { work, latency: mean_latency(&interval) / 1e6 });
                }
            }
        }
    }
    assert_eq!(points.len(), 750);
    points
}

fn measurements(points: &[Point]) -> Vec<Measurement> {
    let measured = |point: &Point| Measurement {
        profile: point.work.profile(),
        latency: Nanos((point.latency * 1e6) as u64),
    };
    points.iter().map(measured).collect()
}

/// Slope and R² of latency over one trait, for each combination of the others that a filter takes.
fn lines(
    points: &[Point],
    take: fn(&Work) -> bool,
    of: fn(&mut Work) -> &mut u32,
) -> Vec<(f64, f64)> {
    let mut series: BTreeMap<Work, Vec<(f64, f64)>> = BTreeMap::new();
    for point in points.iter().filter(|point| take(&point.work)) {
        let mut key = point.work;
        let value = std::mem::take(of(&mut key));
        series.entry(key).or_default().push((f64::from(value), point.latency));
    }
    series.values().map(|points| line(points)).collect()
}

/// The part of the variance that lines explain, of all but the worst tenth.
fn explained(lines: &[(f64, f64)]) -> f64 {
    percentile(&lines.iter().map(|&(_, explained)| explained).collect::<Vec<_>>(), 10)
}

fn errors(points: &[Point], fit: &Fit, take: fn(&Point) -> bool) -> Vec<f64> {
    points.iter().filter(|point| take(point)).map(|point| point.error(fit)).collect()
}

fn describe(what: &str, points: &[Point], fit: &Fit) -> (f64, f64, usize) {
    let inner = errors(points, fit, |point| !point.is_corner());
    let within = inner.iter().filter(|&&error| error <= 0.4).count() as f64 / inner.len() as f64;
    let all = percentile(&errors(points, fit, |_| true), 50);
    let mut worst: Vec<&Point> = points.iter().collect();
    worst.sort_by(|a, b| b.error(fit).total_cmp(&a.error(fit)));
    let corners = worst[..points.len() / 10].iter().filter(|point| point.is_corner()).count();
    let Constants { outstanding, size, read, random } = fit.constants;
    println!(
        "{what}: K1 {:.2}, K2 {size}, K3 {:.2}, K4 {:.2}, K5 {:.0}; median error {:.1} %, away from corners {:.1} % are within \
         40 %; {corners} of the worst tenth, {}, are all-write or all-sequential",
        outstanding.as_f64(),
        read.as_f64(),
        random.as_f64(),
        fit.per_millisecond.as_f64(),
        all * 100.0,
        within * 100.0,
        points.len() / 10,
    );
    (all, within, corners)
}

/// BA-1, figure 2.
#[test]
fn latency_is_linear_in_each_trait_but_for_sequential_work() {
    let points = four_disks();
    let outstanding =
        lines(points, |w| w.outstanding >= 8 && w.random > 0 && w.read > 0, |w| &mut w.outstanding);
    let size = lines(points, |w| w.random == 100 && w.read > 0, |w| &mut w.kib);
    let read = lines(points, |w| w.random > 0, |w| &mut w.read);
    println!(
        "R² of all but the worst tenth: outstanding {:.3}, size {:.3}, reads {:.3}",
        explained(&outstanding),
        explained(&size),
        explained(&read)
    );
    assert!(explained(&outstanding) >= 0.95);
    // Beyond the stripe unit of 64 KiB several disks serve one request: size bends the line a
    // little.
    assert!(explained(&size) >= 0.9 && explained(&read) >= 0.9);
    for slopes in [&outstanding, &size, &read] {
        assert!(slopes.iter().all(|&(slope, _)| slope > 0.0));
    }

    // Reads from the disks are much slower than writes into the cache; the first jumps are what
    // costs.
    let at = |read: u32, random: u32| {
        let found = points
            .iter()
            .find(|p| p.work == Work { outstanding: 16, kib: 8, read, random, think: Nanos::ZERO });
        found.unwrap().latency
    };
    assert!(at(100, 100) > 8.0 * at(0, 100), "{} and {}", at(100, 100), at(0, 100));
    assert!(at(100, 0) < 0.6 * at(100, 25), "{} and {}", at(100, 0), at(100, 25));
}

/// BA-2, figure 3.
#[test]
fn the_model_is_good_but_for_work_that_is_all_writes_or_all_sequential() {
    let points = four_disks();
    let by_pairs = fit_by_pairs(&measurements(points)).unwrap();
    let (error, within, corners) = describe("by pairs", points, &by_pairs);
    assert!(error <= 0.25 && within >= 0.7 && corners >= 60, "{error} {within} {corners}");
    let by_squares = fit_by_least_squares(&measurements(points)).unwrap();
    let (error, within, corners) = describe("by least squares", points, &by_squares);
    assert!(error <= 0.3 && within >= 0.7 && corners >= 60, "{error} {within} {corners}");
}

/// BA-3, figure 3: twice the disks have the same constants, and another K5.
#[test]
fn the_constants_hold_for_twice_the_disks() {
    let first = fit_by_pairs(&measurements(four_disks())).unwrap();
    let points = sweep(&cached(8));
    let carried = Fit { per_millisecond: Load(first.per_millisecond.0 * 2), ..first };
    let (error, within, _) =
        describe("8 disks with the constants of 4 and twice K5", &points, &carried);
    let (own, _, _) =
        describe("8 disks by themselves", &points, &fit_by_pairs(&measurements(&points)).unwrap());
    println!("{:.1} points more than its own constants", (error - own) * 100.0);
    assert!(error <= own + 0.15 && within >= 0.6, "{error} {own} {within}");
    // Where all disks are waited for, and not the link to the array, which large requests fill. It
    // is less than twice: with as many requests outstanding each disk has half as many to choose
    // from. The slope alone is halved (BA-6).
    let scale = |points: &[Point]| {
        let busy: Vec<Measurement> = points
            .iter()
            .filter(|point| {
                !point.is_corner() && point.work.outstanding >= 32 && point.work.kib <= 32
            })
            .flat_map(|point| measurements(std::slice::from_ref(point)))
            .collect();
        Fit::with_constants(first.constants, &busy).unwrap().per_millisecond.0 as f64
    };
    let ratio = scale(&points) / scale(four_disks());
    println!("K5 of busy disks is {ratio:.2} times that of 4");
    assert!((1.4..2.2).contains(&ratio), "{ratio}");
}

/// BA-4 and BA-5, figures 4 and 5: writes as slow as reads.
#[test]
fn without_a_cache_reads_are_not_slower_and_sequential_work_is_overestimated() {
    let spec =
        ArraySpec::new(7, Raid::Raid0).unwrap().with_cache(Bytes(0), CachePower::Battery).unwrap();
    let points = sweep(&spec);
    let read = lines(&points, |w| w.random == 100, |w| &mut w.read);
    // Over all reads instead of none, in parts of the latency.
    let of_all: Vec<f64> = read.iter().map(|&(slope, _)| slope * 100.0).collect();
    assert!(percentile(&of_all, 90) < 1.0, "{of_all:?}");
    let fit = fit_by_pairs(&measurements(&points)).unwrap();
    describe("no cache", &points, &fit);
    assert!(fit.constants.read >= Permille(10_000), "reads do not matter: {:?}", fit.constants);
    let sequential: Vec<&Point> = points.iter().filter(|point| point.work.random == 0).collect();
    let over = |point: &&&Point| fit.latency(&point.work.profile()).0 as f64 / 1e6 > point.latency;
    assert!(sequential.iter().filter(over).count() * 10 >= sequential.len() * 9);

    // With a cache, sequential latency is no line over reads.
    let crooked = lines(four_disks(), |w| w.random == 0, |w| &mut w.read);
    assert!(median(crooked.iter().map(|&(_, explained)| explained).collect()) < 0.9, "{crooked:?}");
}
