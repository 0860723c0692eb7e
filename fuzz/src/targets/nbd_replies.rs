//! What a hostile server sends to a client, cut anywhere: never a panic, never a byte outside the
//! payload that it belongs to, and no reply to a request that is not outstanding.
//!
//! The first byte of the input chooses the part: the handshake, simple replies, or replies of
//! either form, buffered or received where they belong; with counters or without. Each gets noise,
//! or messages made from the input, so that magic numbers and cookies fit and the code behind them
//! is reached.

use headgate_nbd::client::extents::{Content, Extent, MAX_EXTENTS, in_blocks};
use headgate_nbd::client::form::Form;
use headgate_nbd::client::handshake::{ExportInfo, Handshake, HandshakeError, ReplyStyle, Step};
use headgate_nbd::client::replies::{Brings, Event, Replies};
use headgate_nbd::client::structured::{self, ReplyBuffer};
use headgate_nbd::counters::{self, Counting, Received, Version, Window};
use headgate_nbd::wire::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
    be32, option, option_reply,
};
use std::iter;

/// In the first byte of the input: with counters.
const COUNTED: u8 = 1 << 6;
/// With counters: by the newest version.
const NEWEST: u8 = 1 << 5;
/// In the first byte of the input: received where they belong.
const PLACED: u8 = 1 << 7;
/// The number of `base:allocation`.
const CONTEXT: u32 = 1;

/// How a handshake ended, the form of replies, and what the client sent.
type Shaken = (Result<Option<ExportInfo>, HandshakeError>, Form, Vec<u8>);

/// Runs a handshake over the stream in cuts.
fn shake_hands(stream: &[u8], style: ReplyStyle, cuts: &[u8]) -> Shaken {
    let mut handshake = Handshake::new("x", style);
    let (mut out, mut start, mut end) = (Vec::new(), 0, 0);
    let mut cuts = cuts.iter().cycle();
    while end < stream.len() {
        end += cuts.next().map_or(usize::MAX, |cut| usize::from(*cut) + 1).min(stream.len() - end);
        loop {
            match handshake.poll(&stream[start..end], &mut out) {
                Ok((0, Step::NeedBytes(least))) => {
                    assert!(least > end - start);
                    break;
                }
                Ok((used, Step::Answered)) => {
                    assert!(used > 0);
                    start += used;
                }
                Ok((_, Step::Transmission(info))) => {
                    return (Ok(Some(info)), handshake.form(), out);
                }
                Ok(other) => panic!("{other:?}"),
                Err(e) => return (Err(e), handshake.form(), out),
            }
        }
    }
    (Ok(None), handshake.form(), out)
}

/// Shakes hands with a server that says `stream`, and looks at what that came to.
fn check_handshake(stream: &[u8], style: ReplyStyle, cuts: &[u8]) {
    let whole = shake_hands(stream, style, &[]);
    assert_eq!(whole, shake_hands(stream, style, cuts));
    let (_, form, sent) = whole;
    match (form, style) {
        (Form::Simple, _) => {}
        (Form::Counted { version, allocation: None }, ReplyStyle::Counted(_)) => {
            check_counted(stream, version, &sent, option::GO);
        }
        (Form::Counted { version, .. }, ReplyStyle::CountedAllocation(_)) => {
            check_counted(stream, version, &sent, option::SET_META_CONTEXT);
        }
        (Form::Structured { allocation: None }, ReplyStyle::Structured) => {}
        (Form::Structured { .. }, ReplyStyle::Allocation | ReplyStyle::CountedAllocation(_)) => {}
        (form, style) => panic!("{form:?} was not asked for: {style:?}"),
    }
}

/// What a client sends that counts by this version: it has asked a server that agreed, and goes on
/// with option `next`.
fn check_counted(stream: &[u8], version: Version, sent: &[u8], next: u32) {
    // Behind the greeting are the answers to what the client asked: first for the newest version,
    // and then for the one before.
    let answer = |at: usize| (be32(stream, at + 8), be32(stream, at + 12));
    let behind = |at: usize| at + 20 + be32(stream, at + 16).unwrap_or(0) as usize;
    let [yes, no] = [option_reply::ACK, option_reply::ERR_UNSUP]
        .map(|kind| (Some(counters::OPTION), Some(kind)));
    let asked = match version {
        Version::Three => usize::from(answer(18) == yes),
        Version::Two => 2 * usize::from(answer(18) == no && answer(behind(18)) == yes),
    };
    assert!(asked > 0, "nobody counts alone");
    let options = (0..=asked).map(|n| be32(sent, 12 + n * (16 + counters::OPTION_LEN)));
    let expected = [Some(counters::OPTION); 2].into_iter().take(asked).chain([Some(next)]);
    assert!(options.eq(expected), "it goes on with what it asks next");
}

