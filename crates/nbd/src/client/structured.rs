//! Replies of either form, simple and structured, buffered whole.
//!
//! The caller receives into [`ReplyBuffer::spare`], reports the count with
//! [`ReplyBuffer::filled`], and calls [`ReplyBuffer::next`] until it answers `None`.

use crate::wire::{SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, be16, be32, be64, chunk};
use alloc::vec;
use alloc::vec::Vec;
use thiserror::Error;

/// The longest chunk without data, in bytes: an error with its text.
const MAX_TEXT_CHUNK: usize = 64 << 10;
/// Length of a simple reply without its data, in bytes.
const SIMPLE_HEAD: usize = 16;
/// Length of a chunk without its payload, in bytes.
const CHUNK_HEAD: usize = 20;

/// A part of a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A simple reply, whole.
    Simple {
        /// Identifies the request.
        cookie: u64,
        /// 0, or the error's number.
        error: u32,
        /// Empty unless a read succeeded.
        data: &'a [u8],
    },
    /// A piece of the data of a structured reply.
    Data {
        /// Identifies the request.
        cookie: u64,
        /// Where the piece begins on the export, in bytes.
        offset: u64,
        /// The piece.
        data: &'a [u8],
    },
    /// A hole in the data of a structured reply: `len` zeroes.
    Hole {
        /// Identifies the request.
        cookie: u64,
        /// Where the hole begins on the export, in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
    /// What a range holds, in the context `context`.
    Status {
        /// Identifies the request.
        cookie: u64,
        /// The number of the context.
        context: u32,
        /// From the range's beginning on, one after the other.
        extents: Extents<'a>,
    },
    /// An error, which fails the request. [`Event::Done`] still follows.
    Error {
        /// Identifies the request.
        cookie: u64,
        /// The error's number.
        error: u32,
    },
    /// The structured reply is complete.
    Done {
        /// Identifies the request.
        cookie: u64,
    },
}

/// The extents of a reply to a request for block status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents<'a>(&'a [u8]);

impl Extents<'_> {
    /// The length in bytes and the state of each; see [`crate::wire::STATE_HOLE`].
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.chunks_exact(8).filter_map(|extent| Some((be32(extent, 0)?, be32(extent, 4)?)))
    }
}

/// A breach of the protocol by the server. The connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReplyError {
    /// Something else than a reply.
    #[error("a reply starts with {0:#x}, which is no reply's magic number")]
    Magic(u32),
    /// A reply to no request of the client.
    #[error("a reply names request {0:#x}, which is not outstanding")]
    Cookie(u64),
    /// A chunk whose length does not fit its type.
    #[error("a chunk of type {kind} has {len} bytes")]
    Chunk {
        /// The type; see [`chunk`].
        kind: u16,
        /// Length of its payload in bytes.
        len: u32,
    },
}

/// The replies of one connection: the bytes that are received and not yet used.
#[derive(Debug)]
pub struct ReplyBuffer {
    bytes: Vec<u8>,
    /// The longest payload that is accepted.
    largest: usize,
    start: usize,
    end: usize,
    /// A chunk with the flag "done" was returned, its [`Event::Done`] was not yet.
    done: Option<u64>,
}

impl ReplyBuffer {
    /// A buffer for requests of up to `max_len` bytes of data, and for extents of as many bytes.
    pub fn new(max_len: u32) -> ReplyBuffer {
        let largest = (max_len as usize).max(MAX_TEXT_CHUNK) + 64;
        let bytes = vec![0; (2 * largest).max(512 << 10)];
        ReplyBuffer { bytes, largest, start: 0, end: 0, done: None }
    }

    /// Drops all bytes: another connection begins.
    pub fn clear(&mut self) {
        (self.start, self.end, self.done) = (0, 0, None);
    }

