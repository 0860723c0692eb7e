//! The client side of the fixed newstyle handshake.
//!
//! [`Handshake`] asks for structured replies and for the context `base:allocation` if they are
//! wanted, then opens one export with `NBD_OPT_GO`. The functions beside it write and read single
//! messages, for callers that break the order on purpose.

use crate::wire::{
    BASE_ALLOCATION, GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, be16, be32, be64, export,
    handshake, info, option, option_head, option_reply,
};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use thiserror::Error;

/// Length of the server's greeting, in bytes.
pub const GREETING_LEN: usize = 18;

/// Length of a reply to an option without its data, in bytes.
pub const OPTION_REPLY_LEN: usize = 20;

/// The longest data of a reply to an option that is accepted, in bytes. Texts and information take
/// a few hundred.
pub const MAX_OPTION_REPLY: u32 = 64 << 10;

/// The form of replies that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStyle {
    /// Simple replies.
    Simple,
    /// Structured replies: holes are not sent as zeroes, and errors carry a text.
    Structured,
    /// Structured replies and block status by `base:allocation`, as far as the server has them:
    /// see [`Handshake::allocation`].
    Allocation,
}

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// The server speaks another protocol, or an old form of this one.
    #[error("this is no NBD server of the fixed newstyle: {0}")]
    NotNbd(&'static str),
    /// The server refuses the export, mostly because there is none of this name.
    #[error("the server refuses export '{export}' (code {code:#x}){text}")]
    Refused {
        /// The export's name.
        export: String,
        /// The type of the server's reply; see [`option_reply`].
        code: u32,
        /// The server's explanation behind a colon, or nothing.
        text: String,
    },
    /// The client asked for structured replies, and the server has none.
    #[error("the server has no structured replies")]
    NoStructuredReplies,
    /// The server breaks the protocol.
    #[error("malformed answer to an option: {0}")]
    Malformed(&'static str),
}

/// An export as the server describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Size in bytes.
    pub size: u64,
    /// Transmission flags; see [`export`].
    pub flags: u16,
    /// The smallest unit of a request in bytes, if the server names one.
    pub min_block: Option<u32>,
    /// The unit that the server serves best, in bytes, if it names one.
    pub preferred_block: Option<u32>,
    /// The largest payload of a request in bytes, if the server names one.
    pub max_block: Option<u32>,
}

