//! Looking instead of being told: what a shard does itself while it waits awake for one port.
//!
//! An event costs its sender a system call and the shard another one to fetch it. A shard that is awake anyway looks at the port's memory
//! ([`Port::looks`]) and tries its receives and sends with plain system calls; the answer is out before a client that had one request has
//! gone to sleep. With several ports it does not pay: the looks find requests one by one, and the ring takes many operations at once.
//!
//! Nothing is ever left to looks alone: before the shard sleeps, and as soon as another port has work, [`Shard::stop_looking`] asks for
//! events again.

use super::bounce::remaining;
use super::ring::{Event, Owner, Wait};
use super::{Core, Shard};
use crate::clock;
use crate::port::Sight;
use headgate_units::Nanos;
use io_uring::{opcode, types};
use std::io;
use std::os::fd::RawFd;

/// Waiting awake, the clock costs more than a look; so many looks are well under a microsecond, but for those that are system calls.
const LOOKS_PER_CLOCK: usize = 8;

/// `IORING_RECVSEND_POLL_FIRST`: waits before it tries. A single client that has just been answered has not asked again yet.
pub(super) const POLL_FIRST: u16 = 1;

/// A receive that the ring has not been given.
pub(super) struct Receive {
    pub port: u32,
    pub key: u32,
    pub fd: RawFd,
    pub buf: *mut u8,
    pub len: u32,
}

/// What a socket did not take of a message at once.
pub(super) struct Rest {
    pub fd: RawFd,
    /// The operation that sends it.
    pub key: u32,
    /// Bytes that were taken.
    pub sent: i32,
    vectors: Vec<libc::iovec>,
    pub message: libc::msghdr,
}

/// What became of a message that was sent at once.
pub(super) enum Sent {
    /// All of it was taken, so many bytes.
    All(i32),
    /// This is left.
    Part(Box<Rest>),
    /// The ring has to try.
    Nothing,
}

/// What the shard looks at.
#[derive(Default)]
pub(super) struct Watched {
    ports: Vec<u32>,
    receives: Vec<Receive>,
    /// Ends of operations that the ring had no part in.
    pub ended: Vec<Event>,
}

impl Watched {
    pub(super) fn add_port(&mut self, port: u32) {
        if !self.ports.contains(&port) {
            self.ports.push(port);
        }
    }

    pub(super) fn has_ports(&self) -> bool {
        !self.ports.is_empty()
    }

    pub(super) fn forget_port(&mut self, port: u32) {
        self.ports.retain(|&p| p != port);
    }

    pub(super) fn add_receive(&mut self, receive: Receive) {
        self.receives.push(receive);
    }

    /// Ends a receive with `-ECANCELED`, if it is here.
    pub(super) fn cancel(&mut self, port: u32, key: u32) -> bool {
        let Some(at) = self.receives.iter().position(|r| r.port == port && r.key == key) else {
            return false;
        };
        self.receives.swap_remove(at);
        self.end(port, key, -libc::ECANCELED);
        true
    }

    pub(super) fn end(&mut self, port: u32, key: u32, result: i32) {
        self.ended.push(Event { owner: Owner::Port { port, key }, result, more: false });
    }

    /// Tries every receive. Answers whether one has ended.
    pub(super) fn try_receives(&mut self) -> bool {
        let before = self.ended.len();
        for at in (0..self.receives.len()).rev() {
            let Receive { port, key, fd, buf, len } = self.receives[at];
            // SAFETY: `buf` is valid for writes of `len` bytes until the port has its event: the caller of `PortIo::recv` promised.
            let got = unsafe { libc::recv(fd, buf.cast(), len as usize, libc::MSG_DONTWAIT) };
            let result = match i32::try_from(got) {
                Ok(got) if got >= 0 => got,
                _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
            };
            if result != -libc::EAGAIN {
                self.receives.swap_remove(at);
                self.end(port, key, result);
            }
        }
        self.ended.len() > before
    }
}

impl Core {
    /// Does the shard look itself now? It is awake, and one port has it to itself.
    pub(super) fn is_looking(&self) -> bool {
        self.awake && self.company.is_one()
    }

    /// Gives the receives to the ring.
    fn hand_over_receives(&mut self) {
        while let Some(Receive { port, key, fd, buf, len }) = self.watched.receives.pop() {
            let entry = opcode::Recv::new(types::Fd(fd), buf, len).ioprio(POLL_FIRST).build();
            // SAFETY: as in `try_receives`.
            unsafe { self.ring.push(entry, Owner::Port { port, key }) };
        }
    }
}

impl Shard {
    /// Has something come?
    fn sees(&mut self) -> bool {
        let Shard { core, ports, .. } = self;
        core.ring.has_events()
            || core.watched.try_receives()
            || core.watched.ports.iter().any(|&port| {
                ports.get(port as usize).and_then(Option::as_ref).is_some_and(|p| p.looks() == Sight::Work)
            })
    }

