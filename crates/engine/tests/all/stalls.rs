//! A shard that stands still harms nobody but its own disks: calls of it fail instead of waiting,
//! and the others are served. The test's own client is what blocks it, as no real one may.

use crate::support::Client;
use crate::support::blocker::Blocker;
use headgate_engine::pulse::InKernel;
use headgate_engine::{
    BackendSpec, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig, EngineError,
    Image, ShardGroup,
};
use headgate_qos::{Config, Policy, SchedulerKind};
use headgate_units::Bytes;
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::Duration;

fn store(engine: &Engine, name: &str) -> DatastoreId {
    let spec = DatastoreSpec {
        name: name.into(),
        backend: BackendSpec::Null,
        layers: Vec::new(),
        scheduler: SchedulerKind::MClock,
        queue_depth: 8,
        qos: Config::default(),
    };
    engine.add_datastore(spec).unwrap()
}

fn disk(engine: &Engine, store: DatastoreId, name: &str) -> DiskId {
    let image = Image::null(Bytes::from_mib(1)).unwrap();
    engine
        .open_disk(store, DiskSpec { name: name.into(), image, policy: Policy::default() })
        .unwrap()
}

#[test]
fn calls_of_a_shard_that_stands_still_fail_and_are_not_done_later() {
    let engine = Engine::start(EngineConfig { shards: 2, ..EngineConfig::default() }).unwrap();
    let stores = [store(&engine, "stuck"), store(&engine, "sound")];
    let [bad, good] = [disk(&engine, stores[0], "bad"), disk(&engine, stores[1], "good")];
    let sound = Client::new(&engine, good);
    let (blocked, is_blocked) = channel();
    let (release, go_on) = channel();
    let port = engine.attach(bad, move |_| Box::new(Blocker { blocked, go_on })).unwrap();
    assert_eq!(engine.stalls(), []);
    port.command(Box::new(())).unwrap();
    is_blocked.recv().unwrap();

    // A caller that comes before anybody knows waits until it is known.
    let late = match engine.open_disk(
        stores[0],
        DiskSpec {
            name: "late".into(),
            image: Image::null(Bytes::from_mib(1)).unwrap(),
            policy: Policy::default(),
        },
    ) {
        Err(EngineError::Stalled(stall)) => stall,
        other => panic!("{other:?}"),
    };
    assert_eq!((late.shard, late.in_kernel), (Engine::shard_of(stores[0]), InKernel::No));
    assert_eq!(late.disk.as_deref(), Some("bad"));
    assert!(late.to_string().ends_with("in the service of a client of disk 'bad'"), "{late}");
    let [stall] = &engine.stalls()[..] else { panic!("{:?}", engine.stalls()) };
    assert_eq!(stall.disk.as_deref(), Some("bad"));
    assert!(matches!(engine.disk_info(bad), Err(EngineError::Stalled(_))));

    // The other shard's disk is served, and what can be told is told.
    sound.write(0, &[1; 4096], 0).unwrap();
    let told: Vec<String> = engine.snapshot().unwrap().into_iter().map(|(_, s)| s.name).collect();
    assert_eq!(told, ["sound"]);

    release.send(()).unwrap();
    while !engine.stalls().is_empty() {
        sleep(Duration::from_millis(1));
    }
    let names: Vec<String> = engine
        .snapshot()
        .unwrap()
        .into_iter()
        .flat_map(|(_, store)| store.disks)
        .map(|disk| disk.name.clone())
        .collect();
    assert_eq!(names, ["bad", "good"], "what failed was done all the same");
    engine.shutdown(Duration::from_millis(10)).unwrap();
}

#[test]
fn an_engine_ends_beside_a_shard_that_stands_still() {
    let engine = Engine::start(EngineConfig { shards: 2, ..EngineConfig::default() }).unwrap();
    let stores = [store(&engine, "stuck"), store(&engine, "sound")];
    let [bad, good] = [disk(&engine, stores[0], "bad"), disk(&engine, stores[1], "good")];
    let sound = Client::new(&engine, good);
    let (blocked, is_blocked) = channel();
    let (_release, go_on) = channel();
    let port = engine.attach(bad, move |_| Box::new(Blocker { blocked, go_on })).unwrap();
    port.command(Box::new(())).unwrap();
    is_blocked.recv().unwrap();
    engine.shutdown(Duration::from_millis(10)).unwrap();
    assert!(sound.0.is_gone(), "the sound shard's disk was closed");
}

#[test]
fn a_group_has_a_shard_to_itself_from_the_first_datastore_on() {
    let group = |name: &str, datastores: &[&str]| ShardGroup {
        name: name.into(),
        datastores: datastores.iter().map(ToString::to_string).collect(),
    };
    let groups = vec![group("alpha", &["a1", "a2"]), group("beta", &["b1", "not-yet"])];
    let config = EngineConfig { shards: 2, groups, ..EngineConfig::default() };
    let engine = Engine::start(config).unwrap();
    // Whatever the order, and however few the others are.
    let shards = ["c1", "a1", "c2", "b1", "c3", "a2", "c4", "c5"]
        .map(|name| (name, Engine::shard_of(store(&engine, name))));
    let of = |first: char| -> Vec<usize> {
        shards.iter().filter(|(name, _)| name.starts_with(first)).map(|(_, s)| *s).collect()
    };
    assert_eq!((of('a'), of('b')), (vec![2, 2], vec![3]), "the groups' after the common ones");
    assert_eq!(of('c'), [0, 1, 0, 1, 0], "the others in turn");
    engine.shutdown(Duration::from_millis(10)).unwrap();
}
