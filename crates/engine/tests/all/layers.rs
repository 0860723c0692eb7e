//! Layers and RAM disks in the engine: faults and delays above any backend, as the pure stack
//! decides them.

use crate::support::{Client, PATIENCE};
use headgate_devices::{IoKind, LayerSpec};
use headgate_engine::request::{Durability, ExtentKind, IoError, Op, Unmap, ZeroSpeed};
use headgate_engine::{
    BackendSpec, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig, EngineError, Image,
};
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::Bytes;
use std::time::{Duration, Instant};

const SIZE: u64 = 16 << 20;

fn open(backend: BackendSpec, layers: &[&str], depth: u32, image: Image) -> (Engine, DiskId) {
    let engine = Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap();
    let layers: Vec<LayerSpec> = layers.iter().map(|text| text.parse().unwrap()).collect();
    let spec = DatastoreSpec {
        name: "ds".into(),
        backend,
        layers,
        scheduler: SchedulerKind::MClock,
        queue_depth: depth,
        qos: headgate_qos::Config::default(),
    };
    let datastore = engine.add_datastore(spec).unwrap();
    let disk = DiskSpec { name: "disk".into(), image, policy: Policy::default() };
    let disk = engine.open_disk(datastore, disk).unwrap();
    (engine, disk)
}

fn ram(layers: &[&str], depth: u32) -> (Engine, DiskId) {
    open(BackendSpec::Memory, layers, depth, Image::memory(Bytes(SIZE)).unwrap())
}

