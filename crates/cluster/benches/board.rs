//! What an exchange over a board file takes: `cargo bench -p headgate-cluster`.
//!
//! The file lies in the current directory's `target`, so on a disk; wall-clock times, the median of
//! many and the 99th percentile.

use headgate_cluster::{Board, FileBoard, HostId, HostName, Identity, InstanceId, Record};
use headgate_qos::window::{ActiveShares, Bound, HostReport, Slots};
use headgate_units::Nanos;
use std::hint::black_box;
use std::time::{Duration, Instant};

fn report() -> HostReport {
    HostReport {
        latency: Nanos::from_millis(31),
        ios: 1_000,
        work: 1_000_000_000,
        window: Slots::whole(26),
        bound: Bound::Free,
        shares: ActiveShares::from_millionths(1_000_000_000),
        threshold: Nanos::from_millis(30),
        period: Nanos::from_secs(4),
        follows: None,
    }
}

fn identity(n: u16) -> Identity {
    let [low, high] = n.to_le_bytes();
    let id = std::array::from_fn(|i| if i % 2 == 0 { low } else { high });
    let name = HostName::new(&format!("host{n}")).expect("a name");
    Identity { host: HostId(id), instance: InstanceId(id), epoch: 1, name }
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{what:<50} {median:>12.1?} (p99 {p99:.1?})");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir_in(std::env::current_dir()?)?;
    for hosts in [4u16, 64, 1_000] {
        let file = dir.path().join(format!("{hosts}"));
        std::fs::create_dir(&file)?;
        let mut boards: Vec<FileBoard> =
            (0..hosts).map(|n| FileBoard::new(&file, identity(n))).collect();
        let mut now = Nanos::ZERO;
        let mut times = Vec::new();
        for turn in 0..(2_000 / usize::from(hosts)).max(3) {
            now += Nanos::from_secs(4);
            for board in &mut boards {
                let start = Instant::now();
                black_box(board.exchange(now, &report())?);
                if turn > 1 || hosts == 1_000 {
                    times.push(start.elapsed());
                }
            }
        }
        print(&format!("an exchange among {hosts} hosts"), times);
    }
    let record = Record {
        host: HostId([1; 16]),
        instance: InstanceId([1; 16]),
        epoch: 1,
        sequence: 1,
        name: HostName::new("host").expect("a name"),
        report: report(),
    };
    let key = headgate_cluster::RecordKey::Block(1);
    let start = Instant::now();
    for _ in 0..100_000 {
        let bytes = black_box(&record).encode(key);
        black_box(Record::decode(black_box(&bytes), key))?;
    }
    println!("{:<50} {:>12.1?}", "a record written and read", start.elapsed() / 100_000);
    Ok(())
}
