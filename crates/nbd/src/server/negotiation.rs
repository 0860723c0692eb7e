//! The handshake: from the greeting to the choice of an export.
//!
//! The caller sends [`greeting`], then shows [`Negotiation::poll`] the bytes that are received and
//! not yet used, and sends what it wrote to `out`. It repeats this until the answer is neither
//! [`Step::NeedBytes`] nor [`Step::Answered`]. Time limits are the caller's.

use super::answers::{Refusal, announcement, counters_option, no_data, refuse, reply};
use super::command::{Replies, Session};
use super::contexts::{BitmapName, ContextId, Contexts, MAX_BITMAPS};
use super::options::{InfoRequest, Malformed, export_name, info_request, meta_request};
use super::selection::{listed, selected};
use super::{Export, MAX_PAYLOAD, Writes};
use crate::counters::{self, Lease};
use crate::policy::{self, Announcement};
use crate::wire::{
    BASE_ALLOCATION, DIRTY_BITMAP, GREETING_MAGIC, MAX_STRING, OPTION_MAGIC, export, handshake,
    info, option, option_reply,
};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use thiserror::Error;

/// The longest data of an option that is read, in bytes. Longer data is skipped and the option
/// refused.
pub const MAX_OPTION: u32 = 64 << 10;

/// The longest data of an option that is skipped, in bytes. A client that announces more is
/// dropped.
pub const MAX_SKIPPED_OPTION: u32 = 16 << 20;

// A name fits an option, and what is too long to read is not yet too long to skip.
const _: () = assert!(MAX_STRING < MAX_OPTION as usize && MAX_OPTION < MAX_SKIPPED_OPTION);

/// An export's entry in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportName {
    /// The name that opens it.
    pub name: String,
    /// Shown to people; may be empty.
    pub description: String,
}

/// An export that a client chose or asked about.
#[derive(Debug)]
pub struct Opened<T> {
    /// The export's own name, also when the client asked for the default export.
    pub name: String,
    /// Its size and block size now.
    pub export: Export,
    /// Shown to people; may be empty.
    pub description: String,
    /// The caller's own.
    pub handle: T,
}

impl<T> Opened<T> {
    /// What the client is told, and the caller's own.
    pub fn split(self) -> (Opened<()>, T) {
        let Opened { name, export, description, handle } = self;
        (Opened { name, export, description, handle: () }, handle)
    }
}

/// Why an export cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// No export has this name.
    #[error("no disk has this name; list the exports (nbdinfo --list) to see those that exist")]
    Unknown,
    /// The export exists, but cannot be opened now; the text says why.
    #[error("{0}")]
    Refused(String),
    /// It is another client's, by its [`Lease`]; the text says whose.
    #[error("{0}")]
    Held(String),
}

/// The exports, as the negotiation sees them.
pub trait Catalog {
    /// What [`Step::Transmission`] hands out.
    type Handle;
    /// All exports.
    fn list(&self) -> Vec<ExportName>;
    /// The export of this name, for a client that enters transmission with it. Asked before the
    /// client hears yes. The empty name stands for a default export, if there is one.
    fn open(&self, name: &str) -> Result<Opened<Self::Handle>, OpenError>;
    /// The same for a client with a lease. Leases are not looked at unless this is overridden.
    fn open_by(&self, name: &str, _lease: Lease) -> Result<Opened<Self::Handle>, OpenError> {
        self.open(name)
    }
    /// The export of this name, for a client that asks about it and may not use it.
    fn describe(&self, name: &str) -> Result<Opened<()>, OpenError> {
        self.open(name).map(|opened| opened.split().0)
    }
    /// A client says what an export is promised. Refused unless this is overridden.
    fn announce(&self, _said: &Announcement<'_>) -> Result<(), OpenError> {
        Err(OpenError::Refused("this server takes no policies from its clients".into()))
    }
    /// The dirty bitmaps of an export that was opened, each name once. Their order gives them their
    /// numbers. Clients are offered the first [`MAX_BITMAPS`]. None unless overridden.
    fn bitmaps_of(&self, _handle: &Self::Handle) -> Vec<BitmapName> {
        Vec::new()
    }
    /// The same of an export that a client asks about and may not use. None if it cannot be opened.
    fn bitmaps(&self, name: &str) -> Vec<BitmapName> {
        self.open(name).map(|opened| self.bitmaps_of(&opened.handle)).unwrap_or_default()
    }
}

