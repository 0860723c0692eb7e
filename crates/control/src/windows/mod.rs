//! Windows that follow the storage's latency: what drives [`headgate_qos::window`] in the daemon.
//!
//! One thread ends the periods of all datastores whose window is controlled: it asks the shard what
//! it saw, has the board's courier read what the other hosts say, and tells the shard its new
//! window. The boards have threads of their own. Nobody on the data path waits for any of them:
//! without this thread the windows stay as they are.

mod keeper;
mod status;

pub use status::{BoardState, Followed, Host, Status};

use crate::clock;
use headgate_cluster::{Client, Courier, EtcdBoard, EtcdError, FileBoard, Identity, Servers};
use headgate_model::Name;
use headgate_model::{DataPlane, PlaneError};
use headgate_qos::window::{Config, Slots, board_patience};
use headgate_qos::{CostModel, Narrow};
use headgate_units::Nanos;
use keeper::Keeper;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long etcd may take to answer at most: a board that answers later is as good as none for a
/// period.
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
    /// Where a threshold that follows was when it was last heard of.
    pub followed: Option<Nanos>,
}

/// This host among others.
#[derive(Clone, Debug)]
pub struct Myself {
    /// Who it is.
    pub identity: Identity,
    /// The etcd servers, where it was told of some.
    pub etcd: Option<Servers>,
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
    next: Step,
    /// When that is due.
    due: Nanos,
}

/// What happens next with a window.
#[derive(Clone, Copy)]
enum Step {
    /// Its board is read.
    Read,
    /// The period that ended then is accounted for: when the board has answered, or when it was
    /// waited for long enough.
    Update { ended: Nanos },
}

impl Entry {
    fn is_ready(&self, now: Nanos) -> bool {
        let has_answer = || lock(&self.keeper).is_refreshed();
        self.due <= now || matches!(self.next, Step::Update { .. }) && has_answer()
    }

    /// Takes the step that is ready, and plans the one after it.
    fn advance(&mut self, now: Nanos) -> Step {
        let period = lock(&self.keeper).period();
        let step = self.next;
        (self.next, self.due) = match step {
            Step::Read => (Step::Update { ended: now }, now + board_patience(period)),
            // Periods that were slept through are not made up for.
            Step::Update { ended } if ended + period <= now => (Step::Read, now + period),
            Step::Update { ended } => (Step::Read, ended + period),
        };
        step
    }
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
            let ready = state.windows.values_mut().filter(|entry| entry.is_ready(now));
            if let Some(entry) = ready.min_by_key(|entry| entry.due) {
                let (keeper, step) = (entry.keeper.clone(), entry.advance(now));
                drop(state);
                match step {
                    Step::Read => lock(&keeper).refresh(),
                    Step::Update { .. } => lock(&keeper).end_period(now, &*self.plane),
                }
                state = lock(&self.state);
                continue;
            }
            let due = state.windows.values().map(|entry| entry.due).min();
            let wait = due.map(|due| Duration::from_nanos((due - now).0));
            state = match wait {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn courier(
        self: &Arc<Shared>,
        name: &Name,
        setup: &Setup,
    ) -> Result<Option<Courier>, PlaneError> {
        let identity = self.myself.identity.clone();
        let windows = Arc::downgrade(self);
        let answered = move || {
            if let Some(windows) = windows.upgrade() {
                // Not between its look at the entries and its sleep.
                drop(lock(&windows.state));
                windows.changed.notify_all();
            }
        };
        let started = match &setup.meeting {
            Meeting::Alone => return Ok(None),
            Meeting::Directory(path) => {
                Courier::start(name.as_str(), FileBoard::new(path, identity), clock::now, answered)
            }
            Meeting::Etcd(key) => {
                // A question that hangs must not cost more than the period it is asked in.
                let period = Duration::from_nanos(setup.config.period.0);
                let patience = period.clamp(ETCD_LEAST, ETCD_PATIENCE);
                let etcd = self.myself.etcd.clone();
                let etcd = etcd.ok_or(EtcdError::NoEndpoint).map_err(PlaneError::new)?;
                let client = Client::new(etcd, patience).map_err(PlaneError::new)?;
                let board = EtcdBoard::new(client, key, identity).map_err(PlaneError::new)?;
                Courier::start(name.as_str(), board, clock::now, answered)
            }
        };
        started
            .map(Some)
            .map_err(|e| PlaneError::new(format!("cannot start a thread for the board: {e}")))
    }
}

impl Windows {
    /// Controls nothing yet.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(plane: Arc<dyn DataPlane>, myself: Myself) -> std::io::Result<Windows> {
        let shared =
            Arc::new(Shared { plane, myself, state: Mutex::default(), changed: Condvar::new() });
        let its = shared.clone();
        let thread =
            std::thread::Builder::new().name("headgate-windows".into()).spawn(move || its.run())?;
        Ok(Windows { shared, thread: Some(thread) })
    }

    /// Who this host is to the others.
    pub fn myself(&self) -> &Myself {
        &self.shared.myself
    }

    /// Controls a datastore's window from now on, or differently. What was learned so far is kept
    /// where the hosts still meet at the same place.
    ///
    /// # Errors
    /// When the configuration or the board's place cannot be used, or the shard does not confirm;
    /// all is as it was then.
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
        let entry = Entry { keeper: Arc::new(Mutex::new(keeper)), next: Step::Read, due };
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

