//! Links: the shard's side of remote disks. Each disk has one connection to its export, with many requests in flight.
//!
//! A request waits in its link's queue until it is sent ([`send`]), is outstanding until its reply comes ([`receive`]), and goes back to
//! the queue when the connection is lost ([`lost`]). Requests of a few steps go through that for every step.
//!
//! Memory that the kernel reads or writes (requests' buffers, heads, the buffer of replies) is left alone until the
//! operation has ended: a request whose reply comes while the message that it is in is still under way ends with the
//! message, and a lost connection is buried when both directions have ended.

mod lost;
mod receive;
mod send;

use super::{Core, Shard};
use crate::remote::Connection;
use crate::remote::dialer::{Line, LinkId, Lost, Outlook};
use crate::remote::loss::{Covered, Losses, Told, Verdict};
use crate::request::{IoError, Op};
use crate::snapshot::{RemoteSnapshot, RemoteState};
use headgate_nbd::replies::Replies;
use headgate_nbd::wire::REQUEST_LEN;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::mpsc::Sender;

/// Heads of replies, and payloads that came with them.
const INBOX: usize = 32 << 10;

/// How a link is.
#[derive(Debug)]
enum State {
    /// There is a connection.
    Connected(Connection),
    /// It is lost, and its last operations have not ended.
    Ending(
        #[expect(dead_code, reason = "keeps the descriptor from being another's while operations name it")]
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
struct Command {
    /// The request.
    key: u32,
    /// Tells it from those that had its place before.
    serial: u32,
    /// Bytes of the request that it does.
    len: u32,
    /// Bytes that a successful reply brings.
    payload: u32,
    /// Of a flush: what it covers.
    covers: Option<Covered>,
    /// The message that it is in.
    message: u64,
    /// It was answered while that message was under way: with this error number.
    answer: Option<u32>,
}

/// What the kernel is handed for one direction. Boxed, for it must not move.
struct Message {
    header: libc::msghdr,
    vectors: Vec<libc::iovec>,
}

impl Message {
    fn new() -> Box<Message> {
        // SAFETY: a `msghdr` is numbers and pointers, for which zero is a value.
        let header = unsafe { std::mem::zeroed() };
        Box::new(Message { header, vectors: Vec::new() })
    }

    /// Points the header at the vectors, which stay as they are until the operation has ended.
    fn seal(&mut self) -> &mut libc::msghdr {
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = self.vectors.len() as _;
        &mut self.header
    }

    fn bytes(&self) -> u64 {
        self.vectors.iter().map(|v| v.iov_len as u64).sum()
    }
}

// SAFETY: the pointers lead to memory of the shard's thread, on which a link is made, used and dropped; a shard as a whole does not move.
unsafe impl Send for Message {}

pub(super) struct Link {
    id: LinkId,
    disk: u32,
    state: State,
    lost: Sender<Lost>,
    /// Requests that are to be sent.
    queue: VecDeque<u32>,
    commands: Slab<Command>,
    next_serial: u32,
    /// In the list of links that something can be sent on.
    ready: bool,
    heads: Vec<[u8; REQUEST_LEN]>,
    out: Box<Message>,
    /// Length of the message under way; 0: none is.
    sending: u64,
    /// Messages begun.
    messages: u64,
    replies: Replies,
    inn: Box<Message>,
    receiving: bool,
    /// Outstanding reads whose payload is worth receiving where it belongs.
    long_reads: u32,
    /// The connection has answered something.
    answered: bool,
    losses: Losses,
    connections: u64,
    reason: Option<String>,
    /// The disk is closing: what does not end by itself fails.
    abandoned: bool,
}

#[derive(Default)]
pub(super) struct Links {
    links: Slab<Link>,
    ready: Vec<u32>,
}

impl Links {
    fn get_mut(&mut self, index: u32) -> Option<&mut Link> {
        self.links.get_mut(index as usize)
    }

    fn find(&self, id: LinkId) -> Option<u32> {
        self.links.iter().find(|(_, link)| link.id == id).map(|(index, _)| index as u32)
    }

    /// Something can be sent on this link.
    fn set_ready(&mut self, index: u32) {
        if let Some(link) = self.links.get_mut(index as usize)
            && !std::mem::replace(&mut link.ready, true)
        {
            self.ready.push(index);
        }
    }

    /// See [`Losses::on_client`].
    pub(super) fn on_client(&mut self, index: u32) -> Told {
        self.get_mut(index).map_or_else(Told::default, |link| link.losses.on_client())
    }

    pub(super) fn snapshot(&self, index: u32) -> Option<RemoteSnapshot> {
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

impl Core {
    pub(super) fn add_link(&mut self, disk: u32, line: Line) -> u32 {
        let (state, connections) = match line.connection {
            Some(connection) => (State::Connected(connection), 1),
            None => (State::Waiting, 0),
        };
        let index = self.links.links.insert(Link {
            id: line.id,
            disk,
            state,
            lost: line.lost,
            queue: VecDeque::new(),
            commands: Slab::new(),
            next_serial: 0,
            ready: false,
            heads: Vec::with_capacity(send::BATCH),
            out: Message::new(),
            sending: 0,
            messages: 0,
            replies: Replies::new(INBOX),
            inn: Message::new(),
            receiving: false,
            long_reads: 0,
            answered: false,
            losses: Losses::default(),
            connections,
            reason: None,
            abandoned: false,
        });
        self.links.set_ready(index as u32);
        index as u32
    }

    /// Takes a request on its way to the server.
    pub(super) fn send_away(&mut self, key: u32) {
        let slot = &self.slots[key];
        let Some(index) = self.disks[slot.disk as usize].link else {
            return self.end_party(key, Err(IoError::Backend(libc::EBADF)));
        };
        if slot.request.op == Op::BlockStatus {
            // Always a true answer.
            let len = slot.request.len;
            let all = crate::request::Extent { len, kind: crate::request::ExtentKind::Data };
            self.slots[key].extents.push(all);
        }
        if self.must_fail(index, key) {
            return self.end_party(key, Err(IoError::Backend(libc::EIO)));
        }
        if let Some(link) = self.links.get_mut(index) {
            self.slots[key].outage = !matches!(link.state, State::Connected(_));
            link.queue.push_back(key);
        }
        self.links.set_ready(index);
    }

    /// Is there no hope for the request now: no connection for too long, or a flush of writes that may be lost.
    fn must_fail(&mut self, index: u32, key: u32) -> bool {
        let Some(link) = self.links.links.get(index as usize) else { return true };
        if matches!(link.state, State::Failing | State::Closed) || link.abandoned {
            return true;
        }
        let slot = &self.slots[key];
        let Some(port) = self.port_states.get_mut(slot.port as usize) else { return false };
        slot.request.op == Op::Flush && link.losses.judge(slot.arrived, &mut port.told) == Verdict::Fail
    }

    /// Sends on every link that has something to send and room for it. Once per turn, before it ends.
    pub(super) fn drive_links(&mut self) {
        while let Some(index) = self.links.ready.pop() {
            if let Some(link) = self.links.get_mut(index) {
                link.ready = false;
                self.send_next(index);
                self.receive_next(index);
            }
        }
    }

    /// A client of a disk has gone.
    pub(super) fn client_gone(&mut self, disk: u32, told: Told) {
        if let Some(link) = self.disks[disk as usize].link.and_then(|link| self.links.get_mut(link)) {
            link.losses.on_client_gone(told);
        }
    }

    /// A disk without requests is gone. Its link goes as soon as the kernel has no more to do with it.
    pub(super) fn close_link(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        // Dropping a connection says goodbye, and ends what is under way on it.
        link.state = State::Closed;
        self.bury_link(index);
    }

    /// Forgets a closed link that the kernel has nothing of any more.
    fn bury_link(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        if matches!(link.state, State::Closed) && link.sending == 0 && !link.receiving {
            self.links.ready.retain(|&ready| ready != index);
            self.links.links.remove(index as usize);
        }
    }
}

impl Shard {
    /// The dialer has a new connection.
    pub(crate) fn link_connected(&mut self, id: LinkId, connection: Connection) {
        let Some(index) = self.core.links.find(id) else { return };
        let Some(link) = self.core.links.get_mut(index) else { return };
        if link.abandoned || !matches!(link.state, State::Waiting | State::Failing) {
            return;
        }
        link.state = State::Connected(connection);
        link.connections += 1;
        link.reason = None;
        link.answered = false;
        link.replies.clear();
        let disk = self.core.disks.get(link.disk as usize).map_or("", |disk| disk.info.name.as_str());
        tracing::info!(disk, waiting = link.queue.len(), "connected to the server");
        self.core.links.set_ready(index);
    }

    /// The dialer has tried in vain.
    pub(crate) fn link_down(&mut self, id: LinkId, reason: String, outlook: Outlook) {
        let Some(index) = self.core.links.find(id) else { return };
        let Some(link) = self.core.links.get_mut(index) else { return };
        if !matches!(link.state, State::Waiting | State::Failing) {
            return;
        }
        let news = link.reason.as_ref() != Some(&reason);
        let state = if outlook == Outlook::GivenUp { State::Failing } else { State::Waiting };
        let failing = matches!(state, State::Failing);
        let disk = self.core.disks.get(link.disk as usize).map_or("", |disk| disk.info.name.as_str());
        if failing && !matches!(link.state, State::Failing) {
            tracing::error!(disk, reason, "no connection to the server: requests fail until there is one");
        } else if news {
            tracing::warn!(disk, reason, "no connection to the server yet: requests wait");
        }
        link.reason = Some(reason);
        link.state = state;
        if failing {
            self.core.fail_queued(index);
        }
    }

    /// The disk is closing and has waited long enough for its server.
    pub(crate) fn abandon(&mut self, disk: usize) {
        let Some(index) = self.core.disks.get(disk).and_then(|disk| disk.link) else { return };
        let Some(link) = self.core.links.get_mut(index) else { return };
        link.abandoned = true;
        self.core.fail_queued(index);
        self.core.lose(index, "the disk is closed");
    }
}
