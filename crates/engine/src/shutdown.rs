//! The end of an engine. It waits for no storage that hangs.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::ids::DiskId;
use crate::port::Detach;
use crate::port_ref::PortRef;
use crate::settled::{Ended, Settled};
use headgate_mirror::changes::Changes;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long clients that had their time are waited for, once they are cut off, and the storage for
/// what is left of their requests.
const GRACE: Duration = Duration::from_secs(3);

/// How long the closing of files may take, all together.
const CLOSE: Duration = Duration::from_secs(2);

/// How often is looked whether requests have ended.
const LOOK: Duration = Duration::from_millis(10);

/// A disk that is to be closed.
struct Leaving {
    disk: DiskId,
    name: String,
    ports: Vec<PortRef>,
    /// Where its changes are noted, as long as what it will hold is known.
    changes: Option<Arc<Changes>>,
}

impl Engine {
    /// Ends the engine: drains and closes every disk, for up to `patience` and a few seconds for
    /// all together, then the threads.
    ///
    /// Disks that have requests at their storage still are left open with their locks, and so are
    /// their shards: memory and files belong to the kernel until it lets go of them.
    ///
    /// # Errors
    /// [`EngineError::Gone`] when that had happened already.
    pub fn shutdown(self, patience: Duration) -> Result<Ended, EngineError> {
        let deadline = Instant::now() + patience;
        let mut leaving = Vec::new();
        let mut left = Vec::new();
        for (store, snapshot) in self.snapshot()? {
            for found in &snapshot.disks {
                let (disk, name) = (Engine::disk_of(store, found), found.name.clone());
                match self.ports_of(disk) {
                    Ok(ports) => {
                        let key = disk.key;
                        let changes = self.call(disk.shard, move |s| s.settling_changes(key));
                        let changes = changes.and_then(|found| found).unwrap_or_default();
                        leaving.push(Leaving { disk, name, ports, changes });
                    }
                    Err(EngineError::NoDisk) => {}
                    Err(_) => left.push(name),
                }
            }
        }
        // All drain at once: a slow disk must not eat the others' time.
        let ports = || leaving.iter().flat_map(|one| &one.ports);
        ports().for_each(|port| port.detach(Detach::Drain));
        for port in ports() {
            port.wait_gone(deadline.saturating_duration_since(Instant::now()));
        }
        for one in leaving.iter_mut().filter(|one| !one.ports.iter().all(PortRef::is_gone)) {
            // What became of its requests is not known.
            one.changes = None;
            one.ports.iter().for_each(|port| port.detach(Detach::Now));
            let key = one.disk.key;
            // What a server owes is not waited for, nor answered. A shard that stands still is told
            // of below.
            let _ = self.call(one.disk.shard, move |s| s.context().abandon(key));
        }
        for shard in 0..self.members.len() {
            // A shard that stands still keeps its disks.
            let _ = self.call(shard, |s| s.abandon_moves());
        }
        let ended = self.take_all(leaving, Instant::now() + GRACE);
        left.extend(ended.left);
        let stuck = self.stop_idle();
        if !left.is_empty() || stuck > 0 {
            tracing::warn!(disks = ?left, "requests are left at storage that does not answer");
        }
        Ok(Ended { left, settled: ended.settled })
    }

    /// Takes out disks as their last requests end, until `deadline`; answers those that are left,
    /// and those of which is known what they hold.
    fn take_all(&self, mut leaving: Vec<Leaving>, deadline: Instant) -> Ended {
        let (closed, ends) = channel();
        let mut closing = 0;
        loop {
            let mut storages = Vec::new();
            leaving.retain_mut(|one| {
                let key = one.disk.key;
                match self.call(one.disk.shard, move |s| s.take_settled(key)) {
                    Ok(Ok((storage, found))) => {
                        let settling = one.changes.take().filter(|changes| {
                            found.is_some_and(|found| Arc::ptr_eq(&found, changes))
                        });
                        let settling = settling.map(|changes| (one.name.clone(), changes));
                        storages.push((storage, settling, closed.clone()));
                    }
                    Ok(Err(EngineError::DiskBusy { .. } | EngineError::Move(_))) => return true,
                    // A shard that stands still keeps what it has.
                    Err(EngineError::Stalled(_)) => return true,
                    Ok(Err(_)) | Err(_) => {}
                }
                false
            });
            closing += storages.len();
            for (storage, settling, closed) in storages {
                // A file system that hangs may not let go of a file.
                let close = move || {
                    let settled =
                        settling.and_then(|(name, changes)| Settled::of(name, changes, &storage));
                    drop(storage);
                    let _ = closed.send(settled);
                };
                // Without a thread the file is closed here and now.
                let _ = std::thread::Builder::new().spawn(close);
            }
            if leaving.is_empty() || Instant::now() >= deadline {
                break;
            }
            sleep(LOOK);
        }
        drop(closed);
        let until = Instant::now() + CLOSE;
        let next = |_| ends.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        let ended: Vec<Option<Settled>> = (0..closing).map_while(next).collect();
        if ended.len() < closing {
            tracing::warn!("files could not be closed in time: they end with this process");
        }
        let left = leaving.into_iter().map(|one| one.name).collect();
        Ended { left, settled: ended.into_iter().flatten().collect() }
    }

    /// Stops the shards that have no disks any more; answers how many have.
    fn stop_idle(&self) -> usize {
        let mut stuck = 0;
        for (shard, member) in self.members.iter().enumerate() {
            let busy = self.call(shard, |s| s.has_disks()).unwrap_or(true);
            if busy {
                stuck += 1;
                continue;
            }
            // It has ended already.
            let _ = member.stop(shard);
        }
        stuck
    }
}
