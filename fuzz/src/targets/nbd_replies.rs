//! What a hostile server sends to a client, cut anywhere: never a panic, never a byte outside the
//! payload that it belongs to, and no reply to a request that is not outstanding.
//!
//! The first byte of the input chooses the part: the handshake, simple replies, or replies of
//! either form; the first two with counters or without. Each gets noise, or messages made from the
//! input, so that magic numbers and cookies fit and the code behind them is reached.

use headgate_nbd::client::handshake::{ExportInfo, Handshake, HandshakeError, ReplyStyle, Step};
use headgate_nbd::client::replies::{Event, Replies};
use headgate_nbd::client::structured::{self, ReplyBuffer};
use headgate_nbd::counters::{self, Counting, Received};
use headgate_nbd::wire::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
    be32, option, option_reply,
};

/// In the first byte of the input: with counters.
const COUNTED: u8 = 1 << 6;

/// How a handshake ended, whether client and server count, and what the client sent.
type Shaken = (Result<Option<ExportInfo>, HandshakeError>, Counting, Vec<u8>);

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
                    return (Ok(Some(info)), handshake.counters(), out);
                }
                Ok(other) => panic!("{other:?}"),
                Err(e) => return (Err(e), handshake.counters(), out),
            }
        }
    }
    (Ok(None), handshake.counters(), out)
}

/// Shakes hands with a server that says `stream`, and looks at what that came to.
fn check_handshake(stream: &[u8], style: ReplyStyle, cuts: &[u8]) {
    let whole = shake_hands(stream, style, &[]);
    assert_eq!(whole, shake_hands(stream, style, cuts));
    // Behind the greeting is the answer to what the client asked first.
    let (option, kind) = (be32(stream, 18 + 8), be32(stream, 18 + 12));
    let yes = (option, kind) == (Some(counters::OPTION), Some(option_reply::ACK));
    let (_, counting, sent) = whole;
    if counting == Counting::Agreed {
        assert!(matches!(style, ReplyStyle::Counted(_)) && yes, "nobody counts alone");
        assert!(
            be32(&sent, 28 + counters::OPTION_LEN) == Some(option::GO),
            "it goes on with the export"
        );
    }
}

/// A greeting, and answers whose types and data are the input's: the first one to the option
/// `asked`, the others to the choice of an export.
fn handshake(mut rest: &[u8], mut asked: u32) -> Vec<u8> {
    let mut stream = GREETING_MAGIC.to_be_bytes().to_vec();
    stream.extend(OPTION_MAGIC.to_be_bytes());
    stream.extend(3u16.to_be_bytes());
    while let [kind, len, tail @ ..] = rest {
        let (data, behind) = tail.split_at(usize::from(*len).min(tail.len()));
        stream.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        stream.extend(asked.to_be_bytes());
        asked = option::GO;
        let kind = u32::from(kind & 0x7f) | u32::from(kind & 0x80) << 24;
        stream.extend(kind.to_be_bytes());
        stream.extend((data.len() as u32).to_be_bytes());
        stream.extend(data);
        rest = behind;
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
    if counting == Counting::Agreed {
        received.all = u64::from(byte) << (byte % 57);
        received.by_reservation = received.all / u64::from(byte % 4 + 1);
        if byte & 0x2f == 0x2f {
            received.by_reservation = received.all + 1;
        }
    }
    let len = if error == 0 { payload_of(&[false; 16], cookie).unwrap_or(0) } else { 0 };
    (cookie, error, received, (0..len).map(|n| n as u8 ^ byte).collect())
}

/// Replies whose cookies, errors and order are the input's.
fn replies(counting: Counting, input: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for byte in input {
        let (cookie, error, received, payload) = reply(counting, *byte);
        stream.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
        stream.extend(error.to_be_bytes());
        stream.extend(cookie.to_be_bytes());
        if counting == Counting::Agreed {
            stream.extend(received.to_bytes());
        }
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
    reader.clear(counting);
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
            match reader.next(|cookie| payload_of(&ended, cookie)) {
                Ok(Some(Event::Data { cookie, at, bytes })) => {
                    assert!(most > lacks, "a payload that could have gone to its place");
                    payloads[cookie as usize][at as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                Ok(Some(Event::End { cookie, error, received })) => {
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

/// Replies of either form, whose types, lengths and cookies are the input's.
fn chunks(mut input: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let [kind, cookie, len, lie, rest @ ..] = input {
        let (data, behind) = rest.split_at(usize::from(len % 64).min(rest.len()));
        input = behind;
        if kind % 8 == 7 {
            stream.extend(replies(Counting::None, &[*cookie]));
            continue;
        }
        stream.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
        stream.extend(u16::from(kind >> 7).to_be_bytes());
        let kind = if kind % 8 >= 4 { 1 << 15 | u16::from(kind % 4) } else { u16::from(kind % 8) };
        stream.extend(kind.to_be_bytes());
        stream.extend(u64::from(cookie & 0x1f).to_be_bytes());
        let announced = data.len() as u32 + if lie % 16 == 15 { u32::from(*lie) << 8 } else { 0 };
        stream.extend(announced.to_be_bytes());
        stream.extend(data);
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
    let counting = if mode & COUNTED == 0 { Counting::None } else { Counting::Agreed };
    match mode % 3 {
        0 => {
            let styles = [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Allocation];
            let (style, asked) = match counting {
                Counting::None => (styles[usize::from(mode / 3 % 3)], option::GO),
                Counting::Agreed => (ReplyStyle::Counted(None), counters::OPTION),
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
        _ => {
            let stream = if made { chunks(input) } else { input.to_vec() };
            assert_eq!(events(&stream, &[]), events(&stream, &cuts));
        }
    }
}
