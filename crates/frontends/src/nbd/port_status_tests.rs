//! Block status with several contexts, against what the disk and the bitmaps hold byte by byte.

use super::super::super::bitmaps::tests::{bitmap, changed};
use super::super::super::harness::{Harness, Outcome};
use super::super::tests::{request, with_flags};
use headgate_engine::request::IoError;
use headgate_nbd::server::command::{Replies, Session};
use headgate_nbd::server::contexts::{ContextId, Contexts};
use headgate_nbd::wire::command;

const GRAIN: usize = 64 << 10;
/// Not a whole number of grains.
const SIZE: usize = 10 * GRAIN + 1024;
const REQ_ONE: u16 = 8;

/// A chunk: done or not, its context, and extents by length and state.
type Chunk = (bool, u32, Vec<(u32, u32)>);

fn chunks(mut bytes: &[u8]) -> Vec<Chunk> {
    let word = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut all = Vec::new();
    while !bytes.is_empty() {
        assert_eq!((word(bytes, 0), bytes[4], bytes[6..8] == [0, 5]), (0x668e_33ef, 0, true));
        let (payload, rest) = bytes[20..].split_at(word(bytes, 16) as usize);
        let extents = payload[4..].chunks(8).map(|e| (word(e, 0), word(e, 4))).collect();
        all.push((bytes[5] == 1, word(payload, 0), extents));
        bytes = rest;
    }
    all
}

fn session(ids: &[u32]) -> Session {
    let id = |id: &u32| match id {
        1 => ContextId::BASE_ALLOCATION,
        _ => ContextId::of_bitmap(*id as usize - 2).unwrap(),
    };
    let contexts = ids.iter().map(id).fold(Contexts::NONE, Contexts::with);
    Session { replies: Replies::Structured, contexts }
}

/// Grains that each bitmap calls dirty; the disk holds data in the second and third.
const DIRTY: [&[usize]; 2] = [&[1, 2, 3, 10], &[0, 4, 5, 9]];
const DATA: std::ops::Range<usize> = GRAIN..3 * GRAIN;

fn harness(ids: &[u32]) -> Harness {
    let mut harness = Harness::new(session(ids), SIZE, 8, &[]);
    harness.shard.content[DATA].fill(1);
    let grains = |which: usize| DIRTY[which].iter().map(|grain| *grain as u64);
    let changes = |which| changed(SIZE as u64, grains(which));
    harness.know_bitmaps(vec![bitmap("a", changes(0)), bitmap("b", changes(1))]);
    harness
}

/// What a context says about a byte.
fn state(id: u32, at: usize) -> u32 {
    match id {
        1 if DATA.contains(&at) => 0,
        1 => 3,
        _ => u32::from(DIRTY[id as usize - 2].contains(&(at / GRAIN))),
    }
}

/// The runs of a range, found byte by byte.
fn runs(id: u32, offset: usize, len: usize) -> Vec<(u32, u32)> {
    let mut all: Vec<(u32, u32)> = Vec::new();
    for at in offset..offset + len {
        let is = state(id, at);
        match all.last_mut() {
            Some((len, state)) if *state == is => *len += 1,
            _ => all.push((1, is)),
        }
    }
    all
}

fn ask(ids: &[u32], flags: u16, offset: usize, len: usize) -> Vec<Chunk> {
    let mut harness = harness(ids);
    harness.send(&with_flags(flags, command::BLOCK_STATUS, 1, offset as u64, len as u32));
    harness.settle();
    chunks(&harness.output)
}

