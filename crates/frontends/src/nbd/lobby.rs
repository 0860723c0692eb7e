//! Where clients wait that have connected and said nothing yet. They are greeted, and cost a file
//! descriptor each and no thread.
//!
//! When more come than there is room for, those that have waited longest are sent away at once. A
//! client that speaks leaves the lobby, however many others are silent.

use headgate_nbd::server::negotiation::greeting;
use headgate_nbd_io::Socket;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// How many speak at a time.
const EVENTS: usize = 64;

/// A client, until when it may have chosen an export, and what it finds by the way that it came.
pub(super) struct Guest<W> {
    pub(super) socket: Socket,
    pub(super) until: Instant,
    pub(super) way: W,
}

/// See the module's documentation. Its descriptor is readable when a client has spoken.
pub(super) struct Lobby<W> {
    epoll: OwnedFd,
    /// In order of arrival.
    guests: BTreeMap<u64, Guest<W>>,
    next: u64,
    most: usize,
}

impl<W> Lobby<W> {
    pub(super) fn new(most: usize) -> io::Result<Lobby<W>> {
        Ok(Lobby {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            guests: BTreeMap::new(),
            next: 0,
            most: most.max(1),
        })
    }

    /// Greets a client and lets it wait.
    pub(super) fn admit(&mut self, guest: Guest<W>) -> io::Result<()> {
        let mut hello = Vec::new();
        greeting(&mut hello);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // A socket that was never written to has room for it.
        if send(&guest.socket, &hello, flags)? != hello.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if self.guests.len() >= self.most {
            self.send_oldest_away();
        }
        let number = self.next;
        let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&self.epoll, &guest.socket, epoll::EventData::new_u64(number), events)?;
        self.next += 1;
        self.guests.insert(number, guest);
        Ok(())
    }

    /// Frees the place, and the descriptor, of the client that has waited longest. `None`: there is
    /// nobody.
    pub(super) fn send_oldest_away(&mut self) -> Option<()> {
        self.guests.pop_first().map(drop)
    }

    /// Takes out those that have spoken. Those that hung up or whose time is over are gone.
    pub(super) fn take_ready(&mut self, now: Instant) -> io::Result<Vec<Guest<W>>> {
        while self.guests.first_key_value().is_some_and(|(_, guest)| guest.until <= now) {
            self.send_oldest_away();
        }
        let mut events = Vec::with_capacity(EVENTS);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&at_once))?;
        let mut ready = Vec::new();
        for event in &events {
            let Some(guest) = self.guests.remove(&event.data.u64()) else { continue };
            epoll::delete(&self.epoll, &guest.socket)?;
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            if recv(&guest.socket, &mut [0; 1][..], flags).is_ok_and(|(len, _)| len > 0) {
                ready.push(guest);
            }
        }
        Ok(ready)
    }

    /// When the next client's time is over.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.guests.first_key_value().map(|(_, guest)| guest.until)
    }
}

impl<W> AsFd for Lobby<W> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn enter(lobby: &mut Lobby<()>, until: Instant) -> UnixStream {
        let (ours, client) = UnixStream::pair().unwrap();
        lobby.admit(Guest { socket: Socket::Unix(ours), until, way: () }).unwrap();
        client.set_nonblocking(true).unwrap();
        client
    }

    /// Behind the greeting.
    fn is_sent_away(client: &mut UnixStream) -> bool {
        let mut bytes = [0; 64];
        loop {
            match client.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::WouldBlock);
                    return false;
                }
            }
        }
    }

    #[test]
    fn the_longest_silent_leave_and_who_speaks_is_taken() {
        let now = Instant::now();
        let until = now + Duration::from_secs(30);
        let mut lobby = Lobby::new(3).unwrap();
        let mut silent: Vec<_> = (0..10).map(|_| enter(&mut lobby, until)).collect();
        let left: Vec<bool> = silent.iter_mut().map(is_sent_away).collect();
        assert_eq!(left, [[true; 7].as_slice(), &[false; 3]].concat());
        let mut speaks = enter(&mut lobby, until);
        assert!(lobby.take_ready(now).unwrap().is_empty());
        speaks.write_all(&[0]).unwrap();
        assert_eq!(lobby.take_ready(now).unwrap().len(), 1);
        drop(silent);
        // Who hung up needs no thread.
        assert!(lobby.take_ready(now).unwrap().is_empty() && lobby.guests.is_empty());
    }

    #[test]
    fn whose_time_is_over_leaves() {
        let now = Instant::now();
        let mut lobby = Lobby::new(3).unwrap();
        let mut early = enter(&mut lobby, now + Duration::from_secs(1));
        let mut late = enter(&mut lobby, now + Duration::from_secs(2));
        assert_eq!(lobby.next_end(), Some(now + Duration::from_secs(1)));
        assert!(lobby.take_ready(now + Duration::from_secs(1)).unwrap().is_empty());
        assert_eq!((is_sent_away(&mut early), is_sent_away(&mut late)), (true, false));
    }
}
