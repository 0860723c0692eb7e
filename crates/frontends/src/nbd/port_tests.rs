use super::super::harness::{Harness, Outcome, PIECE};
use super::*;
use headgate_engine::request::IoError;
use headgate_nbd::server::command::Replies;
use headgate_nbd::server::contexts::Contexts;
use headgate_nbd::wire::{
    REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, command,
};
use headgate_qos::ioprio::Ioprio;
use headgate_units::Priority;
use std::collections::HashMap;

pub(super) const STRUCTURED: Session =
    Session { replies: Replies::Structured, contexts: Contexts::BASE_ALLOCATION };
pub(super) const SIMPLE: Session = Session { replies: Replies::Simple, contexts: Contexts::NONE };
pub(super) const DISK: usize = 1 << 20;

pub(super) fn request(kind: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    with_flags(0, kind, cookie, offset, len)
}

pub(super) fn with_flags(flags: u16, kind: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

pub(super) fn write(cookie: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    [request(command::WRITE, cookie, offset, data.len() as u32), data.to_vec()].concat()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Data(Vec<u8>),
    Status(Vec<(u32, u32)>),
    Error(u32),
}

/// The answers in `output`. `reads` knows how much data follows a simple answer.
pub(super) fn answers(mut output: &[u8], reads: &HashMap<u64, u32>) -> Vec<(u64, Answer)> {
    let mut all = Vec::new();
    let word = |b: &[u8]| u32::from_be_bytes(b[..4].try_into().unwrap());
    while !output.is_empty() {
        let cookie = u64::from_be_bytes(output[8..16].try_into().unwrap());
        let answer;
        match word(output) {
            SIMPLE_REPLY_MAGIC => {
                let (error, len) = (word(&output[4..]), reads.get(&cookie).copied());
                output = &output[16..];
                answer = match (error, len) {
                    (0, Some(len)) => {
                        let (data, rest) = output.split_at(len as usize);
                        output = rest;
                        Answer::Data(data.to_vec())
                    }
                    (0, None) => Answer::Done,
                    (code, _) => Answer::Error(code),
                };
            }
            STRUCTURED_REPLY_MAGIC => {
                let kind = u16::from_be_bytes([output[6], output[7]]);
                let (payload, rest) = output[20..].split_at(word(&output[16..]) as usize);
                output = rest;
                answer = match kind {
                    chunk::OFFSET_DATA => Answer::Data(payload[8..].to_vec()),
                    chunk::BLOCK_STATUS => Answer::Status(
                        payload[4..].chunks(8).map(|d| (word(d), word(&d[4..]))).collect(),
                    ),
                    chunk::ERROR => Answer::Error(word(payload)),
                    other => panic!("chunk {other}"),
                };
            }
            magic => panic!("magic {magic:x}"),
        }
        all.push((cookie, answer));
    }
    all
}

pub(super) fn structured(harness: &Harness) -> Vec<(u64, Answer)> {
    answers(&harness.output, &HashMap::new())
}

#[test]
fn what_was_written_is_read_back() {
    for len in [512, 4096, 31 << 10, 32 << 10, 400 << 10] {
        let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
        let data: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let bytes = [write(1, 4096, &data), request(command::FLUSH, 2, 0, 0)].concat();
        assert_eq!(harness.send(&bytes), bytes.len());
        harness.settle();
        harness.send(&request(command::READ, 3, 4096, len));
        harness.settle();
        let expected = [(1, Answer::Done), (2, Answer::Done), (3, Answer::Data(data))];
        assert_eq!(structured(&harness), expected);
    }
}

#[test]
fn many_requests_in_one_receive_are_answered_in_one_message() {
    let mut harness = Harness::new(STRUCTURED, DISK, 64, &[]);
    let bytes: Vec<u8> = (0..32).flat_map(|i| request(command::READ, i, i * 4096, 4096)).collect();
    assert_eq!(harness.send_once(&bytes), bytes.len());
    assert_eq!(harness.shard.queue.len(), 32);
    while !harness.shard.queue.is_empty() {
        harness.complete(0, Outcome::Served);
    }
    // The first answer leaves alone, the others gather behind it.
    assert!(harness.read());
    assert!(harness.read());
    assert!(!harness.read());
    assert_eq!(structured(&harness).len(), 32);
}

#[test]
fn requests_that_came_with_the_last_option_are_served() {
    let early = [request(command::READ, 7, 0, 512), request(command::READ, 8, 512, 512)].concat();
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &early[..40]);
    harness.send(&early[40..]);
    harness.settle();
    assert_eq!(structured(&harness).len(), 2);
}

