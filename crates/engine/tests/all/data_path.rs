//! Requests through a running engine, on real files.

use crate::support::{Client, Message, PATIENCE, places};
use headgate_devices::ModelSpec;
use headgate_engine::port::Detach;
use headgate_engine::request::{Durability, ExtentKind, IoError, Op, Unmap, ZeroSpeed};
use headgate_engine::{
    BackendSpec, Caching, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig,
    EngineError, Image,
};
use headgate_qos::window::{LatencyMeter, Slots, Smoothing};
use headgate_qos::{CostModel, Policy, SchedulerKind};
use headgate_units::{Bytes, Nanos};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

fn engine() -> Engine {
    Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap()
}

fn datastore(engine: &Engine, backend: BackendSpec, queue_depth: u32) -> DatastoreId {
    let spec = DatastoreSpec {
        name: "ds".into(),
        backend,
        layers: Vec::new(),
        scheduler: SchedulerKind::MClock,
        queue_depth,
        qos: headgate_qos::Config::default(),
    };
    engine.add_datastore(spec).unwrap()
}

const SIZE: u64 = 8 << 20;

fn disk(engine: &Engine, ds: DatastoreId, dir: &Path, caching: Caching) -> DiskId {
    let path = dir.join("d.raw");
    if !path.exists() {
        Image::create(&path, Bytes(SIZE)).unwrap();
    }
    let image = Image::open(&path, caching, PATIENCE).unwrap();
    engine.open_disk(ds, DiskSpec { name: "d".into(), image, policy: Policy::default() }).unwrap()
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7 + i % 251) as u8 ^ seed).collect()
}

#[test]
fn what_was_written_is_read_back_with_any_buffers() {
    let dirs = places().into_iter().chain(places());
    let ways = [Caching::PreferDirect, Caching::PreferDirect, Caching::Buffered, Caching::Buffered];
    for (dir, caching) in dirs.zip(ways) {
        let engine = engine();
        let ds = datastore(&engine, BackendSpec::Files, 32);
        let disk = disk(&engine, ds, dir.path(), caching);
        let client = Client::new(&engine, disk);
        for (n, (offset, len, skew)) in
            [(0, 4096, 0), (8192, 65536, 0), (1 << 20, 4096, 13), (2 << 20, 3 << 20, 1)]
                .into_iter()
                .enumerate()
        {
            let data = pattern(n as u8, len);
            client.write(offset, &data, skew).unwrap();
            assert!(
                client.read(offset, len, 0) == data,
                "{caching:?}: {len} at {offset}, aligned read"
            );
            assert!(
                client.read(offset, len, 5) == data,
                "{caching:?}: {len} at {offset}, odd read"
            );
        }
        assert_eq!(client.run(Op::Flush, 0, 0).0, Ok(()));
        engine.shutdown(PATIENCE).unwrap();
    }
}

#[test]
fn a_request_outside_the_disk_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let ds = datastore(&engine, BackendSpec::Files, 32);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, disk);
    for (offset, len) in
        [(SIZE, 512), (SIZE - 512, 1024), (u64::MAX - 511, 512), (1, 512), (0, 513), (0, 0)]
    {
        assert_eq!(client.run(Op::Read, offset, len).0, Err(IoError::Invalid), "{len} at {offset}");
    }
    assert_eq!(client.run(Op::Discard, SIZE, 512).0, Err(IoError::Invalid));
    assert_eq!(client.run(Op::Read, SIZE - 512, 512).0, Ok(()));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn zeroes_holes_and_their_status() {
    places().iter().for_each(|dir| check_zeroes_and_holes(dir.path()));
}