impl ExportInfo {
    /// Whether the export has this flag.
    pub fn can(self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether the server refuses writes.
    pub fn is_read_only(self) -> bool {
        self.can(export::READ_ONLY)
    }

    /// The name of the first of `needs` that the export lacks.
    pub fn missing(self, needs: &[(u16, &'static str)]) -> Option<&'static str> {
        needs.iter().find(|(flag, _)| !self.can(*flag)).map(|(_, name)| *name)
    }
}

/// What [`Handshake::poll`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Poll again when the input holds at least so many bytes. The server sends at least as many:
    /// reading exactly to there never takes a byte of what follows the handshake.
    NeedBytes(usize),
    /// A message of the server was used, and perhaps answered. Poll again.
    Answered,
    /// The handshake is over: requests may follow.
    Transmission(ExportInfo),
}

/// One handshake. Holds no bytes of the stream itself.
///
/// A server may answer an option with any number of messages, so the caller sets a time limit.
#[derive(Clone, Debug)]
pub struct Handshake {
    export: String,
    style: ReplyStyle,
    state: State,
    /// Size and flags of the export.
    found: Option<(u64, u16)>,
    /// Smallest, preferred, largest.
    blocks: [Option<u32>; 3],
    /// The number of the context `base:allocation`.
    allocation: Option<u32>,
}

/// What the server sends next.
#[derive(Clone, Copy, Debug)]
enum State {
    Greeting,
    /// The reply to `NBD_OPT_STRUCTURED_REPLY`.
    StructuredReply,
    /// Replies to `NBD_OPT_SET_META_CONTEXT`.
    MetaContext,
    /// Replies to `NBD_OPT_GO`.
    Go,
    Over(ExportInfo),
}

impl Handshake {
    /// A handshake for the export of this name; the empty name is the server's default export.
    pub fn new(export: &str, style: ReplyStyle) -> Handshake {
        Handshake {
            export: export.to_owned(),
            style,
            state: State::Greeting,
            found: None,
            blocks: [None; 3],
            allocation: None,
        }
    }

    /// The number under which the server reports `base:allocation`, if it was asked for it and
    /// agreed: only then it answers requests for block status. Known when the handshake is over.
    pub fn allocation(&self) -> Option<u32> {
        self.allocation
    }

    /// Uses the next message of the server, if `input` holds it whole. Returns how many bytes it
    /// used, and appends to `out` what must be sent. Takes time linear in the message's length.
    ///
    /// # Errors
    /// See [`HandshakeError`]. The connection is of no use any more.
    pub fn poll(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step), HandshakeError> {
        let answers = match self.state {
            State::Over(info) => return Ok((0, Step::Transmission(info))),
            State::Greeting => {
                let Some(greeting) = input.first_chunk() else {
                    return Ok((0, Step::NeedBytes(GREETING_LEN)));
                };
                out.extend_from_slice(&answer_greeting(greeting)?);
                if self.style == ReplyStyle::Simple {
                    self.go(out);
                } else {
                    put_option(out, option::STRUCTURED_REPLY, &[]);
                    self.state = State::StructuredReply;
                }
                return Ok((GREETING_LEN, Step::Answered));
            }
            State::StructuredReply => option::STRUCTURED_REPLY,
            State::MetaContext => option::SET_META_CONTEXT,
            State::Go => option::GO,
        };
        let Some(head) = input.first_chunk() else {
            return Ok((0, Step::NeedBytes(OPTION_REPLY_LEN)));
        };
        let (kind, len) = option_reply_head(head, answers)?;
        let end = OPTION_REPLY_LEN + len as usize;
        let Some(data) = input.get(OPTION_REPLY_LEN..end) else {
            return Ok((0, Step::NeedBytes(end)));
        };
        if answers == option::GO {
            return Ok((end, self.on_go_reply(kind, data)?));
        }
        if answers == option::SET_META_CONTEXT {
            self.on_context_reply(kind, data, out)?;
            return Ok((end, Step::Answered));
        }
        match (kind, self.style) {
            (option_reply::ACK, ReplyStyle::Allocation) => {
                put_option(out, option::SET_META_CONTEXT, &context_data(self.export.as_bytes()));
                self.state = State::MetaContext;
            }
            (option_reply::ACK, _) | (_, ReplyStyle::Allocation) => self.go(out),
            _ => return Err(HandshakeError::NoStructuredReplies),
        }
        Ok((end, Step::Answered))
    }

    /// The server names the context if it has it, and then ends the answer. One that refuses the
    /// question has no contexts; an export that does not exist is refused by `NBD_OPT_GO` too.
    fn on_context_reply(
        &mut self,
        kind: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        match kind {
            option_reply::META_CONTEXT => {
                let number = be32(data, 0);
                let short = HandshakeError::Malformed("NBD_REP_META_CONTEXT is too short");
                let number = number.ok_or(short)?;
                if data[4..] == *BASE_ALLOCATION.as_bytes() {
                    self.allocation = Some(number);
                }
            }
            option_reply::ACK => self.go(out),
            code if code & option_reply::ERROR != 0 => {
                self.allocation = None;
                self.go(out);
            }
            _ => return Err(HandshakeError::Malformed("unknown type of answer")),
        }
        Ok(())
    }

    fn go(&mut self, out: &mut Vec<u8>) {
        put_option(out, option::GO, &go_data(self.export.as_bytes()));
        self.state = State::Go;
    }

    fn on_go_reply(&mut self, kind: u32, data: &[u8]) -> Result<Step, HandshakeError> {
        match kind {
            option_reply::ACK => {
                let missing = HandshakeError::Malformed("the size of the export is missing");
                let (size, flags) = self.found.ok_or(missing)?;
                let [min_block, preferred_block, max_block] = self.blocks;
                let info = ExportInfo { size, flags, min_block, preferred_block, max_block };
                self.state = State::Over(info);
                return Ok(Step::Transmission(info));
            }
            option_reply::INFO => match be16(data, 0) {
                Some(info::EXPORT) => {
                    let (Some(size), Some(flags)) = (be64(data, 2), be16(data, 10)) else {
                        return Err(HandshakeError::Malformed("NBD_INFO_EXPORT is too short"));
                    };
                    self.found = Some((size, flags));
                }
                Some(info::BLOCK_SIZE) => {
                    self.blocks = [2, 6, 10].map(|at| be32(data, at));
                }
                _ => {}
            },
            code if code & option_reply::ERROR != 0 => {
                let text = String::from_utf8_lossy(data);
                let text = if text.is_empty() { String::new() } else { format!(": {text}") };
                return Err(HandshakeError::Refused { export: self.export.clone(), code, text });
            }
            _ => return Err(HandshakeError::Malformed("unknown type of answer")),
        }
        Ok(Step::Answered)
    }
}

/// The client's answer to the server's greeting: its handshake flags.
///
/// # Errors
/// [`HandshakeError::NotNbd`].
pub fn answer_greeting(greeting: &[u8; GREETING_LEN]) -> Result<[u8; 4], HandshakeError> {
    if be64(greeting, 0) != Some(GREETING_MAGIC) {
        return Err(HandshakeError::NotNbd("the first eight bytes are wrong"));
    }
    if be64(greeting, 8) != Some(OPTION_MAGIC) {
        return Err(HandshakeError::NotNbd("it speaks the oldstyle handshake"));
    }
    let flags = be16(greeting, 16).unwrap_or(0);
    if flags & handshake::FIXED_NEWSTYLE == 0 {
        return Err(HandshakeError::NotNbd("it does not offer the fixed newstyle"));
    }
    let ours = handshake::FIXED_NEWSTYLE | flags & handshake::NO_ZEROES;
    Ok(u32::from(ours).to_be_bytes())
}

/// Appends an option with its data.
pub fn put_option(out: &mut Vec<u8>, number: u32, data: &[u8]) {
    out.extend_from_slice(&option_head(number, data.len() as u32));
    out.extend_from_slice(data);
}

/// The data of an [`option::GO`] that asks for the block sizes too.
pub fn go_data(name: &[u8]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name);
    data.extend_from_slice(&1u16.to_be_bytes());
    data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    data
}

/// The data of an [`option::SET_META_CONTEXT`] that selects `base:allocation` of an export.
pub fn context_data(name: &[u8]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name);
    data.extend_from_slice(&1u32.to_be_bytes());
    data.extend_from_slice(&(BASE_ALLOCATION.len() as u32).to_be_bytes());
    data.extend_from_slice(BASE_ALLOCATION.as_bytes());
    data
}

/// The type of a reply to the option `answers`, and the length of its data in bytes, at most
/// [`MAX_OPTION_REPLY`].
///
/// # Errors
/// [`HandshakeError::Malformed`].
pub fn option_reply_head(
    head: &[u8; OPTION_REPLY_LEN],
    answers: u32,
) -> Result<(u32, u32), HandshakeError> {
    if be64(head, 0) != Some(OPTION_REPLY_MAGIC) {
        return Err(HandshakeError::Malformed("wrong magic number"));
    }
    if be32(head, 8) != Some(answers) {
        return Err(HandshakeError::Malformed("it answers another option"));
    }
    let (kind, len) = (be32(head, 12).unwrap_or(0), be32(head, 16).unwrap_or(0));
    if len > MAX_OPTION_REPLY {
        return Err(HandshakeError::Malformed("it is longer than 64 KiB"));
    }
    Ok((kind, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 1 << 30;

    fn greeting() -> Vec<u8> {
        let mut bytes = GREETING_MAGIC.to_be_bytes().to_vec();
        bytes.extend(OPTION_MAGIC.to_be_bytes());
        bytes.extend(3u16.to_be_bytes());
        bytes
    }

    fn reply(to: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        [to, kind, data.len() as u32].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        bytes.extend(data);
        bytes
    }

    fn export_info(flags: u16) -> Vec<u8> {
        let data = [&info::EXPORT.to_be_bytes()[..], &SIZE.to_be_bytes(), &flags.to_be_bytes()];
        reply(option::GO, option_reply::INFO, &data.concat())
    }

    fn block_sizes() -> Vec<u8> {
        let data = [&info::BLOCK_SIZE.to_be_bytes()[..], &[0, 0, 2, 0, 0, 0, 16, 0, 2, 0, 0, 0]];
        reply(option::GO, option_reply::INFO, &data.concat())
    }

    type End = Result<Option<ExportInfo>, HandshakeError>;

    /// Feeds `stream` in pieces; returns what the client sent, what came of it, and the bytes used.
    fn run(style: ReplyStyle, stream: &[u8], pieces: &[usize]) -> (Vec<u8>, End, usize) {
        let mut handshake = Handshake::new("x", style);
        let (mut out, mut start, mut end) = (Vec::new(), 0, 0);
        let mut lengths = pieces.iter().cycle();
        while end < stream.len() {
            end = (end + lengths.next().copied().unwrap_or(stream.len())).min(stream.len());
            loop {
                match handshake.poll(&stream[start..end], &mut out) {
                    Err(error) => return (out, Err(error), start),
                    Ok((used, step)) => {
                        start += used;
                        match step {
                            Step::NeedBytes(least) => {
                                assert!(least > end - start);
                                break;
                            }
                            Step::Answered => assert!(used > 0),
                            Step::Transmission(info) => return (out, Ok(Some(info)), start),
                        }
                    }
                }
            }
        }
        (out, Ok(None), start)
    }

    #[test]
    fn an_export_is_opened_with_what_the_server_says_of_it() {
        let ack = reply(option::GO, option_reply::ACK, &[]);
        let stream = [greeting(), export_info(5), block_sizes(), ack].concat();
        let (out, end, used) = run(ReplyStyle::Simple, &[&stream[..], b"more"].concat(), &[]);
        let info = ExportInfo {
            size: SIZE,
            flags: 5,
            min_block: Some(512),
            preferred_block: Some(4096),
            max_block: Some(32 << 20),
        };
        assert_eq!((end, used), (Ok(Some(info)), stream.len()));
        let mut expected = vec![0, 0, 0, 3];
        put_option(&mut expected, option::GO, b"\0\0\0\x01x\0\x01\0\x03");
        assert_eq!(out, expected);
    }

    #[test]
    fn structured_replies_are_asked_for_first() {
        let agreed = reply(option::STRUCTURED_REPLY, option_reply::ACK, &[]);
        let (out, end, _) = run(ReplyStyle::Structured, &[greeting(), agreed].concat(), &[]);
        let options: Vec<_> = [option::STRUCTURED_REPLY, option::GO].map(u32::to_be_bytes).concat();
        assert_eq!([&out[12..16], &out[28..32]].concat(), options);
        assert_eq!(end, Ok(None));
        let refused = reply(option::STRUCTURED_REPLY, option_reply::ERR_UNSUP, b"no");
        let (_, end, _) = run(ReplyStyle::Structured, &[greeting(), refused].concat(), &[]);
        assert_eq!(end, Err(HandshakeError::NoStructuredReplies));
    }

    #[test]
    fn the_context_of_allocation_is_asked_for_where_the_server_has_it() {
        let structured = |kind| reply(option::STRUCTURED_REPLY, kind, &[]);
        let context = |kind, data: &[u8]| reply(option::SET_META_CONTEXT, kind, data);
        let named = [&7u32.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()].concat();
        let other = [&9u32.to_be_bytes()[..], b"x:y"].concat();
        let names = |data: &[u8]| context(option_reply::META_CONTEXT, data);
        let (ack, error) = (option_reply::ACK, option_reply::ERR_UNSUP);
        let cases = [
            (vec![structured(ack), names(&other), names(&named), context(ack, &[])], Some(7)),
            (vec![structured(ack), names(&other), context(ack, &[])], None),
            (vec![structured(ack), names(&named), context(error, b"no")], None),
            (vec![structured(ack), context(error, b"no")], None),
            (vec![structured(error)], None),
        ];
        for (answers, number) in cases {
            let go = [export_info(1), reply(option::GO, ack, &[])].concat();
            let stream = [greeting(), answers.concat(), go].concat();
            let mut handshake = Handshake::new("x", ReplyStyle::Allocation);
            let (mut at, mut out) = (0, Vec::new());
            while at < stream.len() {
                let (used, step) = handshake.poll(&stream[at..], &mut out).unwrap();
                assert!(used > 0, "{step:?}");
                at += used;
            }
            assert_eq!(handshake.allocation(), number);
            assert!(matches!(handshake.poll(&[], &mut out), Ok((0, Step::Transmission(_)))));
        }
        let short = [greeting(), structured(ack), names(&[0; 3])].concat();
        let (_, end, _) = run(ReplyStyle::Allocation, &short, &[]);
        let why = "NBD_REP_META_CONTEXT is too short";
        assert_eq!(end, Err(HandshakeError::Malformed(why)));
    }

    #[test]
    fn a_refusal_names_the_export_and_the_servers_reason() {
        let unknown = reply(option::GO, option_reply::ERR_UNKNOWN, b"no such disk");
        let (_, end, _) = run(ReplyStyle::Simple, &[greeting(), unknown].concat(), &[]);
        let text = "the server refuses export 'x' (code 0x80000006): no such disk";
        assert_eq!(end.unwrap_err().to_string(), text);
    }

    #[test]
    fn what_breaks_the_protocol_ends_the_handshake() {
        let go = |kind, data: &[u8]| [greeting(), reply(option::GO, kind, data)].concat();
        let mut long = go(option_reply::INFO, &[]);
        let at = long.len() - 4;
        long[at..].copy_from_slice(&(MAX_OPTION_REPLY + 1).to_be_bytes());
        for (stream, why) in [
            (go(option_reply::ACK, &[]), "the size of the export is missing"),
            (go(option_reply::INFO, &[0, 0, 1]), "NBD_INFO_EXPORT is too short"),
            (go(77, &[]), "unknown type of answer"),
            ([greeting(), reply(option::INFO, 1, &[])].concat(), "it answers another option"),
            ([greeting(), vec![0; 20]].concat(), "wrong magic number"),
            (long, "it is longer than 64 KiB"),
        ] {
            let (_, end, _) = run(ReplyStyle::Simple, &stream, &[]);
            assert_eq!(end, Err(HandshakeError::Malformed(why)));
        }
        for (at, byte) in [(0, 0), (8, 0), (17, 2)] {
            let mut bytes = greeting();
            bytes[at] = byte;
            let (_, end, _) = run(ReplyStyle::Simple, &bytes, &[]);
            assert!(matches!(end, Err(HandshakeError::NotNbd(_))), "{end:?}");
        }
    }

    fn any_reply() -> impl Strategy<Value = Vec<u8>> {
        let data = proptest::collection::vec(any::<u8>(), 0..30);
        let kind = prop_oneof![Just(1u32), Just(3), any::<u32>()];
        let noise = (kind, data).prop_map(|(kind, data)| reply(option::GO, kind, &data));
        prop_oneof![Just(export_info(1)), Just(block_sizes()), noise]
    }

    proptest! {
        #[test]
        fn cuts_in_the_stream_change_nothing(
            replies in proptest::collection::vec(any_reply(), 0..6),
            pieces in proptest::collection::vec(1..40usize, 1..6),
        ) {
            let stream = [greeting(), replies.concat()].concat();
            let whole = run(ReplyStyle::Simple, &stream, &[]);
            prop_assert_eq!(run(ReplyStyle::Simple, &stream, &[1]), whole.clone());
            prop_assert_eq!(run(ReplyStyle::Simple, &stream, &pieces), whole);
        }
    }
}
