//! What is known of disks when an engine has ended.

use crate::support::copying::{Copier, spec};
use crate::support::moving::{
    BOTH, Mover, SIZE, Shards, datastore, engine, file, open, place, ram,
};
use crate::support::{Client, PATIENCE};
use headgate_engine::request::{Durability, Op};
use headgate_engine::{
    BackendSpec, CopyEvent, DiskId, DiskSpec, Engine, HoldWrites, Image, TroublePolicy,
};
use headgate_mirror::TargetContent;
use headgate_mirror::changes::{Changes, GRAIN};
use headgate_qos::Policy;
use headgate_units::{Bytes, Iops};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Disks whose changes are noted, by their names.
struct Bench {
    engine: Engine,
    noted: BTreeMap<String, Arc<Changes>>,
}

impl Bench {
    fn new(shards: Shards) -> Bench {
        Bench { engine: engine(shards), noted: BTreeMap::new() }
    }

    /// A disk whose changes are noted, with a client that changes its fourth grain.
    fn disk(&mut self, name: &str, layers: &[&str], image: Image) -> (DiskId, Client) {
        let backend = match image.as_fd() {
            Some(_) => BackendSpec::Files,
            None => BackendSpec::Memory,
        };
        let store = datastore(&self.engine, name, backend, layers);
        let spec = DiskSpec { name: name.into(), image, policy: Policy::default() };
        let disk = self.engine.open_disk(store, spec).unwrap();
        let changes = Arc::new(Changes::new(Bytes(SIZE)));
        self.engine.track_changes(disk, Arc::clone(&changes)).unwrap();
        self.noted.insert(name.to_owned(), changes);
        let client = Client::new(&self.engine, disk);
        client.write(3 * GRAIN.0, &[1; 4096], 0).unwrap();
        (disk, client)
    }

    fn settled(self, patience: Duration) -> Vec<String> {
        let mut names = Vec::new();
        for settled in self.engine.shutdown(patience).unwrap().settled {
            assert!(Arc::ptr_eq(&settled.changes, &self.noted[&settled.name]));
            names.push(settled.name);
        }
        names.sort();
        names
    }
}

/// Whether its file system tells who changed an image there.
fn tells(dir: &Path) -> bool {
    let tells = file(&dir.join("asked.img")).stamp().is_some();
    if !tells {
        eprintln!("left out: the file system of {} does not tell of changes", dir.display());
    }
    tells
}

#[test]
fn what_a_disk_holds_is_known_if_all_of_it_is_durable_and_nothing_was_lost() {
    let dir = place();
    let path = |name: &str| dir.path().join(name);
    if !tells(dir.path()) {
        return;
    }
    for (number, shards) in BOTH.into_iter().enumerate() {
        let mut bench = Bench::new(shards);
        let image = |name: &str| file(&path(&format!("{name}-{number}.img")));
        let (known, client) = bench.disk("known", &[], image("known"));
        client.write(9 * GRAIN.0, &[2; 4096], 0).unwrap();
        bench.disk("in-memory", &[], ram());
        let failing = ["error=100%,on=flush"];
        let (_, client) = bench.disk("flush-failed", &failing, image("flush-failed"));
        client.run(Op::Flush, 0, 0).0.unwrap_err();
        let store = datastore(&bench.engine, "not-noted", BackendSpec::Files, &[]);
        open(&bench.engine, store, image("not-noted"));
        let changes = bench.engine.tracked_changes(known).unwrap().unwrap();
        assert_eq!(bench.settled(PATIENCE), ["known"]);
        assert_eq!(changes.since_base(Bytes(SIZE)).bytes(), Bytes(2 * GRAIN.0));
    }
}

#[test]
fn a_stamp_of_the_end_is_that_of_the_image_until_somebody_changes_it() {
    let dir = place();
    if !tells(dir.path()) {
        return;
    }
    let path = dir.path().join("d.img");
    let mut bench = Bench::new(BOTH[0]);
    let (_disk, _client) = bench.disk("disk", &[], file(&path));
    let ended = bench.engine.shutdown(PATIENCE).unwrap();
    let stamp = ended.settled[0].stamp;
    let open = || Image::open(&path, headgate_engine::Caching::Buffered, PATIENCE).unwrap();
    assert_eq!(open().stamp(), Some(stamp));
    // By another daemon, that has it at once.
    let mut bench = Bench::new(BOTH[0]);
    let (_disk, _client) = bench.disk("disk", &[], open());
    bench.engine.shutdown(PATIENCE).unwrap();
    assert_ne!(open().stamp(), Some(stamp));
}

#[test]
fn of_a_disk_that_moves_or_is_copied_at_the_end_nothing_is_told() {
    let dir = place();
    for (number, shards) in BOTH.into_iter().enumerate() {
        let image = |name: &str| file(&dir.path().join(format!("{name}-{number}.img")));
        let mut bench = Bench::new(shards);
        let (source, _client) = bench.disk("moves", &[], image("moves"));
        let target = datastore(&bench.engine, "slow", BackendSpec::Memory, &["delay=20ms"]);
        let target = open(&bench.engine, target, ram());
        let engine = bench.engine.clone();
        let _mover = Mover::begin(&engine, source, target);
        assert!(bench.settled(PATIENCE).is_empty());
        let mut bench = Bench::new(shards);
        let (source, client) = bench.disk("is-copied", &[], image("is-copied"));
        client.write(0, &vec![6; SIZE as usize], 0).unwrap();
        let target = datastore(&bench.engine, "slow", BackendSpec::Memory, &["delay=20ms"]);
        let target = open(&bench.engine, target, ram());
        let (mut asked, gauge, events) = spec(source, target, TargetContent::Zeroes);
        asked.terms.pace = Policy::default().with_limit(Iops::new(1).ok()).unwrap();
        let copier = Copier::of(&bench.engine, (asked, gauge, events));
        assert_eq!(copier.next(), CopyEvent::Instant);
        assert!(bench.settled(PATIENCE).is_empty());
    }
}

#[test]
fn of_a_disk_that_holds_requests_nothing_is_told() {
    let dir = place();
    let mut bench = Bench::new(BOTH[0]);
    let (disk, client) = bench.disk("holds", &[], file(&dir.path().join("d.img")));
    let writes = HoldWrites::Always;
    bench.engine.set_trouble(disk, TroublePolicy { writes, ..Default::default() }).unwrap();
    let store = bench.engine.snapshot().unwrap()[0].0;
    bench.engine.set_layers(store, &["error=100%,on=write".parse().unwrap()]).unwrap();
    let wait = client.start(Op::Write(Durability::Cached), 0, 4096, vec![1; 4096], 0);
    assert!(wait.recv_timeout(Duration::from_millis(100)).is_err(), "it is held");
    assert!(bench.settled(Duration::from_millis(200)).is_empty());
}