    /// The free space, into which the next bytes go. Never empty after [`next`](Self::next) has
    /// answered `None`.
    pub fn spare(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > self.bytes.len() / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// Reports that the first `n` bytes of [`spare`](Self::spare) were filled.
    pub fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.bytes.len());
    }

    /// The next event, or `None` when more bytes are needed. `data_of` returns how many bytes of
    /// data a successful reply to the cookie brings, or `None` when no such request is outstanding.
    ///
    /// # Errors
    /// See [`ReplyError`].
    pub fn next(
        &mut self,
        data_of: impl FnOnce(u64) -> Option<u32>,
    ) -> Result<Option<Event<'_>>, ReplyError> {
        if let Some(cookie) = self.done.take() {
            return Ok(Some(Event::Done { cookie }));
        }
        let here = &self.bytes[self.start..self.end];
        let Some(magic) = be32(here, 0) else { return Ok(None) };
        match magic {
            SIMPLE_REPLY_MAGIC => {
                let (Some(error), Some(cookie)) = (be32(here, 4), be64(here, 8)) else {
                    return Ok(None);
                };
                let expected = data_of(cookie).ok_or(ReplyError::Cookie(cookie))?;
                let len = if error == 0 { expected as usize } else { 0 };
                if here.len() < SIMPLE_HEAD + len {
                    return Ok(None);
                }
                let data = self.start + SIMPLE_HEAD;
                self.start = data + len;
                Ok(Some(Event::Simple { cookie, error, data: &self.bytes[data..data + len] }))
            }
            STRUCTURED_REPLY_MAGIC => self.next_chunk(data_of),
            other => Err(ReplyError::Magic(other)),
        }
    }

    fn next_chunk(
        &mut self,
        data_of: impl FnOnce(u64) -> Option<u32>,
    ) -> Result<Option<Event<'_>>, ReplyError> {
        let here = &self.bytes[self.start..self.end];
        let (Some(flags), Some(kind)) = (be16(here, 4), be16(here, 6)) else { return Ok(None) };
        let (Some(cookie), Some(len)) = (be64(here, 8), be32(here, 16)) else { return Ok(None) };
        let expected = data_of(cookie).ok_or(ReplyError::Cookie(cookie))?;
        let bad = ReplyError::Chunk { kind, len };
        let most = match kind {
            chunk::OFFSET_DATA => expected as usize + 8,
            chunk::BLOCK_STATUS => self.largest,
            _ => MAX_TEXT_CHUNK,
        };
        if len as usize > most {
            return Err(bad);
        }
        if here.len() < CHUNK_HEAD + len as usize {
            return Ok(None);
        }
        let body_at = self.start + CHUNK_HEAD;
        self.start = body_at + len as usize;
        let body = &self.bytes[body_at..self.start];
        let done = flags & chunk::FLAG_DONE != 0;
        let event = match kind {
            chunk::NONE if len == 0 && done => return Ok(Some(Event::Done { cookie })),
            chunk::OFFSET_DATA if len > 8 => {
                Event::Data { cookie, offset: be64(body, 0).ok_or(bad)?, data: &body[8..] }
            }
            chunk::OFFSET_HOLE if len == 12 => Event::Hole {
                cookie,
                offset: be64(body, 0).ok_or(bad)?,
                len: be32(body, 8).ok_or(bad)?,
            },
            chunk::BLOCK_STATUS if len >= 12 && len % 8 == 4 => Event::Status {
                cookie,
                context: be32(body, 0).ok_or(bad)?,
                extents: Extents(&body[4..]),
            },
            _ if kind & chunk::ERROR_BIT != 0 && len >= 6 => {
                Event::Error { cookie, error: be32(body, 0).ok_or(bad)? }
            }
            _ => return Err(bad),
        };
        if done {
            self.done = Some(cookie);
        }
        Ok(Some(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn simple(cookie: u64, error: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(error.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn chunk_of(kind: u16, done: bool, cookie: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(u16::from(done).to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn all(buffer: &mut ReplyBuffer) -> Vec<String> {
        let mut events = Vec::new();
        while let Some(event) = buffer.next(|cookie| (cookie < 100).then_some(5)).unwrap() {
            events.push(format!("{event:?}"));
        }
        events
    }

    proptest! {
        /// The events do not depend on where the stream is cut.
        #[test]
        fn cuts_in_the_stream_change_nothing(cuts in proptest::collection::vec(1usize..40, 1..30)) {
            let mut stream = simple(1, 0, b"hello");
            stream.extend(simple(2, 5, b""));
            let body = [&7u64.to_be_bytes()[..], b"abc"].concat();
            stream.extend(chunk_of(chunk::OFFSET_DATA, false, 3, &body));
            let hole = [&9u64.to_be_bytes()[..], &2u32.to_be_bytes()].concat();
            stream.extend(chunk_of(chunk::OFFSET_HOLE, true, 3, &hole));
            let error = [&22u32.to_be_bytes()[..], &2u16.to_be_bytes(), b"no"].concat();
            stream.extend(chunk_of(chunk::ERROR_BIT | 1, true, 4, &error));
            stream.extend(chunk_of(chunk::NONE, true, 5, b""));
            let extents = [7, 512, 3, 1024, 0].map(u32::to_be_bytes).concat();
            stream.extend(chunk_of(chunk::BLOCK_STATUS, true, 6, &extents));
            let mut whole = ReplyBuffer::new(5);
            whole.spare()[..stream.len()].copy_from_slice(&stream);
            whole.filled(stream.len());
            let expected = all(&mut whole);
            prop_assert_eq!(expected.len(), 10);

            let mut cut = ReplyBuffer::new(5);
            let mut events = Vec::new();
            let mut rest = &stream[..];
            let mut sizes = cuts.iter().cycle();
            while !rest.is_empty() {
                let n = (*sizes.next().unwrap()).min(rest.len());
                cut.spare()[..n].copy_from_slice(&rest[..n]);
                cut.filled(n);
                rest = &rest[n..];
                events.extend(all(&mut cut));
            }
            prop_assert_eq!(events, expected);
        }

        #[test]
        fn noise_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..300), head in 0usize..3) {
            let mut bytes = match head {
                0 => Vec::new(),
                1 => SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec(),
                _ => STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec(),
            };
            bytes.extend(noise);
            let mut buffer = ReplyBuffer::new(4096);
            buffer.spare()[..bytes.len()].copy_from_slice(&bytes);
            buffer.filled(bytes.len());
            while let Ok(Some(_)) = buffer.next(|_| Some(8)) {}
        }
    }

    #[test]
    fn a_block_status_brings_its_extents() {
        let extents = [7, 512, 3, 1024, 0].map(u32::to_be_bytes).concat();
        for (cut, fits) in [(20, true), (19, false), (4, false)] {
            let mut buffer = ReplyBuffer::new(16);
            let bytes = chunk_of(chunk::BLOCK_STATUS, true, 6, &extents[..cut]);
            buffer.spare()[..bytes.len()].copy_from_slice(&bytes);
            buffer.filled(bytes.len());
            match buffer.next(|_| Some(0)) {
                Ok(Some(Event::Status { cookie: 6, context: 7, extents })) if fits => {
                    assert_eq!(extents.iter().collect::<Vec<_>>(), [(512, 3), (1024, 0)]);
                }
                Err(ReplyError::Chunk { kind: 5, .. }) if !fits => {}
                other => panic!("{cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_was_not_asked_for_is_an_error() {
        let mut buffer = ReplyBuffer::new(16);
        let bytes = simple(100, 0, b"");
        buffer.spare()[..bytes.len()].copy_from_slice(&bytes);
        buffer.filled(bytes.len());
        assert_eq!(buffer.next(|_| None), Err(ReplyError::Cookie(100)));
        buffer.clear();
        let bytes = chunk_of(chunk::OFFSET_DATA, true, 1, &[0; 14]);
        buffer.spare()[..bytes.len()].copy_from_slice(&bytes);
        buffer.filled(bytes.len());
        assert_eq!(buffer.next(|_| Some(5)), Err(ReplyError::Chunk { kind: 1, len: 14 }));
    }
}
