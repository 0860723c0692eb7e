//! The line between a remote disk's link, on the shard, and its dialer, on a thread of its own.

use super::connection::Connection;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Names a remote disk's link to its server: messages that come late must not find another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkId(u64);

impl LinkId {
    /// A name that no other link of this process has or had.
    pub(super) fn new() -> LinkId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        LinkId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a lost connection was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It had answered requests.
    Working,
    /// It never did. If it was short too, it counts as a failed attempt.
    Useless,
    /// It was silent for so long that its requests failed.
    Silent,
}

/// What the shard is told while it has no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Requests may wait.
    Trying,
    /// Requests fail, though attempts go on.
    GivenUp,
    /// As that: another host holds the disk.
    Evicted,
}

/// A connection that the dialer is asked for: which one, and what the one before it was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub number: u8,
    pub lost: Lost,
}

/// Asks a server's dialer for one of its connections. When all of them are dropped, its thread
/// ends.
#[derive(Debug)]
pub(crate) struct Asker {
    number: u8,
    calls: Sender<Call>,
}

impl Asker {
    pub(super) fn new(number: u8, calls: Sender<Call>) -> Asker {
        Asker { number, calls }
    }

    pub(crate) fn ask(&self, lost: Lost) {
        // Without a dialer the disk is about to close.
        let _ = self.calls.send(Call { number: self.number, lost });
    }
}

/// What the shard gets of one of the connections of a remote disk.
#[derive(Debug)]
pub(crate) struct Line {
    pub id: LinkId,
    pub connection: Option<Connection>,
    /// For how long requests wait for a server that is gone or silent.
    pub patience: Duration,
    /// For a new connection.
    pub asker: Asker,
}

/// What the shard gets of one of the servers of a remote disk.
#[derive(Debug)]
pub(crate) struct ServerLines {
    /// The server, for people.
    pub server: String,
    /// By number; the first is made first, and the others where the server can have several.
    pub lines: Vec<Line>,
}
