//! A connection in transmission: the input says what the client sends and reads, and when and how
//! the disk answers. The harness checks every request that reaches the disk; every answer must make
//! sense to a client.

use headgate_engine::ChangedBlocks;
use headgate_engine::port::Detach;
use headgate_engine::request::IoError;
use headgate_frontends::nbd::Bitmap;
use headgate_frontends::nbd::harness::{Harness, Outcome};
use headgate_nbd::server::command::{Replies, Session};
use headgate_nbd::server::contexts::{ContextId, Contexts};
use headgate_units::Bytes;
use std::sync::Arc;

/// The disk, in bytes: two grains of a bitmap, the second not whole.
const SIZE: u64 = 100 << 10;
/// The contexts that the client has selected: 1 and the numbers behind it.
const CONTEXTS: u32 = 3;

/// A bitmap of which the first grain is dirty, or none.
fn bitmap(name: &str, grains: u8) -> Bitmap {
    let changes = ChangedBlocks::from_bytes(Bytes(SIZE), &[grains, 0, 0, 0, 0, 0, 0, 0]);
    Bitmap::new(name.parse().expect("a name"), Arc::new(changes.expect("it fits")))
}

/// Answers in the structured form, of which the simple one is a part for requests without data.
fn check(mut output: &[u8]) {
    let word = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    // The context whose chunk comes next, of a block status that is under way.
    let mut next = 1;
    while !output.is_empty() {
        match word(output) {
            0x6744_6698 => {
                assert_eq!(next, 1, "an answer is whole before the next");
                assert_eq!(word(&output[4..]), 0, "errors are structured");
                output = &output[16..];
            }
            0x668e_33ef => {
                let (chunk, rest) = output.split_at(20 + word(&output[16..]) as usize);
                output = rest;
                if chunk[6..8] != [0, 5] {
                    assert_eq!((next, chunk[5]), (1, 1));
                    continue;
                }
                assert_eq!(word(&chunk[20..]), next, "the contexts come in order");
                assert_eq!(chunk[5] == 1, next == CONTEXTS, "the last chunk is the last");
                next = next % CONTEXTS + 1;
                assert!(chunk.len() >= 32);
                let lens = chunk[24..].chunks(8).map(|extent| u64::from(word(extent)));
                assert!(lens.clone().all(|len| len > 0) && lens.sum::<u64>() <= SIZE);
            }
            magic => panic!("magic {magic:x}"),
        }
    }
}

fn request(bytes: &[u8]) -> Vec<u8> {
    let [flags, kind, offset, len] = [0, 1, 2, 3].map(|i| bytes.get(i).copied().unwrap_or(0));
    let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
    request.extend([0, flags & 0x1f]);
    request.extend([0, kind & 7]);
    request.extend([kind; 8]);
    request.extend((u64::from(offset) * 512).to_be_bytes());
    // Long ranges without data: the harness makes pieces of them.
    let len = if kind & 7 == 1 { u32::from(len) * 256 } else { u32::from(len) * 512 };
    request.extend(len.to_be_bytes());
    if kind & 7 == 1 {
        request.resize(request.len() + len as usize, offset);
    }
    request
}

pub(super) fn run(input: &[u8]) {
    let Some((&depth, steps)) = input.split_first() else { return };
    let bitmaps = (0..CONTEXTS as usize - 1).filter_map(ContextId::of_bitmap);
    let contexts = bitmaps.fold(Contexts::BASE_ALLOCATION, Contexts::with);
    let session = Session { replies: Replies::Structured, contexts };
    let mut harness = Harness::new(session, SIZE as usize, usize::from(depth % 8) + 1, &[]);
    harness.know_bitmaps(vec![bitmap("a", 1), bitmap("b", 0)]);
    for step in steps.chunks(5) {
        let (what, rest) = (step[0], &step[1..]);
        match what % 8 {
            0..3 => drop(harness.send(&request(rest))),
            3 => drop(harness.send(rest)),
            4 | 5 if !harness.shard.queue.is_empty() => {
                let index = usize::from(what) % harness.shard.queue.len();
                let failures =
                    [IoError::Backend(5), IoError::NoSpace, IoError::Unsupported, IoError::Invalid];
                let outcome = if what % 8 == 4 {
                    Outcome::Served
                } else {
                    Outcome::Failed(failures[usize::from(what / 8) % 4])
                };
                harness.complete(index, outcome);
            }
            6 => drop(harness.read()),
            7 if what < 64 => harness.set_depth(usize::from(what / 8)),
            7 if what == 255 => harness.detach(Detach::Drain),
            7 if what == 247 => harness.hang_up(),
            _ => {}
        }
    }
    harness.settle();
    check(&harness.output);
}