/// What a server asks of the connection that a client negotiates on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Nothing: it is served as it is, and has no TLS.
    Plain,
    /// Nothing but the start of TLS is answered (the specification's mode FORCEDTLS). Whoever
    /// could choose to do without could be made to by somebody in between.
    TlsRequired,
    /// It is inside TLS.
    Tls,
}

/// What [`Negotiation::poll`] came to.
#[derive(Debug)]
pub enum Step<T> {
    /// Nothing complete: poll again with more bytes.
    NeedBytes,
    /// An option was answered: poll again.
    Answered,
    /// The client starts TLS. Send the answer, shake hands, and go on inside of TLS with
    /// [`Negotiation::secure`]. Bytes behind the option came from who knows where: a connection
    /// that has any is to be dropped.
    StartTls,
    /// Client and server agreed. What follows in the stream are requests.
    Transmission(Opened<T>, Session),
    /// The client ended the negotiation. Close the connection once the answer is sent.
    Aborted,
}

/// The negotiation cannot go on. Drop the connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NegotiationError {
    /// The client sets flags that the server did not offer.
    #[error("the client sets handshake flags 0x{0:x}, of which 0x3 are known")]
    ClientFlags(u32),
    /// The client sends something else than an option.
    #[error("expected an option (magic IHAVEOPT), got 0x{0:016x}")]
    BadMagic(u64),
    /// An option is longer than [`MAX_SKIPPED_OPTION`].
    #[error("an option of {0} bytes: at most {MAX_OPTION} are read")]
    OptionTooLong(u32),
    /// `NBD_OPT_EXPORT_NAME` named an export that cannot be opened; it has no error reply.
    #[error("the client's export cannot be opened: {0}")]
    NoExport(OpenError),
    /// `NBD_OPT_EXPORT_NAME` came before TLS; it has no error reply.
    #[error("the client asks for an export without TLS, which is required here")]
    TlsRequired,
    /// `NBD_OPT_EXPORT_NAME` carried a malformed name.
    #[error("the client's export name is malformed: {}", .0.0)]
    BadName(Malformed),
}

/// Appends the server's greeting.
pub fn greeting(out: &mut Vec<u8>) {
    out.extend_from_slice(&GREETING_MAGIC.to_be_bytes());
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
}

/// Where the handshake stands.
#[derive(Clone, Copy, Debug)]
enum State {
    Flags,
    Option,
    Skip { option: u32, left: u32 },
}

/// One client's handshake. Holds no bytes itself.
#[derive(Debug)]
pub struct Negotiation {
    security: Security,
    state: State,
    no_zeroes: Padding,
    replies: Replies,
    /// By what right the client opens the export.
    lease: Option<Lease>,
    selection: Option<Selection>,
}

/// What the client last selected.
#[derive(Debug)]
struct Selection {
    export: String,
    contexts: Contexts,
    /// The bitmaps among the contexts, by the numbers that the client was told.
    bitmaps: Vec<(ContextId, BitmapName)>,
}

/// Whether the answer to `NBD_OPT_EXPORT_NAME` is padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    Zeroes,
    None,
}

impl Default for Negotiation {
    /// On a connection without TLS.
    fn default() -> Negotiation {
        Negotiation::new(Security::Plain)
    }
}

impl Negotiation {
    /// With a client that was just greeted.
    pub fn new(security: Security) -> Negotiation {
        Negotiation {
            security,
            state: State::Flags,
            no_zeroes: Padding::Zeroes,
            replies: Replies::Simple,
            lease: None,
            selection: None,
        }
    }

    /// TLS has begun. What was agreed on outside of it is forgotten, but for the client's flags.
    pub fn secure(&mut self) {
        self.security = Security::Tls;
        (self.replies, self.lease, self.selection) = (Replies::Simple, None, None);
    }

