//! The limit of handshakes: so many clients may negotiate at a time, each on a thread. When one
//! more comes, the oldest handshake is cut off, and nobody waits until its thread has noticed.
//!
//! An honest client is done within milliseconds. So clients that stall, however many, keep nobody
//! out.

use headgate_nbd_io::Socket;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many times as many threads as handshakes may be about to end.
const THREADS: usize = 2;

/// See the module's documentation.
pub(super) struct HandshakeLimit {
    most: usize,
    inside: Mutex<Inside>,
}

/// The handshakes in progress, in order of arrival.
#[derive(Default)]
struct Inside {
    sockets: BTreeMap<u64, Socket>,
    next: u64,
    /// Those that were cut off and have not ended included.
    threads: usize,
}

/// One handshake in progress. Dropping it lets the next client in.
pub(super) struct Handshake {
    limit: Arc<HandshakeLimit>,
    number: u64,
}

impl HandshakeLimit {
    pub(super) fn new(most: usize) -> Arc<HandshakeLimit> {
        Arc::new(HandshakeLimit { most: most.max(1), inside: Mutex::default() })
    }

    /// Lets a client in. `None`: there is no place, for those inside are busy with something else
    /// than waiting.
    pub(super) fn enter(self: &Arc<Self>, client: &Socket) -> io::Result<Option<Handshake>> {
        let socket = client.try_clone()?;
        let mut inside = self.lock();
        if inside.threads >= self.most * THREADS {
            return Ok(None);
        }
        if inside.sockets.len() >= self.most
            && let Some((_, oldest)) = inside.sockets.pop_first()
        {
            tracing::debug!(
                most = self.most,
                "many NBD clients in negotiation: the oldest has to leave"
            );
            if let Err(e) = oldest.shutdown() {
                // The client was faster.
                tracing::trace!("shutdown: {e}");
            }
        }
        let number = inside.next;
        inside.next += 1;
        inside.threads += 1;
        inside.sockets.insert(number, socket);
        Ok(Some(Handshake { limit: self.clone(), number }))
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut inside = self.limit.lock();
        inside.sockets.remove(&self.number);
        inside.threads = inside.threads.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_newcomer_takes_the_oldest_place_at_once_and_threads_are_bounded() {
        let limit = HandshakeLimit::new(2);
        let pairs: Vec<_> = (0..5).map(|_| UnixStream::pair().unwrap()).collect();
        let sockets: Vec<_> =
            pairs.iter().map(|(ours, _)| Socket::Unix(ours.try_clone().unwrap())).collect();
        // None of these threads ever notices that it was cut off.
        let inside: Vec<_> =
            sockets[..4].iter().map(|s| limit.enter(s).unwrap().unwrap()).collect();
        for (n, (_, client)) in pairs.iter().enumerate().take(4) {
            client.set_nonblocking(true).unwrap();
            let is_cut_off = matches!((&*client).read(&mut [0]), Ok(0));
            assert_eq!(is_cut_off, n < 2, "client {n}");
        }
        assert!(limit.enter(&sockets[4]).unwrap().is_none());
        drop(inside);
        assert!(limit.enter(&sockets[4]).unwrap().is_some());
    }
}