/// A greeting, and answers whose types and data are the input's: to these options, and then to the
/// choice of an export. A context is named often enough.
fn handshake(mut rest: &[u8], asked: &[u32]) -> Vec<u8> {
    let mut asked = asked.iter().copied().chain(iter::repeat(option::GO));
    let (mut answers, mut version) = (asked.next().unwrap_or(option::GO), Version::NEWEST);
    let mut stream = GREETING_MAGIC.to_be_bytes().to_vec();
    stream.extend(OPTION_MAGIC.to_be_bytes());
    stream.extend(3u16.to_be_bytes());
    while let [kind, len, tail @ ..] = rest {
        let (data, behind) = tail.split_at(usize::from(*len).min(tail.len()));
        stream.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        let data = match data {
            [number, 0xff, ..] => &[&[0, 0, 0, *number][..], b"base:allocation"].concat(),
            data => data,
        };
        stream.extend(answers.to_be_bytes());
        let kind = u32::from(kind & 0x7f) | u32::from(kind & 0x80) << 24;
        stream.extend(kind.to_be_bytes());
        stream.extend((data.len() as u32).to_be_bytes());
        stream.extend(data);
        rest = behind;
        // Counters may be asked for once more.
        match version.before() {
            Some(before) if (answers, kind) == (counters::OPTION, option_reply::ERR_UNSUP) => {
                version = before;
            }
            _ => answers = asked.next().unwrap_or(option::GO),
        }
    }
    stream
}

/// What is outstanding: 16 requests, whose payloads are as long as their cookies say.
fn payload_of(ended: &[bool; 16], cookie: u64) -> Option<u32> {
    let free = ended.get(usize::try_from(cookie).ok()?).is_some_and(|ended| !ended);
    free.then(|| cookie as u32 * 37)
}

/// A reply that has ended: its cookie, error, counters and payload.
type Ended = (u64, u32, Received, Vec<u8>);

/// The reply that a byte stands for. The counters of some contradict each other.
fn reply(counting: Counting, byte: u8) -> Ended {
    let (cookie, error) = (u64::from(byte & 0x1f), u32::from(byte >> 6));
    let mut received = Received::default();
    if counting.is_agreed() {
        received.all = u64::from(byte) << (byte % 57);
        received.by_reservation = received.all / u64::from(byte % 4 + 1);
        if byte & 0x2f == 0x2f {
            received.by_reservation = received.all + 1;
        }
    }
    let len = if error == 0 { payload_of(&[false; 16], cookie).unwrap_or(0) } else { 0 };
    (cookie, error, received, (0..len).map(|n| n as u8 ^ byte).collect())
}

/// The window that the reply says.
fn window(byte: u8) -> Window {
    Window(u64::from(byte) << (byte % 7))
}

/// What stands behind the head of the reply, or behind its last chunk.
fn counts(counting: Counting, received: Received, byte: u8) -> Vec<u8> {
    let Counting::Agreed(version) = counting else { return Vec::new() };
    let mut bytes = received.to_bytes().to_vec();
    if version == Version::Three {
        bytes.extend(window(byte).to_bytes());
    }
    bytes
}

/// Replies whose cookies, errors and order are the input's.
fn replies(counting: Counting, input: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for byte in input {
        let (cookie, error, received, payload) = reply(counting, *byte);
        stream.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
        stream.extend(error.to_be_bytes());
        stream.extend(cookie.to_be_bytes());
        stream.extend(counts(counting, received, *byte));
        stream.extend(payload);
    }
    stream
}

/// What a client is told by [`replies`], up to the first that it is to refuse.
fn told(counting: Counting, input: &[u8]) -> Vec<Ended> {
    let mut ended = [false; 16];
    let mut told = Vec::new();
    for byte in input {
        let (cookie, error, received, payload) = reply(counting, *byte);
        let Some(len) = payload_of(&ended, cookie) else { break };
        if received.by_reservation > received.all {
            break;
        }
        ended[cookie as usize] = true;
        // What brings no payload leaves the place for it as it was.
        let payload = if error == 0 { payload } else { vec![0; len as usize] };
        told.push((cookie, error, received, payload));
    }
    told
}

