//! Clients that come, go and are cut off at random, disks that close under them, policies that
//! change: afterwards every acknowledged write is there and nothing is left over.

use crate::support::{Answer, Client, PATIENCE, places};
use headgate_engine::port::Detach;
use headgate_engine::request::{Durability, Op};
use headgate_engine::{
    BackendSpec, Caching, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig, Image,
};
use headgate_qos::window::Slots;
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::{Bytes, Iops, Shares};
use proptest::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

const BLOCKS: u64 = 64;
const BLOCK: u64 = 4096;
const DISKS: usize = 3;

#[derive(Clone, Debug)]
enum Action {
    Attach { disk: usize },
    Write { client: usize, block: u64, blocks: u64 },
    Read { client: usize, block: u64 },
    Flush { client: usize },
    Outside { client: usize },
    Cut { client: usize },
    Drain { client: usize },
    Reopen { disk: usize },
    Policy { disk: usize, reservation: u64, limit: u64, shares: u64 },
    Window { depth: u32 },
    Settle,
}

fn action() -> impl Strategy<Value = Action> {
    let client = 0..8usize;
    prop_oneof![
        3 => (0..DISKS).prop_map(|disk| Action::Attach { disk }),
        20 => (client.clone(), 0..BLOCKS, 1..5u64).prop_map(|(client, block, blocks)| Action::Write {
            client, block, blocks: blocks.min(BLOCKS - block)
        }),
        6 => (client.clone(), 0..BLOCKS).prop_map(|(client, block)| Action::Read { client, block }),
        2 => client.clone().prop_map(|client| Action::Flush { client }),
        1 => client.clone().prop_map(|client| Action::Outside { client }),
        1 => client.clone().prop_map(|client| Action::Cut { client }),
        1 => client.prop_map(|client| Action::Drain { client }),
        1 => (0..DISKS).prop_map(|disk| Action::Reopen { disk }),
        2 => (0..DISKS, 0..50_000u64, 50_000..1_000_000u64, 1..10_000u64)
            .prop_map(|(disk, reservation, limit, shares)| Action::Policy { disk, reservation, limit, shares }),
        1 => (1..40u32).prop_map(|depth| Action::Window { depth }),
        2 => Just(Action::Settle),
    ]
}

struct World {
    engine: Engine,
    datastore: DatastoreId,
    paths: Vec<PathBuf>,
    disks: Vec<DiskId>,
    clients: Vec<(usize, Client)>,
    /// Writes that were not waited for: disk, blocks, stamp.
    pending: Vec<(usize, std::ops::Range<u64>, u8, Receiver<Answer>)>,
    /// What a block may hold: the last acknowledged write, or any later one whose client was cut
    /// off.
    may_hold: HashMap<(usize, u64), Vec<u8>>,
    stamp: u8,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(backend: BackendSpec, dir: tempfile::TempDir) -> World {
        let engine = Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap();
        let spec = DatastoreSpec {
            name: "ds".into(),
            backend,
            layers: Vec::new(),
            scheduler: SchedulerKind::MClock,
            queue_depth: 4,
            qos: headgate_qos::Config::default(),
        };
        let datastore = engine.add_datastore(spec).unwrap();
        let paths: Vec<_> = (0..DISKS).map(|n| dir.path().join(format!("{n}.raw"))).collect();
        paths.iter().for_each(|p| Image::create(p, Bytes(BLOCKS * BLOCK)).unwrap());
        let mut world = World {
            engine,
            datastore,
            paths,
            disks: Vec::new(),
            clients: Vec::new(),
            pending: Vec::new(),
            may_hold: HashMap::new(),
            stamp: 0,
            _dir: dir,
        };
        world.disks = (0..DISKS).map(|n| world.open(n)).collect();
        world
    }

    fn open(&self, n: usize) -> DiskId {
        let image = Image::open(&self.paths[n], Caching::Buffered, PATIENCE).unwrap();
        let spec = DiskSpec { name: n.to_string(), image, policy: Policy::default() };
        self.engine.open_disk(self.datastore, spec).unwrap()
    }

    fn client(&self, n: usize) -> Option<&(usize, Client)> {
        if self.clients.is_empty() { None } else { self.clients.get(n % self.clients.len()) }
    }

