//! A client's handshake, without IO of its own: over anything that reads and writes.

use crate::wire::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, be16, be32, be64, export, handshake, info, option,
    option_head, option_reply,
};
use std::io::{self, Read, Write};
use thiserror::Error;

/// How the server shall answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStyle {
    /// Simple replies.
    Simple,
    /// Structured replies: holes are not sent as zeroes, errors carry a text.
    Structured,
}

/// Longest answer to an option that is looked at. Texts and information are a few hundred bytes.
const MAX_OPTION_REPLY: u32 = 64 << 10;

/// Why a handshake failed.
#[derive(Debug, Error)]
pub enum NegotiationError {
    /// The connection broke, or the server was too slow.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another protocol, or an old form of this one.
    #[error("this is no NBD server of the fixed newstyle: {0}")]
    NotNbd(&'static str),
    /// Mostly: there is no such export.
    #[error("the server refuses export '{export}' (code {code:#x}){text}")]
    Refused {
        /// What was asked for.
        export: String,
        /// The server's answer.
        code: u32,
        /// What it says of it, behind a colon.
        text: String,
    },
    /// They were wanted.
    #[error("the server has no structured replies")]
    NoStructuredReplies,
    /// The server breaks the protocol.
    #[error("malformed answer to an option: {0}")]
    Malformed(&'static str),
}

/// What the server says of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// In bytes.
    pub size: u64,
    /// See [`export`].
    pub flags: u16,
    /// The smallest unit of a request in bytes, where the server tells.
    pub min_block: Option<u32>,
    /// The largest payload of a request in bytes, where the server tells.
    pub max_block: Option<u32>,
}

impl ExportInfo {
    /// Has the export this flag.
    pub fn can(self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Reads the greeting and answers it.
///
/// # Errors
/// [`NegotiationError::Io`], [`NegotiationError::NotNbd`].
pub fn greet(io: &mut (impl Read + Write)) -> Result<(), NegotiationError> {
    let mut greeting = [0; 18];
    io.read_exact(&mut greeting)?;
    if be64(&greeting, 0) != Some(GREETING_MAGIC) {
        return Err(NegotiationError::NotNbd("the first eight bytes are wrong"));
    }
    if be64(&greeting, 8) != Some(OPTION_MAGIC) {
        return Err(NegotiationError::NotNbd("it speaks the oldstyle handshake"));
    }
    let flags = be16(&greeting, 16).unwrap_or(0);
    if flags & handshake::FIXED_NEWSTYLE == 0 {
        return Err(NegotiationError::NotNbd("it does not offer the fixed newstyle"));
    }
    let ours = handshake::FIXED_NEWSTYLE | flags & handshake::NO_ZEROES;
    io.write_all(&u32::from(ours).to_be_bytes())?;
    Ok(())
}

/// The data of an [`option::GO`] that asks for the block sizes too.
pub fn go_data(name: &[u8]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name);
    data.extend_from_slice(&1u16.to_be_bytes());
    data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    data
}

/// Sends an option.
///
/// # Errors
/// The stream's.
pub fn send_option(io: &mut impl Write, number: u32, data: &[u8]) -> io::Result<()> {
    let mut message = option_head(number, data.len() as u32).to_vec();
    message.extend_from_slice(data);
    io.write_all(&message)
}

/// Reads one answer to an option: its type and data.
///
/// # Errors
/// [`NegotiationError::Io`], [`NegotiationError::Malformed`].
pub fn read_option_reply(io: &mut impl Read, to: u32) -> Result<(u32, Vec<u8>), NegotiationError> {
    let mut head = [0; 20];
    io.read_exact(&mut head)?;
    if be64(&head, 0) != Some(OPTION_REPLY_MAGIC) {
        return Err(NegotiationError::Malformed("wrong magic number"));
    }
    if be32(&head, 8) != Some(to) {
        return Err(NegotiationError::Malformed("it answers another option"));
    }
    let kind = be32(&head, 12).unwrap_or(0);
    let len = be32(&head, 16).unwrap_or(0);
    if len > MAX_OPTION_REPLY {
        return Err(NegotiationError::Malformed("it is longer than 64 KiB"));
    }
    let mut data = vec![0; len as usize];
    io.read_exact(&mut data)?;
    Ok((kind, data))
}

/// The whole handshake up to the first request. A server that answers for ever is the stream's to end: its reads must fail some time.
///
/// # Errors
/// [`NegotiationError`].
pub fn negotiate(
    io: &mut (impl Read + Write),
    name: &str,
    style: ReplyStyle,
) -> Result<ExportInfo, NegotiationError> {
    greet(io)?;
    if style == ReplyStyle::Structured {
        send_option(io, option::STRUCTURED_REPLY, &[])?;
        let (kind, _) = read_option_reply(io, option::STRUCTURED_REPLY)?;
        if kind != option_reply::ACK {
            return Err(NegotiationError::NoStructuredReplies);
        }
    }
    send_option(io, option::GO, &go_data(name.as_bytes()))?;
    let (mut found, mut min_block, mut max_block) = (None, None, None);
    loop {
        let (kind, data) = read_option_reply(io, option::GO)?;
        match kind {
            option_reply::ACK => break,
            option_reply::INFO => match be16(&data, 0) {
                Some(info::EXPORT) => {
                    let (Some(size), Some(flags)) = (be64(&data, 2), be16(&data, 10)) else {
                        return Err(NegotiationError::Malformed("NBD_INFO_EXPORT is too short"));
                    };
                    found = Some((size, flags));
                }
                Some(info::BLOCK_SIZE) => (min_block, max_block) = (be32(&data, 2), be32(&data, 10)),
                _ => {}
            },
            code if code & option_reply::ERROR != 0 => {
                let text = String::from_utf8_lossy(&data);
                let text = if text.is_empty() { String::new() } else { format!(": {text}") };
                return Err(NegotiationError::Refused { export: name.to_owned(), code, text });
            }
            _ => return Err(NegotiationError::Malformed("unknown type of answer")),
        }
    }
    let (size, flags) = found.ok_or(NegotiationError::Malformed("the size of the export is missing"))?;
    Ok(ExportInfo { size, flags, min_block, max_block })
}

impl ExportInfo {
    /// The features a workload may need, by name, that this export lacks.
    pub fn missing(self, needs: &[(u16, &'static str)]) -> Option<&'static str> {
        needs.iter().find(|(flag, _)| !self.can(*flag)).map(|(_, name)| *name)
    }

    /// Are writes refused.
    pub fn is_read_only(self) -> bool {
        self.can(export::READ_ONLY)
    }
}
