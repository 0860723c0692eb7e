//! What disks say of the window.

use crate::window::WorkWindow;

/// What a disk says of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Nothing: it asks for too little, or nothing helps it.
    None,
    /// It is too early to say anything new.
    Pending,
    /// It has what it needs, and no more.
    Kept,
    /// The window may be so many thousandths of what it is.
    Roomy(u64),
    /// It is short, and waits in the queue.
    Starved,
    /// It is short, and would have enough if so much were in flight.
    Short(WorkWindow),
    /// It is short, and narrowing the window did nothing for it: to be opened and tried again.
    Useless,
    /// The same for the second time, or of a window of its own depth. Left alone for a while.
    GivenUp,
}

/// Whether the window may be narrowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    Narrow,
    LeaveAlone,
}