    /// Controls a datastore's window no more and sets it to this depth. One that is not controlled
    /// is only set.
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

    /// Sets a controlled window aside for a measurement: it is `depth` until [`Windows::resume`].
    /// One that is not controlled is only set. Reservations narrow neither.
    ///
    /// # Errors
    /// When the shard does not confirm.
    pub fn suspend(&self, name: &Name, depth: u32) -> Result<(), PlaneError> {
        self.shared.plane.set_narrow(name, Narrow::Never)?;
        let keeper = lock(&self.shared.state).windows.get(name).map(|entry| entry.keeper.clone());
        match keeper {
            Some(keeper) => lock(&keeper).suspend(Slots::whole(depth), &*self.shared.plane),
            None => self.shared.plane.set_window(name, Slots::whole(depth)),
        }
    }

    /// Goes on where [`Windows::suspend`] stopped, whatever was measured meanwhile; `depth` is the
    /// window of a datastore that is not controlled.
    ///
    /// # Errors
    /// When the shard does not confirm.
    pub fn resume(&self, name: &Name, depth: u32, narrow: Narrow) -> Result<(), PlaneError> {
        self.shared.plane.set_narrow(name, narrow)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryPlane;
    use headgate_cluster::{Board, BoardError, View};
    use headgate_qos::window::HostReport;
    use std::sync::mpsc::{Receiver, channel};

    /// A board that answers when the test says so.
    struct Slow(Receiver<()>);

    impl Board for Slow {
        fn exchange(&mut self, _: Nanos, _: &HostReport) -> Result<View, BoardError> {
            unreachable!("nobody posts")
        }

        fn read(&mut self, _: Nanos, _: Nanos) -> Result<View, BoardError> {
            self.0.recv().expect("the test answers");
            Ok(View::default())
        }

        fn leave(&mut self) -> Result<(), BoardError> {
            Ok(())
        }
    }

    const PERIOD: Nanos = Nanos::from_secs(4);

    fn entry(courier: Option<Courier>) -> Entry {
        let plane = MemoryPlane::default();
        plane.put_datastore("array");
        let config =
            Config { threshold: Nanos::from_millis(30), period: PERIOD, ..Config::default() };
        let setup =
            Setup { config, cost_model: CostModel::Unit, meeting: Meeting::Alone, followed: None };
        let keeper = Keeper::new("array".parse().unwrap(), setup, courier, &plane).unwrap();
        Entry { keeper: Arc::new(Mutex::new(keeper)), next: Step::Read, due: PERIOD }
    }

    /// The step that is ready at `now`, taken.
    fn step(entry: &mut Entry, now: Nanos) -> Option<Step> {
        let step = entry.is_ready(now).then(|| entry.advance(now))?;
        if let Step::Read = step {
            lock(&entry.keeper).refresh();
        }
        Some(step)
    }

    #[test]
    fn a_period_ends_when_the_board_has_answered_or_after_a_sixteenth_of_it() {
        let (answer, answers) = channel();
        let (answered, was_answered) = channel();
        let told = move || answered.send(()).expect("the test listens");
        let courier = Courier::start("test", Slow(answers), || Nanos::ZERO, told).unwrap();
        let mut entry = entry(Some(courier));
        let late = Nanos::from_millis(10);

        assert!(step(&mut entry, PERIOD - Nanos(1)).is_none(), "the period has not ended");
        assert!(matches!(step(&mut entry, PERIOD), Some(Step::Read)));
        assert!(step(&mut entry, PERIOD + late).is_none(), "the board has not answered");
        answer.send(()).unwrap();
        was_answered.recv().unwrap();
        let ended = step(&mut entry, PERIOD + late);
        assert!(matches!(ended, Some(Step::Update { ended: PERIOD })));
        assert_eq!(entry.due, PERIOD + PERIOD, "however late the board was");

        // Now it hangs, and is waited for no longer than that.
        let due = PERIOD + PERIOD;
        assert!(matches!(step(&mut entry, due), Some(Step::Read)));
        assert!(step(&mut entry, due + board_patience(PERIOD) - Nanos(1)).is_none());
        let ended = step(&mut entry, due + board_patience(PERIOD));
        assert!(matches!(ended, Some(Step::Update { ended }) if ended == due));
        assert_eq!(entry.due, due + PERIOD);

        // A machine that slept does not end many periods at once.
        let awake = due + Nanos::from_secs(60);
        assert!(matches!(step(&mut entry, awake), Some(Step::Read)));
        let awake = awake + Nanos::from_secs(60);
        assert!(matches!(step(&mut entry, awake), Some(Step::Update { .. })));
        assert_eq!(entry.due, awake + PERIOD);
        answer.send(()).unwrap();
    }

    #[test]
    fn who_meets_nobody_waits_for_nobody() {
        let mut entry = entry(None);
        assert!(matches!(step(&mut entry, PERIOD), Some(Step::Read)));
        assert!(matches!(step(&mut entry, PERIOD), Some(Step::Update { ended: PERIOD })));
        assert_eq!(entry.due, PERIOD + PERIOD);
    }
}