#[test]
fn requests_carry_the_priority_of_their_export_as_it_is_when_they_are_taken() {
    let map = headgate_qos::ioprio::IoprioMap::default();
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    let tag = Tag::none();
    harness.carry(tag.clone());
    harness.send(&request(command::READ, 1, 0, 512));
    for (cookie, priority) in [(2, 254), (3, 7)] {
        tag.set(Priority::new(priority).unwrap());
        harness.send(&request(command::READ, cookie, 0, 512));
    }
    let given = harness.shard.queue.iter().map(|queued| map.given(Ioprio(queued.request.ioprio)));
    assert_eq!(given.map(|p| p.map(Priority::get)).collect::<Vec<_>>(), [None, Some(254), Some(7)]);
}

#[test]
fn a_full_disk_queue_leaves_requests_where_they_are() {
    let mut harness = Harness::new(STRUCTURED, DISK, 2, &[]);
    let bytes: Vec<u8> = (0..5).flat_map(|i| request(command::READ, i, 0, 512)).collect();
    harness.send(&bytes);
    assert_eq!(harness.shard.queue.len(), 2);
    harness.complete(1, Outcome::Served);
    assert_eq!(harness.shard.queue.len(), 2);
    harness.settle();
    assert_eq!(
        structured(&harness).iter().map(|(cookie, _)| *cookie).collect::<Vec<_>>(),
        [1, 0, 2, 3, 4]
    );
}

#[test]
fn a_client_that_does_not_read_stops_only_being_served() {
    let mut harness = Harness::new(STRUCTURED, DISK, 4096, &[]);
    let one = request(command::READ, 1, 0, 65536);
    let mut sent = 0;
    loop {
        let bytes: Vec<u8> = one.iter().copied().cycle().take(one.len() * 1000).collect();
        let taken = harness.send(&bytes);
        sent += taken;
        while !harness.shard.queue.is_empty() {
            harness.complete(0, Outcome::Served);
        }
        if taken < bytes.len() {
            break;
        }
    }
    // What it may hold: the answers that are owed, and an inbox.
    assert!(sent < 1100 * one.len() + (300 << 10), "{sent}");
    assert!(!harness.shard.closed);
    while harness.read() || !harness.shard.queue.is_empty() {
        harness.settle();
    }
    assert!(harness.send(&one) > 0, "it reads again, and is served again");
}

#[test]
fn a_client_that_sends_only_nonsense_is_bounded_too() {
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    let bytes: Vec<u8> = (0..40_000).flat_map(|i| request(command::READ, i, 1, 1)).collect();
    let sent = harness.send(&bytes);
    assert!(sent < MAX_OUTSTANDING * 28 + (300 << 10), "{sent}");
}

#[test]
fn the_longest_requests_wait_for_buffers() {
    let size = 64 << 20;
    let mut harness = Harness::new(STRUCTURED, size, 64, &[]);
    let bytes: Vec<u8> = (0..5).flat_map(|i| request(command::READ, i, 0, 32 << 20)).collect();
    harness.send(&bytes);
    assert_eq!(harness.shard.queue.len(), 2);
    harness.settle();
    assert_eq!(structured(&harness).len(), 5);
}

#[test]
fn long_ranges_without_data_go_down_in_pieces() {
    let mut harness = Harness::new(STRUCTURED, DISK, 1, &[]);
    harness.shard.content.fill(1);
    harness.send(&request(command::WRITE_ZEROES, 1, 512, DISK as u32 - 1024));
    harness.send(&request(command::TRIM, 2, 0, 512));
    let mut longest = 0;
    while !harness.shard.queue.is_empty() {
        longest = longest.max(harness.complete(0, Outcome::Served).len);
        harness.read();
    }
    assert_eq!(longest, u64::from(PIECE));
    assert_eq!(structured(&harness), [(1, Answer::Done), (2, Answer::Done)]);
    assert!(harness.shard.content[..DISK - 512].iter().all(|&byte| byte == 0));
    assert_eq!(harness.shard.content[DISK - 512..], [1; 512]);
}

#[test]
fn long_writes_are_received_into_their_buffers() {
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    let one = write(1, 0, &[7; 64 << 10]);
    harness.send(&one);
    harness.shard.longest_receive = 0;
    // Now that the client sends long writes, a receive for the head takes little else.
    let sent = harness.send_once(&write(2, 0, &[8; 64 << 10]));
    assert_eq!(sent, SHORT_RECEIVE);
    assert_eq!(harness.shard.longest_receive, (64 << 10) + 28 - SHORT_RECEIVE);
    harness.send(&write(2, 0, &[8; 64 << 10])[sent..]);
    harness.settle();
    assert_eq!(harness.shard.content[..64 << 10], [8; 64 << 10]);
}

