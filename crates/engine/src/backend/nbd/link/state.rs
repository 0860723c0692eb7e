//! Links and what they hold. The work on them is in the other files of this directory.

use super::super::connection::Connection;
use super::super::disk::Remote;
use super::super::line::{Asker, LinkId};
use super::super::loss::{Covered, Era, Lost};
use headgate_nbd::client::replies::{Brings, Replies};
use headgate_nbd::{counters, wire};
use headgate_qos::dmclock::Ticket;
use headgate_units::Nanos;
use slab::Slab;
use std::collections::VecDeque;

/// Most requests in one message.
pub(in crate::backend::nbd) const BATCH: usize = 256;
/// From here on a payload is received where it belongs, not copied there; in bytes.
pub(in crate::backend::nbd) const LONG: u32 = 16 << 10;

/// Heads of replies, and payloads that came with them.
pub(in crate::backend::nbd) const INBOX: usize = 32 << 10;

/// How a link is.
#[derive(Debug)]
pub(in crate::backend::nbd) enum State {
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
    /// There is none, and none is asked for: the server has had no word yet, or can have one only,
    /// which is another.
    Spare,
    /// The disk is gone, the connection's last operations are not.
    Closed,
}

/// A command that was sent and not answered.
#[derive(Debug)]
pub(in crate::backend::nbd) struct Command {
    /// The request.
    pub(in crate::backend::nbd) key: u32,
    /// Tells it from those that had its place before.
    pub(in crate::backend::nbd) serial: u32,
    /// Bytes of the request that it does.
    pub(in crate::backend::nbd) len: u32,
    /// What a successful reply brings.
    pub(in crate::backend::nbd) brings: Brings,
    /// Of a flush: what it covers.
    pub(in crate::backend::nbd) covers: Option<Covered>,
    /// The message that it is in.
    pub(in crate::backend::nbd) message: u64,
    /// It was answered while that message was under way: with this error number.
    pub(in crate::backend::nbd) answer: Option<u32>,
    /// Where the server counts: for what it says with the answer.
    pub(in crate::backend::nbd) ticket: Option<Ticket<u16>>,
    /// Bytes of data that it moves.
    pub(in crate::backend::nbd) moves: u32,
    /// When its message was begun.
    pub(in crate::backend::nbd) at: Nanos,
    /// Which connections to the server there had been then.
    pub(in crate::backend::nbd) era: Era,
}

impl Command {
    /// Whether what it brings is worth receiving where it belongs.
    pub(in crate::backend::nbd) fn is_long(&self) -> bool {
        matches!(self.brings, Brings::Data { len, .. } if len >= LONG)
    }
}

/// The head of a request, with the counters behind it where the server takes them.
/// Its bytes come first, for the kernel.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(in crate::backend::nbd) struct Head {
    pub(in crate::backend::nbd) bytes: [u8; wire::REQUEST_LEN + counters::REQUEST_LEN],
    pub(in crate::backend::nbd) len: usize,
}

impl Head {
    pub(in crate::backend::nbd) fn new(
        request: wire::Request,
        report: Option<counters::Report>,
    ) -> Head {
        let mut bytes = [0; wire::REQUEST_LEN + counters::REQUEST_LEN];
        let (head, behind) = bytes.split_at_mut(wire::REQUEST_LEN);
        head.copy_from_slice(&request.to_bytes());
        let mut len = wire::REQUEST_LEN;
        if let Some(report) = report {
            behind.copy_from_slice(&report.to_bytes());
            len += counters::REQUEST_LEN;
        }
        Head { bytes, len }
    }
}

/// What the kernel is handed for one direction. Boxed, for it must not move.
pub(in crate::backend::nbd) struct Message {
    pub(in crate::backend::nbd) header: libc::msghdr,
    pub(in crate::backend::nbd) vectors: Vec<libc::iovec>,
}

impl Message {
    pub(in crate::backend::nbd) fn new() -> Box<Message> {
        // SAFETY: a `msghdr` is numbers and pointers, for which zero is a value.
        let header = unsafe { std::mem::zeroed() };
        Box::new(Message { header, vectors: Vec::new() })
    }

    /// Points the header at the vectors, which stay as they are until the operation has ended.
    pub(in crate::backend::nbd) fn seal(&mut self) -> &mut libc::msghdr {
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = self.vectors.len() as _;
        &mut self.header
    }

    pub(in crate::backend::nbd) fn bytes(&self) -> u64 {
        self.vectors.iter().map(|v| v.iov_len as u64).sum()
    }
}

// SAFETY: the pointers lead to memory of the shard's thread, on which a link is made, used and
// dropped; a shard as a whole does not move.
unsafe impl Send for Message {}

