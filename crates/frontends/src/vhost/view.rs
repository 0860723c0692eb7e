//! What a front-end knows of its disk, and how it hears of a change.
//!
//! A front-end reads the configuration space when it connects, and keeps a copy. Of a change it is
//! told on a socket of its own that it hands over (`SET_BACKEND_REQ_FD`), by a message without an
//! answer (`CONFIG_CHANGE_MSG`). Then it reads again, and interrupts its guest. Crate `vhost` takes
//! the socket and has no call for that message, so the socket is looked at before the crate sees
//! it.

use super::config::read_config;
use headgate_engine::request::DiskInfo;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketType,
    recvmsg, send,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The head of a message: request, flags, length of what follows.
const HEAD: usize = 12;

/// Of front-ends: "here is the socket for requests of yours".
const SET_BACKEND_REQ_FD: u32 = 21;

/// Of back-ends: "the configuration space has changed". Nothing follows, no answer is asked for.
const CONFIG_CHANGE: [u8; HEAD] = [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// A disk as its front-end sees it; shared by the control thread and the port.
pub(crate) struct View(Mutex<State>);

struct State {
    disk: DiskInfo,
    /// The size that the front-end has read.
    read: Option<u64>,
    /// Where it hears of changes.
    channel: Option<OwnedFd>,
}

impl View {
    pub(crate) fn new(disk: DiskInfo) -> View {
        View(Mutex::new(State { disk, read: None, channel: None }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn disk(&self) -> DiskInfo {
        self.state().disk.clone()
    }

    /// A part of the configuration space, as the front-end reads it.
    pub(crate) fn read(&self, offset: u32, size: u32) -> Vec<u8> {
        let mut state = self.state();
        if offset == 0 {
            state.read = Some(state.disk.size);
        }
        read_config(&state.disk, offset, size)
    }

    /// The disk is like this from now on.
    pub(crate) fn change(&self, disk: &DiskInfo) {
        self.state().disk = disk.clone();
        self.tell();
    }

    /// Tells the front-end if it has read another size. It does not hear that while no ring runs,
    /// so it is told again when one starts. Waits for nobody: a front-end that does not read what
    /// it was sent knows already.
    pub(crate) fn tell(&self) {
        let state = self.state();
        if state.read.is_none_or(|size| size == state.disk.size) {
            return;
        }
        let Some(channel) = &state.channel else { return };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if let Err(error) = send(channel, &CONFIG_CHANGE, flags) {
            tracing::debug!(disk = state.disk.name, %error, "the front-end does not hear of a change");
        }
    }

    /// Waits for the front-end's next message, and leaves it where it is. If that hands over a
    /// socket for requests, it is kept.
    pub(crate) fn look_at_next(&self, stream: &UnixStream) {
        let mut head = [0; HEAD];
        // A message cut in two, and what fails, is for who reads it.
        let is_whole = |bytes| bytes == Ok(HEAD);
        if !is_whole(peek(stream, &mut head, &mut RecvAncillaryBuffer::default()))
            || head[..4] != SET_BACKEND_REQ_FD.to_le_bytes()
        {
            return;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        if !is_whole(peek(stream, &mut head, &mut control)) {
            return;
        }
        for message in control.drain() {
            let RecvAncillaryMessage::ScmRights(mut handed) = message else { continue };
            if let Some(channel) = handed.next().filter(is_socket) {
                self.state().channel = Some(channel);
            }
        }
    }
}

fn peek(
    stream: &UnixStream,
    head: &mut [u8; HEAD],
    control: &mut RecvAncillaryBuffer<'_>,
) -> rustix::io::Result<usize> {
    let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
    recvmsg(stream, &mut [IoSliceMut::new(head)], control, flags).map(|found| found.bytes)
}

/// Whether it is a stream of this host's, on which no message waits if it is told not to.
fn is_socket(channel: &OwnedFd) -> bool {
    let domain = socket_domain(channel);
    let kind = socket_type(channel);
    matches!((domain, kind), (Ok(AddressFamily::UNIX), Ok(SocketType::STREAM)))
}