#[test]
fn a_payload_keeps_its_order_while_a_piece_waits_for_room() {
    let mut harness = Harness::new(STRUCTURED, DISK, 2, &[]);
    let data: Vec<u8> = (0..64 << 10).map(|i| (i % 251) as u8).collect();
    let long = write(4, 0, &data);
    let mut bytes = request(command::TRIM, 1, 512 << 10, 3 * PIECE);
    bytes.extend(request(command::READ, 2, 0, 512));
    bytes.extend(request(command::READ, 3, 0, 512));
    bytes.extend(&long[..1000]);
    harness.send(&bytes);
    // The second read gets its room, and the write is begun while a receive is under way.
    harness.complete(1, Outcome::Served);
    // Other clients of the disk take the room that the first piece leaves.
    harness.set_depth(1);
    harness.complete(0, Outcome::Served);
    harness.send_once(&long[1000..3000]);
    harness.send(&long[3000..]);
    harness.set_depth(4);
    harness.settle();
    assert_eq!(structured(&harness).len(), 4);
    assert!(harness.shard.content[..64 << 10] == data);
}

#[test]
fn block_status_reports_extents_as_asked() {
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    harness.shard.content[8192..12288].fill(1);
    harness.send(&request(command::BLOCK_STATUS, 1, 4096, 65536));
    let mut one = request(command::BLOCK_STATUS, 2, 4096, 65536);
    one[5] = 8;
    harness.send(&one);
    harness.settle();
    let all = vec![(4096, 3), (4096, 0), (57344, 3)];
    let expected = [(1, Answer::Status(all)), (2, Answer::Status(vec![(4096, 3)]))];
    assert_eq!(structured(&harness), expected);
}

#[test]
fn failures_reach_the_client_as_errors_of_that_request_alone() {
    let cases = [
        (command::READ, 0, IoError::Backend(libc::EIO), Answer::Error(5)),
        (command::WRITE_ZEROES, 0, IoError::NoSpace, Answer::Error(28)),
        (command::WRITE_ZEROES, 16, IoError::Unsupported, Answer::Error(95)),
        (command::WRITE_ZEROES, 0, IoError::Unsupported, Answer::Error(5)),
        (command::TRIM, 0, IoError::Unsupported, Answer::Done),
        (command::CACHE, 0, IoError::Unsupported, Answer::Done),
        (command::BLOCK_STATUS, 0, IoError::Unsupported, Answer::Status(vec![(4096, 0)])),
        (command::READ, 0, IoError::Invalid, Answer::Error(22)),
    ];
    for (kind, flags, error, expected) in cases {
        let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
        let mut bytes = request(kind, 1, 0, 4096);
        bytes[5] = flags;
        bytes.extend(request(command::READ, 2, 0, 512));
        harness.send(&bytes);
        harness.complete(0, Outcome::Failed(error));
        harness.settle();
        assert_eq!(structured(&harness), [(1, expected), (2, Answer::Data(vec![0; 512]))]);
    }
}

#[test]
fn a_failed_simple_read_has_no_data_behind_it() {
    let mut harness = Harness::new(SIMPLE, DISK, 8, &[]);
    harness.send(&request(command::READ, 1, 0, 4096));
    harness.complete(0, Outcome::Failed(IoError::Backend(libc::EIO)));
    harness.settle();
    assert_eq!(answers(&harness.output, &HashMap::from([(1, 4096)])), [(1, Answer::Error(5))]);
}

#[test]
fn disconnect_answers_first_and_takes_nothing_more() {
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    let mut bytes = request(command::READ, 1, 0, 512);
    bytes.extend(request(command::DISC, 0, 0, 0));
    bytes.extend(request(command::READ, 2, 0, 512));
    harness.send(&bytes);
    assert!(!harness.shard.closed);
    harness.complete(0, Outcome::Served);
    assert!(!harness.shard.closed);
    harness.read();
    assert!(harness.shard.closed);
    assert_eq!(structured(&harness).len(), 1);
}

#[test]
fn a_hang_up_closes_at_once() {
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    harness.send(&request(command::READ, 1, 0, 512));
    harness.hang_up();
    assert!(harness.shard.closed);
    // A completion that was on its way changes nothing.
    harness.complete(0, Outcome::Served);
    assert!(harness.output.is_empty());
}

#[test]
fn a_hang_up_is_seen_behind_what_cannot_be_received() {
    let mut harness = Harness::new(STRUCTURED, DISK, 4, &[]);
    let burst: Vec<u8> = (0..1000).flat_map(|i| write(i, 0, &[1; 4096])).collect();
    assert!(harness.send(&burst) < burst.len(), "all of it fits");
    harness.hang_up();
    assert!(harness.shard.closed);
}

#[test]
fn after_a_watch_the_port_receives_again() {
    let mut harness = Harness::new(STRUCTURED, DISK, 4, &[]);
    let burst: Vec<u8> = (0..1000).flat_map(|i| write(i, 0, &[1; 4096])).collect();
    let mut sent = 0;
    while sent < burst.len() {
        sent += harness.send(&burst[sent..]);
        harness.settle();
    }
    harness.settle();
    assert_eq!(structured(&harness).len(), 1000);
}

