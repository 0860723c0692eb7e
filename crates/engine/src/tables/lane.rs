//! Whose a request is: a guest's, or a copy's that Headgate makes of its disk.

use headgate_qos::DiskId as Queue;

/// Whose a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lane {
    /// A client's: it is charged to the disk, by the disk's policy, and counted as the disk's.
    #[default]
    Client,
    /// A copy's: it has a queue and a policy of its own, is in nobody's statistics, and is never
    /// held while the storage is in trouble.
    Copy,
    /// A copy's likewise, for which a client's change waits: it is charged to the disk.
    CopyBeforeWrite,
}

/// The queues of a disk in its datastore's scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queues {
    /// Its clients'.
    pub clients: Queue,
    /// That of a copy that is being made from it or to it.
    pub copy: Option<Queue>,
}

impl Queues {
    /// Of a disk that is not copied.
    pub(crate) fn new(clients: Queue) -> Queues {
        Queues { clients, copy: None }
    }

    /// The queue of a request.
    #[inline]
    pub(crate) fn of(&self, lane: Lane) -> Queue {
        match lane {
            Lane::Client | Lane::CopyBeforeWrite => self.clients,
            // A copy's requests are sent while it has its queue only.
            Lane::Copy => self.copy.unwrap_or(self.clients),
        }
    }
}
