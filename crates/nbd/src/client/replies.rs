//! Simple replies, with payloads received straight into the caller's buffers.
//!
//! The payload of a read is as long as the read itself, so a client that knows its requests can
//! have the payload received into its final place. [`Replies::payload`] names the payload whose
//! bytes come next; what comes behind it goes to [`Replies::spare`]. A small payload that arrived
//! together with its head is returned by [`Replies::next`]. Each call of [`Replies::received`] is
//! followed by calls of [`Replies::next`] until it answers `None`.
//!
//! Where client and server agreed on [counters](crate::counters), what the disk received stands
//! behind each head, and the end of the reply tells it.
//!
//! ```
//! use headgate_nbd::client::replies::{Event, Replies};
//! use headgate_nbd::counters::{Counting, Received};
//! use headgate_nbd::server::command::Replies as Form;
//! use headgate_nbd::server::reply;
//!
//! // Request 7 reads 5 bytes.
//! let payload_of = |cookie| (cookie == 7).then_some(5);
//! let mut stream = Vec::new();
//! reply::data(&mut stream, Form::Simple, 7, 0, 5);
//! stream.extend(b"hello");
//!
//! let mut replies = Replies::new(64);
//! replies.spare(usize::MAX)[..stream.len()].copy_from_slice(&stream);
//! replies.received(stream.len());
//! let data = Event::Data { cookie: 7, at: 0, bytes: b"hello" };
//! assert_eq!(replies.next(payload_of)?, Some(data));
//! let end = Event::End { cookie: 7, error: 0, received: Received::default() };
//! assert_eq!(replies.next(payload_of)?, Some(end));
//! assert_eq!(replies.next(payload_of)?, None);
//!
//! // The next connection has counters.
//! let received = Received { all: 1_500_000, by_reservation: 500_000 };
//! let mut stream = Vec::new();
//! reply::data(&mut stream, Form::Counted, 7, 0, 5);
//! stream.extend(received.to_bytes());
//! stream.extend(b"again");
//!
//! replies.clear(Counting::Agreed);
//! assert_eq!(replies.head_lacks(), 32);
//! replies.spare(usize::MAX)[..stream.len()].copy_from_slice(&stream);
//! replies.received(stream.len());
//! let data = Event::Data { cookie: 7, at: 0, bytes: b"again" };
//! assert_eq!(replies.next(payload_of)?, Some(data));
//! let end = Event::End { cookie: 7, error: 0, received };
//! assert_eq!(replies.next(payload_of)?, Some(end));
//! # Ok::<(), headgate_nbd::client::replies::ReplyError>(())
//! ```

use crate::counters::{Counting, Malformed, REPLY_LEN, Received};
use crate::wire::{SIMPLE_REPLY_MAGIC, be32, be64};
use alloc::boxed::Box;
use alloc::vec;
use thiserror::Error;

/// Length of a simple reply without its counters and its payload, in bytes.
pub const HEAD: usize = 16;

/// A breach of the protocol by the server. The connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReplyError {
    /// Something else than a simple reply.
    #[error("a reply starts with {0:#x}, which is not a simple reply's magic number")]
    Magic(u32),
    /// A reply to no request of the client.
    #[error("a reply names request {0:#x}, which is not outstanding")]
    Cookie(u64),
    /// More by reservation than in all.
    #[error(
        "a reply's counters contradict each other: {by_reservation} millionths of an IO by \
         reservation, and {all} in all"
    )]
    Counters {
        /// What the disk is said to have received in all, in millionths of an IO.
        all: u64,
        /// The part of it by reservation, in millionths of an IO.
        by_reservation: u64,
    },
}

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
    /// The reply is complete, and so is its payload.
    End {
        /// Identifies the request.
        cookie: u64,
        /// 0, or the error's number.
        error: u32,
        /// What the disk received on this connection since the reply before. Nothing where that is
        /// not counted.
        received: Received,
    },
}

/// A payload that is partly received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Identifies the request.
    pub cookie: u64,
    /// Bytes received.
    pub at: u32,
    /// Bytes to come.
    pub left: u32,
}

