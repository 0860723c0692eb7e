//! What a spindle array promises: relations that hold for real arrays.

use crate::common::{ClosedLoop, completion_times, scatter};
use headgate_devices::{
    ArraySpec, CachePower, DeviceIo, DeviceModel, DiskKind, IoKind, Raid, SpindleArray,
};
use headgate_units::{Bytes, Nanos};

const CAPACITY: Bytes = Bytes::from_gib(1_000);
const SMALL: u64 = 8 << 10;

fn spec(spindles: u32, raid: Raid) -> ArraySpec {
    ArraySpec::new(spindles, raid).unwrap()
}

fn uncached(spec: ArraySpec) -> ArraySpec {
    spec.with_cache(Bytes(0), CachePower::Battery).unwrap()
}

fn volatile(spec: ArraySpec) -> ArraySpec {
    spec.with_cache(Bytes::from_mib(64), CachePower::Volatile).unwrap()
}

fn array(spec: &ArraySpec) -> SpindleArray {
    SpindleArray::new(spec, CAPACITY)
}

/// Random requests of 8 KiB over the first `span` bytes.
fn random(
    spec: &ArraySpec,
    outstanding: usize,
    kind: IoKind,
    span: Bytes,
) -> ClosedLoop<SpindleArray> {
    let place = move |i| scatter(i) % (span.0 / SMALL) * SMALL;
    let io = move |i| DeviceIo { kind, offset: place(i), bytes: Bytes(SMALL) };
    ClosedLoop::with_io(array(spec), Nanos::ZERO, outstanding, io)
}

fn sequential(
    spec: &ArraySpec,
    outstanding: usize,
    kind: IoKind,
    size: u64,
) -> ClosedLoop<SpindleArray> {
    let io = move |i| DeviceIo { kind, offset: i * size, bytes: Bytes(size) };
    ClosedLoop::with_io(array(spec), Nanos::ZERO, outstanding, io)
}

/// Completions per second after a second of warming up.
fn iops(mut load: ClosedLoop<SpindleArray>) -> u64 {
    load.run_until(Nanos::from_secs(1));
    let before = load.completed;
    load.run_until(Nanos::from_secs(4));
    (load.completed - before) / 3
}

/// Megabytes per second, likewise.
fn bandwidth(mut load: ClosedLoop<SpindleArray>) -> u64 {
    load.run_until(Nanos::from_secs(1));
    let before = load.bytes;
    load.run_until(Nanos::from_secs(3));
    (load.bytes - before) / 2_000_000
}

#[test]
fn random_reads_reach_what_the_class_of_disk_is_known_for() {
    for (kind, alone, busy) in
        [(DiskKind::Fc15k, 140..=190, 200..=250), (DiskKind::Sata7k, 65..=85, 80..=100)]
    {
        for raid in [Raid::Raid0, Raid::Raid5] {
            let spec = spec(10, raid).with_disk(kind);
            let at_one = iops(random(&spec, 1, IoKind::Read, CAPACITY));
            assert!(alone.contains(&at_one), "{kind:?}: {at_one} at depth 1");
            let each = iops(random(&spec, 32, IoKind::Read, CAPACITY)) / 10;
            assert!(busy.contains(&each), "{kind:?}: {each} of each disk at depth 32");
        }
    }
}

#[test]
fn throughput_grows_with_depth_and_with_locality_and_with_spindles() {
    let spec_of = |spindles| spec(spindles, Raid::Raid0);
    let at_depth =
        [1, 4, 16, 64, 256].map(|depth| iops(random(&spec_of(10), depth, IoKind::Read, CAPACITY)));
    assert!(at_depth.windows(2).all(|pair| pair[1] * 10 > pair[0] * 12), "{at_depth:?}");
    let within = [1, 10, 100]
        .map(|part| iops(random(&spec_of(10), 32, IoKind::Read, Bytes(CAPACITY.0 / part))));
    assert!(within.windows(2).all(|pair| pair[1] * 10 > pair[0] * 12), "{within:?}");
    let with =
        [4, 8, 16].map(|n| iops(random(&spec_of(n), 8 * n as usize, IoKind::Read, CAPACITY)));
    assert!(with.windows(2).all(|pair| (pair[1] * 100 / pair[0]).abs_diff(200) < 12), "{with:?}");
}

