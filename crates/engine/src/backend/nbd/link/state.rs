//! Links and what they hold. The work on them is in the other files of this directory.

use super::super::connection::Connection;
use super::super::line::{LinkId, Lost};
use super::super::loss::{Covered, LossEpoch, Losses};
use crate::snapshot::{RemoteSnapshot, RemoteState};
use headgate_nbd::client::replies::Replies;
use headgate_nbd::wire::REQUEST_LEN;
use headgate_units::Nanos;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::mpsc::Sender;

/// Most requests in one message.
pub(super) const BATCH: usize = 256;
/// From here on a payload is received where it belongs, not copied there; in bytes.
pub(super) const LONG: u32 = 16 << 10;

/// Heads of replies, and payloads that came with them.
pub(super) const INBOX: usize = 32 << 10;

/// How a link is.
#[derive(Debug)]
pub(super) enum State {
    /// There is a connection.
    Connected(Connection),
    /// It is lost, and its last operations have not ended.
    Ending(
        #[expect(
            dead_code,
            reason = "keeps the descriptor from being another's while operations name it"
        )]
        Connection,
    ),
    /// There is none, and requests wait for one.
    Waiting,
    /// There is none, and requests fail.
    Failing,
    /// The disk is gone, the connection's last operations are not.
    Closed,
}

/// A command that was sent and not answered.
#[derive(Debug)]
pub(super) struct Command {
    /// The request.
    pub(super) key: u32,
    /// Tells it from those that had its place before.
    pub(super) serial: u32,
    /// Bytes of the request that it does.
    pub(super) len: u32,
    /// Bytes that a successful reply brings.
    pub(super) payload: u32,
    /// Of a flush: what it covers.
    pub(super) covers: Option<Covered>,
    /// The message that it is in.
    pub(super) message: u64,
    /// It was answered while that message was under way: with this error number.
    pub(super) answer: Option<u32>,
}

/// What the kernel is handed for one direction. Boxed, for it must not move.
pub(super) struct Message {
    pub(super) header: libc::msghdr,
    pub(super) vectors: Vec<libc::iovec>,
}

impl Message {
    pub(super) fn new() -> Box<Message> {
        // SAFETY: a `msghdr` is numbers and pointers, for which zero is a value.
        let header = unsafe { std::mem::zeroed() };
        Box::new(Message { header, vectors: Vec::new() })
    }

    /// Points the header at the vectors, which stay as they are until the operation has ended.
    pub(super) fn seal(&mut self) -> &mut libc::msghdr {
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = self.vectors.len() as _;
        &mut self.header
    }

    pub(super) fn bytes(&self) -> u64 {
        self.vectors.iter().map(|v| v.iov_len as u64).sum()
    }
}

// SAFETY: the pointers lead to memory of the shard's thread, on which a link is made, used and
// dropped; a shard as a whole does not move.
unsafe impl Send for Message {}

pub(crate) struct Link {
    pub(super) id: LinkId,
    pub(super) disk: u32,
    pub(super) state: State,
    pub(super) lost: Sender<Lost>,
    /// Requests that are to be sent.
    pub(super) queue: VecDeque<u32>,
    pub(super) commands: Slab<Command>,
    pub(super) next_serial: u32,
    /// In the list of links that something can be sent on.
    pub(super) ready: bool,
    pub(super) heads: Vec<[u8; REQUEST_LEN]>,
    pub(super) out: Box<Message>,
    /// Length of the message under way; 0: none is.
    pub(super) sending: u64,
    /// Messages begun.
    pub(super) messages: u64,
    pub(super) replies: Replies,
    pub(super) inn: Box<Message>,
    pub(super) receiving: bool,
    /// Outstanding reads whose payload is worth receiving where it belongs.
    pub(super) long_reads: u32,
    /// The connection has answered something.
    pub(super) answered: bool,
    /// For how long requests wait for a server that is silent.
    pub(super) patience: Nanos,
    /// When the server was heard last, or was asked first since it owed nothing.
    pub(super) heard: Nanos,
    /// It was silent for too long: what it owes fails.
    pub(super) silent: bool,
    pub(super) losses: Losses,
    pub(super) connections: u64,
    pub(super) reason: Option<String>,
    /// The disk is closing: what does not end by itself fails.
    pub(super) abandoned: bool,
}

#[derive(Default)]
pub(crate) struct Links {
    pub(super) links: Slab<Link>,
    pub(super) ready: Vec<u32>,
    /// When the servers that owe something are to be looked at; `None`: none does.
    pub(super) check: Option<Nanos>,
}

impl Links {
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Link> {
        self.links.get_mut(index as usize)
    }

    pub(super) fn find(&self, id: LinkId) -> Option<u32> {
        self.links.iter().find(|(_, link)| link.id == id).map(|(index, _)| index as u32)
    }

    /// Something can be sent on this link.
    pub(super) fn set_ready(&mut self, index: u32) {
        if let Some(link) = self.links.get_mut(index as usize)
            && !std::mem::replace(&mut link.ready, true)
        {
            self.ready.push(index);
        }
    }

    /// When to [look](crate::backend::context::Context::check_links) whether servers are silent.
    pub(crate) fn next_check(&self) -> Option<Nanos> {
        self.check
    }

    /// A server owes something, and is to be looked at by then.
    pub(super) fn check_by(&mut self, at: Nanos) {
        self.check = Some(self.check.map_or(at, |known| known.min(at)));
    }

    /// See [`Losses::on_client`].
    pub(crate) fn on_client(&mut self, index: u32) -> LossEpoch {
        self.get_mut(index).map_or_else(LossEpoch::default, |link| link.losses.on_client())
    }

    pub(crate) fn snapshot(&self, index: u32) -> Option<RemoteSnapshot> {
        let link = self.links.get(index as usize)?;
        let state = match link.state {
            State::Connected(_) => RemoteState::Connected,
            State::Ending(_) | State::Waiting | State::Closed => RemoteState::Waiting,
            State::Failing => RemoteState::Failing,
        };
        Some(RemoteSnapshot {
            state,
            reason: link.reason.clone(),
            reconnects: link.connections.saturating_sub(1),
            losses: link.losses.count(),
        })
    }
}
