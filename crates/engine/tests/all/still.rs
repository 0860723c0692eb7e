//! Disks to which nothing happens are not read again, and what is told of them is what a shard that
//! is asked anew would tell.

use crate::support::Client;
use crate::support::moving::{Numbers, Shards, datastore, engine, ram};
use headgate_engine::port::Detach;
use headgate_engine::request::Op;
use headgate_engine::snapshot::{DatastoreSnapshot, DiskSnapshot};
use headgate_engine::{
    BackendSpec, DatastoreId, DiskId, DiskSpec, Engine, HoldReads, HoldWrites, Priorities,
    TroublePolicy,
};
use headgate_qos::{Policy, PriorityPolicy};
use headgate_units::{Iops, Nanos, Priority};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

struct Disk {
    store: usize,
    id: DiskId,
    clients: Vec<Client>,
}

struct Bench {
    engine: Engine,
    stores: Vec<DatastoreId>,
    disks: Vec<Disk>,
    opened: u64,
    /// Requests that were done, by datastore.
    done: Vec<u64>,
}

impl Bench {
    fn new(shards: Shards) -> Bench {
        let engine = engine(shards);
        let stores = ["a", "b"].map(|name| datastore(&engine, name, BackendSpec::Memory, &[]));
        let (stores, disks) = (stores.to_vec(), Vec::new());
        Bench { engine, stores, disks, opened: 0, done: vec![0; 2] }
    }

    fn open(&mut self, store: usize) {
        let name = format!("d{}", self.opened);
        self.opened += 1;
        let spec = DiskSpec { name, image: ram(), policy: Policy::default() };
        let id = self.engine.open_disk(self.stores[store], spec).unwrap();
        self.disks.push(Disk { store, id, clients: Vec::new() });
    }

    /// Does one thing of many.
    fn act(&mut self, numbers: &mut Numbers) {
        let what = numbers.below(10);
        if what == 0 || self.disks.is_empty() {
            return self.open(numbers.below(2) as usize);
        }
        let at = numbers.below(self.disks.len() as u64) as usize;
        let (engine, disk) = (&self.engine, &mut self.disks[at]);
        match what {
            1 => {
                let disk = self.disks.swap_remove(at);
                engine.close_disk(disk.id, PATIENCE).unwrap();
            }
            2 => disk.clients.push(Client::new(engine, disk.id)),
            3 => {
                let Some(client) = disk.clients.pop() else { return };
                client.0.detach(Detach::Drain);
                while !client.0.is_gone() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            4 => {
                let reservation = Iops::new(1 + numbers.below(9)).ok();
                let policy = Policy::default().with_reservation(reservation).unwrap();
                engine.set_policy(disk.id, policy).unwrap();
            }
            5 => {
                let max = Priority::new(1 + numbers.below(200)).unwrap();
                let policy = PriorityPolicy { max, ..PriorityPolicy::default() };
                let priorities = Priorities { policy, ..Priorities::default() };
                engine.set_priorities(disk.id, priorities).unwrap();
            }
            6 => {
                let writes = [HoldWrites::Always, HoldWrites::Never][numbers.below(2) as usize];
                let policy = TroublePolicy { writes, reads: HoldReads::Never };
                engine.set_trouble(disk.id, policy).unwrap();
            }
            _ => {
                let Some(client) = disk.clients.first() else { return };
                let offset = numbers.below(8) * 4096;
                assert_eq!(client.run(Op::Read, offset, 4096).0, Ok(()));
                self.done[disk.store] += 1;
            }
        }
    }

    /// Holds what is told of all disks to what is told of each alone, which is always read.
    fn check(&self) -> Vec<(DatastoreId, DatastoreSnapshot)> {
        let told = self.engine.snapshot().unwrap();
        let mut known = BTreeMap::new();
        for (store, snapshot) in &told {
            for reading in &snapshot.disks {
                let one = self.engine.snapshot_disk(Engine::disk_of(*store, reading)).unwrap();
                let one = one.expect("the disk is there");
                assert!(reading.stats.at <= reading.at && reading.at <= one.stats.at);
                assert_eq!(plain(&reading.told), plain(&one));
                known.insert(reading.name.clone(), *store);
            }
            let which = self.stores.iter().position(|known| known == store).unwrap();
            assert_eq!(snapshot.stats.reads.counts.done, self.done[which], "{}", snapshot.name);
            assert_eq!(snapshot.stats.reads.total.count(), self.done[which]);
        }
        assert_eq!(known.len(), self.disks.len());
        told
    }
}

/// All that is told, but for when.
fn plain(disk: &DiskSnapshot) -> String {
    let mut disk = disk.clone();
    Arc::make_mut(&mut disk.stats).at = Nanos::ZERO;
    disk.neighbours.clear();
    format!("{disk:?}")
}

/// The disks that were read again, by name.
fn read_again(
    before: &[(DatastoreId, DatastoreSnapshot)],
    now: &[(DatastoreId, DatastoreSnapshot)],
) -> Vec<String> {
    let all = |told: &[(DatastoreId, DatastoreSnapshot)]| -> BTreeMap<String, Arc<DiskSnapshot>> {
        let disks = told.iter().flat_map(|(_, store)| &store.disks);
        disks.map(|disk| (disk.name.clone(), disk.told.clone())).collect()
    };
    let before = all(before);
    let again = all(now)
        .into_iter()
        .filter(|(name, told)| !before.get(name).is_some_and(|before| Arc::ptr_eq(before, told)));
    again.map(|(name, _)| name).collect()
}

#[test]
fn what_is_told_of_all_disks_is_what_each_would_tell() {
    for (seed, shards) in [(1, Shards::One), (2, Shards::Two), (3, Shards::One)] {
        let (mut bench, mut numbers) = (Bench::new(shards), Numbers::new(seed));
        for _ in 0..300 {
            for _ in 0..numbers.below(4) {
                bench.act(&mut numbers);
            }
            bench.check();
        }
        bench.engine.shutdown(Duration::from_millis(100)).unwrap();
    }
}

#[test]
fn a_disk_is_read_again_only_after_something_happened_to_it() {
    let mut bench = Bench::new(Shards::One);
    (0..100).for_each(|n| bench.open(n % 2));
    let client = Client::new(&bench.engine, bench.disks[70].id);
    client.run(Op::Read, 0, 4096).0.unwrap();
    bench.done[0] += 1;
    let settle = |bench: &Bench| {
        bench.check();
        bench.check();
        bench.check()
    };
    let before = settle(&bench);
    let now = bench.check();
    assert_eq!(read_again(&before, &now), [""; 0]);
    assert!(now[0].1.disks[0].at > before[0].1.disks[0].at, "it is of another time");
    client.run(Op::Read, 0, 4096).0.unwrap();
    bench.done[0] += 1;
    // Once more in the pass after, for what is judged late.
    for _ in 0..2 {
        assert_eq!(read_again(&now, &bench.check()), ["d70"]);
    }
    let before = bench.check();
    assert_eq!(read_again(&before, &bench.check()), [""; 0]);
    bench.engine.shutdown(Duration::from_millis(100)).unwrap();
}
