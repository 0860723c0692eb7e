//! What is said of workloads whose traits are known.

use headgate_trace::{Character, Characteriser, Options, TraceReader, Unknown};
use headgate_units::{Bytes, Nanos};

const HEADER: &str = "at_ns,disk,op,offset,bytes,latency_ns\n";

fn character(lines: impl IntoIterator<Item = String>) -> Character {
    let text = HEADER.to_owned() + &lines.into_iter().map(|line| line + "\n").collect::<String>();
    let mut reader = TraceReader::new(text.as_bytes(), Options::default()).unwrap();
    let mut characteriser = Characteriser::new();
    reader.by_ref().for_each(|record| characteriser.push(&record.unwrap()));
    characteriser.finish(reader.disks())
}

#[test]
fn sizes_shares_and_footprint_are_exact() {
    // 20 s at 100 per second: 3 reads of 4 KiB in a row, then a write of 64 KiB 1 GiB away.
    let lines = (0..2_000u64).map(|i| {
        let at = i * 10_000_000;
        match i % 4 {
            3 => format!("{at},vda,W,{},65536,", (1 << 30) + (i / 4 % 10) * 65_536),
            n => format!("{at},vda,R,{},4096,", (i / 4 * 3 + n) * 4_096),
        }
    });
    let Character { whole, disks, .. } = character(lines);
    assert_eq!(disks.len(), 1);
    assert_eq!(disks[0].profile, whole);
    assert_eq!(
        (whole.requests, whole.reads.requests, whole.writes.bytes),
        (2_000, 1_500, 500 << 16)
    );
    assert_eq!(whole.duration, Nanos::from_millis(19_990));
    assert!((whole.iops.unwrap() - 100.05).abs() < 0.01);
    assert_eq!(whole.peak_iops, 100);
    assert_eq!(whole.read_fraction, Some(0.75));
    let percent = whole.read_percent.unwrap();
    assert_eq!((percent.p10, percent.p50, percent.p90), (75, 75, 75));
    // Two of four requests lie far from the one before.
    assert!((whole.random_fraction.unwrap() - 0.5).abs() < 0.001);
    let sizes = whole.sizes.unwrap();
    assert_eq!((sizes.p50, sizes.p90, sizes.max), (Bytes(4_096), Bytes(65_536), Bytes(65_536)));
    assert_eq!(sizes.mean, Bytes((3 * 4_096 + 65_536) / 4));
    assert_eq!(whole.written_footprint, Bytes(10 << 16));
    assert_eq!(whole.footprint, Bytes((10 << 16) + 1_500 * 4_096));
}

#[test]
fn outstanding_is_known_only_with_latencies() {
    // Every 1 ms a request that takes 4 ms: each finds three others, and the fourth ends as it
    // comes.
    let lines = |latency: fn(u64) -> String| {
        character(
            (0..1_000u64).map(move |i| format!("{},vda,R,0,4096,{}", i * 1_000_000, latency(i))),
        )
        .whole
    };
    let known = lines(|_| "4000000".into());
    let outstanding = known.outstanding.unwrap();
    assert_eq!((outstanding.p50, outstanding.p90, outstanding.max), (3, 3, 3));
    assert!((outstanding.mean_over_time - 4.0).abs() < 0.05, "{outstanding:?}");
    assert_eq!(known.read_latency.unwrap().mean, Nanos::from_millis(4));
    let unknown = lines(|i| if i == 500 { String::new() } else { "4000000".into() });
    assert_eq!(
        (unknown.outstanding, unknown.outstanding_unknown),
        (None, Some(Unknown::NoLatencies))
    );
    assert_eq!(unknown.read_latency.unwrap().mean, Nanos::from_millis(4));
    assert_eq!(character([]).whole.outstanding_unknown, Some(Unknown::NoRequests));
}

#[test]
fn disks_do_not_disturb_each_other_and_add_up() {
    // Two sequential streams on two disks, far apart.
    let lines = (0..2_000u64).map(|i| {
        let disk = i % 2;
        format!("{},d{disk},R,{},4096,", i * 1_000, (disk << 40) + i / 2 * 4_096)
    });
    let Character { whole, disks, .. } = character(lines);
    assert_eq!(disks.iter().map(|disk| disk.disk.as_str()).collect::<Vec<_>>(), ["d0", "d1"]);
    assert_eq!((whole.random_fraction, whole.sequential_fraction), (Some(0.0), Some(1.0)));
    assert_eq!(whole.footprint.0, disks.iter().map(|disk| disk.profile.footprint.0).sum::<u64>());
}

#[test]
fn percentiles_over_intervals_leave_out_the_silent_ones() {
    // A second of writes, a minute of silence, a second of reads.
    let lines = (0..200u64).map(|i| {
        let (op, second) = if i < 100 { ("W", 0) } else { ("R", 61) };
        format!("{},vda,{op},0,512,", second * 1_000_000_000 + i)
    });
    let whole = character(lines).whole;
    let percent = whole.read_percent.unwrap();
    assert_eq!((percent.p10, percent.p50, percent.p90), (0, 0, 100));
    assert_eq!(whole.read_fraction, Some(0.5));
}

#[test]
fn one_request_has_no_rate() {
    let whole = character(["7,vda,F,0,0,".to_owned()]).whole;
    assert_eq!((whole.requests, whole.flushes, whole.iops, whole.sizes), (1, 1, None, None));
    assert_eq!(whole.random_fraction, None);
}
