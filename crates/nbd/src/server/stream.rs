//! The client's byte stream in transmission, cut into requests.
//!
//! The caller keeps the bytes. It shows [`Requests::poll`] the bytes that are received and not yet
//! used, and drops as many as the answer says. After a write the caller takes the payload out of
//! the stream itself, wherever it wants it, and reports each piece with [`Requests::on_payload`]
//! before it polls again. However the stream is cut into pieces, the requests are the same.
//!
//! ```
//! use headgate_nbd::server::{Writes, Export};
//! use headgate_nbd::server::command::{Durability, Op, Replies, Session};
//! use headgate_nbd::server::contexts::Contexts;
//! use headgate_nbd::server::stream::{Event, Requests};
//! use headgate_nbd::wire::{Request, command, command_flag};
//!
//! let head = Request {
//!     flags: command_flag::FUA,
//!     command: command::WRITE,
//!     cookie: 7,
//!     offset: 4096,
//!     len: 512,
//! };
//! let stream = [&head.to_bytes()[..], &[0x5a; 512]].concat();
//!
//! let writes = Writes::Allowed;
//! let export = Export { size: 1 << 20, block_size: 512, preferred: 4096, writes };
//! let session = Session { replies: Replies::Simple, contexts: Contexts::NONE };
//! let mut requests = Requests::new(session);
//! let (used, event) = requests.poll(&stream, export)?;
//! let Event::Command(command) = event else { panic!("{event:?}") };
//! assert_eq!((command.cookie, command.op), (7, Op::Write(Durability::Fua)));
//!
//! let payload = &stream[used..];
//! assert_eq!(requests.payload_left() as usize, payload.len());
//! requests.on_payload(payload.len() as u32);
//! assert_eq!(requests.poll(&[], export)?, (0, Event::NeedBytes));
//! # Ok::<(), headgate_nbd::server::stream::StreamError>(())
//! ```

use super::command::{Command, Head, Op, Replies, Session, parse};
use super::{Export, MAX_PAYLOAD};
use crate::counters::{self, Report};
use crate::wire::{NbdError, REQUEST_LEN};
use thiserror::Error;

/// The longest payload of a refused write that is read and dropped, in bytes. The specification
/// asks for 32 MiB.
pub const MAX_SKIP: u32 = 2 * MAX_PAYLOAD;

const _: () = assert!(MAX_SKIP >= 32 << 20);

/// The next thing in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing complete: poll again with more bytes.
    NeedBytes,
    /// A request to serve. If it is a write, its payload comes next: see
    /// [`Requests::payload_left`].
    Command(Command),
    /// A request to reply to with an error. Later polls skip its payload, if it has one.
    Refused {
        /// Identifies the request in its reply.
        cookie: u64,
        /// The error to reply with.
        error: NbdError,
    },
    /// The client is done and sends nothing more.
    Disconnect,
}

/// The stream cannot be followed any further. Drop the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StreamError {
    /// The client is out of step.
    #[error(
        "expected a request (magic 0x25609513), got 0x{0:08x}: the client and the server are out of step"
    )]
    BadMagic(u32),
    /// Counts that no client sends.
    #[error(
        "a request's counters are malformed: rho must be at most delta, and the last 6 bytes zero"
    )]
    Counters,
    /// A write longer than [`MAX_SKIP`].
    #[error("a write of {0} bytes: the longest that is served is {MAX_PAYLOAD}")]
    PayloadTooLong(u32),
}

/// Where the stream stands.
#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    Payload { left: u32 },
    Skip { left: u32 },
}

/// The position in one client's stream. Holds no bytes itself.
#[derive(Debug)]
pub struct Requests {
    session: Session,
    state: State,
    report: Report,
}

impl Requests {
    /// A stream at its beginning.
    pub fn new(session: Session) -> Requests {
        Requests { session, state: State::Head, report: Report::default() }
    }