    /// Waits awake, until `deadline` on the shard's clock.
    pub(super) fn wait_awake(&mut self, deadline: Nanos) -> Wait {
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                if self.sees() {
                    return Wait::Over;
                }
                std::hint::spin_loop();
            }
            if clock::now() >= deadline {
                return Wait::GoesOn;
            }
        }
    }

    /// At the beginning of a turn: what do watched ports have?
    pub(super) fn look(&mut self) {
        if !self.core.is_looking() {
            return self.stop_looking();
        }
        for at in 0..self.core.watched.ports.len() {
            let Some(&port) = self.core.watched.ports.get(at) else { return };
            let Some(found) = self.ports.get(port as usize).and_then(Option::as_ref) else { continue };
            if found.looks() == Sight::Work {
                self.with_port(port, |p, io| p.on_look(io));
            }
        }
    }

    /// From now on only events tell. Ports that have work nevertheless are called.
    pub(super) fn stop_looking(&mut self) {
        self.core.hand_over_receives();
        for port in std::mem::take(&mut self.core.watched.ports) {
            let Some(found) = self.ports.get_mut(port as usize).and_then(Option::as_mut) else { continue };
            if found.on_last_look() == Sight::Work {
                self.with_port(port, |p, io| p.on_look(io));
            }
        }
    }
}

/// Sends what the socket takes at once.
///
/// # Safety
/// `msg` and all it points to are valid.
pub(super) unsafe fn send_now(fd: RawFd, msg: *const libc::msghdr, key: u32) -> Sent {
    // SAFETY: the caller's promise.
    let (sent, message) = unsafe { (libc::sendmsg(fd, msg, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL), *msg) };
    let Ok(sent @ 1..) = i32::try_from(sent) else { return Sent::Nothing };
    // SAFETY: the message names its vectors.
    let all = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
    if all.iter().map(|v| v.iov_len).sum::<usize>() == sent as usize {
        return Sent::All(sent);
    }
    let mut rest = Box::new(Rest { fd, key, sent, vectors: Vec::new(), message });
    remaining(all, sent as u64, u64::MAX, &mut rest.vectors);
    rest.message.msg_iov = rest.vectors.as_mut_ptr();
    rest.message.msg_iovlen = rest.vectors.len();
    Sent::Part(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// A message of two parts.
    fn message(parts: &[&[u8]]) -> (Vec<libc::iovec>, libc::msghdr) {
        let vector = |p: &&[u8]| libc::iovec { iov_base: p.as_ptr().cast_mut().cast(), iov_len: p.len() };
        let mut vectors: Vec<libc::iovec> = parts.iter().map(vector).collect();
        // SAFETY: a `msghdr` is numbers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = vectors.len();
        (vectors, message)
    }

    #[test]
    fn a_short_message_goes_out_whole() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_vectors, message) = message(&[b"head", b"data"]);
        // SAFETY: the message names live memory.
        let sent = unsafe { send_now(ours.as_raw_fd(), &raw const message, 1) };
        assert!(matches!(sent, Sent::All(8)));
        let mut got = [0; 8];
        theirs.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"headdata");
    }

    #[test]
    fn what_the_socket_does_not_take_is_left_byte_by_byte() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let data: Vec<u8> = (0..4 << 20).map(|n: u32| (n % 251) as u8).collect();
        let (_vectors, message) = message(&[b"head", &data]);
        // SAFETY: as above.
        let Sent::Part(rest) = (unsafe { send_now(ours.as_raw_fd(), &raw const message, 1) }) else {
            panic!("4 MiB do not fit into a socket")
        };
        let left: usize = rest.vectors.iter().map(|v| v.iov_len).sum();
        assert_eq!(left + rest.sent as usize, data.len() + 4);
        // SAFETY: the vectors name what is left of `data`.
        let tail = unsafe { std::slice::from_raw_parts(rest.vectors[0].iov_base.cast::<u8>(), left) };
        let mut whole = vec![0; rest.sent as usize];
        theirs.read_exact(&mut whole).unwrap();
        whole.extend_from_slice(tail);
        assert_eq!(whole[..4], *b"head");
        assert!(whole[4..] == data[..]);
        // A full socket takes nothing, and a closed one is the ring's to report.
        // SAFETY: as above.
        while let Sent::Part(_) | Sent::All(_) = unsafe { send_now(ours.as_raw_fd(), &raw const message, 1) }
        {
        }
        drop(theirs);
        // SAFETY: as above.
        assert!(matches!(unsafe { send_now(ours.as_raw_fd(), &raw const message, 1) }, Sent::Nothing));
    }

    #[test]
    fn receives_end_when_there_is_something_and_when_they_are_cancelled() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut buffers = [[0u8; 16]; 2];
        let mut watched = Watched::default();
        for (key, buffer) in buffers.iter_mut().enumerate() {
            let (fd, buf) = (ours.as_raw_fd(), buffer.as_mut_ptr());
            watched.add_receive(Receive { port: 3, key: key as u32, fd, buf, len: 16 });
        }
        assert!(!watched.try_receives());
        assert!(watched.cancel(3, 0) && !watched.cancel(3, 0) && !watched.cancel(4, 1));
        theirs.write_all(b"request").unwrap();
        assert!(watched.try_receives() && !watched.try_receives());
        let ends: Vec<(Owner, i32)> = watched.ended.iter().map(|e| (e.owner, e.result)).collect();
        let port = |key| Owner::Port { port: 3, key };
        assert_eq!(ends, [(port(0), -libc::ECANCELED), (port(1), 7)]);
        assert_eq!(&buffers[1][..7], b"request");
    }
}
