use crate::Format;
use headgate_units::Nanos;
use std::borrow::Cow;
use std::fmt;
use std::io;
use thiserror::Error;

/// Where in a trace, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// A line of text.
    Line(u64),
    /// A record of a binary format.
    Record(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line(n) => write!(f, "line {n}"),
            Position::Record(n) => write!(f, "record {n}"),
        }
    }
}

/// A field that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} is '{given}', expected {expected}")]
pub struct Problem {
    field: &'static str,
    given: String,
    expected: Cow<'static, str>,
}

/// Longer texts are cut in messages.
const LONGEST_EXCERPT: usize = 60;

/// A text of the trace for a message: printable, and not longer than a line.
pub(crate) fn excerpt(given: &[u8]) -> String {
    let cut = &given[..given.len().min(LONGEST_EXCERPT)];
    let mut text: String = String::from_utf8_lossy(cut).escape_debug().collect();
    if cut.len() < given.len() {
        text.push('…');
    }
    text
}

impl Problem {
    #[cold]
    pub(crate) fn new(
        field: &'static str,
        given: &[u8],
        expected: impl Into<Cow<'static, str>>,
    ) -> Problem {
        Problem { field, given: excerpt(given), expected: expected.into() }
    }
}

/// Why a trace cannot be read any further.
#[derive(Debug, Error)]
pub enum TraceError {
    /// A line, or a record, is not in the trace's format.
    #[error("{position}: {problem}")]
    Malformed {
        /// Where.
        position: Position,
        /// What is wrong with it.
        problem: Problem,
    },
    /// A request is earlier than those that were given out already.
    #[error("{position}: issued {late} before a request more than {window} requests ahead of it")]
    OutOfOrder {
        /// Where.
        position: Position,
        /// How much earlier.
        late: Late,
        /// How many requests are sorted at a time.
        window: usize,
    },
    /// The compressed data, or the last record, is cut short or damaged.
    #[error("the trace is cut short or damaged after {after}: {why}")]
    Damaged {
        /// The last position that could be read, `None` before the first.
        after: After,
        /// What the decompressor says.
        why: String,
    },
    /// The operating system cannot read on.
    #[error("cannot read on after {after}: {source}")]
    Read {
        /// The last position that could be read.
        after: After,
        /// What the system says.
        source: io::Error,
    },
    /// Compressed, or packed, with something that is not read here.
    #[error("the trace is {what}")]
    Packed {
        /// What it is.
        what: &'static str,
        /// How to unpack it.
        unpack: &'static str,
    },
    /// The first lines are in no known format.
    #[error("the trace is in no format known here; it begins with '{first}'")]
    UnknownFormat {
        /// The first line.
        first: String,
    },
    /// There is nothing in the file.
    #[error("the trace is empty")]
    Empty,
}

/// A last position, or the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After(pub(crate) Option<Position>);

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(position) => position.fmt(f),
            None => f.write_str("the beginning"),
        }
    }
}

/// A distance in time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late(pub Nanos);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64())
    }
}

impl TraceError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            TraceError::Malformed { .. } | TraceError::Damaged { .. } => {
                "leave out what cannot be read and count it: --lenient".into()
            }
            TraceError::OutOfOrder { .. } => {
                "sort more requests at a time with --window N, or leave out those that are too late: --lenient".into()
            }
            TraceError::Read { .. } => "see the kernel's log for errors of the storage below".into(),
            TraceError::Packed { unpack, .. } => format!("unpack it first: {unpack}"),
            TraceError::UnknownFormat { .. } | TraceError::Empty => {
                let known: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
                format!("name the format if you know it, one of {}: --format FORMAT", known.join(", "))
            }
        }
    }
}