fn check_zeroes_and_holes(dir: &Path) {
    let engine = engine();
    let ds = datastore(&engine, BackendSpec::Files, 32);
    let disk = disk(&engine, ds, dir, Caching::Buffered);
    let client = Client::new(&engine, disk);
    client.write(0, &pattern(1, 1 << 20), 0).unwrap();
    assert_eq!(client.run(Op::Discard, 65536, 65536).0, Ok(()));
    let zero =
        |unmap| Op::WriteZeroes { unmap, speed: ZeroSpeed::Any, durability: Durability::Fua };
    assert_eq!(client.run(zero(Unmap::May), 262144, 65536).0, Ok(()));
    assert_eq!(client.run(zero(Unmap::MustNot), 524288, 65536).0, Ok(()));
    assert_eq!(client.run(Op::Cache, 0, 65536).0, Ok(()));
    let mut expected = pattern(1, 1 << 20);
    for hole in [65536, 262144, 524288] {
        expected[hole..hole + 65536].fill(0);
    }
    assert!(client.read(0, 1 << 20, 0) == expected);
    let (result, _, extents) = client.run(Op::BlockStatus, 0, SIZE);
    result.unwrap();
    assert_eq!(extents.iter().map(|e| e.len).sum::<u64>(), SIZE);
    let at = |want: u64| {
        let mut end = 0;
        extents
            .iter()
            .find(|e| {
                (end..{
                    end += e.len;
                    end
                })
                    .contains(&want)
            })
            .unwrap()
            .kind
    };
    assert_eq!(
        [at(0), at(65536), at(262144), at(4 << 20)],
        [ExtentKind::Data, ExtentKind::Hole, ExtentKind::Hole, ExtentKind::Hole]
    );
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn more_requests_than_the_queue_holds_all_end() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let ds = datastore(&engine, BackendSpec::Files, 4);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, disk);
    let answers: Vec<_> =
        (0..1000).map(|n| client.start(Op::Read, n % 64 * 4096, 4096, vec![1; 4096], 0)).collect();
    for answer in answers {
        assert_eq!(answer.recv_timeout(PATIENCE).unwrap().0, Ok(()));
    }
    let (_, snapshot) = engine.snapshot().unwrap().remove(0);
    assert_eq!((snapshot.queued, snapshot.in_flight, snapshot.disks[0].ports), (0, 0, 1));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn an_emulated_array_keeps_the_data_and_its_pace() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let model: ModelSpec = "rate=1000".parse().unwrap();
    let ds = datastore(&engine, BackendSpec::Emulated(model, Bytes(SIZE)), 32);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, disk);
    client.write(4096, &pattern(9, 4096), 0).unwrap();
    let begin = std::time::Instant::now();
    let answers: Vec<_> =
        (0..300).map(|_| client.start(Op::Read, 4096, 4096, vec![1; 4096], 0)).collect();
    for answer in answers {
        assert!(answer.recv_timeout(PATIENCE).unwrap().1 == pattern(9, 4096));
    }
    // A lower bound only: a device of 1,000 IOPS cannot be faster; how much slower is the machine's
    // affair.
    assert!(begin.elapsed() > Duration::from_millis(230), "{:?}", begin.elapsed());
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_period_tells_the_backends_latency_and_what_waited() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let model: ModelSpec = "rate=1000000,latency=5ms,depth=64".parse().unwrap();
    let ds = datastore(&engine, BackendSpec::Emulated(model, Bytes(SIZE)), 32);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, disk);
    client.write(0, &pattern(3, 4096), 0).unwrap();
    assert_eq!(engine.end_period(ds).unwrap().latency, None, "nobody asked");
    let meter = LatencyMeter::new(CostModel::Unit, Smoothing::PUBLISHED).unwrap();
    engine.set_meter(ds, Some(meter)).unwrap();
    engine.set_window(ds, Slots::from_millionths(2_500_000)).unwrap();
    let answers: Vec<_> =
        (0..20).map(|_| client.start(Op::Read, 0, 4096, vec![1; 4096], 0)).collect();
    client.run(Op::Flush, 0, 0).0.unwrap();
    answers.iter().for_each(|a| a.recv_timeout(PATIENCE).unwrap().0.unwrap());
    let period = engine.end_period(ds).unwrap();
    let latency = period.latency.expect("20 reads were done");
    assert_eq!(latency.ios, 20, "reads and writes only");
    assert!(latency.latency >= Nanos::from_millis(5), "{latency:?}");
    // All came at once and three went at a time at most, so they waited at least 5 ms for each
    // three before them.
    let [usage] = period.disks[..] else { panic!("{:?}", period.disks) };
    assert_eq!((usage.ios, usage.bytes), (21, 21 * 4096));
    assert!(usage.outstanding_time > 20 * 5_000_000 * 7 / 2, "{usage:?}");
    assert_eq!(engine.end_period(ds).unwrap().latency, None, "nothing since");
    let refused = engine.set_window(ds, Slots::ZERO).unwrap_err().to_string();
    assert_eq!(refused, "the window must be above 0 and at most 4096 requests, not 0.00");
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_null_disk_reads_zeroes() {
    let engine = engine();
    let ds = datastore(&engine, BackendSpec::Null, 32);
    let image = Image::null(Bytes(SIZE)).unwrap();
    let disk = engine
        .open_disk(ds, DiskSpec { name: "n".into(), image, policy: Policy::default() })
        .unwrap();
    let client = Client::new(&engine, disk);
    client.write(0, &pattern(1, 4096), 0).unwrap();
    assert!(client.read(0, 4096, 0).iter().all(|&b| b == 0));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn closing_a_disk_finishes_what_was_taken() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let model: ModelSpec = "rate=200".parse().unwrap();
    let ds = datastore(&engine, BackendSpec::Emulated(model, Bytes(SIZE)), 4);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, disk);
    let answers: Vec<_> =
        (0..40).map(|_| client.start(Op::Read, 0, 4096, vec![1; 4096], 0)).collect();
    engine.close_disk(disk, PATIENCE).unwrap();
    assert!(client.0.is_gone());
    assert!(answers.iter().all(|a| a.try_recv().is_ok_and(|(result, ..)| result.is_ok())));
    assert!(matches!(engine.disk_info(disk), Err(EngineError::NoDisk)));
    engine.remove_datastore(ds).unwrap();
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_client_that_is_cut_off_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let model: ModelSpec = "rate=100".parse().unwrap();
    let ds = datastore(&engine, BackendSpec::Emulated(model, Bytes(SIZE)), 2);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let (cut, stays) = (Client::new(&engine, disk), Client::new(&engine, disk));
    let lost: Vec<_> = (0..500).map(|_| cut.start(Op::Read, 0, 4096, vec![1; 4096], 0)).collect();
    cut.0.detach(Detach::Now);
    assert!(cut.0.wait_gone(PATIENCE));
    assert!(cut.0.command(Box::new(Message::TakeBack(channel().0))).is_err());
    assert!(lost.iter().filter(|a| a.try_recv().is_ok()).count() < 100);
    assert_eq!(stays.run(Op::Read, 0, 4096).0, Ok(()));
    let (_, snapshot) = engine.snapshot().unwrap().remove(0);
    assert_eq!((snapshot.queued, snapshot.in_flight, snapshot.disks[0].ports), (0, 0, 1));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn what_is_taken_back_never_reaches_the_storage_and_is_not_charged() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    // Nothing completes while the test looks.
    let model: ModelSpec = "rate=1000000,latency=60s,depth=64".parse().unwrap();
    let ds = datastore(&engine, BackendSpec::Emulated(model, Bytes(SIZE)), 3);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let [client, other] = [(); 2].map(|()| Client::new(&engine, disk));
    let ask = |client: &Client, many: u64| -> Vec<_> {
        (0..many).map(|n| client.start(Op::Read, n << 12, 4096, vec![1; 4096], 0)).collect()
    };
    let take_back = || {
        let (answer, wait) = channel();
        client.0.command(Box::new(Message::TakeBack(answer))).unwrap();
        wait.recv_timeout(PATIENCE).unwrap()
    };
    let in_flight = || engine.snapshot().unwrap()[0].1.in_flight;
    let others = ask(&other, 1);
    for round in 0..50 {
        let answers = ask(&client, 20);
        let began = std::time::Instant::now();
        while in_flight() < 3 {
            assert!(began.elapsed() < PATIENCE, "nothing is dispatched");
        }
        // The first two of the first round went to the storage with the other client's.
        assert_eq!(take_back(), if round == 0 { 18 } else { 20 });
        assert!(answers.iter().all(|a| a.try_recv().is_err()));
    }
    let waits = ask(&other, 1);
    assert_eq!(take_back(), 0, "what is at the storage stays, and so does what is another's");
    let (_, snapshot) = engine.snapshot().unwrap().remove(0);
    assert_eq!((snapshot.queued, snapshot.in_flight), (1, 3));
    let stats = &snapshot.disks[0].stats;
    let served = (stats.served.reservation_ios, stats.served.weight_ios, stats.outstanding);
    assert_eq!(served, (0, 3, 4), "charged is what was dispatched");
    assert_eq!(stats.reads.counts.errors, 0, "nothing failed");
    drop((others, waits));
    engine.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_full_file_system_fails_the_write_and_nothing_else() {
    // A tmpfs of 1 MiB needs root; where it cannot be mounted this says so.
    let dir = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"])
        .arg(dir.path())
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !mounted {
        eprintln!("SKIPPED: cannot mount a small tmpfs here (needs root)");
        return;
    }
    let engine = engine();
    let ds = datastore(&engine, BackendSpec::Files, 32);
    let id = disk(&engine, ds, dir.path(), Caching::Buffered);
    let client = Client::new(&engine, id);
    let results: Vec<_> =
        (0..8).map(|n| client.write(n << 18, &pattern(n as u8, 1 << 18), 0)).collect();
    assert_eq!(results[0], Ok(()));
    assert_eq!(results[7], Err(IoError::NoSpace));
    assert!(client.read(0, 1 << 18, 0) == pattern(0, 1 << 18));
    engine.shutdown(PATIENCE).unwrap();
    std::process::Command::new("umount").arg(dir.path()).status().unwrap();
}

#[test]
fn a_client_finds_room_in_the_queue_whatever_another_has_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let model: ModelSpec = "rate=1000000,latency=3s,depth=512".parse().unwrap();
    let ds = datastore(&engine, BackendSpec::Emulated(model, Bytes(SIZE)), 1);
    let disk = disk(&engine, ds, dir.path(), Caching::Buffered);
    let [greedy, modest] = [(); 2].map(|()| Client::new(&engine, disk));
    let ask = |client: &Client, many: u64| -> Vec<_> {
        (0..many).map(|_| client.start(Op::Read, 0, 4096, vec![1; 4096], 0)).collect()
    };
    let queued = || engine.snapshot().unwrap()[0].1.disks[0].queued;
    // One is at the device.
    let waiting = ask(&greedy, 400);
    let full = queued();
    assert!(full < 256, "{full}");
    let others = ask(&modest, 20);
    assert_eq!(queued(), 256, "the places that were kept are taken");
    drop((waiting, others));
    engine.shutdown(Duration::ZERO).unwrap();
}