    /// Reads the next request from the bytes that are received and not yet used. Returns how many
    /// bytes it used. `export` is the export as it is now. Constant time.
    ///
    /// While [`payload_left`](Requests::payload_left) is not zero, the answer is
    /// [`Event::NeedBytes`] and uses no bytes.
    ///
    /// # Errors
    /// The client broke the protocol. The stream is worthless from here on.
    pub fn poll(&mut self, input: &[u8], export: Export) -> Result<(usize, Event), StreamError> {
        let mut used = 0;
        if let State::Skip { left } = self.state {
            let skipped = left.min(u32::try_from(input.len()).unwrap_or(u32::MAX));
            used = skipped as usize;
            if skipped < left {
                self.state = State::Skip { left: left - skipped };
                return Ok((used, Event::NeedBytes));
            }
            self.state = State::Head;
        }
        if let State::Payload { .. } = self.state {
            return Ok((used, Event::NeedBytes));
        }
        let Some(head) = input[used..].first_chunk::<REQUEST_LEN>() else {
            return Ok((used, Event::NeedBytes));
        };
        let parsed = parse(head, self.session, export);
        used += REQUEST_LEN;
        if self.session.replies.are_counted()
            && matches!(parsed, Head::Command(_) | Head::Refused(_))
        {
            let Some(counts) = input[used..].first_chunk() else {
                return Ok((used - REQUEST_LEN, Event::NeedBytes));
            };
            self.report =
                Report::from_bytes(counts).map_err(|counters::Malformed| StreamError::Counters)?;
            used += counters::REQUEST_LEN;
        }
        let event = match parsed {
            Head::Command(command) => {
                if matches!(command.op, Op::Write(_)) {
                    self.state = State::Payload { left: command.len };
                }
                Event::Command(command)
            }
            Head::Refused(refusal) => {
                if refusal.payload > MAX_SKIP {
                    return Err(StreamError::PayloadTooLong(refusal.payload));
                }
                self.state = State::Skip { left: refusal.payload };
                Event::Refused { cookie: refusal.cookie, error: refusal.error }
            }
            Head::Disconnect => Event::Disconnect,
            Head::BadMagic(magic) => return Err(StreamError::BadMagic(magic)),
        };
        Ok((used, event))
    }

    /// What comes before a request's payload, in bytes.
    pub fn head_len(&self) -> usize {
        match self.session.replies {
            Replies::Simple | Replies::Structured => REQUEST_LEN,
            Replies::Counted(_) => REQUEST_LEN + counters::REQUEST_LEN,
        }
    }

    /// What the last request said of its disk, where client and server agreed on that: also one
    /// that was refused.
    pub fn report(&self) -> Report {
        self.report
    }

    /// Bytes of the last write's payload that are still to come.
    pub fn payload_left(&self) -> u32 {
        match self.state {
            State::Payload { left } => left,
            State::Head | State::Skip { .. } => 0,
        }
    }

    /// Drops the rest of the last write's payload: later polls skip it.
    pub fn skip_payload(&mut self) {
        if let State::Payload { left } = self.state {
            self.state = State::Skip { left };
        }
    }

