//! A server's handshake and replies, as it likes them and however they are cut: never a panic, never a byte outside the payload that it
//! belongs to, and no reply to what was not asked.
//!
//! The first byte of the input chooses: the handshake, noise as replies, or replies made from the input, so that magic numbers and cookies
//! fit and what comes behind them is reached.

#![no_main]

use headgate_nbd::negotiate::{ReplyStyle, negotiate};
use headgate_nbd::replies::{Event, Replies};
use headgate_nbd::wire::{GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, SIMPLE_REPLY_MAGIC, option};
use libfuzzer_sys::fuzz_target;
use std::io::{self, Read, Write};

/// A server that says what it says and does not listen.
struct Deaf<'a>(&'a [u8]);

impl Read for Deaf<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Deaf<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
    free.then_some((cookie as u32) * 37)
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
            payloads[payload.cookie as usize][payload.at as usize..][..direct].copy_from_slice(&rest[..direct]);
        }
        let most = if cut % 2 == 0 { reader.head_lacks() } else { usize::MAX };
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
                Ok(Some(Event::End { cookie, error })) => {
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

fuzz_target!(|input: &[u8]| {
    let [mode, cut, input @ ..] = input else { return };
    match mode % 3 {
        0 => drop(negotiate(&mut Deaf(&handshake(input)), "x", ReplyStyle::Simple)),
        1 => drop(negotiate(&mut Deaf(input), "x", ReplyStyle::Simple)),
        _ => {
            let stream = if cut % 2 == 0 { replies(input) } else { input.to_vec() };
            assert_eq!(receive(&stream, &[]), receive(&stream, &[*cut, cut.wrapping_mul(7), 0]));
        }
    }
});
