//! The servers of remote disks: which of its connections to a server a request takes.
//!
//! - A request takes the connection that has least to do; a flush the oldest, which vouches for
//!   most ([`super::loss`]).
//! - When a connection is lost, what was to be sent on it takes another. So do reads and flushes
//!   that were sent: nobody minds a second one. A write that was sent and not answered waits until
//!   the lost connection has a successor. A server of ours opens that when it has done with what
//!   came over the lost one; sent over another at once, the write could be done twice, the second
//!   time on top of a later write.

use super::disk::Server;
use super::line::{LinkId, Lost as Worth};
use super::link::state::{Link, Links, State};
use super::loss::{Account, Era, Lost};
use crate::backend::context::Context;
use crate::request::{IoError, Op};

/// Which connection a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// That with least to do.
    Any,
    /// The oldest.
    Oldest,
}

impl Takes {
    fn of(op: Op) -> Takes {
        if op == Op::Flush { Takes::Oldest } else { Takes::Any }
    }
}

impl Links {
    pub(super) fn server(&self, remote: u32, member: u16) -> Option<&Server> {
        self.remotes.get(remote as usize)?.servers.get(usize::from(member))
    }

    fn server_mut(&mut self, remote: u32, member: u16) -> Option<&mut Server> {
        self.remotes.get_mut(remote as usize)?.servers.get_mut(usize::from(member))
    }

    /// What the server of a link has acknowledged.
    pub(super) fn account_of(&mut self, index: u32) -> Option<&mut Account> {
        let (remote, member) =
            self.links.get(index as usize).map(|link| (link.remote, link.member))?;
        let server = self.server_mut(remote, member)?;
        Some(&mut server.account)
    }

    /// Whether a flush has anything to make durable at a server.
    pub(super) fn owes_flush(&self, remote: u32, member: u16) -> bool {
        self.server(remote, member).is_some_and(|server| server.account.owes_flush())
    }

    /// Whether requests for a server fail at once.
    pub(super) fn is_hopeless(&self, remote: u32, member: u16) -> bool {
        self.server(remote, member).is_none_or(|server| self.route(server, Takes::Any).is_none())
    }

    /// The link that a request for a server is queued at; `None`: there is no hope for it.
    pub(super) fn route_to(&self, remote: u32, member: u16, op: Op) -> Option<u32> {
        self.route(self.server(remote, member)?, Takes::of(op))
    }

    /// O(connections).
    fn route(&self, server: &Server, takes: Takes) -> Option<u32> {
        let usable = |&&index: &&u32| {
            self.links.get(index as usize).is_some_and(|link| {
                let may_come = matches!(link.state, State::Waiting | State::Ending(_));
                !link.abandoned && (link.is_connected() || may_come)
            })
        };
        if let [only] = server.links.as_slice() {
            return Some(only).filter(usable).copied();
        }
        let connected = server.links.iter().copied().filter_map(|index| {
            let link = self.links.get(index as usize)?;
            (link.is_connected() && !link.abandoned).then_some((index, link))
        });
        let best = match takes {
            Takes::Any => connected.min_by_key(|(_, link)| link.load()),
            Takes::Oldest => connected.min_by_key(|(_, link)| link.born),
        };
        best.map(|(index, _)| index).or_else(|| server.links.iter().find(usable).copied())
    }

    /// The other links of a link's server.
    pub(super) fn siblings(&self, index: u32) -> Vec<u32> {
        let server =
            self.links.get(index as usize).and_then(|link| self.server(link.remote, link.member));
        let all = server.map(|server| server.links.as_slice()).unwrap_or_default();
        all.iter().copied().filter(|&other| other != index).collect()
    }

    /// Whether another connection to the server of a link stands.
    pub(super) fn has_company(&self, index: u32) -> bool {
        let others = self.siblings(index).into_iter();
        others.filter_map(|other| self.links.get(other as usize)).any(Link::is_connected)
    }

    /// A link has a connection: of a new era.
    pub(super) fn new_era(&mut self, index: u32) -> Era {
        let of = self.links.get(index as usize).map(|link| (link.remote, link.member));
        let Some(server) = of.and_then(|(remote, member)| self.server_mut(remote, member)) else {
            return Era::default();
        };
        server.era = server.era.next();
        server.era
    }

    /// What the loss of a link's connection, which is none any more, may have taken with it.
    pub(super) fn judge_loss(&mut self, index: u32) -> Lost {
        let oldest = self
            .siblings(index)
            .into_iter()
            .filter_map(|other| self.links.get(other as usize))
            .filter(|link| link.is_connected())
            .map(|link| link.born)
            .min();
        self.account_of(index).map_or(Lost::Nothing, |account| account.on_lost(oldest))
    }
}

impl Context {
    /// Has the requests that wait at links without a connection take one that the server has, or
    /// may have soon; without hope for one they fail. O(connections + requests that wait).
    pub(super) fn reroute(&mut self, index: u32) {
        let Some(link) = self.links.links.get(index as usize) else { return };
        let (remote, member) = (link.remote, link.member);
        let Some(server) = self.links.server(remote, member) else { return };
        for from in server.links.clone() {
            let Some(link) = self.links.get_mut(from) else { continue };
            if link.is_connected() || link.queue.is_empty() {
                continue;
            }
            for key in std::mem::take(&mut link.queue) {
                let op = self.tables.slots[key].request.op;
                let Some(to) = self.links.route_to(remote, member, op) else {
                    self.end_party(key, Err(IoError::Backend(libc::EIO)));
                    continue;
                };
                if let Some(link) = self.links.get_mut(to) {
                    link.queue.push_back(key);
                }
                self.links.set_ready(to);
            }
        }
    }

    /// A server's connection stands. Where it can have several, the others are asked for; else they
    /// are given up.
    pub(super) fn accompany(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        let State::Connected(connection) = &link.state else { return };
        let several = connection.offer().several_connections();
        for other in self.links.siblings(index) {
            let Some(link) = self.links.get_mut(other) else { continue };
            match link.state {
                State::Spare if several => link.ask(Worth::Working),
                State::Connected(_) if !several => {
                    self.lose(other, "the server can have one connection at a time only");
                }
                _ => {}
            }
        }
    }

    /// The dialer has found that the server can have no further connection: what waits for this one
    /// takes another.
    pub(crate) fn link_spare(&mut self, id: LinkId) {
        let Some(index) = self.links.find(id) else { return };
        let Some(link) = self.links.get_mut(index) else { return };
        if !matches!(link.state, State::Waiting | State::Failing) {
            return;
        }
        link.state = State::Spare;
        link.reason = None;
        // The server has opened a connection since they were sent.
        let unanswered = std::mem::take(&mut link.unanswered);
        link.queue.extend(unanswered);
        self.reroute(index);
    }
}

impl Link {
    /// Asks for a connection.
    pub(super) fn ask(&mut self, worth: Worth) {
        self.state = State::Waiting;
        self.asker.ask(worth);
    }
}
