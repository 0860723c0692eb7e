//! Disks with a promise, and others, beside requests of 4 and 64 MiB.

use crate::common::outcome;
use headgate_units::Nanos;

const SECONDS: usize = 60;

/// What a disk got: requests per second in each second, bytes per second, and its 99th percentile
/// of latency, over the last two thirds of the run.
struct Got {
    series: Vec<u64>,
    iops: f64,
    bandwidth: f64,
    p99: Nanos,
}

const SMALL: &str = "size = '4K', random = '100%'";

fn closed(outstanding: u32, what: &str) -> String {
    format!("kind = 'closed', outstanding = {outstanding}, {what}")
}

fn large(outstanding: u32, size: &str) -> String {
    closed(outstanding, &format!("size = '{size}', random = '100%'"))
}

/// What each disk got, of a policy and a workload.
fn run(device: &str, disks: &[(&str, String)]) -> Vec<Got> {
    let from = SECONDS / 3;
    let mut text = format!(
        "name = 'large'\ntitle = 'Large requests'\nduration = '{SECONDS}s'\n\
         windows = {{ steady = '{from}s..{SECONDS}s' }}\n[[datastore]]\nname = 'store'\n\
         device = '{device}'\ncost-model = 'affine=300K'\nqueue-depth = 32\n"
    );
    for (index, (policy, workload)) in disks.iter().enumerate() {
        text += &format!(
            "[[vm]]\nname = 'vm{index}'\ndisk = [{{ size = '300M', {policy} }}]\n\
             workload = [{{ {workload} }}]\n"
        );
    }
    let outcome = outcome(&text, 1);
    let got = |index: usize| {
        let subject = outcome.subject(&format!("vm{index}")).unwrap();
        let span = &subject.spans[0];
        Got {
            series: subject.series.iter().map(|point| point.completed).collect(),
            iops: span.iops(),
            bandwidth: span.counters.bytes_per_sec(span.length()),
            p99: span.latency.at_permille(990).unwrap_or_default(),
        }
    };
    (0..disks.len()).map(got).collect()
}

const ARRAY: &str = "array=8,raid=5";
const SPINDLE: &str = "array=1,cache=0";
const FLASH: &str = "ssd=1G,aged=yes,dies=8,channels=8";

/// A reservation of 100, one request outstanding, beside 32 requests of 64 MiB and others: it is
/// there within seconds. Where 32 of them fill the window of one spindle, it never is.
#[test]
fn a_shallow_disk_gets_its_reservation_beside_requests_of_64_mib() {
    for (device, p99, iops, others) in
        [(ARRAY, 290, 400.0, 140e6), (FLASH, 230, 950.0, 290e6), (SPINDLE, 30, 60.0, 25e6)]
    {
        let disks = [
            ("reservation = 100", closed(1, SMALL)),
            ("", closed(16, SMALL)),
            ("", large(32, "64M")),
        ];
        let got = run(device, &disks);
        assert!(got[0].series[8..18].iter().sum::<u64>() >= 950, "{device}: {:?}", got[0].series);
        assert!(got[0].iops >= 99.5, "{device}: {}", got[0].iops);
        assert!(got[0].p99 <= Nanos::from_millis(p99), "{device}: {}", got[0].p99);
        assert!(got[1].iops >= iops, "{device}: {}", got[1].iops);
        assert!(got[2].bandwidth >= others, "{device}: {}", got[2].bandwidth);
    }
}

/// The same beside requests of 4 MiB, which fill the link of the array ten at a time.
#[test]
fn a_shallow_disk_gets_its_reservation_beside_requests_of_4_mib() {
    for (device, others, p99) in [(ARRAY, 150e6, 30), (FLASH, 290e6, 30)] {
        let disks = [
            ("reservation = 100", closed(1, SMALL)),
            ("", closed(16, SMALL)),
            ("", large(32, "4M")),
        ];
        let got = run(device, &disks);
        assert!(got[0].series[5..15].iter().sum::<u64>() >= 900, "{device}: {:?}", got[0].series);
        assert!(got[0].iops >= 98.5, "{device}: {}", got[0].iops);
        assert!(got[0].p99 <= Nanos::from_millis(p99), "{device}: {}", got[0].p99);
        assert!(got[2].bandwidth >= others, "{device}: {}", got[2].bandwidth);
    }
}

/// Nothing is promised to it: it waits for two requests of 64 MiB, where it waited for 16.
#[test]
fn a_disk_without_a_promise_does_not_wait_for_a_window_of_large_requests() {
    for device in [ARRAY, FLASH] {
        let got = run(device, &[("", closed(16, SMALL)), ("", large(32, "64M"))]);
        assert!(got[0].iops >= 40.0, "{device}: {}", got[0].iops);
        assert!(got[0].p99 <= Nanos::from_millis(600), "{device}: {}", got[0].p99);
        assert!(got[1].bandwidth >= 300e6, "{device}: {}", got[1].bandwidth);
    }
}

/// What nobody else waits for is as fast as where the window is a number of requests: 400 MB/s are
/// what the link of the array gives, 313 what the drive does.
#[test]
fn large_requests_alone_lose_no_throughput() {
    for (size, outstanding) in [("1M", 32), ("4M", 32), ("64M", 4)] {
        for (device, most) in [(ARRAY, 398e6), (FLASH, 313e6)] {
            let got = run(device, &[("", large(outstanding, size))]);
            assert!(got[0].bandwidth >= most * 0.99, "{device}, {size}: {}", got[0].bandwidth);
        }
    }
}

/// Where a disk is late beside large requests, it is so by no more than two of them.
#[test]
fn a_latency_target_beside_large_requests_is_missed_by_little() {
    for device in [ARRAY, FLASH] {
        let target = "reservation = 100, latency-target = 'p99=100ms'";
        let sends = format!("kind = 'open', rate = 40, arrivals = 'poisson', {SMALL}");
        let got = run(device, &[(target, sends.clone()), ("", large(32, "4M"))]);
        assert!(got[0].p99 <= Nanos::from_millis(100), "{device}: {}", got[0].p99);
        assert!(got[1].bandwidth >= 300e6, "{device}: {}", got[1].bandwidth);
        let got = run(device, &[(target, sends), ("", large(32, "64M"))]);
        assert!(got[0].p99 <= Nanos::from_millis(600), "{device}: {}", got[0].p99);
    }
}