#[test]
fn a_ram_disk_keeps_what_was_written_and_tells_holes() {
    let (engine, disk) = ram(&[], 32);
    let client = Client::new(&engine, disk);
    let data: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    client.write(1 << 20, &data, 0).unwrap();
    client.run(Op::Flush, 0, 0).0.unwrap();
    assert!(client.read(1 << 20, 1 << 20, 0) == data);
    assert!(client.read(0, 4096, 0) == [0; 4096]);
    let (result, _, extents) = client.run(Op::BlockStatus, 0, 4 << 20);
    result.unwrap();
    let kinds: Vec<_> = extents.iter().map(|e| (e.kind, e.len)).collect();
    let (hole, kept) = (ExtentKind::Hole, ExtentKind::Data);
    assert_eq!(kinds, [(hole, 1 << 20), (kept, 1 << 20), (hole, 2 << 20)]);
    let zeroes =
        |unmap| Op::WriteZeroes { unmap, speed: ZeroSpeed::Any, durability: Durability::Fua };
    client.run(zeroes(Unmap::MustNot), 1 << 20, 4096).0.unwrap();
    client.run(Op::Discard, (1 << 20) + 4096, 4096).0.unwrap();
    client.run(zeroes(Unmap::May), (1 << 20) + 8192, 4096).0.unwrap();
    assert!(client.read(1 << 20, 12_288, 0) == [0; 12_288]);
    assert!(client.read((1 << 20) + 12_288, 4096, 0) == data[12_288..16_384]);
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_ram_disk_belongs_on_memory_only_and_nothing_else_does() {
    let engine = Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap();
    for (backend, image) in [
        (BackendSpec::Files, Image::memory(Bytes(SIZE)).unwrap()),
        (BackendSpec::Null, Image::memory(Bytes(SIZE)).unwrap()),
        (BackendSpec::Memory, Image::null(Bytes(SIZE)).unwrap()),
    ] {
        let spec = DatastoreSpec {
            name: "ds".into(),
            backend,
            layers: Vec::new(),
            scheduler: SchedulerKind::Fifo,
            queue_depth: 1,
            qos: headgate_qos::Config::default(),
        };
        let datastore = engine.add_datastore(spec).unwrap();
        let disk = DiskSpec { name: "disk".into(), image, policy: Policy::default() };
        let refused = engine.open_disk(datastore, disk).unwrap_err();
        assert!(matches!(refused, EngineError::OtherStorage | EngineError::NullImage));
        engine.remove_datastore(datastore).unwrap();
    }
    assert!(Image::memory(Bytes(4095)).is_err());
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_layer_fails_what_it_is_told_to_and_nothing_else() {
    let (engine, disk) = ram(&["error=100%,on=write,after=1,count=2,errno=ENOSPC"], 32);
    let client = Client::new(&engine, disk);
    let write = |fill| client.write(0, &[fill; 4096], 0);
    let results = [write(1), write(2), write(3)];
    assert_eq!(results, [Ok(()), Err(IoError::NoSpace), Err(IoError::NoSpace)]);
    assert!(client.read(0, 4096, 0) == [1; 4096], "what failed was not written");
    assert_eq!((write(4), client.run(Op::Flush, 0, 0).0), (Ok(()), Ok(())));
    assert!(client.read(0, 4096, 0) == [4; 4096]);
    let (_, snapshot) = engine.snapshot().unwrap().remove(0);
    assert_eq!((snapshot.in_flight, snapshot.queued), (0, 0), "the window is free again");
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_delay_holds_each_request_and_only_its_kind() {
    let (engine, disk) = ram(&["delay=200ms,on=flush", "stragglers=2:100ms"], 32);
    let client = Client::new(&engine, disk);
    let begin = Instant::now();
    client.run(Op::Flush, 0, 0).0.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(200));
    let begin = Instant::now();
    // The second to complete.
    client.run(Op::Read, 0, 4096).0.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(100));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_rate_above_a_null_backend_is_kept() {
    let image = Image::null(Bytes(SIZE)).unwrap();
    let (engine, disk) = open(BackendSpec::Null, &["rate=100"], 32, image);
    let client = Client::new(&engine, disk);
    let begin = Instant::now();
    let answers: Vec<_> =
        (0..21).map(|_| client.start(Op::Read, 0, 4096, vec![1; 4096], 0)).collect();
    answers.iter().for_each(|a| a.recv_timeout(PATIENCE).unwrap().0.unwrap());
    // The first goes at once, and each of the others 10 ms after the one before.
    assert!(begin.elapsed() >= Duration::from_millis(200));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn layers_are_replaced_and_let_go_what_they_hold() {
    let (engine, disk) = ram(&["delay=100s,on=write", "stragglers=1:100s"], 32);
    let (datastore, _) = engine.snapshot().unwrap().remove(0);
    let client = Client::new(&engine, disk);
    // One is held on its way down, the other on its way up.
    let write = client.start(Op::Write(Durability::Cached), 0, 4096, vec![7; 4096], 0);
    let read = client.start(Op::Read, 8192, 4096, vec![1; 4096], 0);
    while engine.snapshot().unwrap().remove(0).1.in_flight < 2 {
        std::thread::yield_now();
    }
    let set = |layers: &[&str]| {
        let layers: Vec<LayerSpec> = layers.iter().map(|text| text.parse().unwrap()).collect();
        engine.set_layers(datastore, &layers).unwrap();
    };
    assert_eq!(engine.trace(datastore, 0).unwrap(), None);
    set(&["trace=2"]);
    for held in [write, read] {
        held.recv_timeout(PATIENCE).unwrap().0.unwrap();
    }
    assert!(client.read(0, 4096, 0) == [7; 4096], "the write was executed");
    client.write(4096, &[8; 4096], 0).unwrap();
    client.run(Op::Flush, 0, 0).0.unwrap();
    let trace = engine.trace(datastore, 0).unwrap().unwrap();
    let kept: Vec<_> =
        trace.requests.iter().map(|r| (r.serial, r.disk.as_str(), r.io.kind)).collect();
    assert_eq!(kept, [(1, "disk", IoKind::Write), (2, "disk", IoKind::Flush)]);
    assert_eq!((trace.next, trace.recorded), (3, 3), "the oldest was dropped");
    assert_eq!(engine.trace(datastore, 2).unwrap().unwrap().requests.len(), 1);
    set(&[]);
    assert_eq!(engine.trace(datastore, 0).unwrap(), None);
    client.write(0, &[9; 4096], 0).unwrap();
    let (_, snapshot) = engine.snapshot().unwrap().remove(0);
    assert_eq!((snapshot.in_flight, snapshot.queued), (0, 0));
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_port_that_is_cut_off_waits_for_what_a_layer_holds() {
    let (engine, disk) = ram(&["delay=300ms"], 64);
    let client = Client::new(&engine, disk);
    let lost: Vec<_> = (0..80).map(|_| client.start(Op::Read, 0, 4096, vec![1; 4096], 0)).collect();
    engine.close_disk(disk, Duration::ZERO).unwrap();
    drop(lost);
    engine.shutdown(PATIENCE).unwrap();
}
