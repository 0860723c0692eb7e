//! The ports that a shard polls, and the receives that it tries itself.

use crate::kernel::ring::{Event, Owner};
use std::io;
use std::os::fd::RawFd;

/// `IORING_RECVSEND_POLL_FIRST`: the kernel waits before it tries. A single client that has just
/// been answered has not asked again yet.
pub(crate) const POLL_FIRST: u16 = 1;

/// A receive that the shard tries itself; the ring does not know of it.
pub(crate) struct Receive {
    pub port: u32,
    pub key: u32,
    pub fd: RawFd,
    pub buf: *mut u8,
    pub len: u32,
}

/// The ports that a shard polls, and their receives.
#[derive(Default)]
pub(crate) struct PolledPorts {
    ports: Vec<u32>,
    receives: Vec<Receive>,
    /// Results of operations that did not go through the ring.
    pub ended: Vec<Event>,
}

impl PolledPorts {
    pub(crate) fn add_port(&mut self, port: u32) {
        if !self.ports.contains(&port) {
            self.ports.push(port);
        }
    }

    /// The polled ports.
    pub(crate) fn ports(&self) -> impl ExactSizeIterator<Item = u32> {
        self.ports.iter().copied()
    }

    /// Takes all ports out.
    pub(crate) fn take_ports(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ports)
    }

    /// Takes a receive out, to give it to the ring.
    pub(crate) fn pop_receive(&mut self) -> Option<Receive> {
        self.receives.pop()
    }

    pub(crate) fn has_ports(&self) -> bool {
        !self.ports.is_empty()
    }

    pub(crate) fn forget_port(&mut self, port: u32) {
        self.ports.retain(|&p| p != port);
    }

    pub(crate) fn add_receive(&mut self, receive: Receive) {
        self.receives.push(receive);
    }

    /// Ends a receive with `-ECANCELED`. `false`: the ring has it.
    pub(crate) fn cancel(&mut self, port: u32, key: u32) -> bool {
        let Some(at) = self.receives.iter().position(|r| r.port == port && r.key == key) else {
            return false;
        };
        self.receives.swap_remove(at);
        self.end(port, key, -libc::ECANCELED);
        true
    }

    pub(crate) fn end(&mut self, port: u32, key: u32, result: i32) {
        self.ended.push(Event { owner: Owner::Port { port, key }, result, more: false });
    }

    /// Tries every receive. `true`: at least one has ended.
    pub(crate) fn try_receives(&mut self) -> bool {
        let before = self.ended.len();
        for at in (0..self.receives.len()).rev() {
            let Receive { port, key, fd, buf, len } = self.receives[at];
            let (socket, flags) = (libc::c_long::from(fd), libc::c_long::from(libc::MSG_DONTWAIT));
            let nobody = std::ptr::null::<libc::sockaddr>();
            // By number: the C library's function is a cancellation point, which costs.
            // SAFETY: `buf` is valid for writes of `len` bytes until the port has its event: the
            // caller of `PortIo::recv` promised.
            let got = unsafe {
                libc::syscall(
                    libc::SYS_recvfrom,
                    socket,
                    buf,
                    len as usize,
                    flags,
                    nobody,
                    std::ptr::null::<libc::socklen_t>(),
                )
            };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn receives_end_when_there_is_something_and_when_they_are_cancelled() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut buffers = [[0u8; 16]; 2];
        let mut polled = PolledPorts::default();
        for (key, buffer) in buffers.iter_mut().enumerate() {
            let (fd, buf) = (ours.as_raw_fd(), buffer.as_mut_ptr());
            polled.add_receive(Receive { port: 3, key: key as u32, fd, buf, len: 16 });
        }
        assert!(!polled.try_receives());
        assert!(polled.cancel(3, 0) && !polled.cancel(3, 0) && !polled.cancel(4, 1));
        theirs.write_all(b"request").unwrap();
        assert!(polled.try_receives() && !polled.try_receives());
        let ends: Vec<(Owner, i32)> = polled.ended.iter().map(|e| (e.owner, e.result)).collect();
        let port = |key| Owner::Port { port: 3, key };
        assert_eq!(ends, [(port(0), -libc::ECANCELED), (port(1), 7)]);
        assert_eq!(&buffers[1][..7], b"request");
    }
}
