//! Connections whose right to their disk may be taken away: those that came by a socket with a
//! rule.

use headgate_access::Peer;
use headgate_engine::PortRef;
use headgate_engine::port::Detach;
use headgate_tls::Right;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Who is at the other end of a socket with a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A process of this host, by a unix socket.
    Process(Peer),
    /// Who showed this certificate, over TLS.
    Certificate(headgate_tls::Peer),
}

/// What a caller may do with the disk of this name now. Asked when a client chooses a disk, and
/// again whenever rights change.
pub type Rule = dyn Fn(&str, &Caller) -> Right + Send + Sync;

/// A socket's rule, and who came by it.
#[derive(Clone)]
pub(super) struct Guard {
    rule: Arc<Rule>,
    /// `None`: the kernel does not say, and nothing is allowed.
    caller: Option<Caller>,
}

impl Guard {
    pub(super) fn new(rule: Arc<Rule>, caller: Option<Caller>) -> Guard {
        Guard { rule, caller }
    }

    /// Who showed a certificate.
    pub(super) fn peer(&self) -> Option<&headgate_tls::Peer> {
        match &self.caller {
            Some(Caller::Certificate(peer)) => Some(peer),
            Some(Caller::Process(_)) | None => None,
        }
    }

    pub(super) fn right(&self, disk: &str) -> Right {
        self.caller.as_ref().map_or(Right::None, |caller| (self.rule)(disk, caller))
    }
}

/// What ends a connection.
pub(super) trait End {
    fn is_gone(&self) -> bool;
    fn end(&self);
}

impl End for PortRef {
    fn is_gone(&self) -> bool {
        PortRef::is_gone(self)
    }

    fn end(&self) {
        self.detach(Detach::Now);
    }
}

struct Held {
    disk: String,
    guard: Guard,
    /// What the connection was begun with.
    has: Right,
    connection: Box<dyn End + Send>,
}

/// The connections that have a rule. Locked for moments, when one starts and when rights change.
#[derive(Default)]
pub(super) struct Rights(Mutex<Vec<Held>>);

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rights")
    }
}

impl Rights {
    /// A connection has begun. One whose right was taken away after it had chosen its disk ends.
    pub(super) fn add(&self, disk: &str, guard: Guard, has: Right, port: PortRef) {
        self.hold(disk, guard, has, Box::new(port));
    }

    fn hold(&self, disk: &str, guard: Guard, has: Right, connection: Box<dyn End + Send>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|one| !one.connection.is_gone());
        held.push(Held { disk: disk.to_owned(), guard, has, connection });
        // It is in the list now: whoever changes rights from here on finds it there.
        Self::end_the_forbidden(&mut held);
    }

    /// Rights have changed: ends the connections that have none any more.
    pub(super) fn review(&self) {
        Self::end_the_forbidden(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn end_the_forbidden(held: &mut Vec<Held>) {
        let mut ended: BTreeMap<String, usize> = BTreeMap::new();
        held.retain(|one| {
            if one.connection.is_gone() {
                return false;
            }
            let allowed = one.guard.right(&one.disk) >= one.has;
            if !allowed {
                one.connection.end();
                *ended.entry(one.disk.clone()).or_default() += 1;
            }
            allowed
        });
        for (disk, connections) in ended {
            tracing::info!(
                disk,
                connections,
                "NBD clients may not use this disk any more: they are disconnected"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Connection {
        ended: AtomicUsize,
    }

    impl End for Arc<Connection> {
        fn is_gone(&self) -> bool {
            self.ended.load(Ordering::Relaxed) > 0
        }

        fn end(&self) {
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn caller(user: u32) -> Option<Caller> {
        Some(Caller::Process(Peer { user, groups: vec![user], process: None }))
    }

    #[test]
    fn those_that_lost_their_right_end_once_and_the_others_stay() {
        let allowed = Arc::new(Mutex::new(vec![("a", 1), ("b", 1), ("a", 2)]));
        let rule: Arc<Rule> = {
            let allowed = allowed.clone();
            Arc::new(move |disk, caller| {
                let Caller::Process(peer) = caller else { panic!("{caller:?}") };
                match allowed.lock().unwrap().contains(&(disk, peer.user)) {
                    true => Right::Write,
                    false => Right::None,
                }
            })
        };
        let rights = Rights::default();
        let begin = |disk: &str, caller| {
            let (connection, guard) =
                (Arc::new(Connection::default()), Guard::new(rule.clone(), caller));
            rights.hold(disk, guard, Right::Write, Box::new(connection.clone()));
            connection
        };
        let ends = |connection: &Arc<Connection>| connection.ended.load(Ordering::Relaxed);
        let all = [begin("a", caller(1)), begin("b", caller(1)), begin("a", caller(2))];
        rights.review();
        assert_eq!(all.each_ref().map(ends), [0, 0, 0]);
        allowed.lock().unwrap().retain(|one| *one != ("a", 1));
        rights.review();
        rights.review();
        assert_eq!(all.each_ref().map(ends), [1, 0, 0]);
        // It chose its disk before, and is there after the change.
        assert_eq!(ends(&begin("a", caller(1))), 1);
        assert_eq!(ends(&begin("b", None)), 1, "nobody knows who that is");
        assert_eq!(rights.0.lock().unwrap().len(), 2, "those that ended are forgotten");
    }

    #[test]
    fn who_may_only_read_from_now_on_keeps_connections_that_only_read() {
        let right = Arc::new(Mutex::new(Right::Write));
        let rule: Arc<Rule> = {
            let right = right.clone();
            Arc::new(move |_, _| *right.lock().unwrap())
        };
        let rights = Rights::default();
        let begin = |has| {
            let connection = Arc::new(Connection::default());
            let guard = Guard::new(rule.clone(), caller(1));
            rights.hold("a", guard, has, Box::new(connection.clone()));
            connection
        };
        let both = [begin(Right::Write), begin(Right::Read)];
        let ends = || both.each_ref().map(|one| one.ended.load(Ordering::Relaxed));
        *right.lock().unwrap() = Right::Read;
        rights.review();
        assert_eq!(ends(), [1, 0]);
        *right.lock().unwrap() = Right::None;
        rights.review();
        assert_eq!(ends(), [1, 1]);
    }
}
