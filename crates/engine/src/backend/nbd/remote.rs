//! Remote disks, as their shard holds them: what is the disk's and not a link's.
//!
//! A disk has a link for each connection to each server that it lies on: one server, or as many as
//! its stripes have members. What a lost server may have lost is the disk's: a client is told once
//! of each loss, whichever server it was.

use super::disk::{Remote, Server, Stripe};
use super::line::ServerLines;
use super::link::Place;
use super::link::state::{Link, Links, State};
use super::loss::{Account, Era, FlushDecision, LossEpoch, Losses};
use crate::backend::context::Context;
use crate::request::{Extent, ExtentKind, IoError, Op};
use crate::snapshot::{RemoteSnapshot, RemoteState, ServerSnapshot};
use headgate_nbd::counters::{Counting, Received};
use headgate_units::Nanos;

impl Context {
    /// Takes a disk with the lines to each of its servers.
    pub(crate) fn add_remote(
        &mut self,
        disk: u32,
        servers: Vec<ServerLines>,
        stripe: Option<Stripe>,
    ) -> u32 {
        let remote = self.links.remotes.vacant_key() as u32;
        let mut first = Vec::with_capacity(servers.len());
        let mut all = Vec::with_capacity(servers.len());
        for (member, ServerLines { server: name, lines }) in (0..).zip(servers) {
            let links = (0..)
                .zip(lines)
                .map(|(number, line)| self.add_link(Place { disk, remote, member, number }, line));
            let links: Vec<u32> = links.collect();
            first.extend(links.first().copied());
            all.push(Server { name, links, account: Account::default(), era: Era::default() });
        }
        self.links.remotes.insert(Remote { servers: all, losses: Losses::default(), stripe });
        first.into_iter().for_each(|link| self.accompany(link));
        remote
    }

    /// Takes a request on its way to the servers.
    pub(crate) fn start_remote(&mut self, key: u32) {
        let slot = &mut self.tables.slots[key];
        slot.parties = 1;
        let remote = self.tables.disks[slot.disk as usize].storage.remote();
        let Some(found) = remote.and_then(|remote| self.links.remotes.get(remote as usize)) else {
            return self.end_party(key, Err(IoError::Backend(libc::EBADF)));
        };
        match (&found.stripe, remote) {
            (None, Some(remote)) => self.send_away(key, remote, 0),
            _ => self.start_striped(key),
        }
    }

    /// A request, or a part of one, has ended at its server. Of what that does not say of a range
    /// all is data.
    pub(super) fn end_at_server(&mut self, key: u32, result: Result<(), IoError>) {
        let slot = &mut self.tables.slots[key];
        if slot.request.op == Op::BlockStatus && result.is_ok() && slot.extents.is_empty() {
            slot.extents.push(Extent { len: slot.request.len, kind: ExtentKind::Data });
        }
        self.end_party(key, result);
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
        for link in remote.servers.into_iter().flat_map(|server| server.links) {
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
        let links: Vec<u32> =
            remote.servers.iter().flat_map(|server| server.links.iter().copied()).collect();
        for link in links {
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
            .zip(&remote.servers)
            .filter_map(|(member, server)| {
                let stripe = remote.stripe.as_ref();
                let received = stripe.map(|stripe| stripe.received(member)).unwrap_or_default();
                self.server_snapshot(server, received)
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

    /// A server is as well as the best of its connections.
    fn server_snapshot(&self, server: &Server, received: Received) -> Option<ServerSnapshot> {
        let links: Vec<&Link> =
            server.links.iter().filter_map(|&link| self.links.get(link as usize)).collect();
        let (best, state) =
            links.iter().map(|link| (link, state(link))).min_by_key(|(_, state)| *state)?;
        let counting = match &best.state {
            State::Connected(connection) => connection.counting(),
            _ => Counting::None,
        };
        let heard_last = links
            .iter()
            .filter(|link| link.is_connected() && counting.is_agreed())
            .max_by_key(|link| link.heard);
        let latencies: Vec<u64> = links.iter().filter_map(|link| Some(link.latency?.0)).collect();
        let mean =
            |all: &[u64]| Some(Nanos(all.iter().sum::<u64>().checked_div(all.len() as u64)?));
        Some(ServerSnapshot {
            server: server.name.clone(),
            state,
            reason: best.reason.clone(),
            reconnects: links.iter().map(|link| link.connections.saturating_sub(1)).sum(),
            connections: links.iter().filter(|link| link.is_connected()).count(),
            outstanding: links.iter().map(|link| link.commands.len()).sum(),
            waiting: links.iter().map(|link| link.queue.len() + link.unanswered.len()).sum(),
            latency: mean(&latencies),
            counting,
            window: heard_last.and_then(|link| link.replies.window()),
            received,
        })
    }
}

/// How a connection is.
fn state(link: &Link) -> RemoteState {
    match &link.state {
        State::Connected(_) => RemoteState::Connected,
        State::Ending(_) | State::Waiting | State::Closed => RemoteState::Waiting,
        State::Failing if link.evicted => RemoteState::Evicted,
        // One that is not asked for says nothing of its server.
        State::Failing | State::Spare => RemoteState::Failing,
    }
}