    /// Waits for every write; one whose client was cut off may or may not have happened.
    fn settle(&mut self) {
        for (disk, blocks, stamp, answer) in self.pending.drain(..) {
            let done = answer.recv_timeout(PATIENCE);
            let acknowledged = done.as_ref().is_ok_and(|(result, ..)| *result == Ok(()));
            assert!(acknowledged || done.is_err(), "a write failed: {done:?}");
            assert_ne!(
                done.err(),
                Some(std::sync::mpsc::RecvTimeoutError::Timeout),
                "a write never ended"
            );
            for block in blocks {
                let may_hold = self.may_hold.entry((disk, block)).or_insert_with(|| vec![0]);
                if acknowledged {
                    may_hold.clear();
                }
                may_hold.push(stamp);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Attach { disk } if self.clients.len() < 8 => {
                self.clients.push((disk, Client::new(&self.engine, self.disks[disk])));
            }
            Action::Attach { .. } => {}
            Action::Write { client, block, blocks } => {
                // One write per block at a time, so that the order of what it may hold is known.
                let range = block..block + blocks;
                let Some(&(disk, _)) = self.client(client) else { return };
                if self
                    .pending
                    .iter()
                    .any(|(d, r, ..)| *d == disk && r.start < range.end && range.start < r.end)
                {
                    self.settle();
                }
                self.stamp = self.stamp.wrapping_add(1).max(1);
                let data = vec![self.stamp; (blocks * BLOCK) as usize];
                let Some((_, client)) = self.client(client) else { return };
                let op = Op::Write(Durability::Cached);
                let answer = client.start(
                    op,
                    block * BLOCK,
                    blocks * BLOCK,
                    data,
                    usize::from(self.stamp % 3),
                );
                self.pending.push((disk, range, self.stamp, answer));
            }
            Action::Read { client, block } => {
                if let Some((_, client)) = self.client(client) {
                    drop(client.start(Op::Read, block * BLOCK, BLOCK, vec![0; BLOCK as usize], 0));
                }
            }
            Action::Flush { client } => {
                if let Some((_, client)) = self.client(client) {
                    drop(client.start(Op::Flush, 0, 0, vec![], 0));
                }
            }
            Action::Outside { client } => {
                if let Some((_, client)) = self.client(client) {
                    drop(client.start(Op::Read, BLOCKS * BLOCK, BLOCK, vec![0; BLOCK as usize], 0));
                }
            }
            Action::Cut { client } | Action::Drain { client } => {
                if self.clients.is_empty() {
                    return;
                }
                let (_, gone) = self.clients.swap_remove(client % self.clients.len());
                gone.0.detach(if matches!(action, Action::Cut { .. }) {
                    Detach::Now
                } else {
                    Detach::Drain
                });
                assert!(gone.0.wait_gone(PATIENCE), "a detached client never ended");
            }
            Action::Reopen { disk } => {
                self.engine.close_disk(self.disks[disk], PATIENCE).unwrap();
                self.clients.retain(|(d, _)| *d != disk);
                self.disks[disk] = self.open(disk);
            }
            Action::Policy { disk, reservation, limit, shares } => {
                let policy = Policy::shared(Shares::new(shares).unwrap())
                    .with_limit(Iops::new(limit).ok())
                    .and_then(|p| p.with_reservation(Iops::new(reservation).ok()))
                    .unwrap();
                self.engine.set_policy(self.disks[disk], policy).unwrap();
            }
            Action::Window { depth } => {
                self.engine.set_window(self.datastore, Slots::whole(depth)).unwrap()
            }
            Action::Settle => self.settle(),
        }
    }

    fn finish(mut self) {
        self.settle();
        self.clients.clear();
        let (_, snapshot) = self.engine.snapshot().unwrap().remove(0);
        assert_eq!(snapshot.disks.len(), DISKS);
        let readers: Vec<_> = self.disks.iter().map(|&d| Client::new(&self.engine, d)).collect();
        for (&(disk, block), stamps) in &self.may_hold {
            let data = readers[disk].read(block * BLOCK, BLOCK as usize, 0);
            assert!(data.iter().all(|&b| b == data[0]), "disk {disk} block {block} is torn");
            assert!(
                stamps.contains(&data[0]),
                "disk {disk} block {block} holds {} of {stamps:?}",
                data[0]
            );
        }
        self.engine.shutdown(PATIENCE).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_left_over(emulated: bool, actions in prop::collection::vec(action(), 1..400)) {
        let backend = match emulated {
            true => BackendSpec::Emulated("rate=20000".parse().unwrap(), Bytes(1 << 20)),
            false => BackendSpec::Files,
        };
        for dir in places() {
            let mut world = World::new(backend.clone(), dir);
            for action in &actions {
                world.act(action.clone());
            }
            world.finish();
        }
    }
}
