//! The view of all hosts: what this one tells the others, and what they tell.
//!
//! One thread does it. It may wait for etcd, for a bounded time; whoever asks for the view waits
//! for nobody. Another thread asks now and then what takes longer to answer: which storage
//! datastores are, and what is advised. Without etcd there is no thread, and the view is of this
//! host alone.

mod foreign;
mod member;
mod shared;
mod slow;
mod summary;
mod teller;
mod told;

pub use shared::{FleetError, Myself};
pub use told::{DiskFilter, Machines};

use crate::observe::Observer;
use headgate_cluster::Servers;
use headgate_control::Control;
use headgate_fleet::{HostKey, View};
use member::Member;
use shared::{Meeting, Shared, State, lock, now};
use slow::Slow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use teller::Teller;

/// How long the end of the thread is waited for: it says farewell, if etcd answers.
const FAREWELL: Duration = Duration::from_secs(2);

/// The threads of a view: they end when `_stop` goes, and the one that talks to etcd says when it
/// has.
struct Threads {
    _stop: [Sender<()>; 2],
    end: Receiver<()>,
}

/// The view of all hosts.
pub struct Fleet {
    shared: Arc<Shared>,
    /// Without etcd this host looks at itself when it is asked.
    alone: Option<Mutex<Teller>>,
    threads: Mutex<Option<Threads>>,
}

impl Fleet {
    /// Begins to tell other hosts of this one and to listen to them, in these servers; with none,
    /// the view is of this host alone.
    ///
    /// # Errors
    /// When the system gives no thread or no event loop.
    pub fn start(
        control: Arc<Control>,
        observer: Arc<Observer>,
        myself: Myself,
        etcd: Option<&Servers>,
    ) -> Result<Fleet, FleetError> {
        let own = HostKey(myself.identity.host.0);
        let meeting = if etcd.is_some() { Meeting::Etcd } else { Meeting::Nowhere };
        let state = State { view: View::new(own), error: None, duplicate: None };
        let shared = Arc::new(Shared { own, meeting, state: Mutex::new(state) });
        let slow = Arc::new(Slow::default());
        let teller = Teller::new(control.clone(), observer, myself, slow.clone());
        let Some(etcd) = etcd else {
            let alone = Some(Mutex::new(teller));
            return Ok(Fleet { shared, alone, threads: Mutex::new(None) });
        };
        let of_slow = shared.clone();
        let member = Member::new(teller, control.clone(), shared.clone(), etcd)?;
        let (stop, stopped) = channel();
        let (stop_slow, slow_stopped) = channel();
        let (ended, end) = channel();
        std::thread::Builder::new().name("headgate-fleet".into()).spawn(move || {
            member.run(&stopped);
            // Perhaps nobody waits any more.
            let _ = ended.send(());
        })?;
        std::thread::Builder::new()
            .name("headgate-advice".into())
            .spawn(move || slow.run(&control, &of_slow, &slow_stopped))?;
        let threads = Mutex::new(Some(Threads { _stop: [stop, stop_slow], end }));
        Ok(Fleet { shared, alone: None, threads })
    }

    /// Says farewell to the other hosts, if etcd answers soon, and ends.
    pub fn stop(&self) {
        if let Some(Threads { _stop: stop, end }) = lock(&self.threads).take() {
            drop(stop);
            // An etcd that hangs is not waited for: the others see this host fall silent.
            let _ = end.recv_timeout(FAREWELL);
        }
    }

    /// The view as it is now.
    fn state(&self) -> MutexGuard<'_, State> {
        if let Some(teller) = &self.alone {
            let mut teller = lock(teller);
            teller.turn(&self.shared, now());
            teller.told();
        }
        self.shared.lock()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop();
    }
}