/// With one request outstanding, and with as many as the elevators choose from; read and written
/// through a cache that fills up.
#[test]
fn in_slow_motion_the_same_is_done_in_so_many_times_the_time() {
    for (depth, kind) in [(1, IoKind::Read), (320, IoKind::Read), (64, IoKind::Write)] {
        let [at_once, slowly] = [1, 8].map(|slowdown| {
            let spec = spec(10, Raid::Raid5).with_slowdown(slowdown).unwrap();
            let mut load = random(&spec, depth, kind, CAPACITY);
            load.run_until(Nanos::from_secs(20 * u64::from(slowdown)));
            (load.completed, load.mean_latency().0 / u64::from(slowdown))
        });
        assert_eq!(at_once, slowly, "{kind:?} at depth {depth}");
    }
    for slowdown in [0, 65] {
        assert!(spec(10, Raid::Raid5).with_slowdown(slowdown).is_err());
    }
}

#[test]
fn littles_law_holds() {
    let mut load = random(&spec(10, Raid::Raid5), 32, IoKind::Read, CAPACITY);
    load.run_until(Nanos::from_secs(20));
    let outstanding = load.completed as f64 / 20.0 * load.mean_latency().as_secs_f64();
    assert!((outstanding - 32.0).abs() < 0.3, "{outstanding}");
}

