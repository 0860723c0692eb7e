//! The server's replies in transmission. Each function appends one reply without its data, and
//! without the counts that follow its head where client and server agreed on them.

use super::command::{ExtentCount, Replies};
use super::contexts::{ContextId, Contexts};
use crate::wire::{
    NbdError, SIMPLE_REPLY_MAGIC, STATE_DIRTY, STATE_HOLE, STATE_ZERO, STRUCTURED_REPLY_MAGIC,
    chunk,
};
use alloc::vec::Vec;

/// The longest reply except those to block status requests, in bytes.
pub const MAX_REPLY: usize = 20 + 6 + 100;

/// The most extents in one reply to a block status request, which its contexts share alike. A
/// client asks again from where the reply ends.
pub const MAX_EXTENTS: usize = 512;

/// What a context says about a part of an export.
pub trait State: Copy + Eq {
    /// What is true whatever the part is.
    const UNKNOWN: Self;

    /// As it goes over the wire.
    fn flags(self) -> u32;
}

/// What a part of an export holds: `base:allocation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Allocated; may hold anything.
    Data,
    /// Not allocated; reads as zeroes.
    Hole,
}

impl State for ExtentKind {
    const UNKNOWN: ExtentKind = ExtentKind::Data;

    fn flags(self) -> u32 {
        match self {
            ExtentKind::Data => 0,
            ExtentKind::Hole => STATE_HOLE | STATE_ZERO,
        }
    }
}

/// Whether a part of an export has changed: `qemu:dirty-bitmap:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has not.
    Clean,
    /// It may have.
    Dirty,
}

impl State for Change {
    const UNKNOWN: Change = Change::Dirty;

    fn flags(self) -> u32 {
        match self {
            Change::Clean => 0,
            Change::Dirty => STATE_DIRTY,
        }
    }
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent<S = ExtentKind> {
    /// Length in bytes; empty extents are passed over.
    pub len: u64,
    /// What it holds.
    pub kind: S,
}

/// A request for block status, as far as its reply needs it.
#[derive(Clone, Copy, Debug)]
pub struct StatusRequest {
    /// Identifies the request in its reply.
    pub cookie: u64,
    /// The contexts that the client selected: the reply has a chunk for each.
    pub contexts: Contexts,
    /// The length of the range in bytes, at least 1.
    pub len: u32,
    /// How many extents each chunk may have.
    pub extents: ExtentCount,
}

/// Success of a request that returns nothing. A simple reply in both forms: it is the shortest.
pub fn done(out: &mut Vec<u8>, cookie: u64) {
    simple(out, cookie, 0);
}

/// Success of a read. `len` bytes of data follow, at most
/// [`MAX_PAYLOAD`](super::MAX_PAYLOAD).
pub fn data(out: &mut Vec<u8>, replies: Replies, cookie: u64, offset: u64, len: u32) {
    match replies {
        Replies::Simple | Replies::Counted(_) => simple(out, cookie, 0),
        Replies::Structured => {
            chunk_head(out, chunk::FLAG_DONE, chunk::OFFSET_DATA, cookie, 8 + len);
            out.extend_from_slice(&offset.to_be_bytes());
        }
    }
}

/// Failure of any request.
pub fn error(out: &mut Vec<u8>, replies: Replies, cookie: u64, error: NbdError) {
    match replies {
        Replies::Simple | Replies::Counted(_) => simple(out, cookie, error.code()),
        Replies::Structured => {
            let message = error.message().as_bytes();
            chunk_head(out, chunk::FLAG_DONE, chunk::ERROR, cookie, 6 + message.len() as u32);
            out.extend_from_slice(&error.code().to_be_bytes());
            out.extend_from_slice(&(message.len() as u16).to_be_bytes());
            out.extend_from_slice(message);
        }
    }
}

/// The chunk for one of the request's contexts. The chunks go out in the order of their contexts'
/// numbers: that of the last one ends the reply.
///
/// It has at least one extent, at most its share of [`MAX_EXTENTS`], and one alone if the request
/// says so. Together they are not longer than the range. Neighbours of one kind become one extent.
/// If `extents` is empty the whole range is [`State::UNKNOWN`].
pub fn block_status<S: State>(
    out: &mut Vec<u8>,
    request: StatusRequest,
    context: ContextId,
    extents: impl IntoIterator<Item = Extent<S>>,
) {
    let StatusRequest { cookie, contexts, len, .. } = request;
    let head = out.len();
    let flags = if contexts.last() == Some(context) { chunk::FLAG_DONE } else { 0 };
    chunk_head(out, flags, chunk::BLOCK_STATUS, cookie, 0);
    out.extend_from_slice(&context.get().to_be_bytes());
    let most = match request.extents {
        ExtentCount::One => 1,
        ExtentCount::Many => MAX_EXTENTS / contexts.len().max(1),
    };
    let (mut count, mut left) = (0, len);
    let mut rest = extents.into_iter().filter(|extent| extent.len > 0).peekable();
    while left > 0 && count < most {
        let Some(first) = rest.next() else { break };
        let mut run = first.len;
        // What comes behind the range is not asked for.
        while run < u64::from(left) {
            let Some(next) = rest.next_if(|next| next.kind == first.kind) else { break };
            run = run.saturating_add(next.len);
        }
        let run = u32::try_from(run).unwrap_or(u32::MAX).min(left);
        descriptor(out, run, first.kind);
        left -= run;
        count += 1;
    }
    if count == 0 {
        descriptor(out, len, S::UNKNOWN);
    }
    let payload = (out.len() - head - 20) as u32;
    out[head + 16..head + 20].copy_from_slice(&payload.to_be_bytes());
}

fn descriptor<S: State>(out: &mut Vec<u8>, len: u32, state: S) {
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&state.flags().to_be_bytes());
}

fn simple(out: &mut Vec<u8>, cookie: u64, error: u32) {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&bytes);
}

fn chunk_head(out: &mut Vec<u8>, flags: u16, kind: u16, cookie: u64, payload: u32) {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&payload.to_be_bytes());
    out.extend_from_slice(&bytes);
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
