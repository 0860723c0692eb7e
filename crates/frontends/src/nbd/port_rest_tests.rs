use super::super::super::budget::Budget;
use super::super::super::harness::{Harness, Outcome};
use super::super::tests::{Answer, DISK, STRUCTURED, answers, request, write};
use headgate_engine::port::{Detach, Rest};
use headgate_engine::request::Op;
use headgate_nbd::wire::command;
use std::collections::HashMap;

/// What a client sends: a long write, one of some bytes, short ones, reads, a flush.
fn stream() -> Vec<u8> {
    let long: Vec<u8> = (0..48 << 10).map(|at| (at % 251) as u8).collect();
    [
        write(1, 4096, &[3; 512]),
        write(2, 64 << 10, &long),
        request(command::READ, 3, 64 << 10, 48 << 10),
        write(4, 1000, &[7; 1100]),
        request(command::READ, 5, 1024, 512),
        request(command::FLUSH, 6, 0, 0),
        write(7, 4096, &[9; 512]),
        request(command::READ, 8, 4096, 512),
    ]
    .concat()
}

const READS: [(u64, u32); 3] = [(3, 48 << 10), (5, 512), (8, 512)];

/// The disk and the answers, sorted by cookie. Reads and writes of one range are some way apart.
type Outcomes = (Vec<u8>, Vec<(u64, Answer)>);

fn outcomes(harness: Harness) -> Outcomes {
    let mut got = answers(&harness.output, &HashMap::from(READS));
    got.sort_by_key(|(cookie, _)| *cookie);
    (harness.shard.content, got)
}

/// Sends all of it, as the port takes it.
fn send(harness: &mut Harness, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let sent = harness.send(bytes);
        bytes = &bytes[sent..];
        let before = harness.shard.queue.len();
        harness.settle();
        assert!(sent > 0 || before > 0, "{} bytes are left", bytes.len());
    }
    harness.settle();
}

/// Brings a port to rest whose disk answers.
fn rest(harness: &mut Harness, late: &[u8]) {
    let mut late = late;
    for _ in 0..20 {
        let rest = harness.come_to_rest(late);
        if rest == Rest::Ready {
            assert!(harness.is_still() && harness.shard.queue.is_empty());
            assert!(harness.shard.block.is_none(), "its lock stays behind");
            return;
        }
        late = &[];
        harness.settle();
    }
    panic!("it does not come to rest");
}

fn harness(memory: Option<usize>) -> Harness {
    match memory {
        None => Harness::new(STRUCTURED, DISK, 4, &[]),
        Some(bytes) => Harness::within(Budget::new(bytes).account("disk"), STRUCTURED, DISK, 4),
    }
}

#[test]
fn wherever_a_client_is_its_connection_goes_on_elsewhere() {
    let all = stream();
    // Without memory for the long write it is served in parts.
    for memory in [None, Some(0)] {
        let mut undisturbed = harness(memory);
        send(&mut undisturbed, &all);
        let expected = outcomes(undisturbed);
        let near = |at: usize| (at.saturating_sub(40)..at + 40).step_by(3);
        let marks = [0, 28 + 512, 28 + 512 + 28 + (48 << 10), all.len() - 600, all.len()];
        let mut cuts: Vec<usize> = marks.into_iter().flat_map(near).collect();
        cuts.extend((0..all.len()).step_by(1999));
        cuts.retain(|cut| *cut <= all.len());
        for cut in cuts {
            for late in [0, 1, 700] {
                let mut harness = harness(memory);
                let mut sent = harness.send(&all[..cut]);
                if sent == cut && late > 0 {
                    // A receive takes no more than it asked for.
                    let late = &all[cut..(cut + 1).min(all.len())];
                    sent += late.len();
                    rest(&mut harness, late);
                } else {
                    rest(&mut harness, &[]);
                }
                harness.arrive();
                send(&mut harness, &all[sent..]);
                assert!(outcomes(harness) == expected, "cut at {cut}, memory {memory:?}");
            }
        }
    }
}

#[test]
fn what_is_at_the_disk_is_waited_for_and_nothing_new_is_taken() {
    let mut harness = Harness::new(STRUCTURED, DISK, 4, &[]);
    harness.send(&request(command::READ, 1, 0, 512));
    assert_eq!(harness.come_to_rest(&request(command::READ, 2, 512, 512)), Rest::Busy);
    assert_eq!(harness.send(&[0]), 0, "it receives nothing");
    assert_eq!(harness.shard.queue.len(), 1);
    harness.complete(0, Outcome::Served);
    assert_eq!(harness.come_to_rest(&[]), Rest::Busy, "its answer is not out");
    harness.settle();
    assert_eq!(harness.come_to_rest(&[]), Rest::Ready);
    harness.arrive();
    assert_eq!(harness.shard.queue.len(), 1, "it had come before");
    harness.settle();
    assert_eq!(answers(&harness.output, &HashMap::new()).len(), 2);
}

#[test]
fn a_block_that_is_being_changed_is_written_back_first() {
    let mut harness = Harness::new(STRUCTURED, DISK, 4, &[]);
    harness.send(&write(1, 1000, &[7; 20]));
    assert_eq!(harness.come_to_rest(&[]), Rest::Busy, "it has asked for the block");
    assert!(harness.grant_block());
    for op in [Op::Read, Op::Write(headgate_engine::request::Durability::Cached)] {
        assert_eq!(harness.come_to_rest(&[]), Rest::Busy);
        assert_eq!(harness.complete(0, Outcome::Served).op, op);
    }
    assert_eq!(harness.come_to_rest(&[]), Rest::Ready, "what is left is to be said only");
    assert!(harness.shard.block.is_none());
    harness.arrive();
    harness.settle();
    assert_eq!(answers(&harness.output, &HashMap::new()), [(1, Answer::Done)]);
    assert_eq!(harness.shard.content[1000..1020], [7; 20]);
}

#[test]
fn a_connection_that_ends_goes_nowhere() {
    let mut harness = Harness::new(STRUCTURED, DISK, 4, &[]);
    harness.send(&request(command::READ, 1, 0, 512));
    harness.detach(Detach::Drain);
    assert_eq!(harness.come_to_rest(&[]), Rest::Busy);
    harness.settle();
    assert!(harness.shard.closed);
}
