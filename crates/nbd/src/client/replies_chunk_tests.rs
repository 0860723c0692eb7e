//! Structured replies: in pieces, in any order, with holes, interleaved, and wrong.

use super::super::extents::Content;
use super::*;
use crate::wire::{STATE_HOLE, STATE_ZERO, chunk};
use proptest::prelude::*;

const CONTEXT: u32 = 9;
const STRUCTURED: Form = Form::Structured { allocation: Some(CONTEXT) };
const COUNTED: Form = counted(Version::Two);
const FORMS: [Form; 3] = [STRUCTURED, COUNTED, counted(Version::Three)];
const HOLE: u32 = STATE_HOLE | STATE_ZERO;
/// Where reads begin on the export.
const OFFSET: u64 = 1 << 40;

const fn counted(version: Version) -> Form {
    Form::Counted { version, allocation: Some(CONTEXT) }
}

fn chunk(kind: u16, last: bool, cookie: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(u16::from(last).to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((body.len() as u32).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn data(last: bool, cookie: u64, at: u64, bytes: &[u8]) -> Vec<u8> {
    chunk(chunk::OFFSET_DATA, last, cookie, &[&(OFFSET + at).to_be_bytes(), bytes].concat())
}

fn hole(last: bool, cookie: u64, at: u64, len: u32) -> Vec<u8> {
    let body = [&(OFFSET + at).to_be_bytes()[..], &len.to_be_bytes()].concat();
    chunk(chunk::OFFSET_HOLE, last, cookie, &body)
}

fn status(last: bool, cookie: u64, context: u32, extents: &[(u32, u32)]) -> Vec<u8> {
    let mut body = context.to_be_bytes().to_vec();
    for (len, flags) in extents {
        body.extend([len.to_be_bytes(), flags.to_be_bytes()].concat());
    }
    chunk(chunk::BLOCK_STATUS, last, cookie, &body)
}

fn error(last: bool, cookie: u64, number: u32) -> Vec<u8> {
    let body = [&number.to_be_bytes()[..], &[0, 4], b"text"].concat();
    chunk(chunk::ERROR, last, cookie, &body)
}

fn simple(cookie: u64, error: u32) -> Vec<u8> {
    [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

/// The end of a request: its cookie, error, what it brought, and its counters.
type End = (u64, u32, Vec<u8>, Vec<(u64, Content)>, Received);

/// Receives a stream in pieces, straight into payloads where it can.
fn receive(
    form: Form,
    asked: &[Brings],
    stream: &[u8],
    cuts: &[usize],
    most: usize,
) -> Result<Vec<End>, ReplyError> {
    let mut replies = Replies::new(64);
    replies.clear(form);
    let len = |brings: &Brings| match brings {
        Brings::Data { len, .. } => *len as usize,
        _ => 0,
    };
    let mut payloads: Vec<Vec<u8>> = asked.iter().map(|asked| vec![0xEE; len(asked)]).collect();
    let (mut ends, mut rest, mut cuts) = (Vec::new(), stream, cuts.iter().cycle());
    while !rest.is_empty() {
        let piece = &rest[..(*cuts.next().unwrap()).min(rest.len())];
        let mut direct = 0;
        if let Some(Payload { cookie, at, left }) = replies.payload() {
            direct = piece.len().min(left as usize);
            payloads[cookie as usize][at as usize..][..direct].copy_from_slice(&piece[..direct]);
        }
        let spare = replies.spare(most);
        let buffered = (piece.len() - direct).min(spare.len());
        spare[..buffered].copy_from_slice(&piece[direct..direct + buffered]);
        replies.received(direct + buffered);
        rest = &rest[direct + buffered..];
        while let Some(event) = replies.next(|cookie| asked.get(cookie as usize).copied())? {
            match event {
                Event::Data { cookie, at, bytes } => {
                    payloads[cookie as usize][at as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                Event::Zeroes { cookie, at, len } => {
                    payloads[cookie as usize][at as usize..][..len as usize].fill(0);
                }
                Event::End { cookie, error, received, extents } => {
                    let payload = std::mem::take(&mut payloads[cookie as usize]);
                    let extents = extents.iter().map(|e| (e.len, e.content)).collect();
                    ends.push((cookie, error, payload, extents, received));
                }
            }
        }
    }
    Ok(ends)
}

fn whole(form: Form, asked: &[Brings], stream: &[u8]) -> Result<Vec<End>, ReplyError> {
    receive(form, asked, stream, &[stream.len()], usize::MAX)
}

const READ: Brings = Brings::Data { offset: OFFSET, len: 8 };
const QUESTION: Brings = Brings::Status { len: 4096 };

/// The chunks of a reply and what they come to.
#[derive(Clone, Debug)]
struct Scripted {
    brings: Brings,
    chunks: Vec<Vec<u8>>,
    end: End,
}

/// A read that is answered in pieces, each with data or a hole, in some order.
fn read(cookie: u64, len: u32, cuts: &[u32], turn: usize, fails: bool) -> Scripted {
    let mut ends: Vec<u32> = cuts.iter().map(|cut| cut % len).filter(|cut| *cut > 0).collect();
    ends.push(len);
    ends.sort_unstable();
    ends.dedup();
    let mut payload: Vec<u8> = (0..len).map(|n| (n ^ cookie as u32) as u8 | 1).collect();
    let mut begin = 0;
    let mut chunks = Vec::new();
    for (n, end) in ends.into_iter().enumerate() {
        let range = begin as usize..end as usize;
        if n % 3 == 2 {
            chunks.push(hole(false, cookie, begin.into(), end - begin));
            payload[range].fill(0);
        } else {
            chunks.push(data(false, cookie, begin.into(), &payload[range]));
        }
        begin = end;
    }
    let turn = turn % chunks.len();
    chunks.rotate_left(turn);
    if turn % 2 == 1 {
        chunks.reverse();
    }
    if fails {
        chunks.insert(turn, error(false, cookie, 5));
        chunks.push(error(false, cookie, 28));
    }
    if turn.is_multiple_of(3) {
        chunks.push(chunk(chunk::NONE, true, cookie, &[]));
    } else {
        chunks.last_mut().unwrap()[5] = 1;
    }
    let number = if fails { 5 } else { 0 };
    let end = (cookie, number, payload, Vec::new(), Received::default());
    Scripted { brings: Brings::Data { offset: OFFSET, len }, chunks, end }
}

fn question(cookie: u64, extents: &[(u32, bool)]) -> Scripted {
    let said: Vec<(u32, u32)> =
        extents.iter().map(|(len, zero)| (*len, if *zero { HOLE } else { 0 })).collect();
    let mut told: Vec<(u64, Content)> = Vec::new();
    for (len, zero) in extents {
        let content = if *zero { Content::Zeroes } else { Content::Data };
        match told.last_mut() {
            Some(last) if last.1 == content => last.0 += u64::from(*len),
            _ => told.push((u64::from(*len), content)),
        }
    }
    let chunks = vec![status(false, cookie, 3, &[(7, HOLE)]), status(true, cookie, CONTEXT, &said)];
    let end = (cookie, 0, Vec::new(), told, Received::default());
    Scripted { brings: Brings::Status { len: u32::MAX }, chunks, end }
}

fn any_script() -> impl Strategy<Value = Vec<Scripted>> {
    let one = (
        0..4u8,
        1..200u32,
        prop::collection::vec(any::<u32>(), 0..6),
        any::<usize>(),
        prop::collection::vec((1..5000u32, any::<bool>()), 1..9),
    );
    prop::collection::vec(one, 1..8).prop_map(|all| {
        let script = (0..).zip(all).map(|(cookie, (kind, len, cuts, turn, extents))| match kind {
            0 => question(cookie, &extents),
            1 => {
                let end = (cookie, 7, Vec::new(), Vec::new(), Received::default());
                Scripted { brings: Brings::Nothing, chunks: vec![simple(cookie, 7)], end }
            }
            _ => read(cookie, len, &cuts, turn, kind == 2),
        });
        script.collect()
    })
}

proptest! {
    /// However replies are interleaved and the stream is cut, each ends once and with its own.
    #[test]
    fn each_reply_has_its_own_whatever_comes_between(
        script in any_script(),
        order in prop::collection::vec(any::<usize>(), 1..60),
        cuts in prop::collection::vec(1usize..90, 1..9),
        most in 1usize..100,
    ) {
        let mut left: Vec<_> = script.iter().map(|one| one.chunks.iter()).collect();
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        let mut order = order.iter().cycle();
        while left.iter().any(|chunks| chunks.len() > 0) {
            let open: Vec<usize> = (0..left.len()).filter(|n| left[*n].len() > 0).collect();
            let n = open[order.next().unwrap() % open.len()];
            stream.extend(left[n].next().unwrap());
            if left[n].len() == 0 {
                expected.push(script[n].end.clone());
            }
        }
        let asked: Vec<Brings> = script.iter().map(|one| one.brings).collect();
        prop_assert_eq!(receive(STRUCTURED, &asked, &stream, &cuts, most), Ok(expected));
    }

    #[test]
    fn noise_is_refused_and_never_panics(
        form in prop::sample::select(&FORMS),
        kinds in prop::collection::vec((0u16..8, any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 0..12),
        noise in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut stream = Vec::new();
        for (n, (kind, last, body)) in kinds.iter().enumerate() {
            stream.extend(chunk(if *kind < 6 { *kind } else { 1 << 15 | kind }, *last, n as u64 % 3, body));
        }
        stream.extend(noise);
        let _ = whole(form, &[READ, QUESTION, Brings::Nothing], &stream);
    }
}

#[test]
fn a_read_that_does_not_bring_each_of_its_bytes_once_is_a_breach() {
    let bytes = [7; 8];
    let ends = |stream: &[&[u8]]| whole(STRUCTURED, &[READ], &stream.concat());
    let piece = |at: u64, len| Err(ReplyError::Piece { offset: OFFSET + at, len });
    let none = chunk(chunk::NONE, true, 0, &[]);
    assert_eq!(ends(&[&none]), Err(ReplyError::Incomplete(8)));
    assert_eq!(ends(&[&data(true, 0, 0, &bytes[..7])]), Err(ReplyError::Incomplete(8)));
    assert_eq!(ends(&[&hole(true, 0, 1, 7)]), Err(ReplyError::Incomplete(8)));
    assert_eq!(ends(&[&data(false, 0, 0, &bytes), &hole(true, 0, 7, 1)]), piece(7, 1));
    assert_eq!(ends(&[&data(true, 0, 1, &bytes)]), piece(1, 8));
    assert_eq!(ends(&[&hole(true, 0, 0, 0)]), piece(0, 0));
    assert_eq!(ends(&[&hole(true, 0, u64::MAX - OFFSET, u32::MAX)]), {
        Err(ReplyError::Piece { offset: u64::MAX, len: u32::MAX })
    });
    let before = [&(OFFSET - 1).to_be_bytes()[..], &[1]].concat();
    let before = chunk(chunk::OFFSET_DATA, true, 0, &before);
    assert_eq!(ends(&[&before]), Err(ReplyError::Piece { offset: OFFSET - 1, len: 1 }));
    let mixed = [data(false, 0, 0, &bytes), simple(0, 0)].concat();
    assert_eq!(ends(&[&mixed]), Err(ReplyError::Mixed(0)));
    // What failed brings nothing, and an error without a number is one.
    assert_eq!(ends(&[&error(true, 0, 0)]).unwrap()[0].1, 5);
}

#[test]
fn a_chunk_that_does_not_belong_to_its_request_is_a_breach() {
    let extents = status(true, 0, CONTEXT, &[(4096, HOLE)]);
    let bad = |kind, len| Err(ReplyError::Chunk { kind, len });
    let one = |form, brings, stream: &[u8]| whole(form, &[brings], stream).map(drop);
    assert_eq!(one(STRUCTURED, READ, &extents), bad(chunk::BLOCK_STATUS, 12));
    assert_eq!(one(STRUCTURED, Brings::Nothing, &extents), bad(chunk::BLOCK_STATUS, 12));
    assert_eq!(one(STRUCTURED, QUESTION, &data(true, 0, 0, &[1])), bad(chunk::OFFSET_DATA, 9));
    assert_eq!(one(STRUCTURED, QUESTION, &hole(true, 0, 0, 1)), bad(chunk::OFFSET_HOLE, 12));
    assert_eq!(one(STRUCTURED, READ, &data(true, 0, 0, &[])), bad(chunk::OFFSET_DATA, 8));
    assert_eq!(one(STRUCTURED, READ, &chunk(chunk::NONE, false, 0, &[])), bad(chunk::NONE, 0));
    assert_eq!(one(STRUCTURED, READ, &chunk(77, true, 0, &[0; 9])), bad(77, 9));
    let other = status(true, 1, CONTEXT, &[(4096, HOLE)]);
    assert_eq!(one(STRUCTURED, QUESTION, &other), Err(ReplyError::Cookie(1)));
    assert_eq!(
        one(Form::Simple, QUESTION, &extents),
        Err(ReplyError::Magic(STRUCTURED_REPLY_MAGIC))
    );
    // Where replies are counted, reads are answered by simple ones.
    assert_eq!(one(COUNTED, READ, &data(true, 0, 0, &[7; 8])), bad(chunk::OFFSET_DATA, 16));
    // No end of extents, a half of one, none at all.
    for len in [0, 4, 11, 16, (8 << 20) + 12, u32::MAX] {
        let mut endless = extents.clone();
        endless[16..20].copy_from_slice(&len.to_be_bytes());
        assert_eq!(one(STRUCTURED, QUESTION, &endless), bad(chunk::BLOCK_STATUS, len));
    }
    let twice = [status(false, 0, CONTEXT, &[(4096, HOLE)]), extents].concat();
    assert_eq!(one(STRUCTURED, QUESTION, &twice), bad(chunk::BLOCK_STATUS, 12));
}

#[test]
fn what_a_server_says_of_a_range_is_believed_in_its_context_only() {
    let said = |stream: &[Vec<u8>]| {
        let ends = whole(STRUCTURED, &[QUESTION], &stream.concat()).unwrap();
        assert_eq!(ends.len(), 1);
        (ends[0].1, ends[0].3.clone())
    };
    let hole = [(4096, HOLE)];
    let zeroes = vec![(4096, Content::Zeroes)];
    assert_eq!(said(&[status(true, 0, CONTEXT, &hole)]), (0, zeroes.clone()));
    assert_eq!(said(&[status(true, 0, CONTEXT + 1, &hole)]), (0, vec![]));
    let both = [status(false, 0, CONTEXT, &hole), status(true, 0, 1, &[(4096, 0)])];
    assert_eq!(said(&both), (0, zeroes));
    assert_eq!(said(&[chunk(chunk::NONE, true, 0, &[])]), (0, vec![]));
    assert_eq!(said(&[simple(0, 0)]), (0, vec![]));
    let failed = [status(false, 0, CONTEXT, &hole), error(true, 0, 22)];
    assert_eq!(said(&failed), (22, vec![]));
}

/// The counters are behind the last chunk, and behind the head of a simple reply; and so is the
/// window.
#[test]
fn what_was_received_is_told_with_what_a_range_holds() {
    let received = Received { all: 1_500_000, by_reservation: 7 };
    let extents = vec![(512, Content::Data), (3584, Content::Zeroes)];
    for version in [Version::Two, Version::Three] {
        let mut told = received.to_bytes().to_vec();
        if version == Version::Three {
            told.extend(Window(9).to_bytes());
        }
        let first = status(false, 0, CONTEXT + 1, &[(4096, 0)]);
        let last = status(true, 0, CONTEXT, &[(512, 0), (3584, HOLE)]);
        let answer = [first, last, told.clone()].concat();
        let refused = [&simple(1, 5)[..], &told].concat();
        let read = [&simple(2, 0)[..], &told, b"12345678"].concat();
        let stream = [answer, refused, read].concat();
        let asked = [QUESTION, QUESTION, READ];
        for cut in [1, 3, 400] {
            let ends = receive(counted(version), &asked, &stream, &[cut], usize::MAX).unwrap();
            assert_eq!(ends[0], (0, 0, vec![], extents.clone(), received));
            assert_eq!(ends[1], (1, 5, vec![], vec![], received));
            assert_eq!(ends[2], (2, 0, b"12345678".to_vec(), vec![], received));
        }
    }
}

/// Neither an answer without its window is over, nor is one known before its end.
#[test]
fn the_window_behind_the_last_chunk_is_that_of_the_last_answer() {
    let mut replies = Replies::new(256);
    replies.clear(counted(Version::Three));
    for window in [7, 9, 0] {
        let before = replies.window();
        let mut stream = status(true, 0, CONTEXT, &[(4096, HOLE)]);
        stream.extend(Received::default().to_bytes());
        stream.extend(Window(window).to_bytes());
        let (begun, rest) = stream.split_at(stream.len() - 1);
        for piece in [begun, rest] {
            assert_eq!(replies.next(|_| Some(QUESTION)), Ok(None));
            assert_eq!(replies.window(), before);
            replies.spare(usize::MAX)[..piece.len()].copy_from_slice(piece);
            replies.received(piece.len());
        }
        assert!(matches!(replies.next(|_| Some(QUESTION)), Ok(Some(Event::End { .. }))));
        assert_eq!(replies.window(), (window > 0).then_some(Window(window)));
    }
}

/// A reply that was half there belongs to the connection that is gone.
#[test]
fn another_connection_begins_without_the_replies_of_the_one_before() {
    let mut replies = Replies::new(64);
    for _ in 0..2 {
        replies.clear(STRUCTURED);
        let first = data(false, 0, 0, &[7; 8]);
        replies.spare(usize::MAX)[..first.len()].copy_from_slice(&first);
        replies.received(first.len());
        while let Some(event) = replies.next(|_| Some(READ)).unwrap() {
            assert!(matches!(event, Event::Data { at: 0, .. }));
        }
    }
}