pub(crate) struct Link {
    pub(in crate::backend::nbd) id: LinkId,
    pub(in crate::backend::nbd) disk: u32,
    /// The disk as one on servers, which of its servers this is, and which of the connections
    /// there.
    pub(in crate::backend::nbd) remote: u32,
    pub(in crate::backend::nbd) member: u16,
    pub(in crate::backend::nbd) number: u8,
    pub(in crate::backend::nbd) state: State,
    pub(in crate::backend::nbd) asker: Asker,
    /// When the connection was made.
    pub(in crate::backend::nbd) born: Era,
    /// Requests that are to be sent.
    pub(in crate::backend::nbd) queue: VecDeque<u32>,
    /// Writes that were sent on the connection before and not answered. The server may be at work
    /// on them still: they are sent again when it has opened another connection for this one, which
    /// it does when it has done with them.
    pub(in crate::backend::nbd) unanswered: Vec<u32>,
    pub(in crate::backend::nbd) commands: Slab<Command>,
    pub(in crate::backend::nbd) next_serial: u32,
    /// In the list of links that something can be sent on.
    pub(in crate::backend::nbd) ready: bool,
    pub(in crate::backend::nbd) heads: Vec<Head>,
    pub(in crate::backend::nbd) out: Box<Message>,
    /// Length of the message under way; 0: none is.
    pub(in crate::backend::nbd) sending: u64,
    /// Messages begun.
    pub(in crate::backend::nbd) messages: u64,
    pub(in crate::backend::nbd) replies: Replies,
    pub(in crate::backend::nbd) inn: Box<Message>,
    pub(in crate::backend::nbd) receiving: bool,
    /// Outstanding reads whose payload is worth receiving where it belongs.
    pub(in crate::backend::nbd) long_reads: u32,
    /// The connection has answered something.
    pub(in crate::backend::nbd) answered: bool,
    /// For how long requests wait for a server that is silent.
    pub(in crate::backend::nbd) patience: Nanos,
    /// When the server was heard last, or was asked first since it owed nothing.
    pub(in crate::backend::nbd) heard: Nanos,
    /// It was silent for too long: what it owes fails.
    pub(in crate::backend::nbd) silent: bool,
    /// Another host holds the disk.
    pub(in crate::backend::nbd) evicted: bool,
    /// What the connection that ends took with it.
    pub(in crate::backend::nbd) took: Lost,
    /// How long answers took of late: an exponential mean over some 64 of them.
    pub(in crate::backend::nbd) latency: Option<Nanos>,
    pub(in crate::backend::nbd) connections: u64,
    pub(in crate::backend::nbd) reason: Option<String>,
    /// The disk is closing: what does not end by itself fails.
    pub(in crate::backend::nbd) abandoned: bool,
}

impl Link {
    /// Requests that it has to do.
    pub(in crate::backend::nbd) fn load(&self) -> usize {
        self.commands.len() + self.queue.len()
    }

    pub(in crate::backend::nbd) fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// An answer has come after so long.
    pub(in crate::backend::nbd) fn answered_after(&mut self, took: Nanos) {
        self.latency = Some(match self.latency {
            Some(Nanos(mean)) => Nanos(mean - mean / 64 + took.0 / 64),
            None => took,
        });
    }
}

#[derive(Default)]
pub(crate) struct Links {
    pub(in crate::backend::nbd) links: Slab<Link>,
    pub(in crate::backend::nbd) remotes: Slab<Remote>,
    pub(in crate::backend::nbd) ready: Vec<u32>,
    /// When the servers that owe something are to be looked at; `None`: none does.
    pub(in crate::backend::nbd) check: Option<Nanos>,
}

impl Links {
    pub(in crate::backend::nbd) fn get_mut(&mut self, index: u32) -> Option<&mut Link> {
        self.links.get_mut(index as usize)
    }

    pub(in crate::backend::nbd) fn find(&self, id: LinkId) -> Option<u32> {
        self.links.iter().find(|(_, link)| link.id == id).map(|(index, _)| index as u32)
    }

    /// Something can be sent on this link.
    pub(in crate::backend::nbd) fn set_ready(&mut self, index: u32) {
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
    pub(in crate::backend::nbd) fn check_by(&mut self, at: Nanos) {
        self.check = Some(self.check.map_or(at, |known| known.min(at)));
    }

    /// A place for each member, to be given back.
    pub(in crate::backend::nbd) fn take_scratch(&mut self, remote: u32) -> Vec<Option<u32>> {
        let stripe = self.remotes.get_mut(remote as usize).and_then(|one| one.stripe.as_mut());
        stripe.map(|stripe| std::mem::take(&mut stripe.scratch)).unwrap_or_default()
    }

    pub(in crate::backend::nbd) fn give_scratch(&mut self, remote: u32, scratch: Vec<Option<u32>>) {
        if let Some(stripe) =
            self.remotes.get_mut(remote as usize).and_then(|one| one.stripe.as_mut())
        {
            stripe.scratch = scratch;
        }
    }
}
