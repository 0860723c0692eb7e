//! Links: the shard's side of remote disks. Each disk has one connection to each of its exports,
//! with many requests in flight.
//!
//! A request waits in its link's queue until it is sent ([`send`]), is outstanding until its reply
//! comes ([`receive`]), and goes back to the queue when the connection is lost ([`lost`]). Requests
//! of a few steps go through that for every step.
//!
//! Memory that the kernel reads or writes (requests' buffers, heads, the buffer of replies) is left
//! alone until the operation has ended: a request whose reply comes while the message that it is in
//! is still under way ends with the message, and a lost connection is buried when both directions
//! have ended.

mod lost;
mod receive;
mod send;
pub(crate) mod state;

use super::connection::Connection;
use super::line::{Line, LinkId, Lost, Outlook};
use super::loss::{Account, FlushDecision};
use crate::backend::context::Context;
use crate::request::{IoError, Op};
use headgate_nbd::client::replies::Replies;
use headgate_units::Nanos;
use slab::Slab;
use state::{BATCH, INBOX, Link, Message, State};
use std::collections::VecDeque;

impl Context {
    /// The link of a disk to one of its servers.
    pub(super) fn add_link(&mut self, disk: u32, remote: u32, member: u16, line: Line) -> u32 {
        let mut replies = Replies::new(INBOX);
        let (state, connections) = match line.connection {
            Some(connection) => {
                replies.clear(connection.counting());
                (State::Connected(connection), 1)
            }
            None => {
                // Without a dialer the disk is about to close.
                let _ = line.lost.send(Lost::Working);
                (State::Waiting, 0)
            }
        };
        let index = self.links.links.insert(Link {
            id: line.id,
            disk,
            remote,
            member,
            server: line.server,
            state,
            lost: line.lost,
            queue: VecDeque::new(),
            commands: Slab::new(),
            next_serial: 0,
            ready: false,
            heads: Vec::with_capacity(BATCH),
            out: Message::new(),
            sending: 0,
            messages: 0,
            replies,
            inn: Message::new(),
            receiving: false,
            long_reads: 0,
            answered: false,
            patience: Nanos(u64::try_from(line.patience.as_nanos()).unwrap_or(u64::MAX)),
            heard: self.now,
            silent: false,
            evicted: false,
            account: Account::default(),
            latency: None,
            connections,
            reason: None,
            abandoned: false,
        });
        self.links.set_ready(index as u32);
        index as u32
    }

    /// Takes a request, or a part of one, on its way to a server.
    pub(super) fn send_away(&mut self, key: u32, index: u32) {
        if self.must_fail(index, key) {
            return self.end_party(key, Err(IoError::Backend(libc::EIO)));
        }
        if let Some(link) = self.links.get_mut(index) {
            self.tables.slots[key].outage |= !matches!(link.state, State::Connected(_));
            link.queue.push_back(key);
        }
        self.links.set_ready(index);
    }

    /// Is there no hope for the request now: no connection for too long, or a flush of writes that
    /// may be lost. A part of a flush was judged with its whole.
    fn must_fail(&mut self, index: u32, key: u32) -> bool {
        if self.links.is_hopeless(index) {
            return true;
        }
        let slot = &self.tables.slots[key];
        slot.request.op == Op::Flush && slot.part.is_none() && self.must_fail_flush(index, key)
    }

    /// Whether a flush at a link covers writes that may be lost.
    fn must_fail_flush(&mut self, index: u32, key: u32) -> bool {
        let Some(link) = self.links.links.get(index as usize) else { return true };
        self.judge_flush(link.remote, key) == FlushDecision::Fail
    }

    /// Sends on every link that has something to send and room for it. Once per turn, before it
    /// ends.
    pub(crate) fn drive_links(&mut self) {
        while let Some(index) = self.links.ready.pop() {
            if let Some(link) = self.links.get_mut(index) {
                link.ready = false;
                self.send_next(index);
                self.receive_next(index);
            }
        }
    }

    /// A disk without requests is gone. Its link goes as soon as the kernel has no more to do with
    /// it.
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

    /// The dialer has a new connection.
    pub(crate) fn link_connected(&mut self, id: LinkId, connection: Connection) {
        let Some(index) = self.links.find(id) else { return };
        let Some(link) = self.links.get_mut(index) else { return };
        if link.abandoned || !matches!(link.state, State::Waiting | State::Failing) {
            return;
        }
        link.replies.clear(connection.counting());
        link.state = State::Connected(connection);
        link.connections += 1;
        link.reason = None;
        link.answered = false;
        link.silent = false;
        link.evicted = false;
        link.heard = self.now;
        let disk =
            self.tables.disks.get(link.disk as usize).map_or("", |disk| disk.info.name.as_str());
        tracing::info!(disk, waiting = link.queue.len(), "connected to the server");
        self.links.set_ready(index);
    }

    /// The dialer has tried in vain.
    pub(crate) fn link_down(&mut self, id: LinkId, reason: String, outlook: Outlook) {
        let Some(index) = self.links.find(id) else { return };
        let Some(link) = self.links.get_mut(index) else { return };
        if !matches!(link.state, State::Waiting | State::Failing) {
            return;
        }
        let news = link.reason.as_ref() != Some(&reason);
        let state = match outlook {
            Outlook::Trying => State::Waiting,
            Outlook::GivenUp | Outlook::Evicted => State::Failing,
        };
        let failing = matches!(state, State::Failing);
        link.evicted = outlook == Outlook::Evicted;
        let disk =
            self.tables.disks.get(link.disk as usize).map_or("", |disk| disk.info.name.as_str());
        if failing && !matches!(link.state, State::Failing) {
            tracing::error!(
                disk,
                reason,
                "no connection to the server: requests fail until there is one"
            );
        } else if news {
            tracing::warn!(disk, reason, "no connection to the server yet: requests wait");
        }
        link.reason = Some(reason);
        link.state = state;
        if failing {
            self.fail_queued(index);
        }
    }

    /// The disk is closing and has waited long enough for this server.
    pub(super) fn abandon_link(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        link.abandoned = true;
        self.fail_queued(index);
        self.lose(index, "the disk is closed");
    }
}
