//! Answers to options: replies with data, and refusals with a reason for people.

use super::negotiation::OpenError;
use super::options::Malformed;
use crate::counters::{self, BadOption, Lease, Version};
use crate::policy::{Announcement, BadAnnouncement};
use crate::wire::{MAX_STRING, OPTION_REPLY_MAGIC, option_reply};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// An option that is answered with an error.
pub(super) struct Refusal {
    pub(super) kind: u32,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn invalid(message: &str) -> Refusal {
        Refusal { kind: option_reply::ERR_INVALID, message: message.into() }
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Refusal {
        Refusal::invalid(malformed.0)
    }
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Refusal {
        let kind = match error {
            OpenError::Unknown => option_reply::ERR_UNKNOWN,
            OpenError::Refused(_) => option_reply::ERR_POLICY,
            OpenError::Held(_) => counters::ERR_HELD,
        };
        Refusal { kind, message: error.to_string() }
    }
}

pub(super) fn counters_option(data: &[u8]) -> Result<(Version, Option<Lease>), Refusal> {
    counters::read_option(data).map_err(|bad| match bad {
        BadOption::Version => Refusal {
            kind: option_reply::ERR_UNSUP,
            message: "this server knows versions 2 and 3 of the counters".into(),
        },
        BadOption::Malformed => Refusal::invalid("a version and a lease in 42 bytes was expected"),
    })
}

pub(super) fn announcement(data: &[u8]) -> Result<Announcement<'_>, Refusal> {
    Announcement::read(data).map_err(|bad| match bad {
        BadAnnouncement::Version => Refusal {
            kind: option_reply::ERR_UNSUP,
            message: "this server knows version 1 of announced policies".into(),
        },
        BadAnnouncement::Malformed(what) => Refusal::invalid(what),
    })
}

pub(super) fn no_data(data: &[u8]) -> Result<(), Refusal> {
    if data.is_empty() { Ok(()) } else { Err(Refusal::invalid("the option has no data")) }
}

pub(super) fn refuse(out: &mut Vec<u8>, option: u32, kind: u32, message: &str) {
    let end = (0..=message.len().min(MAX_STRING)).rev().find(|&end| message.is_char_boundary(end));
    reply(out, option, kind, &message.as_bytes()[..end.unwrap_or(0)]);
}

pub(super) fn reply(out: &mut Vec<u8>, option: u32, kind: u32, payload: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(payload);
}