    /// Uses the next message of the client, if `input` holds it whole; a long option's data is
    /// skipped as it comes. Returns how many bytes it used, and appends the replies to `out`.
    ///
    /// # Errors
    /// See [`NegotiationError`].
    pub fn poll<C: Catalog + ?Sized>(
        &mut self,
        input: &[u8],
        catalog: &C,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step<C::Handle>), NegotiationError> {
        match self.state {
            State::Flags => self.poll_flags(input),
            State::Option => self.poll_option(input, catalog, out),
            State::Skip { option, left } => {
                let skipped = left.min(u32::try_from(input.len()).unwrap_or(u32::MAX));
                if skipped < left {
                    self.state = State::Skip { option, left: left - skipped };
                    return Ok((skipped as usize, Step::NeedBytes));
                }
                self.state = State::Option;
                refuse(
                    out,
                    option,
                    option_reply::ERR_TOO_BIG,
                    "the option's data is longer than 65536 bytes",
                );
                Ok((skipped as usize, Step::Answered))
            }
        }
    }

    fn poll_flags<T>(&mut self, input: &[u8]) -> Result<(usize, Step<T>), NegotiationError> {
        let Some(&bytes) = input.first_chunk::<4>() else { return Ok((0, Step::NeedBytes)) };
        let flags = u32::from_be_bytes(bytes);
        let no_zeroes = u32::from(handshake::NO_ZEROES);
        // The specification allows to serve a client that does not set the flag for the fixed
        // newstyle.
        if flags & !(u32::from(handshake::FIXED_NEWSTYLE) | no_zeroes) != 0 {
            return Err(NegotiationError::ClientFlags(flags));
        }
        if flags & no_zeroes != 0 {
            self.no_zeroes = Padding::None;
        }
        self.state = State::Option;
        Ok((4, Step::Answered))
    }

    fn poll_option<C: Catalog + ?Sized>(
        &mut self,
        input: &[u8],
        catalog: &C,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step<C::Handle>), NegotiationError> {
        let Some(&[m0, m1, m2, m3, m4, m5, m6, m7, o0, o1, o2, o3, l0, l1, l2, l3]) =
            input.first_chunk::<16>()
        else {
            return Ok((0, Step::NeedBytes));
        };
        let magic = u64::from_be_bytes([m0, m1, m2, m3, m4, m5, m6, m7]);
        if magic != OPTION_MAGIC {
            return Err(NegotiationError::BadMagic(magic));
        }
        let option = u32::from_be_bytes([o0, o1, o2, o3]);
        let len = u32::from_be_bytes([l0, l1, l2, l3]);
        if len > MAX_SKIPPED_OPTION {
            return Err(NegotiationError::OptionTooLong(len));
        }
        if len > MAX_OPTION {
            self.state = State::Skip { option, left: len };
            return Ok((16, Step::Answered));
        }
        let used = 16 + len as usize;
        let Some(data) = input.get(16..used) else { return Ok((0, Step::NeedBytes)) };
        Ok((used, self.on_option(option, data, catalog, out)?))
    }

