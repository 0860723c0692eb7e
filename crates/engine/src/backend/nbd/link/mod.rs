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
use super::line::{Line, LinkId, Lost as Worth, Outlook};
use super::loss::{Era, FlushDecision, Lost};
use crate::backend::context::Context;
use crate::request::{IoError, Op};
use headgate_nbd::client::replies::Replies;
use headgate_units::Nanos;
use slab::Slab;
use state::{BATCH, INBOX, Link, Message, State};
use std::collections::VecDeque;

/// Which connection a link is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) disk: u32,
    pub(super) remote: u32,
    pub(super) member: u16,
    pub(super) number: u8,
}

impl Context {
    /// A connection of a disk to one of its servers.
    pub(super) fn add_link(&mut self, place: Place, line: Line) -> u32 {
        let Place { disk, remote, member, number } = place;
        let mut replies = Replies::new(INBOX);
        let (state, connections) = match line.connection {
            Some(connection) => {
                replies.clear(connection.form());
                (State::Connected(connection), 1)
            }
            None if number > 0 => (State::Spare, 0),
            None => {
                line.asker.ask(Worth::Working);
                (State::Waiting, 0)
            }
        };
        let index = self.links.links.insert(Link {
            id: line.id,
            disk,
            remote,
            member,
            number,
            state,
            asker: line.asker,
            born: Era::default(),
            queue: VecDeque::new(),
            unanswered: Vec::new(),
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
            took: Lost::Nothing,
            latency: None,
            connections,
            reason: None,
            abandoned: false,
        });
        self.links.set_ready(index as u32);
        index as u32
    }

    /// Takes a request, or a part of one, on its way to a server. It fails at once without hope for
    /// it now: no connection for too long, or a flush of writes that may be lost. A part of a flush
    /// was judged with its whole.
    pub(super) fn send_away(&mut self, key: u32, remote: u32, member: u16) {
        let slot = &self.tables.slots[key];
        let (op, part) = (slot.request.op, slot.part);
        let index = self.links.route_to(remote, member, op).filter(|_| {
            op != Op::Flush
                || part.is_some()
                || self.judge_flush(remote, key) == FlushDecision::Send
        });
        let Some(index) = index else {
            return self.end_party(key, Err(IoError::Backend(libc::EIO)));
        };
        if let Some(link) = self.links.get_mut(index) {
            self.tables.slots[key].outage |= !matches!(link.state, State::Connected(_));
            link.queue.push_back(key);
        }
        self.links.set_ready(index);
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
    pub(super) fn bury_link(&mut self, index: u32) {
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
        link.replies.clear(connection.form());
        link.state = State::Connected(connection);
        for key in link.unanswered.drain(..).rev() {
            link.queue.push_front(key);
        }
        link.connections += 1;
        link.reason = None;
        link.answered = false;
        link.silent = false;
        link.evicted = false;
        link.heard = self.now;
        let disk =
            self.tables.disks.get(link.disk as usize).map_or("", |disk| disk.info.name.as_str());
        let (number, waiting) = (link.number, link.queue.len());
        tracing::info!(disk, connection = number, waiting, "connected to the server");
        let era = self.links.new_era(index);
        if let Some(link) = self.links.get_mut(index) {
            link.born = era;
        }
        self.accompany(index);
        self.reroute(index);
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
        let given_up = failing && !matches!(link.state, State::Failing);
        link.evicted = outlook == Outlook::Evicted;
        link.state = state;
        link.reason = Some(reason.clone());
        let (number, disk) = (link.number, link.disk);
        let disk = self.tables.disks.get(disk as usize).map_or("", |disk| disk.info.name.as_str());
        if self.links.has_company(index) {
            if news {
                tracing::warn!(
                    disk,
                    connection = number,
                    reason,
                    "a connection fewer to the server"
                );
            }
        } else if given_up {
            tracing::error!(
                disk,
                reason,
                "no connection to the server: requests fail until there is one"
            );
        } else if news {
            tracing::warn!(disk, reason, "no connection to the server yet: requests wait");
        }
        if failing {
            self.fail_unanswered(index);
            self.reroute(index);
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
