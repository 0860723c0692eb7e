//! Windows that follow the storage's latency: what drives [`headgate_qos::window`] in the daemon.
//!
//! One thread ends the periods of all datastores whose window is controlled: it asks the shard what it saw, asks the board's
//! courier what the other hosts say, and tells the shard its new window. The boards have threads of their own. Nobody on the
//! data path waits for any of them: without this thread the windows stay as they are.

mod keeper;
mod status;

pub use status::{BoardState, Host, Status};

use crate::control::{DataPlane, PlaneError};
use crate::name::Name;
use headgate_cluster::{Client, Courier, EtcdBoard, FileBoard, Identity};
use headgate_engine::clock;
use headgate_qos::CostModel;
use headgate_qos::window::{Config, Slots};
use headgate_units::Nanos;
use keeper::Keeper;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long etcd may take to answer at most: a board that answers later is as good as none for a period.
const ETCD_PATIENCE: Duration = Duration::from_secs(2);

/// The least that it is given, however short the period.
const ETCD_LEAST: Duration = Duration::from_millis(250);

/// How long the other hosts' board may take to hear of our end.
const FAREWELL: Duration = Duration::from_secs(1);

/// Where the hosts of a datastore meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Nowhere: nobody else uses it.
    Alone,
    /// In a file of this directory.
    Directory(PathBuf),
    /// In etcd, under this name.
    Etcd(String),
}

/// How one datastore's window is to be controlled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The control law and its bounds.
    pub config: Config,
    /// How latencies of IOs of different sizes compare.
    pub cost_model: CostModel,
    /// Where the hosts meet.
    pub meeting: Meeting,
}

/// This host among others.
#[derive(Clone, Debug)]
pub struct Myself {
    /// Who it is.
    pub identity: Identity,
    /// The etcd servers it was told of.
    pub etcd: Vec<headgate_cluster::Endpoint>,
}

/// All controlled windows of the daemon.
pub struct Windows {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    plane: Arc<dyn DataPlane>,
    myself: Myself,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    windows: BTreeMap<Name, Entry>,
    stopping: bool,
}

