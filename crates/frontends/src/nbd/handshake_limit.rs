//! The limit of handshakes: so many clients may negotiate at a time. When one more comes, the
//! oldest handshake is cut off.
//!
//! An honest client is done within milliseconds. So clients that stall, however many, keep nobody
//! out.

use headgate_nbd_io::Socket;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a newcomer waits for a handshake that was cut off to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module's documentation.
pub(super) struct HandshakeLimit {
    most: usize,
    inside: Mutex<Inside>,
    left: Condvar,
}

/// The handshakes in progress, in order of arrival.
#[derive(Default)]
struct Inside {
    sockets: BTreeMap<u64, Socket>,
    next: u64,
}

/// One handshake in progress. Dropping it lets the next client in.
pub(super) struct Handshake {
    limit: Arc<HandshakeLimit>,
    number: u64,
}

impl HandshakeLimit {
    pub(super) fn new(most: usize) -> Arc<HandshakeLimit> {
        Arc::new(HandshakeLimit {
            most: most.max(1),
            inside: Mutex::default(),
            left: Condvar::new(),
        })
    }

    /// Lets a client in. `None`: there is no place, for those inside are busy with something else
    /// than waiting.
    pub(super) fn enter(self: &Arc<Self>, client: &Socket) -> io::Result<Option<Handshake>> {
        let socket = client.try_clone()?;
        let mut inside = self.lock();
        if inside.sockets.len() >= self.most {
            if let Some((_, oldest)) = inside.sockets.first_key_value() {
                tracing::debug!(
                    most = self.most,
                    "many NBD clients in negotiation: the oldest has to leave"
                );
                if let Err(e) = oldest.shutdown() {
                    // The client was faster.
                    tracing::trace!("shutdown: {e}");
                }
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
        Ok(Some(Handshake { limit: self.clone(), number }))
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.limit.lock().sockets.remove(&self.number);
        self.limit.left.notify_one();
    }
}
