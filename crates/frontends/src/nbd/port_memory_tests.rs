//! What connections hold, and what their neighbours get meanwhile.

use super::super::super::budget::{Budget, CHUNK};
use super::super::super::harness::{Harness, Outcome};
use headgate_engine::request::{IoError, Op};
use headgate_nbd::server::command::{Replies, Session};
use headgate_nbd::server::contexts::Contexts;
use headgate_nbd::wire::{REQUEST_MAGIC, command};
use proptest::prelude::*;
use std::sync::Arc;

const SIMPLE: Session = Session { replies: Replies::Simple, contexts: Contexts::NONE };
const DISK: usize = 4 << 20;
const LONG: u32 = 1 << 20;

fn request(kind: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8 ^ (n >> 12) as u8 ^ seed).collect()
}

fn write(cookie: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    [request(command::WRITE, cookie, offset, data.len() as u32), data.to_vec()].concat()
}

fn connect(budget: &Arc<Budget>, disk: &str) -> Harness {
    let mut harness = Harness::within(budget.account(disk), SIMPLE, DISK, 64);
    harness.shard.content = pattern(DISK, 0);
    harness
}

/// Sends all of it, whatever the disk and the client's reading need in between.
fn send_all(harness: &mut Harness, bytes: &[u8]) {
    let mut sent = 0;
    for _ in 0..100_000 {
        sent += harness.send(&bytes[sent..]);
        harness.settle();
        if sent == bytes.len() {
            return;
        }
    }
    panic!("the port stands still at {sent} of {}", bytes.len());
}

/// Four clients of as many disks, which take all that there is: answers that they do not collect,
/// and payloads that never end.
fn hog(budget: &Arc<Budget>) -> Vec<Harness> {
    let one = |disk: usize| {
        let mut hog = connect(budget, &format!("hog{disk}"));
        if disk.is_multiple_of(2) {
            for cookie in 0..64 {
                hog.send(&request(command::READ, cookie, 0, LONG));
            }
            while !hog.shard.queue.is_empty() {
                hog.complete(0, Outcome::Served);
            }
        } else {
            for cookie in 0..64 {
                hog.send(&write(cookie, 0, &[1; LONG as usize]));
            }
            hog.send(&request(command::WRITE, 99, 0, LONG)[..27]);
        }
        hog
    };
    (0..4).map(one).collect()
}

#[test]
fn while_others_hold_all_memory_a_neighbour_is_answered_whatever_it_asks() {
    let budget = Budget::new(16 * LONG as usize);
    let hogs = hog(&budget);
    assert!(budget.used() <= budget.most() && budget.used() > budget.most() / 8 * 7);
    let mut neighbour = connect(&budget, "neighbour");
    let data = pattern(LONG as usize + 512, 9);
    let bytes = [
        request(command::READ, 1, 4096, 4096),
        request(command::READ, 2, 512, LONG + 512),
        write(3, 8192, &data),
        request(command::FLUSH, 4, 0, 0),
        request(command::READ, 5, 8192, data.len() as u32),
    ]
    .concat();
    send_all(&mut neighbour, &bytes);
    let before = pattern(DISK, 0);
    let head =
        |cookie: u64| [&0x6744_6698u32.to_be_bytes()[..], &[0; 4], &cookie.to_be_bytes()].concat();
    let expected = [
        head(1),
        before[4096..8192].to_vec(),
        head(2),
        before[512..512 + LONG as usize + 512].to_vec(),
        head(3),
        head(4),
        head(5),
        data,
    ]
    .concat();
    assert!(neighbour.output == expected, "{} bytes", neighbour.output.len());
    assert!(hogs.iter().all(|hog| !hog.shard.closed));
    drop((hogs, neighbour));
    assert_eq!(budget.used(), 0);
}

#[test]
fn one_disks_clients_leave_memory_for_others() {
    let budget = Budget::new(16 * LONG as usize);
    let greedy: Vec<_> = (0..8)
        .map(|_| {
            let mut hog = connect(&budget, "greedy");
            hog.send(&request(command::READ, 1, 0, LONG));
            hog.send(&request(command::READ, 2, 0, LONG));
            hog.complete(0, Outcome::Served);
            hog
        })
        .collect();
    assert!(budget.used() <= budget.most() / 4);
    let mut neighbour = connect(&budget, "neighbour");
    neighbour.send(&request(command::READ, 1, 0, LONG));
    assert_eq!(neighbour.shard.queue[0].request.len, u64::from(LONG), "in one piece");
    drop(greedy);
}

