//! An emulated flash drive under the engine: it hears of every disk, of its shares and of its
//! requests.

use crate::support::{Client, PATIENCE};
use headgate_devices::ModelSpec;
use headgate_engine::request::{Durability, Op};
use headgate_engine::snapshot::{DatastoreSnapshot, FlashSnapshot};
use headgate_engine::{
    BackendSpec, Caching, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig,
    EngineError, Image,
};
use headgate_qos::{Burst, Policy, SchedulerKind};
use headgate_units::{Bytes, Shares};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn engine() -> Engine {
    Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap()
}

fn datastore(engine: &Engine, backend: BackendSpec) -> DatastoreId {
    let spec = DatastoreSpec {
        name: "ds".into(),
        backend,
        layers: Vec::new(),
        scheduler: SchedulerKind::Fifo,
        queue_depth: 32,
        qos: headgate_qos::Config::default(),
    };
    engine.add_datastore(spec).unwrap()
}

fn drive(engine: &Engine, text: &str) -> DatastoreId {
    let model: ModelSpec = text.parse().unwrap();
    let capacity = model.capacity().unwrap();
    datastore(engine, BackendSpec::Emulated(model, capacity))
}

fn policy(shares: u64) -> Policy {
    Policy::new(None, None, None, Shares::new(shares).unwrap(), Burst::default()).unwrap()
}

fn open(
    engine: &Engine,
    ds: DatastoreId,
    dir: &Path,
    name: &str,
    size: u64,
    shares: u64,
) -> Result<DiskId, EngineError> {
    let path = dir.join(name);
    if !path.exists() {
        Image::create(&path, Bytes(size)).unwrap();
    }
    let image = Image::open(&path, Caching::Buffered, PATIENCE).unwrap();
    engine.open_disk(ds, DiskSpec { name: name.into(), image, policy: policy(shares) })
}

fn snapshot(engine: &Engine, ds: DatastoreId) -> DatastoreSnapshot {
    engine.snapshot().unwrap().into_iter().find(|(id, _)| *id == ds).unwrap().1
}

fn flash(engine: &Engine, ds: DatastoreId, disk: &str) -> FlashSnapshot {
    snapshot(engine, ds).disks.iter().find(|d| d.name == disk).unwrap().flash.unwrap()
}

#[test]
fn disks_come_with_their_shares_change_them_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let ds = drive(&engine, "ssd=16M,op=50%,dies=2,planes=2,block=16,isolation=static");
    let one = open(&engine, ds, dir.path(), "one", 8 * MIB, 1).unwrap();
    open(&engine, ds, dir.path(), "three", 4 * MIB, 3).unwrap();
    let spare = |disk: &str| flash(&engine, ds, disk).standing.spare;
    assert!(
        (spare("one") * 3).abs_diff(spare("three")) <= 3,
        "{} and {}",
        spare("one"),
        spare("three")
    );
    let all = spare("one") + spare("three");

    let refused = open(&engine, ds, dir.path(), "more", 4 * MIB + 4096, 1).unwrap_err();
    assert!(matches!(refused, EngineError::Place(_)));
    assert!(refused.to_string().contains("has 16 MiB for disks, 4 MiB of it left"), "{refused}");
    assert_eq!(snapshot(&engine, ds).disks.len(), 2);
    assert_eq!(spare("one") + spare("three"), all, "who was refused has left nothing");

    engine.set_policy(one, policy(3)).unwrap();
    assert!(spare("one").abs_diff(spare("three")) <= 1, "{} and {}", spare("one"), spare("three"));

    // Room that lies in pieces is room.
    let middle = open(&engine, ds, dir.path(), "middle", 3 * MIB, 1).unwrap();
    engine.close_disk(one, PATIENCE).unwrap();
    open(&engine, ds, dir.path(), "large", 9 * MIB, 1).unwrap();
    assert_eq!(snapshot(&engine, ds).disks.len(), 3);
    engine.close_disk(middle, PATIENCE).unwrap();
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn requests_reach_the_pages_of_their_disk() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let ds = drive(&engine, "ssd=16M,dies=2,planes=2,block=16,op=50%,isolation=dynamic");
    let disks = ["a", "b"].map(|name| open(&engine, ds, dir.path(), name, 4 * MIB, 1).unwrap());
    let [a, b] = disks.map(|disk| Client::new(&engine, disk));
    a.write(0, &[7; 64 << 10], 0).unwrap();
    assert!(b.read(0, 4096, 0).iter().all(|&byte| byte == 0));
    assert!(a.read(60 << 10, 4096, 0).iter().all(|&byte| byte == 7));
    assert_eq!(flash(&engine, ds, "a").counters.writes, 16);
    assert_eq!(flash(&engine, ds, "b").counters.writes, 0);
    assert_eq!(a.run(Op::Discard, 0, 32 << 10).0, Ok(()));
    let drive = snapshot(&engine, ds).flash.unwrap();
    assert_eq!((drive.writes, drive.trims), (16, 1), "a discard is a page that says so");
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_flush_waits_for_the_write_buffer() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let ds = drive(&engine, "ssd=16M,dies=2,planes=2,block=16,op=50%,buffer=1M,program=300ms");
    let disk = open(&engine, ds, dir.path(), "d", 4 * MIB, 1).unwrap();
    let client = Client::new(&engine, disk);
    let begin = Instant::now();
    let write = client.start(Op::Write(Durability::Cached), 0, 4096, vec![1; 4096], 0);
    let flush = client.start(Op::Flush, 0, 0, vec![], 0);
    write.recv_timeout(PATIENCE).unwrap().0.unwrap();
    client.run(Op::Flush, 0, 0).0.unwrap();
    flush.recv_timeout(PATIENCE).unwrap().0.unwrap();
    // A lower bound only.
    assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
    engine.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_drive_that_is_being_aged_holds_up_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine();
    let other = datastore(&engine, BackendSpec::Null);
    let image = Image::null(Bytes(8 * MIB)).unwrap();
    let other =
        engine.open_disk(other, DiskSpec { name: "n".into(), image, policy: policy(1) }).unwrap();
    let beside = Client::new(&engine, other);
    beside.run(Op::Read, 0, 4096).0.unwrap();
    let ds = drive(&engine, "ssd=256M,aged=yes,dies=2,planes=2");
    let disk = open(&engine, ds, dir.path(), "d", 256 * MIB, 1).unwrap();
    let client = Client::new(&engine, disk);
    let write = client.start(Op::Write(Durability::Cached), 0, 4096, vec![1; 4096], 0);
    // Nearly 200,000 pages are written before it; a few reads are nothing beside that.
    for _ in 0..20 {
        beside.run(Op::Read, 0, 4096).0.unwrap();
    }
    assert!(write.try_recv().is_err(), "the drive was ready before 20 reads beside it were done");
    write.recv_timeout(PATIENCE).unwrap().0.unwrap();
    // The drive is read before its disks, and goes on collecting garbage in between.
    let (now, later) = (snapshot(&engine, ds), snapshot(&engine, ds));
    let counters = now.disks[0].flash.unwrap().counters;
    assert_eq!(counters.writes, 1, "its past does not count");
    let [drive, drive_later] = [now.flash.unwrap(), later.flash.unwrap()];
    assert_eq!(drive.writes, 1);
    let moved = drive.moved..=drive_later.moved;
    assert!(moved.contains(&counters.moved), "{} where all disks: {moved:?}", counters.moved);
    engine.shutdown(PATIENCE).unwrap();
}
