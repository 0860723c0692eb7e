//! The client side of the fixed newstyle handshake.
//!
//! [`Handshake`] starts TLS if it is wanted, announces a [policy] if there is one, asks for
//! structured replies and for the context `base:allocation` if they are wanted, or for the
//! [counters], then opens one export with `NBD_OPT_GO`. The functions beside it write and read
//! single messages, for callers that break the order on purpose.

use super::form::Form;
use crate::counters::{self, Lease, Version};
use crate::policy;
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
    /// Simple replies, and the [counters] if the server has them: see [`Handshake::form`].
    /// The export is opened by this right.
    Counted(Option<Lease>),
    /// Structured replies: holes are not sent as zeroes, and errors carry a text.
    Structured,
    /// Structured replies and block status by `base:allocation`, as far as the server has them:
    /// see [`Handshake::form`].
    Allocation,
    /// The [counters] and block status if the server has the former, or else as
    /// [`ReplyStyle::Allocation`]. The export is opened by this right.
    CountedAllocation(Option<Lease>),
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
    /// The client wants TLS, and the server has none.
    #[error("the server does not serve over TLS (code {code:#x}){text}")]
    NoTls {
        /// The type of the server's reply; see [`option_reply`].
        code: u32,
        /// The server's explanation behind a colon, or nothing.
        text: String,
    },
    /// The server serves over TLS only, and the client did not start it.
    #[error("the server serves over TLS only: nbds:// instead of nbd:// was expected")]
    TlsRequired,
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

/// What a server says to an announced [policy].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyAnswer {
    /// It is in force there.
    Taken,
    /// It is not, for this reason.
    Refused(String),
    /// The server does not know of policies.
    Unknown,
}

/// What [`Handshake::poll`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Poll again when the input holds at least so many bytes. The server sends at least as many:
    /// reading exactly to there never takes a byte of what follows the handshake.
    NeedBytes(usize),
    /// A message of the server was used, and perhaps answered. Poll again.
    Answered,
    /// The server starts TLS. Shake hands, and poll again, with what comes from inside of TLS.
    StartTls,
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
    security: Security,
    state: State,
    /// Size and flags of the export.
    found: Option<(u64, u16)>,
    /// Smallest, preferred, largest.
    blocks: [Option<u32>; 3],
    form: Form,
    /// What is to be said of the export's policy.
    announcement: Option<Vec<u8>>,
    policy: Option<PolicyAnswer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Security {
    Plain,
    Tls,
}

