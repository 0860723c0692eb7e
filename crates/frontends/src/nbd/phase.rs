//! How far a connection in transmission is.

/// Where the receive under way writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    Nothing,
    Inbox,
    Payload,
    /// The range of the image that the payload belongs to.
    Placed,
}

/// Whether requests are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not yet: connections that closed before still have requests at the storage.
    Waiting,
    Open,
    /// Not any more; what was taken is answered.
    Draining,
    Closed,
}

/// Whether the socket is watched for the client's end, while nothing is received that would tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HangUpWatch {
    Off,
    On,
    /// Cancelled, and the last event is still to come.
    Ending,
}

/// Whether the port may move data by the disk's pages, where there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    InUse,
    /// The disk is about to have other storage: nothing new is begun by the pages of this one.
    Leaving,
}

/// Whether the port stays on its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Motion {
    Going,
    /// It is to go to another one: it takes and receives nothing, and finishes what it has begun.
    Resting,
}

/// Whether long writes are received to their places in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacedWrites {
    Off,
    On,
}
