//! The server's replies in transmission. Each function appends one reply without its data.

use super::command::Replies;
use crate::wire::{
    BASE_ALLOCATION_ID, NbdError, SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO,
    STRUCTURED_REPLY_MAGIC, chunk,
};
use alloc::vec::Vec;

/// The longest reply except those to block status requests, in bytes.
pub const MAX_REPLY: usize = 20 + 6 + 100;

/// The most extents in one reply to a block status request. A client asks again from where the
/// reply ends.
pub const MAX_EXTENTS: usize = 512;

/// What a part of an export holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Allocated; may hold anything.
    Data,
    /// Not allocated; reads as zeroes.
    Hole,
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes; empty extents are passed over.
    pub len: u64,
    /// What it holds.
    pub kind: ExtentKind,
}

/// Success of a request that returns nothing. A simple reply in both forms: it is the shortest.
pub fn done(out: &mut Vec<u8>, cookie: u64) {
    simple(out, cookie, 0);
}

/// Success of a read. `len` bytes of data follow, at most
/// [`MAX_PAYLOAD`](super::MAX_PAYLOAD).
pub fn data(out: &mut Vec<u8>, replies: Replies, cookie: u64, offset: u64, len: u32) {
    match replies {
        Replies::Simple => simple(out, cookie, 0),
        Replies::Structured => {
            chunk_head(out, chunk::OFFSET_DATA, cookie, 8 + len);
            out.extend_from_slice(&offset.to_be_bytes());
        }
    }
}

/// Failure of any request.
pub fn error(out: &mut Vec<u8>, replies: Replies, cookie: u64, error: NbdError) {
    match replies {
        Replies::Simple => simple(out, cookie, error.code()),
        Replies::Structured => {
            let message = error.message().as_bytes();
            chunk_head(out, chunk::ERROR, cookie, 6 + message.len() as u32);
            out.extend_from_slice(&error.code().to_be_bytes());
            out.extend_from_slice(&(message.len() as u16).to_be_bytes());
            out.extend_from_slice(message);
        }
    }
}

/// The reply to a block status request of `len` bytes: at least one extent, at most `most` and
/// [`MAX_EXTENTS`], together not longer than `len`.
///
/// Neighbours of one kind become one extent. If `extents` is empty the whole range counts as data,
/// which is always a true answer.
pub fn block_status(
    out: &mut Vec<u8>,
    cookie: u64,
    len: u32,
    extents: impl IntoIterator<Item = Extent>,
    most: usize,
) {
    let head = out.len();
    chunk_head(out, chunk::BLOCK_STATUS, cookie, 0);
    out.extend_from_slice(&BASE_ALLOCATION_ID.to_be_bytes());
    let most = most.clamp(1, MAX_EXTENTS);
    let (mut count, mut left) = (0, len);
    let mut rest = extents.into_iter().filter(|extent| extent.len > 0).peekable();
    while left > 0 && count < most {
        let Some(first) = rest.next() else { break };
        let mut run = first.len;
        while let Some(next) = rest.next_if(|next| next.kind == first.kind) {
            run = run.saturating_add(next.len);
        }
        let run = u32::try_from(run).unwrap_or(u32::MAX).min(left);
        descriptor(out, run, first.kind);
        left -= run;
        count += 1;
    }
    if count == 0 {
        descriptor(out, len, ExtentKind::Data);
    }
    let payload = (out.len() - head - 20) as u32;
    out[head + 16..head + 20].copy_from_slice(&payload.to_be_bytes());
}

fn descriptor(out: &mut Vec<u8>, len: u32, kind: ExtentKind) {
    let state = match kind {
        ExtentKind::Data => 0,
        ExtentKind::Hole => STATE_HOLE | STATE_ZERO,
    };
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&state.to_be_bytes());
}

fn simple(out: &mut Vec<u8>, cookie: u64, error: u32) {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&bytes);
}

/// The head of a reply's only chunk: every reply here is complete before it is sent.
fn chunk_head(out: &mut Vec<u8>, kind: u16, cookie: u64, payload: u32) {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&chunk::FLAG_DONE.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&payload.to_be_bytes());
    out.extend_from_slice(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: ExtentKind = ExtentKind::Data;
    const HOLE: ExtentKind = ExtentKind::Hole;

    fn status(len: u32, extents: &[(u64, ExtentKind)], most: usize) -> Vec<(u32, u32)> {
        let extents = extents.iter().map(|&(len, kind)| Extent { len, kind });
        let mut out = vec![0xaa; 3];
        block_status(&mut out, 7, len, extents, most);
        let out = &out[3..];
        assert_eq!(out[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 5]);
        assert_eq!(u32::from_be_bytes(out[16..20].try_into().unwrap()) as usize, out.len() - 20);
        assert_eq!(out[20..24], BASE_ALLOCATION_ID.to_be_bytes());
        let word = |b: &[u8]| u32::from_be_bytes(b.try_into().unwrap());
        out[24..].chunks(8).map(|d| (word(&d[..4]), word(&d[4..]))).collect()
    }

    #[test]
    fn simple_answers_are_sixteen_bytes() {
        let mut out = Vec::new();
        done(&mut out, 0x1122_3344_5566_7788);
        let expected =
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
        assert_eq!(out, expected);
        out.clear();
        error(&mut out, Replies::Simple, 1, NbdError::NoSpace);
        assert_eq!(out[4..8], 28u32.to_be_bytes());
        assert_eq!(out.len(), 16);
    }

    #[test]
    fn a_structured_read_names_its_offset_and_length() {
        let mut out = Vec::new();
        data(&mut out, Replies::Structured, 9, 0x1000, 4096);
        assert_eq!(out.len(), 28);
        assert_eq!(out[4..8], [0, 1, 0, 1]);
        assert_eq!(out[16..20], (4096u32 + 8).to_be_bytes());
        assert_eq!(out[20..28], 0x1000u64.to_be_bytes());
    }

    #[test]
    fn a_structured_error_explains_itself() {
        let all = [
            NbdError::Io,
            NbdError::Invalid,
            NbdError::NoSpace,
            NbdError::Overflow,
            NbdError::NotSupported,
        ];
        for what in all {
            let mut out = Vec::new();
            error(&mut out, Replies::Structured, 9, what);
            let message = usize::from(u16::from_be_bytes([out[24], out[25]]));
            assert_eq!(out.len(), 26 + message);
            assert_eq!(&out[26..], what.message().as_bytes());
            assert!(out.len() <= MAX_REPLY);
        }
    }

    #[test]
    fn block_status_merges_neighbours_and_stays_in_range() {
        assert_eq!(status(100, &[(40, DATA), (20, DATA), (80, HOLE)], 9), [(60, 0), (40, 3)]);
        assert_eq!(status(100, &[(40, HOLE), (60, DATA)], 1), [(40, 3)]);
        assert_eq!(status(u32::MAX, &[(1 << 40, HOLE)], 9), [(u32::MAX, 3)]);
        assert_eq!(status(100, &[(30, HOLE)], 9), [(30, 3)]);
    }

    #[test]
    fn block_status_without_knowledge_is_data() {
        assert_eq!(status(100, &[], 9), [(100, 0)]);
        assert_eq!(status(100, &[(0, HOLE)], 9), [(100, 0)]);
    }

    #[test]
    fn block_status_is_bounded() {
        let many: Vec<_> = (0..5000).map(|i| (1, if i % 2 == 0 { DATA } else { HOLE })).collect();
        assert_eq!(status(5000, &many, usize::MAX).len(), MAX_EXTENTS);
    }
}