/// Least squares: slope, and the part of the variance that the line explains.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let (x, y) =
        (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let sum = |f: fn(f64, f64) -> f64| points.iter().map(|p| f(p.0 - x, p.1 - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(|x, _| x * x), sum(|x, y| x * y), sum(|_, y| y * y));
    (xy / xx, xy * xy / xx / yy)
}

/// BASIL (FAST 2010), figures 2 and 6: what its device model rests on.
#[test]
fn latency_is_linear_in_outstanding_reads_with_a_slope_inverse_to_the_spindles() {
    let slope_by_spindles = |spindles| {
        let points = [8, 16, 32, 64].map(|outstanding| {
            let mut load =
                random(&spec(spindles, Raid::Raid5), outstanding, IoKind::Read, CAPACITY);
            load.run_until(Nanos::from_secs(5));
            (outstanding as f64, load.mean_latency().as_secs_f64() * 1e3)
        });
        let (slope, explained) = line(&points);
        assert!(explained > 0.95, "{spindles} spindles: {points:?}");
        slope * f64::from(spindles)
    };
    let slopes = [4, 8, 12, 16].map(slope_by_spindles);
    let mean = slopes.iter().sum::<f64>() / slopes.len() as f64;
    assert!(slopes.iter().all(|slope| (slope / mean - 1.0).abs() < 0.15), "{slopes:?}");
}

#[test]
fn small_random_raid5_writes_cost_about_four_times_as_much() {
    let write = |raid| iops(random(&uncached(spec(10, raid)), 64, IoKind::Write, CAPACITY));
    let tenths = write(Raid::Raid0) * 10 / write(Raid::Raid5);
    assert!((33..=45).contains(&tenths), "{tenths} / 10");
}

#[test]
fn whole_rows_cost_no_more_on_raid5() {
    // Nine data units of 64 KiB.
    let row = 9 * (64 << 10);
    let raid5 = bandwidth(sequential(&uncached(spec(10, Raid::Raid5)), 4, IoKind::Write, row));
    let raid0 = bandwidth(sequential(&uncached(spec(9, Raid::Raid0)), 4, IoKind::Write, row));
    assert!(raid5 * 100 >= raid0 * 95, "{raid5} and {raid0} MB/s");
    let ragged = bandwidth(sequential(&uncached(spec(10, Raid::Raid5)), 4, IoKind::Write, row / 2));
    assert!(ragged * 3 < raid5 * 2, "{ragged} and {raid5} MB/s");
}

#[test]
fn one_stream_runs_at_the_speed_of_the_media_and_many_disks_at_that_of_the_link() {
    let single = bandwidth(sequential(&spec(1, Raid::Raid0), 8, IoKind::Read, 64 << 10));
    assert!((95..=100).contains(&single), "{single} MB/s of 100");
    let many = bandwidth(sequential(&spec(10, Raid::Raid0), 32, IoKind::Read, 64 << 10));
    assert!((370..=400).contains(&many), "{many} MB/s of 400");
}

#[test]
fn the_cache_absorbs_a_burst_and_then_shows_the_disks() {
    for raid in [Raid::Raid0, Raid::Raid5] {
        let mut load = random(&spec(10, raid), 32, IoKind::Write, CAPACITY);
        // 256 MiB are 32,768 writes.
        load.run_until(Nanos::from_secs(1));
        let burst = load.completed;
        assert!(load.mean_latency() < Nanos::from_millis(2), "{}", load.mean_latency());
        load.run_until(Nanos::from_secs(8));
        let before = load.completed;
        load.run_until(Nanos::from_secs(10));
        let sustained = (load.completed - before) / 2;
        assert!(burst > 2 * sustained, "{burst} in the first second, then {sustained}");
        let directly = iops(random(&uncached(spec(10, raid)), 32, IoKind::Write, CAPACITY));
        assert!(sustained > directly, "sweeps: {sustained}, write by write: {directly}");
    }
}

#[test]
fn small_writes_of_a_stream_reach_the_disks_as_whole_rows() {
    let cached = bandwidth(sequential(&spec(10, Raid::Raid5), 32, IoKind::Write, 16 << 10));
    assert!(cached >= 270, "{cached} MB/s of 16 KiB writes: the link, not the read-modify-write");
}

fn write_then_flush(spec: &ArraySpec) -> (Nanos, Nanos) {
    let mut array = array(spec);
    (0..100).for_each(|i| array.submit(Nanos::ZERO, i, small(IoKind::Write, scatter(i))));
    let written = completion_times(&mut array, Nanos::ZERO).last().unwrap().1;
    array.submit(written, 100, small(IoKind::Flush, 0));
    // What comes after the flush is not waited for.
    (101..5_000).for_each(|i| array.submit(written, i, small(IoKind::Write, scatter(i))));
    let times = completion_times(&mut array, written);
    let flushed = times.iter().find(|&&(id, _)| id == 100).unwrap().1;
    (written, flushed - written)
}

fn small(kind: IoKind, offset: u64) -> DeviceIo {
    DeviceIo { kind, offset: offset % CAPACITY.0 / SMALL * SMALL, bytes: Bytes(SMALL) }
}

#[test]
fn a_flush_waits_for_the_disks_only_if_the_cache_has_no_battery() {
    let (written, flushed) = write_then_flush(&spec(10, Raid::Raid0));
    assert!(
        written < Nanos::from_millis(5) && flushed == Nanos::from_micros(500),
        "{written}, {flushed}"
    );
    let (written, flushed) = write_then_flush(&volatile(spec(10, Raid::Raid0)));
    assert!(written < Nanos::from_millis(5), "{written}");
    // 100 writes on 10 disks: at least 10 of some 2 ms one after the other, and no endless wait for
    // what follows.
    assert!((Nanos::from_millis(15)..Nanos::from_millis(200)).contains(&flushed), "{flushed}");
}

#[test]
fn without_a_battery_everything_written_before_a_flush_is_clean_after_it() {
    let mut array = array(&volatile(spec(5, Raid::Raid5)));
    let mut now = Nanos::ZERO;
    for round in 0..20 {
        (0..50).for_each(|i| array.submit(now, i, small(IoKind::Write, scatter(round * 50 + i))));
        now = completion_times(&mut array, now).last().unwrap().1;
        array.submit(now, 50, small(IoKind::Flush, 0));
        now = completion_times(&mut array, now).last().unwrap().1;
        array.submit(now, 51, small(IoKind::Flush, 0));
        let again = completion_times(&mut array, now).last().unwrap().1;
        assert_eq!(again - now, Nanos::from_micros(500), "nothing is left to wait for");
        now = again;
    }
}

#[test]
fn a_flush_is_not_held_up_by_readers() {
    let mut array = array(&volatile(spec(4, Raid::Raid0)));
    (0..50).for_each(|i| array.submit(Nanos::ZERO, i, small(IoKind::Write, scatter(i))));
    let mut now = completion_times(&mut array, Nanos::ZERO).last().unwrap().1;
    let start = now;
    (0..64).for_each(|i| array.submit(now, i, small(IoKind::Read, scatter(i))));
    array.submit(now, u64::MAX, small(IoKind::Flush, 0));
    for id in 64.. {
        now = array.next_event().unwrap();
        match array.poll(now) {
            Some(u64::MAX) => break,
            Some(_) => array.submit(now, id, small(IoKind::Read, scatter(id))),
            None => {}
        }
    }
    assert!(now - start < Nanos::from_millis(500), "{}", now - start);
}

#[test]
fn a_cache_more_than_half_full_makes_room_before_it_is_asked_to() {
    let spec = spec(1, Raid::Raid0).with_cache(Bytes(1_000 * SMALL), CachePower::Battery).unwrap();
    let mut array = array(&spec);
    let mut burst = |at: Nanos, ids: std::ops::Range<u64>| {
        ids.for_each(|i| array.submit(at, i, small(IoKind::Write, scatter(i))));
        completion_times(&mut array, at).last().unwrap().1 - at
    };
    assert!(burst(Nanos::ZERO, 0..600) < Nanos::from_millis(30));
    // Too young to be written back for its age.
    let second = burst(Nanos::from_millis(900), 600..1_090);
    assert!(second < Nanos::from_millis(30), "{second}");
}

#[test]
fn a_write_that_finds_no_room_is_made_room_for_at_once() {
    let spec = spec(4, Raid::Raid0).with_cache(Bytes(1_000 * SMALL), CachePower::Battery).unwrap();
    let mut array = array(&spec);
    (0..100).for_each(|i| array.submit(Nanos::ZERO, i, small(IoKind::Write, scatter(i))));
    let written = completion_times(&mut array, Nanos::ZERO).last().unwrap().1;
    array.submit(
        written,
        100,
        DeviceIo { kind: IoKind::Write, offset: 0, bytes: Bytes(950 * SMALL) },
    );
    let took = completion_times(&mut array, written)[0].1 - written;
    assert!(took < Nanos::from_millis(300), "{took}");
}

#[test]
fn what_is_in_the_cache_is_read_from_there() {
    let mut array = array(&spec(10, Raid::Raid5));
    array.submit(Nanos::ZERO, 0, small(IoKind::Write, 1 << 33));
    let written = completion_times(&mut array, Nanos::ZERO)[0].1;
    array.submit(written, 1, small(IoKind::Read, 1 << 33));
    let hit = completion_times(&mut array, written)[0].1;
    assert!(hit - written < Nanos::from_micros(600), "{}", hit - written);
    // Ten seconds later it is on the disks.
    let later = hit + Nanos::from_secs(10);
    array.submit(later, 2, small(IoKind::Read, 1 << 33));
    let missed = completion_times(&mut array, later)[0].1;
    assert!(missed - later > Nanos::from_micros(600), "{}", missed - later);
}

#[test]
fn what_the_cache_answers_is_counted() {
    let answered = |spec: &ArraySpec, kind, span| {
        let mut load = random(spec, 16, kind, span);
        load.run_until(Nanos::from_secs(2));
        (load.device.by_cache(), load.completed)
    };
    let (small, wide) = (Bytes::from_mib(16), Bytes::from_gib(500));
    let cached = spec(4, Raid::Raid5);
    // Those inside are counted already.
    let all = |(by_cache, completed): (Option<u64>, u64)| {
        let by_cache = by_cache.unwrap();
        (completed..=completed + 16).contains(&by_cache)
    };
    assert!(all(answered(&cached, IoKind::Write, small)), "it fits");
    let (by_cache, completed) = answered(&volatile(cached.clone()), IoKind::Write, wide);
    assert!(by_cache.unwrap() < completed, "{by_cache:?} of {completed}: most wait for room");
    assert_eq!(answered(&cached, IoKind::Read, wide).0, Some(0), "nothing was written");
    assert_eq!(answered(&uncached(cached), IoKind::Write, small).0, None);
}

#[test]
fn writing_back_does_not_hold_up_reads_until_the_cache_fills() {
    let read_latency = |writes_per_read: u64| {
        let io = move |i: u64| match i % (writes_per_read + 1) {
            0 => small(IoKind::Read, scatter(i)),
            _ => small(IoKind::Write, scatter(i)),
        };
        let mut load = ClosedLoop::with_io(array(&spec(10, Raid::Raid5)), Nanos::ZERO, 1, io);
        load.run_until(Nanos::from_secs(20));
        (load.mean_latency().0 * (writes_per_read + 1)) / 1_000_000
    };
    let (alone, beside_writes) = (read_latency(0), read_latency(1));
    assert!(
        beside_writes < 2 * alone + 2,
        "{alone} ms alone, {beside_writes} ms for a read and a write"
    );
}

#[test]
fn the_same_seed_gives_the_same_history_and_another_seed_another() {
    let history = |seed| {
        let io = |i: u64| {
            let kind = [IoKind::Read, IoKind::Write, IoKind::Write, IoKind::Flush]
                [(scatter(i) >> 60) as usize % 4];
            DeviceIo { kind, offset: scatter(i) % CAPACITY.0, bytes: Bytes(scatter(i) % 300_000) }
        };
        let spec = volatile(spec(6, Raid::Raid5)).with_seed(seed);
        let mut device = SpindleArray::new(&spec, CAPACITY);
        (0..2_000).for_each(|i| device.submit(Nanos::from_micros(i * 300), i, io(i)));
        completion_times(&mut device, Nanos::from_millis(600))
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}

#[test]
fn when_it_is_polled_changes_nothing() {
    let order = |polls: u64| {
        let mut device = array(&spec(6, Raid::Raid5));
        let mut order = Vec::new();
        for i in 0..2_000 {
            let now = Nanos::from_micros(i * 700);
            if i % polls == 0 {
                order.extend(std::iter::from_fn(|| device.poll(now)));
            }
            let kind = if i % 3 == 0 { IoKind::Read } else { IoKind::Write };
            device.submit(now, i, small(kind, scatter(i)));
        }
        order.extend(
            completion_times(&mut device, Nanos::from_secs(2)).into_iter().map(|(id, _)| id),
        );
        order
    };
    assert_eq!(order(1), order(2_000));
}

fn reading_ahead(spec: ArraySpec, size: Bytes) -> ArraySpec {
    spec.with_readahead(size).unwrap()
}

#[test]
fn read_ahead_lets_a_client_that_waits_for_each_read_have_the_speed_of_the_media() {
    let one = |spec: ArraySpec| bandwidth(sequential(&spec, 1, IoKind::Read, 128 << 10));
    let (without, with) =
        (one(spec(1, Raid::Raid0)), one(reading_ahead(spec(1, Raid::Raid0), Bytes::from_mib(1))));
    assert!(
        without < 65 && (95..=100).contains(&with),
        "{without}, with read-ahead {with} MB/s of 100"
    );
    // On several disks what remains is the controller and the link: 128 KiB in 838 us.
    let many = one(reading_ahead(spec(10, Raid::Raid5), Bytes::from_mib(2)));
    assert!((150..=157).contains(&many), "{many} MB/s");
}

#[test]
fn nothing_read_ahead_is_answered_before_the_disks_can_have_read_it() {
    for spindles in [1, 3] {
        let spec = reading_ahead(spec(spindles, Raid::Raid0), Bytes::from_mib(4));
        let mut array = array(&spec);
        let (mut now, mut bytes) = (Nanos::ZERO, 0u64);
        (0..8).for_each(|i| array.submit(now, i, sequential_io(i)));
        for id in 8..10_000 {
            while array.poll(now).is_none() {
                now = array.next_event().unwrap();
            }
            bytes += 32 << 10;
            // 100 MB/s, which is a byte in 10 ns.
            assert!(bytes * 10 / u64::from(spindles) <= now.0, "{bytes} bytes by {now}");
            array.submit(now, id, sequential_io(id));
        }
    }
}

fn sequential_io(i: u64) -> DeviceIo {
    DeviceIo { kind: IoKind::Read, offset: (8 << 30) + i * (32 << 10), bytes: Bytes::from_kib(32) }
}

#[test]
fn random_requests_do_not_notice_that_there_is_read_ahead() {
    let history = |spec: &ArraySpec| {
        let mut array = array(spec);
        for i in 0..5_000 {
            let kind = if i % 4 == 0 { IoKind::Write } else { IoKind::Read };
            array.submit(Nanos::from_micros(i * 600), i, small(kind, scatter(i)));
        }
        completion_times(&mut array, Nanos::from_secs(3))
    };
    let spec = spec(10, Raid::Raid5);
    assert_eq!(history(&spec), history(&reading_ahead(spec.clone(), Bytes::from_mib(1))));
}

/// Requests per second and mean latency in milliseconds: of 16 random reads outstanding, and of a
/// stream that has 16.
fn beside_a_stream(spec: &ArraySpec) -> [(u64, f64); 2] {
    let mut array = array(spec);
    let (mut streamed, mut now) = (0, Nanos::ZERO);
    let mut submitted = vec![Nanos::ZERO; 32];
    let mut count = [(0u64, Nanos::ZERO); 2];
    let mut submit = |array: &mut SpindleArray, now: Nanos, id: u64| {
        streamed += id / 16;
        let io = if id < 16 {
            small(IoKind::Read, scatter(id + now.0))
        } else {
            sequential_io(streamed)
        };
        array.submit(now, id, io);
    };
    (0..32).for_each(|id| submit(&mut array, now, id));
    while now < Nanos::from_secs(10) {
        now = array.next_event().unwrap();
        while let Some(id) = array.poll(now) {
            let (done, waited) = &mut count[id as usize / 16];
            *done += 1;
            *waited += now - std::mem::replace(&mut submitted[id as usize], now);
            submit(&mut array, now, id);
        }
    }
    count.map(|(done, waited)| (done / 10, waited.as_secs_f64() * 1e3 / done as f64))
}

#[test]
fn beside_random_reads_a_stream_is_answered_sooner_and_starves_nobody() {
    let spec = spec(6, Raid::Raid0);
    let [(_, random), (_, stream)] = beside_a_stream(&spec);
    let [(served, ahead_random), (_, ahead_stream)] =
        beside_a_stream(&reading_ahead(spec, Bytes::from_kib(512)));
    assert!(ahead_stream < stream * 0.6, "{ahead_stream} ms instead of {stream} ms");
    assert!(ahead_stream < ahead_random, "{ahead_stream} ms, random {ahead_random} ms");
    assert!(
        served > 200 && ahead_random < random * 3.0,
        "{served}/s at {ahead_random} ms, {random} ms without"
    );
}

#[test]
fn what_was_read_ahead_is_not_answered_from_after_a_write() {
    let read_after = |written: Option<u64>| {
        let mut array = array(&reading_ahead(spec(4, Raid::Raid0), Bytes::from_mib(1)));
        (0..3).for_each(|i| array.submit(Nanos::ZERO, i, sequential_io(i)));
        let mut now =
            completion_times(&mut array, Nanos::ZERO).last().unwrap().1 + Nanos::from_secs(1);
        if let Some(at) = written {
            let io = DeviceIo {
                kind: IoKind::Write,
                offset: sequential_io(at).offset,
                bytes: Bytes(512),
            };
            array.submit(now, 3, io);
            now = completion_times(&mut array, now)[0].1;
        }
        array.submit(now, 4, sequential_io(3));
        completion_times(&mut array, now)[0].1 - now
    };
    // 500 us in the controller, 92 us on the link.
    assert!(read_after(None) < Nanos::from_micros(600));
    assert!(read_after(Some(1_000)) < Nanos::from_micros(600), "somewhere else");
    assert!(read_after(Some(3)) > Nanos::from_micros(600));
}
