//! Replies, with payloads received straight into the caller's buffers.
//!
//! The payload of a read is as long as the read itself, so a client that knows its requests can
//! have the payload received into its final place. [`Replies::payload`] names the payload whose
//! bytes come next; what comes behind it goes to [`Replies::spare`]. A small payload that arrived
//! together with its head is returned by [`Replies::next`]. Each call of [`Replies::received`] is
//! followed by calls of [`Replies::next`] until it answers `None`.
//!
//! The [`Form`] says what may come. Where client and server agreed on
//! [counters](crate::counters), the end of a reply tells what the disk received. In structured
//! replies the pieces of a payload may come in any order, and holes instead of zeroes.
//!
//! ```
//! use headgate_nbd::client::form::Form;
//! use headgate_nbd::client::replies::{Brings, Event, Replies};
//! use headgate_nbd::counters::{Received, Version, Window};
//! use headgate_nbd::server::command::Replies as Said;
//! use headgate_nbd::server::reply;
//!
//! // Request 7 reads 5 bytes.
//! let brings = |cookie| (cookie == 7).then_some(Brings::Data { offset: 512, len: 5 });
//! let mut stream = Vec::new();
//! reply::data(&mut stream, Said::Simple, 7, 512, 5);
//! stream.extend(b"hello");
//!
//! let mut replies = Replies::new(64);
//! replies.spare(usize::MAX)[..stream.len()].copy_from_slice(&stream);
//! replies.received(stream.len());
//! let data = Event::Data { cookie: 7, at: 0, bytes: b"hello" };
//! assert_eq!(replies.next(brings)?, Some(data));
//! let end = Event::End { cookie: 7, error: 0, received: Received::default(), extents: &[] };
//! assert_eq!(replies.next(brings)?, Some(end));
//! assert_eq!(replies.next(brings)?, None);
//!
//! // The next connection has counters.
//! let received = Received { all: 1_500_000, by_reservation: 500_000 };
//! let mut stream = Vec::new();
//! reply::data(&mut stream, Said::Counted(Version::Three), 7, 512, 5);
//! stream.extend(received.to_bytes());
//! stream.extend(Window(12_500_000).to_bytes());
//! stream.extend(b"again");
//!
//! replies.clear(Form::Counted { version: Version::Three, allocation: None });
//! assert_eq!(replies.head_lacks(), 40);
//! replies.spare(usize::MAX)[..stream.len()].copy_from_slice(&stream);
//! replies.received(stream.len());
//! let data = Event::Data { cookie: 7, at: 0, bytes: b"again" };
//! assert_eq!(replies.next(brings)?, Some(data));
//! let end = Event::End { cookie: 7, error: 0, received, extents: &[] };
//! assert_eq!(replies.next(brings)?, Some(end));
//! assert_eq!(replies.window(), Some(Window(12_500_000)));
//! # Ok::<(), headgate_nbd::client::replies::ReplyError>(())
//! ```

use super::chunks::{CHUNK_HEAD, Chunk, DATA_HEAD, Last, Says};
use super::coverage::{Coverage, Unfit};
use super::extents::{Extent, Gathered};
use super::form::Form;
use crate::counters::{Counting, Malformed, REPLY_LEN, Received, Version, Window};
use crate::wire::{SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, be32, be64};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;

pub use super::chunks::{Brings, ReplyError};

/// Length of a simple reply without its counters and its payload, in bytes.
pub const HEAD: usize = 16;

/// A part of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A piece of a read's payload.
    Data {
        /// Identifies the request.
        cookie: u64,
        /// Where the piece begins in the payload, in bytes.
        at: u32,
        /// The piece.
        bytes: &'a [u8],
    },
    /// A piece of a read's payload that is zeroes, and does not come.
    Zeroes {
        /// Identifies the request.
        cookie: u64,
        /// Where the piece begins in the payload, in bytes.
        at: u32,
        /// Its length in bytes.
        len: u32,
    },
    /// The reply is complete, and so is its payload.
    End {
        /// Identifies the request.
        cookie: u64,
        /// 0, or the error's number.
        error: u32,
        /// What the disk received on this connection since the reply before. Nothing where that is
        /// not counted.
        received: Received,
        /// What the range holds, from its beginning on, if that was asked for: perhaps not to its
        /// end. Empty where the server says nothing, or what cannot be.
        extents: &'a [Extent],
    },
}