/// What the server sends next.
#[derive(Clone, Copy, Debug)]
enum State {
    Greeting,
    /// The reply to `NBD_OPT_STARTTLS`.
    StartTls,
    /// Nothing: it is the client's turn.
    InsideTls,
    /// The reply to [`policy::OPTION`].
    Policy,
    /// The reply to [`counters::OPTION`] of this version.
    Counters(Version),
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
            security: Security::Plain,
            state: State::Greeting,
            found: None,
            blocks: [None; 3],
            form: Form::Simple,
            announcement: None,
            policy: None,
        }
    }

    /// The same over TLS, and not without.
    #[must_use]
    pub fn over_tls(self) -> Handshake {
        Handshake { security: Security::Tls, ..self }
    }

    /// The same after it has said what the export is promised: the data of [`policy::OPTION`].
    #[must_use]
    pub fn announcing(self, announcement: Vec<u8>) -> Handshake {
        Handshake { announcement: Some(announcement), ..self }
    }

    /// What the server answered to that; `None` when nothing was said.
    pub fn policy(&self) -> Option<&PolicyAnswer> {
        self.policy.as_ref()
    }

    /// The form of replies that client and server agreed on. Known when the handshake is over.
    pub fn form(&self) -> Form {
        self.form
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
                match self.security {
                    Security::Plain => self.ask_for_style(out),
                    Security::Tls => {
                        put_option(out, option::STARTTLS, &[]);
                        self.state = State::StartTls;
                    }
                }
                return Ok((GREETING_LEN, Step::Answered));
            }
            State::InsideTls => {
                self.ask_for_style(out);
                return Ok((0, Step::Answered));
            }
            State::StartTls => option::STARTTLS,
            State::Policy => policy::OPTION,
            State::Counters(_) => counters::OPTION,
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
        if kind == option_reply::ERR_TLS_REQD && self.security == Security::Plain {
            return Err(HandshakeError::TlsRequired);
        }
        if answers == option::STARTTLS {
            if kind != option_reply::ACK {
                let text = explanation(data);
                return Err(HandshakeError::NoTls { code: kind, text });
            }
            if end < input.len() {
                // Somebody in between could have put it there.
                return Err(HandshakeError::Malformed("there is something before TLS starts"));
            }
            self.state = State::InsideTls;
            return Ok((end, Step::StartTls));
        }
        if answers == option::GO {
            return Ok((end, self.on_go_reply(kind, data)?));
        }
        match answers {
            option::SET_META_CONTEXT => self.on_context_reply(kind, data, out)?,
            policy::OPTION => self.on_policy_reply(kind, data, out)?,
            counters::OPTION => self.on_counters_reply(kind, out)?,
            _ => self.on_structured_reply(kind, out)?,
        }
        Ok((end, Step::Answered))
    }

    fn on_structured_reply(&mut self, kind: u32, out: &mut Vec<u8>) -> Result<(), HandshakeError> {
        if kind == option_reply::ACK {
            self.form = Form::Structured { allocation: None };
        }
        match (kind, self.style) {
            (_, ReplyStyle::Structured) if kind != option_reply::ACK => {
                return Err(HandshakeError::NoStructuredReplies);
            }
            (option_reply::ACK, ReplyStyle::Allocation | ReplyStyle::CountedAllocation(_)) => {
                self.ask_for_context(out);
            }
            _ => self.go(out),
        }
        Ok(())
    }

    /// Whatever it says, the export is opened.
    fn on_policy_reply(
        &mut self,
        kind: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        self.policy = Some(match kind {
            option_reply::ACK => PolicyAnswer::Taken,
            option_reply::ERR_UNSUP => PolicyAnswer::Unknown,
            code if code & option_reply::ERROR != 0 => {
                PolicyAnswer::Refused(String::from_utf8_lossy(data).into_owned())
            }
            _ => return Err(HandshakeError::Malformed("unknown type of answer")),
        });
        self.ask_for_style(out);
        Ok(())
    }

    /// A server that does not know the version may know the one before. One that refuses
    /// otherwise, for whatever reason, serves the export without counters.
    fn on_counters_reply(&mut self, kind: u32, out: &mut Vec<u8>) -> Result<(), HandshakeError> {
        let State::Counters(version) = self.state else { return Ok(()) };
        if let (option_reply::ERR_UNSUP, Some(before)) = (kind, version.before()) {
            self.ask_for_counters(before, out);
            return Ok(());
        }
        match (kind, self.style) {
            (option_reply::ACK, style) => {
                self.form = Form::Counted { version, allocation: None };
                match style {
                    ReplyStyle::CountedAllocation(_) => self.ask_for_context(out),
                    _ => self.go(out),
                }
            }
            (code, _) if code & option_reply::ERROR == 0 => {
                return Err(HandshakeError::Malformed("unknown type of answer"));
            }
            (_, ReplyStyle::CountedAllocation(_)) => self.ask_for_chunks(out),
            _ => self.go(out),
        }
        Ok(())
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
                    self.set_allocation(Some(number));
                }
            }
            option_reply::ACK => self.go(out),
            code if code & option_reply::ERROR != 0 => {
                self.set_allocation(None);
                self.go(out);
            }
            _ => return Err(HandshakeError::Malformed("unknown type of answer")),
        }
        Ok(())
    }

    fn ask_for_style(&mut self, out: &mut Vec<u8>) {
        if let Some(said) = self.announcement.take() {
            put_option(out, policy::OPTION, &said);
            self.state = State::Policy;
            return;
        }
        match self.style {
            ReplyStyle::Simple => self.go(out),
            ReplyStyle::Counted(_) | ReplyStyle::CountedAllocation(_) => {
                self.ask_for_counters(Version::NEWEST, out);
            }
            ReplyStyle::Structured | ReplyStyle::Allocation => self.ask_for_chunks(out),
        }
    }

    fn ask_for_chunks(&mut self, out: &mut Vec<u8>) {
        put_option(out, option::STRUCTURED_REPLY, &[]);
        self.state = State::StructuredReply;
    }

    fn ask_for_context(&mut self, out: &mut Vec<u8>) {
        put_option(out, option::SET_META_CONTEXT, &context_data(self.export.as_bytes()));
        self.state = State::MetaContext;
    }

    fn set_allocation(&mut self, number: Option<u32>) {
        match &mut self.form {
            Form::Simple => {}
            Form::Counted { allocation, .. } | Form::Structured { allocation } => {
                *allocation = number;
            }
        }
    }

    fn ask_for_counters(&mut self, version: Version, out: &mut Vec<u8>) {
        let lease = match self.style {
            ReplyStyle::Counted(lease) | ReplyStyle::CountedAllocation(lease) => lease,
            ReplyStyle::Simple | ReplyStyle::Structured | ReplyStyle::Allocation => None,
        };
        put_option(out, counters::OPTION, &counters::option_data(version, lease));
        self.state = State::Counters(version);
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
                let text = explanation(data);
                return Err(HandshakeError::Refused { export: self.export.clone(), code, text });
            }
            _ => return Err(HandshakeError::Malformed("unknown type of answer")),
        }
        Ok(Step::Answered)
    }
}

/// A server's text, behind a colon if there is one.
fn explanation(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    if text.is_empty() { String::new() } else { format!(": {text}") }
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
#[path = "handshake_tests.rs"]
mod tests;