    fn on_option<C: Catalog + ?Sized>(
        &mut self,
        option: u32,
        data: &[u8],
        catalog: &C,
        out: &mut Vec<u8>,
    ) -> Result<Step<C::Handle>, NegotiationError> {
        let outcome = match option {
            option::STARTTLS => match no_data(data).and_then(|()| self.start_tls()) {
                Ok(()) => {
                    reply(out, option, option_reply::ACK, &[]);
                    return Ok(Step::StartTls);
                }
                Err(refusal) => Err(refusal),
            },
            option::EXPORT_NAME if self.security == Security::TlsRequired => {
                return Err(NegotiationError::TlsRequired);
            }
            option::EXPORT_NAME => return self.on_export_name(data, catalog, out),
            option::ABORT => {
                reply(out, option, option_reply::ACK, &[]);
                return Ok(Step::Aborted);
            }
            _ if self.security == Security::TlsRequired => Err(Refusal {
                kind: option_reply::ERR_TLS_REQD,
                message: "this server serves over TLS only: start it first".into(),
            }),
            option::GO => match self.on_go(data, catalog, out) {
                Ok((opened, session)) => return Ok(Step::Transmission(opened, session)),
                Err(refusal) => Err(refusal),
            },
            option::INFO => info_request(data)
                .map_err(Refusal::from)
                .and_then(|InfoRequest { name }| Ok(catalog.describe(name)?))
                .map(|described| self.say_export(option, &described, out)),
            option::LIST => on_list(data, catalog, out),
            option::STRUCTURED_REPLY => {
                no_data(data).and_then(|()| self.agree(Replies::Structured, option, out))
            }
            counters::OPTION => counters_option(data).and_then(|(version, lease)| {
                self.agree(Replies::Counted(version), option, out)?;
                self.lease = lease;
                Ok(())
            }),
            policy::OPTION => announcement(data)
                .and_then(|said| Ok(catalog.announce(&said)?))
                .map(|()| reply(out, option, option_reply::ACK, &[])),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.on_meta(option, data, catalog, out)
            }
            _ => Err(Refusal {
                kind: option_reply::ERR_UNSUP,
                message: "this server does not know the option".into(),
            }),
        };
        if let Err(refusal) = outcome {
            refuse(out, option, refusal.kind, &refusal.message);
        }
        Ok(Step::Answered)
    }

    /// Agrees on a form of replies. The two that are not simple exclude each other.
    fn agree(&mut self, form: Replies, option: u32, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let is_same = match (self.replies, form) {
            (Replies::Counted(_), Replies::Counted(_)) => true,
            (before, form) => before == Replies::Simple || before == form,
        };
        if !is_same {
            return Err(Refusal::invalid("structured replies and counters exclude each other"));
        }
        self.replies = form;
        reply(out, option, option_reply::ACK, &[]);
        Ok(())
    }

    fn start_tls(&self) -> Result<(), Refusal> {
        match self.security {
            Security::TlsRequired => Ok(()),
            Security::Tls => Err(Refusal::invalid("this is inside TLS already")),
            Security::Plain => Err(Refusal {
                kind: option_reply::ERR_POLICY,
                message: "this server does not offer TLS; use a unix socket or a tunnel".into(),
            }),
        }
    }

    fn on_export_name<C: Catalog + ?Sized>(
        &mut self,
        data: &[u8],
        catalog: &C,
        out: &mut Vec<u8>,
    ) -> Result<Step<C::Handle>, NegotiationError> {
        let name = export_name(data).map_err(NegotiationError::BadName)?;
        let opened = self.open(name, catalog).map_err(NegotiationError::NoExport)?;
        let session = self.session(name, &opened, catalog).map_err(NegotiationError::NoExport)?;
        out.extend_from_slice(&opened.export.size.to_be_bytes());
        let flags = self.export_flags(opened.export.writes);
        out.extend_from_slice(&flags.to_be_bytes());
        if self.no_zeroes == Padding::Zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        Ok(Step::Transmission(opened, session))
    }

    fn open<C: Catalog + ?Sized>(
        &self,
        name: &str,
        catalog: &C,
    ) -> Result<Opened<C::Handle>, OpenError> {
        self.lease.map_or_else(|| catalog.open(name), |lease| catalog.open_by(name, lease))
    }

    fn on_go<C: Catalog + ?Sized>(
        &mut self,
        data: &[u8],
        catalog: &C,
        out: &mut Vec<u8>,
    ) -> Result<(Opened<C::Handle>, Session), Refusal> {
        let InfoRequest { name } = info_request(data)?;
        let opened = self.open(name, catalog)?;
        let session = self.session(name, &opened, catalog)?;
        self.say_export(option::GO, &opened, out);
        Ok((opened, session))
    }

    /// The replies to a question about an export that exists.
    fn say_export<T>(&self, option: u32, opened: &Opened<T>, out: &mut Vec<u8>) {
        let mut say = |kind: u16, fields: &[&[u8]]| {
            let mut payload = kind.to_be_bytes().to_vec();
            fields.iter().for_each(|field| payload.extend_from_slice(field));
            reply(out, option, option_reply::INFO, &payload);
        };
        let flags = self.export_flags(opened.export.writes);
        say(info::EXPORT, &[&opened.export.size.to_be_bytes(), &flags.to_be_bytes()]);
        say(info::NAME, &[opened.name.as_bytes()]);
        if !opened.description.is_empty() {
            say(info::DESCRIPTION, &[opened.description.as_bytes()]);
        }
        let (export, most) = (opened.export, MAX_PAYLOAD);
        let sizes = [export.block_size, export.preferred, most].map(u32::to_be_bytes);
        say(info::BLOCK_SIZE, &[&sizes[0], &sizes[1], &sizes[2]]);
        reply(out, option, option_reply::ACK, &[]);
    }

    fn on_meta<C: Catalog + ?Sized>(
        &mut self,
        option: u32,
        data: &[u8],
        catalog: &C,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let selects = option == option::SET_META_CONTEXT;
        if selects {
            // A new selection replaces the old one, even when it fails.
            self.selection = None;
            if self.replies == Replies::Simple {
                return Err(Refusal::invalid(
                    "metadata contexts need structured replies: ask for those first",
                ));
            }
        }
        let request = meta_request(data)?;
        catalog.describe(request.name)?;
        let mut bitmaps = catalog.bitmaps(request.name);
        bitmaps.truncate(MAX_BITMAPS);
        let contexts = match option {
            option::LIST_META_CONTEXT => listed(request.queries, &bitmaps),
            _ => selected(request.queries, &bitmaps),
        };
        let mut selection = Vec::new();
        for id in contexts.ids() {
            let bitmap = id.bitmap().and_then(|index| bitmaps.get(index));
            let names = match bitmap {
                Some(bitmap) => [DIRTY_BITMAP, bitmap.as_str()],
                None => [BASE_ALLOCATION, ""],
            };
            let told = if selects { id.get() } else { 0 };
            let payload = [&told.to_be_bytes()[..], names[0].as_bytes(), names[1].as_bytes()];
            reply(out, option, option_reply::META_CONTEXT, &payload.concat());
            selection.extend(bitmap.map(|bitmap| (id, bitmap.clone())));
        }
        if selects {
            let export = request.name.to_owned();
            self.selection = Some(Selection { export, contexts, bitmaps: selection });
        }
        reply(out, option, option_reply::ACK, &[]);
        Ok(())
    }

    /// What a client has agreed on that enters transmission with `export`. The bitmaps that it
    /// selected must still have the numbers that it was told: nothing tells it that they changed.
    fn session<C: Catalog + ?Sized>(
        &self,
        export: &str,
        opened: &Opened<C::Handle>,
        catalog: &C,
    ) -> Result<Session, OpenError> {
        let selection = self.selection.as_ref().filter(|selection| selection.export == export);
        let Some(selection) = selection else {
            return Ok(Session { replies: self.replies, contexts: Contexts::NONE });
        };
        if !selection.bitmaps.is_empty() {
            let now = catalog.bitmaps_of(&opened.handle);
            let stays = |(id, name): &(ContextId, BitmapName)| {
                id.bitmap().and_then(|index| now.get(index)) == Some(name)
            };
            if !selection.bitmaps.iter().all(stays) {
                return Err(OpenError::Refused(
                    "the dirty bitmaps of the disk have changed since they were selected; \
                     connect again"
                        .into(),
                ));
            }
        }
        Ok(Session { replies: self.replies, contexts: selection.contexts })
    }

    /// `CAN_MULTI_CONN`: a flush on one connection covers the writes of all connections to the
    /// export.
    fn export_flags(&self, writes: Writes) -> u16 {
        let df = if self.replies == Replies::Structured { export::SEND_DF } else { 0 };
        let both = export::SEND_FLUSH | export::SEND_CACHE | export::CAN_MULTI_CONN;
        let writes = match writes {
            Writes::Refused => export::READ_ONLY,
            Writes::Allowed => {
                export::SEND_FUA
                    | export::SEND_TRIM
                    | export::SEND_WRITE_ZEROES
                    | export::SEND_FAST_ZERO
            }
        };
        df | export::HAS_FLAGS | both | writes
    }
}

fn on_list<C: Catalog + ?Sized>(
    data: &[u8],
    catalog: &C,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    no_data(data)?;
    for export in catalog.list() {
        let len = (export.name.len() as u32).to_be_bytes();
        let payload = [&len[..], export.name.as_bytes(), export.description.as_bytes()].concat();
        reply(out, option::LIST, option_reply::SERVER, &payload);
    }
    reply(out, option::LIST, option_reply::ACK, &[]);
    Ok(())
}

#[cfg(test)]
#[path = "negotiation_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "negotiation_context_tests.rs"]
mod context_tests;