/// A payload that is partly received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Identifies the request.
    pub cookie: u64,
    /// Where the next byte belongs, counted from the first that was asked for.
    pub at: u32,
    /// Bytes to come.
    pub left: u32,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug)]
enum Part {
    Head,
    /// Data of a simple reply, behind which that ends, or of a chunk.
    Payload(Payload, Behind),
    /// A hole: no bytes.
    Zeroes {
        at: u32,
        len: u32,
    },
    /// Extents of a range of so many bytes.
    Extents {
        asked: u32,
        left: u32,
    },
    /// What nobody reads.
    Skipped {
        left: u32,
    },
    /// Nothing: a chunk is over.
    ChunkEnd,
    /// What the disk received, and the window.
    Counters,
    /// Nothing: the reply is over.
    End,
}

/// What is over with a payload.
#[derive(Clone, Copy, Debug)]
enum Behind {
    Reply,
    Chunk,
}

/// A reply of which something has come.
#[derive(Debug, Default)]
struct Reply {
    cookie: u64,
    error: u32,
    received: Received,
    /// Bytes of data that are to come in chunks, and those that have.
    due: u32,
    came: Coverage,
    extents: Gathered,
    /// A chunk with extents has come.
    answered: bool,
}

impl Reply {
    fn begin(&mut self, cookie: u64) {
        (self.cookie, self.error, self.received) = (cookie, 0, Received::default());
        (self.due, self.answered) = (0, false);
        self.came.clear();
        self.extents.clear();
    }

    /// A piece of the data comes, of `len` bytes from byte `begin` of the export on: where it
    /// belongs among the `due` bytes that are to come from byte `offset` on.
    fn place(&mut self, offset: u64, due: u32, begin: u64, len: u32) -> Result<u32, ReplyError> {
        let unfit = ReplyError::Piece { offset: begin, len };
        let at = begin.checked_sub(offset).and_then(|at| u32::try_from(at).ok()).ok_or(unfit)?;
        let end = at.checked_add(len).filter(|end| *end <= due).ok_or(unfit)?;
        self.came.add(at..end).map_err(|Unfit| unfit)?;
        Ok(at)
    }
}

/// The replies of one connection.
#[derive(Debug)]
pub struct Replies {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    form: Form,
    part: Part,
    /// Whether the chunk that is received is the last one of `reply`.
    last: Last,
    /// The reply that `part` is of.
    reply: Reply,
    /// Those of which chunks have come and others are to come, by their cookies.
    begun: BTreeMap<u64, Reply>,
    /// What the last counters of the connection say.
    window: Option<Window>,
}

impl Replies {
    /// A stream of simple replies at its beginning, with a buffer of `size` bytes (at least 64) for
    /// heads and small payloads.
    pub fn new(size: usize) -> Replies {
        Replies {
            bytes: vec![0; size.max(64)].into_boxed_slice(),
            start: 0,
            end: 0,
            form: Form::Simple,
            part: Part::Head,
            last: Last::No,
            reply: Reply::default(),
            begun: BTreeMap::new(),
            window: None,
        }
    }

    /// Drops all bytes: another connection begins, with replies of this form.
    pub fn clear(&mut self, form: Form) {
        (self.start, self.end, self.part, self.window) = (0, 0, Part::Head, None);
        self.begun.clear();
        self.form = form;
    }

    /// The window behind the export, as the server said it last on this connection; `None` where it
    /// has not.
    pub fn window(&self) -> Option<Window> {
        self.window.filter(|window| *window != Window::default())
    }

    /// The payload that the next bytes belong to.
    pub fn payload(&self) -> Option<Payload> {
        match self.part {
            Part::Payload(payload, _) => Some(payload),
            _ => None,
        }
    }

    /// The free space, into which the bytes behind the payload go: at most `most` bytes, at least
    /// one.
    pub fn spare(&mut self, most: usize) -> &mut [u8] {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let until = self.end.saturating_add(most.max(1)).min(self.bytes.len());
        &mut self.bytes[self.end..until]
    }

    /// Bytes that come before the next payload at least, and are not there yet; at least 1. Of
    /// structured replies it is the head of a chunk with data: of others it may be a few more than
    /// they have.
    pub fn head_lacks(&self) -> usize {
        let before = match self.part {
            Part::Extents { left, .. } | Part::Skipped { left } => left as usize,
            _ => 0,
        };
        let head = match self.form {
            Form::Simple | Form::Counted { .. } => HEAD + self.form.counting().reply_len(),
            Form::Structured { .. } => CHUNK_HEAD + DATA_HEAD,
        };
        (before + head).saturating_sub(self.end - self.start).max(1)
    }