#[test]
fn a_failed_part_fails_its_write_alone_and_ends_a_read_that_was_begun() {
    let budget = Budget::new(0);
    let mut harness = connect(&budget, "disk");
    let bytes = write(1, 0, &pattern(4 * CHUNK, 3));
    let mut sent = harness.send(&bytes);
    harness.complete(0, Outcome::Served);
    sent += harness.send(&bytes[sent..]);
    harness.complete(0, Outcome::Failed(IoError::NoSpace));
    send_all(&mut harness, &bytes[sent..]);
    assert_eq!(harness.output[4..16], [0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(harness.output.len(), 16);
    harness.send(&request(command::READ, 2, 0, 4 * CHUNK as u32));
    harness.complete(0, Outcome::Failed(IoError::Backend(5)));
    harness.settle();
    assert_eq!(harness.output.len(), 32, "nothing was promised: an error");
    harness.send(&request(command::READ, 3, 0, 4 * CHUNK as u32));
    harness.complete(0, Outcome::Served);
    harness.read();
    harness.complete(0, Outcome::Failed(IoError::Backend(5)));
    assert!(harness.shard.closed);
}

#[test]
fn parts_that_are_given_up_are_never_answered() {
    let budget = Budget::new(0);
    let mut harness = connect(&budget, "disk");
    harness.send(&request(command::READ, 1, 0, 4 * CHUNK as u32));
    harness.detach(headgate_engine::port::Detach::Drain);
    harness.settle();
    assert!(harness.shard.closed && harness.output.is_empty());
}

#[test]
fn an_idle_connection_gives_its_memory_back_and_goes_on() {
    let budget = Budget::new(16 * LONG as usize);
    let mut harness = connect(&budget, "disk");
    // Enough small writes in one piece to fill the inbox, and a long one.
    let burst: Vec<u8> = (0..64).flat_map(|n| write(n, n * 4096, &[5; 4096])).collect();
    send_all(&mut harness, &burst);
    send_all(&mut harness, &write(99, 0, &pattern(LONG as usize, 4)));
    assert!(budget.used() > LONG as usize, "{}", budget.used());
    harness.reclaim();
    assert_eq!(budget.used(), 0);
    let data = pattern(LONG as usize, 7);
    send_all(&mut harness, &[burst, write(100, 0, &data)].concat());
    assert!(harness.shard.content[..LONG as usize] == data);
    assert_eq!(harness.output.len(), 16 * (64 + 1 + 64 + 1));
}

#[test]
fn where_memory_is_short_a_connection_keeps_only_what_it_uses() {
    let budget = Budget::new(16 * LONG as usize);
    let _hogs = hog(&budget);
    let mut harness = connect(&budget, "disk");
    for cookie in 0..64 {
        harness.send(&request(command::READ, cookie, 0, CHUNK as u32));
    }
    let before = budget.used();
    harness.settle();
    assert!(budget.used() <= before);
    assert_eq!(harness.output.len(), 64 * (CHUNK + 16));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However little there is, whatever the order of the disk: a read gets what the disk held, and
    /// a write leaves what was sent.
    #[test]
    fn with_any_memory_every_request_is_answered_truly(
        chunks in 0..24usize,
        script in prop::collection::vec((any::<bool>(), 0..2048u64, 1..2048u32), 1..12),
        cuts in prop::collection::vec(1..200_000usize, 1..8),
    ) {
        let budget = Budget::new(chunks * CHUNK);
        let mut harness = connect(&budget, "disk");
        let mut held = pattern(DISK, 0);
        let mut expected = Vec::new();
        let mut cuts = cuts.iter().cycle();
        for (n, (writes, block, blocks)) in script.into_iter().enumerate() {
            let (start, len) = (block as usize * 512, blocks as usize * 512);
            let bytes = if writes {
                let data = pattern(len, n as u8);
                held[start..start + len].copy_from_slice(&data);
                write(n as u64, start as u64, &data)
            } else {
                request(command::READ, n as u64, start as u64, len as u32)
            };
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                send_all(&mut harness, now);
                rest = later;
            }
            expected.extend([&0x6744_6698u32.to_be_bytes()[..], &[0; 4]].concat());
            expected.extend((n as u64).to_be_bytes());
            if !writes {
                expected.extend(&held[start..start + len]);
            }
            prop_assert!(budget.used() <= budget.most());
        }
        prop_assert!(harness.output == expected);
        prop_assert!(harness.shard.content == held);
        prop_assert!(harness.shard.queue.iter().all(|queued| queued.request.op != Op::Flush));
    }
}
