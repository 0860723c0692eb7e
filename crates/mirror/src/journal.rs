//! What of a move outlives the machine.

use crate::request::Side;

/// What the journal of moves is to hold from now on. Written whole or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// There is a move, and a target that does not count.
    Started,
    /// The target counts.
    Switched,
}

/// What the caller knows of a record that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// It is durable.
    Made,
    /// It is not there, and never will be.
    NotMade,
    /// It may be there, or may come to be. The caller finds out and says so in another word.
    Unknown,
}

/// What is done with the two copies after the machine was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recovery {
    /// The disk.
    pub serve: Side,
    /// The copy that is removed, or made anew if the move begins again.
    pub reclaim: Side,
}

impl Recovery {
    /// What the last record of a move says that was not cleaned up.
    pub fn of(last: Record) -> Recovery {
        let serve = match last {
            Record::Started => Side::Source,
            Record::Switched => Side::Target,
        };
        Recovery { serve, reclaim: serve.other() }
    }
}
