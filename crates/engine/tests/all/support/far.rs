//! A disk of an engine on a server in this process.

use super::server::Server;
use super::{Client, PATIENCE};
use headgate_engine::backend::nbd::Connection;
use headgate_engine::request::{Durability, IoError, Op, Unmap, ZeroSpeed};
use headgate_engine::snapshot::{RemoteSnapshot, RemoteState};
use headgate_engine::{
    BackendSpec, DatastoreId, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig, Image,
};
use headgate_nbd_io::ClientTls;
use headgate_qos::{Policy, SchedulerKind};
use headgate_units::Bytes;
use std::time::{Duration, Instant};

pub const SIZE: usize = 8 << 20;
pub const EIO: Result<(), IoError> = Err(IoError::Backend(libc::EIO));
pub const ZEROES: Op =
    Op::WriteZeroes { unmap: Unmap::May, speed: ZeroSpeed::Any, durability: Durability::Cached };

pub struct Bench {
    pub engine: Engine,
    pub datastore: DatastoreId,
    pub disk: DiskId,
}

impl Bench {
    pub fn new(server: &Server) -> Bench {
        let connection =
            Connection::open(&server.uri("disk"), PATIENCE, &ClientTls::by_uri()).unwrap();
        Bench::with(server, Some(connection), 512)
    }

    pub fn with(server: &Server, connection: Option<Connection>, block_size: u32) -> Bench {
        let image =
            Image::remote(server.uri("disk"), Bytes(SIZE as u64), block_size, connection).unwrap();
        Bench::on(image)
    }

    pub fn on(image: Image) -> Bench {
        let engine = Engine::start(EngineConfig { shards: 1, ..EngineConfig::default() }).unwrap();
        let spec = DatastoreSpec {
            name: "far".into(),
            backend: BackendSpec::Remote,
            layers: Vec::new(),
            scheduler: SchedulerKind::MClock,
            queue_depth: 64,
            qos: headgate_qos::Config::default(),
        };
        let datastore = engine.add_datastore(spec).unwrap();
        let disk = DiskSpec { name: "d".into(), image, policy: Policy::default() };
        let disk = engine.open_disk(datastore, disk).unwrap();
        Bench { engine, datastore, disk }
    }

    pub fn client(&self) -> Client {
        Client::new(&self.engine, self.disk)
    }

    pub fn remote(&self) -> RemoteSnapshot {
        let all = self.engine.snapshot().unwrap();
        let (_, store) = all.into_iter().find(|(id, _)| *id == self.datastore).unwrap();
        store.disks.into_iter().next().unwrap().remote.clone().unwrap()
    }

    pub fn wait_for(&self, what: &str, is_it: impl Fn(&RemoteSnapshot) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let remote = self.remote();
            if is_it(&remote) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {remote:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn reconnected(&self, times: u64) {
        self.wait_for("a new connection", |r| {
            r.state == RemoteState::Connected && r.reconnects >= times
        });
    }
}

pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7 + i % 251) as u8 ^ seed).collect()
}