    /// Reports that the caller took `len` bytes of payload out of the stream, at most
    /// [`payload_left`](Requests::payload_left).
    pub fn on_payload(&mut self, len: u32) {
        if let State::Payload { left } = self.state {
            let left = left.saturating_sub(len);
            self.state = if left == 0 { State::Head } else { State::Payload { left } };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Writes;
    use super::super::command::Replies;
    use super::super::contexts::Contexts;
    use super::*;
    use crate::wire::{REQUEST_MAGIC, command};
    use proptest::prelude::*;

    const EXPORT: Export =
        Export { size: 1 << 30, block_size: 4096, preferred: 4096, writes: Writes::Allowed };

    const STRUCTURED: Session =
        Session { replies: Replies::Structured, contexts: Contexts::BASE_ALLOCATION };
    const COUNTED: Session =
        Session { replies: Replies::Counted(counters::Version::Two), contexts: Contexts::NONE };

    fn put(stream: &mut Vec<u8>, kind: u16, cookie: u64, offset: u64, len: u32) {
        stream.extend(REQUEST_MAGIC.to_be_bytes());
        stream.extend([0, 0]);
        stream.extend(kind.to_be_bytes());
        stream.extend(cookie.to_be_bytes());
        stream.extend(offset.to_be_bytes());
        stream.extend(len.to_be_bytes());
        if kind == command::WRITE {
            stream.extend((0..len).map(|i| (u64::from(i) + cookie) as u8));
        }
    }

    fn read_in_pieces(
        stream: &[u8],
        pieces: &[usize],
    ) -> (Vec<Event>, Vec<u8>, Option<StreamError>) {
        let (events, _, payload, error) = read_of(STRUCTURED, stream, pieces);
        (events, payload, error)
    }

    type Read = (Vec<Event>, Vec<Report>, Vec<u8>, Option<StreamError>);

    /// Everything that a stream says, fed in pieces of the given lengths (cycled).
    fn read_of(session: Session, stream: &[u8], pieces: &[usize]) -> Read {
        let mut requests = Requests::new(session);
        let mut counts = Vec::new();
        let (mut events, mut payload) = (Vec::new(), Vec::new());
        let (mut start, mut end) = (0, 0);
        let mut lengths = pieces.iter().cycle();
        while end < stream.len() {
            end = (end + lengths.next().copied().unwrap_or(stream.len())).min(stream.len());
            loop {
                let left = requests.payload_left() as usize;
                if left > 0 {
                    let take = left.min(end - start);
                    payload.extend(&stream[start..start + take]);
                    requests.on_payload(take as u32);
                    start += take;
                }
                match requests.poll(&stream[start..end], EXPORT) {
                    Ok((used, event)) => {
                        start += used;
                        match event {
                            Event::NeedBytes => break,
                            event => {
                                events.push(event);
                                counts.push(requests.report());
                            }
                        }
                    }
                    Err(error) => return (events, counts, payload, Some(error)),
                }
            }
        }
        (events, counts, payload, None)
    }

    /// The same with what it says of other servers.
    fn put_counted(stream: &mut Vec<u8>, kind: u16, cookie: u64, len: u32, said: Report) {
        let head = stream.len() + REQUEST_LEN;
        put(stream, kind, cookie, 0, len);
        stream.splice(head..head, said.to_bytes());
    }

    #[test]
    fn counts_stand_between_the_head_and_the_payload_also_of_what_is_refused() {
        let said = |delta, rho| Report { delta, rho, bytes: 8 * delta, ioprio: 3 };
        let mut stream = Vec::new();
        put_counted(&mut stream, command::WRITE, 1, 4096, said(5, 2));
        put_counted(&mut stream, command::WRITE, 2, 5000, said(u64::MAX >> 4, 0));
        put_counted(&mut stream, command::FLUSH, 3, 0, said(9, 9));
        put(&mut stream, command::DISC, 4, 0, 0);
        for pieces in [&[][..], &[1], &[28, 3], &[60], &[4000, 29]] {
            let (events, counts, payload, error) = read_of(COUNTED, &stream, pieces);
            assert!(matches!(
                events[..],
                [
                    Event::Command(Command { cookie: 1, .. }),
                    Event::Refused { cookie: 2, error: NbdError::Invalid },
                    Event::Command(Command { cookie: 3, .. }),
                    Event::Disconnect
                ]
            ));
            assert_eq!(counts[..3], [said(5, 2), said(u64::MAX >> 4, 0), said(9, 9)]);
            let sent: Vec<u8> = (0..4096).map(|i| (i + 1) as u8).collect();
            assert_eq!((payload, error), (sent, None));
        }
        let mut stream = Vec::new();
        put_counted(&mut stream, command::READ, 1, 4096, said(1, 2));
        let (events, _, _, error) = read_of(COUNTED, &stream, &[]);
        assert_eq!((events.len(), error), (0, Some(StreamError::Counters)));
    }

    #[test]
    fn a_refused_write_is_skipped_and_the_next_request_read() {
        let mut stream = Vec::new();
        put(&mut stream, command::WRITE, 1, 1, 5000);
        put(&mut stream, command::READ, 2, 4096, 4096);
        let (events, payload, error) = read_in_pieces(&stream, &[100]);
        assert_eq!(events[0], Event::Refused { cookie: 1, error: NbdError::Invalid });
        assert!(matches!(events[1], Event::Command(c) if c.cookie == 2));
        assert_eq!((events.len(), payload.len(), error), (2, 0, None));
    }

    #[test]
    fn who_takes_no_payload_ends_no_skipping() {
        let mut stream = Vec::new();
        put(&mut stream, command::WRITE, 1, 1, 5000);
        put(&mut stream, command::READ, 2, 4096, 4096);
        let mut requests = Requests::new(STRUCTURED);
        let (used, event) = requests.poll(&stream, EXPORT).unwrap();
        assert_eq!(event, Event::Refused { cookie: 1, error: NbdError::Invalid });
        requests.on_payload(requests.payload_left());
        let (_, event) = requests.poll(&stream[used..], EXPORT).unwrap();
        assert!(matches!(event, Event::Command(c) if c.cookie == 2), "{event:?}");
    }

    #[test]
    fn a_payload_beyond_all_reason_ends_the_connection() {
        let mut stream = Vec::new();
        put(&mut stream, command::WRITE, 1, 1, 0);
        stream[24..28].copy_from_slice(&u32::MAX.to_be_bytes());
        let (events, _, error) = read_in_pieces(&stream, &[]);
        assert_eq!((events.len(), error), (0, Some(StreamError::PayloadTooLong(u32::MAX))));
    }

    #[test]
    fn rubbish_ends_the_connection() {
        let (events, _, error) = read_in_pieces(&[0x55; 64], &[]);
        assert_eq!((events.len(), error), (0, Some(StreamError::BadMagic(0x5555_5555))));
    }

    fn any_request() -> impl Strategy<Value = (u16, u64, u64, u32)> {
        let kind = prop_oneof![0..2u16, 3..10u16];
        let len = prop_oneof![Just(4096u32), Just(8192), Just(0), 1..5000u32];
        (kind, any::<u64>(), prop_oneof![Just(0u64), Just(4096), Just(1 << 30), any::<u64>()], len)
    }

    proptest! {
        #[test]
        fn the_cuts_in_the_stream_change_nothing(
            script in prop::collection::vec(any_request(), 1..12),
            pieces in prop::collection::vec(1..3000usize, 1..8),
            rubbish in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut stream = Vec::new();
            for (kind, cookie, offset, len) in script {
                put(&mut stream, kind, cookie, offset, len);
            }
            stream.extend(rubbish);
            let whole = read_in_pieces(&stream, &[]);
            prop_assert_eq!(read_in_pieces(&stream, &[1]), whole.clone());
            prop_assert_eq!(read_in_pieces(&stream, &pieces), whole);
        }
    }
}
