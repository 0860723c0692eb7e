//! A connection that is lost: its requests go back to the queue, and the dialer is asked for
//! another one.

use super::super::command;
use super::super::line::Lost as Worth;
use super::super::loss::Lost;
use super::state::{Links, State};
use crate::backend::context::Context;
use crate::request::{IoError, Op, Step};

impl Context {
    /// Ends a link's connection. Its requests take another, or wait for the next one, once the
    /// kernel has ended what is under way.
    pub(in crate::backend::nbd) fn lose(&mut self, index: u32, reason: &str) {
        let Some(link) = self.links.get_mut(index) else { return };
        match std::mem::replace(&mut link.state, State::Waiting) {
            State::Connected(connection) => {
                connection.cut();
                link.state = State::Ending(connection);
                link.reason = Some(reason.to_owned());
                let disk = self
                    .tables
                    .disks
                    .get(link.disk as usize)
                    .map_or("", |disk| disk.info.name.as_str());
                let number = link.number;
                tracing::warn!(
                    disk,
                    connection = number,
                    reason,
                    "the connection to the server is lost"
                );
                self.note_loss(index);
                self.settle(index);
            }
            other => link.state = other,
        }
    }

    /// What the connection that is lost may have taken with it, flushes of all clients must tell.
    fn note_loss(&mut self, index: u32) {
        let took = self.links.judge_loss(index);
        let Links { links, remotes, .. } = &mut self.links;
        let Some(link) = links.get_mut(index as usize) else { return };
        link.took = took;
        if took == Lost::Nothing {
            return;
        }
        if let Some(remote) = remotes.get_mut(link.remote as usize) {
            remote.losses.on_loss(self.now);
        }
        if let Some(disk) = self.tables.disks.get(link.disk as usize) {
            disk.note_loss();
            tracing::warn!(
                disk = disk.info.name,
                "the server may have lost writes that it had acknowledged and nobody had flushed: the next flush of each \
                 client fails"
            );
        }
        for other in self.links.siblings(index) {
            self.fail_flushes(other);
        }
    }

    /// Ends the connections of servers that owe answers and have said nothing for too long: what
    /// they owe fails. Once per turn; O(links) when a server is due to be looked at.
    pub(crate) fn check_links(&mut self) {
        let now = self.now;
        if self.links.check.is_none_or(|at| now < at) {
            return;
        }
        self.links.check = None;
        let mut silent = Vec::new();
        for (index, link) in &self.links.links {
            if !matches!(link.state, State::Connected(_)) || link.commands.is_empty() {
                continue;
            }
            let until = link.heard + link.patience;
            if now < until {
                self.links.check = Some(self.links.check.map_or(until, |at| at.min(until)));
            } else {
                silent.push(index as u32);
            }
        }
        for index in silent {
            let Some(link) = self.links.get_mut(index) else { continue };
            link.silent = true;
            let reason = format!("the server has answered nothing for {}", link.patience);
            self.lose(index, &reason);
        }
    }

    /// Buries a connection when both its directions have ended.
    pub(super) fn settle(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        if link.sending > 0 || link.receiving {
            return;
        }
        if !matches!(link.state, State::Ending(_)) {
            return self.bury_link(index);
        }
        link.state = State::Waiting;
        let next = link.next_serial;
        let mut sent: Vec<_> =
            link.commands.drain().map(|c| (c.serial.wrapping_sub(next), c.key)).collect();
        sent.sort_unstable();
        let modifies = |key: u32| command::modifies(self.tables.slots[key].request.op);
        link.unanswered = sent.iter().map(|&(_, key)| key).filter(|&key| modifies(key)).collect();
        for &(_, key) in sent.iter().rev().filter(|&&(_, key)| !modifies(key)) {
            link.queue.push_front(key);
        }
        link.long_reads = 0;
        for &key in link.queue.iter().chain(&link.unanswered) {
            let slot = &mut self.tables.slots[key];
            slot.outage = true;
            // What a former connection has written of it may be lost with that.
            if command::modifies(slot.request.op) {
                (slot.done, slot.step) = (0, Step::Main);
            }
            // Nobody has heard it yet, and the next server says it anew.
            slot.extents.clear();
        }
        link.ask(match (link.silent, link.answered) {
            (true, _) => Worth::Silent,
            (false, true) => Worth::Working,
            (false, false) => Worth::Useless,
        });
        if link.silent {
            // Requests waited for it long enough, and are not sent to it again.
            link.state = State::Failing;
        }
        if link.abandoned || link.silent {
            return self.fail_queued(index);
        }
        if link.took == Lost::Perhaps {
            self.fail_flushes(index);
        }
        self.reroute(index);
    }

    /// Fails the flushes of a link's queue that must fail.
    fn fail_flushes(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        let flushes: Vec<u32> = link
            .queue
            .iter()
            .copied()
            .filter(|&key| self.tables.slots[key].request.op == Op::Flush)
            .collect();
        for key in flushes {
            if self.must_fail_flush(index, key) {
                if let Some(link) = self.links.get_mut(index) {
                    link.queue.retain(|&queued| queued != key);
                }
                self.end_party(key, Err(IoError::Backend(libc::EIO)));
            }
        }
    }

    /// Fails everything that waits on a link.
    pub(in crate::backend::nbd) fn fail_queued(&mut self, index: u32) {
        self.fail_unanswered(index);
        let Some(link) = self.links.get_mut(index) else { return };
        for key in std::mem::take(&mut link.queue) {
            self.end_party(key, Err(IoError::Backend(libc::EIO)));
        }
    }

    /// Fails the writes that only the next connection of a link can carry.
    pub(super) fn fail_unanswered(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        for key in std::mem::take(&mut link.unanswered) {
            self.end_party(key, Err(IoError::Backend(libc::EIO)));
        }
    }
}
