//! Serves one disk by vhost-user-blk until killed, for measuring the path from the rings to the storage:
//!
//! `cargo run --release -p headgate-frontends --example vhost_serve -- SOCKET IMAGE` (or `null` for 4 GiB of nothing)
//!
//! Beside the data path there is a scheduler with a reservation, a limit and shares, as in service.

use headgate_engine::{BackendSpec, Caching, DatastoreSpec, DiskSpec, Engine, EngineConfig, Image, Pin};
use headgate_frontends::vhost::server::VhostServer;
use headgate_qos::{Burst, Policy, SchedulerKind};
use headgate_units::{Bytes, Iops, Shares};
use std::error::Error;
use std::path::Path;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, image] = &arguments[..] else { return Err("usage: vhost_serve SOCKET IMAGE|null".into()) };
    let (backend, image) = match image.as_str() {
        "null" => (BackendSpec::Null, Image::null(Bytes::from_mib(4096))?),
        path => {
            let patience = Duration::from_secs(10);
            (BackendSpec::Files, Image::open(Path::new(path), Caching::PreferDirect, patience)?)
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
    let _server = VhostServer::start(Path::new(socket), engine, disk)?;
    loop {
        std::thread::park();
    }
}
