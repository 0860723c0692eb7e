//! Remote disks, as their shard holds them: what is the disk's and not a link's.
//!
//! A disk has one link for each server that it lies on: one, or as many as its stripes have
//! members. What a lost server may have lost is the disk's: a client is told once of each loss,
//! whichever server it was.

use super::disk::{Remote, Stripe};
use super::line::Line;
use super::link::state::{Links, State};
use super::loss::{FlushDecision, LossEpoch, Losses};
use crate::backend::context::Context;
use crate::request::{Extent, ExtentKind, IoError, Op};
use crate::snapshot::{RemoteSnapshot, RemoteState, ServerSnapshot};
use headgate_nbd::counters::Counting;

impl Context {
    /// Takes a disk with a line to each of its servers.
    pub(crate) fn add_remote(
        &mut self,
        disk: u32,
        lines: Vec<Line>,
        stripe: Option<Stripe>,
    ) -> u32 {
        let remote = self.links.remotes.vacant_key() as u32;
        let links =
            (0..).zip(lines).map(|(member, line)| self.add_link(disk, remote, member, line));
        let links = links.collect();
        self.links.remotes.insert(Remote { links, losses: Losses::default(), stripe });
        remote
    }

    /// Takes a request on its way to the servers.
    pub(crate) fn start_remote(&mut self, key: u32) {
        let slot = &mut self.tables.slots[key];
        slot.parties = 1;
        let (op, len) = (slot.request.op, slot.request.len);
        let remote = self.tables.disks[slot.disk as usize].storage.remote();
        let Some(found) = remote.and_then(|remote| self.links.remotes.get(remote as usize)) else {
            return self.end_party(key, Err(IoError::Backend(libc::EBADF)));
        };
        if op == Op::BlockStatus {
            // Always a true answer.
            self.tables.slots[key].extents.push(Extent { len, kind: ExtentKind::Data });
        }
        match (found.stripe.is_some(), found.links.first()) {
            (true, _) => self.start_striped(key),
            (false, Some(&link)) => self.send_away(key, link),
            (false, None) => self.end_party(key, Err(IoError::Backend(libc::EBADF))),
        }
    }

    /// Whether a flush must fail: it covers writes that may be lost.
    pub(super) fn judge_flush(&mut self, remote: u32, key: u32) -> FlushDecision {
        let slot = &self.tables.slots[key];
        let losses = self.links.remotes.get(remote as usize).map(|remote| &remote.losses);
        let port = self.tables.ports.get_mut(slot.port as usize);
        let (Some(losses), Some(port)) = (losses, port) else { return FlushDecision::Send };
        losses.judge(slot.arrived, &mut port.epoch)
    }

    /// A client of a disk has gone.
    pub(crate) fn client_gone(&mut self, disk: u32, epoch: LossEpoch) {
        if let Some(remote) = self.tables.disks[disk as usize]
            .storage
            .remote()
            .and_then(|remote| self.links.remotes.get_mut(remote as usize))
        {
            remote.losses.on_client_gone(epoch);
        }
    }

    /// A disk without requests is gone.
    pub(crate) fn close_remote(&mut self, index: u32) {
        let Some(remote) = self.links.remotes.try_remove(index as usize) else { return };
        for link in remote.links {
            self.close_link(link);
        }
    }

    /// The disk is closing and has waited long enough for its servers.
    pub(crate) fn abandon(&mut self, disk: usize) {
        let Some(remote) = self.tables.disks.get(disk).and_then(|disk| disk.storage.remote())
        else {
            return;
        };
        let Some(remote) = self.links.remotes.get(remote as usize) else { return };
        for link in remote.links.clone() {
            self.abandon_link(link);
        }
    }
}

impl Links {
    /// See [`Losses::on_client`].
    pub(crate) fn on_client(&mut self, remote: u32) -> LossEpoch {
        let remote = self.remotes.get_mut(remote as usize);
        remote.map_or_else(LossEpoch::default, |remote| remote.losses.on_client())
    }

    pub(crate) fn snapshot(&self, remote: u32) -> Option<RemoteSnapshot> {
        let remote = self.remotes.get(remote as usize)?;
        let servers: Vec<ServerSnapshot> = (0..)
            .zip(&remote.links)
            .filter_map(|(member, link)| {
                let link = self.links.get(*link as usize)?;
                let (state, counting) = match &link.state {
                    State::Connected(connection) => (RemoteState::Connected, connection.counting()),
                    State::Ending(_) | State::Waiting | State::Closed => {
                        (RemoteState::Waiting, Counting::None)
                    }
                    State::Failing if link.evicted => (RemoteState::Evicted, Counting::None),
                    State::Failing => (RemoteState::Failing, Counting::None),
                };
                let stripe = remote.stripe.as_ref();
                Some(ServerSnapshot {
                    server: link.server.clone(),
                    state,
                    reason: link.reason.clone(),
                    reconnects: link.connections.saturating_sub(1),
                    outstanding: link.commands.len(),
                    waiting: link.queue.len(),
                    latency: link.latency,
                    counting,
                    received: stripe.map(|stripe| stripe.received(member)).unwrap_or_default(),
                })
            })
            .collect();
        // The disk is as well as the worst of its servers.
        let worst = servers.iter().max_by_key(|server| server.state)?;
        Some(RemoteSnapshot {
            state: worst.state,
            reason: worst.reason.as_ref().map(|reason| match servers.len() {
                1 => reason.clone(),
                _ => format!("{}: {reason}", worst.server),
            }),
            reconnects: servers.iter().map(|server| server.reconnects).sum(),
            losses: remote.losses.count(),
            servers,
        })
    }
}
