//! Serves one disk by NBD until killed, for measuring the path from the socket to the storage:
//!
//! `cargo run --release -p headgate-frontends --example nbd_serve -- SOCKET IMAGE` (or `null` for 4 GiB of nothing)
//!
//! The export is named `disk`. Beside the data path there is a scheduler with a reservation, a limit and shares, as in service.

use headgate_engine::{
    BackendSpec, Caching, DatastoreSpec, DiskId, DiskSpec, Engine, EngineConfig, Image, Pin,
};
use headgate_frontends::nbd::proto::negotiation::{Catalog, ExportName, OpenError, Opened};
use headgate_frontends::nbd::server::{Attach, NbdServer, ServerConfig, attach_to};
use headgate_qos::{Burst, Policy, SchedulerKind};
use headgate_units::{Bytes, Iops, Shares};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

struct OneDisk(Engine, DiskId);

impl Catalog for OneDisk {
    type Handle = Attach;

    fn list(&self) -> Vec<ExportName> {
        vec![ExportName { name: "disk".into(), description: "the only one".into() }]
    }

    fn open(&self, name: &str) -> Result<Opened<Attach>, OpenError> {
        if name != "disk" {
            return Err(OpenError::Unknown);
        }
        let disk = self.0.disk_info(self.1).map_err(|e| OpenError::Refused(e.to_string()))?;
        Ok(Opened { disk, description: "the only one".into(), handle: attach_to(&self.0, self.1) })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, image] = &arguments[..] else { return Err("usage: nbd_serve SOCKET IMAGE|null".into()) };
    let (backend, image) = match image.as_str() {
        "null" => (BackendSpec::Null, Image::null(Bytes::from_mib(4096))?),
        path => {
            (BackendSpec::Files, Image::open(Path::new(path), Caching::PreferDirect, Duration::from_secs(1))?)
        }
    };
    let engine = Engine::start(EngineConfig { shards: 1, pin: Pin::No })?;
    let store = engine.add_datastore(DatastoreSpec {
        name: "store".into(),
        backend,
        scheduler: SchedulerKind::MClock,
        queue_depth: 64,
        qos: headgate_qos::Config::default(),
    })?;
    let policy = Policy::new(
        Some(Iops::new(1_000)?),
        Some(Iops::new(100_000_000)?),
        None,
        Shares::new(1_000)?,
        Burst::new(32)?,
    )?;
    let disk = engine.open_disk(store, DiskSpec { name: "disk".into(), image, policy })?;
    let config = ServerConfig { unix: Some(socket.into()), ..ServerConfig::default() };
    let _server = NbdServer::start(config, Arc::new(OneDisk(engine, disk)))?;
    loop {
        std::thread::park();
    }
}