#[test]
fn a_connection_waits_for_the_last_requests_of_those_before_it() {
    let draining = Arc::new(Draining::default());
    let mut old = Harness::after(draining.clone(), STRUCTURED, DISK, 4, &[]);
    old.send(&write(1, 0, &[1; 4096]));
    old.hang_up();
    let request = request(command::READ, 2, 0, 512);
    let mut new = Harness::after(draining.clone(), STRUCTURED, DISK, 4, &request);
    assert!(new.shard.queue.is_empty());
    assert_eq!(new.send(&request), 0);
    // The old port is dropped when its requests have ended.
    drop(old);
    draining.wait();
    new.start();
    new.settle();
    assert_eq!(structured(&new).len(), 1);
    let mut drained = Harness::after(draining.clone(), STRUCTURED, DISK, 4, &request);
    drained.settle();
    assert_eq!(structured(&drained).len(), 1, "nothing to wait for");
}

#[test]
fn draining_answers_what_was_taken_and_nothing_else() {
    let mut harness = Harness::new(STRUCTURED, DISK, 1, &[]);
    let half = write(3, 0, &[1; 1024]);
    let bytes = [
        request(command::READ, 1, 0, 512),
        request(command::READ, 2, 0, 512),
        half[..500].to_vec(),
    ]
    .concat();
    harness.send(&bytes);
    harness.detach(Detach::Drain);
    assert!(!harness.shard.closed);
    harness.settle();
    assert!(harness.shard.closed);
    assert_eq!(structured(&harness), [(1, Answer::Data(vec![0; 512]))]);
    let mut idle = Harness::new(STRUCTURED, DISK, 1, &[]);
    idle.detach(Detach::Drain);
    assert!(idle.shard.closed);
}

#[test]
fn draining_does_not_wait_for_what_the_disk_holds() {
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    harness.shard.holds = true;
    harness.send(&[write(1, 0, &[1; 512]), write(2, 512, &[1; 512])].concat());
    harness.detach(Detach::Drain);
    harness.fail_given_up();
    while harness.read() {}
    assert!(harness.shard.closed);
    assert_eq!(structured(&harness), [(1, Answer::Error(28)), (2, Answer::Error(28))]);
}

#[test]
fn a_client_that_says_goodbye_does_not_wait_for_what_the_disk_holds() {
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    harness.shard.holds = true;
    harness.send(&[write(1, 0, &[1; 512]), request(command::DISC, 2, 0, 0)].concat());
    harness.fail_given_up();
    harness.read();
    assert!(harness.shard.closed);
}

#[test]
fn a_client_out_of_step_is_dropped() {
    let mut harness = Harness::new(STRUCTURED, DISK, 8, &[]);
    harness.send(&[0; 28]);
    assert!(harness.shard.closed);
}

/// A disk that lends, with bytes that tell where they lie.
pub(super) fn splicing(depth: usize) -> Harness {
    let mut harness = Harness::splicing(STRUCTURED, DISK, depth);
    for (i, byte) in harness.shard.content.iter_mut().enumerate() {
        *byte = (i % 251) as u8 ^ (i >> 12) as u8;
    }
    harness
}

#[test]
fn a_client_that_does_not_read_lent_answers_waits_alone_and_gets_them_whole() {
    let mut harness = splicing(64);
    let len = 256 << 10;
    for cookie in 0..40 {
        harness.send(&request(command::READ, cookie, 4096 * cookie, len));
    }
    while !harness.shard.queue.is_empty() {
        harness.complete(0, Outcome::Served);
    }
    assert!(harness.output.is_empty() && !harness.shard.closed);
    harness.settle();
    let answers = structured(&harness);
    assert_eq!(answers.len(), 40);
    for (cookie, answer) in answers {
        let start = 4096 * cookie as usize;
        let held = harness.shard.content[start..start + len as usize].to_vec();
        assert!(answer == Answer::Data(held), "answer {cookie}");
    }
}

#[test]
fn an_image_that_ends_before_a_promised_answer_ends_the_connection() {
    let mut harness = splicing(8);
    harness.send(&request(command::READ, 1, 65536, 128 << 10));
    harness.shard.end = 100_000;
    harness.complete(0, Outcome::Served);
    harness.settle();
    assert!(harness.shard.closed);
}

#[test]
fn a_client_that_goes_away_under_a_lent_answer_ends_the_connection() {
    let mut harness = splicing(8);
    for cookie in 0..8 {
        harness.send(&request(command::READ, cookie, 0, 256 << 10));
    }
    while !harness.shard.queue.is_empty() {
        harness.complete(0, Outcome::Served);
    }
    harness.hang_up();
    assert!(harness.shard.closed);
}

#[path = "port_properties.rs"]
mod properties;