/// Receives the stream in cuts, and answers what ended, up to the first breach of the protocol.
fn receive(counting: Counting, stream: &[u8], cuts: &[u8]) -> Vec<Ended> {
    let mut reader = Replies::new(256);
    reader.clear(match counting {
        Counting::None => Form::Simple,
        Counting::Agreed(version) => Form::Counted { version, allocation: None },
    });
    let head = reader.head_lacks();
    let mut payloads: Vec<Vec<u8>> = (0..16).map(|n| vec![0; n * 37]).collect();
    let (mut ended, mut ends) = ([false; 16], Vec::new());
    let mut rest = stream;
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let cut = cuts.next().map_or(usize::MAX, |cut| usize::from(*cut) + 1).min(rest.len());
        let mut direct = 0;
        if let Some(payload) = reader.payload() {
            direct = cut.min(payload.left as usize);
            payloads[payload.cookie as usize][payload.at as usize..][..direct]
                .copy_from_slice(&rest[..direct]);
        }
        let lacks = reader.head_lacks();
        let most = if cut.is_multiple_of(2) { lacks } else { usize::MAX };
        let spare = reader.spare(most);
        let buffered = (cut - direct).min(spare.len());
        assert!(!spare.is_empty());
        spare[..buffered].copy_from_slice(&rest[direct..direct + buffered]);
        reader.received(direct + buffered);
        rest = &rest[direct + buffered..];
        loop {
            let brings = |cookie| {
                let len = payload_of(&ended, cookie)?;
                Some(Brings::Data { offset: 0, len })
            };
            match reader.next(brings) {
                Ok(Some(Event::Data { cookie, at, bytes })) => {
                    assert!(most > lacks, "a payload that could have gone to its place");
                    payloads[cookie as usize][at as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                Ok(Some(Event::Zeroes { .. })) => panic!("no form has that"),
                Ok(Some(Event::End { cookie, error, received, extents })) => {
                    assert!(extents.is_empty());
                    assert!(!ended[cookie as usize], "ended twice");
                    assert!(received.by_reservation <= received.all, "more than there was");
                    ended[cookie as usize] = true;
                    let payload = std::mem::take(&mut payloads[cookie as usize]);
                    ends.push((cookie, error, received, payload));
                }
                Ok(None) => break,
                Err(_) => return ends,
            }
        }
        if most == lacks && buffered == lacks {
            assert_eq!(reader.head_lacks(), head, "the head was not whole");
        }
    }
    ends
}

/// The payload of a chunk. Most belong to their requests.
fn body(kind: u8, cookie: u8, data: &[u8]) -> Vec<u8> {
    let [first, second, third, rest @ ..] = data else { return data.to_vec() };
    let begin = (offset_of(u64::from(cookie & 0x1f)) + u64::from(*first)).to_be_bytes();
    match kind % 8 {
        1 if second % 8 != 0 => [&begin[..], rest].concat(),
        2 if second % 8 != 0 => [&begin[..], &u32::from(*third).to_be_bytes()].concat(),
        5 if second % 8 != 0 => {
            let mut body = (CONTEXT + u32::from(*first == 0)).to_be_bytes().to_vec();
            for extent in rest.chunks_exact(2) {
                body.extend(u32::from(extent[0]).to_be_bytes());
                body.extend(u32::from(extent[1] % 8).to_be_bytes());
            }
            body
        }
        _ => data.to_vec(),
    }
}

/// Where the read of a cookie begins on the export.
fn offset_of(cookie: u64) -> u64 {
    cookie << 40
}

/// What is outstanding: reads, and a question of what ranges hold for every fourth cookie.
fn brings(ended: &[bool; 16], cookie: u64) -> Option<Brings> {
    let len = payload_of(ended, cookie)?;
    Some(match cookie % 4 {
        3 => Brings::Status { len: len / 8 * 8 },
        _ => Brings::Data { offset: offset_of(cookie), len },
    })
}

/// A reply that has ended: its cookie, error, counters, payload, and extents.
type Placed = (u64, u32, Received, Vec<u8>, Vec<Extent>);

/// Receives a stream of either form in cuts, where its payloads belong; answers what ended, up to
/// the first breach of the protocol, and the window that was said last.
fn place(form: Form, stream: &[u8], cuts: &[u8]) -> (Vec<Placed>, Option<Window>) {
    let mut reader = Replies::new(64);
    reader.clear(form);
    let mut payloads: Vec<Vec<u8>> = (0..16).map(|n| vec![0xEE; n * 37]).collect();
    // How often each byte came.
    let mut came: Vec<Vec<u8>> = (0..16).map(|n| vec![0; n * 37]).collect();
    let (mut ended, mut ends) = ([false; 16], Vec::new());
    let (mut rest, mut cuts) = (stream, cuts.iter().cycle());
    while !rest.is_empty() {
        let cut = cuts.next().map_or(usize::MAX, |cut| usize::from(*cut) + 1).min(rest.len());
        let mut direct = 0;
        if let Some(payload) = reader.payload() {
            direct = cut.min(payload.left as usize);
            let (cookie, at) = (payload.cookie as usize, payload.at as usize);
            payloads[cookie][at..][..direct].copy_from_slice(&rest[..direct]);
            came[cookie][at..][..direct].iter_mut().for_each(|count| *count += 1);
        }
        let most = if cut.is_multiple_of(2) { reader.head_lacks() } else { usize::MAX };
        let spare = reader.spare(most);
        assert!(!spare.is_empty());
        let buffered = (cut - direct).min(spare.len());
        spare[..buffered].copy_from_slice(&rest[direct..direct + buffered]);
        reader.received(direct + buffered);
        rest = &rest[direct + buffered..];
        loop {
            let (cookie, at, len) = match reader.next(|cookie| brings(&ended, cookie)) {
                Ok(Some(Event::Data { cookie, at, bytes })) => {
                    payloads[cookie as usize][at as usize..][..bytes.len()].copy_from_slice(bytes);
                    (cookie, at, bytes.len())
                }
                Ok(Some(Event::Zeroes { cookie, at, len })) => {
                    payloads[cookie as usize][at as usize..][..len as usize].fill(0);
                    (cookie, at, len as usize)
                }
                Ok(Some(Event::End { cookie, error, received, extents })) => {
                    let asked = brings(&ended, cookie).expect("an end of what is outstanding");
                    let counts = std::mem::take(&mut came[cookie as usize]);
                    let payload = std::mem::take(&mut payloads[cookie as usize]);
                    match asked {
                        Brings::Status { len } => check_extents(extents, len),
                        _ => assert!(extents.is_empty()),
                    }
                    if error == 0 && matches!(asked, Brings::Data { .. }) {
                        assert!(counts.iter().all(|count| *count == 1), "each byte comes once");
                    }
                    ended[cookie as usize] = true;
                    // What failed may have left anything in its place.
                    let payload = if error == 0 { payload } else { Vec::new() };
                    ends.push((cookie, error, received, payload, extents.to_vec()));
                    continue;
                }
                Ok(None) => break,
                Err(_) => return (ends, reader.window()),
            };
            came[cookie as usize][at as usize..][..len].iter_mut().for_each(|count| *count += 1);
        }
    }
    (ends, reader.window())
}

/// What a server says of a range, as it is believed, whatever it said.
fn check_extents(said: &[Extent], asked: u32) {
    assert!(said.len() <= MAX_EXTENTS && said.iter().all(|extent| extent.len > 0));
    assert!(said.iter().map(|extent| extent.len).sum::<u64>() <= asked.into());
    let zeroes = |extents: &[Extent]| -> u64 {
        let zeroes = extents.iter().filter(|extent| extent.content == Content::Zeroes);
        zeroes.map(|extent| extent.len).sum()
    };
    for block in [1, 8] {
        let mut told = Vec::new();
        in_blocks(said, asked.into(), block, &mut |extent| told.push(extent));
        assert!(asked == 0 || !told.is_empty());
        assert!(told.iter().all(|extent| extent.len > 0 && extent.len % u64::from(block) == 0));
        assert!(told.iter().map(|extent| extent.len).sum::<u64>() <= asked.into());
        assert!(zeroes(&told) <= zeroes(said), "zeroes that nobody spoke of");
    }
}

/// Replies of either form, whose types, lengths and cookies are the input's.
fn chunks(counting: Counting, mut input: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let [kind, cookie, len, lie, rest @ ..] = input {
        let (data, behind) = rest.split_at(usize::from(len % 64).min(rest.len()));
        input = behind;
        let data = &body(*kind, *cookie, data)[..];
        if kind % 8 == 7 {
            stream.extend(replies(counting, &[*cookie]));
            continue;
        }
        stream.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
        stream.extend(u16::from(kind >> 7).to_be_bytes());
        let last = kind >> 7 == 1;
        let kind = if kind % 8 >= 4 && kind % 8 != 5 {
            1 << 15 | u16::from(kind % 4)
        } else {
            u16::from(kind % 8)
        };
        stream.extend(kind.to_be_bytes());
        stream.extend(u64::from(cookie & 0x1f).to_be_bytes());
        let announced = data.len() as u32 + if lie % 16 == 15 { u32::from(*lie) << 8 } else { 0 };
        stream.extend(announced.to_be_bytes());
        stream.extend(data);
        if last {
            stream.extend(counts(counting, reply(counting, *cookie).2, *cookie));
        }
    }
    stream
}

/// The events of a stream of either form in cuts, up to the first breach of the protocol.
fn events(stream: &[u8], cuts: &[u8]) -> Vec<String> {
    let mut buffer = ReplyBuffer::new(15 * 37);
    let mut events = Vec::new();
    let mut rest = stream;
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let spare = buffer.spare();
        assert!(!spare.is_empty());
        let cut = cuts.next().map_or(usize::MAX, |cut| usize::from(*cut) + 1);
        let cut = cut.min(rest.len()).min(spare.len());
        spare[..cut].copy_from_slice(&rest[..cut]);
        buffer.filled(cut);
        rest = &rest[cut..];
        loop {
            match buffer.next(|cookie| payload_of(&[false; 16], cookie)) {
                Ok(Some(event)) => {
                    if let structured::Event::Simple { cookie, error: 0, data } = event {
                        assert_eq!(Some(data.len() as u32), payload_of(&[false; 16], cookie));
                    }
                    events.push(format!("{event:?}"));
                }
                Ok(None) => break,
                Err(e) => {
                    events.push(e.to_string());
                    return events;
                }
            }
        }
    }
    events
}

