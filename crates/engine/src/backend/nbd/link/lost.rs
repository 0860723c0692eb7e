//! A connection that is lost: its requests go back to the queue, and the dialer is asked for
//! another one.

use super::super::line::Lost;
use super::super::{command, loss};
use super::state::{Links, State};
use crate::backend::context::Context;
use crate::request::{IoError, Op, Step};

impl Context {
    /// Ends a link's connection. Its requests wait for the next one, once the kernel has ended what
    /// is under way.
    pub(super) fn lose(&mut self, index: u32, reason: &str) {
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
                tracing::warn!(disk, reason, "the connection to the server is lost");
                self.settle(index);
            }
            other => link.state = other,
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
        let Links { links, remotes, .. } = &mut self.links;
        let Some(link) = links.get_mut(index as usize) else { return };
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
        for &(_, key) in sent.iter().rev() {
            link.queue.push_front(key);
        }
        link.long_reads = 0;
        for &key in &link.queue {
            let slot = &mut self.tables.slots[key];
            slot.outage = true;
            // What a former connection has written of it may be lost with that.
            if command::modifies(slot.request.op) {
                (slot.done, slot.step) = (0, Step::Main);
            }
        }
        let lost = link.account.on_lost();
        if lost == loss::Lost::Perhaps {
            if let Some(remote) = remotes.get_mut(link.remote as usize) {
                remote.losses.on_loss(self.now);
            }
            if let Some(disk) = self.tables.disks.get(link.disk as usize) {
                disk.note_loss();
            }
        }
        let worth = match (link.silent, link.answered) {
            (true, _) => Lost::Silent,
            (false, true) => Lost::Working,
            (false, false) => Lost::Useless,
        };
        // Without a dialer the disk is about to close.
        let _ = link.lost.send(worth);
        if link.silent {
            // Requests waited for it long enough, and are not sent to it again.
            link.state = State::Failing;
        }
        if link.abandoned || link.silent {
            return self.fail_queued(index);
        }
        if lost == loss::Lost::Perhaps {
            let disk = self
                .tables
                .disks
                .get(link.disk as usize)
                .map_or("", |disk| disk.info.name.as_str());
            tracing::warn!(
                disk,
                "the server may have lost writes that it had acknowledged and nobody had flushed: the next flush of each \
                 client fails"
            );
            self.fail_flushes(index);
        }
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
    pub(super) fn fail_queued(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        for key in std::mem::take(&mut link.queue) {
            self.end_party(key, Err(IoError::Backend(libc::EIO)));
        }
    }
}
