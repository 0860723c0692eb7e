//! `headgate serve --demo`: reservations held, within a minute of cloning.
//!
//! The example of the mClock paper (Gulati, Merchant, Varman, OSDI 2010, section 3.1, Figure 3): RD
//! (remote desktop), OLTP and DM (data migration) share an array of 1,600 IOPS. A fourth disk,
//! `neighbours`, stands for other hosts: what it takes, the three lack, and its share is taken by
//! changing its policy while it runs.

use crate::engine_plane::EnginePlane;
use crate::inproc::{Counts, LoadPort, Order, Pattern};
use headgate_api::types::{Change, DatastoreCreate, DiskCreate, DiskPatch};
use headgate_control::{Control, ControlError};
use headgate_engine::PortRef;
use headgate_model::Name;
use headgate_model::PlaneError;
use headgate_units::Iops;
use serde_json::json;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{info, warn};

/// How long each phase lasts.
const PHASE: Duration = Duration::from_secs(12);

/// Requests that each busy disk keeps outstanding.
const DEPTH: u32 = 32;

/// One stage of the play.
struct Phase {
    /// The message that the log shows.
    says: &'static str,
    /// The disks that are kept busy.
    busy: &'static [&'static str],
    /// Rate that other hosts take, in IOPS; 0 for none.
    neighbours: u64,
}

/// The figures are the paper's allocation for what is left of 1,600 IOPS.
const PHASES: [Phase; 5] = [
    Phase {
        says: "the array is theirs: shares of 1:2:3, about 267, 533 and 800 IOPS",
        busy: &["RD", "OLTP", "DM"],
        neighbours: 0,
    },
    Phase {
        says: "other hosts take 400 IOPS: RD keeps its reservation of 250, OLTP and DM share the rest, 380 and 570",
        busy: &["RD", "OLTP", "DM"],
        neighbours: 400,
    },
    Phase {
        says: "other hosts take 725 IOPS: RD and OLTP keep 250 each, DM has the rest, 375",
        busy: &["RD", "OLTP", "DM"],
        neighbours: 725,
    },
    Phase {
        says: "RD rests and the others use what it leaves: OLTP about 640, DM 960 IOPS",
        busy: &["OLTP", "DM"],
        neighbours: 0,
    },
    Phase {
        says: "DM is alone and stays at its limit of 1,000 IOPS",
        busy: &["DM"],
        neighbours: 0,
    },
];

/// The load; ends when dropped, the disks stay.
pub struct Demo {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

fn from_json<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> Result<T, PlaneError> {
    serde_json::from_value(value).map_err(PlaneError::new)
}

fn create(control: &Control) -> Result<Vec<Name>, ControlError> {
    let array = json!({"name": "array", "backend": {"emulated": "rate=1600,latency=5ms"}});
    control.add_datastore(from_json::<DatastoreCreate>(array)?)?;
    let mut names = Vec::new();
    for (name, vm, policy) in [
        ("RD", "desktop", json!({"shares": 100, "reservation": 250})),
        ("OLTP", "database", json!({"shares": 200, "reservation": 250})),
        ("DM", "migration", json!({"shares": 300, "limit": 1000})),
        ("neighbours", "other-hosts", json!({"shares": 100})),
    ] {
        let disk = json!({"name": name, "datastore": "array", "size": 64 << 20, "vm": vm, "policy": policy});
        names.push(control.create_disk(from_json::<DiskCreate>(disk)?)?.now.name);
    }
    Ok(names)
}

/// Reads alone: what is not written is a hole, so the host's own storage, however slow, has no part
/// in the play.
fn pattern(depth: u32) -> Pattern {
    Pattern { depth, read_percent: 100, order: Order::Random }
}

impl Demo {
    /// Creates the datastore and the disks, and starts the load.
    ///
    /// # Errors
    /// When they cannot be created.
    pub fn start(control: Arc<Control>, plane: Arc<EnginePlane>) -> Result<Demo, ControlError> {
        let root = control.state_dir().root().to_owned();
        let mut loads = Vec::new();
        for (seed, name) in (1..).zip(create(&control)?) {
            let port = plane.attach(&name, move |info| {
                let counts = Arc::new(Counts::default());
                Box::new(LoadPort::new(info, pattern(0), 4096, DEPTH, seed, counts))
            })?;
            loads.push((name, port));
        }
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("headgate-demo".into())
            .spawn(move || {
                for phase in PHASES.iter().cycle() {
                    if let Err(e) = play(&control, &loads, phase) {
                        warn!(error = %e, "the demonstration ends");
                        return;
                    }
                    if stopped.recv_timeout(PHASE) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            })
            .map_err(|source| ControlError::Io { doing: "start a thread".into(), source })?;
        info!("demonstration: watch it with 'headgate top --state-dir {}'", root.display());
        Ok(Demo { stop: Some(stop), thread: Some(thread) })
    }
}

fn play(control: &Control, loads: &[(Name, PortRef)], phase: &Phase) -> Result<(), ControlError> {
    info!("demonstration: {}", phase.says);
    for (name, port) in loads {
        let busy = match name.as_str() {
            "neighbours" => {
                let taken = Iops::new(phase.neighbours).map_or(Change::Remove, Change::Set);
                let patch = DiskPatch { reservation: taken, limit: taken, ..DiskPatch::default() };
                control.set_disk(name, patch)?;
                phase.neighbours > 0
            }
            other => phase.busy.contains(&other),
        };
        let depth = if busy { DEPTH } else { 0 };
        // A disk that was removed meanwhile plays no more.
        let _ = port.command(Box::new(pattern(depth)));
    }
    Ok(())
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
