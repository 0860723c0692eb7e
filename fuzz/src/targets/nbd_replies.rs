//! What a hostile server sends to a client, cut anywhere: never a panic, never a byte outside the
//! payload that it belongs to, and no reply to a request that is not outstanding.
//!
//! The first byte of the input chooses the part: the handshake, simple replies, or replies of
//! either form. Each gets noise, or messages made from the input, so that magic numbers and cookies
//! fit and the code behind them is reached.

use headgate_nbd::client::handshake::{ExportInfo, Handshake, HandshakeError, ReplyStyle, Step};
use headgate_nbd::client::replies::{Event, Replies};
use headgate_nbd::client::structured::{self, ReplyBuffer};
use headgate_nbd::wire::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
    option,
};

/// Runs a handshake over the stream in cuts: how it ended, and what the client sent.
fn shake_hands(
    stream: &[u8],
    style: ReplyStyle,
    cuts: &[u8],
) -> (Result<Option<ExportInfo>, HandshakeError>, Vec<u8>) {
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
                Ok((_, Step::Transmission(info))) => return (Ok(Some(info)), out),
                Ok(other) => panic!("{other:?}"),
                Err(e) => return (Err(e), out),
            }
        }
    }
    (Ok(None), out)
}

/// A greeting, and answers to the option whose types and data are the input's.
fn handshake(mut rest: &[u8]) -> Vec<u8> {
    let mut stream = GREETING_MAGIC.to_be_bytes().to_vec();
    stream.extend(OPTION_MAGIC.to_be_bytes());
    stream.extend(3u16.to_be_bytes());
    while let [kind, len, tail @ ..] = rest {
        let (data, behind) = tail.split_at(usize::from(*len).min(tail.len()));
        stream.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        stream.extend(option::GO.to_be_bytes());
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

/// Replies whose cookies, errors and order are the input's.
fn replies(input: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for byte in input {
        let (cookie, error) = (u64::from(byte & 0x1f), u32::from(byte >> 6));
        stream.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
        stream.extend(error.to_be_bytes());
        stream.extend(cookie.to_be_bytes());
        if error == 0 {
            let len = payload_of(&[false; 16], cookie).unwrap_or(0);
            stream.extend((0..len).map(|n| n as u8 ^ *byte));
        }
    }
    stream
}

/// Receives the stream in cuts, and answers what ended, up to the first breach of the protocol.
fn receive(stream: &[u8], cuts: &[u8]) -> Vec<(u64, u32, Vec<u8>)> {
    let mut reader = Replies::new(256);
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
        let most = if cut.is_multiple_of(2) { reader.head_lacks() } else { usize::MAX };
        let spare = reader.spare(most);
        let buffered = (cut - direct).min(spare.len());
        assert!(!spare.is_empty());
        spare[..buffered].copy_from_slice(&rest[direct..direct + buffered]);
        reader.received(direct + buffered);
        rest = &rest[direct + buffered..];
        loop {
            match reader.next(|cookie| payload_of(&ended, cookie)) {
                Ok(Some(Event::Data { cookie, at, bytes })) => {
                    payloads[cookie as usize][at as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                Ok(Some(Event::End { cookie, error, .. })) => {
                    assert!(!ended[cookie as usize], "ended twice");
                    ended[cookie as usize] = true;
                    ends.push((cookie, error, std::mem::take(&mut payloads[cookie as usize])));
                }
                Ok(None) => break,
                Err(_) => return ends,
            }
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
            stream.extend(replies(&[*cookie]));
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
    match mode % 3 {
        0 => {
            let stream = if made { handshake(input) } else { input.to_vec() };
            let styles = [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Allocation];
            let style = styles[usize::from(mode / 3 % 3)];
            assert_eq!(shake_hands(&stream, style, &[]), shake_hands(&stream, style, &cuts));
        }
        1 => {
            let stream = if made { replies(input) } else { input.to_vec() };
            assert_eq!(receive(&stream, &[]), receive(&stream, &cuts));
        }
        _ => {
            let stream = if made { chunks(input) } else { input.to_vec() };
            assert_eq!(events(&stream, &[]), events(&stream, &cuts));
        }
    }
}