#[test]
fn each_selected_context_has_a_chunk_that_is_true() {
    let ranges = [
        (0, SIZE),
        // Begins and ends inside runs.
        (GRAIN + 512, 2 * GRAIN),
        (3 * GRAIN, 512),
        // The client counts in bytes.
        (2 * GRAIN - 1, 2),
        (GRAIN + 3, 5 * GRAIN + 7),
        (10 * GRAIN - 1, 2),
        (SIZE - 1, 1),
    ];
    for ids in [&[1, 2][..], &[1, 3], &[2], &[3], &[2, 3], &[1, 2, 3], &[1]] {
        for (offset, len) in ranges {
            let all: Vec<_> = ids.iter().map(|id| runs(*id, offset, len)).collect();
            let last = ids.len() - 1;
            let expected = |cut: usize| -> Vec<Chunk> {
                let chunk = |(at, id): (usize, &u32)| {
                    (at == last, *id, all[at].iter().take(cut).copied().collect())
                };
                ids.iter().enumerate().map(chunk).collect()
            };
            let asked = format!("{ids:?} at {offset}, {len} bytes");
            assert_eq!(ask(ids, 0, offset, len), expected(usize::MAX), "{asked}");
            assert_eq!(ask(ids, REQ_ONE, offset, len), expected(1), "{asked}");
        }
    }
}

#[test]
fn a_request_takes_its_way_through_the_disk_whatever_is_selected() {
    for ids in [&[2][..], &[1, 2]] {
        let mut harness = harness(ids);
        harness.send(&request(command::BLOCK_STATUS, 1, 0, SIZE as u32));
        assert_eq!(harness.shard.queue.len(), 1);
        harness.read();
        assert!(harness.output.is_empty(), "the disk has not answered");
        // A failure is one answer for all of it.
        harness.complete(0, Outcome::Failed(IoError::Backend(5)));
        harness.settle();
        let head = [0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1];
        assert_eq!(harness.output[..8], head);
        let message = u16::from_be_bytes([harness.output[24], harness.output[25]]);
        assert_eq!(harness.output.len(), 26 + usize::from(message));
    }
}

#[test]
fn a_storage_without_extents_says_nothing_about_changes() {
    let mut harness = harness(&[1, 2]);
    harness.send(&request(command::BLOCK_STATUS, 1, 0, 4 * GRAIN as u32));
    harness.complete(0, Outcome::Failed(IoError::Unsupported));
    harness.settle();
    let expected = [(false, 1, vec![(4 * GRAIN as u32, 0)]), (true, 2, runs(2, 0, 4 * GRAIN))];
    assert_eq!(chunks(&harness.output), expected);
}

#[test]
fn what_no_bitmap_knows_counts_as_dirty() {
    let grain = GRAIN as u32;
    let mut harness = Harness::new(session(&[2, 3]), SIZE, 8, &[]);
    // The disk was smaller then; and a bitmap that is not there is an error of ours.
    harness.know_bitmaps(vec![bitmap("a", changed(2 * GRAIN as u64, []))]);
    harness.send(&request(command::BLOCK_STATUS, 1, GRAIN as u64, 4 * grain));
    harness.settle();
    let expected = [(false, 2, vec![(grain, 0), (3 * grain, 1)]), (true, 3, vec![(4 * grain, 1)])];
    assert_eq!(chunks(&harness.output), expected);
}

#[test]
fn an_answer_with_every_context_is_no_longer_than_one_with_one() {
    let ids: Vec<u32> = (1..=63).collect();
    let size = 2000 * GRAIN;
    let mut harness = Harness::new(session(&ids), size, 8, &[]);
    let changes = changed(size as u64, (0..2000).step_by(2));
    let one = |i: u32| bitmap(&format!("b{i}"), changes.clone());
    harness.know_bitmaps((0..62).map(one).collect());
    harness.send(&request(command::BLOCK_STATUS, 1, 0, size as u32));
    harness.settle();
    let chunks = chunks(&harness.output);
    assert!(chunks.iter().map(|(_, id, _)| *id).eq(1..=63));
    assert!(chunks[1..].iter().all(|(_, _, extents)| extents.len() == 512 / 63));
    assert!(harness.output.len() < 512 * 8 + 63 * 24 + 64, "{}", harness.output.len());
}