/// The replies of one connection.
#[derive(Debug)]
pub struct Replies {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    payload: Option<Payload>,
    counting: Counting,
    /// What the head of `payload` says.
    received: Received,
}

impl Replies {
    /// A stream without counters at its beginning, with a buffer of `size` bytes (at least 64) for
    /// heads and small payloads.
    pub fn new(size: usize) -> Replies {
        Replies {
            bytes: vec![0; size.max(64)].into_boxed_slice(),
            start: 0,
            end: 0,
            payload: None,
            counting: Counting::None,
            received: Received::default(),
        }
    }

    /// Drops all bytes: another connection begins, with counters or without.
    pub fn clear(&mut self, counting: Counting) {
        (self.start, self.end, self.payload) = (0, 0, None);
        self.counting = counting;
    }

    /// The payload that the next bytes belong to.
    pub fn payload(&self) -> Option<Payload> {
        self.payload
    }

    /// The free space, into which the bytes behind the payload go: at most `most` bytes, at least
    /// one.
    pub fn spare(&mut self, most: usize) -> &mut [u8] {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let until = self.end.saturating_add(most.max(1)).min(self.bytes.len());
        &mut self.bytes[self.end..until]
    }

    /// Bytes that the next head still lacks, with its counters if there are any; at least 1.
    pub fn head_lacks(&self) -> usize {
        let head = match self.counting {
            Counting::None => HEAD,
            Counting::Agreed => HEAD + REPLY_LEN,
        };
        head.saturating_sub(self.end - self.start).max(1)
    }

    /// Reports `count` received bytes. The first of them are the rest of
    /// [`payload`](Replies::payload), which the caller keeps; the others are in
    /// [`spare`](Replies::spare).
    pub fn received(&mut self, count: usize) {
        let mut rest = count;
        if let Some(payload) = &mut self.payload {
            let direct = rest.min(payload.left as usize);
            payload.at += direct as u32;
            payload.left -= direct as u32;
            rest -= direct;
        }
        self.end = (self.end + rest).min(self.bytes.len());
    }

    /// The next event, or `None` when more bytes are needed. `payload_of` returns how many bytes of
    /// payload a successful reply to the cookie brings, or `None` when no such request is
    /// outstanding. Constant time.
    ///
    /// # Errors
    /// See [`ReplyError`].
    pub fn next(
        &mut self,
        payload_of: impl FnOnce(u64) -> Option<u32>,
    ) -> Result<Option<Event<'_>>, ReplyError> {
        if self.payload.is_none() {
            let here = &self.bytes[self.start..self.end];
            if let Some(magic) = be32(here, 0).filter(|&magic| magic != SIMPLE_REPLY_MAGIC) {
                return Err(ReplyError::Magic(magic));
            }
            let (Some(error), Some(cookie)) = (be32(here, 4), be64(here, 8)) else {
                return Ok(None);
            };
            let (head, received) = match self.counting {
                Counting::None => (HEAD, Received::default()),
                Counting::Agreed => {
                    let Some(counters) = here[HEAD..].first_chunk() else { return Ok(None) };
                    (HEAD + REPLY_LEN, received_of(counters)?)
                }
            };
            let left = payload_of(cookie).ok_or(ReplyError::Cookie(cookie))?;
            self.start += head;
            if error != 0 {
                return Ok(Some(Event::End { cookie, error, received }));
            }
            self.payload = Some(Payload { cookie, at: 0, left });
            self.received = received;
        }
        let Some(payload) = &mut self.payload else { return Ok(None) };
        let Payload { cookie, at, left } = *payload;
        if left == 0 {
            self.payload = None;
            return Ok(Some(Event::End { cookie, error: 0, received: self.received }));
        }
        let here = (self.end - self.start).min(left as usize);
        if here == 0 {
            return Ok(None);
        }
        payload.at += here as u32;
        payload.left -= here as u32;
        let from = self.start;
        self.start += here;
        Ok(Some(Event::Data { cookie, at, bytes: &self.bytes[from..from + here] }))
    }
}

