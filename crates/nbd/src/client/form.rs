//! The form of a server's replies.

use crate::counters::{Counting, Version};

/// The form of a server's replies, as client and server agreed on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Simple replies.
    #[default]
    Simple,
    /// Simple replies, with [counters](crate::counters) behind their heads. Block status is
    /// answered with chunks, if there is a context for it, and has its counters behind the last.
    Counted {
        /// Which of them.
        version: Version,
        /// The number of the context `base:allocation`.
        allocation: Option<u32>,
    },
    /// Chunks, or simple replies to what brings no data.
    Structured {
        /// The number of the context `base:allocation`.
        allocation: Option<u32>,
    },
}

impl Form {
    /// Whether client and server count what the disk receives: only then
    /// [`Report`](crate::counters::Report)s go with requests, and
    /// [`Received`](crate::counters::Received) comes with replies.
    pub fn counting(self) -> Counting {
        match self {
            Form::Counted { version, .. } => Counting::Agreed(version),
            Form::Simple | Form::Structured { .. } => Counting::None,
        }
    }

    /// Whether anything is answered with chunks.
    pub(super) fn has_chunks(self) -> bool {
        match self {
            Form::Simple | Form::Counted { allocation: None, .. } => false,
            Form::Counted { allocation: Some(_), .. } | Form::Structured { .. } => true,
        }
    }

    /// The number under which the server reports `base:allocation`. Without one it answers no
    /// request for block status.
    pub fn allocation(self) -> Option<u32> {
        match self {
            Form::Simple => None,
            Form::Counted { allocation, .. } | Form::Structured { allocation } => allocation,
        }
    }
}
