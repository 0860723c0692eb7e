//! Clients with leases: a disk that lies on several servers is one host's at a time, and each
//! server sees to it for its own part.
//!
//! What is known here is forgotten with the process. The labels of such a disk keep it, and honest
//! hosts read them before they send anything.

use super::rights::End;
use headgate_nbd::counters::Lease;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The greatest lease that was shown for a disk, and who came by it.
struct Known {
    lease: Lease,
    connections: Vec<Box<dyn End + Send>>,
}

/// The leases of all disks that were shown one. Locked for moments, when a connection starts.
#[derive(Default)]
pub(super) struct Leases(Mutex<HashMap<String, Known>>);

/// Another holds the disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held(Lease);

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.0.host.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        write!(f, "the disk is held by host {host} (lease {})", self.0.number)
    }
}

impl Leases {
    /// A client shows a lease of a disk. One with a greater number than all before ends their
    /// connections; the same again is welcome; a lease of another striped disk takes the place of
    /// one that nobody is connected by.
    pub(super) fn show(&self, disk: &str, lease: Lease) -> Result<(), Held> {
        let mut all = self.lock();
        let Some(known) = all.get_mut(disk) else {
            all.insert(disk.to_owned(), Known { lease, connections: Vec::new() });
            return Ok(());
        };
        known.connections.retain(|one| !one.is_gone());
        if known.lease == lease {
            return Ok(());
        }
        let is_unused = known.connections.is_empty() && known.lease.disk != lease.disk;
        if lease.number <= known.lease.number && !is_unused {
            return Err(Held(known.lease));
        }
        let (before, connections) = (known.lease, known.connections.len());
        *known = Known { lease, connections: std::mem::take(&mut known.connections) };
        known.connections.drain(..).for_each(|one| one.end());
        if connections > 0 {
            let holder = Held(lease).to_string();
            tracing::warn!(
                disk,
                before = before.number,
                connections,
                "{holder}: the clients of the lease before it are disconnected"
            );
        }
        Ok(())
    }

    /// A connection that showed a lease has begun, and serves nothing yet. One whose lease was
    /// passed meanwhile ends.
    pub(super) fn add(&self, disk: &str, lease: Lease, connection: Box<dyn End + Send>) {
        let mut all = self.lock();
        match all.get_mut(disk).filter(|known| known.lease == lease) {
            Some(known) => known.connections.push(connection),
            None => connection.end(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Clone, Debug, Default)]
    struct Connection(Arc<AtomicUsize>);

    impl Connection {
        fn ends(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl End for Connection {
        fn is_gone(&self) -> bool {
            self.ends() > 0
        }

        fn end(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lease(disk: u8, number: u64, host: u8) -> Lease {
        Lease { disk: [disk; 16], number, host: [host; 16] }
    }

    fn come(leases: &Leases, lease: Lease) -> Result<Connection, Held> {
        leases.show("a", lease)?;
        let connection = Connection::default();
        leases.add("a", lease, Box::new(connection.clone()));
        Ok(connection)
    }

    #[test]
    fn a_greater_number_ends_those_before_and_keeps_them_out() {
        let leases = Leases::default();
        let old = [come(&leases, lease(1, 4, 7)).unwrap(), come(&leases, lease(1, 4, 7)).unwrap()];
        assert_eq!(come(&leases, lease(1, 4, 8)).unwrap_err(), Held(lease(1, 4, 7)));
        assert_eq!(come(&leases, lease(1, 3, 8)).unwrap_err(), Held(lease(1, 4, 7)));
        assert_eq!(old.each_ref().map(Connection::ends), [0, 0]);
        let new = come(&leases, lease(1, 5, 8)).unwrap();
        assert_eq!(old.each_ref().map(Connection::ends), [1, 1]);
        let error = come(&leases, lease(1, 4, 7)).unwrap_err().to_string();
        assert_eq!(error, format!("the disk is held by host {} (lease 5)", "08".repeat(16)));
        // Also when its holder is away.
        new.end();
        assert_eq!(come(&leases, lease(1, 4, 7)).unwrap_err(), Held(lease(1, 5, 8)));
        come(&leases, lease(1, 5, 8)).unwrap();
    }

    #[test]
    fn leases_are_of_one_export() {
        let leases = Leases::default();
        come(&leases, lease(1, 9, 7)).unwrap();
        assert_eq!(leases.show("b", lease(1, 1, 8)), Ok(()));
    }

    #[test]
    fn who_showed_a_lease_before_it_was_passed_comes_too_late() {
        let leases = Leases::default();
        leases.show("a", lease(1, 1, 7)).unwrap();
        let new = come(&leases, lease(1, 2, 8)).unwrap();
        let late = Connection::default();
        leases.add("a", lease(1, 1, 7), Box::new(late.clone()));
        assert_eq!((late.ends(), new.ends()), (1, 0));
    }

    #[test]
    fn another_striped_disk_waits_for_the_one_before_unless_its_number_is_greater() {
        let leases = Leases::default();
        let old = come(&leases, lease(1, 9, 7)).unwrap();
        assert_eq!(come(&leases, lease(2, 1, 8)).unwrap_err(), Held(lease(1, 9, 7)));
        old.end();
        let new = come(&leases, lease(2, 1, 8)).unwrap();
        let next = come(&leases, lease(3, 2, 9)).unwrap();
        assert_eq!((new.ends(), next.ends()), (1, 0));
    }
}