fn received_of(counters: &[u8; REPLY_LEN]) -> Result<Received, ReplyError> {
    Received::from_bytes(counters).map_err(|Malformed| ReplyError::Counters {
        all: be64(counters, 0).unwrap_or(0),
        by_reservation: be64(counters, 8).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOTH: [Counting; 2] = [Counting::None, Counting::Agreed];

    fn reply(cookie: u64, error: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(error.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// The same with what the disk received, where that is counted.
    fn counted(counting: Counting, cookie: u64, error: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = reply(cookie, error, &[]);
        if counting == Counting::Agreed {
            bytes.extend(received(counting, cookie).to_bytes());
        }
        bytes.extend(payload);
        bytes
    }

    /// What the reply to a request says: something else of each.
    fn received(counting: Counting, cookie: u64) -> Received {
        match counting {
            Counting::None => Received::default(),
            Counting::Agreed => Received { all: cookie * 1_000_003 + 2, by_reservation: cookie },
        }
    }

    type End = (u64, u32, Received, Vec<u8>);

    /// Receives `stream` in pieces of at most `cuts`, straight into payloads where it can; answers
    /// every request's end, with its payload.
    fn receive(
        counting: Counting,
        stream: &[u8],
        lens: &[u32],
        cuts: &[usize],
        most: usize,
    ) -> Result<Vec<End>, ReplyError> {
        let mut replies = Replies::new(64);
        replies.clear(counting);
        let mut payloads: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len as usize]).collect();
        let mut ended = Vec::new();
        let mut rest = stream;
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let cut = (*cuts.next().unwrap()).min(rest.len());
            let (mut piece, behind) = rest.split_at(cut);
            let mut taken = 0;
            if let Some(Payload { cookie, at, left }) = replies.payload() {
                let direct = piece.len().min(left as usize);
                payloads[cookie as usize][at as usize..][..direct]
                    .copy_from_slice(&piece[..direct]);
                piece = &piece[direct..];
                taken += direct;
            }
            let spare = replies.spare(most);
            assert!(!spare.is_empty());
            let buffered = piece.len().min(spare.len());
            spare[..buffered].copy_from_slice(&piece[..buffered]);
            taken += buffered;
            replies.received(taken);
            rest = if taken == cut { behind } else { &rest[taken..] };
            while let Some(event) = replies.next(|cookie| lens.get(cookie as usize).copied())? {
                match event {
                    Event::Data { cookie, at, bytes } => payloads[cookie as usize][at as usize..]
                        [..bytes.len()]
                        .copy_from_slice(bytes),
                    Event::End { cookie, error, received } => {
                        let payload = std::mem::take(&mut payloads[cookie as usize]);
                        ended.push((cookie, error, received, payload));
                    }
                }
            }
        }
        assert_eq!(replies.payload(), None);
        Ok(ended)
    }

    proptest! {
        /// However the stream is cut, every request ends once, with its own bytes and counters.
        #[test]
        fn cuts_in_the_stream_change_nothing(
            counting in prop::sample::select(&BOTH),
            lens in proptest::collection::vec(0u32..300, 1..20),
            cuts in proptest::collection::vec(1usize..400, 1..20),
            most in 1usize..100,
        ) {
            let mut stream = Vec::new();
            let mut expected = Vec::new();
            for (cookie, &len) in lens.iter().enumerate() {
                let payload: Vec<u8> = (0..len).map(|n| (n as u8) ^ (cookie as u8)).collect();
                // Every third request fails: no payload then.
                let cookie = cookie as u64;
                let told = received(counting, cookie);
                if cookie % 3 == 2 {
                    stream.extend(counted(counting, cookie, 5, &[]));
                    expected.push((cookie, 5, told, vec![0; len as usize]));
                } else {
                    stream.extend(counted(counting, cookie, 0, &payload));
                    expected.push((cookie, 0, told, payload));
                }
            }
            prop_assert_eq!(receive(counting, &stream, &lens, &cuts, most).unwrap(), expected);
        }

        #[test]
        fn noise_is_refused_and_never_panics(
            counting in prop::sample::select(&BOTH),
            noise in proptest::collection::vec(any::<u8>(), 4..300),
            good in 0usize..3,
        ) {
            let mut stream = Vec::new();
            for _ in 0..good {
                stream.extend(counted(counting, 0, 0, b"abc"));
            }
            stream.extend(noise);
            let mut replies = Replies::new(1024);
            replies.clear(counting);
            replies.spare(usize::MAX)[..stream.len()].copy_from_slice(&stream);
            replies.received(stream.len());
            while let Ok(Some(_)) = replies.next(|_| Some(3)) {}
        }
    }

    #[test]
    fn what_was_not_asked_for_is_an_error() {
        for counting in BOTH {
            let unasked = counted(counting, 7, 0, &[]);
            let end = receive(counting, &unasked, &[0], &[400], 400);
            assert_eq!(end, Err(ReplyError::Cookie(7)));
            let structured = [0x66, 0x8e, 0x33, 0xef];
            let end = receive(counting, &structured, &[0], &[400], 400);
            assert_eq!(end, Err(ReplyError::Magic(0x668e_33ef)));
        }
    }

    #[test]
    fn counters_that_contradict_each_other_are_an_error_of_any_reply() {
        for error in [0, 5] {
            let mut stream = counted(Counting::Agreed, 0, error, &[]);
            for said in [Received { all: 8, by_reservation: 9 }, Received::default()] {
                stream.extend(reply(1, error, &[]));
                stream.extend(said.to_bytes());
            }
            for cuts in [400, 1] {
                let end = receive(Counting::Agreed, &stream, &[0, 0], &[cuts], 400).unwrap_err();
                assert_eq!(end, ReplyError::Counters { all: 8, by_reservation: 9 });
                assert_eq!(
                    end.to_string(),
                    "a reply's counters contradict each other: 9 millionths of an IO by \
                     reservation, and 8 in all"
                );
            }
        }
    }

    /// Who receives no more than a head lacks gets it whole by that, and none of what follows.
    #[test]
    fn a_head_lacks_what_has_not_come_of_it_and_its_counters() {
        for (counting, whole) in [(Counting::None, 16), (Counting::Agreed, 32)] {
            for error in [0, 5] {
                let head = counted(counting, 0, error, &[]);
                assert_eq!(head.len(), whole);
                for first in 0..whole {
                    let mut replies = Replies::new(0);
                    replies.clear(counting);
                    let (begun, rest) = head.split_at(first);
                    for (piece, lacks) in [(begun, whole), (rest, rest.len())] {
                        assert_eq!(replies.next(|_| Some(3)), Ok(None));
                        assert_eq!(replies.head_lacks(), lacks);
                        replies.spare(lacks)[..piece.len()].copy_from_slice(piece);
                        replies.received(piece.len());
                    }
                    let came = replies.next(|_| Some(3));
                    let ended = Event::End { cookie: 0, error, received: received(counting, 0) };
                    assert_eq!(came, Ok((error != 0).then_some(ended)));
                    assert_eq!(replies.payload().is_some(), error == 0);
                    assert_eq!(replies.head_lacks(), whole);
                }
            }
        }
    }

    #[test]
    fn another_connection_begins_without_what_the_one_before_left() {
        for (before, after) in [(BOTH[0], BOTH[1]), (BOTH[1], BOTH[0])] {
            let mut replies = Replies::new(64);
            replies.clear(before);
            let cut = &counted(before, 1, 0, b"abcde")[..];
            for left in [10, cut.len() - 2] {
                replies.spare(usize::MAX)[..left].copy_from_slice(&cut[..left]);
                replies.received(left);
                while replies.next(|_| Some(5)).unwrap().is_some() {}
                replies.clear(after);
                let stream = counted(after, 2, 5, &[]);
                replies.spare(usize::MAX)[..stream.len()].copy_from_slice(&stream);
                replies.received(stream.len());
                let end = Event::End { cookie: 2, error: 5, received: received(after, 2) };
                assert_eq!(replies.next(|_| Some(5)), Ok(Some(end)));
                assert_eq!(replies.next(|_| Some(5)), Ok(None));
                replies.clear(before);
            }
        }
    }
}