struct Entry {
    keeper: Arc<Mutex<Keeper>>,
    due: Nanos,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Ends periods as they become due, until told to stop.
    fn run(&self) {
        let mut state = lock(&self.state);
        while !state.stopping {
            let now = clock::now();
            let next = state.windows.values_mut().min_by_key(|entry| entry.due);
            let wait = match next {
                None => None,
                Some(entry) if entry.due <= now => {
                    let keeper = entry.keeper.clone();
                    entry.due = now + lock(&keeper).period();
                    drop(state);
                    lock(&keeper).end_period(now, &*self.plane);
                    state = lock(&self.state);
                    continue;
                }
                Some(entry) => Some(Duration::from_nanos((entry.due - now).0)),
            };
            state = match wait {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn courier(&self, name: &Name, setup: &Setup) -> Result<Option<Courier>, PlaneError> {
        let identity = self.myself.identity.clone();
        let started = match &setup.meeting {
            Meeting::Alone => return Ok(None),
            Meeting::Directory(path) => {
                Courier::start(name.as_str(), FileBoard::new(path, identity), clock::now)
            }
            Meeting::Etcd(key) => {
                // A question that hangs must not cost more than the period it is asked in.
                let period = Duration::from_nanos(setup.config.period.0);
                let patience = period.clamp(ETCD_LEAST, ETCD_PATIENCE);
                let client = Client::new(self.myself.etcd.clone(), patience).map_err(PlaneError::new)?;
                let board = EtcdBoard::new(client, key, identity).map_err(PlaneError::new)?;
                Courier::start(name.as_str(), board, clock::now)
            }
        };
        started.map(Some).map_err(|e| PlaneError::new(format!("cannot start a thread for the board: {e}")))
    }
}

impl Windows {
    /// Controls nothing yet.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(plane: Arc<dyn DataPlane>, myself: Myself) -> std::io::Result<Windows> {
        let shared = Arc::new(Shared { plane, myself, state: Mutex::default(), changed: Condvar::new() });
        let its = shared.clone();
        let thread = std::thread::Builder::new().name("headgate-windows".into()).spawn(move || its.run())?;
        Ok(Windows { shared, thread: Some(thread) })
    }

    /// Who this host is to the others.
    pub fn myself(&self) -> &Myself {
        &self.shared.myself
    }

    /// Controls a datastore's window from now on, or differently. What was learned so far is kept where the hosts still meet at
    /// the same place.
    ///
    /// # Errors
    /// When the configuration or the board's place cannot be used, or the shard does not confirm; all is as it was then.
    pub fn control(&self, name: &Name, setup: Setup) -> Result<(), PlaneError> {
        let known = lock(&self.shared.state).windows.get(name).map(|entry| entry.keeper.clone());
        if let Some(keeper) = known {
            let mut keeper = lock(&keeper);
            if keeper.is_for(&setup) {
                keeper.configure(setup, &*self.shared.plane)?;
                drop(keeper);
                self.hurry(name);
                return Ok(());
            }
        }
        let courier = self.shared.courier(name, &setup)?;
        let keeper = Keeper::new(name.clone(), setup, courier, &*self.shared.plane)?;
        let due = clock::now() + keeper.period();
        let entry = Entry { keeper: Arc::new(Mutex::new(keeper)), due };
        let before = lock(&self.shared.state).windows.insert(name.clone(), entry);
        self.shared.changed.notify_all();
        end(before);
        Ok(())
    }

    /// A shorter period begins at once.
    fn hurry(&self, name: &Name) {
        let mut state = lock(&self.shared.state);
        if let Some(entry) = state.windows.get_mut(name) {
            entry.due = entry.due.min(clock::now() + lock(&entry.keeper).period());
        }
        self.shared.changed.notify_all();
    }

    /// Controls a datastore's window no more and sets it to this depth. One that is not controlled is only set.
    ///
    /// # Errors
    /// When the shard does not confirm.
    pub fn release(&self, name: &Name, depth: u32) -> Result<(), PlaneError> {
        if end(lock(&self.shared.state).windows.remove(name)) {
            self.shared.plane.measure_latency(name, None)?;
        }
        self.shared.plane.set_window(name, Slots::whole(depth))
    }

    /// Forgets a datastore that is no more.
    pub fn forget(&self, name: &Name) {
        end(lock(&self.shared.state).windows.remove(name));
    }

    /// Sets a controlled window aside for a measurement: it is `depth` until [`Windows::resume`]. One that is not controlled is
    /// only set.
    ///
    /// # Errors
    /// When the shard does not confirm.
    pub fn suspend(&self, name: &Name, depth: u32) -> Result<(), PlaneError> {
        let keeper = lock(&self.shared.state).windows.get(name).map(|entry| entry.keeper.clone());
        match keeper {
            Some(keeper) => lock(&keeper).suspend(Slots::whole(depth), &*self.shared.plane),
            None => self.shared.plane.set_window(name, Slots::whole(depth)),
        }
    }

    /// Goes on where [`Windows::suspend`] stopped, whatever was measured meanwhile; `depth` is the window of a datastore that is not controlled.
    ///
    /// # Errors
    /// When the shard does not confirm.
    pub fn resume(&self, name: &Name, depth: u32) -> Result<(), PlaneError> {
        let keeper = lock(&self.shared.state).windows.get(name).map(|entry| entry.keeper.clone());
        match keeper {
            Some(keeper) => lock(&keeper).resume(&*self.shared.plane),
            None => {
                self.shared.plane.measure_latency(name, None)?;
                self.shared.plane.set_window(name, Slots::whole(depth))
            }
        }
    }

    /// How a controlled window is; `None` for one that is not.
    pub fn status(&self, name: &Name) -> Option<Status> {
        let keeper = lock(&self.shared.state).windows.get(name)?.keeper.clone();
        let status = lock(&keeper).status(clock::now());
        Some(status)
    }

    /// Leaves all boards. Windows stay as they are.
    pub fn stop(&self) {
        let windows = {
            let mut state = lock(&self.shared.state);
            state.stopping = true;
            std::mem::take(&mut state.windows)
        };
        self.shared.changed.notify_all();
        for entry in windows.into_values() {
            end(Some(entry));
        }
    }
}

/// Takes the host off the board. Answers whether there was anything to end.
fn end(entry: Option<Entry>) -> bool {
    let Some(entry) = entry else { return false };
    if let Some(courier) = lock(&entry.keeper).take_courier() {
        courier.stop(FAREWELL);
    }
    true
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