pub(super) fn run(input: &[u8]) {
    let [mode, cut, input @ ..] = input else { return };
    let cuts = [*cut, cut.wrapping_mul(7), 0];
    let made = cut % 2 == 0;
    let version = if mode & NEWEST == 0 { Version::Two } else { Version::Three };
    let counting = if mode & COUNTED == 0 { Counting::None } else { Counting::Agreed(version) };
    match mode % 3 {
        0 => {
            let (chunks, context) = (option::STRUCTURED_REPLY, option::SET_META_CONTEXT);
            let (style, asked): (_, &[u32]) = match (counting, mode / 3 % 3) {
                (Counting::None, 0) => (ReplyStyle::Simple, &[]),
                (Counting::None, 1) => (ReplyStyle::Structured, &[chunks]),
                (Counting::None, _) => (ReplyStyle::Allocation, &[chunks, context, context]),
                (Counting::Agreed(_), 0) => (ReplyStyle::Counted(None), &[counters::OPTION]),
                (Counting::Agreed(_), 1) => {
                    (ReplyStyle::CountedAllocation(None), &[counters::OPTION, context, context])
                }
                (Counting::Agreed(_), _) => (
                    ReplyStyle::CountedAllocation(None),
                    &[counters::OPTION, chunks, context, context],
                ),
            };
            let stream = if made { handshake(input, asked) } else { input.to_vec() };
            check_handshake(&stream, style, &cuts);
        }
        1 => {
            let stream = if made { replies(counting, input) } else { input.to_vec() };
            let whole = receive(counting, &stream, &[]);
            assert_eq!(whole, receive(counting, &stream, &cuts));
            if made {
                assert_eq!(whole, told(counting, input));
            }
        }
        _ if mode & PLACED != 0 => {
            let form = match counting {
                Counting::None => Form::Structured { allocation: Some(CONTEXT) },
                Counting::Agreed(version) => Form::Counted { version, allocation: Some(CONTEXT) },
            };
            let stream = if made { chunks(counting, input) } else { input.to_vec() };
            assert_eq!(place(form, &stream, &[]), place(form, &stream, &cuts));
        }
        _ => {
            let stream = if made { chunks(Counting::None, input) } else { input.to_vec() };
            assert_eq!(events(&stream, &[]), events(&stream, &cuts));
        }
    }
}