    /// Reports `count` received bytes. The first of them are the rest of
    /// [`payload`](Replies::payload), which the caller keeps; the others are in
    /// [`spare`](Replies::spare).
    pub fn received(&mut self, count: usize) {
        let mut rest = count;
        if let Part::Payload(payload, _) = &mut self.part {
            let direct = rest.min(payload.left as usize);
            payload.at += direct as u32;
            payload.left -= direct as u32;
            rest -= direct;
        }
        self.end = (self.end + rest).min(self.bytes.len());
    }

    /// The next event, or `None` when more bytes are needed. `brings` returns what a successful
    /// reply to the cookie brings, or `None` when no such request is outstanding. Takes time linear
    /// in the bytes that it uses.
    ///
    /// # Errors
    /// See [`ReplyError`].
    pub fn next(
        &mut self,
        brings: impl Fn(u64) -> Option<Brings>,
    ) -> Result<Option<Event<'_>>, ReplyError> {
        loop {
            let here = self.end - self.start;
            match &mut self.part {
                Part::Head => {
                    if !self.take_head(&brings)? {
                        return Ok(None);
                    }
                }
                Part::Payload(Payload { left: 0, .. }, behind) => {
                    self.part = match behind {
                        Behind::Reply => Part::End,
                        Behind::Chunk => Part::ChunkEnd,
                    };
                }
                Part::Payload(payload, _) => {
                    let len = here.min(payload.left as usize);
                    if len == 0 {
                        return Ok(None);
                    }
                    let Payload { cookie, at, .. } = *payload;
                    payload.at += len as u32;
                    payload.left -= len as u32;
                    let bytes = &self.bytes[self.start..self.start + len];
                    self.start += len;
                    return Ok(Some(Event::Data { cookie, at, bytes }));
                }
                Part::Zeroes { at, len } => {
                    let event = Event::Zeroes { cookie: self.reply.cookie, at: *at, len: *len };
                    self.part = Part::ChunkEnd;
                    return Ok(Some(event));
                }
                Part::Extents { left: 0, .. } | Part::Skipped { left: 0 } => {
                    self.part = Part::ChunkEnd;
                }
                Part::Extents { asked, left } => {
                    let whole = here.min(*left as usize) / 8 * 8;
                    if whole == 0 {
                        return Ok(None);
                    }
                    for extent in self.bytes[self.start..self.start + whole].chunks_exact(8) {
                        let (len, flags) = (be32(extent, 0), be32(extent, 4));
                        self.reply.extents.push(*asked, len.unwrap_or(0), flags.unwrap_or(0));
                    }
                    *left -= whole as u32;
                    self.start += whole;
                }
                Part::Skipped { left } => {
                    let len = here.min(*left as usize);
                    if len == 0 {
                        return Ok(None);
                    }
                    *left -= len as u32;
                    self.start += len;
                }
                Part::ChunkEnd => self.end_chunk(),
                Part::Counters => {
                    let counting = self.form.counting();
                    let bytes = &self.bytes[self.start..self.end];
                    let Some(counters) = counters_of(counting, bytes)? else { return Ok(None) };
                    (self.reply.received, self.window) = counters;
                    self.start += counting.reply_len();
                    self.part = Part::End;
                }
                Part::End => return self.end_reply().map(Some),
            }
        }
    }

    /// Takes the head of a reply or of a chunk, if it is there whole.
    fn take_head(&mut self, brings: impl Fn(u64) -> Option<Brings>) -> Result<bool, ReplyError> {
        let here = &self.bytes[self.start..self.end];
        match be32(here, 0) {
            None => return Ok(false),
            Some(SIMPLE_REPLY_MAGIC) => {}
            Some(STRUCTURED_REPLY_MAGIC) if self.form.has_chunks() => {
                return self.take_chunk(brings);
            }
            Some(magic) => return Err(ReplyError::Magic(magic)),
        }
        let (Some(error), Some(cookie)) = (be32(here, 4), be64(here, 8)) else {
            return Ok(false);
        };
        let counting = self.form.counting();
        let Some((received, window)) = counters_of(counting, &here[HEAD..])? else {
            return Ok(false);
        };
        let brings = brings(cookie).ok_or(ReplyError::Cookie(cookie))?;
        if self.begun.contains_key(&cookie) {
            return Err(ReplyError::Mixed(cookie));
        }
        self.start += HEAD + counting.reply_len();
        self.window = window;
        self.reply.begin(cookie);
        (self.reply.error, self.reply.received) = (error, received);
        self.part = match brings {
            Brings::Data { len: left, .. } if error == 0 => {
                Part::Payload(Payload { cookie, at: 0, left }, Behind::Reply)
            }
            _ => Part::End,
        };
        Ok(true)
    }

    /// Takes the head of a chunk, if it is there whole.
    fn take_chunk(&mut self, brings: impl Fn(u64) -> Option<Brings>) -> Result<bool, ReplyError> {
        let here = &self.bytes[self.start..self.end];
        let Some((chunk, used)) = Chunk::read(here, self.form, brings)? else { return Ok(false) };
        let Chunk { cookie, last, brings, says, left, error } = chunk;
        self.start += used;
        match self.begun.remove(&cookie) {
            Some(begun) => self.reply = begun,
            None => self.reply.begin(cookie),
        }
        self.last = last;
        if let Brings::Data { len, .. } = brings {
            self.reply.due = len;
        }
        self.part = match (says, brings) {
            (Says::Nothing, _) => Part::ChunkEnd,
            (Says::Error { number }, _) => {
                if self.reply.error == 0 {
                    self.reply.error = number;
                }
                Part::Skipped { left }
            }
            (Says::Data { begin }, Brings::Data { offset, len }) => {
                let at = self.reply.place(offset, len, begin, left)?;
                Part::Payload(Payload { cookie, at, left }, Behind::Chunk)
            }
            (Says::Zeroes { begin, len: zeroes }, Brings::Data { offset, len }) => {
                let at = self.reply.place(offset, len, begin, zeroes)?;
                Part::Zeroes { at, len: zeroes }
            }
            (Says::Extents { context }, Brings::Status { .. })
                if self.form.allocation() != Some(context) =>
            {
                Part::Skipped { left }
            }
            (Says::Extents { .. }, Brings::Status { len: asked }) if !self.reply.answered => {
                self.reply.answered = true;
                Part::Extents { asked, left }
            }
            _ => return Err(error),
        };
        Ok(true)
    }

    fn end_chunk(&mut self) {
        self.part = match (self.last, self.form.counting()) {
            (Last::No, _) => {
                let reply = core::mem::take(&mut self.reply);
                self.begun.insert(reply.cookie, reply);
                Part::Head
            }
            (Last::Yes, Counting::Agreed(_)) => Part::Counters,
            (Last::Yes, Counting::None) => Part::End,
        };
    }

    fn end_reply(&mut self) -> Result<Event<'_>, ReplyError> {
        self.part = Part::Head;
        let Reply { cookie, error, received, due, .. } = self.reply;
        if error == 0 && self.reply.came.whole() != Some(due) {
            return Err(ReplyError::Incomplete(due));
        }
        let extents = if error == 0 { self.reply.extents.extents() } else { &[] };
        Ok(Event::End { cookie, error, received, extents })
    }
}

/// What `bytes` begin with, behind a head or a last chunk: what the disk received, and the window.
/// `None`: more bytes are needed.
fn counters_of(
    counting: Counting,
    bytes: &[u8],
) -> Result<Option<(Received, Option<Window>)>, ReplyError> {
    let Counting::Agreed(version) = counting else {
        return Ok(Some((Received::default(), None)));
    };
    let Some((counters, behind)) = bytes.split_first_chunk() else { return Ok(None) };
    let window = match (version, behind.first_chunk()) {
        (Version::Two, _) => None,
        (Version::Three, Some(window)) => Some(Window::from_bytes(*window)),
        (Version::Three, None) => return Ok(None),
    };
    Ok(Some((received_of(counters)?, window)))
}

fn received_of(counters: &[u8; REPLY_LEN]) -> Result<Received, ReplyError> {
    Received::from_bytes(counters).map_err(|Malformed| ReplyError::Counters {
        all: be64(counters, 0).unwrap_or(0),
        by_reservation: be64(counters, 8).unwrap_or(0),
    })
}

#[cfg(test)]
#[path = "replies_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "replies_chunk_tests.rs"]
mod chunk_tests;
