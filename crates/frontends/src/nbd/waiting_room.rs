//! Clients in negotiation: so many at a time, and when one more comes, the one that has been there longest has to leave.
//!
//! An honest client is done within milliseconds. So clients that stall, however many, keep nobody out.

use super::socket::Socket;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a newcomer waits for the place of one that has been told to leave.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module's documentation.
pub(super) struct WaitingRoom {
    most: usize,
    inside: Mutex<Inside>,
    left: Condvar,
}

/// Who is inside, by order of arrival.
#[derive(Default)]
struct Inside {
    sockets: BTreeMap<u64, Socket>,
    next: u64,
}

/// A place in the room; free when dropped.
pub(super) struct Place {
    room: Arc<WaitingRoom>,
    number: u64,
}

impl WaitingRoom {
    pub(super) fn new(most: usize) -> Arc<WaitingRoom> {
        Arc::new(WaitingRoom { most: most.max(1), inside: Mutex::default(), left: Condvar::new() })
    }

    /// Lets a client in. `None`: there is no place, for those inside are busy with something else than waiting.
    pub(super) fn enter(self: &Arc<Self>, client: &Socket) -> io::Result<Option<Place>> {
        let socket = client.try_clone()?;
        let mut inside = self.lock();
        if inside.sockets.len() >= self.most {
            if let Some((_, oldest)) = inside.sockets.first_key_value() {
                tracing::debug!(most = self.most, "many NBD clients in negotiation: the oldest has to leave");
                oldest.shutdown();
            }
            let is_full = |inside: &mut Inside| inside.sockets.len() >= self.most;
            let waited = self.left.wait_timeout_while(inside, PATIENCE, is_full);
            let (now, timeout) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
            if timeout.timed_out() {
                return Ok(None);
            }
            inside = now;
        }
        let number = inside.next;
        inside.next += 1;
        inside.sockets.insert(number, socket);
        Ok(Some(Place { room: self.clone(), number }))
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.lock().sockets.remove(&self.number);
        self.room.left.notify_one();
    }
}
